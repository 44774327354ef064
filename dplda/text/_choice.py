"""The words of a fit to texts: chosen with privacy, or given.

A choice is planned from public parameters, before texts are read. Its words are weighed
in the texts, and released under a charge that has begun. Given words cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from dplda.core._corpus import warn_of_coverage
from dplda.core._fit_guarantee import AES, SETTINGS, VOCABULARY, make_guarantee, publish
from dplda.core._fold_in import single_precision
from dplda.core._private_estimator import PrivateEstimator
from dplda.core._private_fit import exactly_one, gaussian_noise
from dplda.core._splitter import Splitter, forms_of
from dplda.core._words import Words
from dplda.datasets import CountShards, load_public_vocabulary, load_word_vectors
from dplda.datasets._words import language_words
from dplda.leaf._calm import interruptible
from dplda.leaf._messages import warn_user
from dplda.leaf._users import ROWS_OF_A_UNIT, relation_of
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
Rule: TypeAlias = Words | Callable[[Any], list[str]]  # splits a text into terms
ONE_TEXT = "one document holds everything that one protected unit contributed"


@dataclass(frozen=True, eq=False)
class Choice:
    """Words that will be chosen from the texts.

    All fields are public except for the secret streams. `vectorizer` gets the words.
    """

    vectorizer: PrivateEstimator  # a `PrivateCountVectorizer`
    unit: str  # what is protected: "document" or "user"
    splitter: Splitter  # of texts into terms
    candidates: list[str]
    vectors: np.ndarray | None  # what the candidates mean
    selection: Selection  # what is released
    plan: list[Step]  # label and event of each release
    streams: Streams  # secret
    sums: Sums  # who makes the weights public

    @classmethod
    def of(cls, vectorizer: PrivateEstimator, unit: str, sums: Sums = ALONE) -> Choice:
        """Plan a choice, from public parameters; refuse one without words."""
        exactly_one(type(vectorizer).__name__, epsilon=vectorizer.epsilon)
        rule = vectorizer._rule()
        candidates = checked_candidates(vectorizer.candidates, rule)
        if not (candidates or vectorizer.discover):
            raise ValueError(
                "candidates must hold a word that texts can have, because with "
                "discover=False no other is chosen; give a list of words, or "
                "discover=True"
            )
        is_english = isinstance(vectorizer.candidates, str) and (
            vectorizer.candidates == "en"
        )
        vectors = None
        if is_english and candidates:
            vectors = load_word_vectors(candidates)
        selection = selection_of(vectorizer, sums.shares)
        return cls(
            vectorizer=vectorizer,
            unit=unit,
            splitter=Splitter(rule),
            candidates=candidates,
            vectors=vectors,
            selection=selection,
            plan=selection.plan,
            streams=Streams.from_random_state(vectorizer.random_state),
            sums=sums,
        )

    def weigh(self, counted: Counted) -> Counts:
        """Weights of the distinct words of each unit; private."""
        return self.selection.count(counted, self.candidates, self.streams)

    def release(self, weights: Counts, charge: Charge) -> None:
        """Release words with their weights, and set the fitted attributes.

        A charge has paid for it, and has begun.

        The attributes are set right after the release. An interrupt may then end the
        call: the rest only ranks the words better.
        """
        selection = self.selection
        most = self.vectorizer.max_features
        guarantee = self._guarantee(charge)
        curator = Curator(charge, self.streams, plan=self.plan, sums=self.sums)
        # One unit spreads a vector of L2 norm `radius` over its own terms, in integers.
        # Its terms that nobody else has pass the threshold with probability
        # `failure.delta`, all together.
        found, noisy = selection.release(weights, curator)  # public
        heaviest = np.argsort(-noisy, kind="stable")[:most]
        if not len(found):
            raise ValueError(
                "no word passed the threshold, and the charge stands; use more "
                "documents, a larger epsilon, or a public list of words as candidates"
            )
        self._publish(found, noisy, heaviest, guarantee)
        with interruptible():
            best = best_terms(
                found,
                noisy,
                selection.noise_multiplier,
                self.candidates,
                most,
                self.vectors,
            )  # public
        # parties vote: processors may rank words of nearly equal weights differently
        votes = np.zeros(len(found))
        votes[best] = 1.0
        votes = self.sums.agree(votes, "words that are chosen")
        chosen = np.argsort(-votes, kind="stable")[: len(best)]
        self._publish(found, noisy, chosen, guarantee)
        self._warn_of_language(found, noisy)

    def _publish(
        self,
        found: np.ndarray,
        noisy: np.ndarray,
        kept: np.ndarray,
        guarantee: Guarantee,
    ) -> None:
        """Set the fitted attributes: the terms with the indices `kept`, in order."""
        kept = kept[np.argsort(found[kept])]
        selection = self.selection
        publish(
            self.vectorizer,
            guarantee,
            vocabulary_={str(term): i for i, term in enumerate(found[kept])},
            word_weights_=noisy[kept],
            word_weight_scale_=selection.noise_multiplier,
            threshold_=selection.threshold / selection.mechanism.radius,
            _splitter=self.splitter,
        )

    def _guarantee(self, charge: Charge) -> Guarantee:
        """What the words cost."""
        vectorizer = self.vectorizer
        rows = ONE_TEXT if self.unit == "document" else ROWS_OF_A_UNIT[self.unit]
        terms = self.sums.promise(charge.events, vectorizer.delta)
        mechanism = MECHANISM if self.selection.discover else OF_A_LIST
        return make_guarantee(
            [event for _, event in self.plan],
            promise=vectorizer._promise,
            total_variation=self.sums.shares.total_variation,
            trusted=terms.trusted or vectorizer._promise.trusted,
            charge=charge,
            delta=vectorizer.delta,
            unit=self.unit,
            relation=relation_of(charge.unit),
            mechanism=mechanism + terms.mechanism,
            sensitivity=1.0,
            noise_scale=self.selection.noise_multiplier,
            seeded=self.streams.seeded,
            assumptions=(LIST, TOKENIZER, rows, *terms.assumptions),
            common=(SETTINGS, AES),
            provenance=(
                (VOCABULARY, "chosen from the documents, and its cost is in epsilon"),
            ),
        )

    def _warn_of_language(self, found: np.ndarray, noisy: np.ndarray) -> None:
        """Warn of texts in another language than the list, by what was released."""
        language = self.vectorizer.candidates
        if not isinstance(language, str):
            return
        passing = {*found[noisy >= self.vectorizer.threshold_]}
        _, stop_words = language_words(language)
        unlisted = passing.difference(self.candidates, stop_words)
        if 2 * len(unlisted) > len(passing):
            warn_user(
                "most words that pass the threshold are not in the list of language "
                f"{language!r}; if the texts are in another language, name it, "
                "such as 'de': its words are then found, and its stop words left out"
            )


@dataclass(frozen=True, eq=False)
class GivenWords:
    """Words that are public: given, or released by an earlier fit."""

    vectorizer: CountVectorizer | PrivateEstimator  # has the words
    splitter: Splitter  # of texts into terms
    plan: tuple[Step, ...] = ()  # nothing is released


def selection_of(
    vectorizer: PrivateEstimator, shares: Shares = ALONE.shares
) -> Selection:
    """The planned release: a function of public parameters."""
    epsilon = vectorizer.epsilon
    delta = vectorizer.delta
    # without a threshold, nothing can fail
    failure: Event = ApproximateDP(0.0, 0.0)
    if epsilon == math.inf:
        failure = NonPrivate()
    elif vectorizer.discover:
        failure = failure_event(THRESHOLD_SHARE * delta)
    mechanism = gaussian_noise(epsilon, None, delta, others=[failure], shares=shares)
    return Selection(
        mechanism, failure, bool(vectorizer.discover), int(vectorizer.max_doc_words)
    )


def checked_candidates(candidates: str | Iterable[str] | None, rule: Rule) -> list[str]:
    """The public list without repetitions and terms that no text can produce."""
    if isinstance(candidates, str):
        if isinstance(rule, Words):
            return words_of_language(candidates, rule)
        # a function of the caller may give other words each time
        return words_of_language.__wrapped__(candidates, rule)
    terms = list(dict.fromkeys([] if candidates is None else candidates))
    if not all(isinstance(term, str) for term in terms):
        raise ValueError(
            "candidates must be a list of words (str), the most frequent first"
        )
    forms = forms_of(rule, terms)
    unknown = [term for term, form in zip(terms, forms) if form is None]
    if unknown:
        warn_user(
            f"{len(unknown)} of {len(terms)} candidates cannot occur "
            f"and were left out, for instance {unknown[0]!r}: lowercase, "
            "stop_words, token_pattern and analyzer decide which terms a text has"
        )
    return without_unknown(forms)


@lru_cache(maxsize=4)  # fits begin with it, and it takes nearly a tenth of a second
def words_of_language(language: str, rule: Rule) -> list[str]:
    """The public list of a language, in the forms of a rule."""
    return without_unknown(
        forms_of(rule, load_public_vocabulary(None, language=language))
    )


def without_unknown(forms: Iterable[str | None]) -> list[str]:
    """The forms of terms that texts can have, each once, in order."""
    return list(dict.fromkeys(form for form in forms if form is not None))


# ---- texts that were read ------------------------------------------------------------


def refuse_few(words: Choice | GivenWords, counted: Counted) -> None:
    """Refuse texts without topics; errors quote neither text nor id."""
    known = "words"
    found = counted.has_words
    if isinstance(words, GivenWords):
        known = "a word of the vocabulary"
        found = not words.vectorizer.vocabulary_.keys().isdisjoint(counted.terms)
    if counted.n_docs < 2 or not found:
        got = f"texts of which none has {known}"
        if counted.n_docs < 2:
            got = "fewer texts"
        raise ValueError(
            f"raw_documents must be at least two texts, of which one has {known}, got "
            f"{got}; check their column, their language, and the case of given words"
        )
    if counted.users is not None and counted.n_units < 2:
        raise ValueError(
            "user_ids must name at least two users, got one id for all texts; pass the "
            "id of the person behind each text"
        )


def warn_of_copies(counted: Counted) -> None:
    """Warn the owner of the texts of duplicates.

    Duplicates of one user are protected together.
    """
    n_copies = counted.n_copies()
    if n_copies and counted.users is None:
        warn_user(
            f"{n_copies} texts are duplicates: a document that occurs twice has less "
            "protection than epsilon says; leave duplicates out (not for release)",
            PrivateDataWarning,
        )


def warn_of_public(counted: Counted, public: Iterable[str]) -> None:
    """Warn the owner of the texts of those that are among public texts, too."""
    n_public = counted.n_among(public)
    if n_public:
        warn_user(
            f"{n_public} texts are among public_texts, which are read without noise: "
            "epsilon does not protect them; if they are not public, leave them out of "
            "public_texts (not for release)",
            PrivateDataWarning,
        )


def counts_of(counted: Counted, vocabulary: Mapping[str, int]) -> sp.csr_matrix:
    """Counts of the words of a vocabulary; warns if they cover little. Private."""
    X = counted.matrix(vocabulary)
    warn_of_coverage(np.asarray(X.sum(axis=1)).ravel(), counted.n_tokens)
    return X


def counts_or_shards(
    counted: Counted, vocabulary: Mapping[str, int]
) -> sp.csr_array | CountShards:
    """The same as a fit of topics reads them, in shards if there are many; private."""
    if counted.shards is None:
        return single_precision(counts_of(counted, vocabulary))
    shards = counted.narrow(vocabulary)
    known = [np.asarray(X.sum(axis=1)).ravel() for X in shards]
    warn_of_coverage(np.concatenate(known), counted.n_tokens)
    return shards
