"""Roles after a fit: assignment, alignment, and how well they agree."""

from ethogram.inference.roles.alignment import (
    Alignment,
    align_states,
    consistency,
    duplicate_share,
    lineup_agreement,
    matched_hamming,
    relabel,
)
from ethogram.inference.roles.assignment import InferredRoles, assign_roles, infer_roles, role_log_likelihood
from ethogram.models.optimal_assignment import Assignment, optimal_assignment

__all__ = [
    "Alignment",
    "Assignment",
    "InferredRoles",
    "align_states",
    "assign_roles",
    "consistency",
    "duplicate_share",
    "infer_roles",
    "lineup_agreement",
    "matched_hamming",
    "optimal_assignment",
    "relabel",
    "role_log_likelihood",
]
