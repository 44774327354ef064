"""The rounds of a federation, in one process and over a network, and a party between rounds."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dplda.federated._master import IFTMMaster, RoundError
from dplda.federated._messages import (
    MAX_OVERHEAD,
    MAX_ROUND,
    LocalModel,
    MessageError,
    NextModel,
    check_name,
    vocabulary_hash,
    vocabulary_size,
)
from dplda.leaf._checks import check_integer
from dplda.leaf._files import (
    ExclusiveLock,
    check_kept_secret,
    check_writable,
    reserved,
    write_atomically,
    write_elsewhere,
)
from dplda.leaf._messages import warn_user
from dplda.privacy import Ledger
from dplda.release._container import Tables, pack, unpack

if TYPE_CHECKING:
    from dplda.federated._network import Coordinator

log = logging.getLogger("dplda.federated")

STATE, MAX_HEADER = "dplda-federation", 2**24
NOT_THE_MODEL = {"ledger", "n_jobs", "verbose"}  # parameters that do not define the model


def take_part(estimator: Any, fit: Callable[[], Any], party: str, request: NextModel) -> LocalModel:
    """Make one round of a party: fit, or refine what the master sent, and answer."""
    if not hasattr(estimator, "components_"):
        fit()  # a party that joins late answers with its own first model
    elif request.n_topics:
        estimator.refine(request.table)
    return LocalModel.from_estimator(estimator, party, request.round, request.vocabulary)


def check_party(name: str, estimator: object) -> None:
    """Refuse an estimator that would need another fit, at full cost, in every round."""
    if not hasattr(estimator, "refine"):
        raise TypeError(
            f"party {name!r} must have an IFTMParty, before its documents, got "
            f"{type(estimator).__name__}; any other private model would read its documents and pay "
            "for them in each round: send LocalModel.from_estimator(...) to IFTMMaster.update"
        )


def run_rounds(
    master: IFTMMaster, parties: Mapping[str, tuple[Any, Any]], n_rounds: int
) -> IFTMMaster:
    """Run a federation in one process, for experiments.

    Parameters
    ----------
    master : IFTMMaster
        Changed in place. A master with earlier rounds continues with the next one.
    parties : mapping of str to tuple (IFTMParty, X)
        Estimator and documents of each party, by its name. Estimators are changed in place. An
        estimator is fitted in its first round, unless it is fitted already. One that raises an
        error is left out of that round, with a warning.
    n_rounds : int
        Number of rounds, at least 1.

    Returns
    -------
    master : IFTMMaster
        The same object.

    Raises
    ------
    RoundError
        If too few parties answered.

    Examples
    --------
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.federated import IFTMMaster, IFTMParty, run_rounds
    >>> X = make_topic_corpus(n_docs=60, n_words=30, n_components=3, random_state=0).data
    >>> parties = {
    ...     "north": (IFTMParty(n_components=3, token_epsilon=6.0, max_iter=5), X[:40]),
    ...     "south": (IFTMParty(n_components=2, token_epsilon=6.0, max_iter=5), X[40:]),
    ... }
    >>> master = run_rounds(IFTMMaster(30), parties, n_rounds=2)
    >>> master.components_.shape[1], master.round_
    (30, 2)
    """
    check_integer("n_rounds", n_rounds, 1, MAX_ROUND)
    for name, pair in (parties if isinstance(parties, Mapping) else {"parties": parties}).items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"party {name!r} must be a pair (IFTMParty, X) in a mapping of names, got "
                f"{type(pair).__name__}"
            )
        check_party(name, pair[0])
    for _ in range(n_rounds):
        answers: dict[str, LocalModel] = {}
        failure: Exception | None = None
        for name, (estimator, X) in parties.items():
            try:
                fit = partial(estimator.fit, X)
                answers[name] = take_part(estimator, fit, name, master.request(name))
            except Exception as error:
                failure = error
                warn_user(
                    f"party {name!r} failed in round {master.round_} ({type(error).__name__}), and "
                    "the round continues without it"
                )
        try:
            master.update(answers)
        except RoundError as error:
            raise error from failure
    return master


async def make_rounds(
    network: Coordinator,
    master: IFTMMaster,
    n_rounds: int,
    *,
    expected: Collection[str],
    round_timeout: float,
    after_round: Callable[[], None],
) -> None:
    """Make rounds over a network until there are `n_rounds`.

    A round waits for `min_parties` valid models, and for the other parties that are connected. A
    party that fails, or whose answer is refused, is not waited for and does not count. At the
    deadline a round goes on without those that have not answered, or fails if they are too many: a
    RoundError names the absent ones of `expected`.
    """
    while master.round_ < n_rounds:
        models = await _models(network, master, round_timeout)
        if len(models) < master.min_parties:
            absent = ", ".join(sorted({*expected} - {*models}))
            raise RoundError(
                f"{len(models)} of at least {master.min_parties} parties sent a valid model for "
                f"round {master.round_} within {round_timeout:g} s"
                + (f"; {absent} did not" if absent else "")
            )
        master.update(models)
        after_round()
        log.info("round %d of %d is complete", master.round_, n_rounds)
    await network.end()


async def _models(
    network: Coordinator, master: IFTMMaster, timeout: float
) -> dict[str, LocalModel]:
    """The valid models of a round by party."""
    models: dict[str, LocalModel] = {}

    def request(party: str) -> bytes | None:
        return None if party in models else master.request(party).to_bytes()

    network.ask(request)
    try:
        async with asyncio.timeout(timeout):
            while network.is_waiting or len(models) < master.min_parties:
                name, answer = await network.answer()
                try:
                    if isinstance(answer, str):
                        raise MessageError(answer)
                    models[name] = master._check(name, answer)
                except MessageError as error:
                    log.warning("party %r sent no valid model: %s", name, error)
    except TimeoutError:
        log.warning("the round goes on without those that have not answered")
    return models


def state_bytes(identity: str, fields: Mapping[str, Any], tables: Tables) -> bytes:
    """What a process needs to go on, as `read_state` reads it."""
    return pack(STATE, {**fields, "identity": identity}, tables, max_header=MAX_HEADER)


def read_state(path: Path, identity: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `state_bytes` wrote for the process with this identity, and for no other."""
    check_kept_secret(path, "state")
    try:
        fields, tables = unpack(STATE, path.read_bytes(), max_header=MAX_HEADER)
        if fields.pop("identity", None) != identity:
            raise ValueError("it is that of another name, vocabulary or parameters")
    except ValueError as error:
        raise ValueError(
            f"{path} is no state of this federation: {error}; restore the file or the parameters, "
            "or choose another path, with a fit that is charged again"
        ) from error
    return fields, tables


class StoredParty:
    """A party whose fit is kept in a file between rounds.

    A party that was killed after its fit does not pay for it again. The noisy vectors are in the
    file, on the disk, before anything is sent, and a repeated request gets the same bytes. If the
    process is killed earlier, its reservation stays in the ledger, and the next fit is charged in
    addition. One object of all processes uses a file: it locks ``<path>.lock`` until `close`, the
    end of a ``with`` statement, or the end of its process. A second one would privatize the same
    tokens a second time.

    Parameters
    ----------
    name : str
        Name of the party.
    estimator : IFTMParty
        Estimator with the parameters of the party. The file continues its fit, if there is one.
    load : callable
        ``load()`` returns the documents. It is called only when the documents are read.
    vocabulary : sequence of str, or int
        The words of the party's columns, or their number, as the master knows them.
    path : str or path-like
        The file, on a local disk, readable by its owner only; created if it does not exist. It
        is a safetensors file. With ``token_epsilon=inf`` or a seed it reveals the documents.

    Raises
    ------
    ValueError
        If the file is damaged or belongs to a party with other parameters, or if the estimator has
        a RandomState or a ledger in memory, which cannot be kept in a file.
    BlockingIOError
        If another process uses the file.
    OSError
        If the file cannot be read and written, or is open to other users of this machine.
    """

    def __init__(
        self,
        name: str,
        estimator: Any,
        load: Callable[[], Any],
        *,
        vocabulary: Sequence[str] | int,
        path: str | os.PathLike[str],
    ) -> None:
        check_name(name)
        check_party(name, estimator)
        own = estimator.get_params()
        seed, ledger = own["random_state"], own["ledger"]
        if not (seed is None or isinstance(seed, Integral)):
            raise ValueError(f"random_state must be None or an integer, got {type(seed).__name__}")
        if isinstance(ledger, Ledger) and ledger.path is None:
            raise ValueError("a ledger in memory dies with its process; give one with a path")
        self.name = name
        self.vocabulary = vocabulary_hash(vocabulary)
        self.n_words = vocabulary_size(vocabulary)
        self.path = Path(path).resolve()  # a link to the file is no second file
        self._load, self._estimator = load, estimator
        self._request, self._answer = b"", b""
        model = {name: own[name] for name in sorted({*own} - NOT_THE_MODEL)}
        self._identity = json.dumps([name, self.vocabulary, model], default=float)
        self._turn = threading.Lock()
        check_writable(self.path)
        try:
            self._lock = ExclusiveLock(f"{self.path}.lock")
        except BlockingIOError as error:
            raise BlockingIOError(
                f"another process uses the state {self.path}; end it first, because a second "
                "process would privatize the same documents again"
            ) from error
        try:
            if self.path.exists():
                fields, tables = read_state(self.path, self._identity)
                self._request = tables.pop("request").tobytes()
                self._answer = tables.pop("answer").tobytes()
                estimator._restore(fields, tables)
        except BaseException:
            self.close()
            raise

    @property
    def is_fitted(self) -> bool:
        """Whether the documents are privatized, so that they are not read again."""
        return hasattr(self._estimator, "components_")

    @property
    def max_bytes(self) -> int:
        """Size in bytes of the largest request that this party reads: a master keeps its topics."""
        return 4 * int(self._estimator.n_components) * self.n_words + MAX_OVERHEAD

    def close(self) -> None:
        """Let another process use the file; this object answers no more requests."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def check_documents(self) -> None:
        """Load the documents if a fit is still to come, and check that they fit the vocabulary."""
        if not self.is_fitted:
            self._documents()

    def answer(self, request: bytes) -> bytes:
        """The party's local model for a round.

        Parameters
        ----------
        request : bytes
            The bytes of the master's `NextModel`, of unknown origin.

        Returns
        -------
        local_model : bytes
            The bytes of the party's `LocalModel`.

        Raises
        ------
        MessageError
            If the request is malformed or for another vocabulary. No data have been read then.
        BudgetError
            If the party's ledger does not allow the fit.
        OSError
            If the file cannot be written. Its room is reserved before a fit is charged; if a fit
            cannot be stored all the same, the error says what it cost and where it is.
        RuntimeError
            If the object is closed, or this process is a copy of the one that created it.
        """
        with self._turn:  # two threads would fit twice
            self._lock.check()
            next_model = NextModel.from_bytes(request, max_bytes=self.max_bytes)
            if (next_model.vocabulary, next_model.n_words) != (self.vocabulary, self.n_words):
                raise MessageError("the master has another vocabulary than this party")
            digest = hashlib.sha256(request).digest()
            if digest != self._request:
                answer = take_part(self._estimator, self._fit, self.name, next_model).to_bytes()
                write_atomically(self.path, self._state(digest, answer))
                self._request, self._answer = digest, answer  # only what is on the disk may be sent
            return self._answer

    def _fit(self) -> None:
        """Fit, and store what is paid for, whatever follows."""
        X = self._documents()
        with reserved(self.path, self._estimator._state_size(X)):
            self._estimator.fit(X)
        state = self._state(b"", b"")
        try:
            write_atomically(self.path, state)
        except OSError as error:
            other = write_elsewhere(self.path, state)
            raise OSError(
                f"{self.path} cannot be written: {error.strerror or error}. The fit has cost "
                f"epsilon {self._estimator.epsilon_:.4g}, and its result is {other}: make room, "
                f"and move that file to {self.path} before this party is started again"
            ) from error

    def _state(self, request: bytes, answer: bytes) -> bytes:
        """The content of the file: the fit, and the digest of the request that was answered."""
        fields, tables = self._estimator._state()
        tables |= {"request": np.frombuffer(request, np.uint8)}
        tables |= {"answer": np.frombuffer(answer, np.uint8)}
        return state_bytes(self._identity, fields, tables)

    def _documents(self) -> Any:
        """The documents. They are checked before anything is charged."""
        X = self._load()
        self._estimator._check_sentences(X)
        if np.shape(X)[1:] != (self.n_words,):
            raise ValueError(
                f"the documents have shape {np.shape(X)}, and the vocabulary has {self.n_words} "
                "words; load documents of this vocabulary"
            )
        return X
