"""Residual checks: what a fit released minus what it computed is noise, and must look like it.

An audit knows the documents, and so the exact sums behind every release. The tests compare the
noise, the samples, the contributions and the fitted attributes with what the guarantee says. They
find faults that the guesses of coins are too weak for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from dplda.audit._attacks import n_rounds_of, widened
from dplda.audit._residual_tests import (
    N_LOUD,
    ResidualResult,
    contribution_tests,
    event_test,
    noise_tests,
    normal_scores,
    public_test,
    sample_tests,
)
from dplda.audit._watch import Record, can_be_watched, watched, without_warnings
from dplda.core._corpus import check_counts
from dplda.privacy._curator import observe_releases
from dplda.privacy._streams import Purpose, uniform_integers
from dplda.privacy.mechanisms import Streams, uniform

__all__ = ["ResidualResult", "check_record", "residual_check"]

N_EMPTY = 500  # empty documents: a sample takes them like all others
N_CELLS = 60_000  # of noise: a noise 3% too small is then 9 standard deviations away
MAX_MORE_WORDS = 6000


def residual_check(estimator: BaseEstimator, X: Any, *, random_state: Any = None) -> ResidualResult:
    """Compare the noise of a fit, and all else that its guarantee rests on, with what it declares.

    One fit is watched from inside. What was released minus what was computed is the noise. Some
    loud and empty documents, and words that no document has, are added to `X`.

    Parameters
    ----------
    estimator : estimator
        `SubLDA`, `PrivateSVILDA`, `HDPLDA`, or an estimator written like them (its class attribute
        ``_attack`` is "document" or "word"). It is copied.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts of invented or public documents.
    random_state : int, RandomState instance or None, default=None
        Seed of the fit and of the check. None draws both from the operating system.

    Returns
    -------
    ResidualResult
        One line for each test. ``print`` shows them.

    Raises
    ------
    ValueError
        If the estimator adds no noise, or has no curator that could be watched.

    See Also
    --------
    audit_epsilon : Runs this check on the first of its fits, next to an attack.

    Notes
    -----
    **Privacy.** The check reads the exact sums. Its result is not private, and the fit spends the
    estimator's epsilon on `X`: use public or invented documents.

    All tests together raise a false alarm with probability at most 1e-6. A fault that no test looks
    for passes. ``docs/audits.md`` lists the tests and what they find.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.audit import residual_check
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=20, n_words=30, n_components=2, random_state=0).data
    >>> residual_check(SubLDA(n_components=2, epsilon=4.0, max_iter=5), X, random_state=0).passed
    True
    """
    if not can_be_watched(estimator):
        raise ValueError(
            f"{type(estimator).__name__} has no curator to watch; residual checks are for "
            "estimators with _attack = 'document' or 'word'"
        )
    if getattr(estimator, "epsilon", None) == math.inf:
        raise ValueError(
            f"{type(estimator).__name__} adds no noise with epsilon=inf; give it a finite epsilon"
        )
    streams = Streams.from_random_state(random_state)
    X = check_counts(clone(estimator), X, reset=True)
    model, X = _with_more(estimator, X, streams)
    seed = None
    if random_state is not None:
        seed = int(streams.words(Purpose.AUDIT, 4, 0, 1)[0] >> np.uint64(33))
    record = Record(X)
    model.set_params(random_state=seed)
    with without_warnings(), watched(model, record), observe_releases():
        model.fit(X)
    return check_record(model, record, streams)


def _with_more(
    estimator: BaseEstimator, X: sp.csr_array, streams: Streams
) -> tuple[BaseEstimator, sp.csr_array]:
    """Add loud and empty documents, and words that no document has: their cells are noise only."""
    model, parameters = clone(estimator), estimator.get_params()
    cells = int(parameters.get("n_components", 1)) * n_rounds_of(estimator)
    n_more = min(-(-N_CELLS // cells), MAX_MORE_WORDS)
    table = parameters.get("prior_components")
    if table is not None:
        more = np.full((len(table), n_more), np.mean(table))
        model.set_params(prior_components=np.hstack([table, more]))
    words = streams.words(Purpose.AUDIT, 2, 0, N_LOUD * X.shape[1])
    chosen = uniform_integers(words, 2).reshape(N_LOUD, X.shape[1])
    loud = sp.csr_array(chosen * 20)
    sampled = float(parameters.get("subsampling_ratio", 1.0)) < 1
    empty = sp.csr_array((N_EMPTY if sampled else 0, X.shape[1]), dtype=X.dtype)
    return model, widened(sp.csr_array(sp.vstack([X, empty, loud])), n_more)


def check_record(model: BaseEstimator, record: Record, streams: Streams) -> ResidualResult:
    """Test everything that was recorded of a fit."""
    steps = record.steps
    scores = [
        normal_scores(step, uniform(streams.words(Purpose.AUDIT, 3, i, step.value.size)))
        for i, step in enumerate(steps)
    ]
    tests = [
        *noise_tests(scores),
        *sample_tests(record.samples),
        *contribution_tests(model, record),
        event_test(model, record),
        public_test(model, record),
    ]
    n_cells = sum(len(score) for score in scores)
    return ResidualResult(type(model).__name__, tuple(tests), len(steps), n_cells)
