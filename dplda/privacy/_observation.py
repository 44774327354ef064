"""What the adversary of the theorems sees: every released value, for audits.

No private value reaches this module. A release is public once it is drawn; observing it costs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

__all__ = ["Release", "announce", "observe_releases"]


@dataclass(frozen=True, eq=False)
class Release:
    """One value that became public.

    Parameters
    ----------
    label : str
        Name of the value, as in the plan of the fit.
    round : int
        Number of the round or sweep.
    value : object
        The noisy value, usually an array in the units of the mechanism.
    mechanism : Mechanism or None, default=None
        Source of the noise; None for a value that is public for another reason.
    """

    label: str
    round: int
    value: Any
    mechanism: Any = None


_SEEN: ContextVar[list[Release] | None] = ContextVar("_SEEN", default=None)


@contextmanager
def observe_releases() -> Iterator[list[Release]]:
    """Collect what this thread releases inside of the ``with`` block.

    Threads that the block starts are observed too where threads inherit context variables
    (``sys.flags.thread_inherit_context``), as they do by default without a global interpreter lock.

    Yields
    ------
    releases : list of Release
        Grows with each release, oldest first.
    """
    seen: list[Release] = []
    token = _SEEN.set(seen)
    try:
        yield seen
    finally:
        _SEEN.reset(token)


def announce(label: str, round: int, value: Any, mechanism: Any = None) -> None:
    """Show a value that has just become public to the observer, if there is one.

    The value must not change afterwards. `value` may be a function that returns the value; it is
    called only if there is an observer.
    """
    seen = _SEEN.get()
    if seen is not None:
        seen.append(Release(label, round, value() if callable(value) else value, mechanism))
