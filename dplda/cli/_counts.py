"""The command ``dplda counts``: numbers of texts of a published model's topics."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._budget import (
    add_agreement,
    add_budget,
    add_ledger,
    choose_ledger,
    is_agreed,
    open_ledger,
)
from dplda.cli._groups import Grouping, add_groups, given_groups, groupings
from dplda.cli._options import (
    MODEL,
    USERS,
    AddParser,
    add_texts,
    add_verbose,
    check_output,
    is_shown,
    kept,
    model_of_texts,
    say,
    show_card,
)
from dplda.cli._private_texts import private_texts
from dplda.leaf._checks import check_epsilon
from dplda.leaf._files import reserved
from dplda.leaf._messages import Progress, named


def add_commands(add_parser: AddParser) -> None:
    """Add the options of ``dplda counts``."""
    parser = add_parser(
        "counts",
        help="count texts of each topic by group and period, with noise",
        description="Count texts, or users, of each topic of a published model by "
        "group and period, with noise. The file may be published. Nothing is charged "
        "if a file, an option or the budget is wrong.",
        epilog="example: dplda counts topics.dplda notes.csv --user-column patient "
        "--by ward --levels wards.txt --epsilon 1",
    )
    parser.set_defaults(command=_counts, parser=parser)
    add = parser.add_argument
    add("model", type=Path, help=MODEL)
    add_texts(parser, "--user-column", USERS)
    add_groups(parser)
    add_budget(add, "privacy budget of the counts", required=True)
    add(
        "--out",
        type=Path,
        metavar="FILE",
        default=Path("counts.dplda"),
        help="new file of the counts, which may be published (default: %(default)s)",
    )
    add_agreement(add)
    add_ledger(parser)
    add_verbose(parser)


def _counts(options: argparse.Namespace) -> int:
    check_epsilon(options.epsilon, "--epsilon")
    choose_ledger(options)
    check_output(options.out, options.model, options.texts, options.ledger, is_new=True)
    groups = groupings(options)
    if not groups:
        options.parser.error("give --by and --levels, or --by-month and --periods")
    model = model_of_texts(options.model)
    private = private_texts(options, groups)  # private
    if not _is_wanted(options, groups, len(model.components_)):
        return 1
    progress = Progress("dplda counts", is_shown(options))
    with reserved(options.out, 2**20):
        table = dplda.private_topic_counts(
            model,
            progress.during(private.texts, named("reading texts")),
            epsilon=options.epsilon,
            delta=options.delta,
            user_ids=private.users,
            ledger=open_ledger(options),
            **given_groups(options, groups, private.by),
        )
    written = kept(table.save, options.out)
    say(" ".join(private.told))
    say(f"Counts: {written}. They may be published.")
    say(repr(table))
    show_card(table.privacy_.summary())
    return 0


def _is_wanted(
    options: argparse.Namespace, groups: Mapping[str, Grouping], n_topics: int
) -> bool:
    """Say how much noise numbers will have; on a terminal, ask before spending."""
    from dplda.reading._groups import groups_of  # not for options and --help
    from dplda.reading._noisy_sum import noise_of_sum, noise_scale_of

    by: dict[str, list[str]] = {name: [] for name in groups}  # no column is read
    has_users = options.id_column is not None
    given = given_groups(options, groups, by)
    norm = groups_of(n_topics=n_topics, has_users=has_users, **given).norm
    noise = noise_scale_of(noise_of_sum(options.epsilon, options.delta), norm)
    unit = "users" if has_users else "texts"
    say(
        f"Each number will have noise of standard deviation {noise:.3g}. Compare it "
        f"with the {unit} that you expect in a group and topic."
    )
    return is_agreed(options, f"Spend epsilon {options.epsilon:g} on these {unit}?")
