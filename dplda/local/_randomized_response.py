"""The client's side of local privacy: owners randomize their documents.

This module imports nothing of the server. docs/proofs_local.md has the proofs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import lru_cache, partial
from numbers import Integral, Real
from os import PathLike

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import Matrix, check_counts, keep_at_most, take_columns
from dplda.core._fit_guarantee import COLUMNS, make_guarantee, publish
from dplda.core._private_estimator import (
    BIT_EPSILON,
    PRIVACY_CONSTRAINTS,
    TRUSTED_OWNER,
    Interval,
    PrivateEstimator,
    Promise,
)
from dplda.core._private_fit import exactly_one, warn_if_nominal, warn_if_seeded
from dplda.leaf._checks import LARGEST_DELTA
from dplda.leaf._compat import _fit_context
from dplda.privacy import Ledger, NonPrivate, epsilon_of
from dplda.privacy._charge import TOTAL_VARIATION, Charge
from dplda.privacy._curator import Curator
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import MAX_FLIP, MIN_FLIP, RandomizedBits
from dplda.privacy._streams import Purpose, Streams

BUDGETS = ("epsilon", "bit_epsilon")  # exactly one of them is given
MAX_FLIPS = 2**28  # expected false ones of a call: reports of 3 GB

ASSUMPTIONS = (
    COLUMNS,
    "each document is reported once: r reports of a document are r times these events",
    "AES-256 with a secret random key cannot be told from random bits",
)


# reports are sparse, which no data frame is made of: no set_output
class RandomizedResponse(
    PrivateEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,
):
    """Local differential privacy for documents: randomized response on word presence.

    The client's side of LP-LDA and OLP-LDA [1]_. A document becomes one bit for each
    word of the vocabulary (1 if the document contains it), and each bit is reported
    wrongly with a known probability. Only the owner of a document is trusted with it.
    Everything computed from the reports has the same guarantee.

    Parameters
    ----------
    epsilon : float or None, default=None
        Total epsilon of one report of a document, at `delta`: bits are flipped as
        rarely as it allows. ``inf`` reports the true bits, without privacy. Give
        exactly one of `epsilon` and `bit_epsilon`.
    bit_epsilon : float or None, default=None
        Epsilon of one bit, from 4e-7 to 11.33: a bit is reported wrongly with
        probability ``1 / (1 + exp(bit_epsilon))``. Replacing one word by another costs
        twice `bit_epsilon`. In [1]_, a fair coin replaces a bit with probability f;
        this is a `bit_epsilon` of ``log(2 / f - 1)``.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, up to 0.001. Choose it well
        below 1 / n_docs. 0 means pure epsilon.
    max_doc_words : int or None, default=100
        Largest number of distinct words of a document that enter a report. A longer
        document keeps this many, chosen uniformly at random. The pure epsilon of a
        document is proportional to it. None keeps all words.
    ledger : Ledger, str, path-like or None, default=None
        Ledger that each call of `transform` charges: a budget over many calls. A path
        names an SQLite file, which also counts calls of other processes.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a new secret key in each call of `transform`. Anything
        else makes the reports reproducible, and voids the guarantee against anyone who
        knows or guesses it; one report is enough to try guesses (`SeededNoiseWarning`).

    Attributes
    ----------
    epsilon_, delta_ : float
        Guarantee of one report of a document. `privacy_` states it in full.
    bit_epsilon_ : float
        Pure epsilon of one bit that is reported.
    word_epsilon_ : float
        Pure epsilon of one word more or less in a document. It is up to twice
        `bit_epsilon_`, because in a document that reaches `max_doc_words`, the word
        replaces another one.
    document_epsilon_ : float
        Pure epsilon (delta = 0) of a document.
    flip_probability_ : float
        Probability that a bit is reported wrongly.

    See Also
    --------
    MemoizedReports : Reports each document once.

    Notes
    -----
    **Privacy.** Unit: document (a row of `X`); `word_epsilon_` states the guarantee of
    a word. Relation: one document is replaced by any other. Trust: its owner only.
    Sensitivity: at most ``2 * max_doc_words`` bits differ, and never more than the
    number of columns; Theorem 4 of [1]_ charges all columns. Mechanism: randomized
    response on each bit. Events: one ``RandomizedResponseEvent`` for each bit that
    differs.

    References
    ----------
    .. [1] F. Zhao, X. Ren, S. Yang, Q. Han, P. Zhao, X. Yang, "Latent Dirichlet
       Allocation Model Training with Differential Privacy", IEEE TIFS 2020; section V,
       Theorem 4.

    Examples
    --------
    >>> from dplda import RandomizedResponse
    >>> from dplda.datasets import make_topic_corpus
    >>> X = make_topic_corpus(500, 30, 3, random_state=0).data
    >>> client = RandomizedResponse(epsilon=20.0, max_doc_words=10).fit(X)
    >>> reports = client.transform(X)
    >>> round(client.epsilon_, 2), round(client.bit_epsilon_, 2)
    (20.0, 1.0)
    """

    _attack = "report"
    _promise = Promise(
        unit="document",
        relation="one document is replaced by any other",
        mechanism="randomized response on the presence of each word",
        theorem="docs/proofs_local.md",
        trusted=TRUSTED_OWNER,
    )
    _parameter_constraints = {
        **PRIVACY_CONSTRAINTS,
        "bit_epsilon": BIT_EPSILON,
        "delta": [Interval(Real, 0, LARGEST_DELTA, closed="both")],
        "max_doc_words": [None, Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        epsilon=None,
        bit_epsilon=None,
        delta=1e-6,
        max_doc_words=100,
        ledger=None,
        random_state=None,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Matrix, y: object = None) -> RandomizedResponse:
        """Compute the flip probability and the privacy cost of a report.

        `X` is validated. Only its number of columns and their names are used.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts; columns are public.
        y : Ignored
            Ignored.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        exactly_one(
            type(self).__name__, **{name: getattr(self, name) for name in BUDGETS}
        )
        if self.epsilon is not None:
            warn_if_nominal(self.epsilon)
        checked = copy.copy(self)
        n_words = check_counts(checked, X, reset=True).shape[1]  # public
        max_ones = n_words
        if self.max_doc_words is not None:
            max_ones = min(int(self.max_doc_words), n_words)
        bits = self._bits_of(max_ones, n_words)
        # Replacing a document changes at most 2 * max_ones bits: max_ones words leave
        # and max_ones others come. No pair of documents differs in more than n_words
        # bits. Every bit has its own coins, so each bit that differs costs one
        # randomized response.
        flip = 0.0
        bit_epsilon = word_epsilon = math.inf
        events: tuple[Event, ...] = (NonPrivate(),)
        if bits is not None:
            flip = bits.probability
            bit_epsilon = bits.epsilon
            word_epsilon = bits.element_epsilon(max_ones, n_words)
            events = bits.events(max_ones, n_words)
        guarantee = make_guarantee(
            events,
            promise=self._promise,
            delta=self.delta,
            common=ASSUMPTIONS,
            unit="document",
            relation=self._promise.relation,
            mechanism=f"{self._promise.mechanism} of {n_words} (a bit is reported "
            f"wrongly with probability {flip:.4g})",
            sensitivity=min(2 * max_ones, n_words),
            noise_scale=None,
            seeded=self.random_state is not None,
        )
        take_columns(self, checked)
        publish(
            self,
            guarantee,
            bit_epsilon_=bit_epsilon,
            word_epsilon_=word_epsilon,
            document_epsilon_=epsilon_of(events, 0.0),
            flip_probability_=flip,
            _bits=bits,
            _law=(n_words, max_ones, flip),  # of a report, as far as a document decides
            _random_state=self.random_state,
        )
        return self

    def _bits_of(self, max_ones: int, n_words: int) -> RandomizedBits | None:
        """How the bits of a document are flipped; None without privacy."""
        if math.inf in (self.epsilon, self.bit_epsilon):
            return None
        if self.epsilon is None:
            return RandomizedBits.for_epsilon(float(self.bit_epsilon))
        return calibrated_bits(
            float(self.epsilon), float(self.delta), max_ones, n_words
        )

    def transform(self, X: Matrix) -> sp.csr_array:
        """Report each document, with fresh randomness.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_docs, n_words)
            Word counts. Every count above zero becomes 1.

        Returns
        -------
        reports : csr_array of shape (n_docs, n_words)
            Zeros and ones, in the floating-point type of `X` (float64 if it has none).
            A row depends only on the same row of `X` and on its number.

        Raises
        ------
        BudgetError
            If the budget of the ledger is too small. No data have been read then.
        ValueError
            If the reports would hold more than 2**28 false ones. Nothing is charged
            then.

        Notes
        -----
        **Privacy.** The reports may be published. Each call makes a new report, so two
        calls with the same document cost twice as much. `MemoizedReports` returns the
        first report again.
        """
        check_is_fitted(self)
        return self._report(lambda: check_counts(self, X, reset=False), self.ledger)

    def _report(
        self,
        read: Callable[[], sp.csr_array],
        ledger: Ledger | str | PathLike[str] | None,
        *,
        label: str | None = None,
    ) -> sp.csr_array:
        """Charge the ledger, then read the valid documents and report each."""
        streams = Streams.from_random_state(self._random_state)
        warn_if_seeded("RandomizedResponse", streams.seeded and self._bits is not None)
        plan = [("reports", event) for event in self.privacy_.events]  # public
        with Charge(
            plan,
            label=label or type(self).__name__,
            unit="document",
            ledger=ledger,
            seeded=streams.seeded,
        ) as charge:
            X = read()  # private
            n_words, max_ones, flip = self._law
            if X.shape[1] != n_words:  # a failed fit may have left another width
                raise ValueError(
                    f"X has {X.shape[1]} features, but RandomizedResponse is expecting "
                    f"{n_words} features as input"
                )
            n_flips = X.shape[0] * n_words * flip  # public: the shape
            if n_flips > MAX_FLIPS:
                raise ValueError(
                    f"reports of {X.shape[0]} documents with {n_words} columns would "
                    f"hold about {n_flips:.3g} false ones, and a call draws at most "
                    f"{MAX_FLIPS}; report fewer documents in a call, use a smaller "
                    "vocabulary, or raise epsilon"
                )
            charge.begin()
            return Curator(charge, streams).publish(
                partial(randomize, X, self._bits, max_ones, streams),
                charge.events,
                label="reports",
                round=0,
            )  # public

    def __sklearn_is_fitted__(self) -> bool:
        # a failed fit leaves n_features_in_ set
        return hasattr(self, "privacy_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@lru_cache(maxsize=256)
def calibrated_bits(
    epsilon: float, delta: float, max_ones: int, n_words: int
) -> RandomizedBits:
    """The smallest flip probability for which a report costs at most (epsilon, delta).

    The search halves a fixed interval of log-odds, the epsilon of a bit. So a larger
    `epsilon` never gets a larger flip probability, and client and server find the same
    number.
    """

    def cost(bits: RandomizedBits) -> float:
        events = bits.events(max_ones, n_words)
        return epsilon_of(events, delta, total_variation=TOTAL_VARIATION)

    best = RandomizedBits(MAX_FLIP)
    rarest = RandomizedBits(MIN_FLIP)
    least = cost(best)
    most = cost(rarest)
    if not least <= epsilon <= most:
        advice = "lower max_doc_words" if epsilon < least else "give inf for no privacy"
        raise ValueError(
            f"epsilon must be from about {least:.4g} to {most:.6g} at delta={delta:g} "
            f"with at most {max_ones} of {n_words} words in a document, got "
            f"{epsilon:g}; choose an epsilon in this range, or {advice}"
        )
    low = best.epsilon
    high = rarest.epsilon
    while not math.isclose(low, high):
        middle = math.sqrt(low * high)
        bits = RandomizedBits.for_epsilon(middle)
        if cost(bits) <= epsilon:
            low = middle
            best = bits
        else:
            high = middle
    return best


def randomize(
    X: sp.csr_array, bits: RandomizedBits | None, max_ones: int, streams: Streams
) -> sp.csr_array:
    """Reports (zeros and ones) of the documents of a validated count matrix.

    Every random number has the address of a row and a word. Without `bits`, the kept
    words are reported as they are.
    """
    # From here on a document has at most max_ones ones, as `RandomizedBits.events`
    # charges.
    keep = keep_at_most(max_ones, X.indptr, streams, Purpose.KEPT_WORDS)  # private
    indices = X.indices[keep]  # private
    n_kept = np.concatenate([[0], np.cumsum(keep, dtype=np.int32)])  # private
    indptr = n_kept[X.indptr]  # private
    if bits is not None:
        indptr, indices = bits.in_rows(indptr, indices, X.shape[1], streams)  # public
    ones = np.ones(len(indices), X.dtype)
    return sp.csr_array((ones, indices, indptr), shape=X.shape)
