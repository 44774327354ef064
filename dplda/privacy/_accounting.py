"""The price of a composition of events, and the noise that meets a price."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

from dp_accounting import get_sigma_gaussian

from dplda.privacy import _composition as composition
from dplda.privacy import _search as search
from dplda.privacy._composition import Groups, grouped
from dplda.privacy._events import Event, Gaussian
from dplda.privacy._renyi import subsampled_rdp

__all__ = [
    "calibrate",
    "delta_charge",
    "epsilon_of",
    "gaussian_mu",
    "inherent_epsilon",
    "is_chargeable",
    "is_within",
    "subsampled_rdp",
]

# Beyond this share of delta the distance from the ideal law is not taken out of delta.
_CHARGEABLE_SHARE = 1e-3


def epsilon_of(
    events: Event | Iterable[Event], delta: float, *, total_variation: float = 0.0
) -> float:
    """Epsilon at which the adaptive composition of the events is (epsilon, delta)-DP.

    The smallest of what is valid: the sum of pure epsilons, Renyi divergences (also for
    bounded-range and zCDP events), privacy loss distributions on a grid, and the exact
    closed forms for Gaussian events without sampling and for equal random bits. Every method
    bounds epsilon from above.

    Parameters
    ----------
    events : Event or iterable of Event
        Order does not matter.
    delta : float
        Probability in [0, 1). With ``delta=0`` only the sum of pure epsilons counts.
    total_variation : float, default=0.0
        Distance between the noise that runs and its ideal law, over the whole composition. It
        is taken out of delta, ``delta - (1 + exp(epsilon)) * total_variation``, if that is at
        most a thousandth of delta (`is_chargeable`), and is left out otherwise: the result is
        then the epsilon of the ideal mechanism.

    Returns
    -------
    float
        Zero or more; infinite if some event is not private.
    """
    _check_probability("delta", delta)
    _check_probability("total_variation", total_variation)
    groups = grouped(events)
    epsilon = _epsilon(groups, float(delta))
    if total_variation == 0.0 or not is_chargeable(total_variation, epsilon, delta):
        return epsilon
    return _charged_epsilon(groups, float(delta), total_variation, epsilon)


def _charged_epsilon(groups: Groups, delta: float, total_variation: float, ideal: float) -> float:
    """Smallest power-of-two margin on the charge for which the result pays its own charge."""
    epsilon, charge = ideal, 0.0
    while delta_charge(total_variation, epsilon) > charge:
        charge = 2.0 * delta_charge(total_variation, epsilon)
        if charge >= delta:
            return math.inf
        epsilon = _epsilon(groups, min(delta - charge, math.nextafter(delta, 0.0)))
    return epsilon


@lru_cache(maxsize=1024)
def _epsilon(groups: Groups, delta: float) -> float:
    exact = composition.exact_epsilon(groups, delta) if delta > 0.0 else None
    if exact is not None:
        return min(exact, composition.pure_epsilon(groups))
    known = _quick_epsilon(groups, delta)
    if known in (0.0, math.inf) or delta == 0.0:
        return known
    return min(known, composition.loss_distribution_epsilon(groups, delta, known))


@lru_cache(maxsize=1024)
def _quick_epsilon(groups: Groups, delta: float) -> float:
    """A valid epsilon in milliseconds, up to some ten percent above `_epsilon`."""
    pure = composition.pure_epsilon(groups)
    if delta == 0.0 or composition.has_no_protection(groups):
        return pure
    gaussian = composition.gaussian_epsilon(groups, delta)
    return min(pure, gaussian, composition.renyi_epsilon(groups, delta))


def is_within(
    events: Event | Iterable[Event], epsilon: float, delta: float, *, total_variation: float = 0.0
) -> bool:
    """Whether ``epsilon_of(events, delta) <= epsilon``, without the slow method if it can.

    Parameters
    ----------
    events : Event or iterable of Event
    epsilon, delta : float
        The budget.
    total_variation : float, default=0.0
        As in `epsilon_of`.

    Returns
    -------
    bool
    """
    if epsilon == math.inf:
        return True
    charge = delta_charge(total_variation, epsilon)
    if is_chargeable(total_variation, epsilon, delta):
        quick = _quick_epsilon(grouped(events), max(delta - 2.0 * charge, 0.0))
        if quick <= epsilon:
            return True
    return epsilon_of(events, delta, total_variation=total_variation) <= epsilon


def delta_charge(total_variation: float, epsilon: float) -> float:
    """What a distance from the ideal law adds to delta: ``(1 + exp(epsilon)) * distance``.

    Parameters
    ----------
    total_variation : float
        Bound on the distance between the laws of all outputs, real and ideal, for any data.
    epsilon : float
        Of the ideal mechanism.

    Returns
    -------
    float
        Infinite if the number is too large for a float.
    """
    if total_variation == 0.0:
        return 0.0
    log_charge = math.log(total_variation) + max(epsilon, 0.0) + math.log1p(math.exp(-abs(epsilon)))
    return math.exp(log_charge) if log_charge < 709.0 else math.inf


def is_chargeable(total_variation: float, epsilon: float, delta: float) -> bool:
    """Whether the distance from the ideal law is small enough to be taken out of delta.

    Parameters
    ----------
    total_variation, epsilon, delta : float
        As in `delta_charge` and `epsilon_of`.

    Returns
    -------
    bool
        True if the charge is at most a thousandth of delta. If False, the guarantee reads:
        within this total variation of an (epsilon, delta)-DP mechanism.
    """
    return delta_charge(total_variation, epsilon) <= _CHARGEABLE_SHARE * delta


def calibrate(
    make_events: Callable[[float], Event | Iterable[Event]],
    epsilon: float,
    delta: float,
    *,
    total_variation: float = 0.0,
) -> float:
    """Find the smallest noise multiplier that meets (epsilon, delta).

    Parameters
    ----------
    make_events : callable
        Maps a noise multiplier (or any other noise scale) to the events of the whole fit. Its
        price must fall as the argument grows.
    epsilon, delta : float
        The target, both positive.
    total_variation : float, default=0.0
        As in `epsilon_of`.

    Returns
    -------
    float
        Never too small: `epsilon_of` of its events is at most `epsilon`. Too large by at most
        1e-4 of itself, or 1e-7 if all events are Gaussian and none is sampled.

    Raises
    ------
    ValueError
        If no noise is large enough, since some events do not depend on it.
    """
    _check_target(epsilon, delta)

    def excess(log_noise: float) -> float:
        events = make_events(math.exp(log_noise))
        return _log_ratio(epsilon_of(events, delta, total_variation=total_variation), epsilon)

    def quick_excess(log_noise: float) -> float:
        groups = grouped(make_events(math.exp(log_noise)))
        return _log_ratio(_quick_epsilon(groups, delta), epsilon)

    if all(isinstance(event, Gaussian) for event, _ in grouped(make_events(1.0))):
        answer = _gaussian_root(make_events, gaussian_mu(epsilon, delta))
        return math.exp(search.safe_side(excess, answer, step=1e-10))
    start = search.root(quick_excess, tolerance=5e-3)
    answer = search.root_below(excess, start, tolerance=2e-5)
    return math.exp(search.safe_side(excess, answer, step=1e-5))


def _gaussian_root(make_events: Callable[[float], Event | Iterable[Event]], mu: float) -> float:
    def excess(log_noise: float) -> float:
        groups = grouped(make_events(math.exp(log_noise)))
        return -math.log(composition.effective_noise_multiplier(groups) * mu)

    return search.root(excess, tolerance=1e-11)


def _log_ratio(spent: float, epsilon: float) -> float:
    """Bounded, so that root finding survives an infinite or a zero price."""
    return math.log(min(max(spent / epsilon, 1e-3), 1e3))


def inherent_epsilon(count_clip: float, topic_word_prior: float) -> float:
    """Range of one topic draw from clipped counts, ``2 log(C / beta + 1)``, as in HDP-LDA.

    Parameters
    ----------
    count_clip : float
        Largest count C that the draw uses.
    topic_word_prior : float
        Pseudo-count beta that is added to each count.

    Returns
    -------
    float
        For `BoundedRange`: one draw per sweep depends on the protected word.
    """
    if not (count_clip > 0.0 and topic_word_prior > 0.0):
        raise ValueError(
            "count_clip and topic_word_prior must be positive, "
            f"got {count_clip} and {topic_word_prior}"
        )
    return 2.0 * math.log1p(count_clip / topic_word_prior)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of Gaussian differential privacy that is exactly (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta : float

    Returns
    -------
    float
        Gaussian events fit if the sum of ``1 / noise_multiplier**2`` is at most ``mu**2``.
    """
    _check_target(epsilon, delta)
    return 1.0 / float(get_sigma_gaussian(epsilon, delta))


def _check_target(epsilon: float, delta: float) -> None:
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive and finite, got {epsilon}")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")


def _check_probability(name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must lie in [0, 1), got {value}")
