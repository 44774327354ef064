"""Disjoint parts of the data, of which one unit is in one only."""

from __future__ import annotations

import hashlib
import numbers
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplda.leaf._checks import check_integer

__all__ = ["user_part"]


def user_part(user_ids: Iterable[str | int], n_parts: int) -> NDArray[np.int64]:
    """Divide users into parts by a public hash.

    The part of a user depends on the user's identifier and on nothing else. Users of different
    parts therefore share no budget: pass ``ledger.part(k, of=n_parts)`` to a fit of part `k`.

    Parameters
    ----------
    user_ids : iterable of str or int
        Identifier of the user of each document. The integer 7 and the text "7" are one user.
    n_parts : int
        Number of parts, 1 or more.

    Returns
    -------
    parts : ndarray of int64, of shape (n_docs,)
        Numbers of the parts, from 0 to ``n_parts - 1``. They depend on neither the process nor the
        version of Python.

    Raises
    ------
    TypeError
        If an identifier is neither a text nor an integer. A float has several spellings.
    ValueError
        If `n_parts` is below 1.

    See Also
    --------
    Ledger.part : Charges one part.

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
    text = str(user).encode("utf-8", "surrogatepass")  # an error would show the id
    return int.from_bytes(hashlib.sha256(text).digest()[:16])


def users_of(part: int, n_parts: int) -> str:
    """Name of a part of users in a ledger."""
    n_parts = check_integer("of", n_parts, 1, 2**31)
    return f"users {check_integer('name', part, 0, n_parts - 1)}/{n_parts}"


def name_of_part(name: Any, of: int | None = None) -> str:
    """Name of a part in a ledger: of a set of documents, or with `of` of users."""
    if of is not None:
        return users_of(name, of)
    if not isinstance(name, str) or not name:
        raise ValueError(f"name must be a text that is not empty, got {name!r}")
    if number_of_user_parts(name) is not None:
        raise ValueError(f"{name!r} is a part of users; pass its number, and how many there are")
    return name


def paying_part(unit: str, part: str | None) -> str | None:
    """The part that pays for a release about `part`; None if every part pays.

    Rows are disjoint sets of documents. They are disjoint sets of users only if the rule that
    chooses them is a function of the user, as `user_part` is.
    """
    disjoint = unit == "document" or number_of_user_parts(part) is not None
    return part if disjoint else None


def number_of_user_parts(part: str | None) -> int | None:
    """How many parts of users there are, if the name is that of one; None otherwise."""
    match = re.fullmatch(r"users \d+/(\d+)", part or "")
    return None if match is None else int(match[1])
