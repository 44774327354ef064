"""The master of a federation: it checks, merges and answers. It never sees a document."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dplda.core._private_fit import COLUMNS, TRUSTED_PARTY
from dplda.federated._merge import TopWords, compose_model, merge_topics, redundant_topics
from dplda.federated._messages import (
    MAX_BYTES,
    MAX_OVERHEAD,
    LocalModel,
    MessageError,
    NextModel,
    vocabulary_hash,
    vocabulary_size,
)
from dplda.leaf._checks import check_integer, check_number
from dplda.privacy import ApproximateDP, Guarantee, NonPrivate
from dplda.release._container import pack, unpack
from dplda.release._released_model import ReleasedModel

LARGEST = 2**31 - 1
LEAST_PROBABILITY = 1e-9  # of a word in a topic of the released model
STATE, MAX_HEADER = "dplda-master", 2**24
Message = LocalModel | bytes


class RoundError(RuntimeError):
    """Too few parties sent a valid model. The round did not happen and may be repeated."""


class Refusal(NamedTuple):
    """A message that did not enter a round: its sender, if that is known, and what is wrong."""

    party: str | None
    reason: str


class RoundRecord(NamedTuple):
    """Record of a round."""

    round: int  # from 0
    parties: tuple[str, ...]  # whose models were merged
    remembered: tuple[str, ...]  # absent parties, whose last model was merged again
    refused: tuple[Refusal, ...]
    n_topics: int  # of the global model
    bytes_received: int  # size of the messages that were merged
    bytes_sent: int  # size of the messages that were made


class IFTMMaster:
    """Master of industrial federated topic modeling: it merges models and composes next ones.

    In each round (Algorithm 5 of [1]_) it takes one `LocalModel` per party, merges similar topics
    of different parties into a global model (after Algorithm 3), and composes for every party the
    model that its next round starts from (Algorithm 4). It needs no network: messages go in and
    out.

    Parameters
    ----------
    vocabulary : sequence of str, or int
        The words of the columns, or only their number. All parties must agree on them.
    similarity_threshold : float, default=0.3
        Two topics of at least this weighted Jaccard similarity, in (0, 1], are the same (xi).
    n_top_words : int, default=30
        Number of most probable words of a topic that the similarity compares (L).
    max_topics : int, default=1000
        Most topics of all local models of a round together; merging takes memory for the square of
        their number. If there are more, the models with the most topics are refused.
    min_parties : int, default=1
        A round needs at least this many valid models.
    max_age : int, default=1
        Number of rounds for which the last model of an absent party is still merged.
    max_weight : float or None, default=None
        Larger weights are clipped to this value. The parties state their own weights, and a false
        weight could outweigh all others.
    parties : sequence of str or None, default=None
        Names of the parties; messages with other names are refused. None admits any name.

    Attributes
    ----------
    components_ : ndarray of shape (n_topics, n_words)
        Topics of the global model; rows sum to 1.
    topic_weights_ : ndarray of shape (n_topics,)
        Sum of the weights of the merged topics.
    global_model_ : NextModel
        The same topics in single precision, as a message that can be sent or saved.
    next_models_ : dict of str to NextModel
        The model that each party starts its next round from.
    history_ : list of tuple
        A named tuple for each round: `round`, `parties`, `remembered` (absent parties whose last
        model was merged again), `refused`, `n_topics`, `bytes_received`, `bytes_sent`.
    refused_ : tuple of tuple
        Messages refused by the last `update`, even if it raised RoundError: named tuples of `party`
        (None if it is unknown) and `reason`.
    round_ : int
        The round that the master waits for, from 0.
    n_words, vocabulary_hash : int and str
        Size and `vocabulary_hash` of `vocabulary`.

    Notes
    -----
    **Privacy.** The master reads releases only. Everything that it computes is post-processing and
    has no privacy cost. If parties hold disjoint documents, parallel composition applies: the
    federation satisfies the largest of their epsilons. Merging protects nothing: topics of one
    party that match no other topic are in the global model unchanged.

    **Trust.** A message is a valid table of probabilities or it is refused, and a refusal does not
    change the round of the others. The content of a valid table cannot be checked: invented topics
    reach the other parties where they are similar to theirs. At most one topic of a party is in a
    merged topic, so that mixtures of topics cannot join all of them.

    References
    ----------
    .. [1] D. Jiang, Y. Tong, Y. Song, X. Wu, W. Zhao, J. Peng, R. Lian, Q. Xu, Q. Yang,
       "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021.

    Examples
    --------
    >>> from dplda.federated import IFTMMaster, LocalModel, vocabulary_hash
    >>> words = ["goal", "match", "vote", "party"]
    >>> def message(party, table):
    ...     return LocalModel(party=party, round=0, vocabulary=vocabulary_hash(words), table=table,
    ...                       weight=100, epsilon=4.0, delta=0.0, unit="token")
    >>> master = IFTMMaster(words, n_top_words=2)
    >>> next_models = master.update([
    ...     message("press", [[0.5, 0.5, 0, 0], [0, 0, 0.6, 0.4]]),
    ...     message("club", [[0.7, 0.3, 0, 0]]),
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
        if isinstance(parties, str):
            raise ValueError(f"parties must be a sequence of names, got {parties!r}")
        self.vocabulary_hash = vocabulary_hash(vocabulary)
        self.n_words = vocabulary_size(vocabulary)
        self._words = None if isinstance(vocabulary, (int, np.integer)) else list(vocabulary)
        self.similarity_threshold = check_number(
            "similarity_threshold", similarity_threshold, 0, 1, closed="right"
        )
        self.n_top_words = check_integer("n_top_words", n_top_words, 1, LARGEST)
        self.max_topics = check_integer("max_topics", max_topics, 1, LARGEST)
        self.min_parties = check_integer("min_parties", min_parties, 1, LARGEST)
        self.max_age = check_integer("max_age", max_age, 0, LARGEST)
        most = math.inf if max_weight is None else max_weight
        self.max_weight = check_number("max_weight", most, 0, math.inf, closed="right")
        self.parties = None if parties is None else tuple(parties)
        self.round_ = 0
        self.refused_: tuple[Refusal, ...] = ()
        self.history_: list[RoundRecord] = []
        self.next_models_: dict[str, NextModel] = {}
        self._latest: dict[str, LocalModel] = {}
        # Epsilon and delta that each party stated, by party and unit: of all that were ever merged.
        self._stated: dict[tuple[str, str], tuple[float, float]] = {}

    @property
    def max_bytes(self) -> int:
        """Size in bytes of the largest local model that this master reads."""
        return min(MAX_BYTES, 4 * self.max_topics * self.n_words + MAX_OVERHEAD)

    def request(self, party: str) -> NextModel:
        """The message to a party that starts its next round.

        Parameters
        ----------
        party : str
            Name of the party.

        Returns
        -------
        message : NextModel
            The model of `next_models_`, or one without topics for a party that has none there.
        """
        empty = np.zeros((0, self.n_words))
        return self.next_models_.get(party) or self._message(empty, self.round_)

    def update(
        self, local_models: Mapping[str, Message] | Iterable[Message]
    ) -> dict[str, NextModel]:
        """Make a round from the models that arrived.

        The order of the messages does not change the result.

        Parameters
        ----------
        local_models : mapping of str to LocalModel or bytes, or iterable of LocalModel or bytes
            The messages. The keys of a mapping are the senders, which the network has
            authenticated; a message that names another party is refused. Without keys, all messages
            of a party that sent several are refused, because it is unknown which one is genuine.

        Returns
        -------
        next_models : dict of str to NextModel
            The next model of each party whose model was merged.

        Raises
        ------
        RoundError
            If fewer than `min_parties` valid models arrived. Only `refused_` changes then; it holds
            the reasons.
        """
        models, refused = self._admit(local_models)
        latest = self._remembered() | models
        for party in self._excess(latest, models):
            del latest[party]
            if models.pop(party, None):
                refused.append(Refusal(party, f"more than {self.max_topics} topics came in total"))
        self.refused_ = tuple(sorted(refused, key=lambda r: (r.party or "", r.reason)))
        if len(models) < self.min_parties:
            raise RoundError(
                f"round {self.round_} has {len(models)} valid models of at least "
                f"{self.min_parties}; {len(refused)} messages were refused (see refused_)"
                + (f", the first because {self.refused_[0].reason}" if refused else "")
            )
        self._make_round(latest)
        for model in models.values():
            epsilon, delta = self._stated.get((model.party, model.unit), (0.0, 0.0))
            largest = max(epsilon, model.epsilon), max(delta, model.delta)
            self._stated[model.party, model.unit] = largest
        self.history_.append(
            RoundRecord(
                round=self.round_ - 1,
                parties=tuple(sorted(models)),
                remembered=tuple(party for party in self._latest if party not in models),
                refused=self.refused_,
                n_topics=len(self.components_),
                bytes_received=sum(len(model.to_bytes()) for model in models.values()),
                bytes_sent=sum(len(model.to_bytes()) for model in self.next_models_.values()),
            )
        )
        return dict(self.next_models_)

    def _remembered(self) -> dict[str, LocalModel]:
        """The last models of parties that have not been absent for too long."""
        return {
            party: model
            for party, model in self._latest.items()
            if self.round_ - model.round <= self.max_age
        }

    def released_model(self, *, doc_topic_prior: float = 0.1) -> ReleasedModel:
        """The global model as an ordinary released model, which `save_release` writes.

        Parameters
        ----------
        doc_topic_prior : float, default=0.1
            Dirichlet parameter of a document's topics, for `transform` and `score`.

        Returns
        -------
        model : ReleasedModel
            Its `components_` are the topics of the global model times their weights (at least 1).
            No word has a probability below 1e-9 in a topic, so that any document can be scored. Its
            `n_iter_` is the number of rounds.

        Raises
        ------
        ValueError
            If no round was made.

        Notes
        -----
        **Privacy.** Post-processing of releases. `privacy_` states the largest epsilon and the
        largest delta that a party has stated in any round. Nobody but the party can check its
        statement. The unit is that of the parties, or a list if they protect different ones.
        """
        if not self.round_:
            raise ValueError("the master has made no round, and has no global model yet")
        parameters = ("similarity_threshold", "n_top_words", "max_age", "max_weight")
        weights = np.maximum(self.topic_weights_, 1.0)
        return ReleasedModel._of(
            np.maximum(self.components_, LEAST_PROBABILITY) * weights[:, None],
            _stated_guarantee(self._stated),
            doc_topic_prior=doc_topic_prior,
            vocabulary=self._words,
            n_iter_=self.round_,
            estimator_name_=type(self).__name__,
            parameters_={name: getattr(self, name) for name in parameters}
            | {"doc_topic_prior": doc_topic_prior},
        )

    def state(self) -> bytes:
        """What a master of another process needs to continue after the last round.

        Returns
        -------
        state : bytes
            A safetensors file with the number of the round, the local models that were merged last,
            and what each party has stated to have spent: releases only.
        """
        content = {"round": self.round_, "vocabulary": self.vocabulary_hash}
        content["stated"] = [[*key, *value] for key, value in sorted(self._stated.items())]
        models = enumerate(self._latest.values())
        tables = {str(i): np.frombuffer(model.to_bytes(), np.uint8) for i, model in models}
        return pack(STATE, content, tables, max_header=MAX_HEADER)

    def restore(self, state: bytes) -> None:
        """Continue where the master that returned a state was.

        The global model and the next models are computed from the stored local models, by the
        parameters of this object. `history_` holds the rounds that this object makes.

        Parameters
        ----------
        state : bytes
            What `state` returned.

        Raises
        ------
        ValueError
            If the data are something else, or belong to a federation with other words.
        """
        try:
            content, tables = unpack(STATE, state, max_header=MAX_HEADER)
        except ValueError as error:
            raise ValueError(f"the data are no state of a master: {error}") from error
        models = [LocalModel.from_bytes(table.tobytes()) for table in tables.values()]
        if content["vocabulary"] != self.vocabulary_hash:
            raise ValueError("the state belongs to a federation with another vocabulary")
        if not models:
            raise ValueError("the state is that of a master that has made no round")
        self.round_ = content["round"] - 1
        self._make_round({model.party: model for model in models})
        self._stated = {(party, unit): (e, d) for party, unit, e, d in content["stated"]}

    def _make_round(self, latest: Mapping[str, LocalModel]) -> None:
        """Merge, compose, and go to the next round."""
        latest = dict(sorted(latest.items()))
        models = list(latest.values())
        table = np.concatenate([model.table for model in models]).astype(np.float64)
        n_topics = [model.n_topics for model in models]
        weights = np.repeat([min(model.weight, self.max_weight) for model in models], n_topics)
        labels = redundant_topics(
            TopWords.from_table(table, self.n_top_words),
            self.similarity_threshold,
            np.repeat(np.arange(len(models)), n_topics),
        )
        table, weights = merge_topics(table, weights, labels)
        words = TopWords.from_table(table, self.n_top_words)
        self.next_models_ = {
            party: self._message(
                compose_model(table, model.table, self.similarity_threshold, words), self.round_ + 1
            )
            for party, model in latest.items()
        }
        self._latest = latest
        self.components_, self.topic_weights_ = table, weights
        self.global_model_ = self._message(table, self.round_)
        self.round_ += 1

    def _mergeable(self, models: Mapping[str, LocalModel]) -> set[str]:
        """Parties whose checked models a round of these would merge."""
        return {*models} - {*self._excess({**self._remembered(), **models}, models)}

    def _excess(self, latest: Mapping[str, LocalModel], arrived: Container[str]) -> list[str]:
        """Parties to leave out, so that the others have `max_topics` topics at most.

        Absent parties first, then those with the most topics: nobody crowds out the others.
        """
        order = sorted(latest, key=lambda name: (name in arrived, -latest[name].n_topics, name))
        total, excess = sum(model.n_topics for model in latest.values()), []
        for party in order:
            if total > self.max_topics:
                total -= latest[party].n_topics
                excess.append(party)
        return excess

    def _admit(self, messages: Any) -> tuple[dict[str, LocalModel], list[Refusal]]:
        """Valid models by party, and a refusal for each other message."""
        pairs = messages.items() if isinstance(messages, Mapping) else [(None, m) for m in messages]
        accepted: list[LocalModel] = []
        refused: list[Refusal] = []
        for sender, message in pairs:
            try:
                accepted.append(self._check(sender, message))
            except MessageError as error:
                name = getattr(message, "party", None)
                party = sender or (name if isinstance(name, str) else None)
                refused.append(Refusal(party, str(error)))
        names = [model.party for model in accepted]
        twice = {name for name in names if names.count(name) > 1}
        for name in twice:
            refused.append(Refusal(name, "several messages came in the name of this party"))
        return {model.party: model for model in accepted if model.party not in twice}, refused

    def _check(self, sender: str | None, message: Message) -> LocalModel:
        """The model in a message for the present round; MessageError if `update` refuses it."""
        if isinstance(message, (bytes, bytearray)):
            model = LocalModel.from_bytes(message, max_bytes=self.max_bytes)
        elif isinstance(message, LocalModel):
            model = message
        else:
            raise MessageError(f"expected a LocalModel or its bytes, got {type(message).__name__}")
        reasons = {
            "the message names another party than the one that sent it":
                sender not in (None, model.party),
            "this party is not a member of the federation":
                self.parties is not None and model.party not in self.parties,
            f"it is for round {model.round}, and round {self.round_} is running":
                model.round != self.round_,
            f"its vocabulary of {model.n_words} words is not that of the federation, {self.n_words}"
            " words; vectorize with the same words in the same order":
                (model.vocabulary, model.n_words) != (self.vocabulary_hash, self.n_words),
            f"it has {model.n_topics} topics, at most {self.max_topics} are read":
                model.n_topics > self.max_topics,
            f"it protects one {model.unit}, and the party has stated before what another unit pays,"
            " which says nothing of this one; protect the same unit in all rounds":
                any(p == model.party and unit != model.unit for p, unit in self._stated),
        }  # fmt: skip
        for reason, is_true in reasons.items():
            if is_true:
                raise MessageError(reason)
        return model

    def _message(self, table: Any, round_number: int) -> NextModel:
        return NextModel(round=round_number, vocabulary=self.vocabulary_hash, table=table)


def _stated_guarantee(stated: Mapping[tuple[str, str], tuple[float, float]]) -> Guarantee:
    """The guarantee of what was computed from messages: what parties state, by party and unit.

    Each unit is with one party. If it changes, the messages of that party change as its own
    guarantee allows, and all else is post-processing: the largest epsilon holds at the largest
    delta. What a party states for one unit says nothing of another unit.
    """
    epsilon, delta = (max(values) for values in zip(*stated.values()))
    units = " or ".join(sorted({unit for _, unit in stated}))
    one_unit_each = len({party for party, _ in stated}) == len(stated)
    if not (epsilon < math.inf and delta < 1.0 and one_unit_each):
        epsilon, delta = math.inf, 0.0
    return Guarantee(
        unit=units,
        relation=f"one {units} of one party differs, in the sense of that party's own guarantee",
        epsilon=epsilon,
        delta=delta,
        mechanism="topics merged from the messages of parties, which made them private themselves",
        sensitivity=math.inf,
        noise_scale=None,
        noise_multiplier=None,
        seeded=False,
        assumptions=(
            COLUMNS,
            f"each {units} is with one party (of what is with several parties the costs add up)",
            *(
                f"the statement of party {party!r}, which nobody else can check, is true: epsilon "
                f"{own:.6g} at delta {at:g} for one {unit}"
                for (party, unit), (own, at) in sorted(stated.items())
            ),
        ),
        events=(ApproximateDP(epsilon, delta) if epsilon < math.inf else NonPrivate(),),
        trusted=TRUSTED_PARTY,
        theorem="docs/federated.md",
    )
