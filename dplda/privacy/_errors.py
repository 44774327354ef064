"""Errors and warnings of the privacy layer."""

from __future__ import annotations


class BudgetError(ValueError):
    """A fit would spend more than its `epsilon` or its ledger allows.

    It is raised before any private value is read and before anything is recorded: nothing has
    been spent.
    """


class PrivacyLeakWarning(UserWarning):
    """The published algorithm that runs does not have the privacy that its paper claims."""


class SeededNoiseWarning(UserWarning):
    """The noise comes from a given seed: anyone who knows the seed can remove the noise."""


class LowSignalWarning(UserWarning):
    """Few topics of a private model stand out of the noise: its top words mean little."""


class LargeEpsilonWarning(UserWarning):
    """The stated epsilon is so large that it promises next to nothing."""


class PublicPriorWarning(UserWarning):
    """Public texts that a private fit was given as a prior hardly match the private documents."""


class PrivateDataWarning(UserWarning):
    """Something about the private data, for the person at the keyboard and not for release."""
