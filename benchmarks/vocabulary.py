"""The private vocabulary: which words it finds, and what it does to a topic model.

``python benchmarks/vocabulary.py [--found] [--models] [--seeds 3]``

`--found`: how many of the 2000 words of highest document frequency are chosen, and the share of
tokens that no chosen word covers, against epsilon. `--models`: perplexity and accuracy at a total
epsilon of 4, vocabulary and model together. The public list is the package's English one. delta =
1e-6; mean over seeds of the noise.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import bbc_texts, kos_words
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from dplda import PrivateCountVectorizer, SubLDA
from dplda.datasets import load_docstrings, load_public_vocabulary
from dplda.privacy import split_epsilon

N_WORDS, TOTAL = 2000, 4.0
WORD = r"(?u)\b[a-z]{3,}\b"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--found", action="store_true")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.found or not options.models:
        found_words(options.seeds)
    if options.models or not options.found:
        models(options.seeds)


def texts_of(name: str) -> list[str]:
    if name.startswith("kos"):
        documents = [" ".join(words) for words in kos_words()]
        return documents * 10 if name.endswith("x 10") else documents
    return bbc_texts()[0] if name == "bbc" else load_docstrings().data


def vectorizer(**options) -> PrivateCountVectorizer:
    return PrivateCountVectorizer(
        max_features=N_WORDS, token_pattern=WORD, stop_words="english", **options
    )


def found_words(n_seeds: int) -> None:
    """A row for each corpus and epsilon: words found, tokens missing; public list alone beside."""
    words = load_public_vocabulary(None)
    print("| corpus | epsilon | public list alone | chosen with the list | without a list |")
    print("| --- | --- | --- | --- | --- |")
    for name in ("kos", "bbc", "docstrings", "kos x 10"):
        texts = texts_of(name)
        counter = CountVectorizer(token_pattern=WORD, stop_words="english")
        X, terms = counter.fit_transform(texts), counter.get_feature_names_out()
        tokens = np.asarray(X.sum(axis=0)).ravel()
        frequency = np.asarray((X > 0).sum(axis=0)).ravel()
        top = set(terms[np.argsort(-frequency, kind="stable")[:N_WORDS]])

        def cell(chosen: list[set[str]], terms=terms, tokens=tokens, top=top) -> str:
            n_found = np.mean([len(top & words) for words in chosen])
            missing = np.mean(
                [tokens[~np.isin(terms, list(w))].sum() / tokens.sum() for w in chosen]
            )
            return f"{n_found:.0f} / {missing:.1%}"

        for epsilon in (0.5, 1.0, 2.0):
            chosen = [
                [
                    set(vectorizer(epsilon=epsilon, candidates=candidates, random_state=seed)
                        .fit(texts).vocabulary_)
                    for seed in range(n_seeds)
                ]
                for candidates in (words, None)
            ]  # fmt: skip
            cells = [cell([set(words[:N_WORDS])]), *map(cell, chosen)]
            print(f"| {name} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


def models(n_seeds: int) -> None:
    """A row for each vocabulary: perplexity and accuracy on the reference words."""
    texts, labels = load_docstrings(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(texts))
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    texts = np.array(texts, dtype=object)
    counter = CountVectorizer(token_pattern=WORD, stop_words="english")
    X, terms = counter.fit_transform(texts[train]), counter.get_feature_names_out()
    frequency = np.asarray((X > 0).sum(axis=0)).ravel()
    reference = sorted(terms[np.argsort(-frequency, kind="stable")[:N_WORDS]])
    of_words, of_model = split_epsilon(TOTAL, shares=(0.08, 0.92))
    print(f"vocabulary {of_words:.3f}, model {of_model:.3f}, total {TOTAL:g}\n")
    print("| vocabulary | perplexity | accuracy |\n| --- | --- | --- |")
    lists = {
        "learned without privacy": reference,
        "public, English": load_public_vocabulary(N_WORDS),
        "public, Python": load_public_vocabulary(N_WORDS, language="python"),
        "chosen, English list": load_public_vocabulary(None),
        "chosen, Python list": load_public_vocabulary(None, language="python"),
    }  # fmt: skip
    for name, words in lists.items():
        results = []
        for seed in range(n_seeds):
            epsilon = TOTAL
            vocabulary = words
            if name.startswith("chosen"):
                epsilon = of_model
                chooser = vectorizer(epsilon=of_words, candidates=words, random_state=seed)
                vocabulary = sorted(chooser.fit(texts[train]).vocabulary_)
            results.append(
                evaluate(vocabulary, reference, texts, labels, train, test, epsilon, seed)
            )
        (ppl, acc), (ppl_sd, acc_sd) = np.mean(results, axis=0), np.std(results, axis=0)
        print(f"| {name} | {ppl:.0f} ± {ppl_sd:.0f} | {acc:.3f} ± {acc_sd:.3f} |", flush=True)


def evaluate(vocabulary, reference, texts, labels, train, test, epsilon, seed):
    """Perplexity of the reference words in held-out halves, and accuracy on topic weights."""
    counter = CountVectorizer(vocabulary=sorted({*vocabulary, *reference}), token_pattern=WORD)
    X = sp.csr_array(counter.transform(texts))
    names = counter.get_feature_names_out()
    known, asked = np.isin(names, list(vocabulary)), np.isin(names, reference)
    model = SubLDA(20, epsilon=epsilon, max_iter=40, random_state=seed).fit(X[train][:, known])
    coins = np.random.default_rng(0)
    held = X[test]
    first = held.copy()
    first.data = coins.binomial(held.data.astype(int), 0.5)
    second = held - first
    phi = np.zeros((20, len(names)))
    phi[:, known] = model.components_ / model.components_.sum(axis=1, keepdims=True)
    p = model.transform(first[:, known]) @ phi
    both, lacking = known & asked, asked & ~known
    counts = second[:, asked].sum(axis=0)
    share = second[:, lacking].sum() / counts.sum()  # of tokens that the model has no word for
    p[:, both] *= (1 - share) / p[:, both].sum(axis=1, keepdims=True)
    p[:, lacking] = share / max(lacking.sum(), 1)
    rows, columns = second[:, asked].nonzero()
    data = sp.csr_array(second[:, asked])
    logs = np.log(p[:, asked][rows, columns]) * data[rows, columns]
    perplexity = float(np.exp(-logs.sum() / data.sum()))
    classifier = LogisticRegression(max_iter=1000).fit(
        model.transform(X[train][:, known]), labels[train]
    )
    return perplexity, classifier.score(model.transform(X[test][:, known]), labels[test])


if __name__ == "__main__":
    main()
