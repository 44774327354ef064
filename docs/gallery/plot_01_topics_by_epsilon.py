"""
Topics at epsilon 1, 2 and 4
============================

The same 9,790 texts, the same model, three budgets. Epsilon is the total that the whole
training may cost one document. A smaller one means more noise in every count.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import top_words

texts = load_wordnet_glosses().data
vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(2000))  # a public list
X = vectorizer.transform(texts)
words = vectorizer.get_feature_names_out()

# %%
# Epsilon 1
# ---------
# A question mark at a topic means: not shown to be more than noise. At a word it means
# that the word does not stand out of the noise. The bars are the evidence of all
# topics, and the gray ones are not shown to be more than noise.


def fit_and_draw(epsilon):
    model = SubLDA(20, epsilon=epsilon).fit(X)
    sizes = model.components_.sum(axis=1)
    order = np.lexsort((-sizes, model.weak_topics_))
    listed = top_words(model, words, 8, mark_noise=True)
    for k in order[:4]:
        print("?" if model.weak_topics_[k] else " ", " ".join(listed[k]))
    _, ax = plt.subplots(figsize=(7, 2.5), layout="constrained")
    colors = np.where(model.weak_topics_[order], "0.7", "#0072B2")
    ax.bar(range(20), model.topic_evidence_[order], color=colors)
    ax.set(title=f"epsilon {epsilon:g}: evidence, z", xlabel="topics", xticks=[])
    print(f"{np.count_nonzero(~model.weak_topics_)} of 20 topics are shown to be there")
    print(f"a cell has {model.signal_to_noise_:.2f} times its noise")


fit_and_draw(1.0)

# %%
# Epsilon 2
# ---------

fit_and_draw(2.0)

# %%
# Epsilon 4
# ---------

fit_and_draw(4.0)

# %% Each of the three fits cost its own epsilon. On private texts, all three together
# would cost more than the largest of them: a :class:`~dplda.privacy.Ledger` adds them
# up.
