"""The figures of docs/guarantee.md: detection at 1 false alarm in 100, groups, two models.

python benchmarks/detection.py
"""

import math

from dplda.privacy import Gaussian, Guarantee, calibrate, epsilon_of

DELTA = 1e-6


def guarantee(epsilon, events):
    return Guarantee(
        "document", "one document is added or removed", epsilon, DELTA, "", 1.0, None, None, False,
        events=events,
    )  # fmt: skip


def upward(rate):
    """Percent, rounded up to three digits."""
    step = 10.0 ** (math.floor(math.log10(100.0 * rate)) - 2)
    return math.ceil(100.0 * rate / step) * step


def main():
    print("| epsilon at delta 1e-6 | mu | detection rate | by these alone | groups of 3, 10 |")
    print("| --- | --- | --- | --- | --- |")
    for epsilon in (0.5, 1.0, 4.0, 8.0):
        events = (Gaussian(calibrate(Gaussian, epsilon, DELTA)),)
        exact = guarantee(epsilon_of(events, DELTA), events)
        alone = guarantee(epsilon, ())
        groups = ", ".join(f"{exact.for_groups(k).epsilon:.1f}" for k in (3, 10))
        print(
            f"| {epsilon:g} | {exact.gaussian_mu:.3f} | {upward(exact.detection_rate()):.3g} "
            f"| {upward(alone.detection_rate()):.3g} | {groups} |"
        )
    twice = epsilon_of([Gaussian(calibrate(Gaussian, 4.0, DELTA))] * 2, DELTA)
    print(f"two models of epsilon 4: {twice:.3g}")


if __name__ == "__main__":
    main()
