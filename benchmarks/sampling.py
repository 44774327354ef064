"""Poisson sampling: held-out perplexity against time, for several rates and numbers of rounds.

``python benchmarks/sampling.py [--corpora kos bbc] [--epsilon 1 4] [--rates 0.1 0.02]
[--estimator PrivateSVILDA] [--seeds 3]``

K = 20, V = 2000, delta = 1e-5. CPU seconds of a fit whose noise is already calibrated. Default
numbers of rounds are bold (of SubLDA).
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from corpora import LOADERS, load
from utility import DELTA, K, spread

from dplda import PrivateSVILDA, SubLDA
from dplda.document._document_budget import N_PASSES, default_rounds
from dplda.metrics import unigram_perplexity

ESTIMATORS = {"SubLDA": SubLDA, "PrivateSVILDA": PrivateSVILDA}

SETTINGS = {
    1.0: (80,),
    0.5: (80, 160),
    0.2: (80, 200, 400),
    0.1: (80, 200, 400, 800),
    0.02: (80, 200, 400, 1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "docstrings", "bbc"],
                        choices=list(LOADERS))  # fmt: skip
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--rates", nargs="+", type=float, default=list(SETTINGS))
    parser.add_argument("--estimator", choices=ESTIMATORS, default="SubLDA")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for split in load(options.corpora):
        unigram = unigram_perplexity(split.train, split.test)
        print(f"\n{split}; unigram {unigram:.0f}\n")
        first, *others = (f"epsilon {epsilon:g}" for epsilon in options.epsilon)
        columns = ["rate", "rounds", "passes", f"perplexity, {first}", *others, "CPU s a fit"]
        print(f"| {' | '.join(columns)} |\n" + "| --- " * len(columns) + "|")
        for rate in options.rates:
            for rounds in SETTINGS[rate]:
                found = [
                    measure(ESTIMATORS[options.estimator](
                        K, epsilon=epsilon, delta=DELTA, subsampling_ratio=rate, max_iter=rounds
                    ), split, options.seeds)
                    for epsilon in options.epsilon
                ]  # fmt: skip
                number = f"**{rounds}**" if rounds == default_rounds(N_PASSES, rate) else rounds
                cells = " | ".join(spread(results) for results, _ in found)
                seconds = np.mean([seconds for _, seconds in found])
                print(f"| {rate:g} | {number} | {rate * rounds:g} | {cells} | {seconds:.2f} |",
                      flush=True)  # fmt: skip


def measure(model, split, n_seeds):
    """Held-out perplexities, and the median CPU seconds of a fit whose noise is calibrated."""
    model._budget()
    results, seconds = [], []
    for seed in range(n_seeds):
        start = time.process_time()
        model.set_params(random_state=seed).fit(split.train)
        seconds.append(time.process_time() - start)
        results.append(model.perplexity(split.test))
    return results, np.median(seconds)


if __name__ == "__main__":
    main()
