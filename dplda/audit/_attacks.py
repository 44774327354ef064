"""Attacks on a document, a user, a word, a report or a token.

An attack knows the whole program except the coins, the secret noise and the secret
samples. The bound is valid for any scores. Better scores give a larger bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._replay import Tape, fit_watched
from dplda.federated._tokens import Tokens
from dplda.gibbs._frozen_table import HalfTable
from dplda.privacy import Repeated, epsilon_of
from dplda.privacy._recorder import Release
from dplda.privacy._streams import Purpose
from dplda.privacy.mechanisms import Streams, uniform

# Arguments of a fit: "X" and perhaps "user_ids".
FitData: TypeAlias = dict[str, sp.csr_array | np.ndarray]
# What a randomizer makes of its documents.
Reports = TypeVar("Reports")


@dataclass
class Target:
    """The estimator under attack, which it may change, and the sizes of the audit."""

    estimator: BaseEstimator
    n_words: int
    n_canaries: int
    streams: Streams

    def planted(
        self, X: sp.csr_array, words: np.ndarray, n_more: int, n_tokens: int = 1
    ) -> FitData:
        """The canaries, one row of `words` each, `n_tokens` times, then the others.

        The vocabulary has `n_more` words that no other document has, for the canaries.
        """
        rows = np.repeat(np.arange(self.n_canaries), words.shape[1])
        counts = np.full(words.size, n_tokens)
        shape = (self.n_canaries, self.n_words + n_more)
        canaries = count_matrix(rows, words.ravel(), counts, shape)
        return {"X": stacked(canaries, widened(X, n_more))}

    def planted_words(
        self, X: sp.csr_array, coins: np.ndarray, n_tokens: int = 1
    ) -> FitData:
        """The canaries, each with one of its own two words; the first means coin 1."""
        words = self.n_words + 2 * np.arange(self.n_canaries) + (1 - coins)
        return self.planted(X, words[:, None], 2 * self.n_canaries, n_tokens)


def declared_cost(model: BaseEstimator, delta: float, n_steps: int = 1) -> float:
    """Epsilon at `delta` of a coin whose worlds are so many steps apart.

    A step leads to a neighbor.
    """
    events = [Repeated(event, n_steps) for event in model.privacy_.events]
    distance = n_steps * model.privacy_.total_variation
    return epsilon_of(events, delta, total_variation=distance)


@dataclass(frozen=True)
class Attack:
    """How an audit attacks one unit of privacy.

    Your own attack needs `plant` and `scores`. The functions get the `Target` first:
    the copy of the estimator (``target.estimator``), and the sizes ``target.n_words``
    (without canaries) and ``target.n_canaries``.

    Parameters
    ----------
    unit : str
        Name of the unit, such as "document".
    relation : str
        Event that a coin decides, such as "a document is there or not".
    plant : callable
        ``plant(target, X, coins)`` hides the canaries among the documents and returns
        the arguments of `fit`: a dict with "X" and perhaps "user_ids". ``coins`` has
        one 0 or 1 for each canary.
    scores : callable
        ``scores(target, model, tape)`` guesses the coins from what a fit released,
        ``tape.releases``. It returns one number for each canary: positive for coin 1
        and negative for coin 0. The magnitude is the certainty. The best scores are
        log-likelihood ratios in favor of coin 1.
    prepare : callable, default=None
        ``prepare(target)`` sets parameters of the copy, or refuses it, before anything
        is spent.
    cost : callable, default=`declared_cost`
        ``cost(model, delta)`` is the epsilon that is claimed for one coin.
    """

    unit: str
    relation: str
    plant: Callable[[Target, sp.csr_array, np.ndarray], FitData]
    scores: Callable[[Target, BaseEstimator, Tape], np.ndarray]
    prepare: Callable[[Target], None] | None = None
    cost: Callable[[BaseEstimator, float], float] = declared_cost


def train(model: BaseEstimator, data: Mapping[str, sp.csr_array | np.ndarray]) -> None:
    """Fit; a randomizer releases reports.

    A second round of a party must release nothing.
    """
    model.fit(**data)
    if hasattr(model, "refine"):
        model.refine(model.components_)
    elif not hasattr(model, "components_"):
        model.transform(**data)


# a document, or a user with several, is there or not


def _prepare_documents(target: Target) -> None:
    """Set the first table, which the attack must know; refuse a secret one."""
    model = target.estimator
    if "prior_components" not in model.get_params():
        if not target.streams.seeded:
            raise ValueError(
                f"{type(model).__name__} starts from a random table that the attack "
                "must know; pass random_state to the audit"
            )
        return
    n_components = int(model.n_components)
    others = model.prior_components
    if others is None:
        size = n_components * target.n_words
        words = target.streams.reader(Purpose.AUDIT, 1).words(size)
        exponential = -np.log(uniform(words, positive=True))
        others = exponential.reshape(n_components, target.n_words)
    model.set_params(prior_components=others)
    add_words(model, target.n_canaries)


def _documents(target: Target, n_each: int) -> tuple[sp.csr_array, np.ndarray]:
    """All documents of canaries, each with one word of its own, and their owners."""
    rows = np.arange(target.n_canaries * n_each)
    # the first documents of all canaries, then the second
    owners = rows % target.n_canaries
    words = target.n_words + owners
    # of many tokens: its topics hardly depend on the prior
    counts = np.full(len(rows), target.n_canaries)
    shape = (len(rows), target.n_words + target.n_canaries)
    return count_matrix(rows, words, counts, shape), owners


def _attack_on_documents(unit: str, relation: str, n_each: int = 1) -> Attack:
    """Canaries of `n_each` documents, which are one user if there are several."""

    def fit_data(X: sp.csr_array, owners: np.ndarray) -> FitData:
        return {"X": X, "user_ids": owners} if n_each > 1 else {"X": X}

    def plant(target: Target, X: sp.csr_array, coins: np.ndarray) -> FitData:
        canaries, owners = _documents(target, n_each)
        present = coins[owners] == 1
        ids = np.append(np.arange(X.shape[0]), X.shape[0] + owners[present])
        together = stacked(widened(X, target.n_canaries), canaries[present])
        return fit_data(together, ids)

    def scores(target: Target, model: BaseEstimator, tape: Tape) -> np.ndarray:
        """Exact log-likelihood ratios of all noisy sums.

        A canary's contributions depend on past releases only. A second fit, to the
        canaries alone and with the released sums, computes them.
        """
        canaries, owners = _documents(target, n_each)
        n_canaries = target.n_canaries

        def everybody(i: int, rates: np.ndarray) -> np.ndarray:
            return np.arange(n_canaries)

        def of_canaries(released: np.ndarray) -> np.ndarray:
            """The cells of the canaries' words, the last ones of every release."""
            n_cells = released.size // canaries.shape[1] * n_canaries
            return released.reshape(-1)[-n_cells:].reshape(n_canaries, -1).astype(float)

        _, own = fit_watched(
            model,
            seed=model.random_state,
            first=tape,
            members=everybody,
            **fit_data(canaries, owners),
        )
        total = np.zeros(n_canaries)
        for step, first in zip(own.steps, tape.steps):
            value = of_canaries(step.value)
            noisy = of_canaries(first.noisy)
            ratio = ((noisy - value / 2) * value).sum(axis=1) / step.mechanism.scale**2
            rates = np.ones(n_canaries)
            if step.sample is not None:
                rates = step.sample[0][:n_canaries]
            # the sample is secret: a mixture of both cases
            with np.errstate(divide="ignore"):
                total += np.logaddexp(np.log1p(-rates), np.log(rates) + ratio)
        return total

    return Attack(unit, relation, plant, scores, prepare=_prepare_documents)


DOCUMENT = _attack_on_documents("document", "a document is there or not")
# All documents of a canary have the same word. If documents were clipped one by one, a
# canary would move the sums three times as far as it may.
USER = _attack_on_documents(
    "user", "a user with eight documents is there or not", n_each=8
)


# the word of a one-token document is one or another


def word_ratios(
    target: Target, model: BaseEstimator, releases: list[Release]
) -> list[np.ndarray]:
    """Exact log-likelihood ratios of the canaries in each release.

    A release holds the noisy counts of both words, or topics that were drawn under
    them. This is the topic-based attack of HDP-LDA in its strongest form. A canary that
    is kept out to test the topics enters its draw only, because a document of one token
    has no pair.
    """
    mechanisms = model._mechanisms()
    noise = mechanisms.mechanism
    kept = model._kept_out(target.n_canaries)
    table = np.zeros(0)  # of the release before
    topics: np.ndarray | None = None
    ratios = []

    def pairs(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of each canary's word if its coin is 1, and if it is 0."""
        own = table[target.n_words : target.n_words + 2 * target.n_canaries]
        return own[::2], own[1::2]

    n_counts = 0  # releases of them so far
    for release in releases:
        is_test = kept.any() and n_counts + 1 == model.max_iter
        readers = np.flatnonzero(kept == is_test)
        each = np.arange(len(readers))
        ratio = np.zeros(target.n_canaries)
        if release.mechanism is None:
            topics = release.value[: len(readers)]
            drawn_under = HalfTable.from_counts(
                model._released.total if is_test else table,
                mechanisms.count_clip,
                model.topic_word_prior,
                mean=model._released.noise_mean if is_test else noise.mean,
                unit=model._released.n if is_test else 1,
            )
            one, zero = (rows[readers] for rows in pairs(drawn_under.values))
            one_shares = one[each, topics] / one.sum(axis=1)
            zero_shares = zero[each, topics] / zero.sum(axis=1)
            ratio[readers] = np.log(one_shares / zero_shares)
            ratios.append(ratio)
            continue
        n_counts += 1
        table = release.value
        # gain of a cell that holds the token; noise x has a probability proportional to
        # exp(-|x + 1/2| / scale)
        gain = (np.abs(table + 0.5) - np.abs(table - 0.5)) / noise.scale
        one, zero = (rows[readers] for rows in pairs(gain))
        if topics is None:  # all are equally likely
            one_sums = np.logaddexp.reduce(one, axis=1)
            ratio[readers] = one_sums - np.logaddexp.reduce(zero, axis=1)
        elif not is_test:
            ratio[readers] = one[each, topics] - zero[each, topics]
        ratios.append(ratio)
    return ratios


def _scores_of_words(target: Target, model: BaseEstimator, tape: Tape) -> np.ndarray:
    return np.sum(word_ratios(target, model, tape.releases), axis=0)


WORD = Attack(
    "word", "a word is one or another", Target.planted_words, _scores_of_words
)


# reports and tokens: each row is randomized by itself


def _n_own_words(target: Target) -> int:
    """Number of words of a canary: as in one report of the estimator; 1 for a token."""
    n_words = getattr(target.estimator, "max_doc_words", 1)
    return int(n_words or target.n_words)


def _plant_rows(target: Target, X: sp.csr_array, coins: np.ndarray) -> FitData:
    """The canaries have the words of one of two sets; the first stands for coin 1."""
    n = _n_own_words(target)
    words = (target.n_words + n * (1 - coins))[:, None] + np.arange(n)
    return target.planted(X, words, 2 * n)


def _scores_of_rows(
    ratios: Callable[[Target, BaseEstimator, Reports], np.ndarray],
) -> Callable[[Target, BaseEstimator, Tape], np.ndarray]:
    """Scores of the first rows, the canaries: sums over all releases of a row."""

    def scores(target: Target, model: BaseEstimator, tape: Tape) -> np.ndarray:
        if not tape.releases:
            raise ValueError(
                f"{type(model).__name__} reads reports and releases nothing of a "
                "document; audit the RandomizedResponse of the clients"
            )
        return np.sum([ratios(target, model, r.value) for r in tape.releases], axis=0)

    return scores


def _set_ratios(
    target: Target, model: BaseEstimator, reports: sp.csr_array
) -> np.ndarray:
    """Log-likelihood ratios of the bits; both sets have as many words as a report."""
    bits = sp.csr_array(reports)[: target.n_canaries, target.n_words :].toarray() > 0
    present = np.where(bits, model.bit_epsilon_, -model.bit_epsilon_)
    half = _n_own_words(target)
    return present[:, :half].sum(axis=1) - present[:, half:].sum(axis=1)


REPORT = Attack(
    "report", "a document is one or another", _plant_rows, _scores_of_rows(_set_ratios)
)


def _token_ratios(target: Target, model: BaseEstimator, tokens: Tokens) -> np.ndarray:
    n = target.n_canaries
    token = np.repeat(np.arange(n), np.diff(tokens.ptr[: n + 1]))
    word = tokens.word[: len(token)]
    planted = word >= target.n_words
    gain = np.full((n, 2), (tokens.flip / (1 - tokens.flip)) ** 2)
    gain[token[planted], word[planted] - target.n_words] = 1.0
    return np.log(gain[:, 0] / gain[:, 1])


# The estimator claims the cost of blanking a token. Replacing it by another word costs
# twice that.
TOKEN = Attack(
    "token",
    "a token's word is one or another",
    _plant_rows,
    _scores_of_rows(_token_ratios),
    cost=partial(declared_cost, n_steps=2),
)


# By unit. An estimator's class names its attack in `_attack`.
ATTACKS = {attack.unit: attack for attack in (DOCUMENT, USER, WORD, TOKEN, REPORT)}


def stacked(above: sp.csr_array, below: sp.csr_array) -> sp.csr_array:
    """The rows of one matrix, then those of another."""
    return sp.csr_array(sp.vstack([above, below]))


def widened(X: sp.csr_array, n_more: int) -> sp.csr_array:
    """Append `n_more` words that occur in no document."""
    shape = (X.shape[0], X.shape[1] + n_more)
    return sp.csr_array((X.data, X.indices, X.indptr), shape)


def add_words(model: BaseEstimator, n_more: int) -> None:
    """Append words to the public tables of an estimator, if it has any.

    They have the mean weight in each topic, and no word vector.
    """
    parameters = model.get_params()
    table = parameters.get("prior_components")
    if table is not None:
        cells = np.pad(table, ((0, 0), (0, n_more)), constant_values=np.mean(table))
        model.set_params(prior_components=cells)
    vectors = parameters.get("word_vectors")
    if vectors is not None:
        model.set_params(word_vectors=np.pad(vectors, ((0, n_more), (0, 0))))


def count_matrix(
    rows: np.ndarray, words: np.ndarray, counts: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    """Word counts from cells. Counts of repeated cells add up."""
    return sp.csr_array(sp.coo_array((counts, (rows, words)), shape=shape))
