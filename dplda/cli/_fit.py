"""The command ``dplda fit TEXTS --epsilon E --out MODEL``: from files to a published model.

The job runs first on public words, with the same options and a copy of the ledger. Whatever is
wrong with an option or the budget shows up there, before anything is charged. Then the texts are
read as a whole, and only then is the ledger charged. Public texts are read before the private
ones, and counted in the words that were chosen with privacy.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._ledger import copy_ledger
from dplda.cli._options import (
    add_model_options,
    add_texts,
    check_output,
    say,
    show_guarantee,
    show_topics,
    texts_of,
)
from dplda.leaf._files import check_writable
from dplda.leaf._log import rehearsal
from dplda.leaf._warnings import warn_user
from dplda.text._text_files import read_texts

SHARES = (0.08, 0.92)  # of the budget, for the vocabulary and the topics
WORD = r"(?u)\b[^\W\d_]{3,}\b"  # three letters or more, as in the public lists
MISSING = {"na", "n/a", "#n/a", "nan", "nat", "null", "none", "<na>"}  # and in capitals


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Fit a private topic model to texts and write a file that may be published: vocabulary, "
        "topics and guarantee, for one total epsilon. Nothing is charged if a file, an option or "
        "the budget is wrong."
    )
    parser.epilog = (
        "example: dplda fit notes.csv --user-column patient --epsilon 4 --out topics.dplda"
    )
    parser.set_defaults(command=run, parser=parser)
    add_texts(parser, "--user-column", "column that says whose text it is: protects users", "?")
    add_model_options(parser)
    add = parser.add_argument
    add("--out", type=Path, metavar="FILE", help="file of the model, which may be published")
    add("--example", action="store_true",
        help="take public texts that dplda holds, and epsilon 4 unless it is given")  # fmt: skip
    add = parser.add_argument_group("public knowledge").add_argument
    add("--language", default="en", help="of the public word list, such as de (default: "
        "%(default)s); others than English need wordfreq")  # fmt: skip
    add("--stop-words", type=Path, metavar="FILE",
        help="text file of words that do not count, in place of those of the language")  # fmt: skip
    add("--public-texts", type=Path, metavar="TEXTS",
        help="public texts of the same kind: better topics, at no cost")  # fmt: skip
    add = parser.add_argument_group("ledger").add_argument
    add("--ledger", type=Path, metavar="FILE",
        help="file of a budget over many fits; created if it is missing")  # fmt: skip
    add("--budget", type=float, help="epsilon of a new ledger, if it is more than --epsilon")


def run(options: argparse.Namespace) -> None:
    """Run the command with these options."""
    if options.example and options.texts is None:
        options.epsilon = 4.0 if options.epsilon is None else options.epsilon
    elif options.example or None in (options.texts, options.epsilon, options.out):
        options.parser.error("give TEXTS, --epsilon and --out, or --example in place of TEXTS")
    if options.out is not None:
        check_output(
            options.out, options.texts, options.ledger, options.stop_words, options.public_texts
        )
    stop_words, public = stop_words_of(options), public_texts(options)
    with rehearsal():
        rehearse(options, stop_words, public)
    texts, users = private_texts(options)  # private
    warn_of_common(public, texts)
    model = fit(options, stop_words, public, texts, users, open_ledger(options), verbose=1)
    if options.out is not None:
        dplda.save_release(model, options.out)  # first: who reads the output may end
        say(f"Model: {options.out}. It may be published.")
    show_topics(model[-1], model[0].get_feature_names_out())
    show_guarantee(dplda.pipeline_guarantee(model))


def private_texts(options: argparse.Namespace) -> tuple[list[str], list[str] | None]:
    """Texts and their users, None if each text is protected by itself."""
    if options.example:
        corpus: Any = dplda.datasets.load_wordnet_glosses()
        say(corpus.DESCR)
        return corpus.data, None
    found = texts_of(options)
    users = None if options.id_column is None else found.ids
    n_users = "" if users is None else f" of {len(set(users))} users"
    say(f"Read: {len(found.texts)} texts{n_users}. These numbers are private.")
    if users is None:
        say(
            "Each text is protected by itself. Persons with several texts are protected less: "
            "--user-column protects persons."
        )
    else:
        warn_of_missing(users)
    return found.texts, users


def fit(
    options: argparse.Namespace,
    stop_words: list[str],
    public: Sequence[str],
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
        epsilon=for_words, delta=options.delta, max_features=options.max_features, ledger=ledger,
        candidates=options.language, stop_words=stop_words, token_pattern=WORD,
    )  # fmt: skip
    model: Any = dplda.SubLDA(
        options.n_components, epsilon=for_topics, delta=options.delta, ledger=ledger, n_jobs=-1,
        verbose=verbose,
    )  # fmt: skip
    counts = vectorizer.fit_transform(texts, user_ids=users)  # private
    if public and vectorizer.transform(public).nnz:
        # the vocabulary is paid for here: public texts without its words are no error
        prior = dplda.public_prior(
            public, n_components=options.n_components, vocabulary=vectorizer, n_jobs=-1
        )
        model.set_params(prior_components=prior)
    model.fit(counts, user_ids=users)
    return make_pipeline(vectorizer, model)


def open_ledger(options: argparse.Namespace) -> dplda.privacy.Ledger:
    """The ledger of the options, or one in memory that allows this fit and no more."""
    budget = options.epsilon if options.budget is None else options.budget
    if options.ledger is None:
        return dplda.privacy.Ledger(epsilon=budget, delta=options.delta)
    if options.ledger.exists():
        return dplda.privacy.Ledger(options.ledger, epsilon=options.budget)
    return dplda.privacy.Ledger(options.ledger, epsilon=budget, delta=options.delta)


def rehearse(options: argparse.Namespace, stop_words: list[str], public: Sequence[str]) -> None:
    """Run the whole job on public words, with a copy of the ledger: nothing is charged."""
    few = public[:10]  # enough to notice an error
    words = [" ".join(dplda.datasets.load_public_vocabulary(200, language=options.language))]
    users = None if options.id_column is None else ["a"]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one public text says nothing about the private ones
        copy = argparse.Namespace(**vars(options))
        if options.ledger is not None:
            copy.ledger = Path(folder) / "ledger"
            if options.ledger.exists():
                copy_ledger(options.ledger, copy.ledger)
            else:
                check_writable(options.ledger)
        ledger = open_ledger(copy)
        spent = ledger.epsilon_spent
        try:
            model = fit(copy, stop_words, few, words, users, ledger, verbose=0)
        except dplda.privacy.BudgetError as error:
            # the copy may have paid for the vocabulary, which its error would count as spent before
            raise dplda.privacy.BudgetError(
                f"a vocabulary and topics of epsilon {options.epsilon:g} do not fit into the "
                f"budget of epsilon {ledger.epsilon:g} (delta {ledger.delta:g}), of which "
                f"{spent:.4g} was spent before; lower --epsilon, or use a ledger with a larger "
                "budget"
            ) from error
        dplda.save_release(model, Path(folder) / "model")
        dplda.load_release(Path(folder) / "model").transform(words)


def stop_words_of(options: argparse.Namespace) -> list[str]:
    """Public words that do not count."""
    from sklearn.feature_extraction.text import CountVectorizer

    from dplda.datasets import _words

    if options.stop_words is None:
        words = _words.stop_words_of(options.language)
    else:
        try:
            words = frozenset(options.stop_words.read_text("utf-8-sig").lower().split())
        except UnicodeDecodeError:
            raise ValueError(
                f"{options.stop_words} is not encoded in utf-8; save it in this encoding"
            ) from None
    analyze = CountVectorizer(token_pattern=WORD).build_analyzer()
    return [word for word in sorted(words) if analyze(word) == [word]]


def public_texts(options: argparse.Namespace) -> list[str]:
    """The public texts of the options, read before anything private is."""
    if options.public_texts is None:
        return []
    if options.texts is not None:
        private, public = options.texts.resolve(), options.public_texts.resolve()
        if private == public or private in public.parents or public in private.parents:
            raise ValueError(
                f"--public-texts {options.public_texts} and the private texts {options.texts} "
                "overlap; public texts must be none of the private ones: give them a folder or "
                "file of their own"
            )
    return read_texts(
        options.public_texts, text_column=options.text_column, encoding=options.encoding,
        separator=options.separator,
    ).texts  # fmt: skip


def warn_of_common(public: Sequence[str], texts: Sequence[str]) -> None:
    """Tell the person at the keyboard that public texts are among the private ones."""
    if n_common := len((set(public) & set(texts)) - {""}):
        warn_user(
            f"{n_common} public texts are among the private texts, too, and epsilon does not "
            "protect them: take them out of the public texts if they are private (not for release)",
            dplda.privacy.PrivateDataWarning,
        )


def warn_of_missing(users: Sequence[str]) -> None:
    """Tell the person at the keyboard that many persons may stand behind one id."""
    if n_missing := sum(user.lower() in MISSING for user in users):
        warn_user(
            f"{n_missing} texts have an id such as NA, NaN or NULL, as which programs write a "
            "missing one, and count as those of one user: if they are of several, leave them out, "
            "or find out whose they are (not for release)",
            dplda.privacy.PrivateDataWarning,
        )
