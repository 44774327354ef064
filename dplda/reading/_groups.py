"""Public groups of documents, and what a document adds to the numbers of its group.

A document adds one vector: its largest topic, or its topic weights, in the row of its
group. A user adds the mean of the documents' vectors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dplda.core._base import BaseLDA
from dplda.core._fold_in import fold_in
from dplda.leaf._checks import check_integer
from dplda.leaf._messages import warn_user
from dplda.leaf._users import as_objects, is_label, visible_text
from dplda.privacy import PrivateDataWarning
from dplda.release._counts import WITHOUT_GROUPS

MOST_CELLS = 50_000  # of all tables together; more tables are a mistake, or noise
MISSING = {"None", "nan", "NaN", "NaT", "<NA>"}  # how values that are missing print


@dataclass(frozen=True)
class Groups:
    """What is counted: public groups of one or more groupings.

    Parameters
    ----------
    levels : dict of str to tuple of str
        The groups of each grouping, after crossing.
    columns : dict of str to tuple of str
        The groups of each column, as the caller gave them.
    soft : bool
        Whether a document is divided among the topics by its weights.
    most : dict of str to int
        For a grouping, the largest number of groups that count a user, each as one.
        The other groupings divide a user among all groups.
    """

    levels: Mapping[str, tuple[str, ...]]
    columns: Mapping[str, tuple[str, ...]]
    soft: bool
    most: Mapping[str, int]

    @property
    def norm(self) -> float:
        """The largest L2 norm of a unit: 1 for one table, or the root of `most`.

        The squares of several tables add up (docs/proofs_document.md).
        """
        return math.sqrt(sum(self.most.get(by, 1) for by in self.levels))

    @property
    def step(self) -> str:
        """What is released, in words."""
        if not self.columns:
            return "number of documents in each topic"
        return f"number of documents in each topic, by {' and '.join(self.levels)}"

    def places(
        self, by: Mapping[str, ArrayLike] | None, n_docs: int
    ) -> dict[str, np.ndarray]:
        """The number of each document's group, -1 for a document without one. Private.

        Errors quote no group.
        """
        if by is None:
            return {name: np.zeros(n_docs, np.int64) for name in self.levels}
        places = {}
        for name, levels in self.columns.items():
            number: dict[str | None, int] = {level: i for i, level in enumerate(levels)}
            values = as_objects(by[name], f"by[{name!r}]")
            if values.shape != (n_docs,):
                is_list = values.ndim == 1
                got = "more or fewer" if is_list else f"{values.ndim} dimensions"
                raise ValueError(
                    f"by[{name!r}] must have one group for each document, got {got}"
                )
            # int64, whatever small integers a caller's codes are
            texts = _group_texts(name, values)
            places[name] = np.fromiter(
                (number.get(text, -1) for text in texts), np.int64, n_docs
            )
            if n_docs and (places[name] < 0).all():
                raise ValueError(
                    f"by[{name!r}] holds none of the groups of levels[{name!r}], such "
                    f"as {levels[0]!r}, so that nothing would be counted; write them "
                    "alike in both (dates of months and weeks: 2026-01-31)"
                )
        known = np.all([place >= 0 for place in places.values()], axis=0)
        n_unknown = n_docs - int(known.sum())
        if n_unknown:
            where = " and ".join(
                f"{(place < 0).sum()} in {name!r}"
                for name, place in places.items()
                if (place < 0).any()
            )
            warn_user(
                f"{n_unknown} documents have a group that is not in levels ({where}), "
                "and are counted nowhere (not for release)",
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
        counted: sp.csr_array,
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
        # row after row: the sum of a user reads no other user
        own = sp.csr_array(
            (np.ones(n_docs), (users, np.arange(n_docs))),
            shape=(users.max(initial=-1) + 1, n_docs),
        )
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
            # A user's part of a table has entries of 0 or more with the sum 1, or
            # `most` such parts in different cells: its squares add up to at most 1, or
            # `most`.
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
    """How much each document counts: its user is divided among the user's documents.

    With `most`, a user counts as one in each of the first `most` groups that have a
    document of the user, and is divided among the documents of that group.
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


def groups_of(
    by: Mapping[str, ArrayLike] | None,
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
        return Groups(WITHOUT_GROUPS, {}, soft, {})
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
            f"the tables of {n_topics} topics would have {n_cells} numbers, and at "
            f"most {MOST_CELLS} are allowed; take fewer groups"
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


def _checked_levels(name: object, levels: Iterable[str]) -> tuple[str, ...]:
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        raise ValueError("the name of a grouping must be a printable text")
    if isinstance(levels, str | Set):  # the order of a set differs between processes
        got = "one text" if isinstance(levels, str) else "a set, which has no order"
        raise TypeError(f"levels[{name!r}] must be a list of groups, got {got}")
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


def _group_texts(name: str, values: np.ndarray) -> Iterator[str]:
    """The group of each document, an empty text for those without one. Private.

    It is a function of the document alone. A value whose text depends on other
    documents is refused: one missing group in a column turns group 1 into 1.0.
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
            "documents, as one missing group turns a column of integers into floats. "
            "Read the column as texts (dtype=str), or convert floats with "
            ".astype('Int64'), and dates with .dt.strftime"
        )
    return (visible_text(value) if is_label(value) else "" for value in values)
