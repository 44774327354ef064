"""Options of a budget and its ledger, and the question before a budget is spent."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import say
from dplda.leaf._files import check_writable
from dplda.leaf._messages import warn_user

NOTHING = "Nothing was charged."

Add = Callable[..., argparse.Action]  # ``add_argument`` of a parser or group


def add_budget(add: Add, text: str, **epsilon: Any) -> None:
    """Add the options of a budget; `epsilon` has settings of ``--epsilon``."""
    add("--epsilon", type=float, help=text, **epsilon)
    add(
        "--delta",
        type=float,
        default=1e-6,
        help="delta of (epsilon, delta)-privacy (default: %(default)s)",
    )


def add_agreement(add: Add) -> None:
    """Add the option that leaves out the question."""
    add(
        "--yes",
        action="store_true",
        help="spend the budget without asking; without a terminal nobody is asked",
    )


def add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add the options of the ledger that is charged."""
    group = parser.add_argument_group("ledger")
    either = group.add_mutually_exclusive_group().add_argument
    either(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="file of a budget over many fits; created if it is missing (default: "
        "TEXTS.ledger)",
    )
    either("--no-ledger", action="store_true", help="count no other fit of these texts")
    group.add_argument(
        "--budget",
        type=float,
        help="total epsilon of a new ledger (default: --epsilon)",
    )


def check_ledger(path: Path, epsilon: float | None = None) -> None:
    """Refuse at the start a ledger that could not be charged."""
    if path.exists():
        dplda.privacy.Ledger(path, epsilon=epsilon)
    else:
        check_writable(path)


def choose_ledger(options: argparse.Namespace) -> None:
    """Choose the ledger beside the texts, unless the options name another or none."""
    texts = options.texts.resolve()
    beside = texts.with_name(f"{texts.name}.ledger")
    if options.budget is not None and not options.budget >= options.epsilon:
        options.parser.error(
            f"--budget {options.budget:g} does not pay for --epsilon "
            f"{options.epsilon:g}"
        )
    if not options.no_ledger:
        options.ledger = options.ledger or beside
        check_ledger(options.ledger, options.budget)
    is_charged = options.ledger is not None and options.ledger.resolve() == beside
    if beside.exists() and not is_charged:
        warn_user(
            f"{beside} counts what was spent on these texts before, and this fit is "
            "not added to it: together they cost more than either. Leave out --ledger "
            "and --no-ledger",
            dplda.privacy.PrivacyLeakWarning,
        )


def open_ledger(options: argparse.Namespace) -> dplda.privacy.Ledger:
    """The ledger of the options, or one in memory that allows this fit and no more."""
    if options.ledger is not None and options.ledger.exists():
        return dplda.privacy.Ledger(options.ledger, epsilon=options.budget)
    budget = options.epsilon if options.budget is None else options.budget
    return dplda.privacy.Ledger(options.ledger, epsilon=budget, delta=options.delta)


def is_agreed(options: argparse.Namespace, question: str) -> bool:
    """Ask on a terminal before a budget is spent."""
    if options.yes or sys.stdin is None or not sys.stdin.isatty():
        return True
    with suppress(EOFError):  # no answer
        if input(f"{question} [y/N] ").strip().lower() in ("y", "yes"):
            return True
    say(NOTHING)
    return False
