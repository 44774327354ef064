"""Time and memory of training against the number of tokens: ``python benchmarks/scale.py``.

Every fit runs in a process of its own, on invented documents of 333 tokens each, whose words follow
Zipf's law in each of 100 topics. The peak is the largest resident memory of the process, and the
memory above X is what the fit adds to a process that has loaded its modules and X.

``--shards`` writes the corpora to shards and trains from the files: the anonymous memory of such a
fit, next to that of a fit of the matrix. ``--engine`` trains on a dask.distributed cluster of one
worker process, and prints the CPU seconds of a round in tasks, on the worker outside of tasks, and
of the coordinator, next to those of threads; and the peak of the coordinator's memory. ``--model``
measures the pieces of a model of time and network, checks it at three sizes, and applies it to
PubMed and to 10**12 tokens. ``--memory`` prints what a fit needs per stored entry of
X, per token, per cell of the word-topic table and per document and topic. ``--picture`` draws the
times and the peaks (docs/images). 10**8 tokens (``--tokens 6 7 8``) take 4 GB and some minutes a
round. Memory is read from /proc (Linux).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager
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
            ends.extend(ends[-1] + np.cumsum(np.bincount(cell // n_words, minlength=size)))
    np.array(ends, np.int32).tofile(folder / "indptr")


def read_corpus(folder, n_words, dtype):
    data = np.fromfile(folder / "data", np.float32).astype(dtype, copy=False)
    indices, indptr = (np.fromfile(folder / name, np.int32) for name in ("indices", "indptr"))
    return sp.csr_array((data, indices, indptr), (len(indptr) - 1, n_words))


def memory(name):
    """VmRSS, the resident memory, or VmHWM, its peak, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise SystemExit("the memory of a process is read from /proc, which this system does not have")


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
    sizes = {"entries": X.nnz, "tokens": float(X.sum(dtype=float)), "documents": X.shape[0]}
    peak = memory("VmHWM")
    print(json.dumps({**sizes, "cpu": cpu, "peak": peak, "above": peak - before}))


class AnonymousPeak(threading.Thread):
    """Largest anonymous memory of this process (RssAnon) while it is open; pages of files are not
    part of it, because the system takes them back when it needs the room."""

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
    """In a fresh process: write the shards, or fit the matrix or the shards, and print figures."""
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
        X = CountShards(folder / "corpus") if form == "shards" else read_corpus(
            folder, n_words, "float32"
        )  # fmt: skip
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
    """Print the anonymous memory and time of fits of shards, next to those of the matrix."""
    print(f"V = {n_words}, K = {n_components}, {max_iter} rounds; anonymous memory and CPU seconds")
    print(
        "| estimator | tokens | writing | fit of the matrix, with it | fit of the shards | equal |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for exponent in exponents:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder), round(10**exponent), n_words)
            arguments = n_words, n_components, max_iter
            written = in_fresh_process(folder, names[0], *arguments, "write", option="--file")
            for name in names:
                runs = {
                    form: in_fresh_process(folder, name, *arguments, form, option="--file")
                    for form in ("matrix", "shards")
                }
                both = [f"{runs[form]['above'] / 1e6:.0f} MB, {runs[form]['cpu']:.1f} s"
                        for form in ("matrix", "shards")]  # fmt: skip
                equal = runs["matrix"]["sum"] == runs["shards"]["sum"]
                rows.append({**runs, "estimator": name, "tokens": 10**exponent})
                print(f"| `{name}` | 10^{exponent:g} | {written['above'] / 1e6:.0f} MB "
                      f"| {both[0]} | {both[1]} | {equal} |", flush=True)  # fmt: skip
    return rows


# ---- a cluster ---------------------------------------------------------------------------

WHERE = ("threads", "shards", "cluster")


def time_tasks():
    """On a worker: count the CPU seconds of its tasks, in all threads."""
    from dplda.document import _dask

    visit = _dask.visit

    def timed(task):
        start = time.process_time()
        try:
            return visit(task)
        finally:
            timed.seconds += time.process_time() - start

    timed.seconds = 0.0
    _dask.visit = timed


def task_seconds():
    from dplda.document import _dask

    return _dask.visit.seconds


QUIET = {  # the settings of docs/scaling.md: timers of distributed that run seldom
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.memory.monitor-interval": "2s",
    "distributed.worker.profile.enabled": False,
}


@contextmanager
def one_worker(*, tls=False, settings=QUIET):
    """A client of a cluster of one worker process, which counts the seconds of its tasks."""
    import dask
    from distributed import Client, LocalCluster, Security

    secure = {"security": Security.temporary(), "protocol": "tls://"} if tls else {}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, **secure
        ) as cluster,
        Client(cluster, direct_to_workers=True) as client,
    ):
        client.run(time_tasks)
        yield client


def time_calls():
    """CPU and wall seconds of this process in calls of the engine, as two lists that grow."""
    from dplda.document._dask import DaskEngine

    cpu, wall = [], []

    def timed(call):
        def run(*args):
            start, began = time.process_time(), time.perf_counter()
            try:
                return call(*args)
            finally:
                cpu.append(time.process_time() - start)
                wall.append(time.perf_counter() - began)

        return run

    DaskEngine.sum, DaskEngine.gather = map(timed, (DaskEngine.sum, DaskEngine.gather))
    return cpu, wall


def timers_of(client, seconds=5.0):
    """CPU seconds that the timers of distributed take in a second: here, and on the worker."""

    def spent():
        worker = sum(client.run(time.process_time).values())
        return np.array([time.process_time(), worker, time.perf_counter()])

    start = spent()
    time.sleep(seconds)
    here, worker, wall = spent() - start
    return here / wall, worker / wall


PARTS = ("coordinator", "engine", "tasks", "outside", "timers")


def cpu_of_rounds(X, n_components, n_threads, rounds, client=None, repeats=1):
    """CPU seconds of a round by `PARTS`: of this process without and with those in calls of the
    engine, in tasks, on the worker outside of tasks, and of the timers of distributed.

    The difference of two fits, of which the least of `repeats` counts: other jobs only add to it.
    """
    here_of_timers, there_of_timers = timers_of(client) if client else (0.0, 0.0)
    calls = time_calls() if client else ([], [])

    def spent():
        worker = sum(client.run(time.process_time).values()) if client else 0.0
        tasks = sum(client.run(task_seconds).values()) if client else 0.0
        in_calls = list(map(sum, calls))
        return np.array([time.process_time(), tasks, worker, *in_calls, time.perf_counter()])

    def train(max_iter):
        start = spent()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dplda.SubLDA(
                n_components, max_iter=max_iter, keep_weights=False, n_jobs=n_threads,
                noise_multiplier=0.05,  # a strong signal: all rounds are for topics
                random_state=0,
            ).fit(X)  # fmt: skip
        here, tasks, worker, in_calls, wall_in_calls, wall = spent() - start
        engine = in_calls - here_of_timers * wall_in_calls
        coordinator = here - in_calls - here_of_timers * (wall - wall_in_calls)
        outside = worker - tasks - there_of_timers * wall
        timers = (here_of_timers + there_of_timers) * wall
        return np.array([coordinator, engine, tasks, outside, timers])

    train(rounds[0])  # loads modules, opens connections
    few, many = (np.min([train(n) for _ in range(repeats)], axis=0) for n in rounds)
    return dict(zip(PARTS, ((many - few) / (rounds[1] - rounds[0])).tolist()))


def one_cluster(folder, where, n_words, n_components, n_threads, rounds):
    """In a fresh process: print the CPU seconds of a round, and the peak memory of the process."""
    folder = Path(folder)
    arguments = n_components, n_threads, rounds
    estimate_seconds = count_estimates()
    if where == "threads":
        seconds = cpu_of_rounds(read_corpus(folder, n_words, "float32"), *arguments)
    elif where == "shards":
        seconds = cpu_of_rounds(CountShards(folder / "corpus"), *arguments)
    else:
        with one_worker() as client:
            corpus = CountShards(folder / "corpus").on(client)
            seconds = cpu_of_rounds(corpus, *arguments, client)
    print(json.dumps({**seconds, "peak": memory("VmHWM"), "estimate": min(estimate_seconds)}))


def count_estimates():
    """A list to which each estimate of a table appends its CPU seconds, in all threads."""
    from dplda.document._table_estimate import TableEstimate

    estimate, seconds = TableEstimate.__call__, []

    def timed(*args, **options):
        start = time.process_time()
        result = estimate(*args, **options)
        seconds.append(time.process_time() - start)
        return result

    TableEstimate.__call__ = timed
    return seconds


def engine(n_tokens, n_words, n_components, n_threads, rounds=(1, 4), repeats=1):
    """Print the CPU seconds of a round with threads alone, with shards, and on a cluster."""
    print(f"V = {n_words}, K = {n_components}, {n_tokens:.0e} tokens, {n_threads} threads; "
          "CPU seconds a round")  # fmt: skip
    print("| | in tasks | worker, outside of tasks | engine on the coordinator | coordinator | all "
          "| timers | peak of the coordinator |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    runs = {}
    with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as folder:
        write_few(few, n_words)
        write_corpus(Path(folder), n_tokens, n_words)
        write_shards(map_corpus(Path(folder), n_words), Path(folder) / "corpus")
        for _ in range(repeats):
            for place, where in [(few, "threads"), *((folder, where) for where in WHERE)]:
                name = "200 documents" if place == few else where
                run = a_round(place, where, n_words, n_components, n_threads, rounds)
                runs.setdefault(name, []).append(run)
    rows = {}
    for name, found in runs.items():
        row = rows[name] = {key: np.median([run[key] for run in found]) for key in found[0]}
        print(
            f"| {name} | {row['tasks']:.2f} | {row['outside']:.2f} | {row['engine']:.2f} "
            f"| {row['coordinator']:.2f} | {total(row):.2f} | {row['timers']:.2f} "
            f"| {row['peak'] / 1e6:.0f} MB |"
        )
    outside = rows["cluster"]["outside"] + rows["cluster"]["engine"]
    print(f"\nengine outside of tasks: {outside:.2f} s; cluster against threads: "
          f"{total(rows['cluster']) / total(rows['threads']) - 1:+.0%}; one estimate of the table: "
          f"{rows['threads']['estimate']:.2f} s")  # fmt: skip
    for name, settings in (("default settings", {}), ("those of docs/scaling.md", QUIET)):
        with one_worker(settings=settings) as client:
            here, worker = timers_of(client)
        print(f"timers of distributed with {name}: {1e3 * here:.0f} ms of CPU a second on the "
              f"coordinator, {1e3 * worker:.0f} ms on a worker")  # fmt: skip
    return rows


def write_few(folder, n_words):
    """200 documents: what is left of a round is work on tables, and the engine."""
    write_corpus(Path(folder), 200 * 333, n_words)
    write_shards(map_corpus(Path(folder), n_words), Path(folder) / "corpus")


def a_round(folder, *arguments):
    return in_fresh_process(folder, *arguments, option="--round")


def total(row):
    return row["coordinator"] + row["engine"] + row["tasks"] + row["outside"]


# ---- a model of time and network ---------------------------------------------------------

PRICE = 0.05  # US dollars for a processor and hour, an assumption
NETWORK = 1.25e9  # bytes a second that the coordinator sends or receives (10 Gbit/s), likewise
PROCESSORS = 16  # of a machine
ROUNDS_OF_A_FIT = 80
# (tokens, tokens of a document, documents of a shard): each size is varied alone
FITTED = [
    (66_600, 333, 10_000),
    (1_000_000, 333, 20_000),
    (4_000_000, 333, 20_000),
    (4_000_000, 333, 1_500),
    (4_000_000, 89, 50_000),
]
CHECKED = [(500_000, 150, 10_000), (2_500_000, 89, 5_000), (12_000_000, 200, 50_000)]
PUBMED = {"name": "PubMed", "tokens": 7.3e8, "entries": 4.83e8, "documents": 8.2e6}
LARGE = {"name": "10^12 tokens", "tokens": 1e12, "entries": 6.7e11, "documents": 3e9}
ROWS_OF_A_SHARD = 100_000  # of these two
SIZES = ("round", "shards", "documents", "entries")
AROUND = ("coordinator", "engine", "outside")  # of tasks


def measure(client, n_words, n_components, repeats, n_tokens, length, rows):
    """Sizes of a corpus, and the CPU seconds of a round on one worker with one thread."""
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), n_tokens, n_words, length=length)
        corpus = write_shards(
            map_corpus(Path(folder), n_words), Path(folder) / "corpus", rows_per_shard=rows
        ).on(client)
        seconds = cpu_of_rounds(corpus, n_components, 1, (1, 4), client, repeats)
    sizes = {
        "round": 1, "shards": corpus.n_shards, "documents": corpus.shape[0],
        "entries": corpus.n_entries,
    }  # fmt: skip
    return {**sizes, "tokens": n_tokens, **seconds}


def pieces(client, n_words, n_components, repeats):
    """What a round needs: CPU seconds in tasks for each of `SIZES`, of the engine, and bytes."""
    rows = [measure(client, n_words, n_components, repeats, *sizes) for sizes in FITTED]
    tasks = np.array([row["tasks"] for row in rows])
    sizes = np.array([[row[name] for name in SIZES] for row in rows], float)
    solution, _ = nnls(sizes / tasks[:, None], np.ones(len(rows)))  # least relative errors
    found = {
        **dict(zip(SIZES, solution)),
        **{name: np.median([row[name] for row in rows]) for name in AROUND},
        **message_sizes(n_words, n_components),
    }
    return found, rows


def in_tasks(found, sizes):
    return sum(found[name] * sizes[name] for name in SIZES)


def compare(found, rows, title):
    """Print the CPU seconds of a round that the pieces predict next to those measured."""
    print(f"\n| {title}: tokens | documents | shards | in tasks, predicted | measured | error "
          "| all, predicted | measured | error |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        predicted, measured = in_tasks(found, row), row["tasks"]
        around, whole = sum(found[name] for name in AROUND), total(row)
        print(
            f"| {row['tokens']:.1e} | {row['documents']} | {row['shards']} "
            f"| {predicted:.2f} s | {measured:.2f} s | {predicted / measured - 1:+.0%} "
            f"| {predicted + around:.2f} s | {whole:.2f} s "
            f"| {(predicted + around) / whole - 1:+.0%} |",
            flush=True,
        )


def on_paper(found, corpus, machines):
    """A row of the table: machines, hours and what they cost."""
    shards = corpus["documents"] / ROWS_OF_A_SHARD
    threaded = in_tasks(found, {**corpus, "shards": shards, "round": 0}) / (machines * PROCESSORS)
    worker = found["round"] + found["outside"]
    serial = found["coordinator"] + machines * found["engine"]
    bytes_a_round = machines * (found["down"] + found["up"])
    seconds = threaded + worker + serial + bytes_a_round / NETWORK
    hours = ROUNDS_OF_A_FIT * seconds / 3600
    cost = hours * machines * PROCESSORS * PRICE
    return (
        f"| {corpus['name']} | {machines} | {threaded:.1f} s | {worker:.1f} s | {serial:.1f} s "
        f"| {bytes_a_round / 1e9:.1f} GB, {bytes_a_round / NETWORK:.1f} s "
        f"| {hours:.1f} | {hours * machines * PROCESSORS:.0f} | {cost:.0f} |"
    )


def model(n_words, n_components, repeats):
    """Measure the pieces, check them at other sizes, and apply them on paper."""
    print(f"V = {n_words}, K = {n_components}, weights from scratch, TLS; CPU seconds of a round, "
          f"one worker with one thread, least of {repeats} fits")  # fmt: skip
    with one_worker(tls=True) as client:
        found, fitted = pieces(client, n_words, n_components, repeats)
        print(
            f"in tasks: {found['round']:.3f} s a round, {1e3 * found['shards']:.2f} ms a shard, "
            f"{1e6 * found['documents']:.2f} us a document, {1e6 * found['entries']:.4f} us an "
            f"entry\ncoordinator: {found['coordinator']:.3f} s for tables, {found['engine']:.3f} s "
            f"a worker for the engine\nworker outside of tasks: {found['outside']:.3f} s\n"
            f"{found['down'] / 1e6:.0f} MB to a worker, {found['up'] / 1e6:.0f} MB back"
        )
        compare(found, fitted, "fitted")
        checked = [measure(client, n_words, n_components, repeats, *sizes) for sizes in CHECKED]
        compare(found, checked, "checked")
    large_corpora(found)


def model_of_rounds(n_words, n_components, rounds):
    """The model of rounds that were measured before: (entries, CPU seconds) of each, whole.

    What does not depend on entries counts as work of the coordinator for each worker: the worst.
    """
    entries, seconds = np.transpose(rounds)
    slope, rest = np.polyfit(entries, seconds, 1)
    print(f"{1e6 * slope:.3f} us an entry, {rest:.2f} s a round and worker")
    for size, measured in rounds:
        predicted = slope * size + rest
        print(f"{size:.2e} entries: predicted {predicted:.2f} s, measured {measured:.2f} s, "
              f"{predicted / measured - 1:+.0%}")  # fmt: skip
    large_corpora(
        {**dict.fromkeys((*SIZES, *AROUND), 0.0), "entries": slope, "engine": rest,
         **message_sizes(n_words, n_components)}
    )  # fmt: skip


def message_sizes(n_words, n_components):
    """Bytes of a round: to a worker, and back."""
    padded = -(-n_components // 16) * 16
    return {"down": 3 * 4 * n_words * padded, "up": 8 * n_words * n_components}


def large_corpora(found):
    """Print what the pieces say of PubMed and of 10**12 tokens."""
    print(f"\n{ROUNDS_OF_A_FIT} rounds, machines of {PROCESSORS} processors, "
          f"{NETWORK * 8 / 1e9:.0f} Gbit/s, {PRICE} dollars an hour and processor")  # fmt: skip
    print("| corpus | machines | tasks | worker | coordinator | network | hours "
          "| processor hours | dollars |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for corpus, numbers in ((PUBMED, (1, 4, 16)), (LARGE, (32, 128, 512))):
        for machines in numbers:
            print(on_paper(found, corpus, machines), flush=True)


def in_fresh_process(folder, *arguments, option="--one"):
    arguments = [str(folder), *arguments]
    command = [sys.executable, __file__, option, json.dumps(arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def growth(names, exponents, n_words, n_components, dtype):
    """Print and return time a round and peak memory against the number of tokens."""
    print(f"V = {n_words}, K = {n_components}, X holds {dtype} and int32")
    print("| estimator | tokens | entries | CPU s a round | peak | above X | above X, a token |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for exponent in exponents:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder), round(10**exponent), n_words)
            for name in names:
                n_rounds = ROUNDS if exponent < 8 else (1, 2)
                runs = [
                    in_fresh_process(folder, name, n_words, n_components, n, dtype)
                    for n in n_rounds
                ]
                seconds = (runs[1]["cpu"] - runs[0]["cpu"]) / (n_rounds[1] - n_rounds[0])
                row = {**runs[1], "estimator": name, "round": seconds}
                rows.append(row)
                print(
                    f"| `{name}` | {row['tokens']:.1e} | {row['entries']:.1e} | {seconds:.2f} "
                    f"| {row['peak'] / 1e6:.0f} MB | {row['above'] / 1e6:.0f} MB "
                    f"| {row['above'] / row['tokens']:.1f} bytes |",
                    flush=True,
                )
    return rows


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
    """Print bytes a stored entry, a token, a cell of the table, and a document's topic."""
    print(f"X holds {dtype} and int32; bytes above X")
    print("| estimator | a stored entry | a token | a cell of V x K | a cell of D x K | error |")
    print("| --- | --- | --- | --- | --- | --- |")
    runs = {name: [] for name in names}
    for millions, length, repeat, n_words, n_components in DESIGN:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder), millions * 1_000_000, n_words, length=length, repeat=repeat)
            for name in names:
                run = in_fresh_process(folder, name, n_words, n_components, 2, dtype)
                sizes = [run["entries"], run["tokens"]]
                sizes += [n_words * n_components, run["documents"] * n_components]
                runs[name].append([*sizes, run["above"]])
    for name in names:
        *sizes, above = np.array(runs[name]).T
        solution, _ = nnls(np.transpose(sizes), above)
        error = np.abs(solution @ sizes / above - 1).max()
        print(f"| `{name}` | " + " | ".join(f"{c:.1f}" for c in solution) + f" | {error:.0%} |")


def picture(rows, path):
    """CPU seconds a round and memory above X against the number of tokens, on logarithmic axes."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, key, unit, title in (
        (axes[0], "round", 1.0, "CPU seconds a round"),
        (axes[1], "above", 1e6, "MB above X"),
    ):
        for name in dict.fromkeys(row["estimator"] for row in rows):
            own = [row for row in rows if row["estimator"] == name]
            ax.loglog(
                [r["tokens"] for r in own], [r[key] / unit for r in own], marker="o", label=name
            )
        tokens = np.array([min(r["tokens"] for r in rows), max(r["tokens"] for r in rows)])
        last = max(r[key] for r in rows) / unit
        ax.loglog(tokens, last * tokens / tokens[1], ":", color="gray", label="in proportion")
        ax.set(xlabel="tokens", title=title)
    axes[0].legend()
    figure.savefig(path, dpi=120)


def picture_of_shards(rows, path):
    """Anonymous memory of fits of matrices and of shards against the number of tokens."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    ax = figure.subplots()
    for name in dict.fromkeys(row["estimator"] for row in rows):
        own = [row for row in rows if row["estimator"] == name]
        for form, style in (("matrix", "o--"), ("shards", "o-")):
            megabytes = [row[form]["above"] / 1e6 for row in own]
            ax.loglog([row["tokens"] for row in own], megabytes, style, label=f"{name}, {form}")
    ax.set(xlabel="tokens", ylabel="MB of anonymous memory")
    ax.legend()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS), choices=ESTIMATORS)
    parser.add_argument("--tokens", nargs="+", type=float, default=[6, 7], help="powers of 10")
    parser.add_argument("--words", type=int, default=50_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--dtype", default="float32", help="of the counts in X")
    parser.add_argument("--memory", action="store_true", help="bytes an entry, a token, a cell")
    parser.add_argument("--shards", action="store_true", help="fits of files, out of core")
    parser.add_argument("--engine", action="store_true", help="a cluster against threads")
    parser.add_argument("--model", action="store_true", help="time and network of large corpora")
    parser.add_argument(
        "--rounds", nargs="+", help="entries:seconds of measured rounds, for --model without fits"
    )
    parser.add_argument("--threads", type=int, default=2, help="of --engine")
    parser.add_argument(
        "--repeats", type=int, default=1, help="of --engine and --model, for medians"
    )
    parser.add_argument("--picture", help="file for the plot")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--round", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one_fit(*json.loads(options.one))
    elif options.file:
        one_fit_of_files(*json.loads(options.file))
    elif options.round:
        one_cluster(*json.loads(options.round))
    elif options.engine:
        for exponent in options.tokens:
            engine(
                int(10**exponent), options.words, options.topics, options.threads,
                repeats=options.repeats,
            )  # fmt: skip
    elif options.model and options.rounds:
        rounds = [tuple(map(float, pair.split(":"))) for pair in options.rounds]
        model_of_rounds(options.words, options.topics, rounds)
    elif options.model:
        model(options.words, options.topics, options.repeats)
    elif options.shards:
        names = [n for n in options.estimators if n in ("SubLDA", "PrivateSVILDA")]
        rows = out_of_core(names, options.tokens, options.words, options.topics)
        if options.picture:
            picture_of_shards(rows, options.picture)
    elif options.memory:
        coefficients(options.estimators, options.dtype)
    else:
        rows = growth(
            options.estimators, options.tokens, options.words, options.topics, options.dtype
        )
        if options.picture:
            picture(rows, options.picture)


if __name__ == "__main__":
    main()
