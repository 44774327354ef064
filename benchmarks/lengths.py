"""Documents of any length and number, against what costs less than topics.

``python benchmarks/lengths.py worst [--docs 500 2000 8000] [--lengths 3 7 15 60 500]``
fits corpora whose documents are cut, or joined at random, to bags of so many tokens,
and as they are. It prints what a fit says of held-out tokens, of documents and of words
that are new to a document, in nats over the private word totals, and beside it what
clusters of words by their vectors say with the same totals. The last lines have the
worst fits. ``... rounds`` prints what fits of 20, 40 and 80 rounds say.
``... table --lines FILE`` sums up what ``worst`` has printed.

K = 20, or ``--topics``; V = 2000, delta = 1e-5, document completion. There are 20
clusters. Pieces of one document are
documents of their own.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from baselines import clusters, weights_of
from corpora import LOADERS, Split, load

from dplda import SubLDA
from dplda.datasets import load_word_vectors
from dplda.metrics import held_out_scores

N_CLUSTERS, DELTA = 20, 1e-5
HELD_OUT = 2000  # documents, at most
LINE = re.compile(
    r"(\w+), (\w+) words, \d+, epsilon [\d.]+(, vectors)?: ([^;]*); ([^;]*); \d+"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["worst", "rounds", "table"])
    parser.add_argument("--lines", type=Path, help="file of what worst has printed")
    parser.add_argument(
        "--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS)
    )
    parser.add_argument(
        "--lengths", nargs="+", type=int, default=[0, 3, 7, 15, 60, 500]
    )
    parser.add_argument("--docs", nargs="+", type=int, default=[500, 2000, 8000])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--topics", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    commands = {"worst": worst, "rounds": rounds, "table": table}
    commands[options.command](options)


def forms(options) -> Iterator[Split]:
    """Each corpus at each length and size; length 0 is as it is."""
    for split in load(options.corpora):
        for length in options.lengths:
            form = split
            if length:
                train, test = pieces(split.train, length), pieces(split.test, length)
                form = replace(split, train=train, test=test)
            form = replace(form, test=form.test[:HELD_OUT])
            for n_docs in sorted({min(n, form.train.shape[0]) for n in options.docs}):
                name = f"{split.name}, {length or 'own'} words, {n_docs}"
                yield replace(form, name=name, train=form.train[:n_docs])


def pieces(X: sp.csr_array, length: int) -> sp.csr_array:
    """Bags of `length` tokens, in a random order.

    Long documents are cut, and what is left of them is dropped. The words of short ones
    go into one row.
    """
    rng = np.random.default_rng(0)
    cut = X.sum(axis=1).mean() > length
    tokens, rest = [], np.zeros(0, int)
    for row in range(X.shape[0]):
        cells = slice(*X.indptr[row : row + 2])
        words = rng.permutation(np.repeat(X.indices[cells], X.data[cells].astype(int)))
        rest = words if cut else np.concatenate([rest, words])
        n_whole = len(rest) // length
        tokens.append(rest[: n_whole * length])
        rest = rest[n_whole * length :]
    bags = rng.permutation(np.concatenate(tokens).reshape(-1, length))
    rows = np.repeat(np.arange(len(bags)), length)
    cells = np.ones(len(rows)), (rows, bags.ravel())
    return sp.csr_array(sp.coo_array(cells, shape=(len(bags), X.shape[1])))


def fitted(split: Split, epsilon: float, n_topics: int, vectors, **given) -> SubLDA:
    model = SubLDA(
        n_topics, epsilon=epsilon, delta=DELTA, word_vectors=vectors, n_jobs=1, **given
    )
    return model.fit(split.train)


def worst(options) -> None:
    """A line for each fit, and the smallest differences."""
    least: dict[str, tuple[float, str]] = {}
    print("token, document, new word: fit; clusters with the totals of the fit")
    for split in forms(options):
        vectors = load_word_vectors(list(map(str, split.words)))
        for epsilon in options.epsilons:
            for given in (None, vectors):
                model = fitted(
                    split, epsilon, options.topics, given, random_state=options.seed
                )
                own = gains(split, model.components_, model)
                totals = model.components_.sum(axis=0)
                other = gains(split, clusters(totals, split.words, N_CLUSTERS), model)
                with_vectors = given is not None
                name = f"{split.name}, epsilon {epsilon:g}" + ", vectors" * with_vectors
                n_shown = np.count_nonzero(~model.weak_topics_)
                print(f"{name}: {shown(own)}; {shown(other)}; {n_shown}", flush=True)
                found = {"token": own[0], "document": own[1]}
                if with_vectors:
                    found["new word, over clusters"] = own[2] - other[2]
                for measure, value in found.items():
                    least[measure] = min(
                        least.get(measure, (np.inf, "")), (value, name)
                    )
    for measure, (value, name) in least.items():
        print(f"least {measure}: {value:+.3f} ({name})")


def table(options) -> None:
    """The lines of ``worst`` in short: the worst of all numbers and epsilons."""
    least: dict[tuple[str, str], list[float]] = {}
    for line in options.lines.read_text().splitlines():
        found = LINE.fullmatch(line)
        if found is None:
            continue
        corpus, length, vectors, of_fit, of_clusters = found.groups()
        token, document, new_word = map(float, of_fit.split())
        new = [token, document, np.inf, np.inf, np.inf]
        if vectors:
            over_clusters = new_word - float(of_clusters.split()[2])
            new = [np.inf, np.inf, token, document, over_clusters]
        row = least.setdefault((corpus, length), [np.inf] * 5)
        row[:] = map(min, row, new)
    print(
        "| corpus | words | alone: token | document | with vectors: token | document | "
        "new word, over clusters |\n" + "| --- " * 7 + "|"
    )
    for (corpus, length), row in least.items():
        print(f"| {corpus} | {length} | {' | '.join(f'{x:+.3f}' for x in row)} |")


def gains(split: Split, table: np.ndarray, model: SubLDA) -> tuple[float, ...]:
    """Nats over the column sums of a table, a token, a document, a new word."""
    priors = model.doc_topic_prior_ * model.n_components
    weights = weights_of(table, priors / len(table))
    return held_out_scores(table, split.test, transform=weights)[3:]


def shown(found: tuple[float, ...]) -> str:
    return " ".join(f"{value:+.3f}" for value in found)


def rounds(options) -> None:
    """Gains of three seeds with vectors, mean and standard deviation."""
    for split in forms(options):
        vectors = load_word_vectors(list(map(str, split.words)))
        for epsilon in options.epsilons:
            for n_rounds in (20, 40, 80):
                found = []
                for seed in range(3):
                    given = {"random_state": seed, "max_iter": n_rounds}
                    model = fitted(split, epsilon, options.topics, vectors, **given)
                    found.append(gains(split, model.components_, model))
                name = f"{split.name}, epsilon {epsilon:g}, {n_rounds} rounds"
                mean, spread = np.mean(found, axis=0), np.std(found, axis=0)
                print(f"{name}: {shown(mean)} +- {shown(spread)}", flush=True)


if __name__ == "__main__":
    main()
