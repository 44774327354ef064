"""Topics of fitted models as lists and pages: functions of released values."""

from dplda.reading._displays import top_words
from dplda.release._released_model import report

__all__ = ["report", "top_words"]
