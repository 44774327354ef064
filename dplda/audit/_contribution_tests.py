"""Residual tests of contributions: no unit moves a release further than its sensitivity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._residual_result import ROUNDING, ResidualTest
from dplda.audit._watch import Record, Step
from dplda.privacy.mechanisms import FlooredLaplace

N_LEFT_OUT = 6  # documents that are left out, one after the other
N_LOUD = 20  # invented documents whose contributions reach the clipping bound
REACHED = 0.99  # of the sensitivity: less than this shows nothing about the clip
NOT_REACHED = (
    "no document came near the bound in {} of {} releases, so that a bound too wide would not be "
    "seen there"
)


def contribution_tests(model: BaseEstimator, record: Record) -> list[ResidualTest]:
    """What one unit changes, of what the model protects: a word, a document or a user."""
    if model._attack == "word":
        return [_token_test(record)]
    return _left_out_tests(model, record)


def _token_test(record: Record) -> ResidualTest:
    """What a replaced word moves: a token adds to a cell of its word's row, and to no other row."""
    words = np.asarray(record.X.sum(axis=0)).reshape(-1)
    changes = []
    for step in record.steps:
        rows = np.abs(step.value).sum(axis=1)
        each = np.where(words > 0, rows / np.maximum(words, 1), np.where(rows > 0, np.inf, 0.0))
        changes.append(float(each.max()) / _allowed_move(step.mechanism))
    name = "what a word changes, over the sensitivity"
    return ResidualTest(name, max(changes), 0.0, 1.0 + ROUNDING)


def _allowed_move(mechanism: Any) -> float:
    """Most that each of two cells may change, so that both stay within what is charged."""
    if isinstance(mechanism, FlooredLaplace):  # `n_cells` cells are charged, by 1 each
        return mechanism.sensitivity * mechanism.n_cells / 2
    return float(mechanism.sensitivity) / math.sqrt(2.0)


def _left_out_tests(model: BaseEstimator, record: Record) -> list[ResidualTest]:
    """What each of a few documents, or users, changes in the sums, by a second run without it."""
    inside, outside = [[0.0] for _ in record.steps], [0.0]  # of each release, of all
    for unit in _units_to_leave_out(record):
        without = record.sums(model, _emptied(record.X, record.units == unit))
        for step, value, changes in zip(record.steps, without, inside):
            change = float(np.linalg.norm((step.value - value).astype(np.float64)))
            in_sample = unit in _sample_of(step, record)
            (changes if in_sample else outside).append(change / step.mechanism.sensitivity)
    largest = np.array([max(changes) for changes in inside])
    n_unseen = int(np.count_nonzero(largest < REACHED))
    name = "what a document changes, over the sensitivity"
    note = NOT_REACHED.format(n_unseen, len(largest)) if n_unseen else ""
    tests = [ResidualTest(name, float(largest.max()), 0.0, 1.0 + ROUNDING, note)]
    if len(outside) > 1:
        name = "what a document changes in a round that does not sample it"
        tests.append(ResidualTest(name, max(outside), 0.0, 0.0))
    return tests


def _sample_of(step: Step, record: Record) -> np.ndarray:
    """The units that took part in a release."""
    return np.unique(record.units) if step.sample is None else record.samples[step.sample][1]


def _units_to_leave_out(record: Record) -> list[int]:
    """The last one, which the audit has added, the longest one, and others for the other releases.

    Rounds differ: a fault may show in a single one, and only documents of its sample can show it.
    So each further unit is that one of the longest and the last ones which took part in most of the
    releases that none before it took part in.
    """
    lengths = np.bincount(record.units, np.diff(record.X.indptr))
    order = np.argsort(-lengths, kind="stable")
    candidates = [*order[:N_LOUD], *range(max(0, len(order) - N_LOUD), len(order))]
    took_part = {int(u): np.zeros(len(record.steps), bool) for u in candidates}
    for i, step in enumerate(record.steps):
        for unit in took_part.keys() & set(_sample_of(step, record).tolist()):
            took_part[unit][i] = True
    chosen = [int(record.units[-1]), int(order[0])]
    while len(set(chosen)) < min(N_LEFT_OUT, len(took_part)):
        seen = np.any([took_part[u] for u in chosen], axis=0)
        left = [u for u in took_part if u not in chosen]
        chosen.append(max(left, key=lambda u: np.count_nonzero(took_part[u] & ~seen)))
    return sorted(set(chosen))


def _emptied(X: sp.csr_array, rows: np.ndarray) -> sp.csr_array:
    """The same documents, some of them empty: all others keep their places and streams."""
    kept = X.copy()
    kept.data[np.repeat(rows, np.diff(X.indptr))] = 0
    kept.eliminate_zeros()
    return kept
