"""The tour of marginal-map: three questions to Bayesian networks, and what each method has found after 1 s and 5 s.

A grid, a diagnosis and a pedigree, each with some variables known and many asked for. The hybrid method says when its
answer is proved; gradient ascent on forward marginals is the paper's, with nothing added; the others are what the
paper sets beside it, and what it should have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram import plots_mmap
from ethogram.domains import uai_networks
from ethogram.inference.solve_mmap import MarginalMAPResult, solve_mmap
from ethogram.models.bayes_net import MarginalMAP
from ethogram.tour import TourReport, TourSettings, whole_file

__all__ = ["FULL", "METHODS", "QUICK", "TourSizes", "tour"]

METHODS = ("hybrid", "ags", "mpe", "mpbp", "sequential")
WORDS = {
    "hybrid": "hybrid",
    "ags": "gradient ascent on forward marginals",
    "mpe": "explanation of everything",
    "mpbp": "mixed product",
    "sequential": "one after the other",
}


class TourSizes(NamedTuple):
    """How much is done.

    Attributes
    ----------
    early, late : seconds after which answers are compared.
    """

    early: float
    late: float


QUICK, FULL = TourSizes(1.0, 3.0), TourSizes(1.0, 5.0)


def tour(settings: TourSettings, sizes: TourSizes | None = None) -> TourReport:
    """Rows, notes and files of the tour of marginal-map.

    Parameters
    ----------
    settings : as `take_tour` makes them.
    sizes : how much is done; `QUICK` or `FULL`, as the settings say, where None.
    """
    sizes = (QUICK if settings.quick else FULL) if sizes is None else sizes
    picture, record = settings.out / "marginal-map.png", settings.out / "marginal-map.nc"
    found: dict[str, dict[str, MarginalMAPResult]] = {}
    rows: list[dict[str, Any]] = []
    for number, (name, known) in enumerate(uai_networks.KNOWN.items()):
        query, key = uai_networks.load(name), jax.random.fold_in(jax.random.key(settings.seed), number)
        settings.say(
            f"{name}: {len(query.map_variables)} of {query.network.num_variables} variables asked for"
        )
        found[name] = {}
        for method in METHODS:
            results = _solve(key, query, method, sizes)
            found[name][method] = results[-1]
            rows.append(_row(name, known, method, results, sizes))
    _write_picture(picture, found, sizes)
    with whole_file(record) as draft:
        _answers(found).to_netcdf(str(draft), engine="h5netcdf")
    notes = [
        "ln p: log probability of the answer and the evidence, everything else summed out, of the tables as they are;",
        "-inf: an answer that is impossible. Seconds are of the clock on the wall, compilation included.",
        "Best known: the grid's and the diagnosis's are proved, by others; the pedigree's is the best of long runs.",
        f"{record.name} holds the answers, a chain a method (arviz.from_netcdf reads it).",
    ]
    return TourReport(rows, notes, [picture, record])


def _solve(key: jax.Array, query: MarginalMAP, method: str, sizes: TourSizes) -> list[MarginalMAPResult]:
    """What a method gives in the short time and in the long one, or at once where it ends by itself."""
    if method == "ags":  # it has no answer before its end
        return [solve_mmap(key, query, method, time_limit=limit) for limit in sizes]
    return [solve_mmap(key, query, method, time_limit=sizes.late)]


def _row(
    name: str, known: uai_networks.Known, method: str, results: list[MarginalMAPResult], sizes: TourSizes
) -> dict[str, Any]:
    last = results[-1]
    if len(results) > 1:
        early = results[0].log_probability
    else:
        early = max((p.log_probability for p in last.trace if p.wall_s <= sizes.early), default=-np.inf)
    return {
        "what was asked": f"{name}, {known.about}",
        "method": WORDS[method],
        f"ln p at {sizes.early:g} s": f"{early:.3f}",
        f"at {sizes.late:g} s": f"{last.log_probability:.3f}",
        "best known": f"{known.log_probability:.3f}",
        "proved": "yes" if last.proved_optimal else "no",
        "seconds": f"{last.seconds:.1f}",
    }


def _answers(found: dict[str, dict[str, MarginalMAPResult]]) -> Any:
    """Answers as ArviZ reads them: states (method, 1, variable) of every network, and their log probabilities."""
    import arviz
    import xarray

    states, values, coords = {}, {}, {"chain": list(METHODS), "draw": [0]}
    for name, results in found.items():
        dim = f"variable of {name}"
        coords[dim] = list(next(iter(results.values())).assignment)
        states[name] = (
            ("chain", "draw", dim),
            np.stack([result.states for result in results.values()])[:, None],
        )
        values[name] = ("chain", "draw"), np.array([[result.log_probability] for result in results.values()])
    few = {name: coords[name] for name in ("chain", "draw")}
    groups: dict[str, Any] = {
        "posterior": xarray.Dataset(states, coords=coords), "sample_stats": xarray.Dataset(values, coords=few),
    }  # fmt: skip
    if arviz.__version__.startswith("0."):
        return arviz.InferenceData(**groups)
    return xarray.DataTree.from_dict(groups)


def _write_picture(path: Path, found: dict[str, dict[str, MarginalMAPResult]], sizes: TourSizes) -> None:
    """What every method had found at each time, network by network."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 5.6), layout="constrained")
    figure.suptitle("the most probable joint states of some variables: what is found, and when", fontsize=14)
    for axes, (name, results) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        known = uai_networks.KNOWN[name]
        traces = {WORDS[method]: result.trace for method, result in results.items()}
        plots_mmap.anytime_curves(traces, axes, until=sizes.late, best=known.log_probability)
        axes.set_title(f"{name}, {known.about}")
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=90)
