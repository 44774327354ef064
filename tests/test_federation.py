"""A federation over a network: messages, who is who, and helpers for processes."""

import asyncio
import copy
import functools
import os
import socket
import ssl
import subprocess
import time
from contextlib import asynccontextmanager, closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection

import pytest
import scipy.sparse as sp

from dplda.datasets import make_topic_corpus
from dplda.federated import _coordinator, _line
from dplda.federated._certificates import certificate_of, tls_context
from dplda.federated._coordinator import Coordinator
from dplda.federated._line import Line

N_WORDS = 30
WORDS = [f"word{i}" for i in range(N_WORDS)]
PARAMETERS = {"north": (5, 1), "south": (3, 2)}  # topics, seed
SECONDS = 20.0  # that nothing here takes


@pytest.fixture(scope="module")
def documents():
    X = make_topic_corpus(
        n_docs=120, n_words=N_WORDS, n_components=4, random_state=0
    ).data
    X = sp.csr_array(X)
    return {"north": X[:80], "south": X[80:]}


# ---------------------------------------------------------------- messages


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    """A process that has died is missed soon."""
    monkeypatch.setattr(_coordinator, "GRACE_SECONDS", 0.1)


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


class Joiner:
    """In the place of sums: all messages, joined."""

    def __init__(self, names):
        self.names, self.present, self.seen = names, {*range(len(names))}, []

    def reply(self, messages):
        self.seen.append(dict(messages))
        return b"|".join(message for _, message in sorted(messages.items())).strip(b"|")


@asynccontextmanager
async def listening(keys, *names, max_bytes=1000, timeout=SECONDS, port=0):
    names = names or ("north", "south")
    certificates, tls = server_side(keys, *names)
    adder = Joiner(names)
    network = adder.network = Coordinator(adder, certificates, max_bytes, timeout)
    async with network.listening("127.0.0.1", port, tls) as port:
        task = adder.end = asyncio.create_task(network.add_up())
        yield adder, f"127.0.0.1:{port}"
        task.cancel()


def line_of(
    keys, name, address, *authority, max_bytes=1000, timeout=SECONDS, **timeouts
):
    tls = client_side(keys, name, *authority)
    return Line(address, max_bytes, tls, timeout=timeout, **timeouts)


def put(keys, name, address, number, message, line=None):
    """The status of the reply to a message of a round, by the process of a line."""
    headers = {} if line is None else {_line.PROCESS: line._process}
    connection = HTTPSConnection(address, context=client_side(keys, name))
    with closing(connection):
        connection.request("PUT", f"/{number}", message, headers)
        return connection.getresponse().status


async def together(*calls):
    """Results of calls ``(function, *arguments)`` that wait for each other.

    Each call is in a thread.
    """
    return await asyncio.gather(*(asyncio.to_thread(*call) for call in calls))


@within_seconds
async def test_messages_and_replies_cross_the_wire_byte_for_byte(keys, monkeypatch):
    """Also to a party that waits for longer than a call does."""
    monkeypatch.setattr(_coordinator, "WAIT_SECONDS", 0.2)
    every = bytes(range(256))
    async with listening(keys) as (adder, address):
        north, south = (line_of(keys, name, address) for name in ("north", "south"))
        for n in range(3):
            late = asyncio.create_task(asyncio.to_thread(north.exchange, every))
            await asyncio.sleep(0.3 * (n == 1))
            assert (
                await asyncio.to_thread(south.exchange, b"%d" % n) == every + b"|%d" % n
            )
            assert await late == every + b"|%d" % n
        await together((north.leave, ""), (south.leave, "ValueError"))
        assert adder.seen[-1] == {0: b"", 1: b"ValueError"}
        assert len(adder.seen) == 4


@within_seconds
async def test_nobody_waits_for_a_party_that_has_ended(keys):
    """Neither if a reply was on its way to it, nor if the others still work."""
    async with listening(keys, timeout=3600.0) as (adder, address):
        north, south = (line_of(keys, name, address) for name in ("north", "south"))
        unheard = copy.copy(south)
        await together((north.exchange, b"1"), (south.exchange, b"2"))
        await together((unheard.leave, "interrupted"))
        assert await together((north.exchange, b"3")) == [b"3"]
        assert adder.seen == [{0: b"1", 1: b"2"}, {0: b"3"}]
    async with listening(keys, timeout=3600.0) as (adder, address):
        north, south = (line_of(keys, name, address) for name in ("north", "south"))
        await together((put, keys, "south", address, 0, b"2", south))
        await together((south.leave, "interrupted"))
        assert await together((north.exchange, b"1")) == [b"1|2"]
        assert await together((north.exchange, b"3")) == [b"3"]


@within_seconds
async def test_a_call_may_be_repeated_and_changes_nothing(keys, monkeypatch):
    """The first message of a round stands, and a reply is there until the next one."""
    monkeypatch.setattr(_coordinator, "WAIT_SECONDS", 0.1)
    async with listening(keys) as (adder, address):
        north, south = (line_of(keys, name, address) for name in ("north", "south"))
        late = copy.copy(south)
        for message in (b"first", b"other"):
            call = put, keys, "north", address, 0, message, north
            assert await together(call) == [204]
        assert await together((north.exchange, b"third"), (south.exchange, b"one")) == (
            2 * [b"first|one"]
        )
        assert await together((late.exchange, b"one")) == [b"first|one"]
        assert adder.seen == [{0: b"first", 1: b"one"}]
        for number in (2, 7):  # which is not the party's turn
            (status,) = await together(
                (put, keys, "north", address, number, b"x", north)
            )
            assert 400 <= status < 500
        assert len(adder.seen) == 1


@within_seconds
async def test_a_party_that_is_started_again_takes_its_place_before_the_keys(
    keys, monkeypatch
):
    """Its message replaces the one of the process that has died."""
    monkeypatch.setattr(_coordinator, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(_line, "RETRY_SECONDS", 0.01)
    async with listening(keys) as (adder, address):
        dead, north, south = (
            line_of(keys, name, address) for name in ("north", "north", "south")
        )
        await together((put, keys, "north", address, 0, b"dead", dead))
        new = asyncio.create_task(asyncio.to_thread(north.exchange, b"new"))
        while adder.network._messages.get(0) != b"new":
            await asyncio.sleep(0.01)
        assert await together((south.exchange, b"one")) == [await new] == [b"new|one"]
        with pytest.raises(ConnectionError, match="another process of this party"):
            await together((dead.exchange, b"dead"))


@within_seconds
async def test_a_party_that_is_started_again_in_the_setup_ends_it_at_once(
    keys, monkeypatch
):
    async with listening(keys) as (adder, address):
        dead, north, south = (
            line_of(keys, name, address) for name in ("north", "north", "south")
        )
        await together((dead.exchange, b"1"), (south.exchange, b"2"))
        adder.reply = fail_of_both
        calls = (north.exchange, b"3"), (south.exchange, b"4")
        ends = await asyncio.gather(
            *(asyncio.to_thread(*call) for call in calls), return_exceptions=True
        )
        assert [type(end) for end in ends] == 2 * [ConnectionError]
        assert "another process" in str(ends[0])
        assert "it was started again" in str(ends[1])


@within_seconds
async def test_a_coordinator_ends_as_soon_as_all_know_why(keys, monkeypatch):
    """Also those who are between two calls at that moment; it waits for no others."""
    monkeypatch.setattr(_coordinator, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(_coordinator, "GRACE_SECONDS", SECONDS)
    async with listening(keys, "north", "south", "stranger") as (adder, address):
        north, south, lost = (
            line_of(keys, name, address) for name in ("north", "south", "stranger")
        )
        adder.reply = fail_of_both
        call = put, keys, "north", address, 0, b"1", north
        assert await together(call) == [HTTPStatus.NO_CONTENT]
        await together((lost.leave, "ValueError"))
        with pytest.raises(ConnectionError, match="has ended the fit"):
            await together((south.exchange, b"2"))
        assert not adder.end.done()
        assert await together(call) == [HTTPStatus.GONE]
        with pytest.raises(ConnectionError, match="ValueError"):
            await asyncio.wait_for(adder.end, SECONDS / 2)


def fail_of_both(messages):
    """In the place of sums: an error that quotes the messages."""
    raise ConnectionError(str(messages))


@within_seconds
async def test_a_second_process_of_a_party_changes_nothing(keys, monkeypatch):
    """It is told that the first one goes on."""
    monkeypatch.setattr(_coordinator, "WAIT_SECONDS", 0.2)
    async with listening(keys) as (adder, address):
        north, second, south = (
            line_of(keys, name, address) for name in ("north", "north", "south")
        )
        for number in range(3):
            first = asyncio.create_task(asyncio.to_thread(north.exchange, b"1"))
            while 0 not in adder.network._messages:
                await asyncio.sleep(0.01)
            second._number = number
            with pytest.raises(ConnectionError, match="another process of this party"):
                await together((second.exchange, b"second"))
            assert await together((south.exchange, b"2")) == [b"1|2"]
            assert await first == b"1|2"


@within_seconds
async def test_a_coordinator_that_is_started_again_is_given_the_messages_again(
    keys, monkeypatch
):
    """Parties have waited for longer than a call, and send the same bytes."""
    monkeypatch.setattr(_coordinator, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(_line, "RETRY_SECONDS", 0.01)
    port = free_port()
    north, south = (
        line_of(keys, name, f"127.0.0.1:{port}") for name in ("north", "south")
    )
    async with listening(keys, port=port) as (adder, _):
        early = asyncio.create_task(asyncio.to_thread(north.exchange, b"1"))
        while 0 not in adder.network._messages:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
    async with listening(keys, port=port):
        assert await together((south.exchange, b"2")) == [await early] == [b"1|2"]


@within_seconds
async def test_a_party_holds_one_call_and_one_body_in_its_turn(keys, caplog):
    """Bodies of other calls are not read: a thousand of them fill no memory."""
    async with listening(keys, max_bytes=10**6) as (adder, address):
        tls = client_side(keys, "north")
        calls = []
        for number in (0, 0, 1, 0):
            calls.append(await asyncio.open_connection(*address.split(":"), ssl=tls))
            head = f"PUT /{number} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            calls[-1][1].write(head.encode() + b"\r\n" + bytes(100_000))
            if number == 0:
                while 0 not in adder.network._calls:
                    await asyncio.sleep(0.01)
        *earlier, (_, last) = calls
        for reader, writer in earlier:  # cut off, or answered without its body
            with suppress(ConnectionError):
                assert (await reader.readline())[9:12] in (b"", b"410")
            writer.close()
        last.close()
        assert adder.network._messages == {}
    assert caplog.records == []  # nor do they fill a log


@within_seconds
async def test_a_party_gives_up_after_its_timeout_and_says_why(keys, monkeypatch):
    monkeypatch.setattr(_line, "RETRY_SECONDS", 0.01)
    line = line_of(keys, "north", f"127.0.0.1:{free_port()}", start_timeout=0.1)
    with pytest.raises(ConnectionError, match=r"silent for 0\.1 s: nobody listens"):
        await together((line.exchange, b"1"))


@pytest.mark.parametrize(
    "address", ["localhost:abc", "http://localhost:80", "localhost", "a:1/x", "u@a:1"]
)
def test_an_address_that_is_none_is_refused(keys, address):
    with pytest.raises(ValueError, match="must be HOST:PORT"):
        line_of(keys, "north", address)


@within_seconds
async def test_a_certificate_that_nobody_knows_ends_the_party_soon(keys, monkeypatch):
    monkeypatch.setattr(_line, "RETRY_SECONDS", 0.01)
    async with listening(keys, "south") as (adder, address):
        with pytest.raises(ConnectionError, match="the certificate of this party"):
            await together((line_of(keys, "north", address).exchange, b"1"))
        assert adder.seen == []


@within_seconds
async def test_a_message_or_a_reply_that_is_too_long_is_not_read(keys):
    async with listening(keys, "north", max_bytes=1000) as (adder, address):
        with pytest.raises(ConnectionError, match="HTTP 413"):
            await together((line_of(keys, "north", address).exchange, bytes(1001)))
        assert adder.seen == []
        line = line_of(keys, "north", address, max_bytes=10)
        with pytest.raises(ValueError, match="more than 10 bytes"):
            await together((line.exchange, b"x" * 11))


@pytest.mark.parametrize(
    "call",
    [
        b"GET / HTTP/1.1\r\nHost: x",
        b"GET /../etc/passwd HTTP/1.1\r\nHost: x",
        b"POST /0 HTTP/1.1\r\nHost: x",
        b"PUT /-1 HTTP/1.1\r\nHost: x",
        b"\0\1\2",
        b"GET /",
    ],
)
@within_seconds
async def test_any_other_call_is_refused(keys, call, caplog):
    async with listening(keys, "north") as (adder, address):
        tls = client_side(keys, "north")
        reader, writer = await asyncio.open_connection(*address.split(":"), ssl=tls)
        writer.write(call + b"\r\n\r\n")
        assert b" 4" in (await reader.readline())[:13]
        writer.close()
        assert adder.seen == []


@within_seconds
async def test_a_party_outlives_a_coordinator_and_ends_with_the_next_one(
    keys, monkeypatch
):
    monkeypatch.setattr(_line, "RETRY_SECONDS", 0.01)
    port = free_port()
    north, south = (
        line_of(keys, name, f"127.0.0.1:{port}") for name in ("north", "south")
    )
    # before it listens
    early = asyncio.create_task(asyncio.to_thread(north.exchange, b"1"))
    async with listening(keys, port=port):
        assert await together((south.exchange, b"2")) == [await early]
    again = asyncio.create_task(asyncio.to_thread(north.exchange, b"3"))
    await asyncio.sleep(0.1)
    assert not again.done()  # it tries again
    async with listening(keys, port=port):
        with pytest.raises(ConnectionError, match="has ended the fit"):
            await again


@within_seconds
async def test_nobody_holds_many_connections(keys, monkeypatch):
    monkeypatch.setattr(_coordinator, "WAIT_SECONDS", 0.1)
    async with listening(keys, "north", timeout=0.1) as (_, address):
        tls = client_side(keys, "north")
        lines = [
            await asyncio.open_connection(*address.split(":"), ssl=tls)
            for _ in range(50)
        ]
        for number, (_, writer) in enumerate(lines):
            writer.write(b"GET /0 HTTP/1.1\r\n" * (number % 2))  # open, and incomplete
        for reader, writer in lines:
            assert await reader.read() == b""
            writer.close()


# ---------------------------------------------------------------- who is who


@within_seconds
async def test_a_certificate_is_a_name(keys):
    """The coordinator's own certificate or its authority's is pinned."""
    for authority in ("ca", "server"):
        async with listening(keys) as (adder, address):
            north = line_of(keys, "north", address)
            south = line_of(keys, "south", address, authority)
            await together((north.exchange, b"1"), (south.exchange, b"2"))
        assert adder.seen == [{0: b"1", 1: b"2"}]


STRANGERS = {
    "unknown": ("stranger", None),
    "of the authority": ("server", None),
    "signed by a party": ("signed_by_north", "server"),
    "expired": ("expired_north", "north"),
}


@pytest.mark.parametrize(
    "stranger", [*STRANGERS, "without a certificate", "without TLS"]
)
@within_seconds
async def test_a_stranger_is_not_listened_to(keys, stranger):
    """The party's own certificate is a trust anchor, and may be able to sign others."""
    async with listening(keys, "north", "expired_north") as (adder, address):
        tls = ssl.create_default_context(cafile=keys / "ca.pem")
        if stranger in STRANGERS:
            certificate, key = STRANGERS[stranger]
            tls = client_side(keys, certificate, key=key)
        plain = stranger == "without TLS"
        line = (
            HTTPConnection(address) if plain else HTTPSConnection(address, context=tls)
        )

        def call():
            with closing(line):
                line.request("DELETE", "/0", b"x")
                return line.getresponse().status

        with suppress(OSError, HTTPException):  # it got no further than the handshake
            assert await asyncio.to_thread(call) == 403
        assert adder.seen == []


@pytest.mark.parametrize(
    ("authority", "host"), [("stranger", "127.0.0.1"), ("ca", "localhost")]
)
@within_seconds
async def test_a_coordinator_must_prove_who_it_is(keys, authority, host):
    """Nothing can mend that: the party ends at once, and has sent nothing."""
    async with listening(keys, "north") as (adder, address):
        line = line_of(keys, "north", address.replace("127.0.0.1", host), authority)
        with pytest.raises(ConnectionError, match="--coordinator-certificate"):
            await together((line.exchange, b"secret"))
        assert adder.seen == []


# ---------------------------------------------------------------- real processes


class Processes:
    """Processes of this machine, ended by their ids; each logs into the folder."""

    def __init__(self, folder, **environment):
        self.folder, self.processes = folder, {}
        self.environment = {**os.environ, **environment}

    def start(self, name, *command):
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                [*map(str, command)],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
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
        path.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked)
        )
        path.chmod(0o600)

    def certify(name, key, signer, extension=root, issuer="ca", days=1):
        common = (
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, n)])
            for n in (name, issuer)
        )
        builder = x509.CertificateBuilder(*reversed([*common]), key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).add_extension(
            extension, False
        )
        builder = builder.not_valid_before(today - datetime.timedelta(days=9))
        signed = builder.not_valid_after(today + datetime.timedelta(days=days))
        data = signed.sign(signer, hashes.SHA256()).public_bytes(pem)
        (folder / f"{name}.pem").write_bytes(data)

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    address = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
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
