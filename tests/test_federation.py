"""A federation over a network: its commands, its calls, and processes (marked slow)."""

import os
import pickle
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from dplda import load_release, save_release
from dplda.cli import _federation as _command
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMMaster, RoundError, StoredParty, _https, _network, _tls, run_rounds
from dplda.federated._admission import Lobby, Places, network_of
from dplda.federated._https import Caller, Mailbox, Server
from dplda.federated._network import Failure, Request
from dplda.metrics import unigram_perplexity
from dplda.privacy import Ledger, SeededNoiseWarning

N_WORDS = 30
WORDS = [f"word{i}" for i in range(N_WORDS)]
PARAMETERS = {"north": (5, 1), "south": (3, 2)}  # topics, seed


@pytest.fixture(scope="module")
def documents():
    X = make_topic_corpus(n_docs=120, n_words=N_WORDS, n_components=4, random_state=0).data
    X = sp.csr_array(X)
    return {"north": X[:80], "south": X[80:]}


def estimator(name, **changes):
    from dplda.federated import IFTMParty

    n_components, seed = PARAMETERS[name]
    return IFTMParty(
        n_components,
        **{"token_epsilon": 6.0, "max_iter": 5, "random_state": seed, **changes},
    )


@pytest.fixture(scope="module")
def in_process(documents):
    """The result of three rounds without any engine."""
    parties = {name: (estimator(name), X) for name, X in documents.items()}
    return run_rounds(IFTMMaster(WORDS, min_parties=2), parties, 3)


@pytest.fixture(scope="module")
def in_process_release(in_process, tmp_path_factory):
    """The bytes of its release file."""
    path = tmp_path_factory.mktemp("release") / "global.model"
    save_release(in_process.released_model(), path)
    return path.read_bytes()


pytestmark = pytest.mark.filterwarnings("ignore", category=SeededNoiseWarning)


class Loop:
    """A network of parties in this process; `keys` names the parties that can join."""

    def __init__(self, parties, keys=None):
        self.connected, self.keys = parties, keys
        self.expected = tuple((keys or {}).values())

    def parties(self):
        return {at: (self.keys or {}).get(at, "") for at in self.connected if self.admits(at)}

    def admits(self, at):
        return self.keys is None or at in self.keys

    def ask(self, requests, timeout):
        answers = [(at, _network.answer(self.connected[at], r)) for at, r in requests.items()]
        return dict(reversed(answers))


def stored(name, X, folder, **changes):
    return StoredParty(
        name, estimator(name, **changes), lambda: X, vocabulary=WORDS, path=folder / f"{name}.state"
    )


def test_requests_and_answers_make_the_same_rounds(documents, in_process, tmp_path):
    parties = {7: stored("south", documents["south"], tmp_path)}
    parties[9] = stored("north", documents["north"], tmp_path)
    for keys in (None, {7: "south", 9: "north"}):
        master = IFTMMaster(WORDS, min_parties=2)
        if keys is None:
            _network.make_rounds(Loop(parties), master, 3)
            assert master.global_model_ == in_process.global_model_
        else:  # goes on from what the parties have
            _network.make_rounds(Loop(parties, keys), master, 1)
            assert set(master.next_models_) == {"north", "south"}


def test_a_ledger_refuses_and_the_round_goes_on(documents, tmp_path, caplog):
    ledger = Ledger(tmp_path / "north.sqlite", epsilon=5.0)  # less than one fit needs
    parties = {
        1: stored("north", documents["north"], tmp_path, ledger=str(ledger.path)),
        2: stored("south", documents["south"], tmp_path),
    }
    master = IFTMMaster(WORDS, min_parties=1)
    _network.make_rounds(Loop(parties), master, 1)
    assert master.history_[0].parties == ("south",)
    assert "sent no model: 'BudgetError'" in caplog.text
    assert ledger.entries() == []


def test_names_are_those_of_the_keys(documents, tmp_path, caplog):
    parties = {
        1: stored("north", documents["north"], tmp_path),
        2: stored("south", documents["south"], tmp_path),
    }
    keys = {1: "north", 2: "east"}
    master = IFTMMaster(WORDS, parties=["north", "east"])
    _network.make_rounds(Loop(parties, keys), master, 1)
    assert master.history_[0].parties == ("north",)
    assert "'east' sent a model in another name" in caplog.text
    with pytest.raises(RoundError, match="0 of at least 1 parties came"):
        _network.make_rounds(Loop(parties, {3: "x"}), master, 1, round_timeout=0, poll=0)


def test_the_coordinator_gives_up_on_rounds_that_fail(documents, tmp_path):
    parties = {1: stored("north", documents["north"], tmp_path)}
    parties[2] = SimpleNamespace(answer=lambda *_: b"nonsense")
    with pytest.raises(RoundError, match="1 valid models of at least 2"):
        _network.make_rounds(Loop(parties), IFTMMaster(WORDS, min_parties=2), 1)


@pytest.mark.parametrize("content", [10**12, "text", b"", [1, 2], 0.5])
def test_any_content_is_refused(documents, tmp_path, content):
    """A number, above all, must not become that many bytes."""
    parties = {1: stored("north", documents["north"], tmp_path)}
    parties[2] = SimpleNamespace(answer=lambda *_: content)
    master = IFTMMaster(WORDS)
    _network.make_rounds(Loop(parties), master, 1)
    assert master.history_[0].parties == ("north",)


def test_errors_do_not_travel(tmp_path):
    """Only the name of an error leaves the party."""

    def answer(*_):
        raise ValueError("the patient is called Smith")

    request = Request(0, "", b"")
    assert _network.answer(SimpleNamespace(answer=answer), request) == Failure("ValueError")


# ---------------------------------------------------------------- calls


@pytest.fixture
def served(tmp_path):
    """A mailbox that is served on this machine, without TLS, and its address."""
    mailbox = Mailbox(1000)
    server = Server(("127.0.0.1", 0), mailbox)
    with server.running():
        yield mailbox, server.server_address


def ask_in_a_thread(mailbox, requests, timeout=20.0):
    answers = {}
    thread = threading.Thread(target=lambda: answers.update(mailbox.ask(requests, timeout)))
    thread.start()
    return thread, answers


def test_a_request_and_an_answer_cross_the_wire_byte_for_byte(served):
    mailbox, address = served
    request = Request(3, "hash", bytes(range(256)))
    for name in ("north", "S\u00fcd / 100 %"):
        mailbox.note(name)
        thread, answers = ask_in_a_thread(mailbox, {name: request})
        caller = Caller(name, *address)
        assert caller.receive() == request
        assert caller.receive() == request  # a party that was killed asks again
        caller.send(3, b"\0model\r\n")
        thread.join()
        assert answers == {name: b"\0model\r\n"}


def test_a_failure_is_an_answer(served):
    mailbox, address = served
    mailbox.note("north")
    thread, answers = ask_in_a_thread(mailbox, {"north": Request(0, "", b"")})
    Caller("north", *address).send(0, Failure("BudgetError"))
    thread.join()
    assert answers == {"north": Failure("BudgetError")}


def test_only_what_is_asked_for_is_read(served):
    mailbox, address = served
    mailbox.note("north")
    north, south = Caller("north", *address), Caller("south", *address)
    thread, answers = ask_in_a_thread(mailbox, {"north": Request(1, "", b"")})
    for caller, number in ((south, 1), (north, 0), (north, 2)):
        with pytest.raises(ConnectionError, match="status 409"):
            caller.send(number, b"model")
    with mailbox.turn("north", 1) as first, mailbox.turn("north", 1) as second:
        assert (first, second) == (True, False)  # one answer of a party at a time
    assert not answers
    north.send(1, b"model")
    thread.join()
    with pytest.raises(ConnectionError, match="status 409"):
        north.send(1, b"again")


def test_a_body_that_is_too_long_is_not_read(served):
    mailbox, address = served
    mailbox.note("north")
    thread, answers = ask_in_a_thread(mailbox, {"north": Request(0, "", b"")})
    with socket.create_connection(address) as line:
        head = b"POST /answer/0 HTTP/1.0\r\nDplda-Party: north\r\nContent-Length: 1001\r\n\r\n"
        line.sendall(head)
        assert b" 413 " in line.recv(1000)  # before a byte of the body was sent
    thread.join()
    assert answers == {"north": Failure("a body of '1001' bytes; at most 1000")}


@pytest.mark.parametrize(
    "call",
    [
        b"GET /request HTTP/1.0", b"GET /../etc/passwd HTTP/1.0\r\nDplda-Party: north",
        b"POST /answer/x HTTP/1.0\r\nDplda-Party: north", b"PUT /answer/0 HTTP/1.0", b"\0\1\2",
        b"POST /answer/0 HTTP/1.0\r\nDplda-Party: a%0Ab", b"GET /request",
    ],
)  # fmt: skip
def test_any_other_call_is_refused(served, call):
    mailbox, address = served
    with socket.create_connection(address) as line:
        line.sendall(call + b"\r\n\r\n")
        answer = line.makefile("rb").read()
    assert not answer.startswith(b"HTTP/1.0 2")
    assert mailbox.parties().keys() <= {"north"}


def test_a_party_that_is_gone_is_not_waited_for(served, monkeypatch):
    mailbox, _ = served
    mailbox.note("north")
    monkeypatch.setattr(_https, "ABSENT_SECONDS", 0.0)
    assert mailbox.ask({"north": Request(0, "", b"")}, timeout=1000.0) == {}
    assert mailbox.parties() == {}


def test_more_connections_than_allowed_are_closed(served, monkeypatch):
    mailbox, _ = served
    monkeypatch.setattr(_https, "MAX_CONNECTIONS", 1)
    server = Server(("127.0.0.1", 0), mailbox)
    with server.running(), socket.create_connection(server.server_address) as first:
        first.sendall(b"GET /request HTTP/1.0\r\n")  # open, and incomplete
        with socket.create_connection(server.server_address) as second:
            assert second.recv(1) == b""


def connect(address, **options):
    """A connection without a handshake, which fails instead of waiting for long."""
    return socket.create_connection(address, timeout=20.0, **options)


def is_closed(line):
    """Whether the other side has closed a connection that nothing was sent on."""
    line.setblocking(False)
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def wait_until(condition):
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Line:
    """A socket that only notes that it was shut down."""

    closed = False


@pytest.fixture
def lobby(monkeypatch):
    monkeypatch.setattr(socket.socket, "shutdown", lambda line, _: setattr(line, "closed", True))
    return Lobby(4)


def test_who_has_most_of_a_lobby_makes_room(lobby):
    lines = [Line() for _ in range(9)]
    hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.1"]
    for line, host in zip(lines, hosts, strict=False):
        lobby.enter(line, host)
    # the oldest of the three of 10.0.0.2, then the two that came to be most, and not the oldest
    assert [line.closed for line in lines] == [False, True, True, True, *[False] * 5]
    lobby.leave(lines[0])
    lobby.enter(lines[7], "10.0.0.1")
    assert not lines[4].closed  # there was a place
    with pytest.raises(ConnectionAbortedError):
        lobby.wrap(lines[1], Line())
    secure = Line()
    lobby.wrap(lines[6], secure)
    lobby.enter(lines[8], "10.0.0.9")  # 10.0.0.1 has most of them
    assert (lines[6].closed, secure.closed) == (False, True)


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("10.0.0.1", "10.0.0.2", False), ("10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8:0:1::1", True), ("2001:db8::1", "2001:db8:1::1", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False), ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)  # fmt: skip
def test_addresses_of_one_caller(one, other, are_one):
    assert (network_of(one) == network_of(other)) == are_one


def test_a_party_has_its_own_places_and_no_more():
    places = Places(2)
    with places.of("north") as first, places.of("north") as second, places.of("north") as third:
        assert (first, second, third) == (True, True, False)
        with places.of("south") as another:
            assert another
    with places.of("north") as first, places.of("north") as second:
        assert (first, second) == (True, True)


@pytest.fixture
def secured(tmp_path):
    """A mailbox behind TLS that knows north and south, and the folder of all files."""
    make_certificates(tmp_path, ["north", "south", "stranger"])
    names = {_tls.certificate_of(tmp_path / f"{n}.pem"): n for n in ("north", "south")}
    mailbox = Mailbox(1000, ("north", "south"))
    tls = _tls.server_context(tmp_path / "server.pem", tmp_path / "server.key", names)
    server = Server(("127.0.0.1", 0), mailbox, tls, names)
    with server.running():
        yield mailbox, server.server_address, tmp_path


def secure_caller(name, key, address, folder, authority="ca"):
    files = (folder / f"{authority}.pem", folder / f"{key}.pem", folder / f"{key}.key")
    return Caller(name, *address, _tls.client_context(*files))


def test_a_certificate_is_a_name(secured):
    mailbox, address, folder = secured
    for name in ("north", "south"):
        mailbox.note(name)
    thread, answers = ask_in_a_thread(mailbox, {"south": Request(0, "", b"")})
    assert secure_caller("north", "south", address, folder).receive() == Request(0, "", b"")
    with pytest.raises(ConnectionError, match="status 409"):
        secure_caller("south", "north", address, folder).send(0, b"in the name of another party")
    pinned = secure_caller("south", "south", address, folder, authority="server")
    pinned.send(0, b"model")
    thread.join()
    assert answers == {"south": b"model"}


def test_a_refusal_arrives(secured):
    """A connection that is closed with bytes unread is reset, and the reply may be lost."""
    _, address, folder = secured
    for _ in range(10):
        with pytest.raises(ConnectionError, match="status 409"):
            secure_caller("north", "north", address, folder).send(0, bytes(20_000))


def test_a_stranger_gets_no_further_than_the_handshake(secured, monkeypatch):
    _, address, folder = secured

    def fail(*_):
        raise AssertionError("a call of a stranger was read")

    monkeypatch.setattr(_https, "_Connection", fail)
    monkeypatch.setattr(Mailbox, "note", fail)
    strangers = [
        secure_caller("north", "stranger", address, folder),
        secure_caller("north", "server", address, folder),  # signed by the authority
        Caller("north", *address, _tls.client_context(folder / "ca.pem", None, None)),
        Caller("north", *address),
    ]
    for caller in strangers:
        with pytest.raises((OSError, HTTPException)):
            caller.receive()


@pytest.fixture
def narrow(monkeypatch):
    """A coordinator with few places."""
    for name, value in {"CONNECTIONS": 24, "HANDSHAKES": 6, "OF_PARTY": 2}.items():
        monkeypatch.setattr(_https, f"MAX_{name}", value)


def test_handshakes_that_never_end_keep_nobody_out(narrow, secured, monkeypatch):
    """Not even of callers from the party's own address."""
    _, address, folder = secured
    north = secure_caller("north", "north", address, folder)
    monkeypatch.setattr(_https, "WAIT_SECONDS", 0.0)
    mute = [connect(address) for _ in range(_https.MAX_CONNECTIONS + 20)]
    assert north.receive() is None
    # who had to leave was told so, and who came last is still there
    wait_until(lambda: sum(map(is_closed, mute)) >= len(mute) - _https.MAX_HANDSHAKES)
    assert not is_closed(mute[-1])
    for line in mute:
        line.close()


def test_who_is_pushed_out_is_gone_at_once(narrow, secured, monkeypatch):
    """A thread that waited for the end of its handshake would keep its place."""
    _, address, _ = secured
    monkeypatch.setattr(_https, "HANDSHAKE_SECONDS", 1000.0)
    before = threading.active_count()
    mute = [connect(address) for _ in range(3 * _https.MAX_HANDSHAKES)]
    wait_until(lambda: sum(map(is_closed, mute)) == 2 * _https.MAX_HANDSHAKES)
    wait_until(lambda: threading.active_count() <= before + _https.MAX_HANDSHAKES)
    for line in mute:
        line.close()
    wait_until(lambda: threading.active_count() <= before)


def test_a_party_that_opens_connections_takes_only_its_own(narrow, secured, caplog):
    mailbox, address, folder = secured
    mailbox.note("south")
    files = [folder / name for name in ("ca.pem", "north.pem", "north.key")]
    context = _tls.client_context(*files)
    held = []
    for _ in range(30):  # more than all places
        held.append(context.wrap_socket(connect(address), server_hostname=address[0]))
        with suppress(OSError):
            held[-1].sendall(b"GET /request HTTP/1.0\r\n")  # open, and incomplete
    wait_until(lambda: "opens too many" in caplog.text)
    thread, answers = ask_in_a_thread(mailbox, {"south": Request(0, "", b"")})
    south = secure_caller("south", "south", address, folder)
    assert south.receive() == Request(0, "", b"")
    south.send(0, b"model")
    thread.join()
    assert answers == {"south": b"model"}
    with pytest.raises((OSError, HTTPException)):
        secure_caller("north", "north", address, folder).receive()
    for line in held:
        line.close()
    mailbox.note("north")
    thread, _ = ask_in_a_thread(mailbox, {"north": Request(1, "", b"")})

    def is_served():
        with suppress(OSError, HTTPException):
            return secure_caller("north", "north", address, folder).receive() is not None

    wait_until(is_served)  # its places are free again
    secure_caller("north", "north", address, folder).send(1, b"")
    thread.join()
    assert caplog.text.count("opens too many connections") == 1


def test_there_are_places_for_all_parties(tmp_path):
    names = {bytes([i]): f"party {i}" for i in range(100)}
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with Server(("127.0.0.1", 0), Mailbox(1), tls, names) as server:
        assert server._free._initial_value >= 100 * _https.MAX_OF_PARTY + _https.MAX_HANDSHAKES


def test_a_coordinator_must_prove_who_it_is(secured):
    _, address, folder = secured
    for authority in ("north", "stranger"):
        caller = secure_caller("north", "north", address, folder, authority)
        with pytest.raises(ssl.SSLCertVerificationError):
            caller.receive()
    elsewhere = secure_caller("north", "north", ("localhost", address[1]), folder)
    with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
        elsewhere.receive()


def test_a_certificate_that_a_party_signed_is_a_stranger(secured, monkeypatch):
    """The party's own certificate is an anchor of trust, and may be one that can sign others."""
    _, address, folder = secured

    read = []
    monkeypatch.setattr(_https._Connection, "parse_request", lambda call: read.append(call))
    files = (folder / "ca.pem", folder / "signed_by_north.pem", folder / "server.key")
    with pytest.raises((OSError, HTTPException)):
        Caller("north", *address, _tls.client_context(*files)).receive()
    assert not read


def test_an_expired_certificate_is_refused(tmp_path):
    make_certificates(tmp_path, ["north"])
    files = (tmp_path / "expired_north.pem", tmp_path / "north.key")
    names = {_tls.certificate_of(files[0]): "north"}
    tls = _tls.server_context(tmp_path / "server.pem", tmp_path / "server.key", names)
    mailbox = Mailbox(1000, ("north",))
    server = Server(("127.0.0.1", 0), mailbox, tls, names)
    context = _tls.client_context(tmp_path / "ca.pem", *files)
    with server.running(), pytest.raises((OSError, HTTPException)):
        Caller("north", *server.server_address, context).receive()
    assert mailbox.parties() == {}


def test_signs_of_life_go_on_after_an_odd_answer(monkeypatch):
    """What answers may be a proxy, or anything."""
    calls = threading.Semaphore(0)

    def answer(*_):
        calls.release()
        int("no number")

    caller = Caller("north", "127.0.0.1", 1)
    monkeypatch.setattr(_https, "ALIVE_SECONDS", 0.0)
    monkeypatch.setattr(caller, "_call", answer)
    with caller.alive():
        assert all(calls.acquire(timeout=5) for _ in range(3))


def test_a_call_without_a_thread_leaves_its_place_to_others(served, monkeypatch):
    mailbox, _ = served
    monkeypatch.setattr(_https, "MAX_CONNECTIONS", 1)
    server = Server(("127.0.0.1", 0), mailbox)

    def start(self):
        raise RuntimeError("can't start new thread")

    with server.running():
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with socket.create_connection(server.server_address) as line:
                assert line.recv(1) == b""
        with socket.create_connection(server.server_address) as line:
            line.sendall(b"GET /x HTTP/1.0\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.0 404")


def read_slowly(line, n_bytes):
    """The start of a message comes in more time than a silence may have."""
    n_read = 0
    for _ in range(10):
        n_read += len(line.recv(2**16))
        time.sleep(0.08)
    line.settimeout(5)
    while n_read < n_bytes:
        piece = line.recv(2**20)
        assert piece, "the connection was closed early"
        n_read += len(piece)


BODY = bytes(2**23)  # more than the buffers of a connection hold


def test_an_answer_may_take_longer_than_a_silence(monkeypatch):
    """A slow line is no silent one."""
    monkeypatch.setattr(_https, "SILENCE_SECONDS", 0.4)
    errors = []

    def send():
        try:
            Caller("north", *port.getsockname()).send(0, BODY)
        except OSError as error:
            errors.append(error)

    with socket.create_server(("127.0.0.1", 0)) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        thread = threading.Thread(target=send)
        thread.start()
        with port.accept()[0] as line:
            read_slowly(line, len(BODY))
            line.sendall(b"HTTP/1.0 204 x\r\nContent-Length: 0\r\n\r\n")
            thread.join()
    assert errors == []


def test_a_request_may_take_longer_than_a_silence(served, monkeypatch):
    mailbox, address = served
    monkeypatch.setattr(_https._Connection, "timeout", 0.4)
    mailbox.note("north")
    thread, _ = ask_in_a_thread(mailbox, {"north": Request(0, "", BODY)})
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        line.connect(address)
        line.sendall(b"GET /request HTTP/1.0\r\nDplda-Party: north\r\n\r\n")
        read_slowly(line, len(BODY))
    Caller("north", *address).send(0, b"")
    thread.join()


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("coordinator --vocabulary v --party a", "expected NAME=FILE, got 'a'"),
        ("party --name a", "required: --data"),
        ("", "required"),
    ],
)
def test_bad_options(arguments, text, capsys):
    with pytest.raises(SystemExit):
        _command.main(arguments.split())
    assert text in capsys.readouterr().err


# ---------------------------------------------------------------- checks before anything starts


class StartedError(Exception):
    """In place of a server, or of a call."""


@pytest.fixture
def folder(tmp_path, monkeypatch, documents):
    """A current folder with good files and some bad ones; nothing is sent."""

    def start(*_):
        raise StartedError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_https, "Server", start)
    monkeypatch.setattr(_https, "take_part", start)
    monkeypatch.setattr(_command.log, "handlers", [])
    make_certificates(tmp_path, documents)
    sp.save_npz("north.npz", documents["north"])
    sp.save_npz("narrow.npz", documents["north"][:, :4])
    text = "\n".join(WORDS)
    files = {
        "words": text, "blank_end": f"{text}\n\n", "separator": f"{text}\u2028x\n",
        "twice": f"{text}\n{WORDS[0]}", "empty": "", "broken.npz": "", "broken.pkl": "x",
    }  # fmt: skip
    for name, content in files.items():
        Path(name).write_text(content, "utf-8")
    Path("latin").write_bytes(b"caf\xe9")
    Path("counts.pkl").write_bytes(pickle.dumps(documents["north"]))
    return tmp_path


PARTY = {
    "name": "north", "data": "north.npz", "vocabulary": "words", "token-epsilon": "6",
    "max-iter": "2", "ledger": "ledger", "state": "state", "coordinator": "localhost:8000",
    "ca-certificate": "ca.pem", "certificate": "north.pem", "key": "north.key",
}  # fmt: skip
COORDINATOR = {
    "vocabulary": "words", "certificate": "server.pem", "certificate-key": "server.key",
    "party": "north=north.pem", "min-parties": "1",
}  # fmt: skip


def command_line(command, options):
    return [
        command,
        *(f"--{name}={value}" if value else f"--{name}" for name, value in options.items()
          if value is not None),
    ]  # fmt: skip


def fails_with_one_line(arguments, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        _command.main(arguments)
    error = capsys.readouterr().err
    assert exit_info.value.code == 2
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("token-epsilon", "-1", "token_epsilon"), ("token-epsilon", "nan", "token_epsilon"),
        ("token-epsilon", "50", "token_epsilon must be from"), ("delta", "2", "delta"),
        ("components", "0", "n_components"), ("max-iter", "-3", "max_iter"),
        ("max-doc-tokens", "0", "max_doc_tokens"), ("seed", "-1", "random_state"),
        ("name", "a\nb", "party must be a name"), ("coordinator", "localhost", "--coordinator"),
        ("coordinator", "localhost:x", "--coordinator"),
        ("coordinator", "localhost:70000", "--coordinator"),
        ("data", "missing.npz", "missing.npz"), ("data", "narrow.npz", "30 words"),
        ("data", "broken.npz", "broken.npz"), ("data", "broken.pkl", "broken.pkl"),
        ("model", "sentence_lda", "SentenceCorpus"),
        ("key", "missing.key", "missing.key"), ("key", "words", "words holds no key"),
        ("key", "server.pem", "server.pem holds no key"), ("key", "server.key", "holds no key"),
        ("key", "locked.key", "locked.key holds no key"), ("key", None, "--certificate and --key"),
        ("certificate", None, "--certificate and --key"),
        ("certificate", "words", "words holds no certificate"), ("insecure", "", "has no TLS"),
        ("ca-certificate", "missing.pem", "missing.pem"),
        ("ca-certificate", "words", "words holds no certificate"),
        ("vocabulary", "missing", "missing"), ("vocabulary", "twice", "twice: words must be all"),
        ("vocabulary", "blank_end", "blank_end: line 31 is blank"),
        ("vocabulary", "separator", "separator: line 30"),
        ("vocabulary", "empty", "empty: line 1"), ("vocabulary", "latin", "latin: "),
        ("ledger", "missing/ledger", "missing/ledger"), ("ledger", "words", "words is not a"),
        ("state", "missing/state", "missing/state"), ("state", "words", "words is no state"),
    ],
)  # fmt: skip
def test_a_party_checks_everything_first(folder, capsys, option, value, text):
    assert text in fails_with_one_line(command_line("party", {**PARTY, option: value}), capsys)
    assert not (folder / "ledger").exists()


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("rounds", "0", "--rounds"), ("rounds", "-1", "--rounds"),
        ("min-parties", "0", "min_parties"), ("min-parties", "2", "--min-parties is 2"),
        ("max-weight", "0", "max_weight"), ("max-topics", "0", "max_topics"),
        ("similarity-threshold", "nan", "similarity_threshold"), ("top-words", "0", "n_top_words"),
        ("round-timeout", "nan", "--round-timeout"), ("round-timeout", "inf", "--round-timeout"),
        ("port", "0", "--port"), ("port", "70000", "--port"),
        ("vocabulary", "missing", "missing"), ("vocabulary", "twice", "twice: words must be all"),
        ("vocabulary", "blank_end", "blank_end: line 31 is blank"),
        ("output", "missing/g", "missing/g cannot be written"), ("output", ".", "is a folder"),
        ("home", "words", "words"), ("party", "north=missing.pem", "missing.pem"),
        ("party", "north=words", "words holds no certificate"),
        ("party", "a\tb=north.pem", "a name of"),
        ("certificate", "missing.pem", "missing.pem"), ("certificate", None, "give --certificate"),
        ("certificate-key", "words", "words holds no key"),
        ("certificate-key", "north.key", "north.key holds no key of the certificate server.pem"),
    ],
)  # fmt: skip
def test_a_coordinator_checks_everything_first(folder, capsys, option, value, text):
    arguments = command_line("coordinator", {**COORDINATOR, option: value})
    assert text in fails_with_one_line(arguments, capsys)
    assert not (folder / "global.model").exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows has access lists")
@pytest.mark.parametrize(
    ("command", "options", "key"),
    [("party", PARTY, "north.key"), ("coordinator", COORDINATOR, "server.key")],
)
def test_a_key_that_others_can_read_starts_nothing(folder, capsys, command, options, key):
    (folder / key).chmod(0o640)
    error = fails_with_one_line(command_line(command, options), capsys)
    assert f"the private key {key} is open to other users" in error
    assert f"run: chmod 600 {key}" in error
    assert not (folder / "ledger").exists()
    (folder / key).chmod(0o600)
    with pytest.raises(StartedError):
        _command.main(command_line(command, options))


def test_parties_of_one_name_or_key(folder, capsys):
    good = command_line("coordinator", COORDINATOR)
    for party in ("north=south.pem", "south=north.pem"):
        assert "given twice" in fails_with_one_line([*good, "--party", party], capsys)
    insecure = ["coordinator", "--vocabulary=words", "--insecure", "--party=north=north.pem"]
    assert "needs TLS" in fails_with_one_line(insecure, capsys)


def test_good_options_start(folder, caplog):
    for data in ("north.npz", "counts.pkl"):
        with pytest.raises(StartedError):
            _command.main(command_line("party", {**PARTY, "data": data, "state": data + ".state"}))
    with pytest.raises(StartedError):
        _command.main(command_line("coordinator", COORDINATOR))
    assert "no --party" not in caplog.text
    with pytest.raises(StartedError):
        _command.main(["coordinator", "--vocabulary=words", "--insecure"])
    assert "--insecure: messages are neither encrypted nor authenticated" in caplog.text
    assert "no --party: anyone who reaches 127.0.0.1:8000 can join" in caplog.text


def test_a_party_is_stopped_without_a_traceback(folder, caplog, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_https, "take_part", interrupt)
    with caplog.at_level("INFO"), pytest.raises(SystemExit) as stop:
        _command.main(command_line("party", PARTY))
    assert stop.value.code == 130
    assert "the same command continues" in caplog.text


@pytest.mark.parametrize(
    ("text", "address"),
    [("host.example:1", ("host.example", 1)), ("[2001:db8::1]:65535", ("2001:db8::1", 65535))],
)
def test_addresses(folder, text, address):
    caller = _command._caller(_command_options("party", {**PARTY, "coordinator": text}))
    assert (caller.host, caller.port) == address


def test_two_processes_of_one_party(folder, capsys):
    party = command_line("party", PARTY)
    with StoredParty("north", estimator("north"), None, vocabulary=WORDS, path="state"):
        assert "another process uses the state" in fails_with_one_line(party, capsys)


def test_privatized_documents_are_not_read_again(folder, documents, caplog):
    options = _command_options("party", {**PARTY, "data": "missing.npz"})
    party = _command._estimator(options)
    with StoredParty(
        "north", party, lambda: documents["north"], vocabulary=WORDS, path="state"
    ) as first:
        first.answer(0, first.vocabulary, b"")
    with caplog.at_level("INFO"), pytest.raises(StartedError):
        _command.main(command_line("party", {**PARTY, "data": "missing.npz"}))
    assert "state holds the privatized documents; --data is not read" in caplog.text


def _command_options(command, options):
    import argparse

    parser = argparse.ArgumentParser()
    _command.add_commands(parser.add_subparsers())
    return parser.parse_args(command_line(command, options))


# ---------------------------------------------------------------- a coordinator that is stopped


class KilledError(BaseException):
    """Ends a coordinator as a signal would."""


class Killer:
    """A party whose coordinator is killed when it asks for a round."""

    def __init__(self, party, round_number):
        self.party, self.round_number, self.requests = party, round_number, []

    def answer(self, round_number, vocabulary, next_model):
        answer = self.party.answer(round_number, vocabulary, next_model)
        self.requests.append((round_number, next_model, answer))
        if round_number == self.round_number:
            self.round_number = None
            raise KilledError
        return answer


class Unserved:
    """No server."""

    running = staticmethod(nullcontext)


@pytest.fixture
def loop(folder, monkeypatch, documents):
    """Runs a coordinator's command with parties in this process."""
    parties = {
        1: stored("north", documents["north"], folder, ledger="north.sqlite"),
        2: Killer(stored("south", documents["south"], folder, ledger="south.sqlite"), 2),
    }
    network = Loop(parties, {1: "north", 2: "south"})
    monkeypatch.setattr(_command, "_listen", lambda *_: (network, Unserved()))

    def coordinate(rounds=3, **options):
        line = command_line("coordinator", {**COORDINATOR, "rounds": rounds, **options})
        _command.main([*line, "--party=south=south.pem"])

    return coordinate, parties


def test_a_killed_coordinator_continues(loop, folder, in_process_release, caplog):
    coordinate, parties = loop
    with pytest.raises(KilledError):
        coordinate()
    assert load_release(folder / "global.model").n_iter_ == 2
    assert (folder / "global.model").read_bytes() != in_process_release
    with caplog.at_level("INFO"):
        coordinate()
    assert "continuing with round 3 of 3" in caplog.text
    assert (folder / "global.model").read_bytes() == in_process_release
    *_, killed, repeated = parties[2].requests
    assert killed == repeated  # the same request, and the same bytes
    assert [request[0] for request in parties[2].requests] == [0, 1, 2, 2]
    for name in ("north", "south"):
        assert len(Ledger(f"{name}.sqlite").entries()) == 1
    assert not (folder / ".dplda-coordinator" / _command.STATE).exists()


def test_a_state_of_other_words_or_more_rounds_is_refused(loop, folder, capsys):
    coordinate, _ = loop
    with pytest.raises(KilledError):
        coordinate()
    state = folder / ".dplda-coordinator" / _command.STATE
    Path("others").write_text("\n".join(WORDS[:-1]), "utf-8")
    line = command_line("coordinator", COORDINATOR)
    for extra, text in [
        ("--vocabulary=others", "another vocabulary; remove it"),
        ("--rounds=1", "after round 2, and --rounds is 1"),
    ]:
        assert text in fails_with_one_line([*line, extra], capsys)
    for content in (b"", b"[]", b"{}", b'{"round": 1, "vocabulary": "", "models": [""]}'):
        state.write_bytes(content)
        assert f"{_command.STATE}: the data are no state" in fails_with_one_line(line, capsys)


def test_a_party_that_is_locked_out_is_named(loop, capsys):
    """The coordinator ends in one line, whose advice it follows when it is started again."""
    coordinate, parties = loop
    del parties[2]
    with pytest.raises(SystemExit) as end:
        coordinate(**{"min-parties": 2, "round-timeout": 0.01})
    assert end.value.code == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: 1 of at least 2 parties came within 0.01 s; south did not.")
    assert "may not reach this port. Start the coordinator again" in error


def test_a_disk_that_is_full_keeps_the_last_model(loop, folder, monkeypatch):
    """The file is replaced as a whole or not at all."""
    coordinate, _ = loop
    with pytest.raises(KilledError):
        coordinate()
    before = (folder / "global.model").read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        coordinate()
    assert (folder / "global.model").read_bytes() == before


# ---------------------------------------------------------------- a real deployment


def slow(test):
    posix = pytest.mark.skipif(os.name != "posix", reason="stops processes by POSIX signals")
    return pytest.mark.slow(posix(test))


class Gate:
    """Documents that can be read only once a file is there: to stop a party in mid-fit."""

    def __init__(self, array, path):
        self.array, self.path, self.shape = array, str(path), array.shape

    def __array__(self, dtype=None, copy=None):
        while not os.path.exists(self.path):
            time.sleep(0.05)
        return np.asarray(self.array, dtype)


class Deployment:
    """A coordinator and parties as processes of this machine, ended by their ids."""

    def __init__(self, folder):
        self.folder, self.processes, self.options = folder, {}, ["--insecure"]
        self.port = free_port()
        (folder / "words.txt").write_text("\n".join(WORDS) + "\n", "utf-8")

    def start(self, name, *arguments):
        log = (self.folder / f"{name}.log").open("a")
        tests = str(Path(__file__).parent)
        paths = [tests, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "dplda.cli._federation", *map(str, arguments)]
        self.processes[name] = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=self.folder, env=environment
        )
        log.close()
        return self.processes[name]

    def coordinator(self, *arguments):
        return self.start(
            "coordinator", "coordinator", "--vocabulary", "words.txt", "--port", self.port,
            "--home", self.folder / "home", "--round-timeout", 90, *self.options, *arguments,
        )  # fmt: skip

    def party(self, name, data, *arguments):
        n_components, seed = PARAMETERS[name]
        return self.start(
            name, "party", "--name", name, "--data", data, "--vocabulary", "words.txt",
            "--token-epsilon", 6.0, "--components", n_components, "--max-iter", 5, "--seed", seed,
            "--ledger", f"{name}.sqlite", "--state", f"{name}.state",
            "--coordinator", f"127.0.0.1:{self.port}", *arguments,
        )  # fmt: skip

    def text(self, name):
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def wait_for(self, condition, seconds=90):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "\n".join(
                f"--- {name}\n{self.text(name)[-3000:]}" for name in self.processes
            )
            time.sleep(0.2)

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def deployment(tmp_path):
    deployment = Deployment(tmp_path)
    yield deployment
    deployment.end()


@slow
def test_a_deployment_gives_the_same_model(deployment, documents, in_process_release):
    """Bit for bit, over TLS, with parties that prove who they are."""
    folder = deployment.folder
    make_certificates(folder, documents)
    deployment.options = [
        "--certificate", "server.pem", "--certificate-key", "server.key",
        *(f"--party={name}={name}.pem" for name in documents),
    ]  # fmt: skip
    coordinator = deployment.coordinator("--rounds", 3)
    for name, X in documents.items():
        sp.save_npz(folder / f"{name}.npz", X)
        deployment.party(
            name, f"{name}.npz", "--ca-certificate", "ca.pem",
            "--certificate", f"{name}.pem", "--key", f"{name}.key",
        )  # fmt: skip
    deployment.wait_for(lambda: coordinator.poll() is not None, 150)
    assert coordinator.returncode == 0, deployment.text("coordinator")
    assert (folder / "global.model").read_bytes() == in_process_release
    for name in documents:
        (entry,) = Ledger(folder / f"{name}.sqlite").entries()
        assert entry.status == "confirmed"  # three rounds, one charge
    model = load_release(folder / "global.model")
    X = sp.vstack(list(documents.values()))
    assert model.transform(X).shape == (120, len(model.components_))
    assert model.perplexity(X) < unigram_perplexity(X, X)
    assert list(model.vocabulary_) == WORDS
    assert (model.privacy_.unit, round(model.epsilon_, 3)) == ("token", 6.0)
    assert "statement of party 'north'" in str(model.privacy_)


HOSTILE = """
import socket, sys
from pathlib import Path
from dplda.federated._tls import client_context
files = [Path(name) for name in ("ca.pem", "south.pem", "south.key")]
port, held, context = int(sys.argv[1]), [], client_context(*files)

def is_open(line):
    line.setblocking(False)
    try:
        return line.recv(1) != b""
    except (BlockingIOError, OSError) as error:
        return isinstance(error, BlockingIOError) or "not complete" in str(error)

def call(is_party):
    line = socket.create_connection(("127.0.0.1", port), 5)
    if is_party:
        line = context.wrap_socket(line, server_hostname="127.0.0.1")
        line.sendall(b"GET /request HTTP/1.0\\r\\n")
    held.append(line)

for n in range(10**9):
    try:
        call(n % 2)
    except OSError:
        pass
    if len(held) > 700:
        print("flooded", n, flush=True)
        held = [line for line in held if is_open(line)]
"""


@slow
def test_a_party_that_floods_the_coordinator_stops_nobody(deployment, documents):
    """As a process with a certificate of its own, on the same machine, before the others come."""
    folder = deployment.folder
    make_certificates(folder, documents)
    deployment.options = [
        "--certificate", "server.pem", "--certificate-key", "server.key", "--min-parties", 1,
        *(f"--party={name}={name}.pem" for name in documents),
    ]  # fmt: skip
    coordinator = deployment.coordinator("--rounds", 2, "--round-timeout", 60)
    deployment.wait_for(lambda: is_listening(deployment.port))
    log = (folder / "hostile.log").open("a")
    command = [sys.executable, "-c", HOSTILE, str(deployment.port)]
    deployment.processes["hostile"] = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    deployment.wait_for(lambda: deployment.text("hostile").count("flooded") >= 2)
    sp.save_npz(folder / "north.npz", documents["north"])
    deployment.party(
        "north", "north.npz", "--ca-certificate", "ca.pem",
        "--certificate", "north.pem", "--key", "north.key",
    )  # fmt: skip
    deployment.wait_for(lambda: coordinator.poll() is not None, 150)
    assert deployment.processes["hostile"].poll() is None, deployment.text("hostile")
    assert coordinator.returncode == 0, deployment.text("coordinator")
    assert list(load_release(folder / "global.model").vocabulary_) == WORDS


def is_listening(port):
    with suppress(OSError), connect(("127.0.0.1", port)):
        return True
    return False


@slow
def test_a_coordinator_is_killed_and_comes_back(deployment, documents):
    """With so many rounds that it is killed in the midst of them."""
    folder, n_rounds = deployment.folder, 100
    make_certificates(folder, documents)
    deployment.options = [
        "--certificate", "server.pem", "--certificate-key", "server.key",
        "--rounds", n_rounds, "--min-parties", 2,
        *(f"--party={name}={name}.pem" for name in documents),
    ]  # fmt: skip
    killed = deployment.coordinator()
    for name, X in documents.items():
        sp.save_npz(folder / f"{name}.npz", X)
        deployment.party(
            name, f"{name}.npz", "--ca-certificate", "ca.pem",
            "--certificate", f"{name}.pem", "--key", f"{name}.key",
        )  # fmt: skip
    deployment.wait_for(lambda: "round 1 of 100 is complete" in deployment.text("coordinator"), 150)
    killed.kill()
    killed.wait()
    assert (folder / "global.model").exists()
    assert (folder / "home" / _command.STATE).exists()
    coordinator = deployment.coordinator()
    deployment.wait_for(lambda: coordinator.poll() is not None, 150)
    assert coordinator.returncode == 0, deployment.text("coordinator")
    parties = {name: (estimator(name), X) for name, X in documents.items()}
    master = run_rounds(IFTMMaster(WORDS, min_parties=2), parties, n_rounds)
    save_release(master.released_model(), folder / "in_process.model")
    assert (folder / "global.model").read_bytes() == (folder / "in_process.model").read_bytes()
    for name in documents:
        assert len(Ledger(folder / f"{name}.sqlite").entries()) == 1


@slow
def test_a_party_is_killed_and_comes_back(deployment, documents, in_process_release):
    folder = deployment.folder
    gate = folder / "gate"
    sp.save_npz(folder / "north.npz", documents["north"])
    south = Gate(documents["south"].toarray(), gate)
    (folder / "south.pkl").write_bytes(pickle.dumps(south))
    coordinator = deployment.coordinator("--rounds", 3, "--min-parties", 2)
    deployment.party("north", "north.npz", "--insecure")
    killed = deployment.party("south", "south.pkl", "--insecure")
    ledger = folder / "south.sqlite"
    deployment.wait_for(lambda: ledger.exists() and len(Ledger(ledger).entries()) == 1)
    once = Ledger(ledger).epsilon_spent
    killed.kill()  # within its fit: reserved, nothing sent
    killed.wait()
    gate.touch()
    deployment.party("south", "south.pkl", "--insecure")  # is asked again, in the same round
    deployment.wait_for(lambda: coordinator.poll() is not None, 120)
    assert coordinator.returncode == 0
    assert "south" in (folder / "south.state").read_bytes().decode("latin-1")
    assert (folder / "global.model").read_bytes() == in_process_release
    first, second = Ledger(ledger).entries()
    assert (first.status, second.status) == ("reserved", "confirmed")
    assert Ledger(ledger).epsilon_spent > 1.5 * once


def make_certificates(folder, names):
    """A signing authority, the coordinator's certificate, and a key for each party."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = serialization.Encoding.PEM
    plain, forms = serialization.NoEncryption(), serialization.PrivateFormat
    today = datetime.datetime.now(datetime.UTC)

    def certificate(name, key, signer, extensions, issuer="authority", days=1):
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - datetime.timedelta(days=9))
            .not_valid_after(today + datetime.timedelta(days=days))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(signer, hashes.SHA256()).public_bytes(pem)

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    own = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    root = x509.BasicConstraints(ca=True, path_length=None)
    (folder / "ca.pem").write_bytes(certificate("authority", authority, authority, [root]))
    (folder / "server.pem").write_bytes(certificate("coordinator", server, authority, [own]))
    (folder / "server.key").write_bytes(server.private_bytes(pem, forms.PKCS8, plain))
    for name in names:
        key = ec.generate_private_key(ec.SECP384R1())
        # "openssl req -x509" makes certificates that can sign others
        (folder / f"{name}.pem").write_bytes(certificate(name, key, key, [root], issuer=name))
        (folder / f"{name}.key").write_bytes(key.private_bytes(pem, forms.PKCS8, plain))
        signed = certificate("x", server, key, [], issuer=name)
        (folder / f"signed_by_{name}.pem").write_bytes(signed)
        expired = certificate(name, key, key, [root], issuer=name, days=-1)
        (folder / f"expired_{name}.pem").write_bytes(expired)
        locked = key.private_bytes(pem, forms.PKCS8, serialization.BestAvailableEncryption(b"x"))
        (folder / "locked.key").write_bytes(locked)
    for path in folder.glob("*.key"):
        path.chmod(0o600)
