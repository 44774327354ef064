"""Weak topics that give way during the fit: paired perplexity, coherence, and topics found again.

``python benchmarks/splitting.py [--corpora kos bbc nips docstrings] [--seeds 3] [--epsilon 4]``

K = 20, V = 2000, delta = 1e-5. At a fixed round, the quarter of the topics with the least evidence
is replaced. "split": by halves of the largest topics, each word divided at random, and each
document's weight of the topic divided equally. "redrawn": by random topics around the word totals,
as at the start. Both read released values and a document's own weights only. Coherence is that of
the half of the topics with the most evidence, and of all, in the training documents.
"""

from __future__ import annotations

import argparse
import itertools
import warnings

import numpy as np
from corpora import LOADERS, load
from scipy.spatial.distance import cdist

import dplda.central._sublda as module
from dplda import SubLDA
from dplda.central._documents import Documents
from dplda.central._noisy_table import NoisyTable
from dplda.metrics import coherence
from dplda.metrics._signal import evidence

K, ROUNDS = 20, 80
VARIANTS = {  # round, kind, and how unequally a word is divided
    "split in round 12": (12, "split", 1.0),
    "split in round 24": (24, "split", 0.5),
    "redrawn in round 24": (24, "redrawn", 0.0),
}
PLAIN_UPDATE, PLAIN_DOCUMENTS = NoisyTable.update, Documents.from_counts.__func__


def hook(variant) -> None:
    """Make the next fits replace their weak topics; None: plain fits."""
    documents = {}

    def from_counts(cls, *args, **options):
        documents["theta"] = (made := PLAIN_DOCUMENTS(cls, *args, **options)).theta
        return made

    def update(table, *args, **options):
        PLAIN_UPDATE(table, *args, **options)
        if variant is not None and table.n_rounds == variant[0]:
            replace(table, documents["theta"], *variant[1:])

    NoisyTable.update, module.Documents.from_counts = update, classmethod(from_counts)


def replace(table, theta, kind, spread) -> None:
    rng, average = np.random.default_rng(table.n_rounds), table.average
    order = np.argsort(evidence(table.table.T.astype(float), table.components_std()))
    sizes, changed = average.sum(axis=0), set()
    for k in order[: K // 4]:
        if kind == "redrawn":
            draw = table.totals * rng.exponential(size=len(average))
            average[:, k] = draw / draw.sum() * sizes.mean()
            theta[:, k] = theta[:, :K].sum(axis=1) / K
            changed.add(k)
            continue
        parent = max(order[K // 4 :], key=lambda j: sizes[j])
        share = np.clip(1 / (1 + np.exp(-2 * spread * rng.normal(size=len(average)))), 0.02, 0.98)
        average[:, k] = average[:, parent] * (1 - share)
        average[:, parent] *= share
        theta[:, [k, parent]] = theta[:, [parent]] / 2
        sizes[[k, parent]] = sizes[parent] / 2
        changed |= {k, parent}
    columns = sorted(changed)
    table.table[:, columns] = np.maximum(average[:, columns], 0.01)


def measure(split, epsilon, seeds):
    """Perplexity of each seed, coherence of the better half and of all, share found again."""
    fits = [
        SubLDA(K, epsilon=epsilon, delta=1e-5, max_iter=ROUNDS, random_state=seed).fit(split.train)
        for seed in seeds
    ]
    better = [np.argsort(-fit.topic_evidence_)[: K // 2] for fit in fits]
    npmi = [coherence(fit.components_, split.train) for fit in fits]
    again = [
        np.mean(cdist(one.components_[top], two.components_, "cosine").min(axis=1) <= 0.2)
        for (one, top), (two, _) in itertools.permutations(zip(fits, better), 2)
    ]
    perplexity = np.array([fit.perplexity(split.test) for fit in fits])
    return perplexity, np.mean([x[t] for x, t in zip(npmi, better)]), np.mean(npmi), np.mean(again)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=4.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| corpus | weak topics | perplexity | c_npmi, better half | all | found again |")
    print("| --- | --- | --- | --- | --- | --- |")
    for split in load(options.corpora):
        hook(None)
        plain, *cells = measure(split, options.epsilon, range(options.seeds))
        row(split.name, "as they are", f"{plain.mean():.0f}", cells)
        for name, variant in VARIANTS.items():
            hook(variant)
            found, *cells = measure(split, options.epsilon, range(options.seeds))
            change = 100 * (found / plain - 1)
            error = change.std(ddof=1) / np.sqrt(len(change))
            row(split.name, name, f"{change.mean():+.1f}% ± {error:.1f}", cells)


def row(name, variant, perplexity, cells) -> None:
    figures = f"{cells[0]:.3f} | {cells[1]:.3f} | {cells[2]:.2f}"
    print(f"| {name} | {variant} | {perplexity} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
