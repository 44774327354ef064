"""What SUB-LDA and private SVI share: they charge a plan, run its rounds, and publish the model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from dplda.core._base import BaseLDA
from dplda.core._corpus import check_counts, check_public_table, check_shards
from dplda.core._fold_in import single_precision
from dplda.core._private_fit import (
    PRIVACY_CONSTRAINTS,
    PrivateEstimator,
    Promise,
    check_paid,
    exactly_one,
    publish,
    released_so_far,
    warn_if_seeded,
)
from dplda.datasets._shards import CountShards
from dplda.document._contributions import Documents, release_totals_again, release_word_totals
from dplda.document._document_budget import (
    DOCUMENT_CONSTRAINTS,
    N_PASSES,
    DocumentBudget,
    default_rounds,
    document_guarantee,
)
from dplda.document._noisy_table import NoisyTable, exponential
from dplda.document._plan import warn_of_expectation
from dplda.document._prior import PublicPrior, estimate_totals
from dplda.document._shards import documents_of, unit_of
from dplda.document._without_noise import ExactTable
from dplda.document._word_totals import share_of_rounds
from dplda.leaf._compat import _fit_context
from dplda.leaf._progress import rounds
from dplda.leaf._users import RELATIONS, number_users
from dplda.metrics._signal import warn_if_noise, with_signal
from dplda.privacy import Guarantee
from dplda.privacy._curator import Curator
from dplda.privacy._streams import Streams

# Largest share of the budget of rounds, for those that examine public topics, and the noise of
# their slope at which fewer of them are enough (docs/public_prior.md).
EXAMINATION, CLEAR_SLOPE = 0.04, 0.01


class DocumentLDA(PrivateEstimator, BaseLDA):
    """Latent Dirichlet allocation from noisy sums over documents, in rounds.

    A subclass writes out its rounds in a method `_rounds`, which gets the private documents and
    returns the released table.
    """

    _attack = "document"
    _promise = Promise(
        unit="document",  # or "user", if `fit` gets `user_ids`
        relation=RELATIONS["document"],
        mechanism="discrete Gaussian noise on all word totals, and in each round on all word-topic "
        "counts, or again on all word totals",
        theorem="docs/proofs_document.md",
    )
    _n_passes = N_PASSES
    # L2 norm that documents are scaled to; the clipping bound of a round is 0.15 to 0.4 of it. A
    # constant: at 3 and 12 the perplexity on KOS differs by less than 0.1% (epsilon 4).
    contribution_norm = 6.0
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        **DOCUMENT_CONSTRAINTS,
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, *, user_ids: Any = None) -> Self:
        """Run one more private round on the same documents.

        Each call is one more round, and the privacy costs of all calls add up in `epsilon_`. The
        first call also releases word totals. `max_iter` calls release what `fit` releases, and
        `epsilon` pays for no further call. Each call charges the distance of its noise from the
        ideal law, so that the last of `max_iter` calls may be refused if `epsilon` is large or
        `delta` tiny. With noise, later calls divide the word totals of the first call among the
        topics, or with a weak signal release word totals again, which enter the mean of all: pass
        the whole corpus to each call, or at least documents with the same words.

        Make as many calls as the ledger allows under a ledger with ``composition="adaptive"``,
        whose budget is then the guarantee. Otherwise fix their number before you look at the
        model. A call that is interrupted stays in the ledger's account, but not in `epsilon_`.

        A model holds releases only. Saved between the calls, it is a checkpoint.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts of all documents from which the round may draw. A minibatch chosen by the
            caller is not a secret sample; set ``subsampling_ratio=1`` to use all rows.
        y : Ignored
            Ignored.
        user_ids : array-like of shape (n_docs,) or None, default=None
            The user that each row comes from: integers or strings. All rows with one id are one
            protected unit. Give ids to every call or to none. Private, and read after `X`.
        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        BudgetError
            If this call would exceed `epsilon` or the budget of the ledger. No data have been read
            then.
        ValueError
            If `n_components`, the width of `X` or the protected unit changed since the first call,
            or if `user_ids` does not have one id for each row.

        Warns
        -----
        SeededNoiseWarning
            If noise is drawn from a given `random_state`. The guarantee is void against anyone who
            knows it.
        LowSignalWarning
            If fewer than half of the topics stand out of the noise after `max_iter` rounds, or are
            expected to with `expected_n_docs` documents; or if `signal_to_noise_` is below 0.3.
        LowSignalWarning
            If the public texts behind `prior_components` hardly match the private documents, or if
            each topic of the table sums to 1.
        PrivateDataWarning
            If most rows of the first call hold no word. Not for release.
        """
        return self._train(X, user_ids, 1, table=released_so_far(self, unit_of(X, user_ids)))

    def _train(
        self,
        X: Any,
        user_ids: Any,
        n_rounds: int,
        *,
        table: NoisyTable | None = None,
        earlier: Any = None,
    ) -> Self:
        """Charge `n_rounds` rounds, run them, and publish the model."""
        name = type(self).__name__
        exactly_one(name, epsilon=self.epsilon, noise_multiplier=self.noise_multiplier)
        unit, budget = unit_of(X, user_ids), self._budget()  # public
        plan = budget.plan(0 if table is None else table.n_rounds, n_rounds)  # public
        before = None if table is None else self.privacy_
        check_paid(
            name, [event for _, event in plan],
            epsilon=self.epsilon, delta=self.delta, earlier=before, max_iter=self._max_iter(),
        )  # fmt: skip
        others = self._releases_of(earlier)  # public
        streams = Streams.from_random_state(self.random_state)  # secret
        warn_if_seeded(name, streams.seeded and self.epsilon != np.inf)
        with Curator(plan, streams, label=name, unit=unit, ledger=self.ledger) as curator:
            counts = _read_counts(self, X, reset=table is None)  # private
            if table is None and self.expected_n_docs is not None:
                warn_of_expectation(
                    budget, n_docs=self.expected_n_docs, n_words=counts.shape[1],
                    n_components=self.n_components, delta=self.delta,
                )  # fmt: skip
            users = number_users(user_ids, counts.shape[0])  # private
            table = self._rounds(
                counts, table, budget, curator, streams, n_rounds, users, others
            )  # public
        guarantee = document_guarantee(
            curator.events,
            unit=unit,
            delta=self.delta,
            earlier=before,
            norms=table.norms,
            seeded=streams.seeded,
            mechanism=self._promise.mechanism,
            public_start=self.prior_components is not None,
            has_earlier=others is not None,
        )
        return self._publish(guarantee, table, budget)

    def _begin(
        self,
        X: Any,
        table: NoisyTable | None,
        budget: DocumentBudget,
        curator: Curator,
        streams: Streams,
        users: np.ndarray | None,
        earlier: NoisyTable | None,
        *,
        ratios: Callable[[np.ndarray], np.ndarray] = exponential,
    ) -> tuple[Documents, NoisyTable]:
        """The private documents, and the table before the next round, from two word totals."""
        norm, n_components = self.contribution_norm, int(self.n_components)
        documents = documents_of(X, n_components, self.n_jobs, users)  # private
        kind = ExactTable if budget.exact else NoisyTable
        if table is not None:
            table = kind(**vars(copy.deepcopy(table)))  # an interrupted call changes no model
            table.estimate.n_jobs = self.n_jobs
            documents.rescale(table.weight, norm, exact=budget.exact)  # private
            return documents, table
        public = self._prior(X.shape[1], earlier)  # public
        released, weight = release_word_totals(documents, budget.totals, curator, norm)  # public
        totals = estimate_totals(released, public)  # public
        table = kind.from_totals(
            totals, weight, n_components, streams, norms=(norm,) * len(budget.totals),
            public=public, ratios=ratios,
            n_examining=0 if earlier else self._examining_rounds(public, totals, weight, budget),
            first=None if earlier else self._live_table(documents, streams),
        )  # public  # fmt: skip
        table.estimate.n_jobs, table.released_totals = self.n_jobs, released
        if earlier is not None:
            table.add_earlier(earlier)
        table.share_for_totals = self._share_for_totals(table, budget)
        return documents, table

    def _topic_rounds(
        self,
        documents: Documents,
        table: NoisyTable,
        budget: DocumentBudget,
        curator: Curator,
        streams: Streams,
        n_rounds: int,
        ratios: Callable[[np.ndarray], np.ndarray] = exponential,
    ) -> Iterator[int]:
        """The next rounds, but for those that release word totals again: they are done here."""
        for t in rounds(self, table.n_rounds + 1, table.n_rounds + n_rounds):
            if table.begins_anew(t):
                table.begin_after_examination(streams, ratios)  # public
            if not table.is_for_totals(t):
                yield t
                continue
            noisy, scale = release_totals_again(
                documents, table.weight, budget.mechanism(t), curator,
                norm=self.contribution_norm, ratio=budget.subsampling_ratio, t=t,
                first=len(budget.totals), n_components=int(self.n_components), n_jobs=self.n_jobs,
            )  # public  # fmt: skip
            table.learn_totals(noisy, scale, norm=self.contribution_norm)  # public

    def _live_table(self, documents: Documents, streams: Streams) -> np.ndarray | None:
        """The table that a fit without noise begins with; None: random topics."""
        return None

    def _publish(
        self,
        guarantee: Guarantee,
        table: NoisyTable,
        budget: DocumentBudget,
    ) -> Self:
        """Set the fitted attributes, all of which are public, and warn of weak ones."""
        public = table.public
        publish(
            self,
            guarantee,
            **with_signal(table.finish(self.topic_word_prior), table.components_std()),
            signal_to_noise_=table.signal_to_noise(),
            n_iter_=table.n_rounds,
            noise_multiplier_=budget.noise_multiplier,
            _released=table,
            prior_trust_=None if public is None or public.is_hint else public.trust,
        )
        warn_if_noise(self, self._max_iter())
        if public is not None:
            public.warn_of_mismatch(type(self).__name__)
        return self

    def _share_for_totals(self, table: NoisyTable, budget: DocumentBudget) -> float:
        """The share of the rounds that release word totals again; public."""
        if budget.exact:
            return 0.0
        noise = self.contribution_norm * budget.noise()
        if table.earlier is not None:
            noise = math.hypot(noise, table.earlier_noise())
        share = share_of_rounds(table.totals, table.weight, noise, budget.word_total_share)
        # public texts know the word totals as far as they match
        return share * (1.0 if table.public is None else 1 - table.public.trust)

    def _examining_rounds(
        self,
        public: PublicPrior | None,
        totals: np.ndarray,
        weight: np.ndarray,
        budget: DocumentBudget,
    ) -> int:
        """How many first rounds examine the public topics: until the slope is clear; public."""
        if public is None or not public.has_topics or budget.exact:
            return 0
        norm, most = self.contribution_norm, budget.rounds_of_share(EXAMINATION)
        for n in range(1, most):
            noise_scale = norm * budget.noise(n) / weight
            if public.noise_of_slope(totals, noise_scale) < CLEAR_SLOPE:
                return n
        return most

    def _prior(self, n_words: int, earlier: NoisyTable | None) -> PublicPrior | None:
        """What `prior_components` says, checked; nothing private is read."""
        if earlier is not None and len(earlier.weight) != n_words:
            raise ValueError(
                f"earlier was fitted to {len(earlier.weight)} words, and X has {n_words}; use one "
                "vocabulary for both"
            )
        shape = (int(self.n_components), n_words)
        table = check_public_table(self.prior_components, shape)
        return None if table is None else PublicPrior.from_table(table)

    def _releases_of(self, earlier: Any) -> NoisyTable | None:
        """The releases of an earlier fit to other documents."""
        if earlier is None:
            return None
        table = getattr(earlier, "_released", None)
        same = isinstance(table, NoisyTable) and table.average.shape[1] == self.n_components
        if not same:
            raise ValueError(
                "earlier must be a fitted SubLDA or PrivateSVILDA with "
                f"n_components={self.n_components}, got {type(earlier).__name__}; pass the model "
                "itself, not a release of it"
            )
        return table

    def _budget(self) -> DocumentBudget:
        return DocumentBudget.from_statement(
            self.epsilon,
            self.noise_multiplier,
            self.delta,
            max_iter=self._max_iter(),
            subsampling_ratio=self._highest_rate(),
            expected_n_docs=self.expected_n_docs,
        )

    def _max_iter(self) -> int:
        """The number of rounds: `max_iter`, or what None stands for at the highest rate."""
        if self.max_iter is not None:
            return int(self.max_iter)
        return default_rounds(self._n_passes, self._highest_rate())

    def _highest_rate(self) -> float:
        """The highest probability with which any unit takes part in a round: what is charged."""
        return float(self.subsampling_ratio)


def _read_counts(estimator: Any, X: Any, *, reset: bool) -> Any:
    """The checked counts: a CSR matrix in the form of the kernels, or the CountShards itself.

    The columns of shards are checked here, and their documents when the rounds begin.
    """
    if issubclass(type(X), CountShards):  # touches nothing of X, unlike isinstance
        check_shards(estimator, X, reset=reset)
        return X
    return single_precision(check_counts(estimator, X, reset=reset, whole=False))
