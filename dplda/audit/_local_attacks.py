"""Attacks on local privacy: a document, a word of it, or a token is one or another in a report."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._attacks import Attack, Releases, Target
from dplda.federated import SentenceCorpus
from dplda.local._memoized_reports import MemoizedReports
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy import RandomizedResponseEvent
from dplda.privacy._curator import Release, announce
from dplda.privacy._events import Event

UNCAPPED_WORDS = 50  # of a canary where no cap says how many words are reported
MAX_CANARY_WORDS = 1000  # of a canary whose cap is larger
N_REQUESTS = 5

# Log-likelihood ratios of the first `n` rows of a release, or of all if it has fewer.
Ratios: TypeAlias = Callable[[Target, BaseEstimator, Release, int], np.ndarray]


def train_on_rows(target: Target, model: BaseEstimator, data: dict[str, Any]) -> None:
    """Call `fit` with all documents, or `partial_fit` with each half of them."""
    X = data["X"]
    target.n_rows = X.shape[0]
    if target.method == "fit":
        model.fit(X)
        if not hasattr(model, "components_"):  # a randomizer releases what it returns
            announce("reports", 0, model.transform(X))
    else:
        half = X.shape[0] // 2
        model.partial_fit(X[:half])
        model.partial_fit(X[half:])


def _scores_of_rows(ratios: Ratios) -> Callable[[Target, BaseEstimator, Releases], np.ndarray]:
    """Scores where each row is randomized by itself: what was released of a canary adds up."""

    def scores(target: Target, model: BaseEstimator, releases: Releases) -> np.ndarray:
        total, row = np.zeros(target.n_canaries), 0
        for release in releases:
            found = ratios(target, model, release, max(0, target.n_canaries - row))
            total[row : row + len(found)] += found
            row = (row + _n_rows(release)) % target.n_rows
        return total

    return scores


def _n_rows(release: Release) -> int:
    value = release.value
    return len(value.document_ptr) - 1 if hasattr(value, "document_ptr") else value.shape[0]


# reports: both sets of words have as many as a document reports


def _refuse_server(target: Target) -> None:
    if getattr(target.estimator, "randomized", False):
        raise ValueError(
            f"{type(target.estimator).__name__}(randomized=True) reads reports and releases "
            "nothing of a document; audit the RandomizedResponse of the clients, or "
            "randomized=False"
        )


def _refuse_all_but_clients(target: Target) -> None:
    if not isinstance(target.estimator, RandomizedResponse):
        raise ValueError(
            "memoized reports come from a RandomizedResponse, got "
            f"{type(target.estimator).__name__}; give the randomizer of the client"
        )


def _n_ones(target: Target) -> int:
    return min(int(target.estimator.max_doc_words or UNCAPPED_WORDS), MAX_CANARY_WORDS)


def _plant_sets(target: Target, X: sp.csr_array, coins: np.ndarray) -> dict[str, Any]:
    n = _n_ones(target)
    words = (target.n_words + n * (1 - coins))[:, None] + np.arange(n)
    return target.planted(X, words, np.ones_like(words), 2 * n)


def _ratios_of_bits(model: BaseEstimator, bits: np.ndarray) -> np.ndarray:
    """Log-likelihood ratio of each reported bit: the word is there, against it is not."""
    zero, one = model.one_probability_
    return np.where(bits, math.log(one / zero), math.log((1 - one) / (1 - zero)))


def _reported_bits(target: Target, release: Release, n: int) -> np.ndarray:
    return sp.csr_array(release.value)[:n, target.n_words :].toarray() > 0


def _set_ratios(target: Target, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
    present = _ratios_of_bits(model, _reported_bits(target, release, n))
    half = _n_ones(target)
    return present[:, :half].sum(axis=1) - present[:, half:].sum(axis=1)


def _request_reports(target: Target, model: BaseEstimator, data: dict[str, Any]) -> None:
    """Fit the randomizer, and request all documents, in this order and in the other one."""
    X = data["X"]
    target.n_rows = X.shape[0]
    client, ids = MemoizedReports(model.fit(X)), np.arange(X.shape[0])
    for request in range(N_REQUESTS):
        order = ids if request % 2 == 0 else ids[::-1]
        reports = client.reports(order.tolist(), X[order])
        announce("reports", request, reports[order])


REPORT = Attack(
    "report", "a document is one or another", _plant_sets, _scores_of_rows(_set_ratios),
    prepare=_refuse_server, train=train_on_rows,
)  # fmt: skip
REQUEST = Attack(
    "requested report", "a document that is asked for five times is one or another",
    _plant_sets, _scores_of_rows(_set_ratios),
    prepare=_refuse_all_but_clients, train=_request_reports, methods=("fit",),
)  # fmt: skip


# a word more in a report, against `word_epsilon_`


def _plant_one_more(target: Target, X: sp.csr_array, coins: np.ndarray) -> dict[str, Any]:
    """A canary has as many words as are reported; the coin adds one more."""
    n = _n_ones(target)
    words = np.tile(target.n_words + np.arange(n + 1), (target.n_canaries, 1))
    counts = np.ones_like(words)
    counts[:, -1] = coins
    return target.planted(X, words, counts, n + 1)


def _added_word_ratios(
    target: Target, model: BaseEstimator, release: Release, n: int
) -> np.ndarray:
    return ratios_of_added_word(target, model, _reported_bits(target, release, n))


def ratios_of_added_word(target: Target, model: BaseEstimator, bits: np.ndarray) -> np.ndarray:
    """Log-likelihood ratios of reports of the canary's words, (n, n_ones + 1).

    They are exact over all choices of the words that are kept. The report that shows the one more
    word and none of the others is the most likely under coin 1; it is rare for more than a few.
    """
    present, n = _ratios_of_bits(model, bits), _n_ones(target)
    added = present[:, -1]
    if n != model.max_doc_words:  # the cap does not bind: nothing is pushed out
        return added
    # one of the words is left out, each with the same probability; the last: nothing changes
    swapped = np.hstack([added[:, None] - present[:, :-1], np.zeros((len(bits), 1))])
    return np.logaddexp.reduce(swapped, axis=1) - math.log(n + 1)


def _word_response(target: Target, model: BaseEstimator) -> tuple[Event, ...]:
    """The randomized response of `word_epsilon_`, which any pure guarantee is made of."""
    return (RandomizedResponseEvent(2.0 / (math.exp(min(float(model.word_epsilon_), 500.0)) + 1)),)


def _word_epsilon(target: Target, model: BaseEstimator, delta: float) -> float:
    return float(model.word_epsilon_)  # pure, and therefore a claim at every delta


REPORTED_WORD = Attack(
    "reported word", "a document has one word more or less",
    _plant_one_more, _scores_of_rows(_added_word_ratios),
    prepare=_refuse_server, train=train_on_rows, claim=_word_epsilon, events=_word_response,
)  # fmt: skip


# a token of a party


def _plant_tokens(target: Target, X: sp.csr_array, coins: np.ndarray) -> dict[str, Any]:
    words = (target.n_words + 1 - coins)[:, None]
    data = target.planted(X, words, np.ones_like(words), 2)
    if target.estimator.model == "sentence_lda":
        return {"X": _one_sentence_each(data["X"])}
    return data


def _train_party(target: Target, model: BaseEstimator, data: dict[str, Any]) -> None:
    """Train the party, and take part in one more round, which must release nothing new."""
    train_on_rows(target, model, data)
    model.refine(model.components_)


def _token_ratios(target: Target, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
    tokens, n = release.value, min(n, _n_rows(release))
    survivors = tokens.span(0, n)
    token = np.repeat(np.arange(n), np.diff(survivors.ptr))
    planted = survivors.word >= target.n_words
    gain = np.full((n, 2), tokens.likelihood.base)
    cells = token[planted], survivors.word[planted] - target.n_words
    gain[cells] = tokens.likelihood.gain[survivors.level[planted]]
    return np.log(gain[:, 0] / gain[:, 1])


def _one_sentence_each(X: sp.csr_array) -> SentenceCorpus:
    """Documents of one sentence; an empty document has none."""
    lengths = np.asarray(X.sum(axis=1)).reshape(-1).astype(np.int64)
    words = np.repeat(X.indices, X.data.astype(np.int64))
    sentences = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
    return SentenceCorpus(words, sentences, np.append(0, np.cumsum(lengths > 0)), X.shape[1])


# The estimator claims the cost of blanking a token. Replacing it by another word costs twice that.
TOKEN = Attack(
    "token", "a token's word is one or another", _plant_tokens, _scores_of_rows(_token_ratios),
    train=_train_party, n_units=2,
)  # fmt: skip
