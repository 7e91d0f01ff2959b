"""The role HMM: the model, its inference, summaries of a fit, and coordinated imitation."""

from ethogram.inference import imitation as _imitation
from ethogram.inference import roles as _inference
from ethogram.inference.imitation import *  # noqa: F403
from ethogram.inference.roles import *  # noqa: F403
from ethogram.models import roles as _models
from ethogram.models.roles import *  # noqa: F403

__all__ = sorted([*_models.__all__, *_inference.__all__, *_imitation.__all__])
