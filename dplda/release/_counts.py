"""Released numbers of documents or users by topic and group.

Everything here is a function of released numbers and of public constants.
``docs/report.md`` describes the estimates.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2

from dplda.core._joint_guarantee import added_up
from dplda.core._signal import FALSE_POSITIVES
from dplda.leaf._checks import check_integer, check_number
from dplda.privacy import Guarantee
from dplda.release._container import load, pack, save, unpack
from dplda.release._records import (
    read_digest,
    read_flag,
    read_guarantee,
    read_list,
    read_text,
    record_of,
)

KIND = "dplda-counts"
_FIELDS = {
    "by",
    "levels",
    "most_groups",
    "noise_scale",
    "soft",
    "counted_as",
    "guarantee",
}
# of the numbers in a file: sums of their squares are finite in double precision
LARGEST = float(np.finfo(np.float32).max)
# the one grouping of counts without groups, and its one group
WITHOUT_GROUPS = MappingProxyType({"all": ("all",)})


# of seeded counts of the fit itself, which `added_up` may add up
OWN_SEED = ("counts", "in one charge with the fit, from a seed of their own")


@dataclass(frozen=True, eq=False)
class TopicCounts:
    """Numbers of documents, or of users, by topic and group, with noise.

    `private_topic_counts` makes it, and `load_counts` reads it from a file. It may be
    published: it holds released numbers only.

    Parameters
    ----------
    counts : dict of str to ndarray of shape (n_levels, n_components)
        The released numbers of each grouping, such as "ward": a row for each group, and
        a column for each topic. They are unbiased, not whole, and may be negative.
        Counts without groups are one row of the grouping "all".
    levels : dict of str to tuple of str
        The groups of the rows.
    noise_scale : float
        Standard deviation of the noise of each number.
    privacy_ : Guarantee
        The cost of all tables together.
    counted_as : str
        SHA-256 of the topics that were counted.
    soft : bool, default=False
        Whether a document is divided among the topics by its weights.
    most_groups : dict of str to int, default={}
        For a grouping, the largest number of groups that counted a user.

    Examples
    --------
    >>> from dplda import SubLDA, private_topic_counts
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> model = SubLDA(n_components=3, epsilon=3.0).fit(X)
    >>> ward = ["north", "south"] * 250
    >>> table = private_topic_counts(
    ...     model,
    ...     X,
    ...     by={"ward": ward},
    ...     levels={"ward": ["north", "south"]},
    ...     epsilon=1.0,
    ... )
    >>> table.counts["ward"].shape, round(table.noise_scale, 1)
    ((2, 3), 4.2)
    """

    counts: Mapping[str, np.ndarray]
    levels: Mapping[str, tuple[str, ...]]
    noise_scale: float
    privacy_: Guarantee
    counted_as: str
    soft: bool = False
    most_groups: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def joined(cls, tables: Sequence[TopicCounts]) -> TopicCounts:
        """Put tables of other documents under each other, such as weekly tables.

        No document may be in two of the tables. If they protect documents, a year of
        weeks costs as much as one week; the ledger agrees if each week is charged to
        its own part (`Ledger.part`). A user may be in all tables, and pays for each.

        Parameters
        ----------
        tables : sequence of TopicCounts
            Tables with the same grouping, model, noise, budget, unit and relation, and
            with different groups; with one group each if they protect users.

        Returns
        -------
        table : TopicCounts
            All rows. The guarantee is that of one table if they protect documents, and
            otherwise that of all tables together.

        Raises
        ------
        TypeError, ValueError
            If the tables differ in grouping, model, noise, budget, unit or relation, if
            tables of users have several groups, or if their noise is from given seeds.
        """
        if not tables or not all(isinstance(table, cls) for table in tables):
            raise TypeError("tables must be a list of TopicCounts, at least one")
        first = tables[0]
        (by, *others) = first.counts
        alike = {
            (
                tuple(t.counts),
                t.counted_as,
                t.soft,
                t.noise_scale,
                t.privacy_.events,
                t.privacy_.unit,
                t.privacy_.relation,
            )
            for t in tables
        }
        if others or len(alike) > 1:
            raise ValueError(
                "the tables must have one grouping, and all the same grouping, model, "
                "noise, budget, unit and relation"
            )
        if any(table.privacy_.seeded for table in tables):
            raise ValueError(
                "tables whose noise is from given seeds may have the same noise; count "
                "with random_state=None"
            )
        levels = [level for table in tables for level in table.levels[by]]
        if len(set(levels)) < len(levels):
            raise ValueError("two of the tables have the same group")
        guarantees = [table.privacy_ for table in tables]
        most: Mapping[str, int] = first.most_groups
        if first.privacy_.unit == "document":
            disjoint = "no document is in two of the tables that were joined"
            guarantee = dataclasses.replace(
                first.privacy_,
                assumptions=(*first.privacy_.assumptions, disjoint),
                ledger=guarantees[-1].ledger,
                receipt=guarantees[-1].receipt,
            )
        else:
            if len(levels) > len(tables):
                raise ValueError(
                    f"the tables protect one {first.privacy_.unit}, who may be in "
                    "several of them: join tables of one group each, or release all "
                    "groups in one call, with most_groups"
                )
            # each table counts a user as one
            guarantee, most = added_up(guarantees), {by: len(tables)}
        rows = np.concatenate([table.counts[by] for table in tables])
        return dataclasses.replace(
            first,
            counts={by: rows},
            levels={by: tuple(levels)},
            privacy_=guarantee,
            most_groups=most,
        )

    def interval(
        self, coverage: float = 0.95
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Give the lower and upper ends of an interval for each number.

        It covers the noise alone, and not the chance of which texts were written.

        Parameters
        ----------
        coverage : float, default=0.95
            Probability that an interval holds the number without noise, in (0, 1).

        Returns
        -------
        dict of str to (ndarray, ndarray)
            Of shape (n_levels, n_components), cut at 0: no number without noise is
            below it.
        """
        check_number("coverage", coverage, 0.0, 1.0, closed="neither")
        margin = self.margin(coverage)
        return {
            by: (np.maximum(table - margin, 0.0), np.maximum(table + margin, 0.0))
            for by, table in self.counts.items()
        }

    def margin(self, coverage: float = 0.95) -> float:
        """Give half the width of an interval.

        Parameters
        ----------
        coverage : float, default=0.95
            As in `interval`.

        Returns
        -------
        float
            In documents or users.
        """
        return float(-ndtri((1.0 - coverage) / 2)) * self.noise_scale

    def total(self) -> tuple[float, float]:
        """Estimate how many documents or users are counted, with a standard error.

        Returns
        -------
        total, error : float
            Documents, or users of documents, that have a known word and a known group.
            The mean over all tables without `most_groups`, weighted by precision; NaN
            without such a table.
        """
        alike = [self.counts[by] for by in self.counts if by not in self.most_groups]
        if not alike:
            return math.nan, math.nan
        precision = np.array([1.0 / table.size for table in alike])
        total = precision @ [table.sum() for table in alike] / precision.sum()
        return float(total), self.noise_scale / math.sqrt(precision.sum())

    def estimates(self) -> dict[str, np.ndarray]:
        """Give better numbers for charts: totals agree, and no number is negative.

        The total of a topic is the mean of its totals in all tables, weighted by their
        precision. Tables with `most_groups` count users more than once, and keep their
        own totals. Each column is then replaced by the nearest column without negative
        numbers that has this total. Intervals are about `counts`, not about these.

        Returns
        -------
        dict of str to ndarray of shape (n_levels, n_components)
            An estimate of each number.
        """
        totals = {by: table.sum(axis=0) for by, table in self.counts.items()}
        alike = [by for by in self.counts if by not in self.most_groups]
        if alike:
            # a total has the noise of all its cells
            precision = np.array([1.0 / len(self.counts[by]) for by in alike])
            mean = precision @ np.array([totals[by] for by in alike]) / precision.sum()
            totals |= dict.fromkeys(alike, mean)
        return {
            by: np.column_stack(
                [
                    _nearest(column, max(t, 0.0))
                    for column, t in zip(table.T, totals[by])
                ]
            )
            for by, table in self.counts.items()
        }

    def real_share(self, topics: Sequence[int] | None = None) -> dict[str, float]:
        """Estimate the share of the differences between groups that is not noise.

        It is 1 minus the variance of the noise over the variance between groups.

        Parameters
        ----------
        topics : sequence of int, default=None
            The topics to look at. None: all.

        Returns
        -------
        dict of str to float
            From 0, all noise, to 1.
        """
        shares = {}
        for by, some in self._of_topics(topics):
            spread = 0.0
            if some.size and len(some) > 1:
                spread = float(some.var(axis=0, ddof=1).mean())
            noise = self.noise_scale**2
            shares[by] = max(0.0, 1.0 - noise / spread) if spread else 0.0
        return shares

    def differs(self, topics: Sequence[int] | None = None) -> dict[str, np.ndarray]:
        """Mark the topics whose numbers differ between groups by more than noise.

        If no topic of a table differs, the chance that one is marked is at most 5%.

        Parameters
        ----------
        topics : sequence of int, default=None
            The topics to look at. None: all.

        Returns
        -------
        dict of str to ndarray of bool
            One for each of `topics`.
        """
        marks = {}
        for by, some in self._of_topics(topics):
            squares = np.square(some - some.mean(axis=0)).sum(axis=0)
            level = FALSE_POSITIVES / max(some.shape[1], 1)
            most = chi2.isf(level, max(len(some) - 1, 1))
            marks[by] = squares > most * self.noise_scale**2
        return marks

    def _of_topics(
        self, topics: Sequence[int] | None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """The tables by their groupings, with the columns of some topics."""
        for by, table in self.counts.items():
            yield by, table if topics is None else table[:, list(topics)]

    def to_frame(self) -> Any:
        """Make a table of pandas with one row for each number.

        Returns
        -------
        DataFrame
            With the columns by, group, topic, count, low, high and estimate. `low` and
            `high` are the ends of the interval of 95%.
        """
        import pandas as pd

        intervals = self.interval()
        estimates = self.estimates()
        parts = []
        for by, table in self.counts.items():
            n_levels, n_topics = table.shape
            low, high = intervals[by]
            columns = {
                "by": by,
                "group": np.repeat(np.array(self.levels[by], object), n_topics),
                "topic": np.tile(np.arange(n_topics), n_levels),
                "count": table.ravel(),
                "low": low.ravel(),
                "high": high.ravel(),
                "estimate": estimates[by].ravel(),
            }
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tables to a file that may be published.

        Parameters
        ----------
        path : str or path-like
            The file, which `dplda.load_counts` reads. An existing file is replaced.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        save(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file.

        Returns
        -------
        bytes
            What `save` writes.
        """
        content = {
            "by": [*self.counts],
            "levels": [[*self.levels[by]] for by in self.counts],
            "most_groups": dict(self.most_groups),
            "noise_scale": self.noise_scale,
            "soft": self.soft,
            "counted_as": self.counted_as,
            "guarantee": record_of(self.privacy_),
        }
        tables = {f"counts{i}": table for i, table in enumerate(self.counts.values())}
        return pack(KIND, content, tables)

    @property
    def mostly_noise(self) -> list[str]:
        """The groupings whose mean number is below the noise: take larger groups."""
        means = {by: table.mean() for by, table in self.counts.items()}
        return [by for by, mean in means.items() if mean < self.noise_scale]

    def __repr__(self) -> str:
        groups = []
        for by, table in self.counts.items():
            warning = ", mostly noise" if by in self.mostly_noise else ""
            groups.append(f"{by} ({len(table)} groups{warning})")
        by = " and ".join(groups)
        return (
            f"<TopicCounts by {by}: 95% within {self.margin():.3g} "
            f"{self.privacy_.unit}s, {self.privacy_!r}>"
        )


def digest_of(components: np.ndarray) -> str:
    """SHA-256 of a table of topics."""
    rows = np.ascontiguousarray(components, "<f8")
    content = repr(rows.shape).encode() + rows.tobytes()
    return hashlib.sha256(content).hexdigest()


def _nearest(column: np.ndarray, total: float) -> np.ndarray:
    """The nearest numbers of 0 or more with a given total.

    The projection onto a simplex (Duchi and others 2008).
    """
    down = np.sort(column)[::-1]
    excess = (np.cumsum(down) - total) / np.arange(1, len(down) + 1)
    last = np.flatnonzero(down > excess)
    theta = excess[last[-1]] if len(last) else down[0]
    return np.maximum(column - theta, 0.0)


# ---- reading what may come from anyone ----------------------------------------------


def load_counts(path: str | os.PathLike[str]) -> TopicCounts:
    """Read counts that `TopicCounts.save` wrote.

    The file may come from anyone: no code in it is run.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    counts : TopicCounts
        The released tables.

    Raises
    ------
    ValueError
        If the file is not a file of counts, is damaged, or contradicts itself.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> from dplda import SubLDA, load_counts, private_topic_counts
    >>> model = SubLDA(2, epsilon=4.0).fit([[2, 0, 1], [0, 3, 0]])
    >>> table = private_topic_counts(
    ...     model,
    ...     [[1, 0, 0]],
    ...     by={"day": ["Mon"]},
    ...     levels={"day": ["Mon"]},
    ...     epsilon=1.0,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "days.dplda")
    ...     table.save(path)
    ...     load_counts(path).levels
    {'day': ('Mon',)}
    """
    return load(path, "file of counts", read_counts)


def read_counts(data: bytes) -> TopicCounts:
    """The counts in a file that may come from anyone."""
    content, tables = unpack(KIND, data)
    if set(content) != _FIELDS:
        raise ValueError(f"it must have the fields {', '.join(sorted(_FIELDS))}")
    names = read_list("by", content["by"], read_text)
    groups = read_list("levels", content["levels"], _read_groups)
    if not names or len(names) != len(groups) or len(names) != len(set(names)):
        raise ValueError("it must have groupings of different names, each with groups")
    if tables.keys() != {f"counts{i}" for i in range(len(names))}:
        raise ValueError("it must have a table for each grouping")
    counts = {by: tables[f"counts{i}"] for i, by in enumerate(names)}
    levels = dict(zip(names, groups))
    n_topics = counts[names[0]].shape[-1:]
    for by, table in counts.items():
        fits = table.dtype == np.float64 and table.shape == (len(levels[by]), *n_topics)
        if not (fits and table.size and (np.abs(table) <= LARGEST).all()):
            raise ValueError(
                "each table must have a number for group and topic, of at most "
                f"{LARGEST:g} on either side of 0"
            )
    most = content["most_groups"]
    if not (isinstance(most, dict) and set(most) <= set(levels)):
        raise ValueError("most_groups must be numbers of the groupings")
    return TopicCounts(
        counts=counts,
        levels=levels,
        noise_scale=check_number("noise_scale", content["noise_scale"], 0.0, LARGEST),
        privacy_=read_guarantee(content["guarantee"]),
        counted_as=read_digest(content["counted_as"]),
        soft=read_flag("soft", content["soft"]),
        most_groups={by: check_integer("most_groups", n, 1) for by, n in most.items()},
    )


def _read_groups(name: str, groups: object) -> tuple[str, ...]:
    """The groups of one grouping."""
    texts = read_list(name, groups, read_text)
    if len(set(texts)) < len(texts):
        raise ValueError("the groups of a grouping must be different")
    return texts
