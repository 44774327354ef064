"""Word counts in a vocabulary chosen from private texts with differential privacy.

``_counted.py`` reads the terms of texts. ``_selection.py`` has the mechanism. Here,
released terms become columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import TransformerMixin
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import warn_of_coverage
from dplda.core._private_fit import (
    AES,
    PRIVACY_CONSTRAINTS,
    SETTINGS,
    VOCABULARY,
    Interval,
    PrivateEstimator,
    Promise,
    charge_of,
    exactly_one,
    gaussian_noise,
    make_guarantee,
    publish,
    warn_if_seeded,
)
from dplda.core._splitter import Splitter, count_words, forms_of
from dplda.core._texts import CountsBySettings
from dplda.core._words import Words, language_of
from dplda.datasets import load_public_vocabulary, load_word_vectors
from dplda.datasets._words import language_words
from dplda.leaf._calm import interruptible
from dplda.leaf._compat import StrOptions, _fit_context
from dplda.leaf._messages import warn_user
from dplda.leaf._users import (
    RELATIONS,
    ROWS_OF_A_UNIT,
    charged_unit,
    protected_unit,
)
from dplda.privacy import ApproximateDP, Guarantee, NonPrivate, PrivateDataWarning
from dplda.privacy._accounting import THRESHOLD_SHARE
from dplda.privacy._charge import Charge, Step
from dplda.privacy._curator import Curator
from dplda.privacy._events import Event
from dplda.privacy._streams import Streams
from dplda.privacy._sums import ALONE, Shares, Sums
from dplda.text._counted import Counted
from dplda.text._selection import Counts, Selection, best_terms, failure_event

OF_A_LIST = "discrete Gaussian noise on weighted document frequencies"
MECHANISM = (
    f"{OF_A_LIST}; terms outside of the public list are released only above a threshold"
)
LIST = (
    "candidates and stop_words are public and were not chosen by looking at the "
    "documents"
)
TOKENIZER = (
    "the analyzer treats each document by itself and was not fitted to the documents"
)
MANY_FORMS = 0.05  # share of texts; fewer of them hardly make a topic
ONE_TEXT = "one document holds everything that one protected unit contributed"


@dataclass(frozen=True)
class Choice:
    """What a call decides before it reads texts."""

    unit: str  # what is protected
    splitter: Splitter  # of texts into terms; public
    candidates: list[str]  # public
    vectors: np.ndarray | None  # what they mean; public
    selection: Selection  # what is released
    streams: Streams  # secret
    sums: Sums  # who makes the weights public


class OfTexts(TransformerMixin):
    """A transformer of texts, in the words of scikit-learn."""

    # texts are the data, and no metadata that a pipeline routes
    __metadata_request__fit = {"raw_documents": UNUSED}
    __metadata_request__transform = {"raw_documents": UNUSED}
    __metadata_request__score = {"raw_documents": UNUSED}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


# Counts are sparse, and data frames are not. So there is no set_output, as in
# CountVectorizer.
class PrivateCountVectorizer(
    OfTexts, CountsBySettings, PrivateEstimator, auto_wrap_output_keys=None
):
    r"""Word counts in a vocabulary that is chosen with differential privacy.

    A vocabulary that :class:`~sklearn.feature_extraction.text.CountVectorizer` learns
    shows that somebody wrote each of its words. This vectorizer releases noisy weights
    of all words of a public list, and of other words only above a threshold. The output
    of `transform` is private.

    Parameters
    ----------
    epsilon : float
        Total epsilon of a document, above 0; must be given. ``inf`` chooses without
        noise and without privacy.
    delta : float, default=1e-6
        The delta of (epsilon, delta)-differential privacy, up to 0.01. A tenth of it
        pays for the threshold.
    candidates : str, array-like of str or None, default="en"
        A public list of terms, the most frequent first, which are chosen however few
        documents hold them. A string names a language of
        `dplda.datasets.load_public_vocabulary`. With None, every term must pass the
        threshold, which takes tens of thousands of documents.
    discover : bool, default=True
        Whether terms outside of `candidates` can be chosen.
    max_features : int or None, default=2000
        Largest size of the vocabulary; None for no limit.
    max_doc_words : int, default=1000
        Number of distinct terms of a document that count; of more, that many random
        ones do. A public constant.
    strip_accents : {"ascii", "unicode"} or None, default=None
        How to remove accents. This and the next four parameters have the meaning of
        :class:`~sklearn.feature_extraction.text.CountVectorizer`, for texts in one form
        of Unicode. They must not have been learned from the texts.
    lowercase : bool, default=True
        Whether to turn texts into lower case.
    stop_words : {"english"}, list or None, default=None
        A public list of words that do not count.
    token_pattern : str or None, default=r"(?u)\b\w\w+\b"
        Regular expression of a word. None takes letters alone, as many as words of the
        language have: three or more of English.
    analyzer : "word" or callable, default="word"
        A function from a text to its words. It replaces the five parameters above.
    ledger
    random_state

    Attributes
    ----------
    vocabulary_ : dict of str to int
        The chosen terms and their columns, in alphabetical order.
    word_weights_ : ndarray of shape (n_terms,)
        Noisy weighted document frequency of each chosen term. A document with t
        distinct terms weighs 1 / sqrt(t).
    word_weight_scale_ : float
        Standard deviation of the noise in `word_weights_`.
    threshold_ : float
        Least weight of a word outside of `candidates`; infinite if `discover` is False.
    epsilon_ : float
        Epsilon of a document for the vocabulary.
    delta_
    privacy_

    See Also
    --------
    SubLDA : Topic model for the counts, charged to the same ledger.
    sklearn.feature_extraction.text.CountVectorizer :
        Learns its vocabulary without privacy.

    Notes
    -----
    **Privacy.** Unit: document, or user if `user_ids` are given. Relation: one unit is
    added, removed, or replaced by an empty one. Sensitivity: `radius` in L2, checked in
    integers. Events: ``Gaussian(noise_multiplier)``, and ``ApproximateDP`` with a tenth
    of `delta` for the threshold. Running time and memory depend on the number of
    distinct terms, which is private. The proof is in ``docs/proofs_document.md``, after
    [1]_.

    References
    ----------
    .. [1] S. Gopi, P. Gulhane, J. Kulkarni, J. H. Shen, M. Shokouhi, S. Yekhanin,
       "Differentially Private Set Union", ICML 2020.

    Examples
    --------
    >>> from dplda import PrivateCountVectorizer
    >>> texts = ["the heart is healthy", "fracture of the left arm"] * 500
    >>> words = ["heart", "arm", "left", "healthy", "fracture", "knee"]
    >>> vectorizer = PrivateCountVectorizer(
    ...     epsilon=1.0, candidates=words, max_features=5, stop_words="english"
    ... )
    >>> vectorizer.fit(texts).get_feature_names_out().tolist()
    ['arm', 'fracture', 'healthy', 'heart', 'left']
    """

    _promise = Promise(
        unit="document",  # or "user", if `fit` gets `user_ids`
        relation=RELATIONS["document"],
        mechanism=MECHANISM,
        theorem="docs/proofs_document.md",
    )
    _parameter_constraints = {
        **PRIVACY_CONSTRAINTS,
        "candidates": [None, str, "array-like"],
        "discover": ["boolean"],
        "max_features": [None, Interval(Integral, 1, None, closed="left")],
        "max_doc_words": [Interval(Integral, 1, 10**6, closed="both")],
        "analyzer": [StrOptions({"word"}), callable],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        epsilon=None,
        delta=1e-6,
        candidates="en",
        discover=True,
        max_features=2000,
        max_doc_words=1000,
        strip_accents=None,
        lowercase=True,
        stop_words=None,
        token_pattern=r"(?u)\b\w\w+\b",
        analyzer="word",
        ledger=None,
        random_state=None,
    ):
        self._assign(locals())

    def fit(
        self, raw_documents: Iterable[Any], y: Any = None, *, user_ids: Any = None
    ) -> PrivateCountVectorizer:
        """Choose the vocabulary.

        Parameters
        ----------
        raw_documents : iterable of str
            Private texts. One text is what the guarantee protects.
        y : object, default=None
            Ignored.
        user_ids : array-like of shape (n_docs,), default=None
            The user that each text belongs to. All texts of a user are then one
            protected unit. A part of it, such as a single text, has a larger epsilon:
            ``privacy_.for_part_of_unit()``.

        Returns
        -------
        self : object
            Fitted vectorizer.

        Raises
        ------
        BudgetError
            If the budget of the ledger is too small. No text has been read then.
        ValueError
            If a parameter is out of range, or if no term was chosen. In the second
            case, the charge stands.
        """
        self._fit(raw_documents, user_ids, transform=False)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit(
        self, documents: Iterable[Any], user_ids: Any = None, *, transform: bool
    ) -> sp.csr_matrix | None:
        """Choose the vocabulary. With `transform`, also count its terms."""
        choice = self._choice(protected_unit(user_ids), ALONE)  # public
        seeded = choice.streams.seeded
        warn_if_seeded(type(self).__name__, seeded and self.epsilon != math.inf)
        texts = column_of(documents)
        with (
            charge_of(
                self,
                choice.selection.plan,
                unit=charged_unit(user_ids),
                seeded=seeded,
            ) as charge,
            closing(Counted(texts, choice.splitter, user_ids)) as counted,  # private
        ):
            warn_of_copies(counted)
            counts = self._count(counted, choice)  # private
            charge.begin()
            self._choose(counts, choice, charge)
            return columns_of(counted, self.vocabulary_) if transform else None

    def _choice(self, unit: str, sums: Sums) -> Choice:
        """What a call decides before it reads texts; refuses a call without words."""
        exactly_one(type(self).__name__, epsilon=self.epsilon)
        splitter = Splitter(self._rule())  # public
        candidates = self._checked_candidates()  # public
        if not (candidates or self.discover):
            raise ValueError(
                "candidates must hold a word that texts can have, because with "
                "discover=False no other is chosen; give a list of words, or "
                "discover=True"
            )
        streams = Streams.from_random_state(self.random_state)  # secret
        vectors = None  # public
        if isinstance(self.candidates, str) and self.candidates == "en" and candidates:
            vectors = load_word_vectors(candidates)
        selection = self._selection(sums.shares)
        return Choice(unit, splitter, candidates, vectors, selection, streams, sums)

    def _choose(self, counts: Counts, choice: Choice, charge: Charge) -> None:
        """Release words with their weights, and set the fitted attributes.

        A charge has paid for it, and has begun.

        The attributes are set right after the release. An interrupt may then end the
        call: the rest only ranks the words better.
        """
        selection = choice.selection
        guarantee = self._guarantee(choice, charge)
        curator = Curator(charge, choice.streams, plan=selection.plan, sums=choice.sums)
        # One unit spreads a vector of L2 norm `radius` over its own terms, in integers.
        # Its terms that nobody else has pass the threshold with probability
        # `failure.delta`, all together.
        found, weights = selection.release(counts, curator)  # public
        heaviest = np.argsort(-weights, kind="stable")[: self.max_features]
        if not len(found):
            raise ValueError(
                "no word passed the threshold, and the charge stands; use more "
                "documents, a larger epsilon, or a public list of words as candidates"
            )
        self._set_words(found, weights, heaviest, choice, guarantee)
        with interruptible():
            best = best_terms(
                found,
                weights,
                selection.noise_multiplier,
                choice.candidates,
                self.max_features,
                choice.vectors,
            )  # public
        votes = np.zeros(len(found))
        votes[best] = 1.0
        votes = choice.sums.agree(votes, "words that are chosen")
        chosen = np.argsort(-votes, kind="stable")[: len(best)]
        self._set_words(found, weights, chosen, choice, guarantee)
        self._warn_of_language(found, weights, choice)

    def _warn_of_language(
        self, found: np.ndarray, weights: np.ndarray, choice: Choice
    ) -> None:
        """Warn of texts in another language than the list, by what was released."""
        if not isinstance(self.candidates, str):
            return
        least = choice.selection.threshold / choice.selection.radius
        passing = {*found[weights >= least]}
        _, stop_words = language_words(self.candidates)
        unlisted = passing.difference(choice.candidates, stop_words)
        if 2 * len(unlisted) > len(passing):
            warn_user(
                "most words that pass the threshold are not in the list of language "
                f"{self.candidates!r}; if the texts are in another language, name it, "
                "such as 'de': its words are then found, and its stop words left out"
            )

    def _set_words(
        self,
        found: np.ndarray,
        weights: np.ndarray,
        kept: np.ndarray,
        choice: Choice,
        guarantee: Guarantee,
    ) -> None:
        """Set the fitted attributes: the terms with the indices `kept`, in order."""
        kept = kept[np.argsort(found[kept])]
        selection = choice.selection
        publish(
            self,
            guarantee,
            vocabulary_={str(term): i for i, term in enumerate(found[kept])},
            word_weights_=weights[kept],
            word_weight_scale_=selection.noise_multiplier,
            threshold_=selection.threshold / selection.radius,
            _splitter=choice.splitter,
        )

    def _guarantee(self, choice: Choice, charge: Charge) -> Guarantee:
        """What the words cost."""
        rows = ONE_TEXT if choice.unit == "document" else ROWS_OF_A_UNIT[choice.unit]
        terms = choice.sums.promise(charge.events, self.delta)
        mechanism = MECHANISM if choice.selection.discover else OF_A_LIST
        return make_guarantee(
            [event for _, event in choice.selection.plan],
            promise=self._promise,
            total_variation=choice.sums.shares.total_variation,
            trusted=terms.trusted or self._promise.trusted,
            charge=charge,
            delta=self.delta,
            unit=choice.unit,
            relation=RELATIONS[choice.unit],
            mechanism=mechanism + terms.mechanism,
            sensitivity=1.0,
            noise_scale=choice.selection.noise_multiplier,
            seeded=choice.streams.seeded,
            assumptions=(LIST, TOKENIZER, rows, *terms.assumptions),
            common=(SETTINGS, AES),
            provenance=(
                (VOCABULARY, "chosen from the documents, and its cost is in epsilon"),
            ),
        )

    def fit_transform(
        self, raw_documents: Iterable[Any], y: Any = None, **fit_params: Any
    ) -> Any:
        return self._fit(raw_documents, **fit_params, transform=True)

    def transform(self, raw_documents: Iterable[Any]) -> Any:
        """Count the chosen terms in texts.

        Parameters
        ----------
        raw_documents : iterable of str
            Texts.

        Returns
        -------
        X : csr_matrix of shape (n_docs, n_terms)
            Counts, which are as private as the texts: `epsilon_` does not cover them.

        Warns
        -----
        PrivateDataWarning
            If the chosen terms cover less than a fifth of the tokens, or no token of
            most texts. Not for release.
        """
        check_is_fitted(self, "vocabulary_")
        X, n_tokens = count_words(
            column_of(raw_documents), self._splitter, self.vocabulary_
        )
        warn_of_coverage(np.asarray(X.sum(axis=1)).ravel(), n_tokens)
        return X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # counts are integers
        return tags

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns, in alphabetical order.

        Parameters
        ----------
        input_features : object, default=None
            Ignored.

        Returns
        -------
        names : ndarray of shape (n_terms,), object
            The chosen terms.
        """
        check_is_fitted(self, "vocabulary_")
        return np.array(list(self.vocabulary_), dtype=object)

    def _rule(self) -> Callable[[Any], list[str]]:
        """What splits a text into words: the rule of the package, or `analyzer`."""
        if callable(self.analyzer):
            return self.analyzer
        try:
            return Words.of(
                language_of(self.candidates),
                self.token_pattern,
                lowercase=bool(self.lowercase),
                strip_accents=self.strip_accents,
                stop_words=self.stop_words,
            )
        except (re.error, TypeError) as error:
            raise ValueError(
                "token_pattern must be a regular expression of a word, got "
                f"{self.token_pattern!r}: {error}"
            ) from None

    def _checked_candidates(self) -> list[str]:
        """The public list without repetitions and terms that no text can produce."""
        given = self.candidates
        rule = self._rule()
        if isinstance(given, str):
            given = load_public_vocabulary(None, language=given)
        terms = list(dict.fromkeys([] if given is None else given))
        if not all(isinstance(term, str) for term in terms):
            raise ValueError(
                "candidates must be a list of words (str), the most frequent first"
            )
        forms = forms_of(rule, terms)
        unknown = [term for term, form in zip(terms, forms) if form is None]
        if unknown and not isinstance(self.candidates, str):
            warn_user(
                f"{len(unknown)} of {len(terms)} candidates cannot occur "
                f"and were left out, for instance {unknown[0]!r}: lowercase, "
                "stop_words, token_pattern and analyzer decide which terms a text has"
            )
        return list(dict.fromkeys(form for form in forms if form is not None))

    def _selection(self, shares: Shares = ALONE.shares) -> Selection:
        """The planned release."""
        # without a threshold, nothing can fail
        failure: Event = ApproximateDP(0.0, 0.0)
        if self.epsilon == math.inf:
            failure = NonPrivate()
        elif self.discover:
            failure = failure_event(THRESHOLD_SHARE * self.delta)
        mechanism = gaussian_noise(
            self.epsilon, None, self.delta, others=[failure], shares=shares
        )
        return Selection(
            mechanism, failure, bool(self.discover), int(self.max_doc_words)
        )

    def _plan(self, shares: Shares = ALONE.shares) -> list[Step]:
        """What `fit` charges: a function of public parameters."""
        return self._selection(shares).plan

    def _count(self, counted: Counted, choice: Choice) -> Counts:
        """Weights of the distinct words of each unit; private."""
        return choice.selection.count(counted, choice.candidates, choice.streams)


def columns_of(counted: Counted, vocabulary: Mapping[str, int]) -> sp.csr_matrix:
    """Counts of the words of a vocabulary; warns if they cover little. Private."""
    X = counted.matrix(vocabulary)
    warn_of_coverage(np.asarray(X.sum(axis=1)).ravel(), counted.n_tokens)
    return X


def column_of(raw_documents: Any, name: str = "raw_documents") -> Iterable[Any]:
    """The documents of a column of any kind, which need not be texts."""
    column = (
        isinstance(raw_documents, Iterable) and getattr(raw_documents, "ndim", 1) == 1
    )
    if not column or isinstance(raw_documents, (str, bytes, Mapping)):
        raise ValueError(
            f"{name} must be a list or a column of texts, got "
            f"{type(raw_documents).__name__}; pass [text] for one text, and "
            "df['column'] for a table"
        )
    return raw_documents


def warn_of_copies(counted: Counted) -> None:
    """Warn the owner of the texts of duplicates.

    Duplicates of one user are protected together. Form letters, which differ only in
    their digits, make a topic of their own, whoever wrote them.
    """
    n_copies, n_near = counted.copies()
    if n_near > MANY_FORMS * counted.n_written:
        warn_user(
            f"{n_near} texts differ from another text only in digits, as form letters "
            "do: a topic may repeat their text; keep one of them (not for release)",
            PrivateDataWarning,
        )
    if n_copies and counted.users is None:
        warn_user(
            f"{n_copies} texts are duplicates: a document that occurs twice has less "
            "protection than epsilon says; leave duplicates out (not for release)",
            PrivateDataWarning,
        )
