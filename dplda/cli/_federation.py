"""``dplda federation coordinator`` and ``dplda federation party``: options and processes."""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dplda.federated  # loads a name at its first use: options and --help need nothing of it
from dplda.leaf._checks import check_integer, check_number
from dplda.leaf._files import check_writable, write_atomically

if TYPE_CHECKING:
    import ssl

    from dplda.federated._https import Caller, Mailbox, Server

log = logging.getLogger("dplda.federated")

STATE = "federation.state"  # of the coordinator, in its --home
MAX_PORT = 65535


def add_commands(subparsers: Any) -> None:
    """Register the two commands; ``options.command(options)`` runs the one that was chosen.

    Parameters
    ----------
    subparsers : argparse subparsers
        Result of ``ArgumentParser.add_subparsers``.
    """
    style = argparse.ArgumentDefaultsHelpFormatter
    coordinator = subparsers.add_parser(
        "coordinator", formatter_class=style, help="make the rounds of a federation"
    )
    coordinator.set_defaults(command=coordinate)
    _add_coordinator_options(coordinator)
    party = subparsers.add_parser("party", formatter_class=style, help="be a party of a federation")
    party.set_defaults(command=take_part)
    _add_party_options(party)


def _add_coordinator_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--vocabulary", type=Path, required=True, help="file with one word per line")
    add("--rounds", type=int, default=5, help="rounds to make")
    add("--min-parties", type=int, default=2, help="fewest models in a round")
    add(
        "--similarity-threshold",
        type=float,
        default=0.3,
        help="topics at least this similar are merged",
    )
    add("--top-words", type=int, default=30, help="words of a topic that are compared")
    add("--max-topics", type=int, default=1000, help="most topics of all parties together")
    add("--max-weight", type=float, help="larger weights are clipped; default: none is")
    add(
        "--output",
        type=Path,
        default=Path("global.model"),
        help="release file for the global model",
    )
    add("--round-timeout", type=float, default=600.0, help="seconds to wait for the parties")
    add("--host", default="127.0.0.1", help="address to listen at")
    add("--port", type=int, default=8000, help="port to listen at")
    add("--certificate", type=Path, help="TLS certificate of this host (PEM)")
    add("--certificate-key", type=Path, help="its private key (PEM)")
    add("--insecure", action="store_true", help="no TLS, no authentication")
    add("--party", type=_named_file, action="append", default=[], metavar="NAME=CERTIFICATE",
        help="a party and its certificate (PEM); no other party is admitted")  # fmt: skip
    add("--home", type=Path, default=Path(".dplda-coordinator"),
        help="folder for the state between rounds")  # fmt: skip


def _add_party_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--name", required=True, help="name of the party")
    add("--data", type=Path, required=True, help="documents: .npz (sparse counts) or own .pkl")
    add("--vocabulary", type=Path, required=True, help="file with one word per line")
    add("--token-epsilon", type=float, required=True, help="epsilon of a token; inf: no privacy")
    add("--ledger", type=Path, required=True, help="SQLite file for the charge of the fit")
    add("--state", type=Path, required=True, help="file for the party between rounds; private")
    add("--components", type=int, default=20, help="topics of this party")
    add("--model", choices=["lda", "sentence_lda"], default="lda", help="of words, or sentences")
    add("--token-mechanism", choices=["rr", "laplace"], default="rr", help="noise on a token")
    add("--delta", type=float, default=1e-6, help="delta at which epsilon is stated")
    add("--max-doc-tokens", type=int, help="tokens of a document that are used; default: all")
    add("--max-iter", type=int, default=50, help="sweeps per round")
    add("--n-jobs", type=int, help="threads")
    add("--seed", type=int, help="reproducible, but not private to anyone who knows the seed")
    add("--coordinator", required=True, metavar="HOST:PORT", help="where the coordinator listens")
    add("--ca-certificate", type=Path,
        help="the coordinator's certificate, or its authority's (PEM)")  # fmt: skip
    add("--certificate", type=Path, help="certificate of this party (PEM)")
    add("--key", type=Path, help="its private key (PEM)")
    add("--insecure", action="store_true", help="no TLS, no authentication")


def _named_file(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise argparse.ArgumentTypeError(f"expected NAME=FILE, got {text!r}")
    return name, Path(path)


# ---------------------------------------------------------------- the coordinator


def coordinate(options: argparse.Namespace) -> None:
    """Listen, make the rounds, and write the global model after each of them.

    A coordinator that was killed continues after its last round: the state is in its `--home`, and
    is removed after the last round.

    Parameters
    ----------
    options : argparse.Namespace
        The options of the command.
    """
    from dplda.federated._network import make_rounds

    _show_log()
    with _usage_errors():
        names, tls = _check_coordinator(options)
        master = _master(options, names)
        _say_who_can_join(options)
        mailbox, server = _listen(options, names, tls, master.max_bytes)

    def store() -> None:
        dplda.save_release(master.released_model(), options.output)
        write_atomically(options.home / STATE, master.state())

    with _failures(), server.running():
        make_rounds(
            mailbox, master, options.rounds - master.round_,
            round_timeout=options.round_timeout, after_round=store,
        )  # fmt: skip
        (options.home / STATE).unlink(missing_ok=True)


def _check_coordinator(
    options: argparse.Namespace,
) -> tuple[dict[bytes, str], ssl.SSLContext | None]:
    """Names of the parties by certificate, and TLS, after a check of all but the master."""
    from dplda.federated._messages import MAX_ROUND, check_name
    from dplda.federated._tls import certificate_of, server_context

    files = (options.certificate, options.certificate_key)
    if options.insecure == all(files):
        raise ValueError(
            "give --certificate and --certificate-key, or --insecure on a network that only the "
            "parties can reach"
        )
    if options.insecure and options.party:
        raise ValueError("--party (authentication by certificates) needs TLS, not --insecure")
    check_integer("--rounds", options.rounds, 1, MAX_ROUND)
    check_number("--round-timeout", options.round_timeout, 0, math.inf, closed="neither")
    check_integer("--port", options.port, 1, MAX_PORT)
    for name, _ in options.party:
        check_name(name)
    names = {certificate_of(path): name for name, path in options.party}
    if not len(options.party) == len(names) == len(set(names.values())):
        raise ValueError(
            "each --party needs its own name and its own certificate; some are given twice"
        )
    if names and options.min_parties > len(names):
        raise ValueError(
            f"--min-parties is {options.min_parties}, and {len(names)} parties can join"
        )
    tls = None if options.insecure else server_context(*files, names)
    check_writable(options.output)
    options.home.mkdir(parents=True, exist_ok=True)
    check_writable(options.home / STATE)
    return names, tls


def _listen(
    options: argparse.Namespace,
    names: dict[bytes, str],
    tls: ssl.SSLContext | None,
    max_bytes: int,
) -> tuple[Mailbox, Server]:
    from dplda.federated._https import Mailbox, Server

    mailbox = Mailbox(max_bytes, tuple(names.values()))
    try:
        return mailbox, Server((options.host, options.port), mailbox, tls, names)
    except OSError as error:
        raise OSError(
            f"--host {options.host} --port {options.port}: cannot listen there "
            f"({error.strerror or error}); another process may use the port"
        ) from error


def _master(options: argparse.Namespace, names: dict[bytes, str]) -> dplda.federated.IFTMMaster:
    """The master, as it was after its last round if it was stopped."""
    master = dplda.federated.IFTMMaster(
        _words(options.vocabulary),
        similarity_threshold=options.similarity_threshold,
        n_top_words=options.top_words,
        max_topics=options.max_topics,
        min_parties=options.min_parties,
        max_weight=options.max_weight,
        parties=list(names.values()) if names else None,
    )
    state = options.home / STATE
    if state.exists():
        try:
            master.restore(state.read_bytes())
        except ValueError as error:
            raise ValueError(
                f"{state}: {error}; remove it to start with round 0, or choose another --home"
            ) from error
        if master.round_ > options.rounds:
            raise ValueError(
                f"{state} is after round {master.round_}, and --rounds is {options.rounds}; give "
                "more rounds, or remove it to start with round 0"
            )
        log.info("%s: continuing with round %d of %d", state, master.round_ + 1, options.rounds)
    return master


def _say_who_can_join(options: argparse.Namespace) -> None:
    if options.insecure:
        log.warning("--insecure: messages are neither encrypted nor authenticated")
    if not options.party:
        log.warning(
            "no --party: anyone who reaches %s:%d can join, and can use the name of any party",
            options.host, options.port,
        )  # fmt: skip


# ---------------------------------------------------------------- the party


def take_part(options: argparse.Namespace) -> None:
    """Answer the coordinator's requests until this process ends.

    Parameters
    ----------
    options : argparse.Namespace
        The options of the command.
    """
    from dplda.federated._https import take_part
    from dplda.federated._network import answer

    _show_log()
    with _usage_errors():
        caller = _caller(options)
        party = _party(options)
    try:
        take_part(caller, partial(answer, party))
    except KeyboardInterrupt:  # the usual end: a party does not know which round is the last
        log.info("stopped; the same command continues with %s", options.state)
        raise SystemExit(128 + signal.SIGINT) from None


def _caller(options: argparse.Namespace) -> Caller:
    from dplda.federated._https import Caller
    from dplda.federated._messages import check_name
    from dplda.federated._tls import client_context

    check_name(options.name)
    host, _, port = options.coordinator.rpartition(":")
    if not (host and port.isdecimal() and 1 <= int(port) <= MAX_PORT):
        raise ValueError(f"--coordinator must be host:port, got {options.coordinator!r}")
    if (options.certificate is None) != (options.key is None):
        raise ValueError("give --certificate and --key, or neither of them")
    files = (options.ca_certificate, options.certificate, options.key)
    if options.insecure and any(files):
        raise ValueError("--insecure has no TLS: leave out certificates and key, or --insecure")
    tls = None if options.insecure else client_context(*files)
    host = host.removeprefix("[").removesuffix("]")  # of an address with colons
    return Caller(options.name, host, int(port), tls)


def _party(options: argparse.Namespace) -> dplda.federated.StoredParty:
    """The party, after a check of everything that its first round needs."""
    estimator = _estimator(options)
    estimator._check_parameters()
    words = _words(options.vocabulary)
    if options.ledger.exists():
        dplda.privacy.Ledger(options.ledger)  # read, and checked
    else:
        check_writable(options.ledger)

    def load() -> Any:
        X = _load(options.data)
        estimator._check_sentences(X)
        return X

    party = dplda.federated.StoredParty(
        options.name, estimator, load, vocabulary=words, path=options.state
    )
    if party.is_fitted:
        log.info("%s holds the privatized documents; --data is not read", options.state)
    try:
        party.check_documents()
    except BaseException:
        party.close()
        raise
    return party


def _estimator(options: argparse.Namespace) -> dplda.federated.IFTMParty:
    return dplda.federated.IFTMParty(
        options.components,
        token_epsilon=options.token_epsilon,
        delta=options.delta,
        model=options.model,
        token_mechanism=options.token_mechanism,
        max_doc_tokens=options.max_doc_tokens,
        max_iter=options.max_iter,
        ledger=options.ledger,
        n_jobs=options.n_jobs,
        random_state=options.seed,
    )


def _load(path: Path) -> Any:
    """The party's own documents: sparse counts, or a pickle that the party wrote."""
    import pickle

    import scipy.sparse as sp

    try:
        if path.suffix == ".npz":
            return sp.csr_array(sp.load_npz(path))
        return pickle.loads(path.read_bytes())
    except OSError:
        raise
    except Exception as error:  # damaged pickles raise anything
        raise ValueError(
            f"--data {path} holds neither sparse counts (.npz of scipy.sparse.save_npz) nor a "
            f"pickle of documents: {type(error).__name__}"
        ) from error


# ---------------------------------------------------------------- both


def _show_log() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Before anything is started or spent, an error is one line, and exit code 2."""
    try:
        yield
    except (OSError, TypeError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None


@contextmanager
def _failures() -> Iterator[None]:
    """A federation that cannot go on ends in one line, and exit code 1."""
    try:
        yield
    except dplda.federated.RoundError as error:
        print(
            f"error: {error}. A party may have ended, or may not reach this port. Start the "
            "coordinator again: it continues after the last complete round",
            file=sys.stderr,
        )
        raise SystemExit(1) from None


def _words(path: Path) -> list[str]:
    """The words of a vocabulary file, one a line; the last line may end in a line break."""
    try:
        words = path.read_text("utf-8").removesuffix("\n").split("\n")
        dplda.federated.vocabulary_hash(words)
    except ValueError as error:
        raise ValueError(f"--vocabulary {path}: {error}") from error
    for number, word in enumerate(words, 1):
        if not word.strip() or len(word.splitlines()) != 1:
            raise ValueError(
                f"--vocabulary {path}: line {number} is blank, or has a line separator in it; the "
                "file has one word per line"
            )
    return words


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the options name; `argv` None reads the command line."""
    parser = argparse.ArgumentParser(
        prog="dplda federation", description="A federation over a network."
    )
    add_commands(parser.add_subparsers(required=True))
    options = parser.parse_args(argv)
    options.command(options)


if __name__ == "__main__":
    main()
