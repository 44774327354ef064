"""The theorems, lemmas and equations of the four papers, each by a number.

``python benchmarks/papers/statements.py [--quick]``

A row compares what a paper states with an exact value in one small case: enumerated,
integrated, or in closed form. One case refutes a statement that is false. Of one that
holds, the row is an example, and docs/papers.md says why it holds. All rows take
seconds, with and without ``--quick``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from pathlib import Path

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom, norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hdp_lda import path_loss
from sub_lda import efficiency_privacy, without_last_term

from dplda.privacy import Gaussian, PoissonSampled, Repeated, epsilon_of
from dplda.published._sublda import iteration_epsilon
from dplda.published._svilda import vips_noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the same rows")
    parser.parse_args()
    print("| statement | case | stated | exact |\n| --- | --- | --- | --- |")
    for group in (hdp_lda, local, sub_lda, private_svi, iftm):
        for row in group():
            print("| " + " | ".join(row) + " |", flush=True)


# HDP-LDA: the paper's neighbors differ in one word


def hdp_lda():
    """Propositions 1 and 2 and theorems 1 to 3."""
    beta, related = 0.1, 3
    case = f"beta = {beta}, 5 tokens, K = 2, all outcomes"
    for label, sweeps in (("Theorem 1", 1), ("Theorem 2, 2 sweeps", 2)):
        loss, bound = largest_loss(beta, sweeps)
        yield label, case, f"loss at most {bound:.2f}", f"{loss:.2f}"
    loss, bound = replaced_word_loss(beta)
    yield "Proposition 1", case, f"loss at most {bound:.2f}", f"{loss:.2f}"
    loss, bound = math.log(1 + 1 / beta), 2 * math.log(1 + 1 / beta)
    yield "Proposition 2", f"beta = {beta}", f"at most {bound:.2f}", f"{loss:.2f}"
    claim = 2 * math.log(101)
    yield (
        "Theorem 3, epsilon_I (7)",
        f"C = 1, beta = 0.01, {related} related words",
        f"loss at most {claim:.2f}",
        f"{path_loss(related, frozen=False):.2f}",
    )
    yield (
        "Theorem 3 of frozen counts",
        "the same",
        f"loss at most {claim:.2f}",
        f"{path_loss(related, frozen=True):.2f}",
    )


# documents of words; the first word is 0 in D and 1 in D'
DOCUMENT, OTHERS = (0, 0, 1, 1, 1), (0, 1, 0, 2)
N_WORDS, ALPHA = 3, 1.0


def largest_loss(beta: float, n_sweeps: int) -> tuple[float, float]:
    """Of collapsed Gibbs sampling: the largest loss of all paths, and (5) or (6)."""
    assignments = list(itertools.product(range(2), repeat=5))
    loss = {
        (start, end): abs(
            log_probability(0, start, end, beta) - log_probability(1, start, end, beta)
        )
        for start, end in itertools.product(assignments, repeat=2)
    }
    worst = {
        start: max(loss[start, end] for end in assignments) for start in assignments
    }
    total = dict(worst)
    for _ in range(n_sweeps - 1):
        total = {
            start: max(loss[start, end] + total[end] for end in assignments)
            for start in assignments
        }
    counts = np.bincount((0, *OTHERS))
    bound = math.log(counts.max() / beta + 1)
    bound += (counts.max() + counts[0] - 1) * math.log(1 + 1 / beta)
    return max(total.values()), n_sweeps * 2 * bound


def log_probability(first_word, start, end, beta) -> float:
    """Of the topics `end` after one sweep from the topics `start`."""
    words, topics, total = (first_word, *OTHERS), list(start), 0.0
    for i, topic in enumerate(end):
        weight = weights(words, topics, i, beta)
        total += math.log(weight[topic] / weight.sum())
        topics[i] = topic
    return total


def weights(words, topics, i, beta) -> np.ndarray:
    """Equation (1) for token `i`, without the token itself."""
    result = np.empty(2)
    for k in range(2):
        others = [j for j in range(5) if j != i and topics[j] == k]
        of_word = sum(words[j] == words[i] for j in others)
        of_document = sum(DOCUMENT[j] == DOCUMENT[i] for j in others)
        share = (of_word + beta) / (len(others) + N_WORDS * beta)
        result[k] = share * (of_document + ALPHA)
    return result


def replaced_word_loss(beta: float) -> tuple[float, float]:
    """The largest loss of the replaced word alone, and (4) in that state."""
    pairs = []
    for start in itertools.product(range(2), repeat=5):
        laws, counts = [], []
        for word in (0, 1):
            weight = weights((word, *OTHERS), start, 0, beta)
            laws.append(np.log(weight / weight.sum()))
            counts.append(
                [
                    sum(OTHERS[j] == word and start[j + 1] == k for j in range(4))
                    for k in range(2)
                ]
            )
        ratio = np.log((np.array(counts[1]) + beta) / (np.array(counts[0]) + beta))
        pairs.append((np.abs(laws[1] - laws[0]).max(), 2 * np.abs(ratio).max()))
    return max(pairs, key=lambda pair: pair[0] - pair[1])


# LP-LDA and OLP-LDA


def local():
    """Theorems 4 to 7 and equation (18)."""
    f, m, n = 0.5, 400, 120
    keep, flip = 1 - f / 2, f / 2
    loss = math.log(keep / flip)
    yield (
        "Theorem 4, a word",
        f"f = {f}",
        f"{math.log((1 - f / 2) / (f / 2)):.4f}",
        (f"{loss:.4f}"),
    )
    yield (
        "Theorem 4, a document",
        f"f = {f}, V = 1000",
        f"{1000 * loss:.0f}",
        (f"{1000 * loss:.0f}; {2 * 10 * loss:.0f} with at most 10 words"),
    )
    case = f"f = {f}, M = {m}, N = {n}"
    fixed = m * flip * keep / (1 - f) ** 2
    stated = (2 - f) * f * m / (4 * (1 - f) ** 2) + (m - n) * n / m
    yield (
        "Theorem 5, mean",
        case,
        f"{n}",
        f"{estimate(n * keep + (m - n) * flip, m, f)}",
    )
    drawn = fixed + m * (n / m) * (1 - n / m)
    yield (
        "Theorem 5, variance (9)",
        case,
        f"{stated:.1f}",
        (f"{fixed:.1f} for these documents; {drawn:.1f} if drawn independently"),
    )
    observed = round(n * keep + (m - n) * flip) + 10
    exact = likelihood(observed, n, m, f)
    sigma = math.sqrt(m * flip * keep)
    distance = 2 * observed - m * f - 2 * n * (1 - f)
    printed = math.exp(-(distance**2) / (4 * sigma**2)) / math.sqrt(2 * math.pi) / sigma
    right = math.exp(-(distance**2) / (8 * sigma**2)) / math.sqrt(2 * math.pi) / sigma
    yield (
        "equation (18)",
        f"{case}, n = {observed}",
        f"{printed:.5f}",
        (f"{exact:.5f}; {right:.5f} with 8 instead of 4"),
    )
    mean, spread = 100.0, 15.0
    omega = m * f * (2 - f) / (m * f * (2 - f) + 4 * spread**2 * (1 - f) ** 2)
    stated = omega * mean + (1 - omega) * estimate(observed, m, f)
    possible = np.arange(m + 1)
    posterior = norm.pdf(possible, mean, spread)
    posterior *= [likelihood(observed, x, m, f) for x in possible]
    exact = (possible * posterior).sum() / posterior.sum()
    yield (
        "Theorem 6, estimate (19)",
        f"{case}, prior {mean:g} +- {spread:g}",
        (f"{stated:.2f}"),
        f"{exact:.2f}",
    )
    variance = (1 - omega) ** 2 * drawn
    error = (1 - omega) ** 2 * fixed + (omega * (mean - n)) ** 2
    yield (
        "Theorem 7, variance (20)",
        case,
        f"{variance:.1f}",
        (
            f"{(1 - omega) ** 2 * fixed:.1f} for these documents; squared error, "
            f"bias included, {error:.1f}"
        ),
    )


def estimate(noisy: float, m: int, f: float) -> float:
    return (2 * noisy - f * m) / (2 * (1 - f))


def likelihood(noisy: int, true: int, m: int, f: float) -> float:
    """Equation (14)."""
    kept = np.arange(noisy + 1)
    joint = binom.pmf(kept, true, 1 - f / 2) * binom.pmf(noisy - kept, m - true, f / 2)
    return float(joint.sum())


# SUB-LDA


def sub_lda():
    """Theorem 3.1, lemmas 4.1 and 5.1, equations (11), (12)."""
    order, divergence, ratio = 14, 2.0, 0.5
    sigma = math.sqrt(order / (2 * divergence))
    case = f"order {order}, sigma {sigma:.2f}, ratio {ratio}"
    yield (
        "Theorem 3.1 (3), Gaussian",
        case,
        (f"{iteration_epsilon(ratio, order, divergence):.6f}"),
        f"{sampled_divergence(ratio, order, sigma):.6f}",
    )
    grid = (0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
    values = [math.log(efficiency_privacy(g, order, sigma)) for g in grid]
    missing = [
        math.log(efficiency_privacy(g, order, sigma, cost=without_last_term))
        for g in grid[:-1]
    ]
    yield (
        "Lemma 4.1",
        f"log I at {', '.join(f'{g:g}' for g in grid)}",
        ("rises, then falls"),
        (
            f"{', '.join(f'{v:.2f}' for v in values)}; without the last term of "
            f"(3) {', '.join(f'{v:.2f}' for v in missing)}"
        ),
    )
    epsilon, boost, share = 1.0, 2.0, 0.4
    small = math.log1p(0.1 * math.expm1(epsilon))
    large = math.log1p(boost * 0.1 * math.expm1(epsilon))
    yield (
        "Lemma 5.1 (13), given (19) and (20)",
        f"v = {boost:g}, ratio 0.1",
        (f"at most {small + math.log(boost):.4f}"),
        f"{large:.4f}",
    )
    n = 1000
    uniform, adaptive = n * 0.1 * 0.9, n * share * (boost * 0.1) * (1 - boost * 0.1)
    yield (
        "(12)",
        f"v = {boost:g}, q = {share:g}, ratio 0.1",
        (f"{0.9 / (share * boost * (1 - boost * 0.1)):.4f}"),
        f"{uniform / adaptive:.4f}",
    )


def sampled_divergence(ratio: float, order: int, sigma: float) -> float:
    """Renyi divergence of the Poisson-sampled Gaussian mechanism, integrated."""
    x = np.linspace(-40 * sigma, 40 * sigma + order, 2_000_001)
    log_mixture = np.logaddexp(
        math.log1p(-ratio), math.log(ratio) + (2 * x - 1) / (2 * sigma**2)
    )
    log_density = norm.logpdf(x, 0, sigma) + order * log_mixture
    top = log_density.max()
    integral = np.trapezoid(np.exp(log_density - top), x)
    return float((top + math.log(integral)) / (order - 1))


# Private SVI


def private_svi():
    """Theorem 1, lemmas 1 and 2, proposition 1, equations (3) to (5)."""
    delta, q, sigma = 1e-5, 0.01, 1.0
    plain = epsilon_of(Gaussian(sigma), delta)
    yield (
        "Theorem 1",
        f"nu = {q}, a Gaussian of ({plain:.3f}, {delta:g})",
        (f"at most {math.log1p(q * math.expm1(plain)):.4f}"),
        f"{epsilon_of(PoissonSampled(q, Gaussian(sigma)), q * delta):.4f}",
    )
    n_rounds, sigma = 100, 10.0
    rho = n_rounds / (2 * sigma**2)
    stated = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    yield (
        "Lemmas 1 and 2, Proposition 1",
        f"{n_rounds} rounds, sigma {sigma:g}",
        (f"at most {stated:.3f}"),
        f"{epsilon_of(Repeated(Gaussian(sigma), n_rounds), delta):.3f}",
    )
    yield (
        "(4), one document replaced",
        "N words each, no word in common",
        ("1.000 N / D"),
        f"{math.sqrt(2):.3f} N / D",
    )
    yield (
        "(4), the mean over S documents that Algorithm 1 releases",
        "D / S = 1000",
        ("1 N / D"),
        f"{1000 * math.sqrt(2):.0f} N / D",
    )
    size, n_docs, n_seen, total = 10, 400_000, 160_000, 1e-4
    delta_iter = total / (n_seen // size) / (size / n_docs)
    sigma = vips_noise(1.0, total, ratio=size / n_docs, max_iter=n_seen // size)
    epsilon = math.sqrt(2 * math.log(1.25 / delta_iter)) / sigma
    yield (
        "(3), S = 10",
        f"epsilon_iter = {epsilon:.2f}",
        (f"delta at most {delta_iter:.1e}"),
        f"{gaussian_delta(sigma, epsilon):.1e}",
    )
    delta_iter, epsilon = 0.9, 20.0
    sigma = math.sqrt(2 * math.log(1.25 / delta_iter)) / epsilon
    yield (
        "(3)",
        f"epsilon_iter = {epsilon:g}, delta_iter = {delta_iter}",
        (f"delta at most {delta_iter}"),
        f"{gaussian_delta(sigma, epsilon):.3f}",
    )


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """Delta of the Gaussian mechanism of sensitivity 1 (Balle and Wang, 2018)."""
    half = 1 / (2 * sigma)
    first = norm.cdf(half - epsilon * sigma)
    return float(first - math.exp(epsilon + norm.logcdf(-half - epsilon * sigma)))


# iFTM


def iftm():
    """Equations (9), (10), (18) and (19), the number of survivors, the encryption."""
    epsilon, tau, n_words = 8.0, 0.2, 2000
    yield (
        "(9) and (10), a blanked token",
        f"epsilon = {epsilon:g}",
        f"{epsilon:g}",
        (f"{epsilon:g}; {2 * epsilon:g} if it is replaced"),
    )
    yield (
        "3.1.3: coordinates above tau",
        (f"V = {n_words}, tau = {tau}, epsilon = {epsilon:g}"),
        f"{n_words / (2 * math.exp(tau * epsilon)):.1f}",
        (f"{0.5 * math.exp(-tau * epsilon) * (n_words - 1) + kept(tau, epsilon):.1f}"),
    )
    for label, inverted, live in (
        ("(18) as printed", True, True),
        ("(19), tables of line 12", False, False),
        ("(19), live tables", False, True),
    ):
        drift = invariance_error(inverted=inverted, live=live)
        yield (
            f"{label}: leaves (6) invariant",
            "a document of 3 tokens, K = 2",
            ("distance 0"),
            f"{drift:.4f}",
        )
    table = np.array([3.0, 1, 7, 0])
    yield (
        "3.1.5: dividing by the sum hides counts",
        "counts 3, 1, 7, 0",
        "hidden",
        (f"{', '.join(f'{x:g}' for x in recovered(table))} from the smallest entry"),
    )


def kept(tau: float, epsilon: float) -> float:
    """Probability that the token's own coordinate, 1 plus noise, is above tau."""
    return 1 - 0.5 * math.exp(-epsilon * (1 - tau))


def recovered(counts) -> np.ndarray:
    sent = counts / counts.sum()
    return np.rint(sent / sent[sent > 0].min())


def invariance_error(*, inverted: bool, live: bool) -> float:
    """Total variation between (6) and its law after doc-topic proposals of all tokens.

    Parameters
    ----------
    inverted : bool
        Multiply by the ratio of the proposals as (18) prints it.
    live : bool
        Proposals read the counts as they stand, the token's too; otherwise those at
        the beginning of the sweep.
    """
    alpha, n = 0.5, 3
    phi = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])  # token i has word i
    states = list(itertools.product(range(2), repeat=n))
    target = np.array([log_target(state, phi, alpha) for state in states])
    target = np.exp(target - np.logaddexp.reduce(target))
    after = np.zeros(len(states))
    for start, mass in zip(states, target):
        law = {start: mass}
        for i in range(n):
            moved: dict = {}
            for state, p in law.items():
                other = (*state[:i], 1 - state[i], *state[i + 1 :])
                table = np.bincount(state if live else start, minlength=2) + alpha
                q = table / table.sum()
                new, old = other[i], state[i]
                back = q
                if live:  # the table that would propose the way back
                    back = np.bincount(other, minlength=2) + alpha
                    back = back / back.sum()
                log_ratio = log_target(other, phi, alpha) - log_target(
                    state, phi, alpha
                )
                proposals = math.log(
                    q[new] / q[old] if inverted else back[old] / q[new]
                )
                accept = q[new] * min(1.0, math.exp(log_ratio + proposals))
                moved[other] = moved.get(other, 0.0) + p * accept
                moved[state] = moved.get(state, 0.0) + p * (1 - accept)
            law = moved
        for state, p in law.items():
            after[states.index(state)] += p
    return float(0.5 * np.abs(after - target).sum())


def log_target(state, phi, alpha) -> float:
    """Logarithm of (6), up to a constant, of all tokens of one document."""
    counts = np.bincount(state, minlength=2)
    likelihood = sum(math.log(phi[k, i]) for i, k in enumerate(state))
    return float(gammaln(counts + alpha).sum()) + likelihood


if __name__ == "__main__":
    main()
