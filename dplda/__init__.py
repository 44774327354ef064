"""Differentially private LDA topic models for scikit-learn.

``__init__.pyi`` lists the public names. A name is imported at its first use, so that a client of
local privacy loads nothing of the server.
"""

import lazy_loader

from dplda._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
