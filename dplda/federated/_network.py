"""A fit over the network: the plan that all sign off, a party, and the coordinator.

Messages cross by HTTPS, where both sides prove who they are. Certificates that the
other side was given in advance do so in the TLS handshake. Neither side reads what
messages and replies say. A party calls, and may repeat each call:

* ``PUT /n`` gives the coordinator the party's message number n, and waits for the
  reply;
* ``GET /n`` waits for it again;
* ``DELETE /n`` gives the last word of a party: empty, or the name of an error's class.
  The text of an error may quote documents.

200 has the reply, and 204 says that it is not there yet. 404 says that the message is
not there: the coordinator was started again, and the party gives the same bytes again.
409 says that another process of the party is in the fit, and 410 that the fit is over,
or goes on without this party; both say why. The header `PROCESS` has random digits of
the party's process.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import socket
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

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
from dplda.core._words import language_of, letters
from dplda.document._document_lda import DocumentLDA
from dplda.document._sublda import SubLDA
from dplda.document._svilda import PrivateSVILDA
from dplda.federated._joint_words import fit_words_and_topics
from dplda.federated._messages import check_name, vocabulary_hash
from dplda.federated._secure_sum import (
    HAS_KEM,
    KEM_KEY,
    KEM_TEXT,
    KEY,
    SETUP,
    Adder,
    SecureSum,
    Terms,
    check_model,
    fit_share,
)
from dplda.leaf._checks import check_integer, escaped
from dplda.leaf._files import PUBLIC, check_kept_secret, write_atomically
from dplda.privacy import epsilon_of
from dplda.privacy._charge import Step
from dplda.text._count_vectorizer import PrivateCountVectorizer
from dplda.text._topic_model import split_budget

log = logging.getLogger("dplda.federated")

# Documents of a party, or its texts, and the user of each row or None.
PartyData: TypeAlias = tuple[Matrix | list[str], npt.ArrayLike | None]

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
# in which those who have sent their message hear that a fit has ended with an error
END_SECONDS = 2 * RETRY_SECONDS
MAX_REASON = 200  # characters of what the other side gives as a reason
START_SECONDS = 3600.0  # for all to appear: they are started by hand
ROUND_SECONDS = 600.0  # of a round
# in which a process that is alive has called again, also one that had to wait
GRACE_SECONDS = 2 * RETRY_SECONDS
# A coordinator that refuses a certificate cuts the line off, without a word: so often,
# it does not end just now.
MOST_CUTS = 3
CUT = (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError, RemoteDisconnected)
PROCESS = "Process"  # header: random digits of a party's process
# of a plan: no default has more than 400, and accounting of a million takes minutes
MOST_ROUNDS = 10_000


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
    words: list[str]  # the vocabulary, or candidates for it: public
    # prior_components, word_vectors: public
    tables: dict[str, list[list[float]]] = field(default_factory=dict)
    kem: bool = HAS_KEM
    # Words that the parties choose together from the candidates; None: all of them.
    n_words: int | None = None
    english_vectors: bool = False  # of the candidates, which dplda holds

    def __post_init__(self) -> None:
        if self.version != __version__:
            raise ValueError(
                f"the plan is for dplda {escaped(str(self.version)[:MAX_REASON])}, and "
                f"this is {__version__}; install one version at all parties, and make "
                "the plan with it"
            )
        if not isinstance(self.kem, bool):
            raise ValueError("its kem must be true or false")
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
        max_iter = self.parameters.get("max_iter")
        if max_iter is not None:
            check_integer("max_iter of a plan", max_iter, 1, MOST_ROUNDS)
        vocabulary_hash(self.words)
        for name, pem in self.parties.items():
            check_name(name)
            self.public_key(name)
            if pem != pem_of(binary(pem.encode())):
                raise ValueError(
                    f"what it has of {name!r} is more than one certificate: if that is "
                    "a private key, the party needs a new key and certificate; make "
                    "the plan again with `dplda federation plan`"
                )
        if len({*self.certificates()}) < len(self.parties):
            raise ValueError(
                "two parties of the plan have one certificate; each needs its own"
            )
        self.terms()
        if self.n_words is None:
            public_tables(self.estimator(), len(self.words))
            return
        check_integer("n_words of a plan", self.n_words, 1, len(self.words))
        if self.tables:
            raise ValueError(
                "tables have a column for each word, and the words are not chosen yet: "
                "give a vocabulary, or no tables"
            )
        self.vectorizer()

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

    def steps(self) -> list[Step]:
        """All that the fit releases: labels and events."""
        shares = self.terms().shares
        words = self.vectorizer()
        steps = [] if words is None else words._plan(shares)
        return [*steps, *self.estimator()._plan(shares)]

    def epsilon(self, delta: float | None = None) -> float:
        """What the fit costs each unit, at a delta; None: that of the model."""
        n_streams = 1 if self.n_words is None else 2
        return epsilon_of(
            [event for _, event in self.steps()],
            float(self.estimator().delta) if delta is None else delta,
            total_variation=n_streams * self.terms().shares.total_variation,
        )

    def noise(self, lost: int | None = None) -> float:
        """Noise of the rounds, over that of one curator of all documents."""
        terms = self.terms()
        if lost is not None:
            terms = replace(terms, lost=lost)
        model = self.estimator()
        return model._budget(terms.shares).noise / model._budget().noise

    def last_days(self) -> dict[str, str]:
        """The last day of each party's certificate."""
        days = {}
        for name, pem in self.parties.items():
            certificate = x509.load_pem_x509_certificate(pem.encode())
            days[name] = f"{certificate.not_valid_after_utc:%F}"
        return days

    def check_dates(self) -> None:
        """Refuse a plan with a certificate that is not valid today."""
        for name, pem in self.parties.items():
            check_dates(binary(pem.encode()), f"the party {name!r}")

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
        if self.n_words is not None:
            model.set_params(epsilon=self._split(model)[1])
        return model

    def vectorizer(self) -> PrivateCountVectorizer | None:
        """What chooses the words; None if they are given."""
        if self.n_words is None:
            return None
        model = MODELS[self.model](**self.parameters)
        words = PrivateCountVectorizer(  # type: ignore[no-untyped-call]
            epsilon=self._split(model)[0],
            delta=model.delta,
            candidates=self.words,
            discover=False,  # a word that only one party knows is no part of a sum
            max_features=self.n_words,
            token_pattern=letters(language_of(self.words)),
        )
        words._validate_params()
        return words

    @staticmethod
    def _split(model: DocumentLDA) -> tuple[float, float]:
        """Epsilon of the words and of the topics."""
        if model.epsilon is None:
            raise ValueError("words that are chosen need epsilon, no noise_multiplier")
        return split_budget(float(model.epsilon), float(model.delta))

    @property
    def max_bytes(self) -> int:
        """Size of the longest message, of either side."""
        n_parties = len(self.parties)
        n_words = len(self.words) if self.n_words is None else self.n_words
        n_cells = n_words * int(self.estimator().n_components)
        sums = 8 * (n_cells + len(self.words) + 2)
        keys = n_parties * (KEY + KEM_KEY + SIGNED + n_parties * KEM_TEXT)
        return sums + keys


class Party:
    """A party's side of a fit over a network.

    All is checked before anything is sent or charged.

    `data` are the documents and the user of each row, or None. The documents are texts
    if the parties choose the words, and else counts of the plan's words. `own` are
    parameters of the model that are up to the party.
    """

    def __init__(
        self, plan: Plan, name: str, key: Path, data: PartyData, **own: object
    ) -> None:
        self.plan = plan
        self.model = plan.estimator(**own)
        self.words = plan.vectorizer()
        self._data = data
        self._names = [*plan.parties]
        self._me = self._names.index(name)
        self._key = private_key(key)
        X, users = data
        if (len(X) if isinstance(X, list) else X.shape[0]) == 0:
            raise ValueError(
                f"party {name!r} has no documents: check what it reads, or make a plan "
                "without it"
            )
        if self.words is None and np.shape(X)[1:] != (len(plan.words),):
            raise ValueError(
                f"the documents have shape {np.shape(X)}, and the plan has "
                f"{len(plan.words)} words"
            )
        if (users is not None) != (plan.unit == "user"):
            raise ValueError(
                f"the plan protects one {plan.unit}: give --user-column for users only"
            )

    def fit(self, line: Line, keep: Callable[[], None] | None = None) -> DocumentLDA:
        """The model that all parties fit; ConnectionError if there is none.

        `keep` is called after each round: a process that is killed keeps nothing else.
        """
        last_word = "interrupted"
        try:
            parties = SecureSum(
                self.plan.terms(),
                self._me,
                line.exchange,
                prove=self._prove,
                check=self._check,
                keep=keep,
            )
            if self.words is None:
                fit_share(self.model, self._data[0], parties, self._data[1])
            else:
                fit_words_and_topics(
                    self.words,
                    self.model,
                    self._data[0],
                    self._data[1],
                    parties,
                    english_vectors=self.plan.english_vectors,
                )
            last_word = ""
        except Exception as error:
            last_word = type(error).__name__
            end = "without a model"
            if hasattr(self.model, "components_"):
                end = "with a model of the rounds so far"
            raise ConnectionError(f"the fit has ended {end}: {error}") from error
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


@dataclass(frozen=True)
class Progress:
    """What a coordinator has done so far, which it goes on from; all of it is public.

    It is written before a reply is given. What was lost with a killed coordinator are
    messages, which the parties give again.
    """

    plan: str  # digest of the plan, in hexadecimal digits
    number: int = 0  # of replies
    present: tuple[int, ...] = ()  # parties that are in the fit
    processes: tuple[str, ...] = ()  # of each party, as in `PROCESS`
    reply: bytes = b""  # the last one; empty: the parties have no more to say

    @property
    def is_over(self) -> bool:
        """Whether the fit has ended with a model."""
        return self.number > 0 and not self.reply

    @classmethod
    def read(cls, path: Path, plan: Plan) -> Progress:
        """The progress of a plan in a file; that of a new fit if there is no file."""
        if not path.exists():
            return cls(plan.digest.hex())
        try:
            fields = json.loads(path.read_bytes())
            found = cls(
                plan=fields["plan"],
                number=check_integer("number", fields["number"], 0),
                present=tuple(fields["present"]),
                processes=tuple(map(str, fields["processes"])),
                reply=base64.b64decode(fields["reply"], validate=True),
            )
            if not {*found.present} <= {*range(len(plan.parties))}:
                raise ValueError("it names parties that the plan does not have")
        except (ValueError, TypeError, KeyError, binascii.Error) as error:
            raise ValueError(
                f"{path} is no progress of a coordinator; remove it to begin anew, or "
                "give another --state"
            ) from error
        if found.plan != plan.digest.hex():
            raise ValueError(
                f"{path} is the progress of another plan; give another --state"
            )
        if found.is_over:
            raise ValueError(
                "the fit of this plan has ended with a model; for another fit, make a "
                f"plan of its own (or remove {path}, to run this one again)"
            )
        return found

    def write(self, path: Path) -> None:
        """Write the file, so that it survives a power cut."""
        reply = base64.b64encode(self.reply).decode()
        text = json.dumps({**asdict(self), "reply": reply})
        write_atomically(path, text.encode(), permissions=PUBLIC)


class Coordinator:
    """The coordinator's side: it takes messages of all parties, and gives each a reply.

    `certificates` are those of the parties in the order of their numbers, and no others
    are admitted. A message of more than `max_bytes` is refused. A party that does not
    send its message within `timeout` seconds is lost; the first messages have
    `start_timeout` seconds. With a file `state`, the coordinator goes on from
    `progress`, and writes there what comes after it.
    """

    def __init__(
        self,
        adder: Adder,
        certificates: Iterable[bytes],
        max_bytes: int,
        timeout: float,
        *,
        start_timeout: float | None = None,
        state: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._adder = adder
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._start_timeout = timeout if start_timeout is None else start_timeout
        self._parties = {certificate: i for i, certificate in enumerate(certificates)}
        self._state = state
        self._plan = "" if progress is None else progress.plan
        self._number = 0  # of the round
        self._reply = b""  # of the round before
        self._processes = dict[int, str]()  # by party: digits of the one in the fit
        if progress is not None and progress.number:
            self._number = progress.number
            self._reply = progress.reply
            self._processes = {i: p for i, p in enumerate(progress.processes) if p}
            adder.go_on(progress.number, progress.present)
        self._messages = dict[int, bytes]()  # of this round, by party
        self._calls = dict[int, asyncio.Transport]()  # the one call of each party
        self._told = set[int]()  # parties that have left, or know why the fit is over
        self._end = ""  # why the fit is over
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
        """Take messages and give replies, until the parties have no more to say.

        An error of the sum ends the fit, and the parties are told. Anything else that
        ends the coordinator leaves its state: it can be started again.
        """
        try:
            while not self._end:
                await self._round()
        except ConnectionError as error:
            self._end = str(error)
            if self._state is not None:
                self._state.unlink(missing_ok=True)
            await self._until(lambda: self._messages.keys() <= self._told, END_SECONDS)
            raise

    async def _round(self) -> None:
        """Take a message of each party, and make the reply to them."""
        adder = self._adder
        timeout = self._timeout if self._number else self._start_timeout
        await self._until(lambda: adder.present <= self._messages.keys(), timeout)
        late = adder.present - self._messages.keys()
        if late:
            names = ", ".join(adder.names[party] for party in sorted(late))
            log.warning("no message within %g s: %s", timeout, names)
        reply = adder.reply(self._messages)
        if self._state is not None:
            processes = [self._processes.get(i, "") for i in range(len(adder.names))]
            progress = Progress(
                self._plan,
                self._number + 1,
                tuple(sorted(adder.present)),
                tuple(processes),
                reply,
            )
            progress.write(self._state)
        self._reply = reply
        self._number += 1
        self._messages = {}
        log.info("reply %d, to %d parties", self._number, len(adder.present))
        if not reply:
            self._end = "all parties have the model"
            await self._until(lambda: True, END_SECONDS)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Tell all calls what is new, and wait until a condition holds or times out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._news:
                self._news.notify_all()
                await self._news.wait_for(condition)

    async def _call(self, request: web.Request) -> web.Response:
        party = self._party_of(request)
        call = request.transport
        # the handshake also admits what a party's certificate has signed
        if party is None or call is None:
            raise web.HTTPForbidden
        process = request.headers.get(PROCESS, "")[:MAX_REASON]
        if not await self._admits(party, process):
            raise web.HTTPConflict(
                text="another process of this party is in the fit, and it goes on"
            )
        before = self._calls.get(party)
        self._calls[party] = call
        if before is not None:  # a party that calls again has given the last call up
            before.abort()
        try:
            return await self._answer(request, party, call)
        except ConnectionError:  # the line broke: nobody hears an answer
            return web.Response(status=HTTPStatus.NO_CONTENT)
        finally:
            if self._calls.get(party) is call:
                del self._calls[party]

    async def _answer(
        self, request: web.Request, party: int, call: asyncio.Transport
    ) -> web.Response:
        """What a call of a party gets."""
        number = int(request.match_info["number"])

        def is_its_turn() -> bool:
            is_in = party in self._adder.present and not self._end
            return is_in and number == self._number

        is_new = is_its_turn() and party not in self._messages
        if is_new and request.method == "GET":
            raise web.HTTPNotFound(text="the message is not here; give it again")
        if is_new:  # no other body is read
            message = await request.read()
            if is_its_turn():
                self._messages.setdefault(party, message)
        is_last = request.method == "DELETE"
        if is_last:
            self._told.add(party)

        def is_answered() -> bool:
            return is_last or not is_its_turn() or self._calls.get(party) is not call

        await self._until(is_answered, WAIT_SECONDS)
        if number == self._number - 1:
            return web.Response(body=self._reply)
        if is_its_turn():
            return web.Response(status=HTTPStatus.NO_CONTENT)
        self._told.add(party)
        async with self._news:
            self._news.notify_all()
        raise web.HTTPGone(text=self._end or "it goes on without this party")

    async def _admits(self, party: int, process: str) -> bool:
        """Whether this process of a party is the one in the fit.

        Keys are in the memory of one process. One that was started again takes its
        place before the keys are handed out. After that, it ends the setup, which
        cannot go on; a fit that has begun goes on with the process that is in it.
        """
        if self._processes.setdefault(party, process) == process:
            return True
        await self._until(lambda: self._is_calling(party), GRACE_SECONDS)
        if self._is_calling(party) or self._number >= SETUP or self._end:
            return False
        if self._number == 0:
            self._processes[party] = process
            self._messages.pop(party, None)
            return True
        self._messages[party] = b"it was started again"
        await self._until(lambda: bool(self._end), WAIT_SECONDS)
        return False

    def _is_calling(self, party: int) -> bool:
        """Whether a call of the party's process is open."""
        call = self._calls.get(party)
        return call is not None and not call.is_closing()

    def _party_of(self, request: web.Request) -> int | None:
        """The party whose certificate the TLS handshake has shown."""
        if request.transport is None:
            return None
        tls = request.transport.get_extra_info("ssl_object")
        if tls is None:
            return None
        return self._parties.get(tls.getpeercert(binary_form=True))


class Line:
    """A party's line to the coordinator at ``host:port``, for one fit.

    The party gives up if the coordinator is silent for `timeout` seconds, or before the
    first reply for `start_timeout` seconds, and at once where nothing can mend it.
    """

    def __init__(
        self,
        address: str,
        max_bytes: int,
        tls: ssl.SSLContext,
        *,
        timeout: float = ROUND_SECONDS,
        start_timeout: float = START_SECONDS,
    ) -> None:
        self._address = checked_address(address)
        self._max_bytes = max_bytes
        self._tls = tls
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._process = uuid.uuid4().hex
        self._number = 0  # of the next message
        self._was_heard = False  # ever
        self._is_connected = True
        self._n_cut = 0  # calls that the coordinator has cut off before it was heard

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
        """Give up if the line cannot come back, or has not for too long; say why."""
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
                return response.status, response.read(MAX_REASON)
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
    """Why a call has failed, and whether a further one would fail, too."""
    said = ascii(error)[:MAX_REASON]  # it may quote what the other side sent
    if isinstance(error, ssl.SSLCertVerificationError):
        why = ascii(error.verify_message)[:MAX_REASON]
        return (
            f"its certificate is not that of --coordinator-certificate ({why})",
            True,
        )
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return f"what listens there speaks no TLS ({said})", True
    if isinstance(error, socket.gaierror):
        return f"its name is not known ({said})", error.errno == socket.EAI_NONAME
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there: it is not started yet, or has ended", False
    return f"the line broke ({said})", False


def binary(pem: bytes) -> bytes:
    """The first certificate in a PEM text, in binary form."""
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def certificate_text(path: Path) -> str:
    """The first certificate of a file and nothing else of it, as a plan has it.

    The file may hold a private key as well, which no other party may see.
    """
    return pem_of(certificate_of(path))


def pem_of(certificate: bytes) -> str:
    """A certificate in binary form as a text."""
    found = x509.load_der_x509_certificate(certificate)
    return found.public_bytes(Encoding.PEM).decode()


def check_dates(certificate: bytes, name: str) -> None:
    """Refuse a certificate that is not valid today; `name` says whose it is."""
    found = x509.load_der_x509_certificate(certificate)
    today = datetime.now(UTC)
    if not found.not_valid_before_utc <= today <= found.not_valid_after_utc:
        raise ValueError(
            f"the certificate of {name} is valid from {found.not_valid_before_utc:%F} "
            f"to {found.not_valid_after_utc:%F}, and today is {today:%F}; make a new "
            "one (openssl req), and a new plan with it, or set the clock"
        )


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
