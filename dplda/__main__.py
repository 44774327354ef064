"""The command ``dplda``, which is also ``python -m dplda``."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dplda._version import __version__
from dplda.cli import _counts, _federation, _fit, _ledger, _options
from dplda.leaf._checks import escaped


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 1 if a file or a budget does not allow it.

    Invalid arguments exit with 2. ``ledger check`` returns 1 for what it finds, and 2
    for a file that cannot be read.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # no letter of a word that an output does not know ends a paid command
        sys.stdout.reconfigure(errors="backslashreplace")
    options = parse(argv)
    usual = warnings.formatwarning
    warnings.formatwarning = _without_line
    try:
        with ended_by_signals():
            return options.command(options) or 0
    except Ended as end:
        print(_with_notes(f"error: ended by {end.signal.name}", end), file=sys.stderr)
        return 128 + end.signal
    except KeyboardInterrupt as end:
        print(_with_notes("error: interrupted", end), file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        _close_output()
    except (ImportError, OSError, TypeError, ValueError) as error:
        # it may quote names of files, and what others have written
        print(f"error: {_printable(_said(error))}", file=sys.stderr)
    finally:
        warnings.formatwarning = usual
    return 1


class Ended(KeyboardInterrupt):
    """A service manager, or a closed terminal, has asked the process to end."""

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(self.signal.name)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does: it says what is spent.

    A signal that the caller ignores stays ignored, as under nohup.
    """

    def end(number: int, frame: object) -> None:
        raise Ended(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = ("SIGTERM", "SIGHUP")
    asked = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in asked}
    heard = [number for number in asked if before[number] is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of a command; `command` is its function."""
    parser = argparse.ArgumentParser(
        prog="dplda",
        description="Differentially private topic models.",
        epilog="A first example, with public texts that dplda ships with: dplda fit "
        "--example",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for module in (_fit, _counts, _options, _ledger, _federation):
        module.add_commands(commands.add_parser)
    return parser.parse_args(argv)


def _close_output() -> None:
    """Send what is left of the output nowhere: no error follows at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _said(error: Exception) -> object:
    """What an error says; of a file, without the number that the system gives it."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    return error


def _with_notes(text: str, end: BaseException) -> str:
    """A text, and the notes of what ended a command: they say what is spent."""
    return _printable("; ".join([text, *getattr(end, "__notes__", ())]))


def _without_line(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> str:
    """A warning of a command, without its place in the code."""
    text = f"{category.__name__}: {_printable(message)}"
    return textwrap.fill(text, 96) + "\n"


def _printable(text: object) -> str:
    """A text in lines that cannot move a cursor."""
    return "\n".join(map(escaped, str(text).split("\n")))


if __name__ == "__main__":
    sys.exit(main())
