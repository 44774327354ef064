"""The commands ``dplda ledger show``, ``check`` and ``cancel``."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import AddParser, command_group, say
from dplda.leaf._checks import escaped

FILE = "file of the ledger"
COLUMNS = (
    "number",
    "time",
    "label",
    "unit",
    "status",
    "epsilon",
    "seeded",
    "process",
    "part",
)


def add_commands(add_parser: AddParser) -> None:
    """Add the commands of ``dplda ledger``."""
    add_command = command_group(
        add_parser, "ledger", "inspect a privacy ledger, or cancel an entry"
    )
    show = add_command("show", _show, "Print what was spent, on what and when.")
    show.add_argument("file", help=FILE)
    show.add_argument(
        "--delta",
        type=float,
        help="state epsilons at this delta instead of the ledger's",
    )
    check = add_command(
        "check",
        _check,
        "Compare a ledger with a limit, and with what was released. Exit code 0: all "
        "is well. 1: more was spent, or the ledger does not know a release or a "
        "receipt, for instance because an old copy has replaced it. 2: a file cannot "
        "be read, or an option is wrong.",
    )
    check.add_argument("file", help=FILE)
    check.add_argument(
        "--max-epsilon",
        type=float,
        help="largest epsilon that may be spent (default: the budget)",
    )
    check.add_argument(
        "--delta", type=float, help="delta of the limit (default: the ledger's)"
    )
    check.add_argument(
        "--releases",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="release files of models that this ledger was charged for",
    )
    check.add_argument(
        "--receipt",
        action="append",
        default=[],
        metavar="TEXT",
        help="receipt that `show` or a log printed before; may be given several times",
    )
    cancel = add_command(
        "cancel",
        _cancel,
        "Cancel a reserved entry, whose fit has released nothing. A fit that still "
        "runs ends with an error before its first release. An entry whose releases "
        "have begun cannot be canceled.",
    )
    cancel.add_argument("file", help=FILE)
    cancel.add_argument(
        "number", type=int, help="number of the entry, as `show` prints it"
    )


def _check(options: argparse.Namespace) -> int:
    try:
        ledger = _existing(options.file)
        delta = ledger.delta if options.delta is None else options.delta
        limit = ledger.epsilon if options.max_epsilon is None else options.max_epsilon
        spent = ledger.epsilon_at(delta)
        asked = []
        for path in options.releases:
            asked.append((str(path), dplda.load_release(path).privacy_.receipt))
        for receipt in options.receipt:
            asked.append(("receipt", receipt))
        unknown = [
            receipt for _, receipt in asked if not (receipt and ledger.has(receipt))
        ]
    except (OSError, ValueError) as error:  # 1 says that something was found
        print(f"error: {error}", file=sys.stderr)
        return 2
    word = "within" if spent <= limit else "ABOVE"
    print(
        f"{word:9} epsilon {spent:.6g} spent, at most {limit:g} allowed, at delta "
        f"{delta:g}"
    )
    for name, receipt in asked:
        word = "UNKNOWN" if receipt in unknown else "known"
        print(f"{word:9} {escaped(name)}: {receipt or 'no receipt'}")
    own = f"{ledger.id[:8]}-"  # a receipt begins so in all copies of its ledger
    if "" in unknown:
        say("A model without a receipt was charged to no ledger.")
    if any(receipt and not receipt.startswith(own) for receipt in unknown):
        say(
            "A receipt belongs to another ledger: its first eight digits differ from "
            "the digits of this ledger. Check the model or receipt with the ledger "
            "that was charged for it."
        )
    if any(receipt.startswith(own) for receipt in unknown):
        say(
            "The ledger lacks entries that it had. It may be an older copy: do not "
            "charge it, and do not cancel an entry, until you know why."
        )
    return 1 if unknown or not spent <= limit else 0


def _cancel(options: argparse.Namespace) -> None:
    _existing(options.file).cancel(options.number)
    print(f"entry {options.number} is canceled, and no longer counts")


def _existing(file: str) -> dplda.privacy.Ledger:
    if not os.path.exists(file):  # opening a missing ledger would create it
        raise FileNotFoundError(f"the file {file} does not exist")
    return dplda.privacy.Ledger(file)


def _show(options: argparse.Namespace) -> None:
    ledger = _existing(options.file)
    delta = ledger.delta if options.delta is None else options.delta
    spent = ledger.epsilon_at(delta)
    rows = [list(COLUMNS)]
    for entry in ledger.entries():
        alone = dplda.privacy.epsilon_of(
            entry.events, delta, total_variation=entry.total_variation
        )
        values = (
            entry.id,
            entry.created,
            entry.label,
            entry.unit,
            entry.status,
            f"{alone:.6g}",
            "yes" if entry.seeded else "no",
            entry.process,
            entry.part or "-",
        )
        rows.append([escaped(str(value)) for value in values])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    print(
        f"\nspent      epsilon {spent:.6g} at delta {delta:g}, by all entries that are "
        "not canceled together"
    )
    print(f"budget     epsilon {ledger.epsilon:g} at delta {ledger.delta:g}")
    # spent is then the budget, however little was used
    if ledger.composition == "adaptive":
        print(
            f"used up    epsilon {ledger.epsilon_spent:.6g} of the budget, which is "
            "adaptive"
        )
    print(f"remaining  epsilon {ledger.remaining:.6g} at delta {ledger.delta:g}")
    one_more = _of_one_more(ledger)
    if one_more:
        print(
            f"one more   fit of Gaussian noise may have about epsilon {one_more:.3g}: "
            "costs add up more slowly than epsilons"
        )
    for name in ("receipt", "caveat"):
        value = getattr(ledger, name)
        if value:
            print(f"{name:10} {escaped(value)}")


def _of_one_more(ledger: dplda.privacy.Ledger) -> float:
    """Epsilon of one more fit of Gaussian noise that the budget pays for.

    0 if it is not known, or not above `Ledger.remaining`.
    """
    counted = [entry for entry in ledger.entries() if entry.counts]
    in_parts = any(entry.part for entry in counted)
    is_planned = ledger.composition == "planned" and ledger.epsilon < math.inf
    if in_parts or not (is_planned and counted and ledger.remaining):
        return 0.0
    events = [event for entry in counted for event in entry.events]
    try:
        multiplier = dplda.privacy.calibrate(
            lambda m: [*events, dplda.privacy.Gaussian(m)],
            epsilon=ledger.epsilon,
            delta=ledger.delta,
            total_variation=math.fsum(entry.total_variation for entry in counted),
        )
    except ValueError:  # no delta is left for it
        return 0.0
    alone = dplda.privacy.epsilon_of(dplda.privacy.Gaussian(multiplier), ledger.delta)
    return alone if alone > ledger.remaining else 0.0
