"""Quality of a topic model: functions of a released table and of documents to score."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
