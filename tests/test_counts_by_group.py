"""Counts by group and period: what is counted, what a unit moves, what is charged."""

import dataclasses
import json
import math
import re
import warnings
from datetime import date
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

from dplda import (
    PrivateTopicModel,
    SubLDA,
    TopicCounts,
    load_counts,
    load_release,
    plan,
    private_topic_counts,
    save_release,
)
from dplda.__main__ import main
from dplda.audit._replay import fit_watched
from dplda.datasets import make_topic_corpus
from dplda.displays import report
from dplda.privacy import (
    BudgetError,
    Gaussian,
    Ledger,
    PrivacyLeakWarning,
    PrivateDataWarning,
    SeededNoiseWarning,
    epsilon_of,
    split_epsilon,
)

N_DOCS, V, K = 200, 40, 4
WARDS = [f"ward {i}" for i in range(45)]  # more than 127 cells with K topics
MONTHS = ["2026-01", "2026-02", "2026-03"]


@pytest.fixture(scope="module")
def X():
    counts = make_topic_corpus(N_DOCS, V, K, doc_length=30, random_state=0).data
    return sp.csr_array(counts.multiply(np.arange(N_DOCS)[:, None] % 11 > 0))


@pytest.fixture(scope="module")
def model(X):
    return SubLDA(K, epsilon=math.inf, max_iter=20, random_state=0).fit(X)


@pytest.fixture(scope="module")
def data():
    """Groups, of which some are unknown, and users."""
    rng = np.random.default_rng(0)
    ward = np.array(WARDS, object)[rng.integers(0, 45, N_DOCS)]
    ward[:9] = "closed"
    month = np.array(MONTHS)[rng.integers(0, 3, N_DOCS)]
    return {
        "by": {"ward": ward, "month": month},
        "levels": {"ward": WARDS, "month": MONTHS},
        "users": rng.integers(0, 60, N_DOCS),
    }


def count(model, X, data, users=False, **options):
    given = {"by": data["by"], "levels": data["levels"], "epsilon": math.inf}
    ids = data["users"][: X.shape[0]] if users else None
    by = {name: column[: X.shape[0]] for name, column in data["by"].items()}
    return private_topic_counts(
        model, X, **(given | {"by": by, "user_ids": ids} | options)
    )


def plain_loop(theta, X, data, users, soft, cross=False, most=None):
    """Each number, document after document."""
    filled = [
        d for d in range(N_DOCS) if X[[d]].sum() and data["by"]["ward"][d] in WARDS
    ]
    unit = {d: data["users"][d] if users else d for d in filled}
    tables = {name: {} for name in data["by"]}
    for d in filled:
        topics = theta[d] if soft else np.eye(K)[theta[d].argmax()]
        own = [e for e in filled if unit[e] == unit[d]]
        for name, column in data["by"].items():
            weight = 1 / len(own)
            if most and name in most:
                groups = sorted({data["levels"][name].index(column[e]) for e in own})
                place = groups.index(data["levels"][name].index(column[d]))
                same = [e for e in own if column[e] == column[d]]
                weight = (place < most[name]) / len(same)
            for k in range(K):
                key = column[d], k
                tables[name][key] = tables[name].get(key, 0) + weight * topics[k]
        if cross:
            key = f"{data['by']['ward'][d]}, {data['by']['month'][d]}"
            both = tables.setdefault("ward and month", {})
            for k in range(K):
                both[key, k] = both.get((key, k), 0) + topics[k] / len(own)
    return tables


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("form", ["marginals", "cross", "most"])
def test_the_numbers_are_those_of_a_plain_loop(form, users, soft, model, X, data):
    if form == "most" and not users:
        return
    most = {"month": 2} if form == "most" else None
    cross = form == "cross"
    table = count(model, X, data, users, soft=soft, cross=cross, most_groups=most)
    expected = plain_loop(model.transform(X), X, data, users, soft, cross, most)
    assert [*table.counts] == (["ward and month"] if cross else ["ward", "month"])
    for name, counts in table.counts.items():
        assert counts.shape == (len(table.levels[name]), K)
        for i, level in enumerate(table.levels[name]):
            row = [expected[name].get((level, k), 0.0) for k in range(K)]
            assert_allclose(counts[i], row, rtol=1e-5, atol=1e-6)
        assert counts.sum() > 30


def test_without_groups_the_numbers_are_the_sums_of_the_groups(model, X, data):
    both = count(model, X, data, levels={"ward": [*WARDS, "closed"], "month": MONTHS})
    alone = private_topic_counts(model, X, epsilon=math.inf).counts["all"][0]
    for table in both.counts.values():
        assert_allclose(table.sum(axis=0), alone, rtol=1e-5)


def test_an_owner_hears_of_documents_that_count_nowhere(model, X, data):
    with pytest.warns(PrivateDataWarning, match=r"9 documents .*not for release"):
        count(model, X, data)


def released_integers(model, X, data, **options):
    """The private sum, and the radius of its mechanism."""
    call = partial(count, model, data=data, **options)
    (step,) = fit_watched(lambda X: call(X), X)[1].steps
    return step.value, step.mechanism.radius


@pytest.fixture
def more(data):
    """One more user, with documents in all months and many wards."""
    n = 9
    return {
        "by": {
            "ward": np.append(data["by"]["ward"], WARDS[:n]),
            "month": np.append(data["by"]["month"], (MONTHS * n)[:n]),
        },
        "levels": data["levels"],
        "users": np.append(data["users"], np.full(n, 999)),
    }


OWN = {
    "the same": sp.csr_array(np.tile(np.arange(V) < 5, (9, 1)) * 9.0),
    "several": sp.csr_array(np.eye(9, V, 2) * 50),
    "one": sp.csr_array(np.eye(9, V, 7) * (np.arange(9) == 0)[:, None] * 1e15),
}


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
@pytest.mark.parametrize(
    "options",
    [{}, {"soft": True}, {"cross": True}, {"most_groups": {"month": 2}}],
    ids=str,
)
@pytest.mark.parametrize("own", OWN)
def test_a_user_moves_the_sum_by_the_radius_at_most(own, options, model, X, data, more):
    """In integers; an emptied user is one that is not there."""
    own = OWN[own]
    options = {"users": True, "epsilon": 1.0, **options}
    worlds = [sp.vstack([X, own]), sp.vstack([X, 0 * own]), X]
    found = [released_integers(model, sp.csr_array(w), more, **options) for w in worlds]
    (with_user, radius), (emptied, _), (without, _) = found
    assert_array_equal(emptied, without)
    moved = sum(int(x) ** 2 for x in with_user - without)
    assert 0.05**2 * radius**2 < moved <= radius**2


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
def test_the_bound_is_met_and_half_of_the_norm_would_be_too_small(model, X, data, more):
    """One document in one ward and one month has the largest vector."""
    own = sp.csr_array(np.eye(9, V, 7) * (np.arange(9) == 0)[:, None] * 1e3)
    options = {"users": True, "epsilon": 1.0}
    one, radius = released_integers(model, sp.vstack([X, own]), more, **options)
    other, _ = released_integers(model, X, more, **options)
    assert math.isclose(
        np.linalg.norm((one - other).astype(float)), radius, rel_tol=0.01
    )


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
@pytest.mark.parametrize("most", [None, {"month": 2}])
def test_a_contribution_is_the_same_whoever_else_is_there(most, model, X, data):
    """In integers: f(X) - f(X without a) = f(X without b) - f(X without both)."""
    sums = []
    users = data["users"]
    for without in ([], [12], [13], [12, 13]):
        keep = ~np.isin(users, without)
        world = sp.csr_array(X.multiply(keep[:, None]))
        options = {"users": True, "epsilon": 1.0, "most_groups": most}
        sums.append(released_integers(model, world, data, **options)[0])
    assert_array_equal(sums[0] - sums[1], sums[2] - sums[3])
    assert (sums[0] != sums[1]).any()


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
def test_intervals_hold_the_numbers_without_noise(model, X, data):
    """95% of 800 raw numbers or more, as stated; the seed is of the test."""
    exact = count(model, X, data)
    covered, errors = [], []
    for seed in range(5):
        with pytest.warns(SeededNoiseWarning):
            noisy = count(model, X, data, epsilon=1.0, random_state=seed)
        interval = noisy.interval()
        for name, counts in exact.counts.items():
            low, high = interval[name]
            covered.append(((low <= counts + 1e-9) & (counts <= high)).ravel())
            errors.append((noisy.counts[name] - counts).ravel())
            assert low.min() >= 0
    covered, errors = np.concatenate(covered), np.concatenate(errors)
    assert covered.size >= 800
    assert 0.935 < covered.mean() < 0.965
    assert 0.94 < errors.std() / noisy.noise_scale < 1.06
    assert 2 * noisy.margin(0.5) < noisy.margin(0.95)


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
def test_one_charge_covers_all_groupings(model, X, data):
    ledger = Ledger(epsilon=3.0)
    table = count(model, X, data, users=True, epsilon=1.0, ledger=ledger)
    (entry,) = ledger.entries()
    assert (entry.unit, entry.status) == ("user", "released")
    guarantee = table.privacy_
    (event,) = guarantee.events
    assert isinstance(event, Gaussian)
    assert epsilon_of(Gaussian(0.999 * event.noise_multiplier), 1e-6) > 1.0
    assert 0.99 < guarantee.epsilon <= 1.0
    # two tables beside each other have the norm sqrt(2)
    noise = math.sqrt(2) * event.noise_multiplier
    assert_allclose(table.noise_scale, noise, rtol=1e-9)
    assert_allclose(guarantee.sensitivity, math.sqrt(2), rtol=1e-9)
    assert "by ward and month" in guarantee.mechanism
    capped = count(model, X, data, users=True, epsilon=1.0, most_groups={"month": 3})
    assert_allclose(capped.noise_scale, 2 * event.noise_multiplier, rtol=1e-9)
    crossed = count(model, X, data, users=True, epsilon=1.0, cross=True)
    assert_allclose(crossed.noise_scale, event.noise_multiplier, rtol=1e-9)


def test_counts_whose_epsilon_promises_next_to_nothing_say_so(model, X, data):
    with pytest.warns(PrivacyLeakWarning, match="epsilon=30 promises next to nothing"):
        count(model, X, data, epsilon=30.0)
    texts, _, wards, _ = notes(100)
    given = {"by": {"ward": wards}, "levels": {"ward": [*TOPICS]}}
    fit = PrivateTopicModel(2, epsilon=4.0, vocabulary=WORDS, model=SubLDA(max_iter=2))
    with pytest.warns(PrivacyLeakWarning, match="epsilon=30 promises next to nothing"):
        fit.fit_and_count(texts, counts_epsilon=30.0, **given)


WRONG = {
    "no dict": ({"by": ["a"] * N_DOCS}, TypeError, "by must be a dict of groupings"),
    "no levels": ({"levels": None}, ValueError, "from public knowledge"),
    "of others": ({"levels": {"ward": WARDS}}, ValueError, "from public knowledge"),
    "twice": (
        {"levels": {"ward": ["a", "b", "a "], "month": MONTHS}},
        ValueError,
        "lists 'a' more than once",
    ),
    "one text": (
        {"levels": {"ward": "abc", "month": MONTHS}},
        TypeError,
        "got one text",
    ),
    "a set": ({"levels": {"ward": {*"abc"}, "month": MONTHS}}, TypeError, "no order"),
    "none": ({"levels": {"ward": [], "month": MONTHS}}, ValueError, "at least one"),
    "control": (
        {"levels": {"ward": ["a\x1b[2J"], "month": MONTHS}},
        ValueError,
        "printable",
    ),
    "cells": (
        {"levels": {"ward": [str(i) for i in range(25_000)], "month": MONTHS}},
        ValueError,
        "would have 100012 numbers",
    ),
    "cap": ({"most_groups": {"month": 2}}, ValueError, "give user_ids"),
    "lengths": (
        {"by": {"ward": ["x"] * 3, "month": ["y"] * 3}},
        ValueError,
        r"by\['ward'\] must have one group for each document, got more or fewer",
    ),
    "written in another way": (
        {"levels": {"ward": WARDS, "month": ["January", "March"]}},
        ValueError,
        r"by\['month'\] holds none of the groups .* such as 'January'",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_costs_nothing(wrong, model, X, data):
    options, error, message = WRONG[wrong]
    ledger = Ledger(epsilon=2.0)
    given = {
        "by": data["by"],
        "levels": data["levels"],
        "epsilon": 1.0,
        "ledger": ledger,
        **options,
    }
    with pytest.raises(error, match=message):
        private_topic_counts(model, X, **given)
    assert ledger.epsilon_spent == 0
    ledger = Ledger(epsilon=0.5)
    with pytest.raises(BudgetError):
        private_topic_counts(
            model,
            "no counts",
            by={"ward": None},
            levels={"ward": WARDS},
            epsilon=1.0,
            ledger=ledger,
        )
    assert ledger.entries() == []


VALUES = {
    "nobody": None,
    "not a number": math.nan,
    "a float": 2.5,
    "a truth value": True,
    "a text": "2",
    "a large integer": 2**53 + 1,
    "a larger one": 2**63,
    "a date": np.datetime64("2026-01-01"),
    "bytes": b"1",
}


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
@pytest.mark.parametrize("column", [list, np.array, pd.Series, pd.Categorical])
@pytest.mark.parametrize("value", VALUES)
def test_the_group_of_a_document_is_its_own_whatever_the_others_are(
    value, column, model, X
):
    """One document with a group of its own moves no other, or all are refused."""
    others = [1, 2**53] * (N_DOCS // 2 - 1) + [1]
    given = {"levels": {"n": [1, 2, 2**53]}, "epsilon": 1.0}
    sums, refused, spent = [], [], []
    for last in (VALUES[value], 3):
        ledger = Ledger(epsilon=2.0)
        call = {"by": {"n": column([*others, last])}, "ledger": ledger, **given}
        try:
            sums.append(fit_watched(lambda X, c=call: count(model, X, c, **c), X)[1])
        except ValueError as error:
            refused.append(str(error))
            spent.append(ledger.epsilon_spent)
    assert sums  # without the value, they are counted
    assert not any(spent)
    for message in refused:
        assert "must hold texts or integers, got values of type" in message
        assert "9007199254740992" not in message
    if len(sums) == 2:
        (one,), (other,) = (each.steps for each in sums)
        moved = sum(int(x) ** 2 for x in one.value - other.value)
        assert moved <= one.mechanism.radius**2 < sum(one.value.tolist()) ** 2


def test_integers_with_a_missing_group_are_counted_as_pandas_keeps_them(model, X):
    column = pd.Series([1, 2, None] * 66 + [1, 2])
    given = {"levels": {"n": [1, "2"]}, "epsilon": math.inf}
    with pytest.raises(ValueError, match=r"type float: .*astype\('Int64'\)"):
        private_topic_counts(model, X, by={"n": column}, **given)
    table = private_topic_counts(model, X, by={"n": column.astype("Int64")}, **given)
    filled = np.arange(N_DOCS) % 11 > 0
    expected = [filled[column == n].sum() for n in (1, 2)]
    assert_allclose(table.counts["n"].sum(axis=1), expected)


def test_groups_that_look_the_same_are_one_group(model, X):
    """NFC and NFD, blanks, and characters without a width."""
    forms = ["Malm\u00f6 Syd", "Malmo\u0308  Syd", "\u200bMalm\u00f6 Syd "]
    column = (forms * N_DOCS)[:N_DOCS]
    given = {"by": {"city": column}, "epsilon": math.inf}
    table = private_topic_counts(model, X, levels={"city": forms[1:2]}, **given)
    assert table.counts["city"].sum() == (np.arange(N_DOCS) % 11 > 0).sum()
    with pytest.raises(ValueError, match="more than once"):
        private_topic_counts(model, X, levels={"city": forms}, **given)


def test_levels_that_can_be_read_once_are_read_once(model, X, data):
    exact = count(model, X, data).counts
    levels = {name: iter(groups) for name, groups in data["levels"].items()}
    for name, counts in count(model, X, data, levels=levels).counts.items():
        assert_array_equal(counts, exact[name])


def test_combinations_of_groups_with_one_name_are_refused(model, X):
    by = {"a": ["x, y"] * N_DOCS, "b": ["z"] * N_DOCS}
    levels = {"a": ["x, y", "x"], "b": ["z", "y, z"]}
    ledger = Ledger()
    options = {"epsilon": 1.0, "cross": True, "ledger": ledger}
    with pytest.raises(ValueError, match=r"two combinations .* 'x, y, z'"):
        private_topic_counts(model, X, by=by, levels=levels, **options)
    assert ledger.entries() == []


def test_a_wrong_epsilon_of_counts_is_named():
    fit = PrivateTopicModel(2, epsilon=4.0, vocabulary=WORDS)
    given = {"by": {"ward": ["a", "b"]}, "levels": {"ward": ["a", "b"]}}
    with pytest.raises(ValueError, match="counts_epsilon"):
        fit.fit_and_count(["police party", "house"], counts_epsilon=0.0, **given)


def test_an_automatic_number_of_topics_warns_once():
    texts, _, wards, _ = notes(100)
    fit = PrivateTopicModel(
        "auto", epsilon=4.0, vocabulary=[*WORDS, "Signs!"], expected_n_docs=100
    )
    given = {"by": {"ward": wards}, "levels": {"ward": [*TOPICS]}}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        table = fit.fit_and_count(texts, counts_epsilon=1.0, **given)
    assert table.counts["ward"].shape == (2, len(fit.components_))
    assert sum("cannot occur" in str(each.message) for each in said) == 1


# ---- the released table --------------------------------------------------------------


@pytest.fixture
def table(model, X, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return count(model, X, data, epsilon=2.0)


def test_estimates_have_one_total_and_are_nearest(table):
    estimates = table.estimates()
    totals = [counts.sum(axis=0) for counts in estimates.values()]
    assert_allclose(totals[0], totals[1], atol=1e-9)
    own = [counts.sum(axis=0) for counts in table.counts.values()]
    mean = (own[0] / 45 + own[1] / 3) / (1 / 45 + 1 / 3)
    assert_allclose(totals[0], np.maximum(mean, 0), atol=1e-9)
    for name, counts in estimates.items():
        assert counts.min() >= 0
        moved = table.counts[name] + (mean - table.counts[name].sum(axis=0)) / len(
            counts
        )
        for k in range(K):
            nearest = optimize.minimize(
                lambda x, y=moved[:, k]: np.sum((x - y) ** 2),
                np.full(len(counts), mean[k] / len(counts)),
                jac=lambda x, y=moved[:, k]: 2 * (x - y),
                bounds=[(0, None)] * len(counts),
                constraints={
                    "type": "eq",
                    "fun": lambda x, t=mean[k]: x.sum() - t,
                    "jac": np.ones_like,
                },
            )
            assert_allclose(counts[:, k], nearest.x, atol=0.05)


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
def test_the_total_is_that_of_all_tables(model, X, data, table):
    exact = count(model, X, data)
    number, error = exact.total()
    assert number == pytest.approx(exact.counts["ward"].sum(), rel=1e-6)
    assert error == 0
    found, error = table.total()
    assert abs(found - number) < 6 * error
    # the small table has less noise, and both have less than each
    assert 0.9 * math.sqrt(3 * K) < error / table.noise_scale < math.sqrt(3 * K)
    capped = count(model, X, data, users=True, most_groups={"month": 2, "ward": 2})
    assert math.isnan(capped.total()[0])


def test_differences_that_are_noise_are_called_noise(table):
    rng = np.random.default_rng(0)
    any_marked, real = [], []
    for _ in range(400):
        noise = rng.normal(50, table.noise_scale, (12, 10))
        drawn = type(table)(
            {"a": noise}, {"a": ("x",) * 12}, table.noise_scale, None, ""
        )
        any_marked.append(drawn.differs()["a"].any())
        real.append(drawn.real_share()["a"])
    assert 0.02 < np.mean(any_marked) < 0.08
    assert np.mean(real) < 0.15
    signal = noise + np.arange(12)[:, None] * 3 * table.noise_scale
    drawn = type(table)({"a": signal}, {"a": ("x",) * 12}, table.noise_scale, None, "")
    assert drawn.differs()["a"].all()
    assert drawn.real_share()["a"] > 0.95
    assert drawn.mostly_noise == []


def test_a_file_holds_the_table_and_says_so(table, tmp_path):
    table.save(tmp_path / "counts")
    again = load_counts(tmp_path / "counts")
    assert again.privacy_ == table.privacy_
    assert again.levels == table.levels
    for name, counts in table.counts.items():
        assert_array_equal(again.counts[name], counts)
    assert again.to_bytes() == table.to_bytes()
    frame = again.to_frame()
    assert len(frame) == 48 * K
    row = frame[(frame.group == "2026-02") & (frame.topic == 1)].iloc[0]
    assert row["count"] == table.counts["month"][1, 1]
    assert row.low <= max(row["count"], 0) <= row.high
    assert "mostly noise" in repr(again)
    damaged = bytearray((tmp_path / "counts").read_bytes())
    damaged[-3] ^= 1
    (tmp_path / "counts").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"not a valid file of counts: it was damaged"):
        load_counts(tmp_path / "counts")


@pytest.mark.parametrize(
    "field",
    [
        {"by": []},
        {"levels": [["a", "a"], MONTHS]},
        {"levels": [WARDS[1:], MONTHS]},
        {"by": ["ward", "ward"]},
        {"by": ["ward\n", "month"]},
        {"counted_as": "x"},
        {"noise_scale": "1"},
        {"noise_scale": 1e308},  # its square is no float
        {"soft": 1},
        {"most_groups": {"day": 1}},
        {"more": 1},
    ],
    ids=str,
)
def test_a_file_that_contradicts_itself_is_refused(field, table, tmp_path):
    from dplda.release._container import pack, unpack

    data = table.to_bytes()
    content, tables = unpack("dplda-counts", data, max_header=2**24)
    data = pack("dplda-counts", content | field, tables, max_header=2**24)
    (tmp_path / "counts").write_bytes(data)
    with pytest.raises(ValueError, match="not a valid file of counts"):
        load_counts(tmp_path / "counts")


def test_a_file_of_numbers_that_no_page_can_add_up_is_refused(table, tmp_path):
    huge = {by: np.full_like(counts, 1e308) for by, counts in table.counts.items()}
    dataclasses.replace(table, counts=huge).save(tmp_path / "counts")
    with pytest.raises(ValueError, match=r"at most 3.4\d*e.38 on either side of 0"):
        load_counts(tmp_path / "counts")


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
def test_weeks_that_are_parts_of_a_ledger_cost_one_week_and_join(model, X, data):
    ledger = Ledger(epsilon=1.0)
    month, tables = data["by"]["month"], []
    for name in MONTHS:
        own = X[np.flatnonzero(month == name)]
        given = {
            "by": {"month": [name] * own.shape[0]},
            "levels": {"month": [name]},
            "ledger": ledger.part(name, by="month"),
        }
        tables.append(private_topic_counts(model, own, epsilon=1.0, **given))
    year = TopicCounts.joined(tables)
    assert ledger.epsilon_spent == pytest.approx(year.privacy_.epsilon, rel=1e-6)
    assert year.privacy_.epsilon <= 1.0
    assert year.levels == {"month": tuple(MONTHS)}
    for i, table in enumerate(tables):
        assert_array_equal(year.counts["month"][i], table.counts["month"][0])
    assert "no document is in two of the tables" in str(year.privacy_)
    users = count(model, X, data, users=True, epsilon=1.0)
    alone = dataclasses.replace(
        users, counts={"a": users.counts["month"]}, levels={"a": tuple(MONTHS)}
    )
    for wrong, message in [
        ([tables[0], tables[0]], "the same group"),
        ([users], "one grouping"),
        ([alone], "may be in several of them"),
        ([alone, tables[0]], "the same"),
        ([tables[0], dataclasses.replace(tables[1], noise_scale=9.0)], "the same"),
        (
            [
                dataclasses.replace(
                    t, privacy_=dataclasses.replace(t.privacy_, seeded=True)
                )
                for t in tables
            ],
            "given seeds",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            TopicCounts.joined(wrong)
    with pytest.raises(TypeError, match="list of TopicCounts"):
        TopicCounts.joined([1])


@pytest.mark.filterwarnings("ignore::dplda.privacy.PrivateDataWarning")
def test_users_pay_for_each_of_the_tables_that_are_joined(model, X, data, tmp_path):
    """A user may write in each month, and counts as one in each."""
    ledger = Ledger(epsilon=3.0)
    month, tables = data["by"]["month"], []
    for name in MONTHS:
        rows = np.flatnonzero(month == name)
        given = {
            "by": {"month": [name] * len(rows)},
            "levels": {"month": [name]},
            "user_ids": data["users"][rows],
            "ledger": ledger,
        }
        tables.append(private_topic_counts(model, X[rows], epsilon=1.0, **given))
    year = TopicCounts.joined(tables)
    together = epsilon_of([e for t in tables for e in t.privacy_.events], 1e-6)
    assert year.privacy_.epsilon == pytest.approx(together, rel=1e-6)
    assert ledger.epsilon_spent == pytest.approx(together, rel=1e-6)
    assert together > 1.7
    assert year.most_groups == {"month": 3}
    assert_array_equal(year.counts["month"][2], tables[2].counts["month"][0])
    year.save(tmp_path / "year.dplda")
    assert load_counts(tmp_path / "year.dplda").privacy_.epsilon == pytest.approx(
        together, rel=1e-6
    )


def test_costs_of_persons_and_of_households_do_not_add_up(X, tmp_path):
    """Both are users. A household's cost is no part of a person's total."""
    X = pd.DataFrame(X.toarray(), columns=[f"word{i}" for i in range(V)])
    persons = pd.Series(np.arange(N_DOCS) // 2, name="person")
    homes = pd.Series(np.arange(N_DOCS) // 20, name="household")
    model = SubLDA(2, epsilon=4.0, max_iter=2).fit(X, user_ids=persons)
    assert "the column 'person' tells users apart" in str(model.privacy_)

    def counted(users, week):
        return private_topic_counts(
            model,
            X,
            epsilon=1.0,
            by={"week": [week] * N_DOCS},
            levels={"week": [week]},
            user_ids=users,
        )

    of_persons, of_homes = counted(persons, "a"), counted(homes, "b")
    save_release(model, tmp_path / "topics.dplda")
    released = load_release(tmp_path / "topics.dplda")
    assert "<table" in report(released, counts=[of_persons])
    with pytest.raises(ValueError, match=r"'person' .*'household' .*one statement"):
        report(released, counts=[of_homes])
    with pytest.raises(ValueError, match="budget, unit and relation"):
        TopicCounts.joined([of_persons, of_homes])


def test_texts_without_a_group_are_told_by_grouping(model, X, data):
    month = data["by"]["month"].astype(object)
    month[5:50] = ""
    by = data["by"] | {"month": month}
    with pytest.warns(PrivateDataWarning) as said:
        count(model, X, data, by=by)
    (told,) = [str(w.message) for w in said]
    assert told.startswith("50 documents")  # 9 in one, 45 in the other, 4 in both
    assert "9 in 'ward' and 45 in 'month'" in told


# ---- models of texts, the plan, and the command --------------------------------------

TOPICS = {"heart": ["police", "party", "minister"], "bone": ["house", "school", "home"]}


def notes(n_docs, seed=0):
    """Texts, patients, wards and dates; wards have one topic each."""
    rng = np.random.default_rng(seed)
    wards = rng.choice([*TOPICS], n_docs)
    texts = [" ".join(rng.choice(TOPICS[ward], 12)) for ward in wards]
    dates = [f"2026-{m:02}-{d:02}" for m, d in rng.integers(1, [4, 29], (n_docs, 2))]
    return texts, [f"p{i % 90}" for i in range(n_docs)], wards.tolist(), dates


WORDS = [word for words in TOPICS.values() for word in words]


def test_models_of_texts_count_texts(tmp_path):
    texts, users, wards, _ = notes(400)
    model = PrivateTopicModel(
        2, epsilon=20.0, vocabulary=WORDS, model=SubLDA(max_iter=10)
    )
    model.fit(texts, user_ids=users)
    save_release(model, tmp_path / "topics.dplda")
    released = load_release(tmp_path / "topics.dplda")
    given = {"by": {"ward": wards}, "levels": {"ward": [*TOPICS]}, "epsilon": math.inf}
    tables = [
        private_topic_counts(model, texts, **given),
        private_topic_counts(released, texts, **given),
        private_topic_counts(model.model_, model.vectorizer_.transform(texts), **given),
    ]
    for table in tables:
        assert_allclose(table.counts["ward"], tables[0].counts["ward"])
        assert table.counted_as == released.counted_as_
    assert tables[0].counts["ward"].sum() == 400


def test_a_fit_and_its_counts_are_one_charge():
    texts, users, wards, _ = notes(400)
    ledger = Ledger(epsilon=8.0)
    model = PrivateTopicModel(
        2, epsilon=6.0, vocabulary=WORDS, model=SubLDA(max_iter=10), ledger=ledger
    )
    given = {"by": {"ward": wards}, "levels": {"ward": [*TOPICS]}}
    table = model.fit_and_count(texts, user_ids=users, counts_epsilon=3.0, **given)
    (entry,) = ledger.entries()
    events = [*model.privacy_.events, *table.privacy_.events]
    assert epsilon_of(entry.events, 1e-6) == pytest.approx(epsilon_of(events, 1e-6))
    assert table is model.counts_
    assert model.epsilon_ <= 6.0
    assert table.privacy_.unit == "user"
    # the topics of wards are apart, so that their counts are
    assert table.differs()["ward"].all()
    with pytest.raises(BudgetError):
        model.fit_and_count(texts, user_ids=users, counts_epsilon=3.0, **given)
    assert len(ledger.entries()) == 1
    with pytest.raises(ValueError, match="one group for each document"):
        PrivateTopicModel(2, epsilon=6.0, vocabulary=WORDS).fit_and_count(
            texts,
            by={"ward": wards[1:]},
            levels={"ward": [*TOPICS]},
            counts_epsilon=1.0,
        )


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_next_month_is_fitted_and_counted_in_one_charge():
    texts, users, wards, _ = notes(400)
    ledger = Ledger(epsilon=12.0)
    model = partial(
        PrivateTopicModel,
        epsilon=6.0,
        vocabulary=WORDS,
        model=SubLDA(max_iter=10),
        ledger=ledger,
    )
    first = model("auto", expected_n_docs=90).fit(texts[:200], user_ids=users[:200])
    given = {"levels": {"ward": [*TOPICS]}, "counts_epsilon": 3.0}
    later = {"by": {"ward": wards[200:]}, "user_ids": users[200:], "earlier": first}
    second = model("auto", expected_n_docs=9000)  # which keeps the number of topics
    table = second.fit_and_count(texts[200:], **given, **later)
    assert second.components_.shape == first.components_.shape
    assert second.components_.sum() > 1.3 * first.components_.sum()
    assert table.counts["ward"].sum() == pytest.approx(90, abs=6 * table.noise_scale)
    both = epsilon_of([*second.privacy_.events, *table.privacy_.events], 1e-6)
    assert ledger.epsilon_spent == pytest.approx(both, rel=1e-6)
    with pytest.raises(ValueError, match="got PrivateTopicModel that is not fitted"):
        second.fit_and_count(texts, **given, **later | {"earlier": model(2)})
    assert len(ledger.entries()) == 2


def test_seeded_counts_of_a_model_without_privacy_are_marked_as_seeded():
    texts, _, wards, _ = notes(100)
    given = {"by": {"ward": wards}, "levels": {"ward": [*TOPICS]}}
    ledger = Ledger(epsilon=math.inf)
    options = {"vocabulary": WORDS, "model": SubLDA(max_iter=2), "ledger": ledger}
    model = PrivateTopicModel(2, epsilon=math.inf, random_state=0, **options)
    with pytest.warns(SeededNoiseWarning):
        table = model.fit_and_count(texts, counts_epsilon=1.0, **given)
    assert table.privacy_.seeded
    assert table.privacy_.epsilon <= 1.0
    assert [entry.seeded for entry in ledger.entries()] == [True]


@pytest.mark.filterwarnings("ignore::dplda.privacy.LowSignalWarning")
def test_a_plan_says_which_table_is_too_fine(model, X):
    expected = plan(n_docs=1300, epsilon=4.0, n_components=12, groups=(9, 108))
    alone = plan(n_docs=1300, epsilon=4.0, n_components=12)
    assert expected.noise > alone.noise  # the counts are paid of the same total
    assert expected.epsilon == 4.0
    assert "numbers by 108 groups" in str(expected)
    lines = [line for line in str(expected).splitlines() if "too fine" in line]
    assert len(lines) == 1
    assert lines[0].startswith("numbers by 108 groups")
    (single,) = plan(n_docs=1300, epsilon=4.0, groups=(9,)).groups
    assert single == 9
    most = plan(n_docs=1300, epsilon=1.0, groups=(1,), counts_share=0.9)
    own = {"by": {"all": ["a"] * N_DOCS}, "levels": {"all": ["a"]}}
    share, _ = split_epsilon(1.0, (0.9, 0.1))
    released = private_topic_counts(model, X, epsilon=share, **own)
    assert most.count_noise == pytest.approx(released.noise_scale, rel=1e-4)
    assert most.smallest_change == pytest.approx(2.7718 * most.count_noise, rel=1e-4)
    with pytest.raises(ValueError, match="counts_share"):
        plan(n_docs=1300, epsilon=1.0, groups=(9,), counts_share=1.0)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = zip(*notes(600))
    lines = ["text,patient,ward,date", *map(",".join, rows)]
    (tmp_path / "notes.csv").write_text("\n".join(lines))
    (tmp_path / "wards.txt").write_text("heart\nbone\n\n")
    return tmp_path


FIT = (
    "fit notes.csv --user-column patient --epsilon 8 --n-components 2 "
    "--max-features 20 --n-docs 600"
)
GROUPS = "--by ward --levels wards.txt --by-month date --periods 2026-01:2026-03"


@pytest.mark.filterwarnings("ignore")
def test_the_command_charges_words_topics_and_counts_at_once(files, capsys):
    assert main([*FIT.split(), *GROUPS.split(), "--report", "topics.html"]) == 0
    said = capsys.readouterr().out
    assert "topics.html" in said
    assert "numbers by 3 groups" in said
    ledger = Ledger("notes.csv.ledger")
    (entry,) = ledger.entries()
    assert 7.8 < ledger.epsilon_spent <= 8.0
    table = load_counts("topics.counts.dplda")
    assert table.levels == {"ward": ("heart", "bone"), "month": tuple(MONTHS)}
    released = load_release("topics.dplda")
    events = [*released.privacy_.events, *table.privacy_.events]
    assert epsilon_of(entry.events, 1e-6) == pytest.approx(epsilon_of(events, 1e-6))
    page = (files / "topics.html").read_text("utf-8")
    facts = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert facts["guarantee"]["epsilon"] == pytest.approx(
        ledger.epsilon_spent, rel=1e-3
    )
    # later counts of the same model are charged to the same ledger, if it allows them
    later = ["counts", "topics.dplda", "notes.csv", "--user-column", "patient"]
    assert main([*later, "--epsilon", "1", *GROUPS.split()]) == 1
    assert "would spend more than the budget" in capsys.readouterr().err
    assert not (files / "counts.dplda").exists()
    free = [*later, "--epsilon", "1", *GROUPS.split(), "--no-ledger"]
    assert main(free) == 0
    assert load_counts("counts.dplda").counted_as == released.counted_as_
    weeks = "--by-week date --periods 2025-W52:2026-W53 --out weeks.dplda --no-ledger"
    assert main([*later[:3], "--epsilon", "1e6", *weeks.split()]) == 0
    table = load_counts("weeks.dplda")
    expected = dict.fromkeys(table.levels["week"], 0)
    for day in notes(600)[3]:
        year, week, _ = date.fromisoformat(day).isocalendar()
        expected[f"{year}-W{week:02}"] += 1
    assert len(expected) == 54  # the last one of 2025, and 53 of 2026
    found = table.counts["week"].sum(axis=1)
    assert_allclose(found, [*expected.values()], atol=0.1)
    # a column may have the name of a period
    table = (files / "notes.csv").read_text("utf-8").replace("ward", "week", 1)
    (files / "notes.csv").write_text(table, "utf-8")
    columns = "--by week --levels wards.txt --by-month date --periods 2026-01:2026-12"
    columns += " --most-periods 2 --out columns.dplda --no-ledger"
    assert main([*later, "--epsilon", "1", *columns.split()]) == 0
    assert load_counts("columns.dplda").most_groups == {"month": 2}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("answer", "code"), [("", 1), ("yes", 0)])
def test_on_a_terminal_counts_say_their_noise_and_ask(
    files, capsys, monkeypatch, answer, code
):
    assert main([*FIT.split(), "--no-ledger"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    later = "counts topics.dplda notes.csv --user-column patient --epsilon 1"
    assert main([*later.split(), *GROUPS.split()]) == code
    said = capsys.readouterr().out
    assert asked == ["Spend epsilon 1 on these users? [y/N] "]
    (stated,) = re.findall(r"standard deviation ([0-9.]+)\. ", said)
    counted = (files / "counts.dplda").exists()
    assert counted == (files / "notes.csv.ledger").exists() == (code == 0)
    if counted:
        noise = load_counts("counts.dplda").noise_scale
        assert float(stated) == pytest.approx(noise, rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--by ward", "never read from the texts"),
        ("--by ward --levels none.txt", "none.txt"),
        ("--by-month date", "needs --periods"),
        ("--by-month date --periods 2026", "--periods must be the first and the last"),
        ("--by-month date --periods 2026-03:2026-01", "--periods must be"),
        ("--by-week date --periods 2026-W01:2026-W99", "--periods must be"),
        ("--by-week date --by-month date --periods 2026-01:2026-02", "only one"),
        ("--by cat --levels wards.txt", "no column 'cat'"),
        ("--by ward --levels wards.txt " * 2, "--by ward is given twice"),
        ("--most-periods 2", "needs --by-month"),
        (
            f"{GROUPS} --out topics.counts.dplda --report topics.counts.dplda",
            "would be",
        ),
    ],
    ids=str,
)
def test_what_the_command_refuses_costs_nothing(options, message, files, capsys):
    assert main([*FIT.split(), *options.split()]) == 1
    assert message in capsys.readouterr().err
    assert {path.name for path in files.iterdir()} == {"notes.csv", "wards.txt"}
