"""The guarantee of a global model: what the parties have stated."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dplda.core._private_fit import COLUMNS, TRUSTED
from dplda.privacy import ApproximateDP, Guarantee, NonPrivate


def stated_guarantee(stated: Mapping[tuple[str, str], tuple[float, float]]) -> Guarantee:
    """The guarantee of what was computed from the messages of parties: what they state.

    Each unit is with one party. If it changes, the messages of that party change as its own
    guarantee allows, and all else is post-processing: the largest epsilon holds at the largest
    delta. What a party states for one unit says nothing of another unit: nothing is proved for a
    party that has stated two.

    Parameters
    ----------
    stated : mapping of (str, str) to (float, float)
        Epsilon and delta by party and unit.

    Returns
    -------
    guarantee : Guarantee
        Of no finite epsilon if one party has none, or has stated two units.
    """
    epsilon, delta = (max(values) for values in zip(*stated.values()))
    units = " or ".join(sorted({unit for _, unit in stated}))
    one_unit_each = len({party for party, _ in stated}) == len(stated)
    is_private = epsilon < math.inf and delta < 1.0 and one_unit_each
    event = ApproximateDP(epsilon, delta) if is_private else NonPrivate()
    return Guarantee(
        unit=units,
        relation=f"one {units} of one party differs, in the sense of that party's own guarantee",
        epsilon=epsilon if is_private else math.inf,
        delta=delta if is_private else 0.0,
        mechanism="topics merged from the messages of parties, which made them private themselves",
        sensitivity=math.inf,
        noise_scale=None,
        noise_multiplier=None,
        seeded=False,
        assumptions=(
            COLUMNS,
            f"each {units} is with one party (of what is with several parties the costs add up)",
            *(
                f"the statement of party {party!r}, which nobody else can check, is true: epsilon "
                f"{epsilon:.6g} at delta {delta:g} for one {unit}"
                for (party, unit), (epsilon, delta) in sorted(stated.items())
            ),
        ),
        events=(event,),
        trusted=TRUSTED["federated"],
        theorem="docs/federated.md",
    )
