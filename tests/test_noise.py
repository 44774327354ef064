"""The noise: its tables, law and price, and the kernel against a big-integer twin."""

import hashlib
import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import reference_noise as reference
import twins
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dplda.kernels import _sets
from dplda.kernels._noise import add_gaussian, add_laplace
from dplda.privacy._events import Laplace, NonPrivate, Repeated
from dplda.privacy._mechanisms import (
    MIN_FLIP,
    NOISE_VARIANCE,
    ROUNDING_VARIANCE,
    WORD_VARIATION,
    DiscreteGaussian,
    FlooredLaplace,
    NoNoise,
    gaussian_tables,
    gaussian_weights,
    geometric_tables,
    geometric_weights,
)
from dplda.privacy._streams import Purpose, Streams

SCALES = [0.05, 0.1, 0.3, 0.7, 1.0, 4.0, 20.0, 100.0, 1000.5, 20000.0, 90000.0]

KERNELS = {
    "gaussian": (add_gaussian, gaussian_tables(), twins.gaussian_draws),
    "laplace-4": (add_laplace, geometric_tables(4.0), twins.laplace_draws),
    "laplace-1000.5": (add_laplace, geometric_tables(1000.5), twins.laplace_draws),
}


@pytest.fixture(params=KERNELS)
def kernel_name(request):
    return request.param


@pytest.fixture
def kernel(kernel_name):
    return KERNELS[kernel_name]


def words(n, *, round=0, spare=False):
    return (
        Streams.from_random_state(7).reader(Purpose.NOISE, round).words(n, spare=spare)
    )


def tied_words(tables, n, *, share, seed=0):
    """Words of which a share has a tie in each field; the others are random.

    Also six spare words for each: below, at or above the threshold's other 128 bits.
    """
    packed = reference.unpack(tables)
    n_fields = 3 if len(packed) == 1 else 2
    rng, bits, spare = np.random.default_rng(seed), words(n).tolist(), []
    for j in np.flatnonzero(rng.random(n) < share):
        bits[j] = int(rng.integers(2)) << 63
        for i in range(n_fields):
            thresholds, _ = packed[min(i, len(packed) - 1)]
            column = int(rng.integers(4096))
            bits[j] |= (thresholds[column] >> 128 << 12 | column) << 21 * i
            rest = (thresholds[column] + int(rng.integers(-1, 2))) % 2**128
            spare += [rest >> 64, rest % 2**64]
    spare += words(2 * n + 6, spare=True).tolist()
    return np.array(bits, dtype=np.uint64), np.array(spare, dtype=np.uint64)


@cache
def tied_draws(name, n, *, share, start=0, seed=0):
    """Words with ties, and the draws of the twin from the words after `start`.

    They are the same for each instruction set, type and number of threads.
    """
    _, tables, twin = KERNELS[name]
    bits, spare = tied_words(tables, n, share=share, seed=seed)
    draws = twin(bits[start:], spare, tables)
    for array in (bits, spare, draws):
        array.flags.writeable = False
    return bits, spare, draws


def add_all(kernel, tables, bits, spare, cells=None):
    """Draws for all cells. Returns the cells and the number of spare words used."""
    cells = np.zeros(len(bits), np.int64) if cells is None else cells
    n_done, n_used = kernel(bits, spare, tables.fast, tables.slow, cells)
    assert n_done == len(cells)
    return cells, n_used


def test_gaussian_weights_are_pinned():
    weights = gaussian_weights()
    assert sum(weights) == 2**149
    assert weights[2048] == 1897964830752662893014947039204752220690052
    assert weights[2198] == 1151173860907789265724078430591354064681545
    assert weights[4048] == 4724
    digest = hashlib.sha256("\n".join(map(str, weights)).encode()).hexdigest()
    assert digest == "584332103769bb4c2affef645878ec16036bac90366ae55542993eadef49a0f3"


def test_gaussian_columns_add_up_to_the_weights():
    (table,) = reference.unpack(gaussian_tables())
    assert reference.weights_of(*table) == gaussian_weights()


@pytest.mark.parametrize("scale", SCALES)
def test_geometric_columns_add_up_to_the_weights(scale):
    weights = geometric_weights(scale)
    assert [sum(digit) for digit in weights] == [2**149, 2**149]
    packed = reference.unpack(geometric_tables(scale))
    assert [reference.weights_of(*table) for table in packed] == list(weights)


def test_gaussian_total_variation_is_covered():
    computed = reference.gaussian_variation(gaussian_weights())
    assert 0.7 * WORD_VARIATION < float(computed) <= WORD_VARIATION


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_total_variation_is_covered(scale):
    computed = reference.laplace_variation(scale, *geometric_weights(scale))
    assert 0 < float(computed) <= WORD_VARIATION


def test_total_variation_is_covered_whatever_is_drawn_from_a_word():
    # A gap of two digits and an excess: three tables, and gaps beyond both digits.
    rounding = Fraction(3 * 4095, 2**149)
    tail = math.exp(-(4096**2) * MIN_FLIP)
    assert float(rounding) + tail <= WORD_VARIATION


def test_kernel_equals_its_twin(kernel, instruction_set):
    add, tables, twin = kernel
    bits, spare = words(20_000), words(2000, spare=True)
    cells = np.arange(20_000) - 10_000
    _, n_used = add_all(add, tables, bits, spare, cells)
    assert 50 < n_used < 1000
    assert_array_equal(cells, np.arange(20_000) - 10_000 + twin(bits, spare, tables))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_instruction_sets_agree_on_many_words(kernel, dtype, instruction_sets):
    """Most wrong fields look like ties that one path resolves: faults show rarely."""
    add, tables, _ = kernel
    bits, spare = words(2**20), words(2**17, spare=True)
    results = []
    for name in instruction_sets:
        _sets.use(name)
        cells = np.zeros(len(bits), dtype)
        add_all(add, tables, bits, spare, cells)
        results.append(cells)
    for cells in results[1:]:
        assert_array_equal(cells, results[0])


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0], ids="{:.0%} tied".format)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_any_number_of_cells(kernel, kernel_name, instruction_set, share, start, dtype):
    """Also those that fill no block of eight, and arrays that begin anywhere."""
    add, tables, _ = kernel
    for n in [0, 1, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 100]:
        bits, spare, expected = tied_draws(
            kernel_name, start + n + 3, share=share, start=start, seed=n
        )
        cells = np.full(start + n + 3, 7, dtype)
        add_all(add, tables, bits[start:], spare, cells[start : start + n])
        assert_array_equal(cells[start : start + n], 7 + expected[:n])
        assert (np.delete(cells, np.s_[start : start + n]) == 7).all()


def test_extreme_words(kernel, instruction_set):
    """Fields of zeros and ones in every combination, beside first and last columns."""
    add, tables, twin = kernel
    fields = [0, 1, 4095, 4096, 2**21 - 4096, 2**21 - 1]
    combined = itertools.product(fields, fields, fields, [0, 1])
    bits = np.array(
        [a | b << 21 | c << 42 | s << 63 for a, b, c, s in combined], np.uint64
    )
    for spare in (
        np.zeros(6 * len(bits), np.uint64),
        np.full(6 * len(bits), 2**64 - 1, np.uint64),
    ):
        cells = np.full(len(bits), -(2**62))
        add_all(add, tables, bits, spare, cells)
        assert_array_equal(cells + 2**62, twin(bits, spare, tables))


@pytest.mark.parametrize("buffer", [0, 1, 2, 5, 6, 7])
def test_a_cell_without_enough_spare_words_is_left_as_it_is(
    kernel, instruction_set, buffer
):
    """It and the spare words it has read serve the next call: one draw per cell."""
    draw, tables, twin = kernel
    bits, spare, cells = (
        words(5_000),
        words(2000, spare=True),
        np.zeros(5_000, np.int64),
    )
    expected = twin(bits, spare, tables)
    n_done, n_used = draw(bits, spare[:buffer], tables.fast, tables.slow, cells)
    assert n_done < 5_000
    assert n_used % 2 == 0
    assert buffer - 6 < n_used <= buffer
    assert_array_equal(cells[:n_done], expected[:n_done])
    assert not cells[n_done:].any()
    draw(bits[n_done:], spare[n_used:], tables.fast, tables.slow, cells[n_done:])
    assert_array_equal(cells, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("n", [0, 1, 8, 9, 4099])
def test_cells_of_both_widths_get_the_same_draws(
    kernel, kernel_name, instruction_set, n, dtype
):
    add, tables, _ = kernel
    bits, spare, expected = tied_draws(kernel_name, n, share=0.1)
    cells, _ = add_all(add, tables, bits, spare, np.full(n, 5, dtype))
    assert_array_equal(cells, 5 + expected)


@pytest.mark.parametrize(
    ("mechanism", "tables", "twin"),
    [
        (DiscreteGaussian(5000), gaussian_tables(), twins.gaussian_draws),
        (FlooredLaplace(4.0), geometric_tables(4.0), twins.laplace_draws),
    ],
    ids=["gaussian", "laplace"],
)
def test_mechanism_reads_its_stream_once_and_in_order(mechanism, tables, twin):
    """More cells than a piece, more ties than a spare: nothing reused or skipped."""
    value = np.arange(72_000).reshape(300, 240)
    noisy = mechanism(value, Streams.from_random_state(7).reader(Purpose.NOISE, 3))
    expected = twin(words(72_000, round=3), words(9000, round=3, spare=True), tables)
    assert noisy.dtype == np.int64
    assert_array_equal(noisy - value, expected.reshape(300, 240))


@given(st.floats(6e-4, 9600))
def test_radius_is_the_largest_that_gives_the_noise_multiplier(noise_multiplier):
    radius = DiscreteGaussian.for_noise_multiplier(noise_multiplier).radius
    exact = Fraction(noise_multiplier) ** 2
    assert (
        radius**2 * exact
        <= NOISE_VARIANCE - ROUNDING_VARIANCE
        < (radius + 1) ** 2 * exact
    )


def test_the_event_leaves_the_variance_that_rounding_needs():
    """Lemma 2 with h = eta(s_2): the continuous noise has variance S^2 - s_2^2."""
    assert DiscreteGaussian(64).event_variance == NOISE_VARIANCE - ROUNDING_VARIANCE
    assert 2 * math.exp(-2 * math.pi**2 * ROUNDING_VARIANCE) <= 1.5e-77


@pytest.mark.parametrize(
    "mechanism", [DiscreteGaussian(5000), FlooredLaplace(4.0), NoNoise()]
)
def test_a_mechanism_takes_integers_and_says_whether_it_protects(mechanism):
    reader = Streams.from_random_state(0).reader(Purpose.NOISE, 0)
    with pytest.raises(TypeError, match="safe"):
        mechanism(np.zeros(3), reader)
    value = np.arange(60).reshape(2, 30)
    noisy = mechanism(value, reader)
    assert noisy is not value
    assert (
        mechanism.exact
        == (noisy == value).all()
        == isinstance(mechanism.event, NonPrivate)
    )
    assert mechanism.exact == (mechanism.scale == 0)
    assert FlooredLaplace(4.0, n_cells=2).event == Repeated(Laplace(4.0), 2)


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (
            DiscreteGaussian.for_noise_multiplier,
            (0, -1, 9601.2, 10**400, np.int64(2**62), math.inf, math.nan),
            "at most 9601",
        ),
        (
            DiscreteGaussian,
            (0, 63, 2**30 + 1),
            "radius must be an integer from 64 to 1073741824",
        ),
        (
            FlooredLaplace,
            (0.0, 0.049, 9e5, math.inf, math.nan),
            r"number in \[0\.05, 90000\]",
        ),
    ],
    ids=["multiplier", "radius", "scale"],
)
def test_noise_that_cannot_be_drawn_is_refused(make, wrong, message):
    for value in wrong:
        with pytest.raises(ValueError, match=message):
            make(value)
    assert DiscreteGaussian.for_noise_multiplier(1e-9).radius == 2**30
