"""A party of federated topic modeling: it trains on its documents and sends topics."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from dplda.core._base import BaseLDA, last_quarter
from dplda.core._corpus import (
    Corpus,
    check_counts,
    check_topics,
    keep_at_most,
    take_columns,
)
from dplda.core._fit_guarantee import DISTINCT, make_guarantee, publish
from dplda.core._private_estimator import (
    BIT_EPSILON,
    PRIVACY_CONSTRAINTS,
    TRUSTED_PARTY,
    Interval,
    PrivateEstimator,
    Promise,
)
from dplda.core._private_fit import warn_if_seeded
from dplda.core._signal import FEWEST_TESTS, KEPT_OUT, is_kept_out, shown, warn_if_weak
from dplda.federated._tokens import Tokens, check_size, privatize, sweep_tokens
from dplda.federated._topic_test import evidence_of_reports
from dplda.leaf._calm import interruptible
from dplda.leaf._compat import _fit_context
from dplda.leaf._messages import rounds
from dplda.privacy import Guarantee, NonPrivate, epsilon_of
from dplda.privacy._charge import Charge
from dplda.privacy._mechanisms import RandomizedBits
from dplda.privacy._streams import Purpose, Streams, uniform
from dplda.privacy.mechanisms import Curator

NOISY_TOKENS = "noisy tokens"
TOKEN_RELATION = "one token is blanked, its position stays"
TOKEN_ASSUMPTIONS = (
    "the numbers of documents and of their tokens, and of the tokens of each sentence, "
    "are public",
    "every document is given once: a document that is given twice costs twice as much",
    "replacing a token by another word costs twice epsilon, and a document of n tokens "
    "n times epsilon if they are blanked, 2 n times if they are replaced",
)


class IFTMParty(PrivateEstimator, BaseLDA):
    """A party of federated topic modeling [1]_, with token-level differential privacy.

    The sound form of the party's algorithms. Every token becomes a one-hot vector over
    the vocabulary, whose bits are randomized once. The Metropolis-Hastings sampler
    reads the noisy vectors only: any number of sweeps and rounds is post-processing.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics. Parties may have different numbers.
    token_epsilon : float
        Epsilon of one token that is blanked, from 4e-7 to 11.33; must be given. ``inf``
        trains without noise and without privacy.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, up to 0.001. Choose it well
        below 1 / n_tokens.
    max_doc_tokens : int or None, default=None
        Largest number of tokens of a document that are used, chosen at random. It
        bounds the cost of a whole document (`document_epsilon_`). None uses all tokens.
    max_iter : int, default=50
        Number of sweeps of `fit`, and of each `refine`.
    doc_topic_prior, topic_word_prior, ledger, n_jobs, random_state, verbose : optional
        As in :class:`dplda.SubLDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Pseudo-counts of words in topics, computed from noisy vectors; not normalized.
        After `refine` it has as many rows as the given table.
    epsilon_, delta_ : float
        Privacy cost of one token that is blanked, at `delta`.
    privacy_
    token_epsilon_ : float
        Pure epsilon (delta = 0) of one token that is blanked.
    document_epsilon_ : float
        Pure epsilon of a document whose `max_doc_tokens` tokens are all blanked;
        infinite without that bound.
    topic_evidence_, weak_topics_ : ndarray of shape (n_components,)
        Which topics to read, as in :class:`dplda.SubLDA`: the noisy vectors of one
        document in ten do not train, and test. NaN and all weak for a party of fewer
        than 200 documents, or of one topic.
    n_iter_ : int
        Number of sweeps so far.
    n_features_in_

    Warns
    -----
    LowSignalWarning
        In `fit`, if most topics are weak.
    SeededNoiseWarning
        In `fit`, if the noise comes from a given `random_state`.

    Notes
    -----
    **Privacy.** Unit: token. Relation: one token is blanked, its position stays.
    Replacing a token costs two such events, and a document of n tokens costs n or 2 n
    of them: an epsilon of 8 to 11 for a token, as in [1]_, is a weak guarantee.
    Sensitivity: 1 in one coordinate. Event: ``RandomizedResponseEvent`` of
    `token_epsilon`. A fitted party holds the noisy vectors and no words. The proofs are
    in ``docs/proofs_local.md``.

    References
    ----------
    .. [1] D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021;
       section 3.1, Algorithms 1 and 2.

    Examples
    --------
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.federated import IFTMParty
    >>> X = make_topic_corpus(200, 30, 3, random_state=0).data
    >>> party = IFTMParty(3, token_epsilon=6.0, max_iter=10, max_doc_tokens=50)
    >>> party = party.fit(X)
    >>> round(party.token_epsilon_, 2), round(party.document_epsilon_, 1)
    (6.0, 300.0)
    """

    _tokens: Tokens
    _has_answered: bool

    _attack = "token"
    _promise = Promise(
        unit="token",
        relation=TOKEN_RELATION,
        mechanism="noise on every token",
        theorem="docs/proofs_local.md",
        trusted=TRUSTED_PARTY,
    )
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "token_epsilon": BIT_EPSILON,
        "delta": PRIVACY_CONSTRAINTS["delta"],
        "max_doc_tokens": [None, Interval(Integral, 1, None, closed="left")],
        "ledger": PRIVACY_CONSTRAINTS["ledger"],
    }

    def __init__(
        self,
        n_components=10,
        *,
        token_epsilon=None,
        delta=1e-6,
        max_doc_tokens=None,
        max_iter=50,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, documents: Any = None) -> IFTMParty:
        """Privatize the party's documents; sweep `max_iter` times over noisy vectors.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_words)
            Word counts of documents, or of sentences. The columns are public.
        y : Ignored
            Ignored.
        documents : array-like of shape (n_rows,), default=None
            The document of each sentence, if the rows are sentences; those of one
            document are neighbors. All words of a sentence then share one topic
            (SentenceLDA, Algorithm 2); in the first half of the sweeps each word has
            its own. None takes each row as a document, and gives each word a topic
            (LDA, Algorithm 1).

        Returns
        -------
        self : object
            The fitted party.

        Raises
        ------
        BudgetError
            If the budget of the ledger is too small. No data have been read then.
        ValueError
            If `token_epsilon` is missing, or if `documents` has not one value for each
            row, or comes back to a document. Nothing is charged then.
        """
        if self.token_epsilon is None:
            raise ValueError(
                "IFTMParty needs token_epsilon, the epsilon of one token (for instance "
                "8.0); inf for no privacy"
            )
        epsilon = float(self.token_epsilon)
        bits = None if epsilon == math.inf else RandomizedBits.for_epsilon(epsilon)
        streams = Streams.from_random_state(self.random_state)  # secret
        warn_if_seeded("IFTMParty", streams.seeded and bits is not None)
        # of one coordinate
        events = (NonPrivate(),) if bits is None else bits.events(1, 1)
        plan = [(NOISY_TOKENS, event) for event in events]  # public
        checked = copy.copy(self)  # gets the columns of X; `self`, with the tokens
        # parties of one process have different documents: their budgets do not add up
        with Charge(
            plan,
            label=type(self).__name__,
            unit="token",
            ledger=self.ledger,
            seeded=streams.seeded,
        ) as charge:
            counts = check_counts(checked, X, reset=True)  # private
            # in the order of the columns, one changed word would move the tokens of
            # other words
            rows = Corpus.from_counts(counts).shuffled(streams, 0)  # private
            first_rows = _first_rows(documents, len(counts.indptr) - 1)
            corpus = Corpus(
                rows.word, rows.doc_ptr[first_rows], rows.n_words
            )  # private
            corpus, kept = _kept(corpus, self.max_doc_tokens, streams)  # private
            check_size(corpus, bits)  # public: the number of tokens
            sentence_ptr = np.unique(kept[rows.doc_ptr])  # public: no sentence is empty
            table = self._random_topics(rows.n_words, streams)  # public
            guarantee = self._guarantee(bits, rows.n_words, streams.seeded, charge)
            charge.begin()
            # One blanked token changes one coordinate of one one-hot vector by 1,
            # because the positions of all tokens depend on lengths and coins only. Each
            # coordinate of each token has noise for that sensitivity, so a token costs
            # the event of one coordinate.
            tokens = Curator(charge, streams).publish(
                partial(privatize, corpus, bits, streams),
                events,
                label=NOISY_TOKENS,
                round=0,
            )  # public
            del corpus, rows, counts, X  # everything below is post-processing
            table = tokens.word_weights() * table
            # whatever ends the sweeps, `refine` can go on from these
            untested = np.full(len(table), np.nan)
            take_columns(self, checked)
            self._publish(guarantee, table, 0, tokens, untested)
            n_split = 0
            if documents is not None:
                # while topics are random, whole sentences hardly change their topic
                n_split = self.max_iter // 2
                if n_split:
                    with interruptible():
                        table = self._learn(
                            that_train(tokens), table, streams, range(1, n_split + 1)
                        )
                tokens = replace(tokens, unit_ptr=sentence_ptr)
            sweeps = range(n_split + 1, self.max_iter + 1)
            with interruptible():
                table = self._learn(that_train(tokens), table, streams, sweeps)
            evidence = evidence_of_reports(that_test(tokens), table)
            self._publish(guarantee, table, self.max_iter, tokens, evidence)
        warn_if_weak(self)
        return self

    def _guarantee(
        self, bits: RandomizedBits | None, n_words: int, seeded: bool, charge: Charge
    ) -> Guarantee:
        """The cost of a blanked token."""
        mechanism = "the words themselves, without noise"
        if bits is not None:
            mechanism = (
                f"randomized response on each of the {n_words} bits of each token's "
                "one-hot vector (a bit is reported wrongly with probability "
                f"{bits.probability:.3g}), once"
            )
        return make_guarantee(
            charge.events,
            promise=self._promise,
            charge=charge,
            delta=self.delta,
            unit="token",
            relation=TOKEN_RELATION,
            mechanism=mechanism,
            sensitivity=math.inf if bits is None else 1.0,
            noise_scale=0.0 if bits is None else None,
            seeded=seeded,
            assumptions=(*TOKEN_ASSUMPTIONS, DISTINCT),
        )

    def _random_topics(self, n_words: int, streams: Streams) -> np.ndarray:
        """Exponential weights of words in topics; weights of words multiply them."""
        n_components = int(self.n_components)
        reader = streams.reader(Purpose.INITIAL_TABLE, 0)
        words = reader.words(n_components * n_words)
        return -np.log(uniform(words, positive=True)).reshape(n_components, -1)

    def _publish(
        self,
        guarantee: Guarantee,
        table: np.ndarray,
        n_iter: int,
        tokens: Tokens,
        evidence: np.ndarray,
    ) -> None:
        """Set the fitted attributes, all public."""
        epsilon = epsilon_of(guarantee.events, 0.0)
        publish(
            self,
            guarantee,
            components_=table,
            n_iter_=n_iter,
            token_epsilon_=epsilon,
            document_epsilon_=epsilon * (self.max_doc_tokens or math.inf),
            topic_evidence_=evidence,
            weak_topics_=~shown(evidence),
            _tokens=tokens,
            _has_answered=False,  # a message of this fit was made
        )

    @_fit_context(prefer_skip_nested_validation=True)
    def refine(self, table: Any) -> IFTMParty:
        """Run `max_iter` more sweeps, from the master's table of topics.

        Parameters
        ----------
        table : array-like of shape (n_topics, n_features_in_)
            Words in topics, as probabilities or weights. The number of topics may have
            changed.

        Returns
        -------
        self : object
            The refined party.

        Notes
        -----
        **Privacy.** If `table` depends on the documents through releases only, this is
        post-processing of the noisy vectors of `fit`: no document is read, and
        `epsilon_` does not change.
        """
        check_is_fitted(self)
        table = check_topics(table, n_words=self.components_.shape[1])  # public
        streams = Streams.from_random_state(self.random_state)
        n_iter = self.n_iter_ + self.max_iter
        sweeps = range(self.n_iter_ + 1, n_iter + 1)
        tokens = self._tokens
        components = self._learn(that_train(tokens), table, streams, sweeps)  # public
        evidence = evidence_of_reports(that_test(tokens), components)  # public
        publish(
            self,
            self.privacy_,
            components_=components,
            n_iter_=n_iter,
            topic_evidence_=evidence,
            weak_topics_=~shown(evidence),
        )
        return self

    def _note_answer(self) -> None:
        """Note that a message of this fit is made."""
        self._has_answered = True

    def _learn(
        self, tokens: Tokens, table: np.ndarray, streams: Streams, sweeps: range
    ) -> np.ndarray:
        """Pseudo-counts of words in topics, by sweeps of these numbers.

        The sweeps are over noisy vectors.
        """
        beta = float(self.topic_word_prior)
        n_averaged = last_quarter(self.max_iter)
        topics = np.full(tokens.n_units, -1, np.int32)
        word_prior = tokens.word_weights()
        last: list[np.ndarray] = []
        for t in rounds(self, sweeps[0], sweeps[-1]):
            counts = sweep_tokens(
                tokens,
                topics,
                table,
                word_prior,
                doc_topic_prior=float(self.doc_topic_prior),
                streams=streams,
                t=t,
                n_jobs=self.n_jobs,
            )
            table = np.add(counts, beta, dtype=np.float64)  # of the next sweep
            last = [*last, counts][-n_averaged:]
        return np.mean(last, axis=0) + beta


def _kept_out(tokens: Tokens) -> np.ndarray:
    """Mask of the documents that test; none do if there are too few."""
    n_docs = len(tokens.doc_ptr) - 1
    return is_kept_out(n_docs) & (n_docs >= FEWEST_TESTS * KEPT_OUT)


def that_train(tokens: Tokens) -> Tokens:
    """The tokens that train."""
    return tokens.of_documents(~_kept_out(tokens))


def that_test(tokens: Tokens) -> Tokens:
    """The tokens that test the topics."""
    return tokens.of_documents(_kept_out(tokens))


def _first_rows(documents: Any, n_rows: int) -> np.ndarray:
    """The first row of each document, and the row count; None: a row is a document."""
    if documents is None:
        return np.arange(n_rows + 1)
    documents = column_or_1d(documents)
    starts = np.flatnonzero(documents[1:] != documents[:-1]) + 1
    found = ""
    if len(documents) != n_rows:
        found = "more values than rows" if len(documents) > n_rows else "fewer values"
    elif len(starts) + 1 != len(np.unique(documents)):
        found = "rows of one document apart from each other"
    if found:
        raise ValueError(
            "documents must name the document of each row, and the rows of one "
            f"document must be neighbors, got {found}; sort rows and values by document"
        )
    return np.concatenate([[0], starts, [n_rows]])


def _kept(
    corpus: Corpus, max_doc_tokens: int | None, streams: Streams
) -> tuple[Corpus, np.ndarray]:
    """At most `max_doc_tokens` tokens of each document.

    They are chosen by keys that do not depend on words.

    Also returns where the tokens of each document begin, and their total number.
    """
    largest = corpus.n_tokens if max_doc_tokens is None else int(max_doc_tokens)
    keeps = keep_at_most(largest, corpus.doc_ptr, streams, Purpose.KEPT_TOKENS)
    n_before = np.concatenate([[0], np.cumsum(keeps)])
    return Corpus(
        corpus.word[keeps], n_before[corpus.doc_ptr], corpus.n_words
    ), n_before
