"""The role HMM."""

from ethogram.models.roles.per_sequence import ExclusiveRoles
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["ExclusiveRoles", "RoleHMM"]
