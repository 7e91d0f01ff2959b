"""The agent Markov model: the model, its inference, and summaries of a fit."""

from ethogram.inference import intents as _inference
from ethogram.inference.intents import *  # noqa: F403
from ethogram.models import intents as _models
from ethogram.models.intents import *  # noqa: F403

__all__ = sorted([*_models.__all__, *_inference.__all__])
