"""The commands ``dplda fit``, from files to a published model, and ``dplda plan``.

`PrivateTopicModel` does the work. The expected result is shown, room for the model is
reserved, and all texts are read, one after the other, before the ledger is charged.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import (
    AddParser,
    add_texts,
    check_ledger,
    check_output,
    say,
    show_card,
    show_topics,
    stream_of,
    texts_of,
)
from dplda.leaf._checks import check_number
from dplda.leaf._files import PUBLIC, reserved, write_atomically
from dplda.leaf._messages import warn_user

if TYPE_CHECKING:
    from dplda.document._plan import Plan

# how programs write a missing id, or so in small
MISSING = {"NA", "N/A", "NAN", "NULL", "NONE"}
NOTHING = "Nothing was charged."


def add_commands(add_parser: AddParser) -> None:
    """Add the options of ``dplda fit`` and ``dplda plan``."""
    parser = add_parser(
        "fit",
        help="fit a private topic model to files, and write a file that may be "
        "published",
        description="Fit a private topic model to texts and write a file that may be "
        "published: vocabulary, topics and guarantee, for one total epsilon. Nothing "
        "is charged if a file, an option or the budget is wrong.",
        epilog="example: dplda fit notes.csv --user-column id --epsilon 4 --out "
        "topics.dplda",
    )
    parser.set_defaults(command=_fit, parser=parser)
    add_texts(
        parser,
        "--user-column",
        "column that says whose text it is: protects users",
        "?",
    )
    _add_model(parser)
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("topics.dplda"),
        help="new file of the model, which may be published (default: %(default)s)",
    )
    add(
        "--yes",
        action="store_true",
        help="spend the budget without asking, as without a terminal",
    )
    add(
        "--example",
        action="store_true",
        help="take public texts that dplda holds, and epsilon 4 unless it is given",
    )
    add(
        "--public-texts",
        type=Path,
        metavar="TEXTS",
        help="public texts of the same kind: better topics, at no cost",
    )
    group = parser.add_argument_group("ledger")
    either = group.add_mutually_exclusive_group().add_argument
    either(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="file of a budget over many fits; created "
        "if it is missing (default: TEXTS.ledger)",
    )
    either("--no-ledger", action="store_true", help="count no other fit of these texts")
    group.add_argument("--budget", type=float, help="epsilon of a new ledger, if more")
    parser = add_parser(
        "plan",
        help="say what to expect of a fit, before any data are read",
        description="Say what to expect of a topic model of texts, before any data are "
        "read. All numbers must be public: an expectation, not a count of the private "
        "texts.",
        epilog="example: dplda plan --n-docs 6000 --epsilon 4",
    )
    parser.set_defaults(command=_plan)
    _add_model(parser, epsilon=4.0, is_plan=True)


def _add_model(
    parser: argparse.ArgumentParser,
    *,
    epsilon: float | None = None,
    is_plan: bool = False,
) -> None:
    """Add the budget and the sizes of a model."""
    add = parser.add_argument_group("model").add_argument
    add("--epsilon", type=float, default=epsilon, help="total privacy budget")
    add(
        "--delta",
        type=float,
        default=1e-6,
        help="delta of (epsilon, delta)-privacy (default: %(default)s)",
    )
    add(
        "--n-components",
        type=int,
        default=20,
        help="number of topics (default: %(default)s)",
    )
    add(
        "--max-features",
        type=int,
        default=2000,
        help="number of words of the vocabulary (default: %(default)s)",
    )
    add(
        "--language",
        default="en",
        help="of the public word list, such as de (default: "
        "%(default)s); others than English need wordfreq",
    )
    add(
        "--n-docs",
        type=int,
        required=is_plan,
        help="expected number of texts, or of users if "
        "they are protected: public knowledge, and no count",
    )


def _plan(options: argparse.Namespace) -> None:
    print(plan(options, options.n_docs))


def plan(options: argparse.Namespace, n_docs: int) -> Plan:
    """What to expect of these options, of which the words are paid first."""
    from dplda.text._topic_model import what_to_expect  # not for options and --help

    return what_to_expect(
        dplda.PrivateTopicModel(
            options.n_components,
            epsilon=options.epsilon,
            delta=options.delta,
            vocabulary=options.language,
            max_features=options.max_features,
            expected_n_docs=n_docs,
        )
    )


def _fit(options: argparse.Namespace) -> int:
    if options.example and options.epsilon is None:
        options.epsilon = 4.0
    if options.example == (options.texts is not None) or options.epsilon is None:
        options.parser.error("give TEXTS and --epsilon, or --example in place of TEXTS")
    check_number("--epsilon", options.epsilon, 0.0, 1e9, closed="right")
    if options.texts is not None:
        choose_ledger(options)
    check_output(
        options.out, options.texts, options.ledger, options.public_texts, is_new=True
    )
    public: list[str] = []
    if options.public_texts:
        public = texts_of(options, options.public_texts).texts
    model = dplda.PrivateTopicModel(
        options.n_components,
        epsilon=options.epsilon,
        delta=options.delta,
        vocabulary=options.language,
        max_features=options.max_features,
        public_texts=public or None,
        expected_n_docs=options.n_docs,
        n_jobs=-1,
        verbose=1,
    )
    try:  # what is wrong with an option or a file shows before anything is charged
        model._steps()
        texts, users, told = private_texts(options, {*public} - {""})  # private
        if not is_wanted(options):
            return 1
    except KeyboardInterrupt:
        print(NOTHING, file=sys.stderr)
        raise
    # tables, and long words; the guarantee
    size = 8 * (options.n_components + 8) * options.max_features + 2**17
    with ExitStack() as room:
        room.enter_context(reserved(options.out, size))
        model.ledger = open_ledger(options)
        with accounted(model, options.out):
            model.fit(texts, user_ids=users)
            room.close()
            say(" ".join(told))
            say(f"Model: {keep(model, options.out)}. It may be published.")
            show_topics(model.model_, model.vocabulary_)
            say(
                "Words that many texts have in common may be names: read them before "
                "you publish."
            )
            show_card(model.privacy_.summary())
            sys.stdout.flush()  # a reader that has ended is noticed here
    return 0


def choose_ledger(options: argparse.Namespace) -> None:
    """The ledger beside the texts, unless another is named; None if that is asked."""
    texts = options.texts.resolve()
    beside = texts.with_name(f"{texts.name}.ledger")
    if options.budget is not None and not options.budget >= options.epsilon:
        options.parser.error(
            f"--budget {options.budget:g} does not pay for --epsilon "
            f"{options.epsilon:g}"
        )
    if not options.no_ledger:
        options.ledger = options.ledger or beside
        check_ledger(options.ledger, options.budget)
    is_charged = options.ledger is not None and options.ledger.resolve() == beside
    if beside.exists() and not is_charged:
        warn_user(
            f"{beside} counts what was spent on these texts before, and this fit is "
            "not added to it: together they cost more than either; leave --ledger and "
            "--no-ledger out",
            dplda.privacy.PrivacyLeakWarning,
        )


def open_ledger(options: argparse.Namespace) -> dplda.privacy.Ledger:
    """The ledger of the options, or one in memory that allows this fit and no more."""
    if options.ledger is not None and options.ledger.exists():
        return dplda.privacy.Ledger(options.ledger, epsilon=options.budget)
    budget = options.epsilon if options.budget is None else options.budget
    return dplda.privacy.Ledger(options.ledger, epsilon=budget, delta=options.delta)


def is_wanted(options: argparse.Namespace) -> bool:
    """Say what to expect, from public options; on a terminal, ask before spending."""
    from dplda.document._plan import FEWEST_DOCS  # not for options and --help

    unit = "texts" if options.id_column is None else "users"
    n_docs = options.n_docs
    hint = ""
    if not n_docs:
        n_docs = FEWEST_DOCS
        hint = "; give --n-docs for others"
    say(f"Expected of {n_docs:,} {unit}, from public numbers alone{hint}:")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which the fit gives
        print(plan(options, n_docs))
    if not options.public_texts:
        say(
            "Public texts of the same kind (--public-texts) give better topics at no "
            "cost."
        )
    if options.yes or options.example or not sys.stdin.isatty():
        return True
    answer = input(f"Spend epsilon {options.epsilon:g} on these {unit}? [y/N] ")
    is_yes = answer.strip().lower() in ("y", "yes")
    if not is_yes:
        say(NOTHING)
    return is_yes


@contextmanager
def accounted(model: dplda.PrivateTopicModel, out: Path) -> Iterator[None]:
    """However a job ends early, say what was spent, and keep what it paid for."""
    ledger = model.ledger
    before = len(ledger.entries())
    try:
        yield
    except BaseException:
        said = NOTHING
        if any(entry.counts for entry in ledger.entries()[before:]):
            where = "" if ledger.path is None else f" in {ledger.path}"
            said = (
                "The job has ended early, and stays charged: epsilon "
                f"{ledger.epsilon_spent:.4g} of {ledger.epsilon:g} is spent{where}. "
                "Results that are paid for, and may be published: "
                f"{keep(model, out) or 'none'}"
            )
        print(said, file=sys.stderr)
        raise


def keep(model: dplda.PrivateTopicModel, out: Path) -> Path | None:
    """Write the model, or its words if that is all there is; elsewhere if needed."""
    if not hasattr(model, "vectorizer_"):
        return None
    if hasattr(model, "components_"):
        path = out
        save = model.save
    else:
        lines = [f"{word}\n" for word in model.vectorizer_.get_feature_names_out()]
        data = "".join(lines).encode()
        path = out.with_name(f"{out.name}.words")
        save = partial(write_atomically, data=data, permissions=PUBLIC)
    try:
        save(path)
        return path
    except OSError as error:
        other = Path(tempfile.mkdtemp(prefix="dplda-"), path.name)
        save(other)
        print(
            f"{path} cannot be written ({error.strerror}): it is {other}",
            file=sys.stderr,
        )
        return other


def private_texts(
    options: argparse.Namespace, public: set[str]
) -> tuple[Iterable[str], list[str] | None, list[str]]:
    """Texts, which are read as the fit asks for them, their users, and what was read.

    The two lists are whole when all texts are read. No users: each text is protected by
    itself. What is wrong with the first text is said at once.
    """
    told: list[str] = []
    if options.example:
        corpus = dplda.datasets.load_wordnet_glosses()
        say(corpus.DESCR)
        return corpus.data, None, told
    rows = stream_of(options, options.texts, options.id_column).rows
    first = next(rows)
    users: list[str] | None = None
    if options.id_column is not None:
        users = []
    else:
        say(
            "Each text is protected by itself. Persons with several texts are "
            "protected less: --user-column protects persons."
        )

    def texts() -> Iterator[str]:
        n_texts = 0
        for text, user in chain([first], rows):
            if text in public:
                raise ValueError(
                    f"texts of --public-texts {options.public_texts} are among the "
                    "private texts, and epsilon does not protect them: take them out "
                    "of one place (not for release)"
                )
            n_texts += 1
            if users is not None:
                users.append(user or "")
            yield text
        n_users = ""
        if users is not None:
            n_users = f" of {len(set(users))} users"
            warn_of_missing(users)
        told.append(f"Read: {n_texts} texts{n_users}. These numbers are private.")

    return texts(), users, told


def warn_of_missing(users: list[str]) -> None:
    """Tell the owner of the texts of ids that stand for missing ones."""
    n_missing = sum(user.upper() in MISSING for user in users)
    if n_missing:
        warn_user(
            f"{n_missing} texts have an id such as NA or NULL, as which programs write "
            "a missing one, and count as those of one user: each of several persons "
            "behind it is protected less; leave these texts out, or find out whose "
            "they are (not for release)",
            dplda.privacy.PrivateDataWarning,
        )
