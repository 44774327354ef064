"""Flower's processes and their tasks, without shipped code; for Flower 1.41.

This is the only file that uses non-public parts of Flower. It does not depend on topic models.
"""

from __future__ import annotations

import base64
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

log = logging.getLogger("dplda.federated")

POLL_SECONDS = 1.0
HEARTBEAT_SECONDS = 10.0

LocalProcess = subprocess.Popen[bytes]
SUPERLINK = ("flwr.superlink.cli", "flower_superlink")
SUPERNODE = ("flwr.supernode.cli", "flower_supernode")

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

# ---------------------------------------------------------------- the party


def error_reply(message: Any, reason: str) -> Any:
    """A reply with the reason for a missing answer."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode

    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def serve_client(
    node: LocalProcess, secret: bytes, address: str, reply: Callable[[Any], Any]
) -> None:
    """Answer each message that the supernode at `address` receives, until it ends."""
    from flwr.supercore.constant import TaskType

    def answer(token: str) -> bool:
        try:
            _answer_task(address, token, reply)
        except Exception:  # no message may end the party
            log.exception("an answer was lost; it is kept in case the round is asked for again")
        return False

    _serve(address, TaskType.CLIENT_APP, secret, answer, node)


def _answer_task(address: str, token: str, reply: Callable[[Any], Any]) -> None:
    """Pull one message, push the reply."""
    from flwr.common.constant import SubStatus
    from flwr.supernode.runtime.run_clientapp import (
        pull_task_input,
        push_message,
        push_task_output,
    )

    client = _runtime_client(address, None, _task_interceptors("flwr-clientapp", token))
    with _heartbeat(client):
        message, context, _, _ = pull_task_input(client)
        push_message(client, reply(message), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    client.close()


# ---------------------------------------------------------------- the coordinator


@dataclass(frozen=True)
class Superlink:
    """The coordinator's superlink: its address and its files.

    Attributes
    ----------
    address : str
        host:port.
    ca_certificate : Path or None
        Certificate of the authority (PEM); None without TLS.
    home : Path
        Folder for Flower's files.
    """

    address: str
    ca_certificate: Path | None
    home: Path

    def flwr(self, *arguments: str) -> str:
        """Run Flower's command-line tool on this superlink, and return its output."""
        security = "insecure = true"
        if self.ca_certificate is not None:
            security = f"root-certificates = {json.dumps(str(self.ca_certificate.absolute()))}"
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "dplda"\n[superlink.dplda]\n'
            f'address = "{self.address}"\n{security}\n',
            "utf-8",
        )
        command = [sys.executable, "-c", "from flwr.cli.app import app; app()", *arguments]
        result = subprocess.run(
            command, env=_environment(self.home), text=True, capture_output=True, check=False
        )
        if result.returncode:
            raise RuntimeError(f"flwr {' '.join(arguments)} failed: {result.stdout}{result.stderr}")
        return result.stdout

    def start_run(self) -> int:
        """Start a run with the empty package that Flower requires, and return its number."""
        app = self.home / "app"
        app.mkdir(exist_ok=True)
        (app / "pyproject.toml").write_text(APP, "utf-8")
        (app / "federation.py").write_text("unused = None\n", "utf-8")
        output = self.flwr("run", str(app), "dplda", "--format", "json")
        return int(json.loads(output)["run-id"])


class RunStoppedError(RuntimeError):
    """The superlink has ended the run: anyone who reaches its port can ask it to."""


def serve_run(
    superlink: Superlink, process: LocalProcess, secret: bytes, make_rounds: Callable[[Any], None]
) -> None:
    """Start a run, and call ``make_rounds(grid)`` once, as its server application."""
    import httpx
    from flwr.common.constant import SubStatus
    from flwr.common.serde import context_from_proto, context_to_proto, run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid.http_grid import HttpGrid

    ca = superlink.ca_certificate
    certificate = None if ca is None else ca.read_bytes()
    run_id = superlink.start_run()

    def work(token: str) -> bool:
        grid = HttpGrid(superlink.address, ca is None, certificate, token=token)
        client = grid._runtime_client
        task = client.PullTaskInput(PullTaskInputRequest())
        if task.run.run_id != run_id:
            log.warning("ignoring a run that this coordinator did not start")
            return False
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, run_id
        TaskIdentity.node_id = task.context.node_id
        context = context_from_proto(task.context)
        grid.set_run(run_from_proto(task.run))
        status = SubStatus.FAILED
        try:
            with _heartbeat(client):
                make_rounds(grid)
            status = SubStatus.COMPLETED
        finally:
            output = PushTaskOutputRequest(
                context=context_to_proto(context), sub_status=status, details=""
            )
            try:
                client.PushTaskOutput(output)
            except httpx.HTTPStatusError as error:  # 401: the token of a run that was stopped
                if status != SubStatus.COMPLETED:
                    raise RunStoppedError(
                        "the run was stopped from outside: whoever reaches the port can do that"
                    ) from error
            grid.close()
        return True

    _serve(superlink.address, TaskType.SERVER_APP, secret, work, process, certificate)


KEY_KINDS = tuple(b"ecdsa-sha2-nistp%d" % bits for bits in (256, 384, 521))
KEY_HELP = "holds no key that can be used; make a pair with ssh-keygen -t ecdsa -b 384"


def public_key(path: Path) -> bytes:
    """A public key in Flower's form."""
    from flwr.cli.supernode.register import try_load_public_key

    if not path.read_bytes().startswith(KEY_KINDS):  # Flower would end the process
        raise ValueError(f"{path} {KEY_HELP}")
    try:
        key: bytes = try_load_public_key(path)
    except SystemExit:
        raise ValueError(f"{path} {KEY_HELP}") from None
    return key


def check_private_key(path: Path) -> None:
    """Raise an error unless a file looks like a private key that Flower can use."""
    head, _, body = path.read_bytes().partition(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    content = base64.b64decode(body.partition(b"-----END")[0])
    if head or not any(kind in content for kind in KEY_KINDS):
        raise ValueError(f"{path} {KEY_HELP}")


# ---------------------------------------------------------------- tasks


def _serve(
    address: str,
    task_type: str,
    secret: bytes,
    work: Callable[[str], bool],
    process: LocalProcess,
    certificate: bytes | None = None,
) -> None:
    """Take tasks of one type from the local Flower process, and do them here.

    Flower's ``superexec`` would start a process for shipped code. Here `work` is called with the
    token of each task instead, until it returns True or the Flower process has ended.
    Tasks of other types are never taken.
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
    while process.poll() is None:
        try:
            task = client.AcquireTask(AcquireTaskRequest(supported_task_types=[task_type]))
        except httpx.TransportError:  # the Flower process is starting, or busy
            task = None
        if task is not None and task.HasField("task") and task.token:
            if work(task.token):
                return
        else:
            time.sleep(POLL_SECONDS)


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

    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(HEARTBEAT_SECONDS):
            try:
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except Exception:
                log.debug("a heartbeat was lost", exc_info=True)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


# ---------------------------------------------------------------- processes


@contextmanager
def local_process(
    command: tuple[str, str], arguments: list[str], home: Path
) -> Iterator[LocalProcess]:
    """Run one of Flower's commands. It ends when this process ends."""
    module, name = command
    start = (  # Flower must end even if this process is killed
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
def secret_file() -> Iterator[Path]:
    """A password between this process and its Flower process, readable by this user only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "secret"
        path.write_bytes(uuid.uuid4().bytes + uuid.uuid4().bytes)
        yield path


def wait_for_port(host: str, port: int, process: LocalProcess) -> None:
    """Return as soon as the process listens at the port."""
    while process.poll() is None:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the superlink has ended; its last lines give the reason")


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
