"""
Topics at epsilon 1, 2 and 4
============================

The same 9,790 texts, the same model, three budgets. Epsilon is the total that the whole
training may cost one document. A smaller one means more noise in every count.
"""

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import plot_topics

texts = load_wordnet_glosses().data
vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(2000))  # a public list
X = vectorizer.transform(texts)
words = vectorizer.get_feature_names_out()

# %%
# Epsilon 1
# ---------
# A bar is the probability of a word in the topic, a tick that in all topics. Words that
# do not stand out of the noise are gray. A question mark means: not shown to be more
# than noise. The display draws the largest of the other topics first.


def fit_and_draw(epsilon):
    model = SubLDA(20, epsilon=epsilon).fit(X)
    sizes = model.components_.sum(axis=1)
    first = np.lexsort((-sizes, model.weak_topics_))[:4]
    plot_topics(model, words, n_top_words=8, topics=first)
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
