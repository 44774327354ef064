"""DP-NMF audited: its noise suffices, and its start is computed from the documents.

``python benchmarks/papers/dp_nmf.py [--docs 4000] [--canaries 400] [--epochs 10]
[--seed 0]``

Saha and Imtiaz, arXiv 2211.01451, and the notebook of its authors. Written from the
description in docs/papers.md.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import scipy.sparse as sp
from lower_bounds import Line, from_coins, show
from scipy.sparse.linalg import svds

N_TOPICS, N_COMMON, DELTA = 2, 20, 1e-5
EPSILON = 0.5  # of each release in the notebook's first setting


def noise_multiplier(epsilon=EPSILON, delta=DELTA) -> float:
    """Standard deviation of the noise over the sensitivity, in each release."""
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def claimed_epsilon(epochs, epsilon=EPSILON, delta=DELTA) -> float:
    """Epsilon of all epochs: two Gaussian releases each, by Renyi composition."""
    rate = epochs / noise_multiplier(epsilon, delta) ** 2
    order = 1 + math.sqrt(math.log(1 / delta) / rate)
    return order * rate + math.log(1 / delta) / (order - 1)


def within_ball(columns) -> np.ndarray:
    """Cut negative entries, and columns longer than 1."""
    columns = np.maximum(columns, 0)
    return columns / np.maximum(np.linalg.norm(columns, axis=0), 1)


def start_of_documents(V) -> tuple[np.ndarray, np.ndarray]:
    """Positive parts of singular vectors (NNDSVD), from the private documents."""
    left, values, right = svds(V, N_TOPICS, random_state=0)
    W, H = np.empty_like(left), np.empty_like(right)
    for k in range(N_TOPICS):
        sides = [
            (np.maximum(sign * left[:, k], 0), np.maximum(sign * right[k], 0))
            for sign in (1, -1)
        ]
        u, v = max(
            sides, key=lambda side: np.linalg.norm(side[0]) * np.linalg.norm(side[1])
        )
        lengths = np.linalg.norm(u), np.linalg.norm(v)
        scale = math.sqrt(values[k] * lengths[0] * lengths[1])
        W[:, k], H[k] = scale * u / lengths[0], scale * v / lengths[1]
    return W, H


def public_start(V) -> tuple[np.ndarray, np.ndarray]:
    W = np.random.default_rng(0).random((V.shape[0], N_TOPICS))
    return W, np.zeros((N_TOPICS, V.shape[1]))


def fit(
    V, epochs, rng, *, start=start_of_documents, step=1e-4, inner=None
) -> np.ndarray:
    """Alternate exact weights of documents and noisy topics.

    Parameters
    ----------
    V : csc_array of shape (n_words, n_docs)
        Documents, columns of length at most 1.
    epochs : int
        Number of rounds.
    rng : Generator
        The noise.
    start : callable, default=start_of_documents
        First topics and weights.
    step : float, default=1e-4
        Step of the topics; 1e-4 is that of the notebook.
    inner : int or None, default=None
        Steps for the weights in each round. None stops by the loss of all documents, as
        published.

    Returns
    -------
    ndarray of shape (n_words, N_TOPICS)
        The released topics.
    """
    n_docs = V.shape[1]
    sigma = 2 / n_docs * noise_multiplier()
    W, H = map(within_ball, start(V))
    for _ in range(epochs):
        H = weights_of_documents(V, W, H, inner)
        A = H @ H.T / n_docs + sigma * rng.standard_normal((N_TOPICS, N_TOPICS))
        B = V @ H.T / n_docs + sigma * rng.standard_normal(W.shape)
        W = step_of_topics(W, A, B, step)
    return W


def weights_of_documents(V, W, H, inner) -> np.ndarray:
    n_docs, size = V.shape[1], V.power(2).sum()

    # of all documents: one of them can change the number of steps of the others
    def loss():
        return size - 2 * (H * (W.T @ V)).sum() + (H * (W.T @ W @ H)).sum()

    before = loss()
    for _ in range(51 if inner is None else inner):
        H = within_ball(H - 20 / n_docs * (W.T @ W @ H - W.T @ V))
        after = loss()
        if inner is None and (after - before) / before < 1e-3:
            break
        before = after
    return H


def step_of_topics(W, A, B, step) -> np.ndarray:
    """Projected gradient steps on noisy loss, until its relative change is small."""

    def loss():
        return 0.5 * np.trace(W.T @ W @ A) - np.trace(W.T @ B)

    before = loss()
    for _ in range(201):
        W = within_ball(W - step * (W @ A - B))
        after = loss()
        if (after - before) / before < 1e-4:
            break
        before = after
    return W


def corpus(coins, n_docs, rng) -> sp.csc_array:
    """Documents of common words; for each coin, one has a word of its own or not."""
    topics = rng.dirichlet(np.full(N_COMMON, 0.3), size=N_TOPICS)
    common = np.sqrt(topics[rng.integers(N_TOPICS, size=n_docs)] + 1e-6)
    common /= np.linalg.norm(common, axis=1, keepdims=True)
    own = sp.csr_array(
        (0.6 * coins, (np.arange(len(coins)),) * 2), (len(coins), n_docs)
    )
    common[: len(coins)] *= np.sqrt(1 - 0.36 * coins)[:, None]
    return sp.csc_array(sp.vstack([sp.csr_array(common.T), own]))


SETTINGS = {
    "DP-NMF, as in the notebook": {},
    "DP-NMF, long steps of the topics": {"step": 0.5},
    "public start, fixed number of steps": {"start": public_start, "inner": 20},
    "public start, long steps": {"start": public_start, "inner": 20, "step": 0.5},
}


def audit(n_docs=4000, n_canaries=400, epochs=10, seed=0) -> list[Line]:
    rng, lines = np.random.default_rng(seed), []
    coins = rng.random(n_canaries) < 0.5
    V = corpus(coins, n_docs, rng)
    for name, options in SETTINGS.items():
        scores = fit(V, epochs, rng, **options)[N_COMMON:].sum(axis=1)
        lines.append(
            Line(name, claimed_epsilon(epochs), from_coins(scores, coins, DELTA), DELTA)
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=int, default=4000)
    parser.add_argument("--canaries", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for epsilon in (0.5, 0.999):
        print(f"1500 epochs at {epsilon} claim {claimed_epsilon(1500, epsilon):.1f}")
    print()
    show(audit(options.docs, options.canaries, options.epochs, options.seed))


if __name__ == "__main__":
    main()
