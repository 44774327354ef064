"""Private texts of the options, which are read one after the other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._groups import Grouping
from dplda.cli._options import say, stream_of
from dplda.leaf._messages import warn_user
from dplda.text._text_files import Estimated

# how programs write a missing id, in capitals
MISSING = {"NA", "N/A", "NAN", "NULL", "NONE"}


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

    An error in the first text is raised at once.
    """
    from dplda.leaf._users import IdColumn  # not for options and --help

    users = None if options.id_column is None else IdColumn(options.id_column)
    by: dict[str, list[str]] = {name: [] for name in groups}
    told: list[str] = []
    columns = [grouping.column for grouping in groups.values()]
    stream = stream_of(options, options.texts, options.id_column, columns)
    first = next(stream.rows)
    if users is None:
        say(
            "Each text is protected by itself. Persons with several texts are "
            "protected less: --user-column protects persons."
        )

    def texts() -> Iterator[str]:
        n_texts = 0
        for text, user, cells in chain([first], stream.rows):
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
                by[name].append(sys.intern(grouping.group(cell)))  # one copy, too
            yield text
        n_users = ""
        if users is not None:
            n_users = f" of {len(set(users))} users"
            _warn_of_missing(users)
        told.append(f"Read: {n_texts} texts{n_users}. These numbers are private.")

    read = Estimated(texts(), stream.share_read)
    return PrivateTexts(read, users, by, told)


def _warn_of_missing(users: list[str]) -> None:
    """Tell the owner of the texts of ids that stand for missing ones."""
    n_missing = sum(user.upper() in MISSING for user in users)
    if n_missing:
        warn_user(
            f"{n_missing} texts have an id such as NA or NULL, which many programs "
            "write for a missing id. They count as texts of one user: if several "
            "persons wrote them, each is protected less; leave these texts out, or "
            "find out whose they are (not for release)",
            dplda.privacy.PrivateDataWarning,
        )
