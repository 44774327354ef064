"""Topics of fitted models as lists and pictures: functions of released values."""

from dplda.displays._topics import TopicDisplay, top_words

__all__ = ["TopicDisplay", "top_words"]
