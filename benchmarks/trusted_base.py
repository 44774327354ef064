"""The picture of docs/trusted_base.md: private values left, releases right.

``python benchmarks/trusted_base.py [--output docs/images/trusted_base.svg]``
"""

from __future__ import annotations

import argparse
from pathlib import Path

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


if __name__ == "__main__":
    main()
