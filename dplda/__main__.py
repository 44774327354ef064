"""The command ``dplda``, which is also ``python -m dplda``."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from dplda._version import __version__
from dplda.cli import _federation, _fit, _ledger, _options

COMMANDS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "fit": (
        "fit a private topic model to files, and write a file that may be published", _fit.add_fit
    ),
    "plan": ("say what to expect of a fit, before any data are read", _fit.add_plan),
    "topics": ("print the topics and the guarantee of a published model", _options.add_topics),
    "transform": ("write topic weights of texts, for a published model", _options.add_transform),
    "ledger": ("look into a privacy ledger", _ledger.add_commands),
    "federation": ("train together over a network", _federation.add_commands),
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default=None
        The arguments. None takes those of the process.

    Returns
    -------
    int
        0, or 1 if a file cannot be read, written or understood, or a budget is too small. Invalid
        arguments exit with 2. ``ledger check`` returns 1 for what it finds, and 2 for a file that
        cannot be read.
    """
    options = parse(argv)
    usual, warnings.formatwarning = warnings.formatwarning, _without_line
    try:
        return options.command(options) or 0
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        _close_output()
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
    finally:
        warnings.formatwarning = usual
    return 1


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of a command; `command` is its function."""
    parser = argparse.ArgumentParser(
        prog="dplda", description="Differentially private topic models.",
        epilog="A first example, with public texts that dplda holds: dplda fit --example",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, (summary, add) in COMMANDS.items():
        add(commands.add_parser(name, help=summary))
    return parser.parse_args(argv)


def _close_output() -> None:
    """Send what is left of the output nowhere: no error follows at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _without_line(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> str:
    """A warning of a command: its place in the code says nothing to a user."""
    return textwrap.fill(f"{category.__name__}: {message}", 96) + "\n"


if __name__ == "__main__":
    sys.exit(main())
