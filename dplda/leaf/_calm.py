"""The environment must not end paid work, and must not hide its result.

A `Calm` begins when something is paid for. Until it ends, warnings of this package and
signals wait, and floating-point errors of NumPy are silent. So a paid result is kept
before the caller sees a warning, which may be an error, or Ctrl-C. Work that may end
without a loss runs inside of `interruptible`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import FrameType
from typing import TypeAlias

Word: TypeAlias = tuple[str, type[Warning]]  # a message and its category
Handler: TypeAlias = Callable[[int, FrameType | None], object]

SIGNALS = tuple(map(int, signal.valid_signals()))  # of this platform; slow to ask for
# The warnings of this thread that wait; None: warnings are issued at once.
_WAITING: ContextVar[list[Word] | None] = ContextVar("_WAITING", default=None)


class _Signals:
    """Delays the signals of the process whose handlers are Python code.

    Python runs such handlers only in the main thread: no other thread needs this.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}  # those that wait, by signal
        self._heard: list[int] = []

    def hold(self) -> bool:
        """Delay signals; False if they wait already, or never reach this thread."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._handlers or not is_main:
            return False
        found = {number: signal.getsignal(number) for number in SIGNALS}
        for number, handler in found.items():
            if callable(handler) and not isinstance(handler, signal.Handlers):
                self._handlers[number] = handler
                signal.signal(number, self._note)
        return bool(self._handlers)

    def let_go(self) -> None:
        """Restore the handlers, and deliver the signals that came meanwhile."""
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)
        while self._heard:
            signal.raise_signal(self._heard.pop(0))

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number not in self._heard:
            self._heard.append(number)


_signals = _Signals()


class Calm:
    """Work that warnings, NumPy modes and signals of the caller do not disturb.

    After `begin`, all of these wait. `end` restores the caller's modes, and returns the
    warnings. `hear` then delivers signals.
    """

    def __init__(self) -> None:
        self._token: Token[list[Word] | None] | None = None
        self._holds_signals = False

    def begin(self) -> None:
        """Let warnings and signals wait from now on."""
        import numpy as np  # the command line needs none for its help

        self._holds_signals = _signals.hold()
        self._mode = np.errstate(all="ignore")
        self._mode.__enter__()
        self._token = _WAITING.set([])

    def end(self) -> list[Word]:
        """Stop holding back warnings, and return them; none if nothing has begun."""
        if self._token is None:
            return []
        words = _WAITING.get() or []
        _WAITING.reset(self._token)
        self._token = None
        self._mode.__exit__(None, None, None)
        return words

    def hear(self) -> None:
        """Deliver signals again, first those that have waited."""
        if self._holds_signals:
            self._holds_signals = False
            _signals.let_go()


@contextmanager
def interruptible() -> Iterator[None]:
    """Hear signals in this block, although work is paid for: ending it loses nothing.

    An exception leaves the block with signals waiting again.
    """
    was_held = bool(_signals._handlers) and (
        threading.current_thread() is threading.main_thread()
    )
    if not was_held:
        yield
        return
    try:
        _signals.let_go()
        yield
    finally:
        _signals.hold()


def wait_with(message: str, category: type[Warning]) -> bool:
    """Whether a warning waits; it is then issued at the end of the work."""
    waiting = _WAITING.get()
    if waiting is not None:
        waiting.append((message, category))
    return waiting is not None
