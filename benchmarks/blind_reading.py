"""What a reader sees: ten-word lists of topics, judged blind.

``python benchmarks/blind_reading.py lists FOLDER [--corpora kos bbc nips glosses]
[--epsilons 1 2 4] [--seed 0]``
``python benchmarks/blind_reading.py table FOLDER [--lists]``

``lists`` writes ``lists.txt``, a number and ten words a line, in random order: the 20
topics of SubLDA with embedded vectors at each epsilon, those of GibbsLDA, and 20 public
clusters with the word totals of the fit at the first epsilon; and ten planted lists of
words that are drawn at random from the lists of a corpus. ``key.json`` says what each
is. A reader who has not opened it writes ``verdicts.txt``: the numbers of lists that
have one subject, by any white space. ``table`` compares them with the key; ``--lists``
prints all lists. A reader who takes more than one planted list for a subject is not to
be believed. K = 20, V = 2000, delta = 1e-5.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from baselines import clusters
from corpora import LOADERS, Split, load
from utility import GIBBS, NON_PRIVATE, K, sublda, vectors_of

from dplda.reading._displays import rank_words

N_PLANTED = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["lists", "table"])
    parser.add_argument("folder", type=Path)
    names = ["kos", "bbc", "nips", "glosses"]
    parser.add_argument("--corpora", nargs="+", default=names, choices=list(LOADERS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 2.0, 4.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lists", action="store_true", help="print all lists")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.part == "lists":
        return write(options)
    print_table(options.folder, options.lists)


def write(options) -> None:
    """Lists in random order, and the key."""
    draws = np.random.default_rng(options.seed)
    splits = load(options.corpora)
    key = [row for split in splits for row in lists_of(split, options)]
    for i in range(N_PLANTED):
        name = splits[i % len(splits)].name
        own = {word for row in key if row["corpus"] == name for word in row["words"]}
        words = draws.choice(sorted(own), 10, replace=False).tolist()
        key.append({"corpus": name, "of": "planted", "shown": None, "words": words})
    key = [key[i] for i in draws.permutation(len(key))]
    options.folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{number} {' '.join(row['words'])}" for number, row in enumerate(key)]
    (options.folder / "lists.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (options.folder / "key.json").write_text(json.dumps(key), "utf-8")


def lists_of(split: Split, options) -> list[dict]:
    """The lists of a corpus, and whether the fit shows the topic."""
    found = {}
    for epsilon in options.epsilons:
        given = {"word_vectors": vectors_of(split, "embedded")}
        model = sublda(epsilon, options.seed, **given).fit(split.train)
        found[f"epsilon {epsilon:g}"] = model.components_, ~model.weak_topics_
        if epsilon == options.epsilons[0]:
            totals = model._released.totals
    found["clusters"] = clusters(totals, split.words, K), [None] * K
    free = NON_PRIVATE[GIBBS](options.seed).fit(split.train)
    found["GibbsLDA"] = free.components_, [None] * K
    return [
        {
            "corpus": split.name,
            "of": name,
            "shown": None if shown is None else bool(shown),
            "words": split.words[words].tolist(),
        }
        for name, (table, all_shown) in found.items()
        for shown, words in zip(all_shown, rank_words(table, 10), strict=True)
    ]


def print_table(folder: Path, with_lists: bool) -> None:
    key = json.loads((folder / "key.json").read_text("utf-8"))
    verdicts = set(map(int, (folder / "verdicts.txt").read_text().split()))
    for number, row in enumerate(key):
        row["one subject"] = number in verdicts
    planted = [row for row in key if row["of"] == "planted"]
    caught = sum(not row["one subject"] for row in planted)
    print(f"{caught} of {len(planted)} planted lists were caught.\n")
    topics = [row for row in key if row["of"] != "planted"]
    corpora = list(dict.fromkeys(row["corpus"] for row in topics))
    kinds = sorted({row["of"] for row in topics}, key=lambda of: (of[0] != "c", of))
    print(f"| corpus | {' | '.join(kinds)} |\n" + "| --- " * (1 + len(kinds)) + "|")
    for corpus in [*corpora, None]:
        cells = []
        for kind in kinds:
            own = [
                r for r in topics if r["of"] == kind and corpus in (None, r["corpus"])
            ]
            cells.append(counted(own))
        print(f"| {corpus or 'all'} | {' | '.join(cells)} |")
    if with_lists:
        print_lists(topics, planted)


def counted(rows: list[dict]) -> str:
    """Lists with one subject of all, and of the topics that a fit shows."""
    text = f"{sum(row['one subject'] for row in rows)} of {len(rows)}"
    if rows and rows[0]["shown"] is None:
        return text
    shown = [row for row in rows if row["shown"]]
    return f"{text} (shown: {sum(row['one subject'] for row in shown)} of {len(shown)})"


def print_lists(topics: list[dict], planted: list[dict]) -> None:
    """Each list with a mark: + for one subject, ? for a topic that is not shown."""
    title = None
    for row in sorted(topics, key=lambda row: (row["corpus"], row["of"])) + planted:
        is_planted = row["of"] == "planted"
        own = "Planted lists" if is_planted else f"{row['corpus']}, {row['of']}"
        if own != title:
            print(f"\n## {own}\n")
            title = own
        marks = ("+" if row["one subject"] else "-") + "?" * (row["shown"] is False)
        print(f"* `{marks}` {' '.join(row['words'])}")


if __name__ == "__main__":
    main()
