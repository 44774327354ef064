"""What SUB-LDA and private SVI share: charge a plan, run rounds, publish the model.

A call goes through these steps:

1. `_job` fixes the mechanisms and the plan, from public parameters.
2. `_charge` reserves the price of the plan. Only then are data read and checked.
3. ``charge.begin()`` spends the price. Nothing is refused after it.
4. `_first_table` releases word totals, and `_rounds` releases noisy sums over
   documents. Private values go to the curator only, and what it returns is public.
5. `_publish` sets the fitted attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from dplda.core._base import MAX_ITER, BaseLDA
from dplda.core._corpus import (
    Matrix,
    Shards,
    check_counts,
    check_shards,
    public_tables,
    row_keys,
    unit_of,
    warn_of_equal_rows,
)
from dplda.core._fold_in import aligned_zeros
from dplda.core._private_fit import (
    DISTINCT,
    NOISE_MULTIPLIER,
    PRIVACY_CONSTRAINTS,
    UNKNOWN_WORDS,
    Interval,
    PrivateEstimator,
    Promise,
    charge_of,
    check_paid,
    columns_kept,
    cut_short,
    exactly_one,
    guarantee_of_both,
    public_inputs,
    publish,
    released_so_far,
    warn_if_cut_short,
    warn_if_seeded,
)
from dplda.core._signal import warn_if_weak
from dplda.datasets._shards import CountShards
from dplda.document._contributions import (
    DOCS_OF_A_USER,
    Documents,
    release_round,
    release_totals_again,
    release_word_totals,
)
from dplda.document._document_budget import (
    N_PASSES,
    NORM,
    OTHER_DOCUMENTS,
    PUBLIC_START,
    PUBLIC_VECTORS,
    SMALLEST_RATIO,
    WORD_TOPIC_COUNTS,
    WORD_TOTALS,
    DocumentBudget,
    Round,
    document_budget,
    document_guarantee,
)
from dplda.document._noisy_table import (
    NoisyTable,
    claim_of,
    continued_table,
    finish,
    learn,
    learn_test,
    learn_totals,
    random_table,
    with_rounds_for_totals,
)
from dplda.document._plan import LARGEST, warn_of_size
from dplda.document._private_side import PrivateSide
from dplda.document._public_words import PublicWords
from dplda.document._rules import ExactRules, Rules
from dplda.document._shards import ShardedDocuments
from dplda.document._topic_test import Claim, tested_without_noise
from dplda.leaf._calm import interruptible
from dplda.leaf._compat import _fit_context
from dplda.leaf._messages import rounds, warn_user
from dplda.leaf._users import RELATIONS, charged_unit, number_users
from dplda.privacy import Guarantee, LowSignalWarning
from dplda.privacy._charge import Charge, Step
from dplda.privacy._curator import Curator, check_words
from dplda.privacy._streams import Streams
from dplda.privacy._sums import ALONE, Shares, Sums

# `doc_topic_prior` of the rounds; a larger one makes the topics alike
IN_ROUNDS = 0.1
LEAST_TRUST = 0.1  # in the public topics; a fit warns below it
TOTALS_AGAIN = "share of rounds for word totals"


class Paid(NamedTuple):
    """The guarantees of the releases that a model holds; public."""

    own: Guarantee | None = None  # of its own documents, in all calls so far
    earlier: Guarantee | None = None  # of the other documents, given as `earlier`


@dataclass(frozen=True)
class Job:
    """What a call of `fit` or `partial_fit` fixes before it reads data.

    All of it is public except for the secret streams.
    """

    unit: str  # what is protected: "document" or "user"
    budget: DocumentBudget  # the mechanisms of `max_iter` rounds
    plan: list[Step]  # label and event of each release of this call
    n_done: int  # rounds of the calls before this one
    n_rounds: int  # rounds of this call
    rules: Rules  # for a fit with noise, or without
    streams: Streams  # secret: of noise and samples
    sums: Sums  # who makes the sums public
    paid: Paid  # before this call
    earlier: DocumentLDA | None  # the model whose releases are added


class DocumentLDA(PrivateEstimator, BaseLDA):
    """Latent Dirichlet allocation from noisy sums over documents, in rounds.

    A subclass sets in `_infers_anew` whether each round infers topic weights from equal
    weights, and computes in `_share` the weight of a round in the average.

    Parameters
    ----------
    epsilon : float or None, default=None
        Total epsilon of a document, or of a user if `fit` gets `user_ids`, above 0;
        ``inf`` trains without noise and without privacy. Give either this or
        `noise_multiplier`.
    noise_multiplier : float or None, default=None
        Noise of a round, as standard deviation over sensitivity, instead of `epsilon`.
        Without sampling, rounds have unequal noise, and cost as much as `max_iter`
        rounds with this value. Word totals add to the cost.
    prior_components : array-like (n_components, n_features_in_) or None, default=None
        Public pseudo-counts of words in topics, for instance from a model of public
        texts of the same kind. They are not normalized, because the number of public
        tokens matters. They cost no budget, and must not come from the private texts.
        The fit trusts them as far as the releases agree. `partial_fit` keeps the
        pseudo-counts of its first call. `public_prior` makes them.
    word_vectors : array-like (n_features_in_, n_dimensions) or None, default=None
        Public vectors of the words; rows of words without a vector are zeros. Words
        with similar vectors get similar topics, as far as the releases agree. They cost
        no budget. `dplda.datasets.load_word_vectors` loads vectors of English words,
        and makes the rows from other vectors.
    expected_n_docs : int or None, default=None
        Expected number of documents, or of users. It must be public: never count the
        private documents. `fit` then warns if `delta` is at least 1 /
        `expected_n_docs`, or if few topics are expected to be shown. It changes nothing
        else. See `dplda.plan`.
    doc_topic_prior : float or None, default=None
        Dirichlet parameter of a document's topics (alpha). None is 0.1 in the rounds,
        and `doc_topic_prior_` after the fit.

    Attributes
    ----------
    doc_topic_prior_ : float
        Dirichlet parameter of the topics of documents that are transformed or scored.
        By default it is 0.1. Without `word_vectors`, or with `prior_components`, it is
        1 / (mean number of different words in a document) if that is larger, because
        few words say little of noisy topics. The mean is estimated for the training
        documents, from releases.
    components_std_ : ndarray of shape (n_features_in_,)
        Standard deviation of the noise in a cell of each word, in counts like
        `components_`, before the estimate shrinks it. It is the same in all topics.
    signal_to_noise_ : float
        Mean count of a cell over the standard deviation of its noise in the average of
        the rounds, both times word weights. ``inf`` without noise. Below 0.3, the model
        shows word frequencies, and little of topics.
    prior_trust_ : float or None
        How far the fit trusts the topics of `prior_components`, from 0 to 1, as the
        releases agree with them. None without `prior_components`.
    n_units_ : ndarray of shape (2,)
        Noisy number of documents, or of users, and the standard deviation of its noise;
        NaN if noise hides the number. With `earlier`, of both fits together.
    row_noise_ : ndarray of shape (n_features_in_,) or None
        Sum over topics of the noise of each word in the average of the rounds, scaled
        to variance 1 if one curator adds all noise. None without noise. See
        `dplda.audit.noise_of_release`.
    epsilon_ : float
        Epsilon of a document, or of a user, for all releases since `fit`.
    noise_multiplier_ : float
        Noise multiplier of an average round.
    n_iter_ : int
        Number of rounds so far.
    """

    _released: NoisyTable  # what all calls since `fit` have released; public
    _paid: Paid
    _attack = "document"
    _promise = Promise(
        unit="document",  # or "user", if `fit` gets `user_ids`
        relation=RELATIONS["document"],
        mechanism="discrete Gaussian noise on all word totals, and in each round on "
        "all word-topic counts, or again on all word totals",
        theorem="docs/proofs_document.md",
    )
    boost = 1.0  # the rate that is charged is this times `subsampling_ratio`
    _n_passes = N_PASSES
    _infers_anew = False
    _begins_alike = False  # whether the first topics differ little from each other
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        "noise_multiplier": NOISE_MULTIPLIER,
        "max_iter": [Interval(Integral, 1, MAX_ITER, closed="both"), None],
        "subsampling_ratio": [Interval(Real, SMALLEST_RATIO, 1, closed="both")],
        "prior_components": [None, "array-like"],
        "word_vectors": [None, "array-like"],
        "expected_n_docs": [None, Interval(Integral, 1, LARGEST, closed="both")],
        "doc_topic_prior": [None, *BaseLDA._parameter_constraints["doc_topic_prior"]],
    }

    @property
    def doc_topic_prior_(self) -> float:
        if self.doc_topic_prior is not None:
            return self.doc_topic_prior
        # 0.1 for all lengths: noisy topics of documents of four words are worse than
        # word totals. 2 / length: good topics lose 3 to 5% (docs/decisions.md, 29).
        # Clusters of words are no noise, however short the documents.
        if self._released.may_have_clusters:
            return IN_ROUNDS
        length = max(1.0, self._released.released.doc_length)
        return max(IN_ROUNDS, 1 / length)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Matrix | Shards,
        y: object = None,
        *,
        user_ids: ArrayLike | None = None,
        earlier: DocumentLDA | None = None,
    ) -> Self:
        """Train on private documents, in `max_iter` rounds.

        An interrupt (Ctrl-C) after the first round leaves a fitted model of the
        finished rounds. All rounds of the plan stay charged, and `privacy_` says so.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts. The guarantee protects one row, or all rows of one user.
            Columns are public.
        y : Ignored
            Ignored.
        user_ids : array-like of shape (n_docs,) or None, default=None
            The user of each row: integers or strings. All rows with the same id are one
            protected unit, for instance the texts of a person. One of a user's texts
            has a larger epsilon: ``privacy_.for_part_of_unit()``. None protects each
            row alone. The ids are private; if they are a column, its name is public.
        earlier : SubLDA, PrivateSVILDA or None, default=None
            Fitted model of other documents of the same source, such as yesterday's,
            with the same words and number of topics. The fit continues its topics and
            adds its noisy counts: the result is a model of both. It costs no budget,
            because no document is in both fits. Charge the fits as disjoint parts of a
            ledger (`Ledger.part`).

        Returns
        -------
        self : object
            Fitted estimator.

        Raises
        ------
        BudgetError
            If the budget of the ledger is too small. No data have been read then.
        ValueError
            If not exactly one of `epsilon` and `noise_multiplier` is given; if
            `epsilon` pays for fewer rounds; if `X` is not a matrix of word counts; or
            if `user_ids` does not have one id for each row. Nothing is charged then.

        Warns
        -----
        SeededNoiseWarning
            If noise is drawn from a given `random_state`. The guarantee is void against
            anyone who knows or guesses it.
        LowSignalWarning
            If fewer than half of the topics are shown to be more than noise after
            `max_iter` rounds, or are expected to be with `expected_n_docs` documents;
            if `signal_to_noise_` is below 0.3; or if topics of `prior_components` sum
            to 1, or the releases do not agree with them.
        PrivateDataWarning
            If most rows hold no word, or if more than a tenth are copies of other rows.
            The warning is private.
        """
        return self._fit(X, user_ids, earlier=earlier)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Matrix | Shards, y: object = None, *, user_ids: ArrayLike | None = None
    ) -> Self:
        """Run one more private round on the same documents.

        The costs of all calls add up in `epsilon_`. `max_iter` calls release as much as
        one `fit`, and `epsilon` pays for no further call. Each call also charges the
        distance of its noise from the ideal law. The last call may therefore be refused
        if `epsilon` is large or `delta` is tiny. The first call also releases word
        totals, which later calls divide among the topics: pass the whole corpus to each
        call, or at least documents with the same words.

        With a ledger of ``composition="adaptive"``, make as many calls as the ledger
        allows; its budget is the guarantee. Otherwise choose the number of calls before
        you look at the model. The ledger counts an interrupted call; `epsilon_` does
        not.

        A model holds releases only. You may save it between calls as a checkpoint.

        Parameters
        ----------
        X : {array-like, sparse matrix, CountShards} of shape (n_docs, n_words)
            Word counts of all documents from which the round draws its sample. A
            minibatch that you choose is not a secret sample; set
            ``subsampling_ratio=1`` to use all of its rows.
        y : Ignored
            Ignored.
        user_ids : array-like of shape (n_docs,) or None, default=None
            The user of each row, as in `fit`. Give ids to all calls or to none.

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
        unit = unit_of(X, user_ids)
        table = released_so_far(self, unit)  # public
        if table is None:
            return self._fit(X, user_ids, n_rounds=1)
        job = self._job(unit, n_done=table.n_rounds, n_rounds=1, paid=self._paid)
        with (
            self._charge(job, user_ids) as charge,
            closing(self._documents(X, user_ids, reset=False)) as documents,  # private
        ):
            job.rules.rescale(documents, table.weight)  # private
            charge.begin()  # the price is spent from here on
            curator = Curator(charge, job.streams, sums=job.sums)
            self._train(documents, table, job, charge, curator)
        return self

    def _fit(
        self,
        X: Matrix | Shards,
        user_ids: ArrayLike | None,
        *,
        sums: Sums = ALONE,
        earlier: DocumentLDA | None = None,
        n_rounds: int | None = None,
    ) -> Self:
        """Train from scratch; `sums` makes the sum of each release public.

        An error before ``charge.begin()`` gives the price back, and an old model keeps
        its columns.
        """
        unit = unit_of(X, user_ids)
        earlier = self._checked_earlier(earlier, unit)  # public
        job = self._job(unit, n_rounds=n_rounds, sums=sums, earlier=earlier)
        with (
            self._charge(job, user_ids) as charge,
            columns_kept(self, charge),
            closing(self._documents(X, user_ids, reset=True)) as documents,  # private
        ):
            public_words = self._checked_inputs(documents.n_words, job)  # public
            # Parties draw the first, random topics from the same public streams.
            topic_streams = sums.begin() or job.streams  # secret, public among parties
            charge.begin()  # the price is spent from here on
            self._train_from_scratch(
                documents, job, charge, topic_streams, public_words
            )
        return self

    def _fit_paid(
        self,
        X: Matrix | Shards,
        user_ids: ArrayLike | None,
        charge: Charge,
        sums: Sums = ALONE,
        topic_streams: Streams | None = None,
        earlier: DocumentLDA | None = None,
    ) -> None:
        """Train from scratch under a charge that the caller has begun.

        The charge pays for the choice of the words, too. `_refuse_before` and
        `_checked_earlier` have refused all that can be refused. `topic_streams` is what
        ``sums.begin()`` returned.
        """
        unit = unit_of(X, user_ids)
        earlier = self._checked_earlier(earlier, unit)  # public
        job = self._job(unit, sums=sums, earlier=earlier)
        with closing(
            self._documents(X, user_ids, reset=True, tell_of_copies=False)
        ) as documents:  # private
            public_words = self._checked_inputs(documents.n_words, job)  # public
            streams = topic_streams or job.streams  # secret, public among parties
            self._train_from_scratch(documents, job, charge, streams, public_words)

    def _refuse_before(self, n_words: int, *, is_chosen: bool) -> None:
        """Refuse what `_fit_paid` cannot train, before the caller's charge begins.

        `n_words` is the number of given words, or the largest number of words that will
        be chosen from the texts (`is_chosen`).
        """
        self._validate_params()
        self._check_size(self._plan(), n_words)
        if not is_chosen:
            public_tables(self, n_words)
        elif self.prior_components is not None:
            raise ValueError(
                "prior_components has a column for each word, and the words are not "
                "chosen yet: give public_texts, or a list of words as vocabulary"
            )

    def _check_size(self, plan: Sequence[Step], n_words: int) -> None:
        """Refuse a plan whose noise takes more random words than a charge counts."""
        # two cells beside the words: the numbers of documents and of users
        n_cells = n_words * int(self.n_components)
        check_words(plan, {WORD_TOTALS: n_words + 2, WORD_TOPIC_COUNTS: n_cells})

    def _job(
        self,
        unit: str,
        *,
        n_done: int = 0,
        n_rounds: int | None = None,
        paid: Paid | None = None,
        sums: Sums = ALONE,
        earlier: DocumentLDA | None = None,
    ) -> Job:
        """Fix what a call does before it reads data; None: all rounds of the budget.

        `BudgetError` if `epsilon` does not pay for a further `partial_fit`.
        """
        exactly_one(
            type(self).__name__,
            epsilon=self.epsilon,
            noise_multiplier=self.noise_multiplier,
        )
        budget = self._budget(sums.shares)
        if n_rounds is None:
            n_rounds = len(budget.rounds)
        plan = budget.plan(n_done, n_rounds)
        if paid is None:
            paid = Paid(earlier=None if earlier is None else earlier.privacy_)
        check_paid(self, plan, paid.own, len(budget.rounds))
        return Job(
            unit=unit,
            budget=budget,
            plan=plan,
            n_done=n_done,
            n_rounds=n_rounds,
            rules=self._rules(budget),
            streams=Streams.from_random_state(self.random_state),
            sums=sums,
            paid=paid,
            earlier=earlier,
        )

    def _charge(self, job: Job, user_ids: ArrayLike | None) -> Charge:
        """The charge of a call, for its ``with`` block."""
        seeded = job.streams.seeded
        warn_if_seeded(type(self).__name__, seeded and not job.budget.exact)
        unit = job.unit if user_ids is None else charged_unit(user_ids, job.unit)
        return charge_of(
            self,
            job.plan,
            unit=unit,
            seeded=seeded,
            sums=job.sums,
            is_first=job.paid.own is None,
        )

    def _checked_earlier(
        self, earlier: DocumentLDA | None, unit: str
    ) -> DocumentLDA | None:
        """The fitted model whose releases are added, or None; all public."""
        if earlier is None:
            return None
        table = getattr(earlier, "_released", None)
        if (
            not isinstance(table, NoisyTable)
            or table.average.shape[1] != self.n_components
        ):
            raise ValueError(
                "earlier must be a fitted SubLDA or PrivateSVILDA with "
                f"n_components={self.n_components}, got {type(earlier).__name__}; pass "
                "the model itself, not a release of it"
            )
        if earlier.privacy_.unit != unit:
            raise ValueError(
                f"earlier protects one {earlier.privacy_.unit}, and this fit one "
                f"{unit}; give user_ids to both fits, or to none"
            )
        if earlier.epsilon_ == math.inf and self.epsilon != math.inf:
            raise ValueError(
                "earlier has no guarantee (its epsilon_ is inf), and this fit would "
                "publish its counts; fit it with a finite epsilon, or this one with "
                "epsilon=inf"
            )
        return earlier

    def _checked_inputs(self, n_words: int, job: Job) -> PublicWords | None:
        """Check all that depends on the number of words, which is public.

        Returns the public tables of the words, or None without any. Warns of
        `expected_n_docs` documents if they are too few.
        """
        if job.earlier is not None:
            n_earlier = len(job.earlier._released.weight)
            if n_earlier != n_words:
                raise ValueError(
                    f"earlier was fitted to {n_earlier} words, and X has {n_words}; "
                    "use one vocabulary for both"
                )
        self._check_size(job.plan, n_words)
        if self.expected_n_docs is not None and not job.budget.exact:
            warn_of_size(
                job.budget.noise, self.expected_n_docs, self.n_components, self.delta
            )
        if self.word_vectors is None and self.prior_components is None:
            return None
        return PublicWords.of(*public_tables(self, n_words))

    def _train_from_scratch(
        self,
        documents: PrivateSide,
        job: Job,
        charge: Charge,
        topic_streams: Streams,
        public_words: PublicWords | None,
    ) -> None:
        """Release word totals, then run the rounds. The charge has begun."""
        curator = Curator(charge, job.streams, plan=job.plan, sums=job.sums)
        table = self._first_table(
            documents, job, curator, topic_streams, public_words
        )  # public
        # The share decides which sum a round releases. All parties must use the same.
        agreed = job.sums.agree(np.array([table.share_for_totals]), TOTALS_AGAIN)
        # below 1: at least one round is for topics
        share = min(max(float(agreed[0]), 0.0), math.nextafter(1.0, 0.0))
        table = replace(table, share_for_totals=share)
        self._train(documents, table, job, charge, curator)

    def _train(
        self,
        documents: PrivateSide,
        table: NoisyTable,
        job: Job,
        charge: Charge,
        curator: Curator,
    ) -> None:
        """Run the rounds of a job, and publish the model.

        If an exception ends the rounds early, the model of the finished rounds is
        published.
        """
        schedule = job.budget.schedule(
            job.n_done,
            job.n_rounds,
            share_for_totals=min(table.share_for_totals, job.rules.most_for_totals),
            powers=job.rules.powers,
        )  # public
        try:
            for learned in self._rounds(documents, table, schedule, curator, job.rules):
                table = learned  # an interrupt leaves the old value or the new one
                if job.sums.keep is not None:  # a party keeps each round
                    self._publish(table, schedule, job, charge)
                    job.sums.keep()
            if job.rules.keeps_out(documents):
                tested = tested_without_noise(
                    documents,
                    claim_of(table, self.n_jobs),
                    job.rules.bound(documents, NORM),
                    job.rules.doc_topic_prior,
                    self.n_jobs,
                )  # without privacy
                table = replace(table, tested=tested)
        finally:
            if table.n_rounds > job.n_done:
                self._publish(table, schedule, job, charge)
                warn_if_cut_short(self, job.n_done + job.n_rounds)
        self._warn_of_result(len(job.budget.rounds))

    def _documents(
        self,
        X: Matrix | Shards,
        user_ids: ArrayLike | None,
        *,
        reset: bool,
        tell_of_copies: bool = True,
    ) -> PrivateSide:
        """Check the documents; private.

        Of shards, only the columns are checked here; `ShardedDocuments` checks all
        files. `tell_of_copies` is False if the caller has compared the texts.
        """
        if isinstance(X, CountShards):
            check_shards(self, X, reset=reset)
            return ShardedDocuments(X, int(self.n_components), self.n_jobs)
        counts = check_counts(self, X, reset=reset)
        if tell_of_copies:
            warn_of_equal_rows(row_keys(counts))
        users = None if user_ids is None else number_users(user_ids, counts.shape[0])
        return Documents.from_counts(counts, int(self.n_components), self.n_jobs, users)

    def _rounds(
        self,
        documents: PrivateSide,
        table: NoisyTable,
        schedule: list[Round],
        curator: Curator,
        rules: Rules,
    ) -> Iterator[NoisyTable]:
        """Run the rounds, and yield what is known after each; public.

        The documents are private. Only results of `curator.release` leave them. Signals
        wait from a release until the table has learned it.
        """
        scratch = aligned_zeros(table.table.shape, np.float32)
        claim = None  # what the topics say, once all rounds of topics are done
        for _, this_round in zip(
            rounds(self, schedule[0].number, schedule[-1].number), schedule
        ):
            if this_round.for_totals:
                totals, noise_scale = release_totals_again(
                    documents, table.weight, this_round, curator, self.n_jobs
                )  # public
                table = learn_totals(table, totals, noise_scale)  # public
            elif this_round.for_test:
                claim = claim or claim_of(table, self.n_jobs)  # public
                table = self._test_round(
                    documents, table, claim, this_round, curator, rules
                )  # public
            else:
                table = self._topics_round(
                    documents, table, this_round, curator, rules, scratch
                )  # public
            yield table

    def _topics_round(
        self,
        documents: PrivateSide,
        table: NoisyTable,
        this_round: Round,
        curator: Curator,
        rules: Rules,
        scratch: np.ndarray,
    ) -> NoisyTable:
        """Release a noisy sum of word-topic counts, and learn from it; public."""
        rates = self._rates(documents, table, this_round.rate)  # private
        units = curator.sample(rates, round=this_round.number - 1)  # secret
        units = rules.that_train(units, documents)  # secret
        norm = rules.bound(documents, this_round.norm)  # public
        tables = rules.tables(table, this_round, norm, scratch)  # public
        # a unit that is drawn less often weighs more
        upweight = this_round.rate / rates  # private
        with interruptible():
            total = documents.sum_topics(units, tables, upweight)  # private
        # One unit moves `total` by at most the radius in L2: its contribution is
        # clipped to `tables.radius` in integers. The contribution reads the documents
        # of the unit, their own topic weights and past releases only, so that no other
        # unit's contribution changes.
        noisy = release_round(total, this_round, curator, self.n_jobs)  # public
        return learn(
            table,
            noisy,
            this_round,
            granularity=norm / tables.radius / this_round.rate,
            share=self._share(this_round),
            is_centered=rules.is_centered,
            least=self.topic_word_prior,
            n_jobs=self.n_jobs,
        )  # public

    def _test_round(
        self,
        documents: PrivateSide,
        table: NoisyTable,
        claim: Claim,
        this_round: Round,
        curator: Curator,
        rules: Rules,
    ) -> NoisyTable:
        """Release a noisy sum that tests the topics, and learn from it; public."""
        rates = self._rates(documents, table, this_round.rate)  # private
        units = curator.sample(rates, round=this_round.number - 1)  # secret
        radius = this_round.mechanism.radius
        halves = claim.halves(
            radius, this_round.number, rules.doc_topic_prior, self.n_jobs
        )  # public
        upweight = this_round.rate / rates  # private
        with interruptible():
            total = documents.sum_halves(units, halves, upweight)  # private
        # One unit moves `total` by at most the radius in L2: its contribution, of both
        # halves of its words together, is clipped to `halves.radius` in integers. It
        # reads the documents of the unit, public coins and past releases only.
        noisy = release_round(total, this_round, curator, self.n_jobs)  # public
        return learn_test(table, claim, noisy, this_round)  # public

    def _publish(
        self, table: NoisyTable, schedule: list[Round], job: Job, charge: Charge
    ) -> None:
        """Set the fitted attributes: the model of the rounds so far."""
        result = finish(table, self.topic_word_prior, n_jobs=self.n_jobs)
        own = self._guarantee(schedule, job, charge)
        own = cut_short(own, table.n_rounds, job.n_done + job.n_rounds)
        instead = result["_instead"]
        if isinstance(instead, str):
            own = replace(own, provenance=(*own.provenance, ("topics", instead)))
        earlier = job.paid.earlier
        publish(
            self,
            own if earlier is None else guarantee_of_both(own, earlier),
            **result,
            n_iter_=table.n_rounds,
            noise_multiplier_=job.budget.noise_multiplier,
            _released=table,
            _paid=Paid(own, earlier),
        )

    def _guarantee(self, schedule: list[Round], job: Job, charge: Charge) -> Guarantee:
        """The guarantee of all releases of these documents, in all calls."""
        norms = [] if job.n_done else [NORM] * len(job.budget.totals)
        norms += [this_round.norm for this_round in schedule]
        norms += [NORM] * job.budget.n_spare
        terms = job.sums.promise(charge.events, self.delta)
        assumptions: tuple[str, ...] = (DISTINCT,)
        if self.prior_components is not None:
            assumptions += (PUBLIC_START,)
        if self.word_vectors is not None:
            assumptions += (PUBLIC_VECTORS,)
        if job.paid.earlier is not None and job.unit == "document":
            assumptions += (OTHER_DOCUMENTS,)
        return document_guarantee(
            tuple(event for _, event in job.plan),
            unit=job.unit,
            delta=self.delta,
            paid_before=job.paid.own,
            norms=norms,
            seeded=job.streams.seeded,
            mechanism=self._promise.mechanism + terms.mechanism,
            assumptions=assumptions + terms.assumptions,
            provenance=UNKNOWN_WORDS + public_inputs(self),
            total_variation=job.sums.shares.total_variation,
            charge=charge,
            trusted=terms.trusted or self._promise.trusted,
            theorem=self._promise.theorem,
        )

    def _warn_of_result(self, max_iter: int) -> None:
        """Warn if the model says little."""
        if self.n_iter_ >= max_iter:
            warn_if_weak(self, self._instead)
        if self.prior_trust_ is not None and self.prior_trust_ < LEAST_TRUST:
            warn_user(
                f"the releases of {type(self).__name__} do not agree with the topics "
                f"of prior_components (prior_trust_ is {self.prior_trust_:.2g}, below "
                f"{LEAST_TRUST}), and they were all but ignored; use public texts of "
                "the same kind, or leave prior_components=None",
                LowSignalWarning,
            )

    def _first_table(
        self,
        documents: PrivateSide,
        job: Job,
        curator: Curator,
        topic_streams: Streams,
        public_words: PublicWords | None,
    ) -> NoisyTable:
        """The table before round 1, from two releases of word totals; public."""
        most_docs = 1 if job.unit == "document" else DOCS_OF_A_USER  # public
        released, weight = release_word_totals(
            documents, job.budget.totals, curator, job.rules, most_docs
        )  # public
        if job.earlier is not None:
            table = continued_table(
                job.earlier._released, released, weight, public_words
            )
        else:
            table = random_table(
                released,
                weight,
                int(self.n_components),
                topic_streams,
                public_words,
                self._begins_alike,
            )
            if job.budget.exact:
                table = self._exact_start(documents, topic_streams, table)
        return with_rounds_for_totals(table, NORM * job.budget.noise)

    def _exact_start(
        self, documents: PrivateSide, streams: Streams, table: NoisyTable
    ) -> NoisyTable:
        """The first table of a fit without noise; `table` has random topics."""
        return table

    def _rates(
        self, documents: PrivateSide, table: NoisyTable, highest: float
    ) -> np.ndarray:
        """Each unit's probability of joining a round, (n_units,), at most `highest`."""
        return np.full(documents.n_units, highest)

    def _share(self, this_round: Round) -> float:
        """Weight of a round in the average of all rounds up to it, in (0, 1]."""
        raise NotImplementedError

    def _rules(self, budget: DocumentBudget) -> Rules:
        """The rules of a fit with noise, or of a fit without."""
        rules_class = ExactRules if budget.exact else Rules
        return rules_class(
            begins_anew=self._infers_anew,
            doc_topic_prior=self._prior_in_rounds,
            topic_word_prior=self.topic_word_prior,
            n_jobs=self.n_jobs,
        )

    @property
    def _prior_in_rounds(self) -> float:
        return IN_ROUNDS if self.doc_topic_prior is None else self.doc_topic_prior

    def _budget(self, shares: Shares = ALONE.shares) -> DocumentBudget:
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
            shares=shares,
        )

    def _plan(self, shares: Shares = ALONE.shares) -> list[Step]:
        """Label and event of each release of `fit`."""
        budget = self._budget(shares)
        return budget.plan(0, len(budget.rounds))
