"""What SUB-LDA and private SVI share: their parameters, their calls and their budget.

`Training` is what a call does, from its plan to the published model. The training of a
model is in the file of the model.
"""

from __future__ import annotations

import copy
from numbers import Integral, Real
from typing import Self

from numpy.typing import ArrayLike

from dplda.core._base import MAX_ITER, BaseLDA
from dplda.core._corpus import Matrix, Shards, unit_of
from dplda.core._private_estimator import (
    NOISE_MULTIPLIER,
    PRIVACY_CONSTRAINTS,
    Interval,
    PrivateEstimator,
    Promise,
)
from dplda.core._private_fit import check_paid, exactly_one, released_so_far
from dplda.document._document_budget import (
    N_PASSES,
    SMALLEST_RATIO,
    DocumentBudget,
    document_budget,
)
from dplda.document._earlier import check_earlier
from dplda.document._noisy_table import NoisyTable
from dplda.document._plan import warn_of_size
from dplda.document._rules import FEW_WORDS, default_prior
from dplda.document._training import Training
from dplda.leaf._checks import LARGEST_INTEGER
from dplda.leaf._compat import _fit_context
from dplda.leaf._users import RELATIONS
from dplda.privacy import Guarantee
from dplda.privacy._charge import Step
from dplda.privacy._streams import Streams
from dplda.privacy._sums import ALONE, Shares, Sums


class DocumentLDA(PrivateEstimator, BaseLDA):
    """Latent Dirichlet allocation from noisy sums over documents, in rounds.

    A subclass sets in `_trains` which `Training` its calls are.

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
        or 2 / `n_components` if that is smaller and topics are noisy, and
        `doc_topic_prior_` after the fit.

    Attributes
    ----------
    doc_topic_prior_ : float
        Dirichlet parameter of the topics of documents that are transformed or scored.
        By default it is 0.1, or 2 / `n_components` if that is smaller and some releases
        of topics have noise. Without `word_vectors`, or with `prior_components`, it is
        multiplied by 10 / (mean number of different words in a document) if that is
        larger than 1, because few words say little of noisy topics. The mean is
        estimated for the training documents, from releases.
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

    # What all calls since `fit` have released, and its guarantee; public. The model
    # may add the releases of `earlier`, which have a guarantee of their own.
    _released: NoisyTable
    _cost: Guarantee
    _charged_unit: str
    _earlier_cost: Guarantee | None
    _trains: type[Training]
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
    _parameter_constraints = {
        **BaseLDA._parameter_constraints,
        **PRIVACY_CONSTRAINTS,
        "noise_multiplier": NOISE_MULTIPLIER,
        "max_iter": [Interval(Integral, 1, MAX_ITER, closed="both"), None],
        "subsampling_ratio": [Interval(Real, SMALLEST_RATIO, 1, closed="both")],
        "prior_components": [None, "array-like"],
        "word_vectors": [None, "array-like"],
        "expected_n_docs": [
            None,
            Interval(Integral, 1, LARGEST_INTEGER, closed="both"),
        ],
        "doc_topic_prior": [None, *BaseLDA._parameter_constraints["doc_topic_prior"]],
    }

    @property
    def doc_topic_prior_(self) -> float:
        if self.doc_topic_prior is not None:
            return self.doc_topic_prior
        released = self._released
        prior = default_prior(len(self.components_), released.has_noise)
        # Clusters of words are no noise, however short the documents.
        if released.tested is not None and released.vectors is not None:
            return prior
        length = max(1.0, released.released_totals.doc_length)
        return prior * max(1.0, FEW_WORDS / length)

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
            or if topics of `prior_components` sum to 1, or the releases do not agree
            with them.
        PrivateDataWarning
            If most rows hold no word, or if more than a tenth are copies of other rows.
            The warning is private.
        """
        unit = unit_of(X, user_ids)  # public
        self._training(unit, earlier=earlier).fit(X, user_ids)
        return self

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

        The last calls up to `max_iter` test the topics. A further call changes them, so
        that they are not tested any more: give the number of calls as `max_iter`.

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
        unit = unit_of(X, user_ids)  # public
        so_far = released_so_far(self, unit)  # public
        self._training(unit, n_rounds=1, so_far=so_far).fit(X, user_ids)
        return self

    def _training(
        self,
        unit: str,
        *,
        n_rounds: int | None = None,
        so_far: NoisyTable | None = None,
        earlier: DocumentLDA | None = None,
        sums: Sums = ALONE,
    ) -> Training:
        """Plan a call, from public parameters; all rounds of the budget by default.

        `so_far` are the releases of the calls that this one continues. `sums` makes the
        sum of each release public. `BudgetError` if `epsilon` does not pay for a
        further call. The first call warns of `expected_n_docs` documents if they are
        too few.
        """
        if earlier is not None:
            check_earlier(self, earlier, unit)
        exactly_one(
            type(self).__name__,
            epsilon=self.epsilon,
            noise_multiplier=self.noise_multiplier,
        )
        budget = self._budget(sums.shares)
        if n_rounds is None:
            n_rounds = len(budget.rounds)
        plan = budget.plan(0 if so_far is None else so_far.n_rounds, n_rounds)
        paid_before = None
        earlier_cost = None
        n_earlier = 0  # fits whose releases this one adds
        if earlier is not None:
            earlier_cost = earlier.privacy_
            n_earlier = earlier._released.n_fits
        if so_far is not None:
            paid_before = self._cost
            earlier_cost = self._earlier_cost
            n_earlier = so_far.n_fits - 1
            check_paid(self, plan, paid_before, len(budget.rounds))
        elif self.expected_n_docs is not None and not budget.exact:  # a first call
            warn_of_size(
                budget.noise, self.expected_n_docs, self.n_components, self.delta
            )
        return self._trains(
            model=self,
            checked=copy.copy(self),
            unit=unit,
            budget=budget,
            plan=plan,
            n_rounds=n_rounds,
            # not the key of the earlier fits: the noise of equal seeds would cancel
            streams=Streams.from_random_state(self.random_state, n_earlier),  # secret
            sums=sums,
            so_far=so_far,
            paid_before=paid_before,
            earlier=earlier,
            earlier_cost=earlier_cost,
        )

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
