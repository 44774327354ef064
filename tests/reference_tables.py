"""Slow plain twin of the table estimate, in numpy."""

import numpy as np

from dplda.document._table_estimate import (
    FACTORS,
    FIRST_STEPS,
    LAST_STEPS,
    NEXT_STEPS,
    first_prior,
    word_classes,
)

SPREAD = np.float32(0.25)  # standard deviation of a factor, as a share of it


class TableEstimate:
    """Twin of `dplda.document._table_estimate.TableEstimate` that learns priors from all cells."""

    def __init__(self, totals, public=None):
        self.totals, self.public, self.prior = totals, public, None
        self.classes = word_classes(totals, public)

    def __call__(self, noisy, noise_scale, *, last=False, least=0.0):
        if not noise_scale.any():
            return np.maximum(noisy, 0.0) + least
        sizes = noisy.sum(axis=0)
        sizes = np.maximum(sizes, 0.02 * max(sizes.mean(), 1e-12))
        center = np.outer(self.totals / self.totals.sum(), sizes)
        centers = [center]
        if self.public is not None:
            expected = self.totals[:, None] * self.public.shares.astype(float)
            gain = np.clip(sizes / np.maximum(expected.sum(axis=0), 1e-12), 0.5, 2)
            centers.append(expected * np.sqrt(gain))
        prior, steps = self.prior, NEXT_STEPS
        if prior is None or last:
            prior = np.array([first_prior(self.public, words) for words in self.classes])
            steps = LAST_STEPS if last else FIRST_STEPS
        table = np.empty_like(center)
        for c, words in enumerate(self.classes):
            means = np.concatenate([np.multiply.outer(FACTORS, m[words]) for m in centers])
            likelihood, precision = component_likelihood(noisy[words], means, noise_scale[words])
            prior[c] = improve_prior(prior[c], likelihood, steps)
            table[words] = mean_of_components(prior[c], likelihood, precision, noisy[words], means)
        self.prior = prior
        return table + least


def cell_likelihood(
    noisy: np.ndarray, center: np.ndarray, noise_scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Likelihood of every cell under each factor.

    Returns
    -------
    likelihood : ndarray of shape (n_factors, n_cells)
        Normal densities up to one constant for each cell. The exponents are relative to that of the
        nearest factor, so that they do not all underflow.
    precision : ndarray of shape (n_factors, n_cells)
        Variance of the noise over that of the cell, under each factor.
    """
    unit = (center / noise_scale[:, None]).astype(np.float32).ravel()
    seen = (noisy / noise_scale[:, None]).astype(np.float32).ravel()
    likelihood = np.empty((len(FACTORS), unit.size), np.float32)
    precision = np.empty_like(likelihood)
    scratch = np.empty_like(unit)
    # factor by factor and in place: three times faster than on whole tables
    for factor, row, weight in zip(FACTORS, likelihood, precision):
        np.multiply(unit, factor, out=scratch)
        np.multiply(scratch, SPREAD, out=weight)
        weight *= weight
        weight += 1
        np.reciprocal(weight, out=weight)
        np.subtract(seen, scratch, out=row)
        row *= row
        row *= weight
    nearest = likelihood.min(axis=0)
    for row, weight in zip(likelihood, precision):
        row -= nearest
        row *= -0.5
        np.exp(row, out=row)
        row *= np.sqrt(weight, out=scratch)
    return likelihood, precision


def component_likelihood(noisy, means, noise_scale):
    """Likelihood of every cell under each component, as `cell_likelihood`, in double precision.

    `means` (components, n_words, n_components) are the means of the components.
    """
    unit, seen = means / noise_scale[:, None], noisy / noise_scale[:, None]
    precision = 1 / (1 + (SPREAD * unit) ** 2)
    distance = (seen - unit) ** 2 * precision
    likelihood = np.exp(-0.5 * (distance - distance.min(axis=0))) * np.sqrt(precision)
    return [x.reshape(len(means), -1) for x in (likelihood, precision)]


def mean_of_components(prior, likelihood, precision, noisy, means):
    """Posterior means, shape as `noisy`; not negative."""
    joint = prior[:, None] * likelihood
    of_cell = means.reshape(len(means), -1)
    of_cell = of_cell + (1 - precision) * (noisy.ravel() - of_cell)
    return np.maximum((joint * of_cell).sum(axis=0) / joint.sum(axis=0), 0).reshape(noisy.shape)


def improve_prior(prior: np.ndarray, likelihood: np.ndarray, n_steps: int) -> np.ndarray:
    """Expectation-maximization for the prior over the factors."""
    for _ in range(n_steps):
        evidence = np.einsum("g,gi->i", prior.astype(likelihood.dtype), likelihood)
        prior = prior * np.einsum("gi,i->g", likelihood, 1 / evidence) / len(evidence) + 1e-5
        prior = prior / prior.sum()
    return prior


def posterior_mean(
    prior: np.ndarray,
    likelihood: np.ndarray,
    precision: np.ndarray,
    noisy: np.ndarray,
    center: np.ndarray,
) -> np.ndarray:
    """Posterior mean of every cell's count, shape as `noisy`; not negative.

    Under factor F a cell's mean is F center + (1 - precision) (noisy - F center).
    """
    prior = prior.astype(np.float32)
    trust = likelihood * precision
    total = np.einsum("g,gi->i", prior, likelihood)
    kept = np.einsum("g,gi->i", prior, trust) / total
    expected = np.einsum("g,gi->i", prior * FACTORS, trust) / total
    shape = noisy.shape
    return np.maximum(center * expected.reshape(shape) + noisy * (1 - kept.reshape(shape)), 0)
