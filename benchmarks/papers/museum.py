"""The picture of the museum: claimed epsilons against the lower bounds that attacks find.

``python benchmarks/papers/museum.py --pictures docs/images`` reads the tables of docs/museum.md and
of docs/audits.md, which the other scripts print.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs"
LEAST = 0.01  # smaller bounds are drawn here
COLORS = {"refuted": "#D55E00", "not refuted": "#0072B2"}
PLACES = {  # of a label, next to its point: (points to the right, points up, alignment)
    ("SUB-LDA", 1.62): (0, -13, "center"),
    ("SUB-LDA", 5.16): (7, -3, "left"),
    ("private SVI", 1.0): (7, -3, "left"),
    ("Spectral LDA", 1.0): (0, 7, "center"),
    ("DP-NMF", 2.32): (0, 7, "center"),
    ("TopicDP", 5.0): (-6, -11, "right"),
}


class Point(NamedTuple):
    """One line of a table."""

    section: str
    release: str
    claimed: float
    bound: float
    verdict: str


def points_of_museum() -> list[Point]:
    """The tables of docs/museum.md: release, claim, bound, verdict."""
    found, section = [], ""
    for line in (DOCS / "museum.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        cells = cells_of(line)
        if len(cells) == 4 and cells[3].strip("*") in COLORS:
            release, claimed, bound, verdict = cells
            found.append(Point(section, release, float(claimed), float(bound), verdict.strip("*")))
    return found


def points_of_audits() -> list[Point]:
    """The table "As published" of docs/audits.md: release, relation, bound, claim, verdict."""
    text = (DOCS / "audits.md").read_text(encoding="utf-8")
    table = re.search(r"### As published.*?(?=\n### )", text, flags=re.DOTALL)[0]
    rows = [cells for cells in map(cells_of, table.splitlines()) if len(cells) == 5][2:]
    return [
        Point(name.split(":")[0], name, float(claimed), float(bound), verdict.strip("*"))
        for name, _, bound, claimed, verdict in rows
    ]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def draw(points: list[Point], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.5, 5.6), layout="constrained")
    ends = [LEAST, 15]
    ax.fill_between(ends, ends, ends[1], color="#F6E8E0", zorder=0)
    ax.plot(ends, ends, color="#808080", lw=1)
    for verdict, color in COLORS.items():
        chosen = [point for point in points if point.verdict == verdict]
        ax.scatter(
            [point.claimed for point in chosen], [max(point.bound, LEAST) for point in chosen],
            color=color, s=28, label=verdict, zorder=3,
        )  # fmt: skip
    highest = {}
    for p in points:
        if p.verdict == "refuted":
            at = p.section, p.claimed
            highest[at] = max(p.bound, highest.get(at, 0.0))
    for at, bound in highest.items():
        right, up, side = PLACES.get(at, (-7, -3, "right"))
        ax.annotate(
            at[0], (at[1], bound), (right, up), textcoords="offset points", ha=side, fontsize=8
        )
    ax.text(0.055, 12, "the claim is refuted", fontsize=9, color="#803000")
    ax.text(9, 0.0115, "bounds below 0.01 are drawn at 0.01", fontsize=7, ha="right")
    ax.set(xscale="log", yscale="log", xlim=(0.05, 10), ylim=(0.8 * LEAST, ends[1]))
    ax.set_xlabel("claimed epsilon")
    ax.set_ylabel("epsilon at least, by the attack")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.02))
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, default=DOCS / "images")
    draw(points_of_audits() + points_of_museum(), parser.parse_args().pictures / "museum.png")


if __name__ == "__main__":
    main()
