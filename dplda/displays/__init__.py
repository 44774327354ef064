"""Pictures of fitted models, in the style of scikit-learn's displays; drawing needs matplotlib.

Displays show functions of released values, with one exception: the perplexities that
:class:`PrivacyUtilityDisplay` computes on your documents.
"""

from dplda.displays._topics import TopicDisplay, to_pyldavis, top_words
from dplda.displays._utility import PrivacyUtilityDisplay

__all__ = ["PrivacyUtilityDisplay", "TopicDisplay", "to_pyldavis", "top_words"]
