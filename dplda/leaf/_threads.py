"""Threads for the kernels, which do not hold the lock of the interpreter."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from threading import Lock, Thread
from typing import TypeVar

import joblib

from dplda.kernels import _team as _kernel

Piece = TypeVar("Piece")
Result = TypeVar("Result")

MAX_THREADS = 256  # more than the processors of a machine of today; made when they are needed
_team: list[Thread] = []
_team_grows = Lock()
# Kept, because to start a thread takes longer than many a piece; begins with none.
_pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="dplda")


def _forget_threads() -> None:
    global _pool, _team_grows
    _pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="dplda")
    _kernel.forget_team()
    _team.clear()
    _team_grows = Lock()


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_forget_threads)


def n_threads(n_jobs: int | None) -> int:
    """Number of threads for the loops of the kernels; the process has them from then on.

    They are daemons: they work without the lock of the interpreter, and end with the process. Where
    the system gives no more threads, the others do the work.
    """
    number = 1 if n_jobs == 1 else min(joblib.effective_n_jobs(n_jobs), MAX_THREADS)
    with _team_grows:
        while len(_team) < number - 1:
            member = Thread(target=_kernel.serve, name="dplda-team", daemon=True)
            try:
                Context().run(member.start)  # without that of the caller, as in `in_threads`
            except RuntimeError:
                break
            _team.append(member)
    return number


def in_threads(
    run: Callable[[Piece], Result], pieces: Sequence[Piece], n_jobs: int | None
) -> list[Result]:
    """Call `run` on each piece, in `n_jobs` threads at most; results in the order of the pieces.

    The calling thread is one of them, and the others have its context variables (`np.errstate`).
    Many small pieces keep all threads busy to the end. After an error no further piece is begun.
    A thread that treats the smallest floats otherwise than this one is an error: passes over the
    same numbers would differ, and sensitivities rest on their equality.
    """
    n_threads = min(joblib.effective_n_jobs(n_jobs), len(pieces))
    if n_threads <= 1:
        return list(map(run, pieces))
    waiting = deque(enumerate(pieces))
    results: dict[int, Result] = {}
    smallest = _smallest_floats()

    def work() -> None:
        try:
            if _smallest_floats() != smallest:
                raise RuntimeError(
                    "the threads of this process round the smallest floats differently: a library "
                    "that was built with -ffast-math has changed the processor's mode after they "
                    "were started; import that library before the first fit, or pass n_jobs=1"
                )
            while waiting:
                try:
                    index, piece = waiting.popleft()
                except IndexError:  # another thread has taken the last one
                    break
                results[index] = run(piece)
        finally:  # after an error, for all threads
            waiting.clear()

    others: list[Future[None]] = []
    for _ in range(n_threads - 1):
        here = copy_context()
        # The thread itself is started in an empty context. Where threads inherit that of their
        # start (`sys.flags.thread_inherit_context`), it would keep that of its first caller.
        others.append(Context().run(partial(_pool.submit, here.run, work)))
    try:
        work()
    finally:
        # Those that have not begun are not waited for: all threads may be busy with callers of
        # this function.
        errors = [other.exception() for other in others if not other.cancel()]
    for error in filter(None, errors):
        raise error
    return [results[index] for index in range(len(pieces))]


def _smallest_floats(tiny: float = 5e-324, one: float = 1.0) -> tuple[bool, bool]:
    """Whether this thread's processor reads and writes floats below the normal ones."""
    return tiny > 0.0, tiny * one > 0.0  # of arguments, so that nothing is computed beforehand
