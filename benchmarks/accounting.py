"""Two-sided bounds of epsilon on twenty settings, and a library that is below the exact value.

``python benchmarks/accounting.py`` prints the tables of docs/accounting.md; the second one needs
the extra ``oracle``.
"""

from __future__ import annotations

import time

from dplda.privacy import (
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponseEvent,
    Repeated,
    epsilon_bounds,
    epsilon_of,
)


def sampled(rate: float, noise: float, count: int) -> Repeated:
    return Repeated(PoissonSampled(rate, Gaussian(noise)), count)


SETTINGS = [
    ("sampled 1e-4, 5, 1e5 rounds", sampled(1e-4, 5.0, 10**5), 1e-6),
    ("sampled .001, 2, 1e5", sampled(0.001, 2.0, 10**5), 1e-10),
    ("sampled .01, 1, 1e4", sampled(0.01, 1.0, 10**4), 1e-6),
    ("sampled .01, 3, 1e5", sampled(0.01, 3.0, 10**5), 1e-12),
    ("sampled .1, 2, 1000", sampled(0.1, 2.0, 1000), 1e-9),
    ("sampled .1, 50, 1e5", sampled(0.1, 50.0, 10**5), 1e-12),
    ("sampled .9, 10, 1000", sampled(0.9, 10.0, 1000), 1e-12),
    ("Gaussian 50, 1e4", Repeated(Gaussian(50.0), 10**4), 1e-6),
    ("sampled .01, .7, 2000", sampled(0.01, 0.7, 2000), 1e-5),
    ("sampled 1e-4, 1, 1e5", sampled(1e-4, 1.0, 10**5), 1e-6),
    ("sampled 2.5e-5, .38, 16000", sampled(2.5e-5, 0.38, 16000), 1e-4),
    ("sampled .5, 79.3937, 1e6", sampled(0.5, 79.3937, 10**6), 1e-10),
    ("sampled .05, 1.5, 200", sampled(0.05, 1.5, 200), 1e-6),
    ("sampled .3, .8, once", sampled(0.3, 0.8, 1), 1e-6),
    ("Gaussian 30, 40", Repeated(Gaussian(30.0), 40), 1e-100),
    ("sampled .2, 2, 500", sampled(0.2, 2.0, 500), 1e-30),
    ("sampled .99, 5, 1000", sampled(0.99, 5.0, 1000), 1e-6),
    (
        "Gaussian 3, sampled .1 2 200, Laplace 5 10",
        [Gaussian(3.0), sampled(0.1, 2.0, 200), Repeated(Laplace(5.0), 10)],
        1e-6,
    ),
    ("Laplace 4, 100", Repeated(Laplace(4.0), 100), 1e-5),
    ("responses .9, 1000", Repeated(RandomizedResponseEvent(0.9), 1000), 1e-9),
]


def bounds() -> None:
    epsilon_bounds(sampled(0.3, 2.0, 10), 1e-5)  # imports
    print("| events | delta | epsilon | ratio - 1 | seconds |\n| --- | --- | --- | --- | --- |")
    for name, events, delta in SETTINGS:
        start = time.process_time()
        epsilon_of(events, delta)
        seconds = time.process_time() - start
        low, high = epsilon_bounds(events, delta)
        print(
            f"| {name} | {delta:g} | {low:.7g} to {high:.7g} "
            f"| {high / low - 1:.1e} | {seconds:.3f} |"
        )


def library_below_the_exact_value() -> None:
    """Gaussian noise, which has a closed form, through another library's loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    print("\n| noise | rounds | exact, at least | dp-accounting, interval 1e-4 |")
    print("| --- | --- | --- | --- |")
    below = 0
    cases = [
        (s, n) for n in (10**3, 10**4, 10**5) for s in (50.0, 100.0, 150.0, 200.0, 300.0, 450.0)
    ]
    for noise, rounds in cases:
        law = pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-4)
        theirs = law.self_compose(rounds).get_epsilon_for_delta(1e-12)
        exact = epsilon_bounds(Repeated(Gaussian(noise), rounds), 1e-12)[0]
        below += theirs < exact
        if theirs < exact:
            print(f"| {noise:g} | {rounds} | {exact:.5f} | {theirs:.5f} |")
    print(f"\n{below} of {len(cases)} are below the exact value.")


if __name__ == "__main__":
    bounds()
    library_below_the_exact_value()
