"""Who makes a sum public: one curator alone, or several parties together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dplda.privacy._charge import TOTAL_VARIATION
from dplda.privacy._events import Event
from dplda.privacy._mechanisms import Cells, DiscreteGaussian
from dplda.privacy._streams import Streams


class Shares(NamedTuple):
    """Who adds noise to a release: one curator, or parties (docs/federated.md)."""

    n_honest: int = 1  # shares of noise that pay for the event of a release
    n_parties: int = 1  # shares of noise that it has
    n_spare: int = 0  # further attempts of a release that are charged

    @property
    def total_variation(self) -> float:
        """Distance of all random words of a fit from ideal ones."""
        return self.n_parties * TOTAL_VARIATION

    def gaussian(self, noise_multiplier: float) -> DiscreteGaussian:
        """The mechanism of a release with this noise multiplier."""
        return DiscreteGaussian.for_noise_multiplier(
            noise_multiplier, self.n_honest, self.n_parties
        )


class SumsPromise(NamedTuple):
    """What the card says of those who make the sums."""

    mechanism: str = ""  # is added to the estimator's
    trusted: str = ""  # replaces the estimator's
    assumptions: tuple[str, ...] = ()


class Sums(Protocol):
    """Who makes a sum public. A fit gets one; its words are on the card."""

    # Writes the fitted attributes to a disk, as far as the fit has come: a process that
    # is killed then loses nothing that is paid for. None: the fit is in memory alone.
    save_so_far: Callable[[], None] | None

    @property
    def shares(self) -> Shares:
        """The noise of a release."""

    def begin(self) -> None:
        """Meet the other parties; the charge does it before it is spent.

        An error ends the fit before any release.
        """

    def topic_streams(self, own: Streams) -> Streams:
        """From which the first, random topics are drawn: `own`, or public ones of all.

        All parties must begin with the same topics.
        """

    def add_up(self, cells: Cells, label: str) -> bool:
        """Replace own noisy cells by the sum over all parties.

        Nobody sees own cells. False if a party was lost: the others begin anew, with
        new noise.
        """

    def agree(self, values: NDArray[np.float64], label: str) -> NDArray[np.float64]:
        """The public numbers, from 0 to 1, with which all go on instead of their own.

        Parties must agree on what decides which release comes next: their processors
        differ in the last bits of floating point.
        """

    def promise(self, events: Sequence[Event], delta: float) -> SumsPromise:
        """What the card says of a fit that releases `events`."""


class Alone:
    """One curator has all documents: its own sums become public."""

    save_so_far: Callable[[], None] | None = None
    shares = Shares()

    def begin(self) -> None:
        pass

    def topic_streams(self, own: Streams) -> Streams:
        return own

    def add_up(self, cells: Cells, label: str) -> bool:
        return True

    def agree(self, values: NDArray[np.float64], label: str) -> NDArray[np.float64]:
        return values

    def promise(self, events: Sequence[Event], delta: float) -> SumsPromise:
        return SumsPromise()


ALONE = Alone()
