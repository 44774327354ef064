"""What the word totals of a document-level fit do to its perplexity and to its topics.

``python benchmarks/word_totals.py [--corpora kos nips docstrings bbc] [--half] [--epsilons 1 2 4]
[--seeds 5] [--clear 7 3.5]``

Each fit is finished in four ways: the table as estimated, and its rows scaled to the word totals,
moved to them by the sizes of the topics, or moved by the variances of the cells (the default).
``--clear`` are values of the constant `CLEAR`: with 0, no round releases word totals again. SubLDA,
K = 20, V = 2000, delta = 1e-5, a tenth held out; ``--half`` trains on half of the other documents.

In brackets: the difference from the first row of a corpus and epsilon, with the standard error of
the pairs of seeds, or of the jackknife over seeds. "Partner is nearest" and "cosine 0.8" are those
of ``reading_topics.py --stability``. "At equal totals" is the first of them after the words of both
fits have got the mean of their totals: the noise of word totals is the same in all topics of a fit,
and keeps a topic farther from its partner than from the other topics of its fit.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from corpora import LOADERS, load
from reading_topics import between, cosines_found, jackknife, mean_of_pairs, partners_found

from dplda import SubLDA
from dplda.document import _word_totals
from dplda.document._table_estimate import add_up
from dplda.metrics._signal import with_signal

K = 20
WAYS = ("by variance", "by size", "scaled", "as estimated")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS))
    parser.add_argument("--half", action="store_true", help="train on half of the documents")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--clear", nargs="+", type=float, default=[_word_totals.CLEAR])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| corpus | documents | epsilon | CLEAR | rounds of totals | rows | perplexity "
          "| partner is nearest | at equal totals | cosine 0.8 | stand out | not weak |\n"
          + "| --- " * 12 + "|")  # fmt: skip
    for split in load(options.corpora):
        if options.half:
            split.train = split.train[: split.train.shape[0] // 2]
        for epsilon in options.epsilons:
            report(split, epsilon, options)


def report(split, epsilon: float, options) -> None:
    first = None
    for clear in options.clear:
        _word_totals.CLEAR = max(clear, 1e-9)
        models = [SubLDA(K, epsilon=epsilon, delta=1e-5, random_state=seed).fit(split.train)
                  for seed in range(options.seeds)]  # fmt: skip
        share = np.mean([model._released.share_for_totals for model in models])
        for way in WAYS:
            found = [finished(model, way, split.test) for model in models]
            perplexity = np.array([fit["perplexity"] for fit in found])
            tables = [fit["components_"] for fit in found]
            again = [between(tables, f) for f in (partners_found, at_equal_totals, cosines_found)]
            first = first or (perplexity, again)
            change = perplexity - first[0]
            error = change.std(ddof=1) / np.sqrt(len(change))
            figures = [
                f"{perplexity.mean():.1f} ({change.mean():+.2f} ± {error:.2f})",
                *(f"{mean_of_pairs(x):.2f} ({mean_of_pairs(x - y):+.3f} ± {jackknife(x - y):.3f})"
                  for x, y in zip(again, first[1])),
                f"{np.mean([(fit['topic_signal_'] > 0).sum() for fit in found]):.1f}",
                f"{np.mean([(~fit['weak_topics_']).sum() for fit in found]):.1f}",
            ]  # fmt: skip
            print(f"| {split.name} | {split.train.shape[0]} | {epsilon:g} | {clear:g} "
                  f"| {share:.0%} | {way} | {' | '.join(figures)} |", flush=True)  # fmt: skip


def at_equal_totals(one, two):
    """`partners_found`, if both fits had the same word totals."""
    totals = one.sum(axis=0) + two.sum(axis=0)
    return partners_found(*(table / table.sum(axis=0) * totals for table in (one, two)))


def finished(model: SubLDA, way: str, test) -> dict:
    """The attributes of the final table, whose rows add up in one of four ways, and its score."""
    table = model._released
    if way == "by variance":
        final = table.finish(0.0)
    else:
        final = table.estimate(table._sum_of_parts(), table._cell_scale(), last=True).astype(float)
        if way == "by size":
            add_up(final, table.totals, np.broadcast_to(final.sum(axis=0), final.shape))
        elif way == "scaled":
            final *= (table.totals / final.sum(axis=1))[:, None]
        final = final.T
    model.components_ = final + model.topic_word_prior
    found = with_signal(model.components_, model.components_std_)
    return found | {"perplexity": model.perplexity(test)}


if __name__ == "__main__":
    main()
