"""Coordinated imitation: policies of roles, learned together with the roles, and the world they act in."""

from ethogram.inference.imitation.episodes import Episode, team_from_episodes, team_to_episodes
from ethogram.inference.imitation.imitate import imitate
from ethogram.inference.imitation.imitate_motion import (
    MotionResult,
    fit_linear_motion,
    imitate_motion,
    residual_scale,
)
from ethogram.inference.imitation.motion import (
    RolledMotion,
    Scenes,
    by_role,
    centred_plays,
    constant_velocity,
    linear_step,
    recurrent_step,
    roll_motion,
    stay_still,
)
from ethogram.inference.imitation.pettingzoo_world import PettingZooState, PettingZooWorld
from ethogram.inference.imitation.result import ImitationResult
from ethogram.inference.imitation.weighted_assignments import WeightedAssignments, roles_of_plays
from ethogram.inference.imitation.world import (
    Demonstrations,
    World,
    role_trajectories,
    sequences_of_games,
    team_features,
)

__all__ = [
    "Demonstrations",
    "Episode",
    "ImitationResult",
    "MotionResult",
    "PettingZooState",
    "PettingZooWorld",
    "RolledMotion",
    "Scenes",
    "WeightedAssignments",
    "World",
    "by_role",
    "centred_plays",
    "constant_velocity",
    "fit_linear_motion",
    "imitate",
    "imitate_motion",
    "linear_step",
    "recurrent_step",
    "residual_scale",
    "role_trajectories",
    "roles_of_plays",
    "roll_motion",
    "sequences_of_games",
    "stay_still",
    "team_features",
    "team_from_episodes",
    "team_to_episodes",
]
