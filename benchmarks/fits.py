"""Other ways to fit: held-out perplexity by users, days, sampling rates, inference.

``python benchmarks/fits.py TABLE [--corpora kos ...] [--epsilons 1 4] [--seeds 3]``
prints one of

* ``users``: users with several documents, by what a fit is told of them, without word
  vectors and with the embedded ones. Each has the same number of documents
  (``--documents 5``), drawn at random;
* ``curve``: the share of the gap that n users close, beside n documents: from 0 for the
  word frequencies of all documents to 100% for the best model of all without noise;
* ``days``: a model whose documents come in disjoint parts (``--parts 5``), one after
  another. Each document pays the same epsilon in every row. "earlier" passes
  yesterday's model to `fit`, which adds its releases. "prior" passes yesterday's table
  as `prior_components`, which places topics and adds no counts;
* ``sampling``: against time, for several rates and numbers of rounds (``--rates``,
  ``--estimator``). Default numbers of rounds are bold (of SubLDA);
* ``svi``: PrivateSVILDA next to SubLDA at the same epsilon;
* ``online``: without noise, next to scikit-learn's online LDA at equal passes
  (``--passes 10``), minibatches and priors.

K = 20, V = 2000, delta = 1e-5, one tenth held out. CPU seconds are those of a fit whose
noise is already calibrated.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, load
from sklearn.decomposition import LatentDirichletAllocation
from utility import DELTA, K, spread, vectors_of

from dplda import PrivateSVILDA, SubLDA
from dplda.metrics import held_out_perplexity, unigram_perplexity

ESTIMATORS = {"SubLDA": SubLDA, "PrivateSVILDA": PrivateSVILDA}
ROUNDS = {  # by rate
    1.0: (80,),
    0.5: (80, 160),
    0.2: (80, 200, 400),
    0.1: (80, 200, 400, 800),
    0.02: (80, 200, 400, 1000),
}
SVI = {
    "ratio 0.2, 200 rounds (default)": {},
    "ratio 1, 80 rounds": {"subsampling_ratio": 1.0, "max_iter": 80},
    "ratio 0.1, 100 rounds": {"subsampling_ratio": 0.1, "max_iter": 100},
}
BATCH = 128


def header(*columns) -> None:
    print(f"| {' | '.join(columns)} |\n" + "| --- " * len(columns) + "|")


def row(*cells) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def perplexities(split, options, X=None, user_ids=None, kind=SubLDA, **parameters):
    """Of a fit of each seed."""
    X = split.train if X is None else X
    models = [
        kind(K, delta=DELTA, random_state=s, **parameters) for s in range(options.seeds)
    ]
    given = {} if user_ids is None else {"user_ids": user_ids}
    return [model.fit(X, **given).perplexity(split.test) for model in models]


def owners(split, options):
    return np.arange(split.train.shape[0]) // options.documents


def users(split, options) -> None:
    ids = owners(split, options)
    owns = sp.csr_array((np.ones(len(ids)), (ids, np.arange(len(ids)))))
    print(f"{options.documents} documents a user, {ids[-1] + 1} users\n")
    header(
        "epsilon", "of a document", "of a user, `user_ids`", "of a user, rows merged"
    )
    data = (split.train, None), (split.train, ids), (owns @ split.train, None)
    for vectors in ("", "embedded"):
        given = {"word_vectors": vectors_of(split, vectors)}
        for epsilon in options.epsilons:
            found = (
                perplexities(split, options, *each, epsilon=epsilon, **given)
                for each in data
            )
            row(f"{epsilon:g}{', vectors' * bool(vectors)}", *map(spread, found))


def curve(split, options) -> None:
    ids, unigram = owners(split, options), unigram_perplexity(split.train, split.test)
    free = min(
        SubLDA(K, epsilon=np.inf, topic_word_prior=prior)
        .fit(split.train)
        .perplexity(split.test)
        for prior in (0.01, 1.0)
    )

    def closed(found) -> str:
        share = (unigram - np.mean(found)) / (unigram - free)
        return f"{share:.0%}" if share > 0 else "none"

    print(f"{options.documents} documents a user, {ids[-1] + 1} users\n")
    header("epsilon", "n", "n documents", "n users", "all documents of these users")
    for epsilon in options.epsilons:
        for n in ((ids[-1] + 1) // part for part in (4, 2, 1)):
            rows = np.flatnonzero(ids < n)
            few, theirs = split.train[:n], split.train[rows]
            data = (few, None), (theirs, ids[rows]), (theirs, None)
            found = (
                perplexities(split, options, *each, epsilon=epsilon) for each in data
            )
            row(f"{epsilon:g}", f"{n:,}", *map(closed, found))


def days(split, options) -> None:
    def last(epsilon, n_parts, seed, how):
        """Perplexity after the last part."""
        rows, model = (
            np.random.default_rng(seed).permutation(split.train.shape[0]),
            None,
        )
        for i, part in enumerate(np.array_split(rows, n_parts)):
            yesterday = model
            model = SubLDA(K, epsilon=epsilon, delta=DELTA, random_state=10 * seed + i)
            if yesterday is not None and how == "prior":
                model.set_params(prior_components=yesterday.components_)
            model.fit(
                split.train[np.sort(part)],
                earlier=yesterday if how == "earlier" else None,
            )
        return model.perplexity(split.test)

    print(f"{options.parts} parts\n")
    header("epsilon", "one fit", "earlier", "prior")
    for epsilon in options.epsilons:
        ways = (1, None), (options.parts, "earlier"), (options.parts, "prior")
        found = (
            [last(epsilon, n, s, how) for s in range(options.seeds)] for n, how in ways
        )
        row(f"{epsilon:g}", *map(spread, found))


def timed(model, split, n_seeds):
    """Held-out perplexities, and median CPU seconds of a fit with calibrated noise."""
    model._budget()
    results, seconds = [], []
    for seed in range(n_seeds):
        start = time.process_time()
        model.set_params(random_state=seed).fit(split.train)
        seconds.append(time.process_time() - start)
        results.append(model.perplexity(split.test))
    return results, np.median(seconds)


def sampling(split, options) -> None:
    print(f"unigram {unigram_perplexity(split.train, split.test):.0f}\n")
    first, *others = (f"epsilon {epsilon:g}" for epsilon in options.epsilons)
    header("rate", "rounds", "passes", f"perplexity, {first}", *others, "CPU s a fit")
    kind = ESTIMATORS[options.estimator]
    for rate in options.rates:
        # word totals
        default = len(SubLDA(epsilon=1.0, subsampling_ratio=rate)._plan()) - 2
        for rounds in ROUNDS[rate]:
            common = {"delta": DELTA, "subsampling_ratio": rate, "max_iter": rounds}
            found = [
                timed(kind(K, epsilon=epsilon, **common), split, options.seeds)
                for epsilon in options.epsilons
            ]
            number = f"**{rounds}**" if rounds == default else rounds
            seconds = np.mean([seconds for _, seconds in found])
            cells = (spread(results) for results, _ in found)
            row(f"{rate:g}", number, f"{rate * rounds:g}", *cells, f"{seconds:.2f}")


def svi(split, options) -> None:
    header("model", *(f"{e:g}" for e in options.epsilons), "CPU s a fit")
    rows = {"SubLDA, 80 rounds": (SubLDA, {})}
    rows |= {f"PrivateSVILDA, {name}": (PrivateSVILDA, s) for name, s in SVI.items()}
    reference: list[float] = []
    for name, (kind, settings) in rows.items():
        models = (kind(K, epsilon=e, delta=DELTA, **settings) for e in options.epsilons)
        results, seconds = zip(
            *(timed(model, split, options.seeds) for model in models)
        )
        means, cells = (
            [np.mean(values) for values in results],
            list(map(spread, results)),
        )
        reference = reference or means
        if kind is not SubLDA:
            ratios = (mean / known - 1 for mean, known in zip(means, reference))
            cells = [f"{cell} ({ratio:+.1%})" for cell, ratio in zip(cells, ratios)]
        row(name, *cells, f"{np.median(seconds):.1f}")


def online(split, options) -> None:
    header(
        "seed",
        "scikit-learn",
        "PrivateSVILDA(epsilon=inf)",
        "ratio",
        "CPU s, theirs / ours",
    )
    ratio, passes = BATCH / split.train.shape[0], options.passes
    for seed in range(options.seeds):
        pair = (
            LatentDirichletAllocation(
                K,
                learning_method="online",
                batch_size=BATCH,
                max_iter=passes,
                doc_topic_prior=0.1,
                topic_word_prior=0.01,
                random_state=seed,
            ),
            PrivateSVILDA(
                K,
                epsilon=np.inf,
                subsampling_ratio=ratio,
                max_iter=round(passes / ratio),
                learning_decay=0.7,
                random_state=seed,  # the decay is scikit-learn's
            ),
        )
        found, seconds = [], []
        for model in pair:
            start = time.process_time()
            table = model.fit(split.train).components_
            seconds.append(f"{time.process_time() - start:.1f}")
            found.append(held_out_perplexity(table, split.test))
        theirs, ours = found
        row(
            seed,
            f"{theirs:.0f}",
            f"{ours:.0f}",
            f"{ours / theirs:.3f}",
            " / ".join(seconds),
        )


# corpora and epsilons of the pages
TABLES = {
    users: (["kos", "docstrings"], [4.0, 8.0]),
    curve: (["kos", "docstrings"], [1.0, 4.0, 8.0]),
    days: (["kos"], [4.0, 1.0]),
    sampling: (["kos", "docstrings", "bbc"], [1.0, 4.0]),
    svi: (["kos", "nips", "docstrings"], [2.0, 4.0, 8.0]),
    online: (["kos", "nips", "docstrings"], []),
}


def main() -> None:
    named = {table.__name__: table for table in TABLES}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=named)
    parser.add_argument("--corpora", nargs="+", choices=list(LOADERS))
    parser.add_argument("--epsilons", nargs="+", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=5, help="of each user")
    parser.add_argument(
        "--parts", type=int, default=5, help="of the documents, one after another"
    )
    parser.add_argument("--rates", nargs="+", type=float, default=list(ROUNDS))
    parser.add_argument("--estimator", choices=ESTIMATORS, default="SubLDA")
    parser.add_argument("--passes", type=int, default=10)
    options = parser.parse_args()
    table = named[options.table]
    corpora, epsilons = TABLES[table]
    options.epsilons = options.epsilons or epsilons
    warnings.simplefilter("ignore")
    for split in load(options.corpora or corpora):
        print(f"\n{split}; {split.test.shape[0]} held out\n")
        table(split, options)


if __name__ == "__main__":
    main()
