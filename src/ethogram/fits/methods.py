"""The algorithms that fit each kind of model, under one name each, with the settings that they take.

Algorithms of a system are imported when a model of it is fitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.checkpoint import check_path
from ethogram.inference.conjugate import ConjugateSVI, fit_side_by_side
from ethogram.inference.export import to_arviz
from ethogram.inference.nuts_chains import run_chains
from ethogram.inference.refresh import refresh_posterior
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import require_flag, require_integer, require_number
from ethogram.models.conjugate_model import check_data, require_informative
from ethogram.models.data import Trajectories, group_labels
from ethogram.models.data.parts import is_large, on_disk

__all__ = [
    "DEFAULTS", "LAPLACE", "NUM_STEPS", "NUTS", "PXDA", "Method", "Methods", "aligned", "at_least", "chains_of",
    "conjugate_methods", "covariate_methods", "network_methods", "num_groups", "read_settings", "reward_methods",
    "role_methods", "switching_methods", "without_bar",
]  # fmt: skip

MANY_GROUPS = 2000
"""Groups of trajectories above which ``"auto"`` takes mini-batches."""
BATCH = 64
"""Groups of a mini-batch."""
NUM_STEPS = 1000
"""Steps of coordinate ascent at most."""


Check = Callable[[str, Any], Any]
"""Of the name of a setting and its value; raises TypeError or ValueError where the value is wrong."""


class Method(NamedTuple):
    """An algorithm of a model.

    Attributes
    ----------
    run : of key, model, data and settings by name; returns what has ``draws_for_export``, or an answer.
    settings : those that it takes, with checks of the values that it does not check itself before it computes.
    several : of a model, words of keys, small data sets, how many there are in all, and settings; fits that were made
        together, each a `SmallFit`, or None where `run` has to make it. Of methods that have it for all models.
    """

    run: Callable[[Array, Any, Any, Mapping[str, Any]], Any]
    settings: Mapping[str, Check]
    several: Callable[[Any, np.ndarray, Sequence[Any], int, Mapping[str, Any]], list[Any]] | None = None


class Methods(NamedTuple):
    """The algorithms of a model by name, the one that ``"auto"`` takes, and the reason for it.

    Where that is known from a fit only, `choose` is called as a method's `run`, and returns the name, the reason and
    the result.
    """

    by_name: dict[str, Method]
    usual: str
    reason: str
    choose: Callable[[Array, Any, Any, Mapping[str, Any]], tuple[str, str, Any]] | None = None


def at_least(least: int) -> Check:
    return lambda name, value: require_integer(name, value, least)


def _positive(name: str, value: Any) -> None:
    require_number(name, value, above=0)


def _function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function, not {value!r}")


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _mass_matrix(name: str, value: Any) -> None:
    for each in value.values() if isinstance(value, Mapping) else (value,):
        if (
            not isinstance(each, np.ndarray | Array)
            or each.ndim not in (1, 2)
            or each.dtype.kind not in "iuf"
        ):
            raise TypeError(
                f"{name} must be an array, a diagonal or a matrix, or arrays by sites, not {each!r}"
            )


def _dense_mass(name: str, value: Any) -> None:
    if not (isinstance(value, list) and all(isinstance(block, tuple) for block in value)):
        require_flag(name, value)


def _tree_depth(name: str, value: Any) -> None:
    if isinstance(value, tuple | list) and (not isinstance(value, tuple) or len(value) != 2):
        raise TypeError(f"{name} must be an integer, or a tuple of two (in warm-up, after it), not {value!r}")
    for each in value if isinstance(value, tuple) else (value,):
        require_integer(name, each, 1)


def _by_algorithm(*names: str) -> dict[str, Check]:
    """Settings that the algorithm checks, and the progress bar."""
    return dict.fromkeys(names, lambda name, value: None) | {"progress_bar": require_flag}


CAVI = _by_algorithm(
    "num_steps", "batch_size", "step_size", "restarts", "init", "tol", "search", "evaluate_every", "checkpoint",
    "checkpoint_every",
)  # fmt: skip
REFRESH = _by_algorithm("num_steps", "restarts") | {  # the chains start after the fit
    "num_warmup": at_least(1),
    "num_draws": at_least(1),
    "num_chains": at_least(1),
    "checkpoint": _optional(lambda name, value: check_path(value)),
}
IMITATION = _by_algorithm(
    "policy", "world", "expert", "rounds", "horizon", "deterministic", "evaluation_games", "fit_steps", "restarts",
    "checkpoint",
)  # fmt: skip
SAMPLING = {
    "num_warmup": at_least(0),
    "num_samples": at_least(1),
    "num_chains": at_least(1),
    "progress_bar": require_flag,
}
NUTS = SAMPLING | {
    "checkpoint": REFRESH["checkpoint"],
    "kinetic_fn": _optional(_function),
    "step_size": _positive,
    "inverse_mass_matrix": _optional(_mass_matrix),
    "adapt_step_size": require_flag,
    "adapt_mass_matrix": require_flag,
    "dense_mass": _dense_mass,
    "target_accept_prob": lambda name, value: require_number(name, value, above=0, below=1),
    "trajectory_length": _optional(_positive),
    "max_tree_depth": _tree_depth,
    "init_strategy": _function,
    "find_heuristic_step_size": require_flag,
    "forward_mode_differentiation": require_flag,
    "regularize_mass_matrix": require_flag,
}
LAPLACE = {"num_samples": at_least(10), "progress_bar": require_flag}
PXDA = SAMPLING | {"checkpoint": REFRESH["checkpoint"]} | _by_algorithm("moves", "winner")
REWARD = _by_algorithm(
    "hyper", "start", "num_steps", "num_draws", "num_evaluations", "num_restarts", "tol", "checkpoint",
)  # fmt: skip
MAX_ENTROPY = _by_algorithm("features", "horizon", "penalty", "num_steps")
QUERY = _by_algorithm("time_limit", "max_steps", "callback", "clock", "most_cells", "smoothed_score")


def read_settings(method: str, settings: Mapping[str, Any], known: Mapping[str, Check]) -> None:
    """Raise TypeError unless the method knows all settings, TypeError or ValueError where a value is wrong."""
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise TypeError(
            f"method {method!r} takes no setting {', '.join(unknown)}: it takes {', '.join(known)}"
        )
    for name, value in settings.items():
        known[name](name, value)


DEFAULTS = {"num_warmup": 500, "num_samples": 500, "num_chains": 4, "progress_bar": True}
"""Of the samplers."""


def num_groups(data: Any) -> int:
    """Groups of trajectories: whole demonstrations, with all their agents."""
    return len(np.unique(group_labels(data)))


def conjugate_methods(model: Any, data: Any) -> Methods:
    """Methods of a `ConjugateModel`."""
    stored = isinstance(data, Trajectories) and on_disk(data) and is_large(data)
    many = isinstance(data, Trajectories) and (stored or num_groups(data) > MANY_GROUPS)
    by_name = {
        "cavi": Method(_cavi, CAVI, _cavi_of_several),
        "svi": Method(_svi, CAVI),
        "nuts": Method(_nuts_of_chains, NUTS),
        "refresh": Method(_refresh, REFRESH),
    }
    usual = "svi" if many else "cavi"
    reason = "mini-batches, since there are over" if many else "coordinate ascent on all data, up to"
    reason = "mini-batches, since the data are on disk" if stored else f"{reason} {MANY_GROUPS} groups"
    return Methods(by_name, usual, reason)


def role_methods(model: Any, data: Any) -> Methods:
    """Methods of a `RoleHMM`."""
    found = conjugate_methods(model, data)
    return found._replace(by_name=found.by_name | {"imitate": Method(_imitate, IMITATION)})


def covariate_methods(model: Any, data: Any) -> Methods:
    """Methods of a `RoleHMM` with `Covariates`."""
    by_name = {
        "laplace": Method(_laplace_of_roles, LAPLACE | _by_algorithm("restarts", "num_steps")),
        "nuts": Method(_nuts_of_covariates, NUTS),
    }
    return Methods(by_name, "laplace", "effects of covariates, and dwell times, have no conjugate prior")


def reward_methods(model: Any, data: Any) -> Methods:
    """Methods of a `GPIRL`."""
    by_name = {
        "natural_gradient": Method(partial(_reward, method="natural_gradient"), REWARD),
        "nuts": Method(_nuts_of_rewards, NUTS),
        "laplace": Method(partial(_reward, method="laplace"), REWARD),
        "map": Method(partial(_reward, method="map"), REWARD),
        "levine": Method(_levine, _by_algorithm()),
        "max_entropy": Method(_max_entropy, MAX_ENTROPY),
    }
    reason = "a Gaussian for the reward at each node over the hyper-parameters, by variational inference"
    return Methods(by_name, "natural_gradient", reason)


def switching_methods(model: Any, data: Any) -> Methods:
    """Methods of a `SwitchingGPIRL`."""
    by_name = {
        "natural_gradient": Method(_switching, REWARD),
        "nuts": Method(_nuts_of_switching, NUTS),
    }
    reason = "structured variational inference, which sums out the intents"
    return Methods(by_name, "natural_gradient", reason)


def network_methods(model: Any, data: Any) -> Methods:
    """Methods of a `MarginalMAP` query."""
    from ethogram.inference.networks.solve_mmap import METHODS

    by_name = {name: Method(partial(_query, method=name), QUERY) for name in METHODS}
    return Methods(by_name, "hybrid", "the method that searches and proves")


def _cavi(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    return ConjugateSVI(model).run(key, data, **{"num_steps": NUM_STEPS, **settings})


def _cavi_of_several(
    model: Any, words: np.ndarray, data: Sequence[Any], count: int, settings: Mapping[str, Any]
) -> list[Any]:
    given = {"num_steps": NUM_STEPS, **without_bar(settings)}
    return fit_side_by_side(model, words, data, count, **given)


def _svi(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    check_data(model, data)
    batch_size = max(1, min(BATCH, num_groups(data) // 4))
    return ConjugateSVI(model).run(key, data, **{"num_steps": 2000, "batch_size": batch_size, **settings})


def _refresh(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    key_fit, key_draws = jax.random.split(key)
    first = {"num_steps": 500, **{name: settings[name] for name in CAVI if name in settings}}
    first.pop("checkpoint", None)  # of the chains, which take most of the time
    second = {name: value for name, value in settings.items() if name not in ("num_steps", "restarts")}
    return refresh_posterior(key_draws, ConjugateSVI(model).run(key_fit, data, **first), data, **second)


def _imitate(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    from ethogram.inference.imitation import imitate

    missing = [name for name in ("policy", "world", "rounds", "horizon") if name not in settings]
    if missing:
        raise TypeError(f"method 'imitate' needs {', '.join(missing)}: pass what ethogram.imitate takes")
    rest = dict(settings)
    return imitate(key, model, rest.pop("policy"), rest.pop("world"), data, **rest)


def chains_of(
    key: Array,
    model: Any,
    data: Any,
    settings: Mapping[str, Any],
    non_centred: tuple[str, ...] = (),
    starts: Any = None,
) -> Any:
    """Chains of NUTS, with all settings in one mapping."""
    kernel = {**DEFAULTS, **settings}
    num_warmup, num_samples, num_chains, progress_bar = (kernel.pop(name) for name in SAMPLING)
    counts = (num_warmup, num_samples, num_chains, progress_bar)
    if (mass := kernel.get("inverse_mass_matrix")) is not None:
        kernel["inverse_mass_matrix"] = jax.tree.map(lambda each: np.asarray(each, float), mass)
    batch = model.entries(data).batch
    more = {"starts": starts, "non_centred": non_centred, "checkpoint": kernel.pop("checkpoint", None)}
    return run_chains(key, model, batch, *counts, settings=kernel, **more)


def _nuts_of_chains(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> SampledPosterior:
    model.check(data)
    require_informative(model, data)
    model = model.bind(data)
    found = SampledPosterior(model, *chains_of(key, model, data, settings))
    return aligned(found, data) if model.switches_labels() else found


def _laplace_of_roles(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    from ethogram.inference.roles.laplace_roles import laplace_roles

    return laplace_roles(key, model, data, **settings)


def _nuts_of_covariates(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> SampledPosterior:
    from ethogram.inference.roles.laplace_roles import starts_of_chains

    key_start, key_chains = jax.random.split(key)
    kept = {**DEFAULTS, **settings}
    model, starts = starts_of_chains(key_start, model, data, kept["num_chains"], kept["progress_bar"])
    found = chains_of(key_chains, model, data, settings, starts=starts)
    return SampledPosterior(model, {name: found.sites[name] for name in model.site_dims()}, found.statistics)


def _nuts_of_rewards(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> SampledPosterior:
    model.check(data)
    return SampledPosterior(model, *chains_of(key, model.centred(), data, settings))


def _nuts_of_switching(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> SampledPosterior:
    model.check(data)
    centred = dataclasses.replace(model, base=model.base.centred())
    found = SampledPosterior(model, *chains_of(key, centred, data, settings))
    return aligned(found, data) if model.switches_labels() else found


def aligned(found: SampledPosterior, data: Any) -> SampledPosterior:
    """Draws of a model with hidden states, their labels matched to those of the draw of highest density."""
    best = np.unravel_index(np.argmax(found.statistics["lp"]), found.statistics["lp"].shape)
    reference = {name: site[best] for name, site in found.sites.items()}
    posterior = to_arviz(found, data, align=reference, progress_bar=False).posterior
    aligned = {str(name): np.asarray(values) for name, values in posterior.data_vars.items()}
    return SampledPosterior(found.model, {**found.sites, **aligned}, found.statistics)


def _reward(key: Array, model: Any, data: Any, settings: Mapping[str, Any], method: str) -> Any:
    from ethogram.inference.rewards import fit_reward

    return fit_reward(key, model, data, **{"method": method, **settings})


def _levine(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    from ethogram.inference.rewards import levine_map

    return levine_map(key, model, data)


def _switching(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    from ethogram.inference.rewards import fit_switching

    return fit_switching(key, model, data, **settings)


def _max_entropy(key: Array, model: Any, data: Any, settings: Mapping[str, Any]) -> Any:
    from ethogram.inference.rewards import fit_max_entropy

    return fit_max_entropy(model.mdp, data, **{"features": model.features, **without_bar(settings)})


def _query(key: Array, model: Any, data: Any, settings: Mapping[str, Any], method: str) -> Any:
    from ethogram.inference.networks import solve_mmap

    return solve_mmap(key, model, method, **without_bar(settings))


def without_bar(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "progress_bar"}
