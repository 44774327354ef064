"""Attack on the tokens of a party: a token's word is one or another."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from dplda.audit._report_attacks import RowAttack
from dplda.federated import SentenceCorpus
from dplda.privacy._curator import Release


class TokenAttack(RowAttack):
    """Attack on token-level privacy: the word of a one-token document is one or another.

    The scores are exact log-likelihood ratios of the noisy vectors. The estimator claims the cost
    of blanking a token. Replacing it by another word costs twice as much. After its fit the party
    takes part in one more round (`refine`), which must release nothing new of a token.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Not used.
    """

    relation = "a token's word is one or another"
    n_units = 2  # one word is blanked, and one is written

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array | SentenceCorpus:
        words = (self._n_words + 1 - coins)[:, None]
        X = self._planted(X, words, np.ones_like(words), 2)
        return one_sentence_each(X) if self.estimator.model == "sentence_lda" else X

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Train the party, and continue from its own topics, as in the next round."""
        super()._train(model, X, method)
        model.refine(model.components_)

    def _length(self, release: Release) -> int:
        return len(release.value.document_ptr) - 1

    def _ratios(self, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
        tokens, n = release.value, min(n, self._length(release))
        likelihood = tokens.likelihood
        survivors = tokens.vectors.read(0, n, 0)
        token = np.repeat(np.arange(n), np.diff(survivors.ptr))
        planted = survivors.word >= self._n_words
        cells = token[planted], survivors.word[planted] - self._n_words
        gain = np.full((n, 2), likelihood.base)
        gain[cells] = likelihood.gain[survivors.level[planted]]
        return np.log(gain[:, 0] / gain[:, 1])


def one_sentence_each(X: sp.csr_array) -> SentenceCorpus:
    """Documents of one sentence; an empty document has none."""
    lengths = np.asarray(X.sum(axis=1)).reshape(-1).astype(np.int64)
    words = np.repeat(X.indices, X.data.astype(np.int64))
    sentences = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
    documents = np.concatenate([[0], np.cumsum(lengths > 0)])
    return SentenceCorpus(words, sentences, documents, X.shape[1])
