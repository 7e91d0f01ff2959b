"""The tour: every system fitted to its bundled data."""

from ethogram.terminal import available_cores, format_table
from ethogram.tour.guide import Example, TourReport
from ethogram.tour.take_tour import SYSTEMS, take_tour, unknown_systems

__all__ = [
    "SYSTEMS",
    "Example",
    "TourReport",
    "available_cores",
    "format_table",
    "take_tour",
    "unknown_systems",
]
