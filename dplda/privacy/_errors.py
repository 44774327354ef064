"""Errors and warnings of the privacy layer."""

from __future__ import annotations


class BudgetError(ValueError):
    """A fit would spend more than its `epsilon` or its ledger allows.

    It is raised before any private value is read and before anything is recorded: nothing has
    been spent.
    """


class PrivacyLeakWarning(UserWarning):
    """What runs has less privacy than one may believe.

    A published algorithm does not have the privacy that its paper claims, or the stated epsilon is
    so large that it promises next to nothing.
    """


class SeededNoiseWarning(UserWarning):
    """The noise comes from a given seed: anyone who knows or guesses the seed can remove it."""


class LowSignalWarning(UserWarning):
    """A private model says little.

    Few topics stand out of the noise, or the public texts behind its prior hardly match the private
    documents.
    """


class PrivateDataWarning(UserWarning):
    """Something about the private data, for the person at the keyboard and not for release."""
