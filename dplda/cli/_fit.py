"""The command ``dplda fit TEXTS --epsilon E --out MODEL``: from files to a published model.

The job runs first on public words, with the same options and a copy of the ledger. Whatever is
wrong with an option or the budget shows up there, before anything is charged. Then the texts are
read as a whole, and only then is the ledger charged. Public texts and seed words are read before
the private texts, and counted in the words that were chosen with privacy.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._console import (
    PLOT,
    check_ending,
    draw_topics,
    has_matplotlib,
    say,
    show_guarantee,
    show_topics,
)
from dplda.cli._ledger import copy_ledger
from dplda.leaf._files import check_writable
from dplda.leaf._log import rehearsal
from dplda.leaf._warnings import warn_user
from dplda.text._text_files import Source, read_texts

LANGUAGES = ("de", "en", "es", "fr", "it", "nl", "pt")
SHARES = (0.08, 0.92)  # of the budget, for the vocabulary and the topics
WORD = r"(?u)\b[^\W\d_]{3,}\b"  # three letters or more, as in the public lists

MISSING = {"na", "n/a", "#n/a", "nan", "nat", "null", "none", "<na>"}  # and in capitals

NO_USERS = (
    "Each text is protected by itself. Persons with several texts are protected less: "
    "--user-column protects persons."
)
NOT_LOOKED_FOR = (
    "The vocabulary comes from the public list alone, because there is no list of stop words for "
    "this language: --stop-words FILE gives one, and lets words of the texts in."
)


@dataclass(frozen=True)
class Public:
    """What the owner of the private texts knows in public.

    Parameters
    ----------
    texts : list of str
        Public texts of the same kind; may be empty.
    seeds : dict of int to list of str
        Words of topics, by the number of the topic; may be empty.
    """

    texts: list[str] = field(default_factory=list)
    seeds: dict[int, list[str]] = field(default_factory=dict)


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
    add(
        "--public-texts",
        type=Path,
        metavar="PUBLIC",
        help="public texts of the same kind, in files of the kinds of TEXTS: better topics, at no "
        "cost",
    )
    add(
        "--seed-words",
        type=Path,
        metavar="FILE",
        help="text file of public words that belong together: those of topic 0 on the first line, "
        "and so on",
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
        check_ending(path)


def run(options: argparse.Namespace) -> None:
    """Run the command with these options."""
    source = source_of(options)
    inputs = (
        options.texts, options.ledger, options.stop_words, options.public_texts, options.seed_words
    )  # fmt: skip
    check_output(options.out, *inputs)
    check_picture(options.picture, *inputs, options.out)
    stop_words = stop_words_of(options)
    public = public_of(options, stop_words)
    with rehearsal():
        rehearse(options, stop_words, public)
    found = read_texts(source)  # private
    users = users_of(found.ids) if options.id_column is not None else None  # private
    n_users = "" if users is None else f" of {len(set(users))} users"
    others = f"; {found.n_left_out} files of other kinds left out" if found.n_left_out else ""
    say(f"Read: {len(found.texts)} texts{n_users}{others}. These numbers are private.")
    warn_of_common(public.texts, found.texts)
    warn_of_missing(users or [])
    if users is None:
        say(NO_USERS)
    if stop_words is None:
        say(NOT_LOOKED_FOR)
    model = fit(options, stop_words, public, found.texts, users, open_ledger(options), verbose=1)
    dplda.save_release(model, options.out)
    print()
    show_topics(model[-1], model[0].get_feature_names_out())
    say_prior(model[-1], options)
    print()
    show_guarantee(dplda.pipeline_guarantee(model))
    say(f"Model: {options.out}. It may be published.")
    if options.picture is not None:
        draw_topics(model[-1], model[0].get_feature_names_out(), options.picture)


def say_prior(model: Any, options: argparse.Namespace) -> None:
    """Print what became of the public texts and seed words."""
    if model.prior_components is None:
        return
    if model.prior_match_ is None:
        say(
            "Public texts and seed words have less than a quarter of the words: they place topics, "
            "and say nothing of the other words."
        )
        return
    say(
        f"Public and private texts match {model.prior_match_} (prior_trust_ "
        f"{model.prior_trust_:.2f}). Where the private texts say little, a topic is that of the "
        "public texts, and may be marked as weak."
    )


def stop_words_of(options: argparse.Namespace) -> list[str] | str | None:
    """Words that do not count; None if nobody knows them, in languages other than English."""
    if options.stop_words is not None:
        return read_words(options.stop_words).split()
    return "english" if options.language == "en" else None


def public_of(options: argparse.Namespace, stop_words: list[str] | str | None) -> Public:
    """The public texts and seed words of the options, checked before anything private is read."""
    seeds, texts = {}, []
    if options.seed_words is not None:
        lines = enumerate(read_words(options.seed_words).splitlines())
        seeds = {k: line.split() for k, line in lines if line.strip()}
        check_seeds(seeds, options, stop_words)
    if options.public_texts is not None:
        private, public = options.texts.resolve(), options.public_texts.resolve()
        if private == public or private in public.parents or public in private.parents:
            raise ValueError(
                f"--public-texts {options.public_texts} and the private texts {options.texts} "
                "overlap; public texts must be none of the private ones, so give them a folder or "
                "file of their own"
            )
        source = Source(
            options.public_texts, options.text_column,
            encoding=options.encoding, separator=options.separator,
        )  # fmt: skip
        texts = read_texts(source).texts
    return Public(texts, seeds)


def warn_of_common(public: Sequence[str], texts: Sequence[str]) -> None:
    """Tell the person at the keyboard that public texts are among the private ones."""
    n_common = len((set(public) & set(texts)) - {""})
    if n_common:
        warn_user(
            f"{n_common} public texts are among the private texts, too. Epsilon does not protect "
            "them: take them out of the public texts if they are private. This message is about "
            "private data and not for release",
            dplda.privacy.PrivateDataWarning,
        )


def warn_of_missing(users: Sequence[str]) -> None:
    """Tell the person at the keyboard that many persons may stand behind one id."""
    n_missing = sum(user.lower() in MISSING for user in users)
    if n_missing:
        warn_user(
            f"{n_missing} texts have an id such as NA, NaN or NULL, as which programs write a "
            "missing one. All texts with one id count as those of one user: if these are of "
            "several, leave them out, or find out whose they are. This message is about private "
            "data and not for release",
            dplda.privacy.PrivateDataWarning,
        )


def check_seeds(
    seeds: dict[int, list[str]], options: argparse.Namespace, stop_words: list[str] | str | None
) -> None:
    """Refuse seed words that no vocabulary can hold, and more lines than topics."""
    if not seeds:
        raise ValueError(
            f"{options.seed_words} holds no word; write the words of a topic on a line"
        )
    if max(seeds) >= options.n_components:
        raise ValueError(
            f"{options.seed_words} has {max(seeds) + 1} lines, one for each topic, and "
            f"--n-components is {options.n_components}; leave lines out or ask for more topics"
        )
    possible = set(possible_words([word for group in seeds.values() for word in group], stop_words))
    wrong = [word for group in seeds.values() for word in group if word not in possible]
    if wrong:
        raise ValueError(
            f"{options.seed_words} holds what cannot be a word of the vocabulary, for instance "
            f"{wrong[0]!r}; words have three letters or more, are no stop words, and are separated "
            "by spaces"
        )


def possible_words(words: Sequence[str], stop_words: list[str] | str | None) -> list[str]:
    """The words that the vectorizer can find in a text."""
    analyze = analyzer(stop_words)
    return [word for word in words if analyze(word) == [word]]


def analyzer(stop_words: list[str] | str | None = None) -> Callable[[str], list[str]]:
    """The function by which the vectorizer splits a text into words."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=WORD, stop_words=stop_words)
    analyze: Callable[[str], list[str]] = counter.build_analyzer()
    return analyze


def read_words(path: Path) -> str:
    """A file of public words, in lower case."""
    try:
        return path.read_text("utf-8-sig").lower()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not encoded in utf-8; save it in this encoding") from None


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


def rehearse(
    options: argparse.Namespace, stop_words: list[str] | str | None, public: Public
) -> None:
    """Run the whole job on public words, with a copy of the ledger: nothing is charged."""
    public = Public(public.texts[:10], public.seeds)  # enough to notice an error
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
            warnings.simplefilter("ignore", dplda.privacy.LowSignalWarning)
            warnings.filterwarnings("ignore", "the .* public documents hold")
            ledger = open_ledger(copy)
            spent = ledger.epsilon_spent
            try:
                model = fit(copy, stop_words, public, [" ".join(words)], users, ledger, verbose=0)
            except dplda.privacy.BudgetError as error:
                if ledger.epsilon_spent == spent:
                    raise
                # the copy paid for the vocabulary, which its error counts as spent before
                raise dplda.privacy.BudgetError(
                    f"a vocabulary and topics of epsilon {options.epsilon:g} do not fit into the "
                    f"budget of epsilon {ledger.epsilon:g} (delta {ledger.delta:g}), of which "
                    f"{spent:.4g} was spent before; lower --epsilon, or use a ledger with a larger "
                    "budget"
                ) from error
        dplda.save_release(model, Path(folder) / "model")
        dplda.load_release(Path(folder) / "model").transform([" ".join(words)])


def fit(
    options: argparse.Namespace,
    stop_words: list[str] | str | None,
    public: Public,
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
        candidates=candidates_of(options, stop_words, public),
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
    model.set_params(prior_components=prior_of(options, public, vectorizer, verbose))
    model.fit(counts, user_ids=users)
    return make_pipeline(vectorizer, model)


def candidates_of(
    options: argparse.Namespace, stop_words: list[str] | str | None, public: Public
) -> Any:
    """The public list of the language, after the seed words if there are any."""
    if not public.seeds:
        return options.language
    listed = dplda.datasets.load_public_vocabulary(None, language=options.language)
    seeds = [word for group in public.seeds.values() for word in group]
    return [*seeds, *possible_words(listed, stop_words)]


def prior_of(options: argparse.Namespace, public: Public, vectorizer: Any, verbose: int) -> Any:
    """Public pseudo-counts in the chosen words; None if nothing public is given or known.

    The vocabulary is paid for here, so that a word that it lacks is no error.
    """
    chosen = vectorizer.vocabulary_
    seeds = {k: [w for w in group if w in chosen] for k, group in public.seeds.items()}
    missing = {w for group in public.seeds.values() for w in group if w not in chosen}
    if missing and verbose:
        say(f"Seed words that are not among the chosen words: {', '.join(sorted(missing))}.")
    analyze = analyzer()
    known = any(word in chosen for text in public.texts for word in analyze(text))
    if public.texts and not known and verbose:
        say("The public texts have none of the chosen words, and are not used.")
    if not known and not any(seeds.values()):
        return None
    return dplda.public_prior(
        public.texts if known else None,
        n_components=options.n_components,
        seed_words=seeds if any(seeds.values()) else None,
        vocabulary=vectorizer,
        n_jobs=-1,
    )
