"""What the package warns of: one class for each kind, so that a caller can filter."""


class PrivacyLeakWarning(UserWarning):
    """What runs has less privacy than one may believe.

    A published algorithm does not have the privacy that its paper claims, the stated
    epsilon is so large that it promises next to nothing, fits are charged to several
    budgets, or a score is exact.
    """


class SeededNoiseWarning(UserWarning):
    """The noise comes from a given seed: who knows or guesses it can remove it."""


class LowSignalWarning(UserWarning):
    """A private model says little.

    Few topics are shown to be more than noise, or the public texts behind its prior
    hardly match the private documents.
    """


class PrivateDataWarning(UserWarning):
    """Something about the private data, for the person at the keyboard, not release."""
