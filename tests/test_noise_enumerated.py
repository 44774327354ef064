"""The law of a draw by enumeration: every value of every field, on each set.

A word holds independent fields. What a kernel makes of each value of each field, and of
all ties, is the law; its weights are compared with those of the table, in integers.
"""

import numpy as np
import pytest
import reference_noise as reference

from dplda.kernels._noise import add_gaussian, add_laplace
from dplda.privacy._mechanisms import (
    gaussian_tables,
    gaussian_weights,
    geometric_tables,
    geometric_weights,
)

FIELD = np.arange(2**21, dtype=np.uint64)
NO_WORDS = np.zeros(0, np.uint64)
KINDS = {
    # kernel, tables, weights of each table, table and factor of each field
    "gaussian": (
        add_gaussian,
        gaussian_tables,
        lambda: [gaussian_weights()],
        [(0, 1), (0, 64), (0, 4096)],
    ),
    **{
        f"laplace-{scale}": (
            add_laplace,
            lambda scale=scale: geometric_tables(scale),
            lambda scale=scale: geometric_weights(scale),
            [(0, 1), (1, 4096)],
        )
        for scale in (0.7, 1000.5)
    },
}


def drawn(kernel, tables, words, spare=NO_WORDS):
    cells = np.zeros(len(words), np.int64)
    done, used = kernel(words, spare, tables.fast, tables.slow, cells)
    assert (done, used) == (len(words), len(spare))
    return cells


@pytest.fixture(params=KINDS)
def kind(request):
    kernel, tables, weights, fields = KINDS[request.param]
    return kernel, tables(), weights(), fields


def untied(tables, table):
    """A field whose nine bits decide, and the value that it stands for."""
    thresholds, aliases = reference.unpack(tables)[table]
    first = thresholds[0] >> 128
    fraction = 0 if first == 511 else 511
    return fraction << 12, 0 if fraction < first else aliases[0]


def base_of(tables, fields):
    """A word without a tie, and what it draws."""
    word = draw = 0
    for level, (table, factor) in enumerate(fields):
        field, value = untied(tables, table)
        word |= field << 21 * level
        draw += factor * value
    return word, draw


def test_the_law_of_a_draw_is_that_of_the_table(kind, instruction_set):
    """Replaces "A value i comes with probability exactly P_i / 2^149."

    The weight of a column is the number of fractions of 137 bits below which it
    returns itself: 2^128 for each field without a tie, and the exact threshold
    where the nine bits are equal.
    """
    kernel, tables, weights, fields = kind
    word, draw = base_of(tables, fields)
    lowest = 2048 * (1 + 64 + 4096) if kernel is add_gaussian else 0
    for level, (table, factor) in enumerate(fields):
        thresholds, aliases = reference.unpack(tables)[table]
        field, value = untied(tables, table)
        place = np.uint64(21 * level)
        others = np.uint64(word - (field << 21 * level))
        of_others = draw - factor * value - lowest

        def words_of(fields, others=others, place=place):
            return others | fields << place

        def values(cells, factor=factor, of_others=of_others):
            assert not ((cells - of_others) % factor).any()
            return (cells - of_others) // factor

        column, fraction = (FIELD & np.uint64(4095)).astype(int), FIELD >> np.uint64(12)
        tie = fraction == np.array([t >> 128 for t in thresholds])[column]
        counts = np.bincount(
            values(drawn(kernel, tables, words_of(FIELD[~tie]))), minlength=4096
        ).tolist()
        found = [n << 128 for n in counts]
        # spare words below, at and above the other 128 bits of each threshold
        tied = column[tie].tolist()
        rest = [thresholds[c] % 2**128 for c in tied]
        for step in (-1, 0, 1):
            moved = [min(max(r + step, 0), 2**128 - 1) for r in rest]
            spare = [half for m in moved for half in (m >> 64, m % 2**64)]
            expected = [
                c if m < r else aliases[c] for c, m, r in zip(tied, moved, rest)
            ]
            words = np.array(spare, np.uint64)
            cells = drawn(kernel, tables, words_of(FIELD[tie]), words)
            assert values(cells).tolist() == expected
        for c, r in zip(tied, rest):
            found[c] += r
            found[aliases[c]] += 2**128 - r
        assert found == list(weights[table])


def test_the_sign_is_a_fair_bit_and_no_other_bit_counts(instruction_set):
    """Replaces, of lemma 3, "X = G if s = 0, and X = -1 - G if s = 1"."""
    tables = geometric_tables(1000.5)
    word, draw = base_of(tables, [(0, 1), (1, 4096)])
    words = np.array([word ^ 1 << bit for bit in range(42, 64)] * 8, np.uint64)
    cells = drawn(add_laplace, tables, words).reshape(8, -1)
    assert (cells[:, :-1] == draw).all()
    assert (cells[:, -1] == -1 - draw).all()
    tables = gaussian_tables()
    word, _ = base_of(tables, [(0, 1), (0, 64), (0, 4096)])
    both = drawn(add_gaussian, tables, np.array([word, word | 1 << 63] * 16, np.uint64))
    assert (both == both[0]).all()


@pytest.mark.parametrize("scale", [0.05, 0.7, 20.0, 1000.5, 90000.0])
def test_weights_miss_their_law_by_less_than_one(scale):
    """Replaces "floor(2^149 p_i), and the rest is given to the most likely value", in
    balls."""
    flint = pytest.importorskip("flint", reason="python-flint evaluates in balls")
    flint.ctx.prec = 320
    one = flint.arb(1)
    rate = one / flint.arb(scale)  # the float, exactly
    for weights, rate_of in zip(geometric_weights(scale), (rate, 4096 * rate)):
        is_last = rate_of is not rate
        total = one if is_last else one - (-4096 * rate_of).exp()
        share = (1 - (-rate_of).exp()) / total * 2**149
        for i in (*range(1, 60), 100, 1000, 4094):
            exact = share * (-i * rate_of).exp()
            assert exact - 1 < weights[i] <= exact + flint.arb(2) ** -60
        tail = (-4095 * rate_of).exp() * (one if is_last else 1 - (-rate_of).exp())
        exact = tail / total * 2**149
        assert exact - 1 < weights[4095] <= exact + flint.arb(2) ** -60


def test_gaussian_weights_miss_their_law_by_less_than_one():
    flint = pytest.importorskip("flint", reason="python-flint evaluates in balls")
    flint.ctx.prec = 320
    weights = gaussian_weights()
    rate = flint.arb(1) / (2 * 150**2)
    bells = [(-rate * i * i).exp() for i in range(6000)]  # beyond: below 1e-340
    of_table = 2 * sum(bells[1:2048], flint.arb(0)) + bells[0] + bells[2048]
    total = 2 * sum(bells, flint.arb(0)) - bells[0]
    distance = (total - of_table) / total
    for value, weight in zip(range(-2048, 2048), weights):
        exact = bells[abs(value)] / of_table * 2**149
        if value:
            assert exact - 1 < weight <= exact + flint.arb(2) ** -60
        distance += abs(flint.arb(weight) / 2**149 - bells[abs(value)] / total)
    # half of the differences, of three tables: 1.31e-41 on the page
    assert flint.arb("1.30e-41") < 3 * distance / 2 < flint.arb("1.31e-41")
