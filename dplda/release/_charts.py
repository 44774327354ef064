"""Charts of a page: SVG with attributes alone, as its policy allows no style."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TypeAlias, TypedDict

import numpy as np

from dplda.release._markup import Html, clean, element, joined, percent

MAP = (760, 460)  # width and height, as of all figures in pixels
LINE = 16  # height of a name
PERIOD = re.compile(r"\d{4}(-?(\d\d|W\d\d|Q[1-4]))?(-\d\d)?")


class Topic(TypedDict):
    """What the page knows of a topic."""

    topic: int  # its row
    name: str
    named: bool  # by the publisher
    weak: bool
    share: float
    z: float | None  # None: not tested
    listed: list[str]  # more of its words
    word: list[int]  # places in the words of the page
    p: list[float]
    stands: list[int]
    place: list[float]  # on the map
    nearest: int | None


def bar(share: float, largest: float, is_weak: bool) -> Html:
    width = f"{100 * share / largest:.1f}"
    kind = "mute" if is_weak else "main"
    return element(
        "svg",
        element("rect", class_=kind, width=width, height=10),
        class_="bar",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def map_of(topics: list[Topic]) -> Html:
    """Circles at the places of topics, with names where there is room."""
    edge = 56
    place = np.array([topic["place"] for topic in topics])
    low = place.min(axis=0)
    span = np.maximum(np.ptp(place, axis=0), 1e-9)
    # one scale for both axes: distances keep their meaning
    scale = ((np.array(MAP) - 2 * edge) / span).min()
    at = (place - low - span / 2) * scale + np.array(MAP) / 2
    largest = max(topic["share"] for topic in topics)
    radius = [max(9.0, 27 * math.sqrt(t["share"] / largest)) for t in topics]
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(at, radius)]
    lines = []
    labels = []
    for i, (topic, (x, y), r) in enumerate(zip(topics, at, radius)):
        number = str(topic["topic"])
        labels.append(
            element("text", number, class_="no", x=f"{x:.1f}", y=f"{y + 4:.1f}")
        )
        name = clean(topic["name"], 30)
        length = 6.7 * len(name)  # of the width of a letter
        spot = None if topic["weak"] else _room(i, x, y, r, length, taken)
        if spot is None:
            continue
        left, top, line = spot
        taken.append((left, top, left + length, top + LINE))
        lines.append(line)
        labels.append(
            element("text", name, class_="name", x=f"{left:.1f}", y=f"{top + 12:.1f}")
        )
    # small circles lie on large ones
    order = sorted(range(len(topics)), key=lambda i: -radius[i])
    return element(
        "svg",
        *(_circle(topics[i], at[i, 0], at[i, 1], radius[i]) for i in order),
        *lines,
        *labels,
        class_="map",
        viewBox="0 0 {} {}".format(*MAP),
        role="group",
        aria_label="Map of topics",
    )


def _circle(topic: Topic, x: float, y: float, r: float) -> Html:
    """The circle of a topic, which leads to its words."""
    kind = "weak" if topic["weak"] else "dot"
    return element(
        "a",
        element("title", f"{topic['name']}, {percent(topic['share'])}"),
        element("circle", class_=kind, cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{r:.1f}"),
        href="#words",
        data_k=topic["topic"],
        aria_label=f"Topic {topic['topic']}: {topic['name']}",
    )


def _room(
    i: int,
    x: float,
    y: float,
    r: float,
    length: float,
    taken: list[tuple[float, float, float, float]],
) -> tuple[float, float, Html] | None:
    """Where a name fits beside circle i, and the line that leads to it."""
    width, height = MAP
    for far in (4, 22, 40, 60):
        for eighth in (0, 4, 6, 2, 7, 1, 5, 3):
            c = math.cos(eighth * math.pi / 4)
            d = math.sin(eighth * math.pi / 4)
            px = x + (r + far) * c
            py = y + (r + far) * d
            left = px - length * (1 - c) / 2
            top = py - 8 + 8 * d
            right = left + length
            low = top + LINE
            if left < 0 or right > width or top < 0 or low > height:
                continue
            if all(
                left > box[2] or right < box[0] or top > box[3] or low < box[1]
                for j, box in enumerate(taken)
                if j != i
            ):
                start = f"M{x + r * c:.1f} {y + r * d:.1f}L{px:.1f} {py:.1f}"
                line = element("path", class_="axis", d=start) if far > 4 else Html()
                return left, top, line
    return None


# a count, and the ends of its interval, of each group
Cells: TypeAlias = list[list[float]]


def _lines(levels: list[str], cells: Cells, top: float) -> tuple[int, int, Html]:
    """A line over periods, with the band of its intervals."""
    width = 260
    height = 118
    left = 32
    base = 96
    step = (width - left - 8) / len(levels)
    x = [left + step * (i + 0.5) for i in range(len(levels))]

    def points(values: Iterable[float], xs: Iterable[float]) -> str:
        return " ".join(
            f"{a:.1f},{base - 84 * v / top:.1f}" for a, v in zip(xs, values)
        )

    upper = points([high for _, _, high in cells], x)
    lower = points([low for _, low, _ in reversed(cells)], reversed(x))
    frame = f"M{left} {base}H{width - 4}M{left} 12H{width - 4}"
    return (
        width,
        height,
        joined(
            [
                element("polygon", class_="band", points=f"{upper} {lower}"),
                element(
                    "polyline",
                    class_="line",
                    points=points([count for count, _, _ in cells], x),
                ),
                element("path", class_="axis", d=frame),
                element("text", "0", x=left - 4, y=base + 4, class_="end"),
                element("text", f"{top:g}", x=left - 4, y=16, class_="end"),
                element("text", clean(levels[0], 12), x=left, y=height - 6),
                element(
                    "text",
                    clean(levels[-1], 12),
                    x=width - 4,
                    y=height - 6,
                    class_="end",
                ),
            ]
        ),
    )


def _dots(levels: list[str], cells: Cells, top: float) -> tuple[int, int, Html]:
    """A row for each group: a dot, and the line of its interval."""
    width = 300
    left = 112
    step = 17
    height = step * len(levels) + 20

    def x(value: float) -> str:
        return f"{left + (width - left - 18) * value / top:.1f}"

    at = [10 + step * i for i in range(len(levels))]
    names = [
        element("text", clean(name, 17), x=left - 6, y=y + 4, class_="end")
        for name, y in zip(levels, at)
    ]
    reach = "".join(f"M{x(low)} {y}H{x(high)}" for y, (_, low, high) in zip(at, cells))
    dots = "".join(f"M{x(count)} {y}h0" for y, (count, _, _) in zip(at, cells))
    frame = f"M{left} 2V{height - 18}M{x(top)} 2V{height - 18}"
    return (
        width,
        height,
        joined(
            [
                element("path", class_="axis", d=frame),
                *names,
                element("path", class_="whisker", d=reach),
                element("path", class_="point", d=dots),
                element("text", "0", x=left, y=height - 4, class_="mid"),
                element("text", f"{top:g}", x=x(top), y=height - 4, class_="mid"),
            ]
        ),
    )


def round_up(value: float) -> float:
    """A round number of at least this size, for the end of an axis."""
    step = 10.0 ** math.floor(math.log10(max(value, 1e-9)))
    return next(
        step * m for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 20) if step * m >= value
    )


def chart(
    topic: Topic, levels: list[str], cells: Cells, top: float, is_time: bool, mark: bool
) -> Html:
    width, height, drawing = (_lines if is_time else _dots)(levels, cells, top)
    flat = Html() if mark else element("small", " (flat within noise)")
    most = "no difference beyond noise"
    if mark:
        (count, low, high), level = max(zip(cells, levels))
        most = f"most in {level}, {count:.0f} ({low:.0f} to {high:.0f})"
    return element(
        "figure",
        element(
            "figcaption",
            element("b", str(topic["topic"])),
            f" {topic['name']}",
            flat,
        ),
        element(
            "svg",
            drawing,
            viewBox=f"0 0 {width} {height}",
            role="img",
            aria_label=f"{topic['name']}: {most}; all numbers are in the table below",
        ),
        class_=None if mark else "flat",
    )
