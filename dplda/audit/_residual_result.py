"""What a residual check finds: tests, each with its expected range."""

from __future__ import annotations

from dataclasses import dataclass

FALSE_ALARM = 1e-6  # of all checks of a fit together
N_STATISTICAL = 9  # checks that can fail by chance; each gets an equal part of FALSE_ALARM
LEVEL = FALSE_ALARM / N_STATISTICAL
ROUNDING = 1e-9  # of a ratio of two norms


@dataclass(frozen=True)
class ResidualTest:
    """One line of a residual check.

    Parameters
    ----------
    name : str
        What is compared.
    statistic : float
        What was found.
    low, high : float
        Expected range of the statistic, ends included.
    note : str, default=""
        What the test could not see.
    """

    name: str
    statistic: float
    low: float
    high: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the statistic is in the expected range."""
        return self.low <= self.statistic <= self.high

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.statistic:.4g}, expected {self.low:.4g} to {self.high:.4g}: "
            f"{'passed' if self.passed else 'FAILED'}{self.note and f' ({self.note})'}"
        )


@dataclass(frozen=True)
class ResidualResult:
    """What a residual check found.

    Parameters
    ----------
    name : str
        Class of the estimator.
    tests : tuple of ResidualTest
        All lines of the check.
    n_releases : int
        Number of noisy releases.
    n_cells : int
        Number of noisy cells in all releases.
    false_alarm : float
        Probability, at most, with which a sound fit fails any of the tests.
    """

    name: str
    tests: tuple[ResidualTest, ...]
    n_releases: int
    n_cells: int
    false_alarm: float = FALSE_ALARM

    @property
    def passed(self) -> bool:
        """Whether all tests passed."""
        return not self.failures

    @property
    def failures(self) -> tuple[ResidualTest, ...]:
        """The tests that did not pass."""
        return tuple(test for test in self.tests if not test.passed)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        found = (
            f"{self.name} released {self.n_cells} noisy cells in {self.n_releases} "
            f"{'release' if self.n_releases == 1 else 'releases'} "
            f"({len(self.tests)} tests, false alarms at most {self.false_alarm:g}): "
        )
        if self.passed:
            return found + "noise, samples, contributions and model are as declared."
        return found + "not as declared: " + "; ".join(test.name for test in self.failures) + "."

    def __str__(self) -> str:
        return "\n".join([self.verdict, *(f"* {test}" for test in self.tests)])
