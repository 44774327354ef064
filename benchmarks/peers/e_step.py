"""Tokens per second of a variational E-step next to scikit-learn's, in one process and thread.

``python benchmarks/peers/e_step.py [--corpora kos nips] [--topics 20 100] [--repeats 5]``

The contestants take turns, from the same start (ones), under the same model (one online pass of
scikit-learn's), with the same rule to stop (mean change below 1e-3, at most 100 iterations), to the
expected word-topic counts. Ours forms these in integers, as training does. CPU time of the
process, its thread pools limited to one thread; median and best of the repeats, in millions of
tokens per second. The differences to scikit-learn's float64 are the largest of gamma, the largest
of the counts relative to the largest count, and the counts' relative L1 distance.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.decomposition._lda import _update_doc_distribution
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import data_folder

from dplda.core._fold_in import pad
from dplda.datasets import load_uci_bow
from dplda.document._documents import Documents
from dplda.kernels import _e_step

MAX_ITER, TOL, RADIUS = 100, 1e-3, 2**28

SKLEARN = {"scikit-learn float64": np.float64, "scikit-learn float32": np.float32}
OURS = {"ours float64": np.float64, "ours float32": np.float32}


def trained(X: Any, n_components: int) -> np.ndarray:
    """exp(E[log beta]) after one pass, (n_components, n_words)."""
    model = LatentDirichletAllocation(
        n_components, learning_method="online", max_iter=1, random_state=0
    )
    return model.fit(sp.csr_matrix(X, dtype=float)).exp_dirichlet_component_


def scikit_learn(X: Any, topics: np.ndarray, dtype: Any) -> Callable[[], tuple]:
    X = sp.csr_matrix(X, dtype=dtype)
    topics = np.ascontiguousarray(topics, dtype)
    prior = 1 / len(topics)

    def run() -> tuple:
        gamma, counts = _update_doc_distribution(X, topics, prior, MAX_ITER, TOL, True, None)
        return gamma, (counts * topics).T

    return run


def ours(X: Any, topics: np.ndarray, dtype: Any) -> Callable[[], tuple]:
    """The E-step in `dtype`; the expected counts are formed as in training, in single precision."""
    n_components = len(topics)
    documents = Documents.from_counts(X, n_components, 1)
    X = documents.X
    data, table, single = X.data.astype(dtype), pad(topics.T, dtype), pad(topics.T)
    center, weight = np.zeros_like(single), np.ones(X.shape[1], np.float32)
    rows = np.arange(X.shape[0])
    norm = 1 + float(np.sqrt(X.multiply(X).sum(axis=1).max()))
    scratch = np.empty((1, _e_step.scratch_size(np.diff(X.indptr).max(), n_components)), dtype)

    def run() -> tuple:
        gamma = np.ones((X.shape[0], table.shape[1]), dtype)
        exp_doc_topic = np.empty_like(gamma)
        _e_step.e_step(
            X.indptr, X.indices, data, rows, table, 1 / n_components, n_components,
            MAX_ITER, TOL, gamma, exp_doc_topic, scratch,
        )  # fmt: skip
        documents.theta[:] = exp_doc_topic
        total = documents.sum_topics(rows, single, center, weight=weight, norm=norm, radius=RADIUS)
        return gamma[:, :n_components], total * (norm / RADIUS)

    return run


def row(corpus: str, X: Any, n_components: int, repeats: int) -> None:
    topics = trained(X, n_components)
    runs = {name: scikit_learn(X, topics, dtype) for name, dtype in SKLEARN.items()}
    runs |= {name: ours(X, topics, dtype) for name, dtype in OURS.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    results = {}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.process_time()
            results[name] = run()
            times[name].append(time.process_time() - start)
    n_tokens = X.sum() / 1e6
    speed = {name: n_tokens / np.median(t) for name, t in times.items()}
    cells = [f"{speed[name]:.2f} ({n_tokens / min(t):.2f})" for name, t in times.items()]
    best = max(speed[name] for name in SKLEARN)
    cells += [f"{speed[name] / best:.1f}" for name in OURS]
    other, expected = results["scikit-learn float64"]
    for name in ("ours float64", "ours float32", "scikit-learn float32"):
        gamma, counts = results[name]
        difference = np.abs(counts - expected)
        cells.append(
            f"{np.abs(gamma - other).max():.0e}, {difference.max() / expected.max():.0e}, "
            f"{difference.sum() / expected.sum():.0e}"
        )
    print(f"| {corpus} {n_components} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "nips"])
    parser.add_argument("--topics", nargs="+", type=int, default=[20, 100])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"scikit-learn {sklearn.__version__}; M tokens/s, median (best)\n")
    columns = ["corpus, K", *SKLEARN, *OURS]
    columns += [f"{name} : best of scikit-learn" for name in OURS]
    columns += [f"{name}: differences" for name in (*OURS, "scikit-learn float32")]
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
    with threadpool_limits(1):
        for corpus in options.corpora:
            X = load_uci_bow(corpus, data_home=data_folder(), download_if_missing=False).data
            for n_components in options.topics:
                row(corpus, X, n_components, options.repeats)


if __name__ == "__main__":
    main()
