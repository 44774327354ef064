"""The server of local privacy: reports are validated, repaired and sampled.

`release_reports` randomizes documents on behalf of clients. Every other function reads reports (or
validates them), public numbers and the server's own randomness, and costs no privacy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from dplda.core._base import BaseTopicModel
from dplda.core._corpus import Corpus, check_counts
from dplda.core._fold_in import pad
from dplda.kernels import _gibbs
from dplda.leaf._compat import StrOptions
from dplda.local._estimates import false_ones, set_and_clear
from dplda.local._randomized_response import BUDGETS, RandomizedResponse
from dplda.privacy import Guarantee
from dplda.privacy._curator import announce
from dplda.privacy._streams import Purpose, Streams, uniform_integers

CLIENT_PARAMETERS = (*BUDGETS, "delta", "max_doc_words", "mechanism", "ledger")
LOCAL_CONSTRAINTS = {
    **{name: RandomizedResponse._parameter_constraints[name] for name in CLIENT_PARAMETERS},
    "randomized": ["boolean"],
    "reconstruction": [StrOptions({"background", "bits"})],
}

MADE_BY_CLIENTS = (
    "the rows of X were made by RandomizedResponse, or by a program that does the same, with the "
    "parameters of this estimator and with secret randomness"
)
REPORTS = "reports"


def fitted_randomizer(
    parameters: Mapping[str, Any], n_words: int, *, n_earlier: int = 0
) -> RandomizedResponse:
    """The randomizer of the clients that the parameters of a server describe.

    Parameters
    ----------
    parameters : mapping
        Parameters of LPLDA or OLPLDA, as `get_params` returns them.
    n_words : int
        Size of the vocabulary.
    n_earlier : int, default=0
        Number of sweeps or batches before this call. With an integer seed, each number gives the
        client another seed, because two calls must not flip the same bits.
    """
    seed = None if parameters["randomized"] else parameters["random_state"]
    if n_earlier and isinstance(seed, Integral):
        streams = Streams.from_random_state(seed)
        seed = int(streams.words(Purpose.CLIENT_SEED, n_earlier, 0, 1)[0] >> 32)
    own = {name: parameters[name] for name in CLIENT_PARAMETERS}
    columns = sp.csr_array((1, n_words))  # no document: the guarantee depends on their number only
    return RandomizedResponse(**own, random_state=seed).fit(columns)


def n_columns(
    model: BaseTopicModel, X: Any, read: Callable[[], sp.csr_array], *, expected: int | None
) -> int:
    """Size of the vocabulary of documents that are not read yet; it is public, and enters the cost.

    Parameters
    ----------
    model : estimator
        Named in the error.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Documents or reports. Only their shape is used.
    read : callable
        Validates `X`, and explains why it is no matrix.
    expected : int or None
        The width of earlier calls.

    Raises
    ------
    ValueError
        If `X` is no matrix, or has another width.
    """
    try:
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    except ValueError:  # rows of different lengths
        shape = ()
    n_words = int(shape[1]) if len(shape) == 2 and shape[1] else read().shape[1]
    if n_words != (expected or n_words):
        raise ValueError(
            f"X has {n_words} features, but {type(model).__name__} is expecting {expected} "
            "features as input"
        )
    return n_words


def check_reports(model: BaseTopicModel, X: Any, *, reset: bool) -> sp.csr_array:
    """Validate reports with `check_counts`; they may hold zeros and ones only."""
    reports = check_counts(model, X, reset=reset, whole=False)  # an error follows below
    unrounded = X.data if sp.issparse(X) else np.asarray(X)
    if (reports.data != 1).any() or (np.rint(unrounded) != unrounded).any():
        raise ValueError(
            f"{type(model).__name__} with randomized=True takes reports, which hold zeros and "
            "ones only, and X holds other numbers; pass the result of "
            "RandomizedResponse.transform, or word counts with randomized=False"
        )
    return reports


def collect_reports(
    model: BaseTopicModel,
    X: Any,
    *,
    earlier: Guarantee | None,
    n_earlier: int,
    expected: int | None,
) -> tuple[RandomizedResponse, sp.csr_array]:
    """The randomizer of the clients, and reports: those of clients, or of documents at once.

    Parameters
    ----------
    model : LPLDA or OLPLDA
        Its parameters describe the clients.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Reports if the model is `randomized`, and documents otherwise.
    earlier : Guarantee or None
        Guarantee of the earlier calls.
    n_earlier : int
        Number of sweeps or batches before this call.
    expected : int or None
        Number of columns of earlier calls, or of a public corpus; None before both.

    Returns
    -------
    client : RandomizedResponse
        Fitted. Its guarantee is that of a report.
    reports : csr_array of shape (n_docs, n_words)
        Zeros and ones. Public.
    """
    check = check_reports if model.randomized else check_counts
    read = partial(check, model, X, reset=expected is None)  # private, unless X holds reports
    n_words = n_columns(model, X, read, expected=expected)  # public
    client = fitted_randomizer(model.get_params(deep=False), n_words, n_earlier=n_earlier)  # public
    if earlier is not None:
        check_same_randomizer(earlier, client.privacy_)

    # The release. One document is one row, and its report depends on this row and on its own
    # coins only. Replacing the document changes at most 2 * max_doc_words bits of that row,
    # which `client.privacy_` charges. The ledger is charged before `read` looks at a document.
    reports = read() if model.randomized else release_reports(client, read, call=n_earlier)
    return client, reports  # public


def release_reports(
    client: RandomizedResponse, read: Callable[[], sp.csr_array], *, call: int
) -> sp.csr_array:
    """Charge the client's ledger, then read documents and randomize them.

    Parameters
    ----------
    client : RandomizedResponse
        Fitted.
    read : callable
        ``read()`` validates the documents, and returns their private counts.
    call : int
        Number under which an audit sees the reports.

    Returns
    -------
    reports : csr_array of shape (n_docs, n_words)
        Public.
    """
    reports = client._report(read, client.ledger)  # public
    announce(REPORTS, call, reports)
    return reports


def check_same_randomizer(earlier: Guarantee, guarantee: Guarantee) -> None:
    """Refuse a `partial_fit` with reports of another randomizer."""
    if guarantee.events != earlier.events:
        raise ValueError(
            "partial_fit continues with reports of the same randomizer, and epsilon, bit_epsilon, "
            "flip_mixture, delta, max_doc_words or mechanism have changed; call fit to start from "
            "scratch"
        )


def check_n_components(before: int, n_components: int, *, origin: str) -> None:
    """Refuse to continue with another number of topics than that of the method `origin`."""
    if before != n_components:
        raise ValueError(
            f"{origin} had n_components={before}, got {n_components}; call {origin} to start from "
            "scratch"
        )


def server_guarantee(
    clients: Guarantee,
    earlier: Guarantee | None,
    *,
    randomized: bool,
    assumptions: tuple[str, ...] = (),
) -> Guarantee:
    """The clients' guarantee with the assumptions of a server.

    Parameters
    ----------
    clients : Guarantee
        Guarantee of one report. It does not depend on the number of documents: each document
        appears in one call only.
    earlier : Guarantee or None
        Guarantee of the earlier calls.
    randomized : bool
        Whether the server was given reports. It cannot check their origin.
    assumptions : tuple of str, default=()
        Further assumptions.
    """
    assumptions = (*clients.assumptions, *assumptions)
    if randomized:
        assumptions += (MADE_BY_CLIENTS,)
    seeded = clients.seeded
    if earlier is not None:
        assumptions += tuple(a for a in earlier.assumptions if a not in assumptions)
        seeded = seeded or earlier.seeded
    return dataclasses.replace(clients, assumptions=assumptions, seeded=seeded)


def reconstruct(
    reports: sp.csr_array,
    counts: np.ndarray,
    one_probability: tuple[float, float],
    *,
    by_bits: bool,
    streams: Streams,
    round_number: int,
) -> tuple[sp.csr_array, np.ndarray]:
    """Documents to train on, and the rates of a background topic.

    Parameters
    ----------
    reports : csr_array of shape (n_docs, n_words)
        Zeros and ones.
    counts : ndarray of shape (n_words,)
        Estimated number of documents with each word.
    one_probability : (q, p)
        Probability of a one where the document has a zero, and where it has a one.
    by_bits : bool
        True sets and clears bits, without a background. False leaves the reports as they are.
    streams : Streams
        The server's randomness.
    round_number : int
        Number of the first sweep that trains on the result.

    Returns
    -------
    documents : csr_array of shape (n_docs, n_words)
        Zeros and ones.
    background : ndarray of shape (n_words,)
        Expected number of false ones of each word, per document.
    """
    if by_bits:
        reader = streams.reader(Purpose.RECONSTRUCTION, round_number)
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
    """Collapsed Gibbs sampling of documents with a background topic of known rates.

    Parameters
    ----------
    documents : csr_array of shape (n_docs, n_words)
        Counts or zeros and ones.
    word_prior : ndarray of shape (n_words, n_components)
        Dirichlet parameters, such as counts of earlier documents plus a constant.
    background : ndarray of shape (n_words,)
        Expected number of tokens of a document that belong to no topic.
    doc_topic_prior : float
        Dirichlet parameter of a document's topics.
    streams : Streams
        The server's randomness.
    sweeps : iterable of int
        Round numbers.
    first_round : int
        The first of them.
    from_prior : bool
        True: the first sweep draws topics from the prior and the tokens sampled before. False: all
        topics are equally likely at the start, and the background has the probability of its rate.

    Returns
    -------
    counts : ndarray of shape (n_words, n_components), int64
        Tokens of each word in each topic, without the background.
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
        # the low half of a random word decides for the background, the high half for the topic
        low, uniform = words & np.uint64(0xFFFFFFFF), uniform_integers(words, n_components)
        topics[:] = np.where(low * 2.0**-32 < share[corpus.word], n_components, uniform)
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
