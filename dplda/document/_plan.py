"""What a document-level fit can be expected to learn, before any data are read.

Everything here is a function of public constants. ``benchmarks/planner.py`` fits the
coefficients and measures their error; ``docs/choosing.md`` has its output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplda.core._base import MAX_ITER
from dplda.core._private_fit import SMALLEST_DELTA
from dplda.core._signal import FEWEST_TOPICS
from dplda.document._document_budget import (
    NORM,
    SCALE_UP,
    SMALLEST_RATIO,
    document_budget,
)
from dplda.leaf._checks import check_delta, check_integer, check_number
from dplda.leaf._messages import warn_user
from dplda.privacy import LowSignalWarning

# Half of the gap takes HALF * n_words**WORDS * (noise of a cell / largest contribution)
# documents, VECTORS times as many with word vectors, and n_docs close the share 1 -
# (half / n_docs)**DECAY / 2.
HALF, WORDS, DECAY, VECTORS = 23.5, 0.667, 0.560, 0.59
# Standard error of that share on a corpus that was not used, where the share is above
# zero, without and with vectors. These gain much on general English, and little on
# technical texts.
ERROR = 0.13, 0.23
# Topics that are not weak, for each `half` documents without vectors, which change this
# little (benchmarks/topic_signal.py).
STANDING = 15.0
# Documents that close half of the gap, over `half`: eight of ten settings lie between.
# On two other corpora, of 9,575 and 14,613 documents, it is 2.0 and 2.6.
FEWEST, MOST = 0.6, 2.7
# A document scaled to the norm C has about BURST C length**LENGTH counts.
BURST, LENGTH = 3.1, 0.2
LARGEST = 10**12  # documents, words or topics: more is a mistake
# Below it the formula is off both ways, with vectors or without: 299 users of KOS have
# 1 and 6 topics that are not weak at epsilon 4 and 8, where it counts 2 and 4; 880 of
# glosses have 0.5 and 14.5, where it counts 6 and 12; and 135 of NIPS, 201 of BBC and
# 585 of docstrings have 0 and 0.5 at most (benchmarks/topic_signal.py --users 10).
FEWEST_DOCS = 1000
TOO_FEW = (
    f"a fit to fewer than {FEWEST_DOCS:,} documents or users may have no topic that "
    "stands out, even where the formula counts some; public texts of the same kind help"
)


@dataclass(frozen=True)
class Plan:
    """What to expect of a fit; `print` shows it as a table.

    Parameters
    ----------
    n_docs, n_words, n_components, epsilon, delta, word_vectors : float or bool
        As given.
    signal : float
        Expected mean count in a cell of `components_`, in counts of scaled documents.
    noise : float
        Standard deviation of the noise of such a cell, in the same unit.
    gap_closed : float
        Expected share of the gap in held-out perplexity that is closed, from 0 for word
        frequencies to 1 for a model without noise. At most 0: word frequencies are
        expected to be as good.
    gap_error : float
        Standard error of `gap_closed` on a corpus that the formula was not fitted to.
    docs_for_half : int
        Number of documents that are expected to close half of the gap. From 0.6 to 2.7
        times this number were measured.
    recommended_components : int
        Number of topics that are expected not to be weak, from 2 to 100.
    recommended_words : int
        Largest vocabulary with which `n_docs` are expected to close half of the gap.
    """

    n_docs: int
    n_words: int
    n_components: int
    epsilon: float
    delta: float
    word_vectors: bool
    signal: float
    noise: float
    gap_closed: float
    gap_error: float
    docs_for_half: int
    recommended_components: int
    recommended_words: int

    def __str__(self) -> str:
        closed = f"{self.gap_closed:.0%} +- {self.gap_error:.0%}"
        if self.gap_closed <= 0:
            closed = "none: word frequencies are expected to be as good"
        low = FEWEST * self.docs_for_half
        high = MOST * self.docs_for_half
        half = f"{self.docs_for_half:,} ({low:,.0f} to {high:,.0f})"
        words = f"{self.n_words:,}{' with vectors' * self.word_vectors}"
        rows = {
            "epsilon, delta": f"{self.epsilon:g}, {self.delta:g}",
            "documents": f"{self.n_docs:,}",
            "words, topics": f"{words}, {self.n_components}",
            "signal per cell": f"{self.signal:.3g} counts",
            "noise per cell": f"{self.noise:.3g} counts",
            "gap closed": closed,
            "documents for half of the gap": half,
            "recommended topics": f"at most {self.recommended_components}",
            "recommended words": f"at most {self.recommended_words:,}",
        }
        if self.n_docs < FEWEST_DOCS:
            rows["caution"] = TOO_FEW
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())

    def _repr_markdown_(self) -> str:  # of a notebook
        return f"```text\n{self}\n```"


def plan(
    *,
    n_docs: int,
    epsilon: float,
    n_words: int = 2000,
    n_components: int = 10,
    mean_doc_words: float = 100.0,
    delta: float = 1e-6,
    subsampling_ratio: float = 1.0,
    max_iter: int | None = None,
    word_vectors: bool = False,
) -> Plan:
    """What to expect of `SubLDA` on a corpus of some size, before any data are read.

    The formula was fitted to eight public corpora. It reads no data. All arguments must
    be public: an expectation, not a count of the private documents.

    Parameters
    ----------
    n_docs : int
        Expected number of documents, or of users if `user_ids` protect users.
    epsilon : float
        Total epsilon of the fit, above 0.
    n_words : int, default=2000
        Size of the vocabulary.
    n_components : int, default=10
        Number of topics.
    mean_doc_words : float, default=100.0
        Expected number of words of the vocabulary in a document. Only `signal` depends
        on it.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy.
    subsampling_ratio : float, default=1.0
        Probability with which a document takes part in a round, as in `SubLDA`.
    max_iter : int or None, default=None
        Number of rounds, as in `SubLDA`. None is 80 at `subsampling_ratio` 1.
    word_vectors : bool, default=False
        Whether the fit gets vectors of its words, as `PrivateTopicModel` takes them by
        default.

    Returns
    -------
    plan : Plan
        The expectation; `print` shows it as a table.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a number, or is out of range.

    Warns
    -----
    UserWarning
        If `delta` is at least 1 / `n_docs`.
    LowSignalWarning
        If more than half of the topics are expected to be weak.

    See Also
    --------
    SubLDA : `expected_n_docs` gives the same warnings in `fit`.

    Examples
    --------
    >>> from dplda import plan
    >>> expected = plan(n_docs=10_000, epsilon=4.0, n_words=2000, n_components=20)
    >>> expected.docs_for_half < 10_000
    True
    """
    if not isinstance(word_vectors, bool):
        raise TypeError(
            "word_vectors must be True or False, whether the fit gets vectors, got "
            f"{type(word_vectors).__name__}"
        )
    sizes = {"n_docs": n_docs, "n_words": n_words, "n_components": n_components}
    for name, size in sizes.items():
        check_integer(name, size, 1, LARGEST)
    check_number("epsilon", epsilon, 0.0, 1e9, closed="right")
    check_delta(delta, least=SMALLEST_DELTA)
    check_number("mean_doc_words", mean_doc_words, 0.0, LARGEST, closed="right")
    check_number("subsampling_ratio", subsampling_ratio, SMALLEST_RATIO, 1.0)
    if max_iter is not None:
        check_integer("max_iter", max_iter, 1, MAX_ITER)
    budget = document_budget(
        epsilon, None, delta, max_iter=max_iter, subsampling_ratio=subsampling_ratio
    )
    half, standing = expectation(budget.noise, delta=delta, **sizes)
    half *= VECTORS if word_vectors else 1.0
    scaled = min(SCALE_UP * mean_doc_words, BURST * NORM * mean_doc_words**LENGTH)
    return Plan(
        **sizes,
        epsilon=float(epsilon),
        delta=float(delta),
        word_vectors=word_vectors,
        signal=n_docs * scaled / (n_words * n_components),
        noise=NORM * budget.noise,
        gap_closed=1 - 0.5 * (half / n_docs) ** DECAY,
        gap_error=ERROR[word_vectors],
        docs_for_half=math.ceil(half),
        recommended_components=round(min(100, max(2, standing))),
        recommended_words=max(1, round(n_words * (n_docs / half) ** (1 / WORDS))),
    )


def expectation(
    noise: float, *, n_docs: int, n_words: int, n_components: int, delta: float
) -> tuple[float, float]:
    """Documents that close half the gap without word vectors, and topics not weak.

    Warns if these topics are few, and of a delta that is too large. All arguments are
    public: `n_docs` is what somebody expects, never the size of private data.
    """
    if delta * n_docs >= 1:  # which publishing some documents as they are satisfies
        warn_user(
            f"delta={delta:g} is at least 1 / {n_docs}, the number of documents: a "
            "mechanism that publishes each document with probability delta satisfies "
            f"it; choose delta well below {1 / n_docs:.2g}"
        )
    half = HALF * noise * n_words**WORDS
    standing = STANDING * n_docs / half
    if n_components > 1 and standing < FEWEST_TOPICS * n_components:
        fewer = f"n_components={standing:.0f}, " if round(standing) >= 2 else ""
        needed = math.ceil(FEWEST_TOPICS * n_components * n_docs / standing)
        warn_user(
            f"about {standing:.0f} of {n_components} topics are expected to stand out "
            f"with {n_docs} documents and {n_words} words: use {fewer}{needed} "
            "documents or more, a larger epsilon, or fewer words",
            LowSignalWarning,
        )
    return half, standing
