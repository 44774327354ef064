"""The app of Flower in examples/flower, by Flower's own commands (marked slow)."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import scipy.sparse as sp

from dplda import save_release
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMMaster, IFTMParty, run_rounds

APP = Path(__file__).parents[1] / "examples" / "flower"
WORDS = [f"word{i}" for i in range(30)]
PARTIES = {"north": (5, 1), "south": (3, 2)}  # topics, seed

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.PrivacyLeakWarning"
)


def corpus():
    X = make_topic_corpus(n_docs=120, n_words=30, n_components=4, random_state=0).data
    return {"north": sp.csr_array(X[:80]), "south": sp.csr_array(X[80:])}


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


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
def test_the_app_gives_the_same_model(engine, tmp_path):
    """Bit for bit, and each party's options are its own."""
    pytest.importorskip("flwr")
    port, *ports = free_ports(3)
    (tmp_path / "words.txt").write_text("\n".join(WORDS), "utf-8")
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        "insecure = true\n",
        "utf-8",
    )
    engine.start("flower-superlink", "--insecure", "--port", port)
    wait_for(engine, lambda: is_open(port))
    for (name, X), own in zip(corpus().items(), ports):
        n_components, seed = PARTIES[name]
        (tmp_path / name).mkdir()
        (tmp_path / name / "words.txt").write_text("\n".join(WORDS), "utf-8")
        sp.save_npz(tmp_path / name / "own.npz", X)
        options = (
            f'name="{name}" data="own.npz" folder="{tmp_path / name}" epsilon=6.0 '
            f"n-components={n_components} random-state={seed}"
        )
        engine.start(
            "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", "--port", own,
            "--node-config", options,
        )  # fmt: skip
    out = tmp_path / "global.model"
    config = f'vocabulary="{tmp_path / "words.txt"}" out="{out}" rounds=2'
    run = engine.start("flwr", "run", APP, "here", "--run-config", config)
    assert run.wait(120) == 0, engine.logs()
    parties = {
        name: (IFTMParty(PARTIES[name][0], token_epsilon=6.0, random_state=PARTIES[name][1]), X)
        for name, X in corpus().items()
    }
    master = run_rounds(IFTMMaster(WORDS, min_parties=2), parties, 2)
    save_release(master.released_model(), tmp_path / "expected.model")
    expected = (tmp_path / "expected.model").read_bytes()
    wait_for(engine, lambda: out.exists() and out.read_bytes() == expected)


def wait_for(engine, condition, seconds=200):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, engine.logs()
        time.sleep(0.2)


def is_open(port):
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
