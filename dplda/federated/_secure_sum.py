"""Several parties fit one model of documents: only the sum over all is visible.

A party runs `fit`, with its public side, on its own documents. Only a release differs:
the party sends its own sum with its share of the noise and masks, and gets the sum over
all parties. The masks of each pair cancel in the sum. The coordinator adds up messages
that it cannot read. docs/federated.md has the protocol and who may collude;
docs/proofs_document.md the proof.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from dplda.core._corpus import unit_of
from dplda.core._private_estimator import TRUSTED_PARTY
from dplda.document._document_lda import DocumentLDA
from dplda.leaf._calm import interruptible
from dplda.leaf._checks import check_integer
from dplda.leaf._users import canonical_id
from dplda.privacy import Gaussian, PoissonSampled, epsilon_of
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import (
    MAX_RADIUS,
    NOISE_VARIANCE,
    Cells,
    DiscreteGaussian,
)
from dplda.privacy._streams import Streams
from dplda.privacy._sums import Shares, SumsPromise

try:  # cryptography 47 and later, where its OpenSSL has it
    from cryptography.hazmat.primitives.asymmetric import mlkem

    mlkem.MLKEM768PrivateKey.generate()
    HAS_KEM = True
except Exception:
    HAS_KEM = False

log = logging.getLogger("dplda.federated")

MAX_PARTIES = 50  # the lemma of shares is stated for these
SETUP = 2  # replies before the first sum: public keys, and encapsulated keys
DIGEST = hashlib.sha256().digest_size
# kinds of replies
SUM = b"S"
LOST = b"L"
# Standard errors, beyond half a share, by which the rounds so far may lack shares of
# noise. A normal variable is so far below its mean in 3 of 10**7 rounds.
BY_CHANCE = 5.0


@dataclass(frozen=True)
class Terms:
    """What all parties agree on in advance."""

    n_parties: int  # from 2 to 50
    # Parties that may share all they know with each other, the coordinator and the
    # public. A party that only looks at the results counts as one.
    colluding: int = 1
    lost: int = 0  # parties that may drop out of the fit
    # of the plan: of these terms and of everything else that is agreed
    digest: bytes = bytes(32)
    kem: bool = HAS_KEM  # whether keys are also agreed on by ML-KEM-768

    def __post_init__(self) -> None:
        check_integer("the number of parties", self.n_parties, 2, MAX_PARTIES)
        check_integer("colluding", self.colluding, 1, self.n_parties - 1)
        check_integer("lost", self.lost, 0, self.n_parties - 1 - self.colluding)
        if self.kem and not HAS_KEM:
            raise ValueError(
                "ML-KEM-768 needs cryptography 47 or later; install it, or set no kem"
            )

    @property
    def shares(self) -> Shares:
        """The noise of a release: the shares of honest parties that stay pay for it."""
        honest = self.n_parties - self.colluding - self.lost
        return Shares(honest, self.n_parties, self.lost)


class Keys:
    """The keys of a party in one fit.

    Keys are in memory only, and serve one fit.
    """

    def __init__(self, kem: bool, seed: bytes | None = None) -> None:
        self._kem = None
        if seed is None:
            self._x25519 = X25519PrivateKey.generate()
            if kem:
                self._kem = mlkem.MLKEM768PrivateKey.generate()
        else:  # keys that are known give no protection: only to repeat a fit
            own = hashlib.sha256(seed).digest()
            self._x25519 = X25519PrivateKey.from_private_bytes(own)
            if kem:
                own = hashlib.sha512(seed).digest()
                self._kem = mlkem.MLKEM768PrivateKey.from_seed_bytes(own)
        self._secrets: dict[int, bytes] = {}  # shared with each other party

    def public(self) -> bytes:
        """Public keys, for everybody."""
        keys = [self._x25519.public_key().public_bytes_raw()]
        if self._kem is not None:
            keys.append(self._kem.public_key().public_bytes_raw())
        return pack(keys)

    def encapsulate(self, me: int, publics: Sequence[bytes]) -> bytes:
        """Encapsulated keys for the parties after this one; `publics` are all keys."""
        texts = []
        for j, public in enumerate(publics):
            if j == me:
                continue
            try:
                other, *of_kem = unpack(public, 1 if self._kem is None else 2)
                key = X25519PublicKey.from_public_bytes(other)
                self._secrets[j] = self._x25519.exchange(key)
                if of_kem and j > me:
                    other_kem = mlkem.MLKEM768PublicKey.from_public_bytes(*of_kem)
                    secret, text = other_kem.encapsulate()
                    self._secrets[j] += secret
                    texts.append(text)
            except (ConnectionError, ValueError) as error:
                raise malformed(j) from error
        return pack(texts)

    def secrets(self, me: int, texts: Sequence[bytes]) -> dict[int, bytes]:
        """The secret that is shared with each other party; `texts` are those of all."""
        for j, text in enumerate(texts):
            n_later = 0 if self._kem is None else len(texts) - 1 - j
            try:
                of_later = unpack(text, n_later)
                if self._kem is not None and j < me:
                    secret = self._kem.decapsulate(of_later[me - j - 1])
                    self._secrets[j] += secret
            except (ConnectionError, ValueError) as error:
                raise malformed(j) from error
        return self._secrets


def malformed(party: int) -> ConnectionError:
    """The error that names the party with malformed keys."""
    return ConnectionError(f"party {party + 1} of the plan has sent malformed keys")


class SecureSum:
    """A party's side of the sums of one fit.

    `Curator` and `Training` take it as `sums`.

    The masks of a pair depend on all that both have seen: the terms, everybody's keys,
    and every reply. If two parties were shown different things, their masks do not
    cancel, and what they send is uniform. So agreement needs no message, and secrecy
    does not depend on the transport.

    `exchange` gives a message to the coordinator and returns its reply. `prove` wraps
    own public keys for the others, and `check` unwraps a party's keys, or raises an
    error. Nothing is sent before `begin`. `save_so_far` writes what has become public
    to a disk: the words, and then the model after each round.
    """

    def __init__(
        self,
        terms: Terms,
        me: int,
        exchange: Callable[[bytes], bytes],
        *,
        seed: bytes | None = None,
        prove: Callable[[bytes], bytes] = bytes,
        check: Callable[[int, bytes], bytes] = lambda party, message: message,
        save_so_far: Callable[[], None] | None = None,
    ) -> None:
        self.n_parties = terms.n_parties
        self.shares = terms.shares
        self.save_so_far = save_so_far
        self._me = me
        self._exchange = exchange
        self._terms = terms
        self._keys = Keys(terms.kem, seed)
        self._prove = prove
        self._check = check
        self._present = list(range(self.n_parties))
        # of the rounds so far: rows, shares of noise found, and shares expected
        self._n_rows = 0
        self._found_noise = 0.0
        self._expected_noise = 0.0

    def begin(self) -> None:
        """Agree on keys with all parties, and on public streams for the first table.

        If a party is absent or cannot pay, the fit ends here for all, before any
        release.
        """
        keys = self._keys
        me = self._me
        agreed = self._terms.digest
        own = keys.public()
        proved = unpack(self._exchange(agreed + self._prove(own)), self.n_parties)
        publics = [self._check(i, message) for i, message in enumerate(proved)]
        if publics[me] != own or len({*publics}) < len(publics):
            raise ConnectionError(
                "the coordinator, or another process of this party, has changed the "
                "keys of the parties; this party sends nothing"
            )
        encapsulated = keys.encapsulate(me, publics)
        texts = unpack(self._exchange(agreed + encapsulated), self.n_parties)
        self._secrets = keys.secrets(me, texts)
        self._transcript = hashlib.sha256(
            agreed + b"".join(publics) + pack(texts)
        ).digest()
        # Nobody can choose it, because everybody's keys enter it. Random topics need no
        # secret.
        first = hashlib.sha256(agreed + b"first table" + b"".join(publics)).digest()
        self._topic_streams = Streams(first, seeded=False)

    def topic_streams(self, own: Streams) -> Streams:
        return self._topic_streams

    def add_up(self, cells: Cells, label: str) -> bool:
        """Replace own noisy cells by the sum of all parties; False if one was lost."""
        place = f"{label} {cells.size}".encode()
        total = cells.reshape(-1).view(np.uint64).copy()
        # This leaves the party: its sum, its noise, and for each other party a mask
        # that is uniform for everybody but the two. Unless all others collude, the
        # vector is uniform.
        for j in self._present:
            if j != self._me:
                mask = self._mask(j, place, total.size)
                total = total + mask if self._me < j else total - mask  # modulo 2**64
        with interruptible():  # others may be late
            reply = self._exchange(self._transcript + total.astype("<u8").tobytes())
        self._transcript = hashlib.sha256(self._transcript + place + reply).digest()
        kind = reply[:1]
        body = reply[1:]
        if kind == SUM and len(body) == 8 * cells.size:
            cells.reshape(-1)[:] = np.frombuffer(body, "<i8")
            # 2**30 documents of the largest radius; random words exceed it
            most = MAX_RADIUS**2
            if cells.max() >= most or cells.min() < -most:
                raise ConnectionError(
                    "the sum of the parties is not a sum of counts and noise: a party, "
                    "or the coordinator, sends something else"
                )
            self._check_noise(cells, label)
            return True
        present = sorted({*body})
        fewest = self.n_parties - self._terms.lost
        if not (
            kind == LOST
            and self._me in present
            and {*present} < {*self._present}
            and len(present) >= fewest
        ):
            raise ConnectionError(
                "too few parties are left, or the coordinator has ended the fit"
            )
        self._present = present
        return False

    def agree(self, values: NDArray[np.float64], label: str) -> NDArray[np.float64]:
        """The mean over all parties of public numbers from 0 to 1, to 2**-30."""
        while True:
            # in the unit of the finest contributions
            cells = np.rint(values * MAX_RADIUS).astype(np.int64)
            if self.add_up(cells, label):
                return np.clip(cells / (len(self._present) * MAX_RADIUS), 0.0, 1.0)

    def _check_noise(self, total: Cells, label: str) -> None:
        """End the fit if noise is missing in the rounds so far.

        Contributions sum to zero over topics, so row sums are noise.
        """
        if total.ndim != 2:
            return
        m = len(self._present)
        n_rows = len(total)
        n_shares = shares_of_noise(total)
        log.info("%s: noise of %.2f parties", label, n_shares)
        self._n_rows += n_rows
        self._found_noise += n_rows * n_shares
        self._expected_noise += n_rows * m
        found = self._found_noise / self._n_rows
        expected = self._expected_noise / self._n_rows
        by_chance = BY_CHANCE * math.sqrt(2 / self._n_rows)
        if found < expected * (1 - by_chance) - 0.5:
            raise ConnectionError(
                f"the rounds have the noise of {found:.2f} parties, and {m} take part: "
                "somebody adds none, and counts among those who collude; find out who, "
                "and make a new plan without them"
            )

    def _mask(self, other: int, place: bytes, n: int) -> NDArray[np.uint64]:
        """The mask of this party and another, (n,) words, for one attempt.

        An attempt belongs to a release.
        """
        pair = bytes(sorted((self._me, other)))
        key = HKDF(SHA256(), 32, salt=self._transcript, info=b"mask" + pair + place)
        cipher = Cipher(
            algorithms.AES(key.derive(self._secrets[other])), modes.CTR(bytes(16))
        )
        words = np.frombuffer(cipher.encryptor().update(bytes(8 * n)), "<u8")
        return words.astype(np.uint64, copy=False)

    def promise(self, events: Sequence[Event], delta: float) -> SumsPromise:
        """What the card says of parties."""
        m = self.n_parties
        n_honest = self.shares.n_honest
        of_all = DiscreteGaussian(MAX_RADIUS, n_honest, m).event_variance
        of_one = math.sqrt(DiscreteGaussian(MAX_RADIUS).event_variance / of_all)
        alone = epsilon_of(
            [quieter(event, of_one) for event in events],
            delta,
            total_variation=self.shares.total_variation,
        )
        kem = " with ML-KEM-768" if self._terms.kem else ""
        return SumsPromise(
            mechanism=f", each the sum over {m} parties, with a share of noise from "
            f"each of them, {n_honest} of which pay",
            trusted=TRUSTED_PARTY,
            assumptions=(
                f"at most {self._terms.colluding} of the {m} parties collude, with the "
                "coordinator and anyone else, and at most "
                f"{self._terms.lost} drop out: the noise of {n_honest} pays",
                f"X25519{kem}, HKDF and AES-256 hide what a party sends; without them, "
                f"or if all others collude, epsilon is {alone:.3g}",
                "no person has documents with two parties; any party can spoil the "
                "model unnoticed",
            ),
        )


def shares_of_noise(total: Cells) -> float:
    """The number of parties that added noise to a sum (n_words, n_topics).

    The row sums of the sum are noise.
    """
    rows = total.sum(axis=1, dtype=np.float64)
    return float(np.mean(rows**2)) / (total.shape[1] * NOISE_VARIANCE)


def quieter(event: Any, share: float) -> Any:
    """The event of a Gaussian step with this share of its noise; others unchanged."""
    if isinstance(event, PoissonSampled):
        return PoissonSampled(event.sampling_probability, quieter(event.event, share))
    if isinstance(event, Gaussian):
        return Gaussian(event.noise_multiplier * share)
    return event


class Adder:
    """The coordinator's side: it hands keys on, and adds vectors it cannot read."""

    def __init__(self, terms: Terms, names: Sequence[str]) -> None:
        self._terms = terms
        self._n_replies = 0
        self.names = names
        self.present = {*range(terms.n_parties)}

    def go_on(self, n_replies: int, present: Iterable[int]) -> None:
        """Go on with these parties, after this many replies of another process."""
        self._n_replies = n_replies
        self.present = {*present}

    def reply(self, messages: Mapping[int, bytes]) -> bytes:
        """The reply to the messages of all parties.

        The reply is empty if the remaining parties have the model.

        A message begins with a digest of what its party has seen. If this digest
        differs from most others, the message is left out, because its masks would not
        cancel, and its party is lost. A party without a message is lost too. Shorter
        messages are last words: empty, or the reason why there is no model.
        """
        is_setup = self._n_replies < SETUP
        self._n_replies += 1
        seen = {
            i: (message[:DIGEST], is_setup or len(message))
            for i, message in sorted(messages.items())
            if len(message) >= DIGEST
        }
        if not seen and b"" in messages.values():
            return b""
        usual = Counter(seen.values()).most_common(1)
        present = [i for i in seen if seen[i] == usual[0][0]]
        blame = "".join(
            self._blame(i, messages.get(i), i in seen)
            for i in sorted(self.present - {*present})
        )
        if len(present) < self._terms.n_parties - (0 if is_setup else self._terms.lost):
            raise ConnectionError(
                f"{len(present)} parties are left, which are too few{blame}"
            )
        if blame:
            log.warning("parties are lost%s", blame)
        if is_setup:
            return pack([messages[i][DIGEST:] for i in present])
        if len(present) < len(self.present):
            self.present = {*present}
            return LOST + bytes(present)
        total = np.zeros(len(messages[present[0]][DIGEST:]) // 8, "<u8")
        for i in present:
            total += np.frombuffer(messages[i], "<u8", total.size, DIGEST)
        return SUM + total.tobytes()

    def _blame(self, party: int, message: bytes | None, is_whole: bool) -> str:
        """Why a party is not in the sum."""
        name = self.names[party]
        if message is None:
            return f"; {name} has sent nothing in time"
        if is_whole:
            return f"; what {name} sent is malformed, or of another plan or fit"
        return f"; {name} has ended: {message[:DIGEST]!r}"


def pack(parts: Sequence[bytes]) -> bytes:
    """Byte strings as one."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def unpack(data: bytes, n: int) -> list[bytes]:
    """The `n` byte strings of `pack`."""
    parts = list[bytes]()
    while len(data) >= (end := 4 + int.from_bytes(data[:4], "big")) and len(parts) < n:
        parts.append(data[4:end])
        data = data[end:]
    if data or len(parts) != n:
        raise ConnectionError("a message of the setup is malformed")
    return parts


def fit_share(
    model: DocumentLDA, X: Any, sums: SecureSum, user_ids: Any = None
) -> DocumentLDA:
    """Fit a party's model, the same for all parties, on its own documents."""
    model._validate_params()
    model._training(unit_of(X, user_ids), sums=sums).fit(X, user_ids)
    return model


def check_model(estimator: Any) -> None:
    """Refuse what parties cannot fit together, before anything is charged."""
    if not isinstance(estimator, DocumentLDA):
        raise TypeError(
            "parties fit a SubLDA or a PrivateSVILDA together, got "
            f"{type(estimator).__name__}"
        )
    if estimator.epsilon == math.inf:
        raise ValueError(
            "epsilon=inf has no noise: the sum of all parties would be exact"
        )


def fit_together(
    estimator: Any, parties: Mapping[str, Any], *, colluding: int = 1
) -> Any:
    """Fit one private model to the documents of several parties, in one process.

    For experiments. The code is that of ``dplda federation`` over a network, with keys,
    masks and shares of the noise. There, only a party sees its documents and their sum.

    Parameters
    ----------
    estimator : SubLDA or PrivateSVILDA
        Not changed. Its `epsilon` must be finite, and its `ledger` None: over a
        network, each party charges its own ledger.
    parties : mapping of str to X, or to a tuple (X, user_ids)
        The documents of 2 to 50 parties, in the same columns, and the users of their
        rows for all parties or for none. A user is with one party.
    colluding : int, default=1
        Number of parties that may share all they know with the coordinator and with
        each other. The noise of the others pays for epsilon. A party that only looks at
        the results counts as one of them.

    Returns
    -------
    model : SubLDA or PrivateSVILDA
        The fitted model, the same for all parties.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit together; then nothing is read.

    Notes
    -----
    **Privacy.** Unit, relation and events: as for the estimator, for units of one
    party. Sensitivity: as for a party's own sum. Mechanism: `len(parties)` shares of
    discrete Gaussian noise; ``len(parties) - colluding`` shares count in the events.
    The proof is in ``docs/proofs_document.md``.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.federated import fit_together
    >>> X = make_topic_corpus(600, 30, 3, random_state=0).data
    >>> parties = {"north": X[:200], "south": X[200:400], "west": X[400:]}
    >>> model = fit_together(SubLDA(3, epsilon=4.0, max_iter=10), parties)
    >>> round(model.epsilon_, 2), model.components_.shape
    (4.0, (3, 30))
    """
    check_model(estimator)
    if estimator.ledger is not None:
        raise ValueError(
            "fit_together runs all parties in one process, and a ledger belongs to one "
            "party: set ledger=None, or let each party run `dplda federation party` "
            "with its own"
        )
    if not isinstance(parties, Mapping):
        raise TypeError(
            f"parties must be a mapping of names, got {type(parties).__name__}"
        )
    data = [
        pair if isinstance(pair, tuple) else (pair, None) for pair in parties.values()
    ]
    terms = Terms(len(data), colluding)
    for name, (X, _) in zip(parties, data):
        if np.shape(X)[:1] == (0,):
            raise ValueError(
                f"party {name!r} has no documents: check them, or leave it out"
            )
    widths = {np.shape(X)[1:]: name for name, (X, _) in zip(parties, data)}
    if len(widths) > 1:
        raise ValueError(
            "all parties need the same columns, and those of "
            f"{' and '.join(map(repr, widths.values()))} differ in number; count the "
            "words of one public list"
        )
    if len({ids is None for _, ids in data}) > 1:
        raise ValueError("give user_ids for all or for none of the parties")
    # ids that look the same are one user; within a party, `number_users` refuses them
    ids_of = [np.asarray(ids, object).ravel() for _, ids in data if ids is not None]
    users = [set(map(canonical_id, ids)) for ids in ids_of]
    if len(set().union(*users)) < sum(map(len, users)):
        raise ValueError(
            "a user has documents with two parties, and would pay twice: put all "
            "documents of a user with one party, or give users names that are "
            "different in each party if they are different persons"
        )
    seeds: list[Any] = [None] * len(data)
    if estimator.random_state is not None:
        seeds = (
            check_random_state(estimator.random_state)
            .randint(2**31, size=len(data))
            .tolist()
        )
    room = Room(Adder(terms, [*parties]))

    def run(me: int) -> Any:
        seed = seeds[me]  # one seed for all would give equal noise
        model = clone(estimator).set_params(random_state=seed)
        key = None if seed is None else b"%d" % seed
        try:
            secure_sum = SecureSum(
                terms, me, lambda message: room.exchange(me, message), seed=key
            )
            return fit_share(model, data[me][0], secure_sum, data[me][1])
        except BaseException:
            room.leave()
            raise

    with ThreadPoolExecutor(len(data)) as pool:
        # recorders of the caller see each party
        calls = [pool.submit(copy_context().run, run, me) for me in range(len(data))]
    failures = [error for call in calls if (error := call.exception()) is not None]
    for error in sorted(
        failures, key=lambda e: isinstance(e, threading.BrokenBarrierError)
    ):
        raise error
    return calls[0].result()


class Room:
    """The meeting point of the parties of one process: each waits for all messages."""

    def __init__(self, adder: Adder) -> None:
        self._adder = adder
        self._reply = b""
        self._messages = dict[int, bytes]()
        self._all = threading.Barrier(len(adder.names), self._add)

    def _add(self) -> None:
        self._reply = self._adder.reply(self._messages)

    def exchange(self, me: int, message: bytes) -> bytes:
        """Give a message, and get the reply to the messages of all."""
        self._messages[me] = message
        self._all.wait()
        return self._reply

    def leave(self) -> None:
        """Let nobody wait for a party that has failed."""
        self._all.abort()
