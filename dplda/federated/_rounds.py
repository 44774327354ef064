"""The rounds of iFTM: what a party answers, and all of them in one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dplda.federated._master import IFTMMaster, RoundError
from dplda.federated._messages import (
    MAX_BYTES,
    MAX_OVERHEAD,
    MAX_ROUND,
    LocalModel,
    MessageError,
    NextModel,
    vocabulary_hash,
)
from dplda.leaf._checks import check_integer
from dplda.leaf._messages import warn_user


def answer_request(
    estimator: Any, X: Any, request: NextModel | bytes, *, party: str, vocabulary: str
) -> LocalModel:
    """Answer a master: fit in the first round, and refine what it sent in later ones.

    Parameters
    ----------
    estimator : IFTMParty
        Changed in place. It keeps its fit between the rounds; a pickle keeps it too.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts. A fitted estimator does not read them.
    request : NextModel or bytes
        What `IFTMMaster.request` gave, of unknown origin.
    party : str
        Name of the party.
    vocabulary : str
        `vocabulary_hash` of the columns.

    Returns
    -------
    answer : LocalModel
        The message to the master. A party that joins late answers with its own first model.

    Raises
    ------
    MessageError
        If the request is malformed, too long, or for other words.
    ValueError
        If `X` has other columns, or if the master has topics of this party, and the estimator
        neither a fit nor a ledger.
    BudgetError
        If the budget of the ledger is too small. In all these cases nothing is spent.

    Notes
    -----
    **Privacy.** The first answer costs what `estimator.fit` costs. All others are post-processing
    of that fit, whatever is asked. A lost fit is paid again, and messages state the ledger's sum.
    """
    _check_party(party, estimator)
    is_fitted = hasattr(estimator, "components_")
    if not isinstance(request, NextModel):
        most = 4 * estimator.components_.size + MAX_OVERHEAD if is_fitted else MAX_BYTES
        request = NextModel.from_bytes(request, max_bytes=most)  # a master keeps a party's topics
    if request.vocabulary != vocabulary:
        raise MessageError("the master has another vocabulary than this party")
    n_topics, n_words = request.table.shape
    names = [name for name in getattr(X, "columns", ()) if isinstance(name, str)]
    if is_fitted:
        if n_topics:
            estimator.refine(request.table)
    elif np.shape(X)[1:] != (n_words,) or (names and vocabulary_hash(names) != vocabulary):
        raise ValueError(
            f"the documents, of shape {np.shape(X)}, have other columns than the vocabulary, of "
            f"{n_words} words; count the words of this vocabulary"
        )
    elif n_topics and getattr(estimator, "ledger", None) is None:
        raise ValueError(
            f"the master has topics of {party!r}, whose fit is lost, and another one costs as much "
            "again; give the estimator the ledger that adds up both"
        )
    else:
        estimator._party = party
        estimator.fit(X)
    return LocalModel.from_estimator(estimator, party, request.round, vocabulary)


def _check_party(name: str, estimator: object) -> None:
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
    """Run the rounds of iFTM in one process, for experiments.

    Parameters
    ----------
    master : IFTMMaster
        Changed in place. It continues with its next round.
    parties : mapping of str to tuple (IFTMParty, X)
        Estimator and documents of each party, as for `answer_request`. One that raises an error is
        left out of that round, with a warning.
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
    >>> words = [f"word{i}" for i in range(30)]
    >>> master = run_rounds(IFTMMaster(words), parties, n_rounds=2)
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
        _check_party(name, pair[0])
    for _ in range(n_rounds):
        answers: dict[str, LocalModel] = {}
        failure: Exception | None = None
        for name, (estimator, X) in parties.items():
            try:
                answers[name] = answer_request(
                    estimator, X, master.request(name), party=name,
                    vocabulary=master.vocabulary_hash,
                )  # fmt: skip
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
