r"""Rewards learned from demonstrations: a Gaussian posterior by natural gradients, Laplace's, or a point.

Stochastic gradients of the bound leave good starts for worse ones, and find none from the prior. Here the search
begins at the posterior mode, with Laplace's approximation about it, and goes on by natural gradients with exact
Hessians of the log likelihood; what is returned is never below Laplace's bound on the same draws. All is worked out in
double precision.

Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes"; Levine, Popovic and
Koltun (2011), whose hyper-parameters are where the search begins where features are many.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.checkpoint import check_path
from ethogram.inference.reward_result import RewardFit, RewardPosterior, as_double
from ethogram.inference.reward_search import RewardSearch, SearchState, levine_fit
from ethogram.models.blocks.conjugate_block import require_reals
from ethogram.models.emissions.emission import whole_number
from ethogram.models.gp_irl import GPIRL

__all__ = ["RewardFit", "RewardPosterior", "fit_reward"]

METHODS = ("natural_gradient", "laplace", "map")
HYPERS = ("variational", "point", "fixed")
PRIORS = ("model", "levine")
MOSTLY_WHITE = 0.5


def fit_reward(
    key: Array,
    model: Any,
    demonstrations: Any,
    method: str = "natural_gradient",
    *,
    hyper: str = "variational",
    prior: str = "model",
    start: Any = None,
    num_steps: int = 60,
    num_draws: int = 12,
    num_evaluations: int = 64,
    num_restarts: int = 0,
    tol: float = 0.05,
    checkpoint: str | os.PathLike | None = None,
    progress_bar: bool = True,
) -> RewardFit:
    """Posterior of the reward behind demonstrations.

    Parameters
    ----------
    key : for starts, and draws.
    model : `GPIRL`, in either family.
    demonstrations : `Trajectories` with states and actions, or counts (state, action).
    method : ``"natural_gradient"``; ``"laplace"``, the Gaussian that the search begins with; ``"map"``, the mode.
    hyper : of those hyper-parameters that have priors: ``"variational"``, Gaussian logarithms; ``"point"``, the best
        ones; ``"fixed"``, those that the search begins with, as for ``"laplace"`` and ``"map"`` always.
    prior : of the mode: the model's, or ``"levine"``, his objective over rewards of inducing points (those of the
        model, or all states that are visited) and hyper-parameters, with ``method="map"``.
    start : ``{"scale": ..., "relevance": ...}`` to begin with, those that have priors; else the medians of the priors
        for up to three features and for rewards of pairs, and Levine's estimate for more.
    num_steps : most steps of natural gradient, each with `num_draws` draws, an even number.
    num_evaluations : draws that the bound is watched on, an even number.
    num_restarts : starts of the search for the mode, drawn from the prior, beside the prior's mean; the likelihood is
        not concave, and the mode of the highest posterior density is gone on from.
    tol : of the bound in nats, over five steps: less is nothing gained.
    checkpoint : a file that is written after every natural step; where it is there, the same call goes on from it, and
        ends where an uninterrupted one would. `num_steps` and `tol` may differ.

    Raises
    ------
    TypeError, ValueError
        `model` is no GPIRL, demonstrations are not what it takes, a setting is none of these, or the checkpoint is one
        of another model, other demonstrations, settings or another key.

    Warns
    -----
    UserWarning
        More than half of the prior variance of rewards is noise: little can then be said of other states.

    Examples
    --------
    >>> from ethogram.models.mdp import MDP
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = GPIRL(corridor, [[0.0], [1.0], [2.0]], scale_prior=5.0, relevance_prior=1.0)
    >>> counts = np.array([[0, 3], [0, 3], [0, 3]])
    >>> fit = fit_reward(jax.random.key(0), model, counts, progress_bar=False)
    >>> fit.converged, fit.elbo >= fit.laplace_elbo
    (True, True)
    """
    if not isinstance(model, GPIRL):
        raise TypeError(f"model is {type(model).__name__}: fit_reward learns a GPIRL")
    for name, value, allowed in (
        ("method", method, METHODS),
        ("hyper", hyper, HYPERS),
        ("prior", prior, PRIORS),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {allowed}, not {value!r}")
    if prior == "levine" and method != "map":
        raise ValueError(f'prior is "levine", which is a point estimate: give method="map", not {method!r}')
    if hyper == "point" and method != "natural_gradient":
        raise ValueError(f'hyper is "point", and method={method!r} keeps the hyper-parameters it begins with')
    if prior == "levine" and (checkpoint is not None or start is not None):
        raise ValueError('prior is "levine", which takes no start and writes no checkpoint: leave them out')
    require_reals("tol", tol)
    if not 0 <= tol < np.inf:
        raise ValueError(f"tol must be a number of at least 0, not {tol!r}")
    for name, number in (
        ("num_steps", num_steps),
        ("num_draws", num_draws),
        ("num_evaluations", num_evaluations),
    ):
        whole_number(name, number, 1)
        if name != "num_steps" and number % 2:
            raise ValueError(f"{name} is {number}: draws come in pairs, give an even number")
    whole_number("num_restarts", num_restarts, 0)
    counts = model.counts(demonstrations)
    with jax.enable_x64(True):
        double, taken = as_double(model), jnp.asarray(counts)
        key_start, key_search = jax.random.split(key)
        if prior == "levine":
            found = levine_fit(key_start, double, taken)
        else:
            by_expert = taken if taken.ndim == 3 else taken[None]
            search = RewardSearch(double, by_expert, hyper, num_draws, num_evaluations, num_restarts)
            saved, save = None, _forget
            if checkpoint is not None:
                check_path(checkpoint)
                settings = [method, hyper, num_draws, num_evaluations, num_restarts]
                signature = storage.fingerprint(double, counts, jax.random.key_data(key), settings, start)
                saved = _read(checkpoint, signature)
                save = functools.partial(_write, checkpoint, signature)
            key_begin, key_end = jax.random.split(key_search)
            state = search.begin(key_start, key_begin, start, method == "map") if saved is None else saved
            if method == "natural_gradient":
                state = search.climb(state, num_steps, tol, progress_bar, save)
            found = search.end(key_end, state, method)
    found = found._replace(posterior=dataclasses.replace(found.posterior, model=model))
    if found.white_share > MOSTLY_WHITE:
        warnings.warn(
            f"{found.white_share:.0%} of the prior variance of rewards is noise: what is learned in one state says "
            "little of others; fewer features, or smaller relevances, would say more",
            stacklevel=2,
        )
    return found


def _forget(state: SearchState) -> None:
    """Where there is no checkpoint."""


def _write(path: str | os.PathLike, signature: str, state: SearchState) -> None:
    storage.write(path, {"signature": signature, "search": state})


def _read(path: str | os.PathLike, signature: str) -> SearchState | None:
    if not os.path.exists(path):
        return None
    content = storage.read(path)
    if not isinstance(content, dict) or not isinstance(content.get("search"), SearchState):
        raise ValueError(
            f"checkpoint is {os.fspath(path)!r}, which is none of fit_reward: choose another file"
        )
    if content["signature"] != signature:
        raise ValueError(
            f"checkpoint is {os.fspath(path)!r}, of another model, key, data or settings: remove it, or "
            "choose another file"
        )
    return content["search"]
