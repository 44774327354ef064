"""The command ``dplda``, which is also ``python -m dplda``."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from dplda._version import __version__

COMMANDS = {
    "fit": "fit a private topic model to files, and write a file that may be published",
    "plan": "say what to expect of a fit, before any data are read",
    "topics": "print the topics and the guarantee of a published model",
    "transform": "write topic weights of texts, for a published model",
    "ledger": "look into a privacy ledger",
    "federation": "train together over a network",
}
GROUPS = ("ledger", "federation")  # they have commands of their own
FILES = {"plan": "_fit", "topics": "_options", "transform": "_options"}  # others: their name


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
    arguments = list(sys.argv[1:] if argv is None else argv)
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="dplda", description="Differentially private topic models.",
        epilog="A first example, with public texts that dplda holds: dplda fit --example",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == called:  # only its module is imported
            module = import_module(f"dplda.cli.{FILES.get(name, f'_{name}')}")
            if name in GROUPS:
                module.add_commands(command.add_subparsers(required=True, metavar="command"))
            else:
                getattr(module, f"add_{name}")(command)
    return parser.parse_args(arguments)


def _close_output() -> None:
    """Send what is left of the output nowhere: no error follows at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _without_line(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> str:
    """A warning of a command: its place in the code says nothing to a user."""
    return textwrap.fill(f"{category.__name__}: {message}", 96) + "\n"


if __name__ == "__main__":
    sys.exit(main())
