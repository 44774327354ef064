"""Whatever a public entry gets: documented errors only, and none quotes the data."""

import math
import os
import struct
import warnings
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from estimators import CASES, MODELS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import dplda
from dplda import (
    GibbsLDA,
    MemoizedReports,
    RandomizedResponse,
    SubLDA,
    load_release,
    published,
    save_release,
)
from dplda.audit import audit_epsilon
from dplda.datasets import load_public_vocabulary, make_topic_corpus
from dplda.displays import top_words
from dplda.federated import (
    IFTMMaster,
    IFTMParty,
    LocalModel,
    NextModel,
    RoundError,
    answer_request,
    run_rounds,
    vocabulary_hash,
)
from dplda.metrics import held_out_perplexity, unigram_perplexity
from dplda.privacy import (
    BudgetError,
    Gaussian,
    Laplace,
    Ledger,
    NonPrivate,
    PoissonSampled,
    PrivacyLeakWarning,
    RandomizedResponseEvent,
    Repeated,
    SeededNoiseWarning,
    epsilon_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*not whole:UserWarning")

DOCUMENTED = (ValueError, TypeError, NotFittedError, BudgetError, RoundError, OSError)
# What stands for private data; as a count small enough for samplers that keep every
# token.
SECRET_COUNT, SECRET_WORD = 98765, "geheim"
SECRETS = (str(SECRET_COUNT), "9.8765", SECRET_WORD)

COUNTS = np.array([[1, 2, 0], [0, 3, 1], [4, 0, 0]])
NUMBERS = [
    0,
    1,
    2,
    3,
    -1,
    0.5,
    1e-300,
    1e300,
    -1e300,
    5e-324,
    1e-14,
    1e-3,
    0.999999,
    1.0 - 2.0**-53,
    1e9,
    1e38,
    1e39,
    2048,
    2049,
    2**31,
    2**63,
    10**30,
    10**400,
    math.nan,
    math.inf,
    -math.inf,
    np.float32(0.3),
    np.int64(2),
    np.float64(math.nan),
    True,
    False,
]
OTHERS = [
    None,
    "",
    "x",
    "document",
    "word",
    "gaussian",
    "rdp",
    b"x",
    "\ud800",
    (),
    [],
    [1, 2],
    {},
    {"epsilon": 1},
    {1},
    object(),
    len,
    np.array([1.0]),
    np.array(1.0),
    [[1, 2, 3]],
    ["a", "a"],
    Gaussian(1.0),
    Repeated(Laplace(1e4), 10**9),
    [Gaussian(1.0), 3],
    range(3),
]


def damaged(**arrays):
    X = sp.csr_array(COUNTS.astype(float))
    for name, array in arrays.items():
        setattr(X, name, np.array(array))
    return X


def coordinates(rows):
    X = sp.coo_array(COUNTS.astype(float))
    X.coords = (np.array(rows), X.coords[1])
    return X


# Functions, for some of these objects are used up or changed by a call.
MATRICES = [
    lambda value=value: value
    for value in (
        None,
        math.nan,
        SECRET_COUNT,
        SECRET_WORD,
        {},
        [{}],
        object(),
        b"ab",
        (),
        [[]],
        [[SECRET_COUNT, 0, 1], [0, 1, 1]],
        [[-SECRET_COUNT, 1, 0]],
        [[SECRET_COUNT + 0.5, 1, 0]],
        [[math.nan, SECRET_COUNT, 0]],
        [[math.inf, SECRET_COUNT, 0]],
        [[1e300, 1, 0]],
        [[1e38, 1e38, 0]],
        [[1e-300, 1, 0]],
        [[-0.0, 1, 0]],
        [[2**40, 1, 0]],
        [[10**30, 1, 0]],
        [[10**400, 1, SECRET_COUNT]],
        [[None, SECRET_COUNT, 0]],
        [[1, 2], [SECRET_COUNT]],
        [SECRET_COUNT, 1, 2],
        [SECRET_WORD, "b"],
        [[SECRET_WORD, 1, 2]],
        [[b"geheim", 1, 2]],
        {"a": [SECRET_COUNT]},
        COUNTS[:, :2],
        COUNTS[:0],
        COUNTS[:, :0],
        np.zeros((3, 3)),
        np.zeros((2, 2, 2)),
        np.array([[SECRET_COUNT + 1j, 1, 2]]),
        np.array([[True, False, True]]),
        np.array([[SECRET_WORD, 1, 2]], object),
        np.array([[{}, SECRET_COUNT, 2]], object),
        np.array([[str(SECRET_COUNT), 1, 2]], object),
        np.array([["2020-01-01"] * 3], "M8[D]"),
        np.array([[2**64 - 1, 0, 0]], np.uint64),
        np.array([[65504, 1, 0]], np.float16),
        np.array([[1, 2, 3]], np.longdouble),
        np.array([["a"]]),
        memoryview(b"abc"),
        [[SECRET_WORD, "b"], ["c"]],
        [[(0, SECRET_COUNT)], [], [(1, 1), (2, 1)]],
        [{SECRET_WORD: SECRET_COUNT}],
        {SECRET_COUNT},
        np.array(float(SECRET_COUNT)),
        [[1e-300, 1e308, 0.5]],
        [[5e-324, 0, 1e-320]],
        [[0.25, 0.25, 0.5]] * 3,
    )
] + [
    lambda: iter(COUNTS),
    lambda: (row for row in COUNTS),
    lambda: sp.csr_array(COUNTS),
    lambda: sp.csr_array((3, 3)),
    lambda: sp.lil_matrix(COUNTS),
    lambda: sp.dok_array(COUNTS),
    lambda: sp.coo_matrix(COUNTS * SECRET_COUNT),
    lambda: sp.csc_array(COUNTS) * -SECRET_COUNT,
    lambda: sp.dia_array(COUNTS),
    lambda: sp.coo_array([1, 2, 3]),
]

# Their index arrays point outside.
OUTSIDE = [
    lambda: damaged(indices=[0, 99_999_999, 1, 2, 0]),
    lambda: damaged(indices=[0, -5, 1, 2, 0]),
    lambda: damaged(indptr=[0, 99_999, 4, 5]),
    lambda: damaged(indptr=[0, 4, 2, 5]),
    lambda: coordinates([0, 0, 1, 1, 99_999_999]),
    lambda: coordinates([0, 0, 1, 1, -7]),
]
# Only where counts are expected: scipy itself reads elsewhere in the memory, whoever
# asks it.
DAMAGED = [
    *OUTSIDE,
    lambda: damaged(indptr=[0, 5]),
    lambda: damaged(data=[SECRET_COUNT]),
    lambda: damaged(indices=[]),
    lambda: damaged(indptr=[-9, 1, 4, 5]),
]

SIZES = {"n_components": 2, "max_iter": 1}
ESTIMATORS = [
    clone(case.estimator).set_params(**SIZES if case in MODELS else {})
    for case in CASES
]
# What a value of the list would only make slow, or write to files.
LEFT_OUT = {"ledger", "n_jobs", "verbose"}
FITS = (("fit",), ("partial_fit",), ("fit", "partial_fit"), ("fit_transform",))
QUESTIONS = ("transform", "score", "perplexity", "fit_prior", "refine")


@contextmanager
def documented_errors_only(secrets=SECRETS):
    """Lets no other exception pass, no numpy warning, no private data in a message."""
    message = ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for category in (
            SeededNoiseWarning,
            PrivacyLeakWarning,
            UserWarning,
            sp.SparseEfficiencyWarning,
        ):
            warnings.filterwarnings("ignore", category=category)
        try:
            yield
        except DOCUMENTED as error:
            message = str(error)
    assert not any(secret in message for secret in secrets), message


def run(n_examples, strategy, check):
    """Many examples of a strategy; what fails is made small and shown.

    The same ones each time, unless the variable DPLDA_EXPLORE is set.
    """
    options = settings(
        max_examples=n_examples,
        deadline=None,
        database=None,
        derandomize="DPLDA_EXPLORE" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    options(given(strategy)(check))()


def sizes(few, many):
    return pytest.mark.parametrize(
        "n_examples", [few, pytest.param(many, marks=pytest.mark.slow)]
    )


def is_affordable(name, value):
    """Whether a call with it takes no time: huge but allowed sizes are left out."""
    limits = {
        "max_iter": (10, 10_000),
        "n_components": (3000, 2**16),
        "n_canaries": (20, math.inf),
        "n_runs": (9, math.inf),
        "n_shadows": (2, math.inf),
    }
    if name not in limits or not isinstance(value, (int, float, np.number)):
        return True
    low, high = limits[name]
    return not low < value <= high


def is_public(value):
    return not any(secret in str(value) for secret in SECRETS)


VALUES = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(OTHERS), st.floats(), st.integers()
).filter(is_public)
COUNT_MATRIX = st.sampled_from(MATRICES + DAMAGED)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_true_false_nan_and_numbers_outside_of_the_interval_are_refused(case):
    constraints = type(case.estimator)._parameter_constraints
    for name, allowed in constraints.items():
        intervals = [
            constraint for constraint in allowed if hasattr(constraint, "closed")
        ]
        if not intervals:
            continue
        ends = [end for i in intervals for end in (i.left, i.right) if end is not None]
        outside = [-1.0 if min(ends) >= 0 else min(ends) - 1.0, max(ends) + 1.0]
        outside = [
            v for v in (*outside, math.nan) if not any(v in i for i in intervals)
        ]
        for value in (True, False, *outside):
            model = clone(case.estimator).set_params(**{name: value})
            with pytest.raises(
                ValueError, match=f"The '{name}' parameter .* Got {value} instead"
            ):
                model.fit(COUNTS)


@pytest.mark.parametrize(
    ("misspelled", "meant"), [("SubLda", "SubLDA"), ("dataset", "datasets")]
)
def test_a_misspelled_name_is_answered_with_the_name_that_is_meant(misspelled, meant):
    with pytest.raises(
        AttributeError, match=f"attribute {misspelled}; did you mean {meant}"
    ):
        getattr(dplda, misspelled)


@st.composite
def estimators(draw):
    """An estimator with up to three hostile parameters."""
    estimator = draw(st.sampled_from(ESTIMATORS))
    chosen = estimator.get_params() | {"random_state": draw(st.sampled_from([None, 0]))}
    names = [name for name in chosen if name not in LEFT_OUT]
    for name in draw(st.lists(st.sampled_from(names), max_size=3, unique=True)):
        chosen[name] = draw(VALUES.filter(partial(is_affordable, name)))
    return type(estimator)(**chosen)


@st.composite
def fits(draw):
    """An estimator, and methods with what they are given."""
    questions = draw(st.lists(st.sampled_from(QUESTIONS), max_size=3))
    usual = draw(st.booleans())
    return draw(estimators()), [
        (name, COUNTS.copy if usual else draw(COUNT_MATRIX))
        for name in (*draw(st.sampled_from(FITS)), *questions)
    ]


def check_fit(case):
    estimator, calls = case
    for name, make in calls:
        if hasattr(estimator, name):
            with documented_errors_only():
                getattr(estimator, name)(make())


# two to five calls each
@sizes(60, 5_000)
def test_estimators(n_examples):
    run(n_examples, fits(), check_fit)


FITTED = GibbsLDA(2, max_iter=2, random_state=0).fit(COUNTS)
CLIENT = RandomizedResponse(bit_epsilon=1.0).fit(COUNTS)
TABLE = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
WORDS = ["a", "b", "c"]


# Entries that are cheap to call, with arguments that are right.
ENTRIES = [
    (epsilon_of, {"events": Gaussian(2.0), "delta": 1e-5, "total_variation": 0.0}),
    (Gaussian, {"noise_multiplier": 1.0}),
    (Laplace, {"scale": 1.0}),
    (RandomizedResponseEvent, {"flip_mixture": 0.5}),
    (PoissonSampled, {"sampling_probability": 0.5, "event": Gaussian(1.0)}),
    (Repeated, {"event": NonPrivate(), "count": 3}),
    (Ledger, {"epsilon": 1.0, "delta": 1e-5}),
    (Ledger().reserve, {"label": "a", "unit": "b", "events": [Gaussian(9.0)]}),
    (held_out_perplexity, {"components": TABLE, "X": COUNTS, "doc_topic_prior": 0.1}),
    (unigram_perplexity, {"X_train": COUNTS, "X": COUNTS, "topic_word_prior": 0.01}),
    (
        make_topic_corpus,
        {"doc_length": 9, "doc_topic_prior": 0.1, "topic_word_prior": 0.1},
    ),
    (load_public_vocabulary, {"n_words": 10}),
    (vocabulary_hash, {"words": WORDS}),
    (NextModel, {"round": 1, "vocabulary": vocabulary_hash(WORDS), "table": TABLE}),
    (
        LocalModel,
        {
            "party": "a",
            "round": 1,
            "vocabulary": vocabulary_hash(WORDS),
            "table": TABLE,
            "weight": 1.0,
            "epsilon": 1.0,
            "delta": 0.0,
            "unit": "token",
        },
    ),
    (NextModel.from_bytes, {"data": b"dplda-fed", "max_bytes": 99}),
    (
        IFTMMaster,
        {
            "vocabulary": WORDS,
            "similarity_threshold": 0.3,
            "n_top_words": 2,
            "max_topics": 3,
            "min_parties": 1,
            "max_weight": 1.0,
        },
    ),
    (
        lambda ids, X: MemoizedReports(CLIENT, "reports").reports(ids, X),
        {"ids": ["a", "b", "c"], "X": COUNTS},
    ),
    (IFTMMaster(WORDS).update, {"local_models": {}}),
    (partial(run_rounds, IFTMMaster(WORDS)), {"parties": {}, "n_rounds": 1}),
    (
        lambda **options: answer_request(
            IFTMParty(2, token_epsilon=9.0, max_iter=1), **options
        ),
        {
            "X": COUNTS,
            "request": IFTMMaster(WORDS).request("a").to_bytes(),
            "party": "a",
            "vocabulary": vocabulary_hash(WORDS),
        },
    ),
    (CLIENT.transform, {"X": COUNTS}),
    (FITTED.transform, {"X": COUNTS}),
    (FITTED.privacy_.epsilon_at, {"delta": 1e-5}),
    (top_words, {"estimator": FITTED, "feature_names": WORDS, "n_top_words": 2}),
    (save_release, {"model": FITTED, "path": "saved", "vocabulary": WORDS}),
    (load_release, {"path": "saved"}),
    (published.recover_counts, {"sent_model": TABLE, "topic_word_prior": 0.0}),
    (
        audit_epsilon,
        {
            "estimator": SubLDA(2, noise_multiplier=2.0, max_iter=1),
            "X": COUNTS,
            "n_canaries": 2,
            "n_runs": 1,
            "delta": 1e-5,
            "confidence": 0.95,
        },
    ),
]


PRIVATE = {"X", "X_train", "texts", "ids", "theta"}  # no message shows them
CALLS_IN_AN_EXAMPLE = 25


def hostile_value(draw, name):
    """A function that makes an argument's value; `draw` is a Random, which is quick."""
    kind = draw.randrange(4)
    if kind == 0:
        make = draw.choice(MATRICES + DAMAGED if name in ("X", "X_train") else MATRICES)
        return make if is_affordable(name, make()) else lambda: None
    drawn = [
        draw.choice(OTHERS),
        draw.choice(NUMBERS),
        draw.getrandbits(draw.randrange(1, 70)) * draw.choice([-1, 1]),
        struct.unpack("d", draw.randbytes(8))[0],
    ]
    value = draw.choice(drawn[:2] if kind < 3 else drawn[2:])
    return lambda: value if is_public(value) and is_affordable(name, value) else None


def hostile_call(draw):
    function, arguments = draw.choice(ENTRIES)
    replaced = draw.sample(list(arguments), draw.randint(1, min(3, len(arguments))))
    made = arguments | {name: hostile_value(draw, name)() for name in replaced}
    return function, made, SECRETS if PRIVATE.issuperset(replaced) else ()


def check_call(case):
    function, arguments, secrets = case
    with documented_errors_only(secrets):
        function(**arguments)


@sizes(20, 3_000)
def test_functions(n_examples, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    # some of the values are names of files that can be written
    monkeypatch.chdir(tmp_path)

    def check(draw):
        for _ in range(CALLS_IN_AN_EXAMPLE):
            case = hostile_call(draw)
            try:
                check_call(case)
            except BaseException as error:
                error.add_note(f"{case[0]}({case[1]})")
                raise
        pyplot.close("all")

    run(n_examples, st.randoms(use_true_random=True), check)


# What searches such as scripts/fuzz.py have found


@pytest.mark.parametrize("make", OUTSIDE)
def test_sparse_matrix_that_points_outside(make):
    for call in (
        GibbsLDA(2, max_iter=1).fit,
        RandomizedResponse(bit_epsilon=1.0).fit,
        CLIENT.transform,
        FITTED.transform,
        partial(held_out_perplexity, TABLE),
        partial(unigram_perplexity, COUNTS),
        partial(unigram_perplexity, X=COUNTS),
    ):
        with pytest.raises(
            ValueError, match="index arrays do not fit its shape; build it again"
        ):
            call(make())
