"""Messages of a fit: warnings for its caller, progress, and events for logs.

Events go to standard `logging` and hold public values only. The loggers are
``dplda.ledger``, ``dplda.fit`` and ``dplda.release``. docs/operations.md lists the
events. Nothing is printed unless the application configures logging.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import sys
import time
import warnings
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
    Sized,
)
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from operator import length_hint
from typing import Generic, Literal, Protocol, TypeVar

from dplda.leaf._calm import wait_with

T = TypeVar("T")
INFO = logging.INFO
WARNING = logging.WARNING
# All fields that an event may hold. They depend on the documents through releases only:
# the caller names labels and files, and the rest is in the ledger and in the guarantee.
PUBLIC = {
    "ledger",
    "entry",
    "label",
    "part",
    "unit",
    "epsilon",
    "delta",
    "budget",
    "receipt",
    "seeded",
    "estimator",
    "n_iter",
    "file",
}

logging.getLogger("dplda").addHandler(logging.NullHandler())
BETWEEN = 0.2  # seconds, of two states of a line
_WITHIN = ("dplda.", "sklearn.", "joblib.")


def is_logged(topic: str, level: int = INFO) -> bool:
    """Whether anybody listens; the fields of an event may take time to compute."""
    return logging.getLogger(f"dplda.{topic}").isEnabledFor(level)


def log_event(
    topic: Literal["ledger", "fit", "release"],
    event: str,
    *,
    level: int = INFO,
    **public: object,
) -> None:
    """Log an event, as one line of text and as the attribute ``dplda`` of the record.

    `event` says in a few fixed words what happened. The names in `public` must be in
    `PUBLIC`. None is left out, and infinity becomes "inf", so every value can be
    written as JSON.
    """
    logger = logging.getLogger(f"dplda.{topic}")
    if not logger.isEnabledFor(level):
        return
    fields = {
        name: as_json(value) for name, value in public.items() if value is not None
    }
    # JSON escapes line breaks, so a file name or a label cannot forge a second line
    text = " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())
    extra = {"dplda": {"event": event, **fields}}
    with suppress(Exception):  # a handler belongs to the application, and may fail
        logger.log(level, "%s: %s", event, text, extra=extra)


def as_json(value: object) -> object:
    """The value as JSON has it.

    Parameters may be numbers of numpy, and infinity becomes "inf".
    """
    if isinstance(value, tuple):
        return [as_json(part) for part in value]
    if isinstance(value, Real) and not isinstance(value, bool):
        if value == math.inf:
            return "inf"
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost caller that is neither this package nor scikit-learn.

    Searches of scikit-learn call fits through joblib. During paid work the warning
    waits for the end, because the caller may have made it an error.
    """
    if wait_with(message, category):
        return
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None:
        if not frame.f_globals.get("__name__", "").startswith(_WITHIN):
            break
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


class Verbose(Protocol):
    """An estimator that reports its progress if `verbose` is above 0."""

    verbose: int


@dataclass(frozen=True)
class Progress:
    """Says on the standard error how far a job is, and how much time is left.

    A terminal shows one line for each step, which is rewritten. A file gets a line for
    each tenth of a step. No line states a number of texts: it is private, and a log may
    keep the line. A log therefore gets whole tenths, and no shares of fewer than ten
    items. The share of `Unnumbered` items, such as shards, is shown on a terminal only,
    to the person who may read the texts.
    """

    name: str = ""
    is_shown: bool = False

    @classmethod
    def of(cls, estimator: Verbose) -> Progress:
        return cls(type(estimator).__name__, estimator.verbose > 0)

    def during(
        self, items: Iterable[T] | Unnumbered[T], step: Callable[[T, float], str]
    ) -> Generator[T, None, None]:
        """The items of a step, one after the other, as the caller works on them.

        `step` names the work on an item, given the finished share of the step. This
        share is known if the items have a length, or an estimate of those that are left
        (PEP 424). Otherwise it is 0.
        """
        is_terminal = _is_terminal()
        if isinstance(items, Unnumbered):
            # a generator has no length
            items = items.items if is_terminal else (item for item in items.items)
        if not self.is_shown:
            yield from items
            return
        begun = due = time.monotonic()
        n_items = len(items) if isinstance(items, Sized) else 0
        is_open = False  # whether the cursor stands in a line
        tenth = -1
        said = ""
        try:
            for i, item in enumerate(items):
                now = time.monotonic()
                # some callers do not ask for more after the last item
                is_last = i + 1 == n_items
                if now >= due or is_last:
                    due = now + BETWEEN
                    total = n_items or i + length_hint(items)
                    done = i / total if i < total else 0.0
                    if is_terminal or is_last or int(10 * done) > tenth:
                        tenth = int(10 * done)
                        if not is_terminal:
                            whole = tenth / 10 if total >= 10 else 0.0
                            done = 1.0 if is_last else whole
                        before = said
                        said = step(item, done)
                        left = "" if is_last else _left(now - begun, done)
                        if is_terminal or said != before:
                            self._print(said + left, "")
                        is_open = is_terminal
                yield item
            if is_open or (said and said != step(item, 1.0)):
                self._print(step(item, 1.0))
                is_open = False
        finally:
            if is_open:
                _print("")

    def _print(self, text: str, end: str = "\n") -> None:
        line = f"[{self.name}] {text}"
        if _is_terminal():
            width = shutil.get_terminal_size().columns - 1
            _print(f"\r{line[:width]:<{width}}", end)
        else:
            _print(line)


@dataclass(frozen=True)
class Unnumbered(Generic[T]):
    """Items whose number is private: the finished share would tell it to a log."""

    items: Sequence[T]


def named(step: str) -> Callable[[object, float], str]:
    """Names a step, with its finished share if that is known."""
    return lambda _, done: f"{step}, {done:.0%}" if done else step


def rounds(estimator: Verbose, first: int, last: int) -> Iterator[int]:
    """The round numbers ``first, ..., last``, with progress if verbose."""
    return Progress.of(estimator).during(
        range(first, last + 1), lambda t, _: f"round {t} of {last}"
    )


def _left(seconds: float, done: float) -> str:
    """The time left after some seconds; the time so far if the share is unknown.

    Less than a second is not said.
    """
    what = "about {} left" if done else "{} so far"
    if done:
        seconds *= (1 - done) / done
    return f", {what.format(_duration(seconds))}" if seconds >= 1 else ""


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except Exception:  # missing, closed, or something else
        return False


def _print(text: str, end: str = "\n") -> None:
    """Print to the standard error, if there is one that takes it."""
    with suppress(Exception):  # closed, full, or something that cannot write
        if sys.stderr is not None:
            print(text, end=end, file=sys.stderr, flush=True)
