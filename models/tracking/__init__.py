"""Files of animal tracking as trajectories: DeepLabCut, SLEAP, movement and Movebank."""

from ethogram.models.tracking.deeplabcut import read_deeplabcut
from ethogram.models.tracking.egocentric import egocentric
from ethogram.models.tracking.interpolate import interpolate
from ethogram.models.tracking.movebank import read_movebank
from ethogram.models.tracking.movement_dataset import from_movement
from ethogram.models.tracking.sleap import read_sleap

__all__ = ["egocentric", "from_movement", "interpolate", "read_deeplabcut", "read_movebank", "read_sleap"]
