"""What models of few and of many topics say of new words.

``python benchmarks/components.py [--corpora kos nips docstrings bbc glosses] [--topics
5 20 50 100] [--epsilons 1 4] [--seeds 3]``

For each number of topics, the table shows nats of new words over the word totals of the
model itself: of public clusters of this number with the private word totals, SubLDA
without and with word vectors, the latter with a prior of 0.1 for documents (in the
rounds and afterwards), and GibbsLDA, which has no privacy; then the topics that are
shown, with vectors. V = 2000, delta = 1e-5.
"""

from __future__ import annotations

import argparse
import warnings

from baselines import clusters, measured, weights_of
from corpora import LOADERS, Split, load
from utility import spread, values

from dplda import GibbsLDA, SubLDA
from dplda.datasets import load_word_vectors

SWEEPS = 100  # of GibbsLDA
PRIOR = 0.1  # of all topics, for comparison
TITLES = ("clusters", "alone", "with vectors", f"prior {PRIOR}", "GibbsLDA", "shown")


def fits(split: Split, n_topics: int, epsilon: float, seed: int) -> dict:
    """Measures of the models of one seed, by title."""
    vectors = load_word_vectors(list(split.words))

    def fit(**given) -> SubLDA:
        model = SubLDA(
            n_topics,
            epsilon=epsilon,
            delta=1e-5,
            random_state=seed,
            n_jobs=1,
            **given,
        )
        return model.fit(split.train)

    private = fit(word_vectors=vectors)
    totals = private._released.totals
    public = clusters(totals, split.words, n_topics)
    models = {
        "alone": fit(),
        "with vectors": private,
        f"prior {PRIOR}": fit(word_vectors=vectors, doc_topic_prior=PRIOR),
    }
    found = {
        name: measured(split, model.components_, model.transform)
        for name, model in models.items()
    }
    found["clusters"] = measured(split, public, weights_of(public))
    found["with vectors"]["shown"] = int((~private.weak_topics_).sum())
    return found


def without_privacy(split: Split, n_topics: int) -> dict:
    model = GibbsLDA(n_topics, max_iter=SWEEPS, random_state=0).fit(split.train)
    return measured(split, model.components_, model.transform)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(LOADERS), choices=LOADERS)
    parser.add_argument("--topics", nargs="+", type=int, default=[5, 20, 50, 100])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| corpus | epsilon | topics | {' | '.join(TITLES)} |")
    print("| --- " * (3 + len(TITLES)) + "|")
    for split in load(options.corpora):
        free = {n: without_privacy(split, n) for n in options.topics}
        for epsilon in options.epsilons:
            for n in options.topics:
                found = [fits(split, n, epsilon, i) for i in range(options.seeds)]
                cells = []
                for title in TITLES[:-2]:
                    of_title = [one[title] for one in found]
                    cells.append(spread(values(of_title, "new_word_gain"), 2))
                cells.append(f"{free[n]['new_word_gain']:.2f}")
                shown = values([one["with vectors"] for one in found], "shown")
                cells.append(f"{shown.mean():.1f}")
                row = [split.name, f"{epsilon:g}", str(n), *cells]
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
