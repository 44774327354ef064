"""The master of a federation: it checks, merges and sends back; it never sees a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from dplda.federated._merge import (
    FloatTable,
    TopWords,
    compose_model,
    merge_topics,
    redundant_topics,
)
from dplda.federated._messages import (
    MAX_BYTES,
    LocalModel,
    MessageError,
    NextModel,
    vocabulary_hash,
)

Message = LocalModel | bytes


class RoundError(RuntimeError):
    """Too few parties sent a valid model: the round was not made, and may be tried again."""


@dataclass(frozen=True)
class Refusal:
    """A message that did not enter a round.

    Attributes
    ----------
    party : str or None
        Who sent it, if that is known.
    reason : str
        What is wrong with it.
    """

    party: str | None
    reason: str


@dataclass(frozen=True)
class RoundRecord:
    """What happened in a round.

    Attributes
    ----------
    round : int
    parties : tuple of str
        Whose models were merged.
    remembered : tuple of str
        Absent parties whose last model was merged again.
    refused : tuple of Refusal
    n_topics : int
        Topics of the global model.
    bytes_received, bytes_sent : int
        Size of the messages that were merged, and of those that were made.
    """

    round: int
    parties: tuple[str, ...]
    remembered: tuple[str, ...]
    refused: tuple[Refusal, ...]
    n_topics: int
    bytes_received: int
    bytes_sent: int


class IFTMMaster:
    """Master of industrial federated topic modeling: merges models, composes next ones.

    In each round (Algorithm 5 of [1]_) it takes one `LocalModel` a party, merges similar topics
    into a global model (Algorithm 3), and composes for every party the model that its next round
    starts from (Algorithm 4). It needs no engine and knows of no network: messages go in and out.

    Parameters
    ----------
    vocabulary : sequence of str, or int
        The words of the columns, or only their number, agreed upon by all parties.
    similarity_threshold : float, default=0.3
        Least weighted Jaccard similarity, in (0, 1], at which two topics are the same (xi).
    n_top_words : int, default=30
        Most probable words of a topic that similarity compares (L).
    max_topics : int, default=1000
        A local model with more topics is refused.
    min_parties : int, default=1
        A round with fewer valid models is not made.
    max_age : int, default=1
        For how many rounds the last model of an absent party is still merged.
    max_weight : float or None, default=None
        Larger amounts of data are cut to this one: they are the parties' own statements, and a
        false one would outweigh all others.
    parties : sequence of str or None, default=None
        Names of the parties; messages of others are refused. None admits any name.

    Attributes
    ----------
    components_ : ndarray of shape (n_topics, n_words)
        Topics of the global model; rows sum to 1.
    topic_weights_ : ndarray of shape (n_topics,)
        Amount of data of the parties that share each topic.
    global_model_ : NextModel
        The same topics in single precision, as a message that can be sent or saved.
    next_models_ : dict of str to NextModel
        What each party is to start from.
    history_ : list of RoundRecord
        One record a round.
    refused_ : tuple of Refusal
        Messages refused by the last `update`, whether or not it made its round.
    round_ : int
        The round that is waited for, from 0.

    Notes
    -----
    **Privacy.** It reads releases only: all that it makes is post-processing, and costs nothing.
    Documents are disjoint among parties, so that the guarantee of a document is that of its own
    party (parallel composition). Merging is no protection: a party alone in its topics finds them
    in the global model unchanged.

    **Trust.** A message is either a valid table of probabilities or refused, and a refusal leaves
    the round of the others as it is. What a valid table says cannot be checked: a party may send
    invented topics, and they reach the others where they are similar to theirs.

    See Also
    --------
    run_rounds : All rounds in one process.

    References
    ----------
    .. [1] D. Jiang, Y. Tong, Y. Song, X. Wu, W. Zhao, J. Peng, R. Lian, Q. Xu, Q. Yang,
       "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021.

    Examples
    --------
    >>> from dplda.federated import IFTMMaster, LocalModel, vocabulary_hash
    >>> words = ["goal", "match", "vote", "party"]
    >>> def say(party, table):
    ...     return LocalModel(party=party, round=0, vocabulary=vocabulary_hash(words), table=table,
    ...                       weight=100, epsilon=4.0, delta=0.0, unit="token")
    >>> master = IFTMMaster(words, n_top_words=2)
    >>> next_models = master.update([
    ...     say("press", [[0.5, 0.5, 0, 0], [0, 0, 0.6, 0.4]]),
    ...     say("club", [[0.7, 0.3, 0, 0]]),
    ... ])
    >>> master.components_.round(2)
    array([[0.6, 0.4, 0. , 0. ],
           [0. , 0. , 0.6, 0.4]])
    >>> next_models["club"].table.round(2)
    array([[0.6, 0.4, 0. , 0. ]], dtype=float32)
    """

    def __init__(
        self,
        vocabulary: Sequence[str] | int,
        *,
        similarity_threshold: float = 0.3,
        n_top_words: int = 30,
        max_topics: int = 1000,
        min_parties: int = 1,
        max_age: int = 1,
        max_weight: float | None = None,
        parties: Sequence[str] | None = None,
    ) -> None:
        _check_real("similarity_threshold", similarity_threshold, 1.0)
        if max_weight is not None:
            _check_real("max_weight", max_weight, np.inf)
        for name, number, least in [
            ("n_top_words", n_top_words, 1),
            ("max_topics", max_topics, 1),
            ("min_parties", min_parties, 1),
            ("max_age", max_age, 0),
        ]:
            if not isinstance(number, Integral) or number < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {number!r}")
        if isinstance(parties, str):
            raise ValueError(f"parties must be a sequence of names, got {parties!r}")
        self.vocabulary_hash = vocabulary_hash(vocabulary)
        self.n_words = (
            int(vocabulary) if isinstance(vocabulary, (int, np.integer)) else len(vocabulary)
        )
        self.similarity_threshold = float(similarity_threshold)
        self.n_top_words = int(n_top_words)
        self.max_topics = int(max_topics)
        self.min_parties = int(min_parties)
        self.max_age = int(max_age)
        self.max_weight = max_weight
        self.parties = None if parties is None else tuple(parties)
        self.round_ = 0
        self.refused_: tuple[Refusal, ...] = ()
        self.history_: list[RoundRecord] = []
        self.next_models_: dict[str, NextModel] = {}
        self._latest: dict[str, LocalModel] = {}

    @property
    def max_bytes(self) -> int:
        """Bytes of the largest local model that this master reads."""
        return min(MAX_BYTES, 4 * self.max_topics * self.n_words + 8192)

    def update(
        self, local_models: Mapping[str, Message] | Iterable[Message]
    ) -> dict[str, NextModel]:
        """Make a round of the models that arrived.

        The order of the messages never changes the result.

        Parameters
        ----------
        local_models : mapping of str to LocalModel or bytes, or iterable of LocalModel or bytes
            The messages. The keys of a mapping say who sent a message, by the engine's
            authentication; a message that names another party is refused. Without them, all
            messages of a party that sent several are refused: nobody knows which is true.

        Returns
        -------
        next_models : dict of str to NextModel
            For each party whose model was merged.

        Raises
        ------
        RoundError
            When less than `min_parties` valid models arrived. Nothing has changed then but
            `refused_`, which says why.
        """
        models, refused = self._admit(local_models)
        self.refused_ = tuple(sorted(refused, key=lambda r: (r.party or "", r.reason)))
        if len(models) < self.min_parties:
            raise RoundError(
                f"round {self.round_} has {len(models)} valid models of at least "
                f"{self.min_parties}; {len(refused)} messages were refused (refused_ says why)"
            )
        latest = {
            party: model
            for party, model in self._latest.items()
            if self.round_ - model.round <= self.max_age
        }
        latest |= models
        latest = dict(sorted(latest.items()))
        table, weights = self._merge(list(latest.values()))
        next_models = {party: self._next(table, model.table) for party, model in latest.items()}
        self.history_.append(
            RoundRecord(
                round=self.round_,
                parties=tuple(sorted(models)),
                remembered=tuple(party for party in latest if party not in models),
                refused=self.refused_,
                n_topics=len(table),
                bytes_received=sum(len(model.to_bytes()) for model in models.values()),
                bytes_sent=sum(len(model.to_bytes()) for model in next_models.values()),
            )
        )
        self._latest = latest
        self.components_, self.topic_weights_ = table, weights
        self.global_model_ = self._message(table)
        self.next_models_ = next_models
        self.round_ += 1
        return dict(next_models)

    def forget(self, party: str) -> None:
        """Leave out the last model of a party that has gone for good."""
        self._latest.pop(party, None)
        self.next_models_.pop(party, None)

    def _admit(self, messages: Any) -> tuple[dict[str, LocalModel], list[Refusal]]:
        """Valid models by party, and what is wrong with the others."""
        pairs = messages.items() if isinstance(messages, Mapping) else [(None, m) for m in messages]
        accepted: list[LocalModel] = []
        refused: list[Refusal] = []
        for sender, message in pairs:
            try:
                accepted.append(self._check(sender, message))
            except MessageError as error:
                named = getattr(message, "party", None)
                party = sender or (named if isinstance(named, str) else None)
                refused.append(Refusal(party, str(error)))
        names = [model.party for model in accepted]
        twice = {name for name in names if names.count(name) > 1}
        for name in twice:
            refused.append(Refusal(name, "several messages came in the name of this party"))
        return {model.party: model for model in accepted if model.party not in twice}, refused

    def _check(self, sender: str | None, message: Message) -> LocalModel:
        if isinstance(message, (bytes, bytearray, memoryview)):
            model = LocalModel.from_bytes(bytes(message), max_bytes=self.max_bytes)
        elif isinstance(message, LocalModel):
            model = message
        else:
            raise MessageError(f"expected a LocalModel or its bytes, got {type(message).__name__}")
        if sender is not None and model.party != sender:
            raise MessageError("the message names another party than the one that sent it")
        if self.parties is not None and model.party not in self.parties:
            raise MessageError("this party is not a member of the federation")
        if model.round != self.round_:
            raise MessageError(f"it is for round {model.round}, and round {self.round_} is running")
        if model.vocabulary != self.vocabulary_hash or model.n_words != self.n_words:
            raise MessageError(
                f"its vocabulary of {model.n_words} words is not that of the federation, "
                f"{self.n_words} words; vectorize with the same words in the same order"
            )
        if model.n_topics > self.max_topics:
            raise MessageError(
                f"it has {model.n_topics} topics, at most {self.max_topics} are read"
            )
        return model

    def _merge(self, models: list[LocalModel]) -> tuple[FloatTable, FloatTable]:
        table = np.concatenate([model.table for model in models]).astype(np.float64)
        largest = np.inf if self.max_weight is None else self.max_weight
        weights = np.repeat(
            [min(model.weight, largest) for model in models], [model.n_topics for model in models]
        )
        top_words = TopWords.of(table, self.n_top_words)
        labels = redundant_topics(top_words, self.similarity_threshold)
        return merge_topics(table, weights, labels)

    def _next(self, global_table: FloatTable, table: Any) -> NextModel:
        composed = compose_model(
            global_table,
            table,
            similarity_threshold=self.similarity_threshold,
            n_top_words=self.n_top_words,
        )
        return self._message(composed, self.round_ + 1)

    def _message(self, table: FloatTable, round: int | None = None) -> NextModel:
        round = self.round_ if round is None else round
        table32 = table.astype(np.float32)
        return NextModel(round=round, vocabulary=self.vocabulary_hash, table=table32)


def _check_real(name: str, value: Any, most: float) -> None:
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (is_number and 0 < value <= most):
        raise ValueError(f"{name} must be a number above 0 and at most {most:g}, got {value!r}")
