"""Enumerations of vocabularies: thresholds, failures and cuts, by exact laws."""

import math
import tempfile

import numpy as np
import pytest
from oracle import Oracle
from reference_noise import unpack, weights_of

from dplda import PrivateCountVectorizer, PrivateTopicModel, SubLDA
from dplda.datasets import load_wordnet_glosses
from dplda.privacy import (
    ApproximateDP,
    Gaussian,
    Ledger,
    epsilon_of,
)
from dplda.privacy._mechanisms import gaussian_tables
from dplda.privacy.mechanisms import DiscreteGaussian, Streams
from dplda.text import _counted
from dplda.text._selection import (
    Selection,
    best_terms,
    failure_event,
    selection_threshold,
)

pld = Oracle("dp_accounting.pld.privacy_loss_distribution")


WORDS = ["apple", "banana", "cherry", "date", "elderberry"]


COMMON = ["apple banana", "banana cherry", "apple date cherry"] * 60


LARGE_NOISE = DiscreteGaussian.for_noise_multiplier(4.0)


def tail_of_the_noise():
    """P[X >= a] of the law in the tables, for a = 0, 64, 128, ..., from above."""
    (table,) = unpack(gaussian_tables())
    # of -2048 ... 2047
    level = np.array([weight / 2.0**149 for weight in weights_of(*table)])
    high = np.zeros(64 * 4096 + 4096)  # x_1 + 64 x_2
    for i, p in enumerate(level):
        high[64 * i : 64 * i + 4096] += p * level
    above = np.cumsum(high[::-1])[::-1]
    low = np.cumsum(level[::-1])[::-1]  # P[x_0 >= -2048 + j]
    offset = 64 * (-2048 * 65)

    def tail(a):
        """x_0 + 64 y >= a needs y >= (a - x_0) / 64."""
        x = np.arange(-2048, 2048)
        needed = np.ceil((a - x) / 64).astype(int) - offset // 64
        return float(level @ np.append(above, 0.0)[np.clip(needed, 0, len(above))])

    assert low[0] == pytest.approx(1.0)
    return tail


@pytest.mark.parametrize("max_terms", [1, 3, 100])
@pytest.mark.parametrize("failure", [0.05, 1e-7])
@pytest.mark.parametrize("multiplier", [0.7, 4.0])
def test_terms_of_one_unit_pass_together_with_the_probability_that_is_charged(
    multiplier, failure, max_terms
):
    mechanism = DiscreteGaussian.for_noise_multiplier(multiplier)
    threshold = selection_threshold(mechanism, failure, max_terms)
    tail = tail_of_the_noise()
    passing = [
        t * tail(threshold - math.isqrt(mechanism.radius**2 // t))
        for t in range(1, max_terms + 1)
    ]
    assert max(passing) <= failure
    assert max(passing) >= 0.98 * failure  # and no budget is wasted


def test_a_longer_document_takes_part_with_as_many_terms_as_are_declared():
    selection = Selection(LARGE_NOISE, failure_event(1e-7), discover=True, max_terms=5)
    terms = {f"w{i}" for i in range(60)}
    cuts = [
        selection.cut(terms, 0, Streams.from_random_state(seed)) for seed in range(200)
    ]
    assert {len(set(cut)) for cut in cuts} == {5}
    assert all(set(cut) <= terms for cut in cuts)
    counts = np.bincount([int(w[1:]) for cut in cuts for w in cut], minlength=60)
    # chi-square, 59 degrees
    assert np.sum((counts - 1000 / 60) ** 2) / (1000 / 60) < 110


@pytest.mark.parametrize(("multiplier", "delta"), [(0.6, 1e-6), (5.0, 1e-3)])
def test_a_failure_costs_what_its_loss_distribution_says(multiplier, delta):
    failure = failure_event(0.1 * delta)
    ours = epsilon_of([Gaussian(multiplier), failure], delta)
    coin = pld.from_privacy_parameters(
        pld.common.DifferentialPrivacyParameters(
            -math.log1p(-failure.delta), failure.delta
        ),
        value_discretization_interval=1e-4,
    )
    noise = pld.from_gaussian_mechanism(multiplier, value_discretization_interval=1e-4)
    theirs = noise.compose(coin).get_epsilon_for_delta(delta)
    assert ours == pytest.approx(theirs, rel=1e-4, abs=2e-4)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
def test_what_is_charged_is_what_was_asked_and_pays_for_the_threshold(epsilon):
    ledger = Ledger()
    options = {"epsilon": epsilon, "max_doc_words": 7, "ledger": ledger}
    vectorizer = PrivateCountVectorizer(**options, candidates=WORDS).fit(COMMON)
    assert 0.9999 * epsilon <= vectorizer.epsilon_ <= epsilon
    (failure,) = [
        e.delta for e in vectorizer.privacy_.events if isinstance(e, ApproximateDP)
    ]
    mechanism = DiscreteGaussian.for_noise_multiplier(vectorizer.word_weight_scale_)
    charged = selection_threshold(mechanism, failure, 7) / mechanism.radius
    # a radius is whole
    assert vectorizer.threshold_ == pytest.approx(charged, rel=1e-4)
    assert failure <= 0.1 * vectorizer.delta_ * (1 + 1e-12)
    spent = ledger.epsilon_spent
    for texts in (["", "  "], [], ["word"]):
        with pytest.raises(
            ValueError, match="no word passed the threshold, and the charge stands"
        ):
            PrivateCountVectorizer(**options, candidates=None).fit(texts)
        assert ledger.epsilon_spent > spent


def test_terms_are_expected_where_those_of_similar_meaning_are():
    random, n_terms = np.random.default_rng(0), 2000
    vectors = random.normal(size=(n_terms, 8))
    weights = (
        300 / np.arange(20.0, 20 + n_terms) * np.where(vectors[:, 0] > 0.8, 8, 0.6)
    )
    terms = np.array([f"w{i:04}" for i in range(n_terms)], dtype=object)
    noisy = weights + random.normal(0, 5, n_terms)

    def kept(vectors):
        return weights[best_terms(terms, noisy, 5.0, terms, 200, vectors)].sum()

    assert kept(vectors) > 1.03 * kept(None)
    assert kept(random.permutation(vectors)) > 0.97 * kept(None)


GLOSSES = load_wordnet_glosses().data[:400]
IDS = [f"user {n % 90}" for n in range(400)]
WARDS = ["north" if n < 300 else "south" for n in range(400)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ids", [None, IDS], ids=["texts", "users"])
def test_counts_in_files_give_the_same_bits(ids, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fit():
        model = PrivateTopicModel(
            2,
            epsilon=8.0,
            max_features=60,
            random_state=0,
            model=SubLDA(max_iter=2),
        )
        by_ward = model.fit_and_count(
            iter(GLOSSES),
            by={"ward": WARDS},
            levels={"ward": ["north", "south"]},
            counts_epsilon=99.0,
            user_ids=ids,
        )
        chosen = PrivateCountVectorizer(
            epsilon=8.0, candidates=WORDS, max_doc_words=9, random_state=0
        )
        X = chosen.fit_transform(iter(GLOSSES), user_ids=ids)
        tables = (
            model.components_,
            by_ward.counts["ward"],
            chosen.word_weights_,
            X.toarray(),
        )
        return [*chosen.vocabulary_, *model.vocabulary_], tables

    words, tables = fit()
    monkeypatch.setattr("dplda.text._counted.IN_MEMORY", 500)
    monkeypatch.setattr("dplda.core._splitter.BLOCK_CHARACTERS", 3000)
    written = []
    write = _counted.write_shards
    monkeypatch.setattr(
        _counted,
        "write_shards",
        lambda *data, **options: (
            written.append(1) or write(*data, **options, rows_per_shard=40)
        ),
    )
    words_of_files, tables_of_files = fit()
    assert len(written) == 2  # all terms of both fits; words of topics take their place
    assert words == words_of_files
    for one, other in zip(tables, tables_of_files, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not any(tmp_path.iterdir())


def test_a_failure_while_counts_go_to_files_leaves_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("dplda.text._counted.IN_MEMORY", 500)
    monkeypatch.setattr("dplda.core._splitter.BLOCK_CHARACTERS", 3000)

    def texts():
        yield from GLOSSES
        raise OSError("the disk is gone")

    ledger = Ledger()
    with pytest.raises(OSError, match="the disk is gone"):
        PrivateTopicModel(2, epsilon=8.0, ledger=ledger).fit(texts())
    assert ledger.epsilon_spent == 0
    assert not any(tmp_path.iterdir())
