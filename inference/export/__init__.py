"""Export of fits to ArviZ."""

from ethogram.inference.export.arviz_export import to_arviz

__all__ = ["to_arviz"]
