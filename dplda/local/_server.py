"""What the estimators of local privacy share: the clients' reports, and Gibbs sampling on them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda._compat import StrOptions
from dplda._corpus import Corpus, check_counts
from dplda._fold_in import pad
from dplda._private_fit import ASSUMPTIONS
from dplda.kernels import _gibbs
from dplda.local._estimates import false_ones, set_and_clear
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy import Guarantee
from dplda.privacy._observation import announce
from dplda.privacy._streams import Purpose, Streams, uniform_integers

CLIENT_PARAMETERS = (
    "epsilon", "flip_mixture", "max_doc_words", "mechanism", "delta", "ledger",
)  # fmt: skip
LOCAL_CONSTRAINTS = {
    **{name: RandomizedResponse._parameter_constraints[name] for name in CLIENT_PARAMETERS},
    "randomized": ["boolean"],
    "reconstruction": [StrOptions({"background", "bits"})],
}

MADE_BY_CLIENTS = (
    "the rows of X were made by RandomizedResponse, or by a program that does the same, with the "
    "parameters of this estimator and with secret randomness"
)
SCORES = ASSUMPTIONS[1]
REPORTS = "reports"


def reports_of(
    estimator: Any, X: Any, *, reset: bool, goes_on: bool, call: int
) -> tuple[RandomizedResponse, sp.csr_array]:
    """The reports in X, or of the documents in X, and the randomizer that made them.

    Parameters
    ----------
    estimator : LPLDA or OLPLDA
        With ``randomized=False`` the reports are charged to its ledger.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Reports if ``estimator.randomized``, else word counts.
    reset : bool
        Whether X decides the size of the vocabulary.
    goes_on : bool
        Whether the model has seen reports before: they must come from the same randomizer.
    call : int
        Rounds before this call: with a seed, the calls must not flip the same bits.
    """
    reports = check_reports(estimator, X, reset=reset) if estimator.randomized else None
    counts = check_counts(estimator, X, reset=reset) if reports is None else reports
    seed = None if estimator.randomized else estimator.random_state
    if call and isinstance(seed, Integral):
        seed = int(Streams.from_random_state(seed).words(Purpose.CLIENT_SEED, call, 0, 1)[0] >> 32)
    client = client_of(estimator, counts, seed)
    if goes_on and client.privacy_.events != estimator.privacy_.events:
        raise ValueError(
            "partial_fit goes on with reports of the same randomizer, and epsilon, flip_mixture, "
            "mechanism or max_doc_words have changed; call fit to start again"
        )
    if reports is None:
        reports = client._report(counts, checked=True)
        announce(REPORTS, call, reports)
    return client, reports


def client_of(estimator: Any, X: Any, random_state: Any = None) -> RandomizedResponse:
    """The randomizer that an estimator's parameters describe; of X, only the width is read."""
    parameters = {name: getattr(estimator, name) for name in CLIENT_PARAMETERS}
    return RandomizedResponse(**parameters, random_state=random_state).fit(X)


def check_reports(estimator: Any, X: Any, *, reset: bool) -> sp.csr_array:
    """Validate reports: `check_counts`, and nothing but zeros and ones."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*not whole", UserWarning)  # they are refused below
        reports = check_counts(estimator, X, reset=reset)
    given = X.data if sp.issparse(X) else np.asarray(X)
    if (reports.data != 1).any() or (np.rint(given) != given).any():
        raise ValueError(
            f"{type(estimator).__name__} with randomized=True takes reports, which hold zeros and "
            "ones only, and X holds other numbers; pass what RandomizedResponse.transform "
            "returned, or word counts with randomized=False"
        )
    return reports


def guarantee_of(
    estimator: Any, client: RandomizedResponse, *, goes_on: bool, assumptions: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The clients' guarantee as fitted attributes: of one report, however many documents follow."""
    guarantee: Guarantee = client.privacy_
    assumptions = (*guarantee.assumptions, SCORES, *assumptions)
    if estimator.randomized:
        assumptions += (MADE_BY_CLIENTS,)
    seeded = guarantee.seeded
    if goes_on:
        earlier = estimator.privacy_
        assumptions += tuple(a for a in earlier.assumptions if a not in assumptions)
        seeded = seeded or earlier.seeded
    return {
        "guarantee": dataclasses.replace(guarantee, assumptions=assumptions, seeded=seeded),
        "bit_epsilon_": client.bit_epsilon_,
        "document_epsilon_": client.document_epsilon_,
        "one_probability_": client.one_probability_,
    }


def check_goes_on(estimator: Any) -> None:
    """Refuse another number of topics in `partial_fit`."""
    fitted = estimator.components_.shape[0]
    if fitted != estimator.n_components:
        raise ValueError(
            f"partial_fit goes on with n_components={fitted}, got {estimator.n_components}; call "
            "fit to start again"
        )


def reconstruct(
    reports: sp.csr_array,
    counts: np.ndarray,
    one_probability: tuple[float, float],
    *,
    by_bits: bool,
    streams: Streams,
    round: int,
) -> tuple[sp.csr_array, np.ndarray]:
    """Documents to train on, and the rates of a background beside their topics.

    Parameters
    ----------
    reports : csr_array of shape (n_docs, n_words)
    counts : ndarray of shape (n_words,)
        Estimated documents with each word.
    one_probability : (q, p)
    by_bits : bool
        Set and clear bits, without a background; else reports stay as they are.
    streams, round : Streams, int

    Returns
    -------
    documents : csr_array of shape (n_docs, n_words)
    background : ndarray of shape (n_words,)
    """
    if by_bits:
        reader = streams.reader(Purpose.RECONSTRUCTION, round)
        return set_and_clear(reports, counts, reader), np.zeros(len(counts))
    n_docs, n_words = reports.shape
    n_reported = np.bincount(reports.indices, minlength=n_words)
    return reports, false_ones(n_reported, counts, n_docs, one_probability)


def topic_counts(
    documents: sp.csr_array,
    word_prior: np.ndarray,
    background: np.ndarray,
    *,
    doc_topic_prior: float,
    streams: Streams,
    sweeps: Iterable[int],
    first_round: int,
    from_prior: bool,
) -> np.ndarray:
    """Collapsed Gibbs sampling of documents beside a background of known rates.

    Parameters
    ----------
    documents : csr_array of shape (n_docs, n_words)
    word_prior : ndarray of shape (n_words, n_components)
        Dirichlet parameters, such as counts of earlier documents plus a constant.
    background : ndarray of shape (n_words,)
        Expected tokens of a document that belong to no topic.
    doc_topic_prior : float
    streams : Streams
    sweeps : iterable of int
        Round numbers.
    first_round : int
        The first of them.
    from_prior : bool
        The first sweep draws topics from the prior and the tokens so far; else all topics are
        equally likely at the start, and the background is as likely as its rate says.

    Returns
    -------
    counts : ndarray of shape (n_words, n_components), int64
        Of words in topics, without the background.
    """
    corpus = Corpus.from_counts(documents)
    n_words, n_components = word_prior.shape
    shape = (n_words, n_components + 1)  # the background's column is the last
    prior, counts = (pad(np.zeros(shape), dtype) for dtype in (np.float32, np.int32))
    prior[:, :n_components] = word_prior
    topics = np.full(corpus.n_tokens, -1, np.int32)
    if not from_prior:
        words = streams.words(Purpose.FIRST_TOPICS, first_round, 0, corpus.n_tokens)
        n_tokens = np.bincount(corpus.word, minlength=n_words)
        share = background * documents.shape[0] / np.maximum(n_tokens, 1)
        low, drawn = words & np.uint64(0xFFFFFFFF), uniform_integers(words, n_components)
        topics[:] = np.where(low * 2.0**-32 < share[corpus.word], n_components, drawn)
        tokens = (np.ones(corpus.n_tokens, np.int32), (corpus.word, topics))
        counts[:, : n_components + 1] = sp.coo_array(tokens, shape=shape).toarray()
    totals = counts[:, :n_components].sum(axis=0, dtype=np.int64)
    sizes = word_prior.sum(axis=0, dtype=np.float64)
    rates = background.astype(np.float32)
    scratch = np.empty((4, counts.shape[1]), np.float32)
    for t in sweeps:
        bits = streams.words(Purpose.TOPICS, t, 0, corpus.n_tokens)
        _gibbs.background_sweep(
            corpus.word, corpus.doc_ptr, topics, counts, totals, prior, sizes, rates,
            doc_topic_prior, bits, scratch,
        )  # fmt: skip
    return counts[:, :n_components].astype(np.int64)
