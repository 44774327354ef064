"""Rows and the persons behind them: parts of users, and how many rows a person may have."""

from __future__ import annotations

import hashlib
import numbers
from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._checks import check_integer
from dplda.leaf._users import visible


def user_part(user_ids: Iterable[str | int], n_parts: int) -> NDArray[np.int64]:
    """Divide users into parts by a public hash of their identifiers.

    Users of different parts share no budget: pass ``ledger.part(k, of=n_parts)`` to a fit of part
    `k`.

    Parameters
    ----------
    user_ids : iterable of str or int
        Identifier of the user of each document. The integer 7 and the text "7" are one user.
    n_parts : int
        Number of parts, 1 or more.

    Returns
    -------
    parts : ndarray of int64, of shape (n_docs,)
        Numbers from 0 to ``n_parts - 1``, the same on every machine.

    Raises
    ------
    TypeError
        If an identifier is neither a text nor an integer. A float has several spellings.

    Examples
    --------
    >>> from dplda.privacy import user_part
    >>> user_part(["ada", "bob", "ada"], 5).tolist()
    [3, 0, 3]
    """
    n_parts = check_integer("n_parts", n_parts, 1, 2**31)
    return np.array([_hash(user) % n_parts for user in user_ids], dtype=np.int64)


def _hash(user: str | int) -> int:
    if isinstance(user, bool) or not isinstance(user, (str, numbers.Integral)):
        raise TypeError(
            f"user_ids must be texts or integers, got {type(user).__name__}; convert them so that "
            "each user has one identifier"
        )
    text = str(visible(user)).encode("utf-8", "surrogatepass")  # an error would show the id
    return int.from_bytes(hashlib.sha256(text).digest()[:16])


def limit_rows(owners: Iterable[Iterable[Hashable]], max_rows: int) -> NDArray[np.intp]:
    """Choose rows so that every person is an owner of at most `max_rows` of them.

    Rows are taken in their order. A row is left out if one of its owners, such as the sender and
    the recipients of a mail, has `max_rows` rows already.

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

    Notes
    -----
    **Privacy.** The unit is a person, and neighbors differ in the words of all rows of one person,
    which become empty. *The lists of owners and the order of the rows are public*. Then
    ``model.privacy_.for_groups(max_rows)`` is the guarantee. It says nothing about who wrote to
    whom. ``docs/proofs_document.md`` has the proof, and shows why the lists cannot be private.

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
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise TypeError(
                'the owners of a row must be a list of persons, such as ["ann"], got '
                f"{type(given).__name__}"
            )
        persons = set(map(visible, given))
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
