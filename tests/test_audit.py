"""Audits: the bounds' pins, attacks that find planted holes, and sound estimators that hold."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import binom, norm

from dplda import (
    HDPLDA,
    LPLDA,
    OLPLDA,
    GibbsLDA,
    PrivateSVILDA,
    RandomizedResponse,
    SubLDA,
    published,
)
from dplda.audit import (
    AnchorAttack,
    AuditResult,
    WordAttack,
    audit_epsilon,
    gaussian_lower_bound,
    many_run_lower_bound,
    observe_releases,
    one_run_lower_bound,
)
from dplda.audit._audit import default_attack
from dplda.audit._published_attacks import CountsAttack
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMParty
from dplda.privacy import Ledger, SeededNoiseWarning
from dplda.privacy._curator import announce
from dplda.privacy.mechanisms import DiscreteGaussian, RandomizedBits
from dplda.word._half_table import HalfTable

pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.PrivacyLeakWarning",
    "ignore::dplda.privacy.PublicPriorWarning",
)  # fmt: skip
DELTA = 1e-5


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(n_docs=30, n_words=30, n_components=2, random_state=0).data


# bounds


@pytest.mark.parametrize(
    ("true", "false", "n", "expected"),
    [
        (900, 10, 1000, 3.8720),
        (500, 0, 1000, 4.8461),
        (1000, 0, 1000, 5.6006),
        (10000, 0, 10000, 7.9048),
    ],
)
def test_many_runs_pins(true, false, n, expected):
    bound = many_run_lower_bound(true, false, n, delta=DELTA)
    assert bound == pytest.approx(expected, abs=5e-5)
    # the complements of both events in exchanged worlds say the same
    assert many_run_lower_bound(n - false, n - true, n, delta=DELTA) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "expected"),
    [
        (1000, 1000, 600, 0, 0.2975),
        (1000, 1000, 600, 1e-5, 0.2972),
        (1000, 100, 100, 1e-5, 3.4654),
        (1000, 100, 95, 1e-5, 2.1652),
        (200, 50, 50, 1e-5, 2.7790),
        (1000, 1000, 520, 1e-5, 0.0),
    ],
)
def test_one_run_pins(m, r, v, delta, expected):
    assert one_run_lower_bound(m, r, v, delta=delta) == pytest.approx(expected, abs=5e-5)


def test_one_run_is_the_exact_binomial_test_without_delta():
    epsilon = one_run_lower_bound(400, 300, 250, delta=0)
    success = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert binom.sf(249, 300, success) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_bounds_are_rarely_above_the_truth(confidence):
    """Randomized response of epsilon 1, guessed as well as can be."""
    epsilon, rng = 1.0, np.random.default_rng(0)
    success = math.exp(epsilon) / (1 + math.exp(epsilon))
    right = rng.binomial(200, success, 400)
    above = [one_run_lower_bound(200, 200, r, delta=0, confidence=confidence) > 1 for r in right]
    assert np.mean(above) <= (1 - confidence) + 0.03
    true, false = rng.binomial(200, success, 400), rng.binomial(200, 1 - success, 400)
    above = [
        many_run_lower_bound(t, f, 200, delta=0, confidence=confidence) > 1
        for t, f in zip(true, false)
    ]
    assert np.mean(above) <= (1 - confidence) + 0.03


def test_gaussian_bound_is_stronger_and_below_the_truth():
    n, mu = 2000, 1.0
    true, false = round(n * norm.sf(1 - mu)), round(n * norm.sf(1))
    strong = gaussian_lower_bound(true, false, n, delta=DELTA)
    assert many_run_lower_bound(true, false, n, delta=DELTA) < strong < 4.3772
    assert gaussian_lower_bound(false, true, n, delta=DELTA) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: many_run_lower_bound(11, 0, 10, delta=0),
            "true_positives must be an integer from 0 to 10, got 11",
        ),
        (lambda: many_run_lower_bound(1, 0, 0, delta=0), "n_in must be an integer from 1"),
        (lambda: many_run_lower_bound(1, 0, 10, delta=0, confidence=1), "confidence"),
        (
            lambda: one_run_lower_bound(10, 11, 3, delta=0),
            "n_guesses must be an integer from 0 to 10",
        ),
        (lambda: one_run_lower_bound(10, 5, 6, delta=0), "n_right must be an integer from 0 to 5"),
        (lambda: one_run_lower_bound(10, 5, 3, delta=0, confidence=0), "confidence"),
        (lambda: many_run_lower_bound(5, 5, 10, 0, delta=0), "n_out must be an integer from 1"),
        (
            lambda: many_run_lower_bound(60, 40, 100, delta=-0.5),
            r"delta must be a number in \[0, 1\)",
        ),
        (
            lambda: one_run_lower_bound(100, 50, 40, delta=math.nan),
            r"delta must be a number in \[0",
        ),
        (lambda: gaussian_lower_bound(90, 10, 100, delta=0), "delta must be above 0"),
    ],
)
def test_bounds_refuse_impossible_counts(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# sound estimators hold

CENTRAL = {"delta": DELTA, "max_iter": 10}
FULL_BATCH = CENTRAL | {"subsampling_ratio": 1.0}
SOUND = {
    "SubLDA": [
        SubLDA(2, epsilon=1.0, **CENTRAL),
        SubLDA(2, epsilon=8.0, **CENTRAL),
        SubLDA(2, epsilon=4.0, subsampling_ratio=0.2, **CENTRAL),
        SubLDA(2, noise_multiplier=0.8, subsampling_ratio=0.1, **CENTRAL),
        SubLDA(2, epsilon=4.0, subsampling_ratio=0.3, boost=2.0, **CENTRAL),
        SubLDA(3, epsilon=2.0, contribution_norm=2.0, word_total_share=0.7, **CENTRAL),
    ],
    "PrivateSVILDA": [
        PrivateSVILDA(2, epsilon=1.0, **CENTRAL),
        PrivateSVILDA(2, epsilon=8.0, subsampling_ratio=1.0, **CENTRAL),
        PrivateSVILDA(3, epsilon=4.0, subsampling_ratio=0.5, **CENTRAL),
        PrivateSVILDA(2, noise_multiplier=0.8, subsampling_ratio=0.1, **CENTRAL),
        PrivateSVILDA(2, epsilon=4.0, max_doc_tokens=5, **CENTRAL),
    ],
    "SubLDA full batch": [
        SubLDA(2, epsilon=1.0, **FULL_BATCH),
        SubLDA(2, epsilon=4.0, **FULL_BATCH),
        SubLDA(5, epsilon=8.0, **FULL_BATCH),
        SubLDA(2, noise_multiplier=5.0, **FULL_BATCH),
        SubLDA(2, epsilon=2.0, word_total_share=0.9, **FULL_BATCH),
    ],
    "HDPLDA word": [
        HDPLDA(2, epsilon=4.0, **CENTRAL),
        HDPLDA(2, epsilon=2.0, noise="gaussian", **CENTRAL),
        HDPLDA(2, noise_epsilon=1.0, count_clip=1.0, topic_word_prior=1.0, **CENTRAL),
        HDPLDA(5, noise_epsilon=0.1, count_clip=0.25, topic_word_prior=1.0, **CENTRAL),
        HDPLDA(
            2,
            noise="gaussian",
            noise_multiplier=5.0,
            count_clip=0.5,
            topic_word_prior=1.0,
            **CENTRAL,
        ),
        HDPLDA(2, noise_epsilon=4.0, count_clip=1.0, topic_word_prior=0.5, delta=1e-5, max_iter=1),
    ],
    "LPLDA": [
        LPLDA(2, bit_epsilon=0.5, max_doc_words=2, delta=DELTA, max_iter=2),
        LPLDA(2, bit_epsilon=1.0, max_doc_words=1, delta=DELTA, max_iter=2),
        LPLDA(2, bit_epsilon=0.3, max_doc_words=5, delta=DELTA, max_iter=2),
        LPLDA(2, flip_mixture=0.5, max_doc_words=1, delta=DELTA, max_iter=2),
        LPLDA(2, bit_epsilon=1.0, max_doc_words=2, mechanism="oue", delta=DELTA, max_iter=2),
    ],
    "OLPLDA": [
        OLPLDA(2, bit_epsilon=e, max_doc_words=n, prior_weight=0.4, batch_size=200, max_iter=1)
        for e, n in [(0.5, 2), (1.0, 1), (0.3, 5), (1.5, 1), (0.8, 2)]
    ],
    "RandomizedResponse": [
        RandomizedResponse(bit_epsilon=e, max_doc_words=n, mechanism=m, delta=DELTA)
        for e, n, m in [
            (0.5, 2, "symmetric"),
            (1.0, 1, "symmetric"),
            (0.2, 10, "symmetric"),
            (1.0, 1, "oue"),
            (0.7, 3, "oue"),
        ]
    ],
    "IFTMParty": [
        IFTMParty(2, token_epsilon=0.5, max_iter=1),
        IFTMParty(2, token_epsilon=2.0, max_iter=1),
        IFTMParty(2, token_epsilon=0.5, token_mechanism="laplace", max_iter=1),
        IFTMParty(2, token_epsilon=2.0, token_mechanism="laplace", noise_threshold=0.5, max_iter=1),
        IFTMParty(2, token_epsilon=3.0, token_mechanism="laplace", max_iter=1),
        IFTMParty(2, token_epsilon=1.0, max_doc_tokens=1, max_iter=2),
    ],
}
# bound over claim that the attacks reach at least, in the first setting of each
POWER = {
    "SubLDA": 0.15,
    "PrivateSVILDA": 0.1,
    "SubLDA full batch": 0.15,
    "HDPLDA word": 0.15,
    "LPLDA": 0.6,
    "OLPLDA": 0.6,
    "RandomizedResponse": 0.6,
    "IFTMParty": 0.7,
}


# the first setting of "SubLDA full batch" is that of "SubLDA", which takes all documents by default
ONCE = [pytest.param(n, marks=pytest.mark.slow if "full batch" in n else ()) for n in SOUND]


@pytest.mark.parametrize("name", ONCE)
def test_audits_find_some_of_what_is_spent_and_no_more(name, X):
    # from 1000 coins, bounds on an epsilon of 1 vary from 0 to a third of it
    n_canaries = 3000 if POWER[name] < 0.5 else None
    result = audit_epsilon(SOUND[name][0], X, delta=DELTA, n_canaries=n_canaries, random_state=0)
    assert POWER[name] * result.claim < result.lower_bound <= result.claim
    assert not result.exceeds_claim
    assert "nothing speaks against" in str(result)


SETTINGS = [(name, i) for name, settings in SOUND.items() for i in range(len(settings))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "i"), SETTINGS)
def test_sound_estimators_hold_what_they_claim(name, i, X):
    result = audit_epsilon(
        SOUND[name][i], X, delta=DELTA, n_runs=20, confidence=0.999, random_state=i
    )
    assert result.lower_bound <= result.claim < math.inf


def test_five_settings_of_each():
    assert all(len(settings) >= 5 for settings in SOUND.values())


@pytest.mark.slow
@pytest.mark.parametrize("attack", [CountsAttack, AnchorAttack])
@pytest.mark.parametrize("ratio", [0.1, 1.0])
def test_the_attacks_on_the_published_form_fail_on_the_sound_one(attack, ratio, X):
    model = SubLDA(2, epsilon=1.226, subsampling_ratio=ratio, delta=DELTA, max_iter=60)
    result = audit_epsilon(
        model, X, attack=attack, n_canaries=400, confidence=0.999, random_state=0
    )
    if attack is CountsAttack:
        assert result.claim == pytest.approx(1.226, rel=1e-3)
    else:  # a document is replaced by another
        assert 2 * 1.226 < result.claim < 4
    assert result.lower_bound <= result.claim


@pytest.mark.slow
def test_many_runs_with_and_without_one_document(X):
    model = SubLDA(2, epsilon=8.0, delta=DELTA, max_iter=10)
    result = audit_epsilon(model, X, design="many-run", n_runs=500, random_state=0)
    assert 0.5 < result.lower_bound < result.gaussian_lower_bound < result.claim == pytest.approx(8)


# holes are found


def quieter(monkeypatch, mechanism, factor):
    true_add = mechanism.add_to

    def add_to(self, cells, reader, n_jobs=None):
        noise = np.zeros_like(cells)
        true_add(self, noise, reader)
        cells += (noise / factor).astype(cells.dtype)

    monkeypatch.setattr(mechanism, "add_to", add_to)


@pytest.mark.parametrize(
    "model",
    [
        SOUND["SubLDA"][0],
        PrivateSVILDA(2, epsilon=1.0, subsampling_ratio=1.0, **CENTRAL),
        SOUND["SubLDA full batch"][0],
        HDPLDA(2, noise="gaussian", noise_multiplier=10, count_clip=0.01, topic_word_prior=1.0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_too_little_noise_is_found(model, monkeypatch, X):
    quieter(monkeypatch, DiscreteGaussian, 10)
    result = audit_epsilon(model.set_params(max_iter=2), X, random_state=0, n_runs=3)
    assert result.exceeds_claim


def everybody(rates):
    return np.full(len(rates), 2**64 - 1, np.uint64)


@pytest.mark.slow
@pytest.mark.parametrize("model", [SubLDA, PrivateSVILDA])
def test_documents_that_contribute_unsampled_are_found(model, monkeypatch, X):
    model = model(2, noise_multiplier=1.0, subsampling_ratio=0.01, max_iter=10, delta=DELTA)
    assert not audit_epsilon(model, X, random_state=0).exceeds_claim
    monkeypatch.setattr("dplda.privacy._curator.membership_threshold", everybody)
    assert audit_epsilon(model, X, random_state=0).exceeds_claim


def test_topics_drawn_without_the_clip_are_found(monkeypatch, X):
    model = HDPLDA(2, noise_epsilon=0.1, count_clip=0.05, topic_word_prior=1.0, max_iter=10)
    clipped = HalfTable.from_counts
    monkeypatch.setattr(
        HalfTable,
        "from_counts",
        staticmethod(lambda counts, clip, beta, **options: clipped(counts, 9, 1, **options)),
    )
    # noise of scale 20 gives weights of 1 or 10 that say much of the word
    assert audit_epsilon(model, X, n_runs=5, delta=DELTA, random_state=0).exceeds_claim


def test_bits_that_flip_too_seldom_are_found(monkeypatch, X):
    flipped = RandomizedBits._flipped
    monkeypatch.setattr(
        RandomizedBits, "_flipped", lambda self, *rest: flipped(self, *rest)[::2].copy()
    )
    model = LPLDA(2, bit_epsilon=0.5, max_doc_words=2, max_iter=1)
    assert audit_epsilon(model, X, delta=DELTA, n_canaries=5000, random_state=0).exceeds_claim


# the papers' algorithms do not hold

PUBLISHED = {
    "extra word": (published.PublishedSubLDA(2, max_iter=92), {"n_canaries": 5000}),
    "released moves": (
        published.PublishedHDPLDA(
            2, noise_epsilon=0.1, count_clip=0.05, topic_word_prior=1, max_iter=2
        ),
        {},
    ),
    "minibatch": (published.PublishedPrivateSVILDA(2, published_epsilon=1.0, delta=DELTA), {}),
    "recovered counts": (published.PublishedIFTMParty(2, published_epsilon=1.0, max_iter=2), {}),
}


@pytest.mark.parametrize("hole", PUBLISHED)
def test_published_algorithms_spend_more_than_they_claim(hole, X):
    model, options = PUBLISHED[hole]
    result = audit_epsilon(model, X, delta=DELTA, random_state=0, **options)
    assert result.exceeds_claim
    assert result.verdict.endswith("the claim is false.")


@pytest.mark.slow
def test_an_anchored_word_moves_the_others():
    """Section 4 of the audits' page: a word shows in counts that it does not belong to."""
    model = published.PublishedSubLDA(
        2, rdp_epsilon=14 / (2 * 5.5**2), doc_topic_prior=0.02, max_iter=300
    )  # noise of standard deviation 5.5
    result = audit_epsilon(
        model, np.zeros((1, 1)), attack=AnchorAttack, n_canaries=500, delta=DELTA, random_state=0
    )
    assert result.claim == pytest.approx(1.618, abs=1e-3)
    assert result.exceeds_claim


# what each sweep shows


def observed(model, X):
    with observe_releases() as releases, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    return releases


@pytest.mark.parametrize("noise_epsilon", [0.5, 10.0])
def test_no_sweep_shows_more_of_a_word_than_its_price(noise_epsilon, X):
    """The likelihood ratio of each sweep, noise and topic, is at most epsilon_L + epsilon_I."""
    model = HDPLDA(3, noise_epsilon=noise_epsilon, count_clip=1.0, topic_word_prior=0.2,
                   max_iter=6, random_state=0)  # fmt: skip
    from dplda.privacy._streams import Streams

    attack = WordAttack(model, X.shape[1], 500, Streams.from_random_state(0))
    coins = np.arange(500) % 2
    releases = observed(model, attack.plant(X, coins))
    prices, before = model._mechanisms(), None
    for counts, topics in zip(releases[::2], releases[1::2]):
        drawn = topics.value[:500]
        noise = attack._count_scores(counts.value, prices, before)
        topic = attack._topic_scores(model, counts.value, prices, drawn)
        assert np.abs(noise).max() <= noise_epsilon * (1 + 1e-9)
        assert np.abs(topic).max() <= model.sampling_epsilon_ * (1 + 1e-9)
        assert np.abs(noise).max() > 0.3 * noise_epsilon
        before = drawn


# the function and its result


def test_same_seed_same_audit(X):
    model = SubLDA(2, epsilon=4.0, max_iter=5)
    one, two = (audit_epsilon(model, X, n_canaries=50, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one.scores, two.scores)
    np.testing.assert_array_equal(one.coins, two.coins)
    other = audit_epsilon(model, X, n_canaries=50, random_state=4)
    assert (other.coins != one.coins).any()


def test_without_a_seed_the_noise_is_secret(X):
    model = HDPLDA(2, epsilon=4.0, max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SeededNoiseWarning)
        result = audit_epsilon(model, X, n_canaries=100)
    assert result.lower_bound <= result.claim


def test_the_estimator_and_its_table_are_left_alone(X):
    table = np.ones((2, X.shape[1]))
    model = SubLDA(2, epsilon=4.0, max_iter=2, prior_components=table)
    audit_epsilon(model, X, n_canaries=20, random_state=0)
    assert model.prior_components is table
    assert not hasattr(model, "components_")


def test_a_fit_of_an_audit_is_charged(tmp_path, X):
    ledger = Ledger(tmp_path / "audit.sqlite", delta=1e-6)
    model = SubLDA(2, epsilon=1.0, max_iter=2, ledger=ledger)
    audit_epsilon(model, X, n_canaries=20, n_runs=3, random_state=0)
    assert len(ledger.entries()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"design": "two-run"}, "'one-run' or 'many-run', got 'two-run'"),
        ({"design": "many-run", "n_canaries": 5}, "one canary, got n_canaries=5"),
        ({"n_canaries": -1}, "n_canaries must be an integer from 1"),
        ({"n_canaries": 0}, "n_canaries must be an integer from 1"),
        ({"n_runs": 0}, "n_runs must be an integer from 1"),
        ({"confidence": 2}, r"confidence must be a number in \(0, 1\), got 2"),
        ({"delta": 2}, r"delta must be a number in \[0, 1\), got 2"),
        ({"design": "many-run", "n_runs": 2}, "n_runs must be an integer from 4"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_spent(options, message, X):
    ledger = Ledger()
    with pytest.raises(ValueError, match=message):
        audit_epsilon(SubLDA(2, epsilon=1.0, ledger=ledger), X, **options)
    assert ledger.entries() == []


def test_a_published_epsilon_says_nothing_at_a_smaller_delta(X):
    with pytest.raises(ValueError, match=r"stated at delta 0.0001 and says nothing at 1e-05"):
        audit_epsilon(published.PublishedPrivateSVILDA(2, published_epsilon=1.0), X, delta=DELTA)


def test_what_has_no_attack_or_claims_nothing_is_refused(X):
    with pytest.raises(ValueError, match="GibbsLDA names no attack; pass attack="):
        audit_epsilon(GibbsLDA(2), X)
    with pytest.raises(ValueError, match="claims an infinite epsilon"):
        audit_epsilon(SubLDA(2, epsilon=math.inf, max_iter=1), X, n_canaries=5)
    with pytest.raises(ValueError, match="Negative values"):
        audit_epsilon(SubLDA(2, epsilon=1.0), -X)


def test_attacks_are_chosen_by_class():
    names = {
        "WordAttack": HDPLDA(),
        "DocumentAttack": PrivateSVILDA(),
        "ReportAttack": LPLDA(),
        "TokenAttack": IFTMParty(),
        "MovesAttack": published.PublishedHDPLDA(),
        "CountsAttack": type("MySubLDA", (published.PublishedSubLDA,), {})(),
    }
    assert {name: default_attack(model).__name__ for name, model in names.items()} == {
        name: name for name in names
    }


def test_plot_shows_both_worlds(X):
    pytest.importorskip("matplotlib").use("Agg")
    result = audit_epsilon(
        LPLDA(2, bit_epsilon=1.0, max_doc_words=1, max_iter=1), X, random_state=0
    )
    ax = result.plot()
    claim, bound = f"{result.claim:.3g}", f"{result.lower_bound:.3g}"
    assert ax.get_title() == rf"LPLDA: epsilon $\geq$ {bound}, claimed {claim}"
    assert ax.get_xlabel() == "attack score (log-likelihood ratio in favor of coin 1)"
    assert len(ax.get_legend().get_texts()) == 2
    assert result.plot(ax) is ax
    assert sum(patch.get_height() for patch in ax.patches) == 2 * len(result.scores)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("PublishedSubLDA", r"SubLDA as published: epsilon $\geq$ 6.01, claimed 5.16"),
        ("SubLDA", r"SubLDA: epsilon $\geq$ 6.01, claimed 5.16"),
    ],
)
def test_pictures_of_published_classes_say_so(name, title):
    pytest.importorskip("matplotlib").use("Agg")
    scores, coins = np.arange(4.0), np.array([False, True, False, True])
    result = AuditResult(
        name, "a document is there or not", "one-run", 6.0123, math.nan, 0.95, 5.1634, DELTA,
        scores, coins, 1,
    )  # fmt: skip
    assert result.plot().get_title() == title


def test_progress_of_many_fits(X, capsys):
    model = LPLDA(2, bit_epsilon=1.0, max_doc_words=1, max_iter=1)
    audit_epsilon(model, X, n_canaries=5, n_runs=3, random_state=0, verbose=1)
    output = capsys.readouterr()
    assert "audit" in output.out + output.err


def test_releases_are_seen_by_observers_only():
    announce("nobody", 1, np.zeros(1))
    with observe_releases() as outer:
        announce("first", 1, np.ones(1))
        with observe_releases() as inner:
            announce("second", 2, lambda: 5)
        announce("third", 3, None)
    assert [release.label for release in outer] == ["first", "third"]
    assert [(release.label, release.value) for release in inner] == [("second", 5)]


def test_the_noise_of_a_fit_does_not_depend_on_being_watched(X):
    model = SubLDA(2, epsilon=1.0, max_iter=3, random_state=0)
    watched = observed(model, X)
    again = SubLDA(2, epsilon=1.0, max_iter=3, random_state=0).fit(X)
    np.testing.assert_array_equal(model.components_, again.components_)
    assert [release.label for release in watched] == ["word totals"] * 2 + ["word-topic counts"] * 3


def test_a_name_in_the_place_of_an_attack_is_refused(X):
    with pytest.raises(TypeError, match=r"such as dplda\.audit\.UserAttack, got 'document'"):
        audit_epsilon(SubLDA(2, epsilon=1.0), X, attack="document")


def test_an_audit_does_not_warn_of_the_few_documents_that_it_is_made_for(X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        audit_epsilon(SubLDA(2, epsilon=0.1, max_iter=2), X, n_canaries=20)
