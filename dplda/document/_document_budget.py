"""The privacy of a document-level fit: mechanisms, schedule, plan and guarantee.

Everything here is a function of public parameters, and of neither data nor releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from dplda.core._fit_guarantee import make_guarantee
from dplda.core._private_fit import Noise
from dplda.core._signal import FEWEST_WITH_TEST
from dplda.leaf._users import ROWS_OF_A_UNIT, relation_of
from dplda.privacy import (
    Gaussian,
    Guarantee,
    NonPrivate,
    PoissonSampled,
    Repeated,
    calibrate,
    epsilon_of,
)
from dplda.privacy._charge import Charge
from dplda.privacy._curator import SPARE, sampled
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import (
    MAX_RADIUS,
    MIN_RADIUS,
    NOISE_VARIANCE,
    ROUNDING_VARIANCE,
    NoNoise,
)
from dplda.privacy._sums import ALONE, Shares

WORD_TOTALS = "word totals"
WORD_TOPIC_COUNTS = "word-topic counts"

# Figures like -2 / -1 are points of the share of the gap, at epsilon 1 and 4, that a
# change gives (docs/results.md).
# Share of the budget for the two releases of word totals before round 1. 0.1: -3 / -3.
# A share that grows to 0.75 for few documents changes perplexity by -0.3% to +2.4% (300
# documents of KOS, BBC and NIPS, and all of them, at epsilon 0.5, 1 and 4).
SHARE_OF_TOTALS = 0.25
# Largest noise multiplier of a round: more leaves no signal on the integer grid.
LARGEST_NOISE = math.isqrt(NOISE_VARIANCE - ROUNDING_VARIANCE) // MIN_RADIUS
# Smallest noise multiplier that the integer grid can express.
SMALLEST_NOISE = math.sqrt(NOISE_VARIANCE - ROUNDING_VARIANCE) / MAX_RADIUS
# L2 norm to which documents are scaled. 3, 12: perplexity of KOS changes by below 0.1%
NORM = 6.0
CLIP = 0.4  # clipping bound of a round, over NORM. 0.3: -3 / -2, 0.55: -2 / -2
# Without sampling, the budget of round t grows like t to this power. 0: -2 / -1, and
# fewer topics are shown (docs/decisions.md, record 36).
LATER_BUDGET = 0.75
# Smallest sampling rate: far below it, accounting takes minutes and then overflows.
SMALLEST_RATIO = 1e-8
TESTED = 40  # one round in so many tests the topics, but at least two rounds
# Limits of the default number of rounds (docs/decisions.md, record 14).
FEWEST_ROUNDS = 80
MOST_ROUNDS = 400
N_PASSES = FEWEST_ROUNDS  # default number of rounds in which a document takes part

EXACT = "word totals and word-topic counts, some or all of them exact, without noise"
PUBLIC_START = (
    "prior_components is public and was not made of the private documents, or only of "
    "releases that are charged in addition"
)
PUBLIC_VECTORS = "word_vectors is public, and was not made of the private documents"
OTHER_DOCUMENTS = (
    "no document of this fit is in the fits that were added as earlier, and which fit "
    "it is in does not depend on other documents"
)


class Round(NamedTuple):
    """The settings of a round, fixed before it begins; public."""

    number: int  # from 1; the sample has the stream number - 1
    stream: int  # number of the noise stream
    mechanism: Noise  # noise of the released sum
    rate: float  # highest probability with which a unit takes part
    norm: float  # clipping bound, in L2
    power: float  # tempering power of p(word | topic)
    n_in_average: int  # rounds of topics up to this one, which the average holds
    n_in_last_average: int  # rounds of topics in the whole fit
    for_totals: bool  # whether the round releases word totals
    for_test: bool  # whether the round tests the topics


@dataclass(frozen=True)
class DocumentBudget:
    """The mechanisms of a fit."""

    totals: Sequence[Noise]  # one for each of the two releases of word totals
    rounds: Sequence[Noise]  # one for each round
    # highest probability with which a unit takes part in a round
    subsampling_ratio: float
    noise_multiplier: float  # of an average round; 0 without noise
    # standard deviation of a cell of the average of all rounds, over `NORM`
    noise: float
    # Further attempts that are charged if parties are lost. Each is charged as a round
    # without sampling: a unit in the sample of a failed attempt is in the next sample.
    n_spare: int = 0
    n_tests: int = 0  # rounds, the last ones of a fit, that test the topics

    @property
    def exact(self) -> bool:
        """Whether there is no noise."""
        return self.rounds[0].exact

    def plan(self, n_done: int, n_rounds: int) -> list[tuple[str, Event]]:
        """Label and event of each release of the `n_rounds` rounds after `n_done`."""
        events: dict[Noise, Event] = {}  # equal events are one object
        plan: list[tuple[str, Event]] = []
        if n_done == 0:
            plan = [(WORD_TOTALS, mechanism.event) for mechanism in self.totals]
        for number in range(n_done + 1, n_done + n_rounds + 1):
            mechanism = self.mechanism_of(number)
            if mechanism not in events:
                events[mechanism] = sampled(mechanism.event, self.subsampling_ratio)
            plan.append((WORD_TOPIC_COUNTS, events[mechanism]))
        if self.n_spare:
            loudest = max(self.rounds, key=attrgetter("radius"))
            plan.extend([(SPARE, loudest.event)] * self.n_spare)
        return plan

    def mechanism_of(self, t: int) -> Noise:
        """The mechanism of round `t`, from 1; after the last, the last one repeats."""
        return self.rounds[min(t, len(self.rounds)) - 1]

    def schedule(
        self,
        n_done: int,
        n_rounds: int,
        *,
        share_for_totals: float,
        powers: tuple[float, float],
    ) -> list[Round]:
        """The `n_rounds` rounds after the first `n_done`; public.

        The last rounds of a fit test the topics. Of the others, the share
        `share_for_totals` releases word totals. These rounds are spread evenly and
        never include round 1, because an average needs a round of topics. The tempering
        power grows from the first of `powers` to the second, so that early noise in a
        word's row does not reinforce itself.
        """
        max_iter = len(self.rounds)
        learning = max_iter - self.n_tests
        low, high = powers

        def n_learning(t: int) -> int:
            """Rounds without a test among the first t."""
            return t - min(max(t - learning, 0), self.n_tests)

        def n_topics(t: int) -> int:
            """Rounds of topics among the first t."""
            return n_learning(t) - int(n_learning(t) * share_for_totals)

        schedule = []
        for number in range(n_done + 1, n_done + n_rounds + 1):
            for_test = learning < number <= max_iter
            for_totals = not for_test and n_topics(number) == n_topics(number - 1)
            progress = min(1.0, (number - 1) / learning)
            this_round = Round(
                number=number,
                stream=len(self.totals) + number,
                mechanism=self.mechanism_of(number),
                rate=self.subsampling_ratio,
                norm=NORM if for_totals else CLIP * NORM,
                power=low + (high - low) * progress,
                n_in_average=n_topics(number),
                n_in_last_average=n_topics(max_iter),
                for_totals=for_totals,
                for_test=for_test,
            )
            schedule.append(this_round)
        return schedule


def n_tests(max_iter: int) -> int:
    """Number of rounds, at the end of a fit, that test the topics."""
    if max_iter < FEWEST_WITH_TEST:
        return 0
    return max(2, round(max_iter / TESTED))


@lru_cache(maxsize=16)  # each call of `partial_fit` asks for the same budget
def document_budget(
    epsilon: float | None,
    noise_multiplier: float | None,
    delta: float,
    *,
    max_iter: int | None,
    subsampling_ratio: float,
    n_passes: int = N_PASSES,
    shares: Shares = ALONE.shares,
) -> DocumentBudget:
    """The mechanisms of a fit with a total `epsilon`, or with a `noise_multiplier`.

    Exactly one of the two is given. The plan of the result costs at most `epsilon` at
    `delta`. `max_iter` None takes as many rounds as let each document take part
    `n_passes` times, from 80 to 400: with fewer, most documents would hardly take part
    at a small rate; more gain little for their time (`benchmarks/fits.py`).

    Raises
    ------
    ValueError
        If `epsilon` does not pay for `max_iter` rounds with any signal.
    """
    if max_iter is None:
        enough = max(FEWEST_ROUNDS, round(n_passes / subsampling_ratio))
        max_iter = min(MOST_ROUNDS, enough)
    max_iter = int(max_iter)
    if epsilon == math.inf:
        exact = [NoNoise()] * max_iter
        return DocumentBudget(
            exact[:1] * 2, exact, subsampling_ratio, 0.0, 0.0, shares.n_spare
        )
    if noise_multiplier is not None:
        return _split(float(noise_multiplier), max_iter, subsampling_ratio, shares)
    assert epsilon is not None
    distance = shares.total_variation

    def noise_of(n_rounds: int) -> float:
        def plan_of(multiplier: float) -> list[Event]:
            return _merged_plan(multiplier, n_rounds, subsampling_ratio, shares)

        return calibrate(plan_of, epsilon, delta, total_variation=distance)

    totals = Repeated(Gaussian(LARGEST_NOISE), 2)
    is_paid = epsilon_of(totals, delta, total_variation=distance) <= epsilon
    most = max_iter if is_paid else 0
    multiplier = noise_of(most) if most else 0.0
    while multiplier > LARGEST_NOISE:
        most = math.floor(most * (LARGEST_NOISE / multiplier) ** 2)
        multiplier = noise_of(most) if most else 0.0
    if most < max_iter:  # a few more if rounding to the integer grid allows it
        paid = f"about max_iter={most} rounds at most" if most else "not even one round"
        raise ValueError(
            f"epsilon={epsilon:g} with delta={delta:g} pays for {paid}, got "
            f"max_iter={max_iter}: the noise of more rounds would leave no signal; "
            "raise epsilon, or lower max_iter"
        )
    excess = 1e-9  # the plan that runs may cost a little more than the merged plan
    while True:
        budget = _split(multiplier, max_iter, subsampling_ratio, shares)
        plan = [event for _, event in budget.plan(0, max_iter)]
        if epsilon_of(plan, delta, total_variation=distance) <= epsilon:
            return budget
        multiplier *= 1.0 + excess
        excess *= 2.0


def _split(
    noise_multiplier: float, max_iter: int, subsampling_ratio: float, shares: Shares
) -> DocumentBudget:
    """Split the budget of `max_iter` equal rounds at a noise multiplier."""
    of_totals, of_rounds = _multipliers(noise_multiplier, max_iter, subsampling_ratio)
    gaussian = lru_cache(shares.gaussian)
    totals = [gaussian(m) for m in of_totals.tolist()]
    rounds = [gaussian(m) for m in of_rounds.tolist()]
    # noise scale of a cell in each round of topics, over NORM
    scales = CLIP * np.array([m.scale / m.radius for m in rounds]) / subsampling_ratio
    tests = n_tests(max_iter)
    scales = scales[: max_iter - tests]
    weight = np.arange(1.0, len(scales) + 1) ** 2  # of a round in the average
    noise = float(np.linalg.norm(weight * scales) / weight.sum())
    return DocumentBudget(
        totals,
        rounds,
        subsampling_ratio,
        noise_multiplier,
        noise,
        shares.n_spare,
        tests,
    )


def _merged_plan(
    noise_multiplier: float, max_iter: int, subsampling_ratio: float, shares: Shares
) -> list[Event]:
    """The plan of a fit, in few events of the same cost, which are faster to price.

    It also prices noise above `LARGEST_NOISE`, which no mechanism has, so that a search
    can pass through it.
    """
    totals, rounds = _multipliers(noise_multiplier, max_iter, subsampling_ratio)
    totals = _on_grid(totals, shares)
    rounds = _on_grid(rounds, shares)
    spare = np.full(shares.n_spare, rounds.min())
    if subsampling_ratio == 1:
        return [Gaussian(1 / math.hypot(*(1 / totals), *(1 / rounds), *(1 / spare)))]
    one_round = sampled(Gaussian(float(rounds[0])), subsampling_ratio)  # all are equal
    return [
        *(Gaussian(float(m)) for m in (*totals, *spare)),
        Repeated(one_round, max_iter),
    ]


def _on_grid(multipliers: np.ndarray, shares: Shares) -> np.ndarray:
    """The noise multipliers to which `Shares.gaussian` rounds `multipliers`."""
    width = math.sqrt(shares.n_honest * NOISE_VARIANCE - ROUNDING_VARIANCE)
    radii = np.minimum(np.floor(width / multipliers), MAX_RADIUS)
    on_grid = width / np.maximum(radii, 1.0)
    return np.where(multipliers <= LARGEST_NOISE, on_grid, multipliers)


def _multipliers(
    noise_multiplier: float, max_iter: int, subsampling_ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Noise multipliers of the word totals (2,) and of the rounds (max_iter,)."""
    noise_multiplier = max(noise_multiplier, SMALLEST_NOISE)
    rounds = np.full(max_iter, noise_multiplier)
    # with sampling, all rounds are equal: accounting is far faster for one event
    if subsampling_ratio == 1:
        shares = np.arange(1.0, max_iter + 1) ** LATER_BUDGET
        unequal = noise_multiplier / np.sqrt(max_iter * shares / shares.sum())
        rounds = unequal if unequal[0] <= LARGEST_NOISE else rounds
    # mu**2 of the rounds; with sampling, by the central limit theorem
    precision = max_iter / noise_multiplier**2
    if subsampling_ratio < 1:
        precision = (
            max_iter * subsampling_ratio**2 * np.expm1(min(50.0, noise_multiplier**-2))
        )
    precision *= SHARE_OF_TOTALS / (1 - SHARE_OF_TOTALS)
    of_totals = np.full(2, precision / 2)
    return 1 / np.sqrt(np.maximum(of_totals, LARGEST_NOISE**-2)), rounds


def document_guarantee(
    events: tuple[Event, ...],
    *,
    unit: str,
    paid_before: Guarantee | None,
    norms: Sequence[float],
    mechanism: str,
    assumptions: tuple[str, ...],
    charge: Charge,
    **stated: Any,
) -> Guarantee:
    """The guarantee of this call and of the calls that `paid_before` covers.

    `events` and `norms` are the events of this call and their clipping bounds, in L2.
    `stated` are other arguments of `make_guarantee`.
    """
    scales: list[float] = []
    sensitivity = max(norms)
    all_events = events
    if paid_before is not None:
        scales = [*paid_before.noise_scale]  # type: ignore[misc]  # a tuple
        sensitivity = max(sensitivity, paid_before.sensitivity)
        all_events = paid_before.events + events
    for event, norm in zip(events, norms, strict=True):
        gaussian = event.event if isinstance(event, PoissonSampled) else event
        scales.append(norm * getattr(gaussian, "noise_multiplier", 0.0))
    rate = 0.0
    for event in all_events:
        rate = max(rate, getattr(event, "sampling_probability", 0.0))
    if rate:
        mechanism += f", over a secret sample of the {unit}s (rate {rate:g})"
    if NonPrivate() in all_events:
        mechanism = EXACT
    return make_guarantee(
        events,
        paid_before=paid_before,
        unit=unit,
        charge=charge,
        relation=relation_of(charge.unit),
        mechanism=mechanism,
        sensitivity=sensitivity,
        noise_scale=tuple(scales),
        assumptions=(ROWS_OF_A_UNIT[unit], *assumptions),
        **stated,
    )
