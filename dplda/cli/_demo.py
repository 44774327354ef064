"""The main job, ``dplda demo``: a private topic model of real texts.

The texts are a file of the package, so that nothing is downloaded. They are public: the demo may
score them, and show the topics of a model that is not private.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._console import (
    PLOT,
    check_ending,
    draw_topics,
    has_matplotlib,
    say,
    show_guarantee,
    show_topics,
)

HELD_OUT = 10  # every tenth document
SHARES = (0.08, 0.92)  # of the budget, for the vocabulary and the topics

WHY_PRIVATE = (
    "The vocabulary is chosen from the texts with a part of the privacy budget. A vocabulary that "
    "CountVectorizer learns from private texts shows that someone used each of its words."
)
WHY_SCORED = (
    "The held-out documents may be scored because these texts are public. The perplexity of "
    "private documents is a release about them that epsilon does not cover."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the demo."""
    parser.description = (
        "Fit a private topic model (SubLDA) to the definitions of English nouns, and compare it "
        "with a model that is not private."
    )
    parser.set_defaults(command=run)
    add = parser.add_argument
    add("--epsilon", type=float, default=4.0, help="total; inf: no noise, no privacy")
    add("--delta", type=float, default=1e-6, help="delta of (epsilon, delta)-privacy")
    add("--components", type=int, default=20, help="number of topics")
    add("--max-iter", type=int, default=80, help="number of private rounds")
    add("--documents", type=int, help="use only this many documents")
    add("--output", type=Path, default=Path("dplda_topics.png"), help="file of the picture")
    add("--seed", type=int, help="reproducible, and without a guarantee (infinite epsilon)")


def check_options(options: argparse.Namespace) -> None:
    """Refuse before the fit what would only fail after it."""
    if not options.output.absolute().parent.is_dir():
        raise argparse.ArgumentError(
            None, f"--output must be in a folder that exists, got {options.output}"
        )
    if has_matplotlib():
        try:
            check_ending(options.output)
        except ValueError as error:
            raise argparse.ArgumentError(None, f"--output: {error}") from None
    if options.documents is not None and options.documents < HELD_OUT:
        raise argparse.ArgumentError(
            None, f"--documents must be at least {HELD_OUT}, got {options.documents}"
        )


def load_texts(n_docs: int | None) -> tuple[list[str], list[str]]:
    """Texts to train on, and held-out texts."""
    corpus: Any = dplda.datasets.load_wordnet_glosses()
    texts = corpus.data[:n_docs]
    held_out = texts[HELD_OUT - 1 :: HELD_OUT]
    train = [text for i, text in enumerate(texts) if i % HELD_OUT != HELD_OUT - 1]
    say(corpus.DESCR)
    say(f"To train on: {len(train)} documents. Held out: every tenth, {len(held_out)} documents.")
    return train, held_out


def private_pipeline(options: argparse.Namespace) -> Any:
    """A vocabulary and a topic model that together cost at most the given epsilon."""
    from sklearn.pipeline import make_pipeline

    budgets = (math.inf, math.inf)
    if options.epsilon != math.inf:
        budgets = dplda.privacy.split_epsilon(options.epsilon, SHARES, delta=options.delta)  # type: ignore
    common = {"delta": options.delta, "random_state": options.seed}
    return make_pipeline(
        dplda.PrivateCountVectorizer(epsilon=budgets[0], stop_words="english", **common),
        dplda.SubLDA(options.components, epsilon=budgets[1], max_iter=options.max_iter, **common),
    )


def fit(model: Any, data: Any, unit: str) -> Any:
    """Fit, and print how long it took."""
    start = time.perf_counter()
    model.fit(data)
    topics = model[-1] if hasattr(model, "steps") else model
    name = type(topics).__name__
    say(f"{name}: {topics.n_iter_} {unit} in {time.perf_counter() - start:.1f} s")
    return topics


def show_perplexity(private: Any, epsilon: float, baseline: Any, train: Any, test: Any) -> None:
    say("Held-out perplexity by document completion (lower is better):")
    for name, value in (
        ("unigram model, not private", dplda.metrics.unigram_perplexity(train, test)),
        (f"SubLDA, epsilon {epsilon:.4g}", private.perplexity(test)),
        ("GibbsLDA, not private", baseline.perplexity(test)),
    ):
        print(f"  {name:28}{value:8.1f}")
    say(WHY_SCORED)


def run(options: argparse.Namespace) -> None:
    """Run the demo with these options."""
    check_options(options)
    train, held_out = load_texts(options.documents)
    print()
    try:
        model = private_pipeline(options)
        private = fit(model, train, "private rounds")
    except ValueError as error:  # the corpus is valid, so an option is not
        raise argparse.ArgumentError(None, str(error)) from None
    counts, unseen = model[0].transform(train), model[0].transform(held_out)
    baseline = fit(dplda.GibbsLDA(options.components, random_state=options.seed), counts, "sweeps")
    words = model[0].get_feature_names_out()
    say(f"Vocabulary: {len(words)} words, {counts.sum()} times in the texts. {WHY_PRIVATE}")
    print()
    show_topics(private, words)
    print()
    guarantee = dplda.pipeline_guarantee(model)
    show_guarantee(guarantee)
    print()
    show_perplexity(private, guarantee.epsilon, baseline, counts, unseen)
    print()
    if has_matplotlib():
        draw_topics(private, words, options.output)
    else:
        say(f"No picture: that needs matplotlib; {PLOT}")
