"""What a checkpoint costs: size of the file, and time of a release that is written to it.

    python benchmarks/checkpoint.py --words 2000 50000 --topics 20 100

Prints the table of docs/scaling.md. A write includes two waits for the disk: that of the file, and
that of the ledger.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from dplda.document._checkpoint import Checkpoint
from dplda.document._noisy_table import NoisyTable
from dplda.privacy import Gaussian, Ledger
from dplda.privacy.mechanisms import Streams


def measure(n_words, n_components, n_writes, folder):
    """Size of the file, and CPU and wall seconds of each write."""
    streams = Streams.from_random_state(0)
    totals = np.arange(n_words, 0.0, -1)
    table = NoisyTable.from_totals(
        totals, np.ones(n_words), n_components, streams, norms=(1.0, 1.0)
    )
    ledger = Ledger(Path(folder, "privacy.sqlite"))
    path = Path(folder, "fit.ckpt")
    checkpoint = Checkpoint(str(path), {})
    checkpoint.begin(ledger, ledger.reserve("fit", "document", Gaussian(5.0)))
    cpu, wall = [], []
    for _ in range(n_writes):
        noisy = np.zeros((n_words, n_components), np.int64)
        checkpoint.keep(table, 2)
        begin = time.process_time(), time.perf_counter()
        checkpoint.write(noisy)
        cpu.append(time.process_time() - begin[0])
        wall.append(time.perf_counter() - begin[1])
    return path.stat().st_size, statistics.median(cpu), statistics.median(wall)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--words", type=int, nargs="+", default=[2000, 50000])
    parser.add_argument("--topics", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--writes", type=int, default=7)
    parser.add_argument("--folder", help="where to write; by default a temporary folder")
    options = parser.parse_args()
    print("| V, K | file | bytes a cell | CPU s a write | wall s a write |")
    print("| --- | --- | --- | --- | --- |")
    for n_words, n_components in zip(options.words, options.topics, strict=True):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            size, cpu, wall = measure(n_words, n_components, options.writes, folder)
        print(
            f"| {n_words}, {n_components} | {size / 1e6:.1f} MB | "
            f"{size / n_words / n_components:.1f} | {cpu:.3f} | {wall:.2f} |"
        )


if __name__ == "__main__":
    main()
