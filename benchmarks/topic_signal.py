"""Topics that are shown: on corpora that have none, and on corpora that have some.

``python benchmarks/topic_signal.py nulls [--fits 60] [--docs 1000 all] [--lines FILE]``
``python benchmarks/topic_signal.py real [--seeds 2] [--topics 20] [--vectors]``
``python benchmarks/topic_signal.py hard [--seeds 2]``
``python benchmarks/topic_signal.py plan [--seeds 1] [--docs 1000 all]``
``python benchmarks/topic_signal.py level [--fits 240]``
``python benchmarks/topic_signal.py parties [--seeds 2] [--epsilons 4 6 8]``
``python benchmarks/topic_signal.py price [--seeds 5] [--epsilons 1 4]``

All: ``[--corpora kos glosses nips bbc] [--epsilons 1 2 4 8 inf]``. V = 2000, delta =
1e-5, `SubLDA`. A topic is shown if it is not one of `weak_topics_`.

``nulls``: corpora without topics. Lengths and frequencies of words are those of a
corpus. *tokens*: all tokens are dealt to the documents. *entries*: the pairs of a word
and its count in a document are dealt, so that words come in bursts. *own*: each
document draws its words from a Dirichlet draw of its own around the frequencies, of
strength 30. Each fit has its own corpus, K, epsilon and help: none, the embedded word
vectors, or a public prior, which is `GibbsLDA` of the held-out documents with their
topics. The first rows have each kind and size, the others each choice. The bound is
that of Clopper and Pearson, one-sided, for the probability that a fit shows any topic.
FILE keeps a line for each fit: what stands there is not measured again. The kinds and
sizes take turns, so that a run may be ended at any time.

``real``: shown topics, and how many of them are neither T1 nor T2. Both are measured on
held-out documents without noise. *T1*: what the topic says of the words is confirmed
across halves of the words, with t above 2.33. *T2*: the ten words shown occur together,
beyond what lengths of documents make, more than 98% of random words of like frequency.

``hard``: the same for corpora that mix or break what the test assumes. ``plan``: the
mean number of topics shown next to what `dplda.plan` expects, and its two constants.
``level``: fits without noise of the dealt entries of one drawn corpus, where the law of
the evidence is that of independent documents, and the level of 10% is attained.
``parties``: topics of an `IFTMParty` (100 tokens of a document, 30 sweeps) that are
shown, how many of them are neither T1 nor T2, and in how many fits any is shown if the
entries are dealt. T1 compares here what a topic says of two halves of a document's
words, without the inference of topics. ``price``: perplexity and time of the fits that
test their topics, over those of fits of the same seed whose rounds all learn. Both
publish the topics they have learned, also where a fit would publish clusters.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import scipy.sparse as sp
from corpora import LOADERS, Split, load, prepare
from scipy.optimize import least_squares
from scipy.special import ndtr
from scipy.stats import beta

from dplda import GibbsLDA, SubLDA
from dplda.datasets import load_word_vectors, make_topic_corpus
from dplda.displays import top_words
from dplda.document import _document_budget
from dplda.document._conclusion import claim_of, concluded
from dplda.document._document_budget import document_budget
from dplda.document._plan import topics_shown
from dplda.document._topic_test import Claim
from dplda.federated import IFTMParty
from dplda.metrics import held_out_perplexity

DELTA = 1e-5
TOPICS = (5, 20, 60, 100)
HELPS = ("none", "vectors", "prior")
T1, T2 = 2.33, 0.98


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*PARTS])
    names = ["kos", "glosses", "nips", "bbc"]
    parser.add_argument("--corpora", nargs="+", default=names, choices=list(LOADERS))
    parser.add_argument("--epsilons", nargs="+", type=float)
    parser.add_argument("--topics", nargs="+", type=int)
    parser.add_argument("--docs", nargs="+", default=["300", "1000", "all"])
    parser.add_argument("--kinds", nargs="+", default=list(NULLS), choices=list(NULLS))
    parser.add_argument("--helps", nargs="+", default=list(HELPS), choices=HELPS)
    parser.add_argument("--fits", type=int, default=60, help="of each kind and size")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--vectors", action="store_true", help="with embedded vectors")
    parser.add_argument("--lines", type=Path, help="file of the null fits so far")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    splits = [] if options.part == "level" else load(options.corpora)
    PARTS[options.part](splits, options)


def fitted(X, n_components: int, epsilon: float, seed: int, **given) -> SubLDA:
    model = SubLDA(n_components, epsilon=epsilon, delta=DELTA, random_state=seed)
    return model.set_params(n_jobs=1, **given).fit(X)


@cache
def help_of(split: Split, name: str, n_components: int) -> dict[str, np.ndarray]:
    if name == "vectors":
        return {"word_vectors": load_word_vectors(list(map(str, split.words)))}
    if name == "prior":
        public = GibbsLDA(n_components, max_iter=100, random_state=0).fit(split.test)
        return {"prior_components": public.components_}
    return {}


# ---- corpora without topics ----------------------------------------------------------


def nulls(splits, options) -> None:
    """Each kind and size has as many fits, which go through all choices in turn."""
    epsilons = options.epsilons or [1, 2, 4, 8, math.inf]
    topics = options.topics or TOPICS
    choices = list(itertools.product(splits, topics, epsilons, options.helps))
    order = np.random.default_rng(0).permutation(len(choices))
    cells = list(itertools.product(options.kinds, options.docs))
    lines = {}
    if options.lines and options.lines.exists():
        rows = map(json.loads, options.lines.read_text().splitlines())
        lines = {row["seed"]: row for row in rows}
    for seed in range(options.fits * len(cells)):
        if seed not in lines:
            kind, size = cells[seed % len(cells)]
            split, n_topics, epsilon, name = choices[order[seed % len(order)]]
            lines[seed] = null_fit(kind, size, split, n_topics, epsilon, name, seed)
            if options.lines:
                with options.lines.open("a") as file:
                    print(json.dumps(lines[seed]), file=file)
    report_nulls(list(lines.values()))


def null_fit(kind, size, split, n_components, epsilon, name, seed) -> dict:
    """What a fit of a corpus without topics has found. No two fits share a seed."""
    n_docs = None if size == "all" else int(size)
    X = NULLS[kind](split.train[:n_docs], seed)
    given = help_of(split, name, n_components)
    model = fitted(X, n_components, epsilon, seed, **given)
    echo, spread = of_documents(model) if epsilon < math.inf else (0.0, 0.0)
    return {
        "seed": seed,
        "corpus": f"{kind}, {size} documents",
        "from": split.name,
        "K": f"K = {n_components}",
        "epsilon": f"epsilon {epsilon:g}",
        "help": f"help: {name}",
        "shown": int(np.count_nonzero(~model.weak_topics_)),
        "echo": echo,
        "spread": spread,
    }


def report_nulls(lines: list[dict]) -> None:
    print("| corpora without topics | fits | any shown | at most | topics shown |")
    print("| --- " * 5 + "|")
    for choice in ("corpus", "from", "K", "epsilon", "help"):
        found = defaultdict(list)
        for line in lines:
            found[line[choice]].append(line["shown"])
        for title in sorted(found):
            print_bound(title, found[title])
    print_bound("all", [line["shown"] for line in lines])
    print(
        "\nWhat the documents have added themselves is confirmed at most "
        f"{max(line['echo'] for line in lines):.1f} times, in the mean over the topics "
        "of a fit where it is half of the noise or more. Their draw has at most "
        f"{max(line['spread'] for line in lines):.0%} of the variance of the noise."
    )


def of_documents(model: SubLDA) -> tuple[float, float]:
    """How often topics confirm what their documents have added; variance of the draw.

    Both are means over the topics. The first is 0 where noise hides it.
    """
    tested = model._released.tested
    length = np.sqrt(tested.square)
    own = float(np.mean(tested.added * length))
    confirmed = float(np.mean(tested.product / length))
    spread = float(np.mean(tested.spread * tested.square))
    return (confirmed / own if own >= 0.5 else 0.0), spread


def print_bound(title: str, found: list[int]) -> None:
    """A row: in how many fits is any topic shown, and how probable is it at most?"""
    n, n_fits = np.count_nonzero(found), len(found)
    bound = 1.0 if n == n_fits else beta.ppf(0.95, n + 1, n_fits - n)
    row = title, str(n_fits), str(n), f"{bound:.1%}", str(sum(found))
    print(f"| {' | '.join(row)} |", flush=True)


def dealt_tokens(X, seed: int) -> sp.csr_array:
    """The same lengths and word totals without topics."""
    X = sp.csr_array(X)
    n = X.data.astype(int)
    rows = np.repeat(rows_of(X), n)
    words = np.random.default_rng(seed).permutation(np.repeat(X.indices, n))
    return sp.csr_array((np.ones(len(words)), (rows, words)), shape=X.shape)


def dealt_entries(X, seed: int) -> sp.csr_array:
    """The same without topics, where a word is repeated as often as before."""
    X = sp.csr_array(X)
    order = np.random.default_rng(seed).permutation(X.nnz)
    cells = X.data[order], (rows_of(X), X.indices[order])
    return sp.csr_array(cells, shape=X.shape)


def own_dirichlets(X, seed: int, strength: float = 30.0) -> sp.csr_array:
    """Documents of the same lengths, each with word probabilities of its own."""
    generator = np.random.default_rng(seed)
    p = X.sum(axis=0) / X.sum()
    rows = []
    for length in X.sum(axis=1).astype(int):
        own = generator.gamma(strength * p)
        rows.append(sp.csr_array(generator.multinomial(length, own / own.sum())[None]))
    return sp.csr_array(sp.vstack(rows), dtype=float)


def rows_of(X) -> np.ndarray:
    """The document of each entry."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


NULLS = {"tokens": dealt_tokens, "entries": dealt_entries, "own": own_dirichlets}


def level(splits, options) -> None:
    """Fits without noise of a drawn corpus whose entries are dealt."""
    X = make_topic_corpus(1500, 200, 4, random_state=0).data
    z, found = [], []
    for seed in range(options.fits):
        given = {"max_iter": 40}
        model = fitted(dealt_entries(X, seed), 8, math.inf, seed, **given)
        z.append(model.topic_evidence_)
        found.append(int(np.count_nonzero(~model.weak_topics_)))
    print("| corpus without topics | fits | any shown | at most | topics shown |")
    print("| --- " * 5 + "|")
    print_bound("1,500 drawn documents, entries dealt, K = 8", found)
    print(
        f"\nThe evidence has the mean {np.mean(z):.2f}, and deviates {np.std(z):.2f}."
    )


# ---- corpora with topics -------------------------------------------------------------


def real(splits, options) -> None:
    rows = []
    for split in splits:
        for n_components in options.topics or [20]:
            title = f"{split.name}, {split.train.shape[0]:,}, K = {n_components}"
            rows.append((title, split, n_components))
    compare(rows, options, options.epsilons or [1, 2, 4])


def hard(splits, options) -> None:
    rows = []
    for split in splits:
        n_components = (options.topics or [20])[0]
        for name, change in CHANGES.items():
            rows.append((f"{split.name}, {name}", change(split), n_components))
    for split in larger(splits):
        rows.append((f"{split.name}, {split.train.shape[0]:,}", split, 60))
    compare(rows, options, options.epsilons or [1, 4])


def compare(rows, options, epsilons) -> None:
    """A row for each corpus: shown, of these neither T1 nor T2, and all that are so."""
    print(f"| corpus | {' | '.join(f'epsilon {e:g}' for e in epsilons)} |")
    print("| --- " * (1 + len(epsilons)) + "|")
    total = np.zeros(4)
    for row, (title, split, n_components) in enumerate(rows):
        name = "vectors" if options.vectors else "none"
        given = help_of(split, name, n_components)
        cells = []
        for epsilon in epsilons:
            found = []
            # equal seeds would give the corpora the same noise
            for seed in range(row * options.seeds, (row + 1) * options.seeds):
                model = fitted(split.train, n_components, epsilon, seed, **given)
                shown = ~model.weak_topics_
                first = confirmed(model, claim_of(model._released, 1), split.test)
                true = first | together(model, split.test)
                parts = shown, shown & ~true, shown & ~first, true
                found.append([np.count_nonzero(part) for part in parts])
            total += np.sum(found, axis=0)
            n_shown, n_false, _, n_true = np.mean(found, axis=0)
            cells.append(f"{n_shown:.1f} / {n_false:.1f} ({n_true:.0f})")
        print(f"| {title} | {' | '.join(cells)} |", flush=True)
    n_shown, n_false, not_first, _ = total
    print(
        f"\nOf {n_shown:.0f} topics shown, {n_false:.0f} are neither T1 nor T2 "
        f"({n_false / max(1, n_shown):.0%}), and {not_first:.0f} are not T1."
    )


def confirmed(model, claim: Claim, X, n_coins: int = 5) -> np.ndarray:
    """T1: whether other words of a document confirm the topics that some words say."""
    weighted = sp.csr_array(X.multiply(claim.weight[None]))
    weighted.data /= np.sqrt(weighted.power(2).sum(axis=1))[rows_of(weighted)]
    score = np.zeros((X.shape[0], len(model.components_)))
    for seed in range(n_coins):
        half = np.random.default_rng(seed).random(X.shape[1]) < 0.5
        contrasts = claim.across(half).contrasts
        for seen in (half, ~half):
            theta = model.transform(sp.csr_array(X.multiply(seen[None])))
            others = weighted @ (contrasts * ~seen[:, None])
            score += others * (theta - claim.shares)
    error = score.std(axis=0, ddof=1) / np.sqrt(len(score))
    return score.mean(axis=0) > T1 * error


def together(model, X, n_random: int = 500) -> np.ndarray:
    """T2: whether the ten words of each topic occur in the same documents."""
    present = (X > 0).toarray().astype(float)
    expected = occurrence(present)
    surprise = (present - expected) / np.sqrt(expected * (1 - expected) + 1e-9)
    both = surprise.T @ surprise
    np.fill_diagonal(both, 0)
    by_frequency = np.argsort(present.sum(axis=0), kind="stable")
    rank = np.argsort(by_frequency)
    generator = np.random.default_rng(0)
    passed = []
    for words in top_words(model, list(map(str, range(X.shape[1]))), 10):
        own = np.array(words, int)
        near = rank[own] + generator.integers(-20, 21, (n_random, len(own)))
        other = by_frequency[near.clip(0, X.shape[1] - 1)]
        chance = both[other[:, :, None], other[:, None]].sum(axis=(1, 2))
        passed.append(both[np.ix_(own, own)].sum() > np.quantile(chance, T2))
    return np.array(passed)


def occurrence(present) -> np.ndarray:
    """Probability that a document has a word, by its length and the word's frequency.

    Words and documents have one factor each, fitted to the sums.
    """
    rows, columns = present.sum(axis=1, keepdims=True), present.sum(axis=0)
    a, b = rows / present.sum(), columns
    for _ in range(30):
        a = a * rows / np.maximum(-np.expm1(-a * b), 1e-12).sum(axis=1, keepdims=True)
        b = b * columns / np.maximum(-np.expm1(-a * b), 1e-12).sum(axis=0)
    return -np.expm1(-a * b)


def parties(splits, options) -> None:
    """A row for each corpus and epsilon; shown / neither T1 nor T2 (all that are)."""
    print(
        "| corpus, epsilon of a token | as it is | entries dealt: fits that show any |"
    )
    print("| --- " * 3 + "|")
    total = np.zeros(2)
    for row, (split, epsilon) in enumerate(
        itertools.product(splits, options.epsilons or [4, 6, 8])
    ):
        found, dealt = [], []
        for seed in range(row * options.seeds, (row + 1) * options.seeds):
            party = IFTMParty(20, token_epsilon=epsilon, max_doc_tokens=100)
            party.set_params(max_iter=30, random_state=seed, n_jobs=1).fit(split.train)
            shown = ~party.weak_topics_
            true = agree(party, split.test) | together(party, split.test)
            parts = shown, shown & ~true, true
            found.append([np.count_nonzero(part) for part in parts])
            party.fit(dealt_entries(split.train, seed))
            dealt.append(not party.weak_topics_.all())
        total += np.sum(found, axis=0)[:2]
        n_shown, n_false, n_true = np.mean(found, axis=0)
        cells = f"{n_shown:.1f} / {n_false:.1f} ({n_true:.0f}) | {sum(dealt)}"
        print(f"| {split.name}, {epsilon:g} | {cells} of {len(dealt)} |", flush=True)
    n_shown, n_false = total
    print(f"\nOf {n_shown:.0f} topics shown, {n_false:.0f} are neither T1 nor T2.")


def agree(party: IFTMParty, X) -> np.ndarray:
    """T1 of a party: whether what a topic says of two halves of a document agrees.

    The documents are unseen and have no noise. No topic is inferred, because a table of
    much noise infers none.
    """
    table = party.components_
    frequency = table.sum(axis=0) / table.sum()
    flip = 1 / (1 + math.exp(party.token_epsilon / 2))
    variance = frequency + flip * (1 - flip) / (1 - 2 * flip) ** 2
    claims = (table / table.sum(axis=1, keepdims=True) - frequency) / variance
    common, totals = frequency / variance, X.sum(axis=0)
    first = np.random.default_rng(0).random(X.shape[1]) < 0.5
    said = []
    for half in (first, ~first):
        along = claims @ (totals * half) / (common @ (totals * half))
        said.append(X @ ((claims - np.outer(along, common)) * half).T)
    has_words = X.sum(axis=1) > 0
    met = (said[0] * said[1])[has_words] / X.sum(axis=1)[has_words, None]
    return met.mean(axis=0) > T1 * met.std(axis=0, ddof=1) / math.sqrt(len(met))


def price(splits, options) -> None:
    """A row for each corpus: what the test costs, in pairs of fits of one seed."""
    epsilons = options.epsilons or [1, 4]
    print("| corpus | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |")
    print("| --- " * (1 + len(epsilons)) + "|")
    pooled = defaultdict(list)
    for row, split in enumerate(splits):
        cells = []
        for epsilon in epsilons:
            seeds = range(row * options.seeds, (row + 1) * options.seeds)
            pairs = [price_of_pair(split, epsilon, seed) for seed in seeds]
            pooled[epsilon] += pairs
            cells.append(of_pairs(pairs))
        print(f"| {split.name} | {' | '.join(cells)} |", flush=True)
    print("| all | " + " | ".join(of_pairs(pooled[e]) for e in epsilons) + " |")


def price_of_pair(split: Split, epsilon: float, seed: int) -> tuple[float, float]:
    """Relative growth of perplexity, and of CPU time."""
    found = []
    # rounds that test from no number of rounds on
    for fewest in (_document_budget.FEWEST_WITH_TEST, math.inf):
        document_budget.cache_clear()
        with mock.patch.object(_document_budget, "FEWEST_WITH_TEST", fewest):
            start = time.process_time()
            model = fitted(split.train, 20, epsilon, seed)
            seconds = time.process_time() - start
        table, _ = concluded(model._released, 1)
        topics = table.T + model.topic_word_prior
        found.append((held_out_perplexity(topics, split.test), seconds))
    document_budget.cache_clear()
    (with_test, slow), (without, fast) = found
    return with_test / without - 1, slow / fast - 1


def of_pairs(pairs) -> str:
    more, longer = np.array(pairs).T
    error = more.std(ddof=1) / math.sqrt(len(more))
    return f"{more.mean():+.2%} ± {error:.2%}; time {np.median(longer):+.0%}"


# ---- corpora that mix or break what the test assumes ---------------------------------


def changed(split: Split, change) -> Split:
    """The same change of training and held-out documents, with other coins."""
    return Split(split.name, change(split.train, 0), change(split.test, 1))


def half_dealt(split: Split) -> Split:
    def change(X, seed):
        half = X.shape[0] // 2
        dealt = dealt_entries(X[half:], seed)
        return sp.csr_array(sp.vstack([X[:half], dealt]))

    return changed(split, change)


def templates(split: Split) -> Split:
    """Half are dealt, half are five templates of 40 words and 15 free words each."""
    n_words = split.train.shape[1]
    p = split.train.sum(axis=0) / split.train.sum()
    generator = np.random.default_rng(0)
    forms = [generator.choice(n_words, 40, replace=False, p=p) for _ in range(5)]

    def change(X, seed):
        generator = np.random.default_rng(seed)
        rows = generator.multinomial(15, p, size=X.shape[0] // 2).astype(float)
        for row in rows:
            row[forms[generator.integers(5)]] += 1
        dealt = dealt_entries(X[len(rows) :], seed)
        return sp.csr_array(sp.vstack([dealt, sp.csr_array(rows)]))

    return changed(split, change)


def twins(split: Split) -> Split:
    """No topics, but each of 1,000 words has a partner that always accompanies it."""

    def change(X, seed):
        dealt = dealt_entries(X[:, : X.shape[1] // 2], seed)
        return sp.csr_array(sp.hstack([dealt, dealt]))

    return changed(split, change)


def copies(split: Split, n_copies: int, renewed: float) -> Split:
    """No topics; each document several times, with a part of its entries dealt anew."""

    def change(X, seed):
        X = dealt_entries(X[: X.shape[0] // n_copies], seed)
        parts = []
        for copy in range(n_copies):
            is_new = np.random.default_rng((seed, copy)).random(X.nnz) < renewed
            parts.append(kept(X, ~is_new) + dealt_entries(kept(X, is_new), copy))
        return sp.csr_array(sp.vstack(parts))

    return changed(split, change)


def kept(X, mask) -> sp.csr_array:
    """The entries of the mask."""
    cells = X.data[mask], (rows_of(X)[mask], X.indices[mask])
    return sp.csr_array(cells, shape=X.shape)


CHANGES = {
    "half of the documents dealt": half_dealt,
    "half dealt, half templates": templates,
    "dealt, words with twins": twins,
    "dealt, 5 near copies (1 entry in 4 is new)": lambda s: copies(s, 5, 0.25),
    "dealt, 5 copies": lambda s: copies(s, 5, 0.0),
}


def larger(splits) -> list[Split]:
    """All corpora as one, and documents without topics, as many as wanted."""
    names = np.unique(np.concatenate([split.words.astype(str) for split in splits]))
    parts = []
    for split in splits:
        X = sp.csr_array(sp.vstack([split.train, split.test]))
        columns = np.searchsorted(names, split.words.astype(str))
        cells = X.data, (rows_of(X), columns[X.indices])
        parts.append(sp.csr_array(cells, shape=(X.shape[0], len(names))))
    everything = prepare("all corpora as one", sp.vstack(parts), words=names, n_skip=0)
    drawn = []
    for n_docs in (10_000, 30_000, 60_000):
        train = drawn_entries(everything.train, n_docs, 0)
        name = "dealt, of all corpora"
        drawn.append(Split(name, train, dealt_entries(everything.test, 0)))
    return [everything, *drawn]


def drawn_entries(X, n_docs: int, seed: int) -> sp.csr_array:
    """New documents: the number of their entries, and these, are drawn of all."""
    generator = np.random.default_rng(seed)
    sizes = generator.choice(np.diff(X.indptr), n_docs)
    rows = np.repeat(np.arange(n_docs), sizes)
    entries = generator.integers(X.nnz, size=len(rows))
    cells = X.data[entries], (rows, X.indices[entries])
    return sp.csr_array(cells, shape=(n_docs, X.shape[1]))


# ---- what the planner expects --------------------------------------------------------


def expectations(splits, options) -> None:
    """Shown → expected for each K, and the constants with the error of the others."""
    topics = options.topics or [5, 20, 60]
    print(
        "| corpus, documents | epsilon |", " | ".join(f"K = {k}" for k in topics), "|"
    )
    print("| --- " * (2 + len(topics)) + "|")
    points = []
    epsilons = options.epsilons or [1, 2, 4, 8]
    for split, size in itertools.product(splits, options.docs):
        X = split.train[: None if size == "all" else int(size)]
        for epsilon in epsilons:
            noise = noise_of(epsilon)
            cells = []
            for n_components in topics:
                given = help_of(split, "vectors" if options.vectors else "none", 0)
                found = []
                for seed in range(options.seeds):
                    model = fitted(X, n_components, epsilon, seed, **given)
                    found.append(np.count_nonzero(~model.weak_topics_))
                expected = topics_shown(noise, X.shape[0], n_components)
                cells.append(f"{np.mean(found):g} → {expected:.0f}")
                of_each = X.shape[0] / (n_components * noise)
                point = split.name, of_each, n_components, np.mean(found)
                points.append(point)
            row = f"{split.name}, {X.shape[0]:,}", f"{epsilon:g}", *cells
            print(f"| {' | '.join(row)} |", flush=True)
    report(points)


def noise_of(epsilon: float) -> float:
    budget = document_budget(epsilon, None, DELTA, max_iter=80, subsampling_ratio=1.0)
    return budget.noise


def report(points) -> None:
    names, of_each, n_components, found = map(np.array, zip(*points))

    def errors(half, chosen):
        """Of the expected shares of the topics."""
        share = ndtr(np.log(half * of_each[chosen]))
        return share - (found / n_components)[chosen]

    def fit(chosen):
        """Counts of more topics are more certain."""
        weight = np.sqrt(n_components[chosen])
        law = least_squares(lambda h: weight * errors(np.abs(h), chosen), 0.005)
        return float(abs(law.x[0]))

    apart = [errors(fit(names != name), names == name) for name in np.unique(names)]
    half = fit(names != "")
    error = np.sqrt(np.mean(np.concatenate(apart) ** 2))
    print(f"\nSHOWN = {half:.4f}; error {error:.2f}")


PARTS = {
    "nulls": nulls,
    "level": level,
    "real": real,
    "parties": parties,
    "price": price,
    "hard": hard,
    "plan": expectations,
}


if __name__ == "__main__":
    main()
