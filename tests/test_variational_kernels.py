"""Fold-in and contributions: equal to plain twins bit for bit, within sensitivity."""

from functools import partial

import numpy as np
import pytest
import reference
import scipy.sparse as sp
import twins
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_allclose, assert_array_equal

from dplda.core._fold_in import (
    Inference,
    OwnCounts,
    Steps,
    in_16_bits,
    in_bytes,
    pad,
    single_precision,
    uniform_theta,
)
from dplda.datasets import make_topic_corpus
from dplda.document._contributions import Documents, integer_shift
from dplda.document._private_side import RoundTables
from dplda.kernels import _sets, _variational

SIZES = [1, 2, 7, 16, 17, 20, 33]
N_DOCS, N_WORDS = 7, 13
MAX_RADIUS = 2**30


def random_counts(seed=0, n_docs=N_DOCS, n_words=N_WORDS):
    """Documents of different length; the second and the last are empty."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.7, (n_docs, n_words)) * rng.integers(1, 30, (n_docs, n_words))
    X[[1, -1]] = 0
    return single_precision(X)


def random_topics(n_components, seed=0, n_words=N_WORDS):
    """Word probabilities of each topic, (n_words, padded)."""
    rng = np.random.default_rng(seed)
    return pad(rng.dirichlet(np.full(n_words, 0.1), n_components).T)


def random_theta(n_components, seed=0, n_docs=N_DOCS):
    return pad(
        np.random.default_rng(seed).dirichlet(np.full(n_components, 0.3), n_docs)
    )


def fold_in(
    X,
    rows,
    phi,
    prior,
    n_components,
    max_iter,
    tol,
    theta,
    *,
    variational=False,
    table=None,
    own=None,
):
    """The kernel on a copy of `theta`, as its twin."""
    theta = theta.copy()
    scratch = np.full((2, 49 * theta.shape[1]), np.nan, np.float32)
    numbers = np.arange(np.diff(X.indptr)[list(rows)].max(), dtype=np.int32)
    copies = np.zeros((0, 0), np.uint8)
    if table is None:
        table = copies
    elif own is not None:
        copies = np.full((2, len(numbers) * table.shape[1]), 255, np.uint8)
    steps = Steps(max_iter, tol)
    inference = Inference(phi, n_components, prior, steps, variational, own=own)
    rows = np.array(rows, np.int64)
    _variational.fold_in(X, rows, theta, inference, table, scratch, copies, numbers)
    return theta


def sum_topics(
    X, units, theta, factor, center, weight, scale, norm, radius, unit_ptr=None
):
    """What `Documents` returns for tables of integers, (n_words, padded)."""
    ptr = np.arange(X.shape[0] + 1) if unit_ptr is None else np.array(unit_ptr)
    documents = Documents(X, ptr, factor.shape[1], theta=theta)
    documents.scale = scale
    tables = RoundTables(
        None,
        twins.in_chunks(factor),
        twins.in_chunks(center),
        weight,
        norm,
        radius,
    )
    return documents.sum_topics(np.array(units, np.int64), tables)


def twin(X, units, theta, factor, center, weight, scale, norm, radius, unit_ptr=None):
    ptr = range(X.shape[0] + 1) if unit_ptr is None else unit_ptr
    shift = integer_shift(norm, radius)
    documents, tables = [range(ptr[u], ptr[u + 1]) for u in units], (factor, center)
    relative = [float(scale[u] / norm) for u in units]
    theta, most = twins.narrow(theta), radius >> shift
    total = twins.sum_topics(X, documents, theta, *tables, weight, relative, most)
    return total * 2**shift


def squared_norm(total):
    """Exact, for the contribution of one unit."""
    return sum(int(x) ** 2 for x in total.flat)


# ---------------------------------------------------------------- fold-in


def own_counts(n_components):
    """1 / topic sizes, and the smallest count of a cell."""
    return OwnCounts.of_sizes(np.linspace(50, 500, n_components), 0.02)


@pytest.mark.parametrize("n_components", [*SIZES, 49])
@pytest.mark.parametrize("n_steps", [0, 1, 2])
@pytest.mark.parametrize("variational", [False, True])
def test_fold_in_follows_its_formulas(
    n_components, n_steps, variational, instruction_sets
):
    X, rows, start = (
        random_counts(3),
        [0, 1, 3, 6, 5],
        random_theta(n_components, seed=4),
    )
    start[5, :n_components] = 1 / n_components  # no inference yet
    phi = random_topics(n_components)
    arguments, options = (
        (X, rows, phi, 0.1, n_components, n_steps),
        {"variational": variational},
    )
    expected = reference.fold_in(*arguments, start, **options)
    table = in_bytes(phi)
    for integers in ({}, {"table": table}):
        results = []
        for name in instruction_sets:
            _sets.use(name)
            results.append(fold_in(*arguments, 0.0, start, **options, **integers))
            assert_array_equal(results[-1], results[0])
        assert_array_equal(results[0][[2, 4]], start[[2, 4]])
        assert not results[0][:, n_components:].any()
        if not integers:
            assert_allclose(results[0], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("variational", [False, True])
@pytest.mark.parametrize("leaves_out", [False, True])
def test_steps_in_integers_are_near_the_formulas(variational, leaves_out):
    corpus = make_topic_corpus(100, 300, 12, doc_length=100, random_state=2)
    X, phi = single_precision(corpus.data), pad(corpus.components.T)
    start, own = uniform_theta(100, 12), own_counts(12) if leaves_out else None
    start = fold_in(X, range(100), phi, 0.1, 12, 1, 0.0, start)
    arguments = X, range(100), phi, 0.1, 12, 2
    found = fold_in(
        *arguments, 0.0, start, variational=variational, table=in_bytes(phi), own=own
    )
    expected = reference.fold_in(*arguments, start, variational=variational, own=own)
    # what is left of a cell that is nearly all the document's own has few bits
    assert np.abs(found - expected).sum(axis=1).max() < (0.02 if leaves_out else 0.004)


def folded_in(X, theta, phi, prior, n_components, *, own=None, form, **steps):
    """The twin of `fold_in` for all documents; a form of the table: see FORMS."""
    theta, width = theta.copy(), theta.shape[1]
    priors = np.zeros(width, np.float32)
    priors[:n_components] = prior
    for d in range(len(theta)):
        span = slice(X.indptr[d], X.indptr[d + 1])
        counts, rows = X.data[span], phi[X.indices[span]]
        if own is not None and np.ptp(theta[d, :n_components]) > 0:
            rows = twins.without_own(rows, counts, theta[d], *own)
        shares = FORMS[form]
        if form != "floats":
            rows = twins.narrow(rows, size=255)[:, :width] if len(rows) else rows
        add = partial(shares, rows, counts)
        theta[d] = twins.fold_in(theta[d], counts, priors, add, **steps)
    return theta


# of the table that documents read, with the twin of a step
FORMS = {"floats": twins.shares_in_floats, "bytes": twins.shares_in_integers}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variational", [False, True])
@pytest.mark.parametrize(
    ("n_components", "n_words"), [(1, 5), (7, 40), (20, 300), (257, 520)]
)
@pytest.mark.parametrize(
    ("max_steps", "tolerance"), [(0, 0.0), (1, 0.0), (2, 0.0), (9, 0.0), (30, 0.01)]
)
def test_fold_in_equals_its_twin(
    n_components, n_words, max_steps, tolerance, variational, form, instruction_set
):
    """Documents of up to three groups of words; sums that come near to 2**31.

    Enough steps for extrapolations, of which some are undone.
    """
    rng = np.random.default_rng(n_words)
    X = single_precision(rng.poisson([[3.0], [0.5], [0.0], [1e4]], (4, n_words)))
    phi = random_topics(n_components, n_words=n_words)
    start = random_theta(n_components, n_docs=4)
    phi[n_words // 2, :n_components] = 1 / n_words
    phi[1, 1:] = 1e-9
    phi[n_words // 3] = 0
    start[1, :n_components] = 1 / n_components
    table = None if form == "floats" else in_bytes(phi)
    for own in (None, own_counts(n_components)) if form == "bytes" else (None,):
        options = {"variational": variational, "own": own}
        found = fold_in(
            X,
            range(4),
            phi,
            0.1,
            n_components,
            max_steps,
            tolerance,
            start,
            table=table,
            **options,
        )
        expected = folded_in(
            X,
            start,
            phi,
            0.1,
            n_components,
            form=form,
            max_steps=max_steps,
            tolerance=tolerance,
            **options,
        )
        assert_array_equal(found, expected)


@pytest.mark.parametrize("n_components", [7, 20, 33])
def test_acceleration_leads_to_the_same_weights_in_fewer_steps(
    n_components, instruction_sets
):
    X = random_counts(3, n_docs=30, n_words=40)
    phi = random_topics(n_components, n_words=40)
    start = uniform_theta(30, n_components)

    def run(n_steps, tol=0.0):
        return fold_in(X, range(30), phi, 0.1, n_components, n_steps, tol, start)

    end, slow = (
        reference.fold_in(X, range(30), phi, 0.1, n_components, n_steps, start)
        for n_steps in (5000, 40)
    )
    assert np.abs(run(40) - end).sum() < 0.5 * np.abs(slow - end).sum()
    found = run(200, 1e-5)
    assert_allclose(found, end, atol=2e-3)
    for name in instruction_sets:
        _sets.use(name)
        assert_array_equal(run(200, 1e-5), found)


def test_a_table_that_does_not_fit_the_topics_is_refused():
    X, phi, start = random_counts(), random_topics(20), random_theta(20)
    with pytest.raises(ValueError, match="phi must have the topics of theta"):
        fold_in(X, [0], random_topics(40), 0.1, 20, 1, 0.0, start)
    for table in (in_bytes(random_topics(40)), in_bytes(phi)[1:]):
        with pytest.raises(ValueError, match="bytes must have the shape of phi"):
            fold_in(X, [0], phi, 0.1, 20, 1, 0.0, start, table=table)
    for sizes, table in [(phi[0, :16], in_bytes(phi)), (phi[0], None)]:
        own = OwnCounts(sizes, 0.1)
        with pytest.raises(ValueError, match="inverse_sizes the topics"):
            fold_in(X, [0], phi, 0.1, 20, 1, 0.0, start, table=table, own=own)


@pytest.mark.parametrize("smallest", [0.0, 1e-45, 1e-39, 1e-30, 1e-20])
def test_words_that_no_topic_expects_do_not_spoil_a_document(smallest):
    phi = random_topics(4)
    phi[3] = smallest
    X = single_precision(np.full((1, N_WORDS), 50))
    for options in ({}, {"table": in_bytes(phi)}):
        theta = fold_in(X, [0], phi, 0.1, 4, 20, 0.0, uniform_theta(1, 4), **options)
        assert_allclose(theta.sum(), 1, rtol=1e-6)
        assert (theta[0, :4] > 0).all()


# ---------------------------------------------------------------- tables of 16 bits


@pytest.mark.parametrize("n_components", [*SIZES, 70, 300])
@pytest.mark.parametrize("size", [32767, 255, 0])
def test_tables_of_16_bits_equal_their_twin(n_components, size, instruction_set):
    table = random_theta(n_components, n_docs=40)
    table[3], table[4, 0], table[5, 0], table[6] = 0, np.nan, np.inf, -1
    chunks = in_16_bits(table, size=size)
    assert_array_equal(chunks, twins.in_chunks(twins.narrow(table, size=size)))
    if size == 255:
        assert_array_equal(in_bytes(table), twins.narrow(table, size=size))


def test_a_table_of_other_topics_is_refused():
    table, chunks = random_theta(40), np.zeros((N_DOCS, 64), np.int16)
    for rows, topics in [(N_DOCS - 1, 64), (N_DOCS, 96), (N_DOCS, 32)]:
        with pytest.raises(ValueError, match="rows and topics of the table"):
            _variational.narrow(table, 32767, np.zeros((rows, topics), np.int16), 1)
        with pytest.raises(ValueError, match="rows and topics of the table"):
            _variational.narrow(table, 255, np.zeros((rows, topics), np.uint8), 1)
    _variational.narrow(table, 32767, chunks, 1)


# ---- contributions: twin and values -----------------------------------------


def random_arguments(n_components, seed=0):
    rng = np.random.default_rng(seed)
    X = random_counts(seed)
    center = pad(rng.dirichlet(np.full(n_components, 0.5), N_WORDS))
    weight = rng.uniform(0.2, 4, N_WORDS).astype(np.float32)
    scale = rng.uniform(0, 5, N_DOCS)
    return (
        X,
        range(N_DOCS),
        random_theta(n_components, seed),
        twins.narrow(random_topics(n_components, seed)),
        twins.narrow(center, size=0),
        weight,
        scale,
    )


NORMS = pytest.mark.parametrize(
    ("norm", "radius"), [(0.5, 64), (3.0, 12345), (3.0, 10**6), (1e4, MAX_RADIUS)]
)


@pytest.mark.parametrize("n_components", [*SIZES, 70, 300])
@NORMS
def test_contributions_equal_their_twin(n_components, norm, radius, instruction_set):
    arguments = *random_arguments(n_components), norm, radius
    total = sum_topics(*arguments)
    assert_array_equal(total, twin(*arguments))
    assert not total[:, n_components:].any()


@pytest.mark.parametrize("n_components", [*SIZES, 70])
@NORMS
@pytest.mark.parametrize(
    "unit_ptr", [(0, 7), (0, 1, 2, 5, 7), (0, 2, 3, 3, 7)], ids=str
)
def test_contributions_of_users_equal_their_twin(n_components, norm, radius, unit_ptr):
    X, _, *rest, scale = random_arguments(n_components, seed=5)
    units = range(len(unit_ptr) - 1)
    arguments = X, units, *rest, scale[: len(units)], norm, radius, unit_ptr
    total = sum_topics(*arguments)
    assert_array_equal(total, twin(*arguments))
    alone = [sum_topics(X, [u], *arguments[2:]) for u in units]
    assert_array_equal(total, sum(alone))
    assert max(map(squared_norm, alone)) <= radius**2


@pytest.mark.parametrize("n_components", [3, 70])
def test_contributions_are_those_of_the_formula(n_components):
    X, units, theta, factor, center, weight, scale = random_arguments(n_components)
    norm, radius, expected = 0.9, 20_000, np.zeros(factor.shape)
    scale = scale + 0.1
    for d in units:
        shares = twins.narrow(theta)[d] * factor.astype(float)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
        cells = (scale[d] * weight * X[[d]].toarray()[0])[:, None] * (
            shares - center / 2**15
        )
        expected += (
            cells * min(1, norm / max(np.linalg.norm(cells), 1e-9)) * radius / norm
        )
    total = sum_topics(X, units, theta, factor, center, weight, scale, norm, radius)
    # a word whose factor and topic weights hardly overlap is coarse in 16 bits
    assert np.linalg.norm(total - expected) < 0.03 * np.linalg.norm(expected)


# ---- contributions: sensitivity ----------------------------------------------

wild_floats = st.one_of(
    st.floats(width=32),
    st.sampled_from(
        [0.0, 1e-45, 1e-38, 1e-23, 1e-20, 1.0, 1e19, 1e38, np.inf, -np.inf, np.nan]
    ),
)
moderate_floats = st.floats(2**-10, 2**10, width=32)
radii = st.one_of(
    st.integers(64, MAX_RADIUS), st.sampled_from([64, 2**15 - 1, MAX_RADIUS])
)
shorts = st.one_of(
    st.integers(-(2**15), 2**15 - 1), st.sampled_from([-(2**15), 0, 1, 32767])
)


@st.composite
def one_document(draw, numbers, positive, tables):
    """Arguments for a document of some words, with every array drawn from `numbers`."""
    n, width = draw(st.integers(1, 5)), draw(st.sampled_from([16, 32]))
    array = lambda shape, elements, dtype=np.float32: draw(  # noqa: E731
        arrays.arrays(dtype, shape, elements=elements, fill=elements)
    )
    X = sp.csr_array(
        (array(n, numbers), np.arange(n, dtype=np.int32), np.array([0, n], np.int32)),
        (1, n),
    )
    factor, center = array((n, 32), tables, np.int64), array((n, 32), tables, np.int64)
    if draw(st.booleans()):  # a center of probabilities
        center = np.maximum(center, 0) // 32
    return (
        X,
        [0],
        array((1, width), numbers),
        factor,
        center,
        array(n, numbers),
        np.array([draw(positive)]),
        draw(positive),
        draw(radii),
    )


usual = one_document(moderate_floats, st.floats(1e-3, 1e3), st.integers(0, 32767))
wild = one_document(
    wild_floats, st.one_of(st.floats(), st.floats(1e-300, 1e300)), shorts
)


@settings(deadline=None, max_examples=400)
@given(usual)
def test_integer_norm_never_exceeds_the_radius(arguments):
    total = sum_topics(*arguments)
    assert squared_norm(total) <= arguments[-1] ** 2
    assert_array_equal(total, twin(*arguments))


# A center that no entry may have, and a word of infinite weight: nothing is added.
INFINITE = (
    sp.csr_array(np.ones((1, 2), np.float32)),
    [0],
    np.full((1, 16), 1e38, np.float32),
    np.ones((2, 32), np.int64),
    np.where(np.arange(64).reshape(2, 32) == 0, 11912, 1535),
    np.array([np.inf, 1.0], np.float32),
    np.array([1.0]),
    1.0,
    64,
)


@settings(deadline=None, max_examples=400)
@given(wild)
@example(INFINITE)
def test_integer_norm_never_exceeds_the_radius_whatever_the_numbers(arguments):
    with np.errstate(all="ignore"):
        total = sum_topics(*arguments)
        expected = twin(*arguments)
    assert squared_norm(total) <= arguments[-1] ** 2
    assert_array_equal(total, expected)
    if any(np.isnan(x).any() for x in (arguments[0].data, *arguments[5:8])):
        assert not total.any()


@settings(deadline=None, max_examples=60)
@given(wild, st.integers(1, 4))
def test_a_user_never_exceeds_the_radius_whatever_the_numbers(arguments, n_copies):
    X, _, theta, *rest = arguments
    X, theta = X[[0] * n_copies], np.tile(theta, (n_copies, 1))
    with np.errstate(all="ignore"):
        total = sum_topics(X, [0], theta, *rest, unit_ptr=(0, n_copies))
    assert squared_norm(total) <= rest[-1] ** 2


@settings(deadline=None)
@given(usual, st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(0, 3), st.data())
def test_one_bad_number_silences_the_document(arguments, bad, which, data):
    X, _, theta, _, _, weight, scale, *_ = arguments
    array = [X.data, theta, weight, scale][which]
    index = data.draw(st.integers(0, array.size - 1))
    array.flat[index] = bad
    with np.errstate(all="ignore"):
        assert not sum_topics(*arguments).any()


@pytest.mark.parametrize("scale", [-1.0, -np.inf, np.nan, np.inf, 1e308])
@pytest.mark.parametrize("norm", [0.0, -1.0, np.nan, 1.0, 1e-308, np.inf])
def test_impossible_scales_and_clips(scale, norm):
    X, rows, *rest, _ = random_arguments(9)
    with np.errstate(all="ignore"):
        total = sum_topics(X, rows[:1], *rest, np.full(N_DOCS, scale), norm, MAX_RADIUS)
        relative = np.float64(scale) / norm
    assert squared_norm(total) <= MAX_RADIUS**2
    assert total.any() == (0 < relative < np.inf)


def along(cells, n_docs=1):
    """Arguments by which a document contributes these cells, a word each, unclipped."""
    n = len(cells)
    X = single_precision(np.ones((n_docs, n)))
    one, weight = np.zeros((n, 32), np.int64), np.array(cells, np.float32)
    one[:, 0] = 32767
    return (
        X,
        range(n_docs),
        pad(np.ones((n_docs, 1))),
        one,
        np.zeros_like(one),
        weight,
        np.ones(n_docs),
    )


@pytest.mark.parametrize("n_words", [*range(60, 100), 4000, 17000])
def test_rounding_above_the_radius_is_shrunk(n_words):
    """Equal cells, which are rounded upwards together."""
    arguments = *along([1] * n_words), 1e-3, 64
    total = sum_topics(*arguments)
    assert squared_norm(total) <= 64**2
    if n_words <= 4000:  # the twin is slow
        assert_array_equal(total, twin(*arguments))


def test_some_units_get_a_second_try_and_none_a_third(monkeypatch):
    """96 equal cells are 7 each at first; then 6."""
    calls, kernel = [], _variational.add_words
    monkeypatch.setattr(
        _variational, "add_words", lambda *a: (calls.append(a[11]), kernel(*a))[1]
    )
    total = sum_topics(*along([1] * 96), 1e-3, 64)
    assert calls == [1, -1, 1]
    assert (total[:, 0] == 6).all()


@pytest.mark.parametrize("factor", [1.001, 1.5, 3, 1e3, 1e5, 1e9, 1e30, np.inf, np.nan])
@pytest.mark.parametrize(
    "unit_ptr", [range(8), (0, 1, 4, 7)], ids=["documents", "users"]
)
@pytest.mark.parametrize("n_components", [9, 300])
def test_the_integers_decide_whatever_the_scales(
    monkeypatch, factor, unit_ptr, n_components
):
    """A unit whose scale is too large is taken out, bitwise, and the others stay."""
    X, _, *rest, scale = random_arguments(n_components)
    units = range(len(unit_ptr) - 1)
    rest = *rest, scale[: len(units)] + 0.1, 0.5, 20_000, unit_ptr
    expected = sum_topics(X, units[:2], *rest)
    kernel = _variational.clip_scales

    def too_wide(*arguments):
        kernel(*arguments)
        scale = arguments[-1]
        with np.errstate(all="ignore"):
            scale[2:] *= np.float32(factor)

    monkeypatch.setattr(_variational, "clip_scales", too_wide)
    with np.errstate(all="ignore"):
        total = sum_topics(X, units, *rest)
        alone = [sum_topics(X, [*units[:2], u], *rest) - expected for u in units[2:]]
    assert max(map(squared_norm, alone)) <= 20_000**2
    assert_array_equal(total, expected + sum(alone))


def squares_of(monkeypatch):
    """The sums of squares of all calls of the kernel, in units of the integers."""
    seen, kernel = [], _variational.add_words

    def add_words(*arguments):
        kernel(*arguments)
        seen.append(arguments[13].sum(axis=0))

    monkeypatch.setattr(_variational, "add_words", add_words)
    return seen


@pytest.mark.parametrize("count", [1, 100, 2046, 2047, 2048, 5000, 10**6])
@pytest.mark.parametrize("n_documents", [1, 3])
def test_squares_are_exact_at_the_edge_of_16_bits(
    monkeypatch, count, n_documents, instruction_set
):
    """16 times the count is the integer of the cell, and its opposite in the center."""
    X, _, theta, one, center, weight, _ = along([count / n_documents] * 3, n_documents)
    center[:, 1] = 32767
    seen, norm = squares_of(monkeypatch), 2.0**15
    arguments = (
        X,
        [0],
        theta,
        one,
        center,
        weight,
        np.ones(1),
        norm,
        MAX_RADIUS,
        (0, n_documents),
    )
    total, shift = sum_topics(*arguments), integer_shift(norm, MAX_RADIUS)
    assert seen[-1] == squared_norm(total // 2**shift)
    assert_array_equal(total, twin(*arguments))
    if count < 5000:
        assert_allclose(total[:, 0] / 2.0**shift, 16 * count, rtol=1e-3, atol=3)


@pytest.mark.parametrize("n_documents", [3, 17, 300])
@pytest.mark.parametrize("count", [3, 150, 2047, 2600])
def test_sums_of_many_documents_do_not_overflow(n_documents, count, instruction_set):
    arguments = *along([count], n_documents), 2.0**15, MAX_RADIUS
    one = sum_topics(arguments[0], [0], *arguments[2:])
    assert one.any()
    assert_array_equal(sum_topics(*arguments), n_documents * one)


def test_sums_beyond_32_bits_do_not_overflow():
    arguments = *along([2047], 70_000), 2.0**15, MAX_RADIUS
    one = sum_topics(arguments[0], [0], *arguments[2:])
    assert one.max() * 70_000 >> integer_shift(2.0**15, MAX_RADIUS) > 2**31
    assert_array_equal(sum_topics(*arguments), 70_000 * one)


@pytest.mark.parametrize("n_components", [1, 9, 16, 20, 1000])
@pytest.mark.parametrize("count", [1e-30, 2.0**-63.5, 1e12])
def test_floats_that_are_flushed_to_zero_do_not_escape_the_bound(
    n_components, count, instruction_set, flushed
):
    X, one = single_precision([[count]]), np.ones(1, np.float32)
    theta, width = pad(np.ones((1, n_components))), -(-n_components // 32) * 32
    factor, center = np.full((1, width), 32767), np.zeros((1, width), int)
    arguments = X, [0], theta, factor, center, one, np.array([1e300]), 1e-3, MAX_RADIUS
    assert squared_norm(sum_topics(*arguments)) <= MAX_RADIUS**2


# ---------------------------------------------------------------- word totals


def word_totals(counts, weight, scale=1.0, norm=1.0, radius=MAX_RADIUS):
    """What a document with these counts adds to the word totals."""
    X, theta = single_precision(np.array([counts], np.float32)), pad(np.ones((1, 1)))
    documents = Documents(X, np.arange(2), 1, theta=theta)
    documents.scale = np.array([scale])
    return documents.sum_words(None, weight=np.array(weight), norm=norm, radius=radius)


def clipped(counts, weight, scale=1.0, norm=1.0, radius=MAX_RADIUS):
    """The twin of `word_totals`."""
    X = single_precision(np.array([counts], np.float32))
    values = np.array(weight, np.float32)[X.indices] * X.data
    length = np.sqrt(twins.added_up((values * values).tolist()))
    cells = twins.clip(values, length, np.float64(scale) / norm, radius)
    total = np.zeros(len(counts), np.int64)
    if cells is not None:
        total[X.indices] = cells
    return total


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("radius", [64, 12345, 2**24 + 1, MAX_RADIUS])
def test_word_totals_equal_their_twin(seed, radius):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, 200) * rng.uniform(0.1, 1e3)
    arguments = counts, rng.uniform(0.1, 3, 200), rng.uniform(0.5, 2), 700.0, radius
    assert_array_equal(word_totals(*arguments), clipped(*arguments))


@settings(deadline=None, max_examples=200)
@given(st.data(), st.lists(wild_floats, min_size=1, max_size=6), radii)
def test_word_totals_never_exceed_the_radius_whatever_the_numbers(data, counts, radius):
    weight = data.draw(
        st.lists(wild_floats, min_size=len(counts), max_size=len(counts))
    )
    scale, norm = data.draw(wild_floats), data.draw(wild_floats)
    with np.errstate(all="ignore"):
        total = word_totals(counts, weight, scale, norm, radius)
        expected = clipped(counts, weight, scale, norm, radius)
    assert squared_norm(total) <= radius**2
    assert_array_equal(total, expected)


@pytest.mark.parametrize(
    "cells",
    [[2**30, 1], [2**30, 2**12], [2**24] * 4096 + [1], [2**29] * 4 + [1] * 7],
    ids=["1", "2**24", "many", "7"],
)
def test_word_totals_that_rounding_leaves_too_long_are_shrunk(cells):
    """The float norm forgets small cells: the scale is 1, the integers too long."""
    assert sum(x**2 for x in cells) > MAX_RADIUS**2
    total = word_totals(np.ones(len(cells)), cells)
    assert squared_norm(total) <= MAX_RADIUS**2
    assert_array_equal(total, clipped(np.ones(len(cells)), cells))
    assert_allclose(np.sqrt(float(squared_norm(total))), MAX_RADIUS, rtol=2e-5)


def test_words_whose_float_squares_vanish_do_not_escape_the_bound():
    """The smallest float is the first cell's square; 64 half-size cells square to 0."""
    cell = np.float32(2.0**-74.5)
    assert cell**2 > 0 == (cell / 2) ** 2
    total = word_totals(np.ones(65), [cell] + [cell / 2] * 64, norm=1e-30)
    assert squared_norm(total) <= MAX_RADIUS**2


# ---- arrays that change meanwhile --------------------------------------------


def during(monkeypatch, step, change):
    """Make `change` after the passes of a sum up to `step`, as another thread might."""
    kernel = getattr(_variational, step)

    def kernel_and_change(*arguments):
        kernel(*arguments)
        change()

    monkeypatch.setattr(_variational, step, kernel_and_change)


@pytest.mark.parametrize("step", ["measure_words", "clip_scales", "add_words"])
def test_counts_that_change_during_a_sum_do_not_change_it(step, monkeypatch):
    """What leaves a sum is what was added, whatever the caller's array holds then."""
    X, *rest = along([1] * 96)
    expected = sum_topics(X, *rest, 1e-3, 64)
    assert expected.any()
    during(monkeypatch, step, lambda: np.multiply(X.data, 1e-3, out=X.data))
    assert_array_equal(sum_topics(X, *rest, 1e-3, 64), expected)


@pytest.mark.parametrize("bad", [0, 260, 290])
def test_a_word_with_an_impossible_center_in_one_chunk_adds_nothing(
    bad, instruction_set
):
    """Also if the center is one in the chunks before and after: 256, 32 and 32."""
    X, *rest = random_arguments(320)
    rest[3][:3, bad : bad + 2] = 32767
    arguments = X, *rest, 3.0, 10**6
    total = sum_topics(*arguments)
    assert not total[:3].any()
    assert total[3:].any()
    assert_array_equal(total, twin(*arguments))


def test_an_entry_that_stands_twice_is_one_cell():
    """Two entries of one word are as long as their sum, not as two words."""
    X, *rest = along([300, 400])
    X.indices[:] = 0  # behind the back of every check
    assert squared_norm(sum_topics(X, *rest, 1.0, 1000)) <= 1000**2


def test_tables_that_do_not_fit_are_refused():
    X, units, theta, factor, _, weight, scale = random_arguments(20)
    for bad in (factor[1:], np.pad(factor, ((0, 0), (0, 32)))):
        with pytest.raises(ValueError, match="a row for each word"):
            sum_topics(X, units, theta, factor, bad, weight, scale, 1.0, 1000)
