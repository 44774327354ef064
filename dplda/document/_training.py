"""A call of `fit` or `partial_fit` of SUB-LDA or private SVI: its plan and its rounds.

A call goes through these steps:

1. The model fixes the mechanisms and the plan in a `Training`, from public parameters.
2. `Training.fit` reserves the price of the plan. Only then are data read and checked
   (`Training.documents`).
3. ``charge.begin()`` spends the price. Nothing is refused after it.
4. `Training.run` releases word totals, and then noisy sums over documents in rounds.
   Private values go to the curator only, and what it returns is public.
5. It sets the fitted attributes of the model.

`PrivateTopicModel` and parties charge words and topics together: they begin a charge of
their own before `Training.run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dplda.core._corpus import (
    Matrix,
    Shards,
    check_counts,
    check_shards,
    ids_of,
    public_tables,
    row_keys,
    take_columns,
    warn_of_equal_rows,
)
from dplda.core._fit_guarantee import (
    BY_CALLER,
    DISTINCT,
    UNKNOWN_WORDS,
    noted_if_cut_short,
    publish,
    warn_if_cut_short,
)
from dplda.core._fold_in import aligned_zeros
from dplda.core._joint_guarantee import with_earlier_fit
from dplda.core._private_estimator import PrivateEstimator
from dplda.core._private_fit import charge_of
from dplda.core._signal import KEPT_OUT, warn_if_weak
from dplda.core._texts import words_of
from dplda.datasets._shards import CountShards
from dplda.document._conclusion import claim_of, fitted_attributes
from dplda.document._contributions import (
    DOCS_OF_A_USER,
    Documents,
    release_round,
    release_totals_again,
    release_word_totals,
)
from dplda.document._document_budget import (
    NORM,
    OTHER_DOCUMENTS,
    PUBLIC_START,
    PUBLIC_VECTORS,
    WORD_TOPIC_COUNTS,
    WORD_TOTALS,
    DocumentBudget,
    Round,
    document_guarantee,
)
from dplda.document._earlier import check_same_words
from dplda.document._noisy_table import (
    NoisyTable,
    continued_table,
    learn,
    learn_test,
    learn_totals,
    random_table,
    with_rounds_for_totals,
)
from dplda.document._private_side import PrivateSide
from dplda.document._public_words import PublicWords
from dplda.document._rules import ExactRules, Rules, default_prior
from dplda.document._shards import ShardedDocuments
from dplda.document._topic_test import Claim, tested_without_noise
from dplda.leaf._calm import interruptible
from dplda.leaf._messages import Progress, warn_user
from dplda.leaf._users import charged_unit, number_users
from dplda.privacy import Guarantee, LowSignalWarning
from dplda.privacy._charge import Charge, Step
from dplda.privacy._curator import Curator, check_words
from dplda.privacy._streams import Streams
from dplda.privacy._sums import Sums

LEAST_TRUST = 0.1  # in the public topics; a fit warns below it
TOTALS_AGAIN = "share of rounds for word totals"


@dataclass(frozen=True, eq=False, kw_only=True)
class Training:
    """What a call fixes before it reads data, and what it does once it is paid for.

    All fields are public except for the secret streams. A subclass is the algorithm of
    an estimator: it computes in `share` the weight of a round, and may define
    `exact_start` and `rates`.
    """

    infers_anew: ClassVar[bool] = False  # whether a round starts from equal weights
    begins_alike: ClassVar[bool] = False  # whether the first topics differ little

    model: PrivateEstimator  # has the parameters, and gets the fitted attributes
    checked: PrivateEstimator  # a copy, which gets the columns of X when X is checked
    unit: str  # what is protected: "document" or "user"
    budget: DocumentBudget  # the mechanisms of `max_iter` rounds
    plan: list[Step]  # label and event of each release of this call
    n_rounds: int  # rounds of this call
    streams: Streams  # secret: of noise and samples
    sums: Sums  # who makes the sums public
    # What earlier calls released of these documents, and its guarantee; None in the
    # first call.
    so_far: NoisyTable | None
    paid_before: Guarantee | None
    # The model of other documents whose releases the first call adds, and its
    # guarantee, for all calls.
    earlier: PrivateEstimator | None
    earlier_cost: Guarantee | None

    # ---- the algorithm of an estimator -----------------------------------------------

    def exact_start(
        self, documents: PrivateSide, rules: ExactRules, table: NoisyTable
    ) -> NoisyTable:
        """The first table of a fit without noise; `table` has random topics."""
        return table

    def rates(
        self, documents: PrivateSide, table: NoisyTable, highest: float
    ) -> np.ndarray:
        """Each unit's probability of joining a round, (n_units,), at most `highest`.

        Private: it may depend on the documents of this unit, and on no others.
        """
        return np.full(documents.n_units, highest)

    def share(self, this_round: Round) -> float:
        """Weight of a round in the average of all rounds up to it, in (0, 1]."""
        raise NotImplementedError

    # ---- the call --------------------------------------------------------------------

    def fit(self, X: Matrix | Shards, user_ids: ArrayLike | None = None) -> None:
        """Charge the plan, read the documents, and train the model on them.

        An error before ``charge.begin()`` gives the price back.
        """
        with (
            charge_of(
                self.model,
                self.plan,
                unit=self.charged_unit(ids_of(X, user_ids)),
                seeded=self.streams.seeded,
                sums=self.sums,
                is_first=self.is_first,
            ) as charge,
            closing(self.documents(X, user_ids)) as documents,  # private
        ):
            if self.so_far is not None:  # scaled as in the calls before
                self.rules(documents).rescale(documents, self.so_far.weight)  # private
            self.check_size(documents.n_words)
            public_words = self.public_words(documents.n_words)  # public
            charge.begin()  # the price is spent from here on
            self.run(documents, charge, public_words)

    # ---- before it is paid for -------------------------------------------------------

    @property
    def is_first(self) -> bool:
        """Whether no call before this one released anything of these documents."""
        return self.so_far is None

    @property
    def n_done(self) -> int:
        """Rounds of the calls before this one."""
        return 0 if self.so_far is None else self.so_far.n_rounds

    def charged_unit(self, user_ids: object) -> str:
        """The unit of the charge; ValueError if earlier releases are about another."""
        unit = charged_unit(user_ids, self.unit)
        before = self.model if self.earlier is None else self.earlier
        has_before = not self.is_first or self.earlier is not None
        if has_before and before._charged_unit != unit:
            raise ValueError(
                f"the earlier releases protect one {before._charged_unit}, and this "
                f"call one {unit}; their epsilons do not add up: pass the same "
                "user_ids, as columns of one name or as lists without a name"
            )
        return unit

    def documents(
        self, X: Matrix | Shards, user_ids: ArrayLike | None = None
    ) -> PrivateSide:
        """Check the documents; private.

        Of shards, only the columns are checked here; `ShardedDocuments` checks all
        files.
        """
        if isinstance(X, CountShards):
            check_shards(self.checked, X, reset=self.is_first)
            return self.documents_of_counts(X, None)
        counts = check_counts(self.checked, X, reset=self.is_first)
        warn_of_equal_rows(row_keys(counts))
        return self.documents_of_counts(counts, number_users(user_ids, counts.shape[0]))

    def documents_of_counts(
        self, X: sp.csr_array | CountShards, users: np.ndarray | None
    ) -> PrivateSide:
        """The documents of counts that were checked; private.

        `users` (n_docs,) has the number of each document's user; shards know it.
        """
        n_components = int(self.model.n_components)
        n_jobs = self.model.n_jobs
        if isinstance(X, CountShards):
            return ShardedDocuments(X, n_components, n_jobs, not self.infers_anew)
        return Documents.from_counts(X, n_components, n_jobs, users)

    def check_size(self, n_words: int) -> None:
        """Refuse a plan whose noise takes more random words than a charge counts.

        `n_words` is the number of words, which is public, or the largest number of
        words that will be chosen.
        """
        # two cells beside the words: the numbers of documents and of users
        n_cells = n_words * int(self.model.n_components)
        check_words(self.plan, {WORD_TOTALS: n_words + 2, WORD_TOPIC_COUNTS: n_cells})

    def public_words(self, n_words: int) -> PublicWords | None:
        """The public tables of the words, checked; None without any.

        This refuses all that does not fit the number of words, which is public.
        """
        if self.so_far is not None:
            return self.so_far.public
        if self.earlier is not None:
            check_same_words(self.earlier, n_words, words_of(self.checked))
        vectors, prior = public_tables(self.model, n_words)
        if vectors is None and prior is None:
            return None
        return PublicWords.of(vectors, prior)

    # ---- what is released ------------------------------------------------------------

    def run(
        self, documents: PrivateSide, charge: Charge, public_words: PublicWords | None
    ) -> None:
        """Release word totals in the first call, run the rounds, publish the model.

        The charge has begun. If an exception ends the rounds early, the model of the
        finished rounds is published.
        """
        rules = self.rules(documents)
        # `charge` may also pay for words and for counts
        curator = Curator(charge, self.streams, plan=self.plan, sums=self.sums)
        table = self.so_far
        if table is None:
            table = self._first_table(documents, rules, curator, public_words)  # public
        schedule = self.budget.schedule(
            self.n_done,
            self.n_rounds,
            share_for_totals=min(table.share_for_totals, rules.most_for_totals),
            powers=rules.powers,
        )  # public
        instead = None  # what the model has instead of topics
        try:
            for learned in self._rounds(documents, rules, table, schedule, curator):
                table = learned  # an interrupt leaves the old value or the new one
                if self.sums.save_so_far is not None:  # of a party, which may be killed
                    self._publish(table, schedule, charge)
                    self.sums.save_so_far()
            if rules.keeps_out:
                tested = tested_without_noise(
                    documents,
                    claim_of(table, rules.n_jobs),
                    rules.bound(NORM),
                    rules.doc_topic_prior,
                    rules.n_jobs,
                )  # without privacy
                table = replace(table, tested=tested)
        finally:
            if table.n_rounds > self.n_done:
                instead = self._publish(table, schedule, charge)
                warn_if_cut_short(self.model, self.n_done + self.n_rounds)
        self._warn_of_result(instead)

    def rules(self, documents: PrivateSide) -> Rules:
        """What the rounds follow: public, if there is noise."""
        model = self.model
        has_noise = not self.budget.exact
        prior = model.doc_topic_prior
        if prior is None:
            prior = default_prior(model.n_components, has_noise)
        rules = Rules(
            infers_anew=self.infers_anew,
            doc_topic_prior=prior,
            topic_word_prior=model.topic_word_prior,
            n_jobs=model.n_jobs,
        )  # public
        if has_noise:
            return rules
        return ExactRules(
            **vars(rules),
            longest=documents.longest(),
            # each of the blocks of the test has at least two units
            keeps_out=documents.n_units >= 2 * KEPT_OUT**2,
        )  # without privacy

    def _first_table(
        self,
        documents: PrivateSide,
        rules: Rules,
        curator: Curator,
        public_words: PublicWords | None,
    ) -> NoisyTable:
        """The table before round 1, from two releases of word totals; public."""
        most_docs = 1 if self.unit == "document" else DOCS_OF_A_USER  # public
        released, weight = release_word_totals(
            documents, self.budget.totals, curator, rules, most_docs
        )  # public
        if self.earlier is not None:
            table = continued_table(
                self.earlier._released, released, weight, public_words
            )
        else:
            table = random_table(
                released,
                weight,
                int(self.model.n_components),
                self.sums.topic_streams(self.streams),  # secret, public among parties
                public_words,
                self.begins_alike,
            )
            if isinstance(rules, ExactRules):
                table = self.exact_start(documents, rules, table)  # without privacy
        table = with_rounds_for_totals(table, NORM * self.budget.noise)
        # it decides which sum a round releases
        share = self.sums.agree(np.array([table.share_for_totals]), TOTALS_AGAIN)
        return replace(table, share_for_totals=float(share[0]))

    def _rounds(
        self,
        documents: PrivateSide,
        rules: Rules,
        table: NoisyTable,
        schedule: list[Round],
        curator: Curator,
    ) -> Iterator[NoisyTable]:
        """Run the rounds, and yield what is known after each; public.

        The documents are private. Only results of `curator.release` leave them. Signals
        wait from a release until the table has learned it.
        """
        n_jobs = rules.n_jobs
        scratch = aligned_zeros(table.table.shape, np.float32)
        claim = None  # what the topics say, once all rounds of topics are done
        last = schedule[-1].number
        for this_round in Progress.of(self.model).during(
            schedule, lambda step, _: f"round {step.number} of {last}"
        ):
            if this_round.for_totals:
                totals, noise_scale = release_totals_again(
                    documents, table.weight, this_round, curator, n_jobs
                )  # public
                table = learn_totals(table, totals, noise_scale)  # public
            elif this_round.for_test:
                claim = claim or claim_of(table, n_jobs)  # public
                table = self._test_round(
                    documents, rules, table, claim, this_round, curator
                )  # public
            else:
                table = self._topics_round(
                    documents, rules, table, this_round, curator, scratch
                )  # public
            yield table

    def _topics_round(
        self,
        documents: PrivateSide,
        rules: Rules,
        table: NoisyTable,
        this_round: Round,
        curator: Curator,
        scratch: np.ndarray,
    ) -> NoisyTable:
        """Release a noisy sum of word-topic counts, and learn from it; public."""
        rates = self.rates(documents, table, this_round.rate)  # private
        units = curator.sample(rates, round=this_round.number - 1)  # secret
        units = rules.that_train(units)  # secret
        norm = rules.bound(this_round.norm)  # public
        tables = rules.tables(table, this_round, norm, scratch)  # public
        # a unit that is drawn less often weighs more
        upweight = this_round.rate / rates  # private
        with interruptible():
            total = documents.sum_topics(units, tables, upweight)  # private
        # One unit moves `total` by at most the radius in L2: its contribution is
        # clipped to `tables.radius` in integers. The contribution reads the documents
        # of the unit, their own topic weights and past releases only, so that no other
        # unit's contribution changes.
        noisy = release_round(total, this_round, curator, rules.n_jobs)  # public
        return learn(
            table,
            noisy,
            this_round,
            # scaled up to all units
            granularity=norm / tables.radius / this_round.rate,
            share=self.share(this_round),
            is_centered=rules.is_centered,
            least=rules.topic_word_prior,
            n_jobs=rules.n_jobs,
        )  # public

    def _test_round(
        self,
        documents: PrivateSide,
        rules: Rules,
        table: NoisyTable,
        claim: Claim,
        this_round: Round,
        curator: Curator,
    ) -> NoisyTable:
        """Release a noisy sum that tests the topics, and learn from it; public."""
        rates = self.rates(documents, table, this_round.rate)  # private
        units = curator.sample(rates, round=this_round.number - 1)  # secret
        radius = this_round.mechanism.radius
        halves = claim.halves(
            radius, this_round.number, rules.doc_topic_prior, rules.n_jobs
        )  # public
        upweight = this_round.rate / rates  # private
        with interruptible():
            total = documents.sum_halves(units, halves, upweight)  # private
        # One unit moves `total` by at most the radius in L2: its contribution, of both
        # halves of its words together, is clipped to `halves.radius` in integers. It
        # reads the documents of the unit, public coins and past releases only.
        noisy = release_round(total, this_round, curator, rules.n_jobs)  # public
        return learn_test(table, claim, noisy, this_round)  # public

    # ---- what is said of it ----------------------------------------------------------

    @property
    def cost(self) -> Guarantee | None:
        """What the releases of these documents cost; None if the model has none."""
        return vars(self.model).get("_cost")

    def _publish(
        self, table: NoisyTable, schedule: list[Round], charge: Charge
    ) -> str | None:
        """Set the fitted attributes: the model of the rounds so far.

        Returns what the model has instead of topics, if anything.
        """
        model = self.model
        result, instead = fitted_attributes(
            table, model.topic_word_prior, n_jobs=model.n_jobs
        )
        cost = self._guarantee(schedule, charge)  # of these documents
        cost = noted_if_cut_short(cost, table.n_rounds, self.n_done + self.n_rounds)
        if instead is not None:
            cost = replace(cost, provenance=(*cost.provenance, ("topics", instead)))
        guarantee = cost
        if self.earlier_cost is not None:
            guarantee = with_earlier_fit(cost, self.earlier_cost)
        take_columns(model, self.checked)
        publish(
            model,
            guarantee,
            **result,
            n_features_in_=len(table.weight),
            n_iter_=table.n_rounds,
            noise_multiplier_=self.budget.noise_multiplier,
            _released=table,
            _cost=cost,
            _charged_unit=charge.unit,
            _earlier_cost=self.earlier_cost,
        )
        return instead

    def _guarantee(self, schedule: list[Round], charge: Charge) -> Guarantee:
        """The guarantee of all releases of these documents, in all calls."""
        model = self.model
        norms = [] if self.n_done else [NORM] * len(self.budget.totals)
        norms += [this_round.norm for this_round in schedule]
        norms += [NORM] * self.budget.n_spare
        terms = self.sums.promise(charge.events, model.delta)
        assumptions: tuple[str, ...] = (DISTINCT,)
        provenance: tuple[tuple[str, str], ...] = UNKNOWN_WORDS
        # later calls go on with the public tables of the first, whose card stays
        if self.is_first and model.prior_components is not None:
            assumptions += (PUBLIC_START,)
            provenance += (("public prior", BY_CALLER),)
        if self.is_first and model.word_vectors is not None:
            assumptions += (PUBLIC_VECTORS,)
            provenance += (("word vectors", BY_CALLER),)
        if self.earlier_cost is not None and self.unit == "document":
            assumptions += (OTHER_DOCUMENTS,)
        return document_guarantee(
            tuple(event for _, event in self.plan),
            unit=self.unit,
            delta=model.delta,
            paid_before=self.paid_before,
            norms=norms,
            seeded=self.streams.seeded,
            mechanism=model._promise.mechanism + terms.mechanism,
            assumptions=assumptions + terms.assumptions,
            provenance=provenance,
            total_variation=self.sums.shares.total_variation,
            charge=charge,
            trusted=terms.trusted or model._promise.trusted,
            theorem=model._promise.theorem,
        )

    def _warn_of_result(self, instead: str | None) -> None:
        """Warn if the model says little; `instead` is what it has instead of topics."""
        model = self.model
        if model.n_iter_ >= len(self.budget.rounds):
            warn_if_weak(model, instead)
        if model.prior_trust_ is not None and model.prior_trust_ < LEAST_TRUST:
            warn_user(
                f"the releases of {type(model).__name__} do not agree with the topics "
                f"of prior_components (prior_trust_ is {model.prior_trust_:.2g}, below "
                f"{LEAST_TRUST}), and they were all but ignored; use public texts of "
                "the same kind, or leave prior_components=None",
                LowSignalWarning,
            )
