"""Totals of many events: the same bits whatever was composed before, from few new branches."""

import numpy as np
import pytest

from dplda.privacy import Gaussian, PoissonSampled, _composition_trees
from dplda.privacy import _composed_losses as composition
from dplda.privacy._bounds_on_epsilon import grouped


@pytest.mark.parametrize("room", [2**24, 0])
def test_a_total_that_grows_and_shrinks_is_that_of_its_events(monkeypatch, room):
    """To the last bit, whatever branches are kept: also if an entry in the midst is canceled."""
    monkeypatch.setattr(_composition_trees, "_MOST_NUMBERS", room)
    fits = [PoissonSampled(0.1, Gaussian(30.0 + i)) for i in range(9)]
    others = [PoissonSampled(0.2, Gaussian(40.0 + i)) for i in range(6)]
    totals = [
        fits[:8], fits, [*fits[:3], *fits[4:]], others, [*fits[:3], *fits[3:] * 2], fits[1:],
        [*others, *fits], others[:5],
    ]  # fmt: skip
    composition._trees.cache_clear()
    grown = [loss_distribution_of(events) for events in totals]
    for events, total in zip(totals, grown, strict=True):
        composition._trees.cache_clear()
        assert_equal_losses(total, loss_distribution_of(events))


def loss_distribution_of(events, interval=1e-3):
    composition._composed.cache_clear()
    return composition._composed(grouped(events), interval)


def test_a_total_on_another_grid_takes_no_branch_of_this_one():
    fits = [PoissonSampled(0.1, Gaussian(30.0 + i)) for i in range(9)]
    composition._trees.cache_clear()
    coarse = loss_distribution_of(fits, 2e-3)
    fine = loss_distribution_of(fits, 1e-3)
    assert_equal_losses(loss_distribution_of(fits, 2e-3), coarse)
    composition._trees.cache_clear()
    assert_equal_losses(loss_distribution_of(fits, 1e-3), fine)
    assert fine.removed.interval == 1e-3


def assert_equal_losses(ours, theirs):
    for a, b in ((ours.removed, theirs.removed), (ours.added, theirs.added)):
        assert (a.first, a.infinite) == (b.first, b.infinite)
        np.testing.assert_array_equal(a.masses, b.masses)


def test_totals_of_many_fits_are_composed_of_few_branches(monkeypatch):
    """A fit more meets the few others below its branch, and no more trees stay than there are."""
    made = []
    make = composition._repeated_distribution
    monkeypatch.setattr(
        composition, "_repeated_distribution", lambda *of: made.append(of) or make(*of)
    )
    composition._trees.cache_clear()
    fits = [PoissonSampled(0.1, Gaussian(30.0 + i / 7)) for i in range(330)]
    for n in range(320, 330):
        del made[:]
        loss_distribution_of(fits[:n])
        if n > 320:
            assert 0 < len(made) <= 40  # about a thirty-second of them
    assert len(composition._trees._roots) == 1
    # totals of other plans, which a calibration asks for, leave it there
    for i in range(30):
        loss_distribution_of(
            [PoissonSampled(0.3, Gaussian(2.0 + i)), PoissonSampled(0.4, fits[i].event)]
        )
    for i in range(3):
        loss_distribution_of([PoissonSampled(0.5 + j / 100, Gaussian(9.0 + i)) for j in range(9)])
    del made[:]
    loss_distribution_of(fits)
    assert len(made) <= 40


def test_the_trees_that_are_kept_have_a_size(monkeypatch):
    composition._trees.cache_clear()
    sizes = []
    for i in range(20):
        loss_distribution_of([PoissonSampled(0.1, Gaussian(30.0 + i + j / 9)) for j in range(6)])
        sizes.append([root.n_numbers for _, root in composition._trees._roots])
    assert max(map(len, sizes)) == _composition_trees._MOST_TREES
    monkeypatch.setattr(_composition_trees, "_MOST_NUMBERS", 2 * max(map(max, sizes)))
    loss_distribution_of([PoissonSampled(0.1, Gaussian(9.0 + j / 9)) for j in range(6)])
    assert len(composition._trees._roots) <= 2
    monkeypatch.setattr(_composition_trees, "_MOST_NUMBERS", 0)
    loss_distribution_of([PoissonSampled(0.1, Gaussian(8.0 + j / 9)) for j in range(6)])
    assert len(composition._trees._roots) == 1  # the one that was used last
