"""The worth of each tuned constant of a document-level fit, in points.

``python benchmarks/ablation.py [--corpora kos bbc docstrings nips] [--seeds 2] [--only
NAME ...] [--points FILE] [--into PAGE MARK]``

A row changes one constant, or leaves out what it belongs to. It prints by how many
points the share of the gap and the gain on new words (percent of GibbsLDA's) change:
the mean over corpora and seeds, and its standard error over corpora; and how many
topics all fits show, before and after. At epsilon 1 and 4, with embedded word vectors,
or with 300 public texts for constants that are about these. Conditions are those of
``utility.py``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
from corpora import LOADERS, Split, load
from paired_utility import printed_into
from utility import Gap, Points, prior_of, sublda, values

from dplda.datasets import load_word_vectors
from dplda.document import _document_budget, _public_words, _table_estimate
from dplda.document._rules import Rules
from dplda.document._sublda import SubLDATraining
from dplda.metrics import held_out_scores

EPSILONS = 1.0, 4.0
TEXTS = 300


def equal_weights(self, step) -> float:
    """The share of a round if all rounds weigh the same."""
    return 1 / step.n_in_average


def in_sample(features, rows, precision, penalty):
    """The regression of all words, with no word left out."""
    weighted = features * precision[:, None]
    inverse = _public_words.inverted(weighted.T @ features, penalty)
    return features @ (inverse @ (weighted.T @ rows))


# Name, what it is, what it is changed to, the new value, and public texts. A name with
# a class or a module in its place is patched there; a constant is patched in all
# modules that read it.
CHANGES = [
    ("CLIP", "clipping bound over the norm", "0.3", 0.3, 0),
    ("CLIP", "", "0.55", 0.55, 0),
    ("powers", "power of tempering at first, 0.3", "1: none", (1.0, 1.0), 0),
    ("share", "weight of a round, its number squared", "equal", equal_weights, 0),
    ("LATER_BUDGET", "growth of the budget of rounds, 0.75", "0: equal", 0.0, 0),
    ("SHARE_OF_TOTALS", "budget of word totals, 0.25", "0.1", 0.1, 0),
    ("CLEAR", "signal without rounds for totals, 7", "0: no such rounds", 1e-9, 0),
    ("SHARED", "variance that vectors explain, 0.5", "0.25", 0.25, 0),
    ("SHARED", "", "0.75", 0.75, 0),
    ("left_out", "a word's own row in the regression", "read", in_sample, 0),
    ("RENEWED", "rounds of one regression, 4", "8", 8, 0),
    ("KEPT_OUT", "words of which one is held out, 10", "5", 5, 0),
    ("REAL", "slope that is believed, 0.25", "0.5", 0.5, 0),
    ("REAL", "", "0.5", 0.5, TEXTS),
    ("WIDTH", "deviation around a factor, 0.25", "0: none", 0.0, 0),
    ("SMOOTHING", "tokens of a word, for its frequency, 2", "0.5", 0.5, TEXTS),
    ("CHANCE", "gain of likelihood by chance, 10", "-1000: none", -1000.0, TEXTS),
    ("SHARP", "prior mean of the sharpness of clusters, 4", "6", 6.0, 0),
    ("LEAST", "part of a share that vectors leave, 0.1", "0: none", 0.0, 0),
    ("TILT", "first frequencies of factors, 0.2771", "0: equal", 0.0, 0),
]
OWNERS = {"powers": Rules, "share": SubLDATraining}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--corpora", nargs="+", default=list(LOADERS), choices=list(LOADERS)
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", help="names of constants")
    parser.add_argument("--points", type=Path, help="file of measured points")
    parser.add_argument(
        "--into", nargs=2, metavar=("PAGE", "MARK"), help="page to write to"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    points = Points(options.points)
    splits = load(options.corpora)
    gaps = {split: Gap(split, points, options.seeds) for split in splits}
    with printed_into(options.into):
        print(f"{', '.join(split.name for split in splits)}; seeds: {options.seeds}\n")
        print(
            "| constant | what it is | changed to | epsilon 1: gap | new words | "
            "shown | epsilon 4: gap | new words | shown |"
        )
        print("| --- " * 9 + "|")
        for name, what, to, value, texts in CHANGES:
            if not options.only or name in options.only:
                cells = [
                    change(gaps, points, options.seeds, name, to, value, texts, epsilon)
                    for epsilon in EPSILONS
                ]
                what += f" ({texts} public texts)" * bool(texts)
                print(f"| `{name}` | {what} | {to} | {' | '.join(cells)} |", flush=True)


def change(gaps, points, seeds, name, to, value, texts, epsilon) -> str:
    """Mean changes of two measures, with standard errors, and all topics shown."""
    of_gap, of_new_words = [], []
    shown = np.zeros(2)
    for split, gap in gaps.items():
        given = {"epsilon": epsilon, "texts": texts}
        now = [points.get(fit, split, **given, seed=seed) for seed in range(seeds)]
        with changed(name, value):
            then = [
                points.get(fit, split, **given, seed=seed, name=name, to=to)
                for seed in range(seeds)
            ]
        after, before = values(then, "perplexity"), values(now, "perplexity")
        of_gap.append(gap.closed(after) - gap.closed(before))
        gained = values(then, "new_word_gain") - values(now, "new_word_gain")
        of_new_words.append(gained.mean() / gap.reference())
        shown += [values(fits, "shown").sum() for fits in (now, then)]
    topics = f"{shown[0]:.0f} → {shown[1]:.0f}"
    return f"{mean_and_error(of_gap)} | {mean_and_error(of_new_words)} | {topics}"


def mean_and_error(shares: list[float]) -> str:
    points = 100 * np.array(shares)
    error = np.std(points, ddof=1) / len(points) ** 0.5 if len(points) > 1 else np.nan
    return f"{points.mean():+.1f} ± {error:.1f}"


@contextmanager
def changed(name: str, value):
    """Everything that reads the constant reads the value."""
    places = (
        [OWNERS[name]]
        if name in OWNERS
        else [
            module
            for key, module in sys.modules.items()
            if key.startswith("dplda.document.") and hasattr(module, name)
        ]
    )
    assert places, name
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(patch.object(place, name, value))
        forget()
        yield
    forget()


def forget() -> None:
    """What was computed from the constants."""
    _document_budget.document_budget.cache_clear()
    _table_estimate.nodes.cache_clear()


def fit(
    split: Split, epsilon: float, texts: int, seed: int, name: str = "", to: str = ""
) -> dict[str, float]:
    """Measures of a fit under current constants, as `name` and `to` say."""
    given = (
        {"prior_components": prior_of(split, texts, seed)}
        if texts
        else {"word_vectors": load_word_vectors(list(map(str, split.words)))}
    )
    model = sublda(epsilon, seed, **given).fit(split.train[texts:])
    scores = held_out_scores(model.components_, split.test)
    return {
        "perplexity": float(model.perplexity(split.test)),
        "new_word_gain": float(scores.new_word_gain),
        "shown": int((~model.weak_topics_).sum()),
    }


if __name__ == "__main__":
    main()
