"""GP-IRL: inverse reinforcement learning with Gaussian-process rewards."""

from ethogram.models.rewards.gp_irl import GPIRL, SimulatedRewards
from ethogram.models.rewards.inducing_points import representative_points, select_inducing_points
from ethogram.models.rewards.priors import SquaredHalfCauchy
from ethogram.models.rewards.switching import (
    IntentChain,
    SimulatedIntents,
    SwitchingGPIRL,
    SwitchingPolicies,
)

__all__ = [
    "GPIRL",
    "IntentChain",
    "SimulatedIntents",
    "SimulatedRewards",
    "SquaredHalfCauchy",
    "SwitchingGPIRL",
    "SwitchingPolicies",
    "representative_points",
    "select_inducing_points",
]
