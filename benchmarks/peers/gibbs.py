"""Tokens per second of one Gibbs sweep next to tomotopy and lda, in one process and one thread.

``pip install tomotopy lda; python benchmarks/peers/gibbs.py [--corpora nips kos]
[--components 20 100 500] [--repeats 7]``

The contestants take turns. CPU time of the process; best and median of the repeats, in millions of
tokens per second. *Live* is GibbsLDA's sweep (exact collapsed Gibbs, as the peers'), *frozen* the
sweep of HDPLDA (fixed table, exact draws), *frozen, end to end* everything that HDPLDA does in
a round: count, noise on all cells, clip, table of halves, random words, sweep. Priors 0.1 and 0.01.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import lda
import numpy as np
import tomotopy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpora import data_folder

from dplda._corpus import Corpus, check_counts
from dplda._fold_in import pad
from dplda._gibbs import count_words, draw_topics
from dplda._half_table import HalfTable
from dplda.central._gibbslda import GibbsLDA
from dplda.datasets import load_uci_bow
from dplda.kernels import _gibbs
from dplda.privacy._streams import Purpose, Streams
from dplda.privacy.mechanisms import FlooredLaplace

ALPHA, BETA = 0.1, 0.01


class Ours:
    """The corpus in a state some sweeps from the start."""

    def __init__(self, X, n_components: int) -> None:
        self.corpus = Corpus.from_counts(check_counts(GibbsLDA(), X, reset=True))
        self.streams = Streams.from_random_state(0)
        self.topics = np.full(self.corpus.n_tokens, -1, np.int32)
        self.counts = pad(np.zeros((self.corpus.n_words, n_components)), np.int32)
        self.totals = np.zeros(n_components, np.int64)
        self.scratch = np.empty((4, self.counts.shape[1]), np.float32)
        self.round = 0
        for _ in range(20):
            self.live()
        self.table = HalfTable.from_counts(self.true_counts(), 1e4, BETA)

    def true_counts(self):
        return count_words(self.corpus, self.topics, len(self.totals))

    def live(self) -> None:
        self.round += 1
        bits = self.streams.words(Purpose.TOPICS, self.round, 0, self.corpus.n_tokens)
        _gibbs.collapsed_sweep(
            self.corpus.word, self.corpus.doc_ptr, self.topics, self.counts, self.totals,
            ALPHA, BETA, bits, self.scratch,
        )  # fmt: skip

    def frozen(self) -> None:
        self.round += 1
        draw_topics(self.corpus, self.topics, self.table, doc_topic_prior=ALPHA,
              streams=self.streams, t=self.round)  # fmt: skip

    def end_to_end(self) -> None:
        self.round += 1
        reader = self.streams.reader(Purpose.NOISE, self.round)
        noisy = FlooredLaplace(4.0, n_cells=2)(self.true_counts(), reader) + 0.5
        self.table = HalfTable.from_counts(noisy, 1e4, BETA)
        self.frozen()


def tomotopy_model(X, n_components: int):
    model = tomotopy.LDAModel(k=n_components, alpha=ALPHA, eta=BETA, seed=1)
    model.optim_interval = model.burn_in = 0
    for d in range(X.shape[0]):
        row = slice(X.indptr[d], X.indptr[d + 1])
        model.add_doc([str(w) for w in np.repeat(X.indices[row], X.data[row])])
    model.train(20, workers=1)
    return model


def lda_sweep(X, n_components: int):
    model = lda.LDA(n_components, n_iter=1, alpha=ALPHA, eta=BETA, random_state=1)
    model._initialize(X.toarray())
    rands = np.random.RandomState(0).rand(2**18)

    def run() -> None:
        model._sample_topics(rands)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["nips", "kos"])
    parser.add_argument("--components", nargs="+", type=int, default=[20, 100, 500])
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    print(f"tomotopy {tomotopy.__version__} ({tomotopy.isa}), lda {lda.__version__}; "
          "M tokens/s, best (median)\n")  # fmt: skip
    names = ["live", "frozen", "frozen, end to end", "tomotopy", "lda"]
    print("| corpus, K | " + " | ".join(names) + " | live : tomotopy | end to end : tomotopy |")
    print("|" + " --- |" * (len(names) + 3))
    for corpus in options.corpora:
        X = load_uci_bow(corpus, data_home=data_folder(), download_if_missing=False).data
        for n_components in options.components:
            row(corpus, X, n_components, names, options.repeats)


def row(corpus: str, X, n_components: int, names: list[str], repeats: int) -> None:
    ours, peer = Ours(X, n_components), tomotopy_model(X, n_components)
    runs = [ours.live, ours.frozen, ours.end_to_end, lambda: peer.train(1, workers=1),
            lda_sweep(X, n_components)]  # fmt: skip
    times = {name: [] for name in names}
    for _ in range(repeats):
        for name, run in zip(names, runs):
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    n_tokens = X.sum() / 1e6
    best = {name: n_tokens / min(t) for name, t in times.items()}
    middle = {name: n_tokens / np.median(t) for name, t in times.items()}
    cells = [f"{best[name]:.1f} ({middle[name]:.1f})" for name in names]
    ratios = [middle[name] / middle["tomotopy"] for name in ("live", "frozen, end to end")]
    print(f"| {corpus} {n_components} | " + " | ".join(cells)
          + "".join(f" | {ratio:.2f}" for ratio in ratios) + " |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
