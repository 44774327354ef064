"""Flower as the engine of a federation: ``python -m dplda.federated.flower``.

A thin adapter, for Flower 1.41. Messages travel in Flower's; everything that touches a document
is in the party's own process, which runs the dplda that the party installed, with options that
the party gave. Flower would have a coordinator ship code to the parties: here neither side runs
any code that came over the network, for each asks its own local Flower process for tasks and
answers them itself.

``python -m dplda.federated.flower coordinator --help`` and ``party --help`` list the options.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when Flower is imported
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from dplda.federated._master import IFTMMaster, RoundError
from dplda.federated._messages import LocalModel, MessageError
from dplda.federated._rounds import StoredParty

log = logging.getLogger("dplda.federated")

TRAIN = "train"
CONTENT = "dplda"
MAX_FAILED_ROUNDS = 3
POLL_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0
RESTART_SECONDS = 3.0

# ---------------------------------------------------------------- the protocol, inside Flower's


def request(master: IFTMMaster, node_id: int, party: str, seconds: float) -> Any:
    """What the coordinator asks of a node: the round, the vocabulary, what to start from."""
    from flwr.app import ConfigRecord, Message, RecordDict

    next_model = master.next_models_.get(party)
    record = ConfigRecord({
        "round": master.round_,
        "vocabulary": master.vocabulary_hash,
        "model": b"" if next_model is None else next_model.to_bytes(),
    })  # fmt: skip
    return Message(
        RecordDict({CONTENT: record}), node_id, TRAIN, group_id=str(master.round_), ttl=seconds
    )


def reply_to(message: Any, party: StoredParty) -> Any:
    """A party's reply to any message: its model, or the name of what prevented it.

    The texts of errors stay at the party, in its log.
    """
    from flwr.app import ConfigRecord, Error, Message, RecordDict
    from flwr.common.constant import ErrorCode

    try:
        if message.metadata.message_type != TRAIN or not message.has_content():
            raise MessageError("not a message of this protocol")
        record = message.content[CONTENT]
        answer = party.answer(record["round"], record["vocabulary"], record["model"])
    except Exception as error:
        log.exception("this party does not take part in the round")
        reason = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, type(error).__name__)
        return Message(reason, reply_to=message)
    return Message(RecordDict({CONTENT: ConfigRecord({"model": answer})}), reply_to=message)


def conduct(
    grid: Any,
    master: IFTMMaster,
    n_rounds: int,
    *,
    round_timeout: float = 600.0,
    keys: dict[bytes, str] | None = None,
    poll: float = POLL_SECONDS,
) -> None:
    """Make rounds with the parties that are there.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Flower's side of the coordinator.
    master : IFTMMaster
        Changed in place.
    n_rounds : int
        Rounds to make.
    round_timeout : float, default=600.0
        Seconds to wait for enough parties, and then for their answers.
    keys : dict of bytes to str or None, default=None
        Names of the parties by their public keys; nodes with other keys are not spoken to. None
        believes each party its name.
    poll : float, default=1.0
        Seconds between two looks at who is there.

    Raises
    ------
    RoundError
        When three attempts at a round failed, or too few parties came.
    """
    names: dict[int, str] = {}
    end, failed = master.round_ + n_rounds, 0
    while master.round_ < end:
        nodes = _wait_for_nodes(grid, master.min_parties, keys, round_timeout, poll)
        names = {node: name or names.get(node, "") for node, name in nodes.items()}
        messages = [request(master, node, names[node], round_timeout) for node in sorted(nodes)]
        replies = grid.send_and_receive(messages, timeout=round_timeout)
        answers = _answers(master, replies, nodes, names)
        try:
            master.update(answers)
        except RoundError as error:
            failed += 1
            if failed == MAX_FAILED_ROUNDS:
                raise
            log.warning("%s", error)
        else:
            failed = 0
            log.info("round %d of %d is made", master.round_, end)
        for refusal in master.refused_:
            log.warning("refused: %r: %s", refusal.party, refusal.reason)


def _wait_for_nodes(
    grid: Any, enough: int, keys: dict[bytes, str] | None, timeout: float, poll: float
) -> dict[int, str]:
    """The nodes that are there, with the names that their keys prove; empty names without keys."""
    deadline = time.monotonic() + timeout
    while True:
        if keys is None:
            nodes = {int(node): "" for node in grid.get_node_ids()}
        else:
            known = [n for n in grid.get_nodes() if n.public_key in keys and n.status == "online"]
            nodes = {int(node.node_id): keys[node.public_key] for node in known}
        if len(nodes) >= enough:
            return nodes
        if time.monotonic() > deadline:
            raise RoundError(f"{len(nodes)} of at least {enough} parties came within {timeout:g} s")
        time.sleep(poll)


def _answers(
    master: IFTMMaster, replies: Any, nodes: dict[int, str], names: dict[int, str]
) -> list[bytes]:
    """The models in the replies, one a node, none in another party's name."""
    answers: dict[int, bytes] = {}
    for reply in replies:
        node = int(reply.metadata.src_node_id)
        if reply.has_error():
            reason = str(reply.error.reason)[:200]
            log.warning("party %r sent no model: %r", names.get(node) or node, reason)
            continue
        try:
            data = reply.content[CONTENT]["model"]
            party = LocalModel.from_bytes(data, max_bytes=master.max_bytes).party
        except Exception as error:  # whatever a stranger may have sent
            log.warning("party %r sent no valid model: %s", names.get(node) or node, error)
            continue
        if party != (nodes.get(node) or party):
            log.warning("party %r sent a model in another name", nodes[node])
            continue
        names[node], answers[node] = party, data
    return [answers[node] for node in sorted(answers)]


# ---------------------------------------------------------------- tasks, without shipped code


def serve(
    address: str,
    task_type: str,
    secret: bytes,
    work: Callable[[str], bool],
    alive: Callable[[], bool],
    certificate: bytes | None = None,
) -> None:
    """Take tasks of one type from the local Flower process, and do them here.

    What Flower's ``superexec`` does by starting a process for the code that was shipped, is done
    by calling `work` with the token of the task, until it returns True or the process has ended.
    Tasks of other types (Flower knows agents, for instance) are never taken.
    """
    import httpx
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.interceptors import (
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )

    client = _runtime_client(
        address,
        certificate,
        [
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(
                master_secret=secret,
                protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"}),
            ),
        ],
    )
    while alive():
        try:
            task = client.AcquireTask(AcquireTaskRequest(supported_task_types=[task_type]))
        except httpx.TransportError:
            task = None
        if task is not None and task.HasField("task") and task.token:
            if work(task.token):
                return
        else:
            time.sleep(POLL_SECONDS)


def answer_task(address: str, token: str, party: StoredParty) -> None:
    """One message to the party, and the reply."""
    from flwr.common.constant import SubStatus
    from flwr.supernode.runtime.run_clientapp import (
        pull_task_input,
        push_message,
        push_task_output,
    )

    client = _runtime_client(address, None, _task_interceptors("flwr-clientapp", token))
    with _heartbeat(client):
        message, context, _, _ = pull_task_input(client)
        push_message(client, reply_to(message, party), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    client.close()


def _task_interceptors(component: str, token: str) -> list[Any]:
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
    )

    return [
        RuntimeVersionHttpInterceptor(component_name=component),
        RuntimeTokenHttpInterceptor(token),
    ]


def _runtime_client(address: str, certificate: bytes | None, interceptors: list[Any]) -> Any:
    from flwr.supercore.runtime import RuntimeHttpClient

    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=certificate is None,
        root_certificates=certificate,
        interceptors=interceptors,
    )


@contextmanager
def _heartbeat(client: Any) -> Iterator[None]:
    """Tell the Flower process that the task is being worked on."""
    from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            try:
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except Exception:
                log.debug("a heartbeat got lost", exc_info=True)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# ---------------------------------------------------------------- the coordinator's command

APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "dplda-federation"
version = "1.0.0"
description = "Names the federation; its code is the dplda that each side has installed"
license = "BSD-3-Clause"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "dplda"
[tool.flwr.app.components]
serverapp = "federation:unused"
clientapp = "federation:unused"
[tool.flwr.app.config]
"""


def coordinate(options: argparse.Namespace) -> IFTMMaster:
    """Start Flower's superlink, make the rounds, write the global model."""
    keys = _public_keys(options.party)
    master = IFTMMaster(
        _words(options.vocabulary),
        similarity_threshold=options.similarity_threshold,
        n_top_words=options.top_words,
        max_topics=options.max_topics,
        min_parties=options.min_parties,
        parties=list(keys.values()) if keys else None,
    )
    options.home.mkdir(parents=True, exist_ok=True)
    with _secret_file() as secret:
        address = f"{options.host}:{options.port}"
        command = [
            "--host", options.host, "--port", str(options.port), "--isolation", "process",
            "--superexec-auth-secret-file", str(secret), *_tls(options),
            *(["--enable-supernode-auth"] if keys else []),
        ]  # fmt: skip
        with _process("flwr.superlink.cli:flower_superlink", command, options.home) as superlink:
            _wait_for_port(options.host, options.port, superlink)
            for name, path in options.party:
                _flwr(options, "supernode", "register", str(path), "dplda", "--name", name)
            _serve_run(options, master, keys, address, secret.read_bytes(), superlink)
    return master


def _serve_run(
    options: argparse.Namespace,
    master: IFTMMaster,
    keys: dict[bytes, str],
    address: str,
    secret: bytes,
    superlink: subprocess.Popen,
) -> None:
    """Ask for a run, and be its server application."""
    from flwr.common.constant import SubStatus
    from flwr.common.serde import context_from_proto, context_to_proto, run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid.http_grid import HttpGrid

    certificate = None if options.insecure else options.ca_certificate.read_bytes()
    app = options.home / "app"
    app.mkdir(exist_ok=True)
    (app / "pyproject.toml").write_text(APP, "utf-8")
    (app / "federation.py").write_text("unused = None\n", "utf-8")
    said = _flwr(options, "run", str(app), "dplda", "--format", "json")
    run_id = int(json.loads(said)["run-id"])

    def work(token: str) -> bool:
        grid = HttpGrid(address, options.insecure, certificate, token=token)
        client = grid._runtime_client
        task = client.PullTaskInput(PullTaskInputRequest())
        if task.run.run_id != run_id:
            log.warning("a run that this coordinator did not ask for is left alone")
            return False
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, run_id
        TaskIdentity.node_id = task.context.node_id
        context = context_from_proto(task.context)
        grid.set_run(run_from_proto(task.run))
        status = SubStatus.FAILED
        try:
            with _heartbeat(client):
                conduct(
                    grid, master, options.rounds, round_timeout=options.round_timeout,
                    keys=keys or None,
                )  # fmt: skip
            status = SubStatus.COMPLETED
        finally:
            if master.history_:
                options.output.write_bytes(master.global_model_.to_bytes())
            client.PushTaskOutput(
                PushTaskOutputRequest(
                    context=context_to_proto(context), sub_status=status, details=""
                )
            )
            grid.close()
        return True

    serve(address, TaskType.SERVER_APP, secret, work, _is_alive(superlink), certificate)


def _flwr(options: argparse.Namespace, *arguments: str) -> str:
    """Run Flower's command-line tool on the coordinator's own superlink."""
    certificate = "insecure = true"
    if not options.insecure:
        certificate = f"root-certificates = {json.dumps(str(options.ca_certificate.absolute()))}"
    (options.home / "config.toml").write_text(
        f'[superlink]\ndefault = "dplda"\n[superlink.dplda]\n'
        f'address = "{options.host}:{options.port}"\n{certificate}\n',
        "utf-8",
    )
    command = [sys.executable, "-c", "from flwr.cli.app import app; app()", *arguments]
    result = subprocess.run(
        command, env=_environment(options.home), text=True, capture_output=True, check=False
    )
    if result.returncode:
        raise RuntimeError(f"flwr {' '.join(arguments)} failed: {result.stdout}{result.stderr}")
    return result.stdout


def _public_keys(parties: Sequence[tuple[str, Path]]) -> dict[bytes, str]:
    """Names by public key, in the form in which Flower shows the key of a node."""
    if not parties:
        return {}
    from flwr.cli.supernode.register import try_load_public_key

    return {try_load_public_key(path): name for name, path in parties}


# ---------------------------------------------------------------- the party's command


def take_part_in(options: argparse.Namespace) -> None:
    """Start Flower's supernode, and answer what comes until the process is ended."""
    from flwr.supercore.constant import TaskType

    party = StoredParty(
        options.name,
        _estimator(options),
        lambda: _load(options.data),
        vocabulary=_words(options.vocabulary),
        path=options.state,
    )
    port = options.port or _free_port()
    address = f"127.0.0.1:{port}"

    def work(token: str) -> bool:
        try:
            answer_task(address, token, party)
        except Exception:  # whatever came in: the party stays for the next task
            log.exception("an answer got lost; it is kept for when it is asked for again")
        return False

    with _secret_file() as secret, tempfile.TemporaryDirectory() as home:
        command = [
            "--superlink", options.superlink, "--isolation", "process",
            "--host", "127.0.0.1", "--port", str(port),
            "--superexec-auth-secret-file", str(secret), *_root_certificates(options),
            *(["--auth-supernode-private-key", str(options.key)] if options.key else []),
        ]  # fmt: skip
        while True:
            with _process("flwr.supernode.cli:flower_supernode", command, Path(home)) as node:
                serve(address, TaskType.CLIENT_APP, secret.read_bytes(), work, _is_alive(node))
            # the coordinator is not there, or does not know this party's key, as yet
            log.info("the supernode has ended; another one starts in %g s", RESTART_SECONDS)
            time.sleep(RESTART_SECONDS)


def _estimator(options: argparse.Namespace) -> Any:
    from dplda.federated._party import IFTMParty

    return IFTMParty(
        options.components,
        model=options.model,
        token_epsilon=options.token_epsilon,
        token_mechanism=options.token_mechanism,
        delta=options.delta,
        max_doc_tokens=options.max_doc_tokens,
        max_iter=options.max_iter,
        ledger=options.ledger,
        n_jobs=options.n_jobs,
        random_state=options.seed,
    )


def _words(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def _load(path: Path) -> Any:
    """The party's own documents: sparse counts, or what it pickled itself."""
    if path.suffix == ".npz":
        import scipy.sparse as sp

        return sp.csr_array(sp.load_npz(path))
    import pickle

    return pickle.loads(path.read_bytes())


# ---------------------------------------------------------------- processes


@contextmanager
def _process(entry: str, arguments: list[str], home: Path) -> Iterator[subprocess.Popen]:
    """Run one of Flower's commands beside this process, and end it with it."""
    module, name = entry.split(":")
    start = (  # it must not outlive this process, even if this one is killed
        "from flwr.supercore.app_utils import start_parent_process_monitor as watch; "
        f"watch({os.getpid()}); from {module} import {name} as main; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", start, *arguments], env=_environment(home))
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield process
    finally:
        signal.signal(signal.SIGTERM, previous)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment(home: Path) -> dict[str, str]:
    fixed = {"FLWR_HOME": str(home.absolute()), "FLWR_TELEMETRY_ENABLED": "0"}
    return {**os.environ, **fixed, "FLWR_DISABLE_UPDATE_CHECK": "1"}


@contextmanager
def _secret_file() -> Iterator[Path]:
    """A password between this process and its Flower process, readable by this user only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "secret"
        path.write_bytes(uuid.uuid4().bytes + uuid.uuid4().bytes)
        yield path


def _is_alive(process: subprocess.Popen) -> Callable[[], bool]:
    return lambda: process.poll() is None


def _wait_for_port(host: str, port: int, process: subprocess.Popen) -> None:
    while process.poll() is None:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the superlink has ended; its last lines say why")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _tls(options: argparse.Namespace) -> list[str]:
    if options.insecure:
        return ["--insecure"]
    return [
        "--ssl-certfile", str(options.certificate), "--ssl-keyfile", str(options.certificate_key),
        "--ssl-ca-certfile", str(options.ca_certificate),
    ]  # fmt: skip


def _root_certificates(options: argparse.Namespace) -> list[str]:
    if options.insecure:
        return ["--insecure"]
    return ["--root-certificates", str(options.ca_certificate)] if options.ca_certificate else []


# ---------------------------------------------------------------- options


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of either command, from the command line if `argv` is None."""
    parser = argparse.ArgumentParser(
        prog="python -m dplda.federated.flower", description="A federation over a network."
    )
    commands = parser.add_subparsers(required=True)
    style = argparse.ArgumentDefaultsHelpFormatter
    _coordinator_options(commands.add_parser("coordinator", formatter_class=style))
    _party_options(commands.add_parser("party", formatter_class=style))
    options = parser.parse_args(argv)
    if options.command is coordinate:
        tls = (options.certificate, options.certificate_key, options.ca_certificate)
        if options.insecure == all(tls):
            parser.error(
                "give --certificate, --certificate-key and --ca-certificate, or --insecure on a "
                "network that only the parties can reach"
            )
        if options.insecure and options.party:
            parser.error("--party (authentication by keys) needs TLS, not --insecure")
    return options


def _coordinator_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.set_defaults(command=coordinate)
    add("--vocabulary", type=Path, required=True, help="file with one word a line")
    add("--rounds", type=int, default=5, help="rounds to make")
    add("--min-parties", type=int, default=2, help="fewest models in a round")
    add("--similarity-threshold", type=float, default=0.3, help="at which topics are the same")
    add("--top-words", type=int, default=30, help="words of a topic that are compared")
    add("--max-topics", type=int, default=1000, help="most topics of one party")
    add("--output", type=Path, default=Path("global.model"), help="where the model goes")
    add("--round-timeout", type=float, default=600.0, help="seconds to wait for the parties")
    add("--host", default="127.0.0.1", help="address to listen at")
    add("--port", type=int, default=8000, help="port to listen at")
    add("--certificate", type=Path, help="TLS certificate of this host (PEM)")
    add("--certificate-key", type=Path, help="its private key (PEM)")
    add("--ca-certificate", type=Path, help="certificate of who signed it (PEM)")
    add("--insecure", action="store_true", help="no TLS, no authentication")
    add("--party", type=_named_key, action="append", default=[], metavar="NAME=PUBLIC_KEY",
        help="a party and the file of its public key; nobody else is let in")  # fmt: skip
    add("--home", type=Path, default=Path(".dplda-coordinator"), help="folder for Flower's files")


def _party_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.set_defaults(command=take_part_in)
    add("--name", required=True, help="name of the party")
    add("--data", type=Path, required=True, help="documents: .npz (sparse counts) or own .pkl")
    add("--vocabulary", type=Path, required=True, help="file with one word a line")
    add("--token-epsilon", type=float, required=True, help="epsilon of a token; inf: no privacy")
    add("--ledger", type=Path, required=True, help="SQLite file that every charge is written to")
    add("--state", type=Path, required=True, help="file for the party between rounds; private")
    add("--components", type=int, default=20, help="topics of this party")
    add("--model", choices=["lda", "sentence_lda"], default="lda")
    add("--token-mechanism", choices=["rr", "laplace"], default="rr")
    add("--delta", type=float, default=1e-6)
    add("--max-doc-tokens", type=int)
    add("--max-iter", type=int, default=50, help="sweeps a round")
    add("--n-jobs", type=int)
    add("--seed", type=int, help="reproducible, and not private to whoever knows the seed")
    add("--superlink", required=True, help="host:port of the coordinator")
    add("--ca-certificate", type=Path, help="who signed the coordinator's certificate (PEM)")
    add("--key", type=Path, help="private key of this party (PEM, P-384)")
    add("--insecure", action="store_true", help="no TLS, no authentication")
    add("--port", type=int, default=0, help="local port of the supernode; 0: any free one")


def _named_key(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise argparse.ArgumentTypeError(f"expected NAME=FILE, got {text!r}")
    return name, Path(path)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the options name."""
    options = parse(argv)
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
    options.command(options)


if __name__ == "__main__":
    main()
