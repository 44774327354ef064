"""The app of Flower in examples/flower, by Flower's own commands (marked slow)."""

import os
import socket
import sys
from pathlib import Path

import pytest
import scipy.sparse as sp
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from test_federation import (
    PARAMETERS,
    WORDS,
    Processes,
    documents,
    free_port,
    make_certificates,
)

from dplda import save_release
from dplda.federated import IFTMMaster, IFTMParty, run_rounds
from dplda.privacy import Ledger

APP = Path(__file__).parents[1] / "examples" / "flower"

__all__ = ["documents"]
pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning",
    "ignore::dplda.privacy.PrivacyLeakWarning",
)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
def test_the_app_gives_the_same_model(documents, tmp_path):
    """Bit for bit, and each party's options are its own."""
    pytest.importorskip("flwr")
    programs = Path(sys.executable).parent
    engine = Processes(
        tmp_path,
        FLWR_HOME=str(tmp_path / "home"),
        FLWR_TELEMETRY_ENABLED="0",
        FLWR_DISABLE_UPDATE_CHECK="1",
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
    )
    try:
        check(engine, documents, tmp_path)
    finally:
        engine.end()


def check(engine, documents, folder):
    port, expected, out = (
        free_port(),
        folder / "expected.model",
        folder / "global.model",
    )
    (folder / "words.txt").write_text("\n".join(WORDS), "utf-8")
    (folder / "home").mkdir()
    (folder / "home" / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n'
        f'[superlink.here]\naddress = "127.0.0.1:{port}"\n'
        f'root-certificates = "{folder / "ca.pem"}"\n',
        "utf-8",
    )
    make_certificates(folder, [])
    engine.start(
        "superlink",
        "flower-superlink",
        "--ssl-ca-certfile=ca.pem",
        "--ssl-certfile=server.pem",
        "--ssl-keyfile=server.key",
        "--enable-supernode-auth",
        "--port",
        port,
    )
    engine.wait_for(lambda: is_open(port))
    for name in documents:
        make_key(folder / name)
        engine.start(name, "flwr", "supernode", "register", f"{name}.pub", "here")
        engine.wait_for_end(name)
    make_key(folder / "stranger")  # which nobody registers
    parties = {}
    for name, X in documents.items():
        n_components, seed = PARAMETERS[name]
        parties[name] = IFTMParty(n_components, token_epsilon=6.0, random_state=seed), X
        (folder / name).mkdir()
        (folder / name / "words.txt").write_text("\n".join(WORDS), "utf-8")
        sp.save_npz(folder / name / "own.npz", X)
        options = (
            f'name="{name}" data="own.npz" folder="{folder / name}" '
            "epsilon=6.0 budget=6.0 "
            f"n-components={n_components} random-state={seed}"
        )
        engine.start(
            name,
            "flower-supernode",
            "--root-certificates=ca.pem",
            f"--auth-supernode-private-key={name}.node",
            "--superlink",
            f"127.0.0.1:{port}",
            "--port",
            free_port(),
            "--node-config",
            options,
        )
    engine.start(
        "stranger",
        "flower-supernode",
        "--root-certificates=ca.pem",
        "--auth-supernode-private-key=stranger.node",
        "--superlink",
        f"127.0.0.1:{port}",
        "--port",
        free_port(),
    )
    engine.wait_for(lambda: engine.processes["stranger"].poll() is not None)
    config = f'vocabulary="{folder / "words.txt"}" out="{out}" rounds=2'
    engine.start("run", "flwr", "run", APP, "here", "--run-config", config)
    engine.wait_for_end("run")
    master = run_rounds(IFTMMaster(WORDS, min_parties=2), parties, 2)
    save_release(master.released_model(), expected)
    engine.wait_for(lambda: out.exists() and out.read_bytes() == expected.read_bytes())
    for name in documents:
        # the second round is free
        (entry,) = Ledger(folder / name / "ledger.sqlite").entries()
        assert entry.status == "released"


def make_key(path):
    """A key of a node, as ``ssh-keygen -t ecdsa -b 384`` makes it."""
    key = generate_private_key(SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    path.with_suffix(".node").write_bytes(private)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)


def is_open(port):
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
