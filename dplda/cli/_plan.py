"""The command ``dplda plan --n-docs N --epsilon E``: what to expect of a fit."""

from __future__ import annotations

import argparse

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import add_model_options


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Say what to expect of a topic model of texts, before any data are read. All numbers must "
        "be public: an expectation, not a count of the private texts."
    )
    parser.epilog = "example: dplda plan --n-docs 6000 --epsilon 4"
    parser.set_defaults(command=run)
    add = parser.add_argument
    add("--n-docs", type=int, required=True, help="expected texts, or users if they are protected")
    add("--mean-doc-words", type=float, default=100.0,
        help="expected words of a text in the vocabulary (default: %(default)s)")  # fmt: skip
    add_model_options(parser, epsilon=4.0)


def run(options: argparse.Namespace) -> None:
    """Run the command with these options."""
    expected = dplda.plan(
        n_docs=options.n_docs, epsilon=options.epsilon, delta=options.delta,
        n_words=options.max_features, n_components=options.n_components,
        mean_doc_words=options.mean_doc_words,
    )  # fmt: skip
    print(expected)
