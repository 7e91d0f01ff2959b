"""Tables of estimates under the names that the data have."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ethogram.inference.choices import summarize_choices
from ethogram.inference.choices.summary import named_parts
from ethogram.inference.convergence import convergence, warn_of_convergence
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import warn_user
from ethogram.models.choices import NoisyMDP

__all__ = ["entries_of", "estimates"]

HIDDEN = ("_white", "_free", "_vector", "sticks")
"""Parts of the names of sites that parametrise others."""
DERIVED = {"centred_reward": ("reward", "u", "values", "policy")}
"""Sites that are left out where one is there that says the same: rewards are identified up to a constant."""


def estimates(fit: Any, probability: float) -> Any:
    """A pandas DataFrame of the estimates of a fit, as `Fit.summary` describes it."""
    import pandas

    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}: give a number between 0 and 1")
    if not fit.has_draws:
        return _answer(fit)
    sampled = isinstance(fit.result, SampledPosterior)
    if isinstance(fit.model, NoisyMDP):
        found = summarize_choices(fit.model, fit.result.sites, fit.data, probability=probability)
        if found.separated is not None:
            warn_user(f"{found.separated}: only the prior bounds the values along it")
        columns = dict(mean=found.mean, sd=found.deviation, lower=found.lower, upper=found.upper)
        return pandas.DataFrame({**columns, "ess": found.ess, "r_hat": found.r_hat}, index=found.names)
    names, values = _relevances_by_logarithm(*entries_of(fit))
    if sampled:
        warn_of_convergence({name: values[..., at] for name, at in _by_site(names).items()})
    flat = values.reshape(-1, values.shape[-1])
    lower, upper = np.quantile(flat, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    table = {"mean": flat.mean(0), "sd": flat.std(0, ddof=1), "lower": lower, "upper": upper}
    nothing = np.full(len(names), np.nan)
    judged = convergence(values) if sampled else None
    table["ess"], table["r_hat"] = (nothing, nothing) if judged is None else (judged.ess, judged.r_hat)
    return pandas.DataFrame(table, index=names)


def entries_of(fit: Any, **options: Any) -> tuple[list[str], np.ndarray]:
    """Names of the numbers of all sites, by the coordinates of the data, and their draws (chain, draw, entry)."""
    if isinstance(fit.model, NoisyMDP):
        return _values_of_choices(fit)
    posterior = fit.to_arviz(**options).posterior
    names, parts = [], []
    hidden = {name for site, derived in DERIVED.items() if site in posterior.data_vars for name in derived}
    for site, values in posterior.data_vars.items():
        if site in hidden or any(part in str(site) for part in HIDDEN):
            continue
        array = np.asarray(values)
        if str(site).endswith(
            "direction"
        ):  # angles about their mean direction, where no interval crosses the cut
            middle = np.angle(np.exp(1j * array).mean((0, 1)))
            array = middle + np.angle(np.exp(1j * (array - middle)))
        labels = [np.asarray(values.coords[dim]) if dim in values.coords else None for dim in values.dims[2:]]
        for place in np.ndindex(array.shape[2:]):
            inside = [
                str(at if label is None else label[at]) for at, label in zip(place, labels, strict=True)
            ]
            names.append(f"{site}[{', '.join(inside)}]" if inside else str(site))
        parts.append(array.reshape(*array.shape[:2], -1))
    return names, np.concatenate(parts, -1).astype(float)


def _values_of_choices(fit: Any) -> tuple[list[str], np.ndarray]:
    """Names and draws of the values, whatever sites the algorithm has."""
    sites = fit.result.sites
    names, parts = named_parts(fit.model, sites, np.asarray(sites["theta"], float), fit.data)
    return names, np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts.values()], -1)


def _relevances_by_logarithm(names: list[str], values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names and draws with logarithms of uncertain relevances: their tails are too heavy for means and deviations."""
    uncertain = (values > 0).all((0, 1)) & (np.ptp(values, axis=(0, 1)) > 0)
    logs = [name.startswith("relevance[") and one for name, one in zip(names, uncertain, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        told = np.where(logs, np.log(values), values)
    return [f"log_{name}" if log else name for name, log in zip(names, logs, strict=True)], told


def _by_site(names: list[str]) -> dict[str, list[int]]:
    sites: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        sites.setdefault(name.partition("[")[0], []).append(at)
    return sites


def _answer(fit: Any) -> Any:
    """One row a MAP variable, or a reward of one answer."""
    import pandas

    found = fit.result
    if hasattr(found, "reward"):
        reward = np.asarray(found.reward)
        known = [getattr(fit.model.mdp, f"{axis}_names") for axis in ("state", "action")]
        labels = [
            range(count) if names is None else names
            for count, names in zip(reward.shape, known, strict=False)
        ]
        index = [f"reward[{', '.join(map(str, place))}]" for place in itertools.product(*labels)]
        return pandas.DataFrame({"mean": reward.reshape(-1)}, index=index)
    if found.assignment is None:
        return pandas.DataFrame({"state": []})
    return pandas.DataFrame({"state": list(found.assignment.values())}, index=list(found.assignment))
