"""Pictures of fitted models, in the manner of scikit-learn's displays; drawing needs matplotlib.

Everything shown is a function of released values, but for the perplexities that
:class:`PrivacyUtilityDisplay` computes on documents of yours.
"""

from dplda.displays._topics import TopicDisplay, top_words
from dplda.displays._utility import PrivacyUtilityDisplay

__all__ = ["PrivacyUtilityDisplay", "TopicDisplay", "top_words"]
