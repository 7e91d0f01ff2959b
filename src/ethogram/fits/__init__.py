"""One way in to all models: fit, look, compare, report."""

from ethogram.fits.compare import Comparison, compare
from ethogram.fits.fit import fit
from ethogram.fits.fit_object import Fit
from ethogram.fits.many_fits import Fits
from ethogram.fits.map_fits import map_fits
from ethogram.fits.new_data import Score
from ethogram.fits.saved_fit import load
from ethogram.fits.task_types import Failure

__all__ = ["Comparison", "Failure", "Fit", "Fits", "Score", "compare", "fit", "load", "map_fits"]
