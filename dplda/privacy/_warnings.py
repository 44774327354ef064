"""Warnings of the package, one class for each kind, so that callers can filter."""


class PrivacyLeakWarning(UserWarning):
    """The running code has less privacy than one may believe.

    A published algorithm does not have the privacy that its paper claims, the stated
    epsilon is so large that it promises next to nothing, fits are charged to several
    budgets, or a score is exact.
    """


class SeededNoiseWarning(UserWarning):
    """The noise comes from a given seed: anyone who knows or guesses it can undo it."""


class LowSignalWarning(UserWarning):
    """A private model has little signal.

    Few topics are shown to be more than noise, or the public texts behind its prior
    hardly match the private documents.
    """


class PrivateDataWarning(UserWarning):
    """A fact about private data, for the person at the keyboard and not for release."""
