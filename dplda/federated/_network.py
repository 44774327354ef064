"""A fit over the network: the plan that all sign off, a party, and the coordinator.

Messages cross by HTTPS, where both sides prove who they are. Certificates that the
other side was given in advance do so in the TLS handshake. Neither side reads what
messages and replies say. A party calls, and may repeat each call:

* ``PUT /n`` gives the coordinator the party's message number n, and waits for the
  reply;
* ``GET /n`` waits for it again. 200 has the reply, 204 says that it is not there yet,
  and 410 that the fit is over, or goes on without this party;
* ``DELETE /n`` gives the last word of a party: empty, or the name of an error's class.
  The text of an error may quote documents.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from aiohttp import web
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from dplda._version import __version__
from dplda.core._corpus import Matrix, public_tables
from dplda.document._document_lda import DocumentLDA
from dplda.document._sublda import SubLDA
from dplda.document._svilda import PrivateSVILDA
from dplda.federated._messages import check_name, vocabulary_hash
from dplda.federated._secure_sum import (
    HAS_KEM,
    KEM_KEY,
    KEM_TEXT,
    KEY,
    Adder,
    SecureSum,
    Terms,
    check_model,
    fit_share,
)
from dplda.leaf._files import check_kept_secret

log = logging.getLogger("dplda.federated")

# Documents of a party, and the user of each row or None.
PartyData: TypeAlias = tuple[Matrix, npt.ArrayLike | None]

MODELS: dict[str, type[DocumentLDA]] = {
    "SubLDA": SubLDA,
    "PrivateSVILDA": PrivateSVILDA,
}
OF_A_PARTY = {"ledger", "n_jobs", "random_state", "verbose"}  # parameters
DOMAIN = b"dplda: keys of a party for one fit\0"
# bytes besides keys: a signature of P-521 in DER has 139, two lengths and a digest 40
SIGNED = 250
# some 30 round trips of a slow line; a stranger waits no longer
HANDSHAKE_SECONDS = 10.0
# that a call waits for a reply, before firewalls take it for a dead one
WAIT_SECONDS = 30.0
RETRY_SECONDS = 3.0  # between two calls of a party: 30 parties make 10 calls a second
# to tell the parties that a fit has ended with an error
END_SECONDS = 2 * RETRY_SECONDS
MAX_REASON = 200  # characters of what the other side gives as a reason


@dataclass(frozen=True)
class Plan:
    """What all parties of a fit agreed on: a file of JSON, the same for everybody."""

    version: str  # of dplda
    fit: str  # random digits: each fit has a plan of its own
    model: str  # SubLDA or PrivateSVILDA
    parameters: dict[str, float | str | None]  # of the model
    unit: str  # document or user
    colluding: int  # this one, the next one and kem: as in `Terms`
    lost: int
    parties: dict[str, str]  # the certificate of each by its name (PEM)
    words: list[str]  # the vocabulary: public
    # prior_components, word_vectors: public
    tables: dict[str, list[list[float]]] = field(default_factory=dict)
    kem: bool = HAS_KEM

    def __post_init__(self) -> None:
        if self.version != __version__:
            raise ValueError(
                f"the plan is for dplda {self.version}, and this is {__version__}; "
                "install one version at all parties, and make the plan with it"
            )
        if self.model not in MODELS or self.unit not in ("document", "user"):
            raise ValueError(
                "the plan names another model than SubLDA and PrivateSVILDA, or unit"
            )
        own = OF_A_PARTY & {*self.parameters, *self.tables}
        if own:
            raise ValueError(
                f"it sets {', '.join(sorted(own))}, which is up to each party; with "
                "one random_state, everybody could compute the noise of all"
            )
        vocabulary_hash(self.words)
        for name in self.parties:
            check_name(name)
            self.public_key(name)
        if len({*self.certificates()}) < len(self.parties):
            raise ValueError(
                "two parties of the plan have one certificate; each needs its own"
            )
        self.terms()
        public_tables(self.estimator(), len(self.words))

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The plan of a file; ValueError if it is none."""
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no plan that can be used: {error}") from error

    def text(self) -> str:
        """The content of the file."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @cached_property
    def digest(self) -> bytes:
        """What the parties compare, and what their keys are signed with."""
        return hashlib.sha256(self.text().encode()).digest()

    def certificates(self) -> dict[bytes, str]:
        """The party of each certificate, in binary form."""
        return {binary(pem.encode()): name for name, pem in self.parties.items()}

    def public_key(self, name: str) -> EllipticCurvePublicKey:
        """The key that signs for a party."""
        key = x509.load_pem_x509_certificate(self.parties[name].encode()).public_key()
        if not isinstance(key, EllipticCurvePublicKey):
            raise ValueError(
                f"the certificate of {name!r} needs an elliptic curve key (openssl "
                "-newkey ec)"
            )
        return key

    def terms(self) -> Terms:
        """Terms of the secure sum."""
        return Terms(
            len(self.parties), self.colluding, self.lost, self.digest, self.kem
        )

    def estimator(self, **own: object) -> DocumentLDA:
        """The model that a party fits; `own` are parameters of the party alone."""
        model = MODELS[self.model](**self.parameters, **self.tables, **own)
        model._validate_params()
        check_model(model)
        return model

    @property
    def max_bytes(self) -> int:
        """Size of the longest message, of either side."""
        n_parties = len(self.parties)
        n_words = len(self.words)
        n_cells = n_words * int(self.estimator().n_components)
        sums = 8 * (n_cells + n_words + 1)
        keys = n_parties * (KEY + KEM_KEY + SIGNED + n_parties * KEM_TEXT)
        return sums + keys


class Party:
    """A party's side of a fit over a network.

    All is checked before anything is sent or charged.

    `data` are the documents and the user of each row, or None; `own` are parameters of
    the model that are up to the party.
    """

    def __init__(
        self, plan: Plan, name: str, key: Path, data: PartyData, **own: object
    ) -> None:
        self.plan = plan
        self.model = plan.estimator(**own)
        self._data = data
        self._names = [*plan.parties]
        self._me = self._names.index(name)
        self._key = private_key(key)
        X, users = data
        if np.shape(X)[1:] != (len(plan.words),):
            raise ValueError(
                f"the documents have shape {np.shape(X)}, and the plan has "
                f"{len(plan.words)} words"
            )
        if (users is not None) != (plan.unit == "user"):
            raise ValueError(
                f"the plan protects one {plan.unit}: give --user-column for users only"
            )

    def fit(self, line: Line) -> DocumentLDA:
        """The model that all parties fit; ConnectionError if there is none."""
        last_word = "interrupted"
        try:
            parties = SecureSum(
                self.plan.terms(),
                self._me,
                line.exchange,
                prove=self._prove,
                check=self._check,
            )
            fit_share(self.model, self._data[0], parties, self._data[1])
            last_word = ""
        except Exception as error:
            last_word = type(error).__name__
            raise ConnectionError(
                f"the fit has ended without a model: {error}"
            ) from error
        finally:
            line.leave(last_word)
        return self.model

    def _prove(self, keys: bytes) -> bytes:
        """Keys of this fit, signed with that of the certificate."""
        return keys + self._key.sign(DOMAIN + self.plan.digest + keys, ECDSA(SHA256()))

    def _check(self, party: int, message: bytes) -> bytes:
        """The keys of a party, whose signature is right."""
        size = KEY + KEM_KEY * self.plan.kem
        keys = message[:size]
        signature = message[size:]
        signed = DOMAIN + self.plan.digest + keys
        name = self._names[party]
        try:
            self.plan.public_key(name).verify(signature, signed, ECDSA(SHA256()))
        except InvalidSignature:
            raise ConnectionError(
                f"the keys of party {name!r} are not signed by its certificate for "
                "this plan; nothing was sent"
            ) from None
        return keys


class Coordinator:
    """The coordinator's side: it takes messages of all parties, and gives each a reply.

    `certificates` are those of the parties in the order of their numbers, and no others
    are admitted. A message of more than `max_bytes` is refused. A party that does not
    send its message within `timeout` seconds is lost.
    """

    def __init__(
        self,
        adder: Adder,
        certificates: Iterable[bytes],
        max_bytes: int,
        timeout: float,
    ) -> None:
        self._adder = adder
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._parties = {certificate: i for i, certificate in enumerate(certificates)}
        self._number = 0  # of the round
        self._messages = dict[int, bytes]()  # of this round, by party
        self._reply = b""  # of the round before
        self._is_over = False
        self._news = asyncio.Condition()

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, tls: ssl.SSLContext
    ) -> AsyncIterator[int]:
        """Let parties call until the end of the ``with`` statement; gives the port."""
        app = web.Application(client_max_size=self._max_bytes)
        for method in ("PUT", "GET", "DELETE"):
            app.router.add_route(method, "/{number:[0-9]{1,9}}", self._call)
        runner = web.AppRunner(
            app, access_log=None, lingering_time=0.0, shutdown_timeout=1.0
        )
        await runner.setup()
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.BaseProtocol:
            assert runner.server is not None
            line = runner.server()  # for one call: nobody holds many of them for long
            loop.call_later(self._timeout + WAIT_SECONDS, line.force_close)
            return line

        listener = await loop.create_server(
            connection,
            host,
            port,
            ssl=tls,
            backlog=1024,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            listener.close()
            await runner.cleanup()

    async def add_up(self) -> None:
        """Take messages and give replies, until the parties have no more to say."""
        adder = self._adder
        is_done = False

        def all_are_there() -> bool:
            return adder.present <= self._messages.keys()

        try:
            while not is_done:
                await self._until(all_are_there, self._timeout)
                late = adder.present - self._messages.keys()
                if late:
                    names = ", ".join(adder.names[party] for party in late)
                    log.warning("no message within %g s: %s", self._timeout, names)
                self._reply = adder.reply(self._messages)
                self._number += 1
                self._messages = {}
                log.info("reply %d, to %d parties", self._number, len(adder.present))
                is_done = not self._reply
        finally:
            self._is_over = True
            await self._until(lambda: is_done, END_SECONDS)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Tell all calls what is new, and wait until a condition holds or times out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._news:
                self._news.notify_all()
                await self._news.wait_for(condition)

    async def _call(self, request: web.Request) -> web.Response:
        party = self._party_of(request)
        # the handshake also admits what a party's certificate has signed
        if party is None:
            raise web.HTTPForbidden
        number = int(request.match_info["number"])
        message = await request.read()

        def is_its_turn() -> bool:
            is_in = party in self._adder.present and not self._is_over
            return is_in and number == self._number

        if request.method != "GET" and is_its_turn():
            self._messages.setdefault(party, message)
        is_last = request.method == "DELETE"
        await self._until(lambda: is_last or not is_its_turn(), WAIT_SECONDS)
        if number == self._number - 1:
            return web.Response(body=self._reply)
        if is_its_turn():
            return web.Response(status=HTTPStatus.NO_CONTENT)
        raise web.HTTPGone

    def _party_of(self, request: web.Request) -> int | None:
        """The party whose certificate the TLS handshake has shown."""
        if request.transport is None:
            return None
        tls = request.transport.get_extra_info("ssl_object")
        if tls is None:
            return None
        return self._parties.get(tls.getpeercert(binary_form=True))


class Line:
    """A party's line to the coordinator at ``host:port``, for one fit."""

    def __init__(self, address: str, max_bytes: int, tls: ssl.SSLContext) -> None:
        self._address = address
        self._max_bytes = max_bytes
        self._tls = tls
        self._number = 0  # of the next message
        self._is_connected = True

    def exchange(self, message: bytes) -> bytes:
        """Give the next message, and wait for the reply, despite broken lines."""
        method = "PUT"
        body = message
        while True:
            try:
                status, reply = self._call(method, body)
            except (OSError, HTTPException) as error:
                if self._is_connected:
                    reason = ascii(error)  # it may quote what the other side sent
                    log.info(
                        "a call to the coordinator failed (%s): it is not running, or "
                        "one side does not know the other's certificate; trying again "
                        "every %g s",
                        reason[:MAX_REASON],
                        RETRY_SECONDS,
                    )
                self._is_connected = False
                time.sleep(RETRY_SECONDS)
                continue
            self._is_connected = True
            # the message is there: from here, only its reply is asked for
            method = "GET"
            body = b""
            if status == HTTPStatus.OK:
                self._number += 1
                return reply
            if status != HTTPStatus.NO_CONTENT:
                raise ConnectionError(
                    "the coordinator has ended the fit, or goes on without this party "
                    f"(HTTP {status})"
                )

    def leave(self, word: str) -> None:
        """Give a last word, if the coordinator still listens."""
        with suppress(OSError, HTTPException):
            self._call("DELETE", word.encode())

    def _call(self, method: str, body: bytes) -> tuple[int, bytes]:
        line = HTTPSConnection(
            self._address, context=self._tls, timeout=2 * WAIT_SECONDS
        )
        with closing(line):
            line.request(method, f"/{self._number}", body)
            response = line.getresponse()
            if response.status != HTTPStatus.OK:
                return response.status, b""
            if response.length is None or response.length > self._max_bytes:
                raise ValueError(
                    f"the coordinator's reply has more than {self._max_bytes} bytes"
                )
            return response.status, response.read()


def binary(pem: bytes) -> bytes:
    """The first certificate in a PEM text, in binary form."""
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def private_key(path: Path) -> EllipticCurvePrivateKey:
    """The key of a file, which signs for the certificate of a party."""
    key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(f"{path} holds no elliptic curve key (openssl -newkey ec)")
    return key


def certificate_of(path: Path) -> bytes:
    """The first certificate of a file."""
    try:
        return binary(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} holds no certificate (PEM)") from error


def tls_context(
    protocol: int, certificate: Path, key: Path, known: list[bytes]
) -> ssl.SSLContext:
    """TLS 1.3 that shows an own certificate, and asks for a known one from the other.

    A certificate that was handed over in person is trusted without its authority. The
    known certificate of a coordinator may also be that of its authority.
    """
    context = ssl.SSLContext(protocol)  # a client also checks the coordinator's name
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    for other in known:
        context.load_verify_locations(cadata=other)
    for path in (certificate, key):  # the error of a missing file names it
        path.read_bytes()
    try:
        # never asks at the terminal
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{key} holds no key of the certificate {certificate} that can be read "
            "without a password (PEM)"
        ) from error
    check_kept_secret(key)
    return context
