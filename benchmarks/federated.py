"""Federated topic models, compared with each party alone and with all data together.

``python benchmarks/federated.py [--corpora kos] [--epsilons 4 6 8 11] [--seeds 3] [--rounds 5]
[--parts alone noise rounds literal classify] [--figures DIR]``

Three parties of unequal size and content, after figures 5 to 7 and table 3 of the iFTM paper. KOS
is split by topic: nine of ten documents go to the party that their main topic belongs to, the
others to any party. BBC is split by label, in the same way. Epsilon is that of one token; 20 topics
per party, 50 sweeps per round, V = 2000, one tenth held out; mean and standard deviation over seeds
of held-out log-likelihood per token by document completion (higher is better). `alone` without an
epsilon and `all data` are GibbsLDA, without privacy, with as many sweeps as all rounds. `literal`
compares the party as published with the sound one: what is learned, what is sent, and for how many
words the master recovers the exact frequency in a party's documents.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from corpora import Split, load
from sklearn.linear_model import LogisticRegression

from dplda import GibbsLDA
from dplda.core._base import BaseTopicModel
from dplda.federated import IFTMMaster, IFTMParty, LocalModel, run_rounds, vocabulary_hash
from dplda.metrics import held_out_perplexity
from dplda.privacy import PrivacyLeakWarning, SeededNoiseWarning
from dplda.published import PublishedIFTMParty as LiteralParty
from dplda.published import recover_counts

K, SWEEPS = 20, 50
SHARES = np.array([1, 2, 3]) / 6
STRAYS = 0.1  # documents that go to any party
PARTS = ["alone", "noise", "rounds", "literal", "classify"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["kos"], choices=["kos", "bbc"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[4.0, 6.0, 8.0, 11.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", default=["alone", "noise", "rounds"], choices=PARTS)
    parser.add_argument("--figures", type=Path, help="folder for pictures (PNG)")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SeededNoiseWarning)
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    if options.figures:
        options.figures.mkdir(parents=True, exist_ok=True)
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


def trace(split: Split, owner: np.ndarray, options, **parameters) -> np.ndarray:
    """Score of the global model after each round, and bytes of it (seeds, rounds, 2)."""
    results = []
    for seed in range(options.seeds):
        parties = federation(split, owner, seed, **parameters)
        master, rows = IFTMMaster(split.train.shape[1]), []
        for _ in range(options.rounds):
            run_rounds(master, parties, 1)
            record = master.history_[-1]
            rows.append(
                (score(master.components_, split), record.bytes_received + record.bytes_sent)
            )
        results.append(rows)
    return np.array(results)


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
        last = trace(split, owner, options, epsilon=epsilon)[:, -1, 0]
        scores[f"iFTM, epsilon {epsilon:g}"] = list(last)
    for name, values in scores.items():
        print(f"| {name} | {spread(values)} |", flush=True)
    if options.figures:
        bars(scores, split, options.figures / f"federated_{split.name.lower()}_alone.png")


def noise(split: Split, owner: np.ndarray, options) -> None:
    """Figure 6: epsilon of a token, and mechanism or threshold."""
    best = {e: 1 - 1.07 / e for e in options.epsilons}
    columns = {
        "rr": lambda e: {},
        "laplace, tau 0.2": lambda e: {"token_mechanism": "laplace"},
        "laplace, tau 0.5": lambda e: {"token_mechanism": "laplace", "noise_threshold": 0.5},
        "laplace, tau 1 - 1.07/epsilon": lambda e: {
            "token_mechanism": "laplace", "noise_threshold": np.round(best[e] * 1024) / 1024
        },
    }  # fmt: skip
    curves: dict[str, list] = {name: [] for name in columns}
    print(f"\n| epsilon | {' | '.join(columns)} |\n|{' --- |' * (len(columns) + 1)}")
    for epsilon in options.epsilons:
        cells = []
        for name, parameters in columns.items():
            last = trace(split, owner, options, epsilon=epsilon, **parameters(epsilon))[:, -1, 0]
            curves[name].append((epsilon, last.mean()))
            cells.append(spread(last))
        print(f"| {epsilon:g} | {' | '.join(cells)} |", flush=True)
    if options.figures:
        lines(curves, "epsilon of a token", split, options.figures, "noise")


def rounds(split: Split, owner: np.ndarray, options) -> None:
    """Figure 7: rounds and bytes, compared with distributed LDA that sends counts every sweep."""
    curves = {}
    for epsilon in [*options.epsilons, np.inf]:
        result = trace(split, owner, options, epsilon=epsilon)
        mean, sent = result[..., 0].mean(axis=0), np.cumsum(result[..., 1].mean(axis=0))
        curves[f"iFTM, epsilon {epsilon:g}"] = [*zip(range(1, 1 + len(mean)), mean, sent)]
    each = 2 * 3 * 4 * K * split.train.shape[1]  # counts of three parties, there and back
    curves["LDA, counts sent every sweep"] = [
        (n, np.mean([score(gibbs(K, split.train, n, s).components_, split)
                     for s in range(options.seeds)]), n * each)
        for n in (1, 2, 5, 10, 20, 50, 100, 200)
    ]  # fmt: skip
    print("\n| model | rounds: log-likelihood (megabytes so far) |\n| --- | --- |")
    for name, points in curves.items():
        cells = [f"{n}: {value:.3f} ({sent / 1e6:.1f})" for n, value, sent in points]
        print(f"| {name} | {', '.join(cells)} |", flush=True)
    if options.figures:
        by_bytes = {name: [(b / 1e6, v) for _, v, b in points] for name, points in curves.items()}
        lines(by_bytes, "megabytes sent", split, options.figures, "rounds", log=True)


def literal(split: Split, owner: np.ndarray, options) -> None:
    """The party as published and the sound one, at the paper's threshold and at a better one."""
    print("\n| epsilon | party | log-likelihood per token | megabytes | words recovered |")
    print("| --- | --- | --- | --- | --- |")
    for epsilon in options.epsilons:
        best = np.round(1024 * (1 - 1.07 / epsilon)) / 1024
        for name, kind, parameters in [
            ("as published, tau 0.2", LiteralParty, {}),
            (f"as published, tau {best:.3f}", LiteralParty, {"noise_threshold": best}),
            ("sound, laplace, tau 0.2", IFTMParty, {"token_mechanism": "laplace"}),
            ("sound, rr", IFTMParty, {}),
        ]:
            values = []
            for seed in range(options.seeds):
                parties = federation(split, owner, seed, kind, epsilon=epsilon, **parameters)
                master = run_rounds(IFTMMaster(split.train.shape[1]), parties, options.rounds)
                n_bytes = sum(r.bytes_received + r.bytes_sent for r in master.history_)
                found = [recovered(estimator, X) for estimator, X in parties.values()]
                values.append((score(master.components_, split), n_bytes / 1e6, np.mean(found)))
            value, sent, share = zip(*values)
            cells = [spread(value), f"{np.mean(sent):.1f}", f"{np.mean(share):.1%}"]
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


class Topics(BaseTopicModel):
    """Topic weights under a given table."""

    def __init__(self, components, doc_topic_prior=0.1, n_jobs=None):
        self.components, self.doc_topic_prior, self.n_jobs = components, doc_topic_prior, n_jobs

    def fit(self, X, y=None):
        self.components_, self.n_features_in_ = self.components, X.shape[1]
        return self


def classify(split: Split, owner: np.ndarray, options) -> None:
    """Table 3: accuracy of a classifier on topic weights; all labels known to all."""
    if split.y_train is None:
        print(f"\n{split.name} has no labels\n")
        return
    results: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        for p in range(3):
            X = split.train[np.flatnonzero(owner == p)]
            components = gibbs(K, X, SWEEPS * options.rounds, seed).components_
            results.setdefault(f"LDA on P{p + 1}", []).append(accuracy(components, split))
        components = gibbs(K, split.train, SWEEPS * options.rounds, seed).components_
        results.setdefault("LDA on all data", []).append(accuracy(components, split))
        for epsilon in [*options.epsilons, np.inf]:
            parties = federation(split, owner, seed, epsilon=epsilon)
            master = run_rounds(IFTMMaster(split.train.shape[1]), parties, options.rounds)
            name = f"iFTM, epsilon {epsilon:g}"
            results.setdefault(name, []).append(accuracy(master.components_, split))
    print("\n| topics of | accuracy |\n| --- | --- |")
    for name, values in results.items():
        print(f"| {name} | {spread(values)} |", flush=True)


def accuracy(components: np.ndarray, split: Split) -> float:
    topics = Topics(components).fit(split.train)
    classifier = LogisticRegression(C=100, max_iter=3000)
    classifier.fit(topics.transform(split.train), split.y_train)
    return classifier.score(topics.transform(split.test), split.y_test)


def spread(values) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def bars(scores: dict[str, list[float]], split: Split, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    means = [np.mean(values) for values in scores.values()]
    colors = ["C1" if name.startswith("iFTM") else "C7" for name in scores]
    ax.barh(list(scores), means, xerr=[np.std(v) for v in scores.values()], color=colors)
    ax.set_xlim(min(means) - 0.1, max(means) + 0.05)
    ax.invert_yaxis()
    ax.set(xlabel="held-out log-likelihood per token", title=split.name)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def lines(curves, xlabel: str, split: Split, folder: Path, name: str, *, log=False) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for label, points in curves.items():
        x, y = zip(*points)
        ax.plot(x, y, marker="o", markersize=3, label=label)
    if log:
        ax.set_xscale("log")
    ax.set(xlabel=xlabel, ylabel="held-out log-likelihood per token", title=split.name)
    ax.legend()
    figure.savefig(folder / f"federated_{split.name.lower()}_{name}.png", dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
