"""The main job, ``dplda demo``: a private topic model of real texts.

The texts are the docstrings of installed packages, so that nothing is downloaded. They are public:
the demo may score them, and show the topics of a model that is not private.
"""

from __future__ import annotations

import argparse
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from dplda import GibbsLDA, SubLDA
from dplda.datasets import load_docstrings, load_public_vocabulary
from dplda.displays import TopicDisplay, top_words
from dplda.metrics import unigram_perplexity

N_WORDS = 2000
HELD_OUT = 10  # every tenth document

WHY_PUBLIC = (
    f"Vocabulary: the {N_WORDS} most frequent words of the documentation of Python's standard "
    "library. The vocabulary must be public: a vocabulary learned from private texts shows that "
    "someone used each of its words, and epsilon does not cover that."
)
WHY_SCORED = (
    "The held-out documents may be scored because these texts are public. The perplexity of "
    "private documents is a release about them that epsilon does not cover."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the demo."""
    parser.description = (
        "Fit a private topic model (SubLDA) to the docstrings of the installed scientific "
        "packages, and compare it with a model that is not private."
    )
    parser.set_defaults(command=run)
    add = parser.add_argument
    add("--epsilon", type=float, default=4.0, help="privacy budget; inf: no noise, no privacy")
    add("--delta", type=float, default=1e-6, help="delta of (epsilon, delta)-privacy")
    add("--components", type=int, default=20, help="number of topics")
    add("--max-iter", type=int, default=80, help="number of private rounds")
    add("--documents", type=int, help="use only this many documents")
    add("--output", type=Path, default=Path("dplda_topics.png"), help="file of the picture")
    add("--seed", type=int, help="reproducible, and not private to anyone who knows the seed")


def check_options(options: argparse.Namespace) -> None:
    """Refuse before the fit what would only fail after it."""
    if not options.output.absolute().parent.is_dir():
        raise argparse.ArgumentError(
            None, f"--output must be in a folder that exists, got {options.output}"
        )
    if options.documents is not None and options.documents < HELD_OUT:
        raise argparse.ArgumentError(
            None, f"--documents must be at least {HELD_OUT}, got {options.documents}"
        )


def load_counts(n_docs: int | None) -> tuple[sp.csr_array, sp.csr_array, list[str]]:
    """Word counts of the training and of the held-out documents, and the words."""
    corpus: Any = load_docstrings()
    vocabulary = load_public_vocabulary(N_WORDS, language="python")
    texts = corpus.data[:n_docs]
    counts = sp.csr_array(CountVectorizer(vocabulary=vocabulary).transform(texts))
    held_out = np.arange(counts.shape[0]) % HELD_OUT == HELD_OUT - 1
    train, test = counts[~held_out], counts[held_out]
    say(corpus.DESCR.partition("\n")[0])
    say(WHY_PUBLIC)
    say(
        f"To train on: {train.shape[0]} documents with {train.sum()} words of the vocabulary. "
        f"Held out: every tenth document, {test.shape[0]} with {test.sum()} words."
    )
    return train, test, vocabulary


def say(text: str = "", indent: str = "") -> None:
    """Print a paragraph."""
    print(textwrap.fill(text, 96, initial_indent=indent, subsequent_indent=indent))


def fit(model: Any, counts: sp.csr_array, unit: str) -> Any:
    """Fit, and print how long it took."""
    start = time.perf_counter()
    model.fit(counts)
    name = type(model).__name__
    say(f"{name}: {model.n_iter_} {unit} in {time.perf_counter() - start:.1f} s")
    return model


def show_topics(model: Any, vocabulary: list[str]) -> None:
    say("Topics, with their share of all words and the ten words that distinguish them most:")
    share = model.components_.sum(axis=1) / model.components_.sum()
    for k, words in enumerate(top_words(model, vocabulary)):
        print(f"  {k:3d} {share[k]:6.1%}  {' '.join(words)}")


def show_privacy(model: Any) -> None:
    print(f"epsilon  {model.epsilon_:.4g}")
    print(f"delta    {model.delta_:.4g}")
    print(f"unit     {model.privacy_.unit}")
    for line in str(model.privacy_).splitlines():
        print(textwrap.fill(line, 96, initial_indent="  ", subsequent_indent=" " * 14))


def show_perplexity(private: Any, baseline: Any, train: sp.csr_array, test: sp.csr_array) -> None:
    say("Held-out perplexity by document completion (lower is better):")
    for name, value in (
        ("unigram model, not private", unigram_perplexity(train, test)),
        (f"SubLDA, epsilon {private.epsilon_:.4g}", private.perplexity(test)),
        ("GibbsLDA, not private", baseline.perplexity(test)),
    ):
        print(f"  {name:28}{value:8.1f}")
    say(WHY_SCORED)


def draw(model: Any, vocabulary: list[str], path: Path) -> None:
    """Write the picture, or print what is missing."""
    try:
        import matplotlib
    except ImportError:
        say("No picture: that needs matplotlib; install it with: pip install 'dplda[plot]'")
        return
    matplotlib.use("agg")
    TopicDisplay.from_estimator(model, vocabulary).figure_.savefig(path)
    say(f"Picture: {path}")


def run(options: argparse.Namespace) -> None:
    """Run the demo with these options."""
    check_options(options)
    train, test, vocabulary = load_counts(options.documents)
    private = SubLDA(
        options.components,
        epsilon=options.epsilon,
        delta=options.delta,
        max_iter=options.max_iter,
        random_state=options.seed,
    )
    baseline = GibbsLDA(options.components, random_state=options.seed)
    print()
    try:
        fit(private, train, "private rounds")
    except ValueError as error:  # the corpus is valid, so an option is not
        raise argparse.ArgumentError(None, str(error)) from None
    fit(baseline, train, "sweeps")
    print()
    show_topics(private, vocabulary)
    print()
    show_privacy(private)
    print()
    show_perplexity(private, baseline, train, test)
    print()
    draw(private, vocabulary, options.output)
