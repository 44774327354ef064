"""The master of a federation: it checks, merges and answers. It never sees a document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

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
)
from dplda.leaf._checks import check_integer, check_number
from dplda.privacy import ApproximateDP, Guarantee, NonPrivate
from dplda.release._released_model import ReleasedModel

LARGEST = 2**31 - 1  # of a number of topics, words or parties
LEAST_PROBABILITY = 1e-9  # of a word in a topic of the released model: any document has a score
Message = LocalModel | bytes


class RoundError(RuntimeError):
    """Too few parties sent a valid model. The round did not happen and may be repeated."""


class IFTMMaster:
    """Master of industrial federated topic modeling: it merges models and composes next ones.

    In each round (Algorithm 5 of [1]_) it takes one `LocalModel` per party, merges similar topics
    of different parties into a global model (after Algorithm 3), and composes for every party the
    model that its next round starts from (Algorithm 4). It needs no network: messages go in and
    out.

    Parameters
    ----------
    vocabulary : sequence of str
        The public words of the columns. All parties must agree on them.
    similarity_threshold : float, default=0.3
        Two topics of at least this weighted Jaccard similarity, in (0, 1], are the same (xi).
    n_top_words : int, default=30
        Number of most probable words of a topic that the similarity compares (L).
    max_topics : int, default=200
        Most topics of a local model; one with more is refused. Merging takes memory for the square
        of the number of topics of all parties.
    min_parties : int, default=1
        A round needs at least this many valid models.
    max_weight : float or None, default=None
        Larger weights are clipped to this value. The parties state their own weights, and a false
        weight could outweigh all others.

    Attributes
    ----------
    components_ : ndarray of shape (n_topics, n_words)
        Topics of the global model; rows sum to 1.
    topic_weights_ : ndarray of shape (n_topics,)
        Sum of the weights of the merged topics.
    next_models_ : dict of str to NextModel
        The model that each party of the last round starts its next round from.
    refused_ : dict of str to str
        Why the last `update` refused a party's message, even if it raised RoundError.
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
    >>> next_models = master.update({
    ...     "press": message("press", [[0.5, 0.5, 0, 0], [0, 0, 0.6, 0.4]]),
    ...     "club": message("club", [[0.7, 0.3, 0, 0]]),
    ... })
    >>> master.components_.round(2)
    array([[0.6, 0.4, 0. , 0. ],
           [0. , 0. , 0.6, 0.4]])
    >>> next_models["club"].table.round(2)
    array([[0.6, 0.4, 0. , 0. ]], dtype=float32)
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        similarity_threshold: float = 0.3,
        n_top_words: int = 30,
        max_topics: int = 200,
        min_parties: int = 1,
        max_weight: float | None = None,
    ) -> None:
        self.vocabulary_hash = vocabulary_hash(vocabulary)
        self._words = [str(word) for word in vocabulary]
        self.n_words = len(self._words)
        self.similarity_threshold = check_number(
            "similarity_threshold", similarity_threshold, 0, 1, closed="right"
        )
        self.n_top_words = check_integer("n_top_words", n_top_words, 1, LARGEST)
        self.max_topics = check_integer("max_topics", max_topics, 1, LARGEST)
        self.min_parties = check_integer("min_parties", min_parties, 1, LARGEST)
        most = math.inf if max_weight is None else max_weight
        self.max_weight = check_number("max_weight", most, 0, math.inf, closed="right")
        self.round_ = 0
        self.refused_: dict[str, str] = {}
        self.next_models_: dict[str, NextModel] = {}
        # Unit, epsilon and delta that each party stated: the largest of all that were ever merged.
        self._stated: dict[str, tuple[str, float, float]] = {}

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
        return self.next_models_.get(party) or self._message(empty)

    def update(self, local_models: Mapping[str, Message]) -> dict[str, NextModel]:
        """Make a round from the models that arrived.

        The order of the messages does not change the result.

        Parameters
        ----------
        local_models : mapping of str to LocalModel or bytes
            The messages by their senders, which the network has authenticated; a message that names
            another party is refused.

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
        if not isinstance(local_models, Mapping):
            raise TypeError(
                "local_models must be a mapping of names to messages, got "
                f"{type(local_models).__name__}"
            )
        models, self.refused_ = {}, {}
        for party in sorted(local_models, key=str):
            try:
                models[party] = self._check(party, local_models[party])
            except MessageError as error:
                self.refused_[party] = str(error)
        if len(models) < self.min_parties:
            raise RoundError(
                f"round {self.round_} has {len(models)} valid models of at least "
                f"{self.min_parties}"
                + "".join(f"; {name} was refused: {why}" for name, why in self.refused_.items())
            )
        table = np.concatenate([model.table for model in models.values()]).astype(np.float64)
        n_topics = [model.n_topics for model in models.values()]
        weights = [min(model.weight, self.max_weight) for model in models.values()]
        labels = redundant_topics(
            TopWords.from_table(table, self.n_top_words),
            self.similarity_threshold,
            np.repeat(np.arange(len(models)), n_topics),
        )
        table, self.topic_weights_ = merge_topics(table, np.repeat(weights, n_topics), labels)
        words = TopWords.from_table(table, self.n_top_words)
        self.components_, self.next_models_ = table, {}
        self.round_ += 1
        for party, model in models.items():
            own = model.table.astype(np.float64)
            composed = compose_model(table, own, self.similarity_threshold, words)
            self.next_models_[party] = self._message(composed)
            _, epsilon, delta = self._stated.get(party, (model.unit, 0.0, 0.0))
            self._stated[party] = model.unit, max(epsilon, model.epsilon), max(delta, model.delta)
        return dict(self.next_models_)

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
        parameters = ("similarity_threshold", "n_top_words", "max_weight")
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

    def _check(self, sender: str, message: Message) -> LocalModel:
        """The model in a message for the present round; MessageError if `update` refuses it."""
        if isinstance(message, (bytes, bytearray)):
            model = LocalModel.from_bytes(message, max_bytes=self.max_bytes)
        elif isinstance(message, LocalModel):
            model = message
        else:
            raise MessageError(f"expected a LocalModel or its bytes, got {type(message).__name__}")
        reasons = {
            "the message names another party than the one that sent it":
                model.party != sender,
            f"it is for round {model.round}, and round {self.round_} is running":
                model.round != self.round_,
            f"its vocabulary of {model.n_words} words is not that of the federation, {self.n_words}"
            " words; vectorize with the same words in the same order":
                (model.vocabulary, model.n_words) != (self.vocabulary_hash, self.n_words),
            f"it has {model.n_topics} topics, at most {self.max_topics} are read":
                model.n_topics > self.max_topics,
            f"it protects one {model.unit}, and the party has stated before what another unit pays,"
            " which says nothing of this one; protect the same unit in all rounds":
                self._stated.get(model.party, (model.unit,))[0] != model.unit,
        }  # fmt: skip
        for reason, is_true in reasons.items():
            if is_true:
                raise MessageError(reason)
        return model

    def _message(self, table: Any) -> NextModel:
        return NextModel(round=self.round_, vocabulary=self.vocabulary_hash, table=table)


def _stated_guarantee(stated: Mapping[str, tuple[str, float, float]]) -> Guarantee:
    """The guarantee of what was computed from messages: unit and costs that each party states.

    Each unit is with one party. If it changes, the messages of that party change as its own
    guarantee allows, and all else is post-processing: the largest epsilon holds at the largest
    delta.
    """
    each, epsilons, deltas = zip(*stated.values())
    units, epsilon, delta = " or ".join(sorted({*each})), max(epsilons), max(deltas)
    if not (epsilon < math.inf and delta < 1.0):
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
                for party, (unit, own, at) in sorted(stated.items())
            ),
        ),
        events=(ApproximateDP(epsilon, delta) if epsilon < math.inf else NonPrivate(),),
        trusted=TRUSTED_PARTY,
        theorem="docs/federated.md",
    )
