"""Fold-in and contributions: equal to plain twins bit for bit, and never above the sensitivity."""

from functools import partial

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_allclose, assert_array_equal

from dplda.core._fold_in import packed, pad, single_precision, uniform_theta
from dplda.document._contributions import Documents
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
    return pad(np.random.default_rng(seed).dirichlet(np.full(n_components, 0.3), n_docs))


def fold_in(
    X, rows, phi, prior, n_components, max_iter, tol, theta, *, accelerated=False,
    variational=False, in_pairs=False, own=None,
):  # fmt: skip
    """The kernel on a copy of `theta`, as its twin."""
    theta = theta.copy()
    scratch = np.full((2, 6 * theta.shape[1]), np.nan, np.float32)
    longest = int(np.diff(X.indptr)[list(rows)].max())
    inverse_size, least = (np.zeros(0, np.float32), 0.0) if own is None else own
    _variational.fold_in(
        X.indptr, X.indices, X.data, np.array(rows, np.int64), phi, in_pairs, prior, n_components,
        max_iter, tol, accelerated, variational, theta, scratch, inverse_size, least,
        np.arange(longest, dtype=np.int32),
        np.full((2, longest * phi.shape[1]), np.nan, np.float32),
    )  # fmt: skip
    return theta


def add_contributions(
    X, units, theta, factor, center, weight, scale, norm, radius, total=None, unit_ptr=None
):
    """The kernel, as its twin."""
    total = np.zeros(factor.shape, np.int64) if total is None else total
    ptr = np.arange(X.shape[0] + 1) if unit_ptr is None else np.array(unit_ptr)
    n_words = min(X.shape[1], int(np.diff(X.indptr[ptr]).max(initial=1)))
    size, place = n_words * factor.shape[1], np.full(X.shape[1], -1, np.int32)
    _variational.add_contributions(
        X.indptr, X.indices, X.data, ptr, np.array(units, np.int64), theta, factor, center, weight,
        scale, norm, radius, total, place, np.full(n_words, -9, np.int32),
        np.full(size, np.nan, np.float32), np.full(size, -9, np.int32),
    )  # fmt: skip
    assert (place == -1).all()
    return total


def sum_documents(X, units, theta, factor, center, weight, scale, norm, radius, total=None):
    """The kernels of units of one document, as `Documents` calls them, in one sum or added."""
    ptr, padded = np.arange(X.shape[0] + 1), factor.shape[1]
    documents = Documents(X, theta, ptr, scale, n_components=padded)
    result = documents.sum_topics(
        np.array(units, np.int64), factor, center, weight=weight, norm=norm, radius=radius,
    )  # fmt: skip
    return result if total is None else total + result


def twin_of(kernel):
    """The twin of `add_contributions` or `sum_documents`."""
    return partial(reference.add_contributions, alone=kernel is sum_documents)


KERNELS = [add_contributions, sum_documents]
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def squared_norm(total):
    """Exact, for the contribution of one unit."""
    return sum(int(x) ** 2 for x in total.flat)


# ---------------------------------------------------------------- fold-in


OWN = 0.02  # the smallest count of a cell


def all_ways(n_components):
    """The forms of the kernel: options, and the table that its twin reads."""
    phi, sizes = random_topics(n_components), np.linspace(50, 500, n_components)
    pairs, own = packed(phi), (pad(1 / sizes[None])[0], OWN)
    unpacked = reference.unpack(pairs, phi.shape[1])
    for variational in (False, True):
        yield {"variational": variational}, phi, phi
        yield {"variational": variational, "in_pairs": True}, pairs, unpacked
        yield {"variational": variational, "in_pairs": True, "own": own}, pairs, unpacked


@pytest.mark.parametrize("n_components", [*SIZES, 49])
@pytest.mark.parametrize("n_steps", [0, 1, 5])
def test_fold_in_follows_its_formulas(n_components, n_steps, instruction_sets):
    """With all sets of instructions to the last bit; what shares a float has 8 bits."""
    X, rows, start = random_counts(3), [0, 1, 3, 6, 5], random_theta(n_components, seed=4)
    start[5, :n_components] = 1 / n_components  # no inference yet
    for options, table, read in all_ways(n_components):
        results = []
        for name in instruction_sets:
            _sets.use(name)
            rest = 0.1, n_components, n_steps, 0.0, start
            results.append(fold_in(X, rows, table, *rest, **options))
            assert_array_equal(results[-1], results[0])
        formula = {name: option for name, option in options.items() if name != "in_pairs"}
        expected = reference.fold_in(X, rows, read, 0.1, n_components, n_steps, start, **formula)
        loose = 2e-2 if "own" in options else 2e-4  # the rows without its own are packed again
        assert_allclose(results[0], expected, rtol=loose, atol=loose / 10)
        assert_array_equal(results[0][[2, 4]], start[[2, 4]])
        assert not results[0][:, n_components:].any()


@pytest.mark.parametrize("n_components", [7, 20, 33])
def test_acceleration_leads_to_the_same_weights_in_fewer_steps(n_components, instruction_sets):
    X = random_counts(3, n_docs=30, n_words=40)
    phi = random_topics(n_components, n_words=40)
    start = uniform_theta(30, n_components)

    def run(n_steps, tol=0.0, **options):
        return fold_in(X, range(30), phi, 0.1, n_components, n_steps, tol, start, **options)

    end = run(5000)
    left = [np.abs(run(40, accelerated=fast) - end).sum() for fast in (False, True)]
    assert left[1] < 0.5 * left[0]
    found = run(200, 1e-5, accelerated=True)
    assert_allclose(found, end, atol=2e-3)
    for name in instruction_sets:
        _sets.use(name)
        assert_array_equal(run(200, 1e-5, accelerated=True), found)


def test_a_table_that_does_not_fit_the_topics_is_refused():
    X, phi, start = random_counts(), random_topics(20), random_theta(20)
    for table, in_pairs in [(phi, True), (packed(phi), False), (random_topics(40), False)]:
        with pytest.raises(ValueError, match="in pairs or alone"):
            fold_in(X, [0], table, 0.1, 20, 1, 0.0, start, in_pairs=in_pairs)
    with pytest.raises(ValueError, match="half of its topics"):
        _variational.pack(phi, phi, 1)
    with pytest.raises(ValueError, match="half of its topics"):
        _variational.pack(phi[1:], packed(phi), 1)


@pytest.mark.parametrize("smallest", [0.0, 1e-45, 1e-39, 1e-30, 1e-20])
def test_words_that_no_topic_expects_do_not_spoil_a_document(smallest):
    phi = random_topics(4)
    phi[3] = smallest
    X = single_precision(np.full((1, N_WORDS), 50))
    theta = fold_in(X, [0], phi, 0.1, 4, 20, 0.0, uniform_theta(1, 4))
    assert_allclose(theta.sum(), 1, rtol=1e-6)
    assert (theta[0, :4] > 0).all()


# ---------------------------------------------------------------- contributions: twin and values


def random_arguments(n_components, seed=0):
    rng = np.random.default_rng(seed)
    X = random_counts(seed)
    center = rng.dirichlet(np.full(n_components, 0.5), N_WORDS)
    weight = rng.uniform(0.2, 4, N_WORDS).astype(np.float32)
    scale = rng.uniform(0, 5, N_DOCS)
    return (
        X, range(N_DOCS), random_theta(n_components, seed), random_topics(n_components, seed),
        pad(center), weight, scale,
    )  # fmt: skip


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize(("norm", "radius"), [(0.5, 64), (30.0, 12345), (1e4, MAX_RADIUS)])
@each_kernel
def test_contributions_equal_their_twin(kernel, n_components, norm, radius, instruction_set):
    arguments = *random_arguments(n_components), norm, radius
    total = kernel(*arguments)
    assert_array_equal(total, twin_of(kernel)(*arguments))
    assert not total[:, n_components:].any()


@pytest.mark.parametrize("n_components", SIZES)
@pytest.mark.parametrize(("norm", "radius"), [(0.5, 64), (30.0, 12345), (1e4, MAX_RADIUS)])
@pytest.mark.parametrize("unit_ptr", [(0, 7), (0, 1, 2, 5, 7), (0, 2, 3, 3, 7)], ids=str)
def test_contributions_of_users_equal_their_twin(n_components, norm, radius, unit_ptr):
    X, _, *rest, scale = random_arguments(n_components, seed=5)
    units = range(len(unit_ptr) - 1)
    arguments = X, units, *rest, scale[: len(units)], norm, radius
    total = add_contributions(*arguments, unit_ptr=unit_ptr)
    assert_array_equal(total, reference.add_contributions(*arguments, unit_ptr=unit_ptr))
    assert total.any() == (n_components > 1)  # one topic says nothing: it is centered on itself
    for u in units:
        alone = add_contributions(X, [u], *arguments[2:], unit_ptr=unit_ptr)
        assert squared_norm(alone) <= radius**2


@each_kernel
@pytest.mark.parametrize("n_components", SIZES)
def test_pieces_add_up(kernel, n_components):
    X, rows, *rest = random_arguments(n_components, seed=3)
    rest = *rest, 3.0, 10**6
    whole = kernel(X, rows, *rest)
    total = None
    for piece in ([6, 2, 0], [], [1, 4], [5, 3]):
        total = kernel(X, piece, *rest, total)
    assert_array_equal(total, whole)
    assert whole.any()


@each_kernel
def test_documents_out_of_the_sample_and_empty_ones_add_nothing(kernel):
    arguments = random_arguments(9)
    empty = kernel(arguments[0], [], *arguments[2:], 1.0, 1000)
    assert not empty.any()
    assert not kernel(arguments[0], [1, 6], *arguments[2:], 1.0, 1000).any()


# ---------------------------------------------------------------- contributions: sensitivity

wild_floats = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, 1e-45, 1e-38, 1e-23, 1e-20, 1.0, 1e19, 1e38, np.inf, -np.inf, np.nan]),
)
moderate_floats = st.floats(2**-10, 2**10, width=32)
radii = st.one_of(st.integers(64, MAX_RADIUS), st.sampled_from([64, 2**24, MAX_RADIUS]))


@st.composite
def one_document(draw, numbers, signed, positive):
    """Arguments for a document of some words, with every array drawn from `numbers`."""
    n, width = draw(st.integers(1, 5)), draw(st.sampled_from([16, 32]))
    array = lambda shape, elements: draw(  # noqa: E731
        arrays.arrays(np.float32, shape, elements=elements, fill=elements)
    )
    X = sp.csr_array(
        (array(n, numbers), np.arange(n, dtype=np.int32), np.array([0, n], np.int32)), (1, n)
    )
    return (
        X, [0], array((1, width), numbers), array((n, width), numbers),
        array((n, width), signed), array(n, numbers), np.array([draw(positive)]),
        draw(positive), draw(radii),
    )  # fmt: skip


usual = one_document(moderate_floats, st.floats(-1024, 1024, width=32), st.floats(1e-3, 1e3))
wild = one_document(wild_floats, wild_floats, st.one_of(st.floats(), st.floats(1e-300, 1e300)))


# both kernels get each of these documents: to draw one takes longer than to sum it
@settings(deadline=None, max_examples=400)
@given(usual)
def test_integer_norm_never_exceeds_the_radius(arguments):
    for kernel in KERNELS:
        total = kernel(*arguments)
        assert squared_norm(total) <= arguments[-1] ** 2
        assert_array_equal(total, twin_of(kernel)(*arguments))


@settings(deadline=None, max_examples=400)
@given(wild)
def test_integer_norm_never_exceeds_the_radius_whatever_the_floats(arguments):
    numbers = [arguments[0].data, *arguments[2:8]]
    bad = any(np.isnan(x).any() for x in numbers)
    for kernel in KERNELS:
        with np.errstate(all="ignore"):
            total = kernel(*arguments)
        assert squared_norm(total) <= arguments[-1] ** 2
        if bad:
            assert not total.any()


@settings(deadline=None, max_examples=60)
@given(wild, st.integers(1, 4))
def test_a_user_never_exceeds_the_radius_whatever_the_floats(arguments, n_copies):
    X, _, theta, *rest = arguments
    X, theta = X[[0] * n_copies], np.tile(theta, (n_copies, 1))
    with np.errstate(all="ignore"):
        total = add_contributions(X, [0], theta, *rest, unit_ptr=(0, n_copies))
    assert squared_norm(total) <= rest[-1] ** 2


@each_kernel
@settings(deadline=None)
@given(usual, st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(0, 5), st.data())
def test_one_bad_number_silences_the_document(kernel, arguments, bad, which, data):
    X, rows, *floats, norm, radius = arguments
    array = [X.data, *floats][which]
    index = data.draw(st.integers(0, array.size - 1))
    array.flat[index] = bad
    assert not kernel(X, rows, *floats, norm, radius).any()


@each_kernel
@pytest.mark.parametrize("scale", [-1.0, -np.inf, np.nan, np.inf, 1e308])
@pytest.mark.parametrize("norm", [0.0, -1.0, np.nan, 1.0, 1e-308, np.inf])
def test_impossible_scales_and_clips(kernel, scale, norm):
    X, rows, *rest, _ = random_arguments(9)
    total = kernel(X, rows[:1], *rest, np.full(N_DOCS, scale), norm, MAX_RADIUS)
    assert squared_norm(total) <= MAX_RADIUS**2
    with np.errstate(all="ignore"):
        relative = np.float64(scale) / norm
    assert total.any() == (0 < relative < np.inf)


def along(cells):
    """Arguments by which a document contributes these cells, one word each, before the clip."""
    n = len(cells)
    X = sp.csr_array(np.ones((1, n), np.float32))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    one = pad(np.ones((n, 1)))
    theta, weight = pad(np.ones((1, 1))), np.array(cells, np.float32)
    return X, [0], theta, one, np.zeros_like(one), weight, np.ones(1)


@each_kernel
@pytest.mark.parametrize(
    "cells",
    [[2**30, 1], [2**30, 2**12], [2**24] * 4096 + [1], [2**29] * 4 + [1] * 7],
    ids=["1", "2**24", "many", "7"],
)
def test_rounding_just_above_the_radius_is_shrunk(kernel, cells):
    """The float norm forgets the small cells, so the scale is 1 and the integers are too long."""
    arguments = *along(cells), 1.0, MAX_RADIUS
    assert sum(x**2 for x in cells) > MAX_RADIUS**2
    total = kernel(*arguments)
    assert_allclose(np.sqrt(float(squared_norm(total))), MAX_RADIUS, rtol=2e-5)
    assert squared_norm(total) <= MAX_RADIUS**2
    assert_array_equal(total, twin_of(kernel)(*arguments))


@each_kernel
def test_cells_whose_float_squares_vanish_do_not_escape_the_bound(kernel):
    """The smallest float is the first cell's square; 64 cells of half its size square to 0."""
    cell = np.float32(2.0**-74.5)
    assert cell**2 > 0 == (cell / 2) ** 2
    total = kernel(*along([cell] + [cell / 2] * 64), 1e-30, MAX_RADIUS)
    assert squared_norm(total) <= MAX_RADIUS**2


@each_kernel
@settings(deadline=None)
@given(
    st.lists(st.integers(0, 2**24), min_size=1, max_size=40).filter(any),
    st.floats(0.999999, 1.000001),
    st.integers(0, 3),
)
def test_contributions_at_the_limit_stay_below_it(kernel, cells, stretch, below):
    """Whole cells whose exact norm is about the radius, scaled by about 1."""
    radius = int(np.sqrt(float(sum(x**2 for x in cells)))) - below
    assume(64 <= radius <= MAX_RADIUS)
    for norm in (float(radius), 1e-3):
        X, rows, *rest, scale = along(cells)
        arguments = X, rows, *rest, scale * stretch, norm, radius
        total = kernel(*arguments)
        assert squared_norm(total) <= radius**2
        assert_array_equal(total, twin_of(kernel)(*arguments))


@pytest.mark.parametrize("n_components", [1, 9, 16, 20, 1000])
@pytest.mark.parametrize("cell", [2.0**-63.01, 2.0**-63.5])
def test_squares_that_are_flushed_to_zero_do_not_escape_the_bound(
    n_components, cell, instruction_set, flushed
):
    """The float squares of all cells vanish; those of 9 of the longest integers overflow a sum."""
    X, one = single_precision([[1e12]]), np.ones(1, np.float32)
    theta, center = pad(np.ones((1, n_components))), pad(np.full((1, n_components), -cell))
    total = sum_documents(
        X, [0], theta, np.zeros_like(center), center, one, np.array([1e300]), 1e-3, MAX_RADIUS
    )
    assert 0 < squared_norm(total) <= MAX_RADIUS**2


# ---------------------------------------------------------------- arrays that change meanwhile


def during(monkeypatch, step, change):
    """Make `change` after the passes of a sum up to `step`, as another thread might."""
    kernel = getattr(_variational, step)

    def kernel_and_change(*arguments):
        kernel(*arguments)
        change()

    monkeypatch.setattr(_variational, step, kernel_and_change)


@pytest.mark.parametrize("step", ["measure_words", "clip_scales", "add_words"])
def test_counts_that_change_during_a_sum_do_not_change_it(step, monkeypatch):
    """What is taken out of a sum is what was added, whatever the caller's array holds by then."""
    X, *rest = along([2**24] * 4096 + [1])
    expected = sum_documents(X, *rest, 1.0, MAX_RADIUS)
    assert expected.any()
    during(monkeypatch, step, lambda: np.multiply(X.data, 1e-3, out=X.data))
    assert_array_equal(sum_documents(X, *rest, 1.0, MAX_RADIUS), expected)


def test_an_entry_that_stands_twice_is_one_cell():
    """Two entries of one word are as long as their sum, not as two words."""
    X, *rest = along([300, 400])
    X.indices[:] = 0  # behind the back of every check
    assert squared_norm(sum_documents(X, *rest, 1.0, 1000)) <= 1000**2
