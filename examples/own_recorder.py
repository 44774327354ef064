"""A recorder of one's own: what leaves a fit, and the same history for a neighbor."""

import copy
import math
from collections import Counter

from dplda.privacy.mechanisms import Recorder, record


class Tape(Recorder):
    """All that is charged and leaves; with `first`, its history instead of new values.

    A method returns what the fit goes on with. Nothing new leaves in a replay.
    """

    def __init__(self, first=None):
        self.first = first
        self.planned, self.left, self.exact = [], [], []

    def charges(self, label, unit, plan):
        self.planned += [step for step, _ in plan]
        return self.first is None

    def released(self, computed, noisy):
        value = self.again(computed.label, noisy)
        self.exact.append((computed.mechanism, dict(enumerate(computed.value.flat))))
        return value.astype(noisy.dtype)

    def selected(self, computed, names, noisy):
        self.exact.append(
            (computed.mechanism, dict(zip(computed.names, computed.value)))
        )
        return self.again(computed.label, (names, noisy))

    def drawn(self, label, round, value):
        return self.again(label, value)

    def again(self, label, value):
        n = len(self.left)
        self.left.append((label, copy.deepcopy(value)))
        return copy.deepcopy(self.first.left[n][1]) if self.first else value


def moves(release, data, neighbor):
    """How far a unit moves each exact value, over the sensitivity, in L2."""
    with record(Tape()) as one:
        release(data)
    with record(Tape(one)) as two:
        release(neighbor)
    for (mechanism, a), (_, b) in zip(one.exact, two.exact, strict=True):
        difference = Counter({cell: int(n) for cell, n in a.items()})
        difference.subtract({cell: int(n) for cell, n in b.items()})
        yield math.hypot(*difference.values()) / mechanism.sensitivity
