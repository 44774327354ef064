"""Word counts in a vocabulary chosen from private texts with differential privacy.

``_counted.py`` reads the terms of texts. ``_selection.py`` has the mechanism, and
``_choice.py`` the steps of a choice. Here, released terms become columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import TransformerMixin
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import warn_of_coverage
from dplda.core._private_estimator import (
    PRIVACY_CONSTRAINTS,
    Interval,
    PrivateEstimator,
    Promise,
)
from dplda.core._private_fit import charge_of
from dplda.core._splitter import count_words
from dplda.core._texts import CountsBySettings
from dplda.core._words import Words, language_of
from dplda.leaf._compat import StrOptions, _fit_context
from dplda.leaf._users import RELATIONS, charged_unit, protected_unit
from dplda.text._choice import MECHANISM, Choice, counts_of, warn_of_copies
from dplda.text._counted import Counted


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
        The delta of (epsilon, delta)-differential privacy, up to 0.001. A tenth of it
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
        choice = Choice.of(self, protected_unit(user_ids))  # public
        texts = column_of(documents)
        with (
            charge_of(
                self,
                choice.plan,
                unit=charged_unit(user_ids),
                seeded=choice.streams.seeded,
            ) as charge,
            closing(Counted(texts, choice.splitter, user_ids)) as counted,  # private
        ):
            warn_of_copies(counted)
            weights = choice.weigh(counted)  # private
            charge.begin()
            choice.release(weights, charge)  # public
            return counts_of(counted, self.vocabulary_) if transform else None

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


def column_of(raw_documents: Any, name: str = "raw_documents") -> Iterable[Any]:
    """The documents of a column of any kind, which need not be texts."""
    column = (
        isinstance(raw_documents, Iterable) and getattr(raw_documents, "ndim", 1) == 1
    )
    if not column or isinstance(raw_documents, (str, bytes, Mapping)):
        raise ValueError(
            f"{name} must be a list or a column of texts, got "
            f"{type(raw_documents).__name__}; pass [text] for one text, and "
            "df['column'] for a table. A SubLDA takes a matrix of counts"
        )
    return raw_documents
