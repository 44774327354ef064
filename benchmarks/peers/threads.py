"""Wall time of whole rounds with one thread and with more, in one process.

``python benchmarks/peers/threads.py [--corpora nips] [--words 2000 all] [--components
20 100 500] [--threads 1 2] [--rounds 8] [--repeats 5] [--only NAME ...]``

A round is everything that `fit` does in it: inference or topic draws, sums, noise on
all cells, table. A fit is what a user calls, at the defaults: ``--only SubLDA.fit
...``, in a run without rounds, for which fits are changed. `transform` infers the topic
weights of all documents, checks of the counts included. Each contestant runs once for
each number of threads, from the same seed, and they take turns. A turn is `--rounds`
rounds in a row, as in a fit: a single one would begin with the caches of another run,
and with threads that sleep. tomotopy is the reference. Run it on a machine that does
nothing else: a thread that waits for a processor counts as time here.

The limit of the machine is measured beside it: as many processes as threads, each with
a contestant of one thread, take the same turns at the same time. They share no data and
wait for nothing, so what they gain together is what the processors can give to this
kind of work. Two virtual processors may be one core, whose parts share it well if they
wait for memory, and badly if they compute.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from measuring import ALPHA, BETA, conditions, markdown, whole_corpus
from opponents import NotInstalled, Tomotopy
from threadpoolctl import threadpool_limits

from dplda import HDPLDA, GibbsLDA, PrivateSVILDA, SubLDA

WARM_UP = 3
SWEEPS = 5  # of the model that `transform` uses
FITS = {"SubLDA.fit": SubLDA, "PrivateSVILDA.fit": PrivateSVILDA, "HDPLDA.fit": HDPLDA}
ROWS = ("SubLDA", "PrivateSVILDA", "HDPLDA", "GibbsLDA", "transform", "tomotopy")


class Call:
    """One call, in the form of a contestant."""

    def __init__(self, call: Callable[[sp.csr_array], Any], X: sp.csr_array) -> None:
        self.step: Callable[[], Any] = lambda: call(X)

    def close(self) -> None:
        pass


def most_frequent(X: sp.csr_array, words: str) -> sp.csr_array:
    """The columns of the `words` most frequent words, or all of them ("all")."""
    if words == "all":
        return X
    order = np.argsort(-X.sum(axis=0), kind="stable")[: int(words)]
    return sp.csr_array(X[:, np.sort(order)])


def start(
    name: str, X: sp.csr_array, n_components: int, threads: int, n_timed: int
) -> Any:
    """A contestant that has warmed up: `step` is what is timed."""
    common = {"doc_topic_prior": ALPHA, "topic_word_prior": BETA, "random_state": 0}
    if name == "tomotopy":
        contestant: Any = Tomotopy(X, n_components, 0, threads)
    elif name == "transform":
        model = GibbsLDA(n_components, max_iter=SWEEPS, n_jobs=threads, **common).fit(X)
        contestant = Call(model.transform, X)
    elif name in FITS:
        return Call(
            FITS[name](n_components, epsilon=4.0, random_state=0, n_jobs=threads).fit, X
        )
    else:
        from ours import OURS, Rounds  # which changes all fits of this process

        n_rounds = 2 * (WARM_UP + n_timed)  # the last ones of a fit are not timed
        model = OURS[name](n_components, max_iter=n_rounds, n_jobs=threads, **common)
        if name in ("SubLDA", "PrivateSVILDA"):
            # where topics would drown in noise, some rounds release word totals, which
            # is less work
            model.set_params(epsilon=None, noise_multiplier=0.01)
        contestant = Rounds(model, X)
    for _ in range(WARM_UP):
        contestant.step()
    return contestant


def turn(contestant: Any, rounds: int) -> float:
    """Wall seconds of a round."""
    begin = time.perf_counter()
    for _ in range(rounds):
        contestant.step()
    return (time.perf_counter() - begin) / rounds


class Alone:
    """A contestant of one thread in a process of its own."""

    contestant: Any

    def __init__(self, *arguments: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, mp_context=spawn)
        self.ready = self._process.submit(Alone._start, *arguments)

    @classmethod
    def _start(cls, *arguments: Any) -> None:
        warnings.simplefilter("ignore")
        cls.contestant = start(*arguments)

    @classmethod
    def _turn(cls, rounds: int) -> float:
        return turn(cls.contestant, rounds)

    def turn(self, rounds: int) -> Future[float]:
        return self._process.submit(Alone._turn, rounds)

    def close(self) -> None:
        self._process.shutdown()


def measure(
    options: argparse.Namespace, X: sp.csr_array, n_components: int
) -> dict[str, Any]:
    """Wall seconds of a round (contests, repeats) a contestant, or why it does not run.

    The contests are the numbers of threads, and at last processes of one thread.
    """
    times: dict[str, Any] = {}
    most, n_timed = max(options.threads), options.rounds * options.repeats
    for name in options.only:
        arguments = [(name, X, n_components, n, n_timed) for n in options.threads]
        try:
            contestants = [start(*given) for given in arguments]
        except NotInstalled as missing:
            times[name] = str(missing)
            continue
        alone = [Alone(name, X, n_components, 1, n_timed) for _ in range(most)]
        for process in alone:
            process.ready.result()
        seconds = np.empty((len(contestants) + 1, options.repeats))
        for repeat in range(options.repeats):
            for index, contestant in enumerate(contestants):
                seconds[index, repeat] = turn(contestant, options.rounds)
            turns = [process.turn(options.rounds) for process in alone]
            seconds[-1, repeat] = max(each.result() for each in turns)
        for ended in itertools.chain(contestants, alone):
            ended.close()
        times[name] = seconds
    return times


def cell(seconds: Any, threads: list[int]) -> str:
    """Speedup by the most threads, the limit of the machine, and milliseconds."""
    if isinstance(seconds, str):
        return seconds
    *median, together = np.median(seconds, axis=1)
    taken = " / ".join(f"{1e3 * value:.0f}" for value in median)
    limit = max(threads) * median[0] / together
    return f"**{median[0] / median[-1]:.2f}** of {limit:.2f}, {taken} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["nips"])
    parser.add_argument(
        "--words", nargs="+", default=["2000", "all"], help="sizes of vocabulary"
    )
    parser.add_argument("--components", nargs="+", type=int, default=[20, 100, 500])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=8, help="of each turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns")
    parser.add_argument("--only", nargs="+", default=list(ROWS), choices=[*ROWS, *FITS])
    parser.add_argument(
        "--note", default="", help="added to the conditions: loaded machine"
    )
    options = parser.parse_args()
    if len({name in FITS for name in options.only}) > 1:
        parser.error("whole fits and rounds take a run each")
    warnings.simplefilter("ignore")
    with threadpool_limits(1):  # BLAS has no part in this
        for corpus in options.corpora:
            for words in options.words:
                X = most_frequent(whole_corpus(corpus), words)
                results = {}
                for n_components in options.components:
                    print(
                        f"{corpus}, {words} words, K = {n_components}", file=sys.stderr
                    )
                    results[n_components] = measure(options, X, n_components)
                head = [f"{corpus}, V = {X.shape[1]}", *(f"K = {k}" for k in results)]
                shown = partial(cell, threads=options.threads)
                rows = [
                    [row, *(shown(result[row]) for result in results.values())]
                    for row in options.only
                ]
                print(markdown(head, rows) + "\n", flush=True)
    threads = " and ".join(map(str, options.threads))
    print(
        "Gain, of that of independent processes, and milliseconds a round with "
        f"{threads} threads: medians of {options.repeats} turns of {options.rounds} "
        "rounds; "
        + conditions(["tomotopy"], max(options.threads), options.note).replace(
            "CPU", "wall"
        )
    )


if __name__ == "__main__":
    main()
