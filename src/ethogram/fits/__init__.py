"""One way in to all models: fit, look, compare, report."""

from ethogram.fits.fit import fit
from ethogram.fits.fit_object import Fit, Score, load

__all__ = ["Fit", "Score", "fit", "load"]
