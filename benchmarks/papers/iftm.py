"""iFTM's party as published, alone on KOS: the effect of its threshold.

``python benchmarks/papers/iftm.py [--sweeps 20] [--seeds 2]``

2000 words, K = 20, priors 0.1 and 0.01. Held-out log-likelihood per token by document
completion, and the share of the training tokens in the largest topic. The paper sets
tau = 0.2 and epsilon 8 to
11. ``benchmarks/federated.py --parts literal`` shows the party's leak, and compares it
    with the
sound party.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from corpora import kos

from dplda.metrics import unigram_perplexity
from dplda.privacy import PrivacyLeakWarning
from dplda.published import PublishedIFTMParty

BETA = 0.01
SETTINGS = [(8.0, 0.2), (11.0, 0.2), (11.0, 0.5), (11.0, 0.9), (math.inf, 0.2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    split = kos()
    unigram = -math.log(unigram_perplexity(split.train, split.test))
    print(
        f"{split}; {options.sweeps} sweeps, {options.seeds} seeds; unigram "
        f"{unigram:.3f}\n"
    )
    print("| epsilon | tau | log-likelihood per token | share of the largest topic |")
    print("| --- | --- | --- | --- |")
    for epsilon, tau in SETTINGS:
        found = [
            fitted(split, epsilon, tau, options.sweeps, seed)
            for seed in range(options.seeds)
        ]
        score, largest = np.mean(found, axis=0)
        print(
            f"| {epsilon:g} | {'' if math.isinf(epsilon) else tau} | {score:.3f} | "
            f"{largest:.1%} |"
        )


def fitted(split, epsilon, tau, sweeps, seed) -> tuple[float, float]:
    model = PublishedIFTMParty(
        20,
        published_epsilon=epsilon,
        noise_threshold=tau,
        topic_word_prior=BETA,
        max_iter=sweeps,
        random_state=seed,
    ).fit(split.train)
    sizes = (model.components_ - BETA).sum(axis=1)
    return model.score(split.test), sizes.max() / sizes.sum()


if __name__ == "__main__":
    main()
