"""Attacks on the central models: a document, a user or a word is one way or another.

An attack knows the whole program except the coins, the secret noise and the secret samples. The
bound is valid for any scores. Better scores give a larger bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._watch import Answers, Call, run_again
from dplda.privacy import Repeated, epsilon_of
from dplda.privacy._curator import Release
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy._streams import Purpose
from dplda.privacy.mechanisms import FlooredLaplace, Streams, uniform
from dplda.word._frozen_table import HalfTable
from dplda.word._sweep_mechanisms import SweepMechanisms

Releases: TypeAlias = list[Release]

TOKENS_OVER_NORM = 16  # of a canary: with many tokens, its topics hardly depend on the prior
FAVOR = 1.3  # weight of the topic that a canary's word favors in the first table; others have 1
DOCUMENTS_OF_USER = 3


@dataclass
class Target:
    """The estimator under attack and the sizes of the audit, for the functions of an attack.

    Parameters
    ----------
    estimator : estimator
        The copy of the audited estimator that is fitted. An attack may set its parameters.
    attack : Attack
        The attack.
    n_words : int
        Number of words of the documents without canaries.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Random words of the audit, for canaries and tables.
    method : {"fit", "partial_fit"}
        How the estimator is trained.
    """

    estimator: BaseEstimator
    attack: Attack
    n_words: int
    n_canaries: int
    streams: Streams
    method: str
    n_rows: int = 0  # of the fit, with the canaries
    calls: Sequence[Call] = field(default_factory=list)  # of `_rounds`, in the last fit

    def planted(
        self, X: sp.csr_array, words: np.ndarray, counts: np.ndarray, n_more: int
    ) -> dict[str, Any]:
        """The canaries, a row of `words` and `counts` for each, followed by the others.

        Their words are in a vocabulary that has `n_more` words that no other document has.
        """
        rows = np.repeat(np.arange(self.n_canaries), words.shape[1])
        shape = (self.n_canaries, self.n_words + n_more)
        canaries = count_matrix(rows, words.ravel(), counts.ravel(), shape)
        canaries.eliminate_zeros()
        return {"X": sp.csr_array(sp.vstack([canaries, widened(X, n_more)]))}

    def planted_words(
        self, X: sp.csr_array, coins: np.ndarray, n_tokens: int = 1
    ) -> dict[str, Any]:
        """The canaries, each with one of two words of its own; the first stands for coin 1."""
        words = (self.n_words + 2 * np.arange(self.n_canaries) + (1 - coins))[:, None]
        return self.planted(X, words, np.full_like(words, n_tokens), 2 * self.n_canaries)


def train_on_all(target: Target, model: BaseEstimator, data: dict[str, Any]) -> None:
    """Call `fit`, or `partial_fit` as often as it releases what `fit` releases."""
    for _ in range(1 if target.method == "fit" else n_rounds_of(model)):
        getattr(model, target.method)(**data)


def declared_events(target: Target, model: BaseEstimator) -> tuple[Event, ...]:
    """What one coin costs, as the model declares it."""
    return tuple(Repeated(event, target.attack.n_units) for event in model.privacy_.events)


def declared_epsilon(target: Target, model: BaseEstimator, delta: float) -> float:
    """Epsilon of the model's own guarantee at `delta`, for one coin."""
    distance = target.attack.n_units * model.privacy_.total_variation
    return epsilon_of(declared_events(target, model), delta, total_variation=distance)


@dataclass(frozen=True)
class Attack:
    """How an audit attacks one unit of privacy.

    The package has an attack for each unit; `audit_epsilon` takes its name. An attack of your own
    needs `plant` and `scores`. All functions get the `Target` first: the copy of the estimator
    (``target.estimator``), and the sizes ``target.n_words`` and ``target.n_canaries``.

    Parameters
    ----------
    unit : str
        Name of the unit, such as "document".
    relation : str
        Event that a coin decides, such as "a document is there or not".
    plant : callable
        ``plant(target, X, coins)`` hides the canaries among the documents and returns the arguments
        of `fit`: a dict with "X" and perhaps "user_ids". ``coins`` has one 0 or 1 for each canary.
    scores : callable
        ``scores(target, model, releases)`` guesses the coins from all that a fit released. It
        returns one number for each canary: positive for coin 1 and negative for coin 0. The
        magnitude is the certainty. The best scores are log-likelihood ratios in favor of coin 1.
    prepare : callable, default=None
        ``prepare(target)`` sets parameters of the copy, or refuses it, before anything is spent.
    train : callable, default=`train_on_all`
        ``train(target, model, data)`` calls `fit` or `partial_fit` with what `plant` returned.
    claim : callable, default=`declared_epsilon`
        ``claim(target, model, delta)`` is the epsilon that is claimed for one coin.
    events : callable, default=`declared_events`
        ``events(target, model)``: what one coin costs; empty if the claim is no sum of events.
    n_units : int, default=1
        Steps of the guarantee's relation between the two worlds of a coin.
    methods : tuple of str, default=("fit", "partial_fit")
        Ways to train that the scores understand.
    """

    unit: str
    relation: str
    plant: Callable[[Target, sp.csr_array, np.ndarray], dict[str, Any]]
    scores: Callable[[Target, BaseEstimator, Releases], np.ndarray]
    prepare: Callable[[Target], None] | None = None
    train: Callable[[Target, BaseEstimator, dict[str, Any]], None] = train_on_all
    claim: Callable[[Target, BaseEstimator, float], float] = declared_epsilon
    events: Callable[[Target, BaseEstimator], tuple[Event, ...]] = declared_events
    n_units: int = 1
    methods: tuple[str, ...] = ("fit", "partial_fit")


# a document, or a user with several, is there or not


def _prepare_documents(target: Target) -> None:
    """Set the first table, which the attack must know, or refuse what draws a secret one."""
    model, others = target.estimator, None
    if "prior_components" not in model.get_params():
        if not target.streams.seeded:
            raise ValueError(
                f"{type(model).__name__} starts from a random table that the attack must know; "
                "pass random_state to the audit"
            )
        return
    n_components, others = int(model.n_components), model.prior_components
    if others is None:
        size = n_components * target.n_words
        words = target.streams.words(Purpose.AUDIT, 1, 0, size)
        others = -np.log(uniform(words, positive=True)).reshape(n_components, target.n_words)
    # Each canary's word favors one topic, on which its documents agree. Contributions are
    # differences between a document's topics and those of its words in the table; with a stronger
    # preference the table would predict the topics.
    own, each = np.ones((n_components, target.n_canaries)), np.arange(target.n_canaries)
    own[each % n_components, each] = FAVOR
    model.set_params(prior_components=np.hstack([others, own * np.mean(others)]))


def _document_canaries(target: Target, n_each: int) -> tuple[sp.csr_array, np.ndarray]:
    """All documents of canaries, each with one word of the canary's own, and their owners."""
    n_tokens = math.ceil(TOKENS_OVER_NORM * float(target.estimator.contribution_norm))
    if getattr(target.estimator, "max_doc_tokens", None) is not None:
        n_tokens = min(n_tokens, int(target.estimator.max_doc_tokens))
    rows = np.arange(target.n_canaries * n_each)
    owners = rows % target.n_canaries  # the first documents of all canaries, then the second
    shape = (len(rows), target.n_words + target.n_canaries)
    return count_matrix(rows, target.n_words + owners, np.full(len(rows), n_tokens), shape), owners


def _plant_documents(target: Target, X: sp.csr_array, coins: np.ndarray) -> dict[str, Any]:
    canaries, _ = _document_canaries(target, 1)
    return {"X": sp.csr_array(sp.vstack([widened(X, target.n_canaries), canaries[coins == 1]]))}


def _plant_users(target: Target, X: sp.csr_array, coins: np.ndarray) -> dict[str, Any]:
    """Each present canary is a user; every other document belongs to a user of its own."""
    canaries, owners = _document_canaries(target, DOCUMENTS_OF_USER)
    present = coins[owners] == 1
    ids = np.append(np.arange(X.shape[0]), X.shape[0] + owners[present])
    X = sp.csr_array(sp.vstack([widened(X, target.n_canaries), canaries[present]]))
    return {"X": X, "user_ids": ids}


def _document_scores(target: Target, model: BaseEstimator, releases: Releases) -> np.ndarray:
    canaries, _ = _document_canaries(target, 1)
    return _scores_of_sums(target, model, releases, canaries, None)


def _user_scores(target: Target, model: BaseEstimator, releases: Releases) -> np.ndarray:
    canaries, owners = _document_canaries(target, DOCUMENTS_OF_USER)
    return _scores_of_sums(target, model, releases, canaries, owners)


def _scores_of_sums(
    target: Target,
    model: BaseEstimator,
    releases: Releases,
    canaries: sp.csr_array,
    users: np.ndarray | None,
) -> np.ndarray:
    """Exact log-likelihood ratios of all noisy sums.

    The contributions of a canary depend on past releases only. A second run of the rounds computes
    them, with the canaries alone and with the released sums.
    """
    n, n_all = target.n_canaries, canaries.shape[1]
    answers, table = Answers([release.value for release in releases]), None
    public = Streams.from_random_state(model.random_state)  # for a random first table
    for call in target.calls:
        changes = {"table": table, "streams": public, "users": users}
        table = run_again(model, call, canaries.astype(np.float64), answers, **changes)
    total = np.zeros(n)
    for release, value, rates in zip(releases, answers.values, answers.rates):
        # the canaries' words are the last ones in every release
        cells = value.size // n_all * n
        value = value.reshape(-1)[-cells:].reshape(n, -1).astype(float)
        noisy = release.value.reshape(-1)[-cells:].reshape(n, -1)
        ratio = ((noisy - value / 2) * value).sum(axis=1) / release.mechanism.scale**2
        rates = np.ones(n) if rates is None else rates
        sampled = rates < 1  # the sample is secret: a mixture of both cases
        rate = rates[sampled]
        ratio[sampled] = np.logaddexp(np.log1p(-rate), np.log(rate) + ratio[sampled])
        total += ratio
    return total


DOCUMENT = Attack(
    "document", "a document is there or not", _plant_documents, _document_scores,
    prepare=_prepare_documents,
)  # fmt: skip
# All documents of a canary have the same word. If each document is clipped by itself, a canary
# moves the sums three times as far as it may.
USER = Attack(
    "user", "a user with three documents is there or not", _plant_users, _user_scores,
    prepare=_prepare_documents,
)  # fmt: skip


# the word of a one-token document is one or another


def _word_scores(target: Target, model: BaseEstimator, releases: Releases) -> np.ndarray:
    """Exact log-likelihood ratios of the canaries' topics and of the noisy counts of both words.

    This is the topic-based attack of HDP-LDA in its strongest form.
    """
    mechanisms = model._mechanisms()
    total, before, tables = np.zeros(target.n_canaries), None, []
    for release in releases:
        if release.mechanism is not None:
            tables.append(release.value)
            total += word_count_scores(target, release.value, mechanisms, before)
            continue
        before = release.value[: target.n_canaries]
        # `partial_fit` draws topics from the mean of all counts so far, and `fit` from the last
        table = np.mean(tables, axis=0) if target.method == "partial_fit" else tables[-1]
        total += word_topic_scores(target, model, table, mechanisms, before)
    return total


def _pairs(target: Target, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each canary's word if its coin is 1, and if it is 0."""
    rows = table[target.n_words : target.n_words + 2 * target.n_canaries]
    return rows[::2], rows[1::2]


def word_topic_scores(
    target: Target,
    model: BaseEstimator,
    noisy: np.ndarray,
    mechanisms: SweepMechanisms,
    drawn: np.ndarray,
) -> np.ndarray:
    """Log-ratio of the probabilities of the drawn topics."""
    counts = mechanisms.unbiased(noisy)
    table = HalfTable.from_counts(counts, mechanisms.count_clip, model.topic_word_prior)
    chosen = np.arange(target.n_canaries), drawn
    one, zero = (rows[chosen] / rows.sum(axis=1) for rows in _pairs(target, table.values))
    return np.log(one / zero)


def word_count_scores(
    target: Target, noisy: np.ndarray, mechanisms: SweepMechanisms, topics: np.ndarray | None
) -> np.ndarray:
    """Log-ratio of the noise, given the counted topics; None if they are secret."""
    one, zero = (
        _log_noise(rows - mechanisms.unit, mechanisms.mechanism)
        - _log_noise(rows, mechanisms.mechanism)
        for rows in _pairs(target, noisy)
    )
    if topics is None:  # all topics are equally likely
        return np.logaddexp.reduce(one, axis=1) - np.logaddexp.reduce(zero, axis=1)
    chosen = np.arange(len(topics)), topics
    return one[chosen] - zero[chosen]


def _log_noise(x: np.ndarray, mechanism: Mechanism) -> np.ndarray:
    """Logarithm of the probability of noise, up to a constant."""
    if isinstance(mechanism, FlooredLaplace):
        return -np.abs(x + 0.5) / mechanism.scale  # exact for the cell [x, x + 1)
    return -0.5 * (x / mechanism.scale) ** 2


WORD = Attack("word", "a word is one or another", Target.planted_words, _word_scores)


def n_rounds_of(model: BaseEstimator) -> int:
    """The rounds of a `fit`: `max_iter`, or what None stands for; 1 without such a parameter."""
    resolve = getattr(model, "_max_iter", None)
    return int(getattr(model, "max_iter", 1)) if resolve is None else resolve()


def widened(X: sp.csr_array, n_more: int) -> sp.csr_array:
    """Append `n_more` words that occur in no document."""
    return sp.csr_array((X.data, X.indices, X.indptr), (X.shape[0], X.shape[1] + n_more))


def count_matrix(
    rows: np.ndarray, words: np.ndarray, counts: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    """Word counts from cells. Counts of repeated cells add up."""
    return sp.csr_array(sp.coo_array((counts, (rows, words)), shape=shape))
