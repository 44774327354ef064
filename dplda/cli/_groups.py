"""Options that say by which groups and periods texts are counted."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from dplda.cli._options import public_text
from dplda.leaf._checks import check_integer


class Grouping(NamedTuple):
    """A column, all of its groups, which are public, and the group of a cell."""

    column: str
    levels: list[str]
    group: Callable[[str], str]


def add_groups(parser: argparse.ArgumentParser) -> None:
    """Add the options of counts by group and period."""
    add = parser.add_argument_group("counts by group").add_argument
    add(
        "--by",
        action="append",
        default=[],
        metavar="COLUMN",
        help="count texts, or users, of each topic by this column, such as ward",
    )
    add(
        "--levels",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="public list of all groups of --by, one per line; once for each --by",
    )
    add("--by-month", metavar="COLUMN", help="count by month of a date (2026-01-31)")
    add("--by-week", metavar="COLUMN", help="count by week of a date")
    add(
        "--periods",
        metavar="FIRST:LAST",
        help="all months or weeks, such as 2025-12:2026-11 or 2026-W01:2026-W52",
    )
    add(
        "--most-periods",
        type=int,
        metavar="N",
        help="count a user as one in each of at most N months or weeks (default: as "
        "one in all months or weeks together)",
    )
    add(
        "--cross",
        action="store_true",
        help="one table of all combinations; small groups have more noise in "
        "proportion",
    )


def groupings(options: argparse.Namespace) -> dict[str, Grouping]:
    """All groupings, by their names. It reads public files and no data."""
    if len(options.by) != len(options.levels):
        raise ValueError(
            f"{len(options.by)} --by and {len(options.levels)} --levels are given: "
            "each --by COLUMN needs a public list of all its groups, which is never "
            "read from the texts. Give --levels FILE with one group per line, or count "
            "by periods: --by-month COLUMN --periods 2025-12:2026-11"
        )
    found = {}
    for column, path in zip(options.by, options.levels):
        if column in found:
            raise ValueError(
                f"--by {column} is given twice: list all groups in one file"
            )
        lines = public_text(path).splitlines()
        levels = [line.strip() for line in lines if line.strip()]
        found[column] = Grouping(column, levels, str.strip)
    given = {"month": options.by_month, "week": options.by_week}
    asked = {name: column for name, column in given.items() if column is not None}
    if len(asked) > 1 or bool(asked) != (options.periods is not None):
        raise ValueError(
            "--by-month COLUMN or --by-week COLUMN needs --periods FIRST:LAST, and "
            "only one of them is counted at a time"
        )
    for name, column in asked.items():
        if name in found:
            raise ValueError(f"--by {name} and --by-{name} have one name: rename one")
        group = month_of if name == "month" else week_of
        found[name] = Grouping(column, _periods(name, options.periods), group)
    if options.most_periods is not None and not asked:
        raise ValueError("--most-periods needs --by-month or --by-week")
    if options.cross and not found:
        raise ValueError("--cross needs groups: --by, --by-month or --by-week")
    return found


def given_groups(
    options: argparse.Namespace,
    found: Mapping[str, Grouping],
    by: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """The arguments of `private_topic_counts` that count texts `by` groups. Private."""
    most = {}
    if options.most_periods is not None:
        name = "week" if options.by_month is None else "month"
        most[name] = check_integer("--most-periods", options.most_periods, 1)
    return {
        "by": by,
        "levels": {name: g.levels for name, g in found.items()},
        "cross": options.cross,
        "most_groups": most,
    }


def month_of(cell: str) -> str:
    """The month of a date; empty for a cell that is not a date."""
    day = _date(cell)
    return "" if day is None else f"{day:%Y-%m}"


def week_of(cell: str) -> str:
    """The ISO week of a date; empty for a cell that is not a date."""
    day = _date(cell)
    if day is None:
        return ""
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02}"


def _date(cell: str) -> date | None:
    try:
        return date.fromisoformat(cell.strip()[:10])
    except ValueError:
        return None


def _periods(kind: str, text: str) -> list[str]:
    """All months or weeks from the first to the last."""
    first, _, last = text.partition(":")
    group, first_day = (month_of, "-01") if kind == "month" else (week_of, "-1")
    try:
        begin = date.fromisoformat(first + first_day).toordinal()
        end = date.fromisoformat(last + first_day).toordinal()
        # a day of each week, which has a day in each month
        days = [*range(begin, end, 7), end]
        names = [group(date.fromordinal(day).isoformat()) for day in days]
        if (names[0], names[-1]) != (first, last):
            raise ValueError
    except ValueError:
        example = "2025-12:2026-11" if kind == "month" else "2026-W01:2026-W52"
        raise ValueError(
            f"--periods must be the first and the last {kind}, such as {example}, got "
            f"{text!r}"
        ) from None
    return list(dict.fromkeys(names))
