"""Parties choose the words of their texts and find the topics, from one budget.

The vocabulary is one secure sum over public candidates: noisy weights of all of them,
as `PrivateCountVectorizer` releases them for one curator. Then the topics are a fit of
several parties as any other.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from dplda.core._private_fit import charge_of
from dplda.core._splitter import Splitter
from dplda.core._texts import each_text
from dplda.datasets import load_word_vectors
from dplda.document._document_lda import DocumentLDA
from dplda.federated._secure_sum import SecureSum
from dplda.leaf._calm import interruptible
from dplda.leaf._users import charged_unit, protected_unit
from dplda.text._count_vectorizer import PrivateCountVectorizer, columns_of
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
    """Fit both on a party's own texts: afterwards all parties have the same ones.

    Whatever ends it early leaves what was released so far. The ledger of `topics` is
    charged for both. Vectors of English words are those that dplda holds.
    """
    steps = [*words._plan(sums.shares), *topics._plan(sums.shares)]  # public
    choice = words._choice(protected_unit(user_ids), sums)  # public
    if english_vectors:
        vectors = load_word_vectors(choice.candidates)  # public
        choice = replace(choice, vectors=vectors)
    splitter = Splitter(words._rule())  # public
    texts = each_text("texts", texts)
    with (
        charge_of(
            topics,
            steps,
            unit=charged_unit(user_ids),
            seeded=False,
            sums=sums,
            n_streams=2,  # of the words, and of the topics
        ) as charge,
        closing(Counted(texts, splitter, user_ids)) as counted,  # private
    ):
        totals = words._count(counted, choice)  # private
        start = sums.begin()  # public
        charge.begin()
        words._choose(totals, choice, charge)  # public
        if sums.keep is not None:
            sums.keep()
        with interruptible():
            counts = columns_of(counted, words.vocabulary_)  # private
            if english_vectors:
                place = {word: i for i, word in enumerate(choice.candidates)}
                chosen = np.array([place[word] for word in words.vocabulary_])
                topics.set_params(word_vectors=vectors[chosen])
        topics._fit_paid(counts, user_ids, charge, sums, start)  # public
