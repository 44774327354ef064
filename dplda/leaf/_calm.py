"""What surrounds a process must neither end paid work nor hide what it has found."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from typing import TypeAlias

Word: TypeAlias = tuple[str, type[Warning]]  # a message and its category

# What waits to be said, in this thread; None: words are said at once.
_WAITING: ContextVar[list[Word] | None] = ContextVar("_WAITING", default=None)
# An operator or a timer sends these, and Python turns them into exceptions.
_SIGNALS = {
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
}


class Calm:
    """A stretch of work that the caller's warnings and NumPy modes leave alone.

    From `begin` on, words of this package wait, and floating-point errors are silent.
    `end` gives the caller's mode back, and returns the words.
    """

    def __init__(self) -> None:
        self._token: Token[list[Word] | None] | None = None

    def begin(self) -> None:
        """Let words wait from now on."""
        import numpy as np  # the command line needs none for its help

        self._mode = np.errstate(all="ignore")
        self._mode.__enter__()
        self._token = _WAITING.set([])

    def end(self) -> list[Word]:
        """Stop to wait, and return the words; none if nothing has begun."""
        if self._token is None:
            return []
        words = _WAITING.get() or []
        _WAITING.reset(self._token)
        self._token = None
        self._mode.__exit__(None, None, None)
        return words


def wait_with(message: str, category: type[Warning]) -> bool:
    """Whether a word waits: it is then said at the end of the work."""
    waiting = _WAITING.get()
    if waiting is not None:
        waiting.append((message, category))
    return waiting is not None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals wait for a moment: between a release and where its value is kept.

    Where a system cannot block signals, nothing changes.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def say_progress(line: str) -> None:
    """Print a line to the standard error, if there is one that takes it."""
    with suppress(Exception):  # closed, full, or replaced by what cannot write
        if sys.stderr is not None:
            print(line, file=sys.stderr)
