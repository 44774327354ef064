"""Nanoseconds per draw of the noise, and its share of a round of training.

``python benchmarks/noise.py [--cells 1000000] [--repeats 15] [--components 20 100 500]``

CPU time of one thread, all in one process in turn, next to numpy's generators, which are unsafe as
noise. The rounds are those of NIPS with all its words. They are left out if the corpus is missing.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from corpora import nips

from dplda import HDPLDA, SubLDA
from dplda.kernels import _noise, _sets
from dplda.privacy import SeededNoiseWarning
from dplda.privacy._mechanisms import PIECE
from dplda.privacy._streams import Purpose, Streams
from dplda.privacy._tables import gaussian_tables, geometric_tables
from dplda.privacy.mechanisms import DiscreteGaussian, FlooredLaplace

SCALE = 4.0
FIRST, LAST = 1, 3  # rounds of the two fits whose difference is timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--components", type=int, nargs="*", default=[20, 100, 500])
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    print(f"{options.cells} cells, ns per draw: best (median) of {options.repeats}\n")
    print_draws(options.cells, options.repeats)
    try:
        X = nips(n_words=None, shortest=1).train
    except OSError as error:
        print(f"\nleft out: the rounds ({error})")
        return
    print(f"\nNIPS: {X.shape[0]} documents, {int(X.sum())} tokens, {X.shape[1]} words; ms\n")
    print("| K | noise | round of SubLDA | share | noise | round of HDPLDA | share |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for n_components in options.components:
        print_round(X, n_components)


def print_draws(n_cells: int, repeats: int) -> None:
    """The kernels on words in cache, the mechanisms with their keystream, and numpy."""
    value, generator = np.zeros(n_cells, np.int64), np.random.default_rng()
    streams = Streams.from_random_state(None)
    words = streams.words(Purpose.NOISE, 0, 1, PIECE)
    spare = streams.words(Purpose.NOISE, 0, 1, PIECE, spare=True)
    cells, n_pieces = np.zeros(PIECE, np.int64), n_cells // PIECE + 1

    def kernel(add, add_tied, tables) -> Callable[[], None]:
        def run() -> None:
            for _ in range(n_pieces):
                left = add(words, tables.fast, cells, 1)
                add_tied(words, spare, tables.fast, tables.slow, cells, left)

        return run

    def mechanism(noise) -> Callable[[], None]:
        return lambda: noise(value, streams.reader(Purpose.NOISE, 0))

    n_words = n_pieces * PIECE
    runs = {}
    for name in _sets.INSTRUCTION_SETS:
        runs |= {
            f"Gaussian, bits in cache, {name}": (
                name, kernel(_noise.add_gaussian, _noise.add_tied_gaussian, gaussian_tables()),
                n_words),
            f"Gaussian with its keystream, {name}": (
                name, mechanism(DiscreteGaussian(100_000)), n_cells),
            f"Laplace, bits in cache, {name}": (
                name, kernel(_noise.add_laplace, _noise.add_tied_laplace, geometric_tables(SCALE)),
                n_words),
            f"Laplace with its keystream, {name}": (
                name, mechanism(FlooredLaplace(SCALE)), n_cells),
        }  # fmt: skip
    best = _sets.instruction_set()
    runs |= {
        "numpy normal (float, unsafe)": (
            best, lambda: value + generator.normal(size=n_cells), n_cells),
        "numpy laplace (float, unsafe)": (
            best, lambda: value + generator.laplace(size=n_cells), n_cells),
    }  # fmt: skip
    seconds = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, (instruction_set, run, _) in runs.items():
            _sets.use(instruction_set)
            seconds[name].append(cpu_seconds(run))
    print("| | ns |\n| --- | --- |")
    for name, (_, _, n) in runs.items():
        each = np.array(seconds[name][1:]) / n * 1e9
        print(f"| {name} | {each.min():.1f} ({np.median(each):.1f}) |")


def print_round(X, n_components: int) -> None:
    """Noise on all cells, and the time by which a fit grows with another round."""
    figures = []
    for noise, model in [
        (DiscreteGaussian(100_000), SubLDA(n_components, noise_multiplier=5.0)),
        (FlooredLaplace(SCALE), HDPLDA(n_components, noise_epsilon=0.5, count_clip=100.0)),
    ]:
        part, whole = noise_seconds(noise, (X.shape[1], n_components)), round_seconds(model, X)
        figures += [f"{1e3 * part:.2f}", f"{1e3 * whole:.0f}", f"{part / whole:.1%}"]
    print(f"| {n_components} | {' | '.join(figures)} |", flush=True)


def noise_seconds(noise, shape: tuple[int, int]) -> float:
    value, streams = np.zeros(shape, np.int64), Streams.from_random_state(None)
    return np.median(
        [cpu_seconds(lambda: noise(value, streams.reader(Purpose.NOISE, 0))) for _ in range(9)]
    )


def round_seconds(model, X) -> float:
    def fit(max_iter: int) -> float:
        return cpu_seconds(lambda: model.set_params(random_state=0, max_iter=max_iter).fit(X))

    fit(FIRST)  # calibrates
    return np.median([fit(LAST) - fit(FIRST) for _ in range(3)]) / (LAST - FIRST)


def cpu_seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
