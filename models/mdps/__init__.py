"""Markov decision processes: transitions, soft and optimal values, the soft-optimal agent."""

from ethogram.models.mdps.bellman import Status
from ethogram.models.mdps.demonstrations import demonstration_counts
from ethogram.models.mdps.draw_transitions import draw_transitions
from ethogram.models.mdps.history import History, HistoryAgent
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import ActionCounts, SoftPolicy
from ethogram.models.mdps.transition_table import read_mdp, read_state_features
from ethogram.models.mdps.values import (
    OptimalSolution,
    SoftSolution,
    expected_value_difference,
    optimal_values,
    policy_values,
    soft_policy,
    soft_values,
)

__all__ = [
    "MDP",
    "ActionCounts",
    "History",
    "HistoryAgent",
    "OptimalSolution",
    "SoftPolicy",
    "SoftSolution",
    "Status",
    "demonstration_counts",
    "draw_transitions",
    "expected_value_difference",
    "optimal_values",
    "policy_values",
    "read_mdp",
    "read_state_features",
    "soft_policy",
    "soft_values",
]
