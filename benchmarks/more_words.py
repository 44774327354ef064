"""What `add_words` gives: topics of words that the private vocabulary lacks.

``python benchmarks/more_words.py [--corpora bbc kos glosses docstrings] [--seeds 3]``
fits a `PrivateTopicModel` (20 topics, delta 1e-5, a tenth of the texts held out), adds
the 27,294 words of the public list, and scores held-out texts in all these words. It
compares the added columns with columns of the same tokens that are even in all topics,
and with those by the vectors of other words. "New words" is `new_word_gain` of
`held_out_scores`, in percent of that of GibbsLDA (beta 0.01, one seed), which has
counted all these words. Accuracy is that of a logistic regression on topic weights.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from corpora import bbc_texts, kos_texts
from docstrings import load_docstrings
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dplda import GibbsLDA, PrivateTopicModel, add_words
from dplda.datasets import (
    load_public_vocabulary,
    load_word_vectors,
    load_wordnet_glosses,
)
from dplda.metrics import held_out_scores

K, DELTA, EPSILONS = 20, 1e-5, (1.0, 4.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=[*LOADERS])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| corpus | epsilon | words, added | tokens, added | new words: even in all "
        "topics | added by vectors | vectors of other words | accuracy before | after |"
    )
    print("| --- " * 9 + "|")
    for name in options.corpora:
        texts, labels = LOADERS[name]()
        for epsilon in EPSILONS:
            print(row(name, np.array(texts, object), labels, epsilon, options.seeds))


def row(name: str, texts: np.ndarray, labels, epsilon: float, n_seeds: int) -> str:
    order = np.random.default_rng(0).permutation(len(texts))
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    found, free = [], None
    for seed in range(n_seeds):
        model = PrivateTopicModel(K, epsilon=epsilon, delta=DELTA, random_state=seed)
        model.fit(texts[train])
        wider = add_words(model, load_public_vocabulary(None))
        n_words = len(model.vocabulary_)
        X = wider.vectorizer_.transform(texts)
        if free is None:
            gibbs = GibbsLDA(K, topic_word_prior=0.01, random_state=seed)
            gibbs.fit(X[train])
            free = held_out_scores(gibbs.components_, X[test]).new_word_gain
        even = wider.components_.copy()
        sizes = model.components_.sum(axis=1, keepdims=True)
        even[:, n_words:] = sizes / sizes.sum() * even[:, n_words:].sum(axis=0)
        wrong = add_words(model, wider.vocabulary_, others(wider.vocabulary_, seed))
        gains = [
            held_out_scores(table, X[test]).new_word_gain / free
            for table in (even, wider.components_, wrong.components_)
        ]
        accuracies = [np.nan, np.nan]
        if labels is not None:
            y = np.asarray(labels)
            accuracies = [
                accuracy(model.transform(texts), y, train, test),
                accuracy(wider.transform(texts), y, train, test),
            ]
        sizes = n_words, X.shape[1] - n_words
        tokens = X[test][:, :n_words].sum(), X[test][:, n_words:].sum()
        found.append([*sizes, *tokens, *gains, *accuracies])
    words, added, known, more, *gains, before, after = np.mean(found, axis=0)
    differences = np.diff(np.array(found)[:, 4:6], axis=1)
    error = differences.std(ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else np.nan
    cells = [
        f"{words:.0f}, {added:.0f}",
        f"{known:.0f}, {more:.0f}",
        f"{gains[0]:.0%}",
        f"{gains[1]:.0%} (paired error {error:.1%})",
        f"{gains[2]:.0%}",
        *(["", ""] if labels is None else [f"{before:.3f}", f"{after:.3f}"]),
    ]
    return f"| {name} | {epsilon:g} | {' | '.join(cells)} |"


def others(words: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """The vectors of these words, each for another word."""
    vectors = load_word_vectors(words)
    words = words[vectors.any(axis=1)]
    vectors = vectors[vectors.any(axis=1)]
    return dict(zip(words, np.random.default_rng(seed).permutation(vectors)))


def accuracy(theta, y, train, test) -> float:
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return classifier.fit(theta[train], y[train]).score(theta[test], y[test])


def gloss_texts():
    corpus = load_wordnet_glosses()
    return corpus.data, corpus.target


LOADERS = {
    "bbc": bbc_texts,
    "kos": lambda: (kos_texts(), None),
    "glosses": gloss_texts,
    "docstrings": load_docstrings,
}

if __name__ == "__main__":
    main()
