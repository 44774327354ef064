"""The private vocabulary: what one unit moves, what passes, what it costs."""

import math
import pickle

import numpy as np
import pytest
from oracle import Oracle
from reference_noise import unpack, weights_of
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from dplda import PrivateCountVectorizer, SubLDA
from dplda.audit import observe_releases
from dplda.privacy import (
    ApproximateDP,
    BudgetError,
    Gaussian,
    Ledger,
    PrivateDataWarning,
    epsilon_of,
)
from dplda.privacy._mechanisms import gaussian_tables
from dplda.privacy.mechanisms import Curator, DiscreteGaussian, Streams
from dplda.text._selection import (
    Selection,
    best_terms,
    failure_event,
    selection_threshold,
)

pld = Oracle("dp_accounting.pld.privacy_loss_distribution")
WORDS = ["apple", "banana", "cherry", "date", "elderberry"]
COMMON = ["apple banana", "banana cherry", "apple date cherry"] * 60
SEEDED = pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
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


@pytest.fixture
def sums(monkeypatch):
    seen = []
    release = Curator.release_selected

    def record(self, names, value, asked, mechanism, **kwargs):
        seen.append((value.copy(), asked.copy(), mechanism))
        return release(self, names, value, asked, mechanism, **kwargs)

    monkeypatch.setattr(Curator, "release_selected", record)
    return seen


HOSTILE = [
    "apple",
    "apple " * 1000,
    " ".join(WORDS),
    " ".join(f"w{i}" for i in range(5000)),
    " ".join(f"w{i} " * (i % 7) for i in range(300)),
    "",
]


@SEEDED
@pytest.mark.parametrize("text", HOSTILE)
def test_a_document_moves_the_weights_by_its_radius_at_most(text, sums):
    """All terms are candidates, so that both worlds have the same cells."""
    texts = [*COMMON, text, ""]
    terms = {term for t in texts for term in t.split()}
    vectorizer = PrivateCountVectorizer(
        epsilon=50.0, candidates=sorted(terms), max_doc_words=40, random_state=0
    )
    vectorizer.fit(texts)
    vectorizer.fit(["" if t is text else t for t in texts])
    (present, _, mechanism), (emptied, _, _) = sums
    squares = int(((present - emptied).astype(object) ** 2).sum())
    assert squares <= mechanism.radius**2
    if text:
        assert squares > 0.99 * mechanism.radius**2


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


def test_only_what_passes_becomes_public():
    secret = [f"secret{i}" for i in range(30)]
    with observe_releases() as releases:
        vectorizer = PrivateCountVectorizer(epsilon=1.0, candidates=WORDS).fit(
            [*COMMON, " ".join(secret)]
        )
    assert [len(release.value) for release in releases] == [len(WORDS)]
    assert set(vectorizer.vocabulary_) == set(WORDS)
    assert not any(word in str(pickle.dumps(vectorizer)) for word in secret)


def test_frequent_words_are_discovered_and_rare_ones_are_not():
    texts = ["common words here"] * 2000 + ["rare"] * 3
    found = PrivateCountVectorizer(epsilon=1.0, candidates=None).fit(texts).vocabulary_
    assert set(found) == {"common", "words", "here"}
    listed = PrivateCountVectorizer(
        epsilon=1.0, candidates=["common"], discover=False
    ).fit(texts)
    assert set(listed.vocabulary_) == {"common"}
    # which cannot fail: the noise alone is charged
    assert listed.threshold_ == math.inf
    assert not any(getattr(event, "delta", 0.0) for event in listed.privacy_.events)


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


def test_the_columns_count_as_scikit_learn_counts():
    vectorizer = PrivateCountVectorizer(epsilon=8.0, candidates=WORDS).fit(COMMON)
    names = vectorizer.get_feature_names_out().tolist()
    assert names == sorted(names)
    theirs = CountVectorizer(vocabulary=names).transform(COMMON)
    assert (vectorizer.transform(COMMON) != theirs).nnz == 0
    exact = PrivateCountVectorizer(epsilon=math.inf, candidates=None).fit(COMMON)
    assert exact.vocabulary_ == CountVectorizer().fit(COMMON).vocabulary_
    assert exact.epsilon_ == math.inf


def test_texts_of_a_user_weigh_as_one(sums):
    texts = ["apple banana", "apple cherry", "date"] * 50
    ids = np.repeat(["ann", "bob", "eve"], 50)
    vectorizer = PrivateCountVectorizer(epsilon=1.0, candidates=WORDS).fit(
        texts, user_ids=ids
    )
    assert vectorizer.privacy_.unit == "user"
    (weights, _, mechanism) = sums[0]
    # each of the three users has four words
    each = math.isqrt(mechanism.radius**2 // 4)
    assert weights.tolist() == [3 * each] * 4 + [0]
    with pytest.raises(ValueError, match="got 2 ids for 150 rows"):
        PrivateCountVectorizer(epsilon=1.0).fit(texts, user_ids=["ann", "bob"])


def test_vocabulary_and_model_share_a_ledger():
    ledger = Ledger(epsilon=4.0)
    pipeline = make_pipeline(
        PrivateCountVectorizer(epsilon=1.0, candidates=WORDS, ledger=ledger),
        SubLDA(2, epsilon=3.8, max_iter=3, ledger=ledger),
    ).fit(COMMON)
    assert ledger.epsilon_spent == pytest.approx(4.0, abs=0.005)
    assert pipeline.transform(COMMON[:2]).shape == (2, 2)

    class Unread(list):
        def __iter__(self):
            raise AssertionError("the texts were read")

    with pytest.raises(BudgetError):
        clone(pipeline).fit(Unread(COMMON))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"candidates": [1, 2]}, "list of words"),
        ({"candidates": "apple"}, "language must be one of"),
        ({"epsilon": None}, "needs epsilon, got none"),
        ({"max_features": 0}, "max_features"),
        (
            {"token_pattern": "("},
            "token_pattern must be a regular expression .* got '\\('",
        ),
        ({"stop_words": "german"}, "stop list: german"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_charged(parameters, message):
    with pytest.warns(UserWarning, match="2 of 3 candidates .* 'Apple'"):
        PrivateCountVectorizer(epsilon=1.0, candidates=["Apple", "x", "date"]).fit(
            COMMON
        )
    ledger = Ledger()
    vectorizer = PrivateCountVectorizer(epsilon=1.0, ledger=ledger).set_params(
        **parameters
    )
    with pytest.raises(ValueError, match=message):
        vectorizer.fit(COMMON)
    assert ledger.entries() == []


def test_a_vocabulary_that_misses_most_words_is_told_to_the_person_at_the_keyboard():
    model = PrivateCountVectorizer(epsilon=math.inf, max_features=2).fit(
        ["cat dog"] * 9
    )
    with pytest.warns(
        PrivateDataWarning, match=r"covers 17% .* 1 of 2 texts .* not for release"
    ):
        X = model.transform(["a Cat ran off", b"so did Others"])
    assert X.toarray().tolist() == [[1, 0], [0, 0]]
    assert "Warning" not in "".join(vars(model))


SECRET = "a diagnosis of Ann"


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (None, "got NoneType"),
        (3, "got int"),
        ([SECRET, float("nan")], "type float"),
        ([SECRET, 3], "type int"),
        ([[SECRET]], "type list .* lists of words need analyzer=list"),
    ],
    ids=["none", "number", "nan", "int", "words"],
)
def test_what_is_no_text_is_refused_alike_by_fit_and_transform(documents, message):
    fitted = PrivateCountVectorizer(epsilon=5.0, candidates=WORDS).fit(COMMON)
    for read in (PrivateCountVectorizer(epsilon=1.0).fit, fitted.transform):
        with pytest.raises(ValueError, match=message) as caught:
            read(documents)
        assert SECRET not in str(caught.value)
