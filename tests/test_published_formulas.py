"""The published formulas of SUB-LDA and of private SVI, against closed forms and printed tables."""

from __future__ import annotations

import math

import pytest
from oracle import Oracle
from sub_lda import without_last_term
from test_accounting import printed, sampled

from dplda.privacy import epsilon_bounds
from dplda.published._sublda import iteration_epsilon
from dplda.published._svilda import vips_noise

dp_event = Oracle("dp_accounting.dp_event")
RdpAccountant = Oracle("dp_accounting.rdp", "RdpAccountant")


# ---- SUB-LDA: equation (3), table 3, lemma 4.1 --------------------------------------------

# Ratio, rounds; right value, value of the sum stopped one term early, printed value; right and
# printed totals; epsilon at delta 1e-5 of a mechanism to which the account applies.
TABLE_3 = [
    (0.1, 92, 0.046457, "0.0464", 0.05, "4.27", 4.6, "2.456"),
    (0.3, 83, 0.771905, "0.7313", 0.73, "64.07", 59.86, "7.819"),
    (0.5, 70, 1.280934, "1.1882", 1.18, "89.67", 82.6, "12.623"),
    (0.7, 66, 1.627338, "1.4752", 1.48, "107.40", 97.86, "17.918"),
    (0.9, 61, 1.889464, "1.6366", 1.63, "115.26", 99.43, "22.821"),
    (1.0, 42, 2.0, None, 2.0, "84.00", 84.0, "20.125"),
]


@pytest.mark.parametrize("row", TABLE_3, ids=lambda row: f"ratio{row[0]}")
def test_sublda_table_3(row):
    ratio, n_rounds, right, stopped, published, right_total, published_total, true_epsilon = row
    value = iteration_epsilon(ratio, 14, 2.0)
    assert value == pytest.approx(right, abs=5.1e-7)
    assert printed(n_rounds * value, right_total)
    assert n_rounds * published == pytest.approx(published_total, abs=1.01)
    noise_multiplier = math.sqrt(14 / (2 * 2.0))
    below, above = epsilon_bounds(sampled(ratio, noise_multiplier, n_rounds), 1e-5)
    assert below - 5e-4 <= float(true_epsilon) <= above + 5e-4
    assert above < below * (1 + 1e-4)
    if stopped is not None:
        without_last = without_last_term(ratio, 14, 2.0)
        assert printed(without_last, stopped)
        assert abs(without_last - published) < 0.009
        assert without_last < value
        library = RdpAccountant([14.0])
        library.compose(
            dp_event.PoissonSampledDpEvent(ratio, dp_event.GaussianDpEvent(noise_multiplier))
        )
        best = library.get_epsilon(1e-300) - math.log1p(-1 / 14)
        assert best + math.log(14e-300) / 13 == pytest.approx(value, abs=1e-11)


@pytest.mark.parametrize("composition", ["zcdp", "advanced", "linear"])
def test_published_budgets_of_a_round_give_the_total_back(composition):
    rate, delta, n = 1e-3, 1e-5, 50
    delta_round = delta / n / (2 if composition == "advanced" else 1)
    noise = vips_noise(2.0, delta, ratio=rate, max_iter=n, composition=composition)
    epsilon_iter = math.sqrt(2 * math.log(1.25 * rate / delta_round)) / noise
    x = math.log1p(rate * math.expm1(epsilon_iter))
    if composition == "advanced":
        total = n * x * math.expm1(x) + math.sqrt(2 * n * math.log(2 / delta)) * x
    elif composition == "linear":
        total = n * x
    else:
        rho = n * x**2 / (4 * math.log(1.25 / delta_round))
        total = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert total == pytest.approx(2.0, rel=1e-9)
