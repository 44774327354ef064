"""Private stochastic variational inference: utility, next to SubLDA and scikit-learn.

``python benchmarks/svi.py [--corpora kos nips docstrings] [--epsilons 2 4 8] [--seeds 3]
[--online]``

Default: held-out perplexity of PrivateSVILDA and SubLDA at the same epsilon (K = 20, V = 2000,
delta = 1e-5, one tenth held out, document completion). ``--online``: without noise, next to
scikit-learn's online LDA at equal passes, minibatches and priors.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from corpora import LOADERS, load
from sklearn.decomposition import LatentDirichletAllocation
from utility import DELTA, K, spread

from dplda import PrivateSVILDA, SubLDA
from dplda.metrics import held_out_perplexity
from dplda.privacy import SeededNoiseWarning

BATCH = 128
SETTINGS = {  # of PrivateSVILDA
    "ratio 0.2, 200 rounds (default)": {},
    "ratio 1, 80 rounds": {"subsampling_ratio": 1.0, "max_iter": 80},
    "ratio 0.1, 100 rounds": {"subsampling_ratio": 0.1, "max_iter": 100},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "nips", "docstrings"],
                        choices=list(LOADERS))  # fmt: skip
    parser.add_argument("--epsilons", nargs="+", type=float, default=[2.0, 4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--online", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    for split in load(options.corpora):
        print(f"\n{split}; {split.test.shape[0]} held out\n")
        (online if options.online else utility)(split, options)


def utility(split, options) -> None:
    """One row a model, one column an epsilon: mean and standard deviation over seeds."""
    print("| model | " + " | ".join(f"{e:g}" for e in options.epsilons) + " | CPU s a fit |")
    print("| --- |" + " --- |" * (len(options.epsilons) + 1))
    rows = {"SubLDA, 80 rounds": (SubLDA, {})}
    rows |= {f"PrivateSVILDA, {name}": (PrivateSVILDA, s) for name, s in SETTINGS.items()}
    reference: list[float] = []
    for name, (model, settings) in rows.items():
        cells, seconds = [], []
        for epsilon in options.epsilons:
            values = []
            for seed in range(options.seeds):
                start = time.process_time()
                fitted = model(K, epsilon=epsilon, delta=DELTA, random_state=seed, **settings)
                fitted.fit(split.train)
                seconds.append(time.process_time() - start)
                values.append(fitted.perplexity(split.test))
            cells.append(spread(values))
            if model is SubLDA:
                reference.append(float(np.mean(values)))
            else:
                ratio = np.mean(values) / reference[len(cells) - 1] - 1
                cells[-1] += f" ({ratio:+.1%})"
        print(f"| {name} | " + " | ".join(cells) + f" | {np.median(seconds):.1f} |", flush=True)


def online(split, options) -> None:
    """Plain online LDA, theirs and ours."""
    print("| seed | scikit-learn | PrivateSVILDA(epsilon=inf) | ratio | CPU s, theirs / ours |")
    print("| --- | --- | --- | --- | --- |")
    ratio = BATCH / split.train.shape[0]
    for seed in range(options.seeds):
        start = time.process_time()
        peer = LatentDirichletAllocation(
            K,
            learning_method="online",
            batch_size=BATCH,
            max_iter=options.passes,
            doc_topic_prior=0.1,
            topic_word_prior=0.01,
            random_state=seed,
        ).fit(split.train)
        middle = time.process_time()
        ours = PrivateSVILDA(
            K,
            epsilon=np.inf,
            subsampling_ratio=ratio,
            max_iter=round(options.passes / ratio),
            learning_decay=0.7,  # scikit-learn's
            random_state=seed,
        ).fit(split.train)
        end = time.process_time()
        a, b = (held_out_perplexity(m.components_, split.test) for m in (peer, ours))
        print(f"| {seed} | {a:.0f} | {b:.0f} | {b / a:.3f} | "
              f"{middle - start:.1f} / {end - middle:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
