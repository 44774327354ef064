"""The private vocabulary: which words it finds, and what it does to a topic model.

``python benchmarks/vocabulary.py [--found] [--missing] [--few] [--models] [--shares]
[--letters] [--seeds 3]`` ``[--figures FOLDER]``

`--found`: how many of the 2000 words of highest document frequency are chosen.
`--missing`: the share of tokens that no chosen word covers, and a figure of it.
`--few`: the same share for the first 300 and 1000 documents. `--models`: perplexity and
accuracy at a total epsilon of 4, vocabulary and model together, each seed with a split
of its own. `--shares`: nats per held-out token that topics explain with the corpus's
own 2000 words, and what chosen words keep of that, for shares of the budget. The public
list is the package's English one. delta = 1e-6; means over seeds. `--letters` (not part
of the whole): for each language on offer, the share of the letters of running text that
are in words; it needs the extra `cjk`.
"""

from __future__ import annotations

import argparse
import json
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from corpora import bbc_texts, kos_texts
from docstrings import load_docstrings, python_words
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dplda import PrivateCountVectorizer, SubLDA
from dplda.core._words import LEAST, Words
from dplda.datasets import (
    load_public_vocabulary,
    load_word_vectors,
    load_wordnet_glosses,
)
from dplda.metrics import unigram_perplexity
from dplda.privacy import split_epsilon

N_WORDS, TOTAL, N_TOPICS = 2000, 4.0, 20
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
WORD = r"(?u)\b[a-z]{3,}\b"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--found", action="store_true")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--shares", action="store_true")
    parser.add_argument("--letters", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figures", type=Path, help="folder for the figure")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    asked = (
        options.found,
        options.missing,
        options.few,
        options.models,
        options.shares,
    )
    every = not any((*asked, options.letters))
    if options.letters:
        letters_in_words()
    if options.found or every:
        found_words(options.seeds)
    if options.missing or every:
        missing_tokens(("kos", "bbc", "docstrings"), options.seeds, options.figures)
    if options.few or every:
        few = [f"{name}, {n} documents" for n in (300, 1000) for name in ("kos", "bbc")]
        missing_tokens(few, options.seeds)
    if options.models or every:
        models(options.seeds)
    if options.shares or every:
        explained_by_share(options.seeds)


def letters_in_words() -> None:
    """A row for each language: the share of letters that are in words.

    Of the first six articles of the Universal Declaration of Human Rights, and of
    running text as wordfreq counted its words.
    """
    import wordfreq

    path = Path(__file__).parents[1] / "tests" / "declaration.json"
    declaration = json.loads(path.read_text("utf-8"))
    print("| language | letters of a word | the declaration | wordfreq |")
    print("| --- " * 4 + "|")
    for language, text in declaration.items():
        rule = Words.of(language)
        text = unicodedata.normalize("NFC", text)
        of_text = n_letters("".join(rule(text))) / n_letters(text)
        counted = wordfreq.get_frequency_dict(language)
        counted = dict(sorted(counted.items(), key=lambda pair: -pair[1])[:50_000])
        kept = sum(n_letters("".join(rule(w))) * share for w, share in counted.items())
        total = sum(n_letters(word) * share for word, share in counted.items())
        least = LEAST.get(language, 3)
        print(f"| {language} | {least} | {of_text:.2f} | {kept / total:.2f} |")


def n_letters(text: str) -> int:
    return sum(unicodedata.category(character)[0] == "L" for character in text)


def texts_of(name: str) -> list[str]:
    name, _, first = name.partition(", ")
    if first:
        return texts_of(name)[: int(first.split()[0])]
    if name.startswith("kos"):
        documents = kos_texts()
        return documents * 10 if name.endswith("x 10") else documents
    if name == "glosses":
        return load_wordnet_glosses().data
    return bbc_texts()[0] if name == "bbc" else load_docstrings()[0]


def vectorizer(**options) -> PrivateCountVectorizer:
    return PrivateCountVectorizer(
        max_features=N_WORDS, token_pattern=WORD, stop_words="english", **options
    )


class Tokens:
    """Words of a corpus with the numbers of their tokens and documents."""

    def __init__(self, texts: list[str]) -> None:
        counter = CountVectorizer(token_pattern=WORD, stop_words="english")
        X = counter.fit_transform(texts)
        self.words = counter.get_feature_names_out()
        self.count = np.asarray(X.sum(axis=0)).ravel()
        documents = np.asarray((X > 0).sum(axis=0)).ravel()
        self.top = self.words[np.argsort(-documents, kind="stable")[:N_WORDS]].tolist()

    def missing(self, chosen) -> float:
        """Share of tokens that no chosen word covers."""
        return self.count[~np.isin(self.words, list(chosen))].sum() / self.count.sum()


def chosen_words(texts, n_seeds: int, **options) -> list[list[str]]:
    """The vocabulary that each seed chooses."""
    return [
        list(vectorizer(random_state=seed, **options).fit(texts).vocabulary_)
        for seed in range(n_seeds)
    ]


def found_words(n_seeds: int) -> None:
    """For each corpus and epsilon: words of the public list alone, of both choices."""
    words = load_public_vocabulary(None)
    print(
        "| corpus | epsilon | public list alone | chosen with the list | without a "
        "list |"
    )
    print("| --- | --- | --- | --- | --- |")
    for name in ("kos", "bbc", "docstrings", "kos x 10"):
        texts = texts_of(name)
        top = Tokens(texts).top
        for epsilon in (0.5, 1.0, 2.0):
            ways = [
                [words[:N_WORDS]],
                chosen_words(texts, n_seeds, epsilon=epsilon),
                chosen_words(texts, n_seeds, epsilon=epsilon, candidates=None),
            ]
            cells = [
                f"{np.mean([len({*way} & {*top}) for way in of_seeds]):.0f}"
                for of_seeds in ways
            ]
            print(f"| {name} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


def missing_tokens(
    names: Sequence[str], n_seeds: int, figures: Path | None = None
) -> None:
    """A row for each corpus: tokens that the list, the choices and the leak lack."""
    words = load_public_vocabulary(None)
    columns = [
        "public list",
        *(f"{epsilon:g}" for epsilon in EPSILONS),
        "learned without privacy",
    ]
    print(f"| corpus | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}")
    curves = {}
    for name in names:
        texts = texts_of(name)
        tokens = Tokens(texts)
        of_seeds = [
            [
                tokens.missing(choice)
                for choice in chosen_words(texts, n_seeds, epsilon=epsilon)
            ]
            for epsilon in EPSILONS
        ]
        ends = tokens.missing(words[:N_WORDS]), tokens.missing(tokens.top)
        curves[name] = ends[0], np.mean(of_seeds, axis=1), ends[1]
        cells = [ends[0], *curves[name][1], ends[1]]
        print(
            f"| {name} | {' | '.join(f'{share:.1%}' for share in cells)} |", flush=True
        )
    if figures is not None:
        draw_missing(curves, figures / "missing_tokens.png")


def draw_missing(curves, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    colors = ("#0072b2", "#d55e00", "#009e73")  # distinct for the color blind
    for color, (name, (public, chosen, leaking)) in zip(colors, curves.items()):
        axes.plot(
            EPSILONS, 100 * chosen, marker="o", markersize=4, color=color, label=name
        )
        axes.axhline(100 * public, color=color, linewidth=0.9, linestyle=":")
        axes.axhline(100 * leaking, color=color, linewidth=0.9, linestyle="--")
    axes.plot(
        [], [], color="gray", linewidth=0.9, linestyle=":", label="public list alone"
    )
    axes.plot(
        [],
        [],
        color="gray",
        linewidth=0.9,
        linestyle="--",
        label="learned without privacy",
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set(
        xlabel="epsilon of the vocabulary",
        ylabel="tokens without a word, %",
        ylim=(0, None),
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=130)


def models(n_seeds: int) -> None:
    """A row for each vocabulary: perplexity, accuracy, and both over the leak's."""
    texts, labels = load_docstrings()
    texts, counts = np.array(texts, dtype=object), Counts(texts)
    of_words, of_model = split_epsilon(TOTAL, shares=(0.08, 0.92))
    leaking, python = "learned without privacy", python_words()
    lists = {
        "public, English": load_public_vocabulary(N_WORDS),
        "public, Python": python[:N_WORDS],
        "chosen, English list": "en",
        "chosen, Python list": python,
    }
    results = {name: [] for name in (leaking, *lists)}
    for seed in range(n_seeds):
        order = np.random.default_rng(seed).permutation(len(texts))
        test, train = order[: len(order) // 10], order[len(order) // 10 :]
        reference = sorted(Tokens(texts[train]).top)
        for name in results:
            epsilon, vocabulary = TOTAL, lists.get(name, reference)
            if name.startswith("chosen"):
                epsilon = of_model
                chooser = vectorizer(
                    epsilon=of_words, candidates=lists[name], random_state=seed
                )
                vocabulary = chooser.fit(texts[train]).vocabulary_
            model = SubLDA(N_TOPICS, epsilon=epsilon, max_iter=40, random_state=seed)
            model.fit(counts.of(sorted(vocabulary))[train])
            results[name].append(
                (
                    perplexity(model, sorted(vocabulary), reference, counts, test),
                    accuracy(model, counts.of(sorted(vocabulary)), labels, train, test),
                )
            )
    share = np.bincount(labels).max() / len(labels)
    print(
        f"\nvocabulary {of_words:.3f}, model {of_model:.3f}, total {TOTAL:g}; "
        f"{n_seeds} seeds"
    )
    print(
        f"{len(np.unique(labels))} labels, the largest has {share:.1%} of the "
        "documents\n"
    )
    print("| vocabulary | perplexity | over the leak | accuracy | over the leak |")
    print("| --- | --- | --- | --- | --- |")
    for name, of_seeds in results.items():
        ppl, acc = np.transpose(of_seeds)
        ratios = np.transpose(of_seeds) / np.transpose(results[leaking])
        (ppl_ratio, acc_ratio) = ratios.mean(axis=1)
        (ppl_error, acc_error) = ratios.std(axis=1, ddof=1) / np.sqrt(n_seeds)
        print(
            f"| {name} | {ppl.mean():.0f} ± {ppl.std(ddof=1):.0f} | {ppl_ratio:.3f} ± "
            f"{ppl_error:.3f} | {acc.mean():.3f} ± {acc.std(ddof=1):.3f} | "
            f"{acc_ratio:.3f} ± {acc_error:.3f} |",
            flush=True,
        )


class Counts:
    """Word counts of all texts in any list of words."""

    def __init__(self, texts) -> None:
        counter = CountVectorizer(token_pattern=WORD)
        X = sp.csc_array(counter.fit_transform(texts))
        self.X = sp.csc_array(sp.hstack([X, sp.csc_array((X.shape[0], 1))]))
        self.column = counter.vocabulary_

    def of(self, words) -> sp.csr_array:
        """A column a word; the last, which is empty, for a word that no text has."""
        return sp.csr_array(self.X[:, [self.column.get(word, -1) for word in words]])


def perplexity(model, vocabulary, reference, counts, test) -> float:
    """Perplexity of reference words in held-out halves, known to the model or not."""
    names = np.array(sorted({*vocabulary, *reference}))
    known, asked = np.isin(names, vocabulary), np.isin(names, reference)
    held = counts.of(names)[test]
    first = held.copy()
    first.data = np.random.default_rng(0).binomial(held.data.astype(int), 0.5)
    second = held - first
    phi = np.zeros((N_TOPICS, len(names)))
    phi[:, known] = model.components_ / model.components_.sum(axis=1, keepdims=True)
    p = model.transform(first[:, known]) @ phi
    both, lacking = known & asked, asked & ~known
    # of tokens without a word
    share = second[:, lacking].sum() / second[:, asked].sum()
    p[:, both] *= (1 - share) / p[:, both].sum(axis=1, keepdims=True)
    p[:, lacking] = share / max(lacking.sum(), 1)
    scored = sp.coo_array(second[:, asked])
    logs = np.log(p[:, asked][scored.row, scored.col]) * scored.data
    return float(np.exp(-logs.sum() / scored.data.sum()))


def explained_by_share(n_seeds: int) -> None:
    """A row for each corpus and total: nats per held-out token that topics explain.

    With the corpus's own words, and what chosen words keep of that, by their share of
    epsilon.
    """
    shares = (0.0, 0.06, 0.12, 0.24)
    print(f"| corpus, epsilon | own words | {' | '.join(map(str, shares[1:]))} |")
    print("| --- " * (1 + len(shares)) + "|")
    for name in ("bbc", "kos", "glosses", "docstrings"):
        texts = np.array(texts_of(name), dtype=object)
        counts, n_tokens = (
            Counts(texts),
            CountVectorizer(token_pattern=WORD, stop_words="english"),
        )
        tokens = np.asarray(n_tokens.fit_transform(texts).sum(axis=1)).ravel()
        for total in (1.0, 2.0, 4.0):
            found = np.zeros((len(shares), n_seeds))
            for i, seed in np.ndindex(found.shape):
                order = np.random.default_rng(seed).permutation(len(texts))
                test, train = order[: len(order) // 10], order[len(order) // 10 :]
                words, of_model = Tokens(texts[train]).top, total
                if shares[i]:
                    of_words, of_model = split_epsilon(
                        total, shares=(shares[i], 1 - shares[i])
                    )
                    chooser = vectorizer(epsilon=of_words, random_state=seed).fit(
                        texts[train]
                    )
                    words = list(chooser.vocabulary_)
                X, vectors = counts.of(words), load_word_vectors(words)
                model = SubLDA(
                    N_TOPICS, epsilon=of_model, word_vectors=vectors, random_state=seed
                )
                model.fit(X[train])
                gain = np.log(
                    unigram_perplexity(X[train], X[test]) / model.perplexity(X[test])
                )
                found[i, seed] = gain * X[test].sum() / tokens[test].sum()
            own, *kept = found.mean(axis=1)
            cells = [f"{own:.3f}", *(f"{value / own:.0%}" for value in kept)]
            print(f"| {name}, {total:g} | {' | '.join(cells)} |", flush=True)


def accuracy(model, X, labels, train, test) -> float:
    """Accuracy of a logistic regression on standardized topic weights."""
    theta = model.transform(X)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return classifier.fit(theta[train], labels[train]).score(theta[test], labels[test])


if __name__ == "__main__":
    main()
