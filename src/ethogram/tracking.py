"""Files of animal tracking as trajectories."""

from ethogram.models.tracking import *  # noqa: F403
from ethogram.models.tracking import __all__ as __all__
