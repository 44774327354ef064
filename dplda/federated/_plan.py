"""The plan of a fit over the network, to which all parties agree."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dplda._version import __version__
from dplda.core._corpus import public_tables
from dplda.core._words import language_of, letters
from dplda.document._document_lda import DocumentLDA
from dplda.document._sublda import SubLDA
from dplda.document._svilda import PrivateSVILDA
from dplda.federated._certificates import binary, check_dates, pem_of
from dplda.federated._line import MAX_REASON
from dplda.federated._messages import check_name, vocabulary_hash
from dplda.federated._secure_sum import (
    HAS_KEM,
    Terms,
    check_model,
)
from dplda.leaf._checks import check_integer, escaped
from dplda.privacy import epsilon_of
from dplda.privacy._charge import Step
from dplda.text._choice import selection_of
from dplda.text._count_vectorizer import PrivateCountVectorizer
from dplda.text._parts import split_budget

MODELS: dict[str, type[DocumentLDA]] = {
    "SubLDA": SubLDA,
    "PrivateSVILDA": PrivateSVILDA,
}
OF_A_PARTY = {"ledger", "n_jobs", "random_state", "verbose"}  # parameters


@dataclass(frozen=True)
class Plan:
    """The agreement of all parties of a fit: a JSON file, the same for everybody."""

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
        vocabulary_hash(self.words)
        for name, pem in self.parties.items():
            check_name(name)
            self.public_key(name)
            if pem != pem_of(binary(pem.encode())):
                raise ValueError(
                    f"the entry of {name!r} is more than one certificate: if it has a "
                    "private key, the party needs a new key and certificate; make the "
                    "plan again with `dplda federation plan`"
                )
        if len({*self.certificates()}) < len(self.parties):
            raise ValueError(
                "two parties of the plan have one certificate; each needs its own"
            )
        self.terms()
        model = self.estimator()
        if self.n_words is None:
            public_tables(model, len(self.words))
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
        """The plan in a file; ValueError if it has no plan."""
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a usable plan: {error}") from error

    def text(self) -> str:
        """The content of the file."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @cached_property
    def digest(self) -> bytes:
        """The digest that the parties compare and sign with their keys."""
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
        steps = [] if words is None else selection_of(words, shares).plan
        return [*steps, *self.estimator()._plan(shares)]

    def epsilon(self, delta: float | None = None) -> float:
        """The cost of the fit for each unit, at a delta or at the model's delta."""
        n_streams = 1 if self.n_words is None else 2
        return epsilon_of(
            [event for _, event in self.steps()],
            float(self.estimator().delta) if delta is None else delta,
            total_variation=n_streams * self.terms().shares.total_variation,
        )

    def noise(self, lost: int | None = None) -> float:
        """Noise of the rounds, relative to one curator of all documents."""
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
        """The estimator that chooses the words; None if they are given."""
        if self.n_words is None:
            return None
        model = MODELS[self.model](**self.parameters)
        words = PrivateCountVectorizer(  # type: ignore[no-untyped-call]
            epsilon=self._split(model)[0],
            delta=model.delta,
            candidates=self.words,
            discover=False,  # a word that only one party knows cannot enter a sum
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
        """Size of the longest message of either side."""
        n_parties = len(self.parties)
        n_words = len(self.words) if self.n_words is None else self.n_words
        n_cells = n_words * int(self.estimator().n_components)
        sums = 8 * (n_cells + len(self.words) + 2)
        # of each party for each: ML-KEM-768 and a signature take a fifth of this
        keys = 10_000 * n_parties**2
        return sums + keys
