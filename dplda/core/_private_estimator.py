"""Private estimators: their parameters, and what the card says of all their fits."""

from __future__ import annotations

import dataclasses
import html
import math
import re
from inspect import cleandoc
from numbers import Real
from os import PathLike

from sklearn.base import BaseEstimator

from dplda.leaf._checks import LARGEST, LARGEST_DELTA
from dplda.leaf._compat import Interval as _Interval
from dplda.leaf._compat import Options
from dplda.privacy import Ledger
from dplda.privacy._mechanisms import MAX_FLIP, MIN_FLIP, RandomizedBits


class Interval(_Interval):
    """An interval of numbers without True and False, which Python takes as 1 and 0."""

    def is_satisfied_by(self, val: object) -> bool:
        return not isinstance(val, bool) and super().is_satisfied_by(val)


# A smaller delta cannot pay for the distance of the noise from its ideal law.
SMALLEST_DELTA = 1e-14
PRIVACY_CONSTRAINTS = {
    "epsilon": [
        None,
        Interval(Real, 0, LARGEST, closed="right"),
        Options(Real, {math.inf}),
    ],
    "delta": [Interval(Real, SMALLEST_DELTA, LARGEST_DELTA, closed="both")],
    "ledger": [None, str, PathLike, Ledger],
}
NOISE_MULTIPLIER = [None, Interval(Real, 0, LARGEST, closed="right")]
# of the bits that can be drawn
BIT_EPSILON = [
    None,
    Interval(
        Real,
        RandomizedBits(MAX_FLIP).epsilon,
        RandomizedBits(MIN_FLIP).epsilon,
        closed="both",
    ),
    Options(Real, {math.inf}),
]

# Who is trusted with private data (docs/threat_model.md).
TRUSTED_PROCESS = (
    "the process that computes it and whoever holds the texts; nobody who sees the "
    "result"
)
TRUSTED_OWNER = (
    "the program on the owner's own machine; neither the server nor the network"
)
TRUSTED_PARTY = (
    "each party with its own texts; neither the coordinator nor other parties"
)


@dataclasses.dataclass(frozen=True)
class Promise:
    """What the card says of an estimator, the same for all fits."""

    unit: str  # what is protected
    relation: str  # how two neighboring data sets differ
    mechanism: str  # the noise, in words
    theorem: str  # the page with the proof
    trusted: str = TRUSTED_PROCESS  # with private data (docs/threat_model.md)


class Described(BaseEstimator):
    """An estimator whose docstring takes descriptions from its base classes.

    A line of the docstring that is only the name of a parameter or attribute becomes
    the description in a base class, such as those below.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Number of threads. It never changes a result.
    verbose : int, default=0
        Above 0, progress and the time left go to the standard error: at most about ten
        lines of each step, and on a terminal one line, which is rewritten.

    Attributes
    ----------
    delta_ : float
        The delta at which `epsilon_` is stated.
    privacy_ : Guarantee
        The guarantee: unit, relation, mechanism, assumptions. `print` shows it in
        words.
    """

    def __init_subclass__(cls, **options: object) -> None:
        """Complete the docstring of a subclass."""
        super().__init_subclass__(**options)
        described: dict[str, str] = {}
        for base in reversed(cls.__mro__[1:]):
            if base.__module__.startswith("dplda."):
                text = cleandoc(base.__doc__ or "")
                entries = re.findall(r"^(\w+)( : .+\n(?:    .+\n?)+)", text, re.M)
                described |= {
                    name: (name + text).rstrip("\n") for name, text in entries
                }
        if cls.__doc__:
            cls.__doc__ = re.sub(
                r"^\w+$",
                lambda name: described.get(name[0], name[0]),
                cleandoc(cls.__doc__),
                flags=re.M,
            )

    def _assign(self, parameters: dict[str, object]) -> None:
        """Set the parameters of a constructor as given, from its ``locals()``."""
        del parameters["self"]
        self.__dict__.update(parameters)


class PrivateEstimator(Described):
    """An estimator with a guarantee.

    The class must have an attribute `_promise`, the constant part of its card.

    Parameters
    ----------
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, from 1e-14 to 0.001. Choose
        it well below 1 / n_docs.
    ledger : Ledger, str, path-like or None, default=None
        The ledger that the fit is charged to: a budget over many fits. A path names an
        SQLite file, which also counts the fits of other processes. A relative path is
        that of the working directory of each fit.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from a secret key. A seed makes the fit reproducible, and
        voids the guarantee against anyone who knows or guesses the seed
        (`SeededNoiseWarning`).
    """

    _promise: Promise

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if not isinstance(getattr(cls, "_promise", None), Promise):
            raise TypeError(
                f"{cls.__name__} has no card: state unit, relation, mechanism and "
                "theorem as _promise = Promise(...), an attribute of the class"
            )

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        """The diagram that notebooks show, with the first lines of the card."""
        shown: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in shown and hasattr(self, "privacy_"):
            shown["text/html"] += f"<pre>{html.escape(self.privacy_.summary())}</pre>"
        return shown
