"""The commands ``dplda topics`` and ``dplda transform``, of a published model."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path
from typing import Any

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import add_texts, check_output, say, show_guarantee, show_topics, texts_of
from dplda.leaf._files import write_atomically


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``dplda topics``."""
    parser.description = "Print the topics of a published model, and its guarantee."
    parser.set_defaults(command=_topics)
    parser.add_argument("model", type=Path, help="file that dplda fit or save_release wrote")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the topics to this file")


def _topics(options: argparse.Namespace) -> None:
    if options.picture is not None:
        check_output(options.picture, options.model)
    model = dplda.load_release(options.model)
    show_topics(model)
    show_guarantee(model.privacy_)
    if options.picture is not None:
        dplda.displays.TopicDisplay.from_estimator(model).figure_.savefig(options.picture)
        say(f"Picture: {options.picture}")


def add_transform(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``dplda transform``."""
    parser.description = (
        "Write the topic weights of texts, one row a text and in their order. The output is as "
        "private as the texts."
    )
    parser.set_defaults(command=_transform)
    parser.add_argument("model", type=Path, help="file that dplda fit or save_release wrote")
    add_texts(parser, "--id-column", "column that is copied to the output, such as a number")
    parser.add_argument("--out", type=Path, metavar="FILE", required=True, help="CSV file to write")


def _transform(options: argparse.Namespace) -> None:
    check_output(options.out, options.model, options.texts)
    model = dplda.load_release(options.model)
    if model.vectorizer_ is None:
        raise ValueError(
            f"{options.model} does not say how to count words; save a pipeline of vectorizer and "
            "model, as dplda fit does"
        )
    found = texts_of(options)  # private
    weights = model.transform(found.texts)  # private
    table: list[list[Any]] = [[f"topic_{k}" for k in range(weights.shape[1])]]
    table += ([f"{weight:.6g}" for weight in row] for row in weights)
    if found.ids:
        ids = [options.id_column or "file", *found.ids]
        table = [[i, *row] for i, row in zip(ids, table)]
    file = io.StringIO(newline="")
    csv.writer(file).writerows(table)
    write_atomically(options.out, file.getvalue().encode())
    say(
        f"Features: {options.out}, {weights.shape[0]} rows of {weights.shape[1]} topic weights. "
        "These are functions of the texts, which epsilon does not cover: keep the file as private "
        "as the texts. Only its owner can read it."
    )
