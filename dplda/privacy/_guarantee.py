"""The guarantee of a fitted model, as a record that can be stored and printed."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

from dplda.leaf._checks import check_delta, check_integer, check_number
from dplda.leaf._messages import as_json
from dplda.privacy import _card
from dplda.privacy._accounting import (
    all_gaussian,
    epsilon_of,
    gaussian_mu_of,
    grouped,
    is_chargeable,
)
from dplda.privacy._card import Stated
from dplda.privacy._curves import MARGIN
from dplda.privacy._detection import rate_of_events, rate_of_pairs
from dplda.privacy._events import (
    Event,
    PoissonSampled,
    RandomizedResponseEvent,
    to_record,
)
from dplda.privacy._groups import group_events, has_parts, statement

# a fit asks for it twice, and a search once more for each fit
cached_epsilon = functools.lru_cache(maxsize=128, typed=True)(epsilon_of)

LARGEST_VARIATION = 1e-9  # a million calls of `partial_fit` add up to 2e-12


@dataclass(frozen=True, repr=False)
class Guarantee(Stated):
    """The privacy guarantee of a fitted model, with its assumptions.

    ``print(model.privacy_)`` shows it as a card of short lines, and a notebook as a
    table.

    Parameters
    ----------
    unit, relation : str
        Protected unit, such as "document", "word", "token" or "bit", and how
        neighboring data sets differ, such as "one document is added or removed".
    epsilon, delta : float
        Of the (epsilon, delta)-differential privacy of everything that was released. An
        epsilon below the cost of the events at `delta` is a ValueError.
    mechanism : str
        The releases and their noise, in words.
    sensitivity : float
        Largest change of a released value by one unit, in the mechanism's norm.
        Infinite if others drew the noise, and stated its cost (`ApproximateDP`).
    noise_scale : float, tuple of float or None
        Scale of the noise, in the units of `sensitivity`. A tuple if it differs between
        rounds. Events hold the scale divided by the sensitivity.
    seeded : bool
        Whether the noise came from a given seed. The guarantee is void against anyone
        who knows or guesses that seed.
    assumptions : tuple of str, default=()
        Conditions of the guarantee that the program cannot check.
    events : tuple of Event, default=()
        The events from which epsilon was computed.
    total_variation : float, default=0.0
        Distance between the noise that ran and the noise of the theorem.
    trusted : str, default=""
        Who sees the private data, and is trusted with them.
    provenance : tuple of (str, str), default=()
        Inputs of the fit, each with its origin: public, private and charged, or not
        known.
    ledger, receipt : str, default=""
        Id of the charged ledger with its total at the end of the fit, and its receipt
        at that time (see `Ledger.has`).
    theorem : str, default=""
        Page of the documentation with the proof.

    Attributes
    ----------
    gaussian_mu : float or None
        The mu of Gaussian differential privacy, if all noise is Gaussian without
        sampling.

    Examples
    --------
    >>> from dplda import SubLDA
    >>> guarantee = SubLDA(2, epsilon=4.0).fit([[2, 0, 1], [0, 3, 0]]).privacy_
    >>> round(guarantee.detection_rate(false_alarms=0.01), 3)
    0.068
    >>> guarantee.for_groups(3).unit
    'group of 3 documents'
    """

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not 0.0 <= self.total_variation <= LARGEST_VARIATION:
            raise ValueError(
                f"total_variation must be from 0 to {LARGEST_VARIATION:g}, got "
                f"{self.total_variation:g}; noise that far from its ideal law proves "
                "nothing"
            )
        proved = self.epsilon_at(self.delta)
        if not self.epsilon * MARGIN >= proved:
            raise ValueError(
                f"epsilon {self.epsilon} is less than what the events cost at delta "
                f"{self.delta}; state at least {proved}"
            )

    def epsilon_at(self, delta: float) -> float:
        """Compute epsilon of the same events at another delta.

        Parameters
        ----------
        delta : float
            In [0, 1).

        Returns
        -------
        float
            Zero or more; infinite if some event is not private.
        """
        return cached_epsilon(self.events, delta, total_variation=self.total_variation)

    @property
    def gaussian_mu(self) -> float | None:
        """The mu of Gaussian DP; None unless all noise is unsampled Gaussian.

        Also None if epsilon is above the cost of the events: there may be more events.
        """
        groups = grouped(self.events)
        if groups and all_gaussian(groups) and self.is_of_events:
            return gaussian_mu_of(groups)
        return None

    @property
    def is_of_events(self) -> bool:
        """Whether the events account for all of epsilon."""
        if not self.events:
            return False
        return self.epsilon <= MARGIN * self.epsilon_at(self.delta)

    def detection_rate(self, false_alarms: float = 0.01) -> float:
        """Bound how often the best test finds a unit that is present.

        The test sees all releases, knows all other data, and compares the data with and
        without one particular unit. ``docs/accounting.md`` has the proof.

        Parameters
        ----------
        false_alarms : float, default=0.01
            Share of the cases without the unit in which the test says that it is
            present, in [0, 1].

        Returns
        -------
        float
            Largest share of the cases with the unit in which the test finds it, from
            `false_alarms` (blind guessing) to 1. Exact for Gaussian noise without
            sampling.
        """
        alarms = check_number("false_alarms", false_alarms, 0.0, 1.0, closed="both")
        if self.epsilon == math.inf:
            return 1.0
        distance = 0.0
        if not is_chargeable(self.total_variation, self.epsilon, self.delta):
            # of each of the two laws from its ideal form
            distance = self.total_variation
        stated = [(self.epsilon, self.delta)]
        rate = rate_of_pairs(stated, min(1.0, alarms + distance)) + distance
        if self.is_of_events:
            groups = grouped(self.events)
            rate = min(rate, rate_of_events(groups, alarms, self.total_variation))
        return min(1.0, rate)

    def for_groups(self, size: int) -> Guarantee:
        """State what the same releases guarantee for groups of units.

        If each person has at most `size` rows, this is the guarantee for a person.

        Parameters
        ----------
        size : int
            Largest number of units of a group, at least 1.

        Returns
        -------
        guarantee : Guarantee
            At the same delta. Its unit is the group. Epsilon is infinite if no bound is
            proved. ``docs/proofs_document.md`` has the

        Examples
        --------
        >>> from dplda import SubLDA
        >>> guarantee = SubLDA(2, epsilon=1.0).fit([[2, 0, 1], [0, 3, 0]]).privacy_
        >>> round(guarantee.for_groups(3).epsilon, 1)
        3.3
        """
        size = check_integer("size", size, 1)
        if size == 1:
            return self
        group = self._of_steps(size, whole=True)
        relation = (
            f"up to {size} {self.unit}s change, each in this way: {self.relation}"
        )
        events = (event for event, _ in grouped(group.events))
        if any(isinstance(event, PoissonSampled) for event in events):
            # a secret sample hides a group that comes or goes as a whole:
            # docs/proofs_document.md
            relation += (
                "; all of them are there in one of the two data sets, and none in the "
                "other"
            )
        return dataclasses.replace(
            group,
            unit=f"group of {size} {self.unit}s",
            relation=relation,
            assumptions=(*self.assumptions, f"a group has at most {size} {self.unit}s"),
        )

    def for_part_of_unit(self) -> Guarantee:
        """State what the same releases guarantee for a part of a unit.

        Its other parts stay.

        A part is, for example, one text of a user with several texts, or one member of
        a team whose texts share one id. Removing a part counts as removing one unit and
        adding another.

        Returns
        -------
        guarantee : Guarantee
            At the same delta: the guarantee for two units, or for one unit if the
            relation replaces a unit by any other. ValueError if the unit is a word, a
            token or a bit, which has no parts.
        """
        if not has_parts(self.unit):
            raise ValueError(
                f"a {self.unit} has no parts; this guarantee is for one {self.unit}"
            )
        groups = grouped(self.events)
        part = self  # responses are for a unit that is replaced by any other
        if not groups or not all(
            isinstance(event, RandomizedResponseEvent) for event, _ in groups
        ):
            part = self._of_steps(2, whole=False)
        return dataclasses.replace(
            part,
            unit=f"part of a {self.unit}",
            relation=f"a part of one {self.unit} is added, removed or changed, and the "
            "rest stays",
        )

    def _of_steps(self, size: int, *, whole: bool) -> Guarantee:
        """What holds along a chain of so many neighbors."""
        own: tuple[Event, ...] = self.events
        distance = self.total_variation
        if not self.is_of_events:  # the statement says more than the events
            own, distance = as_statement(self.epsilon, self.delta, distance)
        events = group_events(grouped(own), size, self.delta, distance, whole=whole)
        return dataclasses.replace(
            self,
            epsilon=epsilon_of(events, self.delta, total_variation=distance),
            sensitivity=size * self.sensitivity,
            events=events,
            total_variation=distance,
            theorem="docs/proofs_document.md",
        )

    def to_dict(self) -> dict[str, object]:
        """Give all fields as plain values that JSON can hold.

        Returns
        -------
        dict
            Events as records, and also ``"detection_rate"`` at one false alarm in 100
            and ``"gaussian_mu"``. Infinite numbers are the string "inf".
        """
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        record["events"] = [to_record(event) for event in self.events]
        record["detection_rate"] = self.detection_rate()
        record["gaussian_mu"] = self.gaussian_mu
        return {name: as_json(value) for name, value in record.items()}

    def summary(self) -> str:
        """Say in three lines who is protected, how much, and what is not protected.

        Returns
        -------
        str
            The first lines of the card. `print` shows all of it.
        """
        return _card.summary(self)

    def __str__(self) -> str:
        return _card.text(self)

    def to_markdown(self) -> str:
        """Write the card as a Markdown table.

        Returns
        -------
        str
            One row for each line of the card.
        """
        return _card.markdown(self)

    _repr_markdown_ = to_markdown  # of a notebook

    def __repr__(self) -> str:
        seeded = ", seeded" if self.seeded else ""
        return (
            f"<Guarantee: epsilon {self.epsilon:.4g} at delta {self.delta:g} "
            f"for one {self.unit}{seeded}>"
        )


def as_statement(
    epsilon: float, delta: float, total_variation: float
) -> tuple[tuple[Event, ...], float]:
    """The event of a stated guarantee, and the distance that the statement leaves out.

    If delta pays for the distance from ideal noise, the statement leaves out nothing.
    """
    if is_chargeable(total_variation, epsilon, delta):
        total_variation = 0.0
    return (statement(epsilon, delta),), total_variation
