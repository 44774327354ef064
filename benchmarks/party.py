"""One party's models: perplexity against epsilon per token, and sentences against words.

``python benchmarks/party.py [--corpora kos] [--epsilons 4 8 11] [--seeds 1]``;
``--classify`` compares SentenceLDA and LDA on BBC, without privacy unless ``--epsilons`` are given.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
import warnings

import corpora
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dplda import GibbsLDA
from dplda.federated import IFTMParty, SentenceVectorizer
from dplda.metrics import unigram_perplexity
from dplda.privacy import SeededNoiseWarning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos"])
    parser.add_argument("--epsilons", nargs="+", type=float)
    parser.add_argument("--components", type=int, nargs="+")
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first-seed", type=int, default=0, help="of the splits of --classify")
    parser.add_argument("--classify", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    if options.classify:
        classify(options)
    else:
        perplexities(options)


def perplexities(options: argparse.Namespace) -> None:
    n_components = (options.components or [20])[0]
    for split in corpora.load(options.corpora):
        print(f"\n{split}, K={n_components}, {options.sweeps} sweeps\n")
        print("| model | epsilon per token | perplexity | seconds |\n| --- | --- | --- | --- |")
        print(f"| unigram | | {unigram_perplexity(split.train, split.test):.0f} | |")
        runs = [("GibbsLDA", "", GibbsLDA(n_components)), *private_runs(options, n_components)]
        for name, epsilon, model in runs:
            model.set_params(max_iter=options.sweeps)
            perplexity, seconds = [], []
            for seed in range(options.seeds or 1):
                start = time.process_time()
                model.set_params(random_state=seed).fit(split.train)
                seconds.append(time.process_time() - start)
                perplexity.append(model.perplexity(split.test))
            print(
                f"| {name} | {epsilon} | {np.mean(perplexity):.0f} | {np.mean(seconds):.1f} |",
                flush=True,
            )


def private_runs(options: argparse.Namespace, n_components: int):
    yield "IFTMParty", "inf", IFTMParty(n_components, token_epsilon=math.inf)
    for epsilon in sorted(options.epsilons or [4.0, 8.0, 11.0], reverse=True):
        near = round(1 - 1.07 / epsilon, 3)
        party = IFTMParty(n_components, token_epsilon=epsilon)
        yield "IFTMParty, rr", epsilon, party
        for threshold in (near, 0.2):
            yield (
                f"IFTMParty, laplace, threshold {threshold}",
                epsilon,
                IFTMParty(
                    n_components,
                    token_epsilon=epsilon,
                    token_mechanism="laplace",
                    noise_threshold=threshold,
                ),
            )


def classify(options: argparse.Namespace) -> None:
    texts, labels = bbc_texts()
    print("| K | epsilon per token | model | features by | logistic regression | linear SVM |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n_components in options.components or [10, 20, 50]:
        for epsilon in options.epsilons or [math.inf]:
            for model in ("lda", "sentence_lda"):
                runs = [
                    accuracies(texts, labels, n_components, epsilon, model, options, seed)
                    for seed in range(options.first_seed, options.first_seed + (options.seeds or 3))
                ]
                for features in runs[0]:
                    values = np.array([run[features] for run in runs])
                    shown = " | ".join(
                        f"{m:.3f} ± {s:.3f}"
                        for m, s in zip(values.mean(axis=0), values.std(axis=0))
                    )
                    print(
                        f"| {n_components} | {epsilon} | {model} | {features} | {shown} |",
                        flush=True,
                    )


def bbc_texts() -> tuple[list[str], np.ndarray]:
    with gzip.open(corpora.data_folder() / "bbc.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [row["text"] for row in rows], np.array([row["label"] for row in rows])


def accuracies(texts, labels, n_components, epsilon, model, options, seed) -> dict:
    """Topics from the training half, a classifier of their weights, accuracy on the other half."""
    train, test, y_train, y_test = train_test_split(
        texts, labels, test_size=0.5, random_state=seed, stratify=labels
    )
    # the vocabulary of an experiment; a private training must take a public one
    counter = CountVectorizer(stop_words="english", max_features=5000, min_df=5).fit(texts)
    vectorizer = SentenceVectorizer(counter.vocabulary_).fit()
    party = IFTMParty(
        n_components,
        token_epsilon=epsilon,
        model=model,
        max_iter=options.sweeps,
        random_state=seed,
    )
    train, test = vectorizer.transform(train), vectorizer.transform(test)
    party.fit(train)
    pairs = {"words": (train.counts(), test.counts())}
    if model == "sentence_lda":
        pairs["sentences"] = (train, test)
    scores = {}
    for name, pair in pairs.items():
        weights = [party.transform(corpus) for corpus in pair]
        classifiers = (LogisticRegression(max_iter=1000), LinearSVC())
        fitted = [make_pipeline(StandardScaler(), c).fit(weights[0], y_train) for c in classifiers]
        scores[name] = [f.score(weights[1], y_test) for f in fitted]
    return scores


if __name__ == "__main__":
    main()
