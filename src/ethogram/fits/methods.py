"""Which algorithms fit which model, under one name each, and which of them ``"auto"`` takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from numpyro.infer import NUTS

from ethogram.fits.systems import has_labels
from ethogram.inference.choices import PXDA
from ethogram.inference.choices.px_da_chains import sample_px_da
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.export import to_arviz
from ethogram.inference.imitation import imitate
from ethogram.inference.networks import solve_mmap
from ethogram.inference.networks.solve_mmap import METHODS as MMAP_METHODS
from ethogram.inference.nuts_chains import run_chains
from ethogram.inference.refresh import refresh_posterior
from ethogram.inference.rewards import fit_max_entropy, fit_reward
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import require_integer
from ethogram.models.choices import NoisyMDP
from ethogram.models.conjugate_model import ConjugateModel, require_informative
from ethogram.models.data import Trajectories, group_labels
from ethogram.models.networks import MarginalMAP
from ethogram.models.rewards import GPIRL
from ethogram.models.roles import RoleHMM

__all__ = ["Method", "methods_of", "read_settings"]

MANY_GROUPS = 2000
"""Groups of trajectories above which ``"auto"`` takes mini-batches."""
BATCH = 64
"""Groups of a mini-batch."""

SAMPLING: dict[str, Any] = {"num_warmup": 500, "num_samples": 500, "num_chains": 4, "progress_bar": True}
"""Numbers of iterations and chains; the other settings are those of the kernel."""


class Method(NamedTuple):
    """An algorithm of a model.

    Attributes
    ----------
    run : of key, model, data and settings by name; returns what has ``draws_for_export``, or an answer.
    settings : names of the settings that it takes.
    """

    run: Callable[[Array, Any, Any, Mapping[str, Any]], Any]
    settings: tuple[str, ...]


def _settings_of(function: Any) -> tuple[str, ...]:
    """Names of the keyword arguments of a function or class."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        each.name
        for each in parameters
        if each.name
        not in ("self", "key", "model", "data", "query", "mdp", "demonstrations", "fit", "method")
        and each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)
    )


NUTS_SETTINGS = tuple(name for name in _settings_of(NUTS) if name != "potential_fn")


def _conjugate(defaults: Mapping[str, Any]) -> Method:
    def run(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
        chosen = {"num_steps": 1000, **defaults, **settings}
        if chosen.get("batch_size", 1) is Ellipsis:
            chosen["batch_size"] = max(1, min(BATCH, num_groups(data) // 4))
        return ConjugateSVI(model).run(key, data, **chosen)

    return Method(run, ("num_steps", *_settings_of(ConjugateSVI.run)[1:]))


def _refresh(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    import jax

    key_fit, key_draws = jax.random.split(key)
    bar = settings.get("progress_bar", True)
    found = ConjugateSVI(model).run(key_fit, data, 500, progress_bar=bar)
    return refresh_posterior(key_draws, found, data, **settings)


def _sampled(sample: Callable[..., SampledPosterior], own: tuple[str, ...], **defaults: Any) -> Method:
    def run(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
        chosen = {**SAMPLING, **defaults, **settings}
        for name, smallest in {"num_warmup": 0, "num_samples": 1, "num_chains": 1}.items():
            require_integer(name, chosen[name], smallest)
        return sample(key, model, data, **chosen)

    return Method(run, (*SAMPLING, *own))


def _sample_nuts(
    key: Array,
    model: Any,
    data: Any,
    num_warmup: int,
    num_samples: int,
    num_chains: int,
    progress_bar: bool,
    centred: bool = False,
    **settings: Any,
) -> SampledPosterior:
    model = model.bound_to(data) if isinstance(model, ConjugateModel) else model
    checked = model.check(data)
    if isinstance(model, ConjugateModel):
        require_informative(model, data)
    non_centred: tuple[str, ...] = ()
    if isinstance(model, NoisyMDP):
        model.warn_of_separation(checked)
        arrays = checked.without_names()
        non_centred = () if arrays.data.subject is None or centred else ("theta",)
    else:
        arrays = data
    sampled = model.centred() if isinstance(model, GPIRL) else model
    counts = (num_warmup, num_samples, num_chains, progress_bar)
    found = run_chains(key, sampled, arrays, *counts, settings=settings, non_centred=non_centred)
    return _aligned(SampledPosterior(model, *found), data)


def _aligned(found: SampledPosterior, data: Any) -> SampledPosterior:
    """Draws of a model with hidden states, their labels matched to those of the draw of highest density."""
    model = found.model
    if not has_labels(model):
        return found
    best = np.unravel_index(np.argmax(found.statistics["lp"]), found.statistics["lp"].shape)
    reference = {name: site[best] for name, site in found.sites.items()}
    posterior = to_arviz(found, data, align=reference, progress_bar=False).posterior
    aligned = {str(name): np.asarray(values) for name, values in posterior.data_vars.items()}
    return SampledPosterior(model, {**found.sites, **aligned}, found.statistics)


def _imitate(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    missing = [name for name in ("policy", "world", "rounds", "horizon") if name not in settings]
    if missing:
        raise TypeError(f"method 'imitate' needs {', '.join(missing)}: pass what ethogram.imitate takes")
    policy, world = settings["policy"], settings["world"]
    rest = {name: value for name, value in settings.items() if name not in ("policy", "world")}
    return imitate(key, model, policy, world, data, **rest)


def _reward(**fixed: Any) -> Method:
    def run(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
        return fit_reward(key, model, data, **{**fixed, **settings})

    return Method(run, tuple(name for name in _settings_of(fit_reward) if name not in fixed))


def _max_entropy(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    return fit_max_entropy(model.mdp, data, **{"features": model.features, **settings})


def _mmap(method: str) -> Method:
    def run(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
        return solve_mmap(key, model, method, **settings)

    return Method(run, _settings_of(solve_mmap))


def num_groups(data: Any) -> int:
    """Groups of trajectories: whole demonstrations, with all their agents."""
    return len(np.unique(group_labels(data)))


def methods_of(model: Any, data: Any) -> tuple[dict[str, Method], str, str]:
    """Methods of a model by name, the one that ``"auto"`` takes, and why.

    Raises
    ------
    TypeError : no method fits such a model.
    """
    if isinstance(model, MarginalMAP):
        return {name: _mmap(name) for name in MMAP_METHODS}, "hybrid", "the method that searches and proves"
    if isinstance(model, GPIRL) and model.switches:
        several = {
            "natural_gradient": _reward(method="natural_gradient"),
            "nuts": _sampled(_sample_nuts, NUTS_SETTINGS),
        }
        return several, "natural_gradient", "structured variational inference, which sums out the intents"
    if isinstance(model, GPIRL):
        rewards = {
            "natural_gradient": _reward(method="natural_gradient"),
            "laplace": _reward(method="laplace"),
            "map": _reward(method="map"),
            "levine": _reward(method="map", prior="levine"),
            "nuts": _sampled(_sample_nuts, NUTS_SETTINGS),
            "max_entropy": Method(_max_entropy, _settings_of(fit_max_entropy)),
        }
        return (
            rewards,
            "natural_gradient",
            "a Gaussian for the reward at each node over the hyper-parameters, by variational inference",
        )
    if isinstance(model, NoisyMDP):
        single = getattr(data, "subject", None) is None  # a dense matrix of many subjects cannot be estimated
        choices = {
            "nuts": _sampled(_sample_nuts, (*NUTS_SETTINGS, "centred"), dense_mass=single),
            "px-da": _sampled(sample_px_da, _settings_of(PXDA), num_samples=2000),
        }
        return choices, "nuts", "NUTS, which also mixes where data augmentation is slow"
    if isinstance(model, ConjugateModel):
        conjugate = {
            "cavi": _conjugate({}),
            "svi": _conjugate({"batch_size": ..., "num_steps": 2000}),
            "nuts": _sampled(_sample_nuts, NUTS_SETTINGS),
            "refresh": Method(_refresh, _settings_of(refresh_posterior)),
        }
        if isinstance(model, RoleHMM):
            own = (name for name in _settings_of(imitate) if name not in ("model_or_roles", "roles"))
            conjugate["imitate"] = Method(_imitate, tuple(own))
        if isinstance(data, Trajectories) and num_groups(data) > MANY_GROUPS:
            return conjugate, "svi", f"mini-batches, since there are over {MANY_GROUPS} groups"
        return conjugate, "cavi", f"coordinate ascent on all data, up to {MANY_GROUPS} groups"
    raise TypeError(
        f"model is {type(model).__name__}: give a RoleHMM, an AgentMarkov or another ConjugateModel, a NoisyMDP, a "
        "GPIRL, or a MarginalMAP query"
    )


def read_settings(method: str, settings: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise TypeError unless a method takes all settings."""
    strange = [name for name in settings if name not in known]
    if strange:
        raise TypeError(
            f"method {method!r} takes no setting {', '.join(strange)}: it takes {', '.join(known) or 'none'}"
        )
