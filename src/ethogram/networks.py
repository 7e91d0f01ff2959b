"""Bayesian networks: files, marginal MAP queries and the methods that answer them."""

from ethogram.inference import networks as _inference
from ethogram.inference.networks import *  # noqa: F403
from ethogram.models import networks as _models
from ethogram.models.networks import *  # noqa: F403

__all__ = sorted([*_models.__all__, *_inference.__all__])
