"""The accountant next to dp_accounting, which it follows operation by operation: equal bits."""

import logging
import math

import numpy as np
import pytest
from oracle import Oracle
from reference_accounting import to_dp_event

from dplda.privacy import (
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    ZeroConcentrated,
)
from dplda.privacy._bounds_on_epsilon import divergence, gaussian_multiplier
from dplda.privacy._composed_losses import _distribution, loss_distribution_epsilon
from dplda.privacy._loss_distributions import (
    _PIECE,
    GaussianLoss,
    LossDistribution,
    Losses,
    _range_of_power,
    gaussian_distribution,
    laplace_distribution,
)
from dplda.privacy._renyi import (
    ORDERS,
    epsilon_of_divergences,
    laplace_divergence,
    sampled_gaussian_divergence,
)
from dplda.privacy._sampled_losses import hockey_stick, sampled_distribution

PLD, MECHANISMS = "dp_accounting.pld", "dp_accounting.pld.privacy_loss_mechanism"
pld = Oracle(f"{PLD}.privacy_loss_distribution")
compute_self_convolve_bounds = Oracle(f"{PLD}.common", "compute_self_convolve_bounds")
DensePLDPmf = Oracle(f"{PLD}.pld_pmf", "DensePLDPmf")
_get_epsilon_for_delta = Oracle(f"{PLD}.pld_pmf", "_get_epsilon_for_delta")
create_pmf_pessimistic_connect_dots_fixed_gap = Oracle(
    f"{PLD}.pld_pmf", "create_pmf_pessimistic_connect_dots_fixed_gap"
)
AdjacencyType = Oracle(MECHANISMS, "AdjacencyType")
LibraryLoss = Oracle(MECHANISMS, "GaussianPrivacyLoss")
get_sigma_gaussian = Oracle("dp_accounting", "get_sigma_gaussian")
RdpAccountant = Oracle("dp_accounting.rdp", "RdpAccountant")
compute_epsilon = Oracle("dp_accounting.rdp", "compute_epsilon")

NOISES = [0.7, 3.1, 12.0]
GRID = 5e-3
DELTAS = [0.1, 1e-3, 1e-6, 1e-9]
EPSILONS = [0.0, 0.01, 0.3, 1.0, 2.5, 30.0, math.inf]


def library_epsilon(library, delta):
    """The library's search. Large distributions hand it losses that were added up: not here."""
    return max(_epsilon_of_one(pmf, delta) for pmf in (library._pmf_remove, library._pmf_add))


def _epsilon_of_one(pmf, delta):
    if not isinstance(pmf, DensePLDPmf):
        return pmf.get_epsilon_for_delta(delta)
    losses = (np.arange(pmf.size)[::-1] + pmf._lower_loss) * pmf._discretization
    return _get_epsilon_for_delta(pmf._infinity_mass, losses, np.flip(pmf._probs), delta)


def assert_equal_bits(ours, library):
    epsilons = [ours.get_epsilon_for_delta(d) for d in DELTAS]
    assert epsilons == [library_epsilon(library, d) for d in DELTAS]
    added_up = [library.get_epsilon_for_delta(d) for d in DELTAS]
    np.testing.assert_allclose(epsilons, added_up, 1e-9, 1e-9)
    deltas = ours.get_delta_for_epsilon(EPSILONS)
    np.testing.assert_allclose(deltas, library.get_delta_for_epsilon(EPSILONS), 1e-9, 1e-15)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_distributions_and_their_powers_have_the_bits_of_the_library(kind, noise):
    make = gaussian_distribution if kind == "gaussian" else laplace_distribution
    ours = make(noise, GRID)
    library = getattr(pld, f"from_{kind}_mechanism")(noise, value_discretization_interval=GRID)
    assert_equal_bits(ours, library)
    for count in (1, 2, 17):
        assert_equal_bits(ours.self_compose(count), library.self_compose(count))


def test_distributions_of_few_points_agree_up_to_rounding():
    """The library multiplies them out, and here they are transformed."""
    ours = laplace_distribution(90.0, GRID)
    library = pld.from_laplace_mechanism(90.0, value_discretization_interval=GRID)
    assert len(ours.removed.masses) < 10
    for power in (ours.self_compose(2), ours.compose(ours)):
        for delta in (1e-2, 1e-3):
            expected = library.self_compose(2).get_epsilon_for_delta(delta)
            assert power.get_epsilon_for_delta(delta) == pytest.approx(expected, rel=1e-10)


def test_compositions_have_the_bits_of_the_library():
    grid = {"value_discretization_interval": GRID}
    ours = gaussian_distribution(3.1, GRID).self_compose(3).compose(laplace_distribution(2.0, GRID))
    library = pld.from_gaussian_mechanism(3.1, **grid).self_compose(3)
    library = library.compose(pld.from_laplace_mechanism(2.0, **grid))
    assert_equal_bits(ours, library)
    assert_equal_bits(ours.compose(ours), library.compose(library))


def library_sampled(q, noise, interval):
    """The library's distribution from the library's laws, on the grid of the library."""
    laws = []
    for change in (AdjacencyType.REMOVE, AdjacencyType.ADD):
        loss = LibraryLoss(noise, sampling_prob=q, adjacency_type=change)
        bounds = loss.connect_dots_bounds()
        first = math.floor(bounds.epsilon_lower / interval)
        last = math.ceil(bounds.epsilon_upper / interval)
        epsilons = np.arange(first, last + 1) * interval
        deltas = hockey_stick(loss, epsilons, removed=change is AdjacencyType.REMOVE)
        laws.append(create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas))
    return pld.PrivacyLossDistribution(*laws)


@pytest.mark.parametrize(("q", "noise"), [(0.01, 0.8), (0.2, 2.0), (0.9, 30.0), (1 - 1e-12, 1.0)])
def test_sampled_steps_have_the_bits_of_the_library(q, noise):
    ours, library = sampled_distribution(q, noise, GRID), library_sampled(q, noise, GRID)
    assert_equal_bits(ours, library)
    assert_equal_bits(ours.self_compose(40), library.self_compose(40))
    assert_equal_bits(ours.compose(ours), library.compose(library))
    mixed = gaussian_distribution(noise, GRID).compose(ours)
    gaussian = pld.from_gaussian_mechanism(noise, value_discretization_interval=GRID)
    assert_equal_bits(mixed, gaussian.compose(library))


@pytest.mark.parametrize("q", [0.2, 1.0])
@pytest.mark.parametrize("removed", [True, False])
def test_laws_have_the_bits_of_the_library(q, removed):
    change = AdjacencyType.REMOVE if removed else AdjacencyType.ADD
    ours = GaussianLoss(1.7, q, removed)
    library = LibraryLoss(1.7, sampling_prob=q, adjacency_type=change)
    bounds = library.connect_dots_bounds()
    assert ours.range() == (bounds.epsilon_lower, bounds.epsilon_upper)
    x = np.linspace(-40.0, 40.0, 1001)
    assert (ours.mu_upper_cdf(x) == library.mu_upper_cdf(x)).all()
    with np.errstate(divide="ignore"):
        assert (ours.mu_lower_log_cdf(x) == library.mu_lower_log_cdf(x)).all() or q == 1.0


@pytest.mark.parametrize(("flip", "n_buckets"), [(0.3, 3), (0.9, 40)])
def test_responses_of_many_values_cost_what_the_library_says(flip, n_buckets):
    ours = _distribution(RandomizedResponseEvent(flip, n_buckets), GRID)
    library = pld.from_randomized_response(flip, n_buckets, value_discretization_interval=GRID)
    for count in (1, 2, 9, 30):
        powers = ours.self_compose(count), library.self_compose(count)
        for delta in (1e-2, 1e-5):
            found, expected = (p.get_epsilon_for_delta(delta) for p in powers)
            assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("noise", NOISES)
def test_divergences_have_the_bits_of_the_library(noise):
    logging.getLogger("absl").setLevel(logging.ERROR)  # orders that do not converge
    for event in (Gaussian(noise), Laplace(noise), ZeroConcentrated(noise)):
        library = RdpAccountant().compose(to_dp_event(event)).rdp
        assert (divergence(event, None) == library).all()
    orders = (1.3, 2.5, 9.9, *range(2, 20), 64, 256)
    library = RdpAccountant(orders).compose(to_dp_event(PoissonSampled(0.2, Gaussian(noise)))).rdp
    ours = np.array([sampled_gaussian_divergence(0.2, noise, a) for a in orders])
    assert (ours == library).all()
    for delta in (*DELTAS, 0.0):
        for count in (1, 50):
            expected = compute_epsilon(orders, count * library, delta)[0]
            assert epsilon_of_divergences(orders, count * library, delta) == expected


def test_the_orders_are_those_of_the_library():
    assert tuple(RdpAccountant().orders) == ORDERS


def test_a_laplace_step_is_accurate_near_order_1():
    assert laplace_divergence(2.0, 1.0 + 1e-9) == pytest.approx(2.0 + math.expm1(-2.0), rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 4.0, 60.0])
def test_multipliers_have_the_bits_of_the_library(epsilon):
    for delta in (0.3, 1e-6, 1e-12):
        assert gaussian_multiplier(epsilon, delta) == get_sigma_gaussian(epsilon, delta)


def test_losses_of_a_fine_grid_do_not_drift():
    """Added up point by point, they are wrong by 2e-10 here: epsilon was too small."""
    groups = ((PoissonSampled(0.5, Gaussian(0.3)), 1),)
    epsilon = loss_distribution_epsilon(groups, 1e-3, known=1.0)
    assert hockey_stick(GaussianLoss(0.3, 0.5), np.array([epsilon]), removed=True)[0] <= 1e-3


def test_both_orders_of_neighbors_count():
    cheap, dear = gaussian_distribution(9.0, GRID).removed, gaussian_distribution(2.0, GRID).removed
    expected = LossDistribution(dear).get_epsilon_for_delta(1e-6)
    for pair in ((cheap, dear), (dear, cheap)):
        both = LossDistribution(*pair)
        assert both.get_epsilon_for_delta(1e-6) == expected
        assert (both.get_delta_for_epsilon([1.0]) == dear.get_delta_for_epsilon([1.0])).all()


def test_no_finite_epsilon_below_the_mass_at_infinity():
    losses = Losses(0.1, 0, np.array([0.5, 0.4]), 0.1)
    assert losses.get_epsilon_for_delta(0.09) == math.inf
    assert losses.get_epsilon_for_delta(0.11) < math.inf
    assert losses.compose(losses).infinite == pytest.approx(0.19)
    assert losses.self_compose(3).infinite == pytest.approx(1 - 0.9**3)


@pytest.mark.parametrize("center", [-900.0, -3.0, 0.0, 3.0, 700.0, 800.0])
@pytest.mark.parametrize("infinite", [0.0, 1e-7])
def test_the_search_in_pieces_ends_where_the_librarys_does(center, infinite):
    n = 3 * _PIECE + 17
    rng = np.random.default_rng(0)
    shape = np.exp(-0.5 * (np.arange(n) / 2000 - 3.0) ** 2) * rng.uniform(size=n)
    masses = (1 - infinite) * shape / shape.sum()
    losses = Losses(0.005, round((center - 30.0) / 0.005), masses, infinite)
    of_masses = (np.arange(n)[::-1] + losses.first) * losses.interval
    last = 0.0 if of_masses[0] < 0 else math.inf  # the library takes no exponential of so much
    for delta in (2e-8, 2e-7, 1e-3, 0.3, 0.9):
        expected = last
        if of_masses[-1] > -700 or infinite > delta:
            with np.errstate(over="ignore"):
                expected = _get_epsilon_for_delta(infinite, of_masses, masses[::-1], delta)
        assert losses.get_epsilon_for_delta(delta) == expected


@pytest.mark.parametrize("count", [1, 2, 80, 10**6])
def test_the_range_of_a_power_is_the_librarys(count):
    for losses in (gaussian_distribution(3.1, GRID), sampled_distribution(0.01, 0.8, GRID)):
        masses = losses.removed.masses
        expected = compute_self_convolve_bounds(masses, count, 1e-15)
        assert _range_of_power(masses, count) == expected


@pytest.mark.parametrize("deltas", [[0.1, 0.2], [1.1, 0.2], [0.5, -0.1], [0.5, math.nan]])
def test_only_a_curve_of_deltas_is_connected(deltas):
    with pytest.raises(ValueError, match="delta"):
        Losses.connect(0.1, 0, np.array(deltas))


def test_losses_far_below_zero_count_for_no_epsilon():
    """Their ratio of masses is no float, and the mass may be zero."""
    masses = np.array([0.0, 0.5, 0.5])
    near, far = Losses(1.0, -1, masses, 0.0), Losses(800.0, -2, masses, 0.0)
    assert near.get_delta_for_epsilon([0.0])[0] == pytest.approx(0.5 * (1 - np.exp(-1)))
    assert far.get_delta_for_epsilon([0.0, 1.0]).tolist() == [0.0, 0.0]
