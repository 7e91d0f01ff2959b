"""The role HMM: the model, its inference, and summaries of a fit."""

from ethogram.inference import roles as _inference
from ethogram.inference.roles import *  # noqa: F403
from ethogram.models import roles as _models
from ethogram.models.roles import *  # noqa: F403

__all__ = sorted([*_models.__all__, *_inference.__all__])
