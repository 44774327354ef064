"""The table that a document-level fit begins with.

Everything here is a function of released values and of public constants. It is post-processing and
has no privacy cost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from dplda.document._prior import PublicPrior
from dplda.document._table_passes import pieces_of
from dplda.privacy._streams import Purpose, Streams, uniform


def exponential(draws: np.ndarray) -> np.ndarray:
    """Exponential perturbations: topics that differ much from each other."""
    return -np.log(draws)


def nearly_equal(draws: np.ndarray) -> np.ndarray:
    """Log-normal perturbations of about a tenth, as in online variational Bayes."""
    return np.exp(0.1 * ndtri(draws))


def first_table(
    totals: np.ndarray,
    n_components: int,
    streams: Streams,
    public: PublicPrior | None = None,
    ratios: Callable[[np.ndarray], np.ndarray] = exponential,
) -> np.ndarray:
    """Word totals, divided among random topics, (n_words, n_components).

    As far as `public` is trusted, its shares take the place of random ones.

    `ratios` maps uniform random numbers to multiplicative perturbations of the word totals, one for
    each word and topic.
    """
    table = np.empty((len(totals), n_components))
    if public is not None:
        streams = Streams.from_random_state(0)  # a public one, which audits can repeat
    reader = streams.reader(Purpose.INITIAL_TABLE, 0)
    for first, last in pieces_of(table.shape):
        words = reader.words((last - first) * n_components)
        draws = ratios(uniform(words, positive=True)).reshape(-1, n_components)
        np.multiply(totals[first:last, None], draws, out=table[first:last])
    table /= table.sum(axis=0)
    table *= totals.sum() / n_components
    if public is not None:
        trust = public.trust_of_words()[:, None]
        table *= 1 - trust
        table += trust * totals[:, None] * public.shares
    return table


def examining_table(totals: np.ndarray, public: PublicPrior) -> np.ndarray:
    """Word totals, divided as public topics say, (n_words, n_components).

    Words that are examined say nothing: they have the same probability in each topic.
    """
    table = totals[:, None] * public.shares
    words = public.examined
    sizes = table[~words].sum(axis=0)
    table[words] = totals[words, None] * (sizes / sizes.sum())
    return table
