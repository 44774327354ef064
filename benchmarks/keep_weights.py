"""Topic weights kept between rounds or not: ``python benchmarks/keep_weights.py``.

Held-out perplexity and CPU seconds of SubLDA fits with and without `keep_weights`, paired by seed
and split. The corpora are those of ``benchmarks/corpora.py``.
"""

import argparse
import time
import warnings

import numpy as np
from corpora import load

from dplda import SubLDA
from dplda.document import _documents

SETTINGS = {"4": {"epsilon": 4.0}, "1": {"epsilon": 1.0}, "inf": {"epsilon": np.inf},
            "4, q = .1": {"epsilon": 4.0, "subsampling_ratio": 0.1, "max_iter": 200}}  # fmt: skip


def one_fit(split, seed, keep, parameters):
    model = SubLDA(20, delta=1e-5, random_state=seed, keep_weights=keep, n_jobs=1, **parameters)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the seed
        model.fit(split.train)
    return model.perplexity(split.test), time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "bbc", "docstrings"])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=_documents.STEPS_ANEW)
    options = parser.parse_args()
    _documents.STEPS_ANEW = options.steps
    print(f"weights from scratch with up to {options.steps} steps")
    print("| corpus | epsilon | kept | from scratch | difference | CPU s kept | from scratch |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for split in load(options.corpora):
        for setting in options.settings:
            runs = np.array([
                [one_fit(split, seed, keep, SETTINGS[setting]) for keep in (True, False)]
                for seed in range(options.seeds)
            ])  # fmt: skip
            (kept, anew), (cpu, cpu_anew) = runs.mean(axis=0).T
            change = runs[:, 1, 0] - runs[:, 0, 0]
            error = change.std(ddof=1) / np.sqrt(len(change))
            print(f"| {split.name} | {setting} | {kept:.0f} | {anew:.0f} | {change.mean():+.1f} ± "
                  f"{error:.1f} | {cpu:.1f} | {cpu_anew:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
