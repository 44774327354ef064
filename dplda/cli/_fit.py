"""The commands ``dplda fit``, from files to a published model, and ``dplda plan``.

`PrivateTopicModel` does the work. The expected result is shown, room for the model is
reserved, and all texts are read, one after the other, before the ledger is charged.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._budget import (
    NOTHING,
    add_agreement,
    add_budget,
    add_ledger,
    choose_ledger,
    is_agreed,
    open_ledger,
)
from dplda.cli._groups import Grouping, add_groups, given_groups, groupings
from dplda.cli._options import (
    USERS,
    AddParser,
    add_texts,
    add_verbose,
    check_output,
    is_shown,
    kept,
    public_text,
    save_words,
    say,
    show_card,
    show_topics,
    texts_of,
    words_beside,
)
from dplda.cli._private_texts import PrivateTexts, private_texts
from dplda.leaf._checks import check_epsilon
from dplda.leaf._files import reserved

if TYPE_CHECKING:
    from dplda.document._plan import Plan

EPSILON = 4.0  # of the example and of a plan


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
    add_texts(parser, "--user-column", USERS, "?")
    _add_model(parser, is_plan=False)
    add = parser.add_argument
    add(
        "--stop-words",
        type=Path,
        metavar="FILE",
        help="words that do not count, such as names of staff, in addition to the stop "
        "words of the language; public, and not picked by reading the texts",
    )
    add_groups(parser)
    _add_counts_share(parser)
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
    add_agreement(add)
    add(
        "--example",
        action="store_true",
        help="use public texts that dplda ships with; epsilon is "
        f"{EPSILON:g} unless given",
    )
    add(
        "--public-texts",
        type=Path,
        metavar="TEXTS",
        help="public texts of the same kind: better topics, at no cost",
    )
    add_ledger(parser)
    add_verbose(parser)
    parser = add_parser(
        "plan",
        help="say what to expect of a fit, before any data are read",
        description="Say what to expect of a topic model of texts, before any data are "
        "read. Give public expectations, not counts of the private texts.",
        epilog="example: dplda plan --n-docs 6000 --epsilon 4",
    )
    parser.set_defaults(command=_plan)
    _add_model(parser, is_plan=True)
    parser.add_argument(
        "--groups",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="numbers of groups of counts, such as 9 12 for wards and months",
    )
    _add_counts_share(parser)


def _add_counts_share(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--counts-share",
        type=float,
        help="share of the counts in the budget (default: that of dplda.plan, 0.2)",
    )


def _add_model(parser: argparse.ArgumentParser, *, is_plan: bool) -> None:
    """Add the budget and the sizes of a model."""
    add = parser.add_argument_group("model").add_argument
    add_budget(add, "total privacy budget", default=EPSILON if is_plan else None)
    add(
        "--n-components",
        type=_number_or_auto,
        default=20,
        help="number of topics; auto is the number that a plan recommends for "
        "--n-docs (default: %(default)s)",
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
        help="language of the public word list, such as de (default: %(default)s); "
        "languages other than English need wordfreq",
    )
    add(
        "--n-docs",
        type=int,
        required=is_plan,
        help="expected number of texts, or of users if users are protected: public "
        "knowledge, not a count",
    )


def _number_or_auto(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a whole number or auto, got {text!r}"
        ) from None


def _plan(options: argparse.Namespace) -> None:
    _settle(options, options.groups)
    print(plan(options, options.n_docs, options.groups))


def _settle(options: argparse.Namespace, groups: Sequence[object]) -> None:
    """Take the recommended number of topics, if --n-components is auto."""
    if options.n_components == "auto":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a number that nobody chose
            expected = _of_topics(options, options.n_docs, groups)
        options.n_components = expected.recommended_components


def _of_topics(
    options: argparse.Namespace, n_docs: int, groups: Sequence[object]
) -> Plan:
    """What to expect of the topics, after paying for words and counts."""
    from dplda.text._parts import what_to_expect  # not for options and --help

    _, epsilon = shares(options, groups)
    return what_to_expect(
        dplda.PrivateTopicModel(
            options.n_components,
            epsilon=epsilon,
            delta=options.delta,
            vocabulary=options.language,
            max_features=options.max_features,
            expected_n_docs=n_docs,
        )
    )


def plan(options: argparse.Namespace, n_docs: int, groups: Sequence[int]) -> Plan:
    """What to expect of these options."""
    expected = _of_topics(options, n_docs, groups)
    if not groups:
        return expected
    counts = dplda.plan(
        n_docs=n_docs,
        epsilon=options.epsilon,
        delta=options.delta,
        n_components=options.n_components,
        groups=groups,
        counts_share=_counts_share(options),
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
    """Epsilon of the counts, 0 without groups, and of words and topics."""
    from dplda.document._plan import split_counts  # not for options and --help

    if not groups:
        if options.counts_share is not None:
            raise ValueError("--counts-share needs groups, which are counted")
        return 0.0, options.epsilon
    return split_counts(options.epsilon, _counts_share(options), options.delta)


def _counts_share(options: argparse.Namespace) -> float:
    """Share of the counts in the budget."""
    from dplda.document._plan import COUNTS_SHARE  # not for options and --help

    given: float | None = options.counts_share
    return COUNTS_SHARE if given is None else given


def _fit(options: argparse.Namespace) -> int:
    from dplda.text._parts import parts_of  # not for options and --help

    groups = _checked(options)
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
        verbose=int(is_shown(options)),
    )
    try:  # a wrong option or file is an error before anything is charged
        parts_of(model)
        if options.example:
            private = _example()
        else:
            private = private_texts(options, groups, {*public} - {""})  # private
        if not is_wanted(options, groups):
            return 1
    except KeyboardInterrupt:
        print(NOTHING, file=sys.stderr)
        raise
    model.expected_n_docs = None  # what it warns of has been said
    # tables, and long words; the guarantee
    size = 8 * (options.n_components + 8) * options.max_features + 2**17
    with ExitStack() as room:
        room.enter_context(reserved(options.out, size))
        model.ledger = open_ledger(options)
        with accounted(model, options.out, room):
            if groups:
                room.enter_context(reserved(counts_beside(options.out), size))
                given = given_groups(options, groups, private.by)  # private
                model.fit_and_count(
                    private.texts,
                    user_ids=private.users,
                    counts_epsilon=for_counts,
                    **given,
                )
            else:
                model.fit(private.texts, user_ids=private.users)
            say(" ".join(private.told))
            _show(model, options, room)
    return 0


def _checked(options: argparse.Namespace) -> dict[str, Grouping]:
    """The groups of the options, if all options fit. It reads no texts."""
    if options.example and options.epsilon is None:
        options.epsilon = EPSILON
    if options.example == (options.texts is not None) or options.epsilon is None:
        options.parser.error("give TEXTS and --epsilon, or --example instead of TEXTS")
    check_epsilon(options.epsilon, "--epsilon")
    if options.texts is not None:
        choose_ledger(options)
    inputs = (options.texts, options.ledger, options.public_texts)
    check_output(options.out, *inputs, is_new=True)
    if options.report is not None:
        check_output(options.report, options.out, *inputs, is_new=True)
    groups = groupings(options)
    if groups:
        others = (options.out, options.report, *inputs)
        check_output(counts_beside(options.out), *others, is_new=True)
        if options.example:
            options.parser.error("the texts of --example have no columns to count by")
    if options.n_components == "auto" and options.n_docs is None:
        options.parser.error(
            "--n-components auto needs --n-docs, a public guess of the number of "
            "texts, or of users"
        )
    _settle(options, [*groups])
    return groups


def _example() -> PrivateTexts:
    """Public texts, which a fit reads instead of private ones."""
    corpus = dplda.datasets.load_wordnet_glosses()
    say(corpus.DESCR)
    return PrivateTexts(corpus.data, None, {}, [])


def _show(
    model: dplda.PrivateTopicModel, options: argparse.Namespace, room: ExitStack
) -> None:
    """Write what was fitted, and say what it is."""
    from dplda.release._report import total_of  # not for options and --help

    written = keep(model, options.out, room)
    room.close()
    say(f"Model: {written[0]}. It may be published.")
    counts = [model.counts_] if len(written) > 1 else []
    for table in counts:
        say(f"Counts: {written[1]}. They may be published.")
        say(repr(table))
    show_topics(model.model_, model.vocabulary_)
    say(
        "Words that many texts have in common may be names. Read them before you "
        "publish."
    )
    show_card(total_of(model.privacy_, counts).summary())
    if options.report is not None:
        model.report(options.report, counts=counts)
        say(f"Page: {options.report}. It may be published.")
    if sys.stdout is not None:  # closed
        sys.stdout.flush()  # a reader that has ended is noticed here


def _stop_words(options: argparse.Namespace) -> list[str] | str:
    """The stop words of the language, and the words of a file."""
    from dplda.datasets._words import language_words  # not for options and --help

    if options.stop_words is None:
        return "auto"
    own = public_text(options.stop_words).split()
    return sorted({*language_words(options.language)[1], *own})


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
        warnings.simplefilter("ignore")  # the fit gives the same warnings
        print(plan(options, n_docs, _sizes(options, groups)))
    if not options.public_texts:
        say(
            "Public texts of the same kind (--public-texts) give better topics at no "
            "cost."
        )
    question = f"Spend epsilon {options.epsilon:g} on these {unit}?"
    return options.example or is_agreed(options, question)


def _sizes(options: argparse.Namespace, groups: Mapping[str, Grouping]) -> list[int]:
    """Numbers of groups of each table."""
    sizes = [len(grouping.levels) for grouping in groups.values()]
    return [math.prod(sizes)] if options.cross and sizes else sizes


@contextmanager
def accounted(
    model: dplda.PrivateTopicModel, out: Path, room: ExitStack
) -> Iterator[None]:
    """If a job ends early, say what was spent, and keep what it paid for.

    `room` is what was reserved for it on the disk.
    """
    ledger = model.ledger
    before = len(ledger.entries())
    try:
        yield
    except BaseException:
        said = NOTHING
        # another process may charge the ledger meanwhile
        own = [e for e in ledger.entries()[before:] if e.process == os.getpid()]
        if any(entry.counts for entry in own):
            where = "" if ledger.path is None else f" in {ledger.path}"
            try:
                files = " ".join(map(str, keep(model, out, room))) or "none"
            except OSError as error:  # of the second place, too
                files = f"none, as no file can be written ({error})"
            said = (
                "The job has ended early, and stays charged: epsilon "
                f"{ledger.epsilon_spent:.4g} of {ledger.epsilon:g} is spent{where}. "
                f"Results that are paid for, and may be published: {files}"
            )
        print(said, file=sys.stderr)
        raise


def keep(model: dplda.PrivateTopicModel, out: Path, room: ExitStack) -> list[Path]:
    """Write the model, or its words if it has no topics yet, and then the counts."""
    written = []
    if hasattr(model, "components_"):
        written.append(kept(model.save, out, room))
    elif hasattr(model, "vectorizer_"):
        words = model.vectorizer_.get_feature_names_out()
        save = partial(save_words, words=words)
        written.append(kept(save, words_beside(out), room))
    if hasattr(model, "counts_"):
        written.append(kept(model.counts_.save, counts_beside(out), room))
    return written


def counts_beside(out: Path) -> Path:
    """The file of the counts that belong to a model."""
    return out.with_name(f"{out.stem}.counts.dplda")
