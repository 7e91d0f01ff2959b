r"""Posterior of the reward behind demonstrations: natural-gradient VI, Laplace's approximation, or a MAP estimate.

The search starts from Laplace's approximation at the posterior mode and takes natural-gradient steps with exact
Hessians of the log likelihood; the returned ELBO is never below Laplace's on the same draws. By default the
hyper-parameters that matter are integrated over. Everything is computed in
double precision.

Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes", section 3, for the
bound; Khan and Nielsen (2018), "Fast yet simple natural-gradient descent for variational inference", eq. 7 and 8, for
the steps; Levine, Popovic and Koltun (2011), eq. 8, whose hyper-parameters are the initial ones for more than three
features.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from ethogram.inference import storage
from ethogram.inference.checkpoint import check_path, read_checkpoint, write_checkpoint
from ethogram.inference.rewards.blas_threads import one_blas_thread
from ethogram.inference.rewards.gaussian import HYPERS
from ethogram.inference.rewards.intent_fit import HYPERS_OF_INTENTS, RESTARTS, fit_intents
from ethogram.inference.rewards.intent_posterior import IntentFit
from ethogram.inference.rewards.natural_gradient import RewardSearch, SearchState, check_saved, levine_fit
from ethogram.inference.rewards.nested_search import NestedState, check_places, nested_fit
from ethogram.inference.rewards.reward_posterior import METHODS, RewardFit, as_double
from ethogram.models.arguments import require_integer, require_key, require_number, require_one_of, warn_user
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = ["fit_reward", "unconverged_message"]

PRIORS = ("model", "levine")
MOSTLY_WHITE = 0.5

FEW_POINTS = 500
"""Rewards up to which linear algebra runs in one thread: more threads wait for one another longer than they compute."""

ENOUGH_STEPS = 60
"""Fewest steps that a warning recommends; most searches need thirty or more."""


def fit_reward(
    key: Array,
    model: Any,
    demonstrations: Any,
    method: str = "natural_gradient",
    *,
    hyper: str | None = None,
    prior: str = "model",
    start: Any = None,
    num_steps: int = 300,
    num_draws: int = 12,
    num_evaluations: int = 128,
    num_restarts: int | None = None,
    tol: float = 0.05,
    checkpoint: str | os.PathLike | None = None,
    progress_bar: bool = True,
) -> RewardFit | IntentFit:
    """Posterior of the reward behind demonstrations.

    Of a model with several intents, q factorises into the paths of intents, their chain and the reward of each
    (:mod:`ethogram.inference.rewards.intent_steps`). Starts are segments of demonstrations, clustered by their actions;
    all go some rounds, and the one with the highest ELBO on common draws goes on.

    Parameters
    ----------
    key : typed PRNG key.
    model : `GPIRL`, of either family.
    demonstrations : `Trajectories` with states and actions, or counts (state, action).
    method : ``"natural_gradient"``; ``"laplace"``, Laplace's approximation; or ``"map"``, the posterior mode.
    hyper : treatment of the hyper-parameters that have priors: ``"nested"``, integrated over, with a Gaussian q(w) at
        each of up to 21 nodes around their mode (of more than three features the relevances that matter, at most
        three; the others are held at `start`); ``"variational"``, log-normal and independent of the reward;
        ``"point"``, optimised; or ``"fixed"`` at their initial values, all that ``"laplace"`` and ``"map"`` take.
        Default: nested; with several intents, which take ``"point"`` and ``"fixed"`` only, a point.
    prior : of the mode: the model's, or ``"levine"``, his objective over rewards of inducing points (those of the
        model, or all visited states) and hyper-parameters, with ``method="map"``.
    start : initial hyper-parameters ``{"scale": ..., "relevance": ...}``, all that have priors. Default: prior medians
        for up to three features; for more, Levine's estimate, and for rewards of pairs, where there is none, equal
        relevances, with ``"nested"`` and ``"fixed"`` the optimum of a short search from these.
    num_steps : largest number of natural-gradient steps, each with `num_draws` draws, an even number; with
        ``hyper="nested"`` at each place that the search visits. With several intents, rounds of the best start.
    num_evaluations : draws for monitoring the ELBO, an even number.
    num_restarts : starts of the search for the mode drawn from the prior, besides zero: the likelihood is not concave,
        and the mode of highest posterior density is used. Default 0. With several intents, starts besides the first;
        default 3.
    tol : in nats: the search stops where the latest half of its steps changed the ELBO by at most `tol`, by the paired
        difference on the same draws and with its standard error. Steps are averages of all draws so far, and n of them
        leave about what those from n / 2 on have gained; a gain of d leaves posterior means within sqrt(2 d) standard
        deviations of the optimum. With ``hyper="nested"`` it is four times `tol` at each place, since places share
        their draws. With several intents the search stops where the expected gain of the rounds to come, from the
        scatter of the latest ten, is within `tol`, or a quarter of the standard error of the ELBO where that is more.
    checkpoint : a file that is written after every natural-gradient step, with ``hyper="nested"`` after every place; if
        it exists, the same call resumes from it, and ends where an uninterrupted one would. `num_steps` and `tol` may
        differ, but for ``"nested"``; fewer steps than it has are an error. ``"laplace"`` and ``"map"`` take none: they
        have no such steps.

    Raises
    ------
    TypeError, ValueError
        `model` is not a GPIRL, it refuses the demonstrations, a setting is out of range, or the checkpoint is one of
        another model, demonstrations, settings or key.

    Warns
    -----
    UserWarning
        The search has not converged: it names the latest ELBOs, what speaks against convergence, and what to pass.
        Or more than half of the prior variance of rewards is noise: states then carry little information on others.

    Examples
    --------
    >>> import numpy as np
    >>> from ethogram.models.mdps import MDP
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = GPIRL(corridor, [[0.0], [1.0], [2.0]], scale_prior=5.0, relevance_prior=1.0)
    >>> counts = np.array([[0, 3], [0, 3], [0, 3]])
    >>> fit = fit_reward(jax.random.key(0), model, counts, progress_bar=False)
    >>> fit.converged, fit.elbo >= fit.laplace_elbo
    (True, True)
    """
    if not isinstance(model, GPIRL):
        raise TypeError(f"model is {type(model).__name__}: give a GPIRL")
    require_key(key)
    several = model.switches
    if several:
        _check_for_intents(method, "point" if hyper is None else hyper, prior)
    if hyper is None:
        hyper = "point" if several else "nested" if method == "natural_gradient" else "fixed"
    num_restarts = (RESTARTS if several else 0) if num_restarts is None else num_restarts
    counted = {"num_steps": num_steps, "num_draws": num_draws, "num_evaluations": num_evaluations}
    _check_settings(method, hyper, prior, tol, **counted, num_restarts=num_restarts)
    if prior == "levine" and (checkpoint is not None or start is not None):
        raise ValueError('prior="levine" takes neither start nor checkpoint: leave them out')
    if checkpoint is not None and method != "natural_gradient":
        raise ValueError(
            f"checkpoint is given, but method {method!r} takes no steps to resume after: leave it out"
        )
    if several:
        model.check(demonstrations)
    counts = model.counts(demonstrations)
    small = model.num_white <= FEW_POINTS
    with jax.enable_x64(True), one_blas_thread() if small else contextlib.nullcontext():
        double, taken = as_double(model), jax.device_put(counts)
        key_start, key_search = jax.random.split(key)
        if several:
            given = (hyper, start, num_steps, num_draws, num_evaluations, num_restarts, tol)
            found: Any = fit_intents(key, double, demonstrations, *given, checkpoint, progress_bar)
        elif prior == "levine":
            found = levine_fit(key_start, double, taken)
        else:
            by_expert = jax.device_put(counts if counts.ndim == 3 else counts[None])
            search = RewardSearch(double, by_expert, hyper, num_draws, num_evaluations, num_restarts)
            nested = hyper == "nested" and method == "natural_gradient"
            saved: Any = None
            save: Callable[[Any], None] = lambda state: None  # noqa: E731
            if checkpoint is not None:
                check_path(checkpoint)
                settings = [method, hyper, num_draws, num_evaluations, num_restarts]
                settings += [num_steps, tol] if nested else []
                signature = storage.fingerprint(double, counts, jax.random.key_data(key), settings, start)
                content = read_checkpoint(checkpoint, signature, NestedState if nested else SearchState)
                check = check_places if nested else check_saved
                saved = None if content is None else check(os.fspath(checkpoint), search, content["state"])
                save = functools.partial(write_checkpoint, checkpoint, signature)
            if nested:
                found = nested_fit(
                    search, key_start, key_search, start, num_steps, tol, progress_bar, saved, save
                )
            else:
                key_begin, key_end = jax.random.split(key_search)
                state = search.begin(key_start, key_begin, start, method == "map") if saved is None else saved
                if method == "natural_gradient":
                    state = search.climb(state, num_steps, tol, progress_bar, save)
                found = search.end(key_end, state, method)
    found = found._replace(posterior=found.posterior.of_model(model))
    if not found.converged:
        warn_user(unconverged_message(found, num_steps, num_draws, num_evaluations, tol))
    if found.white_share > MOSTLY_WHITE:
        warn_user(
            f"{found.white_share:.0%} of the prior variance of rewards is noise, independent between states: use fewer "
            "features, or smaller relevances, to generalise to other states"
        )
    return found


def unconverged_message(
    fit: RewardFit | IntentFit, num_steps: int, num_draws: int, num_evaluations: int, tol: float
) -> str:
    """What a warning says of a fit that has not converged."""
    if fit.posterior.method != "natural_gradient":
        return f"{fit.reason}: pass another start or num_restarts, or check the scale of the prior and of the features"
    latest = ", ".join(f"{bound:.2f}" for bound in fit.trace[-3:])
    longer = f"num_steps={max(2 * num_steps, ENOUGH_STEPS)}"
    fixes = {
        "standard error of": f"num_evaluations={4 * num_evaluations} and {longer}",
        "fall": f"num_draws={4 * num_draws} and {longer}",
        "finite": "smaller features, or start=",
        "nodes reach": 'priors of the hyper-parameters that are narrower, or hyper="fixed"',
        "hyper-parameters": 'start=, or hyper="fixed"',
    }
    fix = next((fix for word, fix in fixes.items() if word in fit.reason), longer)
    return (
        f"the search has not converged after {fit.steps} steps: {fit.reason} (last ELBOs {latest} nats, tolerance "
        f"{tol}, standard error {fit.search_se:.2g}). Pass {fix}"
    )


def _check_for_intents(method: str, hyper: str, prior: str) -> None:
    """Raise ValueError where a setting does not go with several intents."""
    given = {"method": method, "hyper": hyper, "prior": prior}
    allowed = {"method": METHODS[:1], "hyper": HYPERS_OF_INTENTS, "prior": PRIORS[:1]}
    for name, value in given.items():
        if value not in allowed[name]:
            choices = " or ".join(f'"{one}"' for one in allowed[name])
            raise ValueError(f"{name} is {value!r}, but with num_intents > 1 it is {choices}")


def _check_settings(method: str, hyper: str, prior: str, tol: Any, **counts: Any) -> None:
    """Raise TypeError or ValueError where a setting is out of range, or two contradict."""
    require_one_of("method", method, METHODS)
    require_one_of("hyper", hyper, ("nested", *HYPERS))
    require_one_of("prior", prior, PRIORS)
    for name, value in counts.items():
        require_integer(name, value, 0 if name == "num_restarts" else 1)
    require_number("tol", tol, least=0)
    for name in ("num_draws", "num_evaluations"):
        if counts[name] % 2:
            raise ValueError(f"{name} is {counts[name]}: give an even number, for antithetic draws")
    if prior == "levine" and method != "map":
        raise ValueError(f'prior="levine" is a point estimate: pass method="map", not {method!r}')
    if hyper != "fixed" and method != "natural_gradient":
        raise ValueError(
            f'hyper="{hyper}" needs method="natural_gradient", not {method!r}, which holds hyper-parameters at their '
            "initial values: leave hyper out"
        )
