"""Residual tests of samples: each document takes part at its rate, in each round anew."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from dplda.audit._residual_result import LEVEL, ResidualTest


def sample_tests(samples: list[tuple[np.ndarray, np.ndarray]]) -> list[ResidualTest]:
    """Rates of the secret samples, and how often a document is in two of them."""
    drawn = [(rates, _members(rates, rows)) for rates, rows in samples if (rates < 1).any()]
    if not drawn:
        return []
    rates = np.concatenate([rates[rates < 1] for rates, _ in drawn])
    members = np.concatenate([member[rates < 1] for rates, member in drawn])
    tests = [_rate_test("share of documents that a round samples", rates, members, LEVEL)]
    pairs = [
        _pair_test(one, two, LEVEL / math.comb(len(drawn), 2))
        for one, two in itertools.combinations(drawn, 2)
    ]
    return tests + ([max(pairs, key=_distance)] if pairs else [])


def _members(rates: np.ndarray, rows: np.ndarray) -> np.ndarray:
    member = np.zeros(len(rates), bool)
    member[rows] = True
    return member


def _pair_test(one: Any, two: Any, level: float) -> ResidualTest:
    """Members of a sample among those of another: given the other one, coins at their rates."""
    rates, member = two
    both = one[1] & (rates < 1)
    name = "share of a round's sample that another round samples again"
    return _rate_test(name, rates[both], member[both], level)


def _distance(test: ResidualTest) -> float:
    """How far a statistic is from the middle of its range, in half widths."""
    half = (test.high - test.low) / 2
    return abs(test.statistic - (test.high + test.low) / 2) / half if half > 0 else 0.0


def _rate_test(name: str, rates: np.ndarray, member: np.ndarray, level: float) -> ResidualTest:
    """Share of coins that show 1, with a Chernoff bound, which holds for unequal rates."""
    n = len(rates)
    if n == 0:
        return ResidualTest(name, 0.0, 0.0, 1.0)
    rate, most = float(rates.mean()), -math.log(level / 2) / n
    shares = np.arange(n + 1) / n
    inside = shares[_divergence(shares, rate) <= most]
    return ResidualTest(name, float(member.mean()), float(inside[0]), float(inside[-1]))


def _divergence(shares: np.ndarray, rate: float) -> np.ndarray:
    """Kullback-Leibler divergence of coins with rates `shares` from coins with rate `rate`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where(shares > 0, shares * np.log(shares / rate), 0.0)
        zero = np.where(shares < 1, (1 - shares) * np.log((1 - shares) / (1 - rate)), 0.0)
    return one + zero
