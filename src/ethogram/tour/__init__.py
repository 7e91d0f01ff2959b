"""The tour: every system fitted to its bundled data."""

from ethogram.tour.guide import Example, TourReport
from ethogram.tour.take_tour import SYSTEMS, take_tour, unknown_systems

__all__ = [
    "SYSTEMS",
    "Example",
    "TourReport",
    "take_tour",
    "unknown_systems",
]
