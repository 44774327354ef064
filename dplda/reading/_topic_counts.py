"""How many documents each topic has, in all or by groups, as one charged release.

Mechanism (Gaussian). Each unit adds one vector (`Groups.rows`). Every cell of the sum
gets noise. ``docs/proofs_document.md`` has the proof.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from dplda.core._base import BaseLDA
from dplda.core._corpus import Matrix, Shards, are_shards, check_counts
from dplda.core._texts import check_model, texts_in
from dplda.leaf._messages import Progress, Unnumbered, named
from dplda.leaf._users import number_users, protected_unit
from dplda.privacy import Guarantee, Ledger
from dplda.privacy._charge import Charge, Step
from dplda.privacy._mechanisms import sum_clipped
from dplda.privacy._streams import Streams
from dplda.reading._groups import Groups, groups_of
from dplda.reading._noisy_sum import (
    guarantee_of_sum,
    noise_of_sum,
    release_sum,
    release_total,
)
from dplda.release._counts import OWN_SEED, TopicCounts, digest_of
from dplda.release._released_model import ReleasedModel


def private_topic_counts(
    model: BaseEstimator,
    X: Matrix | Iterable[str],
    *,
    epsilon: float,
    by: Mapping[str, ArrayLike] | None = None,
    levels: Mapping[str, Sequence[str]] | None = None,
    cross: bool = False,
    most_groups: Mapping[str, int] | None = None,
    delta: float = 1e-6,
    soft: bool = False,
    user_ids: ArrayLike | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    random_state: object = None,
) -> TopicCounts:
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
        months}``. Groups are texts or integers. They are compared as visible texts. A
        document whose group is missing is in no group. Floats are refused, because one
        missing group turns a column of integers into floats.
    levels : dict of str to sequence of str, default=None
        All groups of each grouping, which must be public. They are never read from the
        data, because that would tell which groups have a document. A document with
        another group, in any grouping, is counted nowhere. If no document has a group
        of a grouping, this is an error: the groups are written in another way.
    cross : bool, default=False
        If False, one table for each grouping. If True, one table of all combinations of
        groups, which has many more cells under the same noise.
    most_groups : dict of str to int, default=None
        For a grouping, such as "week", the largest number of groups in which a user
        counts as one: the user's first groups in the order of `levels`. By default a
        user counts as one in all groups together.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, from 1e-14 to 0.001.
    soft : bool, default=False
        If False, a document counts for the topic with the largest weight. If True, it
        is divided among all topics by their weights.
    user_ids : array-like of shape (n_docs,), default=None
        The user that each document belongs to. Each user then counts as one, divided
        equally among the user's documents.
    ledger : Ledger, str, path-like or None, default=None
        Where the release is charged. For the documents of the training, pass the ledger
        of the training.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. Anything else makes the result
        reproducible, and voids the guarantee against anyone who knows or guesses it
        (`SeededNoiseWarning`).

    Returns
    -------
    table : TopicCounts
        The noisy numbers of documents, or of users, with their intervals and the
        guarantee. They are unbiased, not whole, and may be negative. Documents without
        a word of the vocabulary are not counted. Without `by`, ``table.counts["all"]``
        is of shape (1, n_components).

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
    Event: ``Gaussian(noise_multiplier)``. The topics of a document are a function of
    the document and of the model. The training of the model has its own guarantee. The
    proof is in ``docs/proofs_document.md``.

    Examples
    --------
    >>> from dplda import SubLDA, private_topic_counts
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.privacy import Ledger
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> ledger = Ledger(epsilon=4.0)
    >>> model = SubLDA(n_components=3, epsilon=3.0, ledger=ledger).fit(X)
    >>> table = private_topic_counts(model, X, epsilon=1.0, ledger=ledger)
    >>> table.counts["all"].shape, round(table.noise_scale, 1)
    ((1, 3), 4.2)
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
    return counts_from(released, guarantee, groups, model)


class PaidCounts:
    """Counts by group that a fit pays for, as the last step of its plan.

    Parameters
    ----------
    groups : Groups
        What is counted.
    by : dict
        As in `private_topic_counts`.
    epsilon, delta : float
        The cost of the counts.
    random_state : object, default=None
        As in `private_topic_counts`.
    """

    def __init__(
        self,
        groups: Groups,
        by: Mapping[str, ArrayLike],
        *,
        epsilon: float,
        delta: float,
        random_state: object = None,
    ) -> None:
        self._groups = groups
        self._by = by
        self._delta = delta
        self._random_state = random_state
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
        X: sp.csr_matrix | Shards,
        places: Mapping[str, np.ndarray],
        user_ids: ArrayLike | None,
        charge: Charge,
        progress: Progress,
    ) -> TopicCounts:
        """The counts of `topics`, which the same charge has released."""
        groups = self._groups
        step = groups.step
        unit = protected_unit(user_ids)
        # One unit moves the sum by at most the radius in L2, as in `release_sum`. No
        # unit is in two parts, and a sum of integers does not depend on their order.
        sums = (
            sum_clipped(groups.rows(topics, *part), groups.norm, self._mechanism.radius)
            for part in _parts(topics, X, places, user_ids, progress)
        )  # private
        total = reduce(np.add, sums)  # private
        guarantee = guarantee_of_sum(
            self._mechanism, charge, step, groups.norm, self._delta, unit
        )
        if charge.seeded:
            provenance = (*guarantee.provenance, OWN_SEED)
            guarantee = replace(guarantee, provenance=provenance)
        streams = Streams.from_random_state(self._random_state)  # secret
        released = release_total(
            total, self._mechanism, charge, streams, step, groups.norm
        )  # public
        return counts_from(released, guarantee, groups, topics)


def _parts(
    topics: BaseLDA,
    X: sp.csr_matrix | Shards,
    places: Mapping[str, np.ndarray],
    user_ids: ArrayLike | None,
    progress: Progress,
) -> Iterator[tuple[sp.csr_array, Mapping[str, np.ndarray], np.ndarray | None]]:
    """Counts, groups and users of the documents of whole units, part by part; private.

    `places` and `user_ids` have the order of the texts; shards put the documents of a
    user together.
    """
    n_docs = X.shape[0]
    users = number_users(user_ids, n_docs)
    if not are_shards(X):
        yield check_counts(topics, X, reset=False), places, users
        return
    order = np.arange(n_docs) if users is None else np.argsort(users, kind="stable")
    begin = 0
    shards = progress.during(Unnumbered(X.shards), named("counting groups"))
    for shard, counts in zip(shards, X):
        rows = order[begin : begin + counts.shape[0]]
        begin += len(rows)
        own = {by: place[rows] for by, place in places.items()}
        of_units = None if users is None else shard.users()
        yield check_counts(topics, counts, reset=False), own, of_units


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
            f"{type(model).__name__}; the proof holds for the inference of these "
            "models only. For a pipeline, pass pipeline[-1] and "
            "pipeline[:-1].transform(texts)"
        )
    return topics


def counts_of(model: BaseEstimator, topics: BaseLDA, X: object) -> sp.csr_array:
    """Checked counts of texts or counts. Private."""
    if isinstance(model, ReleasedModel):
        X = model._counts(X)
    elif topics is not model:
        texts = texts_in(X)
        if texts is not None:
            X = model.vectorizer_.transform(texts)
    return check_counts(topics, X, reset=False)
