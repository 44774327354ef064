"""The papers' algorithms to the letter: for comparison and audits, never for private data.

`epsilon_` is what can be proved of an algorithm, often infinity; `published_epsilon_` is the
paper's figure. `fit` warns, and names what is wrong. The sound estimators are those of `dplda`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
