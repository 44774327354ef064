"""Parties with documents of their own: what secure sums and merged topics reach.

``python benchmarks/federated.py [--parts secure words price rounds memory alone
literal] [--corpora kos bbc glosses] [--epsilons 2 4] [--n-parties 3 10 30] [--sorted]
[--seeds 3] [--rounds 5]``

`secure`: all documents of a corpus (V = 2000, K = 20, one tenth held out) are dealt to
parties evenly, or sorted by label (KOS: by topic). Held-out perplexity by document
completion at epsilon of a document, delta 1e-5: each party alone (mean), its topics
merged by `IFTMMaster`, a sum in which each party carries all of the noise (no
cryptography is needed), secure sums with m / 2 and with 1 colluding parties, and one
trusted curator of all documents.

`words`: texts (BBC, glosses; one tenth held out) are dealt at random to three parties,
which choose words and topics together from one epsilon, beside one trusted curator's
`PrivateTopicModel`, and one of the epsilon at which a curator has their noise; V =
2000, K = 20, delta 1e-5, c = 1. Perplexity is that of the held-out tokens whose words
all models have. Shown topics are those that are not weak. Found again are those with a
cosine of at least 0.8 to a shown topic of the curator: of the parties, and of a second
fit of the curator.

`price`: noise of a plan over that of one curator, for parties that may drop out.

`rounds`: seconds and bytes of a round for a party, at 40,000 and 2,000,000 cells.

`memory`: what a round takes of a party, and of a coordinator of three parties, above a
process with all modules loaded (Linux): also if one of them opens 100 calls and holds
the bodies of its messages back.

`alone`: `IFTMParty`, with an epsilon of one token, for three parties of unequal size
and content, after figure 5 of the iFTM paper; log-likelihood per token, mean and
standard deviation over seeds. `literal`: the party as published and the sound one: what
is learned, and for how many words the master recovers the exact frequency in a party's
documents.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import socket
import ssl
import subprocess
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import corpora
import numpy as np
from corpora import Split
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer

from dplda import GibbsLDA, PrivateCountVectorizer, PrivateTopicModel, SubLDA
from dplda.core._base import last_quarter
from dplda.core._signal import is_kept_out
from dplda.core._words import letters
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.federated import (
    IFTMMaster,
    IFTMParty,
    LocalModel,
    fit_together,
    run_rounds,
    vocabulary_hash,
)
from dplda.federated._certificates import certificate_of, tls_context
from dplda.federated._coordinator import Coordinator, Progress
from dplda.federated._joint_words import fit_words_and_topics
from dplda.federated._line import PROCESS, Line
from dplda.federated._secure_sum import (
    DIGEST,
    SETUP,
    Adder,
    Room,
    SecureSum,
    Terms,
)
from dplda.metrics import held_out_perplexity, unigram_perplexity
from dplda.privacy import LowSignalWarning, PrivacyLeakWarning, SeededNoiseWarning
from dplda.published import PublishedIFTMParty as LiteralParty
from dplda.published import recover_counts
from dplda.text._parts import split_budget

K, SWEEPS = 20, 50
SHARES = np.array([1, 2, 3]) / 6
STRAYS = 0.1  # documents that go to any party
SAME = 0.8  # cosine of two topics that are the same
PARTS = ["secure", "words", "price", "rounds", "memory", "alone", "literal"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=["secure"], choices=PARTS)
    parser.add_argument(
        "--corpora", nargs="+", default=["kos"], choices=["kos", "bbc", "glosses"]
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=[2.0, 4.0])
    parser.add_argument("--n-parties", nargs="+", type=int, default=[3, 10, 30])
    parser.add_argument("--sorted", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for category in (SeededNoiseWarning, PrivacyLeakWarning, LowSignalWarning):
        warnings.simplefilter("ignore", category)
    has_corpus = not {*options.parts} <= {"rounds", "price", "memory"}
    for name in options.corpora if has_corpus else [None]:
        split = getattr(corpora, name)() if name else None
        print(f"\n## {split or ' '.join(options.parts)}\n")
        options.corpus = name
        for part in options.parts:
            globals()[part](split, options)


def secure(split: Split, options) -> None:
    """Parties that fit one `SubLDA`: alone, topics merged, sums, one curator."""
    names = [
        "alone",
        "topics merged",
        "sum, each with all noise",
        "secure sum, c = m / 2",
        "secure sum, c = 1",
        "one curator",
    ]
    print(f"| parties of documents, epsilon | {' | '.join(names)} |")
    print("| --- |" + " --- |" * len(names))
    for epsilon, m in itertools.product(options.epsilons, options.n_parties):
        rows = np.random.default_rng(0).permutation(split.train.shape[0])
        if options.sorted:
            rows = rows[np.argsort(kinds_of(split)[rows], kind="stable")]
        parts = {
            f"P{i}": split.train[part] for i, part in enumerate(np.array_split(rows, m))
        }
        model = SubLDA(K, epsilon=epsilon, delta=1e-5, n_jobs=1)
        lone = {name: clone(model).fit(X) for name, X in parts.items()}
        master = IFTMMaster(words_of(split.train))
        master.update(
            {
                name: LocalModel.from_estimator(one, name, 0, master.vocabulary_hash)
                for name, one in lone.items()
            }
        )
        tables = [
            master.released_model(),
            fit_together(model, parts, colluding=m - 1),
            fit_together(model, parts, colluding=m // 2),
            fit_together(model, parts),
            clone(model).fit(split.train),
        ]
        scores = [
            np.mean(
                [held_out_perplexity(x.components_, split.test) for x in lone.values()]
            )
        ]
        scores += [
            held_out_perplexity(table.components_, split.test) for table in tables
        ]
        cells = " | ".join(f"{score:.0f}" for score in scores)
        print(f"| {m} of {len(rows) // m}, {epsilon:g} | {cells} |", flush=True)
    print(f"\nword frequencies: {unigram_perplexity(split.train, split.test):.0f}")


def words(split: Split, options) -> None:
    """Parties that choose the words, too: perplexity and topics beside one curator."""
    load = {
        "bbc": lambda: corpora.bbc_texts()[0],
        "glosses": lambda: load_wordnet_glosses().data,
    }[options.corpus]
    texts = np.array(load(), dtype=object)
    print(
        "| epsilon | seed | three parties | one curator | more | a curator with their "
        "noise | shown by these three | the parties' found again | a second curator's |"
    )
    print("| --- " * 9 + "|")
    for epsilon, seed in itertools.product(options.epsilons, range(options.seeds)):
        rows = np.random.default_rng(seed).permutation(len(texts))
        test, train = np.split(rows, [len(rows) // 10])
        parts = [texts[part].tolist() for part in np.array_split(train, 3)]
        vectorizer, topics = fit_texts_together(parts, epsilon)
        one, second, noisy = (
            PrivateTopicModel(K, epsilon=each, delta=1e-5).fit(texts[train].tolist())
            for each in (epsilon, epsilon, with_noise_of(Terms(3), epsilon))
        )
        models = [
            Known([*known], model)
            for known, model in (
                (vectorizer.vocabulary_, topics),
                (one.vocabulary_, one),
                (noisy.vocabulary_, noisy),
                (second.vocabulary_, second),
            )
        ]
        common = sorted(set.intersection(*(set(known) for known, _ in models)))
        counts = CountVectorizer(vocabulary=common).transform(texts[test])
        scores = [
            held_out_perplexity(model.table(common), counts) for model in models[:3]
        ]
        n_shown = [len(model.shown(common)) for model in models[:3]]
        together, curator, _, again = (model.shown(common) for model in models)
        print(
            f"| {epsilon:g} | {seed} | {scores[0]:.1f} | {scores[1]:.1f} | "
            f"{scores[0] / scores[1] - 1:+.1%} | {scores[2]:.1f} | "
            f"{', '.join(map(str, n_shown))} | {found_again(together, curator):.0%} | "
            f"{found_again(again, curator):.0%} |",
            flush=True,
        )


def with_noise_of(terms: Terms, epsilon: float) -> float:
    """The epsilon at which one curator has the noise of these parties."""
    noise = SubLDA(K, epsilon=epsilon, delta=1e-5)._budget(terms.shares).noise

    def excess(other: float) -> float:
        return SubLDA(K, epsilon=other, delta=1e-5)._budget().noise - noise

    return brentq(excess, epsilon / 10, epsilon, xtol=1e-3)


class Known(NamedTuple):
    """A model and the words of its columns."""

    words: list[str]
    model: SubLDA

    def table(self, words: list[str]) -> np.ndarray:
        """Topics in some of its words."""
        return self.model.components_[:, [self.words.index(word) for word in words]]

    def shown(self, words: list[str]) -> np.ndarray:
        """Topics that are not weak."""
        return self.table(words)[~self.model.weak_topics_]


def found_again(topics: np.ndarray, others: np.ndarray) -> float:
    """Share of topics that are among others."""
    if not len(topics) or not len(others):
        return np.nan
    return np.mean(cdist(topics, others, "cosine").min(axis=1) <= 1 - SAME)


def fit_texts_together(parts: list[list[str]], epsilon: float):
    """The vectorizer and the model that parties with these texts have."""
    terms = Terms(len(parts))
    room = Room(Adder(terms, [str(i) for i in range(len(parts))]))
    for_words, for_topics = split_budget(epsilon, 1e-5)

    def run(me: int):
        vectorizer = PrivateCountVectorizer(
            epsilon=for_words,
            delta=1e-5,
            candidates=load_public_vocabulary(None),
            discover=False,
            token_pattern=letters("en"),
        )
        topics = SubLDA(K, epsilon=for_topics, delta=1e-5, n_jobs=1)
        sums = SecureSum(terms, me, lambda message: room.exchange(me, message))
        fit_words_and_topics(
            vectorizer, topics, parts[me], None, sums, english_vectors=True
        )
        return vectorizer, topics

    with ThreadPoolExecutor(len(parts)) as pool:
        return next(pool.map(run, range(len(parts))))


def price(split: None, options) -> None:
    """What parties that may collude or drop out cost, in noise."""
    model = SubLDA(K, epsilon=4.0)
    alone = model._budget().noise
    print("| parties | c | l | noise over one curator's | over l = 0 |")
    print("| --- | --- | --- | --- | --- |")
    for m in options.n_parties:
        none_lost = model._budget(Terms(m).shares).noise
        for lost in (0, 1):
            noise = model._budget(Terms(m, 1, lost).shares).noise
            print(
                f"| {m} | 1 | {lost} | {noise / alone:.3f} | "
                f"{noise / none_lost - 1:+.1%} |"
            )


def rounds(split: None, options) -> None:
    """Seconds of CPU and bytes of a party's message in a round, masks and sum."""
    print(
        "| parties | cells | seconds | megabytes each way |\n| --- | --- | --- | --- |"
    )
    for m, n_cells in itertools.product(options.n_parties, (40_000, 2_000_000)):
        terms, sizes, seconds = Terms(m), [], []
        room = Room(Adder(terms, [str(i) for i in range(m)]))

        def take_part(me: int, room=room, terms=terms, n_cells=n_cells):
            party = SecureSum(terms, me, lambda message: room.exchange(me, message))
            party.begin()
            return party

        with ThreadPoolExecutor(m) as pool:
            party = next(pool.map(take_part, range(m)))
        party._exchange = partial(reply_to, sizes=sizes, n_cells=n_cells)
        for _ in range(5):
            start = time.process_time()
            party.add_up(np.zeros(n_cells, np.int64), "round")
            seconds.append(time.process_time() - start)
        print(
            f"| {m} | {n_cells:,} | {np.median(seconds):.4f} | {sizes[0] / 1e6:.2f} |",
            flush=True,
        )


def reply_to(message: bytes, *, sizes: list[int], n_cells: int) -> bytes:
    """A sum of zeros, in the place of the coordinator's."""
    sizes.append(len(message))
    return b"S" + bytes(8 * n_cells)


def memory(split: None, options) -> None:
    """Megabytes of a round: of a party, and of a coordinator of three."""
    print("| cells | party | coordinator | one party with 100 calls |")
    print("| --- | --- | --- | --- |")
    context = multiprocessing.get_context("spawn")
    for n_cells in (40_000, 2_000_000):
        figures = []
        for measure in (
            megabytes_of_a_party,
            megabytes_of_a_coordinator,
            partial(megabytes_of_a_coordinator, n_held=100),
        ):
            with ProcessPoolExecutor(1, mp_context=context) as process:
                figures.append(process.submit(measure, n_cells).result())
        print(
            f"| {n_cells:,} | {' | '.join(f'{x:.0f}' for x in figures)} |", flush=True
        )


@contextmanager
def peak() -> Iterator[list[float]]:
    """Megabytes at the peak of a block above those at its begin, as its one item."""
    status = Path("/proc/self/status")
    found = []
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = kilobytes(status, "VmRSS")
    yield found
    found.append((kilobytes(status, "VmHWM") - before) / 1e3)


def kilobytes(status: Path, name: str) -> int:
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines[name].split()[0])


def megabytes_of_a_party(n_cells: int) -> float:
    """Of one that adds up a round with two others, whose keys alone are real."""
    terms = Terms(3)
    room = Room(Adder(terms, [*"abc"]))
    parties = [SecureSum(terms, i, partial(room.exchange, i)) for i in range(3)]
    with ThreadPoolExecutor(3) as pool:
        [*pool.map(SecureSum.begin, parties)]
    parties[0]._exchange = partial(reply_to, sizes=[], n_cells=n_cells)
    cells = np.zeros(n_cells, np.int64)
    with peak() as found:
        parties[0].add_up(cells, "round")
    return found[0]


def megabytes_of_a_coordinator(n_cells: int, n_held: int = 0) -> float:
    """Of one that takes a message of three parties; the first also holds calls open."""
    size = 8 * n_cells + DIGEST
    with TemporaryDirectory() as folder:
        sides = {name: pair_of_files(Path(folder), name) for name in ("server", *"abc")}
        known = [certificate_of(sides[name][0]) for name in "abc"]
        tls = tls_context(ssl.PROTOCOL_TLS_SERVER, *sides["server"], known)
        begun = Progress("", SETUP, (0, 1, 2), ("", "", ""), b"keys")
        network = Coordinator(
            Adder(Terms(3), [*"abc"]), known, size, 900.0, progress=begun
        )
        lines = multiprocessing.get_context("spawn").Process
        with peak() as found:
            asyncio.run(one_round(network, tls, lines, sides, size, n_held))
    return found[0]


async def one_round(network, tls, process, sides, size: int, n_held: int) -> None:
    """Take a message of each party, which are other processes."""
    async with network.listening("localhost", 0, tls) as port:
        calls = []
        for name, files in sides.items():
            if name != "server":
                held = n_held if name == "a" else 0
                known = certificate_of(sides["server"][0])
                calls.append(
                    process(target=call, args=(port, files, known, size, held))
                )
                calls[-1].start()
        await network._round()
        await asyncio.to_thread(lambda: [each.join() for each in calls])


def call(port: int, files, known: bytes, size: int, n_held: int) -> None:
    """Give one message, after calls whose bodies do not end."""
    certificate, key = files
    tls = tls_context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, [known])
    line = Line(f"localhost:{port}", size + 1, tls, timeout=600.0)
    head = f"PUT /{SETUP} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n"
    head += f"{PROCESS}: {line._process}\r\n\r\n"
    held = []
    for _ in range(n_held):
        plain = socket.create_connection(("localhost", port))
        held.append(tls.wrap_socket(plain, server_hostname="localhost"))
        held[-1].sendall(head.encode())
        held[-1].settimeout(0.02)
        with suppress(OSError):
            for _ in range(size // 2**14):
                held[-1].sendall(bytes(2**14))
    line._number = SETUP
    line.exchange(bytes(size))


def pair_of_files(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate and its key, as docs/federated.md makes them."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes"
    subject = f"-subj /CN={name} -addext subjectAltName=DNS:localhost"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        [*command.split(), *subject.split(), *files], check=True, capture_output=True
    )
    return certificate, key


def words_of(X) -> list[str]:
    """Names of the columns."""
    return [*map(str, range(X.shape[1]))]


def kinds_of(split: Split) -> np.ndarray:
    """The label of each document, or its main topic."""
    if split.y_train is not None:
        return np.unique(split.y_train, return_inverse=True)[1]
    model = GibbsLDA(12, max_iter=60, random_state=0).fit(split.train)
    return model.transform(split.train).argmax(axis=1)


def deal(split: Split, shares: np.ndarray = SHARES) -> np.ndarray:
    """Each document's party (n_docs,): kinds go whole to parties, but for strays."""
    rng, kind = np.random.default_rng(0), kinds_of(split)
    sizes, home, load = np.bincount(kind), {}, np.zeros(len(shares))
    # the largest kinds first, to the party that lacks most
    for k in np.argsort(-sizes):
        home[k] = int(np.argmin((load + sizes[k]) / shares))
        load[home[k]] += sizes[k]
    owner = np.array([home[k] for k in kind])
    stray = rng.random(len(owner)) < STRAYS
    return np.where(stray, rng.choice(len(shares), len(owner), p=shares), owner)


def federation(split, owner, seed, kind=IFTMParty, *, epsilon, **parameters) -> dict:
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


def alone(split: Split, options) -> None:
    """Figure 5: what a party gains from the federation."""
    owner, sweeps = deal(split), SWEEPS * options.rounds
    data = {
        f"P{p + 1} alone": split.train[np.flatnonzero(owner == p)] for p in range(3)
    }
    data["all data"] = split.train
    print("| model | log-likelihood per token |\n| --- | --- |")
    for name, X in data.items():
        models = [
            GibbsLDA(K, max_iter=sweeps, random_state=s).fit(X)
            for s in range(options.seeds)
        ]
        print(
            f"| {name} | {spread([score(m.components_, split) for m in models])} |",
            flush=True,
        )
    for epsilon in [*options.epsilons, np.inf]:
        scores = []
        for seed in range(options.seeds):
            parties = federation(split, owner, seed, epsilon=epsilon)
            master = run_rounds(
                IFTMMaster(words_of(split.train)), parties, options.rounds
            )
            scores.append(score(master.components_, split))
        print(
            f"| iFTM, epsilon {epsilon:g} of a token | {spread(scores)} |", flush=True
        )


def literal(split: Split, options) -> None:
    """The published and the sound party, at the paper's threshold and a better one."""
    owner = deal(split)
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
                parties = federation(
                    split, owner, seed, kind, epsilon=epsilon, **parameters
                )
                master = IFTMMaster(words_of(split.train))
                meet(master, parties, options.rounds)
                found = [recovered(estimator, X) for estimator, X in parties.values()]
                values.append((score(master.components_, split), np.mean(found)))
            value, share = zip(*values)
            print(
                f"| {epsilon:g} | {name} | {spread(value)} | {np.mean(share):.1%} |",
                flush=True,
            )


def meet(master: IFTMMaster, parties: dict, n_rounds: int) -> None:
    """`run_rounds`, also of parties as published, which answer no requests."""
    for number in range(n_rounds):
        answers = {}
        for name, (party, X) in parties.items():
            if number:
                party.refine(master.next_models_[name].table)
            else:
                party.fit(X)
            answers[name] = LocalModel.from_estimator(
                party, name, number, master.vocabulary_hash
            )
        master.update(answers)


def recovered(estimator, X) -> float:
    """Share of a party's words whose exact frequency follows from its message.

    A sound party sends the mean of the counts of its last sweeps, whose sum is integer.
    It counts imputed words, whose frequency is an estimate of the true one, of all
    documents but those that test its topics: the attack takes the frequency in these.
    """
    is_literal = isinstance(estimator, LiteralParty)
    n_averaged = 1 if is_literal else last_quarter(estimator.max_iter)
    if not is_literal:
        X = X[~is_kept_out(X.shape[0])]
    message = LocalModel.from_estimator(
        estimator, "party", 0, vocabulary_hash(words_of(X))
    )
    beta = n_averaged * estimator.topic_word_prior
    counts = recover_counts(message.table, topic_word_prior=beta) / n_averaged
    frequency = X.sum(axis=0)
    return float(np.mean((np.rint(counts.sum(axis=0)) == frequency)[frequency > 0]))


def spread(values) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


if __name__ == "__main__":
    main()
