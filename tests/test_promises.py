"""Public names promise: one `epsilon` meaning, one parameter order, one object."""

import importlib
import inspect
import json
import math
import re
import subprocess
import sys
import warnings
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from estimators import CASES, LITERAL, LOCAL, MODELS, ONLINE, PACKAGES, PRIVATE, each
from sklearn.base import clone

from dplda import OLPLDA, RandomizedResponse, SubLDA
from dplda.privacy import BudgetError, Ledger, PrivacyLeakWarning
from dplda.privacy.mechanisms import Recorder, record

pytestmark = pytest.mark.filterwarnings("ignore::dplda.privacy.PrivacyLeakWarning")


def public_objects():
    for package in PACKAGES:
        module = importlib.import_module(package)
        yield from (
            (f"{package}.{name}", getattr(module, name)) for name in module.__all__
        )


def parameters(cls):
    return inspect.signature(cls).parameters


def public_estimators():
    """Classes that are fitted to topics or for privacy; a released model is not."""
    found = {value for _, value in public_objects() if hasattr(value, "fit")}
    found = {cls for cls in found if {"n_components", "delta"} & parameters(cls).keys()}
    return sorted(found, key=lambda cls: cls.__name__)


def states_epsilon(case):
    return case.estimator.get_params().get("epsilon") is not None


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.unit], ids=lambda case: case.name
)
def test_the_unit_is_the_one_that_the_docstring_names(case, corpus):
    notes = re.search(
        r"\*\*Privacy\.\*\*\s+Unit:\s+(\w+)", type(case.estimator).__doc__
    )
    assert notes is not None
    assert clone(case.estimator).fit(corpus).privacy_.unit == notes[1] == case.unit


def state(model):
    return model.components_.tolist(), model.epsilon_, model.n_iter_, model.privacy_


TOTAL = [case for case in PRIVATE if states_epsilon(case) and case in ONLINE]


def refuses(call, corpus):
    with pytest.raises(BudgetError, match=r"(?s)(?=.*max_iter)(?=.*ledger)"):
        call(corpus)


@each(TOTAL)
def test_partial_fit_stops_when_epsilon_is_spent(estimator, corpus):
    ledger = Ledger()
    model = clone(estimator).set_params(max_iter=3, ledger=ledger)
    spent = []
    for _ in range(3):
        model.partial_fit(corpus)
        spent.append(model.epsilon_)
    assert spent == sorted(set(spent))
    assert spent[-1] <= estimator.epsilon
    before = state(model)
    refuses(model.partial_fit, corpus)
    assert state(model) == before
    assert len(ledger.entries()) == 3


@each(TOTAL)
def test_nothing_is_left_after_fit(estimator, corpus):
    ledger = Ledger()
    model = clone(estimator).set_params(max_iter=3, ledger=ledger).fit(corpus)
    before = state(model)
    refuses(model.partial_fit, corpus)
    assert state(model) == before
    assert len(ledger.entries()) == 1
    assert model.fit(corpus).n_iter_ == 3  # a new model has a new budget


# a party's calls protect different tokens: tests/test_party.py
@each(
    case
    for case in PRIVATE
    if case in ONLINE and case.room in ("document", "word") and not states_epsilon(case)
)
def test_without_epsilon_there_is_no_limit(estimator, corpus):
    model = clone(estimator).set_params(max_iter=3).fit(corpus)
    spent = model.epsilon_
    for _ in range(4):
        model.partial_fit(corpus)
    assert model.n_iter_ == 7
    assert model.epsilon_ > spent
    assert np.isfinite(model.components_).all()


def test_a_public_name_is_that_of_one_object_and_an_object_has_one():
    places, names = defaultdict(list), defaultdict(set)
    for full_name, value in public_objects():
        name = full_name.rpartition(".")[2]
        places[name].append(full_name)
        names[id(value)].add(name)
    found = [*places.values(), *names.values()]
    assert [several for several in found if len(several) > 1] == []


# Other parameters stand in one of the two gaps: they choose the algorithm, or details
# of it.
DEFAULTS = {"delta": 1e-6, "topic_word_prior": 0.01}


def test_shared_defaults_agree():
    """The published classes keep the defaults of their papers."""
    literal = {type(case.estimator) for case in LITERAL}
    found = [
        f"{cls.__name__}({name}={parameters(cls)[name].default})"
        for cls in public_estimators()
        if cls not in literal
        for name in DEFAULTS.keys() & parameters(cls).keys()
        if parameters(cls)[name].default != DEFAULTS[name]
    ]
    assert not found, "\n".join(found)


# ---- what epsilon_ does not cover is named -------------------------------------------


def named(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyLeakWarning)
        call()
    return [str(w.message) for w in caught if w.category is PrivacyLeakWarning]


# Each story is told to a process of its own, and counts the warnings of its lines.
STORY = """
import json, math, sys, warnings
import numpy as np
from dplda import HDPLDA, PrivateTopicModel, SubLDA, private_topic_counts
from dplda.audit import replay
from dplda.datasets import make_topic_corpus
from dplda.federated import IFTMMaster, IFTMParty, fit_together, run_rounds
from dplda.metrics import noisy_score
from dplda.privacy import Ledger

X = make_topic_corpus(137, 40, 4, doc_length=50, random_state=0).data
PARTS = {"north": X[:60], "south": X[60:]}
TEXTS = ["the patient has a fever and a cough", "the dose was too high"] * 40
WORDS = ["fever", "dose", "high"]
MODELS = {
    "SubLDA": SubLDA(2, epsilon=4.0, max_iter=2),
    "steps": SubLDA(2, noise_multiplier=10.0, max_iter=2),
    "HDPLDA": HDPLDA(2, epsilon=4.0, max_iter=2),
    "given": PrivateTopicModel(2, epsilon=4.0, vocabulary=WORDS),
    "exact": SubLDA(2, epsilon=math.inf, max_iter=2),
}

def fit(name, ledger=None):
    model = MODELS[name].set_params(ledger=ledger)
    return model.fit(TEXTS if name == "given" else X)

def count(ledger=None):
    model = SubLDA(2, epsilon=math.inf, max_iter=2).fit(X)
    return private_topic_counts(model, X, epsilon=1.0, ledger=ledger)

def score(ledger=None):
    model = SubLDA(2, epsilon=math.inf, max_iter=2).fit(X)
    return noisy_score(model, X, epsilon=1.0, ledger=ledger)

def refused():
    MODELS["given"].set_params(ledger=None)
    try:
        MODELS["given"].fit([*TEXTS, None])
    except ValueError:
        return
    raise AssertionError

def iftm():
    parties = {n: (IFTMParty(2, token_epsilon=6.0), part) for n, part in PARTS.items()}
    run_rounds(IFTMMaster([f"word{i}" for i in range(40)]), parties, n_rounds=2)

counts = []
for line in json.loads(sys.argv[1]):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        exec(line)
    counts.append(sum("another private release" in str(each.message) for each in said))
print(json.dumps(counts))
"""
STORIES = {
    "no ledger": {"fit('SubLDA')": 0, "fit('SubLDA') ": 1, "fit('HDPLDA')": 0},
    "two kinds": {"fit('SubLDA')": 0, "fit('HDPLDA')": 1},
    "texts": {"fit('given')": 0, "fit('given') ": 1},
    "one ledger": {
        "one = Ledger(epsilon=1e6)": 0,
        "fit('SubLDA', one)": 0,
        "fit('SubLDA', one.part('Monday', by='day'))": 0,
        "fit('given')": 1,
        "fit('given', one)": 0,
    },
    "refused": {
        "refused()": 0,
        "fit('SubLDA')": 0,
        "refused() ": 1,
        "fit('HDPLDA')": 1,
        "refused()  ": 0,
    },
    "two ledgers": {"fit('SubLDA', Ledger())": 0, "fit('SubLDA', Ledger()) ": 1},
    "without noise": {"fit('exact')": 0, "fit('exact') ": 0, "fit('SubLDA')": 0},
    "counts": {
        "one = Ledger(epsilon=1e6)": 0,
        "fit('SubLDA', one)": 0,
        "count(one)": 0,
        "score(one)": 0,
        "count()": 1,
    },
    "a score": {"fit('SubLDA')": 0, "score()": 1},
    "partial_fit": {
        "fit('steps')": 0,
        "MODELS['steps'].partial_fit(X)": 0,
        "MODELS['steps'].fit(X)": 1,
    },
    "parties": {
        "fit_together(MODELS['SubLDA'], PARTS)": 0,
        "fit_together(MODELS['SubLDA'], PARTS) ": 0,
        "fit('SubLDA')": 0,
    },
    "parties of iFTM": {"iftm()": 0, "iftm() ": 0},
    "an audit": {
        "replay(MODELS['SubLDA'], X.toarray(), X.toarray())": 0,
        "replay(MODELS['SubLDA'], X.toarray(), X.toarray()) ": 0,
        "fit('SubLDA')": 0,
    },
}


@pytest.mark.ci
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_process_whose_fits_nobody_adds_up_is_told_once(story):
    run = subprocess.run(
        [sys.executable, "-c", STORY, json.dumps([*story])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == [*story.values()]


def test_exact_scores_are_named_once(corpus):
    model = SubLDA(2, epsilon=4.0, max_iter=2).fit(corpus)
    assert len(named(lambda: [model.score(corpus), model.perplexity(corpus)])) == 1


def test_scores_without_privacy_need_nothing(corpus):
    model = SubLDA(2, epsilon=math.inf, max_iter=2).fit(corpus)
    assert (
        named(
            lambda: [model.score(corpus), model.fit(corpus), clone(model).fit(corpus)]
        )
        == []
    )


@each([*PRIVATE, *LOCAL])
def test_a_fit_that_is_refused_leaves_the_words_of_the_model_before(estimator, corpus):
    """Also if it is refused because of what it has read."""
    X = pd.DataFrame(corpus.toarray()).add_prefix("a")
    model = clone(estimator).fit(X)
    wrong = X.set_axis([f"b{v}" for v in range(X.shape[1])], axis=1).iloc[:, 1:]
    with pytest.raises(ValueError, match="Negative"):
        model.fit(-wrong)
    assert [*model.feature_names_in_] == [*X.columns]
    assert model.n_features_in_ == X.shape[1]


class Broken(Recorder):
    """Ends a fit before its first release is public."""

    def released(self, computed, noisy):
        raise MemoryError

    def drawn(self, label, round, value):
        raise MemoryError


@each([*PRIVATE, *LOCAL])
def test_a_fit_that_releases_nothing_leaves_the_words_of_the_model_before(
    estimator, corpus
):
    """Its columns are those of its topics, also if the new fit is paid for."""
    X = pd.DataFrame(corpus.toarray()).add_prefix("a")
    model = clone(estimator).fit(X)
    other = X.set_axis([f"b{v}" for v in range(X.shape[1])], axis=1).iloc[:, 1:]
    with pytest.raises(MemoryError), record(Broken()):
        model.fit(other)
    assert [*model.feature_names_in_] == [*X.columns]
    assert model.n_features_in_ == model.components_.shape[1] == X.shape[1]


@pytest.mark.parametrize("estimator", [RandomizedResponse(epsilon=8.0), OLPLDA(2)])
def test_a_budget_that_is_refused_leaves_the_words_that_were_known(estimator, corpus):
    fit = getattr(estimator, "fit_prior", estimator.fit)
    X = pd.DataFrame(corpus.toarray()).add_prefix("a")
    estimator.set_params(epsilon=8.0)
    fit(X)
    with pytest.raises(ValueError, match="epsilon"):
        estimator.set_params(epsilon=1e-9) and fit(X.add_prefix("b").iloc[:, 1:])
    assert [*estimator.feature_names_in_] == [*X.columns]
    assert estimator.n_features_in_ == X.shape[1]


@each([case for case in MODELS if case.unit is None])
def test_a_fit_without_privacy_that_ends_leaves_the_words_of_the_model_before(
    estimator, corpus, monkeypatch
):
    def ended(*_, **__):
        raise KeyboardInterrupt

    X = pd.DataFrame(corpus.toarray()).add_prefix("a")
    model = clone(estimator).fit(X)
    with monkeypatch.context() as patch:
        patch.setattr("dplda.privacy._streams.Streams.reader", ended)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X.add_prefix("b").iloc[:, 1:])
    assert [*model.feature_names_in_] == [*X.columns]
    assert model.n_features_in_ == X.shape[1]
