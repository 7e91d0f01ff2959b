"""The noisy MDP: the model, PX-DA, and the econometrics of a fit."""

from ethogram.inference import choices as _inference
from ethogram.inference.choices import *  # noqa: F403
from ethogram.models import choices as _models
from ethogram.models.choices import *  # noqa: F403

__all__ = sorted([*_models.__all__, *_inference.__all__])
