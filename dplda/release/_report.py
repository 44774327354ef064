"""A page of a release for readers who install nothing: one HTML file.

Everything on it is a function of a released model, of released counts, and of words of
the publisher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dplda.core._base import BaseLDA
from dplda.core._joint_guarantee import FROM_SEEDS, added_up
from dplda.core._signal import by_share, evidence_of, is_tested, relevance, standing
from dplda.core._texts import words_of
from dplda.leaf._checks import check_integer
from dplda.privacy import Guarantee
from dplda.release._charts import Topic
from dplda.release._counts import OWN_SEED, WITHOUT_GROUPS, TopicCounts
from dplda.release._markup import clean
from dplda.release._page import Facts, Word, page_text

N_SHOWN = 15  # words of a topic in a table
WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the relevance by which words are kept
NO_NAME = "no word stands out"


def check_names(names: Mapping[int, str], n_topics: int) -> dict[int, str]:
    """Names by rows of topics, checked."""
    if not isinstance(names, Mapping):
        raise TypeError(
            "names must be a dict of rows and names, such as {2: 'Heart'}, got "
            f"{type(names).__name__}"
        )
    checked = {}
    for row, name in names.items():
        k = check_integer("a row of names", row, 0, n_topics - 1)
        if not (isinstance(name, str) and name.strip() and name.isprintable()):
            raise ValueError(f"the name of topic {k} must be a printable text")
        checked[k] = clean(name.strip())
    return checked


def page_of(
    model: BaseLDA,
    *,
    title: str = "Topics of private texts",
    about: str = "",
    names: Mapping[int, str] = MappingProxyType({}),
    counts: Sequence[TopicCounts] = (),
) -> str:
    """The page of a `ReleasedModel`; its `report` says what the arguments are."""
    if isinstance(counts, TopicCounts):
        raise TypeError("counts must be a list of tables; pass [table] for one table")
    for table in counts:
        _check_table(model, table)
    names = model.names_ | check_names(names, len(model.components_))
    total = total_of(model.privacy_, counts)
    place, distance, kept = _scaled(_probabilities(model))
    topics, words = _topics_and_words(model, names, place, distance)
    facts: Facts = {
        "format": "dplda-report-1",
        "title": clean(title, 200),
        "about": clean(about, 1000),
        "topics": topics,
        "words": words,
        "n_words": model.components_.shape[1],
        "n_shown": N_SHOWN,
        "kept": round(kept, 2),
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
    has_test = hasattr(model, "weak_topics_")
    return page_text(facts, model.privacy_, total, counts, has_test=has_test)


def _check_table(model: BaseLDA, table: object) -> None:
    if not isinstance(table, TopicCounts) or table.levels == WITHOUT_GROUPS:
        got = "no groups" if isinstance(table, TopicCounts) else type(table).__name__
        raise TypeError(
            f"counts must be tables of private_topic_counts with by=..., got {got}"
        )
    if table.counted_as != model.counted_as_:
        raise ValueError(
            f"{table!r} counts the topics of another model; count those of this one"
        )
    of_topics = model.privacy_
    of_table = table.privacy_
    if (of_topics.unit, of_topics.relation) != (of_table.unit, of_table.relation):
        raise ValueError(
            f"the topics protect one {of_topics.unit} ({of_topics.relation}), and the "
            f"counts one {of_table.unit} ({of_table.relation}): a page has one "
            "statement; give the same user_ids to both, as columns of one name"
        )


def total_of(privacy: Guarantee, counts: Sequence[TopicCounts]) -> Guarantee:
    """The guarantee of all that the page shows."""
    parts = [privacy, *(table.privacy_ for table in counts)]
    if len(parts) == 1:
        return privacy
    # Equal seeds: the noise cancels. The counts of the fit itself have their own seed.
    n_seeds = sum(part.seeded for part in parts)
    with_fit = [table for table in counts if OWN_SEED in table.privacy_.provenance]
    if privacy.seeded and len(with_fit) == 1:
        n_seeds -= 1
    leaks = [f"the noise of two releases {FROM_SEEDS}"] if n_seeds > 1 else []
    return added_up(parts, leaks)


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


def typical_words(model: BaseLDA, n_words: int) -> list[list[str]]:
    """The words that distinguish each topic most, in the order of `top_words`."""
    words = _words(model)
    best = np.argsort(-relevance(model.components_), axis=1, kind="stable")
    return [[words[v] for v in row[:n_words]] for row in best]


def _words(model: BaseLDA) -> list[str]:
    return words_of(model) or [f"x{v}" for v in range(model.components_.shape[1])]


def _probabilities(model: BaseLDA) -> np.ndarray:
    return model.components_ / model.components_.sum(axis=1, keepdims=True)


def _topics_and_words(
    model: BaseLDA, names: Mapping[int, str], place: np.ndarray, distance: np.ndarray
) -> tuple[list[Topic], list[Word]]:
    """The topics in the order of the page, and the words that they refer to.

    `place` (n_components, 2) is where they are on the map, and `distance`
    (n_components, n_components) how different they are.
    """
    table = model.components_
    n_topics = len(table)
    p = _probabilities(model)
    overall = table.sum(axis=0) / table.sum()
    share = table.sum(axis=1) / table.sum()
    stands = standing(model)
    in_order, weak = by_share(model)
    evidence = evidence_of(model)
    # the words that are among the first by some weight
    ranks = {
        weight: np.argsort(
            np.argsort(-relevance(table, weight), axis=1, kind="stable"),
            axis=1,
            kind="stable",
        )
        for weight in WEIGHTS
    }
    rank = np.min([*ranks.values()], axis=0)
    words = _words(model)
    kept: dict[int, int] = {}  # number of a word in the page
    topics: dict[int, Topic] = {}
    for k in range(n_topics):
        some = np.flatnonzero((rank[k] < N_SHOWN) & (p[k] > 0))
        best = some[np.argsort(ranks[0.5][k, some], kind="stable")]
        listed = [clean(words[v]) for v in best if stands is None or stands[k, v]]
        others = [j for j in range(n_topics) if j != k and not weak[j]]
        topics[k] = {
            "topic": k,
            "name": names.get(k) or ", ".join(listed[:3]) or NO_NAME,
            "named": k in names,
            "weak": bool(weak[k]),
            "share": float(f"{share[k]:.4g}"),
            "z": None if np.isnan(evidence[k]) else round(float(evidence[k]), 2),
            "listed": listed[0 if k in names else 3 : N_SHOWN],
            "word": [kept.setdefault(int(v), len(kept)) for v in best],
            "p": [float(f"{x:.3g}") for x in p[k, best]],
            "stands": [int(stands is None or stands[k, v]) for v in best],
            "place": [round(float(x), 3) + 0.0 for x in place[k]],
            "nearest": min(others, key=distance[k].__getitem__, default=None),
        }
    listing: list[Word] = [
        {"word": clean(words[v]), "p": float(f"{overall[v]:.3g}")} for v in kept
    ]
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
    values = np.maximum(values[::-1], 0.0)
    vectors = vectors[:, ::-1]
    # one sign on all machines
    largest = np.abs(np.round(vectors, 6)).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(len(p))])
    place = np.zeros((len(p), 2))
    place[:, : min(2, len(p))] = (vectors * np.sqrt(values))[:, :2]
    return place, np.sqrt(squares), float(values[:2].sum() / max(values.sum(), 1e-300))
