"""The protected unit: a document, or with user ids all documents of a user."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from numbers import Integral
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike

RELATIONS = {
    "document": "one document is added, removed, or replaced by an empty one",
    "user": (
        "one user is added or removed with all documents, "
        "or the documents of that user become empty"
    ),
}
ROWS_OF_A_UNIT = {
    "document": (
        "one row of X holds everything that one protected unit contributed, and no "
        "document occurs in two rows, as in a bootstrap sample"
    ),
    "user": (
        "each user has one id, every row with anything of the user carries it, no two "
        "users share an id, and all fits that are added up have the same ids"
    ),
}


class IdColumn(list[str]):
    """The ids in a column of a file. Its name is public (`charged_unit`)."""

    def __init__(self, name: str, ids: Iterable[str] = ()) -> None:
        super().__init__(ids)
        self.name = name


def protected_unit(user_ids: object) -> str:
    """What the guarantee protects.

    It depends on whether ids are given, not on the ids.
    """
    return "document" if user_ids is None else "user"


def charged_unit(user_ids: object, unit: str | None = None) -> str:
    """The unit of a charge: ids with another name stand for another unit.

    Persons and households are both users, but their costs differ. The name of a table's
    column tells them apart, also that of a CountShards, which holds the ids.
    """
    unit = protected_unit(user_ids) if unit is None else unit
    name = column_name(user_ids)
    if unit == "user" and name:
        return f"{unit} by {name!r}"
    return unit


def relation_of(charged: str) -> str:
    """How neighbors differ in one unit of a charge, in words.

    Guarantees with another relation do not add up.
    """
    unit, _, column = charged.partition(" by ")
    names = f"; the column {column} tells users apart" if column else ""
    return RELATIONS[unit] + names


def column_name(user_ids: object) -> str:
    """The name of a column of ids, or its number in a table without names; or empty."""
    name = getattr(user_ids, "name", None)
    return str(name) if isinstance(name, (str, Integral, tuple)) else ""


def number_users(user_ids: ArrayLike | None, n_docs: int) -> np.ndarray | None:
    """Number of each row's user, from 0, in order of occurrence; None without ids.

    Ids are compared as they are. A conversion could make two ids equal: numbers to
    text, or large integers to floats. Texts that look the same are an error: as two
    users, one person would be protected less, and as one user, two persons. Errors name
    types, and quote neither ids nor numbers of rows.
    """
    if user_ids is None:
        return None
    is_whole = type(user_ids) is np.ndarray and user_ids.dtype.kind in "iu"
    ids = np.asarray(user_ids) if is_whole else as_objects(user_ids, "user_ids")
    if ids.ndim != 1:
        raise ValueError(
            "user_ids must be one-dimensional, with one id for each row of X, got "
            f"{ids.ndim} dimensions; pass one column as a list or an array"
        )
    if len(ids) != n_docs:
        found = "more" if len(ids) > n_docs else "fewer"
        raise ValueError(
            f"user_ids must have one id for each row of X, got {found} ids than rows; "
            "select rows of both alike"
        )
    if is_whole:  # they look different, and as objects they would take much memory
        _, first, place = np.unique(ids, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[place]
    if len(ids) and all(isinstance(i, UUID) for i in ids):
        ids = np.array([str(i) for i in ids], dtype=object)
    kinds = set(map(type, ids))
    whole = all(issubclass(kind, Integral) and kind is not bool for kind in kinds)
    if not whole and not all(issubclass(kind, str) for kind in kinds):
        found = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            "user_ids must be integers only, strings only or UUIDs only, and none may "
            f"be missing, got values of type {found}; convert all ids to strings, and "
            "leave out rows without an id"
        )
    number = defaultdict[object, int]()
    number.default_factory = number.__len__
    users = np.fromiter(map(number.__getitem__, ids), np.int64, len(ids))
    # all rows without an id would be one user: refuse them
    if len(set(map(canonical_id, number))) < len(number):
        raise ValueError(
            "user_ids holds ids that look the same: they differ in spaces, "
            "in characters without a width, or in how accents are encoded (NFC and "
            "NFD); write the ids of one user in one way, and give different users "
            "different ids"
        )
    return users


def canonical_id(given: object, name: str = "user_ids") -> str:
    """The one text by which an id of a user or of a document is compared.

    It is the visible text: NFC, without format characters, with one blank for each run
    of blanks and none around the text. The integer 7 and the text "7" are one id,
    because tables are read with either. Errors name the parameter, and quote no id.
    """
    if not is_label(given):
        raise TypeError(
            f"{name} must be texts or integers, got {type(given).__name__}; convert "
            "them so that each user or document has one id"
        )
    text = visible_text(given)  # type: ignore[arg-type]
    if not text:
        raise ValueError(
            f"{name} must not be empty texts, which stand for missing ids in tables; "
            "leave out rows without an id, or find out whose they are"
        )
    return text


def visible_text(given: str | Integral) -> str:
    """What can be seen of a text or an integer: two that look the same are equal."""
    text = str(given)
    if not text.isascii():
        composed = unicodedata.normalize("NFC", text)
        kept = [c for c in composed if unicodedata.category(c) != "Cf"]
        text = unicodedata.normalize("NFC", "".join(kept))
    return " ".join(text.split())


def is_label(value: object) -> bool:
    """Whether a value of a column has a text of its own, whatever the others are.

    Floats have none: a missing value makes them of a whole column of integers.
    """
    is_truth = isinstance(value, (bool, np.bool_))
    return isinstance(value, (str, Integral)) and not is_truth


def as_objects(column: ArrayLike, name: str) -> np.ndarray:
    """An array of the values themselves; masked ones become None."""
    if isinstance(column, np.ma.MaskedArray):
        values = column.data.astype(object)
        values[np.ma.getmaskarray(column)] = None
        return values
    try:
        return np.asarray(column, dtype=object)
    except Exception:  # its message may quote a value
        raise ValueError(
            f"{name} must be an array or a list of integers or strings"
        ) from None
