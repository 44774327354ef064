"""What a document-level fit can be expected to learn, before any data are read.

Everything here is a function of public constants. ``benchmarks/planner.py`` fits the
knowledge of new words, and measures its error; ``docs/choosing.md`` has its output.
``benchmarks/topic_signal.py plan`` fits the topics that are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import ndtr, ndtri

from dplda.core._base import MAX_ITER
from dplda.core._private_estimator import SMALLEST_DELTA
from dplda.core._signal import FALSE_POSITIVES
from dplda.document._document_budget import (
    NORM,
    SMALLEST_RATIO,
    document_budget,
)
from dplda.leaf._checks import check_delta, check_epsilon, check_integer, check_number
from dplda.leaf._messages import warn_user
from dplda.privacy import Gaussian, LowSignalWarning, calibrate, split_epsilon

# Knowledge of new words: the gain on words that are new to a document, as a share of
# the gain of topics without privacy. Topics of half = HALF * cbrt(n_words) * (noise of
# a cell / largest contribution) documents know half, and topics of n_docs documents
# know 1 - sqrt(half / n_docs) / 2. Fitted powers are no better on other corpora.
HALF = 316.8
# Standard error, on a corpus that was not used for the fit, of the share where it is
# above zero, and of the share of the topics that are shown.
ERROR = 0.154
# With vectors, public clusters of words know this share of general English, and nothing
# of texts with a language of their own. Private topics know their share of the rest.
CLUSTERS = 0.5
# Share of this rest that private topics must know to say more than 60 clusters, on news
# and on definitions (benchmarks/utility.py pays).
PAYS = 0.37
# With SHOWN * n_docs / noise of a cell topics, half are shown. The median z falls like
# the inverse of the number of topics, and the logarithms of all z have the standard
# deviation 1. Words and vectors change this little.
SHOWN = 0.0036
# Below this number of documents, the formula counts too many topics: at epsilon 8,
# where it counts 2 of 5, fits of 300 documents of KOS, glosses, NIPS and BBC show none
# (benchmarks/topic_signal.py plan).
FEWEST_DOCS = 1000
INSTEAD = (  # without and with vectors
    "word totals alone are expected to say as much",
    "of general English, public clusters of words with private totals say as much",
)
COUNTS_SHARE = 0.2  # share of counts by group in the budget of a fit with counts
TOO_FEW = (
    f"a fit to fewer than {FEWEST_DOCS:,} documents or users may show no topic, even "
    "where the formula counts some; public texts of the same kind help"
)


@dataclass(frozen=True)
class Plan:
    """What to expect of a fit; `print` shows it as a table.

    Parameters
    ----------
    n_docs, n_words, n_components, epsilon, delta, word_vectors : float or bool
        As given.
    noise : float
        Standard deviation of the noise in a cell of `components_`, in counts of
        documents that are scaled to the same L2 norm.
    new_words : float
        Expected knowledge of words that are new to a document: the gain of private
        topics over word frequencies, as a share of the gain of topics without privacy
        (`new_word_gain` of `dplda.metrics.held_out_scores`). At most 0: word
        frequencies are expected to be as good. With vectors, this is for texts with a
        language of their own, of which the vectors say little.
    new_words_english : float
        The same for general English: with vectors, a half, which public clusters of
        words know, and the share of the other half that private topics know.
    new_words_error : float
        Standard error of `new_words` on a corpus that the formula was not fitted to.
    docs_for_half : int
        Number of documents with which `new_words` is a half.
    docs_to_pay : int
        Number of documents from which topics are expected to add something to what
        costs less: to word totals, or with vectors, of general English, to 60 public
        clusters of words with private word totals. Where texts have a language of their
        own, clusters say little, and topics add to them sooner.
    topics_shown : float
        Number of the `n_components` topics that are expected to be shown, which is not
        to be `weak_topics_`. The standard error is 0.15 `n_components`.
    recommended_components : int
        Largest number of topics of which half are expected to be shown, from 2 to 100.
    groups : tuple of int
        Numbers of groups of the tables of counts, as given.
    count_noise, smallest_change : float
        Standard deviation of each number of these tables, and the smallest difference
        of two of them that is told from noise, at 95%. Zero without `groups`.
    """

    n_docs: int
    n_words: int
    n_components: int
    epsilon: float
    delta: float
    word_vectors: bool
    noise: float
    new_words: float
    new_words_english: float
    new_words_error: float
    docs_for_half: int
    docs_to_pay: int
    topics_shown: float
    recommended_components: int
    groups: tuple[int, ...] = ()
    count_noise: float = 0.0
    smallest_change: float = 0.0

    def __str__(self) -> str:
        known = f"{max(0.0, self.new_words):.0%} +- {self.new_words_error:.0%}"
        if self.word_vectors:
            known += f", of general English {self.new_words_english:.0%}"
        elif self.new_words <= 0:
            known = "none: word frequencies are expected to be as good"
        # if the formula knows too little or too much by its standard error
        low = docs_to_know(0.5 - self.new_words_error, self.docs_for_half)
        high = docs_to_know(0.5 + self.new_words_error, self.docs_for_half)
        half = f"{self.docs_for_half:,} ({low:,} to {high:,})"
        words = f"{self.n_words:,}{' with vectors' * self.word_vectors}"
        rows = {
            "epsilon, delta": f"{self.epsilon:g}, {self.delta:g}",
            "documents": f"{self.n_docs:,}",
            "words, topics": f"{words}, {self.n_components}",
            "noise per cell": f"{self.noise:.3g} counts",
            "knowledge of new words": known,
            "documents for half of it": half,
            "private topics pay from": f"about {self.docs_to_pay:,} documents",
            "topics shown": f"{self.topics_shown:.0f} of {self.n_components}",
            "recommended topics": f"at most {self.recommended_components}",
        }
        if self.n_docs < self.docs_to_pay:
            rows["instead"] = INSTEAD[self.word_vectors]
        for n_groups in self.groups:
            mean = self.n_docs / (n_groups * self.n_components)
            verdict = ": too fine" if mean < self.count_noise else ""
            rows[f"numbers by {n_groups} groups"] = (
                f"mean {mean:.3g}, noise {self.count_noise:.3g}{verdict}"
            )
        if self.groups:
            rows["smallest change"] = f"{self.smallest_change:.3g} between two numbers"
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
    delta: float = 1e-6,
    subsampling_ratio: float = 1.0,
    max_iter: int | None = None,
    word_vectors: bool = False,
    groups: Sequence[int] = (),
    counts_share: float = COUNTS_SHARE,
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
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy.
    subsampling_ratio : float, default=1.0
        Probability with which a document takes part in a round, as in `SubLDA`.
    max_iter : int or None, default=None
        Number of rounds, as in `SubLDA`. None is 80 at `subsampling_ratio` 1.
    word_vectors : bool, default=False
        Whether the fit gets vectors of its words, as `PrivateTopicModel` takes them by
        default.
    groups : sequence of int, default=()
        Numbers of groups by which documents are counted (`private_topic_counts`), one
        for each grouping: (9, 12) for 9 wards and 12 months, and (108,) for the table
        of both together. `epsilon` is then the total of the fit and of the counts.
    counts_share : float, default=0.2
        Share of the counts in the budget, measured as in `split_epsilon`.

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
        If fewer than half of the topics are expected to be shown.

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
        check_integer(name, size, 1)
    check_epsilon(epsilon)
    check_delta(delta, least=SMALLEST_DELTA)
    check_number("subsampling_ratio", subsampling_ratio, SMALLEST_RATIO, 1.0)
    if max_iter is not None:
        check_integer("max_iter", max_iter, 1, MAX_ITER)
    sizes_of_groups = tuple(check_integer("groups", n, 1) for n in groups)
    for_topics = float(epsilon)
    noise = 0.0
    if sizes_of_groups:
        for_counts, for_topics = split_counts(epsilon, counts_share, delta)
        noise = calibrate(Gaussian, for_counts, delta)
        noise *= math.sqrt(len(sizes_of_groups))
    budget = document_budget(
        for_topics, None, delta, max_iter=max_iter, subsampling_ratio=subsampling_ratio
    )
    warn_of_size(budget.noise, n_docs, n_components, delta)
    half = HALF * budget.noise * math.cbrt(n_words)
    known = 1 - math.sqrt(half / n_docs) / 2
    of_clusters = CLUSTERS if word_vectors else 0.0
    to_know = PAYS if word_vectors else 0.0
    return Plan(
        **sizes,
        epsilon=float(epsilon),
        delta=float(delta),
        word_vectors=word_vectors,
        noise=NORM * budget.noise,
        new_words=known,
        new_words_english=of_clusters + (1 - of_clusters) * max(0.0, known),
        new_words_error=ERROR,
        docs_for_half=math.ceil(half),
        docs_to_pay=docs_to_know(to_know, half),
        topics_shown=topics_shown(budget.noise, n_docs, n_components),
        recommended_components=min(100, max(2, most_topics(budget.noise, n_docs))),
        groups=sizes_of_groups,
        count_noise=noise,
        # a two-sided test of the difference of two numbers
        smallest_change=-ndtri(FALSE_POSITIVES / 2) * math.sqrt(2) * noise,
    )


def docs_to_know(share: float, half: float) -> int:
    """Number of documents with which topics know a share, if `half` know a half."""
    return math.ceil(half / (2 * (1 - share)) ** 2)


def split_counts(epsilon: float, share: float, delta: float) -> tuple[float, float]:
    """Split a finite total epsilon: for counts by group, and for the fit."""
    check_number("counts_share", share, 0.0, 1.0, closed="neither")
    for_counts, for_fit = split_epsilon(epsilon, (share, 1.0 - share), delta=delta)
    return for_counts, for_fit


def topics_shown(noise: float, n_docs: float, n_components: int) -> float:
    """Number of topics that are expected to be shown.

    `noise` is the noise scale of a cell of the average, over NORM.
    """
    middle = SHOWN * n_docs / (n_components * noise)  # over the z that is shown
    return float(n_components * ndtr(math.log(middle)))


def most_topics(noise: float, n_docs: float) -> int:
    """The largest number of topics of which half are expected to be shown."""
    return math.floor(SHOWN * n_docs / noise)


def warn_of_size(noise: float, n_docs: int, n_components: int, delta: float) -> None:
    """Warn of a `delta` that is too large, and if few topics are expected to be shown.

    All arguments are public: `n_docs` is an expectation, never the size of private
    data.
    """
    if delta * n_docs >= 1:
        warn_user(
            f"delta={delta:g} is at least 1 / {n_docs}, the number of documents: a "
            "mechanism that publishes each document with probability delta satisfies "
            f"it; choose delta well below {1 / n_docs:.2g}"
        )
    most = most_topics(noise, n_docs)
    if n_components > 1 and n_components > most:
        fewer = f"n_components={most}, " if most >= 2 else ""
        needed = math.ceil(noise * n_components / SHOWN)
        warn_user(
            f"about {topics_shown(noise, n_docs, n_components):.0f} of {n_components} "
            f"topics are expected to be shown to be more than noise with {n_docs} "
            f"documents: use {fewer}{needed} documents or more, or a larger epsilon",
            LowSignalWarning,
        )
