"""HDP-LDA as published: figures 4, 5 and 7 of its paper, and its errors, as tables.

``python benchmarks/papers/hdp_lda.py [--table 4 5 7 holes] [--corpora kos] [--epsilons
1 2 5 10] [--betas 1 10] [--sweeps 50] [--seeds 2] [--completion] [--quick]``

The setting of the paper: the 1000 most frequent words, one tenth held out, K = 50,
alpha = 1, beta = 0.01, perplexity by the same tokens that give a document's weights
(``--completion``: by others). HDP-LDA limits the inherent epsilon to 10 a sweep, with a
larger beta that the paper does not give: ``--betas``. KOS and NIPS are corpora of the
paper; BBC replaces its Victorian novels. The paper's curves have no numbers;
docs/papers.md compares its text.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import bbc, kos, nips
from hdp_lda_attacks import membership_attack, topic_attack

import dplda
from dplda import LPLDA, GibbsLDA
from dplda.audit import observe_releases
from dplda.core._corpus import Corpus
from dplda.kernels import _published_hdp
from dplda.metrics import unigram_perplexity
from dplda.privacy import LowSignalWarning, PrivacyLeakWarning, SeededNoiseWarning
from dplda.privacy._streams import Streams
from dplda.published import PublishedHDPLDA

K, ALPHA, BETA = 50, 1.0, 0.01
INHERENT = 10.0
SHADOWS = 3
LOADERS = {"kos": kos, "nips": nips}
CLASSIFIERS = {
    "logistic regression": lambda: LogisticRegression(max_iter=1000),
    "random forest": lambda: RandomForestClassifier(random_state=0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--table", nargs="+", default=list(TABLES), choices=list(TABLES)
    )
    parser.add_argument("--corpora", nargs="+", default=["kos"], choices=list(LOADERS))
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=[1.0, 2.0, 5.0, 10.0]
    )
    parser.add_argument(
        "--betas", nargs="+", type=float, default=[1.0, 10.0], help="of HDP-LDA"
    )
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--completion", action="store_true")
    parser.add_argument(
        "--quick", action="store_true", help="KOS, 20 sweeps, two epsilons, a seed"
    )
    options = parser.parse_args()
    if options.quick:
        options.corpora, options.sweeps, options.epsilons = ["kos"], 20, [1.0, 10.0]
        options.seeds = 1
    warnings.simplefilter("ignore", SeededNoiseWarning)
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    warnings.simplefilter("ignore", LowSignalWarning)
    for table in options.table:
        TABLES[table](options)


# Figure 4


def attack_table(options) -> None:
    """Inferred probability of the true word against the sweep."""
    shown = [
        *(t for t in (1, 2, 5, 10, 20, 50, 100) if t < options.sweeps),
        options.sweeps,
    ]
    for name in options.corpora:
        split = LOADERS[name](n_words=1000, n_skip=0)
        # the last word of a document should not be its rarest one
        X = split.train[:, np.random.default_rng(0).permutation(split.train.shape[1])]
        X.sort_indices()
        targets = [last_tokens(X, seed) for seed in range(options.seeds)]
        print(
            f"\nFigure 4, {split}; {sum(map(len, targets))} last words of documents in "
            f"{options.seeds} fits; blind guessing {1 / X.shape[1]:g}\n"
        )
        header(
            "probability of the true word, sweep",
            [*shown, "best guess right", "Algorithm 3", "best guess right"],
        )
        for label, make in attacked_models(options).items():
            runs = [
                attack(make(seed), X, targets[seed]) for seed in range(options.seeds)
            ]
            bayes, algorithm_3 = np.mean(np.concatenate(runs), axis=0)
            cells = [f"{bayes[t - 1]:.4f}" for t in shown] + [f"{bayes[-1]:.0%}"]
            cells += [f"{algorithm_3[-2]:.4f}", f"{algorithm_3[-1]:.0%}"]
            print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


def last_tokens(X, seed) -> np.ndarray:
    """Documents with one last word in the corpus and as `dplda.HDPLDA` shuffles."""
    plain = Corpus.from_counts(X)
    shuffled = Corpus.from_counts(X).shuffled(Streams.from_random_state(seed), 1)
    last = plain.doc_ptr[1:] - 1
    return np.flatnonzero(plain.word[last] == shuffled.word[last])


def attacked_models(options) -> dict:
    """One function of the seed for each row."""
    plain = {
        "topic_word_prior": BETA,
        "doc_topic_prior": ALPHA,
        "max_iter": options.sweeps,
    }
    plain |= {"noise_epsilon": math.inf, "count_clip": 1e18}  # no noise, and no clip
    rows = {"non-private": lambda s: PublishedHDPLDA(K, random_state=s, **plain)}
    for beta, inherent in itertools.product(options.betas, (1.0, INHERENT)):
        limited = limited_inherent(beta, options, inherent)
        setting = f"inherent epsilon {inherent:g}, beta = {beta:g}"
        name = f"HDP-LDA as published, no noise, {setting}"
        rows[name] = lambda s, limited=limited: PublishedHDPLDA(
            K, noise_epsilon=math.inf, random_state=s, **limited
        )
        rows[f"HDPLDA, sound, noise epsilon 10, {setting}"] = (
            lambda s, limited=limited: dplda.HDPLDA(
                K, noise_epsilon=10.0, random_state=s, **limited
            )
        )
    return rows


def attack(model, X, documents) -> np.ndarray:
    """Of documents' last words, by Bayes' rule and Algorithm 3 (n_words, 2, T + 1).

    Its probability after each sweep, and whether it is the most probable word after the
    last one.
    """
    with observe_releases() as seen:
        model.fit(X)
    corpus = Corpus.from_counts(X)
    rows = []
    for first, last in zip(corpus.doc_ptr[documents], corpus.doc_ptr[documents + 1]):
        word = corpus.word[last - 1]
        both = [
            topic_attack(model, seen, first, last, exact=exact)
            for exact in (True, False)
        ]
        rows.append([np.append(p[:, word], p[-1].argmax() == word) for p in both])
    return np.array(rows)


# Figure 5


def utility_table(options) -> None:
    """Perplexity against the epsilon of one sweep's noise."""
    for name in options.corpora:
        split = LOADERS[name](n_words=1000, n_skip=0)
        unigram = unigram_perplexity(split.train, split.test)
        print(
            f"\nFigure 5, {split}; {split.test.shape[0]} held out; {options.sweeps} "
            f"sweeps; {options.seeds} seeds; unigram {unigram:.0f}\n"
        )
        rows = {
            name: curve(split, options, make) for name, make in models(options).items()
        }
        header("perplexity", [*(f"{e:g}" for e in options.epsilons), "its epsilon"])
        for label, (values, totals) in rows.items():
            cells = [f"{value:.0f}" for value in values]
            print(f"| {label} | " + " | ".join([*cells, totals]) + " |", flush=True)
        claims(
            split,
            {label: np.array(values) for label, (values, _) in rows.items()},
            options,
        )


def models(options) -> dict:
    """One function of seed and epsilon for each row."""
    plain = {
        "topic_word_prior": BETA,
        "doc_topic_prior": ALPHA,
        "max_iter": options.sweeps,
    }
    rows = {"non-private": lambda s, e: GibbsLDA(K, random_state=s, **plain)}
    for beta in options.betas:
        limited = limited_inherent(beta, options)
        rows |= {
            f"limited inherent, beta = {beta:g}": lambda s, e, limited=limited: (
                PublishedHDPLDA(K, noise_epsilon=math.inf, random_state=s, **limited)
            ),
            f"HDP-LDA as published, beta = {beta:g}": lambda s, e, limited=limited: (
                PublishedHDPLDA(K, noise_epsilon=e, random_state=s, **limited)
            ),
            f"HDPLDA, sound, beta = {beta:g}": lambda s, e, limited=limited: (
                dplda.HDPLDA(K, noise_epsilon=e, random_state=s, **limited)
            ),
        }
    return rows


def limited_inherent(beta: float, options, inherent: float = INHERENT) -> dict:
    """Parameters for which 2 log(C / beta + 1) is `inherent`."""
    clip = beta * math.expm1(inherent / 2)
    return {
        "topic_word_prior": beta,
        "count_clip": clip,
        "doc_topic_prior": ALPHA,
        "max_iter": options.sweeps,
    }


def curve(split, options, make) -> tuple[list[float], str]:
    """Perplexity at each epsilon; what the models state and what is proved."""
    values, published, proved = [], [], []
    for epsilon in options.epsilons:
        fits = [make(seed, epsilon) for seed in range(options.seeds)]
        fits = [model.fit(split.train) for model in fits]
        values.append(
            np.mean(
                [m.perplexity(split.test, completion=options.completion) for m in fits]
            )
        )
        proved.append(f"{fits[0].epsilon_:.0f}")
        published.append(f"{getattr(fits[0], 'published_epsilon_', math.nan):.0f}")
        if epsilon_is_unused(fits[0]):
            return values * len(options.epsilons), "inf"
    stated = "" if published[0] == "nan" else f"stated {' / '.join(published)}; "
    return values, stated + "proved " + " / ".join(dict.fromkeys(proved))


def epsilon_is_unused(model) -> bool:
    return (
        isinstance(model, GibbsLDA) or getattr(model, "noise_epsilon", None) == math.inf
    )


def header(corner, columns) -> None:
    print(f"| {corner} | " + " | ".join(map(str, columns)) + " |")
    print("| --- |" + " --- |" * len(columns))


def claims(split, rows, options) -> None:
    """What the text says of figure 5, and our results."""
    print("\n| the paper says | beta | ours |\n| --- | --- | --- |")
    for beta in options.betas:
        limited = (
            rows[f"limited inherent, beta = {beta:g}"][0] / rows["non-private"][0] - 1
        )
        print(
            f"| limiting the inherent privacy costs some utility | {beta:g} | "
            f"{limited:+.1%} |"
        )


# Figure 7


def membership_table(options) -> None:
    """Membership inference by a classifier of topic weights, and its accuracy, F1."""
    for name, make_classifier in CLASSIFIERS.items():
        split = bbc()
        # the most frequent words
        X = sp.csr_array(sp.vstack([split.train, split.test]))[:, :1000]
        y = np.concatenate([split.y_train, split.y_test])
        print(
            f"\nFigure 7, BBC ({X.shape[0]} documents, {len(set(y))} classes), {name}; "
            f"{SHADOWS} shadow models; {options.seeds} splits; standard error of the "
            f"attack's accuracy {0.5 / math.sqrt(options.seeds * X.shape[0] / 2):.3f}\n"
        )
        header(
            "model",
            [
                "epsilon",
                "accuracy of the attack",
                "its advantage",
                "accuracy of the classifier",
                "its F1",
            ],
        )
        for label, epsilon, model in classified_models(options):
            runs = [
                membership_attack(
                    make_pipeline(
                        model.set_params(random_state=seed), make_classifier()
                    ),
                    X,
                    y,
                    n_shadows=SHADOWS,
                    random_state=seed,
                )
                for seed in range(options.seeds)
            ]
            columns = ("accuracy", "advantage", "target_accuracy", "target_f1")
            means = [
                np.mean([getattr(run, column) for run in runs]) for column in columns
            ]
            cells = " | ".join(f"{mean:.3f}" for mean in means)
            print(f"| {label} | {epsilon:g} | {cells} |", flush=True)


def classified_models(options):
    """Label, epsilon and model for each row."""
    prior = {
        "topic_word_prior": BETA,
        "doc_topic_prior": ALPHA,
        "max_iter": options.sweeps,
    }
    local = {**prior, "max_doc_words": None}
    yield "LDA", math.inf, GibbsLDA(K, **prior)
    for way in ("bits", "background"):
        for epsilon in options.epsilons:
            model = LPLDA(K, bit_epsilon=epsilon, reconstruction=way, **local)
            yield f"LP-LDA, {way}", epsilon, model


# What is false


def holes_table(options) -> None:
    live_counts_table()
    for name in options.corpora:
        final_counts_table(LOADERS[name](n_words=1000, n_skip=0), options)


def live_counts_table() -> None:
    """Loss of one path of topics by the number m of related words.

    K = 2, C = 1, beta = 0.01.
    """
    claim = 2 * math.log(101)
    print(
        "\nLoss of one sweep: a replaced word that moves, then m related words that "
        "stay\n"
    )
    print("| m | live counts | frozen counts | claim |\n| --- | --- | --- | --- |")
    for m in (0, 1, 2, 5, 20):
        live, frozen = path_loss(m, frozen=False), path_loss(m, frozen=True)
        print(f"| {m} | {live:.4f} | {frozen:.4f} | {claim:.4f} |")


def path_loss(m: int, *, frozen: bool) -> float:
    """Log-likelihood ratio of the path, word 0 against word 1 of its first token."""
    # the third word evens topics out
    start = np.array([[1.0, 0.0], [0.0, 1.0], [1e15, 1e15]])
    log_likelihood = []
    for replaced in (0, 1):
        counts, total = start.copy(), 0.0
        for word, old, new in [(replaced, 1, 0)] + m * [(1, 1, 1)]:
            weight = np.empty(2)
            _published_hdp.draw_weights(
                (start if frozen else counts)[word],
                counts.sum(0),
                np.eye(2, dtype=np.int64)[old],
                3,
                1.0,
                1e12,
                0.01,
                weight,
            )
            total += math.log(weight[new] / weight.sum())
            counts[word, old] -= 1
            counts[word, new] += 1
        log_likelihood.append(total)
    return log_likelihood[0] - log_likelihood[1]


def final_counts_table(split, options) -> None:
    """What the published table tells anyone with the last sweep's noisy counts."""
    print(
        f"\n{split}: the model minus the noisy counts that the last of "
        f"{options.sweeps} sweeps started from\n"
    )
    columns = [
        "cells read exactly",
        "of the moved cells",
        "noise variance, last to first sweep",
    ]
    header("epsilon of a sweep", columns)
    for epsilon in options.epsilons:
        parameters = limited_inherent(options.betas[0], options)
        model = PublishedHDPLDA(K, noise_epsilon=epsilon, random_state=0, **parameters)
        with observe_releases() as seen:
            model.fit(split.train)
        counts = [
            release.value for release in seen if release.label == "word-topic counts"
        ]
        topics = [release.value for release in seen if release.label == "topics"]
        word = Corpus.from_counts(split.train).word
        moves = words_in_topics(word, topics[-1]) - words_in_topics(word, topics[-2])
        final = model.components_.T - options.betas[0]
        # a zero hides its moves
        read = np.where(final > 1e-9, np.rint(final - counts[-1]), 0)
        noise = [c - words_in_topics(word, z) for c, z in zip(counts, topics)]
        exact = read == moves
        print(
            f"| {epsilon:g} | {exact.mean():.1%} | {exact[moves != 0].mean():.1%} | "
            f"{noise[-1].var() / noise[0].var():.1f} |",
            flush=True,
        )


def words_in_topics(word: np.ndarray, topics: np.ndarray) -> np.ndarray:
    counts = np.zeros((word.max() + 1, K))
    np.add.at(counts, (word, topics), 1)
    return counts


TABLES = {
    "4": attack_table,
    "5": utility_table,
    "7": membership_table,
    "holes": holes_table,
}


if __name__ == "__main__":
    main()
