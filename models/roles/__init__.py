"""The role HMM."""

from ethogram.models.roles.choice import ChoiceEmission, LogitEmission
from ethogram.models.roles.covariate_emission import CovariateEmission
from ethogram.models.roles.covariate_roles import CovariateRoleHMM
from ethogram.models.roles.covariates import Covariates
from ethogram.models.roles.dwell_times import DwellRoleHMM
from ethogram.models.roles.per_sequence import ExclusiveRoles
from ethogram.models.roles.regression import RegressionEmission
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = [
    "ChoiceEmission",
    "CovariateEmission",
    "CovariateRoleHMM",
    "Covariates",
    "DwellRoleHMM",
    "ExclusiveRoles",
    "LogitEmission",
    "RegressionEmission",
    "RoleHMM",
]
