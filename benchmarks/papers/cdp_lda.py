"""CDP-LDA and CDP-LDA+: the second curves of figures 4 to 7 of the HDP-LDA paper.

``python benchmarks/papers/cdp_lda.py [--table 4 5 6 7] [--corpus kos] [--docs 1000]
[--epsilons 1 2 5 10] [--betas 1 10] [--sweeps 50] [--targets 300] [--quick]``

The paper's baselines (section VII-A): collapsed Gibbs sampling with Laplace noise of
scale 1 / epsilon on the word-topic and the document-topic counts, in the first sweep
(CDP-LDA) or in each (CDP-LDA+). The paper does not say whether the noise of a sweep
stays in the counts: "in place" adds it to the noise before, as line 9 of HDP-LDA does,
and "fresh" replaces it. All else is read as in `dplda.published.PublishedHDPLDA`: a
draw reads live counts, its own token's too, and a negative count as 0. **They are not
private**: raw words move the counts after the noise.

The setting is that of ``hdp_lda.py`` (the 1000 most frequent words, K = 50, alpha = 1,
beta = 0.01, perplexity by the same tokens), with one seed. The samplers are Python and
NumPy, and slow: about 40 microseconds a token and sweep.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import bbc
from hdp_lda import ALPHA, BETA, LOADERS, K, attack, header, limited_inherent
from hdp_lda_attacks import (
    clipped_weights,
    log_by_equation_24,
    log_of_draw,
    membership_attack,
)

from dplda import LPLDA, GibbsLDA
from dplda.core._corpus import Corpus
from dplda.core._fold_in import fold_in
from dplda.metrics import held_out_perplexity, unigram_perplexity
from dplda.privacy import LowSignalWarning, PrivacyLeakWarning, SeededNoiseWarning
from dplda.published import PublishedHDPLDA

FIRST, IN_PLACE, FRESH = "first sweep", "in place", "fresh"
NAMES = {
    FIRST: "CDP-LDA",
    IN_PLACE: "CDP-LDA+, noise in place",
    FRESH: "CDP-LDA+, fresh noise",
}
SHADOWS = 2


class Noise(NamedTuple):
    """Laplace noise of scale 1 / epsilon in the sweeps that `sweeps` says."""

    epsilon: float
    sweeps: str


class Chains:
    """Samplers of one corpus with different noise. They share the loop over tokens.

    Parameters
    ----------
    X : sparse matrix of shape (n_docs, n_words)
        Word counts.
    noises : list of Noise
        That of each chain.
    n_components : int
    alpha, beta : float
        Priors of documents and of topics.
    random_state : int

    Attributes
    ----------
    corpus : Corpus
    topics : ndarray of shape (n_tokens, n_chains)
    words : ndarray of shape (n_words, n_chains, n_components)
        Live counts plus noise of words in topics.
    documents : ndarray of shape (n_docs, n_chains, n_components)
        Live counts plus noise of documents' tokens in topics.
    """

    def __init__(self, X, noises, n_components, *, alpha, beta, random_state):
        self.corpus = Corpus.from_counts(sp.csr_array(X))
        self.noises, self.alpha, self.beta = noises, alpha, beta
        self.rng = np.random.default_rng(random_state)
        shape = (self.corpus.n_tokens, len(noises))
        self.topics = self.rng.integers(0, n_components, shape)
        cells = (len(noises), n_components)
        self.words = np.zeros((self.corpus.n_words, *cells))
        self.documents = np.zeros((len(self.corpus.doc_ptr) - 1, *cells))
        of_token = np.repeat(
            np.arange(len(self.documents)), np.diff(self.corpus.doc_ptr)
        )
        chain = np.arange(len(noises))
        np.add.at(self.words, (self.corpus.word[:, None], chain, self.topics), 1)
        np.add.at(self.documents, (of_token[:, None], chain, self.topics), 1)
        self.added = [np.zeros_like(self.words), np.zeros_like(self.documents)]
        self.n_sweeps = 0

    def add_noise(self) -> None:
        """The noise of a sweep, on both tables of counts."""
        for counts, added in zip((self.words, self.documents), self.added):
            for r, noise in enumerate(self.noises):
                if noise.epsilon == math.inf or (
                    noise.sweeps == FIRST and self.n_sweeps
                ):
                    continue
                shape = counts[:, r].shape
                drawn = self.rng.laplace(0.0, 1 / noise.epsilon, shape)
                if noise.sweeps == FRESH:
                    counts[:, r] -= added[:, r]
                    added[:, r] = 0
                counts[:, r] += drawn
                added[:, r] += drawn
        self.n_sweeps += 1

    def sweep(self) -> None:
        """New topics of all tokens, by equation (1) with the live noisy counts."""
        uniform = self.rng.random(self.topics.shape)
        draw_topics(
            self.corpus,
            self.topics,
            self.words,
            self.documents,
            uniform,
            self.alpha,
            self.beta,
        )

    def components(self, r) -> np.ndarray:
        """The model of chain `r`: noisy counts plus beta, (n_components, n_words)."""
        return np.maximum(self.words[:, r], 0).T + self.beta


def draw_topics(corpus, topics, words, documents, uniform, alpha, beta) -> None:
    """One sweep of all chains; the first three arrays are changed in place.

    Shapes are those of `Chains`; `uniform` has that of `topics`.
    """
    chain = np.arange(topics.shape[1])
    totals = words.sum(axis=0)
    norm = len(words) * beta
    lengths = np.diff(corpus.doc_ptr)
    for i, (v, d) in enumerate(
        zip(corpus.word, np.repeat(np.arange(len(lengths)), lengths))
    ):
        row, document, old = words[v], documents[d], topics[i]
        weight = np.maximum(row, 0) + beta
        weight /= np.maximum(totals, 0) + norm
        weight *= np.maximum(document, 0) + alpha
        cumulative = weight.cumsum(axis=1)
        threshold = uniform[i] * cumulative[:, -1]
        new = (cumulative <= threshold[:, None]).sum(axis=1)
        for table in (row, totals, document):
            table[chain, old] -= 1
            table[chain, new] += 1
        topics[i] = new


class CDPLDA(TransformerMixin, BaseEstimator):
    """One chain as a transformer, for the classifiers of figure 7."""

    def __init__(self, epsilon, max_iter=20, random_state=0):
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X, y=None):
        chains = Chains(
            X,
            [Noise(self.epsilon, FIRST)],
            K,
            alpha=ALPHA,
            beta=BETA,
            random_state=self.random_state,
        )
        for _ in range(self.max_iter):
            chains.add_noise()
            chains.sweep()
        self.components_ = chains.components(0)
        return self

    def transform(self, X):
        return fold_in(sp.csr_array(X), self.components_, ALPHA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--table", nargs="+", default=list(TABLES), choices=list(TABLES)
    )
    parser.add_argument("--corpus", default="kos", choices=list(LOADERS))
    parser.add_argument("--docs", type=int, default=1000, help="that are trained on")
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=[1.0, 2.0, 5.0, 10.0]
    )
    parser.add_argument(
        "--betas", nargs="+", type=float, default=[1.0, 10.0], help="of HDP-LDA"
    )
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--targets", type=int, default=300, help="attacked words")
    parser.add_argument(
        "--quick", action="store_true", help="200 documents, 8 sweeps, two epsilons"
    )
    options = parser.parse_args()
    if options.quick:
        options.docs, options.sweeps, options.targets = 200, 8, 50
        options.epsilons = [1.0, 10.0]
    for category in (SeededNoiseWarning, PrivacyLeakWarning, LowSignalWarning):
        warnings.simplefilter("ignore", category)
    split = LOADERS[options.corpus](n_words=1000, n_skip=0)
    split.train = split.train[: options.docs]
    for name in options.table:
        started = time.process_time()
        TABLES[name](split, options)
        print(f"\n({name}: {time.process_time() - started:.0f} s of CPU)", flush=True)


# Figure 4


def figure_4(split, options) -> None:
    """The topic-based attack, by sweeps."""
    # the last word of a document should not be its rarest one
    X = split.train[:, np.random.default_rng(0).permutation(split.train.shape[1])]
    X.sort_indices()
    documents = np.flatnonzero(np.diff(X.indptr))[: options.targets]
    shown = sorted({t for t in (1, 2, 5, 10, 20) if t < options.sweeps})
    shown.append(options.sweeps)
    print(
        f"\nFigure 4, {split}; the last words of {len(documents)} documents; mean "
        f"probability of the true word by Algorithm 3; blind guessing "
        f"{1 / X.shape[1]:g}\n"
    )
    columns = [f"sweep {t}" for t in shown]
    header("", [*columns, "best guess right", "by Bayes' rule", "best guess right"])
    noises = [Noise(math.inf, FIRST)]
    noises += [Noise(e, s) for e in (1.0, 10.0) for s in (IN_PLACE, FRESH)]
    for noise, run in zip(noises, attacked_chains(X, documents, noises, options)):
        label = "non-private"
        if noise.epsilon < math.inf:
            label = f"{NAMES[noise.sweeps]}, epsilon {noise.epsilon:g}"
        show_attack(label, run, shown)
    for beta in options.betas:
        limited = limited_inherent(beta, options)
        model = PublishedHDPLDA(K, noise_epsilon=10.0, random_state=0, **limited)
        run = attack(model, X, documents)
        label = f"HDP-LDA as published, epsilon 10, inherent 10, beta = {beta:g}"
        show_attack(label, run, shown)


def show_attack(label, run, shown) -> None:
    """A row of `attack`'s form: (n_words, 2, T + 1), Bayes' rule and Algorithm 3."""
    bayes, algorithm_3 = np.mean(run, axis=0)
    cells = [f"{algorithm_3[t - 1]:.4f}" for t in shown]
    cells += [f"{algorithm_3[-1]:.0%}", f"{bayes[-2]:.4f}", f"{bayes[-1]:.0%}"]
    print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


def attacked_chains(X, documents, noises, options) -> list[np.ndarray]:
    """For each chain what `hdp_lda.attack` gives for a model."""
    chains = Chains(X, noises, K, alpha=ALPHA, beta=BETA, random_state=0)
    last = chains.corpus.doc_ptr[documents + 1] - 1
    true = chains.corpus.word[last]
    total = np.zeros((len(noises), len(documents), 2, X.shape[1]))
    found = np.empty((len(noises), len(documents), 2, options.sweeps + 1))
    for t in range(options.sweeps):
        chains.add_noise()
        noisy, old = chains.words.copy(), chains.topics[last].copy()
        chains.sweep()
        total += gains(chains, noisy, documents, last, old)
        posterior = np.exp(total - logsumexp(total, axis=-1, keepdims=True))
        found[..., t] = posterior[:, np.arange(len(true)), :, true].transpose(1, 0, 2)
    found[..., -1] = total.argmax(axis=-1) == true[:, None]
    return list(found)


def gains(chains, noisy, documents, last, old) -> np.ndarray:
    """Log-likelihoods of each word that a last token may be, from one sweep.

    Shape (n_chains, n_targets, 2, n_words): by Bayes' rule with the counts that the
    sweep began with, and by equation (24). A last token is drawn last in its document:
    its document's counts are those after the sweep, but for its own topic.
    """
    n_chains, n_words = len(chains.noises), len(noisy)
    result = np.empty((n_chains, len(documents), 2, n_words))
    for r in range(n_chains):
        table = clipped_weights(noisy[:, r], math.inf, chains.beta)
        for j, (d, i) in enumerate(zip(documents, last)):
            new = chains.topics[i, r]
            counts = chains.documents[d, r].copy()
            counts[new] -= 1
            counts[old[j, r]] += 1
            of_document = np.maximum(counts, 0) + chains.alpha
            result[r, j, 0] = log_of_draw(table, of_document, new)
            result[r, j, 1] = log_by_equation_24(noisy[:, r], new, chains.beta)
    return result


# Figures 5 and 6


def perplexities(split, noises, options, *, alpha) -> list[float]:
    """Of each chain's model, by the tokens that give a document's weights."""
    chains = Chains(split.train, noises, K, alpha=alpha, beta=BETA, random_state=0)
    for _ in range(options.sweeps):
        chains.add_noise()
        chains.sweep()
    return [
        held_out_perplexity(
            chains.components(r), split.test, doc_topic_prior=alpha, completion=False
        )
        for r in range(len(noises))
    ]


def figure_5(split, options) -> None:
    """Perplexity against the epsilon of a sweep's noise, next to HDP-LDA."""
    describe("Figure 5", split, options)
    header("perplexity", [f"{e:g}" for e in options.epsilons])
    noises = [Noise(e, s) for s in NAMES for e in options.epsilons]
    values = perplexities(split, noises, options, alpha=ALPHA)
    rows = {"non-private": perplexity_of(plain(options), split, options)}
    rows |= dict(zip(NAMES.values(), np.reshape(values, (len(NAMES), -1))))
    for beta in options.betas:
        limited = limited_inherent(beta, options)
        rows[f"HDP-LDA as published, beta = {beta:g}"] = perplexity_of(
            lambda e, limited=limited: PublishedHDPLDA(
                K, noise_epsilon=e, random_state=0, **limited
            ),
            split,
            options,
        )
    show(rows)
    print("\nHDP-LDA next to CDP-LDA+ (the paper: no worse, and much better on KOS)\n")
    header("", [f"{e:g}" for e in options.epsilons])
    for beta in options.betas:
        ours = np.array(rows[f"HDP-LDA as published, beta = {beta:g}"])
        for sweeps in (IN_PLACE, FRESH):
            ratio = ours / rows[NAMES[sweeps]] - 1
            cells = " | ".join(f"{x:+.0%}" for x in ratio)
            print(f"| beta = {beta:g}, {NAMES[sweeps]} | {cells} |", flush=True)


def figure_6(split, options) -> None:
    """CDP-LDA next to LP-LDA. Their epsilons protect different things."""
    describe("Figure 6", split, options)
    header("perplexity", [f"{e:g}" for e in options.epsilons])
    noises = [Noise(e, FIRST) for e in options.epsilons]
    rows = {"non-private": perplexity_of(plain(options), split, options)}
    rows["CDP-LDA"] = perplexities(split, noises, options, alpha=ALPHA)
    for way in ("bits", "background"):
        rows[f"LP-LDA, {way}"] = perplexity_of(
            lambda e, way=way: LPLDA(
                K,
                bit_epsilon=e,
                reconstruction=way,
                max_doc_words=None,
                random_state=0,
                **priors(options),
            ),
            split,
            options,
        )
    show(rows)


def priors(options) -> dict:
    return {
        "topic_word_prior": BETA,
        "doc_topic_prior": ALPHA,
        "max_iter": options.sweeps,
    }


def plain(options):
    """A function of epsilon, which it ignores."""
    return lambda epsilon: GibbsLDA(K, random_state=0, **priors(options))


def perplexity_of(make, split, options) -> list[float]:
    """At each epsilon, of the model that `make` makes."""
    models = [make(epsilon).fit(split.train) for epsilon in options.epsilons]
    return [model.perplexity(split.test, completion=False) for model in models]


def describe(title, split, options) -> None:
    unigram = unigram_perplexity(split.train, split.test)
    print(
        f"\n{title}, {split}; {split.test.shape[0]} held out; {options.sweeps} sweeps; "
        f"word frequencies {unigram:.0f}\n"
    )


def show(rows) -> None:
    for label, values in rows.items():
        cells = " | ".join(f"{value:.0f}" for value in values)
        print(f"| {label} | {cells} |", flush=True)


# Figure 7


def figure_7(_, options) -> None:
    """Membership inference by a classifier of topic weights."""
    corpus = bbc()
    X = sp.csr_array(sp.vstack([corpus.train, corpus.test]))[: options.docs, :1000]
    y = np.concatenate([corpus.y_train, corpus.y_test])[: options.docs]
    print(
        f"\nFigure 7, BBC ({X.shape[0]} documents), logistic regression, {SHADOWS} "
        f"shadow models, {options.sweeps} sweeps; standard error of the attack's "
        f"accuracy {0.5 / math.sqrt(X.shape[0] / 2):.3f}\n"
    )
    header("model", ["epsilon", "accuracy of the attack", "of the classifier", "F1"])
    local = {"max_doc_words": None, "random_state": 0, **priors(options)}
    models = {("LDA", math.inf): GibbsLDA(K, random_state=0, **priors(options))}
    for epsilon in options.epsilons[:: max(len(options.epsilons) - 1, 1)]:
        models["CDP-LDA", epsilon] = CDPLDA(epsilon, options.sweeps)
        models["LP-LDA, bits", epsilon] = LPLDA(
            K, bit_epsilon=epsilon, reconstruction="bits", **local
        )
    for (label, epsilon), model in models.items():
        found = membership_attack(
            make_pipeline(model, LogisticRegression(max_iter=1000)),
            X,
            y,
            n_shadows=SHADOWS,
            random_state=0,
        )
        values = (found.accuracy, found.target_accuracy, found.target_f1)
        cells = " | ".join(f"{value:.3f}" for value in values)
        print(f"| {label} | {epsilon:g} | {cells} |", flush=True)


TABLES = {"4": figure_4, "5": figure_5, "6": figure_6, "7": figure_7}


if __name__ == "__main__":
    main()
