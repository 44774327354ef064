"""The commands ``dplda ledger show``, ``check``, ``backup`` and ``cancel``."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._console import printable
from dplda.leaf._files import check_writable, create_whole

COLUMNS = ("number", "time", "label", "unit", "status", "epsilon", "seeded", "process", "part")


def add_commands(commands: Any) -> None:
    """Add the subparsers of ``dplda ledger``."""
    text = "print what was spent, on what and when"
    parser = commands.add_parser("show", help=text, description=f"{text.capitalize()}.")
    parser.set_defaults(command=_show)
    parser.add_argument("file", help="file of the ledger; no entry is changed")
    parser.add_argument(
        "--delta", type=_delta, help="state epsilons at this delta instead of the ledger's"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")

    text = "compare a ledger with a limit, and with what was released"
    parser = commands.add_parser(
        "check",
        help=text,
        description=f"{text.capitalize()}. Exit code 0: all is well. 1: more was spent, or the "
        "ledger does not know a release or a receipt, for instance because an old copy was put in "
        "its place. 2: a file cannot be read, or an option is wrong.",
    )
    parser.set_defaults(command=_check)
    parser.add_argument("file", help="file of the ledger; no entry is changed")
    parser.add_argument(
        "--max-epsilon", type=_epsilon, help="most that may be spent; default: the budget"
    )
    parser.add_argument("--delta", type=_delta, help="delta of the limit; default: the ledger's")
    parser.add_argument(
        "--releases", nargs="+", type=Path, default=[], metavar="FILE",
        help="release files of models that this ledger was charged for",
    )  # fmt: skip
    parser.add_argument(
        "--receipt", action="append", default=[], metavar="TEXT",
        help="receipt that `show` or a log printed before; may be given several times",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")

    text = "copy a ledger to a new file, even while fits charge it"
    parser = commands.add_parser("backup", help=text, description=f"{text.capitalize()}.")
    parser.set_defaults(command=_backup)
    parser.add_argument("file", help="file of the ledger")
    parser.add_argument("copy", type=Path, help="file to write, which must not exist")

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


def _check(options: argparse.Namespace) -> int:
    try:
        report = _compared(
            _existing(options.file), options.max_epsilon, options.delta, options.releases,
            options.receipt,
        )  # fmt: skip
    except (OSError, ValueError) as error:  # 1 says that something was found
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(_as_json(report) if options.json else _as_lines(report))
    return 0 if report["ok"] else 1


def _compared(
    ledger: dplda.privacy.Ledger,
    max_epsilon: float | None,
    delta: float | None,
    releases: Sequence[Path],
    receipts: Sequence[str],
) -> dict[str, Any]:
    """What was spent next to its limit, and whether the ledger knows releases and receipts."""
    delta = ledger.delta if delta is None else delta
    limit = ledger.epsilon if max_epsilon is None else max_epsilon
    spent = ledger.epsilon_at(delta)
    known = [_known(ledger, str(path), _receipt_of(path)) for path in releases]
    known += [_known(ledger, "receipt", receipt) for receipt in receipts]
    return {
        "ledger": ledger.path,
        "data": ledger.data,
        "epsilon_spent": spent,
        "max_epsilon": limit,
        "delta": delta,
        "receipts": known,
        "ok": spent <= limit and all(found["known"] for found in known),
    }


def _receipt_of(path: Path) -> str:
    return dplda.load_release(path).privacy_.receipt


def _known(ledger: dplda.privacy.Ledger, name: str, receipt: str) -> dict[str, Any]:
    """A model that was charged to no ledger has an empty receipt, which no ledger knows.

    A receipt begins with the first digits of its ledger's id, which all copies share.
    """
    known = bool(receipt) and ledger.has(receipt)
    same = receipt.startswith(f"{ledger.id[:8]}-")
    return {"name": name, "receipt": receipt or None, "known": known, "this_ledger": same}


def _as_lines(report: dict[str, Any]) -> str:
    word = "within" if report["epsilon_spent"] <= report["max_epsilon"] else "ABOVE"
    lines = [
        f"{word:9} epsilon {report['epsilon_spent']:.6g} spent, at most {report['max_epsilon']:g} "
        f"allowed, at delta {report['delta']:g}"
    ]
    for found in report["receipts"]:
        word = "known" if found["known"] else "UNKNOWN"
        lines.append(f"{word:9} {_cell(found['name'])}: {found['receipt'] or 'no receipt'}")
    lines += [text for is_due, text in _advice(report["receipts"]) if is_due]
    return "\n".join(lines)


def _advice(receipts: Sequence[dict[str, Any]]) -> Iterator[tuple[bool, str]]:
    """What unknown receipts mean, and whether it is so."""
    unknown = [found for found in receipts if not found["known"]]
    yield (
        any(found["receipt"] is None for found in unknown),
        "          A model without a receipt was charged to no ledger.",
    )
    yield (
        any(found["receipt"] is not None and not found["this_ledger"] for found in unknown),
        "          A receipt is that of another ledger: its first eight digits are not those of\n"
        "          this one. Check the model or receipt with the ledger that was charged for it.",
    )
    yield (
        any(found["this_ledger"] for found in unknown),
        "          The ledger lacks entries that it had. It may be an older copy: charge nothing\n"
        "          to it, and cancel no entry, until this is explained.",
    )


def _backup(options: argparse.Namespace) -> None:
    ledger = _existing(options.file)
    if os.path.lexists(options.copy):
        raise FileExistsError(f"{options.copy} exists; choose another name for the copy")
    check_writable(options.copy)
    create_whole(str(options.copy), lambda draft: copy_ledger(options.file, draft))
    copied = dplda.privacy.Ledger(options.copy)
    if copied.id != ledger.id:  # somebody else has made a file of that name
        raise FileExistsError(f"{options.copy} was made by another process; nothing was copied")
    print(f"copied to {options.copy}, with the receipt {copied.receipt}")


def copy_ledger(path: str | os.PathLike[str], copy: str | os.PathLike[str]) -> None:
    """Copy a ledger as a whole, even while other processes write to it."""
    import sqlite3

    dplda.privacy.Ledger(path)  # refuses what is no ledger
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


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
        ``"caveat"``, why the total is infinite although every entry has a finite cost, or None;
        ``"receipt"``, see `Ledger.receipt`.
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
        "receipt": ledger.receipt,
    }


def _described(entry: dplda.privacy._entries.Entry, delta: float) -> dict[str, Any]:
    alone = dplda.privacy.epsilon_of(entry.events, delta, total_variation=entry.total_variation)
    values = (
        entry.id, entry.created, entry.label, entry.unit, entry.status, alone, entry.seeded,
        entry.process, entry.part,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _as_json(report: dict[str, Any]) -> str:
    """JSON has no infinity, so that it becomes the string "inf"."""
    return json.dumps(_finite(report), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
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
    lines.append(f"receipt    {report['receipt']}")
    if report["caveat"]:
        lines.append(f"caveat     {report['caveat']}")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(f"{value:.6g}" if isinstance(value, float) else str(value))


def _number(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"the number of an entry is 1 or more, got {text!r}")
    return int(text)


def _epsilon(text: str) -> float:
    try:
        epsilon = float(text)
    except ValueError:
        epsilon = math.nan
    if not epsilon >= 0.0:
        raise argparse.ArgumentTypeError(f"epsilon must be a number of at least 0, got {text!r}")
    return epsilon


def _delta(text: str) -> float:
    try:
        delta = float(text)
    except ValueError:
        delta = math.nan
    if not 0.0 <= delta < 1.0:
        raise argparse.ArgumentTypeError(f"delta must be a number in [0, 1), got {text!r}")
    return delta
