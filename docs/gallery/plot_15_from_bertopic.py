"""
Coming from BERTopic
====================

BERTopic clusters embeddings, one topic a text. Its words, exemplary texts and
embeddings are exact functions of the texts, and no noise protects them. A topic model
with a guarantee answers most of the same questions from one released table.

.. code-block:: python

    # before
    model = BERTopic(seed_topic_list=[["animal", "fish"], ["plant", "tree"]])
    topics, probabilities = model.fit_transform(texts)
    model.get_topic_info()
    model.visualize_hierarchy()
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.cluster.hierarchy import dendrogram, linkage
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA, public_prior
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import top_words

texts = load_wordnet_glosses().data
vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(2500))
X = vectorizer.transform(texts)

# %%
# Guided topics
# -------------
# `seed_topic_list` is `seed_words`. The words must be public: not picked while reading
# the texts. Seeded topics keep their places, here 0 to 3. Some public texts fill them
# up.

seeds = [
    ["animal", "fish"],
    ["plant", "tree"],
    ["blood", "disease"],
    ["city", "river", "sea"],
]
public, private = X[:500], X[500:]
prior = public_prior(public, n_components=12, seed_words=seeds, vocabulary=vectorizer)
model = SubLDA(12, epsilon=4.0, prior_components=prior).fit(private)

# %%
# `get_topic_info`: names and sizes, both from the released table.

names = [" ".join(topic) for topic in top_words(model, vectorizer.vocabulary_, 4)]
share = model.components_.sum(axis=1) / model.components_.sum()
for k in range(12):
    print(f"{k:2} {share[k]:6.1%}  {names[k]}{'?' if model.weak_topics_[k] else ''}")

# %%
# The hierarchy
# -------------
# Topics with similar probabilities of words are joined first: SciPy needs the released
# table only.

_, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
tree = linkage(np.sqrt(topics / 2), "average")
dendrogram(tree, labels=names, orientation="left", ax=axes)
axes.set_xlabel("Hellinger distance")
axes.spines[["top", "right", "left"]].set_visible(False)

# %%
# The topic of a text
# -------------------
# A text has weights of all topics. Those of a private text are private. There is no
# counterpart of exemplary texts (`get_representative_docs`): they would publish texts.

weights = model.transform(
    vectorizer.transform(["an animal of the sea", "a tree of warm lands"])
)
for row in weights:
    print(f"{row.max():.2f}  {names[row.argmax()]}")
