"""Which topics of a party are more than noise, by reports of held-out documents.

The noisy vectors of a party's tokens are public. The vectors of one document in ten do
not train. The words are split into two halves. The test compares what the reports of a
document say of a topic in the two halves: if the words of the topic do not belong
together, the halves are unrelated. ``docs/proofs_local.md`` has the theorem.

Everything here is a function of noisy vectors. It is post-processing and has no privacy
cost.
"""

from __future__ import annotations

import numpy as np

from dplda.core._signal import FEWEST_TESTS, deviate_of_mean, first_half
from dplda.federated._tokens import Tokens


def evidence_of_reports(tokens: Tokens, components: np.ndarray) -> np.ndarray:
    """At most standard normal for a topic whose words do not belong together, (K,).

    `tokens` come from documents that did not train `components` (n_components,
    n_words). NaN if there are too few documents, or only one topic, which cannot be
    told from others.
    """
    lengths = np.diff(tokens.doc_ptr)
    has_words = lengths > 0
    n_components = len(components)
    if np.count_nonzero(has_words) < FEWEST_TESTS or n_components == 1:
        return np.full(n_components, np.nan)
    totals = components.sum(axis=0)
    frequency = totals / totals.sum()
    shares = components / components.sum(axis=1, keepdims=True)
    # the variance of an unbiased count of one token
    variance = frequency + tokens.flip * (1 - tokens.flip) / (1 - 2 * tokens.flip) ** 2
    claims = ((shares - frequency) / variance).T
    first = first_half(tokens.n_words, 0)
    # Lengths of a half add nothing, because a claim is orthogonal to the word counts of
    # these documents. Word counts of the table would be biased where words are lost in
    # the noise.
    scores = tokens.word_scores()
    common = frequency / variance
    said = []
    for half in (first, ~first):
        along = scores[half] @ claims[half] / (scores[half] @ common[half])
        claim = (claims - np.outer(common, along)) * half[:, None]
        said.append(tokens.counts_times(claim))
    met = (said[0] * said[1])[has_words] / lengths[has_words, None]
    return deviate_of_mean(met.sum(axis=0), np.sum(met**2, axis=0), len(met))
