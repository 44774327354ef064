"""FDPTM audited: its document-level model computes the topics from exact counts.

``python benchmarks/papers/fdptm.py [--canaries 5000] [--seed 0]``

Manzonelli, Zhang and Vadhan, arXiv 2403.04451. Both worlds have the same vocabulary, so
that the private choice of words is not in question. Written from the description in
docs/papers.md.
"""

from __future__ import annotations

import argparse

import numpy as np
from lower_bounds import Line, from_coins, show

from dplda.published import recover_counts

N_TOPICS, SWEEPS, N_COMMON = 5, 3, 20
PRIOR = 1 / N_TOPICS  # of topics and of words
CLAIMS = (0.1, 1.0, 5.0)


def shared_noise(words, sizes, topics, length, epsilon, rng) -> np.ndarray:
    """Weights of a token's topics in the noisy sweep, as the repository computes them.

    One draw is shared by the counts of all topics. The smallest weight becomes zero.
    """
    word_noise, topic_noise = rng.laplace(scale=2 / epsilon, size=2)
    weights = (words + word_noise + PRIOR) / (sizes - word_noise)
    weights = weights * (topics + topic_noise + PRIOR) / (length - topic_noise + 1)
    weights = weights - weights.min()
    return weights if weights.any() else np.ones(N_TOPICS)  # 0 / 0 as published


def noise_of_each_topic(words, sizes, topics, length, epsilon, rng) -> np.ndarray:
    """Weights with new noise in each count: a reading more favorable to the claim."""
    word_noise, topic_noise = rng.laplace(scale=2 / epsilon, size=(2, N_TOPICS))
    weights = np.maximum(words + word_noise + PRIOR, 0) / np.maximum(
        sizes - word_noise, PRIOR
    )
    weights = weights * np.maximum(topics + topic_noise + PRIOR, 0)
    return weights if weights.any() else np.ones(N_TOPICS)


def no_noise(words, sizes, topics, length, epsilon, rng) -> np.ndarray:
    return (words + PRIOR) / sizes * (topics + PRIOR)


def fit(X, n_words, epsilon, rng, last_sweep=shared_noise) -> np.ndarray:
    """Collapsed Gibbs sampling, with noise in the weights of one last sweep.

    Parameters
    ----------
    X : list of ndarray of int
        The words of each document.
    n_words : int
        Size of the vocabulary.
    epsilon : float
        The claim. The noise has the scale 2 / epsilon.
    rng : Generator
        All random numbers.
    last_sweep : callable, default=shared_noise
        Weights of the topics of a token in the last sweep.

    Returns
    -------
    ndarray of shape (N_TOPICS, n_words)
        The topics, rows of sum 1.
    """
    counts, sizes = np.zeros((n_words, N_TOPICS)), np.full(N_TOPICS, n_words * PRIOR)
    assigned = [rng.integers(N_TOPICS, size=len(words)) for words in X]
    for words, topics in zip(X, assigned):
        np.add.at(counts, (words, topics), 1)
        np.add.at(sizes, topics, 1)
    for weights_of in [no_noise] * SWEEPS + [last_sweep]:
        for words, topics in zip(X, assigned):
            own = np.bincount(topics, minlength=N_TOPICS)
            for i, word in enumerate(words):
                for change in (-1, 1):  # the token leaves its topic, and joins another
                    counts[word, topics[i]] += change
                    sizes[topics[i]] += change
                    own[topics[i]] += change
                    if change < 0:
                        weights = weights_of(
                            counts[word], sizes, own, len(words), epsilon, rng
                        )
                        total = np.cumsum(weights)
                        topics[i] = min(
                            np.searchsorted(total, rng.random() * total[-1], "right"),
                            N_TOPICS - 1,
                        )
    return ((counts + PRIOR) / sizes).T  # counts without noise


def word_totals(components) -> np.ndarray:
    """How many tokens each word has in the corpus: the counts of all topics, summed.

    The number is exact.
    """
    return recover_counts(components, topic_word_prior=PRIOR).sum(axis=0)


def sound(X, n_words, epsilon, rng) -> np.ndarray:
    """One round of private counts: topics drawn from public ones, noise in counts.

    A document of at most one token changes one count by one, so the noise has the scale
    1 / epsilon. Parameters and result are those of `fit`.
    """
    public = rng.dirichlet(np.ones(n_words), size=N_TOPICS)
    counts = np.zeros((N_TOPICS, n_words))
    for words in X:
        for word in words[:1]:
            topic = rng.choice(N_TOPICS, p=public[:, word] / public[:, word].sum())
            counts[topic, word] += 1
    counts = (
        np.maximum(counts + rng.laplace(scale=1 / epsilon, size=counts.shape), 0)
        + PRIOR
    )
    return counts / counts.sum(axis=1, keepdims=True)


def corpus(coins, rng, n_docs=20) -> tuple[list, int]:
    """Common-word documents, and for each coin a document of one own word, or none."""
    common = [rng.integers(N_COMMON, size=10) for _ in range(n_docs)]
    canaries = [N_COMMON + np.arange(i, i + coin) for i, coin in enumerate(coins)]
    return common + canaries, N_COMMON + len(coins)


def audit(n_canaries=5000, seed=0, n_docs=20) -> list[Line]:
    rng, lines = np.random.default_rng(seed), []
    coins = rng.random(n_canaries) < 0.5
    X, n_words = corpus(coins, rng, n_docs)
    for name, last_sweep in {
        "as in the repository": shared_noise,
        "noise of each topic": noise_of_each_topic,
    }.items():
        for claim in CLAIMS:
            totals = word_totals(fit(X, n_words, claim, rng, last_sweep))
            bound = from_coins(totals[N_COMMON:], coins, 0.0)
            lines.append(Line(f"FDPTM, {name}", claim, bound, 0.0))
    for claim in CLAIMS:
        scores = sound(X, n_words, claim, rng)[:, N_COMMON:].sum(axis=0)
        lines.append(
            Line("noise in the counts", claim, from_coins(scores, coins, 0.0), 0.0)
        )
    return lines


def worlds_told_apart(n_runs=20, epsilon=0.1, seed=0, *, common=False) -> int:
    """In how many runs topics say whether one document of one word is in the corpus.

    The word is rare: no other document has it. Or it is `common`, as are all words that
    a private choice of the vocabulary keeps. The attacker knows all other documents.
    """
    rng, right = np.random.default_rng(seed), 0
    word, n_words = (0, N_COMMON) if common else (N_COMMON, N_COMMON + 1)
    for run in range(n_runs):
        present = run % 2 == 1
        others = [rng.integers(N_COMMON, size=10) for _ in range(100)]
        known = sum(int((words == word).sum()) for words in others)
        X = [*others, np.array([word])] if present else others
        seen = word_totals(fit(X, n_words, epsilon, rng))[word] > known + 0.5
        right += int(seen == present)
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--canaries", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for common in (False, True):
        right = worlds_told_apart(seed=options.seed, common=common)
        print(
            f"{'common' if common else 'rare'} word, epsilon 0.1: {right} of 20 told "
            "apart"
        )
    print()
    show(audit(options.canaries, options.seed))


if __name__ == "__main__":
    main()
