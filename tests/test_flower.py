"""The rounds inside an app of Flower: its messages, and a real deployment (marked slow)."""

import ast
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dplda
from dplda import save_release
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMMaster, IFTMParty, StoredParty, run_rounds
from dplda.privacy import SeededNoiseWarning

pytestmark = pytest.mark.filterwarnings("ignore", category=SeededNoiseWarning)

# ---------------------------------------------------------------- only what Flower calls public

PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}


def non_public_parts(text):
    """What a module's text imports from Flower besides names that Flower lists as public."""
    import importlib

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found = {alias.name: "" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found = {f"{node.module}.{alias.name}": alias.name for alias in node.names}
        else:
            found = {}
        for name, last in found.items():
            module = name.removesuffix(f".{last}") if last else name
            if name.partition(".")[0] != "flwr":
                continue
            if module not in PUBLIC or last not in importlib.import_module(module).__all__:
                yield name
        called = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module"
        if called and any("flwr" in str(getattr(a, "value", "")) for a in node.args):
            yield ast.unparse(node)


def test_only_public_parts_of_flower_are_used():
    pytest.importorskip("flwr", reason="pip install 'dplda[federated]'")
    root = Path(dplda.__file__).parent
    texts = {path.name: path.read_text("utf-8") for path in root.rglob("*.py")}
    found = {name: [*non_public_parts(text)] for name, text in texts.items() if "flwr" in text}
    assert not {name: parts for name, parts in found.items() if parts}
    text = (root / "federated/flower.py").read_text("utf-8")
    assert "from flwr.app import" in text  # the rule has something to look at


@pytest.mark.parametrize(
    "planted",
    [
        "from flwr.common.constant import ErrorCode",
        "def f():\n    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor",
        "import flwr.superlink.grid.http_grid",
        "from flwr.app import Message, make_message",
        "from flwr.app.message import Message",
        "importlib.import_module('flwr.supernode')",
    ],
)
def test_a_planted_import_is_found(planted):
    pytest.importorskip("flwr", reason="pip install 'dplda[federated]'")
    assert len([*non_public_parts(planted)]) == 1


# ---------------------------------------------------------------- messages


WORDS = [f"word{i}" for i in range(30)]
PARTIES = {"north": (5, 1), "south": (3, 2)}  # topics, seed


def corpus():
    X = make_topic_corpus(n_docs=120, n_words=30, n_components=4, random_state=0).data.toarray()
    return {"north": X[:80], "south": X[80:]}


def estimator(name):
    n_components, seed = PARTIES[name]
    return IFTMParty(n_components, token_epsilon=6.0, max_iter=5, random_state=seed)


def stored(name, X, folder):
    path = folder / f"{name}.state"
    return StoredParty(name, estimator(name), lambda: X, vocabulary=WORDS, path=path)


def in_process(n_rounds):
    parties = {name: (estimator(name), X) for name, X in corpus().items()}
    return run_rounds(IFTMMaster(WORDS, min_parties=2), parties, n_rounds)


class LoopGrid:
    """A grid of nodes in this process."""

    def __init__(self, parties):
        try:  # a message knows the process that makes it; Flower sets this in its own
            from flwr.supercore.task_identity import TaskIdentity
        except ImportError:  # before 1.38
            pass
        else:
            TaskIdentity.run_id = TaskIdentity.task_id = 1
            TaskIdentity.node_id = 0
        self.parties = parties  # by node

    def get_node_ids(self):
        return list(self.parties)

    def send_and_receive(self, messages, *, timeout):
        from dplda.federated.flower import reply_to

        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = f"{node}"
            replies.append(reply_to(message, self.parties[node]))
        return reversed(replies)


@pytest.fixture
def flower():
    pytest.importorskip("flwr", reason="pip install 'dplda[federated]'")
    return pytest.importorskip("dplda.federated.flower")


def test_messages_of_flower_carry_the_same_rounds(flower, tmp_path):
    documents = corpus()
    parties = {7: stored("south", documents["south"], tmp_path)}
    parties[9] = stored("north", documents["north"], tmp_path)
    master = IFTMMaster(WORDS, min_parties=2)
    flower.make_rounds(LoopGrid(parties), master, 3)
    assert master.global_model_ == in_process(3).global_model_


@pytest.mark.parametrize("content", [10**12, "text", b"", [1, 2], 0.5])
def test_any_content_is_refused(flower, tmp_path, content):
    parties = {1: stored("north", corpus()["north"], tmp_path)}
    parties[2] = SimpleNamespace(answer=lambda *_: content)
    master = IFTMMaster(WORDS)
    flower.make_rounds(LoopGrid(parties), master, 1)
    assert master.history_[0].parties == ("north",)


def test_errors_do_not_travel(flower):
    """Only the name of an error leaves the party, and other messages are not answered."""

    def answer(*_):
        raise ValueError("the patient is called Smith")

    grid = LoopGrid({1: SimpleNamespace(answer=answer)})
    message = flower._message(1, flower.Request(0, "", b""), 60.0)
    (reply,) = grid.send_and_receive([message], timeout=1)
    assert flower._read(reply) == flower.Failure("ValueError")
    message.content.clear()
    (reply,) = grid.send_and_receive([message], timeout=1)
    assert flower._read(reply) == flower.Failure("KeyError")


# ---------------------------------------------------------------- a real deployment

APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "federation"
version = "1.0.0"
description = "An app that makes rounds of dplda"
license = "BSD-3-Clause"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "dplda"
[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"
[tool.flwr.app.config]
folder = "FOLDER"
"""
SERVER = """\
from pathlib import Path
from dplda import save_release
from dplda.federated import IFTMMaster
from dplda.federated.flower import make_rounds
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    master = IFTMMaster([f"word{i}" for i in range(30)], min_parties=2)
    make_rounds(grid, master, n_rounds=2, round_timeout=300)
    save_release(master.released_model(), Path(context.run_config["folder"]) / "global.model")
"""
CLIENT = """\
from pathlib import Path
import numpy as np
from dplda.federated import IFTMParty, StoredParty
from dplda.federated.flower import reply_to
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    folder, name = Path(context.run_config["folder"]), context.node_config["name"]
    n_components, seed = {"north": (5, 1), "south": (3, 2)}[name]
    words = [f"word{i}" for i in range(30)]
    estimator = IFTMParty(n_components, token_epsilon=6.0, max_iter=5, random_state=seed)
    with StoredParty(
        name, estimator, lambda: np.load(folder / f"{name}.npy"), vocabulary=words,
        path=folder / f"{name}.state",
    ) as party:
        return reply_to(message, party)
"""


def free_ports(n):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class Engine:
    """Flower's own commands as processes of this machine."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.environment = {
            **os.environ, "FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }  # fmt: skip

    def start(self, name, *arguments):
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                [Path(sys.executable).parent / name, *map(str, arguments)],
                stdout=log, stderr=log, env=self.environment,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def logs(self):
        return "\n".join(path.read_text("utf-8", "replace") for path in self.folder.glob("*.log"))

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def engine(tmp_path):
    engine = Engine(tmp_path)
    yield engine
    engine.end()


def write_app(folder):
    app = folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(APP.replace("FOLDER", str(folder)), "utf-8")
    (app / "server_app.py").write_text(SERVER, "utf-8")
    (app / "client_app.py").write_text(CLIENT, "utf-8")
    return app


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
def test_an_app_of_flower_gives_the_same_model(flower, engine, tmp_path):
    """Bit for bit, by Flower's own commands and with nothing but its public interface."""
    port, *ports = free_ports(3)
    for name, X in corpus().items():
        np.save(tmp_path / f"{name}.npy", X)
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        "insecure = true\n",
        "utf-8",
    )
    engine.start("flower-superlink", "--insecure", "--port", port)
    wait_for(engine, lambda: is_open(port))
    for name, own in zip(PARTIES, ports):
        engine.start(
            "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--port", own,
            "--node-config", f'name="{name}"',
        )  # fmt: skip
    assert engine.start("flwr", "run", write_app(tmp_path), "here").wait(60) == 0, engine.logs()
    wait_for(engine, (tmp_path / "global.model").exists)
    expected = tmp_path / "expected.model"
    save_release(in_process(2).released_model(), expected)
    assert (tmp_path / "global.model").read_bytes() == expected.read_bytes()


def wait_for(engine, condition, seconds=400):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, engine.logs()
        time.sleep(0.2)


def is_open(port):
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
