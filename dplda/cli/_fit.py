"""The commands ``dplda fit``, from files to a published model, ``counts`` and ``plan``.

`PrivateTopicModel` does the work. The expected result is shown, room for the model is
reserved, and all texts are read, one after the other, before the ledger is charged.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import tempfile
import warnings
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._groups import Grouping, add_groups, given_groups, groupings
from dplda.cli._options import (
    MODEL,
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
COUNTS_SHARE = 0.2  # as in dplda.plan


def add_commands(add_parser: AddParser) -> None:
    """Add the options of ``dplda fit``, ``dplda counts`` and ``dplda plan``."""
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
    parser.add_argument(
        "--stop-words",
        type=Path,
        metavar="FILE",
        help="words that do not count, such as names of staff, in addition to those of "
        "the language; public, and not picked by reading the texts",
    )
    add_groups(parser)
    parser.add_argument(
        "--counts-share",
        type=float,
        default=COUNTS_SHARE,
        help="share of the counts in the budget (default: %(default)s)",
    )
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("topics.dplda"),
        help="new file of the model, which may be published (default: %(default)s)",
    )
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="also write a page about the model, which may be published (HTML)",
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
    _add_ledger(parser)
    parser = add_parser(
        "counts",
        help="count texts of each topic by group and period, with noise",
        description="Write numbers of texts, or of users, of each topic of a published "
        "model by group and period, to a file that may be published. Nothing is "
        "charged if a file, an option or the budget is wrong.",
        epilog="example: dplda counts topics.dplda notes.csv --user-column patient "
        "--by ward --levels wards.txt --epsilon 1",
    )
    parser.set_defaults(command=_counts, parser=parser)
    parser.add_argument("model", type=Path, help=MODEL)
    add_texts(
        parser,
        "--user-column",
        "column that says whose text it is: protects users",
    )
    add_groups(parser)
    add = parser.add_argument
    add("--epsilon", type=float, required=True, help="privacy budget of the counts")
    add(
        "--delta",
        type=float,
        default=1e-6,
        help="delta of (epsilon, delta)-privacy (default: %(default)s)",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("counts.dplda"),
        help="new file of the counts, which may be published (default: %(default)s)",
    )
    _add_ledger(parser)
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
    parser.add_argument(
        "--groups",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="numbers of groups of counts, such as 9 12 for wards and months",
    )
    parser.add_argument(
        "--counts-share",
        type=float,
        default=COUNTS_SHARE,
        help="share of the counts in the budget (default: %(default)s)",
    )


def _add_ledger(parser: argparse.ArgumentParser) -> None:
    """Add the options of the ledger that is charged."""
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
    print(plan(options, options.n_docs, options.groups))


def plan(options: argparse.Namespace, n_docs: int, groups: Sequence[int]) -> Plan:
    """What to expect of these options, of which the words are paid first."""
    from dplda.text._topic_model import what_to_expect  # not for options and --help

    _, epsilon = shares(options, groups)
    expected = what_to_expect(
        dplda.PrivateTopicModel(
            options.n_components,
            epsilon=epsilon,
            delta=options.delta,
            vocabulary=options.language,
            max_features=options.max_features,
            expected_n_docs=n_docs,
        )
    )
    if not groups:
        return expected
    counts = dplda.plan(
        n_docs=n_docs,
        epsilon=options.epsilon,
        delta=options.delta,
        n_components=options.n_components,
        groups=groups,
        counts_share=options.counts_share,
    )
    return dataclasses.replace(
        expected,
        epsilon=options.epsilon,
        groups=counts.groups,
        count_noise=counts.count_noise,
        smallest_change=counts.smallest_change,
    )


def shares(
    options: argparse.Namespace, groups: Sequence[object]
) -> tuple[float, float]:
    """Epsilon of the counts, if there are any, and of words and topics."""
    from dplda.document._plan import split_counts  # not for options and --help

    if not groups:
        return 0.0, options.epsilon
    return split_counts(options.epsilon, options.counts_share, options.delta)


def _fit(options: argparse.Namespace) -> int:
    from dplda.release._report import total_of  # not for options and --help

    if options.example and options.epsilon is None:
        options.epsilon = 4.0
    if options.example == (options.texts is not None) or options.epsilon is None:
        options.parser.error("give TEXTS and --epsilon, or --example in place of TEXTS")
    check_number("--epsilon", options.epsilon, 0.0, 1e9, closed="right")
    if options.texts is not None:
        choose_ledger(options)
    inputs = (options.texts, options.ledger, options.public_texts)
    check_output(options.out, *inputs, is_new=True)
    if options.report is not None:
        check_output(options.report, options.out, *inputs, is_new=True)
    groups = groupings(options)
    counts_out = counts_beside(options.out)
    if groups:
        check_output(counts_out, options.out, options.report, *inputs, is_new=True)
        if options.example:
            options.parser.error("the texts of --example have no columns to count by")
    for_counts, for_fit = shares(options, [*groups])
    public: list[str] = []
    if options.public_texts:
        public = texts_of(options, options.public_texts).texts
    model = dplda.PrivateTopicModel(
        options.n_components,
        epsilon=for_fit,
        delta=options.delta,
        vocabulary=options.language,
        max_features=options.max_features,
        stop_words=_stop_words(options),
        public_texts=public or None,
        expected_n_docs=options.n_docs,
        n_jobs=-1,
        verbose=1,
    )
    try:  # what is wrong with an option or a file shows before anything is charged
        model._steps()
        private = private_texts(options, groups, {*public} - {""})  # private
        if not is_wanted(options, groups):
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
            if groups:
                room.enter_context(reserved(counts_out, size))
                given = given_groups(options, groups, private.by)  # private
                model.fit_and_count(
                    private.texts,
                    user_ids=private.users,
                    counts_epsilon=for_counts,
                    **given,
                )
            else:
                model.fit(private.texts, user_ids=private.users)
            room.close()
            say(" ".join(private.told))
            kept = keep(model, options.out)
            kept_counts = keep_counts(model, options.out)
            say(f"Model: {kept}. It may be published.")
            counts = [model.counts_] if groups else []
            for table in counts:
                say(f"Counts: {kept_counts}. They may be published.")
                say(repr(table))
            show_topics(model.model_, model.vocabulary_)
            say(
                "Words that many texts have in common may be names: read them before "
                "you publish."
            )
            show_card(total_of(model.privacy_, counts).summary())
            if options.report is not None:
                model.report(options.report, counts=counts)
                say(f"Page: {options.report}. It may be published.")
            sys.stdout.flush()  # a reader that has ended is noticed here
    return 0


def _stop_words(options: argparse.Namespace) -> list[str] | str:
    """Those of the language, and the words of a file."""
    from dplda.datasets._words import language_words  # not for options and --help

    if options.stop_words is None:
        return "auto"
    own = options.stop_words.read_text("utf-8-sig").split()
    return sorted({*language_words(options.language)[1], *own})


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


def is_wanted(options: argparse.Namespace, groups: Mapping[str, Grouping]) -> bool:
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
        print(plan(options, n_docs, _sizes(options, groups)))
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


def _sizes(options: argparse.Namespace, groups: Mapping[str, Grouping]) -> list[int]:
    """Numbers of groups of each table."""
    sizes = [len(grouping.levels) for grouping in groups.values()]
    return [math.prod(sizes)] if options.cross and sizes else sizes


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
            kept_counts = keep_counts(model, out)
            if kept_counts is not None:
                said += f" {kept_counts}"
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
    return _saved(save, path)


def counts_beside(out: Path) -> Path:
    """The file of the counts that belong to a model."""
    return out.with_name(f"{out.stem}.counts.dplda")


def keep_counts(model: dplda.PrivateTopicModel, out: Path) -> Path | None:
    """Write the counts, if there are any."""
    if not hasattr(model, "counts_"):
        return None
    return _saved(model.counts_.save, counts_beside(out))


def _saved(save: Callable[[Path], None], path: Path) -> Path:
    """Where something was written: at its place, or elsewhere if that fails."""
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


class PrivateTexts(NamedTuple):
    """Texts, which are read as they are asked for. Private.

    The lists are whole when all texts are read.
    """

    texts: Iterable[str]
    users: list[str] | None  # None: each text is protected by itself
    by: dict[str, list[str]]  # the group of each text, for each grouping
    told: list[str]  # what was read, for the owner


def private_texts(
    options: argparse.Namespace,
    groups: Mapping[str, Grouping],
    public: Container[str] = (),
) -> PrivateTexts:
    """The texts of the options, of which none may be among public ones.

    What is wrong with the first text is said at once.
    """
    users: list[str] | None = None if options.id_column is None else []
    by: dict[str, list[str]] = {name: [] for name in groups}
    told: list[str] = []
    if getattr(options, "example", False):
        corpus = dplda.datasets.load_wordnet_glosses()
        say(corpus.DESCR)
        return PrivateTexts(corpus.data, None, by, told)
    columns = [grouping.column for grouping in groups.values()]
    rows = stream_of(options, options.texts, options.id_column, columns).rows
    first = next(rows)
    if users is None:
        say(
            "Each text is protected by itself. Persons with several texts are "
            "protected less: --user-column protects persons."
        )

    def texts() -> Iterator[str]:
        n_texts = 0
        for text, user, cells in chain([first], rows):
            if text in public:
                raise ValueError(
                    f"texts of --public-texts {options.public_texts} are among the "
                    "private texts, and epsilon does not protect them: take them out "
                    "of one place (not for release)"
                )
            n_texts += 1
            if users is not None:
                users.append(sys.intern(user or ""))  # one copy for all texts of a user
            for (name, grouping), cell in zip(groups.items(), cells):
                by[name].append(grouping.group(cell))
            yield text
        n_users = ""
        if users is not None:
            n_users = f" of {len(set(users))} users"
            warn_of_missing(users)
        told.append(f"Read: {n_texts} texts{n_users}. These numbers are private.")

    return PrivateTexts(texts(), users, by, told)


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


def _counts(options: argparse.Namespace) -> None:
    check_number("--epsilon", options.epsilon, 0.0, 1e9, closed="right")
    choose_ledger(options)
    check_output(options.out, options.model, options.texts, options.ledger, is_new=True)
    groups = groupings(options)
    if not groups:
        options.parser.error("give --by and --levels, or --by-month and --periods")
    model = dplda.load_release(options.model)
    if model.vectorizer_ is None:
        raise ValueError(
            f"{options.model} does not say how to count words; save a pipeline of "
            "vectorizer and model, as dplda fit does"
        )
    private = private_texts(options, groups)  # private
    with reserved(options.out, 2**20):
        table = dplda.private_topic_counts(
            model,
            private.texts,
            epsilon=options.epsilon,
            delta=options.delta,
            user_ids=private.users,
            ledger=open_ledger(options),
            **given_groups(options, groups, private.by),
        )
    kept = _saved(table.save, options.out)
    say(" ".join(private.told))
    say(f"Counts: {kept}. They may be published.")
    say(repr(table))
    show_card(table.privacy_.summary())
