"""The parts of a page: HTML of public facts.

The page loads nothing, and its policy lets no script run but its own, by its SHA-256.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TypedDict

import numpy as np

from dplda.core._signal import MEANING, NOT_TESTED
from dplda.privacy import Guarantee
from dplda.privacy._card import NOT_COVERED, first_rows, other_rows
from dplda.release._charts import PERIOD, Topic, bar, chart, map_of, round_up
from dplda.release._counts import TopicCounts
from dplda.release._markup import (
    Html,
    clean,
    details,
    element,
    joined,
    percent,
    table_of,
)


class Word(TypedDict):
    """A word that topics of the page refer to by its place."""

    word: str
    p: float


class Origin(TypedDict):
    """The release file that the page shows."""

    sha256: str
    estimator: str
    version: str
    n_iter: int
    parameters: dict[str, str]


class Facts(TypedDict):
    """What the page knows of a release. Its readers can save it as JSON."""

    format: str
    title: str
    about: str
    topics: list[Topic]
    words: list[Word]
    n_words: int
    n_shown: int
    kept: float  # share of squared distances that the map keeps
    noise_known: bool
    tested: bool
    guarantee: dict[str, object]  # of all that the page shows
    release: Origin
    n_units: list[float] | None
    counts: list[dict[str, object]]


def _grouping(table: TopicCounts, by: str, shown: list[Topic]) -> Html:
    """Charts of one grouping, and the table behind them."""
    levels = [clean(level, 40) for level in table.levels[by]]
    rows = [topic["topic"] for topic in shown]
    low, high = table.interval()[by]
    count = np.maximum(table.counts[by], 0.0)
    cells = np.stack([count, low, high], axis=2)
    differs = table.differs(rows)[by]
    top = round_up(float(high[:, rows].max(initial=1e-9)))
    is_time = all(PERIOD.fullmatch(level) for level in levels)
    charts = [
        chart(topic, levels, cells[:, topic["topic"]].tolist(), top, is_time, mark)
        for topic, mark in zip(shown, differs)
    ]
    warning = Html()
    if 2 * differs.sum() < len(shown):
        warning = element(
            "p",
            "For most topics these differences cannot be told from noise (gray). "
            "Larger groups have less noise in proportion.",
            class_="warn",
        )
    said = [
        _what_counts(table, by),
        f"{'The band' if is_time else 'A line'} is the 95% interval of the added "
        f"noise, {table.margin():.3g} either way, cut at 0. About 5 in 100 intervals "
        "miss the number. They do not cover the chance of which texts were written.",
        "Of the differences within a topic, about "
        f"{percent(table.real_share(rows)[by])} are real; the rest is noise (squared). "
        f"{differs.sum()} of {len(shown)} topics differ by more than noise explains "
        "(5% for all together); the others are gray.",
        "All charts of this section have one scale.",
    ]
    numbers = _numbers(table, by, shown, count)
    return joined(
        [
            element("h3", f"By {clean(by)}"),
            warning,
            element("p", " ".join(said)),
            element("div", *charts, class_="grid" if is_time else "grid wide"),
            details(f"The numbers by {clean(by)}", numbers),
        ]
    )


def _what_counts(table: TopicCounts, by: str) -> str:
    """How a text and a unit count in a grouping."""
    unit = clean(table.privacy_.unit)
    how = "in shares, for all of its topics" if table.soft else "for its main topic"
    groups = clean(" and ".join(table.counts))
    said = (
        f"Number of {unit}s by topic. A text counts {how}. Texts without a known "
        f"{groups} are not counted."
    )
    if unit == "document":
        return said
    if by in table.most_groups:
        return (
            f"{said} A {unit} counts as one in each of at most {table.most_groups[by]} "
            f"groups of this table, divided among the {unit}'s texts of the group."
        )
    return f"{said} A {unit} with several texts is divided among them."


def _numbers(
    table: TopicCounts, by: str, shown: list[Topic], count: np.ndarray
) -> Html:
    """The table of `count`, which scrolls on a narrow screen."""
    head = [element("th", "Topic", scope="col")]
    head += [
        element("th", clean(level, 16), scope="col", class_="r")
        for level in table.levels[by]
    ]
    body = []
    for topic in shown:
        number = topic["topic"]
        title = element("th", f"{number} {topic['name']}", scope="row")
        cells = [element("td", f"{c:.0f}", class_="r") for c in count[:, number]]
        body.append(element("tr", title, *cells))
    caption = (
        f"Number of {clean(table.privacy_.unit)}s by topic and {clean(by)}. 95% "
        f"interval of each: {table.margin():.3g} either way; negative numbers are "
        "shown as 0, and saved as they are"
    )
    return element(
        "div",
        table_of(caption, head, body, class_="num"),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=f"Numbers by {clean(by)}",
    )


def _shown(facts: Facts) -> list[Topic]:
    return [topic for topic in facts["topics"] if not topic["weak"]]


def _alarms(facts: Facts, total: Guarantee, *, has_test: bool) -> Html:
    """What a reader has to know first."""
    n_topics = len(facts["topics"])
    n_shown = len(_shown(facts))
    said = []
    if total.epsilon == math.inf:
        said.append(
            "There is no privacy guarantee. Do not show this page to anyone who may "
            "not see the texts."
        )
    if total.seeded:
        said.append(
            "The noise came from a given seed. Whoever knows or guesses the seed can "
            "remove the noise."
        )
    if not has_test:
        said.append("This kind of model does not test its topics.")
    elif not facts["tested"]:
        said.append(NOT_TESTED)
    elif n_shown == 0:
        said.append(
            "No topic is shown to be more than noise. Draw no conclusion from this "
            "page: the noise hides what the texts are about."
        )
    elif 2 * n_shown < n_topics:
        said.append(
            f"Only {n_shown} of {n_topics} topics are shown to be more than noise. "
            "Read those, and draw no conclusion from the others or from what is "
            "missing."
        )
    return joined(element("p", text, class_="warn", role="note") for text in said)


def _number_of_units(
    facts: Facts, counts: Sequence[TopicCounts], unit: str
) -> list[Html]:
    """How many were counted or read, in words, if a release says so."""
    # the page has the counts of topics that it shows
    what = "are in the numbers below" if _shown(facts) else "were counted"
    known = [(*table.total(), what) for table in counts]
    if facts["n_units"] is not None:
        number, error = facts["n_units"]
        known.append((number, error, "were read"))
    for number, error, what in known:
        if not math.isnan(number):
            margin = 1.96 * error
            about = f"About {max(number, 0):,.0f} {unit}s, plus or minus {margin:,.0f} "
            return [element("p", f"{about}(95%, noise alone), {what}.")]
    return []


def _cards(facts: Facts, total: Guarantee, counts: Sequence[TopicCounts]) -> Html:
    """The four boxes at the top."""
    topics = facts["topics"]
    n_shown = len(_shown(facts))
    unit = clean(total.unit)
    first = dict(first_rows(total))
    source = [
        element("p", f"{clean(name).capitalize()}: {clean(origin, 300)}.")
        for name, origin in total.provenance
        if name == "vocabulary"
    ]
    protects = [element("p", "nothing", class_="big")]
    if total.epsilon < math.inf:
        found = math.ceil(1000 * total.detection_rate()) / 10
        whole = ", for all of this page" if facts["counts"] else ""
        who = f"It protects {first['protects']}."
        if unit == "user":
            who += " All texts with one id, such as a patient's, are one user."
        protects = [
            element("p", f"one {unit}", class_="big"),
            element("p", who),
            element(
                "p", f"{first['how much']}{whole}. A smaller epsilon protects more."
            ),
            element(
                "p",
                "Suppose that an attacker knows all other texts, and tests whether one "
                f"{unit} was in the data, with a false alarm for 1 in 100 that were "
                "not. The best such attack recognizes at most ",
                element("b", f"{found:g}%"),
                " of those that were. Guessing recognizes 1%.",
            ),
        ]
    missing = [
        element("li", part.strip()) for part in NOT_COVERED.split(";") if part.strip()
    ]
    meaning = MEANING.partition(". ")[0].replace("without a question mark", "shown")
    shown = element(
        "p", str(n_shown), element("span", f" of {len(topics)}"), class_="big"
    )
    reading = f"{meaning}. A topic that is shown may still mix two themes."
    if n_shown < len(topics):
        reading += " The others stand at the end of the list."
    reading += " A theme that is missing here may still be in the texts."
    return element(
        "div",
        element(
            "section",
            element("h2", "What was analyzed"),
            element("p", f"{len(topics)} topics", class_="big"),
            element(
                "p",
                f"over {facts['n_words']:,} words. A program read private texts and "
                "published only statistics with random noise. A topic is a list of "
                "words that occur together. This page holds those statistics and no "
                "text.",
            ),
            *_number_of_units(facts, counts, unit),
            *source,
        ),
        element(
            "section",
            element("h2", "Topics that are more than noise"),
            shown,
            element("p", reading if facts["tested"] else "The topics are not tested."),
        ),
        element("section", element("h2", "What is protected"), *protects),
        element(
            "section",
            element("h2", "What is not protected"),
            element("ul", *missing),
            element("p", element("a", "The full statement", href="#card")),
        ),
        class_="cards",
    )


def _topic_table(topics: list[Topic], largest: float, caption: str) -> Html:
    head = [
        element("th", "No.", scope="col"),
        element("th", "Topic", scope="col"),
        element("th", "Share of all words", scope="col", colspan=2),
        element("th", "More of its words", scope="col", class_="w"),
    ]
    rows = [
        element(
            "tr",
            element("td", str(topic["topic"])),
            element(
                "th",
                element(
                    "button",
                    topic["name"],
                    data_k=topic["topic"],
                    class_="given" if topic["named"] else None,
                ),
                scope="row",
            ),
            element("td", percent(topic["share"]), class_="r"),
            element("td", bar(topic["share"], largest, topic["weak"]), class_="b"),
            element("td", ", ".join(topic["listed"]) or "none stands out", class_="w"),
        )
        for topic in topics
    ]
    kind = "topics doubt" if topics and topics[0]["weak"] else "topics"
    return table_of(caption, head, rows, class_=kind, columns="ntrbw")


def _topics(facts: Facts, total: Guarantee) -> Html:
    topics = facts["topics"]
    shown = _shown(facts)
    others = [topic for topic in topics if topic["weak"]]
    largest = max(topic["share"] for topic in topics)
    said = (
        "The share is the topic's part of all released words. It has no interval: "
        "noise is only a part of its error, and an interval of the noise alone would "
        "be far too short."
    )
    if facts["counts"] and shown:
        said += f" The numbers of {clean(total.unit)}s below have an interval."
    said += " Names are the first words that stand out of the noise."
    if any(topic["named"] for topic in topics):
        said += " Names in italics were given by the publisher."
    parts = [element("p", said)]
    if shown:
        parts.append(_topic_table(shown, largest, "Topics in the order of their share"))
    if others:
        heading = "Not shown to be more than noise"
        advice = (
            "They may be noise, chance, mixtures of topics, or public groups of "
            "similar words. Do not name or count them."
        )
        if not facts["tested"]:
            heading = "Not tested"
            advice = "Nobody knows which of them are more than noise."
        parts += [
            element("h3", f"{heading}: {len(others)} of {len(topics)}"),
            element("p", advice),
            _topic_table(others, largest, heading),
        ]
    return _section("topics", "Topics", *parts)


def _section(
    anchor: str, heading: str, *inside: str, class_: str | None = None
) -> Html:
    return element(
        "section",
        element("h2", heading, id=anchor),
        *inside,
        aria_labelledby=anchor,
        class_=class_,
    )


def _map_section(facts: Facts) -> Html:
    topics = facts["topics"]
    rows = [
        element(
            "tr",
            element("td", str(t["topic"])),
            element("th", t["name"], scope="row"),
            element("td", "none" if t["nearest"] is None else str(t["nearest"])),
            element("td", "{:.2f}, {:.2f}".format(*t["place"]), class_="r"),
        )
        for t in topics
    ]
    head = [
        element("th", name, scope="col")
        for name in ("No.", "Topic", "Nearest", "Place on the map")
    ]
    return _section(
        "map",
        "Map of topics",
        element(
            "p",
            "Topics with similar words are near each other, and the area of a circle "
            "is the share. A plane cannot keep all distances: this one keeps "
            f"{percent(facts['kept'])} of them (squared). Dashed circles are topics "
            "that are not shown to be more than noise.",
        ),
        map_of(topics),
        details(
            "The map as a table",
            table_of(
                "Place, and the most similar topic that is shown (Hellinger distance)",
                head,
                rows,
            ),
        ),
    )


def _card(facts: Facts, total: Guarantee) -> Html:
    def table(caption: str, lines: Iterable[tuple[str, object]]) -> Html:
        rows = [
            element(
                "tr",
                element("th", clean(label), scope="row"),
                element("td", clean(value, 2000)),
            )
            for label, value in lines
        ]
        return table_of(caption, (), rows, class_="card")

    release = facts["release"]
    origin = [
        ("file, SHA-256", release["sha256"]),
        ("written by", f"dplda {release['version']}, {release['estimator']}"),
        ("rounds", release["n_iter"]),
        ("receipt", total.receipt or "none"),
        *release["parameters"].items(),
    ]
    save = element(
        "a",
        "Save all numbers of this page (JSON)",
        id="save",
        download="topics.json",
        href="#card",
    )
    return _section(
        "card",
        "The guarantee",
        table(
            "Statement of the publisher, which nobody can check from this page",
            [*first_rows(total), *other_rows(total)],
        ),
        details(
            "Origin of this page", table("Release file and public settings", origin)
        ),
        element("p", save, class_="js"),
    )


METHOD = (
    "Latent Dirichlet allocation was trained on word counts with random noise. No "
    "single {unit} changes what was published by more than the guarantee says. "
    "Everything on this page is computed from published numbers alone. "
    "A word stands out if its count exceeds, by more than noise explains, what twice "
    "the odds of the topic would give (5% for all words of a topic together)."
)


@cache
def _part(name: str) -> str:
    """A file of the page: its style, its script, or its frame."""
    return files("dplda.release").joinpath("page", name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _as_json(facts: Facts) -> str:
    """JSON that ends no script element, and that can be written to a file."""
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return re.sub(
        "[<>&\u2028\u2029\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text
    )


def page_text(
    facts: Facts,
    own: Guarantee,
    total: Guarantee,
    counts: Sequence[TopicCounts],
    *,
    has_test: bool,
) -> str:
    """The page; `own` is the guarantee of the topics, and `total` of all it shows."""
    shown = _shown(facts)
    counted = Html()
    links = {"topics": "Topics", "words": "Words", "map": "Map"}
    if counts and shown:
        links["counts"] = "Counts"
        counted = _counts_section(own, counts, shown)
    links |= {"card": "Guarantee", "method": "Method"}
    nav = [
        element(
            "a", text, href=f"#{anchor}", class_="js" if anchor == "words" else None
        )
        for anchor, text in links.items()
    ]
    noise = (
        "Words in gray, marked (noise?), do not stand out of the noise: read nothing "
        "into them."
    )
    if not facts["noise_known"]:
        noise = "The noise of a word is not known: no word can be marked as noise."
    about = Html()
    if facts["about"]:
        about = element(
            "p", facts["about"], " ", element("small", "(words of the publisher)")
        )
    style = _part("page.css")
    script = _part("page.js")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    slots = {
        "POLICY": html.escape(policy),
        "STYLE": style,
        "SCRIPT": script,
        "TITLE": joined([facts["title"]]),
        "ABOUT": about,
        "ALARMS": _alarms(facts, total, has_test=has_test),
        "CARDS": _cards(facts, total, counts),
        "NAV": joined(nav),
        "TOPICS": _topics(facts, total),
        "NOISE": joined([noise]),
        "MAP": _map_section(facts),
        "COUNTS": counted,
        "CARD": _card(facts, total),
        "METHOD": _section(
            "method", "Method", element("p", METHOD.format(unit=clean(total.unit)))
        ),
        "DATA": _as_json(facts),
    }
    # each slot once, and nothing in what fills one is a slot
    return (
        re.sub(r"\{\{(\w+)\}\}", lambda slot: slots[slot[1]], _part("page.html")) + "\n"
    )


def _counts_section(
    own: Guarantee, counts: Sequence[TopicCounts], shown: list[Topic]
) -> Html:
    costs = [
        f"{' and '.join(map(clean, table.counts))} cost {table.privacy_.epsilon:.3g}"
        for table in counts
    ]
    said = (
        "Topics that are not shown to be more than noise are left out. The statement "
        "about what is protected includes these numbers. The topics alone cost epsilon "
        f"= {own.epsilon:.4g}, and the numbers by {'; those by '.join(costs)}."
    )
    return _section(
        "counts",
        "Numbers by group and time",
        element("p", said),
        *(_grouping(table, by, shown) for table in counts for by in table.counts),
    )


def frame(page: str) -> str:
    """A frame with a page, for a notebook; it may run its own script and no more."""
    return (
        '<iframe sandbox="allow-scripts" title="Topics" width="100%" height="640" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )
