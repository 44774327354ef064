"""Which words of a noisy topic-word table stand out, and which topics do.

Everything here is a function of released values and of public constants.
``docs/reading_topics.md`` describes the test, and ``benchmarks/topic_signal.py``
measures its errors.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator

from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning

# probability that noise alone makes any word of a topic stand out
FALSE_POSITIVES = 0.05
ODDS = 2.0  # a word that stands out at least doubles the odds of its topic
# Evidence of 20 topics that LDA finds by chance in shuffled words: up to 7.3 of any
# topic with noise, but up to 10.6 at epsilon 1, where a limit of 9 leaves one of 40
# such topics, and 11 most real ones of glosses; 34 on average without noise. It grows
# with their number, and with its power GROWTH above 20: of 60 topics it is up to 33 at
# epsilon 4, and 102 without noise. At epsilon 1 it is more, where few documents have
# many topics: 39 of 40 and 93 of 60 (NIPS, 1,342 documents).
# (benchmarks/topic_signal.py)
CHANCE, CHANCE_WITHOUT_NOISE, GROWTH = 9.0, 36.0, 1.2
FEWEST_TOPICS = 0.5  # share of the topics that are not weak, below which a fit warns
SMALLEST_SIGNAL = 0.3  # mean count of a cell over its noise, below which a fit warns


def standing_words(components: np.ndarray, components_std: np.ndarray) -> np.ndarray:
    """Mask of the words that stand out in each topic.

    Let p_v be a word's share of all counts, N_k the counts of a topic, and q_k = N_k /
    N. The null hypothesis is that a token of the word has at most twice the odds of the
    topic that any token has: its expected count is at most m_vk = 2 / (1 + q_k) p_v
    N_k. The alternative is tested by (count - m_vk) over its standard deviation, at the
    level `FALSE_POSITIVES` / n_words. `components` (n_components, n_words) are counts,
    and `components_std` (n_words,) is the standard deviation of the noise in a cell of
    each word.
    """
    n_components, n_words = components.shape
    variance = np.square(components_std, dtype=np.float64)
    sizes = components.sum(axis=1)
    p = components.sum(axis=0) / sizes.sum()
    threshold = -ndtri(FALSE_POSITIVES / n_words)
    mask = np.empty(components.shape, np.bool_)
    for k, q in enumerate(sizes / sizes.sum()):
        # largest share of a word's counts, and of all counts, under the null
        border = ODDS * q / (1 + (ODDS - 1) * q)
        share = border / q * p
        # The expectation is border times the word's counts. Their noise is zero where
        # the noise of a word sums to zero over topics, and that of all its cells where
        # cells are independent. The second term is the noise of q, that is of the
        # topic's cells.
        of_word = max(1.0, 1 - 2 * border + n_components * border**2)
        std = np.sqrt(variance * of_word + share**2 * variance.sum())
        mask[k] = components[k] - share * sizes[k] > threshold * std
    return mask


def with_signal(
    components: np.ndarray, components_std: np.ndarray, doc_words: float
) -> dict[str, np.ndarray]:
    """Fitted attributes of a table: the table, its noise, and which topics to read.

    The evidence of a topic is the information on it in a document of this topic alone,
    in nats: the Kullback-Leibler divergence of the topic from the word frequencies,
    times `doc_words`, the mean number of words of a document, which is public. Only
    words that stand out of the noise add to it: a word of probability f in the topic
    and p in all topics adds f log(f / p) - f + p.

    Topics that LDA finds by chance carry evidence, too. It hardly depends on the
    documents, their length and the noise: in shorter documents topics differ more. A
    topic is weak if its evidence is no larger. Without noise, no topic is noise, and
    all are weak together if they are chance.
    """
    n_components = len(components)
    frequencies = components.sum(axis=0) / components.sum()
    evidence = np.zeros(n_components)
    for k, mask in enumerate(standing_words(components, components_std)):
        f = components[k, mask] / components[k].sum()
        p = frequencies[mask]
        information = f * np.log(f / p) - f + p
        evidence[k] = doc_words * information.sum()
    number = n_components / 20  # over that of the limits
    growth = min(number, number**GROWTH)
    if n_components == 1:  # which has no others to be compared with
        weak = np.zeros(1, bool)
    elif components_std.any():
        weak = evidence < CHANCE * growth
    else:
        is_chance = evidence.mean() < CHANCE_WITHOUT_NOISE * growth
        weak = np.full(n_components, is_chance)
    return {
        "components_": components,
        "components_std_": components_std,
        "topic_evidence_": evidence,
        "weak_topics_": weak,
    }


def warn_if_weak(estimator: BaseEstimator) -> None:
    """Warn if most topics of a full fit are weak, or counts are far below the noise."""
    name = type(estimator).__name__
    weak = estimator.weak_topics_
    signal = getattr(estimator, "signal_to_noise_", None)
    n_read = np.count_nonzero(~weak)
    is_noisy = signal is not None and signal < SMALLEST_SIGNAL
    if len(weak) == 1 or not (is_noisy or n_read < FEWEST_TOPICS * len(weak)):
        return
    facts = f"{len(weak) - n_read} of {len(weak)} topics of {name} are weak"
    meaning = "their words may be noise, chance, or frequent words"
    first = ""
    if is_noisy:
        facts += (
            f", and signal_to_noise_ of {name} is {signal:.2g}, below {SMALLEST_SIGNAL}"
        )
        meaning = "the model knows word frequencies, and little of topics"
        first = "public texts (public_prior), "
        trust = getattr(estimator, "prior_trust_", None) or 0.0
        if trust >= 1.0 - trust:
            meaning = "its topics are mostly those of prior_components"
            first = ""
    if 2 <= n_read < len(weak):
        first += f"n_components={n_read} in a new fit (which costs, too), "
    plan = "" if signal is None else ". dplda.plan says before a fit what to expect"
    warn_user(
        f"{facts}: {meaning}; use {first}more documents, a larger epsilon, or fewer "
        f"words{plan}",
        LowSignalWarning,
    )
