"""Which words of a noisy topic-word table stand out, and which topics do.

Everything here is a function of released values and of public constants. ``docs/reading_topics.md``
describes the test and its false positives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning

FALSE_POSITIVES = 0.05  # probability that noise alone makes any word of a topic stand out
ODDS = 2.0  # a word that stands out at least doubles the odds of its topic
FEWEST_WORDS = 3  # of a topic that stands out
SMALLEST_EXCESS = 0.1  # share of a topic's counts that these words have above expectation
PIECE_CELLS = 1 << 15
FEWEST_TOPICS = 0.5  # share of the topics that stand out, below which a fit warns
SMALLEST_SIGNAL = 0.3  # mean count of a cell over its noise, below which a fit warns
TOP = 10  # words of a topic whose evidence is its evidence
BEST_SHARE = 0.25  # of the topics, which the others are compared with
MOSTLY = 0.5  # trust in public texts, from which a weak topic is mostly theirs
WEAK = 2 / 3  # a topic with less than this share of the evidence of the best ones is weak


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


def evidence(components: np.ndarray, components_std: np.ndarray) -> np.ndarray:
    """How far the top words of each topic stand above the word frequencies, in standard errors.

    Let T_v be a word's counts in all topics, and N_k the share of topic k in all counts. The excess
    of a word in a topic is its count above N_k T_v. Its squared standard error is the variance of
    the cell's noise plus T_v. The second term stands for chance: with it a word of few tokens is
    little evidence, however small the noise is. The evidence of a topic is the mean of excess over
    standard error, over its `TOP` words of highest rank in `top_words`.

    Parameters
    ----------
    components : ndarray of shape (n_components, n_words)
        Counts of words in topics, not negative.
    components_std : ndarray of shape (n_words,)
        Standard deviation of the noise in a cell of each word.

    Returns
    -------
    evidence : ndarray of shape (n_components,)
        0 for a topic that repeats the word frequencies.
    """
    totals = np.maximum(components.sum(axis=0, dtype=np.float64), np.finfo(np.float64).tiny)
    share = components.sum(axis=1, dtype=np.float64) / totals.sum()
    error = np.sqrt(np.square(components_std) + totals)
    n_top = min(TOP, len(totals))
    result = np.empty(len(components))
    for k, counts in enumerate(components):
        top = np.argpartition(-(counts**2) / totals, n_top - 1)[:n_top]
        result[k] = np.mean((counts[top] - share[k] * totals[top]) / error[top])
    return result


def weak_topics(signal: np.ndarray, topic_evidence: np.ndarray) -> np.ndarray:
    """Mask of the topics that do not stand out, or that are far behind the best ones.

    Topics with less than `WEAK` times the mean evidence of the best quarter are mixtures more often
    than not, which another fit does not find again, even where no word of them is noise.

    Parameters
    ----------
    signal : ndarray of shape (n_components,)
        Number of words that stand out.
    topic_evidence : ndarray of shape (n_components,)
        Evidence.

    Returns
    -------
    weak : ndarray of shape (n_components,), bool
        False for a single topic, which has no others to be compared with.
    """
    n_best = max(1, round(BEST_SHARE * len(signal)))
    best = np.sort(topic_evidence)[-n_best:].mean()
    return ((signal == 0) | (topic_evidence < WEAK * best)) & (len(signal) > 1)


def with_signal(components: np.ndarray, components_std: np.ndarray) -> dict[str, np.ndarray]:
    """Fitted attributes of a table: the table, its noise, and which topics to read."""
    signal = standing_words(components, components_std).sum(axis=1)
    topic_evidence = evidence(components, components_std)
    return {
        "components_": components,
        "components_std_": components_std,
        "topic_signal_": signal,
        "topic_evidence_": topic_evidence,
        "weak_topics_": weak_topics(signal, topic_evidence),
    }


def warn_if_noise(estimator: Any, max_iter: int) -> None:
    """Warn if few topics of a complete fit stand out of the noise, or if counts are far below it.

    One warning says both. A fit is complete after `max_iter` rounds. A single topic has no other
    topics to stand out of, and a table without noise needs no warning.
    """
    n_topics, n_standing = len(estimator.topic_signal_), np.count_nonzero(estimator.topic_signal_)
    if n_topics == 1 or not estimator.components_std_.any() or estimator.n_iter_ < max_iter:
        return
    name, facts = type(estimator).__name__, []
    signal = getattr(estimator, "signal_to_noise_", np.inf)
    if n_standing < FEWEST_TOPICS * n_topics:
        facts.append(f"{n_standing} of {n_topics} topics of {name} stand out of the noise")
    if signal < SMALLEST_SIGNAL:
        facts.append(f"signal_to_noise_ of {name} is {signal:.2g}, below {SMALLEST_SIGNAL}")
    if facts:
        meaning, first = _advice(estimator, signal)
        fewer = f"n_components={n_standing} in a new fit, " if 2 <= n_standing < n_topics else ""
        warn_user(
            f"{', and '.join(facts)}: {meaning}; use {first}{fewer}more documents, a larger "
            "epsilon, or fewer words. dplda.plan says before a fit what to expect",
            LowSignalWarning,
        )


def _advice(estimator: Any, signal: float) -> tuple[str, str]:
    """What a model with this signal knows, and what helps most."""
    if signal >= SMALLEST_SIGNAL:
        return "the words of the others may be noise, or frequent words", ""
    if (getattr(estimator, "prior_trust_", None) or 0.0) >= MOSTLY:
        return "its topics are mostly those of prior_components", ""
    return "the model knows word frequencies, and little of topics", "public texts (public_prior), "
