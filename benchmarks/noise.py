"""Nanoseconds per draw of the noise, keystream included, beside numpy's (unsafe) generators.

``python benchmarks/noise.py [--cells 1000000] [--repeats 9]``; CPU time, best and median.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from dplda._streams import Purpose, Streams
from dplda.privacy import DiscreteGaussian, FlooredLaplace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    value = np.zeros(options.cells, np.int64)
    streams, generator = Streams.from_random_state(None), np.random.default_rng()
    gaussian, laplace = DiscreteGaussian(100_000), FlooredLaplace(4.0)
    runs = {
        "DiscreteGaussian": lambda r: gaussian(value, streams.reader(Purpose.NOISE, r)),
        "FlooredLaplace": lambda r: laplace(value, streams.reader(Purpose.NOISE, r)),
        "numpy normal (float, unsafe)": lambda r: value + generator.normal(size=len(value)),
        "numpy laplace (float, unsafe)": lambda r: value + generator.laplace(size=len(value)),
    }
    print("| | best | median |\n| --- | --- | --- |")
    for name, run in runs.items():
        seconds = []
        for r in range(options.repeats + 1):
            start = time.process_time()
            run(r)
            seconds.append(time.process_time() - start)
        nanoseconds = np.array(seconds[1:]) / options.cells * 1e9
        print(f"| {name} | {nanoseconds.min():.1f} | {np.median(nanoseconds):.1f} |")


if __name__ == "__main__":
    main()
