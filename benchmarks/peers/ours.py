"""Fits of dplda that can be stopped after each round, so that others take turns."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

from measuring import cpu_seconds

from dplda import HDPLDA, GibbsLDA, PrivateSVILDA, SubLDA
from dplda.document import _rules, _training
from dplda.gibbs import _gibbslda
from dplda.word import _hdplda

warnings.filterwarnings("ignore", module="dplda")
warnings.filterwarnings("ignore", message=".*noise|.*epsilon|.*random_state")

OURS = {
    "GibbsLDA": lambda k, **common: GibbsLDA(k, **common),
    "HDPLDA": lambda k, **common: HDPLDA(
        k, noise_epsilon=0.5, count_clip=10.0, **common
    ),
    "SubLDA": lambda k, **common: SubLDA(k, epsilon=4.0, **common),
    # all documents in each round, as the others
    "PrivateSVILDA": lambda k, **common: PrivateSVILDA(
        k, epsilon=4.0, subsampling_ratio=1.0, **common
    ),
}


class Stopped(Exception):
    """Ends a fit between two rounds."""


class Rounds:
    """The rounds of one fit: `step` runs the next one. The fit has a thread of its own.

    A round is everything that the fit does for it: sample, inference, sums, noise,
    table.
    """

    def __init__(self, model: Any, X: Any) -> None:
        self.model, self.error = model, None
        self.go, self.waiting = threading.Semaphore(0), threading.Semaphore(0)
        self.stopped = False
        self.thread = threading.Thread(target=self._fit, args=(X,), daemon=True)
        self.thread.fit_of = self  # type: ignore[attr-defined]
        self.thread.start()
        self._wait()

    def step(self) -> None:
        self.go.release()
        self._wait()

    def seconds(self) -> float:
        """CPU time of the next round."""
        start = cpu_seconds()
        self.step()
        return cpu_seconds() - start

    def close(self) -> None:
        self.stopped = True
        self.go.release()
        self.thread.join()

    def _wait(self) -> None:
        self.waiting.acquire()
        if self.error is not None:
            raise self.error

    def _fit(self, X: Any) -> None:
        try:
            self.model.fit(X)
        except Stopped:
            pass
        except BaseException as error:
            self.error = error
        self.waiting.release()

    def numbers(self, first: int, last: int) -> Iterator[int]:
        for t in range(first, last + 1):
            self.waiting.release()
            self.go.acquire()
            if self.stopped:
                raise Stopped
            yield t


def _with_turns(estimator: Any, first: int, last: int) -> Iterator[int]:
    """Stands for the numbers of a fit's rounds; one that nobody steps runs through."""
    stepped = getattr(threading.current_thread(), "fit_of", None)
    yield from stepped.numbers(first, last) if stepped else range(first, last + 1)


def _rounds_with_turns(training: Any, *arguments: Any) -> Iterator[Any]:
    """The same for the rounds of a `Training`."""
    rounds = _all_rounds(training, *arguments)
    for _ in _with_turns(training.model, 1, training.n_rounds):
        yield next(rounds)
    yield from rounds  # which has ended


for module in (_gibbslda, _hdplda):
    module.rounds = _with_turns  # type: ignore[attr-defined]
_all_rounds = _training.Training._rounds
_training.Training._rounds = _rounds_with_turns  # type: ignore[method-assign]

# A corpus that is too small for its epsilon gets rounds that release word totals again.
# They are far cheaper than rounds of topics, which are what is timed here.
_rules.Rules.most_for_totals = 0.0
