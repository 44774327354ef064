"""Topics of private texts in one call: words, topics, and one guarantee for both."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from dplda.core._corpus import warn_of_coverage
from dplda.core._fit_guarantee import publish
from dplda.core._fold_in import LANES, whole
from dplda.core._joint_guarantee import (
    check_parts,
    costs_of,
    joint_guarantee,
    with_earlier_fit,
)
from dplda.core._private_estimator import (
    PRIVACY_CONSTRAINTS,
    Interval,
    PrivateEstimator,
    Promise,
)
from dplda.core._private_fit import charge_of
from dplda.core._signal import MEANING, NOT_TESTED, is_tested
from dplda.core._splitter import count_blocks, transformed
from dplda.core._texts import each_text
from dplda.datasets._word_vectors import SOURCE
from dplda.document._document_lda import DocumentLDA
from dplda.leaf._calm import interruptible
from dplda.leaf._compat import HasMethods, StrOptions
from dplda.leaf._messages import Progress, named
from dplda.leaf._rows import collected
from dplda.leaf._users import RELATIONS, protected_unit
from dplda.privacy import Guarantee
from dplda.reading._displays import TopicRow, list_topics
from dplda.reading._groups import groups_of
from dplda.reading._topic_counts import PaidCounts
from dplda.release._counts import TopicCounts
from dplda.release._release import release_bytes, save_release
from dplda.text._choice import (
    Choice,
    counts_or_shards,
    refuse_few,
    warn_of_copies,
    warn_of_public,
)
from dplda.text._count_vectorizer import OfTexts, PrivateCountVectorizer, column_of
from dplda.text._counted import Counted
from dplda.text._parts import Parts, parts_of, splitter_of


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
        Public texts of the same kind: better topics at no cost. No private text may be
        among them. See `dplda.public_prior`.
    word_vectors : "auto", "en", mapping, KeyedVectors or None, default="auto"
        Public vectors of what words mean: better topics at no cost. "en" takes the
        embedded English table; "auto" takes it if `vocabulary` is "en". Anything else
        is a source for `dplda.datasets.load_word_vectors`. The card says what was used.
    model : SubLDA, PrivateSVILDA or None, default=None
        The topic model. This estimator sets its `n_components`, `delta`, `n_jobs` and
        `verbose`. Give budget, ledger, seed and word vectors to this estimator, and not
        to the model. None takes ``SubLDA()``.
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
    missing or look the same, groups that are neither texts nor integers, or of which
    none is in the list, texts without a place to split them, more than 2^24 different
    words, and texts for which the disk has no room. A refusal costs nothing: whoever
    sees it learns its reason.

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
        parts = parts_of(self, protected_unit(user_ids), _earlier(earlier))  # public
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
        earlier: Any = None,
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
        earlier : PrivateTopicModel or None, default=None
            As in `fit`. The counts are those of `raw_documents` alone.

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
        parts = parts_of(self, protected_unit(user_ids), _earlier(earlier))  # public
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
        # public, except for the streams of words and topics, which are secret
        words = parts.words
        training = parts.training
        counting = parts.counting
        model = training.model
        vectorizer = words.vectorizer
        # those parts that release something, each with streams of its own
        paid = [part for part in (words, training, counting) if part and part.plan]
        plan = [step for part in paid for step in part.plan]  # public
        progress = Progress.of(self)
        texts = progress.during(column_of(raw_documents), named("reading texts"))
        with (
            closing(texts),  # private; an error ends the line of progress
            charge_of(
                self,
                plan,
                unit=training.charged_unit(user_ids),
                seeded=self.random_state is not None,
                n_streams=len(paid),
            ) as charge,
            closing(
                Counted(
                    each_text("raw_documents", texts),
                    words.splitter,
                    user_ids,
                    progress,
                    per_document=whole(model.n_components, LANES),
                )
            ) as counted,  # private
        ):
            # what can be refused is refused here: groups that are counted last, too
            refuse_few(words, counted)
            if counting is not None:
                places = counting.places(counted.n_docs)  # private
            warn_of_copies(counted)
            warn_of_public(counted, parts.inputs.each_text())
            if isinstance(words, Choice):
                weights = words.weigh(counted)  # private
            else:
                parts.inputs.give(model, vectorizer, are_paid=False)
                n_words = len(vectorizer.vocabulary_)
                public_words = training.public_words(n_words)  # public
            counted.reserve_room(
                model.n_components, keeps_weights=not training.infers_anew
            )
            charge.begin()  # the price is spent from here on
            # a model with these words, which this fit continues as `earlier`, stays
            # until the next one has a round
            if vars(self).get("vectorizer_") is not vectorizer:
                self._forget()
            self.vectorizer_ = vectorizer  # keeps what is released from here on
            if isinstance(words, Choice):
                words.release(weights, charge)  # public
                with interruptible():
                    parts.inputs.give(model, vectorizer, are_paid=True)
                    n_words = len(vectorizer.vocabulary_)
                    public_words = training.public_words(n_words)  # public
            with interruptible():
                X = counts_or_shards(counted, vectorizer.vocabulary_)  # private
            try:
                with closing(
                    training.documents_of_counts(X, counted.users)
                ) as documents:  # private
                    training.run(documents, charge, public_words)
            finally:
                # `model` is new: it has a cost once a round has become public
                if training.cost is not None:
                    self._publish(parts, training.cost)
            if counting is not None:
                self.counts_ = counting.release(
                    model, X, places, user_ids, charge, progress
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
        check_parts(self)
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

    def _forget(self) -> None:
        """Drop the model of an earlier fit, which has other words."""
        for name in [*vars(self)]:
            if name.endswith("_") and not name.startswith("_"):
                delattr(self, name)

    def _publish(self, parts: Parts, cost: Guarantee) -> None:
        """Set the fitted attributes, with one guarantee for words and topics.

        `cost` is what the topics cost these texts, without those of `earlier`.
        """
        model = parts.training.model
        earlier_cost = parts.earlier_cost
        fits = [(type(fit).__name__.lower(), fit) for fit in (self.vectorizer_, model)]
        both = joint_guarantee(fits, seeds_differ=True)
        if earlier_cost is not None:
            # `both` adds the words to the topics, and these texts have paid for topics
            # alone: other texts have paid for the words, in the earlier fit
            cost = with_earlier_fit(cost, earlier_cost)
            both = dataclasses.replace(
                both,
                epsilon=cost.epsilon,
                events=cost.events,
                total_variation=cost.total_variation,
                seeded=cost.seeded,
                assumptions=tuple(
                    dict.fromkeys(both.assumptions + earlier_cost.assumptions)
                ),
            )
        self.__dict__.pop("counts_", None)  # of the model before
        origins = dict(both.provenance)
        if isinstance(parts.inputs.source, str) and "word vectors" in origins:
            origins["word vectors"] = SOURCE
        publish(
            self,
            dataclasses.replace(
                both,
                provenance=tuple(origins.items()),
                trusted=self._promise.trusted,
                theorem=self._promise.theorem,
            ),
            model_=model,
            components_=model.components_,
            vocabulary_=self.vectorizer_.get_feature_names_out(),
            n_iter_=model.n_iter_,
            topic_evidence_=model.topic_evidence_,
            weak_topics_=model.weak_topics_,
            _costs=costs_of([self.vectorizer_, model]),
        )


def _earlier(model: Any) -> PrivateTopicModel | None:
    """An earlier model, checked; None if there is none."""
    if model is None:
        return None
    got = type(model).__name__
    if isinstance(model, PrivateTopicModel):
        if hasattr(model, "model_"):
            check_parts(model)
            return model
        got += " that is not fitted"
    raise ValueError(
        f"earlier must be a fitted PrivateTopicModel, got {got}; pass the model itself "
        "(joblib.dump keeps it), not a release of it"
    )
