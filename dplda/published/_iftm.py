"""The party of industrial federated topic modeling as published: not private."""

from __future__ import annotations

import math
from numbers import Real
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, logsumexp
from sklearn.utils.validation import check_is_fitted

from dplda.core._base import BaseLDA
from dplda.core._corpus import Corpus, check_table, check_topics
from dplda.core._private_estimator import Interval
from dplda.federated._tokens import Topics
from dplda.kernels import _published_iftm
from dplda.leaf._checks import LARGEST, check_number
from dplda.leaf._compat import _fit_context
from dplda.leaf._messages import rounds
from dplda.privacy._charge import TOO_MANY_WORDS
from dplda.privacy._curves import U
from dplda.privacy._mechanisms import BLOCK_BITS
from dplda.privacy._recorder import announce
from dplda.privacy._streams import (
    MAX_WORDS,
    Purpose,
    Streams,
    Words,
    uniform_integers,
)
from dplda.published._base import (
    COUNTS,
    Flaw,
    PublishedLDA,
    count_words,
    inside,
    laplace,
    noise_range,
)

# Noisy values above the threshold are rounded down to so many steps.
TOP = int(np.iinfo(np.uint16).max)
MAX_DIVISOR = 1000  # `recover_counts` tries smallest counts up to this one


class Vectors(NamedTuple):
    """The coordinates of noisy one-hot vectors above the threshold, token by token."""

    ptr: NDArray[np.int64]  # where those of each token begin, and their number
    word: NDArray[np.int32]
    level: NDArray[np.uint16]
    value: NDArray[np.float64]  # of each level


class Data(NamedTuple):
    """What `refine` needs. Private."""

    corpus: Corpus
    vectors: Vectors


class PublishedIFTMParty(PublishedLDA):
    """A party of iFTM as its paper prints it, Algorithm 1 of [1]_: not private.

    Laplace noise on the one-hot vector of each token enters only one factor of the
    sampler. The party sends exact counts of raw words.
    :class:`dplda.federated.IFTMParty` is the sound form; an `IFTMMaster` accepts the
    messages of both.

    Parameters
    ----------
    n_components
    published_epsilon : float
        Epsilon of one token by the count of [1]_, from 1e-9 to 1e9; must be given.
        Not a guarantee. The noise of a token has scale ``1 / published_epsilon``. [1]_
        uses 8 to 11. ``inf`` draws no noise.
    noise_threshold : float, default=0.2
        Noisy counts below this become 0 (tau in [1]_). Above 0 and below 1.
    max_iter : int, default=50
        Number of sweeps (local iterations) of `fit`, and of each `refine`.
    doc_topic_prior, topic_word_prior, n_jobs, random_state, verbose : optional
        As in :class:`dplda.GibbsLDA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Exact counts of words in topics (C^KW in [1]_), plus `topic_word_prior`. Not
        normalized. After `refine` it has as many rows as the given table.
    published_epsilon_ : float
        The claim of [1]_: `published_epsilon`, for one token, in any number of rounds.
    epsilon_, delta_ : float
        Infinity and 0: nothing is proved. `privacy_` says why.

    Notes
    -----
    **Privacy.** Unit: none; the paper means one token. Relation: one token is blanked,
    its position stays. Sensitivity: unbounded, because the topics of other tokens
    change with that token. Event: ``NonPrivate()``: a word that occurs once is in the
    message only if its token is present.

    This implementation reads [1]_ as follows:

    * Lines 11 to 23 also run in the first global iteration, where the paper sends
      random topics.
    * Line 22, a draw of Phi from the Dirichlet law (7), comes before each sweep,
      because the sweep needs it.
    * Lines 12 and 13 run as printed: both proposals, and the factors (17) and (20) in
      the acceptances, use the counts at the beginning of the sweep. The hats of (19)
      and (22) are live counts without the token. These steps do not leave the target
      (6) invariant.
    * P-hat in (19) and (22) is (8) with the noisy counts, without normalization. With
      many survivors, noisy coordinates above tau = 0.2, all tokens end in one topic.
    * (18) and (21) invert the ratio of the proposals. (19) and (22) are correct and are
      used.
    * Beta is added to the sent counts, because a topic without words cannot be
      normalized.

    Noisy counts above tau are rounded down to one of 65,536 steps up to the largest.

    References
    ----------
    .. [1] D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021;
       section 3.1, Algorithm 1.

    Examples
    --------
    >>> from dplda.published import PublishedIFTMParty
    >>> party = PublishedIFTMParty(n_components=3, published_epsilon=8.0, max_iter=5)
    """

    _flaw = Flaw(
        unit="token",
        relation="one token is blanked, its position stays",
        hole="raw words propose and weigh the topics, and the exact counts of words in "
        "topics are sent; dividing each topic by its sum is not encryption, because "
        "the smallest entry of a row gives its counts (recover_counts)",
        instead="dplda.federated.IFTMParty",
    )
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        "published_epsilon": noise_range(),
        "noise_threshold": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        n_components=10,
        *,
        published_epsilon=None,
        noise_threshold=0.2,
        max_iter=50,
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    def _train(self, X: sp.csr_array, streams: Streams) -> None:
        """First global iteration: noise, `max_iter` sweeps from random topics."""
        corpus = Corpus.from_counts(X)  # private
        if self.published_epsilon == math.inf:
            vectors = _exact_vectors(corpus)  # private
        else:
            self._flaw.warn(self)
            scale = 1 / float(self.published_epsilon)
            threshold = float(self.noise_threshold)
            # lines 2 to 6; private
            vectors = _noisy_vectors(corpus, scale, threshold, streams)
        n_components = int(self.n_components)
        bits = streams.reader(Purpose.FIRST_TOPICS, 1).words(corpus.n_tokens)  # secret
        topics = (inside(bits) * n_components).astype(np.int32)  # line 7; secret
        self._sweeps(Data(corpus, vectors), topics, n_components, streams, 1)

    @_fit_context(prefer_skip_nested_validation=True)
    def refine(self, table: ArrayLike) -> PublishedIFTMParty:
        """Run a later global iteration: `max_iter` sweeps from the master's table.

        Parameters
        ----------
        table : array-like of shape (n_topics, n_features_in_)
            Words in topics, as probabilities or weights.

        Returns
        -------
        self : PublishedIFTMParty
            The fitted estimator. A copy or a pickle of it holds no documents to refine.
        """
        check_is_fitted(self)
        if not hasattr(self, "_data"):
            raise ValueError(
                "this party was copied or unpickled, and copies hold no documents; "
                "call fit, or refine the original"
            )
        if self.published_epsilon != math.inf:
            self._flaw.warn(self)
        table = check_topics(table, n_words=self.components_.shape[1])
        streams = Streams.from_random_state(self.random_state)  # secret
        word = self._data.corpus.word  # private
        first = self.n_iter_ + 1
        bits = streams.reader(Purpose.FIRST_TOPICS, first).words(len(word))  # secret
        model = Topics.from_weights(table)  # line 9; public
        # the table is public, but this line reads each token's raw word
        topics = _draw_topics(model, word, bits)  # line 10; private
        self._sweeps(self._data, topics, len(table), streams, first)
        return self

    def _sweeps(
        self,
        data: Data,
        topics: NDArray[np.int32],
        n_components: int,
        streams: Streams,
        first: int,
    ) -> None:
        """Lines 11 to 24 of Algorithm 1; `topics` (n_tokens,) is changed in place."""
        corpus = data.corpus  # private
        alpha = float(self.doc_topic_prior)
        last = first + self.max_iter - 1
        weights = self._weights(corpus, topics, n_components)  # private
        for t in rounds(self, first, last):
            log_phi = _draw_log_phi(weights, streams, t)  # line 22; private
            omega = Topics.from_weights(weights)  # line 13; private
            reader = streams.reader(Purpose.PROPOSALS, t)
            bits = reader.words(4 * corpus.n_tokens).reshape(4, -1)  # secret
            # 12, 16
            by_doc = _propose_by_document(corpus, topics, n_components, alpha, bits[0])
            by_word = _draw_topics(omega, corpus.word, bits[1])  # line 18; private
            log_uniform = np.log(inside(bits[2:]))  # secret
            # the vectors are the only noisy arguments
            _published_iftm.accept_topics(  # private
                corpus.doc_ptr,
                0,
                corpus.n_tokens,
                corpus.word,
                topics,
                topics.copy(),
                by_doc,
                by_word,
                log_uniform,
                *data.vectors,
                log_phi,
                omega.phi,
                alpha,
                *np.empty((2, n_components), np.int32),
            )
            weights = self._weights(corpus, topics, n_components)  # private
        # The paper's release: exact counts. One token changes at least one of them by
        # 1, and more through the topics of other tokens; there is no noise, so no
        # epsilon is finite.
        announce(COUNTS, last, weights)  # public
        scale = 1 / float(self.published_epsilon)
        self._publish(  # public
            streams,
            f"exact word-topic counts, and Laplace noise of scale {scale:.4g} on each "
            "token's one-hot vector",
            scale,
            weights,  # line 24
            n_iter_=last,
            published_epsilon_=float(self.published_epsilon),
            _data=data,
        )

    def _weights(
        self, corpus: Corpus, topics: NDArray[np.int32], n_components: int
    ) -> NDArray[np.float64]:
        """C^KW + beta: tokens of each raw word in topics, (n_components, n_words)."""
        counts = count_words(corpus, topics, n_components)
        return np.ascontiguousarray(counts.T) + float(self.topic_word_prior)

    def __getstate__(self) -> dict[str, object]:
        """State without the raw tokens of `refine`: pickles are often shared."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_data"}


def recover_counts(
    sent_model: ArrayLike, *, topic_word_prior: float = 0.0
) -> NDArray[np.int64]:
    """Compute counts of words in topics from a model normalized topic by topic.

    This is the attack on section 3.1.5 of iFTM (Jiang et al., ACM TIST 12(1), 2021). A
    row is (counts + beta) / S. Its smallest entry gives S, because it belongs to a word
    with count 0 (without beta, with count 1). If this gives no whole numbers, the next
    count is tried for that entry.

    Parameters
    ----------
    sent_model : array-like of shape (n_components, n_words)
        The model as the master receives it, float32 or float64.
    topic_word_prior : float, default=0.0
        The beta that was added to the counts. It is public.

    Returns
    -------
    counts : ndarray of shape (n_components, n_words), int64
        The counts; without beta, the counts divided by their greatest common divisor. A
        row of -1 if no whole numbers fit to within rounding.

    Examples
    --------
    >>> from dplda.published import recover_counts
    >>> recover_counts([[0.5, 0.25, 0.25, 0.0]])
    array([[2, 1, 1, 0]])
    """
    table = check_table(sent_model, "sent_model")
    beta = check_number("topic_word_prior", topic_word_prior, 0.0, LARGEST)
    if table.min() < 0 or not table.any(axis=1).all():
        raise ValueError("sent_model must have no negative entry and no empty row")
    is_single = getattr(sent_model, "dtype", None) == np.float32
    rounding = 4 * float(np.finfo(np.float32 if is_single else np.float64).eps)
    return np.array([_recover_row(row, beta, rounding) for row in table])


def _recover_row(
    row: NDArray[np.float64], beta: float, rounding: float
) -> NDArray[np.int64]:
    """Counts of one topic, (n_words,), or -1 where no whole numbers fit."""
    smallest = row[row > 0].min()
    if row.max() * U > smallest:  # no whole numbers, and no fractions, above 1 / U
        return np.full(len(row), -1)
    for count in range(0 if beta else 1, MAX_DIVISOR + 1):
        weights = row / smallest * (count + beta)
        whole = np.rint(weights - beta)
        error = np.abs(weights - beta - whole)
        fits = error <= np.minimum(rounding * weights, 0.1)
        if weights.max() * U < 1.0 and fits.all():
            return whole.astype(np.int64)
    return np.full(len(row), -1)


def _exact_vectors(corpus: Corpus) -> Vectors:
    """The one-hot vector of each token."""
    ptr = np.arange(corpus.n_tokens + 1)
    level = np.zeros(corpus.n_tokens, np.uint16)
    return Vectors(ptr, corpus.word, level, np.ones(1))


def _noisy_vectors(
    corpus: Corpus, scale: float, threshold: float, streams: Streams
) -> Vectors:
    """A noisy one-hot vector for each token, equation (9), thresholded."""
    n_words = corpus.n_words
    if corpus.n_tokens * n_words > MAX_WORDS:
        raise ValueError(TOO_MANY_WORDS)
    size = max(1, BLOCK_BITS // n_words)
    last_word = np.array([np.iinfo(np.uint64).max])
    values = np.linspace(threshold, 1.0 + laplace(last_word, scale)[0], TOP + 1)
    lengths = [np.zeros(1, int)]
    words = [np.zeros(0, int)]
    levels = [np.zeros(0, int)]
    for piece, first in enumerate(range(0, corpus.n_tokens, size)):
        own = corpus.word[first : first + size]
        bits = streams.reader(Purpose.SURVIVORS, 0, piece).words(len(own) * n_words)
        noisy = laplace(bits, scale).reshape(len(own), n_words)
        noisy[np.arange(len(own)), own] += 1
        token, word = np.nonzero(noisy > threshold)
        levels.append(values.searchsorted(noisy[token, word], side="right") - 1)
        lengths.append(np.bincount(token, minlength=len(own)))
        words.append(word)
    return Vectors(
        np.cumsum(np.concatenate(lengths)),
        np.concatenate(words, dtype=np.int32, casting="unsafe"),
        np.concatenate(levels, dtype=np.uint16, casting="unsafe"),
        values,
    )


def _draw_log_phi(
    prior: NDArray[np.float64], streams: Streams, t: int
) -> NDArray[np.float32]:
    """Logarithms of a Dirichlet draw for each row of `prior`, in sweep t.

    A gamma variable of shape a is a gamma variable of shape a + 1 times U^(1/a).
    Logarithms are used because small variables would underflow.
    """
    bits = streams.reader(Purpose.INITIAL_TABLE, t).words(2 * prior.size)
    quantile, power = inside(bits).reshape(2, *prior.shape)
    log_gamma = np.log(gammaincinv(prior + 1, quantile)) + np.log(power) / prior
    log_phi = log_gamma - logsumexp(log_gamma, axis=1, keepdims=True)
    # finite, and its exponential is 0
    return np.maximum(log_phi, -1e30).astype(np.float32)


def _draw_topics(
    model: Topics, word: NDArray[np.int32], bits: Words
) -> NDArray[np.int32]:
    """A topic for each word from its alias table, (n_tokens,)."""
    column = uniform_integers(bits, len(model.phi))
    keeps_column = (bits & np.uint64(2**32 - 1)) < model.threshold[word, column]
    return np.where(keeps_column, column, model.alias[word, column]).astype(np.int32)


def _propose_by_document(
    corpus: Corpus,
    topics: NDArray[np.int32],
    n_components: int,
    alpha: float,
    bits: Words,
) -> NDArray[np.int32]:
    """A topic per token by (17): from a token of its document, or uniform."""
    lengths = np.diff(corpus.doc_ptr)
    length = np.repeat(lengths, lengths)
    start = np.repeat(corpus.doc_ptr[:-1], lengths)
    position = inside(bits) * (length + n_components * alpha)
    other = start + np.minimum(position.astype(np.int64), length - 1)
    with np.errstate(over="ignore"):  # of a tiny alpha
        any_topic = np.clip((position - length) / alpha, 0, n_components - 1)
    return np.where(position < length, topics[other], any_topic).astype(np.int32)
