"""Attacks on the papers' algorithms as printed: each exploits one error.

The published epsilon is the claim. It is no sum of events whose noise could be scaled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._attacks import Attack, Cost, Target, count_matrix, widened
from dplda.audit._tape import Tape
from dplda.published import recover_counts


def _published_cost(target: Target, model: BaseEstimator, delta: float) -> Cost:
    return target.attack.n_units * float(model.published_epsilon_), ()


def _difference(target: Target, table: np.ndarray) -> np.ndarray:
    """Row sum of the word of coin 1 minus that of the word of coin 0, for each canary."""
    sums = table[target.n_words :].sum(axis=1).astype(float)
    return sums[::2] - sums[1::2]


# HDP-LDA: the model minus the last noisy counts shows the moved topics without noise


def _scores_of_moves(target: Target, model: BaseEstimator, tape: Tape) -> np.ndarray:
    last = next(r.value for r in reversed(tape.releases) if r.label == "word-topic counts")
    before = np.maximum(last, 0) + float(model.topic_word_prior)
    return _difference(target, np.abs(model.components_.T - before) > 0.5)


# private SVI: the mean of a minibatch gets noise for the mean of all documents


def _plant_long_documents(target: Target, X: sp.csr_array, coins: np.ndarray) -> dict[str, Any]:
    return target.planted_words(X, coins, int(target.estimator.max_doc_tokens))


def _scores_of_batches(target: Target, model: BaseEstimator, tape: Tape) -> np.ndarray:
    return np.sum([_difference(target, r.value) for r in tape.releases], axis=0)


def _cost_of_batches(target: Target, model: BaseEstimator, delta: float) -> Cost:
    if delta < model.delta:
        raise ValueError(
            f"the published epsilon is stated at delta {model.delta} and says nothing at "
            f"{delta}; give delta={delta} to the estimator too"
        )
    return float(model.published_epsilon_), ()


# iFTM: exact word counts follow from the message


def _scores_of_recovered(target: Target, model: BaseEstimator, tape: Tape) -> np.ndarray:
    table = model.components_  # a message has its rows, divided by their sums
    sent = (table / table.sum(axis=1, keepdims=True)).astype(np.float32)
    counts = recover_counts(sent, topic_word_prior=float(model.topic_word_prior))
    return _difference(target, counts.T)


# SUB-LDA: every iteration releases the count of every word, sampled or not


def _plant_one_word(target: Target, X: sp.csr_array, coins: np.ndarray) -> dict[str, Any]:
    rows = np.flatnonzero(coins)
    shape = (target.n_canaries, target.n_words + target.n_canaries)
    canaries = count_matrix(rows, target.n_words + rows, np.ones(len(rows), int), shape)
    return {"X": sp.csr_array(sp.vstack([widened(X, target.n_canaries), canaries]))}


def _scores_of_counts(target: Target, model: BaseEstimator, tape: Tape) -> np.ndarray:
    rows = [r.value[-target.n_canaries :].reshape(target.n_canaries, -1) for r in tape.releases]
    return np.sum([row.sum(axis=1) - 0.5 for row in rows], axis=0)


def cost_of_counts(target: Target, model: BaseEstimator, delta: float) -> Cost:
    """Epsilon at delta of the paper's divergence or, for the sound form, of its guarantee."""
    if not hasattr(model, "published_epsilon_"):
        return model.privacy_.epsilon_at(delta), ()
    if delta == 0:
        return math.inf, ()
    return float(model.published_epsilon_) - math.log(delta) / (int(model.rdp_order) - 1), ()


_WORD = "a document has one word or another"
PUBLISHED = (
    Attack(
        "published SUB-LDA", "a document has one word more or less",
        _plant_one_word, _scores_of_counts, cost=cost_of_counts,
    ),
    Attack(
        "published HDP-LDA", _WORD, Target.planted_words, _scores_of_moves, cost=_published_cost
    ),
    Attack(
        "published private SVI", _WORD, _plant_long_documents, _scores_of_batches,
        cost=_cost_of_batches,
    ),
    Attack(  # replacing a word blanks one and writes one
        "published iFTM", _WORD, Target.planted_words, _scores_of_recovered,
        cost=_published_cost, n_units=2,
    ),
)  # fmt: skip
