"""
Which topics to trust
=====================

A private fit always returns topics. Some of them are noise. The fitted model says
which, at no cost, because it knows how much noise it drew.
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
# A question mark stands at words that do not stand out of the noise.

words = vectorizer.get_feature_names_out()
order = np.argsort(-model.topic_evidence_)
for k in order:
    mark = "weak" if model.weak_topics_[k] else "    "
    print(mark, " ".join(top_words(model, words, 7, mark_noise=True)[k]))

# %%
# Evidence of each topic in nats, the best first.

colors = np.where(model.weak_topics_[order], "0.7", "#0072B2")
_, ax = plt.subplots(figsize=(7, 2.5), layout="constrained")
ax.bar(range(20), model.topic_evidence_[order], color=colors)
ax.set_title("evidence (gray: weak topics)", loc="left")
ax.set(xlabel="topics, the best first", xticks=[])
plt.show()

# %%
# The card says what the model guarantees, in words.

print(model.privacy_)
