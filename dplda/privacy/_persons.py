"""Which rows to keep so that no person is in too many of them: docs/persons.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._checks import check_integer

__all__ = ["limit_rows"]


def limit_rows(owners: Iterable[Iterable[Hashable]], max_rows: int) -> NDArray[np.intp]:
    """Choose rows so that every person is an owner of at most `max_rows` of them.

    A row may have several owners, such as the sender and the recipients of a mail. Rows are taken
    in their order. A row is left out if one of its owners has `max_rows` rows already.

    Parameters
    ----------
    owners : iterable of iterable of hashable
        The persons of each row. A row without owners is kept.
    max_rows : int
        Largest number of kept rows of one person, at least 1.

    Returns
    -------
    rows : ndarray of int
        Increasing indices of the rows that are kept. No further row could be added.

    Raises
    ------
    TypeError
        If the owners of a row are no list, such as a string, which would be taken for its letters.
    ValueError
        If an owner is missing, such as None or NaN.

    See Also
    --------
    Guarantee.for_groups : States what the kept rows guarantee for a person.

    Notes
    -----
    **Privacy.** The unit is a person, and neighbors differ in the words of all rows of one person,
    which become empty. *The lists of owners and the order of the rows are public*: they decide
    which rows are kept, and the words do not. A person then changes at most `max_rows` kept rows,
    and ``model.privacy_.for_groups(max_rows)`` is the guarantee. It says nothing about who wrote to
    whom. ``docs/persons.md`` has the proof, and shows why the lists cannot be private.

    Examples
    --------
    >>> from dplda.privacy import limit_rows
    >>> limit_rows([["ann", "bob"], ["ann", "cid"], ["ann", "bob"], ["bob", "cid"]], max_rows=2)
    array([0, 1, 3])
    """
    max_rows = check_integer("max_rows", max_rows, 1, 2**31)
    n_kept: Counter[Hashable] = Counter()
    rows = []
    for row, given in enumerate(owners):
        if isinstance(given, (str, bytes)):
            raise TypeError(
                "the owners of a row must be a list of persons, got a string; put a single person "
                'into a list, as in ["ann"]'
            )
        if not isinstance(given, Iterable):
            raise TypeError(
                f"the owners of a row must be a list of persons, got {type(given).__name__}"
            )
        persons = set(given)
        if any(map(_is_missing, persons)):
            raise ValueError(
                "an owner is missing (None or NaN), and a missing owner bounds nobody's rows; "
                "leave these rows out, or name their owners"
            )
        if all(n_kept[person] < max_rows for person in persons):
            n_kept.update(persons)
            rows.append(row)
    return np.array(rows, dtype=np.intp)


def _is_missing(person: Hashable) -> bool:
    """Whether a person is None, NaN, or pandas' NaT or NA."""
    try:
        return person is None or bool(person != person)
    except TypeError:  # NA is neither equal to itself nor different
        return True
