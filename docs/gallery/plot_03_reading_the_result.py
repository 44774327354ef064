"""
Which topics to trust
=====================

A private fit always returns topics. Some of them are noise. The last rounds of the fit
test the topics, within its epsilon.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import top_words

vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(2000))
X = vectorizer.transform(load_wordnet_glosses().data[:6000])
model = SubLDA(20, epsilon=2.0).fit(X)

# %%
# A question mark at a topic means: not shown to be more than noise. Of the topics
# without it, at most one in ten is expected to be noise. A question mark at a word
# means: it does not stand out of the noise.

words = vectorizer.get_feature_names_out()
listed = top_words(model, words, 7, mark_noise=True)
order = np.lexsort((-model.components_.sum(axis=1), model.weak_topics_))
for k in order:
    print("?" if model.weak_topics_[k] else " ", " ".join(listed[k]))

# %%
# The evidence of each topic, in the same order: a z-score, which is at most standard
# normal for a topic that is noise.

colors = np.where(model.weak_topics_[order], "0.7", "#0072B2")
_, ax = plt.subplots(figsize=(7, 2.5), layout="constrained")
ax.bar(range(20), model.topic_evidence_[order], color=colors)
ax.set_title("evidence, z (gray: not shown to be more than noise)", loc="left")
ax.set(xlabel="topics by their share, weak ones last", xticks=[])
plt.show()

# %%
# The card says what the model guarantees, in words.

print(model.privacy_)
