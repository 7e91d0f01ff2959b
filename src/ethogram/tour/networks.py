"""The tour of marginal-map: a query of a grid network, and the incumbent of several methods over time.

The best known value is proved optimal, by branch and bound. The answer is that of the hybrid method, which says whether
it is proved; the other curves of the figure are baselines.
"""

from __future__ import annotations

from typing import Any

import jax

import ethogram
from ethogram.domains import uai_networks
from ethogram.plots.networks import anytime_curves
from ethogram.tour.guide import Example

__all__ = ["EXAMPLE"]

NAME = "50-12-5"
SECONDS = 2.0
"""Of the baselines; the hybrid method stops where its answer is proved optimal, and at twice as many."""

BASELINES = {"mpe": "most probable explanation", "sequential": "sequential", "ags": "gradient ascent"}


def load(key: jax.Array, full: bool) -> tuple[None, Any]:
    """No data: a query has its evidence."""
    return None, uai_networks.load(NAME)


def model(query: ethogram.MarginalMAP) -> ethogram.MarginalMAP:
    """The query."""
    return query


def truth(fit: ethogram.Fit, query: ethogram.MarginalMAP) -> list[tuple[str, str, str]]:
    """The log probability of the answer, and its bound."""
    best, found = uai_networks.KNOWN[NAME].log_probability, fit.result
    return [
        (f"ln p of {len(query.map_variables)} MAP variables", f"{found.log_probability:.3f}", f"{best:.3f}"),
        ("upper bound of ln p", f"{found.upper_bound:.3f}", f"{best:.3f}"),
        ("proved optimal", "yes" if found.proved_optimal else "no", "-"),
    ]


def draw(fit: ethogram.Fit, query: ethogram.MarginalMAP, figure: Any) -> None:
    """Incumbents of the hybrid method and of the baselines over time."""
    results = {"hybrid": fit.result}
    for method, name in BASELINES.items():
        results[name] = ethogram.fit(jax.random.key(0), query, method=method, time_limit=SECONDS).result
    axes = figure.subplots()
    anytime_curves(results, axes, best=uai_networks.KNOWN[NAME].log_probability)
    axes.set_title(f"{NAME}, {uai_networks.KNOWN[NAME].about}; dashed: optimum")
    figure.legend(loc="outside lower center", ncols=len(results), frameon=False)


EXAMPLE = Example(
    f"{NAME}, {uai_networks.KNOWN[NAME].about}",
    load,
    model,
    {"method": "hybrid", "time_limit": 2 * SECONDS},
    {"time_limit": 10.0},
    truth,
    draw,
    (7.5, 5),
)
