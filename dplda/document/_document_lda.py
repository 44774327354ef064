"""What SUB-LDA and private SVI share: charge a plan, run rounds, publish the model."""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, Self

import numpy as np

from dplda.core._base import MAX_ITER, BaseLDA
from dplda.core._corpus import (
    are_shards,
    check_counts,
    check_shards,
    public_tables,
    unit_of,
)
from dplda.core._fold_in import aligned_zeros, in_16_bits
from dplda.core._private_fit import (
    EXPECTED_N_DOCS,
    NOISE_MULTIPLIER,
    PRIVACY_CONSTRAINTS,
    Interval,
    PrivateEstimator,
    Promise,
    check_paid,
    exactly_one,
    publish,
    released_so_far,
    warn_if_seeded,
)
from dplda.core._signal import warn_if_weak
from dplda.document._contributions import (
    DOCS_OF_A_USER,
    Documents,
    release_totals_again,
    release_word_totals,
)
from dplda.document._document_budget import (
    COUNTS,
    N_PASSES,
    NORM,
    ONE_CURATOR,
    OTHER_DOCUMENTS,
    PUBLIC_START,
    PUBLIC_VECTORS,
    SMALLEST_RATIO,
    DocumentBudget,
    Round,
    document_budget,
    document_guarantee,
)
from dplda.document._noisy_table import CLEAR, ExactTable, NoisyTable
from dplda.document._plan import expectation
from dplda.document._public_words import PublicWords
from dplda.document._shards import ShardedDocuments
from dplda.leaf._compat import _fit_context
from dplda.leaf._messages import rounds, warn_user
from dplda.leaf._users import RELATIONS, charged_unit, number_users
from dplda.privacy import Guarantee, LowSignalWarning
from dplda.privacy._curator import Curator
from dplda.privacy._events import Event
from dplda.privacy._streams import Streams

HARDLY = 0.1  # trust below which a fit warns


class DocumentLDA(PrivateEstimator, BaseLDA):
    """Latent Dirichlet allocation from noisy sums over documents, in rounds.

    A subclass says in `_infers_anew` whether the topic weights of a document begin anew
    in each round, and in `_share` what a round weighs.

    Parameters
    ----------
    epsilon : float or None, default=None
        Total epsilon of a document, or of a user if `fit` gets `user_ids`, above 0;
        ``inf`` trains without noise and without privacy. Give either this or
        `noise_multiplier`.
    noise_multiplier : float or None, default=None
        Noise of a round, as standard deviation over sensitivity, instead of `epsilon`.
        Rounds without sampling differ in noise, and cost as much as `max_iter` equal
        rounds with this value. Word totals add to the cost.
    prior_components : array-like (n_components, n_features_in_) or None, default=None
        Public pseudo-counts of words in topics, for instance of a model of public texts
        of the same kind, not normalized: how many public tokens stand behind them
        matters. They cost no budget, must not come from the private texts, and are
        believed if the releases agree. `partial_fit` goes on with those of its first
        call. See `public_prior`.
    word_vectors : array-like (n_features_in_, n_dimensions) or None, default=None
        Public vectors of the words, zeros in the rows of words without one: what words
        mean. Words with similar vectors get similar topics, as far as the releases
        agree. They cost no budget. `dplda.datasets.load_word_vectors` has those of
        English words, and makes others.
    expected_n_docs : int or None, default=None
        Expected number of documents, a public number: never count the private
        documents. `fit` then warns if `delta` is at least 1 / `expected_n_docs`, or if
        few topics can be expected to stand out of the noise. It changes nothing else.
        See `dplda.plan`.

    Attributes
    ----------
    components_std_ : ndarray of shape (n_features_in_,)
        Standard deviation of the noise in a cell of each word, the same in all topics,
        in the unit of `components_`, before the estimate shrinks it.
    signal_to_noise_ : float
        Mean count of a cell over the standard deviation of its noise in the average of
        the rounds, both times word weights. ``inf`` without noise. Below 0.3 the model
        knows word frequencies, and little of topics.
    prior_trust_ : float or None
        How far the topics of `prior_components` are believed, from 0 to 1: as the
        releases say. None without them.
    row_noise_ : ndarray of shape (n_features_in_,) or None
        Sum over topics of the noise of each word in the average of the rounds. With the
        noise of one curator the variance is 1; without noise None. See
        `dplda.audit.noise_of_release`.
    epsilon_ : float
        Epsilon of a document, or of a user, for everything released since `fit`.
    noise_multiplier_ : float
        Noise multiplier of an average round.
    n_iter_ : int
        Number of rounds so far.
    """

    _parties: Any = None  # of `dplda.federated.fit_together`
    _attack = "document"
    _promise = Promise(
        unit="document",  # or "user", if `fit` gets `user_ids`
        relation=RELATIONS["document"],
        mechanism="discrete Gaussian noise on all word totals, and in each round on "
        "all word-topic counts, or again on all word totals",
        theorem="docs/proofs_document.md",
    )
    # times `subsampling_ratio` is the highest rate of a unit, which is charged
    boost = 1.0
    _n_passes = N_PASSES
    _infers_anew = False
    _begins_alike = False  # with topics that differ little from each other
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        "noise_multiplier": NOISE_MULTIPLIER,
        "max_iter": [Interval(Integral, 1, MAX_ITER, closed="both"), None],
        "subsampling_ratio": [Interval(Real, SMALLEST_RATIO, 1, closed="both")],
        "prior_components": [None, "array-like"],
        "word_vectors": [None, "array-like"],
        "expected_n_docs": EXPECTED_N_DOCS,
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: Any = None, *, user_ids: Any = None, earlier: Any = None
    ) -> Self:
        """Train on private documents: `max_iter` rounds.

        An interrupt (Ctrl-C) after the first round leaves a fitted model of the rounds
        so far. All rounds of the plan are charged then, and `privacy_` says so.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts. One row is what the
            guarantee protects, or all rows of one user; columns are public.
        y : Ignored
            Ignored.
        user_ids : array-like of shape (n_docs,) or None, default=None
            The user that each row comes from: integers or strings. All rows with one id
            are one protected unit, for instance the texts of a person. A part of it,
            such as one text of a user who keeps others, has a larger epsilon:
            ``privacy_.for_part_of_unit()``. None protects each row alone. Private, and
            read after `X`; the name of a column is public.
        earlier : SubLDA, PrivateSVILDA or None, default=None
            Fitted model of other documents of the same source, such as those of
            yesterday, with the same words and number of topics. Its noisy counts are
            added, and its topics go on: the result is a model of both. It costs no
            budget, because no document is in both. Charge both fits as disjoint parts
            of a ledger (`Ledger.part`).

        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        BudgetError
            If the budget of the ledger is too small. No data have been read then.
        ValueError
            If not exactly one of `epsilon` and `noise_multiplier` is given, or if
            `user_ids` does not have one id for each row. Nothing is charged then.

        Warns
        -----
        SeededNoiseWarning
            If noise is drawn from a given `random_state`. The guarantee is void against
            anyone who knows or guesses it.
        LowSignalWarning
            If fewer than half of the topics stand out of the noise after `max_iter`
            rounds, or are expected to with `expected_n_docs` documents; if
            `signal_to_noise_` is below 0.3; or if topics of `prior_components` sum to
            1, or the releases do not agree with them.
        PrivateDataWarning
            If most rows hold no word. Not for release.
        """
        table = (
            None if earlier is None else getattr(earlier, "_released", None)
        )  # public
        if earlier is not None and (
            not isinstance(table, NoisyTable)
            or table.average.shape[1] != self.n_components
        ):
            raise ValueError(
                "earlier must be a fitted SubLDA or PrivateSVILDA with "
                f"n_components={self.n_components}, got {type(earlier).__name__}; pass "
                "the model itself, not a release of it"
            )
        return self._train(X, user_ids, None, earlier=table)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, *, user_ids: Any = None) -> Self:
        """Run one more private round on the same documents.

        The costs of all calls add up in `epsilon_`. `max_iter` calls release what `fit`
        releases, and `epsilon` pays for no further call. Each call charges the distance
        of its noise from the ideal law, so that the last of them may be refused if
        `epsilon` is large or `delta` tiny. The first call also releases word totals,
        which later ones divide among the topics: pass the whole corpus to each call, or
        at least documents with the same words.

        Make as many calls as the ledger allows under a ledger with
        ``composition="adaptive"``, whose budget is then the guarantee. Otherwise fix
        their number before you look at the model. A call that is interrupted stays in
        the ledger's account, but not in `epsilon_`.

        A model holds releases only. Saved between the calls, it is a checkpoint.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts of all documents from which the round may draw. A minibatch
            chosen by the caller is not a secret sample; set ``subsampling_ratio=1`` to
            use all rows.
        y : Ignored
            Ignored.
        user_ids : array-like of shape (n_docs,) or None, default=None
            The user that each row comes from, as in `fit`. Give ids to every call or to
            none.

        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        BudgetError
            If this call would exceed `epsilon` or the budget of the ledger. No data
            have been read then.
        ValueError
            If `n_components`, the width of `X` or the protected unit changed since the
            first call, or if `user_ids` does not have one id for each row.

        See Also
        --------
        fit : All rounds at once; it gives the same warnings.
        """
        table = released_so_far(self, unit_of(X, user_ids))
        return self._train(X, user_ids, 1, table=table)

    def _train(
        self,
        X: Any,
        user_ids: Any,
        n_rounds: int | None,
        *,
        table: NoisyTable | None = None,
        earlier: NoisyTable | None = None,
    ) -> Self:
        """Charge `n_rounds` rounds (None: all), run them, and publish the model."""
        name, unit = type(self).__name__, unit_of(X, user_ids)
        exactly_one(name, epsilon=self.epsilon, noise_multiplier=self.noise_multiplier)
        budget = self._budget()  # public
        n_done, before = (0, None) if table is None else (table.n_rounds, self.privacy_)
        n_rounds = n_rounds or len(budget.rounds)
        plan = budget.plan(n_done, n_rounds)  # public
        if before is not None:
            check_paid(self, plan, before, len(budget.rounds))
        streams = Streams.from_random_state(self.random_state)  # secret
        warn_if_seeded(name, streams.seeded and not budget.exact)
        charged, interrupt = (
            unit if user_ids is None else charged_unit(user_ids, unit),
            None,
        )
        with (
            Curator(
                plan,
                streams,
                label=name,
                unit=charged,
                ledger=self.ledger,
                parties=self._parties,
            ) as curator,
            closing(
                self._documents(X, user_ids, reset=table is None)
            ) as documents,  # private
        ):
            if table is None:
                if self.expected_n_docs is not None and not budget.exact:
                    expectation(  # warns
                        budget.noise,
                        n_docs=self.expected_n_docs,
                        n_words=documents.n_words,
                        n_components=self.n_components,
                        delta=self.delta,
                    )
                table = self._first_table(
                    documents, budget, curator, streams, earlier, unit
                )  # public
            else:
                table = table.copied(budget.exact, self.n_jobs)
                documents.rescale(table.weight, NORM, exact=budget.exact)  # private
            steps = table.schedule(budget, n_rounds)  # public
            try:
                self._rounds(documents, table, steps, curator)
            except KeyboardInterrupt as error:
                if table.n_rounds == n_done:
                    raise
                interrupt = error
        norms = [] if n_done else [NORM] * len(budget.totals)
        norms += [*map(attrgetter("norm"), steps), *[NORM] * budget.n_spare]
        assumptions = (PUBLIC_START,) * (self.prior_components is not None)
        assumptions += (PUBLIC_VECTORS,) * (self.word_vectors is not None)
        assumptions += (OTHER_DOCUMENTS,) * (earlier is not None)
        if self._parties is not None:
            assumptions += self._parties.assumptions(curator.events, self.delta)
        guarantee = document_guarantee(
            curator.events,
            unit=unit,
            delta=self.delta,
            earlier=before,
            norms=norms,
            seeded=streams.seeded,
            mechanism=self._promise.mechanism,
            assumptions=assumptions,
            total_variation=curator.total_variation,
        )
        return self._publish(table, budget, guarantee, n_done + n_rounds, interrupt)

    def _documents(self, X: Any, user_ids: Any, *, reset: bool) -> Documents:
        """The checked documents.

        The columns of shards are checked here, and their documents when they are
        visited.
        """
        if are_shards(X):
            check_shards(self, X, reset=reset)
            return ShardedDocuments(X, int(self.n_components), self.n_jobs)
        counts = check_counts(self, X, reset=reset)
        users = None if user_ids is None else number_users(user_ids, counts.shape[0])
        return Documents.from_counts(counts, int(self.n_components), self.n_jobs, users)

    def _rounds(
        self,
        documents: Documents,
        table: NoisyTable,
        steps: list[Round],
        curator: Curator,
    ) -> None:
        """The algorithm. Only results of `curator.release` leave `documents`.

        The documents are private.
        """
        priors = self.doc_topic_prior, self.topic_word_prior
        # of the factor, then of the center
        room = aligned_zeros(table.table.shape, np.float32)
        for _, step in zip(rounds(self, steps[0].t, steps[-1].t), steps):
            if step.for_totals:
                noisy, scale = release_totals_again(
                    documents, table.weight, step, curator, self.n_jobs
                )  # public
                table.learn_totals(noisy, scale)  # public
                continue
            rates = self._rates(documents, table, step.rate)  # private
            units = curator.sample(rates, round=step.t - 1)  # secret
            phi = table.infer(
                documents, units, step.power, room, self._infers_anew, priors
            )  # private, except for what is returned
            bound, radius = documents.clipping_bound(
                step.mechanism, step.norm
            )  # public
            total = documents.sum_topics(
                units,
                factor=in_16_bits(phi, self.n_jobs),
                center=in_16_bits(table.center(room), self.n_jobs, size=0),
                weight=table.weight,
                norm=bound,
                radius=radius,
                upweight=step.rate / rates,
            )  # private
            # One unit moves `total` by at most `radius` in L2: its contribution is
            # clipped to `radius` in integers. The contribution reads the documents of
            # the unit, their own topic weights and past releases only, so that no other
            # unit's contribution changes.
            noisy = curator.release(
                total,
                step.mechanism,
                label=COUNTS,
                round=step.stream,
                sampling_probability=step.rate,
                overwrite_value=True,
                n_jobs=self.n_jobs,
            )  # public
            table.update(
                noisy,
                step,
                unit=bound / radius / step.rate,
                share=self._share(step),
                topic_word_prior=self.topic_word_prior,
            )  # public

    def _publish(
        self,
        table: NoisyTable,
        budget: DocumentBudget,
        guarantee: Guarantee,
        n_charged: int,
        interrupt: KeyboardInterrupt | None,
    ) -> Self:
        """Set the fitted attributes, and warn of an interrupt and of weak topics."""
        name, public = type(self).__name__, table.estimate.public
        if interrupt is not None:
            done = (
                f"{table.n_rounds} of {n_charged}, then an interrupt; all are charged"
            )
            provenance = *guarantee.provenance, ("rounds", done)
            guarantee = dataclasses.replace(guarantee, provenance=provenance)
        publish(
            self,
            guarantee,
            **table.finish(self.topic_word_prior),
            n_iter_=table.n_rounds,
            noise_multiplier_=budget.noise_multiplier,
            _released=table,
            prior_trust_=public.trust
            if public is not None and public.has_frequencies
            else None,
        )
        if interrupt is not None:
            warn_user(
                f"{name} was interrupted after {table.n_rounds} of {n_charged} rounds: "
                "it is a fitted model of these, and epsilon_ counts all rounds, which "
                "are charged; to spend no more, use this model, or save it"
            )
            raise interrupt
        if table.n_rounds >= len(budget.rounds):
            warn_if_weak(self)
        if (self.prior_trust_ or 1.0) < HARDLY:
            warn_user(
                f"the releases of {name} do not agree with the topics of "
                f"prior_components (prior_trust_ is {self.prior_trust_:.2g}, below "
                f"{HARDLY}), and they were all but ignored; use public texts of the "
                "same kind, or leave prior_components=None",
                LowSignalWarning,
            )
        return self

    def _first_table(
        self,
        documents: Documents,
        budget: DocumentBudget,
        curator: Curator,
        streams: Streams,
        earlier: NoisyTable | None,
        unit: str,
    ) -> NoisyTable:
        """The table before round 1, from two releases of word totals; public."""
        n_words = documents.n_words
        if earlier is not None and len(earlier.weight) != n_words:
            raise ValueError(
                f"earlier was fitted to {len(earlier.weight)} words, and X has "
                f"{n_words}; use one vocabulary for both"
            )
        public = None
        if self.word_vectors is not None or self.prior_components is not None:
            public = PublicWords.of(*public_tables(self, n_words))
        if self._parties is not None:
            streams = self._parties.begin()  # all begin with the same topics
        most = 1 if unit == "document" else DOCS_OF_A_USER  # public
        released, weight = release_word_totals(
            documents, budget.totals, curator, NORM, most
        )  # public
        kind = ExactTable if budget.exact else NoisyTable
        table = kind.from_totals(
            released,
            weight,
            int(self.n_components),
            streams,
            public,
            self._begins_alike,
            self.n_jobs,
        )  # public
        if earlier is not None:
            table.add_earlier(earlier)
        elif (
            budget.exact
            and (start := self._exact_start(documents, streams)) is not None
        ):
            table.average, table.table = start, start.astype(np.float32)
        if not budget.exact:
            earlier_noise = 0.0 if table.earlier is None else table.earlier.noise
            # of a cell, after all rounds
            noise = math.hypot(NORM * budget.noise, earlier_noise)
            # Topics cannot be told from each other where it hides the totals of the
            # words. Word frequencies can be learned there still.
            signal = float((table.totals * weight).mean())
            table.share_for_totals = max(0.0, 1.0 - signal / (CLEAR * noise))
            # which know the word totals, too
            if public is not None and public.has_frequencies:
                table.share_for_totals *= 1 - public.agreement
        return table

    def _exact_start(self, documents: Documents, streams: Streams) -> np.ndarray | None:
        """The table that a fit without noise begins with; None: random topics."""
        return None

    def _rates(
        self, documents: Documents, table: NoisyTable, highest: float
    ) -> np.ndarray:
        """Each unit's probability of joining a round, (n_units,), at most `highest`."""
        return np.full(documents.n_units, highest)

    def _share(self, step: Round) -> float:
        """Share of a round in the average of the rounds so far, once it is in it."""
        raise NotImplementedError

    def _budget(self) -> DocumentBudget:
        """The mechanisms of `fit`: a function of public parameters."""
        return document_budget(
            self.epsilon,
            self.noise_multiplier,
            self.delta,
            max_iter=self.max_iter,
            subsampling_ratio=min(
                1.0, float(self.subsampling_ratio) * float(self.boost)
            ),
            n_passes=self._n_passes,
            shares=ONE_CURATOR if self._parties is None else self._parties.shares,
        )

    def _plan(self) -> list[tuple[str, Event]]:
        """What `fit` charges."""
        budget = self._budget()
        return budget.plan(0, len(budget.rounds))
