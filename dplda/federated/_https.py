"""Requests and answers of a federation over HTTPS: the coordinator listens, and parties call.

Both sides prove who they are in the TLS handshake, by certificates that the other side was given in
advance. Nobody else gets past the handshake. Nothing that arrives is executed or unpickled.

========  ===================  ============================================================
method    path                 meaning
========  ===================  ============================================================
GET       ``/request``         wait for a request: 200 with its model, or 204 without one
POST      ``/alive``           the party is at work: 204
POST      ``/answer/<round>``  the party's model: 204, or 409 if it is not asked for
POST      ``/failure/<round>`` the name of an error's class, in place of a model
========  ===================  ============================================================
"""

from __future__ import annotations

import http.client
import io
import logging
import re
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote, unquote

from dplda.federated._admission import Lobby, Places
from dplda.federated._messages import MAX_BYTES, check_name
from dplda.federated._network import Answer, Failure, Request

log = logging.getLogger("dplda.federated")

WAIT_SECONDS = 20.0  # a call for a request is held open
ALIVE_SECONDS = 10.0  # between two signs of life of a party
ABSENT_SECONDS = 45.0  # without one: the party is not waited for
RETRY_SECONDS = 3.0  # of a party, after a call that failed
HANDSHAKE_SECONDS = 10.0
SILENCE_SECONDS = 60.0  # a connection on which nothing arrives is closed
MAX_CONNECTIONS = 512  # or more, if there are so many parties that all may need more
MAX_HANDSHAKES = 128  # that are not over
MAX_OF_PARTY = 8  # connections of one certificate; a party needs three
PIECE = 2**16  # bytes that are sent at once
MAX_FAILURE = 200  # bytes of the name of an error's class

ROUND, VOCABULARY, PARTY = "Dplda-Round", "Dplda-Vocabulary", "Dplda-Party"

# ---------------------------------------------------------------- the coordinator


class Mailbox:
    """Requests of a coordinator and answers of the parties; threads of connections share it.

    Parameters
    ----------
    max_bytes : int
        Size in bytes of the largest answer.
    expected : iterable of str
        Names of the parties that can join; empty if others can, too.
    """

    def __init__(self, max_bytes: int, expected: tuple[str, ...] = ()) -> None:
        self.max_bytes = max_bytes
        self.expected = expected
        self._changed = threading.Condition()
        self._last_sign: dict[str, float] = {}  # of life, by party
        self._requests: dict[str, Request] = {}  # without an answer so far
        self._answers: dict[str, Answer] = {}
        self._busy: set[str] = set()  # parties of which an answer is being read

    def parties(self) -> dict[str, str]:
        """The parties that are connected: their names are their addresses."""
        with self._changed:
            return {name: name for name in self._present()}

    def ask(self, requests: Mapping[str, Request], timeout: float) -> dict[str, Answer]:
        """Give each party its request, and return the answers.

        A party without a sign of life is not waited for any longer.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            self._requests, self._answers = dict(requests), {}
            self._changed.notify_all()
            while self._requests.keys() & self._present():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 1.0))
            answers, self._requests, self._answers = self._answers, {}, {}
        return answers

    def note(self, name: str) -> None:
        """Note a sign of life of a party."""
        now = time.monotonic()
        with self._changed:
            is_new = name not in self._present()
            self._last_sign[name] = now
        if is_new:
            log.info("party %r is connected", name)

    def wait_for_request(self, name: str, seconds: float) -> Request | None:
        """The request to a party, as soon as there is one."""
        with self._changed:
            self._changed.wait_for(lambda: name in self._requests, seconds)
            return self._requests.get(name)

    @contextmanager
    def turn(self, name: str, round_number: int) -> Iterator[bool]:
        """Whether an answer is read now: only one that is asked for, and one of a party at a time.

        Otherwise a party could fill the memory of the coordinator.
        """
        with self._changed:
            request = self._requests.get(name)
            is_asked = request is not None and request.round == round_number
            is_asked = is_asked and name not in self._busy
            if is_asked:
                self._busy.add(name)
        try:
            yield is_asked
        finally:
            if is_asked:
                with self._changed:
                    self._busy.discard(name)

    def put(self, name: str, round_number: int, answer: Answer) -> None:
        """Deliver a party's answer, unless its round is over."""
        with self._changed:
            request = self._requests.get(name)
            if request is not None and request.round == round_number:
                del self._requests[name]
                self._answers[name] = answer
                self._changed.notify_all()

    def _present(self) -> set[str]:
        since = time.monotonic() - ABSENT_SECONDS
        self._last_sign = {name: at for name, at in self._last_sign.items() if at >= since}
        return set(self._last_sign)


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Lets parties reach a mailbox.

    Nobody takes the connections of others: handshakes go on in a `Lobby`, and each certificate has
    `Places` of its own.

    Parameters
    ----------
    address : tuple (str, int)
        Host and port to listen at.
    mailbox : Mailbox
        Requests and answers.
    tls : ssl.SSLContext or None
        None: no TLS, and each caller is whom it says it is.
    names : mapping of bytes to str
        Names of the parties by their certificates. Empty: a party states its name.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        mailbox: Mailbox,
        tls: ssl.SSLContext | None = None,
        names: Mapping[bytes, str] | None = None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.mailbox, self.tls, self.names = mailbox, tls, names or {}
        self._lobby, self._places = Lobby(MAX_HANDSHAKES), Places(MAX_OF_PARTY)
        self._refused: set[str] = set()  # parties that have opened too many connections
        n_places = MAX_CONNECTIONS
        if self.names:  # so many that others can never take all; who is pushed out takes a moment
            n_places = max(n_places, 2 * MAX_HANDSHAKES + MAX_OF_PARTY * len(self.names))
        self._free = threading.BoundedSemaphore(n_places)
        super().__init__(address, _Connection)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer calls until the end of the ``with`` statement."""
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, unless there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            if self.tls is not None:
                self._lobby.enter(request, client_address[0])
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._lobby.leave(request)
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one call."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._lobby.leave(request)
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake, which must not hold up other callers, and then the call."""
        request.settimeout(HANDSHAKE_SECONDS)
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        with self.tls.wrap_socket(
            request, server_side=True, do_handshake_on_connect=False
        ) as secure:
            self._lobby.wrap(request, secure)
            secure.do_handshake()
            self._lobby.leave(request)
            if not self.names:
                super().finish_request(secure, client_address)
                return
            # the handshake also admits what a party's certificate has signed
            name = self.names.get(secure.getpeercert(binary_form=True) or b"")
            if name is not None:
                with self._places.of(name) as has_place:
                    if has_place:
                        super().finish_request(secure, client_address)
                    elif name not in self._refused:
                        self._refused.add(name)
                        log.warning("party %r opens too many connections; said once", name)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A call that failed ends, and nothing else."""
        log.debug("a call from %s failed", client_address[0], exc_info=True)


class _Connection(BaseHTTPRequestHandler):
    """One call of a party."""

    server: Server
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:
        name = self._party()
        if name is None or self.path != "/request":
            self._reply(HTTPStatus.NOT_FOUND)
            return
        request = self.server.mailbox.wait_for_request(name, WAIT_SECONDS)
        if request is None:
            self._reply(HTTPStatus.NO_CONTENT)
            return
        fields = {ROUND: str(request.round), VOCABULARY: request.vocabulary}
        self._reply(HTTPStatus.OK, request.model, fields)

    def do_POST(self) -> None:
        name = self._party()
        path = re.fullmatch(r"/(answer|failure)/([0-9]{1,10})", self.path)
        if name is not None and path is not None:
            self._read_answer(name, path[1] == "failure", int(path[2]))
        elif name is not None and self.path == "/alive":
            self._reply(HTTPStatus.NO_CONTENT)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _read_answer(self, name: str, is_failure: bool, round_number: int) -> None:
        mailbox = self.server.mailbox
        with mailbox.turn(name, round_number) as is_asked:
            if not is_asked:
                self._refuse(HTTPStatus.CONFLICT)
                return
            length = self.headers.get("Content-Length", "")
            most = MAX_FAILURE if is_failure else mailbox.max_bytes
            if not re.fullmatch("[0-9]{1,10}", length) or int(length) > most:
                reason = f"a body of {length[:10]!r} bytes; at most {most}"
                mailbox.put(name, round_number, Failure(reason))
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                return
            data = self.rfile.read(int(length))
            if len(data) != int(length):
                return  # the connection broke: the party calls again
            self._reply(HTTPStatus.NO_CONTENT)
            answer = Failure(data.decode("ascii", "replace")) if is_failure else data
            mailbox.put(name, round_number, answer)

    def _refuse(self, status: HTTPStatus) -> None:
        """Reply to a call whose body is not used.

        A connection that is closed with bytes unread is reset, and the reply may be lost: what a
        small body has is discarded. A party whose reply is lost calls again.
        """
        self._reply(status)
        length = self.headers.get("Content-Length", "")
        if re.fullmatch("[0-9]{1,10}", length):
            self.rfile.read(min(int(length), PIECE))

    def _party(self) -> str | None:
        """Who calls, by its certificate, or by its word if no certificate is asked for."""
        if self.server.names:
            data = self.connection.getpeercert(binary_form=True)
            name = self.server.names.get(data)
        else:
            name = unquote(self.headers.get(PARTY, ""))
            try:
                check_name(name)
            except ValueError:
                name = None
        if name is not None:
            self.server.mailbox.note(name)
        return name

    def _reply(
        self, status: HTTPStatus, body: bytes = b"", fields: Mapping[str, str] | None = None
    ) -> None:
        self.send_response_only(status)
        for field, value in {**(fields or {}), "Content-Length": str(len(body))}.items():
            self.send_header(field, value)
        self.end_headers()
        for start in range(0, len(body), PIECE):  # SILENCE_SECONDS limit each piece
            self.wfile.write(body[start : start + PIECE])

    def log_message(self, *_: Any) -> None:
        """Log nothing that a caller wrote."""


# ---------------------------------------------------------------- the party


class Caller:
    """A party's calls to its coordinator.

    Parameters
    ----------
    name : str
        Name of the party.
    host : str
        Host of the coordinator.
    port : int
        Its port.
    tls : ssl.SSLContext or None
        None: no TLS.
    """

    def __init__(self, name: str, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.name, self.host, self.port, self.tls = name, host, port, tls

    def receive(self) -> Request | None:
        """Wait for a request; None if there is none so far."""
        status, fields, model = self._call("GET", "/request")
        if status == HTTPStatus.NO_CONTENT:
            return None
        if status != HTTPStatus.OK:
            raise ConnectionError(f"the coordinator answered with status {status}")
        number = fields.get(ROUND, "")
        if not re.fullmatch("[0-9]{1,10}", number):
            raise ConnectionError("the coordinator sent no number of a round")
        return Request(int(number), fields.get(VOCABULARY, ""), model)

    def send(self, round_number: int, answer: Answer) -> None:
        """Send an answer.

        Raises
        ------
        OSError, HTTPException
            If it may not have arrived.
        """
        if isinstance(answer, Failure):
            kind, body = "failure", answer.reason.encode("ascii", "replace")[:MAX_FAILURE]
        else:
            kind, body = "answer", answer
        status, _, _ = self._call("POST", f"/{kind}/{round_number}", body)
        if status != HTTPStatus.NO_CONTENT:
            raise ConnectionError(f"the coordinator answered with status {status}")

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Give signs of life, so that the coordinator waits for the answer."""
        is_over = threading.Event()

        def call() -> None:
            while not is_over.wait(ALIVE_SECONDS):
                try:
                    self._call("POST", "/alive")
                except (OSError, ValueError, http.client.HTTPException):
                    log.debug("a sign of life was lost", exc_info=True)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()

    def _call(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any, bytes]:
        connection = self._connection()
        fields = {PARTY: quote(self.name, safe=""), "Content-Length": str(len(body))}
        try:
            connection.request(method, path, io.BytesIO(body), fields)
            response = connection.getresponse()
            data = response.read(MAX_BYTES + 1)
            if len(data) != int(response.headers.get("Content-Length", -1)):
                raise ConnectionError("the coordinator's message is too long, or ended early")
            return response.status, response.headers, data
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection(
                self.host, self.port, timeout=SILENCE_SECONDS, blocksize=PIECE
            )
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=SILENCE_SECONDS, blocksize=PIECE, context=self.tls
        )


def take_part(caller: Caller, reply: Callable[[Request], Answer]) -> None:
    """Answer each request of the coordinator, until this process ends."""
    is_connected = True
    with caller.alive():
        while True:
            try:
                request = caller.receive()
                if not is_connected:
                    log.info("connected again")
                is_connected = True
                if request is not None:
                    caller.send(request.round, reply(request))
            except (OSError, ValueError, http.client.HTTPException) as error:
                if is_connected:
                    log.info(
                        "a call to the coordinator failed (%s): it is not running, or one side "
                        "does not know the other's certificate; trying again every %g s",
                        ascii(error)[:MAX_FAILURE],  # it may quote what the other side sent
                        RETRY_SECONDS,
                    )
                is_connected = False
                time.sleep(RETRY_SECONDS)
