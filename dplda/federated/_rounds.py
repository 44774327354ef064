"""A party's part in a round, and all rounds in one process: no engine, no network."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dplda._warnings import warn_user
from dplda.federated._master import IFTMMaster, RoundError
from dplda.federated._messages import (
    MAX_ROUND,
    LocalModel,
    MessageError,
    NextModel,
    check_integer,
    vocabulary_hash,
    vocabulary_size,
)
from dplda.privacy import Ledger

MAX_OVERHEAD = 65536  # of a message, beside its table
NOT_THE_MODEL = {"ledger", "n_jobs", "verbose"}  # parameters that make no other model


def take_part(
    estimator: Any,
    X: Any,
    *,
    party: str,
    round: int,
    vocabulary: str,
    next_model: NextModel | None,
) -> LocalModel:
    """A party's part in one round: fit, or refine what the master sent, and answer.

    Parameters
    ----------
    estimator : IFTMParty
        Changed in place. It is fitted if it is not yet.
    X : {array-like, sparse matrix} of shape (n_docs, n_words), or SentenceCorpus
        The party's documents; read by the fit only, and by a `refine` that charges for it.
    party : str
        Name of the party.
    round : int
        The round to answer.
    vocabulary : str
        `vocabulary_hash` of the columns.
    next_model : NextModel or None
        What to start from; None answers with the model as it is.

    Returns
    -------
    local_model : LocalModel
    """
    _check_next(next_model, round, vocabulary)
    if not _is_fitted(estimator):
        estimator.fit(X)  # a party that comes late begins with a model of its own
    elif next_model is not None:
        _refine(estimator, next_model.table, X)
    local_model: LocalModel = estimator.local_model(party, round, vocabulary)
    return local_model


def _check_next(next_model: NextModel | None, round: int, vocabulary: str) -> None:
    if next_model is not None and (next_model.vocabulary, next_model.round) != (vocabulary, round):
        raise MessageError(
            f"the next model is for round {next_model.round}, and round {round} is running, or its "
            "vocabulary is another one"
        )


def _refine(estimator: Any, table: Any, X: Any) -> None:
    """Only a party that charges for further rounds reads its documents again."""
    if _is_charged(estimator):
        estimator.refine(table, X)
    else:
        estimator.refine(table)


class StoredParty:
    """A party whose estimator is kept in a file between rounds.

    A process that is killed costs no privacy twice: what was privatized is in the file before
    anything is sent, and a round that is asked for again is answered with the same bytes. Killed
    before that, its reservation stays in the ledger, and the next fit is charged beside it.

    Parameters
    ----------
    name : str
        Name of the party.
    estimator : IFTMParty
        With the parameters of the party; used unless the file holds a fitted one.
    load : callable
        ``load()`` returns the documents. Called when they are read, not before.
    vocabulary : sequence of str, or int
        The words of the party's columns, or their number, as the master knows them.
    path : str or path-like
        The file; made if there is none, readable by its owner only. It is unpickled: nobody else
        may write to it. A party with ``epsilon=inf`` or a seed has its documents in it.
    max_topics : int or None, default=None
        A next model with more topics is refused. None: as many as the estimator has, which is
        what an `IFTMMaster` sends.

    Raises
    ------
    ValueError
        When the file belongs to a party with other parameters, the estimator has a RandomState,
        which is no part of a file, or it pays for every round out of an unlimited budget.
    """

    def __init__(
        self,
        name: str,
        estimator: Any,
        load: Callable[[], Any],
        *,
        vocabulary: Sequence[str] | int,
        path: str | os.PathLike[str],
        max_topics: int | None = None,
    ) -> None:
        _check_budget(estimator)
        seed = getattr(estimator, "random_state", None)
        if not (seed is None or isinstance(seed, Integral)):
            raise ValueError(f"random_state must be None or an integer, got {type(seed).__name__}")
        self.name = name
        self.vocabulary = vocabulary_hash(vocabulary)
        self.n_words = vocabulary_size(vocabulary)
        self.path = Path(path)
        self.max_topics = int(estimator.n_components) if max_topics is None else max_topics
        self._load = load
        self._estimator = estimator
        self._asked = self._answer = b""
        self._identity = repr(
            (name, self.vocabulary, type(estimator).__name__, _parameters(estimator))
        )
        if self.path.exists():
            self._restore()

    def answer(self, round: int, vocabulary: str, next_model: bytes) -> bytes:
        """The party's local model for a round.

        Parameters
        ----------
        round : int
            The round that the master asks for.
        vocabulary : str
            The master's `vocabulary_hash`; it must be the party's.
        next_model : bytes
            What to start from, as it was received; empty for nothing.

        Returns
        -------
        local_model : bytes

        Raises
        ------
        MessageError
            When the request is malformed or for another vocabulary. Nothing was read then.
        BudgetError
            When the party's ledger does not allow the round.
        """
        if vocabulary != self.vocabulary:
            raise MessageError("the master has another vocabulary than this party")
        check_integer("round", round, 0, MAX_ROUND)
        asked = hashlib.sha256(b"%d:" % round + next_model).digest()
        if asked == self._asked:
            return self._answer
        most = 4 * self.max_topics * self.n_words + MAX_OVERHEAD
        model = NextModel.from_bytes(next_model, max_bytes=most) if next_model else None
        _check_next(model, round, vocabulary)
        if model is not None and not (
            model.n_words == self.n_words and model.n_topics <= self.max_topics
        ):
            raise MessageError(
                f"the next model has {model.n_topics} topics of {model.n_words} words; at most "
                f"{self.max_topics} topics of {self.n_words} words are read"
            )
        if not _is_fitted(self._estimator):
            self._estimator.fit(self._documents())
            self._store(self._asked, self._answer)
            model = None  # it begins with a model of its own
        message = take_part(
            self._estimator,
            self._documents() if _is_charged(self._estimator) and model is not None else None,
            party=self.name,
            round=round,
            vocabulary=vocabulary,
            next_model=model,
        )
        answer = message.to_bytes()
        self._store(asked, answer)
        return answer

    def _documents(self) -> Any:
        """The documents, if their width is that of the vocabulary: before anything is charged."""
        X = self._load()
        if np.shape(X)[1:] != (self.n_words,):
            raise ValueError(
                f"the documents have shape {np.shape(X)}, and the vocabulary has {self.n_words} "
                "words; load documents of this vocabulary"
            )
        return X

    def _store(self, asked: bytes, answer: bytes) -> None:
        """Write a new file beside the old one, and put it in its place at once.

        Only what is in the file may be given out again.
        """
        content = pickle.dumps((self._identity, asked, answer, self._estimator))
        handle, name = tempfile.mkstemp(dir=self.path.absolute().parent)  # mode 0600
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise
        self._asked, self._answer = asked, answer

    def _restore(self) -> None:
        identity, asked, answer, estimator = pickle.loads(self.path.read_bytes())
        if identity != self._identity:
            raise ValueError(
                f"{self.path} was written by a party of another name, vocabulary or parameters; "
                "give the same ones, or another file: that party starts anew, and is charged anew"
            )
        given = self._estimator.get_params()
        estimator.set_params(**{name: given[name] for name in NOT_THE_MODEL if name in given})
        self._asked, self._answer, self._estimator = asked, answer, estimator


def _parameters(estimator: Any) -> list[tuple[str, Any]]:
    """What makes the estimator the same one: not where it is charged, nor how it runs."""
    parameters = estimator.get_params()
    return [(k, parameters[k]) for k in sorted({*parameters} - NOT_THE_MODEL)]


def _is_charged(estimator: Any) -> bool:
    """Whether every round reads the documents again, and pays for it."""
    return getattr(estimator, "privacy_unit", "token") == "document"


def _check_budget(estimator: Any) -> None:
    """A coordinator decides on the number of rounds, but not on what they may cost."""
    if not _is_charged(estimator) or estimator.epsilon == math.inf:
        return
    ledger = estimator.ledger
    if ledger is not None and not isinstance(ledger, Ledger):
        ledger = Ledger(ledger)
    if ledger is None or ledger.epsilon == math.inf:
        raise ValueError(
            "with privacy_unit='document' every round costs privacy, and the coordinator decides "
            "how many there are: give a ledger with a budget, Ledger(path, epsilon=...)"
        )


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def run_rounds(
    master: IFTMMaster, parties: Mapping[str, tuple[Any, Any]], n_rounds: int
) -> IFTMMaster:
    """Run a federation in one process: for experiments, and as the measure of an engine.

    Parameters
    ----------
    master : IFTMMaster
        Changed in place; a master that has made rounds goes on.
    parties : mapping of str to tuple (IFTMParty, X)
        By the party's name, its estimator, changed in place, and its documents. An estimator is
        fitted in its first round, if it is not yet.
    n_rounds : int
        Rounds to make, at least 1.

    Returns
    -------
    master : IFTMMaster
        The same object.

    Raises
    ------
    RoundError
        When too few parties answered. A party that raises an error is left out of that round,
        with a warning.

    Examples
    --------
    >>> from dplda.datasets import make_topic_corpus
    >>> from dplda.federated import IFTMMaster, IFTMParty, run_rounds
    >>> X = make_topic_corpus(n_docs=60, n_words=30, n_components=3, random_state=0).data
    >>> parties = {
    ...     "north": (IFTMParty(n_components=3, epsilon=6.0, max_iter=5), X[:40]),
    ...     "south": (IFTMParty(n_components=2, epsilon=6.0, max_iter=5), X[40:]),
    ... }
    >>> master = run_rounds(IFTMMaster(30), parties, n_rounds=2)
    >>> master.components_.shape[1], len(master.history_)
    (30, 2)
    """
    if not isinstance(parties, Mapping):
        raise TypeError(
            f"parties must be a mapping of names to (IFTMParty, X), got {type(parties).__name__}"
        )
    if not isinstance(n_rounds, Integral) or n_rounds < 1:
        raise ValueError(f"n_rounds must be an integer of at least 1, got {n_rounds!r}")
    for _ in range(n_rounds):
        answers: dict[str, LocalModel] = {}
        failure: Exception | None = None
        for name, (estimator, X) in parties.items():
            try:
                answers[name] = take_part(
                    estimator,
                    X,
                    party=name,
                    round=master.round_,
                    vocabulary=master.vocabulary_hash,
                    next_model=master.next_models_.get(name),
                )
            except Exception as error:
                failure = error
                warn_user(
                    f"party {name!r} failed in round {master.round_} ({type(error).__name__}), and "
                    "the round goes on without it"
                )
        try:
            master.update(answers)
        except RoundError as error:
            raise error from failure
    return master
