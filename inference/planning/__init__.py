"""SOGBOFA: planning by gradient ascent on forward marginals."""

from ethogram.inference.planning.episodes import Episodes, play_episodes
from ethogram.inference.planning.policy import RandomPolicy, SogbofaPolicy
from ethogram.inference.planning.rollout_marginals import rollout
from ethogram.inference.planning.sogbofa import Plan, plan

__all__ = ["Episodes", "Plan", "RandomPolicy", "SogbofaPolicy", "plan", "play_episodes", "rollout"]
