"""Documents drawn from a known LDA model."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Bunch, check_random_state

from dplda.core._corpus import MAX_TOKENS
from dplda.leaf._checks import LARGEST, check_integer, check_number
from dplda.privacy._streams import PIECE


def make_topic_corpus(
    n_docs: int = 100,
    n_words: int = 50,
    n_components: int = 5,
    *,
    doc_length: float = 60,
    doc_topic_prior: float = 0.1,
    topic_word_prior: float = 0.05,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    """Draw a corpus from a latent Dirichlet allocation model with known topics.

    Topics and the topic weights of documents are drawn from symmetric Dirichlet
    distributions, and the length of a document from a Poisson distribution.

    Parameters
    ----------
    n_docs : int, default=100
        Number of documents D.
    n_words : int, default=50
        Size of the vocabulary V.
    n_components : int, default=5
        Number of topics K.
    doc_length : float, default=60
        Mean number of words (tokens) of a document.
    doc_topic_prior : float, default=0.1
        Dirichlet parameter of a document's topics.
    topic_word_prior : float, default=0.05
        Dirichlet parameter of a topic's words.
    random_state : int, RandomState instance or None, default=None
        Each int gives one corpus. None draws a new corpus in each call.

    Returns
    -------
    corpus : :class:`~sklearn.utils.Bunch`
        Dictionary-like object with the attributes

        data : sparse matrix of shape (n_docs, n_words), CSR, int64
            How often each word occurs in each document.
        components : ndarray of shape (n_components, n_words)
            True word probabilities of each topic; the rows sum to 1.
        doc_topic : ndarray of shape (n_docs, n_components)
            True topic probabilities of each document; the rows sum to 1.

    Raises
    ------
    TypeError
        If a size is not an integer, or if a prior or the length is not a number.
    ValueError
        If a value is not positive, or if it is too large.

    Notes
    -----
    Blei, Ng and Jordan, "Latent Dirichlet Allocation", JMLR 3 (2003), define the
    generative model. Here, topics have a Dirichlet prior, too.

    Examples
    --------
    >>> from dplda.datasets import make_topic_corpus
    >>> corpus = make_topic_corpus(20, 30, 3, random_state=0)
    >>> corpus.data.shape, corpus.components.shape, corpus.doc_topic.shape
    ((20, 30), (3, 30), (20, 3))
    """
    check_integer("n_docs", n_docs, 1, MAX_TOKENS)
    check_integer("n_words", n_words, 1, MAX_TOKENS)
    check_integer("n_components", n_components, 1, MAX_TOKENS)
    check_number("doc_length", doc_length, 0, LARGEST, closed="right")
    check_number("doc_topic_prior", doc_topic_prior, 0, LARGEST, closed="right")
    check_number("topic_word_prior", topic_word_prior, 0, LARGEST, closed="right")
    seed = check_random_state(random_state).randint(0, 2**32, size=4, dtype=np.uint32)
    generator = np.random.default_rng(seed)
    components = generator.dirichlet(
        np.full(n_words, topic_word_prior), size=n_components
    )
    doc_topic = generator.dirichlet(np.full(n_components, doc_topic_prior), size=n_docs)
    lengths = generator.poisson(doc_length, size=n_docs)
    blocks = []
    step = max(1, PIECE // n_words)  # which changes no draw
    for start in range(0, n_docs, step):
        rows = slice(start, start + step)
        word_probabilities = doc_topic[rows] @ components
        word_probabilities /= word_probabilities.sum(axis=1, keepdims=True)
        drawn = generator.multinomial(lengths[rows], word_probabilities)
        blocks.append(sp.csr_matrix(drawn))
    counts = sp.vstack(blocks, format="csr", dtype=np.int64)
    return Bunch(data=counts, components=components, doc_topic=doc_topic)
