"""Tokens per second of one sweep or round, beside other implementations.

All run in one process.

``python benchmarks/peers/sweeps.py [--corpora nips kos] [--components 20 50 100 500
1000] [--repeats 5] [--seeds 3] [--threads 1] [--sets avx512 avx2 portable]
[--slow-up-to 100] [--only NAME ...] [--plot FILE]``

All contestants take turns, round by round, from the same corpus with the same priors.
The time is CPU time of the process, its threads and its child processes. A round of
dplda is everything that `fit` does in it: inference, sums, noise on all cells, table.
Every contestant makes some sweeps before the clock starts. A peer that is missing has a
row that says so.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import numpy as np
from measuring import (
    ALPHA,
    BETA,
    conditions,
    markdown,
    save_plot,
    whole_corpus,
)
from opponents import OPPONENTS, NotInstalled
from ours import OURS, Rounds
from threadpoolctl import threadpool_limits

from dplda.kernels import _sets

WARM_UP = 3
REFERENCE = "tomotopy"
UNIT = {"GibbsLDA": "sweep"}


class Turn:
    """A contestant on one corpus, with its table name and its instruction set."""

    def __init__(self, name: str, instruction_set: str | None, start: Any) -> None:
        self.name, self.instruction_set = name, instruction_set
        self.times: list[float] = []
        self._choose()
        self.contestant = start()
        for _ in range(WARM_UP):
            self.contestant.seconds()

    def take(self) -> None:
        self._choose()
        self.times.append(self.contestant.seconds())

    def _choose(self) -> None:
        if self.instruction_set is not None:
            _sets.use(self.instruction_set)


def row_names(options: argparse.Namespace) -> dict[str, tuple[str, str | None, Any]]:
    """Row name: name, instruction set, class or factory."""
    names = {}
    for name, make in OURS.items():
        for each in options.sets:
            names[f"{name} {UNIT.get(name, 'round')}, {each}"] = (name, each, make)
    names |= {peer.name: (peer.name, None, peer) for peer in OPPONENTS}
    if options.only:
        names = {row: names[row] for row in names if names[row][0] in options.only}
    return names


def start(
    row: str, options: argparse.Namespace, X: Any, n_components: int, seed: int
) -> Any:
    """A contestant that has warmed up, or the reason why its row has none."""
    name, instruction_set, kind = row_names(options)[row]
    if name in OURS:
        model = kind(
            n_components,
            doc_topic_prior=ALPHA,
            topic_word_prior=BETA,
            random_state=seed,
            max_iter=2 * (WARM_UP + options.repeats),
            n_jobs=options.threads,
        )
        return Turn(row, instruction_set, lambda: Rounds(model, X))
    if kind.slow and n_components > options.slow_up_to:
        return f"not run (K > {options.slow_up_to})"
    try:
        return Turn(row, None, lambda: kind(X, n_components, seed, options.threads))
    except NotInstalled as missing:
        return str(missing)


def measure(options: argparse.Namespace, X: Any, n_components: int) -> dict[str, Any]:
    """Seconds of each row, (seeds, repeats), or the reason why it was not run."""
    rows = list(row_names(options))
    times: dict[str, Any] = {row: [] for row in rows}
    for seed in range(options.seeds):
        turns = {row: start(row, options, X, n_components, seed) for row in rows}
        running = {row: turn for row, turn in turns.items() if isinstance(turn, Turn)}
        for _ in range(options.repeats):
            for turn in running.values():
                turn.take()
        for row, turn in turns.items():
            if row in running:
                turn.contestant.close()
                times[row].append(turn.times)
            else:
                times[row] = turn
    return {row: np.array(t) if isinstance(t, list) else t for row, t in times.items()}


def cell(seconds: Any, n_tokens: int) -> str:
    if isinstance(seconds, str):
        return seconds
    best, median = n_tokens / seconds.min(), n_tokens / np.median(seconds)
    return f"{best / 1e6:.2f} ({median / 1e6:.2f})"


def ratio(seconds: Any, reference: Any) -> str:
    if isinstance(seconds, str) or not isinstance(reference, np.ndarray):
        return "-"
    return (
        f"{reference.min() / seconds.min():.2f} ({np.median(reference / seconds):.2f})"
    )


def tables(corpus: str, n_tokens: int, results: dict[int, dict[str, Any]]) -> str:
    """Two tables: tokens per second, and the ratio to tomotopy."""
    rows = list(next(iter(results.values())))
    head = [f"{corpus}, M tokens/s", *(f"K = {k}" for k in results)]
    speeds = [
        [row, *(cell(result[row], n_tokens) for result in results.values())]
        for row in rows
    ]
    parts = [markdown(head, speeds)]
    if REFERENCE in rows:
        head[0] = f"{corpus}, times {REFERENCE}"
        parts.append(
            markdown(
                head,
                [
                    [
                        row,
                        *(
                            ratio(result[row], result[REFERENCE])
                            for result in results.values()
                        ),
                    ]
                    for row in rows
                    if row != REFERENCE
                ],
            )
        )
    return "\n\n".join(parts)


def draw(
    corpus: str, n_tokens: int, results: dict[int, dict[str, Any]], axes: Any
) -> None:
    """Tokens per second against the number of topics, of the best instruction set."""
    for row in next(iter(results.values())):
        points = [
            (k, n_tokens / result[row].min() / 1e6)
            for k, result in results.items()
            if isinstance(result[row], np.ndarray)
        ]
        is_ours = row.split()[0] in OURS
        if points:
            axes.plot(*zip(*points), "o-" if is_ours else "x--", label=row)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="topics",
        ylabel="M tokens a CPU second",
        title=f"One sweep or round on {corpus}",
    )
    axes.set_xticks(list(results), [str(k) for k in results], minor=False)
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["nips", "kos"])
    parser.add_argument(
        "--components", nargs="+", type=int, default=[20, 50, 100, 500, 1000]
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--sets",
        nargs="+",
        default=None,
        choices=_sets.INSTRUCTION_SETS,
        help="instruction sets of the kernels; default: the fastest",
    )
    parser.add_argument(
        "--slow-up-to",
        type=int,
        default=100,
        help="largest K for lda, scikit-learn and gensim",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="contestants, such as tomotopy"
    )
    parser.add_argument(
        "--note", default="", help="added to the conditions: loaded machine"
    )
    parser.add_argument("--plot", metavar="FILE", help="PNG of the first corpus")
    options = parser.parse_args()
    options.sets = options.sets or list(_sets.INSTRUCTION_SETS[-1:])
    known = {*OURS, *(peer.name for peer in OPPONENTS)}
    unknown = set(options.only or ()) - known
    if unknown:
        parser.error(f"--only takes {sorted(known)}, got {sorted(unknown)}")
    return options


def main() -> None:
    options = parse()
    with threadpool_limits(options.threads):
        for number, corpus in enumerate(options.corpora):
            X = whole_corpus(corpus)
            n_tokens = int(X.sum())
            results = {}
            for n_components in options.components:
                print(f"{corpus}, K = {n_components}", file=sys.stderr, flush=True)
                results[n_components] = measure(options, X, n_components)
            packages = sorted({peer.package for peer in OPPONENTS})
            text = tables(corpus, n_tokens, results)
            text += f"\n\nBest (median) of {options.seeds} x {options.repeats}; "
            text += conditions(packages, options.threads, options.note, options.sets)
            print(text + "\n", flush=True)
            if options.plot and number == 0:
                save_plot(options.plot, partial(draw, corpus, n_tokens, results))


if __name__ == "__main__":
    main()
