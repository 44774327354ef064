"""Threads for the kernels, which do not hold the lock of the interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from threading import Lock, Thread
from typing import TypeVar

import joblib

from dplda.kernels import _team as _kernel

Piece = TypeVar("Piece")
Result = TypeVar("Result")

# more than a machine of today has processors; made when needed
MAX_THREADS = 256
_team: list[Thread] = []
_team_grows = Lock()


def _forget_threads() -> None:
    global _team_grows
    _kernel.forget_team()
    _team.clear()
    _team_grows = Lock()


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_forget_threads)


def n_threads(n_jobs: int | None) -> int:
    """Number of threads for the kernels' loops; the process keeps them.

    They are daemons: they work without the interpreter lock, and end with the process.
    If the system gives no more threads, the existing ones do the work.
    """
    number = 1 if n_jobs == 1 else min(joblib.effective_n_jobs(n_jobs), MAX_THREADS)
    with _team_grows:
        while len(_team) < number - 1:
            member = Thread(target=_kernel.serve, name="dplda-team", daemon=True)
            try:
                # Where threads inherit the context of their start
                # (`sys.flags.thread_inherit_context`), it would keep that of its first
                # caller.
                Context().run(member.start)
            except RuntimeError:
                break
            _team.append(member)
    return number


def in_threads(
    run: Callable[[Piece], Result], pieces: Sequence[Piece], n_jobs: int | None
) -> list[Result]:
    """Call `run` on each piece, in `n_jobs` threads; results in the pieces' order.

    The calling thread is one of them. The others are the kernels' threads, and get its
    context variables (`np.errstate`). Many small pieces keep all threads busy to the
    end. After an error no further piece is begun.
    """
    number = n_threads(n_jobs) if len(pieces) > 1 else 1
    if number == 1:
        return list(map(run, pieces))
    results: dict[int, Result] = {}
    context = copy_context()

    def call(index: int) -> None:
        results[index] = context.copy().run(run, pieces[index])

    _kernel.run_calls(call, len(pieces), number)
    return [results[index] for index in range(len(pieces))]
