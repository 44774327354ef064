"""The commands of ``dplda federation``, which fit one model by secure sums."""

from __future__ import annotations

import argparse
from pathlib import Path

# loads a name at its first use: options and --help need nothing of it
from dplda.cli._budget import add_agreement, add_budget
from dplda.cli._federation_coordinator import add_up
from dplda.cli._federation_party import fit_together
from dplda.cli._federation_plan import ROUNDS, show_plan, write_plan
from dplda.cli._options import AddParser, add_texts, command_group


def add_commands(add_parser: AddParser) -> None:
    """Add the commands of ``dplda federation``."""
    add_command = command_group(
        add_parser,
        "federation",
        "train together over a network",
        argparse.ArgumentDefaultsHelpFormatter,
    )
    plan = add_command(
        "plan", write_plan, "Write the plan of a fit, which all parties sign off."
    )
    show = add_command(
        "show", show_plan, "Print what a plan costs, who pays, and who takes part."
    )
    show.add_argument("plan", type=Path, help="file of the plan")
    coordinator = add_command(
        "coordinator", add_up, "Add up what the parties of a plan send."
    )
    party = add_command(
        "party", fit_together, "Fit the model of a plan with the other parties."
    )
    words = plan.add_mutually_exclusive_group(required=True)
    words.add_argument(
        "--language",
        help="the parties choose the words together, from the public list of a "
        "language, such as en",
    )
    words.add_argument(
        "--candidates",
        type=Path,
        help="the parties choose the words together, from a public file with one word "
        "per line, the most frequent first",
    )
    words.add_argument(
        "--vocabulary",
        type=Path,
        help="public file with one word per line; all are used",
    )
    plan.add_argument(
        "--max-features",
        type=int,
        default=2000,
        help="number of words that are chosen",
    )
    plan.add_argument(
        "--parties",
        type=Path,
        nargs="+",
        required=True,
        metavar="CERTIFICATE",
        help="certificates (PEM); the name of each file is the name of its party",
    )
    plan.add_argument(
        "--out", type=Path, default=Path("plan.json"), help="file of the plan"
    )
    plan.add_argument(
        "--model",
        choices=["SubLDA", "PrivateSVILDA"],
        default="SubLDA",
        help="what is fitted",
    )
    plan.add_argument(
        "--unit",
        choices=["document", "user"],
        required=True,
        help="what is protected: each document, or all documents of a person",
    )
    add_budget(plan.add_argument, "total epsilon of a unit", required=True)
    plan.add_argument(
        "--n-components", type=int, default=20, help="number of topics, also of --prior"
    )
    plan.add_argument(
        "--prior",
        type=Path,
        metavar="MODEL",
        help="release file of a model of public texts of "
        "the same kind, in whose topics the fit begins",
    )
    plan.add_argument(
        "--word-vectors",
        action="store_true",
        help="use the vectors of English words that dplda ships with",
    )
    plan.add_argument(
        "--max-iter",
        type=int,
        help=f"number of rounds; default: {ROUNDS} for SubLDA without sampling, else "
        "the model's",
    )
    plan.add_argument(
        "--subsampling-ratio",
        type=float,
        help="share of units in a round; default: the model's",
    )
    plan.add_argument(
        "--colluding", type=int, default=1, help="parties that may share all they know"
    )
    plan.add_argument(
        "--lost",
        type=int,
        default=0,
        help="parties that may drop out of the fit; the plan prints their cost",
    )
    coordinator.add_argument("--host", default="127.0.0.1", help="address to listen at")
    coordinator.add_argument("--port", type=int, default=8000, help="port to listen at")
    coordinator.add_argument(
        "--state",
        type=Path,
        help="file from which a restarted coordinator continues (default: the file of "
        "the plan, with .state)",
    )
    add_texts(party, "--user-column", "column that says whose text it is")
    party.add_argument(
        "--coordinator", required=True, metavar="HOST:PORT", help="where it listens"
    )
    party.add_argument(
        "--coordinator-certificate",
        type=Path,
        required=True,
        help="its certificate, or its authority's (PEM)",
    )
    party.add_argument(
        "--ledger", type=Path, required=True, help="file of the budget that is charged"
    )
    party.add_argument(
        "--budget",
        type=float,
        help="epsilon of a new ledger: the total for the life of these data",
    )
    party.add_argument(
        "--delta", type=float, default=1e-6, help="delta of a new ledger"
    )
    add_agreement(party.add_argument)
    party.add_argument(
        "--out",
        type=Path,
        default=Path("together.model"),
        help="release file of the model",
    )
    party.add_argument("--n-jobs", type=int, help="threads")
    for parser in (coordinator, party):
        parser.add_argument("--plan", type=Path, required=True, help="file of the plan")
        parser.add_argument(
            "--certificate", type=Path, required=True, help="own TLS certificate (PEM)"
        )
        parser.add_argument(
            "--key", type=Path, required=True, help="its private key (PEM)"
        )
        parser.add_argument(
            "--round-timeout",
            type=float,
            default=600.0,
            help="seconds that a round, or a silence of the other side, may last",
        )
        parser.add_argument(
            "--start-timeout",
            type=float,
            default=3600.0,
            help="seconds to wait at the start until the others have appeared",
        )
