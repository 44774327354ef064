"""The command ``dplda transform MODEL TEXTS --out FILE``: topic weights of texts."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import add_texts, check_output, say, texts_of
from dplda.leaf._files import write_atomically

if TYPE_CHECKING:
    import numpy as np


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Write the topic weights of texts, one row a text and in their order. The output is as "
        "private as the texts."
    )
    parser.set_defaults(command=run)
    parser.add_argument("model", type=Path, help="file that dplda fit or save_release wrote")
    add_texts(parser, "--id-column", "column that is copied to the output, such as a number")
    parser.add_argument("--out", type=Path, metavar="FILE", required=True, help="CSV file to write")


def run(options: argparse.Namespace) -> None:
    """Run the command with these options."""
    check_output(options.out, options.model, options.texts)
    model = dplda.load_release(options.model)
    if model.vectorizer_ is None:
        raise ValueError(
            f"{options.model} does not say how to count words; save a pipeline of vectorizer and "
            "model, as dplda fit does"
        )
    found = texts_of(options)  # private
    weights = model.transform(found.texts)  # private
    write_atomically(options.out, as_csv(options.id_column or "file", found.ids, weights))
    say(
        f"Features: {options.out}, {weights.shape[0]} rows of {weights.shape[1]} topic weights. "
        "These are functions of the texts, which epsilon does not cover: keep the file as private "
        "as the texts. Only its owner can read it."
    )


def as_csv(name: str, ids: list[str], weights: np.ndarray) -> bytes:
    """A table with a header; the first column holds ids, if there are any."""
    table = [[f"topic_{k}" for k in range(weights.shape[1])], *weights.tolist()]
    if ids:
        table = [[i, *row] for i, row in zip([name, *ids], table)]
    file = io.StringIO(newline="")
    csv.writer(file).writerows(table)
    return file.getvalue().encode()
