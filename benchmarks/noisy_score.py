"""The noisy held-out score on KOS: its noise, and the bias of its clipping.

``python benchmarks/noisy_score.py [--draws 20] [--seeds 3]``

SubLDA with 20 topics and epsilon 4 is trained on 2430 documents, and 400 others are
scored. The reference is the model's own word totals. delta = 1e-6. Needs KOS (see
corpora.py).
"""

from __future__ import annotations

import argparse
import math
import warnings

import numpy as np
from corpora import kos

from dplda import SubLDA
from dplda.metrics import held_out_perplexity, noisy_score

N_TRAIN, N_SCORED = 2430, 400
EXACT = {"epsilon": math.inf}
UNBOUNDED = {"clip": 100.0, "max_tokens": 10**5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    split = kos()
    X, rest = split.train[:N_TRAIN], split.train[N_TRAIN:]
    Y = rest[:N_SCORED]
    models = [
        SubLDA(20, epsilon=4.0, random_state=seed).fit(X)
        for seed in range(options.seeds)
    ]
    print(f"KOS, {X.shape[0]} training documents, {Y.shape[0]} scored documents\n")
    bias(models, Y)
    spread(models[0], Y, options.draws)


def bias(models, X) -> None:
    """What clip and cap change without noise, in gain and in perplexity."""
    print(
        "| clip | max_tokens | gain | perplexity of the score | held-out perplexity |"
    )
    print("| --- | --- | --- | --- | --- |")
    perplexity = np.mean([held_out_perplexity(m.components_, X) for m in models])
    bounds = [UNBOUNDED] + [
        {"clip": clip, "max_tokens": n}
        for n in (50, 100)
        for clip in (0.5, 1.0, 1.5, 3.0)
    ]
    for bound in bounds:
        scores = [noisy_score(m, X, **EXACT, **bound) for m in models]
        gain, of_score = np.mean([(s.gain, s.perplexity) for s in scores], axis=0)
        cells = (
            f"{bound['clip']:g}",
            bound["max_tokens"],
            f"{gain:.4f}",
            f"{of_score:.0f}",
        )
        print("|", " | ".join(map(str, (*cells, f"{perplexity:.0f}"))), "|")
    print()


def spread(model, X, n_draws: int) -> None:
    """Standard deviation of the gain over noise draws, and its stated error.

    The error is the standard error.
    """
    print("| epsilon | standard deviation of the gain | stated standard error |")
    print("| --- | --- | --- |")
    for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0):
        scores = [noisy_score(model, X, epsilon=epsilon) for _ in range(n_draws)]
        deviation = np.std([s.gain for s in scores], ddof=1)
        stated = np.median([s.standard_error for s in scores])
        print(f"| {epsilon:g} | {deviation:.3f} | {stated:.3f} |")


if __name__ == "__main__":
    main()
