"""TopicDP audited: a sampled sensitivity does not bound the sensitivity.

``python benchmarks/papers/topicdp.py [--runs 2000] [--seed 0]``

Wang, Sharma, Feng, Shu and Hong, "A Model-Agnostic Approach to Differentially Private
Topic Mining", KDD 2022. The topic miner is LDA by expectation maximization from a
public start. Written from the description in docs/papers.md.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from lower_bounds import Line, from_two_worlds, show
from scipy.special import lambertw

N_TOPICS, N_WORDS, N_USERS = 2, 6, 300
EPSILON, DELTA, ORDER = 5.0, 1e-3, 11  # of the repository
GAMMA = 0.5  # the largest of the repository's list; a smaller one draws more pairs
START = np.random.default_rng(0).dirichlet(np.ones(N_WORDS), size=N_TOPICS)


def pairs_to_sample(gamma: float) -> tuple[int, int]:
    """Number of sampled pairs of databases, and which sorted distance is taken."""
    rho = math.exp(lambertw(-gamma / (2 * math.exp(0.5)), -1).real + 0.5)
    pairs = math.log(1 / rho) / (2 * (gamma - rho) ** 2)
    rank = pairs * (1 - gamma + rho + math.sqrt(math.log(1 / rho) / (2 * pairs)))
    return math.ceil(pairs), int(rank)


def topics(users, copies, n_iter=8) -> np.ndarray:
    """Topics of databases of users: expectation maximization of LDA, without noise.

    Parameters
    ----------
    users : ndarray of shape (n_users, N_WORDS)
        The word counts of each user.
    copies : ndarray of shape (n_databases, n_users)
        How often each database has each user.

    Returns
    -------
    ndarray of shape (n_databases, N_TOPICS, N_WORDS)
        Topics, rows of sum 1.
    """
    phi = np.repeat(START[None], len(copies), axis=0)
    theta = np.full((len(copies), len(users), N_TOPICS), 1 / N_TOPICS)
    for _ in range(n_iter):
        ratio = users / np.maximum(theta @ phi, 1e-12)
        counts = phi * ((theta * copies[:, :, None]).swapaxes(1, 2) @ ratio) + 0.01
        theta = theta * (ratio @ phi.swapaxes(1, 2)) + 0.1
        phi = counts / counts.sum(axis=2, keepdims=True)
        theta /= theta.sum(axis=2, keepdims=True)
    return phi


def sampled_sensitivity(users, rng, gamma=GAMMA) -> float:
    """A quantile of distances of neighboring user databases, with replacement."""
    n, (pairs, rank) = len(users), pairs_to_sample(gamma)
    drawn = rng.integers(n, size=(pairs, n + 1))  # all but two are in both databases
    both = [np.bincount(row, minlength=n) for row in drawn[:, :-2]]
    ends = np.eye(n, dtype=int)[drawn[:, -2:]]
    copies = np.stack(both)[:, None] + ends
    found = topics(users, copies.reshape(2 * pairs, n)).reshape(pairs, 2, -1)
    return float(
        np.sort(np.linalg.norm(found[:, 0] - found[:, 1], axis=1))[min(rank, pairs - 1)]
    )


def noise_scale(sensitivity, *, as_in_repository=False) -> float:
    """Standard deviation of an entry's noise.

    The repository passes the variance for it.
    """
    share = (EPSILON - math.log(1 / DELTA) / (ORDER - 1)) / (N_TOPICS * N_WORDS)
    variance = ORDER * sensitivity**2 / (2 * share)
    return variance if as_in_repository else math.sqrt(variance)


def corpus(rng) -> np.ndarray:
    """Users of few common words; the last sent many messages of a word of its own."""
    mix = rng.dirichlet(np.ones(N_WORDS - 1), size=N_TOPICS)[
        rng.integers(N_TOPICS, size=N_USERS)
    ]
    common = np.stack([rng.multinomial(20, row) for row in mix])
    users = np.hstack([common, np.zeros((N_USERS, 1), dtype=int)])
    users[-1] = [0] * (N_WORDS - 1) + [2000]
    return users


def released(users, n_runs, rng, sensitivity_of, **options) -> np.ndarray:
    """The largest noisy entry of the last word, in each run of the mechanism."""
    exact = topics(users, np.ones((1, len(users)), dtype=int))[0]
    scores = np.empty(n_runs)
    for run in range(n_runs):
        scale = noise_scale(sensitivity_of(users, rng), **options)
        scores[run] = rng.normal(exact, scale)[:, -1].max()
    return scores


def worst_case(users, rng) -> float:
    """A bound for any two databases: two topics are at most sqrt(2) apart."""
    return math.sqrt(2 * N_TOPICS)


SETTINGS = {
    "TopicDP": {"sensitivity_of": sampled_sensitivity},
    "TopicDP, noise as in the repository": {
        "sensitivity_of": sampled_sensitivity,
        "as_in_repository": True,
    },
    "the same noise for the worst case": {"sensitivity_of": worst_case},
}


def audit(n_runs=2000, seed=0) -> list[Line]:
    rng, lines = np.random.default_rng(seed), []
    users = corpus(rng)
    for name, options in SETTINGS.items():
        absent, present = (
            released(world, n_runs, rng, **options) for world in (users[:-1], users)
        )
        lines.append(
            Line(name, EPSILON, from_two_worlds(absent, present, DELTA), DELTA)
        )
    return lines


def sensitivities(seed=0, n_repeats=200) -> tuple[float, float, float]:
    """Median sampled sensitivity, true change by one user, and how often it covers."""
    rng = np.random.default_rng(seed)
    users = corpus(rng)
    copies = np.ones((2, N_USERS), dtype=int)
    copies[1, -1] = 0
    found = topics(users, copies)
    true = float(np.linalg.norm(found[0] - found[1]))
    sampled = [sampled_sensitivity(users, rng) for _ in range(n_repeats)]
    return float(np.median(sampled)), true, float(np.mean(np.array(sampled) >= true))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pairs, rank = pairs_to_sample(GAMMA)
    sampled, true, covered = sensitivities(options.seed)
    print(
        f"{pairs} pairs, the distance of rank {rank + 1}; median of 200 repeats: "
        f"{sampled:.4f}"
    )
    print(
        f"change by the one user: {true:.4f}; at most the sampled one in "
        f"{covered:.1%}\n"
    )
    show(audit(options.runs, options.seed))


if __name__ == "__main__":
    main()
