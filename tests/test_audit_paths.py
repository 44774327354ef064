"""Audits of relations and ways to train beside `fit`; each of them finds a planted fault."""

import itertools
import math

import numpy as np
import pytest
from estimators import CASES
from sklearn.base import clone

from dplda import HDPLDA, LPLDA, OLPLDA, PrivateSVILDA, RandomizedResponse, SubLDA
from dplda.audit import (
    ReportAttack,
    ReportedWordAttack,
    RequestAttack,
    TokenAttack,
    WordAttack,
    audit_epsilon,
)
from dplda.datasets import make_topic_corpus
from dplda.document import _document_lda
from dplda.document._documents import Documents
from dplda.federated import IFTMParty
from dplda.federated._messages import LocalModel, NextModel, vocabulary_hash
from dplda.federated._rounds import StoredParty
from dplda.local._memoized_reports import MemoizedReports
from dplda.privacy.mechanisms import DiscreteGaussian, RandomizedBits, Streams
from dplda.word import _hdplda

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.PrivacyLeakWarning"
)
ROUNDS = {"delta": 1e-5, "max_iter": 10}


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(n_docs=30, n_words=30, n_components=2, random_state=0).data


def bound(result, name):
    return next(b.epsilon for b in result.bounds if b.name == name)


# all estimators


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_each_estimator_is_audited_or_refused_with_a_reason(case, X):
    name = type(case.estimator).__name__
    model = clone(case.estimator)
    if "max_iter" in model.get_params():
        model.set_params(max_iter=2)
    if name in ("GibbsLDA", "CDPLDA"):
        with pytest.raises(ValueError, match=f"{name} names no attack; pass attack="):
            audit_epsilon(model, X, random_state=0)
        return
    if getattr(model, "max_doc_words", None) == 100:
        model.set_params(max_doc_words=5)  # the cost of 200 bits takes seconds
    result = audit_epsilon(model, X, n_canaries=50, random_state=0)
    assert not result.refuted
    declared = not name.startswith("Published")
    assert [b.name for b in result.bounds[1:]] == ["f-DP", "independent canaries"] * declared
    assert result.bounds[0].epsilon == result.lower_bound


def test_a_document_without_a_cap_is_audited(X):
    model = RandomizedResponse(bit_epsilon=0.1, max_doc_words=None)
    result = audit_epsilon(model, X, n_canaries=300, random_state=0)
    assert 0 < max(b.epsilon for b in result.bounds) < result.claim
    assert not result.refuted


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (SubLDA(2, epsilon=1.0), {"method": "train"}, "'fit' or 'partial_fit', got 'train'"),
        (RandomizedResponse(epsilon=4.0, max_doc_words=1), {"method": "partial_fit"},
         "ReportAttack on RandomizedResponse has no method='partial_fit'"),
        (LPLDA(2, epsilon=4.0, max_doc_words=1, randomized=True), {}, "reads reports and releases"),
        (LPLDA(2, epsilon=4.0, max_doc_words=1), {"attack": RequestAttack}, "got LPLDA"),
    ],
)  # fmt: skip
def test_what_cannot_be_audited_is_refused(model, options, message, X):
    with pytest.raises(ValueError, match=message):
        audit_epsilon(model, (X > 0).astype(float), random_state=0, **options)


# what the bounds show


def noise_halved(monkeypatch):
    true_add = DiscreteGaussian.add_to

    def add_to(self, cells, reader, n_jobs=None):
        noise = np.zeros_like(cells)
        true_add(self, noise, reader)
        cells += noise // 2

    monkeypatch.setattr(DiscreteGaussian, "add_to", add_to)


def clip_twice_too_wide(monkeypatch):
    true_bound = Documents.clipping_bound

    def clipping_bound(self, mechanism, norm):
        return tuple(2 * bound for bound in true_bound(self, mechanism, norm))

    monkeypatch.setattr(Documents, "clipping_bound", clipping_bound)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [noise_halved, clip_twice_too_wide])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_independent_canaries_show_what_their_number_does_not(fault, epsilon, X, monkeypatch):
    """Half the noise, or contributions twice as large, at epsilons of 1 and 4."""
    model = SubLDA(2, epsilon=epsilon, **ROUNDS)
    sound = audit_epsilon(model, X, n_canaries=5000, random_state=0)
    assert not sound.refuted
    assert bound(sound, "independent canaries") > 0.6 * sound.claim
    fault(monkeypatch)
    result = audit_epsilon(model, X, n_canaries=3000, random_state=0)
    assert not result.exceeds_claim
    assert bound(result, "independent canaries") > result.claim


def test_the_verdict_names_the_strongest_bound(X):
    result = audit_epsilon(SubLDA(2, epsilon=4.0, **ROUNDS), X, random_state=0)
    strongest = max(result.bounds[1:], key=lambda b: b.epsilon)
    assert f"({strongest.epsilon:.3g} by {strongest.name}) and claims 4" in str(result)
    assert str(strongest).startswith(f"{strongest.name}: epsilon at least")
    assert "assumes" in str(strongest)
    assert result.bounds[0].assumption == "nothing"


@pytest.mark.slow
def test_verdicts_on_sound_parties_are_rarely_wrong(X):
    """The attack is optimal and the claim exact; all bounds together refute it in 5% at most."""
    model = IFTMParty(2, token_epsilon=0.5, max_iter=1)
    results = [audit_epsilon(model, X, delta=1e-5, random_state=seed) for seed in range(200)]
    assert np.mean([r.refuted for r in results]) <= 0.051 + 3 * math.sqrt(0.05 * 0.95 / 200)
    # what only the bounds with assumptions refute is far rarer than that
    assert np.mean([r.mechanism_refuted for r in results]) <= 0.02


@pytest.mark.slow
def test_many_runs_have_a_bound_for_gaussian_noise_only(X):
    options = {"design": "many-run", "n_runs": 8, "random_state": 0}
    result = audit_epsilon(SubLDA(2, epsilon=4.0, **ROUNDS), X, **options)
    assert [b.name for b in result.bounds] == ["many-run counts", "Gaussian noise"]
    assert result.bounds[1].epsilon == result.gaussian_lower_bound
    result = audit_epsilon(PrivateSVILDA(2, epsilon=4.0, **ROUNDS), X, **options)
    assert [b.name for b in result.bounds] == ["many-run counts"]


# partial_fit

PARTIAL = {
    "SubLDA": SubLDA(2, epsilon=4.0, **ROUNDS),
    "SubLDA, sampled": SubLDA(2, epsilon=4.0, subsampling_ratio=0.3, boost=2.0, **ROUNDS),
    "PrivateSVILDA": PrivateSVILDA(2, epsilon=4.0, subsampling_ratio=1.0, **ROUNDS),
    "HDPLDA": HDPLDA(2, epsilon=4.0, **ROUNDS),
    "HDPLDA, Gaussian": HDPLDA(2, epsilon=4.0, noise="gaussian", **ROUNDS),
    "LPLDA": LPLDA(2, bit_epsilon=1.0, max_doc_words=1, delta=1e-5, max_iter=1),
    "OLPLDA": OLPLDA(2, bit_epsilon=1.0, max_doc_words=1, delta=1e-5, max_iter=1),
    "IFTMParty": IFTMParty(2, token_epsilon=2.0, max_iter=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTIAL)
def test_partial_fit_holds_what_it_claims(name, X):
    result = audit_epsilon(PARTIAL[name], X, method="partial_fit", random_state=0)
    assert not result.refuted
    share = 0.15 if name.startswith(("HDPLDA", "SubLDA, sampled")) else 0.5
    assert share * result.claim < max(b.epsilon for b in result.bounds)


@pytest.mark.parametrize(
    ("module", "function", "name"),
    [
        (_document_lda, "document_guarantee", "SubLDA"),
        (_document_lda, "document_guarantee", "PrivateSVILDA"),
        (_hdplda, "make_guarantee", "HDPLDA"),
    ],
)
def test_calls_that_forget_what_earlier_ones_cost_are_found(module, function, name, X, monkeypatch):
    true_guarantee = getattr(module, function)
    monkeypatch.setattr(
        module, function, lambda events, **o: true_guarantee(events, **o | {"earlier": None})
    )
    result = audit_epsilon(PARTIAL[name], X, method="partial_fit", random_state=0)
    assert result.claim < 2.5
    assert result.refuted


def test_noise_that_every_round_repeats_is_refuted(X, monkeypatch):
    """The rounds of one fit all carry the noise of the first one: their difference has none."""
    true_reader = Streams.reader
    monkeypatch.setattr(
        Streams,
        "reader",
        lambda self, purpose, round, block=0: true_reader(self, purpose, 0, block),
    )
    # the totals of noise that repeats tell little; its law is one noise for all rounds
    model = SubLDA(2, epsilon=4.0, **ROUNDS)
    result = audit_epsilon(model, X, random_state=0)
    assert result.refuted  # by the residual check, which watches `fit`


# one word of a local report


@pytest.mark.parametrize("max_doc_words", [1, 3, None])
@pytest.mark.parametrize("mechanism", ["symmetric", "oue"])
def test_a_word_more_in_a_report_costs_what_is_stated(mechanism, max_doc_words, X):
    model = RandomizedResponse(bit_epsilon=1.0, mechanism=mechanism, max_doc_words=max_doc_words)
    result = audit_epsilon(model, X, attack=ReportedWordAttack, n_canaries=2000, random_state=0)
    assert result.relation == "a document has one word more or less"
    assert not result.refuted
    assert result.lower_bound > 0.4 * result.claim
    assert result.claim == pytest.approx(RandomizedResponse(**model.get_params())
                                         .fit(np.ones((1, 60))).word_epsilon_)  # fmt: skip


def test_the_epsilon_of_a_bit_is_not_that_of_a_word(X, monkeypatch):
    """At a cap of 3 words the bound shows it; at 100 the exact law of the worst report does."""
    model = RandomizedResponse(bit_epsilon=1.0, max_doc_words=3)
    options = {"attack": ReportedWordAttack, "n_canaries": 5000, "n_runs": 2, "random_state": 2}
    result = audit_epsilon(model, X, **options)
    assert result.claim == pytest.approx(1.7564, abs=1e-4)
    assert not result.refuted
    monkeypatch.setattr(RandomizedBits, "element_epsilon", lambda self, *_: self.epsilon)
    result = audit_epsilon(model, X, **options)
    assert result.claim == pytest.approx(1.0)
    assert result.exceeds_claim


@pytest.mark.parametrize(
    ("bit_epsilon", "max_doc_words", "expected"), [(3.0, 100, 5.9901), (1.0, 3, 1.7564)]
)
def test_the_worst_report_of_a_word_more_has_the_stated_ratio(bit_epsilon, max_doc_words, expected):
    model = RandomizedResponse(bit_epsilon=bit_epsilon, max_doc_words=max_doc_words)
    attack = ReportedWordAttack(model, 10, 1, Streams.from_random_state(0))
    model.fit(np.ones((1, 10 + max_doc_words + 1)))
    worst = np.zeros((1, max_doc_words + 1), bool)
    worst[0, -1] = True
    ratio = attack._ratios_of_bits(model, worst)[0]
    assert ratio == pytest.approx(model.word_epsilon_) == pytest.approx(expected, abs=1e-4)
    assert ratio > 1.7 * model.bit_epsilon_
    # no other report of a few words has a larger one
    few = np.array(list(itertools.product((False, True), repeat=4)))
    if max_doc_words == 3:
        assert np.abs(attack._ratios_of_bits(model, few)).max() == pytest.approx(ratio)


# reports that are asked for again


def test_memoized_reports_cost_what_one_report_costs(X):
    model = RandomizedResponse(bit_epsilon=1.0, max_doc_words=1, delta=1e-5)
    result = audit_epsilon(model, X, attack=RequestAttack, random_state=0)
    once = audit_epsilon(model, X, attack=ReportAttack, random_state=0)
    assert not result.refuted
    assert result.lower_bound == pytest.approx(once.lower_bound, abs=0.3)


def other_ids_each_time(monkeypatch):
    true_reports, request = MemoizedReports.reports, itertools.count()

    def reports(self, ids, X):
        number = next(request)
        return true_reports(self, [f"{number} {name}" for name in ids], X)

    monkeypatch.setattr(MemoizedReports, "reports", reports)


def other_file_each_time(monkeypatch):
    true_reports = MemoizedReports.reports
    monkeypatch.setattr(
        MemoizedReports, "reports",
        lambda self, ids, X: true_reports(MemoizedReports(self.randomizer), ids, X),
    )  # fmt: skip


@pytest.mark.parametrize("fault", [other_ids_each_time, other_file_each_time])
def test_a_document_with_two_identities_is_found(fault, X, monkeypatch):
    """With a seed all files would draw the same report: the audit draws from secret keys."""
    fault(monkeypatch)
    model = RandomizedResponse(bit_epsilon=0.5, max_doc_words=2, delta=1e-5)
    result = audit_epsilon(model, X, attack=RequestAttack, n_canaries=3000)
    assert result.exceeds_claim


# parties over rounds


class StoredPartyAttack(TokenAttack):
    """A party in a file, which is closed and opened again for each of three rounds."""

    methods = ("fit",)
    folder = None  # set by a test

    def _train(self, model, X, method):
        self._n_rows = X.shape[0]
        model.set_params(random_state=None)  # under a seed, a second fit would draw the same noise
        n_words, path = X.shape[1], self.folder / f"{next(NUMBERS)}.state"
        name, request = vocabulary_hash(n_words), b""
        for round_number in range(3):
            estimator = clone(model)
            with StoredParty("a", estimator, lambda: X, vocabulary=n_words, path=path) as party:
                answer = party.answer(round_number, name, request)
                model.privacy_ = party._estimator.privacy_
            table = LocalModel.from_bytes(answer, max_bytes=10**7).table
            request = NextModel(round=round_number + 1, vocabulary=name, table=table).to_bytes()


NUMBERS = itertools.count()


@pytest.mark.parametrize("model", ["lda", "sentence_lda"])
@pytest.mark.parametrize("mechanism", ["rr", "laplace"])
def test_all_rounds_of_a_party_show_its_tokens_once(model, mechanism, X, tmp_path, monkeypatch):
    monkeypatch.setattr(StoredPartyAttack, "folder", tmp_path)
    party = IFTMParty(2, token_epsilon=1.0, model=model, token_mechanism=mechanism, max_iter=2)
    for attack in (TokenAttack, StoredPartyAttack):
        # the stored party draws from secret keys: at 0.95, one run in 20 might fail
        options = {"confidence": 0.9999, "n_canaries": 3000, "random_state": 0}
        result = audit_epsilon(party, X, attack=attack, **options)
        assert not result.refuted
        assert bound(result, "independent canaries") > 0.6 * result.claim


@pytest.mark.parametrize("model", ["lda", "sentence_lda"])
def test_a_party_that_privatizes_its_tokens_in_each_round_is_found(model, X, tmp_path, monkeypatch):
    monkeypatch.setattr(StoredPartyAttack, "folder", tmp_path)
    monkeypatch.setattr(StoredParty, "_restore", lambda self: None)  # forgets that it was fitted
    party = IFTMParty(2, token_epsilon=1.0, model=model, max_iter=2)
    result = audit_epsilon(party, X, attack=StoredPartyAttack, n_canaries=3000, random_state=0)
    assert result.exceeds_claim


def test_a_refinement_that_reads_the_documents_again_is_found(X, monkeypatch):
    true_fit = IFTMParty.fit

    def fit(self, X, y=None):
        self._seen = X
        return true_fit(self, X)

    monkeypatch.setattr(IFTMParty, "fit", fit)
    monkeypatch.setattr(
        IFTMParty, "refine",
        lambda self, table: true_fit(self.set_params(random_state=None), self._seen),
    )  # fmt: skip
    party = IFTMParty(2, token_epsilon=1.0, max_iter=1)
    assert audit_epsilon(party, X, n_canaries=3000, random_state=0).exceeds_claim


# scores


def test_scores_of_partial_fit_are_log_likelihood_ratios(X):
    """The mean of exp(-score) is 1 under coin 1, as for all likelihood ratios."""
    for model in (PARTIAL["SubLDA"], PARTIAL["HDPLDA"]):
        result = audit_epsilon(
            model, X, method="partial_fit", n_canaries=2000, n_runs=2, random_state=1
        )
        weights = np.exp(-result.scores[result.coins])
        error = weights.std() / math.sqrt(len(weights))
        assert abs(weights.mean() - 1) < 5 * error


def test_word_scores_of_fit_are_those_of_the_last_counts(X):
    """`fit` draws topics from the last counts, and `partial_fit` from the mean of all."""
    attack = WordAttack(PARTIAL["HDPLDA"], X.shape[1], 5, Streams.from_random_state(0))
    assert not attack._averages
