"""Topics of private texts in one call: words, topics, and one guarantee for both."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import are_shards, public_tables, warn_of_coverage
from dplda.core._pipeline import guarantee_of_steps
from dplda.core._private_fit import (
    PRIVACY_CONSTRAINTS,
    Interval,
    PrivateEstimator,
    Promise,
    charge_of,
    exactly_one,
    guarantee_of_both,
    publish,
    warn_if_seeded,
)
from dplda.core._signal import MEANING, NOT_TESTED, is_tested
from dplda.core._splitter import Splitter, count_blocks, forms_of, transformed
from dplda.core._texts import each_text
from dplda.core._words import counter_of, language_of, letters, rule_of
from dplda.datasets._word_vectors import SOURCE, check_source, load_word_vectors
from dplda.datasets._words import language_words
from dplda.document._document_lda import DocumentLDA
from dplda.document._plan import Plan, plan
from dplda.document._public_prior import public_prior
from dplda.document._public_words import PublicWords
from dplda.document._sublda import SubLDA
from dplda.document._training import Training
from dplda.leaf._calm import interruptible
from dplda.leaf._compat import HasMethods, StrOptions
from dplda.leaf._messages import Progress, named, warn_user
from dplda.leaf._rows import collected
from dplda.leaf._users import RELATIONS, charged_unit, protected_unit
from dplda.privacy import Guarantee, NonPrivate, split_epsilon
from dplda.privacy._charge import Step
from dplda.reading._displays import TopicRow, list_topics
from dplda.reading._groups import groups_of
from dplda.reading._topic_counts import PaidCounts
from dplda.release._counts import TopicCounts
from dplda.release._release import release_bytes, save_release
from dplda.text._choice import (
    Choice,
    GivenWords,
    WordsOfTexts,
    columns_or_shards,
    refuse_few,
    warn_of_copies,
)
from dplda.text._count_vectorizer import OfTexts, PrivateCountVectorizer, column_of
from dplda.text._counted import Counted


class Parts(NamedTuple):
    """What a fit does, fixed before it reads texts; public except for its streams."""

    words: WordsOfTexts
    training: Training  # of the topic model
    counting: PaidCounts | None = None  # of texts by topic and group
    earlier: Guarantee | None = None  # of the fit whose words and counts are kept

    @property
    def plans(self) -> list[Sequence[Step]]:
        """The releases of each part that has any, and draws from its own streams."""
        counts = () if self.counting is None else self.counting.plan
        return [plan for plan in (self.words.plan, self.training.plan, counts) if plan]


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
        A string is a language of `dplda.datasets.load_public_vocabulary`: `fit` chooses
        words with privacy from its list, and other words that many texts have. A list
        of words is public and costs nothing. With None, `fit` chooses without a list,
        which takes tens of thousands of texts.
    max_features : int, default=2000
        Largest number of words that are chosen.
    stop_words : "auto", array-like of str or None, default="auto"
        Public words that do not count. "auto" takes the stop words of the language.
    public_texts : array-like of str or None, default=None
        Public texts of the same kind: better topics at no cost. See
        `dplda.public_prior`.
    word_vectors : "auto", "en", mapping, KeyedVectors or None, default="auto"
        Public vectors of what words mean: better topics at no cost. "en" takes the
        embedded English table; "auto" takes it if `vocabulary` is "en". Anything else
        is a source for `dplda.datasets.load_word_vectors`. The card says what was used.
    model : SubLDA, PrivateSVILDA or None, default=None
        The topic model. This estimator sets its `n_components`, budget, ledger,
        `n_jobs`, `random_state` and `verbose`. None takes ``SubLDA()``.
    expected_n_docs : int or None, default=None
        Public guess of the number of texts, or of users, with about 100 words each.
        `fit` warns before the charge if they are too few for `n_components` topics.
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
        Of each topic, by their shares and weak ones last: ``"topic"``, its row,
        ``"share"`` of all words, ``"evidence"``, ``"weak"`` and ``"words"``, the ten
        most typical ones. A question mark follows a word that does not stand out of the
        noise.
    counts_ : TopicCounts
        Numbers by topic and group, only after `fit_and_count`. They have their own
        guarantee.
    epsilon_, delta_ : float
        Cost of words and topics together, at `delta`.
    privacy_ : Guarantee
        The guarantee of words and topics together. `print` shows it in words.
    topic_evidence_, weak_topics_ : ndarray of shape (n_components,)
        How clearly each topic is confirmed, and which topics are not shown to be more
        than noise.

    See Also
    --------
    PrivateCountVectorizer, SubLDA : The two steps, for a Pipeline of your own.
    plan : What to expect, before anything is spent.

    Notes
    -----
    **Privacy.** Unit: document, or user if `user_ids` are given. Relation: one unit is
    added, removed, or becomes empty. Sensitivity and mechanisms: as in the two steps.
    One entry of the ledger charges both before a text is read. The words get the share
    min(max(0.06 epsilon, 0.05), 0.25) of epsilon, which is near the best on four
    corpora (``benchmarks/vocabulary.py --shares``). Assumption: the fit runs. It
    refuses fewer than two texts, texts without a word, a single user, ids that are
    missing or look the same, groups that are neither texts nor integers, texts without
    a place to split them, and more than 2^24 different words. A refusal costs nothing:
    whoever sees it learns its reason.

    Examples
    --------
    >>> from dplda import PrivateTopicModel
    >>> from dplda.datasets import load_wordnet_glosses
    >>> texts = load_wordnet_glosses().data[:2000]
    >>> model = PrivateTopicModel(10, epsilon=4.0, max_features=500).fit(texts)
    >>> model.transform(texts[:3]).shape, round(model.epsilon_, 1)
    ((3, 10), 4.0)
    """

    # a file is no metadata, either
    __metadata_request__transform = {"raw_documents": UNUSED, "out": UNUSED}

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
        "word_vectors": [StrOptions({"auto", "en"}), HasMethods("__getitem__"), None],
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

    def fit(
        self,
        raw_documents: Iterable[str],
        y: Any = None,
        *,
        user_ids: Any = None,
        earlier: Any = None,
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
        earlier : PrivateTopicModel or None, default=None
            Fitted model of other texts of the same source, such as the texts of last
            month.
            Its words are kept, and its noisy counts are added: the result is a model of
            both. All of `epsilon` is for topics then. A text is in one of the two, and
            pays for the dearer one. A user may return, and pays for both. Charge texts
            of both fits as disjoint parts of a ledger (`Ledger.part`), and users who
            may return to one ledger.

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
            If a parameter is out of range, a text is not a str, or there is not one id
            for each text. Nothing is charged then. Also if no word was chosen; this
            charge stands.
        """
        parts = parts_of(self, protected_unit(user_ids), earlier)  # public
        self._fit(raw_documents, user_ids, parts)
        return self

    def fit_and_count(
        self,
        raw_documents: Iterable[str],
        *,
        by: Mapping[str, Any],
        levels: Mapping[str, Sequence[str]],
        counts_epsilon: float,
        cross: bool = False,
        most_groups: Mapping[str, int] | None = None,
        user_ids: Any = None,
    ) -> TopicCounts:
        """Fit, and release numbers of texts by topic and group, in one charge.

        `privacy_` of the model states what words and topics cost. `privacy_` of the
        result states what the counts cost. One entry of the ledger charges both, and a
        page about both states one total.

        Parameters
        ----------
        raw_documents : iterable of str
            Private texts.
        by, levels : dict
            What is counted, as in `private_topic_counts`.
        counts_epsilon : float
            Epsilon of the counts, in addition to `epsilon`.
            `dplda.privacy.split_epsilon` divides a total.
        cross, most_groups : object
            As in `private_topic_counts`.
        user_ids : array-like of shape (n_docs,) or None, default=None
            As in `fit`.

        Returns
        -------
        counts : TopicCounts
            The released numbers.

        Raises
        ------
        BudgetError, TypeError, ValueError
            As `fit` and `private_topic_counts`. Nothing is charged then, unless no
            word was chosen: this charge stands.
        """

        parts = parts_of(self, protected_unit(user_ids))  # public
        groups = groups_of(
            by,
            levels,
            parts.training.model.n_components,
            cross=cross,
            most_groups=most_groups,
            has_users=user_ids is not None,
        )  # public
        seed = self.random_state
        if seed is not None:  # larger than those of words and topics
            seed = 2**31 + int(check_random_state(seed).randint(2**30))
        counting = PaidCounts(
            groups, by, epsilon=counts_epsilon, delta=self.delta, random_state=seed
        )
        self._fit(raw_documents, user_ids, parts._replace(counting=counting))
        return self.counts_

    def _fit(self, raw_documents: Any, user_ids: Any, parts: Parts) -> None:
        """Choose the words, find the topics, and count the texts, as planned."""
        words, training, counting, earlier = parts  # public
        model = training.model
        plan = [step for of_part in parts.plans for step in of_part]  # public
        has_noise = any(not isinstance(event, NonPrivate) for _, event in plan)
        seeded = self.random_state is not None and has_noise
        warn_if_seeded(type(self).__name__, seeded)
        progress = Progress.of(self)
        texts = progress.during(column_of(raw_documents), named("reading texts"))
        with (
            closing(texts),  # private
            charge_of(
                self,
                plan,
                unit=charged_unit(user_ids),
                seeded=seeded,
                n_streams=len(parts.plans),
            ) as charge,
            closing(
                Counted(
                    each_text("raw_documents", texts),
                    words.splitter,
                    user_ids,
                    progress,
                )
            ) as counted,  # private
        ):
            refuse_few(words, counted)
            if counting is not None:
                places = counting.places(counted.n_docs)  # private
            warn_of_copies(counted)
            if isinstance(words, Choice):
                weights = words.weigh(counted)  # private
            else:
                self._use_public_texts(model, words.vectorizer)
                self._use_word_vectors(model, words.vectorizer)
                n_words = len(words.vectorizer.vocabulary_)
                public_words = training.public_words(n_words)  # public
            charge.begin()  # the price is spent from here on
            self._forget()
            self.vectorizer_ = words.vectorizer
            if isinstance(words, Choice):
                words.release(weights, charge)  # public
                with interruptible():
                    public_words = self._public_words(training)  # public
            vocabulary = self.vectorizer_.vocabulary_  # public
            with interruptible():
                X = columns_or_shards(counted, vocabulary)  # private
            try:
                # shards hold the users
                users = None if are_shards(X) else user_ids
                training.run_paid(X, users, charge, public_words)  # public
            finally:
                if hasattr(model, "components_"):
                    self._publish(training, earlier)
            if counting is not None:
                # whole, and in the order of texts, as their groups are
                X = counted.matrix(vocabulary)  # private
                self.counts_ = counting.release(
                    model, X, places, user_ids, charge
                )  # public

    def fit_transform(
        self, raw_documents: Iterable[str], y: Any = None, **fit_params: Any
    ) -> np.ndarray:
        if isinstance(raw_documents, Iterator):
            raise ValueError(
                "fit_transform reads raw_documents twice, and got an iterator "
                f"({type(raw_documents).__name__}), which is empty after once; call "
                "fit, and then transform with a new iterator, or pass a list"
            )
        return super().fit_transform(raw_documents, y, **fit_params)

    def transform(
        self, raw_documents: Iterable[str], out: str | os.PathLike[str] | None = None
    ) -> np.ndarray:
        """Shares of the topics in texts.

        Parameters
        ----------
        raw_documents : iterable of str
            Texts, which are read once, and not kept.
        out : str or path-like, default=None
            A .npy file for the result, which is replaced, and which only you can read:
            for results larger than the memory.

        Returns
        -------
        doc_topic : ndarray of shape (n_docs, n_components)
            Rows sum to one. Each is a function of its own text, and as private as the
            text. With `out`, a read-only memory map of the file.
        """
        check_is_fitted(self, "components_")
        return collected(self._doc_topics(raw_documents), out)

    def _doc_topics(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray]:
        """Shares of the topics in blocks of texts; private."""
        vectorizer = self.vectorizer_
        known = []
        n_tokens = 0
        texts = column_of(raw_documents)
        for X, n_words in count_blocks(
            texts, splitter_of(vectorizer), vectorizer.vocabulary_
        ):
            known.append(np.asarray(X.sum(axis=1)).ravel())
            n_tokens += n_words
            yield self.model_.transform(X)
        if isinstance(vectorizer, PrivateCountVectorizer):
            warn_of_coverage(np.concatenate(known), n_tokens)

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
        return self.model_.score(self._counts(raw_documents))

    def _counts(self, raw_documents: Iterable[str]) -> Any:
        """Counts of texts; private."""
        vectorizer = self.vectorizer_
        if isinstance(vectorizer, PrivateCountVectorizer):
            return vectorizer.transform(raw_documents)
        return transformed(vectorizer, column_of(raw_documents))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write words, topics and guarantee to a file that may be published.

        Parameters
        ----------
        path : str or path-like
            The file, which `dplda.load_release` reads.
        """
        check_is_fitted(self, "components_")
        save_release(self, path)

    def report(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write a page for readers who install nothing: one HTML file.

        Parameters
        ----------
        path : str or path-like
            The file. An existing file is replaced.
        **options : dict
            `title`, `about`, `names` and `counts`, as in `ReleasedModel.report`.
        """
        check_is_fitted(self, "components_")
        release_bytes(self)[1].report(path, **options)

    @property
    def topics_(self) -> list[TopicRow]:
        """Row, share, evidence, flag and ten words of each topic, weak ones last."""
        check_is_fitted(self, "components_")
        return list_topics(self.model_, self.vocabulary_)

    def __str__(self) -> str:
        if not hasattr(self, "components_"):
            return super().__str__()
        lines = [
            f"{'?' if t['weak'] else ' '} {t['share']:5.1%}  {' '.join(t['words'])}"
            for t in self.topics_
        ]
        meaning = MEANING if is_tested(self.model_) else NOT_TESTED
        return "\n".join([*lines, meaning, self.privacy_.summary()])

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _is_chosen(self) -> bool:
        """Whether the words are chosen from the texts, and not given."""
        return self.vocabulary is None or isinstance(self.vocabulary, str)

    def _shares(self) -> tuple[float, float]:
        """Epsilon of the words and of the topics."""
        epsilon = self.epsilon
        if not self._is_chosen:
            return 0.0, epsilon
        if epsilon == np.inf:
            return epsilon, epsilon
        return split_budget(epsilon, self.delta)

    def _vectorizer(
        self, epsilon: float, seed: int | None
    ) -> CountVectorizer | PrivateCountVectorizer:
        """The vectorizer: of given words, or one that chooses them for `epsilon`."""
        stop_words = self._stop_words()
        if self._is_chosen:
            return PrivateCountVectorizer(
                epsilon=epsilon,
                delta=self.delta,
                candidates=self.vocabulary,
                token_pattern=letters(language_of(self.vocabulary)),
                max_features=self.max_features,
                random_state=seed,
                stop_words=stop_words,
            )
        if not all(isinstance(word, str) for word in self.vocabulary):
            raise ValueError("vocabulary must hold words (str); leave out other values")
        given = given_words(self.vocabulary, stop_words)
        return given.fit([])  # a fit to no text checks that words differ

    def _topic_model(self, epsilon: float, seed: int | None) -> DocumentLDA:
        """The topic model of a fit, with its share of the budget."""
        expected = self._expected(epsilon)  # warns of too many topics, and of delta
        n_components = self.n_components
        if expected is not None and n_components == "auto":
            n_components = expected.recommended_components
        model = SubLDA() if self.model is None else clone(self.model)
        model.set_params(
            n_components=n_components,
            epsilon=epsilon,
            delta=self.delta,
            ledger=None,
            n_jobs=self.n_jobs,
            random_state=seed,
            verbose=self.verbose,
            word_vectors=None,
        )
        if model.noise_multiplier is not None:
            raise ValueError(
                "model must leave noise_multiplier=None, got "
                f"{model.noise_multiplier}: epsilon states the budget of words "
                "and topics together"
            )
        model._validate_params()
        return model

    def _expected(self, for_topics: float) -> Plan | None:
        """What to expect of `expected_n_docs` texts; None without that number."""
        n_docs = self.expected_n_docs
        is_auto = self.n_components == "auto"
        if n_docs is None and is_auto:
            raise ValueError(
                "n_components='auto' needs expected_n_docs, a public guess of the "
                "number of texts, or of users; give it, or a number of topics"
            )
        if n_docs is None or (self.epsilon == np.inf and not is_auto):
            return None
        return plan(
            n_docs=n_docs,
            epsilon=for_topics,
            delta=self.delta,
            n_components=2 if is_auto else self.n_components,
            n_words=self.max_features if self._is_chosen else len(self.vocabulary),
            word_vectors=self._source is not None,
        )

    def _forget(self) -> None:
        """Drop the model of an earlier fit, which has other words."""
        for name in [*vars(self)]:
            if name.endswith("_") and not name.startswith("_"):
                delattr(self, name)

    def _public_words(self, training: Training) -> PublicWords | None:
        """What is known of the chosen words; what fails is left out: they are paid."""
        with warned_without("public_texts"):
            self._use_public_texts(training.model, self.vectorizer_)
        with warned_without("word_vectors"):
            self._use_word_vectors(training.model, self.vectorizer_)
        return training.public_words(len(self.vectorizer_.vocabulary_))

    def _use_public_texts(self, model: DocumentLDA, vectorizer: Any) -> None:
        """Give the topic model a prior of public texts, if there are any."""
        if self.public_texts is not None:
            prior = public_prior(
                self.public_texts,
                n_components=model.n_components,
                vocabulary=vectorizer,
                n_jobs=self.n_jobs,
                random_state=model.random_state,
            )
            model.set_params(prior_components=prior)

    def _use_word_vectors(self, model: DocumentLDA, vectorizer: Any) -> None:
        """Give the topic model what words mean, if it is known."""
        if self._source is not None:
            model.set_params(word_vectors=self._vectors(vectorizer))

    def _vectors(self, words: Any) -> np.ndarray:
        """What public words mean."""
        source = self._source
        return load_word_vectors(words, None if isinstance(source, str) else source)

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
        """Public words that do not count."""
        words = self.stop_words
        if words == "auto":
            words = (
                language_words(self.vocabulary)[1]
                if isinstance(self.vocabulary, str)
                else None
            )
        return None if words is None else sorted(words)

    def _publish(self, training: Training, earlier: Guarantee | None) -> None:
        """Set the fitted attributes of both steps, with one guarantee.

        `earlier` is the guarantee of the fit whose words and counts are in this model.
        """
        model = training.model
        steps = [
            (type(step).__name__.lower(), step) for step in (self.vectorizer_, model)
        ]
        both = guarantee_of_steps(steps, seeds_differ=True)
        if earlier is not None:
            cost = guarantee_of_both(training.own_cost, earlier)
            both = dataclasses.replace(
                both,
                epsilon=cost.epsilon,
                events=cost.events,
                total_variation=cost.total_variation,
                seeded=cost.seeded,
                assumptions=tuple(
                    dict.fromkeys(both.assumptions + earlier.assumptions)
                ),
            )
        inputs = dict(both.provenance)
        if isinstance(self._source, str) and "word vectors" in inputs:
            inputs["word vectors"] = SOURCE
        publish(
            self,
            dataclasses.replace(
                both,
                provenance=tuple(inputs.items()),
                trusted=self._promise.trusted,
                theorem=self._promise.theorem,
            ),
            model_=model,
            components_=model.components_,
            vocabulary_=self.vectorizer_.get_feature_names_out(),
            n_iter_=model.n_iter_,
            topic_evidence_=model.topic_evidence_,
            weak_topics_=model.weak_topics_,
        )


def parts_of(
    estimator: PrivateTopicModel, unit: str = "document", earlier: Any = None
) -> Parts:
    """The words and the topics of a fit, with their shares of the budget.

    Whatever can be refused before texts are read is refused here.
    """
    estimator._validate_params()
    exactly_one(type(estimator).__name__, epsilon=estimator.epsilon)
    if estimator.public_texts is not None:
        public_texts = column_of(estimator.public_texts, "public_texts")
        list(each_text("public_texts", public_texts))
    if not isinstance(estimator._source, str | None):
        check_source("word_vectors", estimator._source)
    for_words, for_topics = estimator._shares()
    if earlier is not None:
        check_earlier(earlier)
        for_topics = estimator.epsilon  # the words are paid for
    seeds: tuple[int | None, int | None] = (None, None)
    if estimator.random_state is not None:  # two seeds, whose noise does not cancel
        seed = 2 * int(check_random_state(estimator.random_state).randint(2**30))
        seeds = (seed, seed + 1)
    model = estimator._topic_model(for_topics, seeds[1])
    if earlier is not None:
        training = Training.of(model, unit, earlier=earlier.model_)
        words = checked_words(earlier.vectorizer_, training)
        return Parts(words, training, earlier=earlier.privacy_)
    training = Training.of(model, unit)
    vectorizer = estimator._vectorizer(for_words, seeds[0])
    if isinstance(vectorizer, CountVectorizer):  # of given words
        return Parts(checked_words(vectorizer, training), training)
    # the words will be chosen, at most `max_features`
    if model.prior_components is not None:
        raise ValueError(
            "prior_components has a column for each word, and the words are not "
            "chosen yet: give public_texts, or a list of words as vocabulary"
        )
    training.check_size(estimator.max_features)
    vectorizer._validate_params()
    choice = Choice.of(vectorizer, unit)
    if estimator._source is not None and choice.candidates:
        estimator._vectors(choice.candidates)  # refuses vectors of other words
    return Parts(choice, training)


def checked_words(vectorizer: Any, training: Training) -> GivenWords:
    """Public words, which a topic model can be trained on."""
    n_words = len(vectorizer.vocabulary_)
    training.check_size(n_words)
    public_tables(training.model, n_words)
    return GivenWords(vectorizer, splitter_of(vectorizer))


def split_budget(epsilon: float, delta: float) -> tuple[float, float]:
    """Epsilon of the words and of the topics, of a finite total."""
    share = min(max(0.06 * epsilon, 0.05), 0.25)
    words, topics = split_epsilon(epsilon, (share, 1 - share), delta=delta)
    if words == 0.0:
        raise ValueError(
            f"epsilon={epsilon:g} pays for neither words nor topics; give at least "
            "0.01, or public words (vocabulary)"
        )
    return words, topics


def what_to_expect(model: PrivateTopicModel) -> Plan:
    """What to expect of a fit to `expected_n_docs` texts, after the words are paid.

    Its epsilon is the total.
    """
    _, for_topics = model._shares()
    expected = model._expected(for_topics)
    assert expected is not None, "expected_n_docs is missing"
    return dataclasses.replace(expected, epsilon=model.epsilon)


@contextmanager
def warned_without(name: str) -> Iterator[None]:
    """Go on without a public input that fails, as the words are paid for."""
    try:
        yield
    except Exception as error:  # whatever the source of the caller raises
        warn_user(f"topics are found without {name}: {error}")


def given_words(
    vocabulary: Sequence[str], stop_words: list[str] | None
) -> CountVectorizer:
    """A vectorizer of given words; warns of those that no text can have."""
    rule = rule_of(vocabulary, stop_words=stop_words)
    forms = forms_of(rule, vocabulary)
    unknown = [word for word, form in zip(vocabulary, forms) if form is None]
    if unknown:
        warn_user(
            f"{len(unknown)} of {len(forms)} words of vocabulary cannot occur, for "
            f"instance {unknown[0]!r}, and their columns hold noise alone; leave them "
            "out. Words are in lower case, without spaces and signs, and no stop words"
        )
    words = [form or word for word, form in zip(vocabulary, forms)]
    return counter_of(words, stop_words=stop_words)


def check_earlier(earlier: Any) -> None:
    """Refuse what has no words and topics of an earlier fit."""
    if not isinstance(earlier, PrivateTopicModel) or not hasattr(earlier, "model_"):
        raise ValueError(
            f"earlier must be a fitted PrivateTopicModel, got {type(earlier).__name__}"
            "; pass the model itself, not a release of it"
        )


def splitter_of(vectorizer: CountVectorizer | PrivateCountVectorizer) -> Splitter:
    """What splits texts for the vectorizer of a fitted model, or of given words."""
    if isinstance(vectorizer, CountVectorizer):
        return Splitter(vectorizer.analyzer)
    return vectorizer._splitter
