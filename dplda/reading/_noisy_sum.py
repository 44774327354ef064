"""One noisy sum over units, with its guarantee.

Mechanism (Gaussian). Each unit adds one row, which is clipped in L2. Every cell of the
sum gets noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from os import PathLike

import numpy as np
import scipy.sparse as sp

from dplda.core._fit_guarantee import PUBLIC_MODEL, make_guarantee
from dplda.core._private_estimator import SMALLEST_DELTA, TRUSTED_PROCESS
from dplda.core._private_fit import (
    Noise,
    gaussian_noise,
    warn_if_nominal,
    warn_if_seeded,
)
from dplda.leaf._checks import check_delta, check_epsilon
from dplda.leaf._users import ROWS_OF_A_UNIT, charged_unit, relation_of
from dplda.privacy import Guarantee, Ledger
from dplda.privacy._charge import Charge, budget_of
from dplda.privacy._curator import Curator
from dplda.privacy._mechanisms import sum_clipped
from dplda.privacy._streams import Streams


def noise_of_sum(epsilon: float, delta: float, name: str = "epsilon") -> Noise:
    """The noise of one sum that costs `epsilon` at `delta`; checks both.

    Warns of an `epsilon` above 20. `name` is the name of its parameter in errors.
    """
    check_delta(delta, SMALLEST_DELTA)
    if epsilon != math.inf:
        check_epsilon(epsilon, name)
        warn_if_nominal(epsilon)
    return gaussian_noise(epsilon, None, delta)


def noise_scale_of(mechanism: Noise, norm: float) -> float:
    """Standard deviation of the noise of a sum of rows of L2 norm `norm`."""
    return mechanism.scale * norm / mechanism.radius


def release_sum(
    read: Callable[[], np.ndarray | sp.csr_array],
    *,
    name: str,
    label: str,
    norm: float,
    epsilon: float,
    delta: float,
    unit: str,
    user_ids: object,
    ledger: Ledger | str | PathLike[str] | None,
    random_state: object,
) -> tuple[np.ndarray, Guarantee]:
    """Release a noisy sum over units, with its guarantee.

    Unit: `unit`. Relation: one unit is added, removed, or becomes empty. Sensitivity:
    `norm`, in L2, checked in integers. Mechanism: discrete Gaussian noise in each cell.
    ``docs/proofs_document.md`` has the proofs.

    Parameters
    ----------
    read : callable
        Reads the private data, after their price is reserved. It returns one row for
        each unit: a function of this unit and of public values, and zero for a unit
        without data. Rows are clipped to `norm`.
    name, label : str
        Name of the ledger's entry, and label of the release.
    norm : float
        Clipping bound of a row, in L2; a public constant.
    epsilon, delta : float
        Cost of the release.
    unit : {"document", "user"}
        What is protected.
    user_ids : object
        The users of the documents, which `read` reads, or the shards that hold them.
        The unit of the charge names their column, if they are one.
    ledger, random_state : object
        As in `PrivateEstimator`.

    Returns
    -------
    noisy : ndarray of shape (n_cells,)
        The released sum.
    guarantee : Guarantee
        Its cost; ``guarantee.noise_scale`` is the standard deviation of a cell.
    """
    mechanism = noise_of_sum(epsilon, delta)  # public
    streams = Streams.from_random_state(random_state)  # secret
    warn_if_seeded(name, streams.seeded and not mechanism.exact)
    with Charge(
        [(label, mechanism.event)],
        label=name,
        unit=charged_unit(user_ids, unit),
        ledger=ledger,
        seeded=streams.seeded,
        budget=None if mechanism.exact else budget_of(name, ledger),
    ) as charge:
        # One unit moves the sum by at most the radius in L2: a row reads one unit only,
        # and `sum_clipped` checks the length of each row in integers.
        total = sum_clipped(read(), norm, mechanism.radius)  # private
        guarantee = guarantee_of_sum(mechanism, charge, label, norm, delta, unit)
        charge.begin()
        noisy = release_total(total, mechanism, charge, streams, label, norm)
    return noisy, guarantee


def guarantee_of_sum(
    mechanism: Noise, charge: Charge, label: str, norm: float, delta: float, unit: str
) -> Guarantee:
    """The guarantee of the release of a sum alone."""
    noise = "exact" if mechanism.exact else "with discrete Gaussian noise"
    return make_guarantee(
        [mechanism.event],
        charge=charge,
        delta=delta,
        unit=unit,
        relation=relation_of(charge.unit),
        mechanism=f"{label}, {noise}",
        sensitivity=norm,
        noise_scale=noise_scale_of(mechanism, norm),
        seeded=charge.seeded,
        assumptions=(PUBLIC_MODEL, ROWS_OF_A_UNIT[unit]),
        trusted=TRUSTED_PROCESS,
        theorem="docs/proofs_document.md",
    )


def release_total(
    total: np.ndarray,
    mechanism: Noise,
    charge: Charge,
    streams: Streams,
    label: str,
    norm: float,
) -> np.ndarray:
    """Add noise to a sum: the next release of a charge that has begun; public."""
    curator = Curator(charge, streams, plan=[(label, mechanism.event)])
    noisy = curator.release(total, mechanism, label=label, round=0)  # public
    return noisy * (norm / mechanism.radius)
