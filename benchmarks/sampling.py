"""Poisson sampling: held-out perplexity against time, for several rates and numbers of rounds.

``python benchmarks/sampling.py [--corpora nips docstrings] [--epsilon 4] [--seeds 3]``

K = 20, V = 2000, delta = 1e-5. CPU seconds of a fit whose noise is already calibrated.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from corpora import LOADERS, load
from utility import DELTA, K, spread

from dplda import SubLDA
from dplda.privacy import SeededNoiseWarning

SETTINGS = [
    (1.0, 80),
    (0.1, 60),
    (0.1, 100),
    (0.1, 200),
    (0.1, 400),
    (0.1, 800),
    (0.02, 400),
    (0.02, 1000),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["nips", "docstrings"],
                        choices=list(LOADERS))  # fmt: skip
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    for split in load(options.corpora):
        print(f"\n{split}; epsilon {options.epsilon:g}\n")
        print("| rate | rounds | passes | perplexity | CPU s a fit | time : unsampled |")
        print("| --- | --- | --- | --- | --- | --- |")
        whole = None
        for rate, rounds in SETTINGS:
            results, seconds = [], []
            for seed in range(options.seeds):
                model = SubLDA(K, epsilon=options.epsilon, delta=DELTA, subsampling_ratio=rate,
                               max_iter=rounds, random_state=seed)  # fmt: skip
                if seed == 0:
                    model.fit(split.train)  # calibrates
                start = time.process_time()
                model.fit(split.train)
                seconds.append(time.process_time() - start)
                results.append(model.perplexity(split.test))
            whole = whole or np.median(seconds)
            print(f"| {rate:g} | {rounds} | {rate * rounds:g} | {spread(results)} | "
                  f"{np.median(seconds):.2f} | {np.median(seconds) / whole:.2f} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
