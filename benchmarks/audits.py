"""Audits of every estimator: the epsilon that an attack finds, beside the claimed.

``python benchmarks/audits.py [--runs 20] [--canaries 5000] [--seed 0] [--only TEXT]
[--shares]``

Canaries are hidden among 100 invented documents (``make_topic_corpus``), at delta 1e-5.
The confidence of 0.95 holds for each line alone. The claim of `dplda.published` is the
published one. ``--shares`` counts the noise of models in the place of audits: of ten
parties, some of which draw none, and of fits whose noise is left out, where only
rounding is left (V = 2000, K = 20).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "papers"))

import published_attacks as attacks

from dplda import HDPLDA, OLPLDA, PrivateSVILDA, RandomizedResponse, SubLDA, published
from dplda.audit import audit_epsilon, noise_of_release
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty, fit_together
from dplda.privacy.mechanisms import DiscreteGaussian

DELTA, ROUNDS = 1e-5, {"delta": 1e-5, "max_iter": 10}
USERS = {"attack": "user"}


def response(bit_epsilon: float, max_doc_words: int, **options) -> RandomizedResponse:
    return RandomizedResponse(
        bit_epsilon=bit_epsilon, max_doc_words=max_doc_words, delta=DELTA, **options
    )


def server(kind: type, bit_epsilon: float, max_doc_words: int, **options) -> object:
    if kind is OLPLDA:
        options |= {"prior_weight": 0.4, "batch_size": 500}
    return kind(
        2,
        bit_epsilon=bit_epsilon,
        max_doc_words=max_doc_words,
        delta=DELTA,
        max_iter=1,
        **options,
    )


def words(noise_epsilon: float, count_clip: float, **options) -> HDPLDA:
    return HDPLDA(
        2,
        noise_epsilon=noise_epsilon,
        count_clip=count_clip,
        topic_word_prior=1.0,
        **ROUNDS | options,
    )


# name: estimator, options of the audit
SOUND = {
    "SubLDA, epsilon 1": (SubLDA(2, epsilon=1.0, **ROUNDS), {}),
    "SubLDA, epsilon 4": (SubLDA(2, epsilon=4.0, **ROUNDS), {}),
    "SubLDA, epsilon 8, ratio 0.2": (
        SubLDA(2, epsilon=8.0, subsampling_ratio=0.2, **ROUNDS),
        {},
    ),
    "SubLDA, epsilon 4, ratio 0.3, boost 2": (
        SubLDA(2, epsilon=4.0, subsampling_ratio=0.3, boost=2.0, **ROUNDS),
        {},
    ),
    "SubLDA, epsilon 4, 10 topics": (SubLDA(10, epsilon=4.0, **ROUNDS), {}),
    "SubLDA, epsilon 4, users": (SubLDA(2, epsilon=4.0, **ROUNDS), USERS),
    "PrivateSVILDA, epsilon 4": (PrivateSVILDA(2, epsilon=4.0, **ROUNDS), {}),
    "PrivateSVILDA, epsilon 8, ratio 1": (
        PrivateSVILDA(2, epsilon=8.0, subsampling_ratio=1.0, **ROUNDS),
        {},
    ),
    "PrivateSVILDA, epsilon 4, ratio 1, users": (
        PrivateSVILDA(2, epsilon=4.0, subsampling_ratio=1.0, **ROUNDS),
        USERS,
    ),
    "HDPLDA, epsilon 2": (HDPLDA(2, epsilon=2.0, **ROUNDS), {}),
    "HDPLDA, 4 + 1.39, one sweep": (words(4.0, 1.0, max_iter=1), {}),
    "RandomizedResponse, bit 0.7, 2 words": (response(0.7, 2), {}),
    "OLPLDA, bit 0.3, 5 words": (server(OLPLDA, 0.3, 5), {}),
    "IFTMParty, token 2": (IFTMParty(2, token_epsilon=2.0, max_iter=1), {}),
}
PUBLISHED = {
    "SUB-LDA: words that were not sampled": (
        published.PublishedSubLDA(2, max_iter=92),
        attacks.SUB_LDA,
    ),
    "HDP-LDA: moves without noise": (
        published.PublishedHDPLDA(
            2, noise_epsilon=0.1, count_clip=0.05, topic_word_prior=1, max_iter=5
        ),
        attacks.HDP_LDA,
    ),
    "private SVI: noise for another mean": (
        published.PublishedPrivateSVILDA(2, published_epsilon=1.0, delta=DELTA),
        attacks.PRIVATE_SVI,
    ),
    "iFTM: counts from a normalized model": (
        published.PublishedIFTMParty(2, published_epsilon=2.0, max_iter=2),
        attacks.IFTM,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--runs", type=int, default=20, help="fits of each sound estimator"
    )
    parser.add_argument(
        "--canaries", type=int, default=5000, help="canaries of each of these fits"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="lines whose name has this text")
    parser.add_argument("--shares", action="store_true")
    options = parser.parse_args()
    if options.shares:
        return count_shares()
    X = make_topic_corpus(100, 50, 2, random_state=0).data
    common = {"delta": DELTA, "random_state": options.seed}
    print("| | a coin decides that | claimed | epsilon at least | |")
    print("| --- | --- | --- | --- | --- |")
    for name, (model, others) in SOUND.items():
        if options.only in name:
            design = {"n_runs": options.runs, "n_canaries": options.canaries}
            result = audit_epsilon(model, X, **common, **design, **others)
            print(
                f"| {name} | {result.relation} | {result.claim:.2f} | "
                f"{result.lower_bound:.2f} | {verdict(result)} |",
                flush=True,
            )
    print("\n| as published | a coin decides that | epsilon at least | claimed | |")
    print("| --- | --- | --- | --- | --- |")
    for name, (model, attack) in PUBLISHED.items():
        if options.only in name:
            result = audit_epsilon(model, X, attack=attack, n_runs=5, **common)
            print(
                f"| {name} | {result.relation} | {result.lower_bound:.2f} | "
                f"{result.claim:.2f} | {verdict(result)} |",
                flush=True,
            )


def count_shares() -> None:
    warnings.simplefilter("ignore")
    draw = DiscreteGaussian.add_to
    X = make_topic_corpus(100, 20_000, 2, random_state=0).data
    parts = {str(i): X[10 * i : 10 * i + 10] for i in range(10)}
    for n_lazy in (0, 1, 3):
        lazy = itertools.cycle([True] * n_lazy + [False] * (10 - n_lazy))
        DiscreteGaussian.add_to = lambda *args, lazy=lazy: next(lazy) or draw(*args)
        found = noise_of_release(
            fit_together(SubLDA(2, epsilon=4.0, max_iter=2), parts)
        )
        print(
            f"{n_lazy} of 10 parties draw no noise: {found.shares:.2f} shares",
            flush=True,
        )
    DiscreteGaussian.add_to = lambda *args: None
    for n_docs, epsilon in itertools.product((5000, 20_000), (1.0, 4.0, 16.0)):
        X = make_topic_corpus(n_docs, 2000, 10, doc_length=80, random_state=0).data
        found = noise_of_release(SubLDA(20, epsilon=epsilon).fit(X))
        print(
            f"{n_docs} documents, epsilon {epsilon:g}: {found.shares:.1e} shares",
            flush=True,
        )


def verdict(result) -> str:
    return "**refuted**" if result.refuted else "holds"


if __name__ == "__main__":
    main()
