"""Events in the vocabulary of dp_accounting, the library that tests compare the accountant with."""

from oracle import Oracle

from dplda.privacy import (
    ApproximateDP,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    ZeroConcentrated,
)
from dplda.privacy._events import BoundedRange, ErasedResponse

dp_event = Oracle("dp_accounting.dp_event")


def to_dp_event(event):
    """Translate an event into the vocabulary of dp_accounting.

    Randomized responses need an accountant with a replacement relation; every other event
    needs the default one (add or remove), whatever the relation of the guarantee, because the
    sensitivity is already part of the event. The library has no name for a bounded-range choice
    and for an erased response. They become events that cost more: zCDP, and the response without
    erasure.

    Parameters
    ----------
    event : Event

    Returns
    -------
    dp_accounting.DpEvent
        Repeated randomized responses become a list of single ones: the PLD accountant of
        dp_accounting 0.6 ignores the count of their self-composition.
    """
    match event:
        case Gaussian(noise_multiplier):
            return dp_event.GaussianDpEvent(noise_multiplier)
        case Laplace(scale):
            return dp_event.LaplaceDpEvent(scale)
        case BoundedRange(epsilon):
            return dp_event.ZCDpEvent(epsilon**2 / 8)
        case RandomizedResponseEvent(flip_mixture, n_buckets):
            return dp_event.RandomizedResponseDpEvent(flip_mixture, n_buckets)
        case ErasedResponse(flip_mixture):
            return dp_event.RandomizedResponseDpEvent(flip_mixture, 2)
        case ZeroConcentrated(rho):
            return dp_event.ZCDpEvent(rho)
        case PoissonSampled(probability, inner):
            return dp_event.PoissonSampledDpEvent(probability, to_dp_event(inner))
        case Repeated((RandomizedResponseEvent() | ErasedResponse()) as inner, count):
            return dp_event.ComposedDpEvent([to_dp_event(inner)] * count)
        case Repeated(Repeated(inner, inner_count), count):
            return to_dp_event(Repeated(inner, inner_count * count))
        case Repeated(inner, count):
            return dp_event.SelfComposedDpEvent(to_dp_event(inner), count)
        case ApproximateDP():
            raise TypeError("epsilon_of adds ApproximateDP events up, dp_accounting does not")
        case NonPrivate():
            return dp_event.NonPrivateDpEvent()
