"""Every input of the integer arithmetic of the kernels, in C, on each instruction set.

The programs are in ``enumerated/``, and include the shipped headers. Where a type is
too wide to visit its values, ``test_lemmas_enumerated.py`` has a lemma.
"""

import pytest
import shipped

from dplda.kernels._sets import INSTRUCTION_SETS

SETS = range(len(INSTRUCTION_SETS))


@pytest.fixture(scope="module")
def products(tmp_path_factory):
    return shipped.compiled(tmp_path_factory.mktemp("products"), "products")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Loops over single numbers, for processors without vectors."""
    folder = tmp_path_factory.mktemp("plain")
    return shipped.compiled(folder, "products", "-DDPLDA_PLAIN", "-O1")


@pytest.mark.ci
@pytest.mark.parametrize("chosen", SETS, ids=INSTRUCTION_SETS)
def test_a_product_of_16_bits_is_rounded_for_all_pairs(products, chosen):
    """Replaces "The products are those of the instruction pmulhrsw": R(a b / 2^15)."""
    assert shipped.run(products, "products", chosen) == {"cases": 2**30, "wrong": 0}


@pytest.mark.ci
@pytest.mark.parametrize("chosen", SETS, ids=INSTRUCTION_SETS)
def test_the_integer_of_an_entry_is_at_most_two_above_u(products, chosen):
    """Replaces "So |t| <= U + 2": each p, A and e against the least U that roundings
    allow."""
    found = shipped.run(products, "entries", chosen)
    assert found == {"cases": 1_157_726_208, "negative": 0, "largest": 2}


@pytest.mark.ci
@pytest.mark.parametrize("chosen", SETS, ids=INSTRUCTION_SETS)
def test_multipliers_are_no_larger_than_their_floats_allow(products, chosen):
    """Replaces "A <= a + 1/2" and "for e > 0, 2^e a < 256", at the ends of each A."""
    found = shipped.run(products, "multipliers", chosen, 97)
    assert found["wrong"] == 0
    assert found["cases"] > 10**7


@pytest.mark.ci
@pytest.mark.parametrize("chosen", SETS, ids=INSTRUCTION_SETS)
def test_sums_and_squares_of_32_bits_are_exact_for_every_u(products, chosen):
    """Replaces "Their squares fit into 32 bits. Sums fit.", at the largest integers of
    each U."""
    found = shipped.run(products, "sums", chosen)
    assert found["wrong"] == 0
    assert found["cases"] > 10**6


@pytest.mark.slow
def test_single_numbers_have_the_same_arithmetic(plain):
    for check in ("products", "signed", "entries", "sums"):
        found = shipped.run(plain, check, 0)
        assert found.pop("cases") > 10**6
        assert found in ({"wrong": 0}, {"negative": 0, "largest": 2})


@pytest.mark.slow
@pytest.mark.parametrize("chosen", SETS, ids=INSTRUCTION_SETS)
def test_all_sums_of_responsibilities_have_their_multipliers(products, chosen):
    found = shipped.run(products, "multipliers", chosen, 1)
    assert found["wrong"] == 0
    assert found["cases"] > 10**9


def test_no_clipped_vector_is_longer_than_its_radius(tmp_path):
    """Replaces "Its integer norm is at most the radius, by the comparison itself."

    All whole vectors of two cells, and lengths that come out too short. Rounding leaves
    some too long at first, and leaves none of them out.
    """
    found = shipped.run(shipped.compiled(tmp_path, "clip"))
    assert found.pop("cases") > 2 * 10**6
    assert found.pop("seconds") > 10**4
    assert found == {"too_long": 0, "left_out": 0, "short_of": 0}
