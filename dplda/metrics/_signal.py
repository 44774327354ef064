"""Which words of a noisy topic-word table stand out, and which topics do.

Everything here is a function of released values and of public constants. ``docs/signal.md``
describes the test and its false positives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from dplda._warnings import warn_user
from dplda.privacy import LowSignalWarning

FALSE_POSITIVES = 0.05  # probability that noise alone makes any word of a topic stand out
ODDS = 2.0  # a word that stands out at least doubles the odds of its topic
FEWEST_WORDS = 3  # of a topic that stands out
SMALLEST_EXCESS = 0.1  # share of a topic's counts that these words have above expectation
PIECE_CELLS = 1 << 15
FEWEST_TOPICS = 0.5  # share of the topics that stand out, below which a fit warns


def standing_words(components: np.ndarray, components_std: np.ndarray) -> np.ndarray:
    """Mask of the words that stand out in each topic; no word does in a topic that is only noise.

    Let p_v be a word's share of all counts, N_k the counts of a topic, and q_k = N_k / N. The null
    hypothesis is that a token of the word has at most twice the odds of the topic that any token
    has: its expected count is at most m_vk = 2 / (1 + q_k) p_v N_k. The alternative is tested by
    (count - m_vk) over its standard deviation, at the level `FALSE_POSITIVES` / n_words.

    A topic stands out if at least `FEWEST_WORDS` words do, and if the counts of these words exceed
    their expectation p_v N_k by at least `SMALLEST_EXCESS` of N_k in total.

    Parameters
    ----------
    components : ndarray of shape (n_components, n_words)
        Counts of words in topics, not negative.
    components_std : ndarray, broadcastable to the shape of `components`
        Standard deviation of the noise in each cell.

    Returns
    -------
    mask : ndarray of shape (n_components, n_words), bool
    """
    counts = np.asarray(components, np.float64)
    variance = np.broadcast_to(np.square(components_std), counts.shape)
    sizes = counts.sum(axis=1, keepdims=True)
    p, q = counts.sum(axis=0) / counts.sum(), sizes / counts.sum()
    border = ODDS * q / (1 + (ODDS - 1) * q)  # largest share of a word's counts under the null
    # The expectation is border times the word's counts. Their noise is zero where the noise of a
    # word sums to zero over topics, and that of all its cells where cells are independent. The
    # second term is the noise of q, that is of the topic's cells.
    of_word = np.maximum(1, 1 - 2 * border + len(counts) * border**2)
    of_topic = variance.sum(axis=1, keepdims=True)
    threshold = -ndtri(FALSE_POSITIVES / counts.shape[1])
    mask, excess = np.empty(counts.shape, np.bool_), np.zeros_like(sizes)
    step = max(1, PIECE_CELLS // len(counts))  # the temporary arrays stay in the cache
    for words in (slice(i, i + step) for i in range(0, counts.shape[1], step)):
        share = border / q * p[words]
        std = np.sqrt(variance[:, words] * of_word + share**2 * of_topic)
        mask[:, words] = standing = counts[:, words] - share * sizes > threshold * std
        above = np.where(standing, counts[:, words] - p[words] * sizes, 0)
        excess += above.sum(axis=1, keepdims=True)
    stands = (mask.sum(axis=1, keepdims=True) >= FEWEST_WORDS) & (excess > SMALLEST_EXCESS * sizes)
    mask &= stands
    return mask


def with_signal(components: np.ndarray, components_std: np.ndarray) -> dict[str, np.ndarray]:
    """Fitted attributes of a table: the table, its noise, and the words that stand out of it."""
    return {
        "components_": components,
        "components_std_": components_std,
        "topic_signal_": standing_words(components, components_std).sum(axis=1),
    }


def warn_if_noise(estimator: Any, max_iter: int) -> None:
    """Warn if fewer than half of the topics of a complete fit stand out of the noise.

    A fit is complete after `max_iter` rounds. A single topic has no other topics to stand out of,
    and a table without noise needs no warning.
    """
    n_topics, n_standing = len(estimator.topic_signal_), np.count_nonzero(estimator.topic_signal_)
    if n_topics == 1 or not estimator.components_std_.any():
        return
    if estimator.n_iter_ >= max_iter and n_standing < FEWEST_TOPICS * n_topics:
        fewer = f"n_components={n_standing} in a new fit, " if n_standing >= 2 else ""
        warn_user(
            f"{n_standing} of {n_topics} topics of {type(estimator).__name__} stand out of the "
            f"noise; the words of the others may be noise, or frequent words: use {fewer}more "
            "documents, a larger epsilon, or fewer words. dplda.plan says before a fit what to "
            "expect",
            LowSignalWarning,
        )
