"""Thresholded Laplace vectors: microseconds per token, beside two ways to do it with numpy.

``python benchmarks/survivors.py [--words 8000] [--threshold 0.2] [--tokens 1024] [--repeats 15]``.
Each draws the noise of whole vectors; CPU time, median, interleaved. dplda works on pieces of
2**16 survivors, as in a sweep; numpy is timed with `np.random` and with a `Generator`. "stored" is
what a list of survivors would take (4 bytes for the word, 2 for the level), "kept" what is.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

from dplda.federated._tokens import PIECE_SURVIVORS
from dplda.privacy._local_mechanisms import ThresholdedLaplace
from dplda.privacy._streams import Purpose, Streams


def naive(rng, n_words: int, epsilon: float, threshold: float, own: int):
    """Noise on every coordinate."""
    y = rng.laplace(0.0, 1.0 / epsilon, n_words)
    y[own] += 1.0
    word = np.flatnonzero(y > threshold)
    return word, y[word]


def binomial(rng, n_words: int, epsilon: float, threshold: float, own: int):
    """The number of survivors, then which, then by how much; the own coordinate by itself."""
    n = rng.binomial(n_words - 1, 0.5 * math.exp(-epsilon * threshold))
    word = np.sort(rng.choice(n_words - 1, n, replace=False, shuffle=False))
    word += word >= own
    value = threshold + rng.exponential(1.0 / epsilon, n)
    y = 1.0 + rng.laplace(0.0, 1.0 / epsilon)
    if y > threshold:
        at = np.searchsorted(word, own)
        word, value = np.insert(word, at, own), np.insert(value, at, y)
    return word, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=8000)
    parser.add_argument("--threshold", type=float, default=0.2)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[8.0, 9.0, 10.0, 11.0])
    options = parser.parse_args()
    rng, old = np.random.default_rng(0), np.random.RandomState(0)
    streams = Streams.from_random_state(None)
    own = rng.integers(options.words, size=options.tokens).astype(np.int32)
    print(
        "| epsilon | survivors | np.random naive | Generator naive | Generator binomial + choice | "
        "dplda | ratios | stored, bytes | kept, bytes |\n" + "| --- " * 9 + "|"
    )
    for epsilon in options.epsilons:
        mechanism = ThresholdedLaplace(epsilon, options.threshold)
        level = mechanism.own_levels(options.tokens, streams.reader(Purpose.OWN_WORDS, 0))
        piece = max(1, int(PIECE_SURVIVORS / (options.words * mechanism.survival)))
        runs = {"legacy": (naive, old), "naive": (naive, rng), "binomial": (binomial, rng)}
        times: dict[str, list[float]] = {name: [] for name in (*runs, "dplda")}
        n_found = 0
        for repeat in range(options.repeats + 1):
            for name, (run, generator) in runs.items():
                start = time.process_time()
                for w in own[:32]:
                    run(generator, options.words, epsilon, options.threshold, int(w))
                times[name].append((time.process_time() - start) / 32)
            start = time.process_time()
            for block, first in enumerate(range(0, options.tokens, piece)):
                some = slice(first, first + piece)
                reader = streams.reader(Purpose.SURVIVORS, repeat, block)
                found = mechanism.survivors(own[some], level[some], options.words, reader)
                n_found += len(found.word)
            times["dplda"].append((time.process_time() - start) / options.tokens)
        *others, ours = (1e6 * np.median(seconds[1:]) for seconds in times.values())
        survivors = n_found / options.tokens / (options.repeats + 1)
        print(
            f"| {epsilon:g} | {survivors:.0f} | {' | '.join(f'{t:.0f}' for t in others)} | "
            f"{ours:.2f} | {' / '.join(f'{t / ours:.0f}' for t in others)} | {6 * survivors:.0f} "
            "| 8 |"
        )


if __name__ == "__main__":
    main()
