"""The word-level release part by part: what a sweep of HDPLDA does besides drawing topics.

    python benchmarks/word_release.py --corpus nips --components 20 50 100 500 1000

It prints milliseconds of CPU time, one thread, medians: counts, noise (with its keystream), the sum
of releases, and the table of halves. Then, once a fit, the tokens: their list, their order, their
list by word, and the first topics.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from corpora import kos, nips

from dplda import HDPLDA
from dplda.core._corpus import Corpus, check_counts
from dplda.privacy._curator import Curator
from dplda.privacy._streams import Streams
from dplda.word._half_table import HalfTable
from dplda.word._word_sweeps import (
    NoisyCounts,
    SweepMechanisms,
    TokensByWord,
    uniform_topics,
)

CLIP, PRIOR = 1e4, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", choices=("nips", "kos"), default="nips")
    parser.add_argument("--components", type=int, nargs="+", default=[20, 50, 100, 500, 1000])
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    corpus = {"nips": nips, "kos": kos}[options.corpus](n_words=None, shortest=1)
    X = check_counts(HDPLDA(), corpus.train, reset=True)
    streams = Streams.from_random_state(0)
    tokens = Corpus.from_counts(X).shuffled(streams, 0)
    print(f"{options.corpus}: {tokens.n_tokens} tokens, {tokens.n_words} words; ms\n")
    print("| K | counts | noise | sum | table | all |\n| --- | --- | --- | --- | --- | --- |")
    for n_components in options.components:
        parts = release_parts(tokens, n_components, streams, options.repeats)
        print(f"| {n_components} | {' | '.join(f'{ms:.1f}' for ms in parts)} |", flush=True)
    print("\nOnce a fit:", ", ".join(f"{name} {ms:.1f}" for name, ms in tokens_parts(X, streams)))


def milliseconds(run: Callable[[], Any]) -> float:
    start = time.thread_time()
    run()
    return 1e3 * (time.thread_time() - start)


def release_parts(tokens: Corpus, n_components: int, streams: Streams, repeats: int) -> list[float]:
    """Medians of the parts and of their sum."""
    mechanism = SweepMechanisms.from_noise("laplace", 1.0, None, CLIP, PRIOR).mechanism
    topics = uniform_topics(tokens, n_components, streams)
    by_word, shape = TokensByWord.from_corpus(tokens), (tokens.n_words, n_components)
    cells, total = np.empty(shape, np.int32), NoisyCounts(np.zeros(shape, np.int32))
    figures = []
    for t in range(repeats + 1):
        with Curator([("a", mechanism.event)], streams, label="", unit="word") as curator:
            figures.append(
                [
                    milliseconds(lambda: by_word.count(topics, 1, cells, None)),
                    milliseconds(
                        lambda t=t, curator=curator: curator.release(
                            cells, mechanism, label="a", round=n_components * repeats + t
                        )
                    ),
                    milliseconds(lambda: total.add(NoisyCounts(cells, 0, 0.0, 0.0))),
                    milliseconds(
                        lambda: HalfTable.from_counts(cells, CLIP, PRIOR, mean=mechanism.mean)
                    ),
                ]
            )
    each = np.array(figures[1:])
    return [*np.median(each, axis=0), np.median(each.sum(axis=1))]


def tokens_parts(X: Any, streams: Streams) -> list[tuple[str, float]]:
    tokens = Corpus.from_counts(X)
    return [
        ("tokens", milliseconds(lambda: Corpus.from_counts(X))),
        ("order", milliseconds(lambda: tokens.shuffled(streams, 1))),
        ("list by word", milliseconds(lambda: TokensByWord.from_corpus(tokens))),
        ("first topics", milliseconds(lambda: uniform_topics(tokens, 100, streams))),
    ]


if __name__ == "__main__":
    main()
