"""One charged release outside of a training: the sum of one clipped vector for each unit.

Mechanism (Gaussian). Each unit contributes a vector that is a function of that unit and of public
values, and is clipped to an L2 norm that is checked in integers. The sum gets noise on every cell.
``docs/proofs_document.md`` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dplda.core._private_fit import (
    AES,
    COLUMNS,
    PROCESS,
    SMALLEST_DELTA,
    gaussian_noise,
    make_guarantee,
    warn_if_seeded,
)
from dplda.leaf._checks import check_delta, check_number
from dplda.privacy import Guarantee
from dplda.privacy._curator import Curator
from dplda.privacy._mechanisms import MAX_RADIUS, sum_clipped
from dplda.privacy._streams import Streams


def release_sum(
    read: Callable[[], Any],
    *,
    name: str,
    step: str,
    norm: float,
    epsilon: float,
    delta: float,
    unit: str,
    charged_unit: str,
    relation: str,
    assumptions: tuple[str, ...],
    ledger: Any,
    random_state: Any,
    theorem: str = "",
) -> tuple[np.ndarray, Guarantee]:
    """Release the sum of the rows that `read` returns, and state what it costs.

    Parameters
    ----------
    read : callable
        Returns the contributions, of shape (n_units, n_cells). It is called after the charge, and
        is the only thing that reads private data. A row must be a function of its unit and of
        public values, and zero for a unit without data.
    name : str
        Name of the caller, for the ledger and for warnings.
    step : str
        What is released, for the plan and the guarantee.
    norm : float
        Clipping bound of a row, in L2. A public constant.
    epsilon : float
        Total epsilon of a unit, above 0; ``inf`` for no noise.
    delta : float
        The delta of (epsilon, delta)-differential privacy.
    unit, relation : str
        The protected unit and its relation.
    charged_unit : str
        The unit in the ledger, which tells ids of several names apart.
    assumptions : tuple of str
        What the guarantee rests on besides the cipher and the public vocabulary.
    ledger : Ledger, str, path-like or None
        Where the release is charged.
    random_state : int, RandomState instance or None
        None draws the noise from a secret key.
    theorem : str, default=""
        The page with the proof.

    Returns
    -------
    total : ndarray of shape (n_cells,)
        Public. The noisy sum.
    guarantee : Guarantee
        Its `noise_scale` is the standard deviation of the noise in `total`.
    """
    delta = check_delta(delta, SMALLEST_DELTA)
    if epsilon != math.inf:
        check_number("epsilon", epsilon, 0.0, 1e9, closed="right")
    mechanism = gaussian_noise(epsilon, None, delta)  # public
    radius = MAX_RADIUS if mechanism.exact else mechanism.radius  # public
    streams = Streams.from_random_state(random_state)  # secret
    warn_if_seeded(name, streams.seeded and not mechanism.exact)
    plan = [(step, mechanism.event)]  # public
    with Curator(plan, streams, label=name, unit=charged_unit, ledger=ledger) as curator:
        total = sum_clipped(read(), norm, radius)  # private
        # One unit moves `total` by at most `radius` in L2: it has one row, which no other unit
        # enters, and `sum_clipped` checks the length of each row in integers.
        noisy = curator.release(total, mechanism, label=step, round=0)  # public
    cell = norm / radius
    guarantee = make_guarantee(
        curator.events,
        delta=delta,
        earlier=None,
        unit=unit,
        relation=relation,
        mechanism=f"{step}, " + ("exact" if mechanism.exact else "with discrete Gaussian noise"),
        sensitivity=norm,
        noise_scale=mechanism.scale * cell,
        noise_multiplier=mechanism.scale / radius,
        seeded=streams.seeded,
        assumptions=assumptions,
        common=(COLUMNS, AES),
        trusted=PROCESS,
        theorem=theorem,
    )
    return noisy * cell, guarantee
