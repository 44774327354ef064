"""Texts and one epsilon in, topics and one guarantee out."""

import math
import os
import pickle
import stat
import uuid
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import dplda
from dplda import (
    PrivateCountVectorizer,
    PrivateSVILDA,
    PrivateTopicModel,
    SubLDA,
    load_release,
    save_release,
)
from dplda.datasets import load_wordnet_glosses
from dplda.document._contributions import Documents
from dplda.privacy import (
    BudgetError,
    Gaussian,
    Ledger,
    PrivateDataWarning,
    epsilon_of,
    split_epsilon,
)
from dplda.privacy.mechanisms import Curator
from dplda.text._parts import what_to_expect

ABC = "abcdefghijklmnopqrstuvwxyz"
GLOSSES = load_wordnet_glosses()
TEXTS = GLOSSES.data[:600]
LABELS = [int("person" in text) for text in TEXTS]
USERS = [n // 3 for n in range(len(TEXTS))]
WORDS = ["person", "tree", "city", "plant", "war"]
MANY = [f"{a}{b}{c}zz" for a in ABC for b in ABC for c in ABC]


def small(**given):
    return PrivateTopicModel(
        **{"n_components": 3, "epsilon": 8.0, "max_features": 60} | given
    )


@pytest.fixture(scope="module")
def fitted():
    return small(ledger=Ledger(epsilon=8.0)).fit(TEXTS, user_ids=USERS)


def given_words(vocabulary=WORDS, **options):
    return small(vocabulary=vocabulary, epsilon=math.inf, **options).fit(TEXTS)


def of_a_release(folder):
    save_release(small().fit(TEXTS), folder / "topics.dplda")
    return load_release(folder / "topics.dplda")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["chosen", "given", "released"])
def test_weights_of_a_stream_go_to_a_file_for_the_owner(
    kind, fitted, tmp_path, monkeypatch
):
    model = fitted
    if kind != "chosen":
        model = given_words() if kind == "given" else of_a_release(tmp_path)
    expected = model.transform(TEXTS)
    monkeypatch.setattr("dplda.core._splitter.BLOCK_CHARACTERS", 3000)
    out = tmp_path / "weights.npy"
    out.write_bytes(b"old")

    def broken():
        yield from TEXTS[:200]
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        model.transform(broken(), out=out)
    with pytest.raises(ValueError, match=r"0 sample|1 dimension"):
        model.transform(iter([]), out=out)
    assert out.read_bytes() == b"old"
    for texts in (TEXTS, iter(TEXTS)):
        weights = model.transform(texts, out=out)
        assert isinstance(weights, np.memmap)
        np.testing.assert_array_equal(weights, expected, strict=True)
    np.testing.assert_array_equal(model.transform(iter(TEXTS)), expected, strict=True)
    if os.name == "posix":
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} <= {out.name, "topics.dplda"}


def test_an_iterator_is_refused_where_it_would_be_read_twice():
    ledger = Ledger(epsilon=8.0)
    with pytest.raises(ValueError, match=r"reads raw_documents twice"):
        small(ledger=ledger).fit_transform(iter(TEXTS))
    assert ledger.epsilon_spent == 0


def test_words_and_topics_are_one_charge_and_one_guarantee(fitted):
    (entry,) = fitted.ledger.entries()
    assert (entry.label, entry.unit, entry.status) == (
        "PrivateTopicModel",
        "user",
        "released",
    )
    assert 7.9 < fitted.epsilon_ <= 8.0
    assert fitted.epsilon_ == pytest.approx(fitted.ledger.epsilon_spent, rel=1e-3)
    assert fitted.epsilon_ == fitted.privacy_.epsilon > fitted.model_.epsilon_
    assert len(fitted.privacy_.events) > len(fitted.model_.privacy_.events)
    assert fitted.privacy_.unit == "user"
    assert fitted.privacy_.for_part_of_unit().epsilon > fitted.epsilon_


def test_topics_are_sorted_by_share_weak_ones_last(fitted):
    assert sorted(topic["topic"] for topic in fitted.topics_) == [0, 1, 2]
    assert sum(topic["share"] for topic in fitted.topics_) == pytest.approx(1)
    for topic in fitted.topics_:
        assert topic["weak"] == fitted.model_.weak_topics_[topic["topic"]]
        assert topic["evidence"] == fitted.model_.topic_evidence_[topic["topic"]]
        words = {word.removesuffix("?") for word in topic["words"]}
        assert words <= set(fitted.vocabulary_)
    order = [(topic["weak"], -topic["share"]) for topic in fitted.topics_]
    assert order == sorted(order)
    assert str(fitted).endswith(fitted.privacy_.summary())


def test_a_budget_that_is_too_small_for_both_is_refused_before_a_text_is_read():
    def texts():
        raise AssertionError("a text was read")
        yield

    ledger = Ledger(epsilon=8.0)
    ledger.begin_release(ledger.reserve("earlier", "document", Gaussian(1.0)))
    before = ledger.epsilon_spent
    assert before < 8
    with pytest.raises(BudgetError):
        small(ledger=ledger).fit(texts())
    assert ledger.epsilon_spent == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"texts": "one text"}, "list or a column of texts"),
        ({"texts": {"a": "text"}}, "list or a column of texts"),
        ({"texts": []}, "at least two texts"),
        ({"texts": ["a tree"]}, "at least two texts"),
        ({"texts": ["", "12 !"] * 9}, "one has words"),
        (
            {"texts": ["hyperthyroidism", 7]},
            "^(?!.*hyperthyroidism)raw_documents must be texts",
        ),
        ({"users": [1, 2]}, "user_ids must have one id for each"),
        ({"users": [7] * len(TEXTS)}, "at least two users"),
        ({"vocabulary": []}, "empty vocabulary"),
        ({"vocabulary": ["tree", "tree"]}, "Duplicate term"),
        ({"vocabulary": ["tree", None]}, "vocabulary must hold words"),
        ({"vocabulary": ["Tree", "Person"]}, "one has a word of the vocabulary"),
        ({"vocabulary": "tlh"}, "must be one of"),
        ({"public_texts": ["a tree", None]}, "public_texts must be texts"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-9}, "give at least 0.01"),
        ({"delta": 0.5}, "delta"),
        ({"model": LogisticRegression()}, "model"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.* words of vocabulary cannot occur:UserWarning")
def test_bad_input_costs_nothing(given, message):
    ledger, options = Ledger(epsilon=8.0), dict(given)
    texts, users = options.pop("texts", TEXTS), options.pop("users", None)
    with pytest.raises(ValueError, match=message):
        small(ledger=ledger, **options).fit(texts, user_ids=users)
    assert ledger.epsilon_spent == 0


def test_more_topics_than_the_plan_carries_are_warned_of_before_the_charge():
    ledger = Ledger(epsilon=1.0)
    too_many = small(n_components=500, expected_n_docs=len(TEXTS), ledger=ledger)
    with (
        pytest.warns(dplda.privacy.LowSignalWarning, match="use n_components="),
        pytest.raises(BudgetError),
    ):
        too_many.fit(TEXTS)


def test_too_few_texts_for_the_model_are_warned_of_before_the_charge():
    ledger = Ledger(epsilon=8.0)
    model = small(ledger=ledger, model=SubLDA(max_iter=2, expected_n_docs=10))
    with warnings.catch_warnings():
        warnings.simplefilter("error", dplda.privacy.LowSignalWarning)
        with pytest.raises(dplda.privacy.LowSignalWarning, match="of 3 topics are exp"):
            model.fit(TEXTS)
    assert ledger.entries() == []


def test_many_vocabularies_use_up_the_delta_of_a_ledger_and_the_error_says_so():
    ledger = Ledger(epsilon=100.0)
    vectorizer = PrivateCountVectorizer(epsilon=1.0, ledger=ledger)
    for _ in range(9):
        vectorizer.fit(TEXTS[:50])
    with pytest.raises(BudgetError, match="tenth of its delta"):
        vectorizer.fit(TEXTS[:50])


def test_a_public_list_of_words_costs_nothing():
    ledger = Ledger(epsilon=8.0)
    model = small(vocabulary=WORDS, ledger=ledger).fit(TEXTS)
    assert isinstance(model.vectorizer_, CountVectorizer)
    assert sorted(model.vocabulary_) == sorted(WORDS)
    assert model.privacy_.events == model.model_.privacy_.events
    assert model.epsilon_ == pytest.approx(model.model_.epsilon_)
    assert ledger.epsilon_spent <= 8


@pytest.mark.parametrize(
    ("epsilon", "share"), [(0.5, 0.05), (2.0, 0.12), (4.0, 0.24), (8, 0.25)]
)
def test_words_get_the_share_of_the_budget_that_was_measured_as_best(epsilon, share):
    texts = TEXTS if epsilon > 1 else 4 * TEXTS  # so that words pass
    fitted = small(epsilon=epsilon).fit(texts)
    for_words, for_topics = split_epsilon(epsilon, (share, 1 - share))
    assert fitted.vectorizer_.epsilon == for_words
    assert fitted.model_.epsilon == for_topics


def test_the_planner_chooses_the_number_of_topics():
    model = small(n_components="auto", expected_n_docs=600).fit(TEXTS)
    for_topics = model.model_.epsilon
    expected = dplda.plan(n_docs=600, epsilon=for_topics, n_words=60, n_components=2)
    assert len(model.components_) == expected.recommended_components
    with pytest.raises(ValueError, match="needs expected_n_docs"):
        small(n_components="auto").fit(TEXTS)


@pytest.mark.parametrize(
    ("options", "has_vectors"),
    [
        ({}, True),
        ({"word_vectors": None}, False),
        ({"vocabulary": WORDS}, False),
        ({"vocabulary": WORDS, "word_vectors": "en"}, True),
        ({"vocabulary": WORDS, "word_vectors": {"city": [1.0], "war": [2.0]}}, True),
    ],
)
def test_what_is_expected_counts_with_the_vectors_of_the_fit(options, has_vectors):
    model = small(expected_n_docs=600, model=SubLDA(max_iter=2), **options)
    expected = what_to_expect(model)
    assert expected.word_vectors == has_vectors
    assert (model.fit(TEXTS).model_.word_vectors is not None) == has_vectors


def test_a_seed_gives_one_result_and_two_steps_with_noise_of_their_own():
    options = {"random_state": 3, "public_texts": GLOSSES.data[600:700]}
    with pytest.warns(dplda.privacy.SeededNoiseWarning):
        first, second = (small(**options).fit(TEXTS) for _ in range(2))
    np.testing.assert_array_equal(first.components_, second.components_)
    assert first.vectorizer_.random_state != first.model_.random_state
    # two steps of one seed would have no common theorem
    assert 7.9 < first.epsilon_ <= 8.0
    assert first.privacy_.seeded


def test_who_lets_no_warning_of_a_seed_pass_pays_nothing():
    ledger = Ledger(epsilon=9.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dplda.privacy.SeededNoiseWarning)
        with pytest.raises(dplda.privacy.SeededNoiseWarning, match="PrivateTopicModel"):
            small(random_state=3, ledger=ledger).fit(TEXTS)
    assert ledger.epsilon_spent == 0


def test_the_owner_hears_of_private_texts_among_the_public_ones():
    public = np.array([*GLOSSES.data[600:700], "", *TEXTS[:3]], dtype=object)
    with pytest.warns(PrivateDataWarning, match="^3 texts are among public_texts"):
        small(public_texts=public).fit([*TEXTS, "", ""])
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivateDataWarning)
        warnings.filterwarnings("ignore", "the vocabulary covers")
        small(public_texts=public[:101]).fit([*TEXTS, "", ""])


def test_public_texts_without_a_known_word_are_left_out_with_a_warning():
    """The words are paid for: an error would lose them."""
    with pytest.warns(UserWarning, match="topics are found without public_texts: "):
        model = small(public_texts=["zzz xxx", "yyy"]).fit(TEXTS)
    assert "public prior" not in dict(model.privacy_.provenance)


def test_without_privacy_epsilon_is_infinite():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = small(epsilon=math.inf).fit(TEXTS)
    assert model.epsilon_ == math.inf
    with pytest.raises(ValueError, match="needs epsilon"):
        small(epsilon=None).fit(TEXTS)


def test_an_interrupt_leaves_what_was_paid_for(monkeypatch):
    release, n, ledger = Curator.release, [], Ledger(epsilon=8.0)

    def third_round(self, *data, **options):
        n.append(1)
        if len(n) == 5:  # after two of word totals
            raise KeyboardInterrupt
        return release(self, *data, **options)

    monkeypatch.setattr(Curator, "release", third_round)
    model = small(ledger=ledger)
    with (
        pytest.warns(UserWarning, match="was interrupted"),
        pytest.raises(KeyboardInterrupt),
    ):
        model.fit(TEXTS)
    assert ledger.entries()[0].status == "released"
    assert len(model.vectorizer_.vocabulary_) == 60
    assert (len(model.components_), model.model_.n_iter_) == (3, 2)
    assert model.epsilon_ == pytest.approx(ledger.epsilon_spent)  # of all rounds


def test_another_model_takes_the_budget_and_the_number_of_topics():
    given = PrivateSVILDA(max_iter=2)
    model = small(model=given).fit(TEXTS)
    assert isinstance(model.model_, PrivateSVILDA)
    assert model.model_.max_iter == 2
    assert len(model.components_) == 3
    assert given.epsilon is None


def test_ids_of_users_are_routed_through_a_pipeline():
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        first = small().set_fit_request(user_ids=True)
        pipeline = make_pipeline(first, LogisticRegression()).fit(
            TEXTS, LABELS, user_ids=USERS
        )
    assert pipeline[0].privacy_.unit == "user"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_it_passes_the_checks_of_scikit_learn_that_texts_allow():
    done = check_estimator(PrivateTopicModel(2, epsilon=8.0))
    assert {check["status"] for check in done} == {"passed"}


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
@pytest.mark.parametrize("vocabulary", [["fever", "cough", "patient"], "en", None])
def test_copies_of_texts_are_told_to_the_owner_before_the_charge(vocabulary):
    """A caller who makes the warning an error lost nothing.

    Empty texts are no copies.
    """
    texts = [
        f"the patient number {word} has a fever and a cough" for word in "abcdefgh"
    ] * 10
    ledger = Ledger()
    model = PrivateTopicModel(
        2, epsilon=40.0, vocabulary=vocabulary, ledger=ledger, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivateDataWarning)
        with pytest.raises(PrivateDataWarning, match=r"^72 texts are duplicates"):
            model.fit(texts)
        assert ledger.epsilon_spent == 0
        model.fit(texts, user_ids=np.arange(80) % 8)
        model.set_params(ledger=None)
        ways = [f"{i:07b}".translate({48: "a", 49: "b"}) for i in range(len(texts))]
        model.fit([*map("{} by {}".format, texts, ways), "", ""])


def test_a_later_fit_of_the_topic_model_alone_is_charged_like_any_other(tmp_path):
    whole = small().fit(TEXTS)
    X = whole.vectorizer_.transform(TEXTS)
    later = whole.model_.set_params(ledger=tmp_path / "ledger").fit(X)
    assert later.privacy_.ledger
    assert later.privacy_.receipt == Ledger(tmp_path / "ledger").receipt


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_jobs": 0},
        {"n_jobs": "two"},
        {"vocabulary": "xx", "stop_words": None},
        {"model": SubLDA(noise_multiplier=2.0)},
        {"model": SubLDA(epsilon=2.0)},
        {"model": SubLDA(ledger=Ledger())},
        {"model": SubLDA(word_vectors=np.eye(60))},
        {"word_vectors": "glove"},
        {"model": SubLDA(topic_word_prior="a")},
        {"model": SubLDA(subsampling_ratio=5.0)},
        {"model": SubLDA(prior_components=np.ones((3, 7)))},
        {"vocabulary": WORDS, "model": SubLDA(prior_components=np.ones((3, 7)))},
        {"n_components": 2**40},
        {"n_components": 2**16, "vocabulary": [*WORDS, *MANY]},
        {"word_vectors": np.eye(8)},
        {"word_vectors": {"heart": [math.nan, 1.0]}},
        {"word_vectors": {"heart": [1e-60, 1e-60]}},  # zeros in single precision
        {"word_vectors": {"heart": {}}},
        {"word_vectors": {"?": [1.0, 2.0]}},
        {"vocabulary": None, "word_vectors": [[1.0, 2.0]]},
        {"vocabulary": WORDS, "word_vectors": np.eye(5)},
        {"vocabulary": WORDS, "word_vectors": {"tree": [math.inf, 1.0]}},
        {"vocabulary": WORDS, "word_vectors": {"?": [1.0, 2.0]}},
        {"vocabulary": WORDS, "public_texts": ["none of them"] * 3},
    ],
    ids=lambda wrong: str(wrong)[:60],
)
def test_a_wrong_parameter_of_a_step_is_refused_before_anything_is_spent(wrong):
    ledger = dplda.privacy.Ledger()
    with pytest.raises((ValueError, TypeError)):
        small(ledger=ledger, **wrong).fit(TEXTS)
    assert ledger.epsilon_spent == 0.0


@pytest.mark.parametrize(
    "form", [set, lambda words: {w: 4 - i for i, w in enumerate(words)}]
)
def test_given_words_have_the_columns_that_scikit_learn_gives_them(form):
    vocabulary = form(WORDS)
    expected = CountVectorizer(vocabulary=vocabulary).fit([]).get_feature_names_out()
    assert [*given_words(vocabulary).vocabulary_] == [*expected]


def test_what_fails_before_the_words_are_chosen_costs_nothing(monkeypatch):
    def damaged():
        raise OSError("the table is damaged")

    monkeypatch.setattr("dplda.datasets._word_vectors._embedded", damaged)
    ledger = dplda.privacy.Ledger()
    with pytest.raises(OSError, match="damaged"):
        small(ledger=ledger).fit(TEXTS)
    assert ledger.epsilon_spent == 0.0


def test_the_owner_hears_of_given_words_that_cover_little():
    with pytest.warns(PrivateDataWarning, match="covers .* not for release"):
        small(vocabulary=WORDS).fit(TEXTS)


def test_a_refit_that_fails_shows_nothing_of_the_model_before(monkeypatch):
    model = small().fit(TEXTS)

    def fails(*args, **options):
        raise MemoryError

    monkeypatch.setattr(Curator, "release", fails)  # of word totals
    with pytest.raises(MemoryError) as ended:
        model.set_params(epsilon=1.0).fit(TEXTS)
    assert ended.value.__notes__[0].endswith("the chosen words are in vectorizer_")
    assert not hasattr(model, "epsilon_")
    assert not hasattr(model, "topic_evidence_")
    assert len(model.vectorizer_.get_feature_names_out())  # these words are paid for


def test_an_error_after_the_charge_says_that_no_word_was_chosen():
    model = small(word_vectors=None).fit(TEXTS)
    model.set_params(vocabulary=None, epsilon=0.5)
    with pytest.raises(ValueError, match="no word passed") as ended:
        model.fit(TEXTS[:50])
    assert ended.value.__notes__[0].endswith("is spent; no result is kept")
    assert not hasattr(model, "components_")


def test_a_column_of_texts_gives_topics_with_names(fitted, tmp_path):
    """One input column: its name is no word, and pandas gets named topics."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"note": TEXTS[:9], "age": range(9)})
    path = tmp_path / "topics.dplda"
    fitted.save(path)
    names = [f"privatetopicmodel{k}" for k in range(3)]
    assert not hasattr(fitted, "n_features_in_")  # texts have none
    for model in (fitted, dplda.load_release(path)):
        columns = ColumnTransformer(
            [
                ("topics", FrozenEstimator(model), "note"),
                ("rest", "passthrough", ["age"]),
            ]
        )
        table = columns.set_output(transform="pandas").fit_transform(frame)
        assert table.columns.tolist() == [*columns.get_feature_names_out()]
        assert len(table.columns) == 4
    assert fitted.get_feature_names_out(["note"]).tolist() == names


def test_texts_are_the_data_and_no_metadata_to_route():
    for estimator in (PrivateTopicModel(), PrivateCountVectorizer(epsilon=1.0)):
        for of_method in estimator.get_metadata_routing().__dict__.values():
            assert "raw_documents" not in getattr(of_method, "requests", {})


def test_uuids_are_ids_of_users():
    ids = [uuid.UUID(int=user) for user in USERS]
    by_uuid = small(epsilon=math.inf).fit(TEXTS, user_ids=ids)
    by_text = small(epsilon=math.inf).fit(TEXTS, user_ids=[*map(str, ids)])
    np.testing.assert_array_equal(by_uuid.vocabulary_, by_text.vocabulary_)
    assert by_uuid.privacy_.unit == "user"
    with pytest.raises(ValueError, match=r"integers only.* UUID"):
        small().fit(TEXTS, user_ids=[str(ids[0]), *ids[1:]])


def test_a_release_takes_the_texts_that_its_model_takes(fitted, tmp_path):
    path = tmp_path / "topics.dplda"
    fitted.save(path)
    released = dplda.load_release(path)
    kinds = [list, tuple, iter, np.array, lambda texts: dict.fromkeys(texts).keys()]
    for kind in kinds:
        expected = fitted.transform(kind(TEXTS[:4]))
        np.testing.assert_array_equal(released.transform(kind(TEXTS[:4])), expected)


def test_words_are_marked_as_those_of_the_inner_model(fitted):
    ours = dplda.displays.top_words(fitted, mark_noise=True, n_top_words=60)
    inner = dplda.displays.top_words(
        fitted.model_, fitted.vocabulary_, mark_noise=True, n_top_words=60
    )
    assert ours == inner
    assert any(word.endswith("?") for topic in ours for word in topic)


def test_next_month_keeps_the_words_and_adds_its_texts(fitted, tmp_path):
    """Texts pay for the dearer fit, words included; users, who may return, for both."""
    ledger = Ledger(epsilon=8.0)
    parts = [ledger.part(month, by="month") for month in ("May", "June")]
    first = small(ledger=parts[0], model=SubLDA(max_iter=4)).fit(TEXTS)
    later = GLOSSES.data[600:1100]
    both = small(ledger=parts[1], model=SubLDA(max_iter=4)).fit(later, earlier=first)
    assert both.vocabulary_.tolist() == first.vocabulary_.tolist()
    assert both.components_.sum() > 1.3 * first.components_.sum()
    assert 7.9 < both.epsilon_ <= 8.0
    assert ledger.epsilon_spent <= 8.0
    both.save(tmp_path / "both.dplda")
    assert dplda.load_release(tmp_path / "both.dplda").epsilon_ == both.epsilon_
    sampled = SubLDA(max_iter=2, subsampling_ratio=0.5)
    for epsilon in (2.0, 9.0):  # whose curves cross those of the first fit
        third = small(epsilon=epsilon, model=sampled).fit(later, earlier=both)
        assert third.epsilon_ == pytest.approx(max(epsilon, both.epsilon_), rel=0.01)
    model = SubLDA(max_iter=4)
    again = small(model=model).fit(later, user_ids=range(500), earlier=fitted)
    alone = again.model_.privacy_.events[len(fitted.model_.privacy_.events) :]
    together = epsilon_of([*fitted.privacy_.events, *alone], 1e-6)
    assert again.epsilon_ == pytest.approx(together, rel=1e-6)
    assert again.epsilon_ > 1.3 * fitted.epsilon_
    households = pd.Series(range(500), name="household")
    with pytest.raises(ValueError, match="this call one user by 'household'"):
        small(model=model).fit(later, user_ids=households, earlier=fitted)


@pytest.mark.parametrize("part", ["words", "topics"])
def test_no_result_shows_a_part_that_was_fitted_again_under_the_old_epsilon(
    part, tmp_path
):
    model = small(epsilon=1.0, model=SubLDA(max_iter=2)).fit(TEXTS)
    later = pickle.loads(pickle.dumps(model))
    small(epsilon=1.0).fit(GLOSSES.data[600:800], earlier=later)
    if part == "words":
        later.vectorizer_.set_params(epsilon=9.0).fit(TEXTS)
    else:
        X = later.vectorizer_.transform(TEXTS)
        later.model_.set_params(epsilon=None, noise_multiplier=0.1).partial_fit(X)
    shown = [
        lambda: later.topics_,
        lambda: str(later),
        lambda: later.save(tmp_path / "m"),
        lambda: later.report(tmp_path / "m"),
        lambda: save_release(make_pipeline(later), tmp_path / "m"),
        lambda: small(epsilon=1.0).fit(GLOSSES.data[600:800], earlier=later),
    ]
    for show in shown:
        with pytest.raises(ValueError, match="was fitted again by itself"):
            show()
    assert not [*tmp_path.iterdir()]
    model.save(tmp_path / "m")


@pytest.mark.parametrize("part", ["vectorizer_", "model_"])
def test_a_part_that_was_fitted_again_at_the_same_cost_is_noticed(part):
    model = small(word_vectors=None, model=SubLDA(max_iter=2)).fit(TEXTS)
    copied = pickle.loads(pickle.dumps(model))
    X = TEXTS if part == "vectorizer_" else model.vectorizer_.transform(TEXTS)
    again = getattr(copied, part).fit(X)
    assert again.privacy_ == getattr(model, part).privacy_
    with pytest.raises(ValueError, match="was fitted again by itself"):
        str(copied)
    assert str(model)


def test_an_interrupt_before_the_first_round_leaves_the_model_of_last_month(
    monkeypatch,
):
    model = small(model=SubLDA(max_iter=2))
    model.fit_and_count(
        TEXTS, by={"x": ["a"] * 600}, levels={"x": ["a"]}, counts_epsilon=1.0
    )
    before = dict(vars(model))

    def end(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Documents, "sum_topics", end)
        with pytest.raises(KeyboardInterrupt):
            model.fit(GLOSSES.data[600:800], earlier=model)
    assert vars(model) == before
    model.fit(GLOSSES.data[600:800], earlier=model)
    assert not hasattr(model, "counts_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"earlier": "May"}, "earlier must be a fitted PrivateTopicModel"),
        ({"earlier": small()}, "earlier must be a fitted PrivateTopicModel"),
        ({"user_ids": None}, "earlier protects one user, and this fit one document"),
        ({"n_components": 4}, "n_components=4"),
    ],
    ids=str,
)
def test_another_earlier_fit_is_refused_before_anything_is_charged(
    options, message, fitted
):
    ledger = Ledger()
    given = {"earlier": fitted, "user_ids": USERS} | options
    model = small(ledger=ledger, n_components=given.pop("n_components", 3))
    with pytest.raises(ValueError, match=message):
        model.fit(TEXTS, **given)
    assert ledger.entries() == []
