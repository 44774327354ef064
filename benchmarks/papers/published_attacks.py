"""Attacks on the papers' algorithms as printed. Each exploits one error.

The published epsilon is the claim: ``audit_epsilon(model, X, attack=SUB_LDA)``.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit import Attack
from dplda.audit._attacks import Target, count_matrix, widened
from dplda.published import recover_counts


def published_cost(model: BaseEstimator, delta: float, n_steps: int = 1) -> float:
    return n_steps * float(model.published_epsilon_)


def difference(target: Target, table: np.ndarray) -> np.ndarray:
    """Row sum of coin 1's word minus that of coin 0's word, for each canary."""
    sums = table[target.n_words :].sum(axis=1).astype(float)
    return sums[::2] - sums[1::2]


# SUB-LDA: every iteration releases the count of every word, sampled or not


def plant_one_word(
    target: Target, X: sp.csr_array, coins: np.ndarray
) -> dict[str, Any]:
    rows = np.flatnonzero(coins)
    shape = (target.n_canaries, target.n_words + target.n_canaries)
    canaries = count_matrix(rows, target.n_words + rows, np.ones(len(rows), int), shape)
    return {"X": sp.csr_array(sp.vstack([widened(X, target.n_canaries), canaries]))}


def scores_of_counts(target: Target, model: BaseEstimator, tape: Any) -> np.ndarray:
    rows = [
        r.value[-target.n_canaries :].reshape(target.n_canaries, -1)
        for r in tape.releases
    ]
    return np.sum([row.sum(axis=1) - 0.5 for row in rows], axis=0)


def cost_of_counts(model: BaseEstimator, delta: float) -> float:
    """Epsilon at delta of the paper's divergence or, sound form, of its guarantee."""
    if not hasattr(model, "published_epsilon_"):
        return model.privacy_.epsilon_at(delta)
    if delta == 0:
        return math.inf
    return float(model.published_epsilon_) - math.log(delta) / (
        int(model.rdp_order) - 1
    )


SUB_LDA = Attack(
    "published SUB-LDA",
    "a document has one word more or less",
    plant_one_word,
    scores_of_counts,
    cost=cost_of_counts,
)


# HDP-LDA: the model minus the last noisy counts shows the moved topics without noise


def scores_of_moves(target: Target, model: BaseEstimator, tape: Any) -> np.ndarray:
    last = next(
        r.value for r in reversed(tape.releases) if r.label == "word-topic counts"
    )
    before = np.maximum(last, 0) + float(model.topic_word_prior)
    return difference(target, np.abs(model.components_.T - before) > 0.5)


_WORD = "a document has one word or another"
HDP_LDA = Attack(
    "published HDP-LDA",
    _WORD,
    Target.planted_words,
    scores_of_moves,
    cost=published_cost,
)


# private SVI: the mean of a minibatch gets noise for the mean of all documents


def plant_long_documents(
    target: Target, X: sp.csr_array, coins: np.ndarray
) -> dict[str, Any]:
    return target.planted_words(X, coins, int(target.estimator.max_doc_tokens))


def scores_of_batches(target: Target, model: BaseEstimator, tape: Any) -> np.ndarray:
    return np.sum([difference(target, r.value) for r in tape.releases], axis=0)


PRIVATE_SVI = Attack(
    "published private SVI",
    _WORD,
    plant_long_documents,
    scores_of_batches,
    cost=published_cost,
)


# iFTM: exact word counts follow from the message


def scores_of_recovered(target: Target, model: BaseEstimator, tape: Any) -> np.ndarray:
    table = model.components_  # a message has its rows, divided by their sums
    sent = (table / table.sum(axis=1, keepdims=True)).astype(np.float32)
    counts = recover_counts(sent, topic_word_prior=float(model.topic_word_prior))
    return difference(target, counts.T)


IFTM = Attack(  # replacing a word blanks one and writes one
    "published iFTM",
    _WORD,
    Target.planted_words,
    scores_of_recovered,
    cost=partial(published_cost, n_steps=2),
)
