"""What `PrivateTopicModel` fixes before it reads texts: its words and its topic model.

Everything here is public, except for the streams of the two parts. No text is read, and
nothing is charged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils import check_random_state

from dplda.core._corpus import public_tables
from dplda.core._private_estimator import PrivateEstimator
from dplda.core._private_fit import exactly_one
from dplda.core._splitter import Splitter, forms_of
from dplda.core._texts import column_words, each_text
from dplda.core._words import counter_of, language_of, letters, rule_of
from dplda.datasets._word_vectors import check_source, load_word_vectors
from dplda.datasets._words import language_words
from dplda.document._document_lda import DocumentLDA
from dplda.document._plan import Plan, plan
from dplda.document._public_prior import public_prior
from dplda.document._sublda import SubLDA
from dplda.document._training import Training
from dplda.leaf._messages import warn_user
from dplda.privacy import Guarantee, split_epsilon
from dplda.reading._topic_counts import PaidCounts
from dplda.text._choice import Choice, GivenWords
from dplda.text._count_vectorizer import PrivateCountVectorizer, column_of

# parameters of the topic model that `PrivateTopicModel` sets
GIVEN_ONCE = ("epsilon", "noise_multiplier", "ledger", "word_vectors", "random_state")


@dataclass(frozen=True, eq=False)
class PublicInputs:
    """What is known of words without the private texts."""

    texts: Any  # public texts of the same kind; None without
    # of vectors: "en" is the embedded table, None is without
    source: Any
    n_jobs: int | None

    def each_text(self) -> Iterator[str]:
        """The public texts, checked."""
        if self.texts is not None:
            yield from each_text("public_texts", column_of(self.texts, "public_texts"))

    def give(self, model: DocumentLDA, vectorizer: Any, *, are_paid: bool) -> None:
        """Give a topic model what is known of the words of a vectorizer.

        Once the words are paid for, what fails is left out with a warning.
        """
        if self.texts is not None:
            with _left_out("public_texts", are_paid):
                prior = public_prior(
                    self.texts,
                    n_components=model.n_components,
                    vocabulary=vectorizer,
                    n_jobs=self.n_jobs,
                    random_state=model.random_state,
                )
                model.set_params(prior_components=prior)
        if self.source is not None:
            with _left_out("word_vectors", are_paid):
                model.set_params(word_vectors=self.vectors(vectorizer))

    def vectors(self, words: Any) -> np.ndarray:
        """What words mean."""
        source = self.source
        return load_word_vectors(words, None if isinstance(source, str) else source)


@contextmanager
def _left_out(name: str, are_paid: bool) -> Iterator[None]:
    """Go on without a public input that fails, if the words are paid for."""
    try:
        yield
    except Exception as error:  # whatever the source of the caller raises
        if not are_paid:
            raise
        warn_user(f"topics are found without {name}: {error}")


class Parts(NamedTuple):
    """What a fit does; public, except for the streams of words and topics."""

    words: Choice | GivenWords
    training: Training  # of the topic model
    inputs: PublicInputs  # of the topic model
    counting: PaidCounts | None = None  # of texts by topic and group
    earlier_cost: Guarantee | None = None  # of the fit whose words and counts are kept


def parts_of(
    estimator: PrivateEstimator, unit: str = "document", earlier: Any = None
) -> Parts:
    """The parts of a fit of a `PrivateTopicModel`, with their shares of the budget.

    Whatever can be refused before texts are read is refused here. `earlier` is a fitted
    `PrivateTopicModel` or None.
    """
    estimator._validate_params()
    exactly_one(type(estimator).__name__, epsilon=estimator.epsilon)
    inputs = PublicInputs(
        estimator.public_texts, _source_of(estimator), estimator.n_jobs
    )
    list(inputs.each_text())  # refuses what is no text
    if not isinstance(inputs.source, str | None):
        check_source("word_vectors", inputs.source)
    for_words, for_topics = _shares_of(estimator)
    if earlier is not None:
        for_topics = estimator.epsilon  # the words are paid for
    seed_of_words, seed_of_topics = _two_seeds(estimator.random_state)
    n_kept = None if earlier is None else len(earlier.components_)
    model = _topic_model_of(estimator, for_topics, seed_of_topics, n_kept)
    if earlier is not None:
        training = model._training(unit, earlier=earlier.model_)
        words = _checked_words(earlier.vectorizer_, training)
        return Parts(words, training, inputs, earlier_cost=earlier.privacy_)
    training = model._training(unit)
    if not _chooses_words(estimator):
        words = _checked_words(_vectorizer_of_given(estimator), training)
        return Parts(words, training, inputs)
    choice = _choice_of(estimator, training, for_words, seed_of_words)
    # A source without these words is refused. The choice may have loaded the embedded
    # vectors itself.
    is_known = isinstance(inputs.source, str) and choice.vectors is not None
    if inputs.source is not None and choice.candidates and not is_known:
        inputs.vectors(choice.candidates)
    return Parts(choice, training, inputs)


def _two_seeds(random_state: Any) -> tuple[int | None, int | None]:
    """Seeds of words and topics, whose noise does not cancel; None without a seed."""
    if random_state is None:
        return None, None
    seed = 2 * int(check_random_state(random_state).randint(2**30))
    return seed, seed + 1


def what_to_expect(estimator: PrivateEstimator) -> Plan:
    """What to expect of a fit to `expected_n_docs` texts, after the words are paid.

    Its epsilon is the total.
    """
    _, for_topics = _shares_of(estimator)
    expected = _expected_of(estimator, for_topics)
    assert expected is not None, "expected_n_docs is missing"
    return dataclasses.replace(expected, epsilon=estimator.epsilon)


# ---- the topic model -----------------------------------------------------------------


def _topic_model_of(
    estimator: PrivateEstimator,
    epsilon: float,
    seed: int | None,
    n_kept: int | None,
) -> DocumentLDA:
    """The topic model of a fit, with its share of the budget.

    `n_kept` is the number of topics of an earlier fit, which "auto" keeps.
    """
    # warns of too many topics, and of delta
    expected = _expected_of(estimator, epsilon)
    n_components = estimator.n_components
    if expected is not None and n_components == "auto":
        n_components = n_kept or expected.recommended_components
    model: DocumentLDA = clone(estimator.model) if estimator.model else SubLDA()
    for name in GIVEN_ONCE:
        if getattr(model, name) is not None:
            raise ValueError(
                f"model must leave {name}=None: PrivateTopicModel states the budget "
                "of words and topics together, and gives the model what it needs; "
                f"leave out {name}, or give it to PrivateTopicModel if it takes it"
            )
    model.set_params(
        n_components=n_components,
        epsilon=epsilon,
        delta=estimator.delta,
        ledger=None,
        n_jobs=estimator.n_jobs,
        random_state=seed,
        verbose=estimator.verbose,
        word_vectors=None,
    )
    model._validate_params()
    return model


def _expected_of(estimator: PrivateEstimator, for_topics: float) -> Plan | None:
    """What to expect of `expected_n_docs` texts; None without that number."""
    n_docs = estimator.expected_n_docs
    is_auto = estimator.n_components == "auto"
    if n_docs is None and is_auto:
        raise ValueError(
            "n_components='auto' needs expected_n_docs, a public guess of the "
            "number of texts, or of users; give it, or a number of topics"
        )
    if n_docs is None or (estimator.epsilon == np.inf and not is_auto):
        return None
    n_words = estimator.max_features
    if not _chooses_words(estimator):
        n_words = len(estimator.vocabulary)
    return plan(
        n_docs=n_docs,
        epsilon=for_topics,
        delta=estimator.delta,
        n_components=2 if is_auto else estimator.n_components,
        n_words=n_words,
        word_vectors=_source_of(estimator) is not None,
    )


def _shares_of(estimator: PrivateEstimator) -> tuple[float, float]:
    """Epsilon of the words and of the topics."""
    epsilon = estimator.epsilon
    if not _chooses_words(estimator):
        return 0.0, epsilon
    if epsilon == np.inf:
        return epsilon, epsilon
    return split_budget(epsilon, estimator.delta)


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


# ---- the words -----------------------------------------------------------------------


def _chooses_words(estimator: PrivateEstimator) -> bool:
    """Whether the words are chosen from the texts, and not given."""
    return isinstance(estimator.vocabulary, str | None)


def _choice_of(
    estimator: PrivateEstimator, training: Training, epsilon: float, seed: int | None
) -> Choice:
    """The choice of words for a topic model, with its share of the budget."""
    if training.model.prior_components is not None:
        raise ValueError(
            "prior_components has a column for each word, and the words are not "
            "chosen yet: give public_texts, or a list of words as vocabulary"
        )
    training.check_size(estimator.max_features)
    vectorizer = PrivateCountVectorizer(
        epsilon=epsilon,
        delta=estimator.delta,
        candidates=estimator.vocabulary,
        token_pattern=letters(language_of(estimator.vocabulary)),
        max_features=estimator.max_features,
        random_state=seed,
        stop_words=_stop_words_of(estimator),
    )
    vectorizer._validate_params()
    return Choice.of(vectorizer, training.unit)


def _vectorizer_of_given(estimator: PrivateEstimator) -> CountVectorizer:
    """A vectorizer of given words; warns of those that no text can have."""
    vocabulary = estimator.vocabulary
    if not all(isinstance(word, str) for word in vocabulary):
        raise ValueError("vocabulary must hold words (str); leave out other values")
    if isinstance(vocabulary, Set):  # whose order differs between processes
        vocabulary = sorted(vocabulary)
    vocabulary = column_words(vocabulary)
    stop_words = _stop_words_of(estimator)
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
    # a fit to no text checks that words differ
    return counter_of(words, stop_words=stop_words).fit([])


def _checked_words(vectorizer: Any, training: Training) -> GivenWords:
    """The words of a fitted vectorizer, which a topic model can be trained on."""
    n_words = len(vectorizer.vocabulary_)
    training.check_size(n_words)
    public_tables(training.model, n_words)  # refuses tables of other words
    return GivenWords(vectorizer, splitter_of(vectorizer))


def splitter_of(vectorizer: CountVectorizer | PrivateCountVectorizer) -> Splitter:
    """What splits texts for the vectorizer of a fitted model, or of given words."""
    if isinstance(vectorizer, CountVectorizer):
        return Splitter(vectorizer.analyzer)
    return vectorizer._splitter


def _stop_words_of(estimator: PrivateEstimator) -> list[str] | None:
    """Public words that do not count."""
    words = estimator.stop_words
    if words == "auto":
        words = None
        if isinstance(estimator.vocabulary, str):
            words = language_words(estimator.vocabulary)[1]
    return None if words is None else sorted(words)


def _source_of(estimator: PrivateEstimator) -> Any:
    """Where vectors of words come from (`PublicInputs`)."""
    given = estimator.word_vectors
    if not isinstance(given, str):
        return given
    if given not in ("auto", "en"):  # a text has items, too, but no vectors
        raise ValueError(
            "word_vectors must be 'auto', 'en', None, or a mapping of words to "
            f"vectors, got {given!r}"
        )
    is_english = isinstance(estimator.vocabulary, str) and estimator.vocabulary == "en"
    return "en" if is_english or given == "en" else None
