"""A pipeline's guarantee: every step counts once, anywhere; words have an origin."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer

from dplda import (
    PrivateCountVectorizer,
    SubLDA,
    load_release,
    pipeline_guarantee,
    save_release,
)
from dplda.privacy import Ledger
from dplda.privacy.mechanisms import DiscreteGaussian

TEXTS = ["apple banana", "banana cherry date", "apple date"] * 100
FRUIT = ["apple", "banana", "cherry", "date"]
LABELS = np.arange(len(TEXTS)) % 2


def model():
    return SubLDA(2, epsilon=2.0, max_iter=2)


def chooser():
    return PrivateCountVectorizer(epsilon=1.0, candidates=FRUIT, discover=False)


def origin(pipeline):
    """What the guarantee says of the origin of the vocabulary, also in its text."""
    guarantee = pipeline_guarantee(pipeline)
    said = [
        f"{what}: {where}"
        for what, where in guarantee.provenance
        if what == "vocabulary"
    ]
    text = " ".join(str(guarantee).split())
    assert all(sentence in text for sentence in said)
    return said


def test_steps_of_a_pipeline_inside_count_like_its_own():
    ledger = Ledger()
    flat = make_pipeline(
        *(step.set_params(ledger=ledger) for step in (chooser(), model()))
    )
    flat.fit(TEXTS)
    assert pipeline_guarantee(flat).epsilon == pytest.approx(
        ledger.epsilon_spent, rel=1e-6
    )
    (_, words), (_, topics) = flat.steps
    for nested in (
        make_pipeline(make_pipeline(words, topics)),
        make_pipeline(
            make_pipeline(make_pipeline(words), "passthrough"), make_pipeline(topics)
        ),
    ):
        assert pipeline_guarantee(nested) == pipeline_guarantee(flat)
        assert pipeline_guarantee(nested).epsilon > 2.1


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_two_seeds_are_no_guarantee(monkeypatch):
    """With one seed the steps add the same noise: their difference has none.

    Whoever knows the seed can compute it.
    """
    noise, add = [], DiscreteGaussian.add_to

    def spy(self, cells, reader):
        exact = cells.copy()
        add(self, cells, reader)
        noise.append((cells - exact).ravel())

    monkeypatch.setattr(DiscreteGaussian, "add_to", spy)
    ledger = Ledger()
    words, topics = (
        step.set_params(random_state=5, ledger=ledger) for step in (chooser(), model())
    )
    pipeline = make_pipeline(words, topics).fit(TEXTS)
    words_noise, totals_noise = noise[:2]
    np.testing.assert_array_equal(words_noise, totals_noise[: len(words_noise)])
    guarantee = pipeline_guarantee(pipeline)
    assert (guarantee.epsilon, ledger.epsilon_spent) == (math.inf, math.inf)
    assert "given seed" in guarantee.mechanism
    topics.set_params(random_state=None).fit(words.transform(TEXTS))
    assert 2.1 < pipeline_guarantee(pipeline).epsilon < 3.0


def test_a_classifier_inside_is_named_by_its_path():
    inner = make_pipeline(model(), LogisticRegression())
    pipeline = make_pipeline(chooser(), inner).fit(TEXTS, LABELS)
    guarantee = pipeline_guarantee(pipeline)
    assert guarantee.epsilon == math.inf
    assert "'pipeline__logisticregression' was fitted" in guarantee.mechanism
    assert pipeline_guarantee(make_pipeline(pipeline[0], inner[0])).epsilon < 3.0


@pytest.mark.parametrize("stated", [5.0, math.inf])
def test_a_step_that_states_more_than_its_events_is_charged_what_it_states(stated):
    pipeline = make_pipeline(CountVectorizer(vocabulary=FRUIT), model()).fit(TEXTS)
    pipeline[-1].privacy_ = replace(pipeline[-1].privacy_, epsilon=stated)
    assert pipeline_guarantee(pipeline).epsilon_at(1e-3) >= stated
    both = make_pipeline(chooser().fit(TEXTS), pipeline[-1])
    assert pipeline_guarantee(both).epsilon_at(1e-3) > stated or stated == math.inf
    # the statement takes all of delta
    assert pipeline_guarantee(both).epsilon == math.inf


def test_a_learned_vocabulary_inside_is_found():
    pipeline = make_pipeline(make_pipeline(CountVectorizer()), model()).fit(TEXTS)
    assert pipeline_guarantee(pipeline).epsilon == math.inf
    (line,) = origin(pipeline)
    assert line.startswith(
        "vocabulary: learned from the documents, not private; give 'pipeline__"
    )


@pytest.mark.parametrize(
    ("vectorizer", "expected"),
    [
        (
            CountVectorizer(vocabulary=FRUIT),
            "given to 'countvectorizer', public by assumption",
        ),
        (chooser(), "chosen from the documents, and its cost is in epsilon"),
    ],
    ids=["given", "chosen"],
)
def test_one_line_says_where_the_vocabulary_comes_from(vectorizer, expected):
    pipeline = make_pipeline(vectorizer, model()).fit(TEXTS)
    assert origin(pipeline) == [f"vocabulary: {expected}"]
    counts = vectorizer.transform(TEXTS)
    unknown = make_pipeline(model()).fit(counts)
    assert origin(unknown) == ["vocabulary: origin not known to the model"]


def columns_are_assumed(guarantee):
    says = "the columns of X (the vocabulary) are public"
    return any(text.startswith(says) for text in guarantee.assumptions)


def test_a_released_model_still_assumes_that_its_columns_are_public(tmp_path):
    """It knows its words, and did not choose them."""
    given = make_pipeline(CountVectorizer(vocabulary=FRUIT), model()).fit(TEXTS)
    save_release(given, tmp_path / "topics.dplda")
    released = load_release(tmp_path / "topics.dplda")
    assert columns_are_assumed(released.privacy_)
    assert columns_are_assumed(pipeline_guarantee(make_pipeline(released)))
    chosen = make_pipeline(chooser(), model()).fit(TEXTS)
    assert not columns_are_assumed(pipeline_guarantee(chosen))


@pytest.mark.parametrize(
    ("step", "is_assumed"),
    [
        # reads other rows
        (FunctionTransformer(lambda X: X * X.sum(), accept_sparse=True), True),
        (CountVectorizer(vocabulary=FRUIT, stop_words=["secret"]), True),
        (
            CountVectorizer(vocabulary=FRUIT, tokenizer=str.split, token_pattern=None),
            True,
        ),
        (CountVectorizer(vocabulary=FRUIT), False),
    ],
    ids=["function", "stop words", "tokenizer", "plain"],
)
def test_settings_that_may_read_documents_are_assumed_to_be_public(step, is_assumed):
    counter = (
        [] if isinstance(step, CountVectorizer) else [CountVectorizer(vocabulary=FRUIT)]
    )
    pipeline = make_pipeline(*counter, step, model()).fit(TEXTS)
    text = " ".join(pipeline_guarantee(pipeline).assumptions)
    assert ("treats each document by itself" in text) == is_assumed


def test_a_frozen_step_is_the_step(tmp_path):
    """FrozenEstimator keeps a fitted vectorizer as it is while a pipeline is fitted."""
    words = chooser().fit(TEXTS)
    topics = model().fit(words.transform(TEXTS))
    frozen = make_pipeline(FrozenEstimator(words), FrozenEstimator(topics))
    expected = pipeline_guarantee(make_pipeline(words, topics))
    assert pipeline_guarantee(frozen) == expected
    assert pipeline_guarantee(FrozenEstimator(frozen)) == expected
    for saved in (frozen, FrozenEstimator(frozen)):
        save_release(saved, tmp_path / "topics")
        released = load_release(tmp_path / "topics")
        assert released.epsilon_ == expected.epsilon
        assert released.transform(["apple"]).shape == (1, 2)
    save_release(FrozenEstimator(topics), tmp_path / "alone")
    assert load_release(tmp_path / "alone").epsilon_ == topics.epsilon_


def side_by_side(kind, ledger):
    """Private pipelines on the same texts, one of them inside of another union."""
    first, second, third = (
        make_pipeline(
            chooser().set_params(ledger=ledger),
            model().set_params(ledger=ledger, epsilon=epsilon),
        )
        for epsilon in (1.0, 2.0, 3.0)
    )
    if kind is make_union:
        return make_pipeline(
            make_union(first, make_union(second, third)), "passthrough"
        ), TEXTS
    columns = make_column_transformer(
        (first, "title"), (second, "body"), (make_union(third), "body")
    )
    return make_pipeline(columns), pd.DataFrame({"title": TEXTS, "body": TEXTS[::-1]})


@pytest.mark.parametrize("kind", [make_union, make_column_transformer])
def test_steps_side_by_side_read_the_same_rows_and_add_up(kind):
    ledger = Ledger()
    pipeline, X = side_by_side(kind, ledger)
    guarantee = pipeline_guarantee(pipeline.fit(X))
    assert len(ledger.entries()) == 6
    assert guarantee.epsilon_at(ledger.delta) == pytest.approx(ledger.epsilon_spent)
    assert guarantee.epsilon > 4.0


@pytest.mark.filterwarnings("ignore::dplda.privacy.SeededNoiseWarning")
def test_a_step_of_several_side_by_side_speaks_for_itself_alone():
    counts = CountVectorizer(vocabulary=FRUIT)
    chosen, given = make_pipeline(chooser(), model()), make_pipeline(counts, model())
    guarantee = pipeline_guarantee(make_pipeline(make_union(chosen, given)).fit(TEXTS))
    # words that one step chose are not its neighbor's
    assert columns_are_assumed(guarantee)
    union = make_union(given, FrozenEstimator(CountVectorizer().fit(TEXTS)))
    guarantee = pipeline_guarantee(make_pipeline(union).fit(TEXTS))
    assert guarantee.epsilon == math.inf
    assert "'featureunion__frozenestimator" in guarantee.mechanism
    seeded = [
        make_pipeline(counts, model().set_params(random_state=1)) for _ in range(2)
    ]
    assert (
        pipeline_guarantee(make_pipeline(make_union(*seeded)).fit(TEXTS)).epsilon
        == math.inf
    )


def test_steps_that_protect_different_units_are_refused():
    ids = [i // 2 for i in range(len(TEXTS))]
    pipeline = make_pipeline(chooser(), model())
    pipeline.fit(TEXTS, privatecountvectorizer__user_ids=ids)
    with pytest.raises(ValueError, match="different units"):
        pipeline_guarantee(pipeline)


def test_what_states_no_guarantee_is_refused_and_not_printed():
    counts = CountVectorizer(vocabulary=FRUIT)
    pipeline = make_pipeline(counts, model()).fit(TEXTS)
    with pytest.raises(
        ValueError, match="no step has a guarantee: featureunion__countvectorizer"
    ):
        pipeline_guarantee(make_pipeline(make_union(counts)).fit(TEXTS))
    with pytest.raises(
        TypeError, match="got SubLDA; a single model states its guarantee"
    ):
        pipeline_guarantee(pipeline[-1])
    with pytest.raises(TypeError, match=r"^expected a fitted Pipeline, got list$"):
        pipeline_guarantee(TEXTS)
