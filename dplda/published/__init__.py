"""The papers' algorithms as printed: for comparison and audits, never for private data.

`epsilon_` is the epsilon that can be proved for an algorithm, usually infinity.
`published_epsilon_` is the paper's claim. `fit` warns and names the error. The sound
estimators are in `dplda` and `dplda.federated`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
