"""Progress of a long fit: callbacks of scikit-learn, a bar of tqdm, or printed lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def rounds(estimator: Any, first: int, last: int) -> Iterator[int]:
    """Yield the round numbers ``first, ..., last``, and report each of them.

    Callbacks receive the number of the round only. They see neither the data nor a model that has
    not been released, and they cannot stop a fit.
    """
    numbers: Any = range(first, last + 1)
    if hasattr(estimator, "_skl_callbacks"):
        numbers = _with_callbacks(estimator, numbers)
    elif estimator.verbose:
        numbers = with_bar(type(estimator).__name__, numbers)
    yield from numbers


def _with_callbacks(estimator: Any, numbers: range) -> Iterator[int]:
    context = estimator._init_callback_context(max_subtasks=len(numbers))
    context.call_on_fit_task_begin(estimator=estimator)
    for t in numbers:
        step = context.subcontext(task_name="round")
        step.call_on_fit_task_begin(estimator=estimator)
        yield t
        step.call_on_fit_task_end(estimator=estimator)
    context.call_on_fit_task_end(estimator=estimator)


def with_bar(name: str, numbers: range) -> Iterator[int]:
    """Yield the numbers, and show a bar if tqdm is installed, otherwise about ten lines."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        every = max(1, len(numbers) // 10)
        for t in numbers:
            if t == numbers[-1] or (t - numbers[0]) % every == 0:
                print(f"[{name}] round {t} of {numbers[-1]}")
            yield t
    else:
        yield from tqdm(numbers, desc=name, unit="round")
