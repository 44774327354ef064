"""CPU seconds against held-out perplexity, without noise, next to other packages.

``python benchmarks/peers/time_to_quality.py [--corpora kos nips] [--components 50 100
1000] [--seeds 3] [--threads 1] [--slow-up-to 100] [--only NAME ...] [--plot FILE]``

A tenth of the documents is held out. One evaluator judges every table of topics:
document completion, as in `held_out_perplexity`. dplda is timed as whole fits, one for
each number of rounds, with all that a fit does once. The others are timed in their
sweeps alone, and read after some of them; reading documents is not counted. tomotopy
and lda give the counts of the last sweep. A row of its own averages tomotopy's counts
over the last half of its sweeps, which its users do by hand; reading the counts is not
timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import (
    ALPHA,
    BETA,
    conditions,
    cpu_seconds,
    halves,
    markdown,
    save_plot,
    whole_corpus,
)
from opponents import OPPONENTS, NotInstalled, Tomotopy
from threadpoolctl import threadpool_limits

from dplda import GibbsLDA, SubLDA
from dplda.metrics import held_out_perplexity

SWEEPS = (5, 10, 20, 40, 80, 160)
PASSES = (1, 2, 4, 8, 16)
ROUNDS = (3, 5, 8, 12, 20, 40)
AVERAGED = "tomotopy, last half averaged"
REFERENCE = "tomotopy"
OURS = {
    "GibbsLDA": (SWEEPS, GibbsLDA),
    "SubLDA(epsilon=inf)": (
        ROUNDS,
        lambda k, **options: SubLDA(k, epsilon=np.inf, **options),
    ),
}
Point = tuple[int, float, float]  # sweeps, CPU seconds, perplexity


class TomotopyAveraged(Tomotopy):
    """tomotopy, whose `components` is the mean over the last half of the sweeps."""

    name = AVERAGED

    def start(self, *arguments: Any) -> None:
        super().start(*arguments)
        self.sums = [np.zeros((self.n_components, self.n_words), np.float32)]

    def seconds(self) -> float:
        seconds = super().seconds()
        self.sums.append(self.sums[-1] + super().components().astype(np.float32))
        return seconds

    def components(self) -> np.ndarray:
        n_done = len(self.sums) - 1
        return (self.sums[-1] - self.sums[n_done // 2]).astype(float) / (
            n_done - n_done // 2
        )


def whole_fits(
    kind: Callable[..., Any],
    counts: tuple[int, ...],
    X: Any,
    score: Callable,
    **options: Any,
) -> Iterator[Point]:
    """A fit for each number of rounds."""
    for n in counts:
        start = cpu_seconds()
        model = kind(max_iter=n, **options).fit(X)
        seconds = cpu_seconds() - start
        yield n, seconds, score(model.components_)


def after_sweeps(
    peer: Any, counts: tuple[int, ...], score: Callable
) -> Iterator[Point]:
    """One training, read after so many sweeps."""
    done, seconds = 0, 0.0
    for n in counts:
        seconds += sum(peer.seconds() for _ in range(n - done))
        done = n
        yield n, seconds, score(peer.components())
    peer.close()


def curves_of_seed(
    options: argparse.Namespace, X: Any, held: Any, n_components: int, seed: int
) -> dict[str, Any]:
    """The points of each contestant, or the reason why it has none; they take turns."""
    score = partial(held_out_perplexity, X=held, doc_topic_prior=ALPHA)
    running: dict[str, Iterator[Point]] = {}
    curves: dict[str, Any] = {}
    for name, (counts, kind) in OURS.items():
        running[name] = whole_fits(
            partial(kind, n_components),
            counts,
            X,
            score,
            doc_topic_prior=ALPHA,
            topic_word_prior=BETA,
            random_state=seed,
            n_jobs=options.threads,
        )
    for peer in (Tomotopy, TomotopyAveraged, *OPPONENTS[1:]):
        counts = SWEEPS if peer.name in (REFERENCE, AVERAGED, "lda") else PASSES
        if peer.slow and n_components > options.slow_up_to:
            curves[peer.name] = f"not run (K > {options.slow_up_to})"
        elif options.only and peer.name not in options.only:
            continue
        else:
            try:
                start = peer(X, n_components, seed, options.threads)
            except NotInstalled as missing:
                curves[peer.name] = str(missing)
            else:
                running[peer.name] = after_sweeps(start, counts, score)
    if options.only:
        running = {
            name: points for name, points in running.items() if name in options.only
        }
        curves = {
            name: reason for name, reason in curves.items() if name in options.only
        }
    curves |= {name: [] for name in running}
    while running:
        for name, points in list(running.items()):
            point = next(points, None)
            if point is None:
                del running[name]
            else:
                curves[name].append(point)
    return curves


def seconds_to(level: float, curve: list[Point]) -> tuple[float, str]:
    """CPU seconds to a perplexity, and "<" if the first point is better.

    Infinity if it is never reached.

    Between two points, log time is linear in log perplexity.
    """
    before = None
    for _, seconds, perplexity in curve:
        if perplexity <= level:
            if before is None:
                return seconds, "<"
            x = np.log([before[1], level, perplexity])
            part = (x[0] - x[1]) / (x[0] - x[2])
            return float(before[0] * (seconds / before[0]) ** part), ""
        if before is None or perplexity < before[1]:
            before = seconds, perplexity
    return np.inf, ""


def advantage(
    level_of: Callable[[list[Point]], float], curves: list, references: list
) -> str:
    """How much longer the reference takes to its own level: median over the seeds."""
    ratios, bound = [], ""
    for curve, reference in zip(curves, references):
        level = level_of(reference)
        seconds, less = seconds_to(level, curve)
        ratios.append(seconds_to(level, reference)[0] / seconds)
        bound = bound or less
    middle = float(np.median(ratios))
    return "not reached" if middle == 0 else f"{'> ' if bound else ''}{middle:.2f}"


def tables(corpus: str, n_components: int, by_seed: list[dict[str, Any]]) -> str:
    """The curves, median over the seeds, and the time ratios to tomotopy."""
    names = list(by_seed[0])
    rows = []
    for name in names:
        if isinstance(by_seed[0][name], str):
            rows.append([name, by_seed[0][name]])
            continue
        points = np.median([curves[name] for curves in by_seed], axis=0)
        curve = ", ".join(f"{n:.0f}: {s:.2f} s {p:.0f}" for n, s, p in points)
        rows.append([name, curve])
    head = [
        f"{corpus}, K = {n_components}",
        "sweeps or rounds: CPU seconds, perplexity",
    ]
    parts = [markdown(head, rows)]
    if REFERENCE in names and not isinstance(by_seed[0][REFERENCE], str):
        references = [curves[REFERENCE] for curves in by_seed]
        n_points = len(references[0])
        head = ["time ratio at the level of tomotopy after"]
        head += [f"{n} sweeps" for n, _, _ in references[0]]
        parts.append(
            markdown(
                head,
                [
                    [
                        name,
                        *(
                            advantage(
                                lambda curve, i=i: curve[i][2],
                                [c[name] for c in by_seed],
                                references,
                            )
                            for i in range(n_points)
                        ),
                    ]
                    for name in names
                    if name != REFERENCE and not isinstance(by_seed[0][name], str)
                ],
            )
        )
    return "\n\n".join(parts)


def draw(
    corpus: str, n_components: int, by_seed: list[dict[str, Any]], axes: Any
) -> None:
    """Perplexity against CPU seconds; median over the seeds."""
    for name in by_seed[0]:
        if not isinstance(by_seed[0][name], str):
            _, seconds, perplexity = np.median([c[name] for c in by_seed], axis=0).T
            axes.plot(seconds, perplexity, "o-" if name in OURS else "x--", label=name)
    axes.set(
        xscale="log",
        xlabel="CPU seconds",
        ylabel="held-out perplexity",
        title=f"{corpus}, {n_components} topics, without noise",
    )
    axes.tick_params(axis="x", which="minor", labelbottom=False)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "nips"])
    parser.add_argument("--components", nargs="+", type=int, default=[50, 100, 1000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slow-up-to", type=int, default=100)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument(
        "--note", default="", help="added to the conditions: loaded machine"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="PNG; corpus and K are put into its name"
    )
    options = parser.parse_args()
    known = {*OURS, AVERAGED, *(peer.name for peer in OPPONENTS)}
    unknown = set(options.only or ()) - known
    if unknown:
        parser.error(f"--only takes {sorted(known)}, got {sorted(unknown)}")
    with threadpool_limits(options.threads):
        for corpus in options.corpora:
            X, held = halves(whole_corpus(corpus))
            for n_components in options.components:
                by_seed = []
                for seed in range(options.seeds):
                    print(
                        f"{corpus}, K = {n_components}, seed {seed}",
                        file=sys.stderr,
                        flush=True,
                    )
                    by_seed.append(curves_of_seed(options, X, held, n_components, seed))
                report(options, corpus, n_components, by_seed)


def report(
    options: argparse.Namespace,
    corpus: str,
    n_components: int,
    by_seed: list[dict[str, Any]],
) -> None:
    """Print the tables of one number of topics, and draw them."""
    packages = sorted({peer.package for peer in OPPONENTS})
    text = tables(corpus, n_components, by_seed)
    text += f"\n\nMedian of {options.seeds} seeds; "
    text += conditions(packages, options.threads, options.note) + "\n"
    print(text, flush=True)
    if options.plot:
        path = Path(options.plot)
        path = path.with_stem(f"{path.stem}_{corpus}_{n_components}")
        save_plot(str(path), partial(draw, corpus, n_components, by_seed))


if __name__ == "__main__":
    main()
