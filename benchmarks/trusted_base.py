"""The picture of docs/trusted_base.md, and the number of its files and lines.

Private values are left, releases right.

``python benchmarks/trusted_base.py [--output docs/images/trusted_base.svg]``
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "dplda"
# What the epsilon of a document-level fit rests on: the eight files of the page's first
# table, what stands beside them, and kernels with the headers that they include.
FIRST = (
    "privacy/_charge.py", "privacy/_curator.py", "privacy/_mechanisms.py",
    "privacy/_streams.py", "privacy/_ledger.py", "privacy/_accounting.py",
    "document/_contributions.py", "document/_training.py",
)  # fmt: skip
BESIDE = (
    "privacy/_events.py", "privacy/_composition.py", "privacy/_curves.py",
    "privacy/_rare.py", "privacy/_filters.py", "privacy/_store.py", "privacy/_sums.py",
    "document/_document_lda.py", "document/_rules.py", "document/_private_side.py",
    "document/_word_totals.py", "document/_topic_test.py", "core/_corpus.py",
    "leaf/_users.py",
)  # fmt: skip
KERNELS = ("_noise.pyx", "_variational.pyx", "_columns.pyx")

WIDTH, HEIGHT = 860, 330
PRIVATE, TRUSTED, PUBLIC = "#F6D5C8", "#D9E4F2", "#D8EEDC"
# x, y, width, height, color, lines of text
BOXES = [
    (10, 130, 110, 70, PRIVATE, ("X, user_ids", "private")),
    (160, 130, 150, 70, TRUSTED, ("_contributions.py", "one unit at a time")),
    (350, 130, 150, 70, TRUSTED, ("_mechanisms.py", "clip in integers, noise")),
    (540, 130, 150, 70, TRUSTED, ("_curator.py", "only what was planned")),
    (730, 130, 120, 70, PUBLIC, ("table, model", "public")),
    (350, 20, 150, 60, TRUSTED, ("_streams.py", "secret words, used once")),
    (540, 20, 150, 60, TRUSTED, ("_ledger.py", "charged before data")),
    (730, 20, 120, 60, TRUSTED, ("_accounting.py", "events to epsilon")),
    (
        160,
        250,
        530,
        60,
        TRUSTED,
        ("_rounds of the estimator", "# private, # secret, # public"),
    ),
]
# from, to, both as points
ARROWS = [
    ((120, 165), (160, 165)), ((310, 165), (350, 165)), ((500, 165), (540, 165)),
    ((690, 165), (730, 165)), ((425, 80), (425, 130)), ((615, 130), (615, 80)),
    ((690, 50), (730, 50)), ((790, 80), (790, 130)), ((235, 250), (235, 200)),
    ((615, 250), (615, 200)), ((760, 200), (690, 265)),
]  # fmt: skip


def with_headers(names: Iterable[str]) -> list[Path]:
    """Kernels, and all headers that they include."""
    waiting = list(names)
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        path = PACKAGE / "kernels" / name
        if name not in found and path.exists():
            found[name] = path
            waiting += re.findall(r'(?:include|from) "(\w+\.h)"', path.read_text())
    return [*found.values()]


def size(files: Iterable[Path]) -> str:
    """How many files and lines."""
    lines = [len(path.read_text().splitlines()) for path in files]
    return f"{len(lines)} files, {sum(lines)} lines"


def picture() -> str:
    """The picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for x, y, width, height, color, (name, role) in BOXES:
        middle, line = x + width / 2, y + height / 2
        parts += [
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" '
            f'fill="{color}" '
            'stroke="#555"/>',
            f'<text x="{middle:g}" y="{line - 4:g}" font-weight="bold">{name}</text>',
            f'<text x="{middle:g}" y="{line + 15:g}" font-size="11">{role}</text>',
        ]
    for (x1, y1), (x2, y2) in ARROWS:
        parts.append(
            f'<path d="M{x1} {y1} {x2} {y2}" stroke="black" fill="none" '
            'marker-end="url(#tip)"/>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, default=Path("docs/images/trusted_base.svg")
    )
    parser.parse_args().output.write_text(picture(), encoding="utf-8")
    first = [PACKAGE / name for name in FIRST]
    beside = [PACKAGE / name for name in BESIDE]
    kernels = with_headers(KERNELS)
    print("first", size(first))
    print("beside", size(beside))
    print("kernels", size(kernels))
    print("all", size([*first, *beside, *kernels]))


if __name__ == "__main__":
    main()
