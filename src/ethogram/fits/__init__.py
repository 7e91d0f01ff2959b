"""One way in to all models: fit, look, compare, report."""

from ethogram.fits.compare import Comparison, compare
from ethogram.fits.fit import fit
from ethogram.fits.fit_object import Fit
from ethogram.fits.new_data import Score
from ethogram.fits.saved_fit import load

__all__ = ["Comparison", "Fit", "Score", "compare", "fit", "load"]
