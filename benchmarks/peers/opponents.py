"""Other implementations of LDA, one sweep or pass at a time.

An opponent is a class with `name`, `package`, `step()` for one sweep over the corpus,
and `components()`, the word counts of topics of the last sweep (n_components, n_words),
prior included. What it does once, such as reading the documents, is done in its
constructor.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

import numpy as np
import scipy.sparse as sp
from measuring import ALPHA, BETA, cpu_seconds


class Opponent:
    """Base: a peer without whose package the constructor says what to install."""

    name = package = ""
    slow = False  # below a tenth of tomotopy's speed

    def __init__(
        self, X: sp.csr_array, n_components: int, seed: int, threads: int
    ) -> None:
        self.module = imported(self.package)
        for package in ("lda", "gensim"):  # they report every sweep
            logging.getLogger(package).setLevel(logging.ERROR)
        self.n_words, self.n_components = X.shape[1], n_components
        self.start(sp.csr_matrix(X), seed, threads)

    def start(self, X: sp.csr_matrix, seed: int, threads: int) -> None:
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def seconds(self) -> float:
        """CPU time of one more step."""
        start = cpu_seconds()
        self.step()
        return cpu_seconds() - start

    def components(self) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None:
        pass


class NotInstalled(Exception):
    """The package of a peer is missing; the message says how to install it."""


def imported(package: str) -> Any:
    try:
        return importlib.import_module(MODULES.get(package, package))
    except ImportError:
        raise NotInstalled(f"not installed: pip install {package}") from None


MODULES = {"scikit-learn": "sklearn.decomposition", "gensim": "gensim.models"}


class Tomotopy(Opponent):
    """Collapsed Gibbs sampling, in C++ for several instruction sets."""

    name, package = "tomotopy", "tomotopy"

    def start(self, X: sp.csr_matrix, seed: int, threads: int) -> None:
        self.threads = threads
        self.model = self.module.LDAModel(
            k=self.n_components, alpha=ALPHA, eta=BETA, seed=seed
        )
        self.model.optim_interval = self.model.burn_in = 0
        for words in documents(X):
            self.model.add_doc([str(word) for word in words])

    def step(self) -> None:
        self.model.train(1, workers=self.threads)

    def components(self) -> np.ndarray:
        columns = [int(word) for word in self.model.used_vocabs]
        sizes = self.model.get_count_by_topics()
        table = np.full((self.n_components, self.n_words), BETA)
        for k, size in enumerate(sizes):
            shares = self.model.get_topic_word_dist(k)
            table[k, columns] = np.maximum(shares * (size + BETA * len(columns)), BETA)
        return table


class Lda(Opponent):
    """Collapsed Gibbs sampling, in Cython."""

    name, package, slow = "lda", "lda", True

    def start(self, X: sp.csr_matrix, seed: int, threads: int) -> None:
        self.model = self.module.LDA(
            self.n_components, n_iter=1, alpha=ALPHA, eta=BETA, random_state=seed
        )
        self.model._initialize(X.toarray())
        self.uniform = np.random.RandomState(seed).rand(2**18)

    def step(self) -> None:
        self.model._sample_topics(self.uniform)

    def components(self) -> np.ndarray:
        return self.model.nzw_ + BETA


class SklearnBatch(Opponent):
    """Variational Bayes over the whole corpus, float64."""

    name, package, slow = "scikit-learn batch", "scikit-learn", True
    method = "batch"

    def start(self, X: sp.csr_matrix, seed: int, threads: int) -> None:
        self.X = X.astype(float)
        self.model = self.module.LatentDirichletAllocation(
            self.n_components,
            learning_method=self.method,
            max_iter=1,
            doc_topic_prior=ALPHA,
            topic_word_prior=BETA,
            random_state=seed,
            n_jobs=threads,
        )
        self.model._init_latent_vars(X.shape[1], dtype=np.float64)

    def step(self) -> None:
        self.model._em_step(self.X, total_samples=self.X.shape[0], batch_update=True)

    def components(self) -> np.ndarray:
        return self.model.components_


class SklearnOnline(SklearnBatch):
    """Stochastic variational inference with default minibatches of 128 documents."""

    name, method = "scikit-learn online", "online"

    def step(self) -> None:
        self.model.set_params(total_samples=self.X.shape[0])
        self.model.partial_fit(self.X)


class Gensim(Opponent):
    """Online variational Bayes with its default minibatches, float32."""

    name, package, slow = "gensim LdaModel", "gensim", True
    kind = "LdaModel"

    def start(self, X: sp.csr_matrix, seed: int, threads: int) -> None:
        rows = (X[d] for d in range(X.shape[0]))
        self.corpus = [
            list(zip(row.indices.tolist(), row.data.tolist())) for row in rows
        ]
        words = {word: str(word) for word in range(X.shape[1])}
        self.model = getattr(self.module, self.kind)(
            id2word=words,
            num_topics=self.n_components,
            alpha=[ALPHA] * self.n_components,
            eta=BETA,
            eval_every=None,
            random_state=seed,
            **self.options(threads),
        )

    def options(self, threads: int) -> dict[str, int]:
        return {}

    def step(self) -> None:
        self.model.update(self.corpus)

    def components(self) -> np.ndarray:
        return self.model.state.get_lambda()


class GensimMulticore(Gensim):
    """The same in worker processes, whose CPU time counts too."""

    name, kind = "gensim LdaMulticore", "LdaMulticore"

    def options(self, threads: int) -> dict[str, int]:
        return {"workers": threads}


def documents(X: sp.csr_matrix):
    """The words of each document, as often as they occur in it."""
    for start, stop in zip(X.indptr, X.indptr[1:]):
        yield np.repeat(X.indices[start:stop], X.data[start:stop])


OPPONENTS = [Tomotopy, Lda, SklearnBatch, SklearnOnline, Gensim, GensimMulticore]
