"""The round of a party, and all rounds of a federation in one process, without a network."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dplda.federated._master import IFTMMaster, RoundError
from dplda.federated._messages import (
    MAX_ROUND,
    LocalModel,
    MessageError,
    NextModel,
    vocabulary_hash,
    vocabulary_size,
)
from dplda.leaf._checks import check_integer
from dplda.leaf._files import ExclusiveLock, check_writable, write_atomically
from dplda.leaf._warnings import warn_user
from dplda.privacy import Ledger

MAX_OVERHEAD = 65536  # bytes of a message besides its table
NOT_THE_MODEL = {"ledger", "n_jobs", "verbose"}  # parameters that do not define the model


@runtime_checkable
class Party(Protocol):
    """An estimator whose rounds after `fit` read no documents and cost no privacy."""

    def fit(self, X: Any) -> Any: ...
    def refine(self, table: npt.NDArray[np.float32]) -> Any: ...
    def local_model(self, party: str, round_number: int, vocabulary: str) -> LocalModel: ...
    def get_params(self) -> dict[str, Any]: ...
    def set_params(self, **params: Any) -> Any: ...


def check_party(name: str, estimator: object) -> None:
    """Refuse an estimator that would need another fit, at full cost, in every round."""
    if not hasattr(estimator, "fit"):
        raise TypeError(
            f"party {name!r} must have an IFTMParty, before its documents, got "
            f"{type(estimator).__name__}"
        )
    if not isinstance(estimator, Party):
        raise TypeError(
            f"party {name!r}: a {type(estimator).__name__} cannot refine a table without reading "
            "the documents, so that each round would be another fit; use an IFTMParty, or fit the "
            "model yourself and send LocalModel.from_estimator(...) to IFTMMaster.update"
        )


def take_part(
    estimator: Party,
    X: Any,
    *,
    party: str,
    round_number: int,
    vocabulary: str,
    next_model: NextModel | None,
) -> LocalModel:
    """Make one round of a party: fit, or refine what the master sent, and answer.

    Parameters
    ----------
    estimator : Party
        Changed in place. It is fitted in its first round.
    X : {array-like, sparse matrix} of shape (n_docs, n_words), or SentenceCorpus
        The party's documents; read by the fit only.
    party : str
        Name of the party.
    round_number : int
        The round to answer.
    vocabulary : str
        `vocabulary_hash` of the columns.
    next_model : NextModel or None
        The model to start from. None answers with the model as it is.

    Returns
    -------
    local_model : LocalModel
        The party's answer.
    """
    _check_next(next_model, round_number, vocabulary)
    if not _is_fitted(estimator):
        estimator.fit(X)  # a party that joins late answers with its own first model
    elif next_model is not None:
        estimator.refine(next_model.table)
    return estimator.local_model(party, round_number, vocabulary)


def _check_next(next_model: NextModel | None, round_number: int, vocabulary: str) -> None:
    expected = (vocabulary, round_number)
    if next_model is not None and (next_model.vocabulary, next_model.round) != expected:
        raise MessageError(
            f"the next model is for round {next_model.round}, and round {round_number} is running, "
            "or its vocabulary is another one"
        )


class StoredParty:
    """A party whose estimator is kept in a file between rounds.

    A party that was killed after its fit does not pay for it again. The noisy vectors are in the
    file, on the disk, before anything is sent, and a repeated request gets the same bytes. If the
    process is killed earlier, its reservation stays in the ledger, and the next fit is charged in
    addition.

    One object of all processes uses a file. It locks ``<path>.lock`` until `close`, the end of a
    ``with`` statement, or the end of its process, however that comes. A second process would
    privatize the same tokens a second time. It gets an error, and may try again later: it reads the
    file after it has the lock, and answers with the same bytes.

    Parameters
    ----------
    name : str
        Name of the party.
    estimator : IFTMParty
        Estimator with the parameters of the party. It is used unless the file holds a fitted one.
    load : callable
        ``load()`` returns the documents. It is called only when the documents are read.
    vocabulary : sequence of str, or int
        The words of the party's columns, or their number, as the master knows them.
    path : str or path-like
        The file, readable by its owner only, on a local disk; created if it does not exist. It is
        unpickled: nobody else may write to it. The file of a party with ``token_epsilon=inf`` or a
        seed reveals its documents.
    max_topics : int or None, default=None
        A next model with more topics is refused. None takes the number of topics of the estimator,
        which an `IFTMMaster` keeps.

    Raises
    ------
    TypeError
        If the estimator cannot refine without its documents: each round would be another fit. If
        the estimator cannot be pickled, for instance because its ledger is in memory.
    ValueError
        If the file belongs to a party with other parameters, or the estimator has a RandomState,
        which cannot be kept in a file.
    BlockingIOError
        If another process uses the file.
    OSError
        If the file cannot be read and written.

    See Also
    --------
    run_rounds : All rounds in one process.
    """

    def __init__(
        self,
        name: str,
        estimator: Party,
        load: Callable[[], Any],
        *,
        vocabulary: Sequence[str] | int,
        path: str | os.PathLike[str],
        max_topics: int | None = None,
    ) -> None:
        check_party(name, estimator)
        parameters = estimator.get_params()
        seed = parameters.get("random_state")
        if not (seed is None or isinstance(seed, Integral)):
            raise ValueError(f"random_state must be None or an integer, got {type(seed).__name__}")
        ledger = parameters.get("ledger")
        if isinstance(ledger, Ledger) and ledger.path is None:  # found out after the charge
            raise ValueError(
                "a ledger in memory cannot be kept in a file; give the estimator a ledger with a "
                "path, as in Ledger('privacy.sqlite')"
            )
        self.name = name
        self.vocabulary = vocabulary_hash(vocabulary)
        self.n_words = vocabulary_size(vocabulary)
        self.path = Path(path).resolve()  # a link to the file is no second file
        self.max_topics = int(parameters["n_components"]) if max_topics is None else max_topics
        self._load = load
        self._estimator = estimator
        self._request = self._answer = b""
        self._identity = repr(
            (name, self.vocabulary, type(estimator).__name__, _model_parameters(parameters))
        )
        self._turn = threading.Lock()
        self._lock = _state_lock(self.path)
        try:
            self._check_storable()
            if self.path.exists():
                self._restore()
        except BaseException:
            self.close()
            raise

    @property
    def is_fitted(self) -> bool:
        """Whether the documents are privatized, so that they are not read again."""
        return _is_fitted(self._estimator)

    def close(self) -> None:
        """Let another process use the file; this object answers no more requests."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def check_documents(self) -> None:
        """Load the documents if a fit is still to come, and check that they fit the vocabulary.

        Raises
        ------
        ValueError
            If the documents have another width than the vocabulary.

        Notes
        -----
        **Privacy.** Nothing is charged, and nothing is kept.
        """
        if not self.is_fitted:
            self._documents()

    def answer(self, round_number: int, vocabulary: str, next_model: bytes) -> bytes:
        """The party's local model for a round.

        Parameters
        ----------
        round_number : int
            The round that the master asks for.
        vocabulary : str
            The master's `vocabulary_hash`; it must be the party's.
        next_model : bytes
            The model to start from, as it was received; empty if there is none.

        Returns
        -------
        local_model : bytes
            The message to the master.

        Raises
        ------
        MessageError
            If the request is malformed or for another vocabulary. No data have been read then.
        BudgetError
            If the party's ledger does not allow the fit.
        OSError
            If the file cannot be written. Before a fit this is found out before anything is
            charged.
        RuntimeError
            If the object is closed, or this process is a copy of the one that created it.
        """
        with self._turn:  # two threads would fit twice
            self._lock.check()
            return self._answer_once(round_number, vocabulary, next_model)

    def _answer_once(self, round_number: int, vocabulary: str, next_model: bytes) -> bytes:
        if vocabulary != self.vocabulary:
            raise MessageError("the master has another vocabulary than this party")
        _check_round(round_number)
        request = hashlib.sha256(b"%d:" % round_number + next_model).digest()
        if request == self._request:
            return self._answer
        model = self._parse(next_model) if next_model else None
        _check_next(model, round_number, vocabulary)
        if not self.is_fitted:
            documents = self._documents()
            self._check_storable()
            self._estimator.fit(documents)
            self._store(self._request, self._answer)  # it is paid for once, whatever follows
            model = None  # a party that joins late answers with its own first model
        message = take_part(
            self._estimator,
            None,
            party=self.name,
            round_number=round_number,
            vocabulary=vocabulary,
            next_model=model,
        )
        answer = message.to_bytes()
        self._store(request, answer)
        return answer

    def _parse(self, data: bytes) -> NextModel:
        """A next model of this party's size, from data of unknown origin."""
        max_bytes = 4 * self.max_topics * self.n_words + MAX_OVERHEAD
        model = NextModel.from_bytes(data, max_bytes=max_bytes)
        if model.n_words != self.n_words or model.n_topics > self.max_topics:
            raise MessageError(
                f"the next model has {model.n_topics} topics of {model.n_words} words; at most "
                f"{self.max_topics} topics of {self.n_words} words are read"
            )
        return model

    def _documents(self) -> Any:
        """The documents. Their width is checked before anything is charged."""
        X = self._load()
        if np.shape(X)[1:] != (self.n_words,):
            raise ValueError(
                f"the documents have shape {np.shape(X)}, and the vocabulary has {self.n_words} "
                "words; load documents of this vocabulary"
            )
        return X

    def _store(self, request: bytes, answer: bytes) -> None:
        """Write the file; only what is in the file, on the disk, may be sent."""
        write_atomically(self.path, self._state(request, answer))
        self._request, self._answer = request, answer

    def _state(self, request: bytes, answer: bytes) -> bytes:
        return pickle.dumps((self._identity, request, answer, self._estimator))

    def _check_storable(self) -> None:
        """Before a fit: one that cannot be stored would be charged again after each restart."""
        try:
            self._state(b"", b"")
        except Exception as error:
            raise TypeError(
                f"a {type(self._estimator).__name__} with these parameters cannot be kept in a "
                f"file: {error}; a ledger, for instance, must be a file as well"
            ) from error
        check_writable(self.path)

    def _restore(self) -> None:
        try:
            identity, request, answer, estimator = pickle.loads(self.path.read_bytes())
        except OSError:
            raise
        except Exception as error:  # damaged pickles raise anything
            raise ValueError(
                f"{self.path} is no state of a party, or a damaged one; restore it, or choose "
                "another path: that party starts from scratch, and its fit is charged again"
            ) from error
        if identity != self._identity:
            raise ValueError(
                f"{self.path} was written by a party of another name, vocabulary or parameters; "
                "give the same ones, or another file: that party starts from scratch, and its fit "
                "is charged again"
            )
        parameters = self._estimator.get_params()
        changes = {name: parameters[name] for name in NOT_THE_MODEL if name in parameters}
        estimator.set_params(**changes)
        self._request, self._answer, self._estimator = request, answer, estimator


def _state_lock(path: Path) -> ExclusiveLock:
    try:
        return ExclusiveLock(f"{path}.lock")
    except BlockingIOError as error:
        raise BlockingIOError(
            f"another process uses the state {path}; end it first, because a second process would "
            "privatize the same documents again"
        ) from error
    except OSError as error:
        raise OSError(
            f"the state {path} cannot be locked: {error.strerror or error}; it needs a folder that "
            "exists and can be written, on a local disk"
        ) from error


def _model_parameters(parameters: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Parameters that define the model, excluding the ledger and execution options."""
    return [(name, parameters[name]) for name in sorted({*parameters} - NOT_THE_MODEL)]


def _check_round(round_number: int) -> None:
    try:
        check_integer("round_number", round_number, 0, MAX_ROUND)
    except (TypeError, ValueError) as error:
        raise MessageError(str(error)) from None


def _is_fitted(estimator: Party) -> bool:
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def run_rounds(
    master: IFTMMaster, parties: Mapping[str, tuple[Party, Any]], n_rounds: int
) -> IFTMMaster:
    """Run a federation in one process: for experiments, and as the reference for an engine.

    Parameters
    ----------
    master : IFTMMaster
        Changed in place. A master with earlier rounds continues with the next one.
    parties : mapping of str to tuple (IFTMParty, X)
        Estimator and documents of each party, by its name. Estimators are changed in place. An
        estimator is fitted in its first round, unless it is fitted already.
    n_rounds : int
        Number of rounds, at least 1.

    Returns
    -------
    master : IFTMMaster
        The same object.

    Raises
    ------
    TypeError
        If an estimator cannot refine without its documents: each round would be another fit.
    RoundError
        If too few parties answered. A party that raises an error is left out of that round, with
        a warning.

    See Also
    --------
    LocalModel.from_estimator : Makes the message of any other private model.

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
    >>> master.components_.shape[1], len(master.history_)
    (30, 2)
    """
    if not isinstance(parties, Mapping):
        raise TypeError(
            f"parties must be a mapping of names to (IFTMParty, X), got {type(parties).__name__}"
        )
    check_integer("n_rounds", n_rounds, 1, MAX_ROUND)
    for name, pair in parties.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"party {name!r} must be a pair (IFTMParty, X), got {type(pair).__name__}"
            )
        check_party(name, pair[0])
    for _ in range(n_rounds):
        answers: dict[str, LocalModel] = {}
        failure: Exception | None = None
        for name, (estimator, X) in parties.items():
            try:
                answers[name] = take_part(
                    estimator,
                    X,
                    party=name,
                    round_number=master.round_,
                    vocabulary=master.vocabulary_hash,
                    next_model=master.next_models_.get(name),
                )
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
