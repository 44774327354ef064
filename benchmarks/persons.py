"""The setting of a system in production: persons at epsilon ln 3 and delta 1e-8.

``python benchmarks/persons.py [--corpora definitions dictionary simulated] [--persons
10000 100000] [--seeds 5] [--points FILE] [--plot FILE]``

What SubLDA says of words that are new to a document, as a share of what GibbsLDA says
of the same persons' texts, next to public clusters with private totals
(`baselines.py`), and the same with 60 topics; topics shown, and of these confirmed by
unseen documents; what `dplda.plan` expects; CPU seconds of a fit in one thread, and
peak memory of its process, which holds the corpus. K = 20 in all other columns, V =
2000.

* ``definitions``: all definitions of WordNet 3.0, as ``apt-get install wordnet-base``
  brings them. Up to 10,000 persons have ten each, which lie side by side in WordNet's
  order and are alike; more have one each. The persons are made up;
* ``dictionary``: the entries of Webster's dictionary of 1913 with later additions, as
  ``apt-get install dict-gcide`` brings them. A person is an entry;
* ``simulated``: persons with one to five documents, drawn from GibbsLDA with 50 topics
  of KOS. The documents of a person have topic weights around those of one document.

None has real persons. DPLDA_SHARE names the folder of the packages' files, else
/usr/share.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import math
import multiprocessing
import os
import re
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from baselines import SIZES, measured, of_totals
from corpora import Split, kos
from sklearn.feature_extraction.text import CountVectorizer
from topic_signal import confirmed
from utility import Points, spread, values

from dplda import GibbsLDA, SubLDA, plan
from dplda.datasets import load_word_vectors
from dplda.document._conclusion import claim_of

EPSILON, DELTA = math.log(3), 1e-8
K, N_WORDS = 20, 2000
MANY = 60  # topics, next to as many clusters
SWEEPS = 100  # of GibbsLDA
SHARE = Path(os.environ.get("DPLDA_SHARE", "/usr/share"))
LARGEST = 100_000  # persons


@dataclass(eq=False)
class Persons:
    """Documents, whose they are, and held-out documents of others."""

    name: str
    X: sp.csr_array
    ids: np.ndarray
    test: sp.csr_array
    words: np.ndarray

    def first(self, n: int) -> Split:
        """The documents of the first n persons."""
        return Split(self.name, self.X[self.ids < n], self.test, words=self.words)


# ---- corpora -------------------------------------------------------------------------


def definitions(n_persons: int) -> Persons:
    texts = []
    for part in ("noun", "verb", "adj", "adv"):
        lines = (SHARE / "wordnet" / f"data.{part}").read_text("latin-1").split("\n")
        texts += [line.split("|", 1)[1] for line in lines if line[:1].isdigit()]
    each = 10 if n_persons <= 10_000 else 1
    return of_texts("definitions", texts, each, shortest=1)


def dictionary(n_persons: int) -> Persons:
    folder = SHARE / "dictd"
    with gzip.open(folder / "gcide.dict.dz") as file:
        content = file.read()
    places = set()
    for line in (folder / "gcide.index").read_text("utf-8").split("\n"):
        word, *place = line.split("\t")
        if place and not word.startswith("00-"):
            places.add(tuple(map(number, place)))
    texts = [
        content[at : at + n].decode("utf-8", "replace") for at, n in sorted(places)
    ]
    texts = [re.sub(r"\[.*?\]", " ", text, flags=re.DOTALL) for text in texts]
    return of_texts("dictionary", texts, 1, shortest=1)


def number(digits: str) -> int:
    """A number of an index of dictd: base 64, the most significant digit first."""
    padded = digits.rjust(-(-len(digits) // 4) * 4, "A")
    return int.from_bytes(base64.b64decode(padded), "big")


def of_texts(name: str, texts: list[str], each: int, shortest: int) -> Persons:
    """Persons of `each` successive documents in random order; others are held out."""
    vectorizer = CountVectorizer(
        stop_words="english", token_pattern=r"(?<![\w'])[a-z]{3,}(?![\w'])"
    )
    X = sp.csr_array(vectorizer.fit_transform(texts), dtype=float)
    order = np.argsort(-(X > 0).sum(axis=0), kind="stable")[:N_WORDS]
    X = sp.csr_array(X[:, order])
    X = X[np.flatnonzero(X.sum(axis=1) >= shortest)]
    n_test = 5000 // each
    n = min(X.shape[0] // each - n_test, LARGEST)
    shuffled = np.random.default_rng(0).permutation(X.shape[0] // each)
    rows = (shuffled[:, None] * each + np.arange(each)).ravel()
    train, test = rows[n_test * each :][: n * each], rows[: n_test * each]
    words = vectorizer.get_feature_names_out()[order]
    return Persons(name, X[train], np.arange(len(train)) // each, X[test], words)


def simulated(n_persons: int) -> Persons:
    """The persons of a number are the first ones of a larger number."""
    source = kos()
    model = GibbsLDA(50, max_iter=300, random_state=0).fit(source.train)
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    weights = model.transform(source.train)
    lengths = source.train.sum(axis=1).astype(int)

    def drawn(block: int, most: int):
        """Documents of 500 persons, and whose they are."""
        draws = np.random.default_rng([1, block])
        ids = np.repeat(np.arange(500), draws.integers(1, most + 1, size=500))
        of_persons = weights[draws.integers(len(weights), size=500)]
        own = draws.gamma(20 * of_persons[ids] + 0.01)
        law = (own / own.sum(axis=1, keepdims=True)) @ topics
        counts = draws.multinomial(draws.choice(lengths, len(law)), law)
        return sp.csr_array(counts, dtype=float), ids + 500 * (block - 1)

    test, _ = drawn(0, 1)
    blocks = [drawn(block, 5) for block in range(1, 1 + -(-n_persons // 500))]
    X = sp.csr_array(sp.vstack([X for X, _ in blocks]))
    ids = np.concatenate([ids for _, ids in blocks])
    return Persons("simulated", X, ids, test, source.words)


CORPORA = {f.__name__: f for f in (definitions, dictionary, simulated)}


# ---- measures ------------------------------------------------------------------------


def fit(
    persons: Persons, n_persons: int, vectors: bool, seed: int, n_topics: int = K
) -> dict:
    split = persons.first(n_persons)
    ids = persons.ids[persons.ids < n_persons]
    start = time.process_time()
    model = SubLDA(
        n_topics,
        epsilon=EPSILON,
        delta=DELTA,
        word_vectors=load_word_vectors(list(split.words)) if vectors else None,
        random_state=seed,
        n_jobs=1,
    ).fit(split.train, user_ids=ids)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    shown = ~model.weak_topics_
    found = measured(split, model.components_, model.transform) | {
        "shown": int(shown.sum()),
        "confirmed": int(
            (shown & confirmed(model, claim_of(model._released, 1), split.test)).sum()
        ),
        "seconds": seconds,
        "MB": peak,
        "documents": split.train.shape[0],
        "words": float(split.train.sum() / split.train.shape[0]),
    }
    return found | (of_totals(split, model._released.totals) if vectors else {})


def without_privacy(persons: Persons, n_persons: int) -> dict:
    split = persons.first(n_persons)
    model = GibbsLDA(K, max_iter=SWEEPS, random_state=0).fit(split.train)
    exact = np.asarray(split.train.sum(axis=0)) + 0.01
    return measured(split, model.components_, model.transform) | {
        "unigram": measured(split, exact[None])
    }


def apart(call: Callable) -> Callable:
    """The same in a process of its own, whose peak of memory is that of the call."""

    @wraps(call)
    def run(*args, **given):
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)

        def work():
            sender.send(call(*args, **given))

        process = context.Process(target=work)
        process.start()
        sender.close()  # else the end of a process that failed is not seen
        found = receiver.recv()
        process.join()
        return found

    return run


# ---- tables --------------------------------------------------------------------------

# numbers of persons
MEASURED = {
    "definitions": [10_000, 30_000, 100_000],
    "dictionary": [10_000, 30_000, 100_000],
    "simulated": [1000, 10_000],
}
CLUSTERS = [f"{n} clusters" for n in SIZES]
TITLES = (
    "corpus",
    "persons (texts; words a text)",
    *CLUSTERS,
    "topics alone",
    "with vectors",
    f"{MANY} topics with vectors",
    "GibbsLDA, nats",
    "perplexity: unigram, totals, vectors, GibbsLDA",
    "shown, confirmed",
    "expected to be shown",
    "CPU s",
    "MB",
)


class Found:
    """The measures of a number of persons of a corpus."""

    def __init__(self, points: Points, persons: Persons, n_persons: int, seeds: int):
        given = {"n_persons": n_persons}
        self.n_persons = n_persons
        self.free = points.get(apart(without_privacy), persons, **given)
        self.alone, self.vectors = (
            [
                points.get(apart(fit), persons, **given, vectors=which, seed=seed)
                for seed in range(seeds)
            ]
            for which in (False, True)
        )
        many = [
            points.get(
                apart(fit), persons, **given, vectors=True, seed=seed, n_topics=MANY
            )
            for seed in range(seeds)
        ]
        rows = {n: [one[n] for one in self.vectors] for n in CLUSTERS}
        rows |= {"topics alone": self.alone, "with vectors": self.vectors}
        rows[f"{MANY} topics with vectors"] = many
        gibbs = self.free["new_word_gain"]
        self.shares = {
            title: 100 * values(row, "new_word_gain") / gibbs
            for title, row in rows.items()
        }

    def cells(self) -> list[str]:
        one = self.vectors[0]
        totals = [each["word totals"] for each in self.vectors]
        tables = [self.free["unigram"]], totals, self.vectors, [self.free]
        expected = plan(
            n_docs=self.n_persons, epsilon=EPSILON, delta=DELTA, n_components=K
        )
        mean = {
            name: values(self.vectors, name).mean()
            for name in ("shown", "confirmed", "seconds")
        }
        return [
            f"{self.n_persons:,} ({one['documents']:,}; {one['words']:.0f})",
            *map(spread, self.shares.values()),
            f"{self.free['new_word_gain']:.3f}",
            ", ".join(f"{values(t, 'perplexity').mean():.0f}" for t in tables),
            f"{mean['shown']:.1f}, {mean['confirmed']:.1f}",
            f"{expected.topics_shown:.0f}",
            f"{mean['seconds']:.1f}",
            f"{max(values(self.vectors, 'MB')):.0f}",
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(CORPORA), choices=CORPORA)
    parser.add_argument("--persons", nargs="+", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--points", type=Path, help="file of measured points")
    parser.add_argument("--plot", type=Path, help="file for the picture")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    points, curves = Points(options.points), {}
    print(f"| {' | '.join(TITLES)} |\n" + "| --- " * len(TITLES) + "|")
    for name in options.corpora:
        for n_persons in options.persons or MEASURED[name]:
            found = Found(points, CORPORA[name](n_persons), n_persons, options.seeds)
            curves[name, n_persons] = found.shares
            print(f"| {name} | {' | '.join(found.cells())} |", flush=True)
    if options.plot:
        picture(curves, options.plot)


COLORS = {
    "with vectors": "#0072b2",
    f"{MANY} topics with vectors": "#009e73",
    "topics alone": "#000000",
    "60 clusters": "#d55e00",
}


def picture(curves: dict, path: Path) -> None:
    """A panel for each corpus: knowledge of new words against persons."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for name, _ in curves))
    figure = Figure(figsize=(11, 3.8), layout="constrained", facecolor="white")
    panels = np.ravel(figure.subplots(1, len(names), sharey=True))
    for axes, name in zip(panels, names, strict=True):
        of_corpus = {
            n: shares for (other, n), shares in curves.items() if other == name
        }
        for title, color in COLORS.items():
            level = [shares[title].mean() for shares in of_corpus.values()]
            style = "--" if title in CLUSTERS else "-o"
            axes.plot(list(of_corpus), level, style, color=color, lw=2.2, label=title)
        axes.set_xscale("log")
        axes.set_xticks(list(of_corpus), [f"{n:,}" for n in of_corpus])
        axes.minorticks_off()
        axes.axhline(0, color="gray", linestyle=":", linewidth=1.5)
        axes.set_title(name, loc="left", fontsize=12)
        axes.set_xlabel("persons", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].yaxis.set_major_formatter(lambda share, _: f"{share:.0f}%")
    panels[0].set_ylabel("knowledge of new words,\n100%: GibbsLDA", fontsize=11)
    panels[0].set_ylim(bottom=-20, top=105)
    lines, titles = panels[0].get_legend_handles_labels()
    figure.legend(lines, titles, frameon=False, ncols=4, loc="outside lower center")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
