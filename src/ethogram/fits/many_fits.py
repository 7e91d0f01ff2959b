"""What many fits are to their user: fits by name, tables of all of them, and the failures among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ethogram.fits.compare import score_table
from ethogram.fits.fit_object import Fit
from ethogram.fits.fit_tasks import unpacked
from ethogram.fits.fits_folder import FitsFolder
from ethogram.fits.task_types import Failure, Later

__all__ = ["Fits"]

SHOWN = 5
"""Names that are printed."""


class Fits(Mapping[str, Any]):
    """Fits by name, made by :func:`ethogram.map_fits`; a failure stands in the place of a fit that raised an error.

    Results in a folder, and those of other processes, are read when they are asked for: ``fits[name]`` is a
    :class:`Fit`, what the function returned, or a :class:`Failure`. Names without a result yet are not in it.

    Attributes
    ----------
    names : of all items, with a result or without.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        found: dict[str, Any],
        folder: FitsFolder | None,
        again: Callable[..., Fits] | None,
    ) -> None:
        self.names = names
        self._found, self._folder, self._again = found, folder, again

    def _read(self, name: str) -> tuple[Any, tuple[str, ...]]:
        if self._folder is not None:
            return self._folder.read(name)
        result, said = self._found[name]
        if isinstance(result, Later):
            self._found[name] = result, said = result.build(), said
        return unpacked(result, name) if isinstance(result, bytes) else (result, said)

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            near = ", ".join(map(repr, self.names[:SHOWN])) + (", ..." if len(self.names) > SHOWN else "")
            raise KeyError(f"{name!r} is no name of these fits, which are {near}")
        return self._read(name)[0]

    def __contains__(self, name: object) -> bool:  # without reading the result
        if self._folder is None or not isinstance(name, str):
            return name in self._found
        return self._folder.finished(name) or self._folder.failed(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        done, failed = len(self), len(self.failures)
        place = "" if self._folder is None else f", out={os.fspath(self._folder.path)!r}"
        return f"Fits({done - failed} of {len(self.names)} done, {failed} failed{place})"

    @property
    def failures(self) -> dict[str, Failure]:
        """Failures by name."""
        if self._folder is not None:
            return {name: self[name] for name in self.names if self._folder.failed(name)}
        return {name: result for name, (result, _) in self._found.items() if isinstance(result, Failure)}

    @property
    def warnings(self) -> dict[str, tuple[str, ...]]:
        """Warnings of the fits that gave some, by name."""
        said = {name: self._read(name)[1] for name in self}
        return {name: each for name, each in said.items() if each}

    def _fits(self) -> Iterator[tuple[str, Fit]]:
        """Fits by name, one at a time; a TypeError where a function gave something else."""
        for name in self:
            found = self[name]
            if isinstance(found, Failure):
                continue
            if not isinstance(found, Fit):
                raise TypeError(
                    f"{name!r} is {type(found).__name__}, which the function returned, and no Fit: read fits[name]"
                )
            yield name, found

    def table(self, probability: float = 0.9) -> Any:
        """A table of all estimates: those of :meth:`Fit.summary`, one row per fit and estimate.

        Returns
        -------
        A pandas DataFrame with the index (fit, estimate), without failures; ``.unstack("fit")`` puts fits side by side.
        """
        import pandas

        tables = {name: fit.summary(probability) for name, fit in self._fits()}
        if not tables:
            raise ValueError(f"no fit is done: {self!r}")
        return pandas.concat(tables, names=["fit", "estimate"])

    def overview(self) -> Any:
        """A table with one row per item: method, seconds, whether it converged, warnings, error.

        Returns
        -------
        A pandas DataFrame; of a function's results, and of items without one, cells are missing.
        """
        import pandas

        rows = {}
        for name in self.names:
            found, said = self._read(name) if name in self else (None, ())
            row: dict[str, Any] = {
                "done": isinstance(found, Fit) or (name in self and not isinstance(found, Failure))
            }
            if isinstance(found, Fit):
                row |= {"method": found.method, "seconds": found.seconds}
                row["converged"] = getattr(found.result, "converged", None)
            row["warnings"] = len(said)
            row["error"] = found.error if isinstance(found, Failure) else ""
            rows[name] = row
        return pandas.DataFrame.from_dict(rows, "index")

    def to_arviz(self, dim: str = "fit", **options: Any) -> Any:
        """Draws of all fits in one `arviz.InferenceData`, whose variables have the further dim `dim`.

        States are those of each fit, ordered as `ethogram.fit` orders them. Where numbers of chains or draws differ,
        such as between methods that ``"auto"`` took, each fit has one chain, with as many draws as the fit with fewest:
        those at equal steps of all its chains, one after the other.

        Parameters
        ----------
        dim : name of the dim, such as ``"animal"``; its coordinates are the names of the fits.
        options : of :meth:`Fit.to_arviz`.

        Raises
        ------
        ValueError : fits have parameters of other names or shapes, such as of other numbers of states.
        """
        import arviz
        import xarray

        each = {name: fit.to_arviz(**options).posterior for name, fit in self._fits()}
        if not each:
            raise ValueError(f"no fit is done: {self!r}")
        if len({(one.sizes["chain"], one.sizes["draw"]) for one in each.values()}) > 1:
            count = min(one.sizes["chain"] * one.sizes["draw"] for one in each.values())
            each = {name: _one_chain(one, count) for name, one in each.items()}
        first, like = next(iter(each.items()))
        for name, posterior in each.items():
            sizes, first_sizes = dict(posterior.sizes), dict(like.sizes)
            if sizes != first_sizes or {*posterior.data_vars} != {*like.data_vars}:
                raise ValueError(
                    f"{name!r} has variables of sizes {sizes}, and {first!r} of {first_sizes}: fits of one model stand "
                    "side by side; of others call to_arviz one by one"
                )
        along = xarray.DataArray(list(each), dims=dim, name=dim)
        joined = xarray.concat(each.values(), along, join="override", combine_attrs="drop_conflicts")
        return arviz.InferenceData(posterior=joined.transpose("chain", "draw", dim, ...))

    def compare(self, new: Any) -> Any:
        """A table of log predictive densities of new data, which no fit has seen, the best fit first.

        Parameters
        ----------
        new : data for all fits, or a mapping of names to the data of each, such as the held-out part of a fold.

        Returns
        -------
        A pandas DataFrame with one row per fit: mean per step or decision, its standard error, total and count; where
        all score the same data, the difference to the best with its standard error too.
        """
        import pandas

        own = isinstance(new, Mapping)
        if own and not {*new} <= {*self.names}:
            raise ValueError(f"new has {sorted({*new} - {*self.names})[0]!r}, which is no name of these fits")
        scores = {
            name: fit.score(new[name] if own else new) for name, fit in self._fits() if not own or name in new
        }
        if not scores:
            raise ValueError(f"no fit has new data to be scored on: {self!r}")
        unit = next(iter(scores.values())).unit
        rows = {name: (s.mean, s.se, s.total, s.counts.sum()) for name, s in scores.items()}
        columns = [f"log density per {unit}", "se", "total", f"{unit}s"]
        table = pandas.DataFrame.from_dict(rows, "index", columns=columns)
        if own:
            return table.sort_values(columns[0], ascending=False)
        differences = score_table(scores)[["difference", "se of difference"]]
        return table.loc[differences.index].join(differences)

    def resume(self, executor: Any = None) -> Fits:
        """The same call again for the items without a result, failures among them.

        Parameters
        ----------
        executor : as of :func:`ethogram.map_fits`.
        """
        if self._again is None:
            raise TypeError(
                "these fits were read from a folder, which has no data of unfinished items: call ethogram.map_fits "
                f"with the same arguments and out={os.fspath(self._folder.path)!r}"  # type: ignore[union-attr]
            )
        return self._again(executor)


def _one_chain(posterior: Any, count: int) -> Any:
    """A dataset with one chain of so many draws, at equal steps of all chains one after the other."""
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    at = np.linspace(0, chains * draws - 1, count).round().astype(int)
    flat = posterior.stack(row=("chain", "draw")).isel(row=at).drop_vars(["row", "chain", "draw"])
    return flat.rename(row="draw").assign_coords(draw=np.arange(count)).expand_dims(chain=[0])
