"""The commands of ``dplda federation``: options and processes.

``plan``, ``coordinator`` and ``party`` fit one model by secure sums. ``iftm-coordinator`` and
``iftm-party`` merge topics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import ssl
import sys
import uuid
from pathlib import Path
from typing import Any

import dplda.federated  # loads a name at its first use: options and --help need nothing of it
from dplda.cli._options import add_texts, check_output, texts_of
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._files import PUBLIC, check_writable, reserved, write_atomically

log = logging.getLogger("dplda.federated")

STATE = "federation.state"  # of the coordinator, in its --home


def add_commands(subparsers: Any) -> None:
    """Add the commands; ``options.command(options)`` runs the one that was chosen."""
    style = argparse.ArgumentDefaultsHelpFormatter
    parsers = {}
    for name, text, command in (
        ("plan", "write the plan of a fit, which all parties sign off", _plan),
        ("coordinator", "add up what the parties of a plan send", _add_up),
        ("party", "fit the model of a plan with the other parties", _fit_together),
        ("iftm-coordinator", "make the rounds of merged topics", coordinate),
        ("iftm-party", "be a party of merged topics", take_part),
    ):
        parsers[name] = subparsers.add_parser(name, formatter_class=style, help=text)
        parsers[name].set_defaults(command=command)
    for name in ("coordinator", "party", "iftm-coordinator", "iftm-party"):
        add = parsers[name].add_argument
        add("--certificate", type=Path, required=True, help="own TLS certificate (PEM)")
        add("--key", type=Path, required=True, help="its private key (PEM)")
        if name.endswith("coordinator"):
            add("--host", default="127.0.0.1", help="address to listen at")
            add("--port", type=int, default=8000, help="port to listen at")
            add("--round-timeout", type=float, default=600.0, help="seconds that a round may take")
        else:
            add("--name", required=True, help="name of the party")
            add("--coordinator", required=True, metavar="HOST:PORT", help="where it listens")
            add("--coordinator-certificate", type=Path, required=True,
                help="its certificate, or its authority's (PEM)")  # fmt: skip
            add("--ledger", type=Path, required=True, help="file of the budget that is charged")
            add("--n-jobs", type=int, help="threads")
    for name in ("plan", "iftm-coordinator", "iftm-party"):
        add = parsers[name].add_argument
        add("--vocabulary", type=Path, required=True, help="public file with one word per line")
    for name in ("plan", "iftm-coordinator"):
        parsers[name].add_argument(
            "--party", type=_named_file, action="append", required=True, metavar="NAME=CERTIFICATE",
            help="a party and its certificate (PEM); no other party is admitted",
        )  # fmt: skip

    add = parsers["plan"].add_argument
    add("--out", type=Path, default=Path("plan.json"), help="file of the plan")
    add("--model", choices=["SubLDA", "PrivateSVILDA"], default="SubLDA", help="what is fitted")
    add("--unit", choices=["document", "user"], default="document", help="what is protected")
    add("--epsilon", type=float, required=True, help="total epsilon of a unit")
    add("--delta", type=float, default=1e-6, help="delta of (epsilon, delta)-privacy")
    add("--n-components", type=int, default=20, help="number of topics")
    add("--max-iter", type=int, help="number of rounds; default: that of the model")
    add("--subsampling-ratio", type=float, help="share of units in a round; default: the model's")
    add("--colluding", type=int, default=1, help="parties that may share all they know")
    add("--lost", type=int, default=0, help="parties that may drop out of the fit")
    for name in ("coordinator", "party"):
        parsers[name].add_argument("--plan", type=Path, required=True, help="file of the plan")
    add_texts(parsers["party"], "--user-column", "column that says whose text it is")
    parsers["party"].add_argument(
        "--out", type=Path, default=Path("together.model"), help="release file of the model"
    )
    coordinator, party = parsers["iftm-coordinator"], parsers["iftm-party"]
    add = coordinator.add_argument
    add("--rounds", type=int, default=5, help="rounds to make")
    add("--min-parties", type=int, default=2, help="fewest models in a round")
    add("--similarity-threshold", type=float, default=0.3, help="topics so similar are merged")
    add("--max-topics", type=int, default=200, help="most topics of a party")
    add("--max-weight", type=float, help="larger weights are clipped; default: none is")
    add("--out", type=Path, default=Path("global.model"), help="release file of the global model")
    add("--home", type=Path, default=Path(".dplda-coordinator"), help="folder of the state")

    add = party.add_argument
    add_texts(party, None)
    add("--epsilon", type=float, required=True, help="epsilon of a token; inf: no privacy")
    add("--delta", type=float, default=1e-6, help="delta at which epsilon is stated")
    add("--state", type=Path, required=True, help="file of the party between rounds; private")
    add("--n-components", type=int, default=20, help="number of topics of this party")
    add("--model", choices=["lda", "sentence_lda"], default="lda", help="of words, or sentences")
    add("--max-doc-tokens", type=int, help="tokens of a document that are used; default: all")
    add("--max-iter", type=int, default=50, help="sweeps per round")
    add(
        "--random-state",
        type=int,
        help="reproducible; no privacy from anyone who knows or guesses it",
    )


def _named_file(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise argparse.ArgumentTypeError(f"expected NAME=FILE, got {text!r}")
    return name, Path(path)


def _plan(options: argparse.Namespace) -> None:
    """Write a plan, and print what the parties compare by telephone."""
    from dplda.federated._joint_fit import HAS_KEM, Plan

    check_output(options.out, options.vocabulary)
    given = ("epsilon", "delta", "n_components", "max_iter", "subsampling_ratio")
    parameters = {name: value for name in given if (value := getattr(options, name)) is not None}
    names = [name for name, _ in options.party]
    if len({*names}) < len(names):
        raise ValueError("each --party needs its own name and its own certificate")
    plan = Plan(
        version=dplda.__version__, fit=uuid.uuid4().hex, model=options.model, parameters=parameters,
        unit=options.unit, colluding=options.colluding, lost=options.lost, kem=HAS_KEM,
        words=_words(options.vocabulary),
        parties={name: path.read_text("utf-8") for name, path in options.party},
    )  # fmt: skip
    write_atomically(options.out, plan.text().encode(), permissions=PUBLIC)
    print(f"{options.out}: give this file to all parties, and compare its digest with them:")
    print(plan.digest.hex())


def _add_up(options: argparse.Namespace) -> int:
    """Hand keys and sums on until the parties have their model."""
    from dplda.federated import _network
    from dplda.federated._joint_fit import Plan, make_sums

    check_number("--round-timeout", options.round_timeout, 0, 1e9, closed="right")
    check_integer("--port", options.port, 0, 65535)
    plan = Plan.read(options.plan)
    names = plan.certificates()
    tls = _network.tls_context(ssl.PROTOCOL_TLS_SERVER, options.certificate, options.key, [*names])

    async def run() -> None:
        network = _network.Coordinator(names, plan.max_bytes)
        async with network.listening(options.host, options.port, tls) as port:
            log.info("listening at %s:%d for plan %s", options.host, port, plan.digest.hex())
            try:
                await make_sums(network, plan, options.round_timeout)
            finally:
                await network.end()

    _show_log()
    asyncio.run(run())
    return 0


def _fit_together(options: argparse.Namespace) -> int:
    """Fit with the others, and write the model that all have."""
    from dplda.federated import _network
    from dplda.federated._joint_fit import Party, Plan

    check_output(options.out, options.texts, options.plan, is_new=True)
    plan = Plan.read(options.plan)
    own = _network.certificate_of(options.certificate)
    if plan.certificates().get(own) != options.name:
        raise ValueError(
            f"{options.certificate} is not the certificate of {options.name!r} in the plan"
        )
    tls = _network.tls_context(
        ssl.PROTOCOL_TLS_CLIENT, options.certificate, options.key,
        [_network.certificate_of(options.coordinator_certificate)],
    )  # fmt: skip
    if options.ledger.exists():
        dplda.privacy.Ledger(options.ledger)  # read, and checked
    else:
        check_writable(options.ledger)
    party = Party(
        plan, options.name, options.key, lambda: _load(options, plan.words),
        ledger=options.ledger, n_jobs=options.n_jobs,
    )  # fmt: skip
    _show_log()
    log.info("plan %s", plan.digest.hex())
    try:
        with reserved(options.out, plan.max_bytes + 2**20):  # more than the model takes
            asyncio.run(
                _network.take_part(
                    options.coordinator, party.answer, max_bytes=plan.max_bytes, tls=tls
                )
            )
    finally:
        party.end()
        if not party.is_fitted and options.ledger.exists():
            ledger = dplda.privacy.Ledger(options.ledger)
            print(f"The fit has ended without a model: {ledger}", file=sys.stderr)
    if not party.is_fitted:
        raise ConnectionError("the fit has ended without a model") from party.error
    dplda.save_release(party.model, options.out, vocabulary=plan.words)
    print(f"{options.out}: the model that all parties have. It may be published.")
    return 0


def coordinate(options: argparse.Namespace) -> int:
    """Make the rounds, and write the global model after each of them.

    A coordinator that was killed continues after its last round: the state is in its `--home`, and
    is removed after the last round.
    """
    from dplda.federated._messages import MAX_ROUND
    from dplda.federated._network import Coordinator, certificate_of, tls_context
    from dplda.federated._rounds import make_rounds, read_state, state_bytes

    check_integer("--rounds", options.rounds, 1, MAX_ROUND)
    check_number("--round-timeout", options.round_timeout, 0, 1e9, closed="right")
    check_integer("--port", options.port, 0, 65535)
    names = {certificate_of(path): name for name, path in options.party}
    if not len(options.party) == len(names) == len(set(names.values())):
        raise ValueError("each --party needs its own name and its own certificate")
    if options.min_parties > len(names):
        raise ValueError(f"--min-parties is {options.min_parties}, and {len(names)} can join")
    tls = tls_context(ssl.PROTOCOL_TLS_SERVER, options.certificate, options.key, [*names])
    master = dplda.federated.IFTMMaster(
        _words(options.vocabulary), similarity_threshold=options.similarity_threshold,
        max_topics=options.max_topics, min_parties=options.min_parties,
        max_weight=options.max_weight,
    )  # fmt: skip
    check_writable(options.out)
    options.home.mkdir(parents=True, exist_ok=True)
    state = options.home / STATE
    check_writable(state)
    identity = json.dumps([master.vocabulary_hash, [*names.values()]])
    if state.exists():
        master._restore(*read_state(state, identity))
        if master.round_ > options.rounds:
            raise ValueError(f"{state} is after round {master.round_}: remove it, or give --rounds")
        log.info("%s: continuing with round %d", state, master.round_ + 1)

    def store() -> None:
        dplda.save_release(master.released_model(), options.out)
        write_atomically(state, state_bytes(identity, *master._state()))

    async def run() -> None:
        network = Coordinator(names, master.max_bytes)
        async with network.listening(options.host, options.port, tls) as port:
            log.info("listening at %s:%d", options.host, port)
            await make_rounds(
                network, master, options.rounds, expected=names.values(),
                round_timeout=options.round_timeout, after_round=store,
            )  # fmt: skip

    _show_log()
    try:
        asyncio.run(run())
    except dplda.federated.RoundError as error:
        print(
            f"error: {error}. A party may have ended, or may not reach this port. Start the "
            "coordinator again: it continues after the last complete round",
            file=sys.stderr,
        )
        return 1
    state.unlink(missing_ok=True)
    return 0


def take_part(options: argparse.Namespace) -> None:
    """Answer the coordinator's requests until the federation is over.

    Everything is checked before the coordinator is called. A party that is stopped continues from
    its `--state` when the same command is given.
    """
    from dplda.federated import _network

    known = [_network.certificate_of(options.coordinator_certificate)]
    tls = _network.tls_context(ssl.PROTOCOL_TLS_CLIENT, options.certificate, options.key, known)
    words = _words(options.vocabulary)
    names = (
        "n_components", "delta", "model", "max_doc_tokens", "max_iter", "ledger", "n_jobs",
        "random_state",
    )  # fmt: skip
    given = {name: getattr(options, name) for name in names}
    estimator = dplda.federated.IFTMParty(token_epsilon=options.epsilon, **given)
    estimator._validate_params()
    estimator._bits()
    if options.ledger.exists():
        dplda.privacy.Ledger(options.ledger)  # read, and checked
    else:
        check_writable(options.ledger)
    with dplda.federated.StoredParty(
        options.name, estimator, lambda: _load(options, words)[0],
        vocabulary=words, path=options.state,
    ) as party:  # fmt: skip
        party.check_documents()
        _show_log()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing on the disk needs a farewell
        asyncio.run(
            _network.take_part(
                options.coordinator, party.answer, max_bytes=party.max_bytes, tls=tls
            )
        )


def _load(options: argparse.Namespace, words: list[str]) -> tuple[Any, Any]:
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
    found = texts_of(options)
    users = found.ids if getattr(options, "id_column", None) is not None else None
    if getattr(options, "model", "") == "sentence_lda":
        return dplda.federated.SentenceVectorizer(words).fit_transform(found.texts), None
    return CountVectorizer(vocabulary=words).transform(found.texts), users


def _words(path: Path) -> list[str]:
    """The words of a vocabulary file, one a line; the last line may end in a line break."""
    try:
        words = path.read_text("utf-8").removesuffix("\n").split("\n")
        dplda.federated.vocabulary_hash(words)
        if not all(word.strip() and len(word.splitlines()) == 1 for word in words):
            raise ValueError("a line is blank, or has a line separator in it")
    except ValueError as error:
        raise ValueError(f"--vocabulary {path}: {error}") from error
    return words


def _show_log() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
