"""Private topic modeling as published: figure 1, table 1 and the noise of its paper.

``python benchmarks/papers/private_svi.py [--table 1 figure-1 noise true] [--corpus kos]
[--sizes 10 20 50 100] [--docs 100000] [--seen 40000] [--tokens 500] [--epsilons 1 8]
[--quick]``

The paper trains on D = 400,000 documents of Wikipedia, which are not available here. A
small corpus would drown in noise: the noise on a cell is the same, but the counts are
smaller. Therefore the documents of an available corpus are repeated until there are
100,000. Rounds and sampling rates, and so the noise multipliers, are those of the paper
for minibatches four times as large. V = 2000, K = 20 (the paper: 8000 and 100).
Documents are cut to N = 500 tokens (the paper gives no value), at which the ratio of a
topic's noise to its counts is about that of the paper. The metric is the paper's bound
on perplexity. Its figure has no numbers; the statements of its text are printed next to
our results. All tables take about six minutes of one core.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import psi
from sklearn.decomposition import LatentDirichletAllocation

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import embedded, kos, nips, uci_bow
from docstrings import python_words

import dplda
from dplda.displays import top_words
from dplda.privacy import (
    Gaussian,
    LowSignalWarning,
    PoissonSampled,
    PrivacyLeakWarning,
    Repeated,
    SeededNoiseWarning,
    calibrate,
    epsilon_of,
)
from dplda.published import PublishedPrivateSVILDA
from dplda.published._svilda import vips_noise

K, DELTA = 20, 1e-4
PAPER_DOCS, PAPER_SEEN = 400_000, 160_000
PAPER_SIZES = (10, 20, 50, 100, 200, 400)
COMPOSITIONS = ("zcdp", "advanced", "linear")
PRINTED_TOP = {  # share of the top word in the four topics of table 1
    "non-private": (0.0667, 0.1811, 0.0896, 0.0997),
    "zcdp": (0.0882, 0.0002, 0.0410, 0.0101),
    "advanced": (0.0002, 0.0034, 0.0119, 0.0001),
    "linear": (0.0002, 0.0228, 0.0001, 0.0001),
}
PAPER_WORDS = 8000
CORPORA = {"kos": kos, "nips": nips, "docstrings": embedded}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--table", nargs="+", default=list(TABLES), choices=list(TABLES)
    )
    parser.add_argument("--corpus", default="kos", choices=list(CORPORA))
    parser.add_argument("--sizes", nargs="+", type=int, default=[10, 20, 50, 100])
    parser.add_argument(
        "--docs", type=int, default=100_000, help="documents in the corpus"
    )
    parser.add_argument(
        "--seen", type=int, default=40_000, help="documents that a fit sees"
    )
    parser.add_argument(
        "--tokens", type=int, default=500, help="to which documents are cut (N)"
    )
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=[0.5, 1.0, 4.0, 8.0]
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two sizes, a tenth of the documents, one epsilon",
    )
    options = parser.parse_args()
    options.paper_sizes = PAPER_SIZES
    if options.quick:
        options.sizes, options.docs, options.seen = [20, 40], 10_000, 4_000
        options.paper_sizes, options.epsilons = PAPER_SIZES[-2:], [1.0]
    warnings.simplefilter("ignore", SeededNoiseWarning)
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    warnings.simplefilter("ignore", LowSignalWarning)
    for table in options.table:
        TABLES[table](options)


def repeated(split, n_docs: int) -> sp.csr_array:
    """The training documents, repeated until there are `n_docs`."""
    rows = np.arange(n_docs) % split.train.shape[0]
    return sp.csr_array(split.train)[rows]


def published(X, epsilon, size, composition, options) -> PublishedPrivateSVILDA:
    """The model with the noise of a composition; its own is that of zCDP."""
    n_rounds = options.seen // size
    if composition != "zcdp":
        ratio = size / X.shape[0]
        sigma = noise_of(composition, epsilon, DELTA, ratio, n_rounds)
        epsilon = math.exp(
            brentq(
                lambda x: noise_of("zcdp", math.exp(x), DELTA, ratio, n_rounds) - sigma,
                math.log(1e-9),
                math.log(1e9),
                xtol=1e-13,
            )
        )
    return PublishedPrivateSVILDA(
        K,
        published_epsilon=epsilon,
        delta=DELTA,
        batch_size=size,
        max_iter=n_rounds,
        max_doc_tokens=options.tokens,
        random_state=0,
    ).fit(X)


def noise_of(composition, epsilon, delta, ratio, n_rounds) -> float:
    """The paper's noise multiplier with one of its three compositions of the rounds."""
    if composition == "zcdp":
        return vips_noise(epsilon, delta, ratio=ratio, max_iter=n_rounds)
    delta_round, epsilon_round = delta / n_rounds, epsilon / n_rounds
    # Theorem 3.20 of Dwork and Roth, solved for a round's budget
    if composition == "advanced":
        delta_round /= 2
        rate = math.sqrt(2 * n_rounds * math.log(2 / delta))
        epsilon_round = brentq(
            lambda x: n_rounds * x * math.expm1(x) + rate * x - epsilon,
            0,
            epsilon / rate,
            xtol=1e-300,
            rtol=1e-14,
        )
    epsilon_iter = math.log1p(math.expm1(epsilon_round) / ratio)  # (6)
    return math.sqrt(2 * math.log(1.25 * ratio / delta_round)) / epsilon_iter


# Figure 1


def figure_1(options) -> None:
    """Bound on perplexity by size of a minibatch and composition, epsilon = 1."""
    split = CORPORA[options.corpus]()
    X = repeated(split, options.docs)
    print(
        f"\nFigure 1, {split.name} repeated to {options.docs} documents, "
        f"{options.seen} of them seen; {split.test.shape[0]} held out; N = "
        f"{options.tokens}; epsilon = 1\n"
    )
    print(
        "| bound on perplexity | "
        + " | ".join(f"S = {s}" for s in options.sizes)
        + " | CPU s |"
    )
    print("| --- |" + " --- |" * (len(options.sizes) + 1))
    rows = {"non-private": lambda size: published(X, math.inf, size, "zcdp", options)}
    for name in COMPOSITIONS:
        rows[name] = lambda size, name=name: published(X, 1.0, size, name, options)
    rows["dplda.PrivateSVILDA, sound"] = lambda size: sound(X, size, options)
    values = {}
    for label, fit in rows.items():
        start = time.process_time()
        values[label] = [bound(fit(size), split.test) for size in options.sizes]
        cells = " | ".join(f"{value:.0f}" for value in values[label])
        print(f"| {label} | {cells} | {time.process_time() - start:.0f} |", flush=True)
    claims(values)


def sound(X, size, options) -> dplda.PrivateSVILDA:
    return dplda.PrivateSVILDA(
        K,
        epsilon=1.0,
        delta=DELTA,
        subsampling_ratio=size / options.docs,
        max_iter=options.seen // size,
        random_state=0,
    ).fit(X)


def bound(model, test) -> float:
    """The paper's bound on perplexity, computed by scikit-learn's model of a table."""
    lda = LatentDirichletAllocation(
        K,
        doc_topic_prior=model.doc_topic_prior,
        topic_word_prior=model.topic_word_prior,
    ).partial_fit(test[:1])
    lda.components_ = model.components_
    lda.exp_dirichlet_component_ = np.exp(
        psi(lda.components_) - psi(lda.components_.sum(axis=1, keepdims=True))
    )
    return lda.perplexity(test)


def claims(values) -> None:
    """What the text says of figure 1, and our results."""
    zcdp, advanced, linear = (np.array(values[name]) for name in COMPOSITIONS)
    print("\n| the paper says | ours |\n| --- | --- |")
    rising = ", ".join(
        f"{name} {values[name][0]:.0f} to {values[name][-1]:.0f}"
        for name in COMPOSITIONS
    )
    print(
        "| private: smaller minibatches, lower perplexity | smallest to largest S: "
        f"{rising} |"
    )
    print(
        f"| zCDP is below advanced composition at every S | {(zcdp < advanced).all()} |"
    )
    print(
        f"| zCDP is below linear composition at every S | {(zcdp < linear).all()} |",
        flush=True,
    )


# Table 1


def table_1(options) -> None:
    """Top words of four topics, and how coherent all topics are; epsilon = 0.5."""
    split, words = CORPORA[options.corpus](), vocabulary(options.corpus)
    X, size = repeated(split, options.docs), options.sizes[0]
    models = {"non-private": published(X, math.inf, size, "zcdp", options)}
    models |= {name: published(X, 0.5, size, name, options) for name in COMPOSITIONS}
    print(
        f"\nTable 1, {split.name} repeated to {options.docs} documents, epsilon = 0.5, "
        f"S = {size}\n"
    )
    print(
        "| model | NPMI of the ten top words, mean of topics | flat topics | flat in "
        "the paper | its epsilon: stated / proved |\n| --- | --- | --- | --- | --- |"
    )
    for name, model in models.items():
        share = model.components_ / model.components_.sum(axis=1, keepdims=True)
        flat = (share.max(axis=1) < 3 / share.shape[1]).sum()
        stated = math.inf if name == "non-private" else 0.5
        printed = sum(top < 3 / PAPER_WORDS for top in PRINTED_TOP[name])
        print(
            f"| {name} | {coherence(model, split.train):.3f} | {flat} of {K} | "
            f"{printed} of 4 | {stated:g} / {model.epsilon_:.3g} |"
        )
    print(
        "\n| model | topic | share of the top word | the paper's | ten top words |\n"
        "| --- | --- | --- | --- | --- |"
    )
    for name, model in models.items():
        share = model.components_ / model.components_.sum(axis=1, keepdims=True)
        for k, top in enumerate(top_words(model, words, 10)[:4]):
            cells = [
                name,
                k + 1,
                f"{share[k].max():.4f}",
                f"{PRINTED_TOP[name][k]:.4f}",
            ]
            print(
                "| " + " | ".join(map(str, [*cells, " ".join(top)])) + " |", flush=True
            )


def coherence(model, X) -> float:
    """Mean normalized pointwise mutual information of pairs of ten top words.

    The words are those of a topic.
    """
    top = np.argsort(-model.components_, axis=1)[:, :10]
    present = (X > 0).toarray().astype(float)
    values = []
    for words in top:
        joint = present[:, words].T @ present[:, words] / len(present)
        single = np.diag(joint)
        pairs = np.triu_indices(len(words), 1)
        p = np.maximum(joint[pairs], 1e-12)
        pmi = np.log(p / (single[:, None] * single)[pairs])
        values.append(np.mean(np.where(joint[pairs] > 0, pmi / -np.log(p), -1)))
    return float(np.mean(values))


def vocabulary(corpus: str) -> list[str]:
    """Names of the columns, as `corpora.prepare` chooses them."""
    if corpus == "docstrings":
        return python_words(2000)
    bunch = uci_bow(corpus)
    order = np.argsort(-(sp.csr_array(bunch.data) > 0).sum(axis=0), kind="stable")
    return [bunch.feature_names[i] for i in order[10:2010]]


# The noise


def noise_table(options) -> None:
    """Needed and published noise by minibatch size, if the sensitivity were N / S."""
    for epsilon in options.epsilons:
        calibration(epsilon, options.paper_sizes)


def true_table(options) -> None:
    """The epsilon that can be proved of Algorithm 1 as printed, where it states 1."""
    print(
        f"\nAlgorithm 1 as written, D = {PAPER_DOCS}, {PAPER_SEEN} documents seen, "
        f"stated: epsilon = 1, delta = {DELTA:g}\n"
    )
    print(
        "| S | J | sigma (zCDP) | sigma in units of N / S | proved epsilon | in some "
        "minibatch |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for size in options.paper_sizes:
        rounds = PAPER_SEEN // size
        sigma = vips_noise(1.0, DELTA, ratio=size / PAPER_DOCS, max_iter=rounds)
        effective = sigma * size / PAPER_DOCS
        proved = epsilon_of(Repeated(Gaussian(effective / math.sqrt(2)), rounds), DELTA)
        drawn = -math.expm1(rounds * math.log1p(-size / PAPER_DOCS))
        print(
            f"| {size} | {rounds} | {sigma:.4f} | {effective:.2g} | {proved:.2g} | "
            f"{drawn:.0%} |"
        )


def calibration(epsilon: float, sizes) -> None:
    """Per minibatch size: noise that epsilon needs, the paper's, and its epsilon."""
    print(f"\nepsilon = {epsilon:g}, delta = {DELTA:g}; sigma (true epsilon of it)\n")
    print("| S | needed | zcdp | advanced | linear |")
    print("| --- | --- | --- | --- | --- |")
    for size in sizes:
        q, rounds = size / PAPER_DOCS, PAPER_SEEN // size

        def events(sigma: float, q=q, rounds=rounds):
            return Repeated(PoissonSampled(q, Gaussian(sigma)), rounds)

        cells = [f"{calibrate(events, epsilon, DELTA):.4f}"]
        for composition in COMPOSITIONS:
            sigma = noise_of(composition, epsilon, DELTA, q, rounds)
            cells.append(f"{sigma:.4f} ({epsilon_of(events(sigma), DELTA):.3f})")
        print(f"| {size} | " + " | ".join(cells) + " |", flush=True)


TABLES = {"1": table_1, "figure-1": figure_1, "noise": noise_table, "true": true_table}


if __name__ == "__main__":
    main()
