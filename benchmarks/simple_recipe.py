"""The simple document-level recipe, for comparison: what the centered release replaced.

The same theorem and the same noise, but plain word-topic counts: soft responsibilities, a constant
clip of 6, 40 equal rounds, a running average with rate (t + 1)**-0.7 of the signed releases,
negative counts cut only while training, each topic projected to a simplex at the end, and a mixture
with the noisy word distribution, for which a tenth of the budget is spent.
"""

from __future__ import annotations

import math

import numpy as np

from dplda._fold_in import pad, update_theta
from dplda.central._centered_release import SCALE_UP, Documents
from dplda.privacy._streams import Purpose, Streams
from dplda.privacy.mechanisms import Curator, DiscreteGaussian, gaussian_mu

CLIP, ROUNDS, SHARE = 6.0, 40, 0.1


def simple_recipe(
    X, *, epsilon: float, delta: float, n_components: int, random_state=None,
    doc_topic_prior: float = 0.1, topic_word_prior: float = 0.01,
) -> np.ndarray:  # fmt: skip
    """Released pseudo-counts (n_components, n_words)."""
    mu = gaussian_mu(epsilon, delta)
    for_totals = DiscreteGaussian.for_noise_multiplier(1 / (mu * math.sqrt(SHARE)))
    for_round = DiscreteGaussian.for_noise_multiplier(math.sqrt(ROUNDS / (1 - SHARE)) / mu)
    plan = [("totals", for_totals.event)] + [("counts", for_round.event)] * ROUNDS
    streams = Streams.from_random_state(random_state)
    documents = Documents.of(X, n_components, None)
    n_docs, n_words = X.shape
    rows, ones = np.arange(n_docs), np.ones(n_words)
    if epsilon <= 2:
        documents.scale[:] = SCALE_UP  # before the clip: short contributions count up to five times
    with Curator(plan, streams, label="simple recipe", unit="document") as curator:
        value = documents.sum_words(ones, CLIP, for_totals.radius)
        totals = curator.release(value, for_totals, label="totals", round=0)
        totals = np.maximum(totals * (CLIP / for_totals.radius), 0) + topic_word_prior
        words = streams.words(Purpose.INITIAL_TABLE, 0, 0, n_words * n_components)
        table = totals[:, None] * -np.log((words + 0.5) / 2.0**64).reshape(n_words, -1)
        table *= totals.sum() / table.sum()
        average = table
        for t in range(1, ROUNDS + 1):
            phi = pad(table / table.sum(axis=0))
            update_theta(
                documents.X, documents.theta, phi, rows, n_components=n_components,
                doc_topic_prior=doc_topic_prior, max_steps=5,
            )  # fmt: skip
            value = documents.sum_topics(
                rows, phi, np.zeros_like(phi), ones, documents.scale, CLIP, for_round.radius
            )[:, :n_components]
            noisy = curator.release(np.ascontiguousarray(value), for_round, label="counts", round=t)
            rate = (t + 1) ** -0.7
            average = (1 - rate) * average + rate * noisy * (CLIP / for_round.radius)
            table = np.maximum(average, 0) + topic_word_prior
    table = np.apply_along_axis(norm_sub, 0, average) + topic_word_prior
    phi = table / table.sum(axis=0)
    mixture = 0.2 if epsilon <= 2 else 0.0
    return ((1 - mixture) * phi + mixture * (totals / totals.sum())[:, None]).T


def norm_sub(noisy: np.ndarray) -> np.ndarray:
    """The nearest non-negative vector with the same sum (zero if that is not positive)."""
    if noisy.sum() <= 0:
        return np.zeros_like(noisy)
    ordered = np.sort(noisy)[::-1]
    excess = (np.cumsum(ordered) - noisy.sum()) / np.arange(1, len(noisy) + 1)
    return np.maximum(noisy - excess[np.flatnonzero(ordered > excess)[-1]], 0)
