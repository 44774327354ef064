"""Private topic models next to other routes from private texts to themes, at equal epsilon.

``python benchmarks/routes.py [--corpora bbc docstrings] [--jsonl FILE ...]
[--epsilons .5 1 2 4 8] [--seeds 5] [--topics 0 20] [--encoded FOLDER] [--points FILE]
[--into PAGE MARK] [--plot FILE]``

A line of ``--jsonl`` is one {"text", "label"}. ``--topics 0`` stands for the number of classes.
``--points`` is that of `utility.py`: a run that was ended continues with its points. ``--into`` is
that of `public_prior.py`. FOLDER holds the vectors of a public encoder for all texts of a corpus,
in their order, and k-means is then measured on these, too. For BBC, with the package
sentence-transformers:
``numpy.save("bbc.npy", SentenceTransformer("all-MiniLM-L6-v2").encode(bbc_texts()[0]))``, with 128
as its ``max_seq_length``.

Each route spends the whole (epsilon, delta). Unit: one document, which is added or removed;
delta = 1e-5.

* SubLDA: the estimator with its defaults. A document belongs to its topic of the largest weight.
* k-means: tf-idf vectors of norm 1; private k-means; then words of the clusters, from noisy
  histograms, or of public texts in the direction of a center.
* synthetic: noisy frequencies of words and of pairs of successive words; texts that a Markov chain
  writes with them; GibbsLDA on these texts.
* GibbsLDA and exact k-means: without privacy.

A tenth of the documents is held out, and 300 others stand for public texts, which routes without
public texts do not see. Both are others at each seed. The words are a public list.

The settings of k-means are chosen for each corpus, number of topics and epsilon by the best NMI of
the held-out documents, free of charge. Nobody can do that in practice: it favors k-means.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from corpora import bbc_texts
from docstrings import load_docstrings, python_words
from paired_utility import printed_into
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.preprocessing import normalize
from utility import Points

from dplda import GibbsLDA, SubLDA, public_prior
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.metrics import coherence, held_out_perplexity, topic_diversity
from dplda.privacy import Event, Gaussian, calibrate

DELTA = 1e-5
N_WORDS, N_PUBLIC = 2000, 300
SHORTEST = 10  # words of a document
FULL = 2.0  # the epsilon of the tables with all measures
# k-means
KEYWORDS = 0.4  # share of the budget for the words of the clusters
KEPT = 0.6  # of the sums of earlier rounds: an average has less noise than the last round
# synthetic texts
FREQUENCIES = 0.2  # share of the budget for words; the rest is for pairs
CUT = 4.0  # standard deviations of the noise, below which a pair is left out
N_TOKENS, LENGTH = 100_000, 10  # short texts stay with one subject


# Documents


@dataclass(eq=False)  # a corpus is a key of caches
class LabelledCorpus:
    """Texts as counts and as sequences of words; other public texts in the same words."""

    name: str
    X: sp.csr_array
    sequences: list[np.ndarray]
    y: np.ndarray
    glosses: sp.csr_array
    encoded: np.ndarray | None = None

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.y))


@dataclass(eq=False)
class Cut:
    """Numbers of private documents, of held-out ones, and of those that stand for public texts."""

    private: np.ndarray
    held_out: np.ndarray
    public: np.ndarray


def load(names, files, folder: Path | None) -> list[LabelledCorpus]:
    english = load_public_vocabulary(N_WORDS)
    loaders: dict[str, tuple[Callable, list[str]]] = {
        "bbc": (bbc_texts, english),
        "docstrings": (load_docstrings, python_words(N_WORDS)),
        **{Path(file).stem: (lambda file=file: jsonl_texts(file), english) for file in files},
    }
    found = []
    for name in [*names, *(Path(file).stem for file in files)]:
        call, words = loaders[name]
        try:
            found.append(labelled(name, *call(), words, encoded_in(folder, name)))
        except OSError as error:
            print(f"left out: {name} ({error})")
    for corpus in found:
        if corpus.X.shape[0] < 2 * N_PUBLIC:
            raise SystemExit(
                f"{corpus.name}: {corpus.X.shape[0]} documents have {SHORTEST} words of the public "
                f"list; the comparison needs {2 * N_PUBLIC}"
            )
    return found


def jsonl_texts(file: str) -> tuple[list[str], list]:
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in rows], [row["label"] for row in rows]


def encoded_in(folder: Path | None, name: str) -> np.ndarray | None:
    file = folder / f"{name}.npy" if folder else None
    return np.load(file) if file and file.exists() else None


def labelled(name: str, texts, labels, words: list[str], encoded=None) -> LabelledCorpus:
    """The documents that hold enough of the words."""
    place = {word: number for number, word in enumerate(words)}
    split = CountVectorizer().build_analyzer()
    sequences = [np.array([place[w] for w in split(t) if w in place], np.int32) for t in texts]
    kept = [d for d, sequence in enumerate(sequences) if len(sequence) >= SHORTEST]
    sequences = [sequences[d] for d in kept]
    glosses = CountVectorizer(vocabulary=words, dtype=float).transform(load_wordnet_glosses().data)
    return LabelledCorpus(
        name, counts(sequences, len(words)), sequences, np.asarray(labels)[kept],
        sp.csr_array(glosses),
        None if encoded is None else normalize(encoded[kept]),
    )  # fmt: skip


def counts(sequences: list[np.ndarray], n_columns: int) -> sp.csr_array:
    """How often each number stands in each sequence."""
    ends = np.cumsum([0, *map(len, sequences)], dtype=np.int32)
    columns = np.concatenate([*sequences, np.empty(0, np.int32)])
    X = sp.csr_array((np.ones(len(columns)), columns, ends), shape=(len(sequences), n_columns))
    X.sum_duplicates()
    return X


@cache
def cut(corpus: LabelledCorpus, seed: int) -> Cut:
    n_docs = corpus.X.shape[0]
    order = np.random.default_rng(seed).permutation(n_docs)
    held_out, public, private = np.split(order, [n_docs // 10, n_docs // 10 + N_PUBLIC])
    return Cut(private, held_out, public)


# Noise


def events(noise: float, shares: tuple[float, ...]) -> list[Event]:
    """Releases that one document moves by at most 1 (L2); the shares of the budget sum to 1."""
    return [Gaussian(noise / math.sqrt(share)) for share in shares]


@cache
def noise_of(epsilon: float, shares: tuple[float, ...]) -> list[float]:
    """Standard deviations of the noise of these releases, which together cost `epsilon`."""
    if epsilon == math.inf:
        return [0.0] * len(shares)
    noise = calibrate(lambda m: events(m, shares), epsilon, DELTA)
    return [event.noise_multiplier for event in events(noise, shares)]


def noisy_sums(rows, labels, n_clusters: int, noise: float, rng) -> np.ndarray:
    """The sum of the rows of each cluster. A document adds its row, of norm 1, to one cluster."""
    n_docs = len(labels)
    members = (np.ones(n_docs), (labels, np.arange(n_docs)))
    sums = sp.csr_array(members, shape=(n_clusters, n_docs)) @ rows
    sums = sums.toarray() if sp.issparse(sums) else sums
    return sums + noise * rng.standard_normal(sums.shape)


# Private k-means


def k_means(Z, start, noises, rng) -> np.ndarray:
    """Directions of the clusters: one noisy release of their sums for each number in `noises`.

    Vectors of norm 1 have no need of sizes: the largest scalar product decides.
    """
    centers, kept = normalize(start), 0.0
    for noise in noises:
        kept = KEPT * kept + noisy_sums(Z, nearest(Z, centers), len(centers), noise, rng)
        centers = directions(kept)
    return centers


def directions(sums: np.ndarray) -> np.ndarray:
    """Unit vectors along the sums, without the direction that all clusters have in common."""
    mean = normalize(sums.sum(axis=0, keepdims=True))
    return normalize(sums - (sums @ mean.T) * mean)


def nearest(Z, centers: np.ndarray) -> np.ndarray:
    return np.asarray(Z @ centers.T).argmax(axis=1)


@cache
def vectors(corpus: LabelledCorpus, space: str, seed: int) -> np.ndarray:
    """Vectors of norm 1 of all documents; no private document decides about the space."""
    if space == "encoder":
        assert corpus.encoded is not None
        return corpus.encoded
    weights, base = public_space(corpus, space, seed)
    return normalize(tf_idf(corpus.X, weights) @ base)


@cache
def public_space(corpus: LabelledCorpus, space: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inverse document frequencies, and directions as columns.

    "random 100": 100 random directions; by Zipf's law, a word's place in the public list stands for
    its frequency. "glosses 100": frequencies and first 100 singular vectors of the definitions of
    WordNet. "public 100": those of the public texts.
    """
    kind, size = space.split()
    n_words = corpus.X.shape[1]
    if kind == "random":
        base = np.random.default_rng([seed, 3]).standard_normal((n_words, int(size)))
        return 1 + np.log1p(np.arange(n_words) / 20), base
    texts = corpus.glosses if kind == "glosses" else corpus.X[cut(corpus, seed).public]
    svd = TruncatedSVD(int(size), random_state=seed).fit(tf_idf(texts, idf(texts)))
    return idf(texts), svd.components_.T


def idf(X) -> np.ndarray:
    return 1 + np.log((1 + X.shape[0]) / (1 + (X > 0).sum(axis=0)))


def tf_idf(X, weights: np.ndarray):
    X = sp.csr_array(X, dtype=float, copy=True)
    X.data = np.log1p(X.data)
    return normalize(X * weights[None, :])


# Synthetic texts


def words_and_pairs(sequences, n_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of words, and of pairs of successive words. A document adds norm 1 to each at most."""
    pairs = [sequence[:-1] * n_words + sequence[1:] for sequence in sequences]
    sums = normalize(counts(pairs, n_words**2)).sum(axis=0)
    return normalize(counts(sequences, n_words)).sum(axis=0), sums.reshape(n_words, n_words)


def texts_of_chain(first: np.ndarray, chain: np.ndarray, n_docs: int, length: int, rng):
    """Texts whose first word has the law `first`, and each other one that of its row of `chain`."""
    n_words = len(first)
    reached = (chain.cumsum(axis=1) + np.arange(n_words)[:, None]).ravel()
    texts = np.empty((n_docs, length), np.int32)
    texts[:, 0] = rng.choice(n_words, n_docs, p=first)
    for place in range(1, length):
        before = texts[:, place - 1].astype(np.int64)
        found = np.searchsorted(reached, before + rng.random(n_docs)) - before * n_words
        texts[:, place] = np.clip(found, 0, n_words - 1)
    return texts


# Routes: clusters of the held-out documents, and a table of the words of each cluster


def sub_lda(corpus, n_topics: int, public: bool, epsilon: float, seed: int):
    part, prior = cut(corpus, seed), None
    if public:
        prior = public_prior(corpus.X[part.public], n_components=n_topics, random_state=seed)
    model = SubLDA(
        n_topics, epsilon=epsilon, delta=DELTA, prior_components=prior, random_state=seed
    )
    return topics_of(model.fit(corpus.X[part.private]), corpus.X[part.held_out])


def topics_of(model, X):
    return model.transform(X).argmax(axis=1), model.components_


def private_k_means(
    corpus, n_topics: int, public: bool, epsilon: float, seed: int, space: str, rounds: int
):
    """Public texts give the start, and directions in which a center stands for words.

    Without them, the start is random, and the words of the clusters are a release of their own.
    """
    part, rng = cut(corpus, seed), np.random.default_rng([seed, 1])
    Z = vectors(corpus, space, seed)
    start = rng.standard_normal((n_topics, Z.shape[1]))
    if public:
        start = KMeans(n_topics, n_init=10, random_state=seed).fit(Z[part.public]).cluster_centers_
    if space.startswith("public"):
        noises = noise_of(epsilon, (1 / rounds,) * rounds)
        centers = k_means(Z[part.private], start, noises, rng)
        table = centers @ public_space(corpus, space, seed)[1].T
    else:
        *noises, last = noise_of(epsilon, (*[(1 - KEYWORDS) / rounds] * rounds, KEYWORDS))
        centers = k_means(Z[part.private], start, noises, rng)
        own = nearest(Z[part.private], centers)
        table = noisy_sums(normalize(corpus.X[part.private]), own, n_topics, last, rng) - last
    return nearest(Z[part.held_out], centers), np.maximum(table, 0)


def synthetic(corpus, n_topics: int, public: bool, epsilon: float, seed: int):
    """A word whose pairs are few is followed by a word of the frequencies."""
    part, n_words = cut(corpus, seed), corpus.X.shape[1]
    rng = np.random.default_rng([seed, 2])
    one, two = noise_of(epsilon, (FREQUENCIES, 1 - FREQUENCIES))
    words, pairs = words_and_pairs([corpus.sequences[d] for d in part.private], n_words)
    words = np.maximum(words + one * rng.standard_normal(words.shape), 0)
    pairs = pairs + two * rng.standard_normal(pairs.shape)
    pairs[pairs < CUT * two] = 0
    first = words / words.sum()
    chain = pairs + max(CUT * two, 1e-9) * first
    chain /= chain.sum(axis=1, keepdims=True)
    texts = texts_of_chain(first, chain, N_TOKENS // LENGTH, LENGTH, rng)
    model = GibbsLDA(n_topics, max_iter=150, random_state=seed).fit(counts(list(texts), n_words))
    return topics_of(model, corpus.X[part.held_out])


def gibbs_lda(corpus, n_topics: int, public: bool, epsilon: float, seed: int):
    """Without privacy, or of the public texts alone."""
    part = cut(corpus, seed)
    train = part.public if public else part.private
    model = GibbsLDA(n_topics, topic_word_prior=0.1, max_iter=300, random_state=seed)
    return topics_of(model.fit(corpus.X[train]), corpus.X[part.held_out])


def exact_k_means(
    corpus, n_topics: int, public: bool, epsilon: float, seed: int, space: str = "words"
):
    """The best of ten starts, of the private documents or of the public texts alone."""
    part, rng = cut(corpus, seed), np.random.default_rng()
    train = part.public if public else part.private
    Z = tf_idf(corpus.X, idf(corpus.X[train])) if space == "words" else vectors(corpus, space, seed)
    model = KMeans(n_topics, n_init=10, random_state=seed).fit(Z[train])
    table = noisy_sums(normalize(corpus.X[train]), model.labels_, n_topics, 0.0, rng)
    return model.predict(Z[part.held_out]), table


ROUTES = {
    "SubLDA": sub_lda,
    "k-means": private_k_means,
    "synthetic": synthetic,
    "GibbsLDA": gibbs_lda,
    "exact k-means": exact_k_means,
}


def settings(route: str, public: bool) -> list[dict]:
    """Those of which the best one is taken."""
    if route == "exact k-means encoder":
        return [{"space": "encoder"}]
    if "k-means" not in route or route == "exact k-means":
        return [{}]
    spaces = ("public 20", "public 100") if public else ("glosses 200", "random 100")
    spaces = ("encoder",) if route == "k-means encoder" else spaces
    return [{"space": s, "rounds": r} for s in spaces for r in ((1, 8) if public else (4, 8, 16))]


# Measures


def scores(
    corpus, route: str, n_topics: int, public: bool, epsilon: float, seed: int, **setting
) -> dict[str, float]:
    """Labels against clusters of held-out documents, and the quality of the words."""
    call = ROUTES[route.removesuffix(" encoder")]
    clusters, table = call(corpus, n_topics, public, epsilon, seed, **setting)
    held_out = cut(corpus, seed).held_out
    table = table + 1e-9
    typical = table**2 / table.sum(axis=0)  # large in the cluster, and larger than in others
    found = {
        "NMI": normalized_mutual_info_score(corpus.y[held_out], clusters),
        "clusters": n_used(clusters),
        "purity": purity(corpus.y[held_out], clusters),
        "frequent words": np.nanmean(coherence(table, corpus.X)),
        "typical words": np.nanmean(coherence(typical, corpus.X)),
        "diversity": topic_diversity(typical, n_top_words=10),
        "perplexity": math.nan,
    }
    if "k-means" not in route:
        found["perplexity"] = held_out_perplexity(table, corpus.X[held_out])
    return {name: float(value) for name, value in found.items()}


def n_used(clusters: np.ndarray) -> float:
    """The number of clusters of equal size that have the same entropy."""
    shares = np.unique(clusters, return_counts=True)[1] / len(clusters)
    return math.exp(-shares @ np.log(shares))


def purity(labels, clusters) -> float:
    """Share of the documents whose label is the most frequent one of their cluster."""
    return float(contingency_matrix(labels, clusters).max(axis=0).sum() / len(labels))


# Tables and picture

LABELS = {
    "SubLDA": "SubLDA", "k-means": "k-means", "synthetic": "synthetic texts",
    "k-means encoder": "k-means, encoder", "GibbsLDA": "GibbsLDA, no privacy",
    "exact k-means": "k-means, no privacy", "exact k-means encoder": "k-means, encoder, no privacy",
}  # fmt: skip
COLORS = {"SubLDA": "#d55e00", "k-means": "#0072b2", "synthetic": "#009e73",
          "k-means encoder": "#56b4e9"}  # fmt: skip
MEASURES = {"NMI": 2, "clusters": 1, "purity": 2, "frequent words": 2, "typical words": 2,
            "diversity": 2, "perplexity": 0}  # fmt: skip


@dataclass
class Comparison:
    """What was measured of one corpus with one number of topics."""

    corpus: LabelledCorpus
    n_topics: int
    points: Points
    seeds: int

    def of(self, route: str, public: bool, epsilon: float) -> list[dict[str, float]]:
        """Scores, one a seed, with the setting of the best mean NMI."""
        runs = [
            [
                self.points.get(
                    scores, self.corpus, route=route, n_topics=self.n_topics, public=public,
                    epsilon=epsilon, seed=seed, **setting,
                )
                for seed in range(self.seeds)
            ]
            for setting in settings(route, public)
        ]  # fmt: skip
        return max(runs, key=mean_nmi)

    def private_routes(self) -> list[tuple[str, bool]]:
        """Name of each route, and whether it has public texts."""
        clusters = ["k-means"] + ["k-means encoder"] * (self.corpus.encoded is not None)
        own = ["SubLDA", *clusters, "synthetic"]
        return [(name, False) for name in own] + [(name, True) for name in ["SubLDA", *clusters]]

    def references(self) -> list[tuple[str, bool]]:
        names = ["GibbsLDA", "exact k-means"]
        names += ["exact k-means encoder"] * (self.corpus.encoded is not None)
        return [(name, public) for public in (False, True) for name in names]

    def print_tables(self, epsilons: list[float]) -> None:
        part, routes = cut(self.corpus, 0), self.private_routes()
        print(f"\n### {self.corpus.name}, {self.n_topics} topics\n")
        print(
            f"{len(part.private)} private documents, {len(part.held_out)} held out, "
            f"{self.corpus.n_classes} classes, seeds: {self.seeds}. NMI against epsilon:\n"
        )
        heads = [LABELS[name] + ", public texts" * public for name, public in routes]
        print("| epsilon | " + " | ".join(heads) + " |\n" + "| --- " * (1 + len(heads)) + "|")
        for epsilon in epsilons:
            cells = [cell(self.of(*route, epsilon), "NMI") for route in routes]
            print(f"| {epsilon:g} | " + " | ".join(cells) + " |", flush=True)
        print(f"\nEpsilon {FULL:g}, and without privacy:\n\n| route | "
              + " | ".join(MEASURES) + " |\n" + "| --- " * (1 + len(MEASURES)) + "|")  # fmt: skip
        for name, public in routes + self.references():
            runs = self.of(name, public, FULL if (name, public) in routes else math.inf)
            title = LABELS[name] + ", public texts" * public
            if name not in COLORS and public:
                title = LABELS[name].removesuffix(", no privacy") + ", public texts alone"
            cells = [cell(runs, measure, digits) for measure, digits in MEASURES.items()]
            print(f"| {title} | " + " | ".join(cells) + " |", flush=True)
        print(f"\nNMI of SubLDA less that of k-means of tf-idf, epsilon {FULL:g}: "
              f"{self.lead(False)};\nboth with public texts: {self.lead(True)}.")  # fmt: skip

    def lead(self, public: bool) -> str:
        """Mean difference of the pairs of one seed and its standard error, in points of 100."""
        ours, theirs = (
            np.array([run["NMI"] for run in self.of(name, public, FULL)])
            for name in ("SubLDA", "k-means")
        )
        points = 100 * (ours - theirs)
        if len(points) == 1:
            return f"{points[0]:+.0f} points"
        return f"{points.mean():+.0f} ± {points.std(ddof=1) / math.sqrt(len(points)):.0f} points"


def cell(runs: list[dict[str, float]], measure: str, digits: int = 2) -> str:
    values = [run[measure] for run in runs]
    if not np.isfinite(values).all():
        return ""
    spread = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def picture(comparisons: list[Comparison], epsilons: list[float], path: Path) -> None:
    """NMI against epsilon: a panel for each comparison; dashed: with public texts."""
    from matplotlib.figure import Figure

    epsilons = [e for e in epsilons if e < math.inf]
    n_rows = -(-len(comparisons) // 2)
    figure = Figure(figsize=(9.6, 3.4 * n_rows + 0.9), layout="constrained", facecolor="white")
    panels = figure.subplots(n_rows, 2, sharex=True, sharey=True, squeeze=False)
    lines = {}
    for axes, comparison in zip(panels.ravel(), comparisons):
        for name, public in comparison.private_routes():
            means = [mean_nmi(comparison.of(name, public, e)) for e in epsilons]
            style = {"ls": "--" if public else "-", "marker": "o", "color": COLORS[name]}
            (line,) = axes.plot(epsilons, means, lw=2.2, **style)
            lines[LABELS[name] + ", public texts" * public] = line
        for name, style in (("GibbsLDA", "--"), ("exact k-means", ":")):
            level = mean_nmi(comparison.of(name, False, math.inf))
            lines[LABELS[name]] = axes.axhline(level, color="gray", ls=style, lw=1.4)
        axes.set_xscale("log")
        axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
        axes.minorticks_off()
        axes.set_ylim(0, 1)
        axes.set_title(f"{comparison.corpus.name}, {comparison.n_topics} topics", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels.ravel()[len(comparisons) :]:
        axes.set_axis_off()
    for axes in panels[-1]:
        axes.set_xlabel("epsilon of a document")
    for axes in panels[:, 0]:
        axes.set_ylabel("NMI of clusters and labels")
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=3, frameon=False,
                  handlelength=3.5)  # fmt: skip
    figure.savefig(path, dpi=110)


def mean_nmi(runs: list[dict[str, float]]) -> float:
    return float(np.mean([run["NMI"] for run in runs]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="*", default=["bbc", "docstrings"])
    parser.add_argument("--jsonl", nargs="*", default=[], help="files of texts and labels")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--topics", nargs="+", type=int, default=[0, 20])
    parser.add_argument("--encoded", type=Path, help="folder of vectors of the texts")
    parser.add_argument("--points", type=Path, help="file of measured points")
    parser.add_argument("--into", nargs=2, metavar=("PAGE", "MARK"), help="page to write to")
    parser.add_argument("--plot", type=Path, help="file for the picture")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    points = Points(options.points)
    comparisons = [
        Comparison(corpus, n_topics or corpus.n_classes, points, options.seeds)
        for corpus in load(options.corpora, options.jsonl, options.encoded)
        for n_topics in options.topics
    ]
    with printed_into(options.into):
        for comparison in comparisons:
            comparison.print_tables(options.epsilons)
    if options.plot:
        picture(comparisons, options.epsilons, options.plot)


if __name__ == "__main__":
    main()
