"""Attacks: canaries to hide in the data, and a guess of their coins from the releases.

An attack knows the whole program except the coins, the secret noise and the secret samples. The
bound is valid for any scores. Better scores give a larger bound.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone

from dplda._half_table import HalfTable
from dplda.central._word_sweeps import SweepMechanisms
from dplda.federated import SentenceCorpus
from dplda.local._memoized_reports import MemoizedReports
from dplda.local._randomized_response import RandomizedResponse
from dplda.privacy import Event, RandomizedResponseEvent, Repeated, epsilon_of
from dplda.privacy._mechanisms import Mechanism
from dplda.privacy._observation import Release, announce
from dplda.privacy.mechanisms import FlooredLaplace, Purpose, Streams, uniform

Releases = list[Release]


class Attack(Protocol):
    """Interface of an attack, as an audit uses it.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Random words of the audit, for canaries and tables of the attack.

    Attributes
    ----------
    estimator : estimator
        The copy of the audited estimator that is fitted, with parameters for the canaries.
    relation : str
        Event that a coin decides, such as "a document is there or not".
    """

    estimator: BaseEstimator
    relation: str

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None: ...

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """Hide the canaries among the documents.

        Parameters
        ----------
        X : csr_array of shape (n_docs, n_words)
            Word counts of the other documents.
        coins : ndarray of shape (n_canaries,), int64
            One coin for each canary, 0 or 1.

        Returns
        -------
        X : csr_array
            All documents of the fit.
        """

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Guess the coins from the releases.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Positive for coin 1 and negative for coin 0. The magnitude is the certainty of the
            guess. The best scores are log-likelihood ratios in favor of coin 1.
        """

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """State the epsilon that is claimed for one coin.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        delta : float
            The delta of (epsilon, delta)-differential privacy, in [0, 1).

        Returns
        -------
        float
            The claimed epsilon at `delta`.
        """


class CanaryAttack:
    """Common part of most attacks: a copy of the estimator, sizes, and the model's guarantee."""

    methods: tuple[str, ...] = ("fit", "partial_fit")  # ways to train that the scores understand
    n_units = 1  # steps of the guarantee's relation between the two worlds of a coin

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        self.estimator = clone(estimator)
        self._n_words, self._n_canaries = n_words, n_canaries

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Call `fit`, or `partial_fit` as often as it releases what `fit` releases."""
        if method == "fit":
            model.fit(X)
        else:
            for _ in range(n_rounds_of(model)):
                model.partial_fit(X)

    def _events(self, model: BaseEstimator) -> tuple[Event, ...]:
        """What one coin costs, as the model declares it; nothing if the claim is no such sum."""
        return tuple(Repeated(event, self.n_units) for event in model.privacy_.events)

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """Epsilon of the model's own guarantee at `delta`."""
        distance = self.n_units * model.privacy_.total_variation
        return epsilon_of(self._events(model), delta, total_variation=distance)


def n_rounds_of(model: BaseEstimator) -> int:
    """The rounds of a `fit`: `max_iter`, or what None stands for; 1 without such a parameter."""
    resolve = getattr(model, "_max_iter", None)
    return int(getattr(model, "max_iter", 1)) if resolve is None else resolve()


def widened(X: sp.csr_array, n_more: int) -> sp.csr_array:
    """Append `n_more` words that occur in no document."""
    return sp.csr_array((X.data, X.indices, X.indptr), (X.shape[0], X.shape[1] + n_more))


def count_matrix(
    rows: np.ndarray, words: np.ndarray, counts: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    """Word counts from cells. Counts of repeated cells add up."""
    return sp.csr_array(sp.coo_array((counts, (rows, words)), shape=shape))


TOKENS_OVER_NORM = 16  # of a canary: with many tokens, its topics hardly depend on the prior
FAVOR = 1.3  # weight of the topic that a canary's word favors in the first table; others have 1


class DocumentAttack(CanaryAttack):
    """Attack on document-level privacy: a document with a word of its own is there or not.

    The scores are exact log-likelihood ratios of all noisy sums. The contributions of a canary
    depend on past releases only. A second run of the rounds computes them, with the canaries alone
    and with the released sums.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Random words of the first table.
    """

    relation = "a document is there or not"
    n_documents = 1  # of each canary

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        super().__init__(estimator, n_words, n_canaries, streams)
        n_all = n_words + n_canaries
        # The attack must know the public first table: it sets the table, or needs the seed.
        if "prior_components" in estimator.get_params():
            others = estimator.prior_components
            if others is None:
                others = _random_table((int(estimator.n_components), n_words), streams)
            own = _favoring_table(int(estimator.n_components), n_canaries) * np.mean(others)
            self.estimator.set_params(prior_components=np.hstack([others, own]))
        elif not streams.seeded:
            raise ValueError(
                f"{type(estimator).__name__} starts from a random table that the attack must know; "
                "pass random_state to the audit"
            )
        n_tokens = math.ceil(TOKENS_OVER_NORM * float(estimator.contribution_norm))
        if getattr(estimator, "max_doc_tokens", None) is not None:
            n_tokens = min(n_tokens, int(estimator.max_doc_tokens))
        rows = np.arange(n_canaries * self.n_documents)
        self._owners = rows % n_canaries  # the first documents of all canaries, then the second
        counts = np.full(len(rows), n_tokens)
        self._canaries = count_matrix(rows, n_words + self._owners, counts, (len(rows), n_all))

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Train the model, and note the number of rounds of each call."""
        n_rounds = n_rounds_of(model)
        self._calls = [n_rounds] if method == "fit" else [1] * n_rounds
        super()._train(model, X, method)

    def _users(self) -> tuple[np.ndarray, ...]:
        """The last argument of a run of the rounds on the canaries alone; none for documents."""
        return ()

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """Hide the canaries among the documents.

        Parameters
        ----------
        X : csr_array of shape (n_docs, n_words)
            Word counts of the other documents.
        coins : ndarray of shape (n_canaries,), int64
            One coin for each canary, 0 or 1.

        Returns
        -------
        X : csr_array
            The other documents, followed by the canaries whose coin is 1.
        """
        X = widened(X, self._n_canaries)
        return sp.csr_array(sp.vstack([X, self._canaries[coins[self._owners] == 1]]))

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Compute the log-likelihood ratios of all noisy sums.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Log-likelihood ratios in favor of coin 1.
        """
        n_canaries, n_all = self._n_canaries, self._canaries.shape[1]
        replay = _Replay(releases, n_canaries)
        public = Streams.from_random_state(model.random_state)  # for a random first table
        canaries, budget, table = self._canaries.astype(np.float64), model._budget(), None
        for n_rounds in self._calls:
            table = model._rounds(canaries, table, budget, replay, public, n_rounds, *self._users())
        total = np.zeros(n_canaries)
        for release, value, rates in replay.steps:
            # the canaries' words are the last ones in every release
            value = value.reshape(-1)
            cells = value.size // n_all * n_canaries
            value = value[-cells:].reshape(n_canaries, -1).astype(float)
            noisy = release.value.reshape(-1)[-cells:].reshape(n_canaries, -1)
            variance = release.mechanism.scale**2
            ratio = ((noisy - value / 2) * value).sum(axis=1) / variance
            sampled = rates < 1  # the sample is secret: a mixture of both cases
            rate = rates[sampled]
            ratio[sampled] = np.logaddexp(np.log1p(-rate), np.log(rate) + ratio[sampled])
            total += ratio
        return total


class UserAttack(DocumentAttack):
    """Attack on user-level privacy: a user with three documents is there or not.

    The estimator is trained with ``user_ids``. All documents of a canary have the same word, which
    occurs in no other document. If each document is clipped by itself, a canary moves the sums
    three times as far as it may. Every other document belongs to a user of its own.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Random words of the first table.
    """

    relation = "a user with three documents is there or not"
    n_documents = 3

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """Hide the documents of the canaries among the others.

        Parameters
        ----------
        X : csr_array of shape (n_docs, n_words)
            Word counts of the other documents.
        coins : ndarray of shape (n_canaries,), int64
            One coin for each canary, 0 or 1.

        Returns
        -------
        X : csr_array
            The other documents, followed by those of the canaries whose coin is 1.
        """
        present = self._owners[coins[self._owners] == 1]
        self._ids = np.append(np.arange(X.shape[0]), X.shape[0] + present)
        return super().plant(X, coins)

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Train the model with the ids of all users."""
        n_rounds = n_rounds_of(model)
        self._calls = [n_rounds] if method == "fit" else [1] * n_rounds
        for _ in range(len(self._calls)):
            getattr(model, method)(X, user_ids=self._ids)

    def _users(self) -> tuple[np.ndarray, ...]:
        return (self._owners,)


def _favoring_table(n_components: int, n_words: int) -> np.ndarray:
    """A public table in which each word favors one topic, so that its documents agree on it.

    Contributions are differences between a document's topics and those of its words in the table.
    With a stronger preference the table would predict the topics.
    """
    table = np.ones((n_components, n_words))
    words = np.arange(n_words)
    table[words % n_components, words] = FAVOR
    return table


def _random_table(shape: tuple[int, int], streams: Streams) -> np.ndarray:
    words = streams.words(Purpose.AUDIT, 1, 0, math.prod(shape))
    return -np.log(uniform(words, positive=True)).reshape(shape)


class _Replay:
    """Stand-in for a curator: it keeps the values, and returns what the fit released."""

    def __init__(self, releases: Releases, n_canaries: int) -> None:
        self._left = list(releases)
        self._n_canaries = n_canaries
        self._rates = np.ones(n_canaries)
        self.steps: list[tuple[Release, np.ndarray, np.ndarray]] = []

    def sample(self, rates: np.ndarray, *, round: int) -> np.ndarray:
        """Take all canaries; their rates enter the likelihood ratio."""
        self._rates = rates
        return np.arange(len(rates))

    def keep(self, state: object) -> None:
        """There is no checkpoint."""

    def release(
        self,
        value: np.ndarray,
        mechanism: Mechanism,
        *,
        label: str,
        round: int,
        sampling_probability: float = 1.0,
        overwrite_value: bool = False,
        n_jobs: int | None = None,
    ) -> np.ndarray:
        """Return what the fit released, not `value` with new noise."""
        release = self._left.pop(0)
        rates = self._rates if sampling_probability < 1 else np.ones(self._n_canaries)
        self.steps.append((release, value, rates))
        return release.value


class WordAttack(CanaryAttack):
    """Attack on word-level privacy: the word of a one-token document is one or another.

    The scores are exact log-likelihood ratios of the topics of the canaries and of the noisy counts
    of both words. This is the topic-based attack of HDP-LDA in its strongest form.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Not used.
    """

    relation = "a word is one or another"
    _averages = False

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """Hide the canaries among the documents.

        Parameters
        ----------
        X : csr_array of shape (n_docs, n_words)
            Word counts of the other documents.
        coins : ndarray of shape (n_canaries,), int64
            One coin for each canary, 0 or 1.

        Returns
        -------
        X : csr_array
            The canaries, so that their topics come first, followed by the other documents.
        """
        rows = np.arange(self._n_canaries)
        words = self._n_words + 2 * rows + (1 - coins)
        shape = (self._n_canaries, self._n_words + 2 * self._n_canaries)
        canaries = count_matrix(rows, words, np.ones(len(rows), int), shape)
        return sp.csr_array(sp.vstack([canaries, widened(X, 2 * self._n_canaries)]))

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Train the model, and note what its topics are drawn from."""
        self._averages = method == "partial_fit"
        super()._train(model, X, method)

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Add up the log-likelihood ratios of noise and topics over the sweeps.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Log-likelihood ratios in favor of coin 1.
        """
        mechanisms = model._mechanisms()
        total, before, tables = np.zeros(self._n_canaries), None, []
        for release in releases:
            if release.mechanism is not None:
                tables.append(release.value)
                total += self._count_scores(release.value, mechanisms, before)
                continue
            before = release.value[: self._n_canaries]
            # `partial_fit` draws topics from the mean of all counts so far, and `fit` from the last
            table = np.mean(tables, axis=0) if self._averages else tables[-1]
            total += self._topic_scores(model, table, mechanisms, before)
        return total

    def _pairs(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of each canary's word if its coin is 1, and if it is 0."""
        rows = table[self._n_words : self._n_words + 2 * self._n_canaries]
        return rows[::2], rows[1::2]

    def _topic_scores(
        self,
        model: BaseEstimator,
        noisy: np.ndarray,
        mechanisms: SweepMechanisms,
        drawn: np.ndarray,
    ) -> np.ndarray:
        """Log-ratio of the probabilities of the drawn topics."""
        counts = mechanisms.unbiased(noisy)
        table = HalfTable.from_counts(counts, mechanisms.count_clip, model.topic_word_prior)
        chosen = np.arange(self._n_canaries), drawn
        one, zero = (rows[chosen] / rows.sum(axis=1) for rows in self._pairs(table.values))
        return np.log(one / zero)

    def _count_scores(
        self, noisy: np.ndarray, mechanisms: SweepMechanisms, topics: np.ndarray | None
    ) -> np.ndarray:
        """Log-ratio of the noise, given the counted topics; None if they are secret."""
        one, zero = (
            log_noise(rows - mechanisms.unit, mechanisms.mechanism)
            - log_noise(rows, mechanisms.mechanism)
            for rows in self._pairs(noisy)
        )
        if topics is None:  # all topics are equally likely
            return np.logaddexp.reduce(one, axis=1) - np.logaddexp.reduce(zero, axis=1)
        chosen = np.arange(len(topics)), topics
        return one[chosen] - zero[chosen]


def log_noise(x: np.ndarray, mechanism: Mechanism) -> np.ndarray:
    """Logarithm of the probability of noise, up to a constant."""
    if isinstance(mechanism, FlooredLaplace):
        return -np.abs(x + 0.5) / mechanism.scale  # exact for the cell [x, x + 1)
    return -0.5 * (x / mechanism.scale) ** 2


class RowAttack(CanaryAttack):
    """Common part of attacks on local privacy: each row of the documents is randomized by itself.

    A row that is released again, for instance in another round, adds to the score of its canary.
    """

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Call `fit` with all documents, or `partial_fit` with each half of them."""
        self._n_rows = X.shape[0]
        if method == "fit":
            model.fit(X)
            if not hasattr(model, "components_"):  # a randomizer releases what it returns
                announce("reports", 0, model.transform(X))
        else:
            half = X.shape[0] // 2
            model.partial_fit(X[:half])
            model.partial_fit(X[half:])

    def scores(self, model: BaseEstimator, releases: Releases) -> np.ndarray:
        """Add up the log-likelihood ratios of all that was released of each canary.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        releases : list of Release
            Everything that its fit released.

        Returns
        -------
        scores : ndarray of shape (n_canaries,)
            Log-likelihood ratios in favor of coin 1.
        """
        total, row = np.zeros(self._n_canaries), 0
        for release in releases:
            ratios = self._ratios(model, release, max(0, self._n_canaries - row))
            total[row : row + len(ratios)] += ratios
            row = (row + self._length(release)) % self._n_rows
        return total

    def _length(self, release: Release) -> int:
        """Number of rows in a release."""
        return int(release.value.shape[0])

    def _ratios(self, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
        """Log-likelihood ratios of the first `n` rows of a release, or of all if it has fewer."""
        raise NotImplementedError


UNCAPPED_WORDS = 50  # of a canary where no cap says how many words are reported
MAX_CANARY_WORDS = 1000  # of a canary whose cap is larger


class ReportAttack(RowAttack):
    """Attack on local privacy: a document is one set of words or another one.

    Both sets have as many words as a document reports, at most 1000. The scores are exact
    log-likelihood ratios of the reported bits.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Not used.
    """

    relation = "a document is one or another"

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        super().__init__(estimator, n_words, n_canaries, streams)
        if getattr(estimator, "randomized", False):
            raise ValueError(
                f"{type(estimator).__name__}(randomized=True) reads reports and releases nothing "
                "of a document; audit the RandomizedResponse of the clients, or randomized=False"
            )
        self._n_ones = min(int(estimator.max_doc_words or UNCAPPED_WORDS), MAX_CANARY_WORDS)

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """Hide the canaries among the documents.

        Parameters
        ----------
        X : csr_array of shape (n_docs, n_words)
            Word counts of the other documents.
        coins : ndarray of shape (n_canaries,), int64
            One coin for each canary, 0 or 1.

        Returns
        -------
        X : csr_array
            The canaries, followed by the other documents.
        """
        first = self._n_words + self._n_ones * (1 - coins)
        words = first[:, None] + np.arange(self._n_ones)
        return self._planted(X, words, np.ones_like(words), 2 * self._n_ones)

    def _planted(
        self, X: sp.csr_array, words: np.ndarray, counts: np.ndarray, n_more: int
    ) -> sp.csr_array:
        """The canaries, a row of `words` and `counts` for each, followed by the others."""
        rows = np.repeat(np.arange(self._n_canaries), words.shape[1])
        shape = (self._n_canaries, self._n_words + n_more)
        canaries = count_matrix(rows, words.ravel(), counts.ravel(), shape)
        canaries.eliminate_zeros()
        return sp.csr_array(sp.vstack([canaries, widened(X, n_more)]))

    def _ratios(self, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
        bits = sp.csr_array(release.value)[:n, self._n_words :].toarray() > 0
        present = log_ratio_of_bits(model, bits)
        return present[:, : self._n_ones].sum(axis=1) - present[:, self._n_ones :].sum(axis=1)


def log_ratio_of_bits(model: BaseEstimator, bits: np.ndarray) -> np.ndarray:
    """Log-likelihood ratio of each reported bit: the word is there, against it is not."""
    zero, one = model.one_probability_
    return np.where(bits, math.log(one / zero), math.log((1 - one) / (1 - zero)))


class ReportedWordAttack(ReportAttack):
    """Attack on the privacy of a word in local reports, against `word_epsilon_`.

    A canary has as many words as are reported. The coin adds one more word. The scores are exact
    log-likelihood ratios over all choices of the words that are kept. The report that shows the
    one more word and none of the others is the most likely under coin 1; it is rare for more than
    a few words.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Not used.
    """

    relation = "a document has one word more or less"

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array:
        """Hide the canaries among the documents.

        Parameters
        ----------
        X : csr_array of shape (n_docs, n_words)
            Word counts of the other documents.
        coins : ndarray of shape (n_canaries,), int64
            One coin for each canary, 0 or 1.

        Returns
        -------
        X : csr_array
            The canaries, followed by the other documents.
        """
        words = np.tile(self._n_words + np.arange(self._n_ones + 1), (self._n_canaries, 1))
        counts = np.ones_like(words)
        counts[:, -1] = coins
        return self._planted(X, words, counts, self._n_ones + 1)

    def _events(self, model: BaseEstimator) -> tuple[Event, ...]:
        """The randomized response of `word_epsilon_`, which any pure guarantee is made of."""
        odds = math.exp(min(float(model.word_epsilon_), 500.0))
        return (RandomizedResponseEvent(2.0 / (odds + 1.0)),)

    def claim(self, model: BaseEstimator, delta: float) -> float:
        """State `word_epsilon_`, which is pure, and therefore a claim at every delta.

        Parameters
        ----------
        model : estimator
            The fitted copy of the audited estimator.
        delta : float
            Not used.

        Returns
        -------
        float
            The model's `word_epsilon_`.
        """
        return float(model.word_epsilon_)

    def _ratios(self, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
        bits = sp.csr_array(release.value)[:n, self._n_words :].toarray() > 0
        return self._ratios_of_bits(model, bits)

    def _ratios_of_bits(self, model: BaseEstimator, bits: np.ndarray) -> np.ndarray:
        """Log-likelihood ratios of reports of the canary's words, (n, n_ones + 1)."""
        present = log_ratio_of_bits(model, bits)
        added = present[:, -1]
        if self._n_ones != model.max_doc_words:  # the cap does not bind: nothing is pushed out
            return added
        # one of the words is left out, each with the same probability; the last: nothing changes
        swapped = added[:, None] - present[:, :-1]
        unchanged = np.zeros((len(bits), 1))
        return np.logaddexp.reduce(np.hstack([swapped, unchanged]), axis=1) - math.log(
            self._n_ones + 1
        )


N_REQUESTS = 5


class RequestAttack(ReportAttack):
    """Attack on memoized reports: each document is asked for five times, at the cost of once.

    Parameters
    ----------
    estimator : RandomizedResponse
        The randomizer of a `MemoizedReports`. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Not used.
    """

    relation = "a document that is asked for five times is one or another"
    methods = ("fit",)

    def __init__(
        self, estimator: BaseEstimator, n_words: int, n_canaries: int, streams: Streams
    ) -> None:
        if not isinstance(estimator, RandomizedResponse):
            raise ValueError(
                "memoized reports come from a RandomizedResponse, got "
                f"{type(estimator).__name__}; give the randomizer of the client"
            )
        super().__init__(estimator, n_words, n_canaries, streams)

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Fit the randomizer, and request all documents, in this order and in the other one."""
        self._n_rows = X.shape[0]
        client = MemoizedReports(model.fit(X))
        ids = np.arange(X.shape[0])
        for request in range(N_REQUESTS):
            order = ids if request % 2 == 0 else ids[::-1]
            reports = client.reports(order.tolist(), X[order])
            announce("reports", request, reports[order])


class TokenAttack(RowAttack):
    """Attack on token-level privacy: the word of a one-token document is one or another.

    The scores are exact log-likelihood ratios of the noisy vectors. The estimator claims the cost
    of blanking a token. Replacing it by another word costs twice as much. After its fit the party
    takes part in one more round (`refine`), which must release nothing new of a token.

    Parameters
    ----------
    estimator : estimator
        The audited estimator. It is copied.
    n_words : int
        Number of words of the other documents.
    n_canaries : int
        Number of canaries in a fit.
    streams : Streams
        Not used.
    """

    relation = "a token's word is one or another"
    n_units = 2  # one word is blanked, and one is written

    def plant(self, X: sp.csr_array, coins: np.ndarray) -> sp.csr_array | SentenceCorpus:
        """Hide the canaries among the documents.

        Parameters
        ----------
        X : csr_array of shape (n_docs, n_words)
            Word counts of the other documents.
        coins : ndarray of shape (n_canaries,), int64
            One coin for each canary, 0 or 1.

        Returns
        -------
        X : csr_array or SentenceCorpus
            The canaries, followed by the other documents; one sentence each for "sentence_lda".
        """
        rows, words = np.arange(self._n_canaries), self._n_words + 1 - coins
        shape = (self._n_canaries, self._n_words + 2)
        canaries = count_matrix(rows, words, np.ones(self._n_canaries, int), shape)
        X = sp.csr_array(sp.vstack([canaries, widened(X, 2)]))
        return one_sentence_each(X) if self.estimator.model == "sentence_lda" else X

    def _train(self, model: BaseEstimator, X: Any, method: str) -> None:
        """Train the party, and continue from its own topics, as in the next round."""
        super()._train(model, X, method)
        model.refine(model.components_)

    def _length(self, release: Release) -> int:
        return len(release.value.document_ptr) - 1

    def _ratios(self, model: BaseEstimator, release: Release, n: int) -> np.ndarray:
        tokens, n = release.value, min(n, self._length(release))
        likelihood = tokens.likelihood
        survivors = tokens.vectors.read(0, n, 0)
        token = np.repeat(np.arange(n), np.diff(survivors.ptr))
        planted = survivors.word >= self._n_words
        cells = token[planted], survivors.word[planted] - self._n_words
        gain = np.full((n, 2), likelihood.base)
        gain[cells] = likelihood.gain[survivors.level[planted]]
        return np.log(gain[:, 0] / gain[:, 1])


def one_sentence_each(X: sp.csr_array) -> SentenceCorpus:
    """Documents of one sentence; an empty document has none."""
    lengths = np.asarray(X.sum(axis=1)).reshape(-1).astype(np.int64)
    words = np.repeat(X.indices, X.data.astype(np.int64))
    sentences = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
    documents = np.concatenate([[0], np.cumsum(lengths > 0)])
    return SentenceCorpus(words, sentences, documents, X.shape[1])
