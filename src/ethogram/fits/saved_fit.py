"""Reading of fits and posteriors that were saved."""

from __future__ import annotations

import os
from typing import Any

from jax import Array

from ethogram.fits.fit_object import Fit
from ethogram.inference import storage
from ethogram.inference.conjugate import load_posterior

__all__ = ["fit_of_record", "load"]


def load(path: str | os.PathLike) -> Any:
    """Read a :class:`Fit`, or a posterior, that was written by its ``save`` method; or the fits of a folder.

    A folder is that of :func:`ethogram.map_fits`, and gives a :class:`~ethogram.fits.Fits`.
    """
    if os.path.isdir(path):
        from ethogram.fits.map_fits import load_fits

        return load_fits(path)
    content = storage.read(path)
    if not (isinstance(content, dict) and isinstance(content.get("fit"), dict)):
        return load_posterior(path)
    return fit_of_record(content, os.fspath(path))


def fit_of_record(content: Any, path: str) -> Fit:
    """The fit of what `Fit.record` gave; `path` names it in errors."""
    found = content["fit"]
    kinds = {"method": str, "method_reason": str, "seconds": float, "key": Array, "names": dict, "code": str}
    wrong = [name for name, kind in kinds.items() if not isinstance(found.get(name), kind)]
    missing = sorted(found.keys() ^ {*kinds, "model", "data", "result"}) or wrong
    if missing:
        raise ValueError(f"{path} cannot be read: {', '.join(missing)} of the fit is missing or wrong")
    return Fit(**found)
