"""Checks of single numbers and of texts of unknown origin."""

from __future__ import annotations

import html
import math
import re
from numbers import Integral, Real
from typing import Literal

# A mechanism that publishes each unit with probability delta satisfies it: with a
# larger delta, some units may be published whole.
LARGEST_DELTA = 1e-3
LARGEST_INTEGER = 2**31 - 1  # indices are int32
# Of an epsilon, a noise multiplier, the inverse of one, and a prior: exp(epsilon) is
# useless long before, and sums with it are finite, also in single precision.
LARGEST = 1e9


def check_number(
    name: str, value: object, low: float, high: float, *, closed: str = "both"
) -> float:
    """Return `value` as a float in an interval; `closed` says which ends belong to it.

    A number that is too large for a float counts as infinite. A bool, or anything but a
    real number, is a TypeError.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:  # an int beyond the largest float
        number = math.inf if value > 0 else -math.inf  # type: ignore[operator]
    takes_low = closed in ("both", "left")
    takes_high = closed in ("both", "right")
    above = number >= low if takes_low else number > low
    below = number <= high if takes_high else number < high
    if not (above and below):
        left = "[" if takes_low else "("
        right = "]" if takes_high else ")"
        raise ValueError(
            f"{name} must be a number in {left}{low:.10g}, {high:.10g}{right}, got "
            f"{number:.10g}"
        )
    return number


def check_integer(
    name: str, value: object, low: int, high: int = LARGEST_INTEGER
) -> int:
    """Return `value` as an int from `low` to `high`; a bool is a TypeError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    number = int(value)
    if not low <= number <= high:
        shown = number if abs(number) < 10**30 else "a number of more than 30 digits"
        raise ValueError(f"{name} must be an integer from {low} to {high}, got {shown}")
    return number


def check_probability(name: str, value: object) -> float:
    """Return `value` as a float in [0, 1)."""
    return check_number(name, value, 0.0, 1.0, closed="left")


def check_epsilon(value: object, name: str = "epsilon") -> float:
    """Return an epsilon above 0 as a float; infinity is refused."""
    return check_number(name, value, 0.0, LARGEST, closed="right")


def check_delta(value: object, least: float = 0.0) -> float:
    """Return a delta of a budget as a float."""
    return check_number("delta", value, least, LARGEST_DELTA)


def escaped(text: str, form: Literal["plain", "markdown", "html"] = "plain") -> str:
    """A text of unknown origin, such as a word of a release, for a terminal or a page.

    The text cannot move a cursor, or become a link, picture, formula or script.
    """
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    if form == "markdown":
        return re.sub(r"([\\|<>\[\]`*_~&@$]|:(?=//)|(?<=www)\.)", r"\\\1", text)
    return html.escape(text) if form == "html" else text
