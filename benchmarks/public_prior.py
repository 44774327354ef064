"""What a public prior does to a private model, on pairs of private and public texts.

``python benchmarks/public_prior.py [--group ...] [--corpora ...] [--epsilons 1 4]
[--seeds 1] [--points FILE] [--short] [--into PAGE MARK]``

Groups of pairs: `same` (a sample of the corpus itself, taken out of the training),
`small` (the same, with 500 private documents), `classes` (a sample of half of the
classes of the corpus), `other` (documents of another corpus, words matched by name),
and `made up` (the table of a sample of the corpus, with the topics of each word
permuted). Each pair is trained without and with the prior at the same seeds. What has
been measured stays in FILE, and a later run adds to it: begin with ``--epsilons 1 4
--seeds 1``. All of it takes about 20 minutes of one core. ``--short`` prints one row a
pair. With ``--into`` the output replaces what stands between ``<!-- MARK -->`` and
``<!-- end of MARK -->`` of a page of the documentation.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import corpora
import numpy as np
import scipy.sparse as sp
from docstrings import load_docstrings
from paired_utility import printed_into
from sklearn.feature_extraction.text import CountVectorizer

from dplda import GibbsLDA, SubLDA, public_prior
from dplda.datasets import load_wordnet_glosses
from dplda.metrics import held_out_perplexity, unigram_perplexity

N_COMPONENTS, DELTA = 20, 1e-5
SMOOTHING = 0.1  # of each cell, where the public table is used alone
RESERVE = {"NIPS": (300,), "docstrings": (300, 1000, 3000), "glosses": (300, 3000)}
LOADERS = {
    "KOS": corpora.kos,
    "BBC": corpora.bbc,
    "docstrings": corpora.embedded,
    "NIPS": corpora.nips,
    "glosses": corpora.glosses,
}
EPSILONS = "0.5", "1", "4", "8"
GROUPS = ("same", "small", "classes", "other", "made up")
OTHERS = {
    "KOS": ("NIPS", "BBC", "glosses"),
    "BBC": ("KOS", "NIPS", "glosses"),
    "NIPS": ("KOS", "BBC"),
    "docstrings": ("NIPS", "BBC", "glosses"),
    "glosses": ("docstrings", "BBC"),
}


@dataclass(frozen=True)
class Pair:
    """A private corpus without its last `reserve` documents, and a public sample."""

    group: str
    corpus: str
    public: str
    n_public: int
    reserve: int
    n_private: int | None = None

    @property
    def training(self) -> str:
        """Pairs with the same one share the fits without a prior."""
        first = "" if self.n_private is None else f", first {self.n_private}"
        return f"{self.corpus} without {self.reserve}{first}"

    def __str__(self) -> str:
        return f"{self.group} | {self.training} | {self.public} | {self.n_public}"


def pairs() -> Iterator[Pair]:
    """All pairs. A public sample comes out of the reserve, or out of another corpus."""
    for corpus in LOADERS:
        reserves = RESERVE.get(corpus, (300, 1000))
        for reserve, before in zip(reserves, (0, *reserves)):
            for n in (30, 100, 300, 1000, 3000):
                if before < n <= reserve:
                    yield Pair("same", corpus, "same", n, reserve)
        for n in (100, 300):
            yield Pair("small", corpus, "same", n, 300, 500)
        if corpus in ("BBC", "docstrings"):
            for half in ("first", "last"):
                for n in (100, 500):
                    yield Pair(
                        "classes", corpus, f"{half} half of the classes", n, 1000
                    )
        for other in OTHERS[corpus]:
            yield Pair("other", corpus, other, 1000, 300)
        yield Pair("made up", corpus, "topics permuted", 300, 300)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group", nargs="+", default=GROUPS, choices=GROUPS)
    parser.add_argument(
        "--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS)
    )
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=[1.0, 4.0, 0.5, 8.0]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, default=10**9, help="pairs to measure")
    parser.add_argument(
        "--points", type=Path, default=Path(__file__).with_suffix(".json")
    )
    parser.add_argument(
        "--report", action="store_true", help="only show what FILE holds"
    )
    parser.add_argument("--short", action="store_true", help="one row a pair")
    parser.add_argument(
        "--into", nargs=2, metavar=("PAGE", "MARK"), help="page to write to"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    points = Points(options.points)
    chosen = [
        p for p in pairs() if p.group in options.group and p.corpus in options.corpora
    ]
    if not options.report:
        for seed in range(options.seeds):
            for epsilon in options.epsilons:
                for pair in chosen[: options.most]:
                    measure(pair, epsilon, seed, points)
    with printed_into(options.into):
        if options.short:
            short(chosen, points)
        else:
            report(chosen, points)


class Points(dict):
    """Measured points by their names, in a file that grows with each of them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        super().__init__(json.loads(file.read_text()) if file.exists() else {})

    def once(self, name: str, compute) -> dict:
        if name not in self:
            self[name] = compute()
            self.file.write_text(json.dumps(self, indent=0, sort_keys=True) + "\n")
            print(name, self[name], flush=True)
        return self[name]


def measure(pair: Pair, epsilon: float, seed: int, points: Points) -> None:
    train, held = private(pair)
    points.once(f"{pair.training} | limits", lambda: limits(train, held))
    points.once(
        f"{pair.training} | {epsilon:g} | {seed}",
        lambda: fitted(train, held, epsilon, seed),
    )
    points.once(f"{pair} | alone | {seed}", lambda: alone(table(pair, seed), held))
    points.once(
        f"{pair} | {epsilon:g} | {seed}",
        lambda: fitted(train, held, epsilon, seed, prior_components=table(pair, seed)),
    )


def limits(train, held) -> dict:
    """Perplexity of the word frequencies, and the best one without privacy."""
    models = [
        GibbsLDA(N_COMPONENTS, topic_word_prior=b, max_iter=300, random_state=0)
        for b in (0.01, 1.0)
    ]
    models += [
        SubLDA(N_COMPONENTS, epsilon=np.inf, topic_word_prior=b, random_state=0)
        for b in (0.01, 1.0)
    ]
    free = min(model.fit(train).perplexity(held) for model in models)
    return {
        "unigram": unigram_perplexity(train, held),
        "free": free,
        "n_docs": train.shape[0],
    }


def alone(prior, held) -> dict:
    return {
        "perplexity": held_out_perplexity(prior + SMOOTHING, held),
        "tokens": float(prior.sum()),
    }


def fitted(train, held, epsilon: float, seed: int, **options) -> dict:
    model = SubLDA(
        N_COMPONENTS, epsilon=epsilon, delta=DELTA, random_state=seed, **options
    )
    found = {"perplexity": model.fit(train).perplexity(held)}
    for name, value in vars(model).items():  # what the fit says of its prior
        if name == "prior_trust_" and value is not None:
            found[name] = round(float(value), 3)
    return found


@cache
def split(corpus: str) -> corpora.Split:
    return LOADERS[corpus]()


def private(pair: Pair):
    """Private training documents, and held-out documents."""
    corpus = split(pair.corpus)
    return corpus.train[: corpus.train.shape[0] - pair.reserve][
        : pair.n_private
    ], corpus.test


@cache
def table(pair: Pair, seed: int) -> np.ndarray:
    found = public_prior(public(pair), n_components=N_COMPONENTS, random_state=seed)
    # the word frequencies are right, and the topics are not
    if pair.group == "made up":
        found = np.random.default_rng(seed).permuted(found, axis=0)
    return found


def public(pair: Pair):
    """Counts of the public sample in the words of the private corpus."""
    corpus = split(pair.corpus)
    if pair.group == "other":
        X = other(pair.public, tuple(corpus.words))
        X = X[X.sum(axis=1) >= 10]
        return X[np.random.default_rng(0).permutation(X.shape[0])[: pair.n_public]]
    reserve = slice(corpus.train.shape[0] - pair.reserve, None)
    X = corpus.train[reserve]
    if pair.group == "classes":
        first = np.isin(corpus.y_train[reserve], first_half(corpus.y_train))
        X = X[first if pair.public.startswith("first") else ~first]
    return X[: pair.n_public]


def first_half(labels: np.ndarray) -> np.ndarray:
    """The first classes, by name, that hold half of the documents or a little less."""
    classes, sizes = np.unique(labels, return_counts=True)
    return classes[np.cumsum(sizes) <= sizes.sum() / 2]


@cache
def other(name: str, words: tuple[str, ...]) -> sp.csr_array:
    """Counts of the words in all documents of another corpus."""
    if name in ("KOS", "NIPS"):
        corpus = corpora.uci_bow(name.lower())
        column = {word: v for v, word in enumerate(words)}
        known = [
            (i, column[w]) for i, w in enumerate(corpus.feature_names) if w in column
        ]
        rows, columns = np.array(known).T
        map_ = sp.csr_array(
            (np.ones(len(rows)), (rows, columns)),
            shape=(len(corpus.feature_names), len(words)),
        )
        return sp.csr_array(sp.csr_array(corpus.data) @ map_)
    texts = {
        "BBC": lambda: corpora.bbc_texts()[0],
        "docstrings": lambda: load_docstrings()[0],
        "glosses": lambda: load_wordnet_glosses().data,
    }[name]()
    return sp.csr_array(CountVectorizer(vocabulary=words).transform(texts)).astype(
        float
    )


def short(chosen, points: Points) -> None:
    """A row for each pair: perplexity without and with the prior, at each epsilon."""
    found = {
        pair: {row["epsilon"]: row for row in results(pair, points)} for pair in chosen
    }
    found = {pair: rows for pair, rows in found.items() if rows}
    epsilons = [e for e in EPSILONS if any(e in rows for rows in found.values())]
    titles = ["private documents", "public documents", "public alone"]
    print(f"| {' | '.join([*titles, *(f'epsilon {e}' for e in epsilons)])} |")
    print("| --- " * (3 + len(epsilons)) + "|")
    last = ""
    for pair, rows in sorted(found.items(), key=place):
        any_row = next(iter(rows.values()))
        private_ = f"{pair.corpus}, {any_row['n_docs']:,}"
        public_ = f"{pair.n_public:,}" + f" of {pair.public}" * (
            pair.group in ("classes", "other")
        )
        public_ += f", {pair.public}" * (pair.group == "made up")
        cells = [change(rows.get(e)) for e in epsilons]
        first = "" if private_ == last else private_
        print(
            f"| {first} | {public_} | {any_row['public']:.0f} | {' | '.join(cells)} |"
        )
        last = private_


def place(item) -> tuple:
    """Corpora in their order, each with the most private documents first."""
    pair, rows = item
    return list(LOADERS).index(pair.corpus), -next(iter(rows.values()))["n_docs"]


def change(row: dict | None) -> str:
    if row is None:
        return ""
    both = f"{row['alone']:.0f} → {row['with']:.0f}"
    return (
        both
        if row["seeds"] == 1
        else f"{both} ({row['change']:+.1%}{spread(row['error'])})"
    )


def report(chosen, points: Points) -> None:
    """A row for each pair and epsilon, and the verdicts."""
    print(
        "| private | documents | public | documents | epsilon | unigram | public alone "
        "| private alone | with prior | difference | gap closed | trust |"
    )
    print("| --- " * 12 + "|")
    rows = [row for pair in chosen for row in results(pair, points)]
    for row in rows:
        print(
            f"| {row['pair'].corpus} | {row['n_docs']} | {row['pair'].public} "
            f"| {row['pair'].n_public} | {row['epsilon']} | {row['unigram']:.0f} "
            f"| {row['public']:.0f} | {row['alone']:.0f} | {row['with']:.0f} "
            f"| {row['change']:+.1%}{spread(row['error'])} "
            f"| {row['closed_alone']:.0%} → {row['closed']:.0%} "
            f"| {row['trust']:.2f} |"
        )
    print(f"\n{len({str(row['pair']) for row in rows})} pairs, {len(rows)} cells")
    verdict(
        "worse than without the prior by more than 1%, beyond 2 standard errors",
        [r for r in rows if r["change"] - 2 * r["error"] > 0.01],
    )
    verdict(
        "worse than without the prior by more than 1%",
        [r for r in rows if r["change"] > 0.01],
    )
    verdict(
        "worse than the better of private alone and public alone by more than 1%",
        [r for r in rows if r["with"] > 1.01 * min(r["alone"], r["public"])],
    )
    verdict(
        "worse than word frequencies", [r for r in rows if r["with"] > r["unigram"]]
    )
    for group in GROUPS:
        changes = [r["change"] for r in rows if r["pair"].group == group]
        if changes:
            print(
                f"{group}: mean change {np.mean(changes):+.1%}, from "
                f"{min(changes):+.1%} to {max(changes):+.1%}"
            )


def results(pair: Pair, points: Points) -> Iterator[dict]:
    """The figures of a pair at each epsilon, means over seeds that both fits have."""
    for epsilon in EPSILONS:
        seeds = [s for s in range(100) if f"{pair} | {epsilon} | {s}" in points]
        if not seeds:
            continue
        ends = points[f"{pair.training} | limits"]
        with_, without, public_ = (
            np.array([points[name.format(s)]["perplexity"] for s in seeds])
            for name in (
                f"{pair} | {epsilon} | {{}}",
                f"{pair.training} | {epsilon} | {{}}",
                f"{pair} | alone | {{}}",
            )
        )
        change = with_ / without - 1
        gap = ends["unigram"] - ends["free"]
        said = [points[f"{pair} | {epsilon} | {s}"] for s in seeds]
        yield {
            **ends,
            "pair": pair,
            "epsilon": epsilon,
            "seeds": len(seeds),
            "with": with_.mean(),
            "alone": without.mean(),
            "public": public_.mean(),
            "change": change.mean(),
            "error": change.std(ddof=1) / np.sqrt(len(seeds))
            if len(seeds) > 1
            else np.nan,
            "closed": (ends["unigram"] - with_.mean()) / gap,
            "closed_alone": (ends["unigram"] - without.mean()) / gap,
            "trust": np.mean([x.get("prior_trust_", np.nan) for x in said]),
        }


def spread(error: float) -> str:
    return "" if np.isnan(error) else f" ± {error:.1%}"


def verdict(text: str, rows: list[dict]) -> None:
    print(f"{len(rows)} cells {text}")
    for row in sorted(rows, key=lambda r: -r["change"]):
        of_best = row["with"] / min(row["alone"], row["public"]) - 1
        print(
            f"    {row['pair']}, epsilon {row['epsilon']}: {row['with']:.0f}, private "
            f"alone {row['alone']:.0f} ({row['change']:+.1%}{spread(row['error'])}), "
            f"public alone {row['public']:.0f}, to the better one {of_best:+.1%}"
        )


if __name__ == "__main__":
    main()
