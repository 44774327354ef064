"""What the released weights of a private vocabulary do for a fit with many words.

``python benchmarks/large_vocabulary.py [--corpora docstrings bbc] [--words 8000] [--epsilon 1]``

A `PrivateCountVectorizer` chooses the words with an epsilon of its own. `SubLDA` is then fitted
without a prior, with the released word weights as prior, and with the exact word totals as prior.
The last one has no privacy: it shows what better word totals could bring at most.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import bbc_texts
from docstrings import load_docstrings, python_words

from dplda import PrivateCountVectorizer, SubLDA, public_prior
from dplda.metrics import unigram_perplexity

K, DELTA = 20, 1e-5
TEXTS = {"docstrings": lambda: load_docstrings()[0], "bbc": lambda: bbc_texts()[0]}
CANDIDATES = {"docstrings": python_words(), "bbc": "en"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(TEXTS), choices=list(TEXTS))
    parser.add_argument("--words", type=int, default=8000)
    parser.add_argument("--epsilon", type=float, default=1.0, help="of the vocabulary, of the fit")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| corpus | documents | words | unigram | best without privacy | prior | perplexity "
        "| gap closed |"
    )
    print("| --- " * 8 + "|")
    for name in options.corpora:
        measure(name, options)


def measure(name: str, options: argparse.Namespace) -> None:
    texts = np.array(TEXTS[name](), dtype=object)
    texts = texts[np.random.default_rng(0).permutation(len(texts))]
    vectorizer = PrivateCountVectorizer(
        epsilon=options.epsilon, delta=DELTA, candidates=CANDIDATES[name], stop_words="english",
        max_features=options.words, random_state=0,
    )  # fmt: skip
    X = sp.csr_array(vectorizer.fit(texts[len(texts) // 10 :]).transform(texts)).astype(float)
    held, X = X[: len(texts) // 10], X[len(texts) // 10 :]
    held = held[held.sum(axis=1) >= 20]
    unigram = unigram_perplexity(X, held)
    free = min(perplexity(X, held, np.inf, 0, topic_word_prior=b) for b in (0.01, 0.1))
    exact = np.tile(np.asarray(X.sum(axis=0)).ravel() * 100 / K, (K, 1))
    priors = {
        "none": None,
        "released word weights": public_prior(vocabulary=vectorizer, n_components=K),
        "exact word totals": exact,
    }
    for prior, table in priors.items():
        found = np.mean([
            perplexity(X, held, options.epsilon, seed, prior_components=table)
            for seed in range(options.seeds)
        ])  # fmt: skip
        closed = (unigram - found) / (unigram - free)
        print(f"| {name} | {X.shape[0]} | {X.shape[1]} | {unigram:.0f} | {free:.0f} | {prior} "
              f"| {found:.0f} | {closed:.0%} |", flush=True)  # fmt: skip


def perplexity(X, held, epsilon: float, seed: int, **options) -> float:
    model = SubLDA(K, epsilon=epsilon, delta=DELTA, random_state=seed, **options)
    return model.fit(X).perplexity(held)


if __name__ == "__main__":
    main()
