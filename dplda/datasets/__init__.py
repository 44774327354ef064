"""Corpora (embedded, from the UCI archive, synthetic) and public word lists."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
