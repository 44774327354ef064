"""Federated topic models, compared with each party alone and with all data together.

``python benchmarks/federated.py [--corpora kos] [--epsilons 4 6 8 11] [--seeds 3] [--rounds 5]
[--parts alone literal]``

Three parties of unequal size and content, after figures 5 to 7 and table 3 of the iFTM paper. KOS
is split by topic: nine of ten documents go to the party that their main topic belongs to, the
others to any party. BBC is split by label, in the same way. Epsilon is that of one token; 20 topics
per party, 50 sweeps per round, V = 2000, one tenth held out; mean and standard deviation over seeds
of held-out log-likelihood per token by document completion (higher is better). `alone` without an
epsilon and `all data` are GibbsLDA, without privacy, with as many sweeps as all rounds. `literal`
compares the party as published with the sound one: what is learned, and for how many words the
master recovers the exact frequency in a party's documents.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from corpora import Split, load

from dplda import GibbsLDA
from dplda.federated import IFTMMaster, IFTMParty, LocalModel, run_rounds, vocabulary_hash
from dplda.metrics import held_out_perplexity
from dplda.privacy import PrivacyLeakWarning, SeededNoiseWarning
from dplda.published import PublishedIFTMParty as LiteralParty
from dplda.published import recover_counts

K, SWEEPS = 20, 50
SHARES = np.array([1, 2, 3]) / 6
STRAYS = 0.1  # documents that go to any party


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos"], choices=["kos", "bbc"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[4.0, 6.0, 8.0, 11.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", default=["alone"], choices=["alone", "literal"])
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    for split in load(options.corpora):
        owner = deal(split)
        sizes = [f"{(owner == p).sum()} documents" for p in range(3)]
        print(f"\n## {split}; {split.test.shape[0]} held out; parties: {', '.join(sizes)}\n")
        for part in options.parts:
            globals()[part](split, owner, options)


def deal(split: Split) -> np.ndarray:
    """The party of each document (n_docs,)."""
    rng = np.random.default_rng(0)
    if split.y_train is not None:
        kind = np.unique(split.y_train, return_inverse=True)[1]
    else:
        model = GibbsLDA(12, max_iter=60, random_state=0).fit(split.train)
        kind = model.transform(split.train).argmax(axis=1)
    sizes, home, load = np.bincount(kind), {}, np.zeros(3)
    for k in np.argsort(-sizes):  # the largest kinds first, to the party that lacks most
        home[k] = int(np.argmin((load + sizes[k]) / SHARES))
        load[home[k]] += sizes[k]
    owner = np.array([home[k] for k in kind])
    stray = rng.random(len(owner)) < STRAYS
    return np.where(stray, rng.choice(3, len(owner), p=SHARES), owner)


def federation(
    split: Split,
    owner: np.ndarray,
    seed: int,
    kind: type = IFTMParty,
    *,
    epsilon: float,
    **parameters,
) -> dict:
    name = "token_epsilon" if kind is IFTMParty else "published_epsilon"
    parameters = {"max_iter": SWEEPS, name: epsilon, **parameters}
    return {
        f"P{p + 1}": (
            kind(K, random_state=100 * seed + p, **parameters),
            split.train[np.flatnonzero(owner == p)],
        )
        for p in range(3)
    }


def score(components: np.ndarray, split: Split) -> float:
    return -np.log(held_out_perplexity(components, split.test))


def last(split: Split, owner: np.ndarray, options, **parameters) -> list[float]:
    """Score of the global model after the last round, of each seed."""
    results = []
    for seed in range(options.seeds):
        parties = federation(split, owner, seed, **parameters)
        master = run_rounds(IFTMMaster(split.train.shape[1]), parties, options.rounds)
        results.append(score(master.components_, split))
    return results


def baselines(split: Split, owner: np.ndarray, options) -> dict[str, list[float]]:
    """Scores of each party alone and of all data together, without privacy."""
    sweeps = SWEEPS * options.rounds
    data = {f"P{p + 1} alone": split.train[np.flatnonzero(owner == p)] for p in range(3)}
    data["all data"] = split.train
    seeds = range(options.seeds)
    scores = {
        name: [score(gibbs(K, X, sweeps, seed).components_, split) for seed in seeds]
        for name, X in data.items()
    }
    scores[f"all data, {3 * K} topics"] = [
        score(gibbs(3 * K, split.train, sweeps, seed).components_, split) for seed in seeds
    ]
    return scores


def gibbs(n_components: int, X, sweeps: int, seed: int) -> GibbsLDA:
    return GibbsLDA(n_components, max_iter=sweeps, random_state=seed).fit(X)


def lone(split: Split, owner: np.ndarray, seed: int, epsilon: float, options) -> IFTMParty:
    """The largest party alone, with privacy and the sweeps of all rounds."""
    sweeps = SWEEPS * options.rounds
    estimator, X = federation(split, owner, seed, epsilon=epsilon, max_iter=sweeps)["P3"]
    return estimator.fit(X)


def alone(split: Split, owner: np.ndarray, options) -> None:
    """Figure 5: what a party gains from the federation."""
    scores = baselines(split, owner, options)
    print("| model | log-likelihood per token |\n| --- | --- |")
    for epsilon in options.epsilons:
        scores[f"P3 alone, epsilon {epsilon:g}"] = [
            score(lone(split, owner, seed, epsilon, options).components_, split)
            for seed in range(options.seeds)
        ]
    for epsilon in [*options.epsilons, np.inf]:
        scores[f"iFTM, epsilon {epsilon:g}"] = last(split, owner, options, epsilon=epsilon)
    for name, values in scores.items():
        print(f"| {name} | {spread(values)} |", flush=True)


def literal(split: Split, owner: np.ndarray, options) -> None:
    """The party as published and the sound one, at the paper's threshold and at a better one."""
    print("\n| epsilon | party | log-likelihood per token | words recovered |")
    print("| --- | --- | --- | --- |")
    for epsilon in options.epsilons:
        best = np.round(1024 * (1 - 1.07 / epsilon)) / 1024
        for name, kind, parameters in [
            ("as published, tau 0.2", LiteralParty, {}),
            (f"as published, tau {best:.3f}", LiteralParty, {"noise_threshold": best}),
            ("sound", IFTMParty, {}),
        ]:
            values = []
            for seed in range(options.seeds):
                parties = federation(split, owner, seed, kind, epsilon=epsilon, **parameters)
                master = run_rounds(IFTMMaster(split.train.shape[1]), parties, options.rounds)
                found = [recovered(estimator, X) for estimator, X in parties.values()]
                values.append((score(master.components_, split), np.mean(found)))
            value, share = zip(*values)
            cells = [spread(value), f"{np.mean(share):.1%}"]
            print(f"| {epsilon:g} | {name} | {' | '.join(cells)} |", flush=True)


def recovered(estimator, X) -> float:
    """Share of a party's words whose exact frequency follows from its message.

    A sound party sends the mean of the counts of its last sweeps, whose sum is integer. It counts
    imputed words, whose frequency is an estimate of the true one.
    """
    n_averaged = 1 if isinstance(estimator, LiteralParty) else SWEEPS // 5
    message = LocalModel.from_estimator(estimator, "party", 0, vocabulary_hash(X.shape[1]))
    beta = n_averaged * estimator.topic_word_prior
    counts = recover_counts(message.table, topic_word_prior=beta) / n_averaged
    frequency = X.sum(axis=0)
    return float(np.mean((np.rint(counts.sum(axis=0)) == frequency)[frequency > 0]))


def spread(values) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


if __name__ == "__main__":
    main()
