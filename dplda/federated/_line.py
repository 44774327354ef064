"""A party's line to the coordinator.

Messages travel by HTTPS. Both sides prove who they are in the TLS handshake, by
certificates that the other side was given in advance. Neither side reads the content of
messages and replies. A party calls, and may repeat each call:

* ``PUT /n`` gives the coordinator the party's message number n, and waits for the
  reply;
* ``GET /n`` waits for it again;
* ``DELETE /n`` gives the last word of a party: empty, or the name of an error's class.
  The text of an error may quote documents.

200 has the reply; 204 says that there is none yet. 404 says that the message is missing
because the coordinator was started again; the party then sends the same bytes again.
409 says that another process of the party is in the fit. 410 says that the fit is over,
or goes on without this party. Both give the reason. The header `PROCESS` has random
digits of the party's process.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
import uuid
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection, RemoteDisconnected
from urllib.parse import urlsplit

from dplda.federated._secure_sum import SETUP
from dplda.leaf._checks import escaped
from dplda.release._records import MAX_TEXT

log = logging.getLogger("dplda.federated")

# that a call waits for a reply, before firewalls take it for dead
WAIT_SECONDS = 30.0
RETRY_SECONDS = 3.0  # between two calls of a party: 30 parties make 10 calls a second
# A coordinator that refuses a certificate closes the line without a message. After so
# many closings, it is not a coordinator that happens to end.
MOST_CUTS = 3
CUT = (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError, RemoteDisconnected)
PROCESS = "Process"  # header: random digits of a party's process


class Line:
    """A party's line to the coordinator at ``host:port``, for one fit.

    The party gives up if the coordinator is silent for `timeout` seconds
    (`start_timeout` before the first reply, if it is given), and at once if waiting
    cannot help.
    """

    def __init__(
        self,
        address: str,
        max_bytes: int,
        tls: ssl.SSLContext,
        *,
        timeout: float,
        start_timeout: float | None = None,
    ) -> None:
        self._address = checked_address(address)
        self._max_bytes = max_bytes
        self._tls = tls
        self._timeout = timeout
        self._start_timeout = timeout if start_timeout is None else start_timeout
        self._process = uuid.uuid4().hex
        self._number = 0  # of the next message
        self._was_heard = False  # ever
        self._is_connected = True
        self._n_cut = 0  # calls that the coordinator closed before it was ever heard

    def exchange(self, message: bytes) -> bytes:
        """Give the next message, and wait for the reply, despite broken lines."""
        heard = time.monotonic()
        status = int(HTTPStatus.NOT_FOUND)  # the message is not there
        while True:
            is_there = status != HTTPStatus.NOT_FOUND
            try:
                if is_there:
                    status, reply = self._call("GET", b"")
                else:
                    status, reply = self._call("PUT", message)
            except (OSError, HTTPException) as error:
                self._judge(error, time.monotonic() - heard)
                time.sleep(RETRY_SECONDS)
                status = HTTPStatus.NO_CONTENT  # perhaps it is
                continue
            heard = time.monotonic()
            self._was_heard = self._is_connected = True
            if status == HTTPStatus.OK:
                self._number += 1
                return reply
            if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND):
                why = escaped(reply.decode("ascii", "replace"))
                raise ConnectionError(
                    "the coordinator has ended the fit, or goes on without this party "
                    f"(HTTP {status}: {why})"
                )

    def _judge(self, error: Exception, seconds: float) -> None:
        """Give up if the line cannot come back or was away too long; say why."""
        why, is_final = reason_of(error)
        self._n_cut += isinstance(error, CUT) and not self._was_heard
        if self._n_cut >= MOST_CUTS:
            why = (
                "it closes the line when it has seen the certificate of this party: it "
                "has another plan, or takes the certificate for expired"
            )
            is_final = True
        is_setup = self._number < SETUP
        timeout = self._timeout if self._number else self._start_timeout
        if is_final and is_setup:  # later, paid rounds are at stake
            raise ConnectionError(
                f"no line to the coordinator at {self._address}: {why}"
            ) from error
        if seconds > timeout:
            raise ConnectionError(
                f"the coordinator at {self._address} was silent for {timeout:g} s: "
                f"{why}"
            ) from error
        if self._is_connected:
            log.info(
                "a call to the coordinator failed: %s; trying again every %g s, for "
                "%g s",
                why,
                RETRY_SECONDS,
                timeout,
            )
        self._is_connected = False

    def leave(self, word: str) -> None:
        """Give a last word, if the coordinator still listens."""
        with suppress(OSError, HTTPException, ValueError):
            self._call("DELETE", word.encode())

    def _call(self, method: str, body: bytes) -> tuple[int, bytes]:
        line = HTTPSConnection(
            self._address, context=self._tls, timeout=2 * WAIT_SECONDS
        )
        with closing(line):
            line.request(method, f"/{self._number}", body, {PROCESS: self._process})
            response = line.getresponse()
            if response.status != HTTPStatus.OK:
                return response.status, response.read(MAX_TEXT)
            if response.length is None or response.length > self._max_bytes:
                raise ValueError(
                    f"the coordinator's reply has more than {self._max_bytes} bytes"
                )
            return response.status, response.read()


def checked_address(text: str) -> str:
    """An address ``HOST:PORT``, or ValueError."""
    try:
        parts = urlsplit(f"//{text}")
        is_address = parts.hostname and parts.port and parts.netloc == text
    except ValueError:
        is_address = False
    if not is_address or "@" in text:
        raise ValueError(
            "the address of the coordinator must be HOST:PORT, such as "
            f"master.example.org:8000, got {escaped(text)!r}"
        )
    return text


def reason_of(error: Exception) -> tuple[str, bool]:
    """Why a call has failed, and whether a further one would fail too."""
    said = ascii(error)[:MAX_TEXT]  # it may quote what the other side sent
    if isinstance(error, ssl.SSLCertVerificationError):
        why = ascii(error.verify_message)[:MAX_TEXT]
        return (
            f"its certificate is not that of --coordinator-certificate ({why})",
            True,
        )
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return f"the program that listens there does not speak TLS ({said})", True
    if isinstance(error, socket.gaierror):
        return f"its name is not known ({said})", error.errno == socket.EAI_NONAME
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there: it is not started yet, or has ended", False
    return f"the line broke ({said})", False
