"""The shared parts of published models: the error of a paper, and its warning."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dplda.core._base import BaseLDA
from dplda.core._corpus import Corpus, Matrix, check_counts, take_columns
from dplda.core._fit_guarantee import no_guarantee, publish
from dplda.core._private_estimator import Interval
from dplda.leaf._compat import Options, _fit_context
from dplda.leaf._messages import warn_user
from dplda.privacy import PrivacyLeakWarning
from dplda.privacy._streams import Streams, Words

# what an observer of the training sees
COUNTS = "word-topic counts"
TOPICS = "topics"


@dataclass(frozen=True)
class Flaw:
    """What is wrong in a paper."""

    hole: str  # in words
    instead: str  # the sound estimator
    unit: str = "word"  # that the paper means to protect
    relation: str = "one word is replaced by another of the vocabulary"

    def warn(self, model: PublishedLDA, what: str = "is not private") -> None:
        name = type(model).__name__
        warn_user(
            f"dplda.published.{name} {what}: {self.hole}; use {self.instead}",
            PrivacyLeakWarning,
        )


def noise_range() -> list[Interval | Options]:
    """The constraint of a parameter that states the noise; infinity means no noise."""
    return [Interval(Real, 1e-9, 1e9, closed="both"), Options(Real, {math.inf})]


class PublishedLDA(BaseLDA):
    """An algorithm as its paper prints it.

    No ledger is charged, because no finite epsilon is true.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Noisy counts of words in topics, not below 0, plus `topic_word_prior`; not
        normalized.
    """

    _flaw: ClassVar[Flaw]

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Matrix, y: object = None) -> PublishedLDA:
        """Train on documents from scratch, as the paper prints it.

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

        Raises
        ------
        ValueError
            If parameters contradict each other, or do not fit the documents.

        Warns
        -----
        PrivacyLeakWarning
            If the model draws noise. The warning names the errors of the paper.
        """
        checked = copy.copy(self)
        X = check_counts(checked, X, reset=True)  # private
        self._train(X, Streams.from_random_state(self.random_state))  # secret
        take_columns(self, checked)
        return self

    def _train(self, X: sp.csr_array, streams: Streams) -> None:
        raise NotImplementedError

    def _publish(
        self,
        streams: Streams,
        noise: str,
        scale: float,
        components: np.ndarray,
        **attributes: object,
    ) -> None:
        """Set the fitted attributes; `noise` of a scale above 0 proves nothing."""
        mechanism = "exact word-topic counts"
        if scale > 0:
            mechanism = f"{noise}, which proves nothing, because {self._flaw.hole}"
        record = no_guarantee(
            self._flaw.unit,
            self._flaw.relation,
            mechanism,
            noise_scale=scale,
            seeded=streams.seeded,
        )
        publish(self, record, components_=components, **attributes)


def laplace(words: Words, scale: float) -> NDArray[np.float64]:
    """A draw of Laplace noise in floating point for each random word."""
    u = inside(words)
    noise: NDArray[np.float64] = np.where(u < 0.5, np.log(2 * u), -np.log(2 - 2 * u))
    return noise * scale


def inside(words: Words) -> NDArray[np.float64]:
    """Uniform numbers strictly inside (0, 1)."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def count_words(corpus: Corpus, topics: np.ndarray, n_components: int) -> np.ndarray:
    """Exact word-topic counts, (n_words, n_components), int64; private."""
    cell = corpus.word.astype(np.int64) * n_components + topics
    counts = np.bincount(cell, minlength=corpus.n_words * n_components)
    return counts.reshape(corpus.n_words, n_components)
