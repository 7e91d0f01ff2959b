"""Tables of estimates, and of answers, under the names that the data have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ethogram.fits.corrected import is_narrow
from ethogram.inference.convergence import convergence
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import require_number

__all__ = ["answer_dataset", "entries_of", "estimates", "exported_entries"]

AUXILIARY = ("_white", "_free", "_vector", "sticks")
"""Parts of the names of sites that parametrise others."""
IMPLIED = {"centred_reward": ("reward", "u", "values", "policy")}
"""Sites implied by another one, omitted from tables: rewards are identified up to a constant."""


def estimates(fit: Any, probability: float) -> Any:
    """A pandas DataFrame of the estimates of a fit, as `Fit.summary` describes it."""
    import pandas

    require_number("probability", probability, above=0, below=1)
    if not fit.has_draws:
        return _answer(fit)
    names, values = _with_log_relevances(*fit._entries())
    flat = values.reshape(-1, len(names))
    tail = (1 - probability) / 2
    lower, upper, least, most = np.quantile(flat, [tail, 1 - tail, 0.005, 0.995], axis=0)
    mean, sd = flat.mean(0), flat.std(0, ddof=1)
    # A few draws decide: the posterior has no mean, as far as they tell. That of equal draws is rounded.
    heavy = ((mean < least) | (mean > most)) & (np.ptp(flat, axis=0) > 0)
    mean[heavy], sd[heavy] = np.copysign(np.inf, mean[heavy]), np.inf
    table = {"mean": mean, "sd": sd, "lower": lower, "upper": upper}
    table["ess"] = table["r_hat"] = np.full(len(names), np.nan)
    if isinstance(fit.result, SampledPosterior):
        table["ess"], table["r_hat"] = convergence(values)
    q = {name: f"q_{name}" for name in ("sd", "lower", "upper")} if is_narrow(fit) else {}
    return pandas.DataFrame(table, index=names).rename(columns=q)


def exported_entries(fit: Any, **options: Any) -> tuple[list[str], np.ndarray]:
    """Names of the numbers of all sites, as ArviZ has them, and their draws (chain, draw, entry).

    Options are those of `to_arviz`.
    """
    return entries_of(fit.to_arviz(**options).posterior)


def entries_of(posterior: Any) -> tuple[list[str], np.ndarray]:
    """Names and draws of the numbers of an exported posterior, without sites that another one implies."""
    implied = {name for site, others in IMPLIED.items() if site in posterior for name in others}
    shown = {
        str(name): values
        for name, values in posterior.data_vars.items()
        if name not in implied and not any(part in str(name) for part in AUXILIARY)
    }
    draws = [_about_mean_direction(name, np.asarray(values, float)) for name, values in shown.items()]
    labels = _labels({name: values[0, 0] for name, values in shown.items()})
    return labels, np.concatenate([site.reshape(*site.shape[:2], -1) for site in draws], -1)


def _labels(sites: Mapping[str, Any]) -> list[str]:
    """Labels of the numbers of xarray arrays, as ArviZ has them: ``site[coordinate, coordinate]``."""
    labels = []
    for name, values in sites.items():
        values = values.squeeze([dim for dim in values.dims if _is_implied(str(dim), values[dim].values)])
        coordinates = [values[dim].values for dim in values.dims]
        for place in np.ndindex(values.shape):
            chosen = ", ".join(str(known[at]) for known, at in zip(coordinates, place, strict=True))
            labels.append(f"{name}[{chosen}]" if place else name)
    return labels


def _is_implied(dim: str, features: np.ndarray) -> bool:
    """Whether a dim is the one feature of a part of the emission, of which sites have the name: ``step_mean``."""
    part, _, kind = dim.rpartition("_")
    return bool(part) and kind == "feature" and [str(each) for each in features] in (["0"], [part])


def _about_mean_direction(site: str, angles: np.ndarray) -> np.ndarray:
    """Angles near their mean direction, where no interval crosses the cut; other sites as they are."""
    if not site.endswith("direction"):
        return angles
    middle = np.angle(np.exp(1j * angles).mean((0, 1)))
    return middle + np.angle(np.exp(1j * (angles - middle)))


def _with_log_relevances(names: list[str], values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names and draws with logarithms of uncertain relevances: their tails are too heavy for means and deviations."""
    uncertain = (values > 0).all((0, 1)) & (np.ptp(values, axis=(0, 1)) > 0)
    logs = uncertain & np.array([name.startswith("relevance[") for name in names])
    named = [f"log_{name}" if log else name for name, log in zip(names, logs, strict=True)]
    return named, np.where(logs, np.log(values, where=logs, out=values.copy()), values)


def _answer(fit: Any) -> Any:
    """One row per MAP variable, or per reward of one answer."""
    import pandas

    found = fit.result
    if hasattr(found, "reward"):
        import xarray

        reward = np.asarray(found.reward)
        dims = ("state", "action")[: reward.ndim]
        known = {dim: getattr(fit.model.mdp, f"{dim}_names") for dim in dims}
        coords = {dim: names for dim, names in known.items() if names is not None}
        labels = _labels({"reward": xarray.DataArray(reward, coords, dims)})
        return pandas.DataFrame({"mean": reward.ravel()}, index=labels)
    if found.assignment is None:
        return pandas.DataFrame({"state": []})
    return pandas.DataFrame({"state": list(found.assignment.values())}, index=list(found.assignment))


def answer_dataset(method: str, found: Any) -> Any:
    """An xarray Dataset of an answer: states and names (method, variable), log probability and bounds (method,)."""
    import xarray

    fields = ("log_probability", "upper_bound", "lower_bound", "seconds", "proved_optimal", "kind")
    variables: dict[str, Any] = {field: ("method", np.array([getattr(found, field)])) for field in fields}
    states = [] if found.states is None else found.states
    variables["states"] = ("method", "variable"), np.asarray(states, int)[None]
    return xarray.Dataset(variables, coords={"method": [method], "variable": list(found.assignment or ())})
