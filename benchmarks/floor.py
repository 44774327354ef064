"""Whether a fit falls below the word frequencies that the same budget would release alone.

``python benchmarks/floor.py [--corpora kos bbc nips docstrings] [--documents 300 1000 0]
[--epsilons 1 4] [--seeds 3] [--words 8000]`` prints held-out perplexities by document completion,
means of the seeds. 0 documents are all of them. "exact" are the word frequencies without noise,
"released" those that the whole budget releases, by the two steps of a fit and with the same
estimate. "ratio" is SubLDA over "released", and "largest" is the largest ratio of a seed. "share"
is the share of the rounds that release word totals again, "auto" the ratio with
``word_total_share="auto"`` and the number of documents as expected. ``--words`` is for KOS and
NIPS, which have 2000 otherwise.

K = 20, delta = 1e-5, 80 rounds.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from corpora import LOADERS, load

from dplda import SubLDA
from dplda.document._document_budget import FIRST_TOTALS, TOTALS
from dplda.document._documents import Documents, release_word_totals
from dplda.metrics import held_out_perplexity, unigram_perplexity
from dplda.privacy.mechanisms import Curator, DiscreteGaussian, Streams, gaussian_mu

K, DELTA, NORM = 20, 1e-5, 6.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS))
    parser.add_argument("--documents", nargs="+", type=int, default=[300, 1000, 0])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--words", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| corpus | documents | epsilon | exact | released | SubLDA | ratio | largest | share "
          "| signal over noise | auto |\n" + "| --- " * 11 + "|")  # fmt: skip
    splits = load(options.corpora) if options.words is None else [
        LOADERS[name](n_words=options.words) for name in options.corpora
    ]  # fmt: skip
    for split in splits:
        for n_docs in options.documents:
            train = split.train[: n_docs or None]
            for epsilon in options.epsilons:
                print(row(split.name, train, split.test, epsilon, options.seeds), flush=True)


def row(name, train, test, epsilon, n_seeds) -> str:
    """A line of the table."""
    seeds, n_docs = range(n_seeds), train.shape[0]
    exact = unigram_perplexity(train, test)
    released = [frequencies_alone(train, test, epsilon, seed) for seed in seeds]
    models = [fit(train, epsilon, seed) for seed in seeds]
    found = [model.perplexity(test) for model in models]
    auto = [
        fit(train, epsilon, seed, word_total_share="auto", expected_n_docs=n_docs).perplexity(test)
        for seed in seeds
    ]
    share = np.mean([model._released.share_for_totals for model in models])
    signal = np.mean([model.signal_to_noise_ for model in models])
    return (
        f"| {name} | {n_docs} | {epsilon:g} | {exact:.0f} | {np.mean(released):.0f} "
        f"| {np.mean(found):.0f} | {np.mean(found) / np.mean(released):.3f} "
        f"| {np.max(np.divide(found, released)):.3f} | {share:.2f} | {signal:.2f} "
        f"| {np.mean(auto) / np.mean(released):.3f} |"
    )


def fit(train, epsilon, seed, **options) -> SubLDA:
    model = SubLDA(K, epsilon=epsilon, delta=DELTA, random_state=seed, max_iter=80, n_jobs=1)
    return model.set_params(**options).fit(train)


def frequencies_alone(train, test, epsilon, seed) -> float:
    """Perplexity of word frequencies on which the whole budget is spent."""
    mu = gaussian_mu(epsilon, DELTA)
    steps = [
        DiscreteGaussian.for_noise_multiplier(1 / (mu * share**0.5))
        for share in (FIRST_TOTALS, 1 - FIRST_TOTALS)
    ]
    plan = [(TOTALS, step.event) for step in steps]
    streams = Streams.from_random_state(seed)
    documents = Documents.from_counts(train, 1, 1)
    with Curator(plan, streams, label="frequencies", unit="document") as curator:
        totals, _ = release_word_totals(documents, steps, curator, NORM)
    return held_out_perplexity(totals.smooth()[None], test)


if __name__ == "__main__":
    main()
