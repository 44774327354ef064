"""Audits: lower bounds on the epsilon of a fit, by attacking it.

`audit_epsilon` hides canaries by fair coins. An attack sees all releases and guesses the coins. The
number of right guesses gives a bound. A bound above the claimed epsilon refutes the claim.
`residual_check` compares the noise of a fit, and everything else that its guarantee rests on, with
what is declared.
"""

from dplda.audit._attacks import Attack
from dplda.audit._audit import audit_epsilon
from dplda.audit._audit_result import AuditBound, AuditResult
from dplda.audit._bounds import (
    gaussian_lower_bound,
    many_run_lower_bound,
    one_run_lower_bound,
)
from dplda.audit._declared_noise import f_dp_lower_bound, independent_lower_bound
from dplda.audit._document_attacks import DocumentAttack, UserAttack
from dplda.audit._published_attacks import AnchorAttack
from dplda.audit._report_attacks import ReportAttack, ReportedWordAttack, RequestAttack
from dplda.audit._residual_result import ResidualResult, ResidualTest
from dplda.audit._residuals import residual_check
from dplda.audit._token_attack import TokenAttack
from dplda.audit._word_attack import WordAttack
from dplda.privacy._curator import observe_releases

__all__ = [
    "AnchorAttack",
    "Attack",
    "AuditBound",
    "AuditResult",
    "DocumentAttack",
    "ReportAttack",
    "ReportedWordAttack",
    "RequestAttack",
    "ResidualResult",
    "ResidualTest",
    "TokenAttack",
    "UserAttack",
    "WordAttack",
    "audit_epsilon",
    "f_dp_lower_bound",
    "gaussian_lower_bound",
    "independent_lower_bound",
    "many_run_lower_bound",
    "observe_releases",
    "one_run_lower_bound",
    "residual_check",
]
