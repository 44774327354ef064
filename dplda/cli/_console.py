"""What several commands print and draw."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it

PLOT = "install it with: pip install 'dplda[plot]'"


def say(text: str) -> None:
    """Print a paragraph."""
    print(textwrap.fill(text, 96))


def show_topics(model: Any, words: Sequence[str] | None = None) -> None:
    """Print share and typical words of each topic, the topics with the most evidence first."""
    say("Topics, with their share of all words and the ten words that distinguish them most:")
    share = model.components_.sum(axis=1) / model.components_.sum()
    typical = dplda.displays.top_words(model, words, min(10, model.components_.shape[1]))
    order, weak = dplda.displays._topics.by_evidence(model)
    for k in order:
        mark = "?" if weak[k] else " "
        print(f"  {k:3d} {share[k]:6.1%}{mark} {' '.join(map(printable, typical[k]))}")
    if weak.any():
        say(f"? marks {weak.sum()} of {len(weak)} topics as weak: likely noise, or mixtures.")


def printable(text: str) -> str:
    """A file may come from anyone: its words cannot move the cursor of a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def show_guarantee(guarantee: Any) -> None:
    """Print a guarantee, in numbers and in words."""
    print(f"epsilon  {guarantee.epsilon:.4g}")
    print(f"delta    {guarantee.delta:.4g}")
    print(f"unit     {guarantee.unit}")
    for line in str(guarantee).splitlines():
        print(textwrap.fill(line, 96, initial_indent="  ", subsequent_indent=" " * 14))


def has_matplotlib() -> bool:
    """Whether pictures can be drawn."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("agg")
    return True


def check_ending(path: Path) -> None:
    """Refuse a picture of a kind that matplotlib does not write."""
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise ValueError(f"a picture must end in {', '.join(sorted(kinds))}, got {path}")


def draw_topics(model: Any, words: Sequence[str] | None, path: Path) -> None:
    """Write a picture of the topics."""
    dplda.displays.TopicDisplay.from_estimator(model, words).figure_.savefig(path)
    say(f"Picture: {path}")
