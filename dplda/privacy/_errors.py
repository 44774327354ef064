"""What the privacy layer raises and warns of."""

from __future__ import annotations


class BudgetError(ValueError):
    """A mechanism would spend more than the ledger allows.

    Raised before any private value is read and before anything is recorded: nothing has been
    spent when it arrives.
    """


class PrivacyLeakWarning(UserWarning):
    """The published algorithm that was asked for does not have the privacy it claims."""


class SeededNoiseWarning(UserWarning):
    """The noise comes from a known seed: whoever knows it can take the noise away again."""
