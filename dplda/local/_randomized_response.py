"""The client's side of local privacy: documents are randomized before they leave their owner.

Nothing of the server is imported here. The proofs are in docs/local_privacy.md.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dplda._compat import Interval, StrOptions, _fit_context, _get_output_config
from dplda._corpus import check_counts
from dplda._private_fit import PRIVACY_CONSTRAINTS, publish
from dplda._warnings import warn_user
from dplda.privacy import Guarantee, NonPrivate, SeededNoiseWarning, epsilon_of
from dplda.privacy._curator import MAX_WORDS, TOTAL_VARIATION
from dplda.privacy._local_mechanisms import MAX_FLIP, MIN_FLIP
from dplda.privacy._streams import Purpose, Streams
from dplda.privacy.mechanisms import Curator, RandomizedBits

BLOCK_BITS = 2**20  # whole rows at a time; the number enters every seeded result

ASSUMPTIONS = (
    "the columns of X (the vocabulary) are public and were not chosen by looking at the data",
    "each document is reported once: r reports of a document are r times these events",
    "AES-256 with a secret random key cannot be told from random bits",
)


class RandomizedResponse(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Local differential privacy for documents: randomized response on the presence of each word.

    The client's side of LP-LDA and OLP-LDA [1]_. A document becomes one bit for each word of the
    vocabulary (there or not), and each bit is reported wrongly with a known probability. Nobody
    has to be trusted with the document: whatever is computed from the reports has their guarantee.

    Parameters
    ----------
    epsilon : float or None, default=None
        Epsilon of one bit, from 1e-6 to 11.3; with "oue", half the epsilon of a pair of bits, up to
        5.6. Replacing one word by another costs twice this with either mechanism. ``inf`` reports
        the bits as they are, without privacy. Give either this or `flip_mixture`.
    flip_mixture : float or None, default=None
        Probability, in (0, 1), that a bit is replaced by a fair coin, instead of `epsilon`, which
        it gives as ``log(2 / flip_mixture - 1)`` (f in [1]_). With ``mechanism="symmetric"`` only.
    max_doc_words : int or None, default=100
        Distinct words of a document that are kept, at random, before the response. The guarantee
        of a document is proportional to it. None keeps all; the cost is then that of all bits.
    mechanism : {"symmetric", "oue"}, default="symmetric"
        "symmetric" is the paper's: both values of a bit are reported wrongly with probability
        ``flip_mixture / 2``. "oue", optimized unary encoding [2]_, keeps a one with probability
        1/2 and turns a zero into a one with probability ``1 / (1 + exp(2 * epsilon))``: counts of
        rare words have less variance, a single bit may cost more than `epsilon` (`bit_epsilon_`).
    delta : float, default=1e-6
        Probability, in [0, 1), with which the bound `epsilon_` may fail.
    ledger : Ledger, str, path-like or None, default=None
        Where to charge each call of `transform`, with a budget over many calls. A path names an
        SQLite file, which also counts calls of other processes.
    random_state : int, RandomState instance or None, default=None
        None draws from a new secret key in each call of `transform`. Anything else makes the
        reports reproducible, and the guarantee void towards those who know it, or who see the
        reports of two calls: both have the same flips
        (`SeededNoiseWarning`).

    Attributes
    ----------
    bit_epsilon_ : float
        Pure epsilon of one bit: of one word more or less in a document.
    document_epsilon_ : float
        Pure epsilon (delta = 0) of a document.
    epsilon_, delta_ : float
        What one report of a document costs: many times the parameter `epsilon`, which is of a bit.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions; `print` it.
    one_probability_ : tuple of two floats
        Probability of a one in the report where the document has a zero, and where it has a one.
    flip_mixture_ : float or None
        The f of [1]_, 0 without privacy; None with "oue".
    n_features_in_ : int
        Size of the vocabulary.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`), and word (a bit) by `bit_epsilon_`. Relation: one
    document is replaced by any other; nobody but its owner is trusted. Sensitivity: the bits that
    differ, at most ``2 * max_doc_words``. Event: ``RandomizedResponse(flip_mixture)`` for each of
    them; with "oue", one of epsilon ``2 * epsilon`` for each pair of them. Theorem 4 of [1]_
    charges the whole vocabulary; the cap is what makes a document cheaper.

    **Every call of** `transform` **draws afresh.** Two reports of the same document cost twice as
    much; `MemoizedReports` gives out the same one again.

    See Also
    --------
    MemoizedReports : Reports each document once.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet Allocation Model
       Training with Differential Privacy", IEEE TIFS 2020; section V, Theorem 4.
    .. [2] T. Wang, J. Blocki, N. Li, S. Jha, "Locally Differentially Private Protocols for
       Frequency Estimation", USENIX Security 2017.

    Examples
    --------
    >>> from dplda import RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(n_docs=500, n_words=30, n_components=3, random_state=0).data
    >>> client = RandomizedResponse(flip_mixture=0.5, max_doc_words=10).fit(X)
    >>> reports = client.transform(X)
    >>> round(client.bit_epsilon_, 2), round(client.document_epsilon_, 2)
    (1.1, 21.97)
    """

    _attack = "report"
    _parameter_constraints = {
        "epsilon": PRIVACY_CONSTRAINTS["epsilon"],
        "flip_mixture": [None, Interval(Real, 0, 1, closed="neither")],
        "max_doc_words": [None, Interval(Integral, 1, None, closed="left")],
        "mechanism": [StrOptions({"symmetric", "oue"})],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "ledger": PRIVACY_CONSTRAINTS["ledger"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        epsilon=None,
        flip_mixture=None,
        max_doc_words=100,
        mechanism="symmetric",
        delta=1e-6,
        ledger=None,
        random_state=None,
    ):
        self.epsilon = epsilon
        self.flip_mixture = flip_mixture
        self.max_doc_words = max_doc_words
        self.mechanism = mechanism
        self.delta = delta
        self.ledger = ledger
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> RandomizedResponse:
        """Compute what a report costs. Of `X`, which is checked, only the columns are used.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; columns are public.
        y : Ignored

        Returns
        -------
        self : object
        """
        bits = self._bits_of_parameters()
        n_words = check_counts(self, X, reset=True).shape[1]
        max_ones = n_words if self.max_doc_words is None else min(int(self.max_doc_words), n_words)
        zero, one = (0.0, 1.0) if bits is None else bits.one_probability
        events = (NonPrivate(),) if bits is None else bits.events(max_ones, n_words)
        guarantee = Guarantee(
            unit="document",
            relation="one document is replaced by any other",
            epsilon=epsilon_of(events, self.delta, total_variation=TOTAL_VARIATION),
            delta=self.delta,
            mechanism=f"randomized response on the presence of each of {n_words} words (a word is "
            f"reported with probability {one:.4g} if it is there, {zero:.4g} if not)",
            sensitivity=min(2 * max_ones, n_words),
            noise_scale=None,
            noise_multiplier=None,
            seeded=self.random_state is not None,
            assumptions=ASSUMPTIONS,
            events=events,
            total_variation=TOTAL_VARIATION,
        )
        publish(
            self,
            guarantee,
            bit_epsilon_=math.inf if bits is None else bits.epsilon,
            document_epsilon_=epsilon_of(events, 0.0),
            one_probability_=(zero, one),
            flip_mixture_=None if bits is not None and bits.fair_ones else 2.0 * zero,
            _bits=bits,
            _n_words=n_words,
            _max_ones=max_ones,
            _random_state=self.random_state,
        )
        return self

    def _bits_of_parameters(self) -> RandomizedBits | None:
        """The mechanism, None without privacy."""
        given = [n for n in ("epsilon", "flip_mixture") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                "RandomizedResponse needs exactly one of epsilon or flip_mixture, got "
                f"{' and '.join(given) or 'neither'}; give epsilon (of one bit, for instance 2.0; "
                "inf for no privacy) and leave the other None"
            )
        oue = self.mechanism == "oue"
        if oue and self.epsilon is None:
            raise ValueError(
                "flip_mixture belongs to mechanism='symmetric'; give epsilon with mechanism='oue'"
            )
        if self.epsilon == math.inf:
            return None
        name, n_bits = given[0], 2 if oue else 1  # the flip has the epsilon of two bits, or of one
        if self.epsilon is None:
            flip, low, high = 0.5 * self.flip_mixture, 2.0 * MIN_FLIP, 2.0 * MAX_FLIP
        else:
            flip = 1.0 / (1.0 + math.exp(min(n_bits * float(self.epsilon), 700.0)))
            low, high = (math.log(1.0 / p - 1.0) / n_bits for p in (MAX_FLIP, MIN_FLIP))
        if not MIN_FLIP <= flip <= MAX_FLIP:
            raise ValueError(
                f"{name} must be from {low:.3g} to {high:.7g} with mechanism={self.mechanism!r}"
                f"{', or inf for no privacy' if name == 'epsilon' else ''}, got "
                f"{getattr(self, name)}"
            )
        return RandomizedBits(float(flip), fair_ones=oue)

    def transform(self, X: Any) -> sp.csr_array:
        """Report each document, with fresh randomness.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts. All that is not zero becomes 1.

        Returns
        -------
        reports : csr_array of shape (n_docs, n_words)
            Zeros and ones, in the floating-point type of `X` (float64 if it has none). A row
            depends on that row of `X` and on its number only.

        Raises
        ------
        BudgetError
            When the ledger has too little left; nothing has then been read.

        Notes
        -----
        **Privacy.** The reports may be published. Each call is one report more: what two calls
        say about the same document costs twice as much.
        """
        check_is_fitted(self)
        if _get_output_config("transform", self)["dense"] != "default":  # it would fail when paid
            raise ValueError(
                "reports are a sparse matrix, which set_output cannot turn into a data frame; use "
                "set_output(transform='default')"
            )
        return self._report(X, checked=False)

    def _report(self, X: Any, *, checked: bool) -> sp.csr_array:
        streams = Streams.from_random_state(self._random_state)
        if streams.seeded and self._bits is not None:
            warn_user(
                "RandomizedResponse draws from random_state: whoever knows the seed, or sees two "
                "calls with it, can take the noise out of the reports; leave random_state=None for "
                "reports of real documents",
                SeededNoiseWarning,
            )
        plan = [("reports", event) for event in self.privacy_.events]
        label = type(self).__name__
        with Curator(plan, streams, label=label, unit="document", ledger=self.ledger) as curator:
            if not checked:
                X = check_counts(self, X, reset=False)
            if X.shape[1] != self._n_words:  # a failed fit may have left another width behind
                raise ValueError(
                    f"X has {X.shape[1]} features, but RandomizedResponse is expecting "
                    f"{self._n_words} features as input"
                )
            for step, event in plan:
                curator.account(event, label=step)
            return randomize(X, self._bits, self._max_ones, streams)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "privacy_")  # a fit that failed leaves n_features_in_ behind

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def randomize(
    X: sp.csr_array, bits: RandomizedBits | None, max_ones: int, streams: Streams
) -> sp.csr_array:
    """Reports of the documents of a count matrix that was checked.

    Works on blocks of about `BLOCK_BITS` bits, each with streams of its own: memory is that of the
    result. Every draw has the address of a row and a word, so that rows do not share any.

    Parameters
    ----------
    X : csr_array of shape (n_docs, n_words)
        Without stored zeros, sorted.
    bits : RandomizedBits or None
        None: reported as they are.
    max_ones : int
        Words of a document that are kept.
    streams : Streams

    Returns
    -------
    reports : csr_array of shape (n_docs, n_words)
    """
    n_docs, n_words = X.shape
    kept = _keep_words(X, max_ones, streams)
    if bits is None:
        kept.data[:] = 1
        return kept
    block_rows = max(1, BLOCK_BITS // n_words)
    parts, lengths = [], []
    for block, first in enumerate(range(0, n_docs, block_rows)):
        ptr = kept.indptr[first : first + block_rows + 1]
        row_start = np.arange(len(ptr), dtype=np.int64) * n_words
        ones = np.repeat(row_start[:-1], np.diff(ptr)) + kept.indices[ptr[0] : ptr[-1]]
        flips = streams.reader(Purpose.BIT_FLIPS, 0, block)
        coins = streams.reader(Purpose.COINS, 0, block)
        reported = bits(ones, int(row_start[-1]), flips, coins)
        if streams.n_words > MAX_WORDS:
            raise RuntimeError(
                f"a call may draw at most {MAX_WORDS} random words; transform fewer rows at a time"
            )
        lengths.append(np.diff(np.searchsorted(reported, row_start)))
        parts.append((reported - np.repeat(row_start[:-1], lengths[-1])).astype(np.int32))
    indices = np.concatenate(parts)
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    if len(indices) < 2**31:
        indptr = indptr.astype(np.int32)
    return sp.csr_array((np.ones(len(indices), X.dtype), indices, indptr), shape=X.shape)


def _keep_words(X: sp.csr_array, max_ones: int, streams: Streams) -> sp.csr_array:
    """At most `max_ones` words of each row, every choice equally likely: those of smallest key."""
    keep = np.ones(len(X.indices), np.bool_)
    for row in np.flatnonzero(np.diff(X.indptr) > max_ones):
        start, end = X.indptr[row : row + 2]
        keys = streams.words(Purpose.KEPT_WORDS, 0, int(row), int(end - start))
        keep[start + np.argpartition(keys, max_ones)[max_ones:]] = False
    upto = np.concatenate([[0], np.cumsum(keep, dtype=np.int32)])
    return sp.csr_array((X.data[keep], X.indices[keep], upto[X.indptr]), shape=X.shape)
