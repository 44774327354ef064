"""The command ``dplda``, which is also ``python -m dplda``."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import warnings
from collections.abc import Sequence

from dplda._version import __version__
from dplda.cli import _federation, _fit, _ledger, _options


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 1 if a file or a budget does not allow it.

    Invalid arguments exit with 2. ``ledger check`` returns 1 for what it finds, and 2
    for a file that cannot be read.
    """
    options = parse(argv)
    usual = warnings.formatwarning
    warnings.formatwarning = _without_line
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
        prog="dplda",
        description="Differentially private topic models.",
        epilog="A first example, with public texts that dplda holds: dplda fit "
        "--example",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for module in (_fit, _options, _ledger, _federation):
        module.add_commands(commands.add_parser)
    return parser.parse_args(argv)


def _close_output() -> None:
    """Send what is left of the output nowhere: no error follows at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _without_line(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> str:
    """A warning of a command: its place in the code says nothing to a user."""
    return textwrap.fill(f"{category.__name__}: {message}", 96) + "\n"


if __name__ == "__main__":
    sys.exit(main())
