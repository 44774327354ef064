"""The main job needs no network, no rights, and no home."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dplda

ROOT = Path(dplda.__file__).parents[1]
OFFLINE = Path(__file__).parents[1] / "scripts" / "offline"
MAIN_JOB = [sys.executable, "-W", "error", "-m", "dplda", "fit", "--example"]

pytestmark = pytest.mark.slow


def succeeds(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    """Programs run in a folder of their own, and import this package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def internet_sockets(command):
    """The calls by which a command, its processes and threads opened inet sockets."""
    program = shutil.which("strace")
    if not program or not succeeds(
        program, "-f", "-o", "/dev/null", sys.executable, "-c", ""
    ):
        pytest.skip("strace is missing, or may not trace here")
    subprocess.run(
        [
            program,
            "-f",
            "-e",
            "trace=socket,socketpair,connect,bind",
            "-o",
            "sockets",
            *command,
        ],
        check=True,
        capture_output=True,
    )
    text = Path("sockets").read_text(errors="replace")
    return re.findall(r"^.*\bAF_INET6?\b.*$", text, re.MULTILINE)


def test_the_main_job_opens_no_internet_socket_and_one_would_be_seen():
    assert internet_sockets(MAIN_JOB) == []
    assert Path("topics.dplda").exists()
    code = "import socket, threading; threading.Thread(target=socket.socket).start()"
    assert len(internet_sockets([sys.executable, "-c", code])) == 1


FACTS = """
import os, pathlib, socket
assert os.getuid()
socket.create_server(("127.0.0.1", 0)).close()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
    end.connect(("192.0.2.1", 80))  # sends nothing
"""


def test_the_main_job_runs_without_network_rights_and_home():
    if not succeeds(OFFLINE, "true"):
        pytest.skip(
            "scripts/offline does not run here: it takes user namespaces and iproute2"
        )
    run = subprocess.run(
        [OFFLINE, *MAIN_JOB], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert Path("topics.dplda").exists()
    run = subprocess.run(
        [OFFLINE, sys.executable, "-c", FACTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Network is unreachable" in run.stderr
    assert not succeeds(OFFLINE, "touch", str(Path.home() / "written"), "/usr/written")
