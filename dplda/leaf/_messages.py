"""Messages of a fit: warnings for its caller, progress, and events for logs.

Events go to standard `logging` and hold public values only. The loggers are
``dplda.ledger``, ``dplda.fit`` and ``dplda.release``. docs/operations.md lists the
events. Nothing is printed unless the application configures logging.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from numbers import Integral, Real
from types import FrameType
from typing import Literal, Protocol

from dplda.leaf._calm import say_progress, wait_with

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
    while _is_within(frame) and frame.f_back is not None:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _is_within(frame: FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.startswith(_WITHIN)


class Verbose(Protocol):
    """An estimator that reports its progress if `verbose` is above 0."""

    verbose: int


def rounds(estimator: Verbose, first: int, last: int) -> Iterator[int]:
    """The round numbers ``first, ..., last``, with about ten lines if verbose."""
    every = max(1, (last - first + 1) // 10)
    begun = time.monotonic()
    for t in range(first, last + 1):
        if estimator.verbose and (t == last or (t - first) % every == 0):
            left = ""
            if first < t < last:
                seconds = (time.monotonic() - begun) / (t - first) * (last - t + 1)
                left = f", about {seconds:.0f} s left"
            say_progress(f"[{type(estimator).__name__}] round {t} of {last}{left}")
        yield t
