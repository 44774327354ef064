"""Topic weights of documents whose sentences have one topic each."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dplda.core._fold_in import MAX_STEPS, TOLERANCE, pad, uniform_theta, update_theta
from dplda.federated._sentences import SentenceCorpus


def fold_in_sentences(
    corpus: SentenceCorpus, phi: np.ndarray, doc_topic_prior: float, n_jobs: int | None
) -> np.ndarray:
    """Topic weights of documents whose sentences have one topic each.

    A sentence counts as one word. Its probability in a topic is the product of the probabilities of
    its words.

    Parameters
    ----------
    corpus : SentenceCorpus
        The documents.
    phi : ndarray of shape (n_components, n_words)
        Word probabilities, positive; rows sum to 1.
    doc_topic_prior : float
        Dirichlet parameter of a document's topics.
    n_jobs : int or None
        Number of threads. It never changes a result.

    Returns
    -------
    theta : ndarray of shape (n_docs, n_components)
        Topic weights; rows sum to 1.
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
        max_steps=MAX_STEPS, tolerance=TOLERANCE, accelerated=True, n_jobs=n_jobs,
    )  # fmt: skip
    theta = theta[:, :n_components].astype(np.float64)
    return theta / theta.sum(axis=1, keepdims=True)
