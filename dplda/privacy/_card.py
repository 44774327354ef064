"""The rows of a guarantee as text, Markdown or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import quote

Rows: TypeAlias = Sequence[tuple[str, str]]

PAGES = "https://github.com/dplda/dplda/blob/main/docs/"

# Colors of the surrounding page, so that it is readable on light and on dark ones. Labels stand
# above their texts where there is no room beside them.
_STYLE = """\
.dplda-card{max-width:52em;border:1px solid;border-color:rgba(128,128,128,.5);border-radius:6px;
padding:.7em 1em;color:inherit;background:transparent;font-size:.95em;line-height:1.45}
.dplda-card dl{display:grid;grid-template-columns:max-content 1fr;gap:.3em 1.2em;margin:0}
.dplda-card dt{opacity:.7;margin:0}.dplda-card dd{margin:0;overflow-wrap:anywhere}
.dplda-card a{color:inherit}
@media(max-width:32em){.dplda-card dl{display:block}.dplda-card dt{margin-top:.5em}}"""


def to_text(rows: Rows) -> str:
    """One line a row; a label that repeats is printed once."""
    width = max(len(label) for label, _ in rows) + 2
    return "\n".join(f"{label:{width}}{text}" for label, text in _once(rows))


def to_markdown(rows: Rows) -> str:
    """A table of two columns."""
    lines = ["| | |", "| --- | --- |"]
    for label, text in _once(rows):
        cell = re.sub(
            r"([\\|<\[`*])", r"\\\1", text
        )  # a text may come from a file of unknown origin
        if label == "theorem":
            cell = f"[{cell}]({link(text)})"
        lines.append(f"| {label} | {cell} |")
    return "\n".join(lines)


def to_html(rows: Rows) -> str:
    """A block that needs nothing else, for notebooks."""
    parts = []
    for label, text in _once(rows):
        escaped = html.escape(text)
        if label == "theorem":
            escaped = f'<a href="{html.escape(link(text))}">{escaped}</a>'
        parts.append(f"<dt>{html.escape(label)}</dt><dd>{escaped}</dd>")
    return f'<div class="dplda-card"><style>{_STYLE}</style><dl>{"".join(parts)}</dl></div>'


def link(page: str) -> str:
    """Address of a page of the documentation."""
    return PAGES + quote(page.removeprefix("docs/"), safe="/#")


def _once(rows: Rows) -> list[tuple[str, str]]:
    before = ["", *(label for label, _ in rows)]
    return [("" if label == last else label, text) for last, (label, text) in zip(before, rows)]
