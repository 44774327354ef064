"""The commands ``dplda ledger show FILE`` and ``dplda ledger cancel FILE NUMBER``."""

from __future__ import annotations

import argparse
import json
import math
import os
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it

COLUMNS = ("number", "time", "label", "unit", "status", "epsilon", "seeded", "process", "part")


def add_commands(commands: Any) -> None:
    """Add ``show`` and ``cancel`` to the subparsers of ``dplda ledger``."""
    text = "print what was spent, on what and when"
    parser = commands.add_parser("show", help=text, description=f"{text.capitalize()}.")
    parser.set_defaults(command=_show)
    parser.add_argument("file", help="file of the ledger; no entry is changed")
    parser.add_argument(
        "--delta", type=_delta, help="state epsilons at this delta instead of the ledger's"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")

    text = "cancel an entry that is reserved, whose fit has released nothing"
    parser = commands.add_parser(
        "cancel",
        help=text,
        description=f"{text.capitalize()}. If the fit still runs, it ends with an error before its "
        "first release. An entry whose releases have begun is not canceled.",
    )
    parser.set_defaults(command=_cancel)
    parser.add_argument("file", help="file of the ledger")
    parser.add_argument("number", type=_number, help="number of the entry, as `show` prints it")


def _cancel(options: argparse.Namespace) -> None:
    _existing(options.file).cancel(options.number)
    print(f"entry {options.number} is canceled, and counts no more")


def _existing(file: str) -> dplda.privacy.Ledger:
    if not os.path.exists(file):  # opening a missing ledger would create it
        raise FileNotFoundError(f"there is no file {file}")
    return dplda.privacy.Ledger(file)


def _show(options: argparse.Namespace) -> None:
    report = summary(_existing(options.file), options.delta)
    print(_as_json(report) if options.json else _as_text(report))


def summary(ledger: dplda.privacy.Ledger, delta: float | None = None) -> dict[str, Any]:
    """Summarize what was spent, on what and when.

    Parameters
    ----------
    ledger : Ledger
        The ledger.
    delta : float, default=None
        The delta at which the epsilons are stated, in [0, 1). None takes the ledger's.

    Returns
    -------
    dict
        ``"data"``, the name of the data; ``"delta"``; ``"entries"``, a list with the epsilon of
        each entry alone; ``"epsilon_spent"``, the guarantee of all together; ``"budget"``,
        ``"used"`` and ``"remaining"``, which are at the ledger's own ``"budget_delta"``;
        ``"composition"``;
        ``"caveat"``, why the total is infinite although every entry has a finite cost, or None.
    """
    delta = ledger.delta if delta is None else delta
    return {
        "ledger": ledger.path,
        "data": ledger.data,
        "delta": delta,
        "entries": [_described(entry, delta) for entry in ledger.entries()],
        "epsilon_spent": ledger.epsilon_at(delta),
        "composition": ledger.composition,
        "budget": ledger.epsilon,
        "budget_delta": ledger.delta,
        "used": ledger.epsilon_spent,
        "remaining": ledger.remaining,
        "caveat": ledger.caveat,
    }


def _described(entry: dplda.privacy.Entry, delta: float) -> dict[str, Any]:
    alone = dplda.privacy.epsilon_of(entry.events, delta, total_variation=entry.total_variation)
    values = (
        entry.id, entry.created, entry.label, entry.unit, entry.status, alone, entry.seeded,
        entry.process, entry.part,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _as_json(report: dict[str, Any]) -> str:
    """JSON has no infinity, so that it becomes the string "inf"."""
    entries = [{name: _finite(value) for name, value in e.items()} for e in report["entries"]]
    whole = {name: _finite(value) for name, value in report.items()}
    return json.dumps(whole | {"entries": entries}, indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    return "inf" if value == math.inf else value


def _as_text(report: dict[str, Any]) -> str:
    rows = [COLUMNS, *(tuple(map(_cell, entry.values())) for entry in report["entries"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += [
        "",
        f"spent      epsilon {report['epsilon_spent']:.6g} at delta {report['delta']:g}, by "
        "all entries that are not canceled together",
        f"budget     epsilon {report['budget']:g} at delta {report['budget_delta']:g}",
        f"remaining  epsilon {report['remaining']:.6g} at delta {report['budget_delta']:g}",
    ]
    if report["composition"] == "adaptive":  # spent is then the budget, however little was used
        lines.insert(
            -1, f"used up    epsilon {report['used']:.6g} of the budget, which is adaptive"
        )
    if report["data"]:
        lines.append(f"data       {report['data']}")
    if report["caveat"]:
        lines.append(f"caveat     {report['caveat']}")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _number(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"the number of an entry is 1 or more, got {text!r}")
    return int(text)


def _delta(text: str) -> float:
    try:
        delta = float(text)
    except ValueError:
        delta = math.nan
    if not 0.0 <= delta < 1.0:
        raise argparse.ArgumentTypeError(f"delta must be a number in [0, 1), got {text!r}")
    return delta
