"""What was tried for LPLDA and not kept: reported ones that stay with their posterior probability.

``python benchmarks/posterior_weights.py [--corpora kos nips] [--epsilons 1 2 3 5] [--seeds 2]``

Each sweep draws anew which reported ones it looks at: each stays with the posterior probability
that the document has the word, ``p N / n``, or with ``N / n``, which keeps the counts. Beside the
two ways of LPLDA, on the same reports, all from random topics; 60 sweeps, K = 50, 1000 words.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from local_privacy import LOADERS, LOCAL, PRIORS, K

from dplda import LPLDA, RandomizedResponse
from dplda._corpus import Corpus
from dplda._fold_in import pad
from dplda.kernels import _gibbs
from dplda.local._estimates import estimate_counts
from dplda.metrics import held_out_perplexity
from dplda.privacy import SeededNoiseWarning
from dplda.privacy._streams import Purpose, Streams

SWEEPS = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos", "nips"], choices=list(LOADERS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 2.0, 3.0, 5.0])
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    for corpus in options.corpora:
        split = LOADERS[corpus](n_words=1000, n_skip=0)
        print(f"\n{split}; {split.test.shape[0]} held out\n")
        print("| epsilon | p N / n | N / n | bits | background |\n| --- | --- | --- | --- | --- |")
        for epsilon in options.epsilons:
            rows = [compare(split, epsilon, seed) for seed in range(options.seeds)]
            cells = [f"{value:.0f}" for value in np.mean(rows, axis=0)]
            print(f"| {epsilon:g} | " + " | ".join(cells) + " |", flush=True)


def compare(split, epsilon: float, seed: int) -> list[float]:
    client = RandomizedResponse(epsilon=epsilon, max_doc_words=None, random_state=seed)
    reports = client.fit_transform(split.train)
    n_reported = reports.sum(axis=0)
    counts = estimate_counts(n_reported, reports.shape[0], client.one_probability_)
    share = np.minimum(counts / np.maximum(n_reported, 1), 1)
    tables = [redrawn(reports, keep, seed) for keep in (client.one_probability_[1] * share, share)]
    for way in ("bits", "background"):
        model = LPLDA(
            K,
            epsilon=epsilon,
            randomized=True,
            reconstruction=way,
            max_iter=SWEEPS,
            random_state=seed,
            **LOCAL,
        )
        tables.append(model.fit(reports).components_)
    return [held_out_perplexity(table, split.test) for table in tables]


def redrawn(reports, keep: np.ndarray, seed: int) -> np.ndarray:
    """Gibbs sampling of the ones that are kept; the others wait with the topic that they had."""
    corpus, rng = Corpus.from_counts(reports), np.random.default_rng(seed)
    streams = Streams.from_random_state(seed)
    n_docs, n_words = reports.shape
    document = np.repeat(np.arange(n_docs), np.diff(corpus.doc_ptr))
    topics = rng.integers(0, K, corpus.n_tokens).astype(np.int32)
    shape = pad(np.zeros((n_words, K + 1))).shape
    prior = np.zeros(shape, np.float32)
    prior[:, :K] = PRIORS["topic_word_prior"]
    sizes = prior[:, :K].sum(axis=0, dtype=float)
    for t in range(SWEEPS):
        kept = rng.random(corpus.n_tokens) < keep[corpus.word]
        ptr = np.concatenate([[0], np.cumsum(np.bincount(document[kept], minlength=n_docs))])
        word, current = corpus.word[kept], topics[kept]
        counts = np.zeros(shape, np.int32)
        np.add.at(counts, (word, current), 1)
        _gibbs.background_sweep(
            word, ptr.astype(np.int64), current, counts, counts[:, :K].sum(axis=0, dtype=np.int64),
            prior, sizes, np.zeros(n_words, np.float32), PRIORS["doc_topic_prior"],
            streams.words(Purpose.TOPICS, t, 0, len(word)), np.empty((4, shape[1]), np.float32),
        )  # fmt: skip
        topics[kept] = current
    return counts[:, :K].T + PRIORS["topic_word_prior"]


if __name__ == "__main__":
    main()
