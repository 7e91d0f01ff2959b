"""Figures of fitted models. Every function draws into Matplotlib axes, given or new, and returns them.

Matplotlib is imported on the first call. A state has the same colour in all figures, that of `category_colours`.
"""

from ethogram.domains.football import pitch
from ethogram.domains.labyrinth import maze_occupancy
from ethogram.plots.axes import density_of
from ethogram.plots.behaviour import bout_durations, state_intervals, transition_intervals
from ethogram.plots.checks import path_check, residual_autocorrelation, residual_quantiles
from ethogram.plots.choices import reliability, value_marginals
from ethogram.plots.colours import category_colours, series_colour
from ethogram.plots.imitation import failure_curves, policy_roles
from ethogram.plots.intents import intent_shares, intent_timeline
from ethogram.plots.live_belief import LiveBelief
from ethogram.plots.networks import anytime_curves
from ethogram.plots.planning import episode_timeline, plan_marginals
from ethogram.plots.rewards import relevance_forest, reward_map
from ethogram.plots.roles import elbo_traces, role_ellipses, role_marginals, score_curve
from ethogram.plots.timelines import role_timelines, zoomable_timeline

__all__ = [
    "LiveBelief",
    "anytime_curves",
    "bout_durations",
    "category_colours",
    "density_of",
    "elbo_traces",
    "episode_timeline",
    "failure_curves",
    "intent_shares",
    "intent_timeline",
    "maze_occupancy",
    "path_check",
    "pitch",
    "plan_marginals",
    "policy_roles",
    "relevance_forest",
    "reliability",
    "residual_autocorrelation",
    "residual_quantiles",
    "reward_map",
    "role_ellipses",
    "role_marginals",
    "role_timelines",
    "score_curve",
    "series_colour",
    "state_intervals",
    "transition_intervals",
    "value_marginals",
    "zoomable_timeline",
]
