"""SOGBOFA: planning by gradient ascent on forward marginals."""

from ethogram.inference.planning.plan import Plan, plan
from ethogram.inference.planning.rollout_marginals import rollout

__all__ = ["Plan", "plan", "rollout"]
