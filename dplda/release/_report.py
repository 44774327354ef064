"""A page of a release for readers who install nothing: one HTML file.

Everything on it is a function of a released model, of released counts, and of words of
the publisher. The page
loads nothing, and its policy lets no script run but its own, by its SHA-256.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np

from dplda.core._pipeline import charged
from dplda.core._signal import (
    MEANING,
    NOT_TESTED,
    by_share,
    evidence_of,
    is_tested,
    relevance,
    standing,
)
from dplda.leaf._checks import check_integer
from dplda.privacy import Guarantee, epsilon_of
from dplda.privacy._card import NOT_COVERED, first_rows, other_rows
from dplda.release._charts import PERIOD, Topic, bar, chart, map_of, round_up
from dplda.release._markup import (
    Html,
    clean,
    details,
    element,
    joined,
    percent,
    table_of,
)
from dplda.release._topic_counts import OWN_SEED, TopicCounts

N_WORDS, N_SHOWN, N_LISTED = 40, 15, 8  # of a topic: in the page, in a table, in a row
WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the relevance by which words are kept
MOST_ROWS = 1500  # of charts of one grouping
NO_NAME = "no word stands out"


def check_names(names: Mapping[int, str], n_topics: int) -> dict[int, str]:
    """Names by rows of topics; ValueError or TypeError if they are none."""
    checked = {}
    for row, name in names.items():
        k = check_integer("a row of names", row, 0, n_topics - 1)
        if not (isinstance(name, str) and name.strip() and name.isprintable()):
            raise ValueError(f"the name of topic {k} must be a printable text")
        checked[k] = clean(name.strip())
    return checked


# ---- what the page knows -------------------------------------------------------------


def page_of(
    model: Any,
    *,
    title: str = "Topics of private texts",
    about: str = "",
    names: Mapping[int, str] = MappingProxyType({}),
    counts: Sequence[TopicCounts] = (),
) -> str:
    """The page of a `ReleasedModel`; its `report` says what the arguments are."""
    for table in counts:
        _check_table(model, table)
    names = model.names_ | check_names(names, len(model.components_))
    topics, words = topics_of(model, names)
    total = total_of(model.privacy_, counts)
    facts = {
        "format": "dplda-report-1",
        "title": clean(title, 200),
        "about": clean(about, 1000),
        "topics": topics,
        "words": words,
        "n_words": model.components_.shape[1],
        "n_shown": N_SHOWN,
        "noise_known": standing(model) is not None,
        "tested": is_tested(model),
        "guarantee": _record(total),
        "release": {
            "sha256": model.sha256_,
            "estimator": model.estimator_name_,
            "version": model.version_,
            "n_iter": model.n_iter_,
            "parameters": {k: clean(v) for k, v in sorted(model.parameters_.items())},
        },
        "n_units": _number(getattr(model, "n_units_", np.full(2, np.nan))),
        "counts": [_counted(table) for table in counts],
    }
    return _page(facts, model.privacy_, total, counts, hasattr(model, "weak_topics_"))


def _check_table(model: Any, table: object) -> None:
    if not isinstance(table, TopicCounts):
        raise TypeError(
            "counts must be tables of private_topic_counts with by=..., got "
            f"{type(table).__name__}"
        )
    if table.counted_as != model.counted_as_:
        raise ValueError(
            f"{table!r} counts the topics of another model; count those of this one"
        )
    of_topics, of_table = model.privacy_, table.privacy_
    if (of_topics.unit, of_topics.relation) != (of_table.unit, of_table.relation):
        raise ValueError(
            f"the topics protect one {of_topics.unit} ({of_topics.relation}), and the "
            f"counts one {of_table.unit} ({of_table.relation}): a page has one "
            "statement; give the same user_ids to both"
        )


def total_of(privacy: Guarantee, counts: Sequence[TopicCounts]) -> Guarantee:
    """The guarantee of all that the page shows."""
    parts = [privacy, *(table.privacy_ for table in counts)]
    if len(parts) == 1:
        return privacy
    paid = [charged(part) for part in parts]
    events = tuple(event for own, _ in paid for event in own)
    distance = math.fsum(own for _, own in paid)
    delta = max(part.delta for part in parts)
    epsilon = epsilon_of(events, delta, total_variation=distance)
    # equal seeds, whose noise cancels; the counts of the fit itself have another one
    with_fit = [table for table in counts if OWN_SEED in table.privacy_.provenance]
    n_seeds = sum(part.seeded for part in parts)
    if n_seeds - (privacy.seeded and len(with_fit) == 1) > 1:
        epsilon = math.inf
    assumptions = [each for part in parts for each in part.assumptions]
    return dataclasses.replace(
        privacy,
        epsilon=epsilon,
        delta=delta,
        events=events,
        total_variation=distance,
        mechanism="; ".join(dict.fromkeys(part.mechanism for part in parts)),
        noise_scale=None,
        seeded=any(part.seeded for part in parts),
        assumptions=tuple(dict.fromkeys(assumptions)),
        ledger=parts[-1].ledger,
        receipt=parts[-1].receipt,
        theorem="docs/accounting.md",
    )


def _record(privacy: Guarantee) -> dict[str, object]:
    """The guarantee in plain values; the events, of each round, fill pages."""
    record = privacy.to_dict()
    del record["events"]
    return record


def _number(value_and_std: np.ndarray) -> list[float] | None:
    """A noisy number and its standard deviation; None if noise hides it."""
    if np.isnan(value_and_std).any():
        return None
    return [float(f"{x:.4g}") for x in value_and_std]


def _counted(table: TopicCounts) -> dict[str, object]:
    return {
        "tables": {
            by: {"groups": list(table.levels[by]), "counts": np.round(rows, 2).tolist()}
            for by, rows in table.counts.items()
        },
        "noise": table.noise_scale,
        "most_groups": dict(table.most_groups),
        "guarantee": _record(table.privacy_),
    }


def _words_of(model: Any) -> list[str]:
    if model.vocabulary_ is None:
        return [f"x{v}" for v in range(model.components_.shape[1])]
    return [str(word) for word in model.vocabulary_]


def typical_words(model: Any, n_words: int) -> list[list[str]]:
    """The words that distinguish each topic most, in the order of `top_words`."""
    words = _words_of(model)
    best = np.argsort(-relevance(model.components_), axis=1, kind="stable")
    return [[words[v] for v in row[:n_words]] for row in best]


def topics_of(
    model: Any, names: Mapping[int, str]
) -> tuple[list[Topic], list[dict[str, Any]]]:
    """The topics in the order of the page, and the words that they refer to."""
    table = model.components_
    n_topics = len(table)
    p = table / table.sum(axis=1, keepdims=True)
    overall = table.sum(axis=0) / table.sum()
    share = table.sum(axis=1) / table.sum()
    stands = standing(model)
    in_order, weak = by_share(model)
    evidence = evidence_of(model)
    orders = [np.argsort(-relevance(table, w), kind="stable") for w in WEIGHTS]
    ranks = [np.argsort(order, axis=1, kind="stable") for order in orders]
    rank = np.min(ranks, axis=0)
    place, distance, kept_share = _scaled(p)
    words = _words_of(model)
    kept: dict[int, int] = {}  # number of a word in the page
    topics: list[Topic] = []
    for k in range(n_topics):
        some = np.argsort(rank[k], kind="stable")[:N_WORDS]
        some = some[p[k, some] > 0]
        best = some[np.argsort(ranks[2][k, some], kind="stable")]
        listed = [clean(words[v]) for v in best if stands is None or stands[k, v]]
        others = [j for j in range(n_topics) if j != k and not weak[j]]
        topics.append(
            {
                "topic": k,
                "name": names.get(k) or ", ".join(listed[:3]) or NO_NAME,
                "named": k in names,
                "weak": bool(weak[k]),
                "share": float(f"{share[k]:.4g}"),
                "z": None if np.isnan(evidence[k]) else round(float(evidence[k]), 2),
                "listed": listed[0 if k in names else 3 :][:N_LISTED],
                "word": [kept.setdefault(int(v), len(kept)) for v in best],
                "p": [float(f"{x:.3g}") for x in p[k, best]],
                "stands": [int(stands is None or stands[k, v]) for v in best],
                "place": [round(float(x), 3) + 0.0 for x in place[k]],
                "kept": round(kept_share, 2),
                "nearest": min(others, key=distance[k].__getitem__, default=None),
            }
        )
    listing = [{"word": clean(words[v]), "p": float(f"{overall[v]:.3g}")} for v in kept]
    return [topics[k] for k in in_order], listing


def _scaled(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Places on a plane, Hellinger distances, and the share of squares that it keeps.

    Classical scaling (Torgerson 1952).
    """
    root = np.sqrt(p)
    squares = np.maximum(1.0 - root @ root.T, 0.0)
    np.fill_diagonal(squares, 0.0)
    center = np.eye(len(p)) - 1.0 / len(p)
    values, vectors = np.linalg.eigh(-0.5 * center @ squares @ center)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    # one sign on all machines
    largest = np.abs(np.round(vectors, 6)).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(len(p))])
    place = np.zeros((len(p), 2))
    place[:, : min(2, len(p))] = (vectors * np.sqrt(values))[:, :2]
    return place, np.sqrt(squares), float(values[:2].sum() / max(values.sum(), 1e-300))


# ---- the parts of the page -----------------------------------------------------------


def _grouping(table: TopicCounts, by: str, shown: list[Topic]) -> Html:
    """Charts of one grouping, and the table behind them."""
    levels = [clean(level, 40) for level in table.levels[by]]
    rows = [topic["topic"] for topic in shown]
    low, high = table.interval()[by]
    count = np.maximum(table.counts[by], 0.0)
    cells = {
        k: list(zip(count[:, k].tolist(), low[:, k].tolist(), high[:, k].tolist()))
        for k in rows
    }
    differs = table.differs(rows)[by]
    real = table.real_share(rows)[by]
    top = round_up(float(high[:, rows].max(initial=1e-9)))
    is_time = all(PERIOD.fullmatch(level) for level in levels)
    unit, margin = clean(table.privacy_.unit), table.margin()
    drawn = shown[: max(1, MOST_ROWS // len(levels))]
    charts = [
        chart(topic, levels, cells[topic["topic"]], top, is_time, mark)
        for topic, mark in zip(drawn, differs)
    ]
    how = "for its main topic"
    if table.soft:
        how = "in shares, for all of its topics"
    divided = f" A {unit} with several texts is divided among them."
    if by in table.most_groups:
        divided = (
            f" A {unit} counts as one in each of at most {table.most_groups[by]} "
            f"groups of this table, divided among the {unit}'s texts of the group."
        )
    said = [
        f"Number of {unit}s by topic. A text counts {how}."
        f"{divided if unit != 'document' else ''}",
        f"{'The band' if is_time else 'A line'} is the 95% interval of the added "
        f"noise, {margin:.3g} either way, cut at 0. About 5 in 100 miss by chance. It "
        "does not cover the chance of which texts were written.",
        f"Of the differences within a topic, about {percent(real)} are real; the rest "
        f"is noise (squared). {differs.sum()} of {len(shown)} topics differ by more "
        "than noise explains (5% for all together); the others are gray.",
        "All charts of this section have one scale.",
    ]
    if len(drawn) < len(shown):
        said.append(f"The charts are those of the {len(drawn)} largest topics.")
    warning = Html()
    if 2 * differs.sum() < len(shown):
        warning = element(
            "p",
            "For most topics these differences cannot be told from noise (gray). A "
            "coarser grouping has less noise in proportion.",
            class_="warn",
        )
    head = [element("th", "Topic", scope="col")]
    head += [
        element("th", clean(level, 16), scope="col", class_="r") for level in levels
    ]
    body = [
        element(
            "tr",
            element("th", f"{t['topic']} {t['name']}", scope="row"),
            *(element("td", f"{c:.0f}", class_="r") for c, _, _ in cells[t["topic"]]),
        )
        for t in shown
    ]
    caption = (
        f"Number of {unit}s by topic and {clean(by)}. 95% interval of each: "
        f"{margin:.3g} either way; negative numbers are shown as 0, and "
        "saved as they are"
    )
    numbers = element(
        "div",
        table_of(caption, head, body, class_="num"),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=f"Numbers by {clean(by)}",
    )
    return joined(
        [
            element("h3", f"By {clean(by)}"),
            warning,
            element("p", " ".join(said)),
            element("div", *charts, class_="grid" if is_time else "grid wide"),
            details(f"The numbers by {clean(by)}", numbers),
        ]
    )


def _alarms(facts: Mapping[str, Any], total: Guarantee, has_test: bool) -> Html:
    n_topics = len(facts["topics"])
    n_shown = sum(not topic["weak"] for topic in facts["topics"])
    said = []
    if total.epsilon == math.inf:
        said.append(
            "There is no privacy guarantee. Do not show this page to those from whom "
            "the texts are to be protected."
        )
    if total.seeded:
        said.append(
            "The noise came from a given seed: who knows or guesses it removes the "
            "noise."
        )
    if not has_test:
        said.append("This kind of model does not test its topics.")
    elif not facts["tested"]:
        said.append(NOT_TESTED)
    elif n_shown == 0:
        said.append(
            "No topic is shown to be more than noise. Draw no conclusion from this "
            "page: the noise hides what the texts speak of."
        )
    elif 2 * n_shown < n_topics:
        said.append(
            f"Only {n_shown} of {n_topics} topics are shown to be more than noise. "
            "Read those, and draw no conclusion from the others or from what is "
            "missing."
        )
    return joined(element("p", text, class_="warn", role="note") for text in said)


def _number_of_units(
    facts: Mapping[str, Any],
    counts: Sequence[TopicCounts],
    unit: str,
    *,
    is_shown: bool,
) -> list[Html]:
    """How many were counted or read, in words, if a release says so.

    The page shows counts of topics that it shows.
    """
    what = "are in the numbers below" if is_shown else "were counted"
    known = [(*table.total(), what) for table in counts]
    if facts["n_units"] is not None:
        known.append((*facts["n_units"], "were read"))
    for number, error, what in known:
        if not math.isnan(number):
            margin = 1.96 * error
            about = f"About {max(number, 0):,.0f} {unit}s, plus or minus {margin:,.0f} "
            return [element("p", f"{about}(95%, noise alone), {what}.")]
    return []


def _cards(
    facts: Mapping[str, Any], total: Guarantee, counts: Sequence[TopicCounts]
) -> Html:
    topics = facts["topics"]
    n_shown = sum(not topic["weak"] for topic in topics)
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
        protects = [
            element("p", f"one {unit}", class_="big"),
            element("p", f"It protects {first['protects']}."),
            element("p", f"{first['how much']}{whole}."),
            element(
                "p",
                "At 1% false alarms, the best attack on one "
                f"{unit} recognizes at most ",
                element("b", f"{found:g}%"),
                " of those who took part. Guessing recognizes 1%.",
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
            *_number_of_units(facts, counts, unit, is_shown=n_shown > 0),
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


def _topics(facts: Mapping[str, Any], total: Guarantee) -> Html:
    topics = facts["topics"]
    shown = [topic for topic in topics if not topic["weak"]]
    others = [topic for topic in topics if topic["weak"]]
    largest = max(topic["share"] for topic in topics)
    said = (
        "The share is the topic's part of all released words. It has no interval: "
        "noise is only a part of its error, and an interval of the noise alone would "
        "be far too short."
    )
    if facts["counts"] and shown:
        said += f" The numbers of {clean(total.unit)}s below have one."
    said += " Names are the first words that stand out of the noise."
    if any(topic["named"] for topic in topics):
        said += " Names in italics were given by the publisher."
    parts = [element("p", said)]
    if shown:
        parts.append(_topic_table(shown, largest, "Topics in the order of their share"))
    if others:
        heading = "Not shown to be more than noise"
        advice = "Noise, chance, or mixtures. Do not name or count them."
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


def _map_section(topics: list[Topic]) -> Html:
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
            f"{percent(topics[0]['kept'])} of them (squared). Dashed circles are not "
            "shown to be more than noise.",
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


def _card(facts: Mapping[str, Any], total: Guarantee) -> Html:
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
    "Latent Dirichlet allocation was trained on counts of words with random noise in "
    "them, so that no single {unit} changes what was published by more than the "
    "guarantee says. Everything on this page is computed from published numbers alone. "
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


def _as_json(facts: Mapping[str, Any]) -> str:
    """JSON that ends no script element, and that can be written to a file."""
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return re.sub(
        "[<>&\u2028\u2029\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text
    )


def _page(
    facts: Mapping[str, Any],
    own: Guarantee,
    total: Guarantee,
    counts: Sequence[TopicCounts],
    has_test: bool,
) -> str:
    topics = facts["topics"]
    shown = [topic for topic in topics if not topic["weak"]]
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
    style, script = _part("page.css"), _part("page.js")
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
        "ALARMS": _alarms(facts, total, has_test),
        "CARDS": _cards(facts, total, counts),
        "NAV": joined(nav),
        "TOPICS": _topics(facts, total),
        "NOISE": joined([noise]),
        "MAP": _map_section(topics),
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
        f"{' and '.join(map(clean, table.counts))}, {table.privacy_.epsilon:.3g}"
        for table in counts
    ]
    said = (
        "Topics that are not shown to be more than noise are left out. The statement "
        "about what is protected includes these numbers; alone, the topics cost "
        f"epsilon = {own.epsilon:.4g}, and the numbers by {'; by '.join(costs)}."
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
