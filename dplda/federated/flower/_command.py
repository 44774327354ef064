"""``dplda federation coordinator`` and ``dplda federation party``: options and processes."""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dplda.federated._master import IFTMMaster
from dplda.federated._party import IFTMParty
from dplda.federated._rounds import StoredParty
from dplda.federated.flower import _tasks
from dplda.federated.flower._protocol import log, make_rounds, reply_to

RESTART_SECONDS = 3.0


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
    coordinator.set_defaults(command=partial(coordinate, usage_error=coordinator.error))
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
    add("--max-topics", type=int, default=1000, help="most topics of one party")
    add("--output", type=Path, default=Path("global.model"), help="file for the global model")
    add("--round-timeout", type=float, default=600.0, help="seconds to wait for the parties")
    add("--host", default="127.0.0.1", help="address to listen at")
    add("--port", type=int, default=8000, help="port to listen at")
    add("--certificate", type=Path, help="TLS certificate of this host (PEM)")
    add("--certificate-key", type=Path, help="its private key (PEM)")
    add("--ca-certificate", type=Path, help="certificate of the authority that signed it (PEM)")
    add("--insecure", action="store_true", help="no TLS, no authentication")
    add("--party", type=_named_key, action="append", default=[], metavar="NAME=PUBLIC_KEY",
        help="a party and the file of its public key; no other party is admitted")  # fmt: skip
    add("--home", type=Path, default=Path(".dplda-coordinator"), help="folder for Flower's files")


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
    add("--superlink", required=True, help="host:port of the coordinator")
    add("--ca-certificate", type=Path, help="authority of the coordinator's certificate (PEM)")
    add("--key", type=Path, help="private key of this party (PEM, P-384)")
    add("--insecure", action="store_true", help="no TLS, no authentication")
    add("--port", type=int, default=0, help="local port of the supernode; 0: any free one")


def _named_key(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise argparse.ArgumentTypeError(f"expected NAME=FILE, got {text!r}")
    return name, Path(path)


# ---------------------------------------------------------------- the coordinator


def coordinate(options: argparse.Namespace, *, usage_error: Callable[[str], NoReturn]) -> None:
    """Start Flower's superlink, make the rounds, write the global model.

    Parameters
    ----------
    options : argparse.Namespace
        The options of the command.
    usage_error : callable
        ``usage_error(message)`` ends the process because of wrong options.
    """
    tls = (options.certificate, options.certificate_key, options.ca_certificate)
    if options.insecure == all(tls):
        usage_error(
            "give --certificate, --certificate-key and --ca-certificate, or --insecure on a "
            "network that only the parties can reach"
        )
    if options.insecure and options.party:
        usage_error("--party (authentication by keys) needs TLS, not --insecure")
    _prepare()
    keys = {_tasks.public_key(path): name for name, path in options.party}
    master = IFTMMaster(
        _words(options.vocabulary),
        similarity_threshold=options.similarity_threshold,
        n_top_words=options.top_words,
        max_topics=options.max_topics,
        min_parties=options.min_parties,
        parties=list(keys.values()) if keys else None,
    )
    options.home.mkdir(parents=True, exist_ok=True)
    superlink = _tasks.Superlink(
        f"{options.host}:{options.port}",
        None if options.insecure else options.ca_certificate,
        options.home,
    )

    def run(grid: Any) -> None:
        try:
            make_rounds(
                grid, master, options.rounds, round_timeout=options.round_timeout, keys=keys or None
            )
        finally:
            if master.history_:
                options.output.write_bytes(master.global_model_.to_bytes())

    with _tasks.secret_file() as secret:
        command = [
            "--host", options.host, "--port", str(options.port), "--isolation", "process",
            "--superexec-auth-secret-file", str(secret), *_server_tls(options),
            *(["--enable-supernode-auth"] if keys else []),
        ]  # fmt: skip
        with _tasks.local_process(_tasks.SUPERLINK, command, options.home) as process:
            _tasks.wait_for_port(options.host, options.port, process)
            for name, path in options.party:
                superlink.flwr("supernode", "register", str(path), "dplda", "--name", name)
            _tasks.serve_run(superlink, process, secret.read_bytes(), run)


def _server_tls(options: argparse.Namespace) -> list[str]:
    if options.insecure:
        return ["--insecure"]
    return [
        "--ssl-certfile", str(options.certificate), "--ssl-keyfile", str(options.certificate_key),
        "--ssl-ca-certfile", str(options.ca_certificate),
    ]  # fmt: skip


# ---------------------------------------------------------------- the party


def take_part(options: argparse.Namespace) -> None:
    """Start Flower's supernode, and answer its messages until this process ends."""
    _prepare()
    party = StoredParty(
        options.name,
        _estimator(options),
        lambda: _load(options.data),
        vocabulary=_words(options.vocabulary),
        path=options.state,
    )
    port = options.port or _tasks.free_port()
    address = f"127.0.0.1:{port}"
    with _tasks.secret_file() as secret, tempfile.TemporaryDirectory() as home:
        command = [
            "--superlink", options.superlink, "--isolation", "process",
            "--host", "127.0.0.1", "--port", str(port),
            "--superexec-auth-secret-file", str(secret), *_client_tls(options),
            *(["--auth-supernode-private-key", str(options.key)] if options.key else []),
        ]  # fmt: skip
        while True:
            with _tasks.local_process(_tasks.SUPERNODE, command, Path(home)) as process:
                _tasks.serve_client(
                    process, secret.read_bytes(), address, partial(reply_to, party=party)
                )
            # the coordinator is not running yet, or does not know this party's key yet
            log.info("the supernode has ended; the next one starts in %g s", RESTART_SECONDS)
            time.sleep(RESTART_SECONDS)


def _estimator(options: argparse.Namespace) -> IFTMParty:
    return IFTMParty(
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
    """The party's documents: sparse counts, or a pickle that the party wrote."""
    if path.suffix == ".npz":
        import scipy.sparse as sp

        return sp.csr_array(sp.load_npz(path))
    import pickle

    return pickle.loads(path.read_bytes())


def _client_tls(options: argparse.Namespace) -> list[str]:
    if options.insecure:
        return ["--insecure"]
    return ["--root-certificates", str(options.ca_certificate)] if options.ca_certificate else []


# ---------------------------------------------------------------- both


def _prepare() -> None:
    """Check that Flower is installed, and show the log."""
    try:
        import flwr  # noqa: F401
    except ImportError:
        raise SystemExit(
            "federations over a network need Flower: pip install 'dplda[federated]'"
        ) from None
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def _words(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


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
