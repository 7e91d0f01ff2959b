"""How long hidden states last: fitted distributions of dwell times beside the bouts of the most probable path."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ethogram.inference.draws import flat_draws
from ethogram.models.arguments import require_number
from ethogram.models.roles import CovariateRoleHMM, RoleHMM
from ethogram.plots.axes import figure_or_new, show_plainly
from ethogram.plots.behaviour import dwell_curves

__all__ = ["dwell_distribution", "plot_dwell"]

LEFT = 0.005
"""Share of the dwell times of a state, by the means of its parameters, that are longer than those of the table."""
MOST = 2000
"""Dwell times in the table at most."""


def dwell_distribution(fit: Any, probability: float) -> Any:
    """The table that `Fit.dwell_distribution` describes."""
    import pandas
    from scipy.stats import nbinom

    require_number("probability", probability, above=0, below=1)
    mean, size = _draws(fit)
    bouts = fit.bouts()
    whole = bouts[bouts["cut"] == ""]
    tail, parts = (1 - probability) / 2, []
    for state, name in enumerate(fit.state_names):
        own = whole["frames"][whole["state"] == name].to_numpy(int)
        ends = size[:, state] / (size[:, state] + mean[:, state] - 1)
        usual = size[:, state].mean() / (size[:, state].mean() + mean[:, state].mean() - 1)
        longest = max(own.max(initial=1), int(1 + nbinom.isf(LEFT, size[:, state].mean(), usual)))
        steps = np.arange(1, min(longest, MOST) + 1)
        chance = nbinom.pmf(steps - 1, size[:, state, None], ends[:, None])
        lower, upper = np.quantile(chance, [tail, 1 - tail], axis=0)
        counts = np.bincount(np.minimum(own, len(steps)), minlength=len(steps) + 1)[1:]
        columns = {"mean": chance.mean(0), "lower": lower, "upper": upper, "bouts": counts}
        columns["observed"] = counts / max(counts.sum(), 1)
        places = pandas.MultiIndex.from_product([[name], steps], names=["state", "dwell"])
        parts.append(pandas.DataFrame(columns, index=places))
    return pandas.concat(parts)


def plot_dwell(fit: Any, figure: Any = None) -> Any:
    """The figure of dwell times that `Fit.plot` describes."""
    table = dwell_distribution(fit, 0.9)
    figure = figure_or_new(figure, (3.6 * len(fit.state_names), 3.4))
    dwell_curves(figure, table)
    show_plainly(figure)
    return figure


def _draws(fit: Any) -> tuple[Float[np.ndarray, "draw state"], Float[np.ndarray, "draw state"]]:
    """Draws of the mean and the size of dwell times in steps; a geometric distribution has size 1."""
    if isinstance(fit.model, RoleHMM) and fit.model.coupling.has_chain and not fit.model.coupling.is_joint:
        sites = {name: np.asarray(site, float) for name, site in flat_draws(fit.draws().sites).items()}
        if "dwell_mean" in sites:
            return sites["dwell_mean"], sites["dwell_size"]
        if isinstance(fit.model, CovariateRoleHMM):
            changing = fit.model.transition.formula.strip() or fit.model.transition.vary
            matrices = None if changing else fit.model.per_step(sites["log_odds"][:, None], sites)[:, 0]
        else:
            matrices = sites["transition"]
        if matrices is not None:
            leaves = 1 - np.diagonal(matrices, axis1=-2, axis2=-1)
            mean = 1 / np.maximum(leaves, 1e-6)
            return mean, np.ones_like(mean)
    raise TypeError(
        "fitted dwell times are those of a RoleHMM that is not exclusive, and whose transitions have no covariates "
        f"or dwell='negative-binomial'; the model is a {type(fit.model).__name__}: read fit.dwell_times()"
    )
