"""HTML in which every text is escaped: only `element` makes markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

LETTERS_SHOWN = 60  # of a word, an n-gram or a name: more would widen the page
JOINERS = "\u200c\u200d"  # of Persian and Indian scripts
EMPTY = ("rect", "circle", "path", "polygon", "polyline", "col")


class Html(str):
    """Markup: text that `element` has made."""


def element(name: str, *inside: str, **attributes: object) -> Html:
    """An element; texts inside of it, and its attributes, are escaped.

    ``class_`` is the attribute class, and ``data_k`` is data-k.
    """
    given = ""
    for key, value in attributes.items():
        if value is not None:
            given += f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
    if not inside and name in EMPTY:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Markup as it is, and texts escaped."""
    return Html(
        "".join(
            p if isinstance(p, Html) else html.escape(clean(p, None)) for p in parts
        )
    )


def clean(text: object, longest: int | None = LETTERS_SHOWN) -> str:
    """A text of unknown origin without control and direction characters, cut."""
    letters = str(text)
    if longest is not None and len(letters) > longest:
        letters = letters[: longest - 1] + "…"
    return "".join(c if c.isprintable() or c in JOINERS else "?" for c in letters)


def percent(share: float) -> str:
    return f"{share:.0%}" if share == 0 or share >= 0.0995 else f"{share:.1%}"


def table_of(
    caption: str,
    head: Iterable[Html],
    rows: Iterable[Html],
    *,
    class_: str | None = None,
    columns: str = "",
) -> Html:
    """A table; `columns` are the classes of its columns, of a letter each."""
    parts = [element("caption", caption)]
    if columns:
        widths = [element("col", class_=letter) for letter in columns]
        parts.append(element("colgroup", *widths))
    cells = [*head]
    if cells:
        parts.append(element("thead", element("tr", *cells)))
    return element("table", *parts, element("tbody", *rows), class_=class_)


def details(summary: str, *inside: str) -> Html:
    """What opens at a click."""
    return element("details", element("summary", summary), *inside)
