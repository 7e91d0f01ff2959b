"""The role HMM."""

from ethogram.models.roles.exclusive_roles import ExclusiveRoles
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["ExclusiveRoles", "RoleHMM"]
