"""From texts to counts, and to a file of topics, next to other packages.

``python benchmarks/peers/texts.py counts [--corpora bbc8 glosses tickets] [--repeats
3]`` prints megabytes a CPU second: words and counts of a whole fit, which reads texts,
chooses words with privacy, and counts them.

``... one [--repeats 3]`` prints milliseconds of `transform` for one text, warm.

``... topics [--corpora bbc4 glosses] [--components 20 50] [--epsilons 1 4]`` prints CPU
seconds of whole jobs: `PrivateTopicModel.fit` and `save`, and CountVectorizer with 80
sweeps of tomotopy over as many words.

``... memory --tickets 400000 [--rounds 4] [--entries N]`` prints the largest memory of
the process before and after a fit to tickets of 500 characters, which a generator
gives, and after `transform` of as many to a file. `N` is the number of counts above
which they go to files. ``--characters`` makes shorter tickets.

``... command --tickets 400000 [--rounds 4] [--users]`` writes such tickets to a CSV
file, and prints the largest memory and the CPU seconds of ``dplda fit``, with fewer
rounds than its 80, and of ``dplda transform`` to a file of NumPy. A user has five
tickets.

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
from measuring import conditions, cpu_seconds, markdown
from opponents import NotInstalled, Tomotopy, imported
from sklearn.feature_extraction.text import CountVectorizer
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import bbc_texts

from dplda import PrivateCountVectorizer, PrivateTopicModel, SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.text import _counted

LETTERS = r"(?u)\b[^\W\d_]{3,}\b"  # words of PrivateTopicModel
N_WORDS = 2000
SWEEPS = 80
COMMAND = """
import sys
from functools import partial

from dplda.__main__ import main
from dplda.text import _topic_model

_topic_model.SubLDA = partial(_topic_model.SubLDA, max_iter={rounds})
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


def counting(texts: list[str]) -> dict[str, Callable[[], object]]:
    theirs = CountVectorizer(token_pattern=LETTERS)
    return {
        "dplda, whole choice of words": lambda: our_words().fit_transform(texts),
        "scikit-learn CountVectorizer": lambda: theirs.fit_transform(texts),
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


def with_tomotopy(texts: list[str], n_components: int, path: Path) -> None:
    vectorizer = CountVectorizer(
        token_pattern=LETTERS, stop_words="english", max_features=N_WORDS
    )
    peer = Tomotopy(vectorizer.fit_transform(texts), n_components, 0, 1)
    for _ in range(SWEEPS):
        peer.step()
    words = vectorizer.get_feature_names_out()
    np.savez(path, components=peer.components(), words=words.astype(str))


def with_dplda(texts: list[str], n_components: int, epsilon: float, path: Path) -> None:
    model = PrivateTopicModel(
        n_components, epsilon=epsilon, max_features=N_WORDS, n_jobs=1, random_state=0
    )
    model.fit(texts).save(path)


def jobs_of(
    texts: list[str], n_components: int, epsilons: list[float], folder: Path
) -> dict[str, Callable[[], object]]:
    path = folder / "ours.dplda"
    ours = {
        f"{epsilon:g}": partial(with_dplda, texts, n_components, epsilon, path)
        for epsilon in epsilons
    }
    theirs = partial(with_tomotopy, texts, n_components, folder / "theirs.npz")
    return {**ours, "tomotopy": theirs}


def topics(options: argparse.Namespace) -> None:
    table = []
    folder = Path(tempfile.mkdtemp())
    for name in options.corpora or ["bbc4", "glosses"]:
        texts = corpus(name, options.tickets)
        for k in options.components:
            found = turns(jobs_of(texts, k, options.epsilons, folder), options.repeats)
            theirs = found.pop("tomotopy")
            told = theirs if isinstance(theirs, str) else f"{np.median(theirs):.1f}"
            for epsilon, ours in found.items():
                ratio = "-"
                if not isinstance(theirs, str):
                    ratio = f"{np.median(np.divide(theirs, ours)):.2f}"
                seconds = f"{np.median(ours):.1f}"
                table.append((name, f"{k}", epsilon, seconds, told, ratio))
    head = ["Corpus", "K", "epsilon", "dplda, s", "CountVectorizer + tomotopy, s"]
    print(markdown([*head, "times as fast"], table))


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
            file.write("user,text\n")
            users = random.integers(0, max(options.tickets // 5, 1), options.tickets)
            for user, text in zip(users, tickets(options.tickets, options.characters)):
                file.write(f"customer-{user:09d},{text}\n")
        of_users = ["--user-column", "user"] if options.users else []
        jobs = {
            "fit": [path, *of_users, "--epsilon", "4", "--no-ledger", "--yes"],
            "transform": [release, path],
        }
        outputs = {"fit": release, "transform": Path(folder, "weights.npy")}
        unit = "users" if options.users else "texts"
        size = path.stat().st_size / 1e9
        print(f"{options.tickets:,} tickets, {size:.2f} GB, {unit}:")
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
    parser.add_argument("--components", nargs="+", type=int, default=[20, 50])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--tickets", type=int, default=1_000_000)
    parser.add_argument("--characters", type=int, default=500)
    parser.add_argument("--entries", type=int)
    parser.add_argument("--users", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        jobs[options.job](options)
    packages = ["scikit-learn", "gensim", "tomotopy"]
    print("\n" + conditions(packages, 1, ""))


if __name__ == "__main__":
    main()
