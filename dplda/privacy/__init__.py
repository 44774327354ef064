"""Privacy budgets and guarantees: ledgers, accounting, and the events it counts.

A `Ledger` adds up what was spent on one body of data. A fitted model's ``privacy_`` is
a `Guarantee`. `epsilon_of` states the privacy cost of a composition of events, and
`calibrate` finds the noise for a given cost. Authors of estimators find mechanisms and
random streams in `dplda.privacy.mechanisms`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
