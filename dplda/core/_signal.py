"""Which words and topics of a noisy topic-word table stand out, and their orders.

Everything here is a function of released values and of public constants.
``docs/reading_topics.md`` describes the test, and ``benchmarks/topic_signal.py``
measures its errors.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator

from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning
from dplda.privacy._streams import Purpose, Streams

# Level of a test: the probability that noise alone makes any word of a topic stand out,
# or makes two numbers of a table differ.
FALSE_POSITIVES = 0.05
FALSE_TOPICS = 0.1  # largest expected share of noise among the topics that are shown
# One in so many is kept out of what it tests: documents where some only test, and
# words that public tables do not change. 5 words: -0.6 / -1.3 points of the gap at
# epsilon 1 / 4 (docs/results.md).
KEPT_OUT = 10
FEWEST_WITH_TEST = 8  # fewest rounds of a fit that tests its topics
FEWEST_TESTS = 20  # documents or reports, below which their mean tests no topic
# What a question mark after a topic means, the same everywhere.
MEANING = (
    "Of the topics without a question mark at most one in ten is expected to be noise. "
    "A question mark means: not shown to be more than noise."
)
NOT_TESTED = (
    "The topics are not tested: nobody knows which of them are more than noise. The "
    f"fit had fewer than {FEWEST_WITH_TEST} rounds, a single topic, or too few "
    "documents, reports or batches."
)


def standing_words(components: np.ndarray, components_std: np.ndarray) -> np.ndarray:
    """Mask of the words that stand out in each topic.

    Let p_v be a word's share of all counts, N_k the counts of a topic, and q_k = N_k /
    N. Null hypothesis: a token of the word has at most twice the odds of the topic that
    any token has. The expected count of the word is then at most m_vk = 2 / (1 + q_k)
    p_v N_k. The test statistic is (count - m_vk) over its standard deviation, and the
    level is `FALSE_POSITIVES` / n_words.

    Parameters
    ----------
    components : ndarray of shape (n_components, n_words)
        Noisy word-topic counts.
    components_std : ndarray of shape (n_words,)
        Standard deviation of the noise in a cell of each word.

    Returns
    -------
    mask : ndarray of shape (n_components, n_words), bool
        The words that stand out.
    """
    n_components, n_words = components.shape
    variance = np.square(components_std, dtype=np.float64)
    sizes = components.sum(axis=1)
    p = components.sum(axis=0) / sizes.sum()
    threshold = -ndtri(FALSE_POSITIVES / n_words)
    mask = np.empty(components.shape, np.bool_)
    for topic, q in enumerate(sizes / sizes.sum()):
        # under the null, the largest share of a word's counts in the topic, and of all
        # counts of the topic in the word
        border = 2 * q / (1 + q)
        share = border / q * p
        # The expectation is border times the word's counts. These counts have no noise
        # if the noise of a word sums to zero over topics, and the noise of all cells if
        # cells are independent. The second term is the noise of q, from the topic's
        # cells.
        of_word = max(1.0, 1 - 2 * border + n_components * border**2)
        std = np.sqrt(variance * of_word + share**2 * variance.sum())
        mask[topic] = components[topic] - share * sizes[topic] > threshold * std
    return mask


def standing(model: BaseEstimator) -> np.ndarray | None:
    """Mask of the words that stand out in each topic; None for unknown noise."""
    std = getattr(model, "components_std_", None)
    if std is None or not np.any(std):
        return None
    return standing_words(model.components_, std)


def relevance(components: np.ndarray, weight: float = 0.5) -> np.ndarray:
    """The relevance of words to topics (C. Sievert, K. Shirley, LDAvis, 2014).

    Weight 1 ranks words by probability: words that are frequent everywhere come first
    in every topic. Weight 0 ranks them by lift, the probability in the topic over that
    in all topics: rare words come first, and their released counts are mostly noise.
    Words that a topic lacks come last.
    """
    p = components / components.sum(axis=1, keepdims=True)
    overall = components.sum(axis=0) / components.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.log(p) - (1 - weight) * np.log(overall)
    return np.where(p > 0, scores, -np.inf)


def by_share(model: BaseEstimator) -> tuple[np.ndarray, np.ndarray]:
    """The topics by their shares, weak ones last, and a mask of the weak ones.

    A model without `weak_topics_`, such as a baseline, has no weak ones.
    """
    sizes = model.components_.sum(axis=1)
    weak = np.asarray(getattr(model, "weak_topics_", np.zeros(len(sizes), bool)))
    return np.lexsort((-sizes, weak)), weak


def evidence_of(model: BaseEstimator) -> np.ndarray:
    """The evidence of each topic; NaN for topics that were not tested."""
    untested = np.full(len(model.components_), np.nan)
    return np.asarray(getattr(model, "topic_evidence_", untested))


def is_tested(model: BaseEstimator) -> bool:
    """Whether the topics of a model were tested."""
    return not np.isnan(evidence_of(model)).all()


def with_signal(
    components: np.ndarray, components_std: np.ndarray, evidence: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Fitted attributes of a table: counts, noise, and the evidence of its topics.

    `evidence` (n_components,) is at most standard normal for a topic that is noise;
    None if the topics were not tested. A single topic is never tested.
    """
    n_components = len(components)
    if evidence is None or n_components == 1:
        evidence = np.full(n_components, np.nan)
    return {
        "components_": components,
        "components_std_": components_std,
        "topic_evidence_": evidence,
        "weak_topics_": ~shown(evidence),
    }


def shown(evidence: np.ndarray) -> np.ndarray:
    """Mask of the topics that are shown to be more than noise.

    At most the share `FALSE_TOPICS` of them is expected to be noise, by the rule of
    Benjamini and Hochberg (1995). NaN is never shown.
    """
    p = np.nan_to_num(ndtr(-evidence), nan=1.0)
    limits = FALSE_TOPICS * np.arange(1, len(p) + 1) / len(p)
    passing = np.sort(p)[np.sort(p) <= limits]
    return p <= passing.max(initial=-1.0)


def first_half(n_words: int, round_number: int) -> np.ndarray:
    """Mask of half of the words, by public coins of a round."""
    coins = (
        Streams.from_random_state(0).reader(Purpose.HALVES, round_number).words(n_words)
    )
    return (coins >> np.uint64(63)).astype(bool)


def is_kept_out(n_docs: int) -> np.ndarray:
    """Mask of the documents that test and do not train, by position; public."""
    return np.arange(n_docs) % KEPT_OUT == KEPT_OUT - 1


def deviate_of_mean(total: np.ndarray, squares: np.ndarray, n: int) -> np.ndarray:
    """Student's t of the mean of n numbers, as a z-score (Wallace, 1959).

    `total` and `squares` (n_components,) are the sums of the numbers and of their
    squares.
    """
    mean = total / n
    variance = np.maximum(squares / n - mean**2, 1e-300)
    odds = mean**2 / variance  # t^2 over its degrees of freedom
    factor = (8 * n - 7) / (8 * n - 5) * math.sqrt(n - 1)
    deviate: np.ndarray = np.sign(mean) * factor * np.sqrt(np.log1p(odds))
    return deviate


def warn_if_weak(estimator: BaseEstimator, instead: str | None = None) -> None:
    """Warn if more than half of the topics are weak.

    `instead` says what the model has instead of weak topics.
    """
    name = type(estimator).__name__
    weak = estimator.weak_topics_
    n_read = np.count_nonzero(~weak)
    tested = is_tested(estimator)
    without_noise = not np.any(getattr(estimator, "components_std_", 1.0))
    if len(weak) == 1 or (without_noise and not tested) or 2 * n_read >= len(weak):
        return
    facts = f"{len(weak) - n_read} of {len(weak)} topics of {name} are weak"
    meaning = "they are not shown to be more than noise"
    if not tested:
        facts = f"all topics of {name} are weak, because they are not tested"
        meaning = "nobody knows which of them are more than noise"
    if instead is not None:
        meaning = instead
    advice = plan = ""
    signal = getattr(estimator, "signal_to_noise_", None)
    if signal is not None:
        facts += f" (signal_to_noise_ is {signal:.2g})"
        plan = ". dplda.plan says before a fit what to expect"
        trust = getattr(estimator, "prior_trust_", None) or 0.0
        if trust >= 1.0 - trust:
            meaning = "its topics are mostly those of prior_components"
        else:
            advice = "public texts (public_prior), "
    if n_read >= 2:
        advice += f"n_components={n_read} in a new fit (which costs, too), "
    warn_user(
        f"{facts}: {meaning}; use {advice}more documents, a larger epsilon, "
        f"or fewer words{plan}",
        LowSignalWarning,
    )
