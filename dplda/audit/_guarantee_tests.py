"""Residual tests of the guarantee: its events cover the releases, and the model holds no more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._residual_result import ROUNDING, ResidualTest
from dplda.audit._watch import Record, Step, without_warnings
from dplda.privacy import (
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    Repeated,
)


def event_test(model: BaseEstimator, record: Record) -> ResidualTest:
    """Releases that cost another event than the guarantee states, or have a higher rate."""
    stated = list(model.privacy_.events)
    missing = 0
    for step in record.steps:
        if step.event in stated and _is_honest(step, record.samples):
            stated.remove(step.event)
        else:
            missing += 1
    name = "releases that the events of the guarantee do not cover"
    return ResidualTest(name, float(missing), 0.0, 0.0)


def _is_honest(step: Step, samples: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    """Whether an event states no more noise than there is, and no lower rate than was drawn."""
    charged = step.event.sampling_probability if isinstance(step.event, PoissonSampled) else 1.0
    highest = 1.0 if step.sample is None else float(np.max(samples[step.sample][0], initial=0.0))
    noise = step.mechanism.scale / step.mechanism.sensitivity
    return highest <= charged and _noise_of(step.mechanism.event) <= noise * (1 + ROUNDING)


def _noise_of(event: Event) -> float:
    """Noise that an event states, over the sensitivity."""
    if isinstance(event, Repeated):
        return _noise_of(event.event)
    if isinstance(event, Gaussian):
        return event.noise_multiplier
    return event.scale if isinstance(event, Laplace) else math.inf


def public_test(model: BaseEstimator, record: Record) -> ResidualTest:
    """Fitted attributes that a second fit, on nothing but the releases, does not have as well."""
    with without_warnings():
        public = record.refit(model, _neutral(model, record.X))
    differing = sum(
        not _same(value, getattr(public, name, None))
        for name, value in vars(model).items()
        if name.endswith("_") and not name.startswith("_")
    )
    name = "fitted attributes that the releases do not determine"
    return ResidualTest(name, float(differing), 0.0, 0.0)


def _neutral(model: BaseEstimator, X: sp.csr_array) -> sp.csr_array:
    """Documents that say nothing: empty ones, or for word-level privacy all of the first word."""
    if model._attack != "word":
        return sp.csr_array(X.shape, dtype=X.dtype)
    lengths = np.asarray(X.sum(axis=1)).reshape(-1)
    first = (np.arange(X.shape[0]), np.zeros(X.shape[0], int))
    return sp.csr_array(sp.coo_array((lengths, first), shape=X.shape))


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal, arrays bit for bit."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.tobytes() == other.tobytes()
    return bool(one == other) or (one != one and other != other)  # NaN
