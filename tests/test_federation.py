"""A federation over a network: messages, commands, and helpers for processes."""

import asyncio
import functools
import os
import socket
import ssl
import subprocess
import threading
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pandas as pd
import pytest
import scipy.sparse as sp

from dplda.__main__ import main
from dplda.cli import _federation as _command
from dplda.datasets import make_topic_corpus
from dplda.federated import _network
from dplda.federated._network import Coordinator, certificate_of, take_part, tls_context

N_WORDS = 30
WORDS = [f"word{i}" for i in range(N_WORDS)]
PARAMETERS = {"north": (5, 1), "south": (3, 2)}  # topics, seed
SECONDS = 20.0  # that nothing here takes


def request_of(name):
    return b"request"


def is_asked(network):
    """Whether a party that is connected owes an answer."""
    return any(network._owed.values())


@pytest.fixture(scope="module")
def documents():
    X = make_topic_corpus(n_docs=120, n_words=N_WORDS, n_components=4, random_state=0).data
    X = sp.csr_array(X)
    return {"north": X[:80], "south": X[80:]}


# ---------------------------------------------------------------- messages


def within_seconds(test):
    """Run a coroutine as a test that cannot hang."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 3 * SECONDS))

    return run


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    make_certificates(folder, ["north", "south", "stranger"])
    return folder


def server_side(keys, *names):
    known = {certificate_of(keys / f"{name}.pem"): name for name in names}
    own = keys / "server.pem", keys / "server.key"
    return known, tls_context(ssl.PROTOCOL_TLS_SERVER, *own, [*known])


def client_side(keys, certificate, authority="ca", key=None):
    files = keys / f"{certificate}.pem", keys / f"{key or certificate}.key"
    known = [certificate_of(keys / f"{authority}.pem")]
    return tls_context(ssl.PROTOCOL_TLS_CLIENT, *files, known)


@asynccontextmanager
async def listening(keys, *names, max_bytes=1000):
    known, tls = server_side(keys, *(names or ("north", "south")))
    network = Coordinator(known, max_bytes)
    async with network.listening("127.0.0.1", 0, tls) as port:
        yield network, f"127.0.0.1:{port}"


async def answers(network, name):
    """The next answer of a party; others may have left in the meantime."""
    while (found := await network.answer())[0] != name or "ended" in str(found[1]):
        pass
    return found


@asynccontextmanager
async def joined(keys, name, address, answer, *authority):
    tls = client_side(keys, name, *authority)
    task = asyncio.create_task(take_part(address, answer, max_bytes=10**6, tls=tls))
    try:
        yield task
    finally:
        task.cancel()


async def closes(keys, address, *messages):
    """Call as a party, send messages when asked, and wait until the coordinator hangs up."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"https://{address}/", ssl=client_side(keys, "north")) as line,
    ):
        await line.receive()
        for message in messages:
            await (line.send_str if isinstance(message, str) else line.send_bytes)(message)
        assert (await line.receive(timeout=SECONDS)).type == aiohttp.WSMsgType.CLOSE


@within_seconds
async def test_requests_and_answers_cross_the_wire_byte_for_byte(keys):
    every = bytes(range(256))
    async with (
        listening(keys) as (network, address),
        joined(keys, "north", address, lambda data: data[::-1]),
    ):
        network.ask(lambda name: every)
        assert await answers(network, "north") == ("north", every[::-1])
        assert not is_asked(network)
        network.ask(lambda name: b"")
        assert await network.answer() == ("north", b"")


@within_seconds
async def test_only_the_name_of_an_error_leaves_a_party(keys):
    def fail(_):
        raise ValueError("the patient is called Smith")

    async with listening(keys) as (network, address), joined(keys, "north", address, fail):
        network.ask(request_of)
        assert await network.answer() == ("north", "its error was 'ValueError'")


@within_seconds
async def test_what_was_not_asked_for_ends_the_connection(keys):
    first = (1).to_bytes(8, "big")
    for messages in ([b"x" * 8], [first + b"a", first + b"again"], ["1 Error", "1 Error"], ["x"]):
        async with listening(keys) as (network, address):
            network.ask(request_of)
            await closes(keys, address, *messages)
    async with listening(keys) as (network, address):  # an answer that comes too late is dropped
        network.ask(request_of)
        answered = asyncio.Event()

        def late(data):
            asyncio.run_coroutine_threadsafe(answered.wait(), loop).result()
            return data

        loop = asyncio.get_running_loop()
        async with joined(keys, "north", address, late):
            while not is_asked(network):
                await asyncio.sleep(0.01)
            network.ask(lambda name: b"next")
            answered.set()
            assert await network.answer() == ("north", b"next")


@within_seconds
async def test_an_answer_that_is_too_long_is_not_read(keys):
    """Its length is at the start of the message, and nothing else of it is sent here."""
    async with listening(keys, max_bytes=1000) as (network, address):
        network.ask(request_of)
        host, port = address.split(":")
        tls = client_side(keys, "north")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2 + 8 + len(b"request"))
        writer.write(b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(4))
        frame = await reader.read()
        assert frame[2:4] == (1009).to_bytes(2, "big")  # too big
        assert (await network.answer())[1] == "the connection has ended"
        writer.close()


@pytest.mark.parametrize(
    "call",
    [
        b"GET / HTTP/1.1\r\nHost: x", b"GET /../etc/passwd HTTP/1.1\r\nHost: x",
        b"POST / HTTP/1.1\r\nHost: x", b"\0\1\2", b"GET /",
    ],
)  # fmt: skip
@within_seconds
async def test_any_other_call_is_refused(keys, call, caplog):
    async with listening(keys) as (network, address):
        network.ask(request_of)
        tls = client_side(keys, "north")
        reader, writer = await asyncio.open_connection(*address.split(":"), ssl=tls)
        writer.write(call + b"\r\n\r\n")
        assert b" 4" in (await reader.readline())[:13]
        writer.close()
        assert not is_asked(network)


@within_seconds
async def test_a_party_has_one_connection_and_is_asked_again_when_it_comes_back(keys):
    async with listening(keys) as (network, address):
        network.ask(request_of)
        first = asyncio.create_task(closes(keys, address))
        while not is_asked(network):
            await asyncio.sleep(0.01)
        async with joined(keys, "north", address, lambda data: b"answer"):
            assert await network.answer() == ("north", b"answer")
        await first  # was closed by the coordinator


@within_seconds
async def test_parties_end_with_the_federation_and_outlive_a_coordinator(keys, monkeypatch):
    monkeypatch.setattr(_network, "RETRY_SECONDS", 0.01)
    async with listening(keys) as (network, address):
        port = int(address.split(":")[1])
        network.ask(request_of)
        tls = client_side(keys, "north")
        party = asyncio.create_task(take_part(address, lambda data: data, max_bytes=10**6, tls=tls))
        await network.answer()
    await asyncio.sleep(0.1)
    assert not party.done()  # it tries again
    names, tls = server_side(keys, "north")
    network = Coordinator(names, 1000)
    async with network.listening("127.0.0.1", port, tls):
        network.ask(request_of)
        await network.answer()
        await network.end()
        await party


@within_seconds
async def test_connections_that_become_none_of_a_party_end(keys, monkeypatch):
    monkeypatch.setattr(_network, "IDLE_SECONDS", 0.1)
    async with listening(keys) as (network, address):
        network.ask(request_of)
        async with joined(keys, "north", address, lambda data: data):
            await network.answer()
            tls = client_side(keys, "north")
            lines = [await asyncio.open_connection(*address.split(":"), ssl=tls) for _ in range(50)]
            for number, (_, writer) in enumerate(lines):
                writer.write(b"GET / HTTP/1.1\r\n" * (number % 2))  # open, and incomplete
            for reader, writer in lines:
                assert await reader.read() == b""
                writer.close()
            network.ask(lambda name: b"again")
            assert await network.answer() == ("north", b"again")


# ---------------------------------------------------------------- who is who


@within_seconds
async def test_a_certificate_is_a_name(keys):
    """The coordinator's own certificate or its authority's is pinned."""
    async with listening(keys) as (network, address):
        for authority in ("ca", "server"):
            async with joined(keys, "south", address, lambda data: data, authority):
                network.ask(request_of)
                assert await answers(network, "south") == ("south", b"request")


STRANGERS = {
    "unknown": ("stranger", None), "of the authority": ("server", None),
    "signed by a party": ("signed_by_north", "server"), "expired": ("expired_north", "north"),
}  # fmt: skip


@pytest.mark.parametrize("stranger", [*STRANGERS, "without a certificate", "without TLS"])
@within_seconds
async def test_a_stranger_is_not_listened_to(keys, stranger):
    """The party's own certificate is an anchor of trust, and may be one that can sign others."""
    async with listening(keys, "north", "expired_north") as (network, address):
        network.ask(request_of)
        scheme, own = "https", ssl.create_default_context(cafile=keys / "ca.pem")
        if stranger in STRANGERS:
            certificate, key = STRANGERS[stranger]
            own = client_side(keys, certificate, key=key)
        elif stranger == "without TLS":
            scheme, own = "http", True
        async with aiohttp.ClientSession() as session:
            with pytest.raises((aiohttp.ClientError, OSError)):
                async with session.ws_connect(f"{scheme}://{address}/", ssl=own) as line:
                    assert (await line.receive()).type == aiohttp.WSMsgType.BINARY
        assert not is_asked(network)


@pytest.mark.parametrize(("authority", "host"), [("stranger", "127.0.0.1"), ("ca", "localhost")])
@within_seconds
async def test_a_coordinator_must_prove_who_it_is(keys, authority, host, monkeypatch, caplog):
    monkeypatch.setattr(_network, "RETRY_SECONDS", 0.01)
    async with listening(keys, "north") as (network, address):
        network.ask(request_of)
        address = address.replace("127.0.0.1", host)
        with caplog.at_level("INFO"):
            async with joined(keys, "north", address, None, authority):
                while "certificate" not in caplog.text:
                    await asyncio.sleep(0.01)
        assert not is_asked(network)


@within_seconds
async def test_what_a_party_has_begun_is_finished_when_the_federation_is_over(keys, monkeypatch):
    """It is paid for."""
    monkeypatch.setattr(_network, "END_SECONDS", 1.0)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def answer(request):
        begun.set()
        go_on.wait(SECONDS)
        done.set()
        return b"answer"

    async with (
        listening(keys) as (network, address),
        joined(keys, "south", address, answer) as task,
    ):
        network.ask(request_of)
        await asyncio.to_thread(begun.wait)
        await network.end()
        await task
    go_on.set()
    assert await asyncio.to_thread(done.wait, SECONDS)


# ---------------------------------------------------------------- commands


class StartedError(Exception):
    """In place of a network."""


@pytest.fixture
def folder(tmp_path, monkeypatch, documents, keys):
    """A current folder with a plan, good files and some bad ones; nothing is sent."""

    def start(*_, **__):
        raise StartedError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_network, "Coordinator", start)
    monkeypatch.setattr(_network, "take_part", start)
    monkeypatch.setattr(_command.log, "handlers", [])
    for path in keys.iterdir():
        Path(path.name).write_bytes(path.read_bytes())
    for path in tmp_path.glob("*.key"):
        path.chmod(0o600)
    sp.save_npz("north.npz", documents["north"])
    sp.save_npz("narrow.npz", documents["north"][:, :4])
    text = "\n".join(WORDS)
    files = {
        "words": text, "blank_end": f"{text}\n\n", "separator": f"{text}\u2028x\n",
        "twice": f"{text}\n{WORDS[0]}",
    }  # fmt: skip
    for name, content in files.items():
        Path(name).write_text(content, "utf-8")
    assert main(command_line("plan")) == 0
    return tmp_path


COMMANDS = {
    "plan": {
        "vocabulary": "words", "epsilon": "4", "party": "north=north.pem", "out": "plan.json",
    },
    "coordinator": {"plan": "plan.json", "certificate": "server.pem", "key": "server.key"},
    "party": {
        "": "north.npz", "plan": "plan.json", "name": "north", "ledger": "ledger",
        "coordinator": "localhost:8000", "coordinator-certificate": "ca.pem",
        "certificate": "north.pem", "key": "north.key",
    },
}  # fmt: skip


def command_line(command, **changes):
    options = COMMANDS[command] | changes
    given = [f"--{name}={value}" for name, value in options.items() if name]
    last = {"plan": "--party=south=south.pem"}.get(command, options.get(""))
    return ["federation", command, *given, *([last] if last else [])]


@pytest.mark.parametrize(
    ("command", "option", "value", "text"),
    [
        ("plan", "vocabulary", "blank_end", "a line is blank"),
        ("plan", "vocabulary", "separator", "a line"), ("plan", "vocabulary", "twice", "different"),
        ("plan", "party", "south=north.pem", "its own name"),
        ("plan", "party", "north=words", "PEM"), ("plan", "out", "missing/p", "missing/p"),
        ("coordinator", "round-timeout", "nan", "--round-timeout"),
        ("coordinator", "port", "70000", "--port"),
        ("coordinator", "key", "words", "words holds no key"),
        ("coordinator", "plan", "words", "words is no plan"),
        ("party", "", "missing.npz", "missing.npz"), ("party", "", "narrow.npz", "30 words"),
        ("party", "key", "missing.key", "missing.key"),
        ("party", "key", "words", "words holds no key"),
        ("party", "certificate", "words", "words holds no certificate"),
        ("party", "coordinator-certificate", "missing.pem", "missing.pem"),
        ("party", "ledger", "missing/ledger", "missing/ledger"),
        ("party", "ledger", "words", "words is not a"),
        ("party", "certificate", "south.pem", "is not the certificate of 'north'"),
        ("party", "key", "south.key", "south.key holds no key of the certificate"),
        ("party", "plan", "words", "words is no plan"),
        ("party", "out", "missing/x", "missing/x cannot be written"),
        ("party", "out", "words", "words exists, and may have been paid for"),
    ],
)  # fmt: skip
def test_everything_is_checked_first(folder, capsys, command, option, value, text):
    capsys.readouterr()
    assert main(command_line(command, **{option: value})) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert text in error
    assert not (folder / "ledger").exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows has access lists")
@pytest.mark.parametrize(
    ("command", "key"), [("party", "north.key"), ("coordinator", "server.key")]
)
def test_a_key_that_others_can_read_starts_nothing(folder, capsys, command, key):
    (folder / key).chmod(0o640)
    assert main(command_line(command)) == 1
    assert f"the private key {key} is open to other users" in capsys.readouterr().err
    assert not (folder / "ledger").exists()
    (folder / key).chmod(0o600)
    with pytest.raises(StartedError):
        main(command_line(command))


def test_a_party_reads_tables_of_texts(folder):
    pd.DataFrame({"note": ["word1 word2. word3 word0!"] * 9}).to_csv("notes.csv")
    with pytest.raises(StartedError):
        main(command_line("party", **{"": "notes.csv", "text-column": "note"}))


# ---------------------------------------------------------------- real processes


class Processes:
    """Processes of this machine, ended by their ids; each writes a log into the folder."""

    def __init__(self, folder, **environment):
        self.folder, self.processes = folder, {}
        self.environment = {**os.environ, **environment}

    def start(self, name, *command):
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                [*map(str, command)], stdout=log, stderr=log, cwd=self.folder, env=self.environment
            )
        return self.processes[name]

    def text(self, name):
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def wait_for(self, condition, seconds=300):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "\n".join(
                f"--- {name}\n{self.text(name)[-3000:]}" for name in self.processes
            )
            time.sleep(0.1)

    def wait_for_end(self, *names):
        for name in names:
            self.wait_for(lambda name=name: self.processes[name].poll() is not None)
            assert self.processes[name].returncode == 0, self.text(name)

    def end(self):
        for process in reversed(self.processes.values()):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as port:
        return port.getsockname()[1]


def make_certificates(folder, names):
    """A signing authority, the coordinator's certificate, and a key for each party."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = serialization.Encoding.PEM
    today = datetime.datetime.now(datetime.UTC)
    root = x509.BasicConstraints(ca=True, path_length=None)

    def write(name, key, locked):
        path = folder / f"{name}.key"
        path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked))
        path.chmod(0o600)

    def certify(name, key, signer, extension=root, issuer="ca", days=1):
        common = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, n)])
                  for n in (name, issuer))  # fmt: skip
        builder = x509.CertificateBuilder(*reversed([*common]), key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).add_extension(extension, False)
        builder = builder.not_valid_before(today - datetime.timedelta(days=9))
        signed = builder.not_valid_after(today + datetime.timedelta(days=days))
        data = signed.sign(signer, hashes.SHA256()).public_bytes(pem)
        (folder / f"{name}.pem").write_bytes(data)

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certify("ca", authority, authority)
    certify("server", server, authority, address)
    plain = serialization.NoEncryption()
    write("server", server, plain)
    for name in names:
        # "openssl req -x509" makes certificates that can sign others
        key = ec.generate_private_key(ec.SECP384R1())
        certify(name, key, key, issuer=name)
        certify(f"signed_by_{name}", server, key, address, issuer=name)
        certify(f"expired_{name}", key, key, issuer=f"expired_{name}", days=-1)
        write(name, key, plain)
        write(f"expired_{name}", key, plain)
        write("locked", key, serialization.BestAvailableEncryption(b"x"))
