"""The tour: every system fitted to its bundled data."""

from ethogram.tour.guide import Guide, TourReport, format_table, whole_file
from ethogram.tour.take_tour import SYSTEMS, System, available_cores, take_tour, unknown_systems

__all__ = [
    "SYSTEMS",
    "Guide",
    "System",
    "TourReport",
    "available_cores",
    "format_table",
    "take_tour",
    "unknown_systems",
    "whole_file",
]
