"""`fit_together` over a network: the plan that all sign off, and a party's side."""

from __future__ import annotations

import hashlib
import json
import ssl
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from dplda._version import __version__
from dplda.core._corpus import check_public_table, check_word_vectors
from dplda.document._sublda import SubLDA
from dplda.document._svilda import PrivateSVILDA
from dplda.federated._messages import check_name, vocabulary_hash
from dplda.federated._network import Line
from dplda.federated._secure_sum import (
    HAS_KEM,
    KEM_KEY,
    KEM_TEXT,
    KEY,
    SecureSum,
    Terms,
    check_model,
    fit_share,
)

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
        for name in self.parties:
            self.public_key(name)
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

    def public_key(self, name: str) -> EllipticCurvePublicKey:
        """The key that signs for a party."""
        key = x509.load_pem_x509_certificate(self.parties[name].encode()).public_key()
        if not isinstance(key, EllipticCurvePublicKey):
            raise ValueError(
                f"the certificate of {name!r} needs an elliptic curve key (openssl -newkey ec)"
            )
        return key

    def terms(self) -> Terms:
        """Terms of the secure sum."""
        return Terms(len(self.parties), self.colluding, self.lost, self.digest, self.kem)

    def estimator(self, **own: Any) -> Any:
        """The model that a party fits; `own` are parameters of the party alone."""
        model = MODELS[self.model](**self.parameters, **self.tables, **own)
        model._validate_params()
        check_model(model)
        return model

    @property
    def max_bytes(self) -> int:
        """Size of the longest message, of either side."""
        m, cells = len(self.parties), len(self.words) * self.estimator().n_components
        return 8 * (cells + len(self.words) + 1) + m * (KEY + KEM_KEY + SIGNED + m * KEM_TEXT)


def certificate_of(path: Path) -> bytes:
    """The first certificate of a PEM file, in binary form."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER)
    except ValueError as error:
        raise ValueError(f"{path} holds no certificate (PEM)") from error


class Party:
    """A party's side of a fit over a network; all is checked before anything is sent or charged.

    `data` are the documents and the user of each row, or None; `own` are parameters of the model
    that are up to the party.
    """

    def __init__(self, plan: Plan, name: str, key: Path, data: tuple[Any, Any], **own: Any) -> None:
        self.plan, self.model, self._data = plan, plan.estimator(**own), data
        self._names, self._me = [*plan.parties], [*plan.parties].index(name)
        self._key: Any = load_pem_private_key(key.read_bytes(), None)
        X, users = data
        if np.shape(X)[1:] != (len(plan.words),):
            raise ValueError(
                f"the documents have shape {np.shape(X)}, and the plan has {len(plan.words)} words"
            )
        if (users is not None) != (plan.unit == "user"):
            raise ValueError(
                f"the plan protects one {plan.unit}: give --user-column for users only"
            )

    def fit(self, line: Line) -> Any:
        """The model that all parties fit; ConnectionError if there is none."""
        last_word = "interrupted"
        try:
            parties = SecureSum(
                self.plan.terms(), self._me, line.exchange, prove=self._prove, check=self._check
            )
            fit_share(self.model, self._data[0], parties, self._data[1])
            last_word = ""
        except Exception as error:
            last_word = type(error).__name__
            raise ConnectionError(f"the fit has ended without a model: {error}") from error
        finally:
            line.leave(last_word)
        return self.model

    def _prove(self, keys: bytes) -> bytes:
        """Keys of this fit, signed with that of the certificate."""
        return keys + self._key.sign(DOMAIN + self.plan.digest + keys, ECDSA(SHA256()))

    def _check(self, party: int, message: bytes) -> bytes:
        """The keys of a party, whose signature is right."""
        size = KEY + KEM_KEY * self.plan.kem
        keys, signature = message[:size], message[size:]
        signed, name = DOMAIN + self.plan.digest + keys, self._names[party]
        try:
            self.plan.public_key(name).verify(signature, signed, ECDSA(SHA256()))
        except InvalidSignature:
            raise ConnectionError(
                f"the keys of party {name!r} are not signed by its certificate for this plan; "
                "nothing was sent"
            ) from None
        return keys
