"""The main job needs no network, no rights, and no home."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dplda

ROOT = Path(dplda.__file__).parents[1]
OFFLINE = Path(__file__).parents[1] / "scripts" / "offline"

MAIN_JOB = [sys.executable, "-W", "error", "-m", "dplda"]  # the end of the README's command

pytestmark = pytest.mark.slow


def succeeds(*command):
    run = subprocess.run(command, capture_output=True, check=False)
    return run.returncode == 0


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """Programs run in a folder of their own, and import this package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@pytest.fixture
def strace():
    program = shutil.which("strace")
    if not program or not succeeds(program, "-f", "-o", "/dev/null", sys.executable, "-c", ""):
        pytest.skip("strace is missing, or may not trace here")
    return program


@pytest.fixture
def offline():
    if not succeeds(OFFLINE, "true"):
        pytest.skip("scripts/offline does not run here: it takes user namespaces and iproute2")
    return OFFLINE


def internet_sockets(strace, command):
    """The calls by which a command and all its processes and threads opened internet sockets."""
    log = Path("sockets")
    subprocess.run(
        [strace, "-f", "-e", "trace=socket,socketpair,connect,bind", "-o", log, *command],
        check=True, capture_output=True,
    )  # fmt: skip
    calls = re.findall(r"^.*\bAF_INET6?\b.*$", log.read_text(errors="replace"), re.MULTILINE)
    log.unlink()
    return calls


def test_the_main_job_opens_no_internet_socket(in_folder, strace):
    assert internet_sockets(strace, [*MAIN_JOB, "--output", "topics.png"]) == []
    assert (in_folder / "topics.png").exists()


@pytest.mark.parametrize(
    "planted",
    [
        "socket.socket().close()",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()",
        "threading.Thread(target=socket.socket).start()",
        "subprocess.run([sys.executable, '-c', 'import socket; socket.socket().close()'])",
    ],
    ids=["stream", "datagram", "thread", "process"],
)
def test_a_job_that_opens_one_is_caught(in_folder, strace, planted):
    code = f"import socket, subprocess, sys, threading; {planted}"
    assert len(internet_sockets(strace, [sys.executable, "-c", code])) == 1


def test_the_main_job_runs_without_network_rights_and_home(in_folder, offline):
    run = subprocess.run(
        [offline, *MAIN_JOB, "--max-iter", "5", "--output", "topics.png"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert (in_folder / "topics.png").exists()


FACTS = """
import errno, json, os, pathlib, socket

def error_of(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]

def find_a_way():  # sends nothing
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect(("192.0.2.1", 80))

def call_itself():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()

print(json.dumps({
    "network": error_of(find_a_way),
    "loopback": error_of(call_itself),
    "home": error_of((pathlib.Path.home() / "written").touch),
    "system": error_of(lambda: os.mkdir("/usr/written")),
    "this folder": error_of(pathlib.Path("written").touch),
    "root": os.getuid() == 0,
}))
"""


def test_offline_means_no_network_no_rights_and_no_home(in_folder, offline):
    run = subprocess.run(
        [offline, sys.executable, "-c", FACTS], capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == {
        "network": "ENETUNREACH", "loopback": None, "home": "EROFS", "system": "EROFS",
        "this folder": None, "root": False,
    }  # fmt: skip
