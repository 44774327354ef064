"""A call of `fit` or `partial_fit` of SUB-LDA or private SVI: its plan and its rounds.

A call goes through these steps:

1. `Training.of` fixes the mechanisms and the plan, from public parameters.
2. `Training.charge` reserves the price of the plan. Only then are data read and
   checked.
3. ``charge.begin()`` spends the price. Nothing is refused after it.
4. `Training.run` releases word totals, and then noisy sums over documents in rounds.
   Private values go to the curator only, and what it returns is public.
5. It sets the fitted attributes of the model.

`PrivateTopicModel` and parties charge words and topics together. They go through the
same steps, and begin a charge of their own before `Training.run_paid`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dplda.core._corpus import (
    Matrix,
    Shards,
    check_counts,
    check_shards,
    public_tables,
    row_keys,
    warn_of_equal_rows,
)
from dplda.core._fold_in import aligned_zeros
from dplda.core._private_fit import (
    DISTINCT,
    UNKNOWN_WORDS,
    PrivateEstimator,
    charge_of,
    check_paid,
    cut_short,
    exactly_one,
    guarantee_of_both,
    public_inputs,
    publish,
    warn_if_cut_short,
)
from dplda.core._signal import warn_if_weak
from dplda.core._texts import words_of
from dplda.datasets._shards import CountShards
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
from dplda.document._plan import warn_of_size
from dplda.document._private_side import PrivateSide
from dplda.document._public_words import PublicWords
from dplda.document._rules import ExactRules, Rules
from dplda.document._shards import ShardedDocuments
from dplda.document._topic_test import Claim, tested_without_noise
from dplda.leaf._calm import interruptible
from dplda.leaf._messages import rounds, warn_user
from dplda.leaf._users import charged_unit, number_users
from dplda.privacy import Guarantee, LowSignalWarning
from dplda.privacy._charge import Charge, Step
from dplda.privacy._curator import Curator, check_words
from dplda.privacy._streams import Streams
from dplda.privacy._sums import ALONE, Sums

LEAST_TRUST = 0.1  # in the public topics; a fit warns below it
TOTALS_AGAIN = "share of rounds for word totals"


class Paid(NamedTuple):
    """The guarantees of the releases that a model holds; public."""

    own: Guarantee | None = None  # of its own documents, in all calls so far
    earlier: Guarantee | None = None  # of the other documents, given as `earlier`


@dataclass(frozen=True, eq=False)
class Training:
    """What a call fixes before it reads data, and what it does once it is paid for.

    All fields are public except for the secret streams. `model` gets the result.
    """

    model: PrivateEstimator  # a `DocumentLDA`
    unit: str  # what is protected: "document" or "user"
    budget: DocumentBudget  # the mechanisms of `max_iter` rounds
    plan: list[Step]  # label and event of each release of this call
    n_done: int  # rounds of the calls before this one
    n_rounds: int  # rounds of this call
    rules: Rules  # for a fit with noise, or without
    streams: Streams  # secret: of noise and samples
    sums: Sums  # who makes the sums public
    paid: Paid  # before this call
    earlier: PrivateEstimator | None  # the model whose releases are added

    @classmethod
    def of(
        cls,
        model: PrivateEstimator,
        unit: str,
        *,
        n_rounds: int | None = None,
        sums: Sums = ALONE,
        earlier: PrivateEstimator | None = None,
        so_far: NoisyTable | None = None,
    ) -> Training:
        """Plan a call, from public parameters; all rounds of the budget by default.

        `so_far` are the releases of the calls that this one continues. `BudgetError` if
        `epsilon` does not pay for a further call.
        """
        if earlier is not None:
            check_earlier(model, earlier, unit)
        exactly_one(
            type(model).__name__,
            epsilon=model.epsilon,
            noise_multiplier=model.noise_multiplier,
        )
        budget = model._budget(sums.shares)
        n_done = 0
        paid = Paid(earlier=None if earlier is None else earlier.privacy_)
        if so_far is not None:
            n_done = so_far.n_rounds
            paid = model._paid
        if n_rounds is None:
            n_rounds = len(budget.rounds)
        plan = budget.plan(n_done, n_rounds)
        check_paid(model, plan, paid.own, len(budget.rounds))
        rules_class = ExactRules if budget.exact else Rules
        return cls(
            model=model,
            unit=unit,
            budget=budget,
            plan=plan,
            n_done=n_done,
            n_rounds=n_rounds,
            rules=rules_class(
                begins_anew=model._infers_anew,
                doc_topic_prior=model._prior_in_rounds,
                topic_word_prior=model.topic_word_prior,
                n_jobs=model.n_jobs,
            ),
            streams=Streams.from_random_state(model.random_state),
            sums=sums,
            paid=paid,
            earlier=earlier,
        )

    def charge(self, user_ids: ArrayLike | None) -> Charge:
        """The charge of this call alone, for its ``with`` block."""
        return charge_of(
            self.model,
            self.plan,
            unit=charged_unit(user_ids, self.unit),
            seeded=self.streams.seeded,
            sums=self.sums,
            is_first=self.paid.own is None,
        )

    @property
    def own_cost(self) -> Guarantee:
        """What the fitted model costs the documents of this call, and no others."""
        return self.model._paid.own

    def check_size(self, n_words: int) -> None:
        """Refuse a plan whose noise takes more random words than a charge counts.

        `n_words` is the number of words, which is public, or the largest number of
        words that will be chosen.
        """
        # two cells beside the words: the numbers of documents and of users
        n_cells = n_words * int(self.model.n_components)
        check_words(self.plan, {WORD_TOTALS: n_words + 2, WORD_TOPIC_COUNTS: n_cells})

    def public_words(self, n_words: int) -> PublicWords | None:
        """Check all that depends on the number of words, which is public.

        Returns the public tables of the words, or None without any. Warns of
        `expected_n_docs` documents if they are too few.
        """
        model = self.model
        if self.earlier is not None:
            n_earlier = len(self.earlier._released.weight)
            if n_earlier != n_words:
                raise ValueError(
                    f"earlier was fitted to {n_earlier} words, and X has {n_words}; "
                    "use one vocabulary for both"
                )
            names = [words_of(each) for each in (model, self.earlier)]
            if None not in names and names[0] != names[1]:
                raise ValueError(
                    "earlier was fitted to columns with other names than those of X, "
                    "or in another order; select the same columns for both"
                )
        self.check_size(n_words)
        if model.expected_n_docs is not None and not self.budget.exact:
            warn_of_size(
                self.budget.noise,
                model.expected_n_docs,
                model.n_components,
                model.delta,
            )
        if model.word_vectors is None and model.prior_components is None:
            return None
        return PublicWords.of(*public_tables(model, n_words))

    def run_paid(
        self,
        X: Matrix | Shards,
        user_ids: ArrayLike | None,
        charge: Charge,
        public_words: PublicWords | None,
        topic_streams: Streams | None = None,
    ) -> None:
        """Train on counts of words whose choice the same charge has paid for.

        The charge has begun, and the texts were checked: nothing is refused here.
        """
        with closing(
            documents_of(self.model, X, user_ids, reset=True, tell_of_copies=False)
        ) as documents:  # private
            self.run(documents, charge, public_words, topic_streams)

    def run(
        self,
        documents: PrivateSide,
        charge: Charge,
        public_words: PublicWords | None,
        topic_streams: Streams | None = None,
    ) -> None:
        """Release word totals, then run the rounds. The charge has begun.

        `topic_streams` is what ``sums.begin()`` returned: parties draw the first,
        random topics from the same public streams.
        """
        curator = Curator(charge, self.streams, plan=self.plan, sums=self.sums)
        table = self._first_table(
            documents,
            curator,
            topic_streams or self.streams,  # secret, public among parties
            public_words,
        )  # public
        # The share decides which sum a round releases. All parties must use the same.
        agreed = self.sums.agree(np.array([table.share_for_totals]), TOTALS_AGAIN)
        # below 1: at least one round is for topics
        share = min(max(float(agreed[0]), 0.0), math.nextafter(1.0, 0.0))
        self.run_rounds(
            documents, replace(table, share_for_totals=share), charge, curator
        )

    def run_rounds(
        self,
        documents: PrivateSide,
        table: NoisyTable,
        charge: Charge,
        curator: Curator,
    ) -> None:
        """Run the rounds of this call, and publish the model.

        If an exception ends the rounds early, the model of the finished rounds is
        published.
        """
        rules = self.rules
        schedule = self.budget.schedule(
            self.n_done,
            self.n_rounds,
            share_for_totals=min(table.share_for_totals, rules.most_for_totals),
            powers=rules.powers,
        )  # public
        try:
            for learned in self._rounds(documents, table, schedule, curator):
                table = learned  # an interrupt leaves the old value or the new one
                if self.sums.keep is not None:  # a party keeps each round
                    self._publish(table, schedule, charge)
                    self.sums.keep()
            if rules.keeps_out(documents):
                tested = tested_without_noise(
                    documents,
                    claim_of(table, rules.n_jobs),
                    rules.bound(documents, NORM),
                    rules.doc_topic_prior,
                    rules.n_jobs,
                )  # without privacy
                table = replace(table, tested=tested)
        finally:
            if table.n_rounds > self.n_done:
                self._publish(table, schedule, charge)
                warn_if_cut_short(self.model, self.n_done + self.n_rounds)
        self._warn_of_result()

    # ---- what is released ------------------------------------------------------------

    def _first_table(
        self,
        documents: PrivateSide,
        curator: Curator,
        topic_streams: Streams,
        public_words: PublicWords | None,
    ) -> NoisyTable:
        """The table before round 1, from two releases of word totals; public."""
        model = self.model
        most_docs = 1 if self.unit == "document" else DOCS_OF_A_USER  # public
        released, weight = release_word_totals(
            documents, self.budget.totals, curator, self.rules, most_docs
        )  # public
        if self.earlier is not None:
            table = continued_table(
                self.earlier._released, released, weight, public_words
            )
        else:
            table = random_table(
                released,
                weight,
                int(model.n_components),
                topic_streams,
                public_words,
                model._begins_alike,
            )
            if self.budget.exact:
                table = model._exact_start(documents, topic_streams, table)
        return with_rounds_for_totals(table, NORM * self.budget.noise)

    def _rounds(
        self,
        documents: PrivateSide,
        table: NoisyTable,
        schedule: list[Round],
        curator: Curator,
    ) -> Iterator[NoisyTable]:
        """Run the rounds, and yield what is known after each; public.

        The documents are private. Only results of `curator.release` leave them. Signals
        wait from a release until the table has learned it.
        """
        n_jobs = self.rules.n_jobs
        scratch = aligned_zeros(table.table.shape, np.float32)
        claim = None  # what the topics say, once all rounds of topics are done
        for _, this_round in zip(
            rounds(self.model, schedule[0].number, schedule[-1].number), schedule
        ):
            if this_round.for_totals:
                totals, noise_scale = release_totals_again(
                    documents, table.weight, this_round, curator, n_jobs
                )  # public
                table = learn_totals(table, totals, noise_scale)  # public
            elif this_round.for_test:
                claim = claim or claim_of(table, n_jobs)  # public
                table = self._test_round(
                    documents, table, claim, this_round, curator
                )  # public
            else:
                table = self._topics_round(
                    documents, table, this_round, curator, scratch
                )  # public
            yield table

    def _topics_round(
        self,
        documents: PrivateSide,
        table: NoisyTable,
        this_round: Round,
        curator: Curator,
        scratch: np.ndarray,
    ) -> NoisyTable:
        """Release a noisy sum of word-topic counts, and learn from it; public."""
        model = self.model
        rules = self.rules
        rates = model._rates(documents, table, this_round.rate)  # private
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
        noisy = release_round(total, this_round, curator, rules.n_jobs)  # public
        return learn(
            table,
            noisy,
            this_round,
            granularity=norm / tables.radius / this_round.rate,
            share=model._share(this_round),
            is_centered=rules.is_centered,
            least=model.topic_word_prior,
            n_jobs=rules.n_jobs,
        )  # public

    def _test_round(
        self,
        documents: PrivateSide,
        table: NoisyTable,
        claim: Claim,
        this_round: Round,
        curator: Curator,
    ) -> NoisyTable:
        """Release a noisy sum that tests the topics, and learn from it; public."""
        rules = self.rules
        rates = self.model._rates(documents, table, this_round.rate)  # private
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

    def _publish(
        self, table: NoisyTable, schedule: list[Round], charge: Charge
    ) -> None:
        """Set the fitted attributes: the model of the rounds so far."""
        model = self.model
        result = finish(table, model.topic_word_prior, n_jobs=model.n_jobs)
        cost = self._guarantee(schedule, charge)
        cost = cut_short(cost, table.n_rounds, self.n_done + self.n_rounds)
        instead = result["_instead"]
        if isinstance(instead, str):
            cost = replace(cost, provenance=(*cost.provenance, ("topics", instead)))
        earlier = self.paid.earlier
        publish(
            model,
            cost if earlier is None else guarantee_of_both(cost, earlier),
            **result,
            n_iter_=table.n_rounds,
            noise_multiplier_=self.budget.noise_multiplier,
            _released=table,
            _paid=Paid(cost, earlier),
        )

    def _guarantee(self, schedule: list[Round], charge: Charge) -> Guarantee:
        """The guarantee of all releases of these documents, in all calls."""
        model = self.model
        norms = [] if self.n_done else [NORM] * len(self.budget.totals)
        norms += [this_round.norm for this_round in schedule]
        norms += [NORM] * self.budget.n_spare
        terms = self.sums.promise(charge.events, model.delta)
        assumptions: tuple[str, ...] = (DISTINCT,)
        if model.prior_components is not None:
            assumptions += (PUBLIC_START,)
        if model.word_vectors is not None:
            assumptions += (PUBLIC_VECTORS,)
        if self.paid.earlier is not None and self.unit == "document":
            assumptions += (OTHER_DOCUMENTS,)
        return document_guarantee(
            tuple(event for _, event in self.plan),
            unit=self.unit,
            delta=model.delta,
            paid_before=self.paid.own,
            norms=norms,
            seeded=self.streams.seeded,
            mechanism=model._promise.mechanism + terms.mechanism,
            assumptions=assumptions + terms.assumptions,
            provenance=UNKNOWN_WORDS + public_inputs(model),
            total_variation=self.sums.shares.total_variation,
            charge=charge,
            trusted=terms.trusted or model._promise.trusted,
            theorem=model._promise.theorem,
        )

    def _warn_of_result(self) -> None:
        """Warn if the model says little."""
        model = self.model
        if model.n_iter_ >= len(self.budget.rounds):
            warn_if_weak(model, model._instead)
        if model.prior_trust_ is not None and model.prior_trust_ < LEAST_TRUST:
            warn_user(
                f"the releases of {type(model).__name__} do not agree with the topics "
                f"of prior_components (prior_trust_ is {model.prior_trust_:.2g}, below "
                f"{LEAST_TRUST}), and they were all but ignored; use public texts of "
                "the same kind, or leave prior_components=None",
                LowSignalWarning,
            )


def documents_of(
    model: PrivateEstimator,
    X: Matrix | Shards,
    user_ids: ArrayLike | None,
    *,
    reset: bool,
    tell_of_copies: bool = True,
) -> PrivateSide:
    """Check the documents; private.

    Of shards, only the columns are checked here; `ShardedDocuments` checks all files.
    `tell_of_copies` is False if the caller has compared the texts.
    """
    n_components = int(model.n_components)
    if isinstance(X, CountShards):
        check_shards(model, X, reset=reset)
        return ShardedDocuments(X, n_components, model.n_jobs, not model._infers_anew)
    counts = check_counts(model, X, reset=reset)
    if tell_of_copies:
        warn_of_equal_rows(row_keys(counts))
    users = None if user_ids is None else number_users(user_ids, counts.shape[0])
    return Documents.from_counts(counts, n_components, model.n_jobs, users)


def check_earlier(
    model: PrivateEstimator, earlier: PrivateEstimator, unit: str
) -> None:
    """Refuse an `earlier` whose releases a fit of `model` cannot add; all public."""
    table = getattr(earlier, "_released", None)
    if not isinstance(table, NoisyTable):
        raise ValueError(
            "earlier must be a fitted SubLDA or PrivateSVILDA, got "
            f"{type(earlier).__name__}; pass the model itself (joblib.dump keeps it), "
            "not a release of it"
        )
    n_components = table.average.shape[1]
    if n_components != model.n_components:
        raise ValueError(
            f"earlier has n_components={n_components}, and this fit "
            f"n_components={model.n_components}; its topics continue, so give the "
            "same number"
        )
    if earlier.privacy_.unit != unit:
        raise ValueError(
            f"earlier protects one {earlier.privacy_.unit}, and this fit one "
            f"{unit}; give user_ids to both fits, or to none"
        )
    if earlier.epsilon_ == math.inf and model.epsilon != math.inf:
        raise ValueError(
            "earlier has no guarantee (its epsilon_ is inf), and this fit would "
            "publish its counts; fit it with a finite epsilon, or this one with "
            "epsilon=inf"
        )
