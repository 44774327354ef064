"""Spectral LDA audited: noise for the moments, on what is computed from them.

``python benchmarks/papers/spectral.py [--runs 20000] [--seed 0]``

DeCarolis, Ram, Esmaeili, Wang and Huang, ICML 2020 (arXiv 1805.10341), and the
repository of its authors: configuration 2, noise on the whitened third moment (e6) and
on the unwhitener (e8). Two topics, three words. Written from the description in
docs/papers.md.
"""

from __future__ import annotations

import argparse
import math
from itertools import permutations

import numpy as np
from lower_bounds import Line, from_two_worlds, show

N_TOPICS, EPSILON = 2, 1.0
DELTA = 1e-5  # of each of the two edges
RARE = 8  # documents of the second topic
FLOOR = 0.1  # of the repository's lower bound on an eigenvalue


def moments(documents, alpha) -> tuple[np.ndarray, np.ndarray, int]:
    """Second and third moment of LDA.

    Parameters
    ----------
    documents : list of (int, ndarray)
        How many documents have which word counts.
    alpha : float
        Sum of the topic prior.

    Returns
    -------
    M2, M3 : ndarray of shape (n_words, n_words) and (n_words, n_words, n_words)
    n_docs : int
    """
    n_docs = sum(copies for copies, _ in documents)
    mean = sum(copies / n_docs * c / c.sum() for copies, c in documents)
    pairs = sum(copies / n_docs * factorial_moment(c, 2) for copies, c in documents)
    triples = sum(copies / n_docs * factorial_moment(c, 3) for copies, c in documents)
    mixed = sum(
        np.moveaxis(np.multiply.outer(pairs, mean), 2, axis) for axis in range(3)
    )
    M2 = pairs - alpha / (alpha + 1) * np.outer(mean, mean)
    M3 = triples - alpha / (alpha + 2) * mixed
    M3 += (
        2
        * alpha**2
        / ((alpha + 1) * (alpha + 2))
        * np.einsum("i,j,k", mean, mean, mean)
    )
    return alpha * (alpha + 1) * M2, alpha * (alpha + 1) * (alpha + 2) / 2 * M3, n_docs


def factorial_moment(counts, order) -> np.ndarray:
    """Mean over all ordered choices of `order` different tokens of a document."""
    tokens = np.repeat(np.arange(len(counts)), counts)
    found = np.zeros((len(counts),) * order)
    choices = list(permutations(range(len(tokens)), order))
    for choice in choices:
        found[tuple(tokens[list(choice)])] += 1 / len(choices)
    return found


def sensitivity_2(n_docs, alpha) -> float:
    """Of the second moment, if one document is replaced, in the Frobenius norm."""
    return alpha * (alpha + 1) * (2 + 4 * alpha / (alpha + 1)) / n_docs


def sensitivity_3(n_docs, alpha) -> float:
    """Of the third moment.

    Each factor has length at most 1, and changes by sqrt(2) / n_docs.
    """
    a, b = alpha / (alpha + 2), alpha**2 / ((alpha + 1) * (alpha + 2))
    return (
        alpha
        * (alpha + 1)
        * (alpha + 2)
        / 2
        * math.sqrt(2)
        * (1 + 6 * a + 6 * b)
        / n_docs
    )


def noise_multiplier(epsilon, delta) -> float:
    log = math.log(1 / delta)
    return (math.sqrt(epsilon + log) + math.sqrt(log)) / (math.sqrt(2) * epsilon)


def symmetric_noise(shape, scale, rng) -> np.ndarray:
    draws = rng.normal(scale=scale / math.sqrt(6), size=shape)
    return sum(np.transpose(draws, (0, *order)) for order in permutations((1, 2, 3)))


def eigen(M2) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(M2)
    return np.maximum(values[..., ::-1][..., :N_TOPICS], 1e-12), vectors[..., ::-1][
        ..., :N_TOPICS
    ]


def noise_of_unwhitener(values, n_docs, alpha, *, full) -> float:
    """Sensitivity of e8: the second moment's, as run; or `full`, as a comment says."""
    moment = sensitivity_2(n_docs, alpha)
    return math.sqrt(values[0]) * moment / values[1] if full else moment


def lowest_eigenvalue(value, n_docs, alpha, rng) -> float:
    """Noisy lower bound on the k-th eigenvalue, raised to the floor."""
    moment = sensitivity_2(n_docs, alpha)
    epsilon, delta = EPSILON / 4, DELTA / 4
    noisy = value + rng.laplace(scale=moment / epsilon)
    noisy -= 2 / (n_docs * epsilon) * math.log10(1 / (2 * delta))
    return max(max(noisy, FLOOR) - moment, FLOOR)


def released(
    documents, alpha, n_runs, rng, *, full=False
) -> tuple[np.ndarray, np.ndarray]:
    """Topics and weights of configuration 2 in many runs, as in the repository."""
    M2, M3, n_docs = moments(documents, alpha)
    values, vectors = eigen(M2)
    whitener, unwhitener = vectors / np.sqrt(values), vectors * np.sqrt(values)
    whitened = np.einsum("abc,ai,bj,ck", M3, whitener, whitener, whitener)
    lowest = np.array(
        [lowest_eigenvalue(values[-1], n_docs, alpha, rng) for _ in range(n_runs)]
    )
    scale_6 = sensitivity_3(n_docs, alpha) * (N_TOPICS / lowest) ** 1.5
    scale_6 *= (alpha + 2) / 2 / math.sqrt(alpha * (alpha + 1))
    scale_6 *= noise_multiplier(EPSILON / 4, DELTA / 2)
    scale_8 = noise_of_unwhitener(values, n_docs, alpha, full=full)
    scale_8 *= noise_multiplier(EPSILON / 2, DELTA)
    T = whitened + symmetric_noise((n_runs, 2, 2, 2), scale_6[:, None, None, None], rng)
    return decomposed(
        T, unwhitener + rng.normal(scale=scale_8, size=(n_runs, *unwhitener.shape))
    )


def released_by_moments(documents, alpha, n_runs, rng) -> tuple[np.ndarray, np.ndarray]:
    """The same with noise on both moments only: private by post-processing."""
    M2, M3, n_docs = moments(documents, alpha)
    tau = noise_multiplier(EPSILON / 2, DELTA / 2)
    scale_2, scale_3 = (
        sensitivity_2(n_docs, alpha) * tau,
        sensitivity_3(n_docs, alpha) * tau,
    )
    M2 = M2 + rng.normal(scale=scale_2, size=(n_runs, *M2.shape))
    M3 = M3 + symmetric_noise((n_runs, *M3.shape), scale_3, rng)
    values, vectors = eigen((M2 + M2.swapaxes(1, 2)) / 2)
    whitener, unwhitener = (vectors * values[:, None] ** power for power in (-0.5, 0.5))
    T = np.einsum(
        "rabc,rai,rbj,rck->rijk", M3, whitener, whitener, whitener, optimize=True
    )
    return decomposed(T, unwhitener)


def decomposed(T, unwhitener) -> tuple[np.ndarray, np.ndarray]:
    """Topics on the simplex and topic weights of whitened tensors, by eigenvectors.

    The eigenvectors are those of a contraction.

    Parameters
    ----------
    T : ndarray of shape (n_runs, 2, 2, 2)
    unwhitener : ndarray of shape (n_runs, n_words, 2)

    Returns
    -------
    topics : ndarray of shape (n_runs, n_words, 2)
    weights : ndarray of shape (n_runs, 2)
    """
    contracted = T @ np.array([1.0, 0.3])
    vectors = np.linalg.eigh((contracted + contracted.swapaxes(1, 2)) / 2)[1]
    values = np.einsum(
        "rabc,rai,rbi,rci->ri", T, vectors, vectors, vectors, optimize=True
    )
    columns = unwhitener @ (vectors * values[:, None])  # signs cancel
    return on_simplex(columns), 1 / np.maximum(values**2, 1e-300)


def on_simplex(columns) -> np.ndarray:
    """Project columns onto the simplex."""
    ordered = -np.sort(-columns, axis=1)
    shifts = (ordered.cumsum(axis=1) - 1) / np.arange(1, columns.shape[1] + 1)[:, None]
    last = (ordered > shifts).sum(axis=1, keepdims=True) - 1
    return np.maximum(columns - np.take_along_axis(shifts, last, axis=1), 0)


def corpus(n_docs, present) -> list:
    """A common topic, a rare one, and one document that may have a word of its own."""
    last = [0, 2, 2] if present else [0, 4, 0]
    rest = [(n_docs - RARE - 1, [4, 0, 0]), (RARE, [0, 4, 0]), (1, last)]
    return [(copies, np.array(counts)) for copies, counts in rest]


def own_word(release) -> np.ndarray:
    """Share of the third word in the topic that has most of the second word."""
    topics = release[0]
    rare = topics[:, 1].argmax(axis=1)
    return topics[np.arange(len(topics)), 2, rare]


def rare_weight(release) -> np.ndarray:
    """Smaller if the rare topic has more pairs of equal words."""
    return -release[1].min(axis=1)


SETTINGS = {
    "topics, as in the repository": (released, own_word),
    "topic weights, as in the repository": (released, rare_weight),
    "topics, e8 as in its comment": (
        lambda *options: released(*options, full=True),
        own_word,
    ),
    "topics, noise on both moments": (released_by_moments, own_word),
    "topic weights, noise on both moments": (released_by_moments, rare_weight),
}


def audit(n_runs=20000, seed=0, n_docs=10**6, alpha=0.1) -> list[Line]:
    rng, lines = np.random.default_rng(seed), []
    for name, (mechanism, score) in SETTINGS.items():
        absent, present = (
            score(mechanism(corpus(n_docs, there), alpha, n_runs, rng))
            for there in (False, True)
        )
        lines.append(
            Line(name, EPSILON, from_two_worlds(absent, present, 2 * DELTA), 2 * DELTA)
        )
    return lines


def change_of_unwhitener(n_docs, alpha) -> float:
    """How far one document moves the unwhitener, at the best column rotation."""
    first, second = (
        vectors * np.sqrt(values)
        for values, vectors in (
            eigen(moments(corpus(n_docs, t), alpha)[0]) for t in (False, True)
        )
    )
    left, _, right = np.linalg.svd(second.T @ first)
    return float(np.linalg.norm(first - second @ (left @ right)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(
        "| documents | alpha | sensitivity of e8, as run | change by one document | "
        "ratio |"
    )
    print("| --- | --- | --- | --- | --- |")
    for n_docs in (10**4, 10**6, 10**8):
        for alpha in (0.1, 1.0):
            run, true = (
                sensitivity_2(n_docs, alpha),
                change_of_unwhitener(n_docs, alpha),
            )
            print(
                f"| {n_docs:,} | {alpha} | {run:.2g} | {true:.2g} | {true / run:.1f} |"
            )
    print()
    show(audit(options.runs, options.seed))


if __name__ == "__main__":
    main()
