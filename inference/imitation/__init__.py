"""Coordinated imitation: policies of roles, learned together with the roles, and the world they act in."""

from ethogram.inference.imitation.imitate import imitate
from ethogram.inference.imitation.result import ImitationResult
from ethogram.inference.imitation.world import Replay, World, sequences_of_games

__all__ = ["ImitationResult", "Replay", "World", "imitate", "sequences_of_games"]
