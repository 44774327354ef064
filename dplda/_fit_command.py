"""The command ``dplda fit TEXTS --epsilon E --out MODEL``: from files to a published model.

The job runs first on public words, with the same options and a copy of the ledger. Whatever is
wrong with an option or the budget shows up there, before anything is charged. Then the texts are
read as a whole, and only then is the ledger charged.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda._console import PLOT, draw_topics, has_matplotlib, say, show_guarantee, show_topics
from dplda._files import check_writable
from dplda._text_files import Source, read_texts

LANGUAGES = ("de", "en", "es", "fr", "it", "nl", "pt")
SHARES = (0.08, 0.92)  # of the budget, for the vocabulary and the topics
WORD = r"(?u)\b[^\W\d_]{3,}\b"  # three letters or more, as in the public lists

NO_USERS = (
    "Each text is protected by itself. Persons with several texts are protected less: "
    "--user-column protects persons."
)
NOT_LOOKED_FOR = (
    "The vocabulary comes from the public list alone, because there is no list of stop words for "
    "this language: --stop-words FILE gives one, and lets words of the texts in."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Fit a private topic model to texts and write a file that may be published: vocabulary, "
        "topics and guarantee, for one total epsilon. Nothing is charged if a file, an option or "
        "the budget is wrong."
    )
    parser.set_defaults(command=run)
    add_source(parser, "--user-column", "column that says whose text it is: protects users")
    add = parser.add_argument
    add("--epsilon", type=float, required=True, help="total privacy budget")
    add("--delta", type=float, default=1e-6, help="delta of (epsilon, delta)-privacy")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        required=True,
        help="file of the model, which may be published",
    )
    add("--picture", type=Path, metavar="FILE", help="file of a picture of the topics")
    add("--language", choices=LANGUAGES, default="en", help="language of the public word list")
    add(
        "--stop-words",
        type=Path,
        metavar="FILE",
        help="text file of words that do not count, one a line; public",
    )
    add("--n-components", type=int, default=20, help="number of topics")
    add("--words", type=int, default=2000, help="number of words of the vocabulary")
    add(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="file of a budget over many fits; created if it is missing",
    )
    add("--budget", type=float, help="epsilon of a new ledger, if it is more than --epsilon")


def add_source(parser: argparse.ArgumentParser, id_option: str, id_help: str) -> None:
    """Add the options that say where texts are, as `source_of` reads them."""
    add = parser.add_argument
    add("texts", type=Path, help="folder of .txt files, or a .csv, .tsv, .jsonl or .parquet file, "
        "or a folder of these")  # fmt: skip
    add("--text-column", default="text", metavar="COLUMN", help="column of the texts")
    add("--file-column", metavar="COLUMN", help="column of names of text files, in place of texts")
    add(id_option, dest="id_column", metavar="COLUMN", help=id_help)
    add("--encoding", default="utf-8", help="encoding of the files, for instance cp1252")
    add("--separator", help="character between the columns of CSV; by default a comma")


def source_of(options: argparse.Namespace) -> Source:
    """The texts that the options name."""
    return Source(
        options.texts, options.text_column, options.file_column, options.id_column,
        options.encoding, options.separator,
    )  # fmt: skip


def check_output(path: Path, *inputs: Path | None) -> None:
    """Refuse at the start a file that could not be written at the end, or that holds an input."""
    if any(given is not None and path.resolve() == given.resolve() for given in inputs):
        raise ValueError(f"{path} would be overwritten; write to another file")
    check_writable(path)


def check_picture(path: Path | None, *inputs: Path | None) -> None:
    """Refuse at the start a picture that could not be drawn at the end."""
    if path is not None:
        check_output(path, *inputs)
        if not has_matplotlib():
            raise ImportError(f"--picture needs matplotlib; {PLOT}")


def run(options: argparse.Namespace) -> None:
    """Run the command with these options."""
    source = source_of(options)
    inputs = (options.texts, options.ledger, options.stop_words)
    check_output(options.out, *inputs)
    check_picture(options.picture, *inputs, options.out)
    stop_words = stop_words_of(options)
    rehearse(options, stop_words)
    found = read_texts(source)  # private
    users = users_of(found.ids) if options.id_column is not None else None  # private
    n_users = "" if users is None else f" of {len(set(users))} users"
    say(f"Read: {len(found.texts)} texts{n_users}. These numbers are private.")
    if users is None:
        say(NO_USERS)
    if stop_words is None:
        say(NOT_LOOKED_FOR)
    model = fit(options, stop_words, found.texts, users, open_ledger(options), verbose=1)
    dplda.save_release(model, options.out)
    print()
    show_topics(model[-1], model[0].get_feature_names_out())
    print()
    show_guarantee(dplda.pipeline_guarantee(model))
    say(f"Model: {options.out}. It may be published.")
    if options.picture is not None:
        draw_topics(model[-1], model[0].get_feature_names_out(), options.picture)


def stop_words_of(options: argparse.Namespace) -> list[str] | str | None:
    """Words that do not count; None if nobody knows them, in languages other than English."""
    if options.stop_words is not None:
        return options.stop_words.read_text("utf-8").lower().split()
    return "english" if options.language == "en" else None


def users_of(ids: Sequence[str]) -> list[str]:
    """The users of ids: spaces around an id make no second user, who would be protected less."""
    return [i.strip() for i in ids]


def open_ledger(options: argparse.Namespace) -> dplda.privacy.Ledger:
    """The ledger of the options, or one in memory that allows this fit and no more."""
    budget = options.epsilon if options.budget is None else options.budget
    if options.ledger is None:
        return dplda.privacy.Ledger(epsilon=budget, delta=options.delta)
    if options.ledger.exists():
        return dplda.privacy.Ledger(options.ledger, epsilon=options.budget)
    return dplda.privacy.Ledger(options.ledger, epsilon=budget, delta=options.delta)


def rehearse(options: argparse.Namespace, stop_words: list[str] | str | None) -> None:
    """Run the whole job on public words, with a copy of the ledger: nothing is charged."""
    words = dplda.datasets.load_public_vocabulary(200, language=options.language)
    users = None if options.id_column is None else ["a"]
    with tempfile.TemporaryDirectory() as folder:
        copy = argparse.Namespace(**vars(options))
        if options.ledger is not None:
            copy.ledger = Path(folder) / "ledger"
            if options.ledger.exists():
                copy_ledger(options.ledger, copy.ledger)
            else:
                check_writable(options.ledger)
        with warnings.catch_warnings():  # one public text says nothing about the private ones
            warnings.simplefilter("ignore", dplda.privacy.PrivateDataWarning)
            warnings.simplefilter("ignore", dplda.privacy.LowSignalWarning)
            model = fit(copy, stop_words, [" ".join(words)], users, open_ledger(copy), verbose=0)
        dplda.save_release(model, Path(folder) / "model")
        dplda.load_release(Path(folder) / "model").transform([" ".join(words)])


def copy_ledger(path: Path, copy: Path) -> None:
    """Copy a ledger as a whole, even while other processes write to it."""
    import sqlite3

    dplda.privacy.Ledger(path)  # refuses what is no ledger
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def fit(
    options: argparse.Namespace,
    stop_words: list[str] | str | None,
    texts: Sequence[str],
    users: Sequence[str] | None,
    ledger: dplda.privacy.Ledger,
    verbose: int,
) -> Any:
    """Fit a vocabulary and a topic model that together cost at most the given epsilon."""
    from sklearn.pipeline import make_pipeline

    for_words, for_topics = dplda.privacy.split_epsilon(
        options.epsilon, SHARES, delta=options.delta
    )
    vectorizer = dplda.PrivateCountVectorizer(
        epsilon=for_words,
        delta=options.delta,
        candidates=options.language,
        discover=stop_words is not None,
        max_features=options.words,
        stop_words=stop_words,
        token_pattern=WORD,
        ledger=ledger,
    )
    model: Any = dplda.SubLDA(
        options.n_components,
        epsilon=for_topics,
        delta=options.delta,
        ledger=ledger,
        n_jobs=-1,
        verbose=verbose,
    )
    start = time.perf_counter()
    counts = vectorizer.fit_transform(texts, user_ids=users)  # private
    if verbose:
        n_words = len(vectorizer.vocabulary_)
        say(f"Vocabulary: {n_words} words in {time.perf_counter() - start:.1f} s")
    model.fit(counts, user_ids=users)
    return make_pipeline(vectorizer, model)
