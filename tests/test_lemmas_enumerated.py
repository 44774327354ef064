"""Lemmas of the proofs about integers, by a solver: for all numbers of their types.

A lemma that holds leaves its negation without a solution. Constants are those of the
shipped headers and modules.
"""

import pytest
import shipped

from dplda.document._contributions import COUNT_SHARE, DOCS_OF_A_USER
from dplda.privacy._mechanisms import MAX_RADIUS

z3 = pytest.importorskip("z3", reason="z3-solver proves lemmas about integers")

NARROW = shipped.constant("DPLDA_MOST_16", "_contributions.h")
CENTER = shipped.constant("DPLDA_MOST_CENTER", "_contributions.h")


def holds(*claims):
    """Whether the last claim follows from the others; a solver that gives up fails."""
    solver = z3.Solver()
    solver.set("timeout", 60_000)
    solver.add(*claims[:-1], z3.Not(claims[-1]))
    found = solver.check()
    assert found != z3.unknown, solver.reason_unknown()
    return found == z3.unsat


def test_squares_of_a_narrow_entry_fit_into_32_bits():
    """Replaces "So the squares are at most (U + 2) (2.5 U + 400) < 2^32."

    In a chunk the first terms of t add up to at most u + 257 with u <= U + 1/2, and the
    second ones, of a center c, to at most c U / 2^15 + 128. No term exceeds U + 2.
    """
    u, first, second = z3.Reals("u first second")
    n = z3.Int("n")  # U
    assert holds(
        n >= 0,
        n <= NARROW,
        u <= z3.ToReal(n) + z3.RealVal("1/2"),
        first <= u + 257,
        second <= z3.ToReal(n) * CENTER / 2**15 + 128,
        (z3.ToReal(n) + 2) * (first + second) < 2**32,
    )


def test_the_sum_of_32_bits_is_moved_before_it_wraps():
    """Replaces "Integers of entries are added in 32 bits until ...": the invariant."""
    held, bound = z3.Ints("held bound")
    t = [z3.Int(f"t{i}") for i in range(16)]  # of the entries that the kernel takes
    narrow = [z3.And(x >= -(NARROW + 2), x <= NARROW + 2) for x in t]
    before = [bound <= 2**31 - 1 - 16 * 32767, -bound <= held, held <= bound]
    after, total = bound + 16 * 32767, held + z3.Sum(t)
    moved = z3.And(-after <= total, total <= after, after < 2**31)
    assert holds(*narrow, *before, moved)


def test_no_product_of_a_wide_entry_leaves_64_bits():
    """Replaces "u < 2^26, A < 2^42, and larger ones are left out"; sums of squares do
    not wrap."""
    p, a, c, u = (z3.BitVec(name, 64) for name in "pacu")
    tables = [p >= 0, p < 2**15, c >= 0, c < 2**15, a >= 0, a < 2**42, u >= 0]
    fits = z3.And(
        z3.BVMulNoOverflow(p, a, True),
        z3.BVAddNoOverflow(p * a, z3.BitVecVal(2**14, 64), True),
        z3.BVMulNoOverflow(c, u, True),
    )
    assert holds(*tables, u < 2**26, fits)
    cells, piece, square = z3.Ints("cells piece square")
    # 2^16 topics of one word, added to what stops at 2^56
    assert holds(
        *(x >= 0 for x in (cells, piece, square)),
        cells <= 256,
        square <= 2**48,
        piece <= 2**56,
        piece + cells * square < 2**63,
    )


def test_a_vector_below_the_radius_squares_within_64_bits():
    """``radius * radius`` and the sums of squares of ``_clip.h`` do not wrap."""
    radius, above, square = z3.Reals("radius above square")
    assert holds(
        radius >= 1,
        radius <= MAX_RADIUS,
        above == radius * (1 + z3.RealVal("1/524288")),  # 1 + 2^-19
        square <= above * above,
        z3.And(square < 2**61, above < 2**31),
    )


def test_a_split_of_the_radius_stays_in_it():
    """``count_unit`` and ``Rules.rest``: the root of a floor is never too long."""
    radius, n, quotient, unit, share, rest = z3.Ints(
        "radius n quotient unit share rest"
    )
    assert holds(
        radius >= 1,
        n >= 1,
        quotient >= 0,
        quotient * n <= radius * radius,
        unit >= 0,
        unit * unit <= quotient,
        n * unit * unit <= radius * radius,
    )
    assert holds(
        share >= 0,
        share <= radius,
        rest >= 0,
        rest * rest <= radius * radius - share * share,
        rest * rest + share * share <= radius * radius,
    )


def test_counts_of_documents_and_users_leave_the_words_their_share():
    """Replaces "c >= 15 e, so 2 (10 e)^2 <= c^2", where e = R // 150 and c = R //
    10."""
    radius, c, e = z3.Ints("radius c e")
    most = DOCS_OF_A_USER
    floors = [radius >= 0, c == radius / COUNT_SHARE, e == radius / (15 * most), e >= 0]
    assert holds(*floors, c >= 15 * e)
    assert holds(e >= 0, c >= 15 * e, 2 * (most * e) * (most * e) <= c * c)


def test_all_doubles_below_one_have_their_share_of_the_words():
    """Replaces "A unit takes part for the words below floor(2^64 q)", never above the
    rate."""
    rate, to_nearest, down = z3.FP("rate", z3.Float64()), z3.RNE(), z3.RTZ()
    words = z3.FPVal(2.0**64, z3.Float64())
    is_rate = [z3.fpGEQ(rate, z3.FPVal(0.0, z3.Float64())), z3.fpLT(rate, 1.0)]
    product = z3.fpMul(to_nearest, rate, words)
    assert holds(*is_rate, z3.fpEQ(z3.fpDiv(to_nearest, product, words), rate))
    below = z3.And(
        z3.fpGEQ(product, z3.FPVal(0.0, z3.Float64())), z3.fpLT(product, words)
    )
    assert holds(*is_rate, below)
    p = z3.FP("p", z3.Float64())
    floor = z3.fpToUBV(down, p, z3.BitVecSort(64))
    found = z3.fpUnsignedToFP(z3.RTP(), floor, z3.Float64())
    in_range = [z3.fpGEQ(p, z3.FPVal(0.0, z3.Float64())), z3.fpLT(p, words)]
    assert holds(*in_range, z3.fpLEQ(found, p))


def test_masks_of_pairs_cancel_modulo_2_to_the_64():
    """Replaces "Masks of a pair cancel in the sum", and the largest sum has its
    sign."""
    sums = [z3.BitVec(f"s{i}", 64) for i in range(4)]
    sent = list(sums)
    for i in range(4):
        for j in range(i + 1, 4):
            mask = z3.BitVec(f"m{i}{j}", 64)
            sent[i], sent[j] = sent[i] + mask, sent[j] - mask
    assert holds(sum(sent[1:], sent[0]) == sum(sums[1:], sums[0]))
    n, noise = z3.Ints("n noise")  # documents, and noise of 50 parties
    assert holds(
        n >= 0,
        n < 2**29,
        noise >= -50 * 2**24,
        noise <= 50 * 2**24,
        z3.And(
            n * MAX_RADIUS + noise < MAX_RADIUS**2,
            -n * MAX_RADIUS + noise >= -(MAX_RADIUS**2),
        ),
    )
