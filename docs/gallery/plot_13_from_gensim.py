"""
Coming from gensim
==================

A dictionary becomes a public vocabulary, a bag of words a row of a matrix, and
`LdaModel` a :class:`~dplda.SubLDA`. Coherence is computed in public texts.

.. code-block:: python

    # before
    dictionary = Dictionary(tokens)
    corpus = [dictionary.doc2bow(document) for document in tokens]
    model = LdaModel(corpus, num_topics=10, id2word=dictionary, passes=10)
    model.show_topics()
    CoherenceModel(model, corpus=corpus, coherence="u_mass").get_coherence_per_topic()
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import top_words
from dplda.metrics import coherence

# %%
# Tokens in, as gensim has them
# -----------------------------

tokens = [text.lower().split() for text in load_wordnet_glosses().data]
vectorizer = CountVectorizer(
    vocabulary=load_public_vocabulary(1000), analyzer=lambda document: document
)
X = vectorizer.transform(tokens)
public, private = X[:2000], X[2000:]

# %%
# The model
# ---------
# `num_topics` is `n_components`. Learned priors (``alpha="auto"``) have no counterpart:
# they would be a further release.

model = SubLDA(10, epsilon=4.0).fit(private)
words = vectorizer.get_feature_names_out()
for k, topic in enumerate(top_words(model, words, 7)):
    print(k, " ".join(topic))

# %%
# Coherence in public texts
# -------------------------
# In private texts it would be a release without a guarantee.

order = np.lexsort((-model.components_.sum(axis=1), model.weak_topics_))
_, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, measure in zip(axes, ("u_mass", "c_npmi")):
    values = coherence(model.components_, public, measure=measure)[order]
    ax.bar(
        range(10), values, color=np.where(model.weak_topics_[order], "0.7", "#0072B2")
    )
    ax.set(title=measure, xlabel="topics by their share (gray: weak)")

# %%
# gensim's ``model.get_topics()``:

topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
print(topics.shape, topics.sum(axis=1).round(6))
