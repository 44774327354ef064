"""The commands of ``dplda federation``, which fit one model by secure sums."""

from __future__ import annotations

import argparse
import asyncio
import logging
import ssl
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

# loads a name at its first use: options and --help need nothing of it
import dplda.federated
from dplda.cli._options import (
    AddParser,
    add_texts,
    check_ledger,
    check_output,
    command_group,
    texts_of,
)
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._files import PUBLIC, reserved, write_atomically

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse as sp

log = logging.getLogger("dplda.federated")
LOG = "%(asctime)s %(name)s: %(message)s"


def add_commands(add_parser: AddParser) -> None:
    """Add the commands of ``dplda federation``."""
    add_command = command_group(
        add_parser,
        "federation",
        "train together over a network",
        argparse.ArgumentDefaultsHelpFormatter,
    )
    plan = add_command(
        "plan", _plan, "Write the plan of a fit, which all parties sign off."
    )
    coordinator = add_command(
        "coordinator", _add_up, "Add up what the parties of a plan send."
    )
    party = add_command(
        "party", _fit_together, "Fit the model of a plan with the other parties."
    )
    plan.add_argument(
        "--vocabulary",
        type=Path,
        required=True,
        help="public file with one word per line",
    )
    plan.add_argument(
        "--parties",
        type=Path,
        nargs="+",
        required=True,
        metavar="CERTIFICATE",
        help="certificates (PEM), whose file names are those of the parties",
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
        default="document",
        help="what is protected",
    )
    plan.add_argument(
        "--epsilon", type=float, required=True, help="total epsilon of a unit"
    )
    plan.add_argument(
        "--delta", type=float, default=1e-6, help="delta of (epsilon, delta)-privacy"
    )
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
        help="take the vectors of English words that dplda holds",
    )
    plan.add_argument(
        "--max-iter", type=int, help="number of rounds; default: that of the model"
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
        "--lost", type=int, default=0, help="parties that may drop out of the fit"
    )
    coordinator.add_argument("--host", default="127.0.0.1", help="address to listen at")
    coordinator.add_argument("--port", type=int, default=8000, help="port to listen at")
    coordinator.add_argument(
        "--round-timeout",
        type=float,
        default=600.0,
        help="seconds that a round may take",
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


def _plan(options: argparse.Namespace) -> None:
    """Write a plan, and print what the parties compare by telephone."""
    from dplda.federated._network import Plan

    check_output(options.out, options.vocabulary, options.prior)
    words = _words(options.vocabulary)
    tables = {}
    if options.prior is not None:
        tables["prior_components"] = _prior(options.prior, words).tolist()
    if options.word_vectors:
        tables["word_vectors"] = dplda.datasets.load_word_vectors(words).tolist()
    parameters = {}
    for name in ("epsilon", "delta", "n_components", "max_iter", "subsampling_ratio"):
        value = getattr(options, name)
        if value is not None:
            parameters[name] = value
    parties = {path.stem: path.read_text("utf-8") for path in options.parties}
    if len(parties) < len(options.parties):
        raise ValueError("two of --parties have one name, as which the files are named")
    plan = Plan(
        version=dplda.__version__,
        fit=uuid.uuid4().hex,
        model=options.model,
        parameters=parameters,
        unit=options.unit,
        colluding=options.colluding,
        lost=options.lost,
        parties=parties,
        words=words,
        tables=tables,
    )
    write_atomically(options.out, plan.text().encode(), permissions=PUBLIC)
    print(
        f"{options.out}: give this file to all parties, and compare its digest with "
        "them:"
    )
    print(plan.digest.hex())


def _add_up(options: argparse.Namespace) -> None:
    """Hand keys and sums on until the parties have their model."""
    from dplda.federated._network import Coordinator, Plan, tls_context
    from dplda.federated._secure_sum import Adder

    check_number("--round-timeout", options.round_timeout, 0, 1e9, closed="right")
    check_integer("--port", options.port, 0, 65535)
    plan = Plan.read(options.plan)
    names = plan.certificates()
    tls = tls_context(
        ssl.PROTOCOL_TLS_SERVER, options.certificate, options.key, [*names]
    )

    async def run() -> None:
        adder = Adder(plan.terms(), [*plan.parties])
        network = Coordinator(adder, names, plan.max_bytes, options.round_timeout)
        async with network.listening(options.host, options.port, tls) as port:
            log.info(
                "listening at %s:%d for plan %s", options.host, port, plan.digest.hex()
            )
            await network.add_up()

    logging.basicConfig(level=logging.INFO, format=LOG)
    asyncio.run(run())


def _fit_together(options: argparse.Namespace) -> None:
    """Fit with the others, and write the model that all have."""
    from dplda.federated._network import Line, Party, Plan, certificate_of, tls_context

    check_output(options.out, options.texts, options.plan, is_new=True)
    plan = Plan.read(options.plan)
    name = plan.certificates().get(certificate_of(options.certificate))
    if name is None:
        raise ValueError(f"{options.certificate} is no certificate of the plan")
    tls = tls_context(
        ssl.PROTOCOL_TLS_CLIENT,
        options.certificate,
        options.key,
        [certificate_of(options.coordinator_certificate)],
    )
    check_ledger(options.ledger)
    party = Party(
        plan,
        name,
        options.key,
        _load(options, plan.words),
        ledger=options.ledger,
        n_jobs=options.n_jobs,
    )
    line = Line(options.coordinator, plan.max_bytes, tls)
    logging.basicConfig(level=logging.INFO, format=LOG)
    log.info("plan %s", plan.digest.hex())
    # tables; words, escaped twice; the guarantee
    text = plan.text().encode()
    room = plan.max_bytes + 4 * len(text) + 2**17
    try:
        with reserved(options.out, room):
            model = party.fit(line)
    except BaseException:
        if options.ledger.exists():
            ledger = dplda.privacy.Ledger(options.ledger)
            print(f"The fit has ended without a model: {ledger}", file=sys.stderr)
        raise
    try:
        dplda.save_release(model, options.out, vocabulary=plan.words)
    except OSError as error:
        raise OSError(
            f"{options.out} cannot be written ({error}): the other parties have the "
            "same model"
        ) from error
    print(f"{options.out}: the model that all parties have. It may be published.")


def _load(
    options: argparse.Namespace, words: list[str]
) -> tuple[sp.csr_array, list[str] | None]:
    """The party's own documents, and the users of their rows or None.

    They are texts, as `dplda fit` reads them, or sparse counts (.npz).
    """
    import scipy.sparse as sp
    from sklearn.feature_extraction.text import CountVectorizer

    if options.texts.suffix == ".npz":
        try:
            return sp.csr_array(sp.load_npz(options.texts)), None
        except ValueError as error:
            raise ValueError(f"{options.texts} holds no sparse counts") from error
    found = texts_of(options, options.texts, options.id_column)
    users = found.ids if options.id_column is not None else None
    return CountVectorizer(vocabulary=words).transform(found.texts), users


def _words(path: Path) -> list[str]:
    """The words of a vocabulary file, one a line; the last may end in a line break."""
    try:
        words = path.read_text("utf-8").removesuffix("\n").split("\n")
        dplda.federated.vocabulary_hash(words)
        for word in words:
            if not word.strip() or len(word.splitlines()) != 1:
                raise ValueError("a line is blank, or has a line separator in it")
    except ValueError as error:
        raise ValueError(f"--vocabulary {path}: {error}") from error
    return words


def _prior(path: Path, words: list[str]) -> np.ndarray:
    """The topics of a release in these words, (n_components, n_words); else zeros."""
    import numpy as np

    model = dplda.load_release(path)
    if model.vocabulary_ is None:
        raise ValueError(
            f"--prior {path} does not say its words; save it with a vocabulary"
        )
    place = {word: column for column, word in enumerate(model.vocabulary_)}
    prior = np.zeros((len(model.components_), len(words)))
    for column, word in enumerate(words):
        if word in place:
            prior[:, column] = model.components_[:, place[word]]
    return prior
