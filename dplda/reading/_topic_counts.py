"""How many documents each topic has, in all or by groups, as one charged release.

Mechanism (Gaussian). Each document adds one vector: its largest topic, or its topic
weights, in the row of its group. A user adds the mean of these vectors. The sum gets
noise on every cell. ``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from dplda.core._base import BaseLDA
from dplda.core._corpus import check_counts
from dplda.core._fold_in import fold_in
from dplda.core._private_fit import (
    guarantee_of_sum,
    noise_of_sum,
    release_sum,
    release_total,
    sum_of_rows,
)
from dplda.core._texts import check_model, texts_in
from dplda.leaf._checks import check_integer
from dplda.leaf._messages import warn_user
from dplda.leaf._users import (
    as_objects,
    is_label,
    number_users,
    protected_unit,
    visible_text,
)
from dplda.privacy import (
    Guarantee,
    Ledger,
    PrivateDataWarning,
)
from dplda.privacy._charge import Charge, Step
from dplda.privacy._streams import Streams
from dplda.release._released_model import ReleasedModel
from dplda.release._topic_counts import OWN_SEED, TopicCounts, digest_of

MOST_CELLS = 50_000  # of all tables together: more is a mistake, or noise
ALL = ""  # the one group of a count without groups
MISSING = {"None", "nan", "NaN", "NaT", "<NA>"}  # how values that are missing print


@dataclass(frozen=True)
class Groups:
    """What is counted: public groups of one or more groupings.

    Parameters
    ----------
    levels : dict of str to tuple of str
        The groups of each grouping, which are crossed already.
    columns : dict of str to tuple of str
        The groups of each column, as they were given.
    soft : bool
        Whether a document is divided among the topics by its weights.
    most : dict of str to int
        Of a grouping, the largest number of groups of a user, each of which counts the
        user as one. Groupings that are not in it divide a user among all groups.
    """

    levels: Mapping[str, tuple[str, ...]]
    columns: Mapping[str, tuple[str, ...]]
    soft: bool
    most: Mapping[str, int]

    @property
    def norm(self) -> float:
        """The L2 norm that a unit has at most: one table has 1, or the root of `most`.

        Tables beside each other add up in squares (docs/proofs_document.md).
        """
        return math.sqrt(sum(self.most.get(by, 1) for by in self.levels))

    @property
    def step(self) -> str:
        """What is released, in words."""
        if [*self.levels] == [ALL]:
            return "number of documents in each topic"
        return f"number of documents in each topic, by {' and '.join(self.levels)}"

    def places(
        self, by: Mapping[str, Any] | None, n_docs: int
    ) -> dict[str, np.ndarray]:
        """Numbers of the documents' groups, -1 for those of none. Private.

        Errors quote no group.
        """
        if by is None:
            return {ALL: np.zeros(n_docs, np.int64)}
        places = {}
        for name, levels in self.columns.items():
            number: dict[str | None, int] = {level: i for i, level in enumerate(levels)}
            values = as_objects(by[name], f"by[{name!r}]")
            if values.shape != (n_docs,):
                raise ValueError(
                    f"by[{name!r}] must have one group for each document, got "
                    + (
                        "more or fewer"
                        if values.ndim == 1
                        else f"{values.ndim} dimensions"
                    )
                )
            # int64, whatever small integers a caller's codes are
            places[name] = np.array(
                [number.get(text, -1) for text in _group_texts(name, values)], np.int64
            )
        known = np.all([place >= 0 for place in places.values()], axis=0)
        n_unknown = n_docs - int(known.sum())
        if n_unknown:
            warn_user(
                f"{n_unknown} documents have a group that is not in levels, and are "
                "counted nowhere (not for release)",
                PrivateDataWarning,
            )
        if [*self.levels] == [*self.columns]:
            return places
        sizes = [*map(len, self.columns.values())]
        cells = np.where(known, [*places.values()], 0)
        (crossed,) = self.levels
        return {crossed: np.where(known, np.ravel_multi_index(tuple(cells), sizes), -1)}

    def rows(
        self,
        model: BaseLDA,
        counted: Any,
        places: Mapping[str, np.ndarray],
        users: np.ndarray | None,
    ) -> sp.csr_array:
        """One row for each unit, of the cells of all tables. Private.

        `places` are the numbers of the documents' groups, -1 outside of the levels. A
        document counts if it has a word and its groups are known in all groupings.
        """
        weights = fold_in(
            counted, model.components_, model.doc_topic_prior_, model.n_jobs
        )  # private
        n_docs, n_topics = weights.shape
        topics = np.broadcast_to(np.arange(n_topics), weights.shape)
        if not self.soft:  # one cell of a document, and not one of each topic
            topics = weights.argmax(axis=1)[:, None]
            weights = np.ones((n_docs, 1))
        counts = np.diff(counted.indptr) > 0  # private
        for place in places.values():
            counts &= place >= 0
        users = np.arange(n_docs) if users is None else users
        n_units = users.max(initial=-1) + 1
        tables = []
        for by, place in zip(self.levels, places.values()):
            group = np.where(counts, place, 0).astype(np.int64)
            share = _shares(users, group, counts, self.most.get(by))  # private
            cells = group[:, None] * n_topics + topics
            of_docs = sp.csr_array(
                (
                    (share[:, None] * weights).ravel(),
                    cells.ravel(),
                    np.arange(n_docs + 1) * topics.shape[1],
                ),
                shape=(n_docs, len(self.levels[by]) * n_topics),
            )
            # Row after row: the sum of a user reads no other user. Its part of a table
            # has entries of 0 or more with the sum 1, or `most` of these in cells of
            # their own: its squares add up to 1, or `most`, at most.
            own = sp.csr_array(
                (np.ones(n_docs), (users, np.arange(n_docs))), shape=(n_units, n_docs)
            )
            tables.append(own @ of_docs)
        return sp.csr_array(sp.hstack(tables))

    def tables(self, released: np.ndarray, n_topics: int) -> dict[str, np.ndarray]:
        """The released cells, as tables of groups and topics."""
        tables = {}
        start = 0
        for by, levels in self.levels.items():
            end = start + len(levels) * n_topics
            tables[by] = released[start:end].reshape(len(levels), n_topics)
            start = end
        return tables


def _shares(
    users: np.ndarray, group: np.ndarray, counts: np.ndarray, most: int | None
) -> np.ndarray:
    """How much each document counts: a user is divided among own documents.

    With `most`, a user is divided among the documents of each group, in the first
    groups that have one.
    """
    if most is None:
        n_own = np.bincount(users, counts)
        return counts / np.maximum(n_own[users], 1.0)
    pairs, inverse = np.unique(
        np.column_stack([users, group])[counts], axis=0, return_inverse=True
    )
    # pairs are sorted: the place of a group among those of its user
    first = np.searchsorted(pairs[:, 0], pairs[:, 0])
    is_kept = np.arange(len(pairs)) - first < most
    share = np.zeros(len(users))
    share[counts] = (is_kept / np.bincount(inverse.ravel(), minlength=len(pairs)))[
        inverse.ravel()
    ]
    return share


@overload
def private_topic_counts(
    model: BaseEstimator,
    X: Any,
    *,
    epsilon: float,
    by: None = None,
    levels: None = None,
    cross: bool = False,
    most_groups: Mapping[str, int] | None = None,
    delta: float = 1e-6,
    soft: bool = False,
    user_ids: ArrayLike | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    random_state: object = None,
) -> tuple[np.ndarray, Guarantee]: ...


@overload
def private_topic_counts(
    model: BaseEstimator,
    X: Any,
    *,
    epsilon: float,
    by: Mapping[str, Any],
    levels: Mapping[str, Sequence[str]],
    cross: bool = False,
    most_groups: Mapping[str, int] | None = None,
    delta: float = 1e-6,
    soft: bool = False,
    user_ids: ArrayLike | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    random_state: object = None,
) -> TopicCounts: ...


def private_topic_counts(
    model: BaseEstimator,
    X: Any,
    *,
    epsilon: float,
    by: Mapping[str, Any] | None = None,
    levels: Mapping[str, Sequence[str]] | None = None,
    cross: bool = False,
    most_groups: Mapping[str, int] | None = None,
    delta: float = 1e-6,
    soft: bool = False,
    user_ids: ArrayLike | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    random_state: object = None,
) -> tuple[np.ndarray, Guarantee] | TopicCounts:
    """Release how many private documents each topic has, with noise.

    With `by`, it counts by groups, such as wards and months, for one charge.

    Parameters
    ----------
    model : fitted topic model
        A public model of dplda, such as a `SubLDA` or a `PrivateTopicModel`, or one
        that `load_release` read.
    X : {array-like, sparse matrix} of shape (n_docs, n_words), or texts
        Word counts of private documents, or their texts if the model takes texts. They
        may be those that the model was trained on.
    epsilon : float
        Total epsilon of a document, or of a user if `user_ids` are given, above 0;
        ``inf`` counts without noise and without privacy.
    by : dict of str to array-like of shape (n_docs,), default=None
        The group of each document, for each grouping: ``{"ward": wards, "month":
        months}``. Groups are texts or integers, and are compared as texts, by what can
        be seen of them. A missing one is in no group. Floats are refused, as a missing
        group makes them of a column of integers.
    levels : dict of str to sequence of str, default=None
        All groups of each grouping, which must be public. They are never read from the
        data: that a group has a document would not be protected. A document with
        another group, in any grouping, is counted nowhere.
    cross : bool, default=False
        If False, one table for each grouping. If True, one table of all combinations of
        groups, which has many more cells under the same noise.
    most_groups : dict of str to int, default=None
        Of a grouping, such as "week": a user counts as one in each of at most so many
        groups, the first in the order of `levels`. By default a user counts as one in
        all groups together.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, in [1e-14, 1).
    soft : bool, default=False
        If False, a document counts for the topic with the largest weight. If True, it
        is divided among all topics by their weights.
    user_ids : array-like of shape (n_docs,), default=None
        The user that each document belongs to. Each user then counts as one, divided
        equally among the user's documents.
    ledger : Ledger, str, path-like or None, default=None
        Where the release is charged: the one that the training was charged to, if the
        documents are the same.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. Anything else makes the result
        reproducible, and voids the guarantee against anyone who knows or guesses it
        (`SeededNoiseWarning`).

    Returns
    -------
    counts : ndarray of shape (n_components,)
        Without `by`: noisy numbers of documents, or of users. They are unbiased, not
        whole, and may be negative. Documents without a word of the vocabulary are not
        counted.
    guarantee : Guarantee
        Without `by`: what the release costs. ``guarantee.noise_scale`` is the standard
        deviation of each count.
    table : TopicCounts
        With `by`: the counts of each grouping, their intervals and the guarantee.

    Raises
    ------
    BudgetError
        If the budget of the ledger is too small. No document has been read then.
    TypeError, ValueError
        If `model` is not a topic model of dplda with a `doc_topic_prior`, or if
        `epsilon`, `delta`, `X`, `user_ids`, `by` or `levels` do not fit. Nothing is
        charged then.

    Warns
    -----
    SeededNoiseWarning
        If noise is drawn from a given `random_state`.
    PrivateDataWarning
        If documents have a group that is not in `levels`. Not for release.

    Notes
    -----
    **Privacy.** Unit: document, or user if `user_ids` are given. Relation: one unit is
    added, removed, or becomes empty. Sensitivity: 1 in L2, or the root of the number of
    groupings, checked in integers. Mechanism: discrete Gaussian noise on every count.
    Event: ``Gaussian(noise_multiplier)``. The topics of a document are a function of it
    and of the model, whose training has a guarantee of its own. The proof is in
    ``docs/proofs_document.md``.

    Examples
    --------
    >>> from dplda import SubLDA, private_topic_counts
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.privacy import Ledger
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> ledger = Ledger(epsilon=4.0)
    >>> model = SubLDA(n_components=3, epsilon=3.0, ledger=ledger).fit(X)
    >>> counts, guarantee = private_topic_counts(model, X, epsilon=1.0, ledger=ledger)
    >>> counts.shape, round(guarantee.noise_scale, 1)
    ((3,), 4.2)
    """
    topics = topics_of(model)
    groups = groups_of(
        by,
        levels,
        len(topics.components_),
        cross=cross,
        soft=soft,
        most_groups=most_groups,
        has_users=user_ids is not None,
    )  # public
    unit = protected_unit(user_ids)  # public

    def read() -> sp.csr_array:
        counted = counts_of(model, topics, X)  # private
        n_docs = counted.shape[0]
        users = number_users(user_ids, n_docs)  # private
        places = groups.places(by, n_docs)  # private
        return groups.rows(topics, counted, places, users)

    released, guarantee = release_sum(
        read,
        name=f"private_topic_counts of {type(model).__name__}",
        label=groups.step,
        norm=groups.norm,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        user_ids=user_ids,
        ledger=ledger,
        random_state=random_state,
    )
    if by is None:
        return released, guarantee
    return counts_from(released, guarantee, groups, model)


class PaidCounts:
    """Counts by group that the charge of a fit pays for, as the last step of its plan.

    Parameters
    ----------
    groups : Groups
        What is counted.
    by : dict
        As in `private_topic_counts`.
    epsilon, delta : float
        The cost of the counts.
    """

    def __init__(
        self,
        groups: Groups,
        by: Mapping[str, Any],
        *,
        epsilon: float,
        delta: float,
    ) -> None:
        self._groups = groups
        self._by = by
        self._delta = delta
        self._mechanism = noise_of_sum(epsilon, delta, "counts_epsilon")  # public

    @property
    def plan(self) -> list[Step]:
        """What is released."""
        return [(self._groups.step, self._mechanism.event)]

    def places(self, n_docs: int) -> dict[str, np.ndarray]:
        """The groups of documents, checked. Private."""
        return self._groups.places(self._by, n_docs)

    def release(
        self,
        topics: BaseLDA,
        X: Any,
        places: Mapping[str, np.ndarray],
        user_ids: Any,
        charge: Charge,
        random_state: object,
    ) -> TopicCounts:
        """The counts of `topics`, which the same charge has released. It has begun."""
        groups, step = self._groups, self._groups.step
        unit = protected_unit(user_ids)
        counted = check_counts(topics, X, reset=False)  # private
        users = number_users(user_ids, counted.shape[0])  # private
        rows = groups.rows(topics, counted, places, users)  # private
        total = sum_of_rows(rows, self._mechanism, groups.norm)  # private
        guarantee = guarantee_of_sum(
            self._mechanism, charge, step, groups.norm, self._delta, unit
        )
        if charge.seeded:
            provenance = (*guarantee.provenance, OWN_SEED)
            guarantee = replace(guarantee, provenance=provenance)
        streams = Streams.from_random_state(random_state)  # secret
        released = release_total(
            total, self._mechanism, charge, streams, step, groups.norm
        )  # public
        return counts_from(released, guarantee, groups, topics)


def counts_from(
    released: np.ndarray, guarantee: Guarantee, groups: Groups, model: BaseEstimator
) -> TopicCounts:
    """The released tables."""
    components = model.components_
    return TopicCounts(
        counts=groups.tables(released, len(components)),
        levels=groups.levels,
        noise_scale=float(guarantee.noise_scale),  # type: ignore[arg-type]
        privacy_=guarantee,
        counted_as=getattr(model, "counted_as_", "") or digest_of(components),
        soft=groups.soft,
        most_groups=dict(groups.most),
    )


def topics_of(model: BaseEstimator) -> BaseLDA:
    """The topic model of counts, which a model of texts holds."""
    check_model(model)
    topics = getattr(model, "model_", model)
    if not isinstance(topics, BaseLDA) or topics.doc_topic_prior_ is None:
        raise TypeError(
            "model must be a topic model of dplda with a doc_topic_prior, got "
            f"{type(model).__name__}; the proof is about the inference of these "
            "models. Of a pipeline, pass pipeline[-1] and "
            "pipeline[:-1].transform(texts)"
        )
    return topics


def counts_of(model: BaseEstimator, topics: BaseLDA, X: Any) -> Any:
    """Checked counts of texts or counts. Private."""
    if isinstance(model, ReleasedModel):
        X = model._counts(X)
    elif topics is not model:
        texts = texts_in(X)
        if texts is not None:
            X = model.vectorizer_.transform(texts)
    return check_counts(topics, X, reset=False)


def groups_of(
    by: Mapping[str, Any] | None,
    levels: Mapping[str, Sequence[str]] | None,
    n_topics: int,
    *,
    cross: bool = False,
    soft: bool = False,
    most_groups: Mapping[str, int] | None = None,
    has_users: bool = False,
) -> Groups:
    """What is counted. It reads the names of `by`, and nothing of the data."""
    if by is None:
        if levels is not None or cross or most_groups:
            raise ValueError(
                "levels, cross and most_groups need by: the group of each document"
            )
        return Groups({ALL: (ALL,)}, {}, soft, {})
    if not isinstance(by, Mapping) or not by:
        raise TypeError(
            'by must be a dict of groupings, such as {"ward": wards}, got '
            f"{type(by).__name__}"
        )
    if not isinstance(levels, Mapping) or levels.keys() != by.keys():
        asked = ", ".join(map(repr, by))
        raise ValueError(
            f"levels must list the groups of each grouping, {asked}, and no other, "
            "from public knowledge: a list that is read from the data would tell which "
            "groups have a document"
        )
    checked = {name: _checked_levels(name, levels[name]) for name in by}
    most = dict(most_groups or {})
    if most and (cross or not has_users):
        raise ValueError(
            "most_groups limits the groups of each user: give user_ids, and not cross"
        )
    for name, number in most.items():
        if name not in checked:
            raise ValueError(f"most_groups names {name!r}, which is not in by")
        check_integer(f"most_groups[{name!r}]", number, 1, len(checked[name]))
    n_groups = [len(groups) for groups in checked.values()]
    n_cells = n_topics * (math.prod(n_groups) if cross else sum(n_groups))
    if n_cells > MOST_CELLS:
        raise ValueError(
            f"the tables would have {n_cells} numbers of {n_topics} topics, at most "
            f"{MOST_CELLS} are released; take fewer groups"
        )
    crossed = checked
    if cross:
        names = tuple(map(", ".join, product(*checked.values())))
        twice = [name for name, n in Counter(names).items() if n > 1]
        if twice:
            raise ValueError(
                f"two combinations of groups have the name {twice[0]!r}; take groups "
                "without a comma"
            )
        crossed = {" and ".join(checked): names}
    return Groups(crossed, checked, soft, most)


def _checked_levels(name: object, levels: Any) -> tuple[str, ...]:
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        raise ValueError("the name of a grouping must be a printable text")
    if isinstance(levels, str):
        raise TypeError(f"levels[{name!r}] must be a list of groups, got one text")
    levels = tuple(levels)
    if not all(map(is_label, levels)):
        raise ValueError(
            f"levels[{name!r}] must be a list of texts or integers; write other groups "
            "as texts"
        )
    groups = tuple(map(visible_text, levels))
    if not groups or not all(group and group.isprintable() for group in groups):
        raise ValueError(
            f"levels[{name!r}] must be a list of printable texts, at least one"
        )
    twice = [group for group, n in Counter(groups).items() if n > 1]
    if twice:
        raise ValueError(
            f"levels[{name!r}] lists {twice[0]!r} more than once; list each group once"
        )
    return groups


def _group_texts(name: str, values: np.ndarray) -> list[str]:
    """The group of each document, an empty text for those without one. Private.

    It is a function of the document alone. Values are refused whose text depends on
    other documents: one missing group makes the float 1.0 of a group 1.
    """
    wrong = {
        type(value).__name__
        for value in values
        if not is_label(value) and str(value) not in MISSING
    }
    if wrong:
        raise ValueError(
            f"by[{name!r}] must hold texts or integers, got values of type "
            f"{' and '.join(sorted(wrong))}: their texts depend on the other "
            "documents, as a missing group makes floats of a column of integers. Read "
            "the column as texts (dtype=str), or convert floats with .astype('Int64'), "
            "and dates with .dt.strftime"
        )
    return [visible_text(value) if is_label(value) else "" for value in values]
