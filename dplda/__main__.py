"""The command ``dplda``, which is also ``python -m dplda``.

Each command is imported when it is called: the demo loads no network engine, and the ledger loads
no model.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module

from dplda._version import __version__

EPILOG = "Without a command, dplda runs the demo, with the options of the demo."


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
        arguments exit with 2. ``ledger check`` and ``verify`` return 1 for what they find, and 2
        for a file that cannot be read.
    """
    options = parse(argv)
    usual, warnings.formatwarning = warnings.formatwarning, _without_line
    try:
        return options.command(options) or 0
    except argparse.ArgumentError as error:
        options.parser.error(str(error))
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        _close_output()
    except (ImportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
    finally:
        warnings.formatwarning = usual
    return 1


def _close_output() -> None:
    """Send what is left of the output nowhere, so that no error follows at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _without_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning of a command: its place in the code says nothing to a user."""
    return textwrap.fill(f"{category.__name__}: {message}", 96) + "\n"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of a command; `command` is its function, and `parser` the parser for errors."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in TOP_LEVEL):
        arguments.insert(0, "demo")
    return _parser(arguments[0]).parse_args(arguments)


def _command(module: str, function: str) -> Callable[[argparse.ArgumentParser], None]:
    """A command whose options the named function of a module adds."""

    def add(parser: argparse.ArgumentParser) -> None:
        getattr(import_module(module), function)(parser)

    return add


def _group(module: str) -> Callable[[argparse.ArgumentParser], None]:
    """A command whose subcommands `add_commands` of the given module adds."""

    def add(parser: argparse.ArgumentParser) -> None:
        commands = parser.add_subparsers(required=True, metavar="command")
        import_module(module).add_commands(commands)

    return add


TOP_LEVEL = ("-h", "--help", "--version")
COMMANDS = {
    "demo": (
        _command("dplda.cli._demo", "add_options"),
        "fit a private topic model to public texts",
    ),
    "fit": (
        _command("dplda.cli._fit", "add_options"),
        "fit a private topic model to files, and write a file that may be published",
    ),
    "topics": (
        _command("dplda.cli._release", "add_topics_options"),
        "print the topics of a published model",
    ),
    "transform": (
        _command("dplda.cli._release", "add_transform_options"),
        "write topic weights of texts, for a published model",
    ),
    "sign": (_command("dplda.cli._release", "add_sign_options"), "sign a published model"),
    "verify": (
        _command("dplda.cli._release", "add_verify_options"),
        "tell whether the holder of a key signed a file",
    ),
    "report": (
        _command("dplda.cli._report", "add_options"),
        "print the guarantee of a published model, and what its owner should answer",
    ),
    "ledger": (_group("dplda.cli._ledger"), "look into a privacy ledger"),
    "federation": (_group("dplda.cli._federation"), "train together over a network"),
}


def _parser(called: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dplda", description="Differentially private topic models.", epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, (add_options, summary) in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        command.set_defaults(parser=command)
        if name == called:
            add_options(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
