"""Parties choose the words of their texts and find the topics, from one budget.

The vocabulary is one secure sum over public candidates: noisy weights of all of them,
as `PrivateCountVectorizer` releases them for one curator. The topics are then fitted as
in any fit of several parties.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from dplda.core._private_fit import charge_of
from dplda.core._texts import each_text
from dplda.datasets import load_word_vectors
from dplda.document._document_lda import DocumentLDA
from dplda.federated._secure_sum import SecureSum
from dplda.leaf._calm import interruptible
from dplda.leaf._users import charged_unit, protected_unit
from dplda.text._choice import Choice, counts_of
from dplda.text._count_vectorizer import PrivateCountVectorizer
from dplda.text._counted import Counted


def fit_words_and_topics(
    words: PrivateCountVectorizer,
    topics: DocumentLDA,
    texts: Any,
    user_ids: Any,
    sums: SecureSum,
    *,
    english_vectors: bool = False,
) -> None:
    """Fit words and topics on a party's texts; all parties get the same result.

    If the fit ends early, what was released so far remains. The ledger of `topics` is
    charged for both. Vectors of English words come from dplda.
    """
    unit = protected_unit(user_ids)
    choice = Choice.of(words, unit, sums)  # public
    training = topics._training(unit, sums=sums)  # public
    training.check_size(words.max_features)
    if english_vectors:
        vectors = load_word_vectors(choice.candidates)  # public
        choice = replace(choice, vectors=vectors)
    texts = each_text("texts", texts)
    with (
        charge_of(
            topics,
            [*choice.plan, *training.plan],
            unit=charged_unit(user_ids),
            seeded=False,
            sums=sums,
            n_streams=2,  # of the words, and of the topics
        ) as charge,
        closing(Counted(texts, choice.splitter, user_ids)) as counted,  # private
    ):
        weights = choice.weigh(counted)  # private
        charge.begin()  # meets the others; the price is spent from here on
        choice.release(weights, charge)  # public
        if sums.save_so_far is not None:
            sums.save_so_far()
        with interruptible():
            counts = counts_of(counted, words.vocabulary_)  # private
            if english_vectors:
                place = {word: i for i, word in enumerate(choice.candidates)}
                chosen = np.array([place[word] for word in words.vocabulary_])
                if vectors[chosen].any():  # else they say nothing of these words
                    topics.set_params(word_vectors=vectors[chosen])
        public_words = training.public_words(len(words.vocabulary_))  # public
        with closing(
            training.documents_of_counts(counts, counted.users)
        ) as documents:  # private
            training.run(documents, charge, public_words)
