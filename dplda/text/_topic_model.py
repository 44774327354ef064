"""Topics of private texts in one call: words, topics, and one guarantee for both."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dplda.core._pipeline import combined_guarantee
from dplda.core._private_fit import (
    PRIVACY_CONSTRAINTS,
    Interval,
    PrivateEstimator,
    Promise,
    exactly_one,
    publish,
)
from dplda.core._texts import only_texts
from dplda.datasets._word_vectors import SOURCE, load_word_vectors
from dplda.datasets._words import language_words
from dplda.document._document_lda import DocumentLDA
from dplda.document._plan import plan
from dplda.document._public_prior import public_prior
from dplda.document._sublda import SubLDA
from dplda.leaf._compat import HasMethods, StrOptions, _fit_context
from dplda.leaf._messages import warn_user
from dplda.leaf._users import RELATIONS, charged_unit, number_users
from dplda.privacy import Ledger, split_epsilon
from dplda.privacy._curator import TOTAL_VARIATION
from dplda.privacy._events import Event
from dplda.privacy._ledger import as_ledger
from dplda.reading._displays import TopicRow, list_topics
from dplda.release._release import save_release
from dplda.text._count_vectorizer import (
    OfTexts,
    PrivateCountVectorizer,
    column_of,
    warn_of_copies,
)

WORD = r"(?u)\b[^\W\d_]{3,}\b"  # three letters or more, as in the public lists


class PrivateTopicModel(ClassNamePrefixFeaturesOutMixin, OfTexts, PrivateEstimator):
    """Topics of private texts: one call, one epsilon, one guarantee.

    A `PrivateCountVectorizer` chooses the words and a `SubLDA` finds the topics, from
    one budget. The fitted model may be published. What `transform` returns of private
    texts is private.

    Parameters
    ----------
    n_components : int or "auto", default=20
        Number of topics. "auto" takes as many as `dplda.plan` recommends for
        `expected_n_docs`.
    epsilon : float
        Total epsilon of a text, or of a user if `fit` gets `user_ids`; must be given.
        ``inf`` fits without noise and without privacy.
    delta
    vocabulary : str, array-like of str or None, default="en"
        A language of `dplda.datasets.load_public_vocabulary`: the words are chosen with
        privacy from its list, and from the texts where many have them. A list of words
        is public and costs nothing. None chooses without a list, which takes tens of
        thousands of texts.
    max_features : int, default=2000
        Largest number of words that are chosen.
    stop_words : "auto", array-like of str or None, default="auto"
        Public words that do not count. "auto" takes those of the language.
    public_texts : array-like of str or None, default=None
        Public texts of the same kind: better topics at no cost. See
        `dplda.public_prior`.
    word_vectors : "auto", "en", mapping, KeyedVectors or None, default="auto"
        What words mean, which is public: better topics at no cost. "en" takes the
        embedded English table, "auto" does so if `vocabulary` is "en". Others are a
        source of `dplda.datasets.load_word_vectors`. The card says what was used.
    model : SubLDA, PrivateSVILDA or None, default=None
        The topic model, whose `n_components`, budget, ledger, `n_jobs`, `random_state`
        and `verbose` are set to those of this estimator; None takes ``SubLDA()``.
    expected_n_docs : int or None, default=None
        Public guess of the number of texts, or of users, of about 100 words: `fit`
        warns before the charge if they are too few for so many topics.
    ledger : Ledger, str, path-like or None, default=None
        Where words and topics are charged together: a budget over many fits.
    n_jobs
    random_state
    verbose

    Attributes
    ----------
    vectorizer_ : PrivateCountVectorizer or CountVectorizer
        Counts the words of texts.
    model_ : estimator
        The fitted topic model.
    components_ : ndarray of shape (n_components, n_words)
        Pseudo-counts of words in topics.
    vocabulary_ : ndarray of shape (n_words,), object
        The words of the columns.
    topics_ : list of dict
        Of each topic, the one with the most evidence first: ``"topic"``, its row,
        ``"share"`` of all words, ``"weak"`` and ``"words"``, the ten most typical ones.
    epsilon_, delta_ : float
        Cost of everything together, at `delta`.
    privacy_ : Guarantee
        The guarantee of words and topics together. `print` shows it in words.
    topic_evidence_, weak_topics_ : ndarray of shape (n_components,)
        Those of the topic model: how much each topic tells, and which are not to be
        trusted.
    n_features_in_ : int
        Number of words.

    See Also
    --------
    PrivateCountVectorizer, SubLDA : The two steps, for a Pipeline of your own.
    plan : What to expect, before anything is spent.

    Notes
    -----
    **Privacy.** Unit: document, or user if `user_ids` are given. Relation: one unit is
    added, removed, or becomes empty. Sensitivity and mechanisms: those of the two
    steps. Their events are added up, and one entry of the ledger charges all of them
    before a text is read. The words get the share min(max(0.06 epsilon, 0.05), 0.25) of
    epsilon, which is near the best on four corpora (``benchmarks/vocabulary.py
    --shares``).

    Examples
    --------
    >>> from dplda import PrivateTopicModel
    >>> from dplda.datasets import load_wordnet_glosses
    >>> texts = load_wordnet_glosses().data[:2000]
    >>> model = PrivateTopicModel(10, epsilon=4.0, max_features=500).fit(texts)
    >>> model.transform(texts[:3]).shape, round(model.epsilon_, 1)
    ((3, 10), 4.0)
    """

    _promise = Promise(
        unit="document",  # or "user", if `fit` gets `user_ids`
        relation=RELATIONS["document"],
        mechanism="discrete Gaussian noise on weights of words and on sums over "
        "documents",
        theorem="docs/proofs_document.md",
    )
    _parameter_constraints = {
        "n_components": [
            StrOptions({"auto"}),
            Interval(Integral, 1, None, closed="left"),
        ],
        **PRIVACY_CONSTRAINTS,
        "vocabulary": [str, "array-like", None],
        "max_features": [Interval(Integral, 1, None, closed="left")],
        "stop_words": [StrOptions({"auto"}), "array-like", None],
        "public_texts": ["array-like", None],
        "word_vectors": [StrOptions({"auto", "en"}), HasMethods("__contains__"), None],
        "model": [DocumentLDA, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=20,
        *,
        epsilon=None,
        delta=1e-6,
        vocabulary="en",
        max_features=2000,
        stop_words="auto",
        public_texts=None,
        word_vectors="auto",
        model=None,
        expected_n_docs=None,
        ledger=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self._assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, raw_documents: Iterable[str], y: Any = None, *, user_ids: Any = None
    ) -> PrivateTopicModel:
        """Choose the words and find the topics.

        An interrupt (Ctrl-C) leaves what was released so far: `vectorizer_`, and after
        the first round a model of the rounds so far. All is charged then.

        Parameters
        ----------
        raw_documents : iterable of str
            Private texts.
        y : Ignored
            Ignored.
        user_ids : array-like of shape (n_docs,) or None, default=None
            The user that each text comes from. All texts of a user are then what is
            protected. A single text of a user is protected with
            ``privacy_.for_part_of_unit()``.

        Returns
        -------
        self : object
            The fitted model.

        Raises
        ------
        BudgetError
            If the ledger cannot pay for words and topics together. No text has been
            read then.
        ValueError
            If a parameter is out of range, a text is no str, or there is not one id for
            each text. Nothing is charged then. Also if no word was chosen; this charge
            stands.
        """
        vectorizer, model, plan = self._planned()  # public
        # one charge for both steps, which have no ledger of their own
        ledger = Ledger() if self.ledger is None else as_ledger(self.ledger)
        entry = ledger.reserve(
            type(self).__name__,
            charged_unit(user_ids),
            plan,
            total_variation=2 * TOTAL_VARIATION,
            seeded=self.random_state is not None and self.epsilon != np.inf,
        )
        try:
            texts = checked(vectorizer, raw_documents, user_ids)  # private
            if user_ids is None:
                warn_of_copies(texts)
        except BaseException:  # or a warning that the caller has made an error
            ledger.cancel(entry)
            raise
        ledger.begin_release(entry)
        if hasattr(self, "components_"):  # of an earlier fit
            del self.model_, self.components_, self.privacy_
        model._charges_in_fit = False  # this fit has charged
        if isinstance(vectorizer, PrivateCountVectorizer):
            vectorizer._charges_in_fit = False
            vectorizer.fit(texts, user_ids=user_ids)  # public
        self.vectorizer_ = vectorizer
        if self.public_texts is not None:
            model.set_params(
                prior_components=_or_without(
                    "public_texts",
                    lambda: public_prior(
                        self.public_texts,
                        n_components=model.n_components,
                        vocabulary=vectorizer,
                        n_jobs=self.n_jobs,
                        random_state=model.random_state,
                    ),
                )
            )
        table = None if isinstance(self._source, str) else self._source
        model.set_params(
            word_vectors=None
            if self._source is None
            else _or_without(
                "word_vectors",
                lambda: load_word_vectors(vectorizer, table),
            )
        )  # public
        try:
            model.fit(vectorizer.transform(texts), user_ids=user_ids)  # public
        finally:
            # later fits of its own are charged as any other
            for step in (model, vectorizer):
                vars(step).pop("_charges_in_fit", None)
            if hasattr(model, "components_"):
                self._publish(model)
        return self

    def transform(self, raw_documents: Iterable[str]) -> np.ndarray:
        """Shares of the topics in texts.

        Parameters
        ----------
        raw_documents : iterable of str
            Texts.

        Returns
        -------
        doc_topic : ndarray of shape (n_docs, n_components)
            Rows sum to one. Each is a function of its own text, and as private as the
            text.
        """
        check_is_fitted(self, "components_")
        return self.model_.transform(self.vectorizer_.transform(raw_documents))

    def score(self, raw_documents: Iterable[str], y: Any = None) -> float:
        """Approximate log-likelihood of texts, as the topic model states it.

        Parameters
        ----------
        raw_documents : iterable of str
            Texts. The score of private texts is private.
        y : Ignored
            Ignored.

        Returns
        -------
        score : float
            In nats.
        """
        check_is_fitted(self, "components_")
        return self.model_.score(self.vectorizer_.transform(raw_documents))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write words, topics and guarantee to a file that may be published.

        Parameters
        ----------
        path : str or path-like
            The file, which `dplda.load_release` reads.
        """
        check_is_fitted(self, "components_")
        save_release(self, path)

    @property
    def topics_(self) -> list[TopicRow]:
        """Row, share, flag and ten words of each topic, most evidence first."""
        check_is_fitted(self, "components_")
        return list_topics(self.model_, self.vocabulary_)

    def __str__(self) -> str:
        if not hasattr(self, "components_"):
            return super().__str__()
        lines = [
            f"{'?' if t['weak'] else ' '} {t['share']:5.1%}  {' '.join(t['words'])}"
            for t in self.topics_
        ]
        return "\n".join([*lines, self.privacy_.summary()])

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _planned(self) -> tuple[Any, Any, list[Event]]:
        """The two steps, not fitted, and both's events: all from parameters."""
        self._validate_params()
        vectorizer, model, _ = self._steps()
        private = [step for step in (vectorizer, model) if hasattr(step, "_plan")]
        return (
            vectorizer,
            model,
            [event for step in private for _, event in step._plan()],
        )

    def _steps(self) -> tuple[Any, Any, Any]:
        """The two steps with their shares of the budget, and what to expect of them."""
        epsilon, delta = self.epsilon, self.delta
        exactly_one(type(self).__name__, epsilon=epsilon)
        seeds: tuple[Any, Any] = None, None
        if self.random_state is not None:  # two seeds, whose noise does not cancel
            seed = 2 * int(check_random_state(self.random_state).randint(2**30))
            seeds = seed, seed + 1
        for_words, for_topics = 0.0, epsilon
        is_chosen = self.vocabulary is None or isinstance(self.vocabulary, str)
        if self.public_texts is not None:
            only_texts("public_texts", column_of(self.public_texts, "public_texts"))
        if is_chosen and epsilon == np.inf:
            for_words = epsilon
        elif is_chosen:
            share = min(max(0.06 * epsilon, 0.05), 0.25)
            for_words, for_topics = split_epsilon(
                epsilon, (share, 1 - share), delta=delta
            )
            if for_words == 0.0:
                raise ValueError(
                    f"epsilon={epsilon:g} pays for neither words nor topics; give at "
                    "least 0.01, or public words (vocabulary)"
                )
        options = {"stop_words": self._stop_words()}
        vectorizer: Any
        if not is_chosen:  # a fit to no text checks that words differ
            if not all(isinstance(word, str) for word in self.vocabulary):
                raise ValueError(
                    "vocabulary must hold words (str) alone; leave out what is none"
                )
            vectorizer = CountVectorizer(vocabulary=self.vocabulary, **options).fit([])
        else:
            vectorizer = PrivateCountVectorizer(
                epsilon=for_words,
                delta=delta,
                candidates=self.vocabulary,
                token_pattern=WORD,
                max_features=self.max_features,
                random_state=seeds[0],
                **options,
            )
        n_components, n_docs, expected = self.n_components, self.expected_n_docs, None
        if n_components == "auto" and n_docs is None:
            raise ValueError(
                "n_components='auto' needs expected_n_docs, a public guess of the "
                "number of texts, or of users; give it, or a number of topics"
            )
        if n_docs is not None and (
            epsilon < np.inf or n_components == "auto"
        ):  # warns of too many topics, and of delta
            expected = plan(
                n_docs=n_docs,
                epsilon=for_topics,
                delta=delta,
                n_components=2 if n_components == "auto" else n_components,
                n_words=self.max_features if is_chosen else len(self.vocabulary),
                word_vectors=self._source is not None,
            )
            if n_components == "auto":
                n_components = expected.recommended_components
        model = SubLDA() if self.model is None else clone(self.model)
        model.set_params(
            n_components=n_components,
            epsilon=for_topics,
            delta=delta,
            ledger=None,
            n_jobs=self.n_jobs,
            random_state=seeds[1],
            verbose=self.verbose,
        )
        return vectorizer, model, expected

    @property
    def _source(self) -> Any:
        """Where vectors of words come from.

        "en" is the embedded table, and None is without.
        """
        if not isinstance(self.word_vectors, str):
            return self.word_vectors
        is_english = isinstance(self.vocabulary, str) and self.vocabulary == "en"
        return "en" if is_english or self.word_vectors == "en" else None

    def _stop_words(self) -> list[str] | None:
        """Public words that do not count, as far as a text can have them."""
        words = self.stop_words
        if words == "auto":
            words = (
                language_words(self.vocabulary)[1]
                if isinstance(self.vocabulary, str)
                else None
            )
        if words is None:
            return None
        analyze = CountVectorizer(token_pattern=WORD).build_analyzer()
        return [word for word in sorted(words) if analyze(word) == [word]]

    def _publish(self, model: Any) -> None:
        """Set the fitted attributes of both steps, with one guarantee."""
        both = combined_guarantee(
            make_pipeline(self.vectorizer_, model), seeds_differ=True
        )
        inputs = dict(both.provenance)
        if isinstance(self._source, str) and "word vectors" in inputs:
            inputs["word vectors"] = SOURCE
        publish(
            self,
            dataclasses.replace(both, provenance=tuple(inputs.items())),
            model_=model,
            components_=model.components_,
            vocabulary_=self.vectorizer_.get_feature_names_out(),
            n_features_in_=model.n_features_in_,
            n_iter_=model.n_iter_,
            topic_evidence_=model.topic_evidence_,
            weak_topics_=model.weak_topics_,
        )


def _or_without(name: str, make: Callable[[], np.ndarray]) -> np.ndarray | None:
    """What is made of a public input; None if that fails, as the words are paid for."""
    try:
        return make()
    except Exception as error:  # whatever the source of the caller raises
        warn_user(f"topics are found without {name}: {error}")
        return None


def checked(vectorizer: Any, raw_documents: Any, user_ids: Any) -> list[str]:
    """The texts, or an error that quotes neither text nor id."""
    texts = only_texts("raw_documents", column_of(raw_documents))
    is_given = isinstance(vectorizer, CountVectorizer)
    found = (
        vectorizer.transform(texts).nnz
        if is_given
        else any(map(re.compile(WORD).search, texts))
    )
    if len(texts) < 2 or not found:
        known = "a word of the vocabulary" if is_given else "words"
        raise ValueError(
            f"raw_documents must be at least two texts, of which one has {known}, got "
            f"{len(texts)} texts; check their column, their language, and the case of "
            "given words"
        )
    users = number_users(user_ids, len(texts))
    if users is not None and not users.any():
        raise ValueError(
            "user_ids must name at least two users, got one id for all texts; pass the "
            "id of the person behind each text"
        )
    return texts
