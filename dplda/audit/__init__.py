"""Audits: lower bounds on the epsilon of a fit, by attacking it.

`audit_epsilon` hides canaries by fair coins. An attack sees all releases and guesses
the coins. The number of right guesses gives a bound; a bound above the claimed epsilon
refutes the claim. `residual_check` compares the noise of a fit, and everything else
that its guarantee rests on, with what is declared. `replay` fits neighboring data with
one history, and compares the releases. `noise_of_release` finds the amount of noise in
a published model, without its documents.
"""

from dplda.audit._attacks import Attack
from dplda.audit._audit import AuditResult, audit_epsilon
from dplda.audit._replay import CheckResult, replay
from dplda.audit._residuals import noise_of_release, residual_check
from dplda.privacy._recorder import observe_releases

__all__ = [
    "Attack",
    "AuditResult",
    "CheckResult",
    "audit_epsilon",
    "noise_of_release",
    "observe_releases",
    "replay",
    "residual_check",
]
