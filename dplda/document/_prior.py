"""Public pseudo-counts as the prior of a document-level fit.

Everything here is a function of public tables, released values and public constants. It is
post-processing and has no privacy cost. ``docs/public_prior.md`` has the equations and the
argument.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit, logsumexp

from dplda.document._table_estimate import WordTotals, under_components
from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning

# Chosen together (`benchmarks/public_prior.py`, decision 22): of 228 settings one is worse than
# without a table by more than 1%, and made-up tables cost at most 1.0%. A slope that is learned in
# the place of trust, belief and doubt loses 7 points of the gap to a model without noise where a
# table is very good, and 4 to 10 where it is of another corpus, of seeds, or made up.
SMOOTHING = 2.0  # tokens, even in all topics, that each word's public shares are smoothed with
OVERDISPERSION = 4.0  # of public word counts: their variance over that of Poisson variables
ABSENT = 0.5, 2.0  # least and largest number of tokens that each word gets besides its public ones
LEVELS = 40  # of the word totals that a word may have whatever the public texts say
RATIOS = np.geomspace(1 / 16, 16, 17)  # of a word's private frequency to the public one
FIRST_PUBLIC = 0.8  # of the first weights of the mixture: the ratios' share
FIRST_RATIO = 0.5  # of the first weights of two ratios, of which the second is closer to 1
AGREE = (RATIOS > 0.49) & (RATIOS < 2.1)  # within a factor of 2
LEAST_COVERED = 0.25  # share of the words without which a table knows no word frequencies
TRUST_OF_SEEDS = 0.95  # of the shares of the words of such a table
REAL_SLOPES = np.linspace(0.06, 0.25, 20)  # of released rows on public contrasts
CHANCE_SLOPE = 0.01  # standard deviation of the slope of made-up topics, besides that of the noise
DOUBT = 0.1  # probability of made-up topics, if releases of totals are clear
SHARPER = 3.0  # is added to the power of the odds of `agreement` where releases are noise
MOST_CLEAR = 0.7  # largest trust in topics where releases are clear
N_CLASSES = 6  # of words, by their public tokens
POOL = 20.0  # words of the whole vocabulary that the mixture of each class is smoothed with
CHANCE = 10.0  # log likelihood that learned weights may gain over the ratio 1 by chance
STEPS = 300
HARDLY = 0.1  # trust below which a fit warns


@dataclass
class PublicPrior:
    """What public pseudo-counts say of a private table, and how far releases agree with them.

    Attributes
    ----------
    counts : ndarray of shape (n_words,)
        Public tokens of each word.
    shares : ndarray of shape (n_words, n_components), float32
        p(topic | word) of the public tokens. Rows sum to one.
    trust : float
        Share of the private tokens whose words are within a factor of 2 of their public
        frequencies. `learn_totals` sets it.
    agreement : float
        The same share of the tokens whose words the public texts have. `learn_totals` sets it.
    clear : float
        How clear the releases of word totals are, in [0, 1]. `learn_totals` sets it.
    slope : float
        Slope of the released rows of examined words on public topics. `examine` sets it.
    slope_error : float
        Standard deviation of its noise, infinite before the examination.
    """

    counts: np.ndarray
    shares: np.ndarray
    trust: float = 0.0
    agreement: float = 0.0
    clear: float = 0.0
    slope: float = 0.0
    slope_error: float = np.inf

    @classmethod
    def from_table(cls, table: np.ndarray) -> PublicPrior:
        """The prior of public pseudo-counts (n_components, n_words)."""
        counts, sizes = table.sum(axis=0), table.sum(axis=1)
        if np.allclose(sizes, 1):
            warn_user(
                "each topic of prior_components sums to 1, so that it counts as one public token, "
                "and is all but ignored; pass counts, as public_prior makes them, or multiply the "
                "table by the number of public tokens of each topic",
                LowSignalWarning,
            )
        shares = (table.T + SMOOTHING / len(table)) / (counts[:, None] + SMOOTHING)
        return cls(counts, np.ascontiguousarray(shares, np.float32))

    @property
    def smoothed(self) -> np.ndarray:
        """Public tokens, with some more for each word, (n_words,), positive.

        They are the posterior means of gamma variables as dispersed as the words are, of which
        `counts` are overdispersed counts.
        """
        mean = self.counts.mean()
        variance = max(self.counts.var() - OVERDISPERSION * mean, 1e-9)
        return self.counts + np.clip(OVERDISPERSION * mean**2 / variance, *ABSENT)

    @property
    def frequencies(self) -> np.ndarray:
        """Public word frequencies (n_words,), positive."""
        return self.smoothed / self.smoothed.sum()

    @property
    def is_hint(self) -> bool:
        """Whether the table has few words, such as seed words: it knows no word frequencies."""
        return bool(np.count_nonzero(self.counts) < LEAST_COVERED * len(self.counts))

    @property
    def has_topics(self) -> bool:
        """Whether examined words differ in their topics; those of released word weights do not."""
        return not self.is_hint and bool(np.ptp(self.shares[self.examined], axis=0).any())

    def trust_of_words(self) -> np.ndarray:
        """How far the shares of each word are trusted at first, (n_words,); 0 for absent words."""
        trust = TRUST_OF_SEEDS if self.is_hint else self.belief * self._trust_of_real()
        return np.where(self.counts > 0, trust, 0.0)

    @property
    def belief(self) -> float:
        """Probability that the public topics are real.

        Doubt begins where releases are clear: elsewhere wrong topics do less harm than noise would.
        """
        variance = self.slope_error**2 + CHANCE_SLOPE**2
        distances = (self.slope - REAL_SLOPES) ** 2 - self.slope**2  # from real, less from made-up
        evidence = logsumexp(-0.5 * distances / variance) - np.log(len(REAL_SLOPES))
        return float(expit(logit(1 - DOUBT * self.clear) + evidence))

    @property
    def examined(self) -> np.ndarray:
        """Mask of the words whose topics the first rounds examine: every other of the known ones.

        Both halves have words of all public frequencies.
        """
        order = np.argsort(self.counts, kind="stable")
        mask = np.zeros(len(self.counts), bool)
        mask[order[self.counts[order] > 0][::2]] = True
        return mask

    def examine(self, rows: np.ndarray, totals: np.ndarray, noise_scale: np.ndarray) -> None:
        """Set `slope` from released rows of the `examined` words, (n_words, n_components).

        The rows say which topics the other words of their documents have. Their slope on the public
        shares of the words themselves, less the mean shares, is about 0 if these are made up.
        `noise_scale` (n_words,) is the standard deviation of a cell of the rows.
        """
        expected = self._contrasts(totals, noise_scale)
        self.slope_error = self.noise_of_slope(totals, noise_scale)
        rows = rows[self.examined] / noise_scale[self.examined, None]
        self.slope = float((expected * rows).sum()) * self.slope_error**2

    def noise_of_slope(self, totals: np.ndarray, noise_scale: np.ndarray) -> float:
        """Standard deviation of the noise of the slope that `examine` finds."""
        return max(float((self._contrasts(totals, noise_scale) ** 2).sum()), 1e-12) ** -0.5

    def _contrasts(self, totals: np.ndarray, noise_scale: np.ndarray) -> np.ndarray:
        """Cells of the examined words for a slope of 1, over their noise, without the mean row."""
        words = self.examined
        size = totals[words, None] / noise_scale[words, None]
        mean = (size**2 * self.shares[words]).sum(axis=0) / (size**2).sum()
        expected: np.ndarray = size * (self.shares[words] - mean)
        return expected

    def _trust_of_real(self) -> float:
        """Trust in the topics of words that the public texts have, if the topics are real.

        Where releases are noise, it is `agreement`, or more above a half: topics are wrong less
        often than frequencies are, and the private texts have nothing to put in their place. Where
        releases are clear, it is `trust`, and not too much: the private texts know more.
        """
        power = 1 + SHARPER * (1 - self.clear)
        noise = max(self.agreement, expit(power * logit(self.agreement)))
        return float(noise + self.clear**2 * (min(self.trust, MOST_CLEAR) - noise))

    def learn_totals(self, released: WordTotals) -> np.ndarray:
        """Posterior means of word totals, positive; sets `trust`.

        The prior of a word's total is a mixture of normal distributions in two families. One is
        that of `smooth_totals`, levels whatever the public texts say. The other is the word's
        public frequency times one of `RATIOS`. Expectation-maximization fits the weights in classes
        of words with about equally many public tokens.
        """
        if self.is_hint:
            return released.smooth()
        noisy, noise_scale = released.noisy, released.noise_scale
        mean = max(released.mean, 0.01 * float(noise_scale.mean()), 1e-9)
        centers, variances = self._mixture(mean, float(noisy.max()))
        likelihood, means = under_components(noisy, noise_scale, centers, variances)
        joint = posteriors(likelihood, count_classes(self.counts))
        totals = np.maximum((joint * means).sum(axis=1), mean / 100)
        agreement = joint[:, LEVELS:][:, AGREE].sum(axis=1) * (self.counts >= 1)
        agreement = np.maximum(agreement, 0.0)  # rounding errors
        self.trust = float((agreement * totals).sum() / totals.sum())
        known = max(float(totals[self.counts >= 1].sum()), 1e-9)
        self.agreement = min(1.0, float((agreement * totals).sum()) / known)
        expected = self.frequencies * mean * len(noisy)
        self.clear = float(np.mean(expected**2 / (expected**2 + noise_scale**2)))
        return totals if noise_scale.any() else np.maximum(noisy, 1.0)

    def warn_of_mismatch(self, name: str) -> None:
        """Warn if the estimator `name` makes next to no use of its public texts."""
        if not self.is_hint and self.trust < HARDLY:
            warn_user(
                f"the public texts behind prior_components of {name} hardly match the private "
                f"documents (prior_trust_ is {self.trust:.2f}, below {HARDLY}), and were all but "
                "ignored; use public texts of the same kind, or leave prior_components=None",
                LowSignalWarning,
            )

    def _mixture(self, mean: float, largest: float) -> tuple[np.ndarray, np.ndarray]:
        """Centers and variances of both families, (n_words, components) each."""
        levels = np.geomspace(mean / 100, max(mean * 60, largest), LEVELS)
        levels = np.broadcast_to(levels, (len(self.counts), LEVELS))
        of_public = np.outer(self.frequencies * mean * len(self.counts), RATIOS)
        own = OVERDISPERSION / self.smoothed[:, None]  # error of a public frequency
        variances = half_step(levels[0]) * levels**2, (half_step(RATIOS) + own) * of_public**2
        return np.hstack([levels, of_public]), np.hstack(variances)


def half_step(grid: np.ndarray) -> float:
    """Relative variance that reaches half of the way to the next point of a geometric grid."""
    return float(0.5 * np.log(grid[1] / grid[0])) ** 2


def count_classes(counts: np.ndarray) -> np.ndarray:
    """The class of each word, by its public tokens; words with equally many share a class."""
    rank = np.argsort(np.argsort(counts, kind="stable"), kind="stable")
    _, same = np.unique(counts, return_inverse=True)
    first = np.full(same.max() + 1, len(counts))
    np.minimum.at(first, same, rank)
    classes = first[same] * N_CLASSES // len(counts)
    return np.unique(classes, return_inverse=True)[1]


def posteriors(likelihood: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Posterior probability of each component for each word, (n_words, components).

    Either all words have the ratio 1, or the weights of the components are those that
    expectation-maximization learns in each class, smoothed with those of all words. Learned weights
    fit better by chance, by about `CHANCE`. They are believed as far as they fit better than that.
    """
    first, equal = first_weights(), np.append(np.zeros(LEVELS), RATIOS == 1)
    members = [classes == c for c in range(classes.max() + 1)]
    parts = [likelihood[words] for words in members]
    weights = np.tile(first, (len(members), 1))
    for _ in range(STEPS):
        # einsum, unlike BLAS, adds in one order whatever the number of threads
        evidence = [np.einsum("vg,g->v", part, w) for part, w in zip(parts, weights)]
        sums = np.array([np.einsum("vg,v->g", p, 1 / e) for p, e in zip(parts, evidence)]) * weights
        pooled = POOL * sums.sum(axis=0) / len(likelihood)
        weights = np.array([(s + pooled) / (len(p) + POOL) for s, p in zip(sums, parts)])
    joint = likelihood * weights[classes]
    total = joint.sum(axis=1, keepdims=True)
    gain = np.log(total.sum(axis=1)) - np.log(np.maximum(likelihood @ equal, 1e-300))
    share: np.ndarray = expit(gain.sum() - CHANCE) * joint / total
    share += (1 - share.sum(axis=1, keepdims=True)) * equal
    return share


def first_weights() -> np.ndarray:
    """The weights that expectation-maximization starts from: they favor the public frequencies."""
    near = FIRST_RATIO ** np.abs(np.arange(len(RATIOS)) - len(RATIOS) // 2)
    levels = np.full(LEVELS, (1 - FIRST_PUBLIC) / LEVELS)
    return np.concatenate([levels, FIRST_PUBLIC * near / near.sum()])
