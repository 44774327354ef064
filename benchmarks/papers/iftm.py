"""iFTM as published: figures 5 to 7 and tables 2 and 3 of its paper, as tables.

``python benchmarks/papers/iftm.py [--table 5 6 7 parties 2 3 leak threshold] [--docs
600] [--words 1000] [--sweeps 10] [--rounds 6] [--epsilons 8 9 10 11] [--taus 0.2 0.5
0.9] [--quick]``

The paper has 178,337 documents of three parties that are not available. BBC replaces
them: it has sentences and classes. Parties of 1, 2 and 3 sixths of the documents get
whole classes but for a tenth of strays. A class is business, entertainment, politics,
sport or tech. LDA is `dplda.published.PublishedIFTMParty` (Algorithm 1), SentenceLDA is
`sentence_lda.PublishedSentenceLDA` (Algorithm 2), both with the master of
`iftm_master` (Algorithms 3 to 5). "Sound" is `dplda.federated.IFTMParty` with
`IFTMMaster`. K = 20 topics a party, priors 0.1 and 0.01, one seed. The figure of merit
is the log-likelihood per held-out token by document completion, for both models with a
weight of topics for each token; the paper does not say how its likelihood is computed.

Table 2 replaces the word error rate of a speech recognizer, for which there are no
recordings, by the perplexity of the language model of equation (31). Table 3 uses BBC's
classes for the four grades of the paper. ``leak`` recovers exact frequencies from a
party's message, ``threshold`` fits one party on KOS.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.metrics import precision_score
from sklearn.svm import SVC

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from corpora import Split, bbc_texts, kos
from federated import SHARES, deal
from iftm_master import Model, rounds
from sentence_lda import PublishedSentenceLDA

from dplda import GibbsLDA
from dplda.core._fold_in import fold_in
from dplda.federated import IFTMMaster, IFTMParty, LocalModel
from dplda.metrics import held_out_perplexity, unigram_perplexity
from dplda.privacy import LowSignalWarning, PrivacyLeakWarning, SeededNoiseWarning
from dplda.published import PublishedIFTMParty, recover_counts

K, ALPHA, BETA = 20, 0.1, 0.01
TAU, BEST = 0.2, 11.0  # of the paper's figure 5
FOUR_SHARES = np.array([28_000, 57_000, 80_000, 13_337]) / 178_337
ONE_PARTY = [(8.0, 0.2), (11.0, 0.2), (11.0, 0.5), (11.0, 0.9), (math.inf, 0.2)]
KINDS = ("LDA", "SentenceLDA")
PRINTED = {  # word error rate and precision, in percent
    "none": ("33.18", "75.67"),
    "LDA, P1": ("31.40", "78.45"),
    "LDA, P2": ("32.32", "79.34"),
    "LDA, P3": ("33.04", "76.87"),
    "LDA, iFTM": ("30.06", "80.56"),
    "SentenceLDA, P1": ("30.98", "79.65"),
    "SentenceLDA, P2": ("32.07", "79.12"),
    "SentenceLDA, P3": ("32.99", "77.34"),
    "SentenceLDA, iFTM": ("30.01", "81.03"),
}
TOPIC_SHARE = 0.1  # lambda of equation (31)
DISCOUNT = 0.75  # of the language model's counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--table", nargs="+", default=list(TABLES), choices=list(TABLES)
    )
    parser.add_argument("--docs", type=int, default=600, help="of all parties")
    parser.add_argument("--words", type=int, default=1000)
    parser.add_argument("--sweeps", type=int, default=10, help="in each round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=[8.0, 9.0, 10.0, 11.0]
    )
    parser.add_argument("--taus", nargs="+", type=float, default=[0.2, 0.5, 0.9])
    parser.add_argument("--labelled", type=int, default=60, help="in table 3")
    parser.add_argument(
        "--quick", action="store_true", help="fewer documents, words and rounds"
    )
    options = parser.parse_args()
    if options.quick:
        options.docs, options.words, options.sweeps, options.rounds = 120, 400, 4, 3
        options.epsilons, options.taus = [11.0], [0.2, 0.9]
    for category in (SeededNoiseWarning, PrivacyLeakWarning, LowSignalWarning):
        warnings.simplefilter("ignore", category)
    experiment = Experiment(options)
    for name in options.table:
        started = time.process_time()
        TABLES[name](experiment)
        print(f"\n({name}: {time.process_time() - started:.0f} s of CPU)", flush=True)


class Experiment:
    """The corpus, and the fits that tables share."""

    def __init__(self, options) -> None:
        self.options = options
        texts, labels = bbc_texts()
        order = np.random.default_rng(0).permutation(len(texts))
        n_test = len(texts) // 10
        held_out, kept = order[:n_test], order[n_test : n_test + options.docs]
        words = CountVectorizer(stop_words="english", max_features=options.words)
        words.fit(texts)
        self.train_texts = [texts[i] for i in kept]
        self.test_texts = [texts[i] for i in held_out]
        self.vectorizer, y = words, np.asarray(labels)
        self.sentences, self.document = sentences_of(self.train_texts, words)
        self.split = Split(
            "BBC",
            words.transform(self.train_texts).astype(float),
            words.transform(self.test_texts).astype(float),
            y[kept],
            y[held_out],
        )

    def describe(self, title) -> None:
        o, split = self.options, self.split
        unigram = -math.log(unigram_perplexity(split.train, split.test))
        print(
            f"\n{title}, {split}, {len(self.document)} sentences, "
            f"{split.train.shape[1]} words; {split.test.shape[0]} held out; {o.sweeps} "
            f"sweeps a round, {o.rounds} rounds; word frequencies {unigram:.3f}\n"
        )

    def data(self, kind, rows) -> tuple:
        """What a party's fit takes: of `rows` of documents."""
        if kind == "LDA":
            return (self.split.train[rows],)
        own = np.flatnonzero(np.isin(self.document, rows))
        return self.sentences[own], self.document[own]

    @cache  # noqa: B019 (there is one experiment)
    def owner(self, n_parties) -> np.ndarray:
        return deal(self.split, SHARES if n_parties == 3 else FOUR_SHARES)

    def rows(self, name) -> np.ndarray:
        """Documents of party P1, P2, ... or of all."""
        if name == "all data":
            return np.arange(self.split.train.shape[0])
        return np.flatnonzero(self.owner(3) == int(name[1:]) - 1)

    @cache  # noqa: B019
    def alone(self, kind, name, n_sweeps=None) -> np.ndarray:
        """A model of one party's documents, without noise."""
        n_sweeps = n_sweeps or self.options.sweeps * self.options.rounds
        if kind == "LDA":
            model = GibbsLDA(K, max_iter=n_sweeps, random_state=0)
        else:
            model = PublishedSentenceLDA(K, epsilon=math.inf, max_iter=n_sweeps)
        return model.fit(*self.data(kind, self.rows(name))).components_

    @cache  # noqa: B019
    def federated(self, kind, epsilon, tau=TAU, n_parties=3) -> list[np.ndarray]:
        """The global model after each round."""
        parties = []
        for p in range(n_parties):
            rows = np.flatnonzero(self.owner(n_parties) == p)
            parties.append((self.party(kind, epsilon, tau, p), self.data(kind, rows)))
        return [model.topics for model in rounds(parties, self.options.rounds)]

    def party(self, kind, epsilon, tau, seed):
        if kind == "LDA":
            return PublishedIFTMParty(
                K,
                published_epsilon=epsilon,
                noise_threshold=tau,
                max_iter=self.options.sweeps,
                random_state=seed,
            )
        return PublishedSentenceLDA(
            K,
            epsilon=epsilon,
            tau=tau,
            max_iter=self.options.sweeps,
            random_state=seed,
        )

    @cache  # noqa: B019
    def sound(self, kind, epsilon) -> list[np.ndarray]:
        """The sound party and its master: the global model after each round."""
        master = IFTMMaster([*map(str, range(self.split.train.shape[1]))])
        parties = {}
        for p in range(3):
            X, *documents = self.data(kind, self.rows(f"P{p + 1}"))
            parties[f"P{p + 1}"] = IFTMParty(
                K, token_epsilon=epsilon, max_iter=self.options.sweeps, random_state=p
            ).fit(X, documents=documents[0] if documents else None)
        tables = []
        for number in range(self.options.rounds):
            if number:
                for name, party in parties.items():
                    party.refine(master.next_models_[name].table)
            answers = {
                name: LocalModel.from_estimator(
                    party, name, number, master.vocabulary_hash
                )
                for name, party in parties.items()
            }
            master.update(answers)
            tables.append(master.components_)
        return tables

    def sequences(self, texts) -> list[np.ndarray]:
        """The words of each text in their order, as columns; others are left out."""
        analyze, column = self.vectorizer.build_analyzer(), self.vectorizer.vocabulary_
        known = [[column[w] for w in analyze(text) if w in column] for text in texts]
        return [np.array(words) for words in known if len(words) > 1]

    def score(self, components) -> float:
        """Log-likelihood per held-out token."""
        positive = np.maximum(components, 1e-12)
        return -math.log(held_out_perplexity(positive, self.split.test))


def sentences_of(texts, vectorizer) -> tuple[sp.csr_array, np.ndarray]:
    """Word counts of all sentences that have words, and the document of each."""
    parts = [re.split(r"(?<=[.!?])\s+|\n+", text) for text in texts]
    X = sp.csr_array(vectorizer.transform(itertools.chain.from_iterable(parts)))
    document = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    kept = np.flatnonzero(X.sum(axis=1))
    return X[kept], document[kept]


# Figures 5 to 7


def figure_5(experiment) -> None:
    """What a party gains."""
    experiment.describe("Figure 5: log-likelihood per token")
    header(["model", *KINDS])
    for name in ("P1", "P2", "P3", "all data"):
        scores = [experiment.score(experiment.alone(kind, name)) for kind in KINDS]
        row([f"{name}, without noise", *scores])
    last = [experiment.federated(kind, BEST)[-1] for kind in KINDS]
    row([f"iFTM-{BEST:g}, tau {TAU}", *map(experiment.score, last)])
    last = [experiment.sound(kind, BEST)[-1] for kind in KINDS]
    row([f"sound iFTM, epsilon {BEST:g}", *map(experiment.score, last)])
    no_noise = [experiment.federated(kind, math.inf)[-1] for kind in KINDS]
    row(["iFTM without noise", *map(experiment.score, no_noise)])


def figure_6(experiment) -> None:
    """Epsilon and tau."""
    experiment.describe("Figure 6: log-likelihood per token")
    header(["epsilon", "tau", *KINDS, "topics of the global models"])
    options = experiment.options
    for epsilon, tau in itertools.product(options.epsilons, options.taus):
        last = [experiment.federated(kind, epsilon, tau)[-1] for kind in KINDS]
        sizes = " and ".join(str(len(table)) for table in last)
        row([f"{epsilon:g}", f"{tau:g}", *map(experiment.score, last), sizes])


def figure_7(experiment) -> None:
    """Rounds of communication."""
    experiment.describe("Figure 7: log-likelihood per token by round of communication")
    n = experiment.options.rounds
    header(["model", *range(1, n + 1)])
    for kind in KINDS:
        for epsilon in [*experiment.options.epsilons, math.inf]:
            curve = experiment.federated(kind, epsilon)
            row([f"iFTM, {kind}, epsilon {epsilon:g}", *map(experiment.score, curve)])
        curve = experiment.sound(kind, BEST)
        row([f"sound iFTM, {kind}, epsilon {BEST:g}", *map(experiment.score, curve)])
    longest = n * experiment.options.sweeps
    shown = sorted({1, 2, 5, 10, 20, longest // 2, longest})
    print("\nConventional training of all data: one round is one sweep\n")
    header(["model", *shown])
    for kind in KINDS:
        tables = [experiment.alone(kind, "all data", t) for t in shown]
        row([kind, *map(experiment.score, tables)])


def four_parties(experiment) -> None:
    """Section 4.4: the same documents in four parties."""
    experiment.describe("Four parties: log-likelihood per token by round")
    header(["model", *range(1, experiment.options.rounds + 1)])
    for kind, n_parties in itertools.product(KINDS, (3, 4)):
        curve = experiment.federated(kind, math.inf, TAU, n_parties)
        label = f"iFTM, {kind}, no noise, {n_parties} parties"
        row([label, *map(experiment.score, curve)])
        curve = experiment.federated(kind, BEST, TAU, n_parties)
        label = f"iFTM, {kind}, epsilon {BEST:g}, {n_parties} parties"
        row([label, *map(experiment.score, curve)])


# Tables 2 and 3


def models(experiment) -> dict[str, np.ndarray]:
    """The topic models of tables 2 and 3 by the names of `PRINTED`."""
    tables = {}
    for kind in KINDS:
        for name in ("P1", "P2", "P3"):
            tables[f"{kind}, {name}"] = experiment.alone(kind, name)
        tables[f"{kind}, iFTM"] = experiment.federated(kind, BEST)[-1]
        tables[f"{kind}, iFTM without noise"] = experiment.federated(kind, math.inf)[-1]
        tables[f"{kind}, sound iFTM"] = experiment.sound(kind, BEST)[-1]
    return tables


def table_2(experiment) -> None:
    """A language model with and without topics, equations (30) and (31)."""
    experiment.describe("Table 2: perplexity of the language model")
    header(["topics", "perplexity", "the paper's word error rate"])
    language = Bigrams(experiment.sequences(experiment.train_texts))
    for name, components in {"none": None, **models(experiment)}.items():
        printed = PRINTED.get(name, ("",))[0]
        perplexity = language_perplexity(experiment, language, components)
        row([name, f"{perplexity:.1f}", printed])


def language_perplexity(experiment, language, components) -> float:
    """Of the second half of each held-out document; the first half is the context C."""
    total, n_tokens = 0.0, 0
    for words in experiment.sequences(experiment.test_texts):
        half = len(words) // 2
        p = language.probabilities(words)[half:]
        if components is not None:
            n_words = components.shape[1]
            context = sp.csr_array(np.bincount(words[:half], minlength=n_words)[None])
            positive = np.maximum(components, 1e-12)
            theta = fold_in(context.astype(float), positive, ALPHA)[0]
            phi = components / components.sum(axis=1, keepdims=True)
            by_topics = theta @ phi[:, words[half:]]  # (30)
            p = TOPIC_SHARE * by_topics + (1 - TOPIC_SHARE) * p  # (31)
        total += np.log(p).sum()
        n_tokens += len(p)
    return math.exp(-total / n_tokens)


class Bigrams:
    """A backoff language model: bigrams with absolute discounting.

    Parameters
    ----------
    sequences : list of ndarray
        The words of each document in their order.
    """

    def __init__(self, sequences) -> None:
        n_words = 1 + max(words.max() for words in sequences)
        before = np.concatenate([words[:-1] for words in sequences])
        after = np.concatenate([words[1:] for words in sequences])
        ones = np.ones(len(after))
        pairs = sp.coo_array((ones, (before, after)), (n_words, n_words))
        self.pairs = pairs.toarray()
        self.totals = np.maximum(self.pairs.sum(axis=1), 1)
        self.single = np.bincount(after, minlength=n_words) + 1.0
        self.single /= self.single.sum()

    def probabilities(self, words) -> np.ndarray:
        """Of each word after the one before it, (n_tokens,)."""
        before, after = words[:-1], words[1:]
        total = self.totals[before]
        kept = np.maximum(self.pairs[before, after] - DISCOUNT, 0) / total
        seen = (self.pairs > 0).sum(axis=1)[before]
        left = np.where(seen > 0, DISCOUNT * seen / total, 1.0)
        first = self.single[words[:1]]
        return np.concatenate([first, kept + left * self.single[after]])


def table_3(experiment) -> None:
    """A support vector machine with topics as extra features."""
    split, n_labelled = experiment.split, experiment.options.labelled
    experiment.describe(
        f"Table 3: precision of a classifier of {n_labelled} labelled documents"
    )
    header(["topics", "precision", "the paper's precision"])
    weighting = TfidfTransformer().fit(split.train)
    for name, components in {"none": None, **models(experiment)}.items():
        features = [weighting.transform(X).toarray() for X in (split.train, split.test)]
        if components is not None:
            positive = np.maximum(components, 1e-12)
            topics = [fold_in(X, positive, ALPHA) for X in (split.train, split.test)]
            features = [np.hstack(pair) for pair in zip(features, topics)]
        classifier = SVC(kernel="linear", random_state=0)
        classifier.fit(features[0][:n_labelled], split.y_train[:n_labelled])
        found = classifier.predict(features[1])
        precision = precision_score(
            split.y_test, found, average="macro", zero_division=0.0
        )
        row([name, f"{precision:.1%}", PRINTED.get(name, ("", ""))[1]])


# One party


def leak(experiment) -> None:
    """Words of a party whose exact frequency follows from its normalized message."""
    experiment.describe("Exact frequencies that the master recovers")
    header(["party P1 with epsilon 8, tau 0.2", "its words", "recovered"])
    rows = experiment.rows("P1")
    frequency = experiment.split.train[rows].sum(axis=0)
    for kind in KINDS:
        party = experiment.party(kind, 8.0, TAU, 0).fit(*experiment.data(kind, rows))
        sent = Model.sent(party.components_).topics.astype(np.float32)
        found = recover_counts(sent, topic_word_prior=BETA).sum(axis=0)
        n_words = int((frequency > 0).sum())
        right = int(((found == frequency) & (frequency > 0)).sum())
        row([kind, n_words, right])


def threshold(experiment) -> None:
    """The effect of tau on one party of KOS, 2000 words."""
    split = kos()
    unigram = -math.log(unigram_perplexity(split.train, split.test))
    n_sweeps = 2 if experiment.options.quick else 20
    print(f"\nOne party, {split}; {n_sweeps} sweeps; word frequencies {unigram:.3f}\n")
    header(["epsilon", "tau", "log-likelihood per token", "share of the largest topic"])
    for epsilon, tau in ONE_PARTY[-1:] if experiment.options.quick else ONE_PARTY:
        model = PublishedIFTMParty(
            K,
            published_epsilon=epsilon,
            noise_threshold=tau,
            max_iter=n_sweeps,
            random_state=0,
        ).fit(split.train)
        sizes = (model.components_ - BETA).sum(axis=1)
        tau_cell = "" if math.isinf(epsilon) else tau
        largest = f"{sizes.max() / sizes.sum():.1%}"
        row([f"{epsilon:g}", tau_cell, model.score(split.test), largest])


def header(cells) -> None:
    row(cells)
    print("| --- |" + " --- |" * (len(cells) - 1))


def row(cells) -> None:
    """Floats with three digits, all else as it is."""
    shown = [f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells]
    print("| " + " | ".join(shown) + " |", flush=True)


TABLES = {
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
    "parties": four_parties,
    "2": table_2,
    "3": table_3,
    "leak": leak,
    "threshold": threshold,
}


if __name__ == "__main__":
    main()
