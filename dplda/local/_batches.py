"""Reports in batches, as they come, and the topics computed from them.

`LPLDA` and `OLPLDA` share this; `model` gives the parameters. `reports_of` randomizes
documents on behalf of clients. Everything else reads (or validates) reports, public
numbers and the server's own randomness, and costs no privacy.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator
from itertools import islice
from numbers import Integral
from typing import Any, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from dplda.core._corpus import Corpus, Matrix, check_counts, take_columns
from dplda.core._fit_guarantee import DISTINCT, publish
from dplda.core._fold_in import pad
from dplda.core._private_fit import exactly_one
from dplda.core._signal import FEWEST_TESTS, deviate_of_mean, shown, warn_if_weak
from dplda.kernels import _gibbs
from dplda.leaf._messages import rounds
from dplda.local._estimates import (
    count_reported,
    estimate_counts,
    false_ones,
    pairs_of_words,
    set_and_clear,
)
from dplda.local._randomized_response import BUDGETS, RandomizedResponse
from dplda.privacy import Guarantee
from dplda.privacy._streams import Purpose, Streams, uniform_integers

Model: TypeAlias = Any  # LPLDA or OLPLDA
N_TOP = 10  # words of a topic whose reports are its evidence, as many as in `coherence`
CLIENT_PARAMETERS = (*BUDGETS, "delta", "max_doc_words", "ledger")
MADE_BY_CLIENTS = (
    "the rows of X were made by RandomizedResponse, or by a program that does the "
    "same, with the parameters of this estimator and with secret randomness"
)


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """Topics after some batches of reports. Public."""

    prior: np.ndarray  # Dirichlet parameters of the topics, (n_words, n_components)
    counts: np.ndarray  # word-topic counts on top of them
    # (n_components,) sums of `pairs_of_words` and of its squares, over all reports that
    # tested topics they had not trained
    pairs: np.ndarray
    squares: np.ndarray
    n_tested: int = 0  # such reports
    n_iter: int = 0  # sweeps so far
    n_batches: int = 0  # of reports so far

    @property
    def table(self) -> np.ndarray:
        """Word-topic counts with the prior, (n_words, n_components)."""
        return self.prior + self.counts

    @property
    def evidence(self) -> np.ndarray:
        """Student's t of the pairs as a normal deviate; NaN if nothing was tested."""
        n = self.n_tested
        if (
            n < FEWEST_TESTS or len(self.pairs) == 1
        ):  # one topic has no others to be told from
            return np.full(len(self.pairs), np.nan)
        return deviate_of_mean(self.pairs, self.squares, n)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class OnlineState(State):
    """Topics, and the word counts that OLP-LDA expects in the next batch. Public."""

    # (n_words,) documents of the last batch with each word: mean of the numbers before
    # (mu) and after (eta)
    expected: np.ndarray
    n_docs: int = 0  # of the last batch
    has_public: bool = False  # whether a public corpus came first


Batches = TypeVar("Batches", State, OnlineState)


def reports_of(
    model: Model, X: Matrix, state: State | None = None, n_earlier: int = 0
) -> tuple[RandomizedResponse, sp.csr_array, Model]:
    """The clients' fitted randomizer, and reports: given, or made from documents.

    The call continues with `state`. `n_earlier` is above 0 after earlier reports, and
    differs between calls. Also returns a copy of the model that has the columns of `X`.
    """
    if state is not None:
        _check_n_components(model, state)
    check = _check_reports if model.randomized else check_counts

    checked = copy.copy(model)

    # private, unless X holds reports
    def read() -> sp.csr_array:
        return check(checked, X, reset=state is None)

    # the size of the vocabulary is public: it enters the cost before X is read
    if state is not None:
        n_words = len(state.counts)
    else:
        try:
            n_words = np.shape(X)[1]
        except (TypeError, ValueError, IndexError):  # no matrix: `read` says why
            n_words = read().shape[1]
    seed = _seed_of_reports(model.random_state, n_earlier)
    client = client_of(model, n_words, seed)  # public
    if n_earlier and client._law != model._law:
        raise ValueError(
            "partial_fit continues with reports of the same randomizer, and "
            "epsilon, bit_epsilon, delta or max_doc_words have changed; call fit "
            "to start from scratch"
        )
    if model.randomized:
        return client, read(), checked  # public
    # The release. A document is one row, and its report depends on this row and on its
    # own coins only. Replacing the document changes at most 2 * max_doc_words bits of
    # that row; `client.privacy_` charges them. The ledger is charged before `read` sees
    # a document.
    reports = client._report(read, client.ledger)  # public
    return client, reports, checked


def client_of(model: Model, n_words: int, seed: object) -> RandomizedResponse:
    """The clients' randomizer; it draws nothing with ``randomized=True``."""
    own = {name: getattr(model, name) for name in CLIENT_PARAMETERS}
    exactly_one(type(model).__name__, **{name: own[name] for name in BUDGETS})
    random_state = None if model.randomized else seed
    # the guarantee depends on their number only
    columns = sp.csr_array((1, n_words))
    return RandomizedResponse(**own, random_state=random_state).fit(columns)


def flat_topics(model: Model, n_words: int) -> State:
    """Topics before the first batch."""
    empty = np.zeros((n_words, int(model.n_components)))
    prior = empty + float(model.topic_word_prior)
    return State(prior, empty, pairs=empty[0], squares=empty[0])


def topics_of_public(model: Model, flat: OnlineState, X: sp.csr_array) -> OnlineState:
    """Topics of the documents of a public corpus."""
    counts = topic_counts(
        X,
        flat.prior,
        np.zeros(len(flat.prior)),
        doc_topic_prior=model.doc_topic_prior,
        streams=Streams.from_random_state(model.random_state),
        sweeps=rounds(model, 1, model.max_iter),
        first_round=1,
    )
    return dataclasses.replace(
        flat,
        counts=counts,
        n_iter=int(model.max_iter),
        expected=count_reported(X).astype(float),
        n_docs=X.shape[0],
        has_public=True,
    )


def topics_of_half(
    model: Model,
    state: Batches,
    reports: sp.csr_array,
    flip: float,
    streams: Streams,
) -> tuple[Batches, np.ndarray]:
    """Topic counts from every second report; the other reports test these topics."""
    half = reports[::2]
    n_docs = half.shape[0]
    present = estimate_counts(count_reported(half), n_docs, flip)
    sweeps = range(1, int(model.max_iter) + 1)
    counts = _sampled(
        model, state, half, present, flip, streams, sweeps=sweeps, is_half=True
    )
    return tested(state, state.prior + counts, reports[1::2], flip), counts


def sample_topics(
    model: Model,
    state: Batches,
    reports: sp.csr_array,
    estimate: np.ndarray,
    flip: float,
    streams: Streams,
    sweeps: Iterator[int],
    start: np.ndarray | None = None,
) -> Batches:
    """The state after a batch, in which `estimate` documents have each word.

    The batch first tests the earlier topics, if there are any. `start` is as in
    `topic_counts`.
    """
    if np.ptp(state.table) > 0:
        state = tested(state, state.table, reports, flip)
    sweeps = islice(sweeps, int(model.max_iter))
    counts = _sampled(
        model, state, reports, estimate, flip, streams, sweeps=sweeps, start=start
    )
    return dataclasses.replace(
        state,
        counts=state.counts + counts,
        n_iter=state.n_iter + int(model.max_iter),
        n_batches=state.n_batches + 1,
    )


def _sampled(
    model: Model,
    state: State,
    reports: sp.csr_array,
    estimate: np.ndarray,
    flip: float,
    streams: Streams,
    *,
    sweeps: Iterable[int],
    is_half: bool = False,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Word-topic counts of reports after the sweeps; `start` as in `topic_counts`."""
    n_docs, n_words = reports.shape
    first_round = state.n_iter + 1
    documents = reports
    background = np.zeros(n_words)
    if model.reconstruction == "bits":
        reader = streams.reader(Purpose.RECONSTRUCTION, first_round, int(is_half))
        documents = set_and_clear(reports, estimate, reader)
    else:
        background = false_ones(count_reported(reports), estimate, n_docs, flip)
    return topic_counts(
        documents,
        state.table,
        background,
        doc_topic_prior=model.doc_topic_prior,
        streams=streams,
        sweeps=sweeps,
        first_round=first_round,
        is_half=is_half,
        start=start,
    )


def tested(
    state: Batches, table: np.ndarray, reports: sp.csr_array, flip: float
) -> Batches:
    """The state after reports have tested the topics of a table from other reports."""
    words = _top_words(table)
    if min(words.shape) < 2:  # no other topic to stand out from, or no pair
        return state
    pairs = pairs_of_words(reports, words, flip)
    return dataclasses.replace(
        state,
        pairs=state.pairs + pairs.sum(axis=0),
        squares=state.squares + np.square(pairs).sum(axis=0),
        n_tested=state.n_tested + len(pairs),
    )


def publish_topics(
    model: Model,
    checked: Model,
    client: RandomizedResponse,
    state: State,
    paid_before: Guarantee | None,
    assumptions: tuple[str, ...] = (),
    **attributes: object,
) -> None:
    """Set the fitted attributes, with the guarantee of one report.

    `checked` has the columns of the reports.

    The guarantee does not depend on the number of documents, because each document
    appears in one call only.
    """
    clients = client.privacy_
    seeded = clients.seeded
    assumptions = (*clients.assumptions, DISTINCT, *assumptions)
    if model.randomized:
        assumptions += (MADE_BY_CLIENTS,)
    if paid_before is not None:
        seeded = seeded or paid_before.seeded
        assumptions += tuple(a for a in paid_before.assumptions if a not in assumptions)
    take_columns(model, checked)
    publish(
        model,
        dataclasses.replace(clients, assumptions=assumptions, seeded=seeded),
        components_=state.table.T,
        n_iter_=state.n_iter,
        n_batches_=state.n_batches,
        bit_epsilon_=client.bit_epsilon_,
        word_epsilon_=client.word_epsilon_,
        document_epsilon_=client.document_epsilon_,
        flip_probability_=client.flip_probability_,
        topic_evidence_=state.evidence,
        weak_topics_=~shown(state.evidence),
        _law=client._law,
        _state=state,
        **attributes,
    )
    if state.n_batches:
        warn_if_weak(model)


def _seed_of_reports(random_state: object, n_earlier: int) -> object:
    """The seed of a call's reports: a later call with an integer flips other bits."""
    if n_earlier == 0 or not isinstance(random_state, Integral):
        return random_state
    streams = Streams.from_random_state(random_state)
    word = streams.reader(Purpose.CLIENT_SEED, n_earlier).words(1)[0]
    return int(word >> 32)


def _check_n_components(model: Model, state: State) -> None:
    n_components = state.counts.shape[1]
    if n_components != model.n_components:
        origin = "fit" if state.n_batches else "fit_prior"
        raise ValueError(
            f"{origin} had n_components={n_components}, got "
            f"{int(model.n_components)}; call {origin} to start from scratch"
        )


def _top_words(table: np.ndarray) -> np.ndarray:
    """Top words of topics, (n_components, n_top): frequent here, rare elsewhere."""
    rank = (table**2 / table.sum(axis=1, keepdims=True)).T
    n_top = min(N_TOP, len(table) // 2)
    return np.argsort(-rank, axis=1, kind="stable")[:, :n_top]


def _check_reports(model: Model, X: Matrix, *, reset: bool) -> sp.csr_array:
    """Validate reports with `check_counts`; reports hold zeros and ones only."""
    reports = check_counts(model, X, reset=reset, whole=False)  # an error follows below
    unrounded = X.data if isinstance(X, (sp.sparray, sp.spmatrix)) else np.asarray(X)
    if (reports.data != 1).any() or (np.rint(unrounded) != unrounded).any():
        raise ValueError(
            f"{type(model).__name__} with randomized=True takes reports, which hold "
            "zeros and ones only, and X holds other numbers; pass the result of "
            "RandomizedResponse.transform, or word counts with randomized=False"
        )
    return reports


def topic_counts(
    documents: sp.csr_array,
    word_prior: np.ndarray,
    background: np.ndarray,
    *,
    doc_topic_prior: float,
    streams: Streams,
    sweeps: Iterable[int],
    first_round: int,
    is_half: bool = False,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Word-topic counts, by collapsed Gibbs sampling with a background topic.

    Counts and Dirichlet parameters `word_prior` have shape (n_words, n_components).
    `background` (n_words,) is the expected number of tokens of a document that belong
    to no topic; they are not counted. In round 1, all topics start equally likely, and
    the background starts with its rate. With counts `start` (n_words, n_components),
    and in later rounds, the first sweep draws topics from the prior, these counts and
    the tokens sampled before. Then `start` is left out.
    """
    corpus = Corpus.from_counts(documents)
    n_words, n_components = word_prior.shape
    shape = (n_words, n_components + 1)  # the background's column is the last
    prior = pad(np.zeros(shape), np.float32)
    counts = pad(np.zeros(shape), np.int32)
    prior[:, :n_components] = word_prior
    topics = np.full(corpus.n_tokens, -1, np.int32)
    if first_round == 1 and start is None:
        reader = streams.reader(Purpose.FIRST_TOPICS, first_round, int(is_half))
        words = reader.words(corpus.n_tokens)
        n_tokens = np.bincount(corpus.word, minlength=n_words)
        share = background * documents.shape[0] / np.maximum(n_tokens, 1)
        # the low half of a random word decides for the background, the high half for
        # the topic
        low = (words & np.uint64(0xFFFFFFFF)) * 2.0**-32
        uniform = uniform_integers(words, n_components)
        topics[:] = np.where(low < share[corpus.word], n_components, uniform)
        tokens = (np.ones(corpus.n_tokens, np.int32), (corpus.word, topics))
        counts[:, : n_components + 1] = sp.coo_array(tokens, shape=shape).toarray()
    live = counts[:, :n_components]
    left_out = np.zeros((n_words, n_components), np.int32)
    if start is not None:
        left_out += start.astype(np.int32)
        live += left_out
    totals = live.sum(axis=0, dtype=np.int64)
    sizes = word_prior.sum(axis=0, dtype=np.float64)
    rates = background.astype(np.float32)
    scratch = np.empty((4, counts.shape[1]), np.float32)
    for t in sweeps:
        bits = streams.reader(Purpose.TOPICS, t, int(is_half)).words(corpus.n_tokens)
        _gibbs.background_sweep(
            corpus.word,
            corpus.doc_ptr,
            topics,
            counts,
            totals,
            prior,
            sizes,
            rates,
            doc_topic_prior,
            bits,
            scratch,
        )
        live -= left_out
        totals -= left_out.sum(axis=0)
        left_out[:] = 0
    return live.astype(np.int64)
