"""Reading a file of released counts, which may come from anyone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dplda.leaf._checks import check_integer, check_number
from dplda.release._container import unpack
from dplda.release._release import MAX_BYTES, read_digest, read_guarantee, read_text
from dplda.release._topic_counts import KIND, MAX_HEADER, TopicCounts

_FIELDS = {
    "by",
    "levels",
    "most_groups",
    "noise_scale",
    "soft",
    "counted_as",
    "guarantee",
}


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
        If the file is no file of counts, is damaged, or contradicts itself.
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
    path = Path(path)
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} has more than {MAX_BYTES} bytes, and is not read")
    try:
        return read_counts(path.read_bytes())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a valid file of counts: {error}; ask its author for it "
            "again"
        ) from error


def read_counts(data: bytes) -> TopicCounts:
    """The counts in a file that may come from anyone."""
    content, tables = unpack(KIND, data, max_header=MAX_HEADER)
    if set(content) != _FIELDS:
        raise ValueError(f"it must have the fields {', '.join(sorted(_FIELDS))}")
    names, levels = content["by"], content["levels"]
    named = isinstance(names, list) and isinstance(levels, list) and names
    if not (named and len(names) == len(levels)):
        raise ValueError("it must have a list of groups for each grouping")
    if tables.keys() != {f"counts{i}" for i in range(len(names))}:
        raise ValueError("it must have a table for each grouping")
    groups = {}
    counts = {}
    for i, (by, rows) in enumerate(zip(names, levels)):
        if not isinstance(rows, list):
            raise ValueError("the groups must be a list")
        groups[read_text("a grouping", by)] = tuple(
            read_text("a group", r) for r in rows
        )
        counts[by] = tables[f"counts{i}"]
    widths = {table.shape[-1:] for table in counts.values()}
    for by, table in counts.items():
        fits = table.dtype == np.float64 and table.ndim == 2 and len(widths) == 1
        if not (fits and len(table) == len(groups[by]) and np.isfinite(table).all()):
            raise ValueError("each table must have a finite number for group and topic")
        if not table.size or len(set(groups[by])) < len(groups[by]):
            raise ValueError("the groups must be different, and not none")
    if len(groups) < len(names):
        raise ValueError("two groupings have one name")
    most = content["most_groups"]
    if not (isinstance(most, dict) and set(most) <= set(groups)):
        raise ValueError("most_groups must be numbers of the groupings")
    if not isinstance(content["soft"], bool):
        raise ValueError("soft must be true or false")
    return TopicCounts(
        counts=counts,
        levels=groups,
        noise_scale=check_number("noise_scale", content["noise_scale"], 0.0, 1e12),
        privacy_=read_guarantee(content["guarantee"]),
        counted_as=read_digest(content["counted_as"]),
        soft=content["soft"],
        most_groups={by: check_integer("most_groups", n, 1) for by, n in most.items()},
    )
