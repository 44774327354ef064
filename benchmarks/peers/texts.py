"""From texts to counts, and to a file of topics, next to other packages.

``python benchmarks/peers/texts.py counts [--corpora bbc8 glosses tickets] [--repeats
3]`` prints megabytes a CPU second: words and counts of a whole fit, which reads texts,
chooses words with privacy, and counts them.

``... one [--repeats 3]`` prints milliseconds of `transform` for one text, warm.

``... topics [--corpora bbc4 glosses tickets] [--tickets 20000] [--components 20 50 100]
[--epsilons 1 4] [--max-iter 80 40]`` prints CPU seconds of whole jobs:
`PrivateTopicModel.fit` and `save`, with so many rounds, and CountVectorizer with 80
sweeps of tomotopy over as many words. The columns of its table are seconds of each
part; LeNLP's counts are in the place of CountVectorizer's in the last one. It also
prints tokens an entry, and how many rounds release topics and word totals, and test
topics.

``... memory --tickets 400000 [--rounds 4] [--entries N]`` prints the largest memory of
the process before and after a fit to tickets of 500 characters, which a generator
gives, and after `transform` of as many to a file. `N` is the number of counts above
which they go to files. ``--characters`` makes shorter tickets.

``... command --tickets 400000 [--rounds 4] [--users] [--groups] [--fit-only]`` writes
such tickets to a CSV file, and prints the largest memory and the CPU seconds of ``dplda
fit``, with fewer rounds than its 80, and of ``dplda transform`` to a file of NumPy. A
user has five tickets. With ``--groups``, the fit also counts the tickets of 50 wards
and of 52 weeks. Eight rounds or more end with rounds that test the topics.
``--fit-components`` is the number of topics.

A megabyte is a million characters. BBC is repeated 8 or 4 times. A ticket has 200
characters, of random English words by Zipf's law; ``--tickets`` says how many, and
``--corpora tiny`` takes few. All take turns in one process, with one thread.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from measuring import conditions, cpu_seconds, markdown
from opponents import NotInstalled, Tomotopy, imported
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import bbc_texts

from dplda import PrivateCountVectorizer, PrivateTopicModel, SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.document._rules import Rules
from dplda.text import _counted

LETTERS = r"(?u)\b[^\W\d_]{3,}\b"  # words of PrivateTopicModel
N_WORDS = 2000
SWEEPS = 80
GROUPS = {"ward": 50, "week": 52}
COMMAND = """
import sys
from functools import partial

from dplda.__main__ import main
from dplda.text import _parts

_parts.SubLDA = partial(_parts.SubLDA, max_iter={rounds})
sys.exit(main(sys.argv[1:]))
"""  # dplda


def tickets(n: int, n_characters: int) -> Iterator[str]:
    words = np.array(load_public_vocabulary(20_000), dtype=object)
    weights = 1 / (10 + np.arange(len(words)))
    random = np.random.default_rng(0)
    drawn = random.choice(words, 1 << 20, p=weights / weights.sum())
    length = n_characters // 4  # words, of more than four characters with a space
    for begin in random.integers(0, len(drawn) - length, n):
        yield " ".join(drawn[begin : begin + length])[:n_characters]


def corpus(name: str, n_tickets: int) -> list[str]:
    if name.startswith("bbc"):
        return int(name.removeprefix("bbc") or 1) * bbc_texts()[0]
    if name == "glosses":
        return load_wordnet_glosses().data
    return list(tickets(300 if name == "tiny" else n_tickets, 200))


def with_gensim(texts: list[str]) -> None:
    imported("gensim")
    from gensim.corpora import Dictionary
    from gensim.utils import simple_preprocess

    dictionary = Dictionary()
    for text in texts:
        dictionary.doc2bow(simple_preprocess(text, min_len=3), allow_update=True)


def our_words() -> PrivateCountVectorizer:
    return PrivateCountVectorizer(
        epsilon=1.0, token_pattern=LETTERS, stop_words="english", random_state=0
    )


def turns(rows: dict[str, Callable[[], object]], repeats: int) -> dict[str, Any]:
    """CPU seconds of calls that take turns, or the reason why there are none."""
    times: dict[str, Any] = {row: [] for row in rows}
    for _ in range(repeats):
        for row, call in rows.items():
            start = cpu_seconds()
            try:
                call()
            except NotInstalled as missing:
                times[row] = str(missing)
                continue
            times[row].append(cpu_seconds() - start)
    return times


def with_lenlp(texts: list[str], n_words: int | None = None) -> sp.csr_matrix:
    """Counts by its own rule of words, which takes no pattern."""
    imported("lenlp")
    from lenlp.sparse import CountVectorizer as Vectorizer

    X = sp.csr_matrix(Vectorizer(stop_words=[*ENGLISH_STOP_WORDS]).fit_transform(texts))
    return X[:, np.argsort(-np.asarray(X.sum(axis=0)).ravel())[:n_words]]


def counting(texts: list[str]) -> dict[str, Callable[[], object]]:
    theirs = CountVectorizer(token_pattern=LETTERS)
    return {
        "dplda, whole choice of words": lambda: our_words().fit_transform(texts),
        "scikit-learn CountVectorizer": lambda: theirs.fit_transform(texts),
        "LeNLP CountVectorizer": lambda: with_lenlp(texts),
        "gensim simple_preprocess, doc2bow": lambda: with_gensim(texts),
    }


def counts(options: argparse.Namespace) -> None:
    table = []
    for name in options.corpora or ["bbc8", "glosses", "tickets"]:
        texts = corpus(name, options.tickets)
        size = sum(map(len, texts)) / 1e6
        for row, found in turns(counting(texts), options.repeats).items():
            speeds = found
            if not isinstance(found, str):
                best, median = size / np.min(found), size / np.median(found)
                speeds = f"{best:.1f} ({median:.1f})"
            table.append((f"{name}, {size:.0f} MB", row, speeds))
    print(markdown(["Corpus", "", "MB a CPU second, best (median)"], table))


def one(options: argparse.Namespace) -> None:
    texts = bbc_texts()[0]
    model = PrivateTopicModel(20, epsilon=4.0, n_jobs=1, random_state=0).fit(texts)
    chosen = model.vectorizer_
    theirs = CountVectorizer(token_pattern=LETTERS, vocabulary=chosen.vocabulary_)
    text = [sorted(texts, key=len)[len(texts) // 2]]
    X = chosen.transform(text)
    rows = {
        "words and counts": lambda: chosen.transform(text),
        "topics of these counts": lambda: model.model_.transform(X),
        "the whole model": lambda: model.transform(text),
        "scikit-learn CountVectorizer": lambda: theirs.transform(text),
    }
    times: dict[str, list[float]] = {row: [] for row in rows}
    for _ in range(100 * options.repeats):
        for row, call in rows.items():
            call()  # warm: the others have had the caches
            start = time.process_time_ns()
            call()
            times[row].append((time.process_time_ns() - start) / 1e6)
    print(f"One text of {len(text[0])} characters, ms:\n")
    table = [
        (row, f"{min(found):.2f} ({np.median(found):.2f})")
        for row, found in times.items()
    ]
    print(markdown(["", "ms, best (median)"], table))


def with_sklearn(texts: list[str]) -> sp.csr_matrix:
    vectorizer = CountVectorizer(
        token_pattern=LETTERS, stop_words="english", max_features=N_WORDS
    )
    return vectorizer.fit_transform(texts)


def with_tomotopy(X: sp.csr_matrix, n_components: int, path: Path) -> None:
    peer = Tomotopy(X, n_components, 0, 1)
    for _ in range(SWEEPS):
        peer.step()
    np.savez(path, components=peer.components())


def with_dplda(
    texts: list[str], n_components: int, epsilon: float, path: Path, max_iter: int = 80
) -> PrivateTopicModel:
    model = PrivateTopicModel(
        n_components, epsilon=epsilon, max_features=N_WORDS, n_jobs=1, random_state=0
    )
    model.set_params(model=SubLDA(max_iter=max_iter))
    model.fit(texts).save(path)
    return model


def rounds_of(model: PrivateTopicModel) -> str:
    """Numbers of rounds that released topics, word totals, and tests."""
    topics = model.model_
    budget = topics._budget()
    steps = budget.schedule(
        0,
        topics.n_iter_,
        share_for_totals=topics._released.share_for_totals,
        powers=Rules.powers,
    )
    n_totals = sum(step.for_totals for step in steps)
    n_tests = sum(step.for_test for step in steps)
    return f"{len(steps) - n_totals - n_tests} + {n_totals} + {n_tests}"


def topics(options: argparse.Namespace) -> None:
    path = Path(tempfile.mkdtemp()) / "topics"
    head = ["Corpus", "K", "epsilon", "Rounds: topics + totals + tests", "dplda, s"]
    head += ["CountVectorizer, s", "80 sweeps, s", "times as fast", "LeNLP, s"]
    with_dplda(corpus("tiny", 300), 5, 1.0, path, 4)  # loads what a fit needs
    corpora: list[str] = []
    print(markdown([*head, "times as fast with LeNLP"], []), flush=True)
    for name in options.corpora or ["bbc4", "glosses", "tickets"]:
        texts = corpus(name, options.tickets)
        X = with_sklearn(texts)
        corpora.append(
            f"{name}: {X.shape[0]:,} texts, {sum(map(len, texts)) / 1e6:.0f} MB, "
            f"{X.nnz / X.shape[0]:.0f} words of {X.shape[1]:,} in a text, "
            f"{X.sum() / X.nnz:.2f} tokens an entry"
        )
        for k in options.components:
            fitted: dict[tuple[float, int], PrivateTopicModel] = {}

            def ours(epsilon: float, max_iter: int, texts=texts, k=k, of=fitted):
                of[epsilon, max_iter] = with_dplda(texts, k, epsilon, path, max_iter)

            jobs = {
                (epsilon, n): partial(ours, epsilon, n)
                for epsilon in options.epsilons
                for n in options.max_iter
            }
            parts: dict[Any, Callable[[], object]] = {
                "sklearn": partial(with_sklearn, texts),
                "lenlp": partial(with_lenlp, texts, N_WORDS),
                "sweeps": partial(with_tomotopy, X, k, path.with_suffix(".npz")),
            }
            found = turns({**jobs, **parts}, options.repeats)
            # a peer that is not installed takes no time that is known
            median = {
                part: np.nan if isinstance(times, str) else float(np.median(times))
                for part, times in found.items()
            }
            sklearn, lenlp, sweeps = (median[part] for part in parts)
            for job, model in fitted.items():
                seconds = median[job]
                row = [name, f"{k}", f"{job[0]:g}", rounds_of(model), f"{seconds:.1f}"]
                row += [f"{sklearn:.1f}", f"{sweeps:.1f}"]
                row += [f"{(sklearn + sweeps) / seconds:.2f}"]
                row += [f"{lenlp:.1f}", f"{(lenlp + sweeps) / seconds:.2f}"]
                print("| " + " | ".join(row) + " |", flush=True)
    print("\n" + "\n".join(corpora))


def used(found: resource.struct_rusage | None = None) -> tuple[float, float]:
    """Gigabytes at most, and CPU seconds; of this process if `found` is None."""
    found = found or resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_maxrss * 1024 / 1e9, found.ru_utime + found.ru_stime


def memory(options: argparse.Namespace) -> None:
    if options.entries:
        _counted.IN_MEMORY = options.entries
    model = PrivateTopicModel(20, epsilon=4.0, n_jobs=1, random_state=0)
    model.set_params(model=SubLDA(max_iter=options.rounds))
    model.fit(tickets(1000, options.characters))  # loads what a fit needs
    before, start = used()
    model.fit(tickets(options.tickets, options.characters))
    after, end = used()
    print(
        f"{options.tickets:,} tickets of {options.characters} characters, "
        f"{options.rounds} rounds: "
        f"{before:.2f} GB before, {after:.2f} GB at most, {end - start:.0f} s of CPU"
    )
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "weights.npy")
        model.transform(tickets(options.tickets, options.characters), out=weights)
        most, last = used()
        size = weights.stat().st_size / 1e9
    print(
        f"transform to a file of {size:.2f} GB: {most:.2f} GB at most, "
        f"{last - end:.0f} s of CPU"
    )


def command(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, release = Path(folder, "tickets.csv"), Path(folder, "topics.dplda")
        random = np.random.default_rng(1)
        with path.open("w") as file:
            file.write("user,ward,week,text\n")
            users = random.integers(0, max(options.tickets // 5, 1), options.tickets)
            texts = tickets(options.tickets, options.characters)
            for i, (user, text) in enumerate(zip(users, texts)):
                ward, week = user % GROUPS["ward"], i % GROUPS["week"]
                file.write(f"customer-{user:09d},ward {ward},week {week},{text}\n")
        by_groups: list[object] = []
        for name, n_levels in GROUPS.items() if options.groups else ():
            levels = Path(folder, f"{name}.txt")
            levels.write_text("\n".join(f"{name} {i}" for i in range(n_levels)))
            by_groups += ["--by", name, "--levels", levels]
        of_users = ["--user-column", "user"] if options.users else []
        jobs = {
            "fit": [
                path,
                *of_users,
                *by_groups,
                "--n-components",
                options.fit_components,
                "--epsilon",
                "4",
                "--no-ledger",
                "--yes",
            ],
            "transform": [release, path],
        }
        if options.fit_only:
            del jobs["transform"]
        outputs = {"fit": release, "transform": Path(folder, "weights.npy")}
        unit = "users" if options.users else "texts"
        size = path.stat().st_size / 1e9
        unit += ", by ward and week" * options.groups
        print(f"{options.tickets:,} tickets, {size:.2f} GB, {unit}:", flush=True)
        for job, arguments in jobs.items():
            code = COMMAND.format(rounds=options.rounds)
            run = [sys.executable, "-c", code, job, *map(str, arguments)]
            run += ["--out", str(outputs[job])]
            process = subprocess.Popen(run, stdout=subprocess.DEVNULL)
            _, status, found = os.wait4(process.pid, 0)
            if status:
                raise SystemExit(f"dplda {job} has failed")
            most, seconds = used(found)
            print(f"dplda {job}: {most:.2f} GB at most, {seconds:.0f} s of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    jobs = {
        "counts": counts,
        "one": one,
        "topics": topics,
        "memory": memory,
        "command": command,
    }
    parser.add_argument("job", choices=jobs)
    parser.add_argument("--corpora", nargs="+")
    parser.add_argument("--components", nargs="+", type=int, default=[20, 50, 100])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--max-iter", nargs="+", type=int, default=[80, 40])
    parser.add_argument("--tickets", type=int, default=1_000_000)
    parser.add_argument("--characters", type=int, default=500)
    parser.add_argument("--entries", type=int)
    parser.add_argument("--users", action="store_true")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--fit-components", type=int, default=20)
    parser.add_argument("--fit-only", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        jobs[options.job](options)
    packages = ["scikit-learn", "gensim", "lenlp", "tomotopy"]
    print("\n" + conditions(packages, 1, ""))


if __name__ == "__main__":
    main()
