"""Streams: `partial_fit` over disjoint parts, what they cost, and what the model learns of them."""

import copy
import itertools
import math
import pickle
from fractions import Fraction
from unittest.mock import patch

import exact_laws as exact
import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from test_two_worlds import recorded, replayed

from dplda import PrivateSVILDA, SubLDA
from dplda.datasets import CountShards, make_topic_corpus, write_shards
from dplda.document._stream import Stream
from dplda.metrics import held_out_perplexity
from dplda.privacy import (
    BudgetError,
    Gaussian,
    Ledger,
    epsilon_of,
    user_part,
)
from dplda.privacy.mechanisms import Curator

both = pytest.mark.parametrize("kind", [SubLDA, PrivateSVILDA])
pytestmark = pytest.mark.filterwarnings(
    "ignore::dplda.privacy.SeededNoiseWarning", "ignore::dplda.privacy.LowSignalWarning"
)
OPTIONS = {"n_components": 3, "max_iter": 3}
IDS = np.arange(60) // 2  # two documents of each user


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(60, 30, 3, doc_length=30, random_state=0).data


def streamed(model, parts, **options):
    """The model after one call for each of the {name: documents}."""
    for name, documents in parts.items():
        model.partial_fit(documents, part=name, **options)
    return model


def split(X, n):
    """n disjoint parts of the rows."""
    return {f"day {i}": X[i::n] for i in range(n)}


def state(model):
    """A digest of all that a call may change."""
    return joblib.hash({name: v for name, v in vars(model).items() if name != "ledger"})


class NotRead:
    """Documents that must not be looked at."""

    def __getattr__(self, name):
        raise AssertionError("the documents were read")


# ---- what a stream costs ---------------------------------------------------------------------


@both
def test_ten_parts_cost_what_one_costs(kind, X):
    ledger = Ledger(epsilon=1.0)
    model = streamed(kind(epsilon=1.0, ledger=ledger, **OPTIONS), split(X, 10))
    alone = kind(epsilon=1.0, **OPTIONS).fit(X)
    assert model.epsilon_ == alone.epsilon_ <= 1.0
    assert model.privacy_.events == alone.privacy_.events
    assert model.privacy_.total_variation == alone.privacy_.total_variation
    assert model.n_iter_ == 30
    assert model.parts_ == tuple(split(X, 10))
    assert ledger.epsilon_spent <= 1.0
    assert [entry.part for entry in ledger.entries()] == [*model.parts_]
    assert any("in one part of the stream" in a for a in model.privacy_.assumptions)
    assert not any("part" in a for a in alone.privacy_.assumptions)


@both
def test_a_part_that_has_spent_epsilon_is_refused_and_not_read(kind, X):
    ledger = Ledger()
    model = streamed(kind(epsilon=1.0, ledger=ledger, **OPTIONS), split(X, 2))
    before = state(model)
    with pytest.raises(BudgetError, match=r"part 'day 0' has paid epsilon=1"):
        model.partial_fit(NotRead(), part="day 0")
    assert state(model) == before
    assert len(ledger.entries()) == 2


@both
def test_a_part_that_is_named_twice_pays_twice(kind, X):
    """Whatever other parts there are: the total is that of the part that paid most."""
    ledger = Ledger()
    model = kind(noise_multiplier=9.0, ledger=ledger, **OPTIONS)
    once = streamed(clone(model).set_params(ledger=None), {"a": X}).privacy_
    for name, times in zip("abacab", [1, 1, 2, 2, 3, 3]):
        model.partial_fit(X[:20], part=name)
        assert model.privacy_.events == times * once.events
        assert model.privacy_.total_variation == pytest.approx(times * once.total_variation)
        assert len(model.privacy_.noise_multiplier) == times * 5
        assert len(model.privacy_.noise_scale) == times * 5
        # a copy of the ledger from before this call does not have its charge
        assert model.privacy_.receipt == ledger.receipt
        distance = model.privacy_.total_variation
        paid = epsilon_of(times * once.events, model.delta, total_variation=distance)
        assert model.epsilon_ == paid
        assert ledger.epsilon_spent == pytest.approx(paid, rel=1e-9)
    assert model.epsilon_ > once.epsilon * 1.5


def test_the_ledger_refuses_what_the_model_would_allow(X):
    ledger = Ledger(epsilon=1.0)
    model = SubLDA(noise_multiplier=9.0, ledger=ledger, **OPTIONS)
    ledger.part("a").reserve("another model", "document", Gaussian(6.0))
    with pytest.raises(BudgetError):
        model.partial_fit(NotRead(), part="a")
    assert model.partial_fit(X, part="b").parts_ == ("b",)


def test_a_part_of_a_ledger_is_no_stream(X):
    with pytest.raises(ValueError, match="a part has no parts"):
        SubLDA(epsilon=1.0, ledger=Ledger().part("a"), **OPTIONS).partial_fit(NotRead(), part="b")


def test_a_seed_of_one_part_is_the_seed_of_the_stream(X):
    model = SubLDA(noise_multiplier=9.0, random_state=0, **OPTIONS)
    streamed(model, {"a": X[:30], "b": X[30:]})
    model.set_params(random_state=None)
    assert streamed(model, {"b": X[30:], "c": X, "d": X}).privacy_.seeded


# ---- users -----------------------------------------------------------------------------------


@both
def test_users_pay_for_every_day(kind, X):
    """The same person may write on several days."""
    ledger = Ledger()
    model = kind(noise_multiplier=9.0, ledger=ledger, **OPTIONS)
    streamed(model, split(X, 3), user_ids=IDS[::3])
    once = kind(noise_multiplier=9.0, **OPTIONS).fit(X).privacy_.events
    assert model.privacy_.events == 3 * once
    assert ledger.epsilon_spent == pytest.approx(model.epsilon_, rel=1e-9)
    model = kind(epsilon=1.0, **OPTIONS).partial_fit(X, user_ids=IDS, part="a")
    with pytest.raises(BudgetError, match="every user, whatever the part, has paid epsilon=1"):
        model.partial_fit(NotRead(), user_ids=IDS, part="b")


@both
def test_parts_of_users_cost_what_one_costs(kind, X):
    ledger, number = Ledger(epsilon=1.0), user_part(IDS, 3)
    model = kind(epsilon=1.0, ledger=ledger, **OPTIONS)
    for k in range(3):
        rows = number == k
        model.partial_fit(X[rows], user_ids=IDS[rows], part=(k, 3))
    assert model.epsilon_ <= 1.0
    assert model.privacy_.unit == "user"
    assert model.parts_ == ("users 0/3", "users 1/3", "users 2/3")
    assert ledger.epsilon_spent <= 1.0
    with pytest.raises(BudgetError, match="'users 1/3' has paid"):
        model.partial_fit(NotRead(), user_ids=IDS, part=(1, 3))


def test_users_of_another_part_are_found_before_the_first_release(X):
    ledger, rows = Ledger(), user_part(IDS, 3) == 1
    model = SubLDA(epsilon=1.0, ledger=ledger, **OPTIONS)
    with pytest.raises(ValueError, match="some user_ids are in other parts") as error:
        model.partial_fit(X, user_ids=IDS, part=(1, 3))
    assert not {str(i) for i in set(IDS[~rows])} - {"0", "1", "3"} & {*str(error.value).split()}
    assert [entry.status for entry in ledger.entries()] == ["canceled"]
    model.partial_fit(X[rows], user_ids=IDS[rows].astype(str), part=(1, 3))


# ---- calls that do not fit together ------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "match"),
    [
        ("", "not empty"),
        (3, "must be a text, or"),
        (None, "give a part to each call or to none"),
        ("users 1/3", "is a part of users"),
        ((1, 3), "pass user_ids too"),
        ((3, 3), "name must be"),
    ],
)
def test_parts_that_are_refused(part, match, X):
    model = SubLDA(epsilon=1.0, **OPTIONS).partial_fit(X, part="a")
    with pytest.raises(ValueError, match=match):
        model.partial_fit(NotRead(), part=part)


def test_calls_with_and_without_parts_do_not_mix(X):
    model = SubLDA(epsilon=1.0, **OPTIONS).fit(X)
    with pytest.raises(ValueError, match="had no part; give a part"):
        model.partial_fit(NotRead(), part="a")
    assert model.parts_ == ()
    assert clone(model).partial_fit(X, part="a").fit(X).parts_ == ()
    model = SubLDA(noise_multiplier=9.0, **OPTIONS)
    model.partial_fit(X, user_ids=IDS, part="a")
    with pytest.raises(ValueError, match="may overlap with 'a'"):
        model.partial_fit(NotRead(), user_ids=IDS, part=(1, 3))


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon": 0.5}, {"epsilon": None, "noise_multiplier": 50.0}, {"delta": 1e-7},
        {"max_iter": 4}, {"subsampling_ratio": 0.5}, {"boost": 2.0}, {"word_total_share": 0.5},
        {"contribution_norm": 2.0}, {"n_components": 4},
    ],
    ids=str,
)  # fmt: skip
def test_parts_have_one_budget_and_one_scale(changed, X):
    model = SubLDA(epsilon=1.0, **OPTIONS).partial_fit(X, part="a")
    with pytest.raises(ValueError, match=f"{next(iter(changed))}.*call fit to start"):
        model.set_params(**changed).partial_fit(NotRead(), part="b")


@both
def test_sums_of_two_scales_are_not_averaged(kind, X):
    model = kind(epsilon=1.0, **OPTIONS).partial_fit(X).set_params(contribution_norm=2.0)
    with pytest.raises(ValueError, match="contribution_norm was 6 in the first call, got 2"):
        model.partial_fit(NotRead())
    free = kind(epsilon=math.inf, **OPTIONS).partial_fit(X)
    free.set_params(contribution_norm=2.0).partial_fit(X)


def test_other_columns_are_refused_and_cost_nothing(X):
    ledger = Ledger()
    model = SubLDA(epsilon=1.0, ledger=ledger, **OPTIONS).partial_fit(X, part="a")
    with pytest.raises(ValueError, match=r"29 features.*30 features"):
        model.partial_fit(X[:, :29], part="b")
    assert [entry.status for entry in ledger.entries()] == ["confirmed", "canceled"]
    assert model.partial_fit(X, part="b").parts_ == ("a", "b")


def test_an_interrupted_call_leaves_the_model_as_it_was(X):
    model = SubLDA(noise_multiplier=9.0, **OPTIONS).partial_fit(X, part="a")
    before = state(model)
    with (
        patch.object(Curator, "__exit__", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        model.partial_fit(X, part="b")
    assert state(model) == before


# ---- the theorem -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
@both
def test_a_document_moves_the_releases_of_its_part_and_of_no_other(kind, n_jobs, X, monkeypatch):
    Y = X.tolil()
    Y[31] = 0  # in the second part
    tape, distances = [], []
    model = kind(epsilon=1.0, random_state=1, n_jobs=n_jobs, **OPTIONS)
    for release, corpus in ((recorded(tape), X), (replayed(tape, distances), Y)):
        with monkeypatch.context() as patch:
            patch.setattr(Curator, "release", release)
            streamed(clone(model), {i: corpus.tocsr()[20 * int(i) :][:20] for i in "012"})
    assert tape == []
    of_parts = np.reshape(distances, (3, -1))
    assert (of_parts[[0, 2]] == 0).all()
    assert of_parts[1].max() > 0.5


class InTwoParts(BaseEstimator):
    """Fits the first two rows, and then the others, as parts of a stream."""

    def __init__(self, model=None):
        self.model = model

    def fit(self, X):
        streamed(self.model, {"a": X[:2], "b": X[2:]})


TOY = np.array([[40.0, 0.0], [0.0, 12.0], [40.0, 0.0], [6.0, 6.0]])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[0], [2], [0, 2]], ids=str)
@both
def test_exact_law_of_a_document_in_one_part_and_in_both(kind, rows):
    """The first document of either part reaches for the bound in every release."""
    model = kind(
        2, noise_multiplier=3.0, max_iter=1, subsampling_ratio=1.0, random_state=2,
        prior_components=[[90.0, 10.0], [50.0, 50.0]],
    )  # fmt: skip
    fitted, steps = exact.two_worlds(InTwoParts(model), TOY, exact.without(TOY, rows), rows[0])
    stated, delta = fitted.model.privacy_, fitted.model.delta_
    lower, upper = exact.epsilon_interval(steps, delta, stated.epsilon / 1000)
    assert upper <= epsilon_of(len(rows) * stated.events, delta) * (1 + 3e-5)
    assert upper < stated.epsilon * (1 + 3e-5) if len(rows) == 1 else lower > 1.2 * stated.epsilon
    assert lower > 0.9 * stated.epsilon


NAMES = "ab"
LIES = Fraction(1, 4)  # of a noisy bit, which says whether the document is in the part


def strategies(depth, history=()):
    """All ways to name parts by the bits that were released: {history: name or None to stop}."""
    yield {history: None}
    if depth == 0:
        return
    for name in NAMES:
        ends = [list(strategies(depth - 1, (*history, bit))) for bit in (0, 1)]
        for zero, one in itertools.product(*ends):
            yield {history: name, **zero, **one}


def law(strategy, part):
    """The law of what a strategy releases, if the document is in `part`; None: in no part."""
    found, open_ = {}, {(): Fraction(1)}
    while open_:
        history, chance = open_.popitem()
        name = strategy[history]
        if name is None:
            found[history] = chance
            continue
        for bit in (0, 1):
            right = bit == (name == part)
            open_[*history, bit] = chance * (1 - LIES if right else LIES)
    return found


def paid(strategy):
    """How many calls some part pays for at most, by the count of the estimators."""
    most, settings = 0, {"epsilon": None}
    for end in (history for history, name in strategy.items() if name is None):
        stream = Stream("document", None, settings)
        for i in range(len(end)):
            stream = stream.and_call(strategy[end[:i]], settings)
            most = max(most, stream.n_paid)
    return most


@pytest.mark.parametrize("depth", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_adaptive_stream_of_noisy_bits_costs_what_its_dearest_part_costs(depth):
    """All strategies of so many calls; in exact fractions, at two deltas."""
    yes = {bit: (1 - LIES if bit else LIES) for bit in (0, 1)}
    no = {bit: 1 - chance for bit, chance in yes.items()}
    deltas = 0, Fraction(1, 20)
    charged = {
        (n, delta): exact.largest_epsilon(
            exact.product(*[yes] * n), exact.product(*[no] * n), delta
        )
        for n, delta in itertools.product(range(depth + 1), deltas)
    }
    met = set()
    for strategy in strategies(depth):
        n, without = paid(strategy), law(strategy, None)
        for part, delta in itertools.product(NAMES, deltas):
            epsilon = exact.largest_epsilon(law(strategy, part), without, delta)
            assert epsilon <= charged[n, delta] + 1e-12
            if epsilon > charged[n, delta] - 1e-12:
                met.add((n, delta))
    assert met == charged.keys(), "no smaller charge would do"


@both
def test_a_model_holds_nothing_but_functions_of_the_releases(kind, X):
    """Other documents with the same releases give the same model, to the last bit."""
    release, tape, models = Curator.release, [], []

    def replay(self, *args, **kwargs):
        noisy = release(self, *args, **kwargs)
        if not models:
            tape.append(noisy.copy())
            return noisy
        return tape.pop(0)

    with patch.object(Curator, "release", replay):
        for documents in (X, make_topic_corpus(90, 30, 2, random_state=5).data):
            model = kind(epsilon=1.0, random_state=0, **OPTIONS)
            models.append(streamed(model, split(documents, 3)))
    one, other = map(vars, models)
    assert [name for name in one if joblib.hash(one[name]) != joblib.hash(other[name])] == []


@both
def test_no_noise_and_no_sample_is_drawn_twice_under_a_seed(kind, X):
    used, keep = [], Curator._use

    def note(self, purpose, round):
        used.append((purpose, round))
        keep(self, purpose, round)

    model = kind(epsilon=1.0, random_state=0, **OPTIONS)
    with patch.object(Curator, "_use", note):
        streamed(model, split(X, 4))
    assert len(used) == len(set(used)) == 4 * (2 + 2 * 3)


# ---- what the model is -------------------------------------------------------------------------


@both
def test_without_noise_the_counts_of_all_parts_are_added(kind, X):
    model = streamed(kind(epsilon=math.inf, subsampling_ratio=1.0, **OPTIONS), split(X, 3))
    of_words = model._released._sum_of_parts().sum(axis=1)
    np.testing.assert_allclose(of_words, np.ravel(X.sum(axis=0)), rtol=0.01, atol=2)


@both
def test_totals_averages_and_variances_are_added(kind, X):
    model = kind(noise_multiplier=0.1, subsampling_ratio=1.0, n_components=3, max_iter=20)
    one, all_parts = clone(model).partial_fit(X, part="a"), clone(model)
    streamed(all_parts, dict.fromkeys("abcd", X))
    np.testing.assert_allclose(
        all_parts.components_.sum(axis=0), 4 * one.components_.sum(axis=0), rtol=0.1, atol=2
    )
    assert all_parts._released._variance() == pytest.approx(4 * one._released.variance)
    ratio = all_parts.components_std_ / one.components_std_
    assert np.median(ratio) == pytest.approx(2, rel=0.1)
    assert all_parts.signal_to_noise_ == pytest.approx(2 * one.signal_to_noise_, rel=0.1)


@both
def test_later_parts_make_the_model_better(kind):
    X = make_topic_corpus(1300, 60, 3, doc_length=30, random_state=0).data
    train, test = X[:1200], X[1200:]
    model = kind(3, epsilon=4.0, max_iter=20, random_state=0, subsampling_ratio=1.0)
    found = []
    for i in range(3):
        model.partial_fit(train[i::3], part=f"{i}")
        found.append(model.perplexity(test))
    unigram = held_out_perplexity(np.ravel(train.sum(axis=0))[None] + 0.5, test)
    assert found[2] < found[1] < found[0] < unigram


@both
def test_threads_and_shards_change_nothing(kind, X, tmp_path):
    model = kind(epsilon=1.0, random_state=0, **OPTIONS)
    found = streamed(clone(model), split(X, 2)).components_
    again = streamed(clone(model).set_params(n_jobs=2), split(X, 2))
    np.testing.assert_array_equal(again.components_, found)
    shards = {}
    for name, documents in split(X, 2).items():
        write_shards(documents, tmp_path / name, rows_per_shard=11)
        shards[name] = CountShards(tmp_path / name)
    np.testing.assert_array_equal(streamed(clone(model), shards).components_, found)


def test_a_stream_goes_on_after_a_pickle(X):
    model = SubLDA(epsilon=1.0, random_state=0, **OPTIONS).partial_fit(X[:30], part="a")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.partial_fit(X[30:], part="b").components_,
        copy.deepcopy(model).partial_fit(X[30:], part="b").components_,
    )
    with pytest.raises(BudgetError):
        again.partial_fit(NotRead(), part="a")
    assert clone(again).partial_fit(X, part="a").parts_ == ("a",)
