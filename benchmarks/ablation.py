"""What each piece of the centered release brings: held-out perplexity without it.

``python benchmarks/ablation.py [--corpora kos docstrings bbc nips] [--epsilons 1 4] [--seeds 2]
[--variants]``

K = 20, V = 2000, delta = 1e-5. One piece is changed at a time; the figure is the change of the mean
perplexity, in percent (positive: the piece helps).
"""

from __future__ import annotations

import argparse
import contextlib
import warnings
from unittest import mock

import numpy as np
from corpora import LOADERS, load
from utility import DELTA, K

import dplda.central._centered_release as centered
import dplda.central._denoise as denoise
import dplda.central._document_rounds as document_level
import dplda.central._schedule as budget
from dplda import SubLDA
from dplda.privacy import SeededNoiseWarning

document_schedule, round_schedule = budget.document_schedule, budget.round_schedule


def schedule_without(clip: float | None = None, power: float | None = None):
    def schedule(t: int, max_iter: int) -> tuple[float, float]:
        usual = document_schedule(t, max_iter)
        return clip or usual[0], power or usual[1]

    return schedule


def uncentered(self) -> np.ndarray:
    return np.zeros_like(self.table)


def add_unprojected(self, noisy, noise_scale, rate, prior) -> None:
    counts = self.totals[:, None] * self.topic_shares() + noisy / self.weight[:, None]
    self.average_in(counts, noise_scale, rate, prior)


def cut_at_zero(self, noisy, noise_scale, *, last=False):
    return np.maximum(noisy, 0)


PIECES = {
    "centering": [
        (centered.Released, "topic_shares", uncentered),
        (centered.Released, "add", add_unprojected),
        (document_level, "document_schedule", schedule_without(clip=1.0)),
    ],
    "table estimate (cut at 0)": [(denoise.TableEstimate, "__call__", cut_at_zero)],
    "width of the factors": [(denoise, "SPREAD", np.float32(1e-3))],
    "tempering": [(document_level, "document_schedule", schedule_without(power=1.0))],
    "growing clip": [(document_level, "document_schedule", schedule_without(clip=0.4))],
    "zero-sum projection": [(centered.Released, "add", add_unprojected)],
    "more budget later": [(budget, "round_schedule", lambda t, T: (1.0, round_schedule(t, T)[1]))],
    "more weight later": [
        (document_level, "round_schedule", lambda t, T: (round_schedule(t, T)[0], 1.0))
    ],
    "word weights": [(centered, "word_weights", np.ones_like)],
    "both totals": [(centered, "combine_totals", lambda first, second: second)],
}


# Changes that were tried and not kept.
VARIANTS = {
    "final clip 0.55": [
        (
            document_level,
            "document_schedule",
            lambda t, T: (
                0.15 + 1.6 * (document_schedule(t, T)[0] - 0.15),
                document_schedule(t, T)[1],
            ),
        )
    ],
    "average weights t^3": [
        (document_level, "round_schedule", lambda t, T: (round_schedule(t, T)[0], min(t, T) ** 3.0))
    ],
    "budget t^1.5": [
        (budget, "round_schedule", lambda t, T: (min(t, T) ** 1.5, round_schedule(t, T)[1]))
    ],
    "500 words, others at weight 0.1": [(centered, "word_weights", lambda u: few_words(u, 500))],
}


def few_words(totals: np.ndarray, n_words: int) -> np.ndarray:
    """Word weights that leave the rarer words almost out of the rounds."""
    weight = denoise.word_weights(totals)
    return np.where(np.argsort(np.argsort(-totals)) < n_words, weight, 0.1)


def perplexity(split, epsilon: float, seeds: int, patches=()) -> float:
    with contextlib.ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value))
        fits = (
            SubLDA(K, epsilon=epsilon, delta=DELTA, random_state=seed).fit(split.train)
            for seed in range(seeds)
        )
        return float(np.mean([model.perplexity(split.test) for model in fits]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "docstrings", "bbc", "nips"],
                        choices=list(LOADERS))  # fmt: skip
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--variants", action="store_true", help="what was tried and not kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    cases = [(s, e) for s in load(options.corpora) for e in options.epsilons]
    print(
        ("| with | " if options.variants else "| without | ")
        + " | ".join(f"{s.name} {e:g}" for s, e in cases)
        + " |"
    )
    print("|" + " --- |" * (len(cases) + 1))
    whole = [perplexity(s, e, options.seeds) for s, e in cases]
    print("| (nothing) | " + " | ".join(f"{value:.0f}" for value in whole) + " |", flush=True)
    for piece, patches in (VARIANTS if options.variants else PIECES).items():
        cells = [
            f"{100 * (perplexity(s, e, options.seeds, patches) / value - 1):+.1f}"
            for (s, e), value in zip(cases, whole)
        ]
        print(f"| {piece} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
