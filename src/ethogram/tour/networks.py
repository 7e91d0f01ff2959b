"""The tour of marginal-map: three queries of Bayesian networks, and the incumbent of each method over time.

A grid, a diagnosis and a pedigree, each with some variables observed and many MAP variables. The hybrid method says
when its answer is proved optimal; gradient ascent on forward marginals is the paper's, with nothing added; the others
are the paper's baselines and further ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ethogram.domains import uai_networks
from ethogram.inference.networks import MarginalMAPResult, solve_mmap
from ethogram.plots import networks as plots_mmap
from ethogram.tour.guide import Guide, TourReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FULL", "METHODS", "QUICK", "TourSizes", "tour"]

METHODS = {
    "hybrid": "hybrid",
    "ags": "gradient ascent on forward marginals",
    "mpe": "most probable explanation",
    "mpbp": "mixed-product belief propagation",
    "sequential": "sequential",
}
"""Methods of `solve_mmap`, and their names in the table."""


class TourSizes(NamedTuple):
    """Seconds after which incumbents are compared."""

    early: float
    late: float


QUICK, FULL = TourSizes(1.0, 2.0), TourSizes(1.0, 5.0)


def tour(guide: Guide, sizes: TourSizes) -> TourReport:
    """Rows, notes and files of the tour of marginal-map."""
    found: dict[str, dict[str, MarginalMAPResult]] = {}
    rows: list[dict[str, Any]] = []
    for number, (name, known) in enumerate(uai_networks.KNOWN.items()):
        query, key = uai_networks.load(name), jax.random.fold_in(jax.random.key(guide.seed), number)
        guide.step(
            f"{name}: {len(query.map_variables)} MAP variables of {query.network.num_variables}, "
            f"{len(METHODS)} methods",
            quick=8,
            full=17,
        )
        found[name] = {}
        for method in METHODS:
            # Gradient ascent has no incumbent before its end: it runs once to either limit.
            limits = sizes if method == "ags" else sizes[-1:]
            results = [solve_mmap(key, query, method, time_limit=limit) for limit in limits]
            found[name][method] = results[-1]
            rows.append(_row(name, known, method, results, sizes))
    with guide.figure(15, 5.6, "marginal MAP: the incumbent of each method over time") as figure:
        _draw(figure, found, sizes)
    guide.save(_answers(found))
    notes = [
        "ln p: log probability of the assignment and the evidence, all other variables summed out, of the original",
        "tables; -inf: an impossible assignment. Seconds are of wall time, compilation included.",
        "best known: proved optimal by branch and bound for the grid and the diagnosis, the best of long runs for the",
        "pedigree.",
        "marginal-map.nc holds the assignments by method (read it with xarray.open_dataset).",
    ]
    return guide.report(rows, notes)


def _row(
    name: str, known: uai_networks.Known, method: str, results: list[MarginalMAPResult], sizes: TourSizes
) -> dict[str, Any]:
    last = results[-1]
    if len(results) > 1:
        early = results[0].log_probability
    else:
        early = max((p.log_probability for p in last.trace if p.wall_s <= sizes.early), default=-np.inf)
    return {
        "query": f"{name}, {known.about}",
        "method": METHODS[method],
        f"ln p at {sizes.early:g} s": f"{early:.3f}",
        f"ln p at {sizes.late:g} s": f"{last.log_probability:.3f}",
        "best known": f"{known.log_probability:.3f}",
        "proved": "yes" if last.proved_optimal else "no",
        "seconds": f"{last.seconds:.1f}",
    }


def _answers(found: dict[str, dict[str, MarginalMAPResult]]) -> Any:
    """A dataset of assignments: states (method, variable) of each network, and their log probabilities (method)."""
    import xarray

    variables: dict[str, Any] = {}
    coords: dict[str, Any] = {"method": list(METHODS)}
    for name, results in found.items():
        dim = f"variable of {name}"
        coords[dim] = next(
            list(result.assignment) for result in results.values() if result.assignment is not None
        )
        none = np.full(len(coords[dim]), -1)  # where no possible assignment was found
        states = [none if result.states is None else result.states for result in results.values()]
        variables[name] = ("method", dim), np.stack(states)
        values = np.array([result.log_probability for result in results.values()])
        variables[f"log probability of {name}"] = "method", values
    return xarray.Dataset(variables, coords=coords)


def _draw(figure: Figure, found: dict[str, dict[str, MarginalMAPResult]], sizes: TourSizes) -> None:
    """Log probability of each method's incumbent over time, one network an axes."""
    for axes, (name, results) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        known = uai_networks.KNOWN[name]
        traces = {METHODS[method]: result.trace for method, result in results.items()}
        plots_mmap.anytime_curves(traces, axes, until=sizes.late, best=known.log_probability)
        axes.set_title(f"{name}, {known.about}")
    lines = {line.get_label(): line for axes in figure.axes for line in axes.get_legend_handles_labels()[0]}
    shown = [name for name in METHODS.values() if name in lines]
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": len(shown), "frameon": False}
    figure.legend([lines[name] for name in shown], shown, **place)
