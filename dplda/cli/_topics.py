"""The command ``dplda topics MODEL``: the topics and the card of a published model."""

from __future__ import annotations

import argparse
from pathlib import Path

import dplda  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import check_output, say, show_guarantee, show_topics


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = "Print the topics of a published model, and its guarantee."
    parser.set_defaults(command=run)
    parser.add_argument("model", type=Path, help="file that dplda fit or save_release wrote")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the topics to this file")


def run(options: argparse.Namespace) -> None:
    """Run the command with these options."""
    if options.picture is not None:
        check_output(options.picture, options.model)
    model = dplda.load_release(options.model)
    show_topics(model)
    show_guarantee(model.privacy_)
    if options.picture is not None:
        dplda.displays.TopicDisplay.from_estimator(model).figure_.savefig(options.picture)
        say(f"Picture: {options.picture}")
