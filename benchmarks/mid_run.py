"""What if rounds release no more word totals once a topic stands out of the noise?

``python benchmarks/mid_run.py [--corpora docstrings] [--half] [--epsilon 1] [--seeds 8]
[--rounds 40 60]`` prints a row for the default, and one for each round in which a fit looks. A fit
stops if any topic of its table stands out of the noise there. Differences as in `word_totals.py`.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from corpora import LOADERS, load
from reading_topics import between, jackknife, mean_of_pairs, partners_found

from dplda import SubLDA
from dplda.document._noisy_table import NoisyTable
from dplda.metrics._signal import with_signal

by_default = NoisyTable.topic_rounds


class Look:
    """Replaces the rule of `NoisyTable`: which of the rounds are for topics."""

    def __init__(self, round_: int | None):
        self.round, self.stops = round_, {}

    def topic_rounds(self, table: NoisyTable, t: int) -> int:
        if t > (self.round or t) and self.stops.get(id(table)):
            return by_default(table, self.round) + t - self.round
        return by_default(table, t)

    def is_for_totals(self, table: NoisyTable, t: int) -> bool:
        if self.round and t == self.round + 1:
            found = with_signal(table.finish(0.01), table.components_std())
            self.stops[id(table)] = bool((found["topic_signal_"] > 0).any())
        return self.topic_rounds(table, t) == self.topic_rounds(table, t - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["docstrings"], choices=list(LOADERS))
    parser.add_argument("--half", action="store_true", help="train on half of the documents")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rounds", nargs="+", type=int, default=[40, 60])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| corpus | documents | epsilon | looks in round | fits that stop | perplexity "
          "| partner is nearest | stand out | not weak |\n" + "| --- " * 9 + "|")  # fmt: skip
    for split in load(options.corpora):
        train = split.train[: split.train.shape[0] // (2 if options.half else 1)]
        first = None
        for round_ in (None, *options.rounds):
            look = Look(round_)
            NoisyTable.topic_rounds = lambda table, t, look=look: look.topic_rounds(table, t)
            NoisyTable.is_for_totals = lambda table, t, look=look: look.is_for_totals(table, t)
            models = [
                SubLDA(20, epsilon=options.epsilon, delta=1e-5, random_state=seed).fit(train)
                for seed in range(options.seeds)
            ]
            stopped = sum(look.stops.get(id(model._released), False) for model in models)
            perplexity = np.array([model.perplexity(split.test) for model in models])
            again = between([model.components_ for model in models], partners_found)
            first = first or (perplexity, again)
            change, more = perplexity - first[0], again - first[1]
            standing = np.mean([(model.topic_signal_ > 0).sum() for model in models])
            good = np.mean([(~model.weak_topics_).sum() for model in models])
            error = change.std(ddof=1) / np.sqrt(len(change))
            found = (
                f"{mean_of_pairs(again):.2f} ({mean_of_pairs(more):+.3f} ± {jackknife(more):.3f})"
            )
            print(f"| {split.name} | {train.shape[0]} | {options.epsilon:g} | {round_ or 'never'} "
                  f"| {stopped} of {len(models)} "
                  f"| {perplexity.mean():.1f} ({change.mean():+.2f} ± {error:.2f}) "
                  f"| {found} | {standing:.1f} | {good:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
