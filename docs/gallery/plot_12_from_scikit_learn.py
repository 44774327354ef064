"""
Coming from scikit-learn
========================

`LatentDirichletAllocation` becomes :class:`~dplda.SubLDA`. The vocabulary becomes a
public one. Everything else stays, and `epsilon` is new.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer

from dplda import SubLDA
from dplda.datasets import load_public_vocabulary, load_wordnet_glosses
from dplda.displays import top_words
from dplda.metrics import match_topics

texts = load_wordnet_glosses().data

# %%
# Before
# ------
# ``CountVectorizer(max_features=800)`` would learn its words from the texts, which
# shows them. Here both models get the same public words, for the comparison.

vectorizer = CountVectorizer(vocabulary=load_public_vocabulary(800))
X = vectorizer.transform(texts)
before = LatentDirichletAllocation(
    10, learning_method="online", max_iter=2, random_state=0
).fit(X)

# %%
# Now
# ---

now = SubLDA(10, epsilon=4.0).fit(X)
print(
    f"epsilon {now.epsilon_:.2f} at delta {now.delta_:g}, for one {now.privacy_.unit}"
)

# %%
# The numbering of topics is arbitrary: `match_topics` pairs them.

words = vectorizer.get_feature_names_out()
order, distance = match_topics(before.components_, now.components_)
left, right = top_words(before, words, 5), top_words(now, words, 5)
for k in np.argsort(distance):
    print(f"{distance[k]:.2f}  {' '.join(left[k]):45} | {' '.join(right[order[k]])}")

# %%
_, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
axes.bar(range(10), np.sort(distance))
axes.set(
    xlabel="pairs of topics, the closest first",
    ylabel="Hellinger distance",
    ylim=(0, 1),
)

# %% `transform`, pipelines, `GridSearchCV`, `set_output`, `clone` and pickles work as
# before. Topic weights of private texts stay private; the model may be published.

theta = now.set_output(transform="default").transform(X[:3])
print(theta.round(2))
