"""Time and memory of training against the number of tokens.

``python benchmarks/scale.py``

Every fit runs in a process of its own, on invented documents of 333 tokens each, whose
words follow Zipf's law in each of 100 topics. The peak is the largest resident memory
of the process, and the memory above X is what the fit adds to a process that has loaded
its modules and X.

``--shards`` writes the corpora to shards and trains from the files: the anonymous
memory of such a fit, next to that of a fit of the matrix; ``--picture`` draws it.
``--memory`` prints what a fit needs per stored entry of X, per token, per cell of the
word-topic table and per document and topic. 10**8 tokens (``--tokens 6 7 8``) take 4 GB
and some minutes a round. Memory is read from /proc (Linux).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from matplotlib.figure import Figure
from scipy.optimize import nnls

import dplda
from dplda.datasets import CountShards, write_shards

ROUNDS = (1, 9)  # two fits, whose difference is the time of a round
ESTIMATORS = {
    "SubLDA": {"epsilon": 4.0},
    "PrivateSVILDA": {"epsilon": 4.0},
    "HDPLDA": {"noise_epsilon": 1.0, "count_clip": 10.0},
    "GibbsLDA": {},
}
BLOCK_TOKENS = 1 << 20
N_TOPICS = 100


def write_corpus(folder, n_tokens, n_words, *, length=333, repeat=1, seed=0):
    """Write the arrays of a CSR matrix; each drawn token occurs `repeat` times."""
    rng = np.random.default_rng(seed)
    n_docs = max(1, round(n_tokens / length))
    at_once = max(1, BLOCK_TOKENS // length)
    ends = [0]
    with open(folder / "indices", "wb") as indices, open(folder / "data", "wb") as data:
        for first in range(0, n_docs, at_once):
            size = min(at_once, n_docs - first)
            document = np.repeat(np.arange(size), rng.poisson(length / repeat, size))
            # three topics a document; the rank of a word has the density 1 / rank
            topic = rng.integers(0, N_TOPICS, (size, 3))[
                document, rng.integers(0, 3, len(document))
            ]
            rank = ((n_words + 1) ** rng.random(len(document))).astype(np.int64) - 1
            word = (rank + topic * (n_words // N_TOPICS)) % n_words
            cell, counts = np.unique(document * n_words + word, return_counts=True)
            (cell % n_words).astype(np.int32).tofile(indices)
            (counts * repeat).astype(np.float32).tofile(data)
            ends.extend(
                ends[-1] + np.cumsum(np.bincount(cell // n_words, minlength=size))
            )
    np.array(ends, np.int32).tofile(folder / "indptr")


def read_corpus(folder, n_words, dtype):
    data = np.fromfile(folder / "data", np.float32).astype(dtype, copy=False)
    indices, indptr = (
        np.fromfile(folder / name, np.int32) for name in ("indices", "indptr")
    )
    return sp.csr_array((data, indices, indptr), (len(indptr) - 1, n_words))


def memory(name):
    """VmRSS, the resident memory, or VmHWM, its peak, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise SystemExit(
        "the memory of a process is read from /proc, which this system does not have"
    )


def fit(name, X, n_components, max_iter):
    model = getattr(dplda, name)(
        n_components, max_iter=max_iter, random_state=0, **ESTIMATORS[name]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the seed, and few rounds for their noise
        return model.fit(X)


def one_fit(folder, name, n_words, n_components, max_iter, dtype):
    """In a fresh process: print the figures of one fit."""
    X = read_corpus(Path(folder), n_words, dtype)
    fit(name, X[:50], 2, 1)  # loads modules
    before, start = memory("VmRSS"), time.process_time()
    fit(name, X, n_components, max_iter)
    cpu = time.process_time() - start
    sizes = {
        "entries": X.nnz,
        "tokens": float(X.sum(dtype=float)),
        "documents": X.shape[0],
    }
    peak = memory("VmHWM")
    print(json.dumps({**sizes, "cpu": cpu, "peak": peak, "above": peak - before}))


class AnonymousPeak(threading.Thread):
    """Largest anonymous memory of this process (RssAnon) while it is open.

    Pages of files are not part of it, because the system takes them back when it needs
    the room.
    """

    def __enter__(self):
        self.before = self.peak = memory("RssAnon")
        self.is_open = True
        self.start()
        return self

    def run(self):
        while self.is_open:
            self.peak = max(self.peak, memory("RssAnon"))
            time.sleep(0.002)

    def __exit__(self, *error):
        self.is_open = False
        self.join()
        self.above = self.peak - self.before


def one_fit_of_files(folder, name, n_words, n_components, max_iter, form):
    """Write the shards in a fresh process, or fit them or the matrix; print figures."""
    folder = Path(folder)
    few = sp.csr_array(np.ones((5, n_words)))
    if form == "write":
        with AnonymousPeak(daemon=True) as peak:
            write_shards(map_corpus(folder, n_words), folder / "corpus")
        print(json.dumps({"above": peak.above}))
        return
    fit(name, few, 2, 1)  # loads modules
    start = time.process_time()
    with AnonymousPeak(daemon=True) as peak:
        X = (
            CountShards(folder / "corpus")
            if form == "shards"
            else read_corpus(folder, n_words, "float32")
        )
        model = fit(name, X, n_components, max_iter)
    figures = {"cpu": time.process_time() - start, "above": peak.above}
    print(json.dumps({**figures, "sum": float(np.square(model.components_).sum())}))


def map_corpus(folder, n_words):
    """The corpus as a matrix on mapped files."""
    indptr = np.fromfile(folder / "indptr", np.int32)
    data, indices = (
        np.asarray(np.memmap(folder / name, dtype, "r"))
        for name, dtype in (("data", np.float32), ("indices", np.int32))
    )
    return sp.csr_array((data, indices, indptr), (len(indptr) - 1, n_words))


def out_of_core(names, exponents, n_words, n_components, max_iter=3):
    """Print anonymous memory and time of fits of shards, next to fits of the matrix."""
    print(
        f"V = {n_words}, K = {n_components}, {max_iter} rounds; anonymous memory and "
        "CPU seconds"
    )
    print(
        "| estimator | tokens | writing | fit of the matrix, with it | fit of the "
        "shards | equal |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for exponent in exponents:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder), round(10**exponent), n_words)
            arguments = n_words, n_components, max_iter
            written = in_fresh_process(
                folder, names[0], *arguments, "write", option="--file"
            )
            for name in names:
                runs = {
                    form: in_fresh_process(
                        folder, name, *arguments, form, option="--file"
                    )
                    for form in ("matrix", "shards")
                }
                both = [
                    f"{runs[form]['above'] / 1e6:.0f} MB, {runs[form]['cpu']:.1f} s"
                    for form in ("matrix", "shards")
                ]
                equal = runs["matrix"]["sum"] == runs["shards"]["sum"]
                rows.append({**runs, "estimator": name, "tokens": 10**exponent})
                print(
                    f"| `{name}` | 10^{exponent:g} | {written['above'] / 1e6:.0f} MB "
                    f"| {both[0]} | {both[1]} | {equal} |",
                    flush=True,
                )
    return rows


def in_fresh_process(folder, *arguments, option="--one"):
    arguments = [str(folder), *arguments]
    command = [sys.executable, __file__, option, json.dumps(arguments)]
    return json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )


def growth(names, exponents, n_words, n_components, dtype):
    """Print time a round and peak memory against the number of tokens."""
    print(f"V = {n_words}, K = {n_components}, X holds {dtype} and int32")
    print(
        "| estimator | tokens | entries | CPU s a round | peak | above X | above X, a "
        "token |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for exponent in exponents:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder), round(10**exponent), n_words)
            for name in names:
                n_rounds = ROUNDS if exponent < 8 else (1, 2)
                runs = [
                    in_fresh_process(folder, name, n_words, n_components, n, dtype)
                    for n in n_rounds
                ]
                seconds = (runs[1]["cpu"] - runs[0]["cpu"]) / (
                    n_rounds[1] - n_rounds[0]
                )
                row = {**runs[1], "estimator": name, "round": seconds}
                print(
                    f"| `{name}` | {row['tokens']:.1e} | {row['entries']:.1e} | "
                    f"{seconds:.2f} | {row['peak'] / 1e6:.0f} MB | "
                    f"{row['above'] / 1e6:.0f} MB | {row['above'] / row['tokens']:.1f} "
                    "bytes |",
                    flush=True,
                )


# Of each size a small and a large one: (million tokens, length, repeat, V, K)
DESIGN = [
    (3, 333, 1, 4_000, 16),
    (6, 333, 1, 4_000, 16),
    (6, 333, 4, 4_000, 16),
    (3, 40, 1, 4_000, 16),
    (3, 40, 1, 4_000, 64),
    (3, 333, 1, 40_000, 16),
    (3, 333, 1, 40_000, 64),
]


def coefficients(names, dtype):
    """Print bytes a stored entry, a token, a table cell, and a document's topic."""
    print(f"X holds {dtype} and int32; bytes above X")
    print(
        "| estimator | a stored entry | a token | a cell of V x K | a cell of D x K | "
        "error |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    runs = {name: [] for name in names}
    for millions, length, repeat, n_words, n_components in DESIGN:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(
                Path(folder),
                millions * 1_000_000,
                n_words,
                length=length,
                repeat=repeat,
            )
            for name in names:
                run = in_fresh_process(folder, name, n_words, n_components, 2, dtype)
                sizes = [run["entries"], run["tokens"]]
                sizes += [n_words * n_components, run["documents"] * n_components]
                runs[name].append([*sizes, run["above"]])
    for name in names:
        *sizes, above = np.array(runs[name]).T
        solution, _ = nnls(np.transpose(sizes), above)
        error = np.abs(solution @ sizes / above - 1).max()
        print(
            f"| `{name}` | "
            + " | ".join(f"{c:.1f}" for c in solution)
            + f" | {error:.0%} |"
        )


def picture_of_shards(rows, path):
    """Anonymous memory of fits of matrices and shards against the number of tokens."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    ax = figure.subplots()
    for name in dict.fromkeys(row["estimator"] for row in rows):
        own = [row for row in rows if row["estimator"] == name]
        for form, style in (("matrix", "o--"), ("shards", "o-")):
            megabytes = [row[form]["above"] / 1e6 for row in own]
            ax.loglog(
                [row["tokens"] for row in own],
                megabytes,
                style,
                label=f"{name}, {form}",
            )
    ax.set(xlabel="tokens", ylabel="MB of anonymous memory")
    ax.legend()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--estimators", nargs="+", default=list(ESTIMATORS), choices=ESTIMATORS
    )
    parser.add_argument(
        "--tokens", nargs="+", type=float, default=[6, 7], help="powers of 10"
    )
    parser.add_argument("--words", type=int, default=50_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--dtype", default="float32", help="of the counts in X")
    parser.add_argument(
        "--memory", action="store_true", help="bytes an entry, a token, a cell"
    )
    parser.add_argument(
        "--shards", action="store_true", help="fits of files, out of core"
    )
    parser.add_argument("--picture", help="file for the plot")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one_fit(*json.loads(options.one))
    elif options.file:
        one_fit_of_files(*json.loads(options.file))
    elif options.shards:
        names = [n for n in options.estimators if n in ("SubLDA", "PrivateSVILDA")]
        rows = out_of_core(names, options.tokens, options.words, options.topics)
        if options.picture:
            picture_of_shards(rows, options.picture)
    elif options.memory:
        coefficients(options.estimators, options.dtype)
    else:
        growth(
            options.estimators,
            options.tokens,
            options.words,
            options.topics,
            options.dtype,
        )


if __name__ == "__main__":
    main()
