"""The rounds of iFTM: the master, a party's answers, and all in one process.

The master checks, merges and answers. It never sees a document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dplda.core._corpus import Matrix
from dplda.core._fit_guarantee import COLUMNS
from dplda.core._private_estimator import TRUSTED_PARTY
from dplda.core._signal import shown
from dplda.federated._messages import (
    LocalModel,
    MessageError,
    NextModel,
    message_of,
    most_bytes,
    vocabulary_hash,
)
from dplda.federated._party import IFTMParty
from dplda.leaf._checks import LARGEST_DELTA, check_integer, check_number
from dplda.leaf._messages import warn_user
from dplda.privacy import ApproximateDP, Guarantee, NonPrivate
from dplda.privacy._events import Event
from dplda.release._container import MAX_BYTES
from dplda.release._released_model import ReleasedModel, released_model

FloatTable = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


class RoundError(RuntimeError):
    """Too few parties sent a valid model.

    The round did not happen and may be repeated.
    """


class Stated(NamedTuple):
    """The statement of a party: its unit, and its largest costs over all rounds."""

    unit: str
    epsilon: float
    delta: float
    seeded: bool  # whether some noise came from a given seed


class IFTMMaster:
    """Master of industrial federated topic modeling: merges and composes models.

    In each round (Algorithm 5 of [1]_) it takes one `LocalModel` per party, merges
    similar topics of different parties into a global model, and composes for every
    party the model that its next round starts from. It handles messages as values, and
    needs no network.

    Parameters
    ----------
    vocabulary : sequence of str
        The public words of the columns. All parties must agree on them.
    similarity_threshold : float, default=0.3
        Two topics of at least this weighted Jaccard similarity, in (0, 1], are the same
        (xi).
    n_top_words : int, default=30
        Number of most probable words of a topic that the similarity compares (L).
    max_topics : int, default=200
        Most topics of a local model. Merging needs memory in proportion to the squared
        number of topics of all parties.
    min_parties : int, default=1
        A round needs at least this many valid models.
    max_weight : float, default=inf
        Larger weights are clipped to this value, because a false weight could outweigh
        all others.

    Attributes
    ----------
    components_ : ndarray of shape (n_topics, n_words)
        Topics of the global model; rows sum to 1.
    topic_weights_ : ndarray of shape (n_topics,)
        Sum of the weights of the merged topics.
    topic_evidence_, weak_topics_ : ndarray of shape (n_topics,)
        Which topics to read, as in :class:`dplda.SubLDA`: the weighted mean of the
        parties' evidence of the merged topics, divided by its standard deviation. A
        topic that a party did not test counts as 0; NaN if no party has tested it.
    next_models_ : dict of str to NextModel
        The model that each party of the last round starts its next round from.
    refused_ : dict of str to str
        Why the last `update` refused each party's message, also if it raised
        RoundError.
    round_ : int
        The round that the master waits for, from 0.
    n_words, vocabulary_hash : int and str
        Size and `vocabulary_hash` of `vocabulary`.

    Notes
    -----
    **Privacy.** The master reads releases only, and all that it computes is
    post-processing. If parties hold disjoint documents, the federation satisfies the
    largest of their epsilons. The content of a valid message cannot be checked. A
    merged topic has at most one topic of each party, so mixtures of topics cannot join
    all of them.

    References
    ----------
    .. [1] D. Jiang et al., "Industrial Federated Topic Modeling", ACM TIST 12(1), 2021.

    Examples
    --------
    >>> from dplda.federated import IFTMMaster, LocalModel
    >>> master = IFTMMaster(["goal", "match", "vote", "party"], n_top_words=2)
    >>> tables = {
    ...     "press": [[0.5, 0.5, 0, 0], [0, 0, 0.6, 0.4]],
    ...     "club": [[0.7, 0.3, 0, 0]],
    ... }
    >>> master.update({
    ...     party: LocalModel(
    ...         0, master.vocabulary_hash, table, party, 100, 4.0, 0.0, "token"
    ...     )
    ...     for party, table in tables.items()
    ... })
    >>> master.components_.round(2)
    array([[0.6, 0.4, 0. , 0. ],
           [0. , 0. , 0.6, 0.4]])
    >>> master.next_models_["club"].table.round(2)
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
        max_weight: float = math.inf,
    ) -> None:
        self.vocabulary_hash = vocabulary_hash(vocabulary)
        self._words = [str(word) for word in vocabulary]
        self.n_words = len(self._words)
        self.similarity_threshold = check_number(
            "similarity_threshold", similarity_threshold, 0, 1, closed="right"
        )
        self.n_top_words = check_integer("n_top_words", n_top_words, 1)
        self.max_topics = check_integer("max_topics", max_topics, 1)
        self.min_parties = check_integer("min_parties", min_parties, 1)
        self.max_weight = check_number(
            "max_weight", max_weight, 0, math.inf, closed="right"
        )
        self.round_ = 0
        self.refused_: dict[str, str] = {}
        self.next_models_: dict[str, NextModel] = {}
        self._stated: dict[str, Stated] = {}

    @property
    def max_bytes(self) -> int:
        """Size in bytes of the largest local model that this master reads."""
        return most_bytes(self.max_topics, self.n_words)

    def request(self, party: str) -> NextModel:
        """The message that starts a party's next round.

        Parameters
        ----------
        party : str
            Name of the party.

        Returns
        -------
        message : NextModel
            The party's model in `next_models_`; a model without topics if there is
            none.
        """
        if party in self.next_models_:
            return self.next_models_[party]
        return self._message(np.zeros((0, self.n_words)))

    def update(self, local_models: Mapping[str, LocalModel | bytes]) -> None:
        """Run a round on the models that arrived, in any order.

        Parameters
        ----------
        local_models : mapping of str to LocalModel or bytes
            The messages by their senders. The network has authenticated the senders; a
            message that names another party is refused.

        Raises
        ------
        RoundError
            If fewer than `min_parties` valid models arrived. Then only `refused_`
            changes.
        """
        if not isinstance(local_models, Mapping) or not all(
            isinstance(party, str) for party in local_models
        ):
            raise TypeError(
                "local_models must be a mapping of names to messages, got "
                f"{type(local_models).__name__}"
            )
        models = self._valid_models(local_models)
        tables = [model.table.astype(np.float64) for model in models.values()]
        n_topics = [len(table) for table in tables]
        weights = [min(model.weight, self.max_weight) for model in models.values()]
        all_topics = np.concatenate(tables)
        labels = redundant_topics(
            TopWords.from_table(all_topics, self.n_top_words),
            self.similarity_threshold,
            np.repeat(np.arange(len(models)), n_topics),
        )
        merged, self.topic_weights_ = merge_topics(
            all_topics, np.repeat(weights, n_topics), labels
        )
        evidence = [np.asarray(model.evidence, float) for model in models.values()]
        self.topic_evidence_ = merge_evidence(
            np.concatenate(evidence), np.repeat(weights, n_topics), labels
        )
        self.weak_topics_ = ~shown(self.topic_evidence_)
        words = TopWords.from_table(merged, self.n_top_words)
        self.components_ = merged
        self.next_models_ = {}
        self.round_ += 1
        for (party, model), table in zip(models.items(), tables):
            composed = compose_model(merged, table, self.similarity_threshold, words)
            self.next_models_[party] = self._message(composed)
            before = self._stated.get(party, Stated(model.unit, 0.0, 0.0, False))
            self._stated[party] = Stated(
                model.unit,
                max(before.epsilon, model.epsilon),
                max(before.delta, model.delta),
                before.seeded or model.seeded,
            )

    def _valid_models(
        self, local_models: Mapping[str, LocalModel | bytes]
    ) -> dict[str, LocalModel]:
        """The models of a round by party; RoundError if there are too few."""
        models = {}
        self.refused_ = {}
        for party in sorted(local_models):
            try:
                models[party] = self._check(party, local_models[party])
            except MessageError as error:
                self.refused_[party] = str(error)
        if len(models) < self.min_parties:
            facts = [
                f"round {self.round_} has {len(models)} valid models of at least "
                f"{self.min_parties}"
            ]
            for name, why in self.refused_.items():
                facts.append(f"{name} was refused: {why}")
            raise RoundError("; ".join(facts))
        return models

    def released_model(self) -> ReleasedModel:
        """The global model as an ordinary released model, which `save_release` writes.

        Returns
        -------
        model : ReleasedModel
            Its `components_` are the topics of the global model times their weights (at
            least 1), plus one token of each topic that is spread over all words: any
            document can be scored. Its `n_iter_` is the number of rounds, and its
            `doc_topic_prior` is taken from `IFTMParty`.

        Raises
        ------
        ValueError
            If no round was made.

        Notes
        -----
        **Privacy.** Post-processing of releases. `privacy_` states the largest epsilon
        and the largest delta that a party has stated in any round; nobody else can
        check them. The unit is the one of the parties, or a list if they protect
        different units.
        """
        if not self.round_:
            raise ValueError(
                "the master has made no round, and has no global model yet"
            )
        weights = np.maximum(self.topic_weights_, 1.0)
        doc_topic_prior = IFTMParty().doc_topic_prior  # type: ignore[no-untyped-call]
        return released_model(
            self.components_ * weights[:, None] + 1.0 / self.n_words,
            _stated_guarantee(self._stated),
            doc_topic_prior=doc_topic_prior,
            vocabulary=self._words,
            n_iter=self.round_,
            estimator_name=type(self).__name__,
            parameters={
                "similarity_threshold": self.similarity_threshold,
                "n_top_words": self.n_top_words,
                "max_weight": self.max_weight,
                "doc_topic_prior": doc_topic_prior,
            },
            tables={
                "topic_evidence": self.topic_evidence_,
                "weak_topics": self.weak_topics_,
            },
        )

    def _check(self, sender: str, message: object) -> LocalModel:
        """The model in a message for this round; MessageError if `update` refuses."""
        if isinstance(message, (bytes, bytearray)):
            message = LocalModel.from_bytes(message, max_bytes=self.max_bytes)
        if not isinstance(message, LocalModel):
            raise MessageError(
                f"expected a LocalModel or its bytes, got {type(message).__name__}"
            )
        model = message
        n_topics, n_words = model.table.shape
        stated = self._stated.get(model.party)
        reason = ""
        if model.party != sender:
            reason = "the message names another party than the one that sent it"
        elif model.round != self.round_:
            reason = (
                f"it is for round {model.round}, and round {self.round_} is running"
            )
        elif (model.vocabulary, n_words) != (self.vocabulary_hash, self.n_words):
            reason = (
                f"its vocabulary of {n_words} words differs from the federation's, "
                f"{self.n_words} words; vectorize with the same words in the same order"
            )
        elif n_topics > self.max_topics:
            reason = f"it has {n_topics} topics, at most {self.max_topics} are read"
        elif stated is not None and stated.unit != model.unit:
            reason = (
                f"it protects one {model.unit}, but the party has stated the costs of "
                "another unit before, which say nothing about this one; protect the "
                "same unit in all rounds"
            )
        if reason:
            raise MessageError(reason)
        return model

    def _message(self, table: FloatTable) -> NextModel:
        return NextModel(
            round=self.round_,
            vocabulary=self.vocabulary_hash,
            table=table.astype(np.float32),
        )


def _stated_guarantee(stated: Mapping[str, Stated]) -> Guarantee:
    """The guarantee of what was computed from messages: each party's unit and costs.

    Each unit is with one party. If a unit changes, that party's messages change as its
    guarantee allows; all else is post-processing.
    """
    units = " or ".join(sorted({each.unit for each in stated.values()}))
    epsilon = max(each.epsilon for each in stated.values())
    delta = max(each.delta for each in stated.values())
    event: Event
    if epsilon < math.inf and delta <= LARGEST_DELTA:
        event = ApproximateDP(epsilon, delta)
    else:
        event = NonPrivate()
        epsilon = math.inf
        delta = 0.0
    statements = [
        f"the statement of party {party!r}, which nobody else can check, is true: "
        f"epsilon {each.epsilon:.6g} at delta {each.delta:g} for one {each.unit}"
        for party, each in sorted(stated.items())
    ]
    return Guarantee(
        unit=units,
        relation=f"one {units} of one party differs, in the sense of that party's own "
        "guarantee",
        epsilon=epsilon,
        delta=delta,
        mechanism="topics merged from the messages of parties, which made them private "
        "themselves",
        sensitivity=math.inf,
        noise_scale=None,
        seeded=any(each.seeded for each in stated.values()),
        assumptions=(
            COLUMNS,
            f"each {units} is with one party (of what is with several parties the "
            "costs add up)",
            *statements,
        ),
        events=(event,),
        trusted=TRUSTED_PARTY,
        theorem="docs/federated.md",
    )


def answer_request(
    estimator: IFTMParty,
    X: Matrix,
    request: NextModel | bytes,
    *,
    party: str,
    vocabulary: str,
) -> LocalModel:
    """Answer a master: fit in the first round, and refine its table in later ones.

    Parameters
    ----------
    estimator : IFTMParty
        Changed in place. It keeps its fit between the rounds, and so does a pickle.
    X : {array-like, sparse matrix} of shape (n_docs, n_words)
        Word counts. A fitted estimator does not read them.
    request : NextModel or bytes
        The message from `IFTMMaster.request`, of unknown origin.
    party : str
        Name of the party.
    vocabulary : str
        `vocabulary_hash` of the columns.

    Returns
    -------
    answer : LocalModel
        The message to the master. A party that joins late answers with its own first
        model.

    Raises
    ------
    MessageError
        If the request is malformed, too long, or for other words.
    ValueError
        If `X` has other columns, or if the master has topics of this party but the
        estimator has neither a fit nor a ledger.
    BudgetError
        If the budget of the ledger is too small. In all these cases nothing is spent.

    Notes
    -----
    **Privacy.** The first answer costs what `estimator.fit` costs. All later answers
    are post-processing of that fit, whatever the request. If the fit is lost, a new one
    costs as much again, and messages state the ledger's sum.
    """
    _check_party(party, estimator)
    is_fitted = hasattr(estimator, "components_")
    if not isinstance(request, NextModel):
        # a master keeps a party's topics
        most = most_bytes(*estimator.components_.shape) if is_fitted else MAX_BYTES
        request = NextModel.from_bytes(request, max_bytes=most)
    if request.vocabulary != vocabulary:
        raise MessageError("the master has another vocabulary than this party")
    n_topics, n_words = request.table.shape
    names = [name for name in getattr(X, "columns", ()) if isinstance(name, str)]
    has_other_names = bool(names) and vocabulary_hash(names) != vocabulary
    if is_fitted:
        if n_topics:
            estimator.refine(request.table)
    elif np.shape(X)[1:] != (n_words,) or has_other_names:
        raise ValueError(
            f"the documents, of shape {np.shape(X)}, have other columns than the "
            f"vocabulary, of {n_words} words; count the words of this vocabulary"
        )
    elif n_topics and getattr(estimator, "ledger", None) is None:
        raise ValueError(
            f"the master has topics of {party!r}, but their fit is lost, and a new one "
            "costs as much again; give the estimator the ledger that adds up both"
        )
    else:
        estimator.fit(X)
    message = message_of(
        estimator,
        party,
        request.round,
        vocabulary,
        has_answered=estimator._has_answered,
    )
    estimator._note_answer()  # a refused request is no answer
    return message


def _check_party(name: str, estimator: object) -> None:
    """Refuse what would pay in every round, or cannot mark what it has answered."""
    if not isinstance(estimator, IFTMParty):
        raise TypeError(
            f"party {name!r} must have an IFTMParty, before its documents, got "
            f"{type(estimator).__name__}; any other model would read its documents in "
            "each round, and pay for them each time if it is private: send "
            "LocalModel.from_estimator(...) to IFTMMaster.update"
        )


def run_rounds(
    master: IFTMMaster,
    parties: Mapping[str, tuple[IFTMParty, Matrix]],
    n_rounds: int,
) -> IFTMMaster:
    """Run the rounds of iFTM in one process, for experiments.

    Parameters
    ----------
    master : IFTMMaster
        Changed in place. It continues with its next round.
    parties : mapping of str to tuple (IFTMParty, X)
        Estimator and documents of each party, as for `answer_request`. A party that
        raises an error is left out of that round, with a warning.
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
    """
    check_integer("n_rounds", n_rounds, 1)
    pairs = parties if isinstance(parties, Mapping) else {"parties": parties}
    for name, pair in pairs.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(
                f"party {name!r} must be a pair (IFTMParty, X) in a mapping of names, "
                f"got {type(pair).__name__}"
            )
        _check_party(name, pair[0])
    for _ in range(n_rounds):
        answers: dict[str, LocalModel] = {}
        failure: Exception | None = None
        for name, (estimator, X) in parties.items():
            try:
                answers[name] = answer_request(
                    estimator,
                    X,
                    master.request(name),
                    party=name,
                    vocabulary=master.vocabulary_hash,
                )
            except Exception as error:
                failure = error
                warn_user(
                    f"party {name!r} failed in round {master.round_} "
                    f"({type(error).__name__}), and the round continues without it"
                )
        try:
            master.update(answers)
        except RoundError as error:
            raise error from failure
    return master


class TopWords(NamedTuple):
    """The most probable words of each topic, (n_topics, n_top_words).

    Similarity reads only these.

    The most probable word is first, and ties are in the order of the columns.
    Probabilities are taken from the whole topic, so they do not sum to 1.
    """

    words: Indices
    probabilities: FloatTable

    @classmethod
    def from_table(cls, table: FloatTable, n_top_words: int) -> TopWords:
        """Top words of a table (n_topics, n_words): `n_top_words`, or all if fewer."""
        words = np.argsort(-table, axis=1, kind="stable")[:, :n_top_words]
        return cls(words, np.take_along_axis(table, words, axis=1))


def similarity(first: TopWords, second: TopWords) -> FloatTable:
    """Weighted Jaccard similarity of topics' top words (equation 29), from 0 to 1.

    It is 1 for equal topics.

    The numerator is the sum, over common words, of the smaller of the two
    probabilities. The denominator is the sum of all probabilities minus the numerator.
    """
    result = np.empty((len(first.words), len(second.words)))
    mass = second.probabilities.sum(axis=1)
    topic = np.zeros(1 + max(first.words.max(initial=0), second.words.max(initial=0)))
    for k, (words, probabilities) in enumerate(zip(first.words, first.probabilities)):
        topic[words] = probabilities
        common = np.minimum(topic[second.words], second.probabilities).sum(axis=1)
        result[k] = common / (probabilities.sum() + mass - common)
        topic[words] = 0
    return result


def redundant_topics(
    topics: TopWords, similarity_threshold: float, owners: Indices
) -> Indices:
    """Sets of redundant topics: at most one topic of each party.

    Pairs of topics join their sets in the order of their similarity, down to the
    threshold (xi), unless a party has a topic in both sets. Otherwise a party could
    send mixtures of topics, which would chain all topics together.

    `owners` (n_topics,) is the number of the party of each topic. Returns the number of
    the set of each topic. Sets are numbered from 0 in the order of their first topics.
    """
    rho = similarity(topics, topics)
    rho[owners[:, None] >= owners] = -1.0  # each pair once, and no pair of one party
    first, second = np.nonzero(rho >= similarity_threshold)
    labels: Indices = np.arange(len(owners))
    parties = [{int(owner)} for owner in owners]  # of each set, by the label of the set
    for pair in np.argsort(-rho[first, second], kind="stable"):
        low, high = sorted([int(labels[first[pair]]), int(labels[second[pair]])])
        if parties[low].isdisjoint(parties[high]):
            labels[labels == high] = low
            parties[low] |= parties[high]
    sets: Indices = np.unique(labels, return_inverse=True)[1]
    return sets


def merge_topics(
    table: FloatTable, weights: FloatTable, labels: Indices
) -> tuple[FloatTable, FloatTable]:
    """Replace sets of redundant topics by weighted means (Algorithm 3, lines 12 to 17).

    `weights` (n_topics,) is the amount of data behind each topic; `labels` is the set
    of each, from `redundant_topics`. Returns the merged topics (n_sets, n_words), whose
    rows sum to 1, and the sums of their weights.
    """
    n_topics = len(labels)
    n_sets = labels.max() + 1
    total = np.bincount(labels, weights, n_sets).astype(np.float64)
    cells = (_shares_of_sets(weights, labels), (labels, np.arange(n_topics)))
    sums = sp.csr_array(cells, (n_sets, n_topics)) @ table
    return sums / sums.sum(axis=1, keepdims=True), total


def merge_evidence(
    evidence: FloatTable, weights: FloatTable, labels: Indices
) -> FloatTable:
    """Evidence of merged topics: the weighted mean over its deviation.

    The parts come from different documents. If all parts are noise, the result is also
    at most standard normal (Stouffer et al., 1949, with weights).
    """
    n_sets = labels.max() + 1
    share = _shares_of_sets(weights, labels)
    # a part that was not tested counts as 0
    total = np.bincount(labels, share * np.nan_to_num(evidence), n_sets)
    merged: FloatTable = total / np.sqrt(np.bincount(labels, share**2, n_sets))
    merged[np.bincount(labels, ~np.isnan(evidence), n_sets) == 0] = np.nan
    return merged


def _shares_of_sets(weights: FloatTable, labels: Indices) -> FloatTable:
    """Share of each topic in its set; equal shares if all weights of the set are 0."""
    n_sets = labels.max() + 1
    total = np.bincount(labels, weights, n_sets)
    share = np.where(total[labels] > 0, weights, 1.0)
    shares: FloatTable = share / np.bincount(labels, share, n_sets)[labels]
    return shares


def compose_model(
    global_table: FloatTable,
    table: FloatTable,
    similarity_threshold: float,
    global_words: TopWords,
) -> FloatTable:
    """A party's next model: its topics, or matching global ones (Algorithm 4).

    Pairs are matched in the order of their similarity. The paper takes the order of
    topic numbers; the result would then depend on the numbering. A global topic
    replaces at most one topic of the party. The paper does not say what happens to a
    topic without a match; it is kept, with all that the party has learned.

    `global_words` are the top words of `global_table`, which are the same for all
    parties.
    """
    n_top_words = global_words.words.shape[1]
    rho = similarity(TopWords.from_table(table, n_top_words), global_words)
    topics, candidates = np.nonzero(rho >= similarity_threshold)
    composed = table.copy()
    replaced = set[int]()
    used = set[int]()
    for pair in np.argsort(-rho[topics, candidates], kind="stable"):
        topic = int(topics[pair])
        global_topic = int(candidates[pair])
        if topic not in replaced and global_topic not in used:
            composed[topic] = global_table[global_topic]
            replaced.add(topic)
            used.add(global_topic)
    return composed
