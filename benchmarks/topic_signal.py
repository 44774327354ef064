"""Weak topics on corpora as they are, and topics that stand out in shuffled words.

``python benchmarks/topic_signal.py [--corpora kos nips bbc docstrings glosses mails
texts] [--epsilons 1 2 4 8 64 inf] [--topics 20] [--seeds 2] [--users 1] [--vectors]
[--texts FILE]``

V = 2000, delta = 1e-5. Shuffled words: all tokens of the corpus are dealt to the
documents at random, so that lengths and word frequencies stay, and there are no topics.
``--users`` gives each user that many documents, drawn at random, and protects users.
Mails are BBC and as many texts of five templates: 40 words each, and 15 free ones.
``texts`` are the lines of FILE, 10,000 of 3 to 20 words of the vocabulary. The last
line has the largest evidence of a shuffled topic with noise, the largest mean without,
and the number of topics that are not weak over documents / (documents for half of the
gap without vectors), the median of fits of which 1 to three quarters of the topics are
not weak: the constant STANDING of `dplda.plan`.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, bbc, load, prepare
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA, plan
from dplda.datasets import load_word_vectors

DELTA = 1e-5
KINDS = ("as they are", "shuffled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*LOADERS, "mails", "texts"]
    parser.add_argument("--corpora", nargs="+", default=names[:-1], choices=names)
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=[1, 2, 4, 8, 64, np.inf]
    )
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--users", type=int, default=1)
    parser.add_argument(
        "--vectors", action="store_true", help="with embedded word vectors"
    )
    parser.add_argument("--texts", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    LOADERS.update(mails=mails, texts=lambda: short_texts(options.texts))
    titles = [
        "corpus",
        "documents",
        "words",
        *(f"epsilon {e:g}" for e in options.epsilons),
    ]
    print(f"| {' | '.join(titles)} |\n" + "| --- " * len(titles) + "|")
    chance, without_noise, ratios = [], [], []
    for split in load(options.corpora):
        for kind in KINDS:
            cells = []
            for epsilon in options.epsilons:
                n_read = []
                for seed in range(options.seeds):
                    X = (
                        shuffled(split.train, seed)
                        if kind == "shuffled"
                        else split.train
                    )
                    words = list(map(str, split.words)) if options.vectors else None
                    vectors = load_word_vectors(words) if words else None
                    model = SubLDA(options.topics, epsilon=epsilon, delta=DELTA)
                    users = (
                        np.random.default_rng(seed).permutation(X.shape[0])
                        // options.users
                    )
                    ids = users if options.users > 1 else None
                    model.set_params(random_state=seed, word_vectors=vectors).fit(
                        X, user_ids=ids
                    )
                    n_read.append(np.count_nonzero(~model.weak_topics_))
                    if kind != "shuffled" and epsilon < np.inf:
                        ratios.append(((1 + users.max()) / half(epsilon), n_read[-1]))
                    elif kind == "shuffled" and epsilon < np.inf:
                        chance.append(model.topic_evidence_.max())
                    elif kind == "shuffled":
                        without_noise.append(model.topic_evidence_.mean())
                cells.append(f"{np.mean(n_read):g}")
            row = split.name, str(split.train.shape[0]), kind, *cells
            print(f"| {' | '.join(row)} |", flush=True)
    standing = np.median(
        [y / x for x, y in ratios if 1 <= y <= 0.75 * options.topics] or [0]
    )
    print(
        f"\nEvidence of shuffled topics: at most {max(chance, default=0):.1f} with "
        f"noise, and a mean of at most {max(without_noise, default=0):.1f} without. "
        f"STANDING = {standing:.1f}"
    )


def mails():
    """BBC, and as many mails from templates."""
    split = bbc()
    n_docs, n_words = split.train.shape
    rng, p = np.random.default_rng(0), split.train.sum(axis=0) / split.train.sum()
    templates = [rng.choice(n_words, 40, replace=False, p=p) for _ in range(5)]
    rows = rng.multinomial(15, p, size=n_docs).astype(float)
    for row in rows:
        row[templates[rng.integers(5)]] += 1
    split.name, split.train = (
        "mails",
        sp.csr_array(sp.vstack([split.train, sp.csr_array(rows)])),
    )
    return split


def short_texts(path: Path):
    """10,000 lines of 3 to 20 words."""
    vectorizer = CountVectorizer(stop_words="english")
    X = vectorizer.fit_transform(
        sorted(set(path.read_text(encoding="utf-8").splitlines()))
    )
    split = prepare("short texts", X, n_skip=0, shortest=3)
    short = np.flatnonzero(split.train.sum(axis=1) <= 20)[:10_000]
    split.train = split.train[short]
    return split


def shuffled(X, seed: int) -> sp.csr_array:
    """The same lengths and word totals without topics."""
    X = sp.csr_array(X)
    words = np.random.default_rng(seed).permutation(
        np.repeat(X.indices, X.data.astype(int))
    )
    lengths = X.sum(axis=1).astype(int)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return sp.csr_array((np.ones(len(words)), (rows, words)), shape=X.shape)


def half(epsilon: float) -> int:
    """Documents for half of the gap, whatever `n_docs` is."""
    size = {"n_docs": 1000, "n_words": 2000, "n_components": 1}
    return plan(**size, epsilon=epsilon, delta=DELTA).docs_for_half


if __name__ == "__main__":
    main()
