"""A party of federated topic modeling: trains on its own documents, and shows its topics."""

from __future__ import annotations

import dataclasses
import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dplda._base import BaseLDA
from dplda._compat import Interval, StrOptions, _fit_context
from dplda._corpus import Corpus, check_counts, check_table
from dplda._fold_in import MAX_STEPS, TOLERANCE, pad, uniform_theta, update_theta
from dplda._private_fit import (
    PRIVACY_CONSTRAINTS,
    make_guarantee,
    publish,
    warn_if_seeded,
)
from dplda._progress import rounds
from dplda.central._centered_release import Released
from dplda.central._document_rounds import Recipe, rate_of_later_rounds
from dplda.central._document_rounds import train as train_documents
from dplda.federated._messages import LocalModel
from dplda.federated._sampler import random_table, train, word_weights
from dplda.federated._sentences import SentenceCorpus
from dplda.federated._tokens import TokenMechanism, Tokens, check_size, privatize
from dplda.privacy import Event, Guarantee, NonPrivate, Repeated, epsilon_of
from dplda.privacy._observation import announce
from dplda.privacy._streams import Purpose, Streams
from dplda.privacy.mechanisms import Curator

AVERAGED = 5  # the last fifth of the sweeps is averaged
NOISY_TOKENS = "noisy tokens"
TOKEN_RELATION = "one token is blanked, its position stays"
TOKEN_ASSUMPTIONS = (
    "the numbers of documents, of their tokens and, with sentences, of the tokens of each sentence "
    "are public",
    "every document is given once: twice given, it costs twice as much",
    "replacing a token by another word costs twice epsilon, and a document of n tokens n times "
    "epsilon if they are blanked, 2 n times if they are replaced",
)


class IFTMParty(BaseLDA):
    """A party of federated topic modeling [1]_, with differential privacy for each of its tokens.

    The sound form of the party's algorithms. Every token becomes a noisy one-hot vector over the
    vocabulary, once; its word is not read again. A Metropolis-Hastings sampler, its proposals and
    its counts work with the noisy vectors only, so that any number of sweeps, local and global,
    costs nothing more, and the topics may be shown to anybody. With ``privacy_unit="document"`` the
    party is a trusted curator of its own documents instead, and trains like `SubLDA`.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics. Parties need not have the same.
    model : {"lda", "sentence_lda"}, default="lda"
        In "sentence_lda" all words of a sentence have the same topic; it takes a `SentenceCorpus`.
        `fit` begins with words by themselves, for half of its sweeps.
    epsilon : float or None, default=None
        Epsilon of one token, up to 11.3 with "rr" and 100 with "laplace"; with
        ``privacy_unit="document"`` the total epsilon of `fit`. ``inf`` trains without noise and
        without privacy.
    token_mechanism : {"rr", "laplace"}, default="rr"
        "rr": randomized response on each bit of the one-hot vector. "laplace": the paper's; Laplace
        noise, of which values above `noise_threshold` are used. It has the same guarantee,
        and is slower and less accurate.
    noise_threshold : float, default=0.2
        Above 0 and below 1 (tau in [1]_), and at most 10.6 / epsilon, in steps of 1/1024; only for
        "laplace". Near 1 - 1 / epsilon nearly as accurate as without, and much faster.
    privacy_unit : {"token", "document"}, default="token"
        What `epsilon` protects.
    delta : float, default=1e-6
        Probability, in (0, 1), with which the bound epsilon may fail.
    max_doc_tokens : int or None, default=None
        Tokens of a document that are used, chosen at random; bounds what a whole document costs
        (`document_epsilon_`). None uses all. Only for ``privacy_unit="token"``.
    max_iter : int, default=50
        Sweeps (rounds, with documents) of `fit`, and of each `refine`.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics (alpha).
    topic_word_prior : float, default=0.01
        Dirichlet parameter of a topic's words (beta).
    ledger : Ledger, str, path-like or None, default=None
        Where to charge, with a budget over many fits. A path names an SQLite file, which also
        counts fits of other processes.
    n_jobs : int or None, default=None
        Threads. Never changes a result.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. Anything else makes the fit reproducible, and the
        guarantee void towards those who know it (`SeededNoiseWarning`).
    verbose : int, default=0
        Progress: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Pseudo-counts of words in topics, from noisy vectors; not normalized. After `refine` it has
        as many rows as the table that was given.
    epsilon_, delta_ : float
        What a token, or with documents a document, has cost so far.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions; `print` it.
    token_epsilon_ : float
        Pure epsilon (delta = 0) of a token that is blanked; NaN with documents.
    document_epsilon_ : float
        Pure epsilon of a document of which all `max_doc_tokens` tokens are blanked; infinite
        without that bound. NaN with documents. `document_epsilon` gives others.
    n_iter_ : int
        Sweeps or rounds run.
    n_features_in_ : int
        Size of the vocabulary.

    Notes
    -----
    **Privacy.** Unit: token. Relation: blanked, its position stays; replaced by another word: two
    of these events; a document of n tokens: n, or 2 n of them (`document_epsilon`). Sensitivity:
    one coordinate by 1. Event: ``RandomizedResponse`` of epsilon, or ``Laplace(1 / epsilon)``. With
    documents: as `SubLDA`. Parties with different documents compose in parallel: together they cost
    what the dearest one costs. The proofs are in ``docs/federated_party.md``.

    An epsilon of 8 to 11 a token, as in [1]_, is a weak promise: a document of 100 tokens costs 800
    and more.

    In memory a party with "laplace" holds the key of its noise beside one coordinate a token; both
    together tell the words. A pickle holds the noisy vectors instead: some kilobytes a token
    where the threshold is low.

    See Also
    --------
    IFTMMaster : Merges the topics of the parties.
    SubLDA : Document-level privacy.

    References
    ----------
    .. [1] D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021; section
       3.1, Algorithms 1 and 2.

    Examples
    --------
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.federated import IFTMParty
    >>> X = make_topic_corpus(n_docs=200, n_words=30, n_components=3, random_state=0).data
    >>> party = IFTMParty(n_components=3, epsilon=6.0, max_iter=10, max_doc_tokens=50).fit(X)
    >>> round(party.token_epsilon_, 2), round(party.document_epsilon_, 1)
    (6.0, 300.0)
    >>> party.refine(party.components_).components_.shape
    (3, 30)
    """

    _largest_cap: float  # of the calls so far: of how many tokens of a document were privatized

    _attack = "token"
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "model": [StrOptions({"lda", "sentence_lda"})],
        "epsilon": PRIVACY_CONSTRAINTS["epsilon"],
        "token_mechanism": [StrOptions({"rr", "laplace"})],
        "noise_threshold": [Interval(Real, 0, 1, closed="neither")],
        "privacy_unit": [StrOptions({"token", "document"})],
        "delta": PRIVACY_CONSTRAINTS["delta"],
        "max_doc_tokens": [None, Interval(Integral, 1, None, closed="left")],
        "ledger": PRIVACY_CONSTRAINTS["ledger"],
    }

    # constants of document-level training, SubLDA's defaults
    noise_multiplier = None
    contribution_norm = 6.0
    word_total_share = 0.25
    init_components = None

    def __init__(
        self,
        n_components=10,
        *,
        model="lda",
        epsilon=None,
        token_mechanism="rr",
        noise_threshold=0.2,
        privacy_unit="token",
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
        self.n_components = n_components
        self.model = model
        self.epsilon = epsilon
        self.token_mechanism = token_mechanism
        self.noise_threshold = noise_threshold
        self.privacy_unit = privacy_unit
        self.delta = delta
        self.max_doc_tokens = max_doc_tokens
        self.max_iter = max_iter
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.ledger = ledger
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> IFTMParty:
        """Privatize the party's documents and train on the result: `max_iter` sweeps.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words), or SentenceCorpus
            Word counts, or documents with sentences, which "sentence_lda" needs. The columns are
            public.
        y : Ignored

        Returns
        -------
        self : object

        Raises
        ------
        BudgetError
            When the ledger has too little left; nothing has then been read.
        """
        self._check_parameters()
        if self.privacy_unit == "document":
            return self._train_documents(X, n_rounds=self.max_iter, released=None)
        return self._train_tokens(X, batches=(), table=None)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> IFTMParty:
        """Take in further documents: `max_iter` more sweeps over all noisy vectors so far.

        The new tokens are privatized as in `fit`. They are other tokens than before, so a token
        still costs what it cost (parallel composition); the ledger, which cannot know that, adds
        up. With ``privacy_unit="document"`` it is one more private round, whose cost adds up.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words), or SentenceCorpus
            Documents that were not given before.
        y : Ignored

        Returns
        -------
        self : object
        """
        self._check_parameters()
        if not hasattr(self, "components_"):
            if self.privacy_unit == "document":
                return self._train_documents(X, n_rounds=1, released=None)
            return self._train_tokens(X, batches=(), table=None)
        fitted = (self.privacy_.unit, self._n_components)
        if fitted != (self.privacy_unit, self.n_components):
            raise ValueError(
                f"partial_fit goes on with privacy unit {fitted[0]!r} and n_components="
                f"{fitted[1]}, got {self.privacy_unit!r} and {self.n_components}; call fit to "
                "start again"
            )
        if self.privacy_unit == "document":
            return self._train_documents(X, n_rounds=1, released=self._released)
        return self._train_tokens(X, batches=self._batches, table=self.components_)

    @_fit_context(prefer_skip_nested_validation=True)
    def refine(self, table: Any, X: Any = None) -> IFTMParty:
        """Go on from another table of topics, as the master sends it: `max_iter` sweeps.

        Parameters
        ----------
        table : array-like of shape (n_topics, n_features_in_)
            Words in topics, as probabilities or weights. The number of topics may have changed.
        X : {array-like, sparse matrix} of shape (n_docs, n_words) or SentenceCorpus, default=None
            With ``privacy_unit="document"`` the documents again: they are not kept. With tokens
            nothing but the noisy vectors of `fit` is used.

        Returns
        -------
        self : object

        Raises
        ------
        BudgetError
            With documents, when the ledger has too little left; nothing has then been read.

        Notes
        -----
        **Privacy.** Tokens: post-processing, `epsilon_` stays, as long as `table` does not come
        from the party's documents in another way. Documents: `max_iter` private rounds more, which
        add up in `epsilon_` and the ledger.
        """
        check_is_fitted(self)
        self._check_parameters()
        table = check_table(table, "table")
        if (
            table.shape[1] != self.components_.shape[1]
            or table.min() < 0
            or not (table.any(axis=1).all())
        ):
            raise ValueError(
                f"table must have {self.components_.shape[1]} columns (words), no negative entry "
                f"and no empty row, got shape {table.shape}"
            )
        if self.privacy_.unit != self.privacy_unit:
            raise ValueError(
                f"refine goes on with privacy unit {self.privacy_.unit!r}, got "
                f"{self.privacy_unit!r}; call fit to start again"
            )
        if self.privacy_unit == "document":
            if X is None:
                raise ValueError(
                    "with privacy_unit='document' each refine reads the documents again, and "
                    "charges for it: pass them as X"
                )
            return self._train_documents(X, n_rounds=self.max_iter, released=self._restarted(table))
        if X is not None:
            raise ValueError(
                "with privacy_unit='token' refine uses the noisy vectors of fit and reads no "
                "documents: leave X out, or give new documents to partial_fit"
            )
        streams = Streams.from_random_state(self.random_state)
        self._sweep(
            self._batches,
            table,
            streams,
            self.privacy_,
            self._largest_cap,
            first=self.n_iter_ + 1,
        )
        return self

    def local_model(self, party: str, round: int, vocabulary: str) -> LocalModel:
        """The party's message to the master.

        Parameters
        ----------
        party : str
            Name of the party.
        round : int
            The round that it answers.
        vocabulary : str
            `vocabulary_hash` of the columns.

        Returns
        -------
        message : LocalModel
            The weight is the sum of `components_`: with tokens the public number of tokens, with
            documents a released estimate of it.
        """
        check_is_fitted(self)
        totals = self.components_.sum(axis=1, keepdims=True)
        return LocalModel(
            party=party,
            round=round,
            vocabulary=vocabulary,
            table=(self.components_ / totals).astype(np.float32),
            weight=float(totals.sum()),
            epsilon=float(self.epsilon_),
            delta=float(self.delta_),
            unit=self.privacy_.unit,
        )

    def document_epsilon(
        self, n_tokens: int, *, delta: float = 0.0, relation: str = "blanked"
    ) -> float:
        """What a document of `n_tokens` tokens costs, all of which change.

        Parameters
        ----------
        n_tokens : int
            At least 1.
        delta : float, default=0.0
            0 gives the pure epsilon, n or 2 n times `token_epsilon_`.
        relation : {"blanked", "replaced"}, default="blanked"
            What happens to each token; a replaced one moves two coordinates.

        Returns
        -------
        epsilon : float
        """
        check_is_fitted(self)
        if self.privacy_.unit != "token":
            raise ValueError("document_epsilon is for privacy_unit='token'; see epsilon_")
        if relation not in ("blanked", "replaced"):
            raise ValueError(f"relation must be 'blanked' or 'replaced', got {relation!r}")
        if n_tokens < 1:
            raise ValueError(f"n_tokens must be at least 1, got {n_tokens}")
        count = int(n_tokens) * (1 if relation == "blanked" else 2)
        events = [Repeated(event, count) for event in self.privacy_.events]
        distance = self.privacy_.total_variation if delta else 0.0
        return epsilon_of(events, delta, total_variation=distance)

    def transform(self, X: Any) -> np.ndarray:
        """Topic weights of documents, by fold-in.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words), or SentenceCorpus
            Documents. With "sentence_lda" each sentence of a SentenceCorpus has one topic; in word
            counts (``corpus.counts()``) each word has its own, which often gives better features.

        Returns
        -------
        theta : ndarray of shape (n_docs, n_topics)
            Rows sum to 1. A row depends on that document and on the model only; an empty document
            gets equal weights.

        Notes
        -----
        **Privacy.** A row is a function of that document's words: whoever sees it learns about that
        document.
        """
        if self.model == "lda" or not isinstance(X, SentenceCorpus):
            return super().transform(X)
        check_is_fitted(self)
        check_counts(self, X, reset=False)
        phi = self.components_ / self.components_.sum(axis=1, keepdims=True)
        return fold_in_sentences(X, phi, self.doc_topic_prior, self.n_jobs)

    def _check_parameters(self) -> None:
        if self.epsilon is None:
            raise ValueError(
                "IFTMParty needs epsilon: of one token (for instance 8.0), or with privacy_unit="
                "'document' the total of fit (for instance 4.0); inf for no privacy"
            )
        if self.privacy_unit == "document" and self.model != "lda":
            raise ValueError(
                "privacy_unit='document' trains model='lda' only; choose it, or privacy_unit="
                "'token' for sentences"
            )
        if self.privacy_unit == "document" and self.max_doc_tokens is not None:
            raise ValueError(
                "max_doc_tokens belongs to privacy_unit='token'; a document's contribution is "
                "bounded by itself: leave it None"
            )

    def _check_kind(self, X: Any) -> None:
        if self.model == "sentence_lda" and not isinstance(X, SentenceCorpus):
            raise ValueError(
                "model='sentence_lda' needs documents with sentence boundaries, a SentenceCorpus, "
                f"got {type(X).__name__}; make one of texts by SentenceVectorizer(vocabulary), or "
                "choose model='lda' for word counts"
            )

    def _train_tokens(
        self, X: Any, *, batches: tuple[Tokens, ...], table: np.ndarray | None
    ) -> IFTMParty:
        """Privatize, which is the only part that reads `X`, and learn."""
        mechanism = TokenMechanism.of(
            self.token_mechanism, float(self.epsilon), float(self.noise_threshold)
        )
        self._check_kind(X)
        earlier_events = self.privacy_.events if batches else ()
        kinds = {type(event) for event in (*earlier_events, *mechanism.events)} - {NonPrivate}
        if len(kinds) > 1:  # then neither is the dearer one at every delta
            raise ValueError(
                f"partial_fit goes on with the token_mechanism of fit, got {self.token_mechanism!r}"
                "; give the same, or call fit to start again"
            )
        streams = Streams.from_random_state(self.random_state)
        warn_if_seeded("IFTMParty", streams.seeded and self.epsilon != math.inf)
        plan = [(NOISY_TOKENS, event) for event in mechanism.events]
        name = type(self).__name__
        with Curator(plan, streams, label=name, unit="token", ledger=self.ledger) as curator:
            counts = check_counts(self, X, reset=not batches)
            corpus = self._units(X, counts, streams, batch=len(batches))
            check_size(corpus, mechanism)
            for label, event in plan:
                curator.account(event, label=label)
            tokens = privatize(corpus, mechanism, streams, batch=len(batches))
            announce(NOISY_TOKENS, len(batches), tokens.stored, mechanism)
        del corpus, counts, X
        earlier = self.privacy_ if batches else None
        guarantee = self._guarantee(mechanism, tokens.n_words, earlier, streams.seeded)
        cap = math.inf if self.max_doc_tokens is None else float(self.max_doc_tokens)
        if batches:
            cap = max(cap, self._largest_cap)
        n_split = 0
        if table is None:
            table = random_table(word_weights([tokens]), int(self.n_components), streams)
            n_split = int(self.max_iter) // 2 if self.model == "sentence_lda" else 0
        first = self.n_iter_ + 1 if batches else 1
        self._sweep(
            (*batches, tokens), table, streams, guarantee, cap, first=first, n_split=n_split
        )
        return self

    def _units(
        self, X: Any, counts: sp.csr_array, streams: Streams, *, batch: int
    ) -> SentenceCorpus:
        """The tokens to privatize, in an order that tells nothing of the words."""
        if isinstance(X, SentenceCorpus):
            corpus = X
        else:
            tokens = Corpus.from_counts(counts)
            keys = streams.words(Purpose.ORDER, batch, 0, 2 * tokens.n_tokens)
            tokens = tokens.shuffled(keys.reshape(2, -1))
            pointers = np.arange(tokens.n_tokens + 1)
            corpus = SentenceCorpus(tokens.word, pointers, tokens.doc_ptr, tokens.n_words)
        if self.max_doc_tokens is not None:
            corpus = corpus.keep(self._kept(corpus.token_ptr, streams, batch))
        return corpus.split() if self.model == "lda" else corpus

    def _kept(self, token_ptr: np.ndarray, streams: Streams, batch: int) -> np.ndarray:
        """At most `max_doc_tokens` tokens of each document, every choice equally likely."""
        keep = np.ones(token_ptr[-1], np.bool_)
        most = int(self.max_doc_tokens)
        for d in np.flatnonzero(np.diff(token_ptr) > most):
            first, last = token_ptr[d : d + 2]
            keys = streams.words(Purpose.KEPT_TOKENS, batch, int(d), int(last - first))
            keep[first + np.argpartition(keys, most)[most:]] = False
        return keep

    def _sweep(
        self,
        batches: tuple[Tokens, ...],
        table: np.ndarray,
        streams: Streams,
        guarantee: Guarantee,
        cap: float,
        *,
        first: int,
        n_split: int = 0,
    ) -> None:
        """Learn from noisy vectors, and publish."""
        last = first + self.max_iter - 1
        counts = train(
            batches,
            table,
            rounds(self, first, last),
            n_averaged=max(1, self.max_iter // AVERAGED),
            n_split=n_split,
            doc_topic_prior=float(self.doc_topic_prior),
            topic_word_prior=float(self.topic_word_prior),
            streams=streams,
            n_jobs=self.n_jobs,
        )
        epsilon = epsilon_of(guarantee.events, 0.0)
        publish(
            self,
            guarantee,
            components_=counts + self.topic_word_prior,
            n_iter_=last,
            token_epsilon_=epsilon,
            document_epsilon_=cap * epsilon,
            _largest_cap=cap,
            _batches=batches,
            _n_components=int(self.n_components),
            _released=None,
        )

    def _guarantee(
        self, mechanism: TokenMechanism, n_words: int, earlier: Guarantee | None, seeded: bool
    ) -> Guarantee:
        """Of all tokens so far: each was privatized once, so the dearest mechanism counts."""
        events: tuple[Event, ...] = mechanism.events
        if earlier is not None:
            if epsilon_of(earlier.events, 0.0) > epsilon_of(events, 0.0):
                events = earlier.events
            earlier = dataclasses.replace(earlier, events=())
        noise = mechanism.noise
        return make_guarantee(
            events,
            delta=self.delta,
            earlier=earlier,
            unit="token",
            relation=TOKEN_RELATION,
            mechanism=mechanism.describe(n_words),
            sensitivity=1.0 if noise is not None else math.inf,
            noise_scale=mechanism.scale,
            noise_multiplier=mechanism.scale,
            seeded=seeded,
            assumptions=TOKEN_ASSUMPTIONS,
        )

    def _train_documents(self, X: Any, *, n_rounds: int, released: Released | None) -> IFTMParty:
        """As a trusted curator of the documents; a given table is forgotten like a random one."""
        begin = 0 if released is None or released is self._released else released.n_rounds

        def rate(estimator: Any, t: int, exact: bool) -> float:
            return rate_of_later_rounds(estimator, t - begin, exact)

        recipe = Recipe(rate=rate)
        train_documents(self, X, n_rounds=n_rounds, released=released, recipe=recipe)
        self.token_epsilon_ = self.document_epsilon_ = math.nan
        self._batches: tuple[Tokens, ...] = ()
        self._n_components = int(self.n_components)
        return self

    def _restarted(self, table: np.ndarray) -> Released:
        """What was released so far, with other topics."""
        old = self._released
        unused = Streams.from_random_state(0)  # a given table needs no random numbers
        new = Released.start(old.totals, old.weight, len(table), unused, table)
        new.n_rounds, new.norms = old.n_rounds, old.norms
        return new


def fold_in_sentences(
    corpus: SentenceCorpus, phi: np.ndarray, doc_topic_prior: float, n_jobs: int | None
) -> np.ndarray:
    """Topic weights of documents whose sentences have one topic each.

    A sentence is like a word whose probability in a topic is the product of those of its words.

    Parameters
    ----------
    corpus : SentenceCorpus
    phi : ndarray of shape (n_components, n_words)
        Positive; rows sum to 1.
    doc_topic_prior : float
    n_jobs : int or None

    Returns
    -------
    theta : ndarray of shape (n_docs, n_components)
    """
    n_components = len(phi)
    log_likelihood = corpus.sentence_counts() @ np.log(phi).T
    if len(log_likelihood):
        log_likelihood -= log_likelihood.max(axis=1, keepdims=True)
    likelihood = pad(np.exp(log_likelihood))
    n_sentences = len(likelihood)
    documents = sp.csr_array(
        (
            np.ones(n_sentences, np.float32),
            np.arange(n_sentences, dtype=np.int32),
            corpus.document_ptr.astype(np.int32),
        ),
        shape=(len(corpus), max(1, n_sentences)),
    )
    theta = uniform_theta(len(corpus), n_components, likelihood.shape[1])
    update_theta(
        documents, theta, likelihood, np.arange(len(corpus)),
        n_components=n_components, doc_topic_prior=doc_topic_prior,
        max_steps=MAX_STEPS, tolerance=TOLERANCE, n_jobs=n_jobs,
    )  # fmt: skip
    theta = theta[:, :n_components].astype(np.float64)
    return theta / theta.sum(axis=1, keepdims=True)
