"""`fit_together` over a network: the plan that all sign off, and both sides of the transport.

The coordinator asks, and a party answers (`_network`). The first question is empty, and the others
are the replies of `Adder`. An answer is the next message of `SecureSum`, and the last one is empty:
the party has the model.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import queue
import ssl
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from dplda._version import __version__
from dplda.core._corpus import check_public_table, check_word_vectors
from dplda.document._sublda import SubLDA
from dplda.document._svilda import PrivateSVILDA
from dplda.federated._messages import check_name, vocabulary_hash
from dplda.federated._network import GONE, Coordinator
from dplda.federated._secure_sum import (
    HAS_KEM,
    KEM_KEY,
    KEM_TEXT,
    KEY,
    SUM,
    Adder,
    SecureSum,
    Terms,
    check_model,
    fit_share,
    shares_of_noise,
)

log = logging.getLogger("dplda.federated")

MODELS: dict[str, Any] = {"SubLDA": SubLDA, "PrivateSVILDA": PrivateSVILDA}
OF_A_PARTY = {"ledger", "n_jobs", "random_state", "verbose"}  # parameters
DOMAIN = b"dplda: keys of a party for one fit\0"
SIGNED = 250  # bytes besides keys: a signature of P-521 in DER has 139, two lengths and a digest 40


@dataclass(frozen=True)
class Plan:
    """What all parties of a fit have agreed on: a file of JSON, the same for everybody."""

    version: str  # of dplda
    fit: str  # random digits: each fit has a plan of its own
    model: str  # SubLDA or PrivateSVILDA
    parameters: dict[str, Any]  # of the model
    unit: str  # document or user
    colluding: int  # this one, the next one and kem: as in `Terms`
    lost: int
    parties: dict[str, str]  # the certificate of each by its name (PEM)
    words: list[str]  # the vocabulary: public
    tables: dict[str, Any] = field(default_factory=dict)  # prior_components, word_vectors: public
    kem: bool = HAS_KEM

    def __post_init__(self) -> None:
        if self.version != __version__:
            raise ValueError(
                f"the plan is for dplda {self.version}, and this is {__version__}; install "
                "one version at all parties, and make the plan with it"
            )
        if self.model not in MODELS or self.unit not in ("document", "user"):
            raise ValueError("the plan names another model than SubLDA and PrivateSVILDA, or unit")
        if own := OF_A_PARTY & {*self.parameters, *self.tables}:
            raise ValueError(
                f"it sets {', '.join(sorted(own))}, which is up to each party; with one "
                "random_state, everybody could compute the noise of all"
            )
        vocabulary_hash(self.words)
        for name in self.parties:
            check_name(name)
        if len({*self.certificates()}) < len(self.parties):
            raise ValueError("two parties of the plan have one certificate; each needs its own")
        self.terms()
        model, n_words = self.estimator(), len(self.words)
        check_public_table(model.prior_components, (int(model.n_components), n_words))
        check_word_vectors(model.word_vectors, n_words)

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
        return {ssl.PEM_cert_to_DER_cert(pem): name for name, pem in self.parties.items()}

    def terms(self) -> Terms:
        """Terms of the secure sum."""
        return Terms(len(self.parties), self.colluding, self.lost, self.digest, self.kem)

    def estimator(self, **own: Any) -> Any:
        """The model that a party fits; `own` are parameters of the party alone."""
        model = MODELS[self.model](**self.parameters, **self.tables, **own)
        model._validate_params()
        check_model(model)
        return model

    def noise_of(self, reply: bytes) -> str:
        """What a reply says of its noise; nothing if it has no sum of topics."""
        cells, n_topics = (len(self.words), int(self.estimator().n_components))
        if reply[:1] != SUM or len(reply) - 1 != 8 * cells * n_topics:
            return ""
        total = np.frombuffer(reply, "<i8", offset=1).reshape(cells, n_topics)
        return f": noise of {shares_of_noise(total):.2f} parties"

    @property
    def max_bytes(self) -> int:
        """Size of the longest message, of either side."""
        m, cells = len(self.parties), len(self.words) * self.estimator().n_components
        return 8 * (cells + len(self.words) + 1) + m * (KEY + KEM_KEY + SIGNED + m * KEM_TEXT)


class Party:
    """A party's side of a joint fit: `answer` is what `_network.take_part` calls.

    `load()` gives the documents and the user of each row, or None.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        key: Path,
        load: Callable[[], tuple[Any, Any]],
        **own: Any,
    ) -> None:
        if name not in plan.parties:
            raise ValueError(f"{name!r} is no party of the plan; it has {', '.join(plan.parties)}")
        self.plan, self.model = plan, plan.estimator(**own)
        self.error: BaseException | None = None
        self._names, self._me = [*plan.parties], [*plan.parties].index(name)
        self._key = _signing_key(key, plan.parties[name])
        self._data = load()  # private; read and checked before anything is sent or charged
        X, users = self._data
        if np.shape(X)[1:] != (len(plan.words),):
            raise ValueError(
                f"the documents have shape {np.shape(X)}, and the plan has {len(plan.words)} words"
            )
        if (users is not None) != (plan.unit == "user"):
            raise ValueError(
                f"the plan protects one {plan.unit}: give --user-column for users only"
            )
        self._replies: queue.Queue[bytes | None] = queue.Queue()
        self._messages: queue.Queue[bytes | None] = queue.Queue()
        self._last: tuple[bytes, bytes] | None = None
        self._fit = threading.Thread(target=self._run, name="dplda-party", daemon=True)

    @property
    def is_fitted(self) -> bool:
        """Whether this party has the model."""
        return hasattr(self.model, "components_")

    def answer(self, request: bytes) -> bytes:
        """The next message to the coordinator. The same request has the same answer."""
        if self._last is None and request:
            raise ConnectionError("the fit has begun without this party, which has sent nothing")
        if self._last is not None and request == self._last[0]:
            return self._last[1]
        if self.is_fitted:
            raise ConnectionError("this party has the model, and answers no more")
        if self._last is None:
            self._fit.start()
        else:
            self._replies.put(request)
        message = self._messages.get()
        if message is None:
            raise ConnectionError("this party's fit has ended with an error") from self.error
        self._last = request, message
        return message

    def end(self) -> None:
        """Wait for the fit, which the coordinator no longer serves."""
        if self._last is not None:
            self._replies.put(None)
            self._fit.join()

    def _run(self) -> None:
        X, users = self._data
        try:
            parties = SecureSum(
                self.plan.terms(), self._me, self._exchange, prove=self._prove, check=self._check
            )
            fit_share(self.model, X, parties, users)
            self._messages.put(b"")
        except BaseException as error:  # which `answer` raises in the thread of the network
            self.error = error
            self._messages.put(None)

    def _exchange(self, message: bytes) -> bytes:
        self._messages.put(message)
        reply = self._replies.get()
        if reply is None:
            raise ConnectionError("the coordinator has ended the fit")
        return reply

    def _prove(self, keys: bytes) -> bytes:
        """Keys of this fit, signed with that of the certificate."""
        return keys + self._key.sign(DOMAIN + self.plan.digest + keys, ECDSA(SHA256()))

    def _check(self, party: int, message: bytes) -> bytes:
        """The keys of a party, whose signature is right."""
        size = KEY + KEM_KEY * self.plan.kem
        keys, signature = message[:size], message[size:]
        public = _public_key(self.plan.parties[self._names[party]])
        try:
            public.verify(signature, DOMAIN + self.plan.digest + keys, ECDSA(SHA256()))
        except InvalidSignature:
            raise ConnectionError(
                f"the keys of party {self._names[party]!r} are not signed by its certificate for "
                "this plan; nothing was sent"
            ) from None
        return keys


def _public_key(certificate: str) -> EllipticCurvePublicKey:
    key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    if not isinstance(key, EllipticCurvePublicKey):
        raise ValueError(
            "the certificate of a party needs an elliptic curve key (openssl -newkey ec)"
        )
    return key


def _signing_key(path: Path, certificate: str) -> EllipticCurvePrivateKey:
    """The private key of a certificate of the plan."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} holds no key that can be read without a password") from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != _public_key(certificate):
        raise ValueError(f"{path} is not the key of this party's certificate in the plan")
    return key


async def make_sums(network: Coordinator, plan: Plan, timeout: float) -> None:
    """Ask all parties, and hand the sums of what they send back to them, until they are done.

    A party that does not answer within `timeout` seconds is lost.
    """
    names = [*plan.parties]
    adder = Adder(plan.terms(), names)
    request, number = b"", 0
    while request or number == 0:
        waiting, messages = {names[i] for i in adder.present}, dict[int, bytes]()
        network.ask(dict.fromkeys(waiting, request).get)
        try:
            async with asyncio.timeout(timeout):
                while waiting:
                    name, answer = await network.answer()
                    if isinstance(answer, bytes):
                        messages[names.index(name)] = answer
                    else:
                        log.warning("party %r gave no answer: %s", name, answer)
                    if answer != GONE:  # a party that is gone may come back
                        waiting.discard(name)
        except TimeoutError:
            log.warning("no answer within %g s: %s", timeout, ", ".join(sorted(waiting)))
        request, number = adder.reply(messages), number + 1
        log.info("reply %d, to %d parties%s", number, len(adder.present), plan.noise_of(request))
    await network.end()
