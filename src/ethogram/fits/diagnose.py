"""What is wrong with a fit, as far as its search, its data, simpler models and its prior tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from scipy.special import gammaln

from ethogram.fits import checks
from ethogram.fits.systems import some_draws
from ethogram.inference.conjugate import ConjugateResult, ConjugateSVI
from ethogram.inference.convergence import LARGEST_R_HAT, LEAST_ESS, convergence
from ethogram.inference.diagnostics import Diagnosis, Finding, Level
from ethogram.inference.diagnostics.paths import of_paths, of_rare_states, of_wide_states
from ethogram.inference.diagnostics.residuals import of_residuals
from ethogram.inference.diagnostics.tables import of_tables
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data import Trajectories
from ethogram.models.data.parts import is_large
from ethogram.models.intents import AgentMarkov
from ethogram.models.rewards import GPIRL, SwitchingGPIRL
from ethogram.models.roles import RoleHMM

__all__ = ["diagnose"]

RESTARTS, STEPS = 3, 300
"""Of fits with one state more or fewer."""
MORE_GAIN, FEWER_GAIN = 5.0, 0.0
"""Nats of the ELBO by which one state more, or one fewer, has to be better."""
NEAR = 1.0
"""Nats below the best ELBO within which a restart has found the same fit."""
PATHS = 20


def diagnose(fit: Any) -> Diagnosis:
    """The findings about a fit."""
    found = [*_of_search(fit.result)]
    data, model = fit.data, fit.model
    large = isinstance(data, Trajectories) and is_large(data)
    if isinstance(model, RoleHMM) and not large:
        found += _of_roles(fit)
    actions = isinstance(model, AgentMarkov | GPIRL | SwitchingGPIRL) and isinstance(data, Trajectories)
    elbo = np.ravel(getattr(fit.result, "elbo", np.nan))
    if actions and elbo.size and np.isfinite(elbo[-1]):
        states, taken = (np.asarray(x) for x in (data.states, data.actions))
        inside = np.arange(taken.shape[1]) < np.asarray(data.lengths)[:, None]
        taken = np.where(inside & np.asarray(data.observed), taken, -1)
        num_actions = model.num_actions if isinstance(model, AgentMarkov) else int(taken.max()) + 1
        found += of_tables(float(elbo[-1]), states, taken, num_actions)
    return Diagnosis(found)


def _of_search(result: Any) -> Iterator[Finding]:
    """Whether the search has ended, and chains agree."""
    if isinstance(result, ConjugateResult) and not result.converged:
        yield Finding(
            "search",
            Level.CAUTION,
            f"The ELBO still rises after {result.step} steps.",
            "Give a larger num_steps, with init=fit.result to go on from here.",
            0.0,
        )
    if isinstance(result, ConjugateResult) and len(result.restart_elbos) > 1:
        below = float(result.elbo[-1]) - result.restart_elbos
        alike = int((below < NEAR).sum())
        if alike < 2:
            yield Finding(
                "search",
                Level.NOTE,
                f"One of {len(below)} restarts has found this fit; the next lies {np.sort(below)[1]:.1f} nats below.",
                "Give more restarts, and see whether the fit stays.",
                0.0,
            )
    if isinstance(result, SampledPosterior):
        each = {name: convergence(site) for name, site in result.sites.items()}
        poor = [name for name, one in each.items() if not one.enough]
        if poor:
            yield Finding(
                "search",
                Level.WARNING,
                f"The draws of {', '.join(poor)} have fewer than {LEAST_ESS} effective samples, or chains that differ "
                f"(r_hat above {LARGEST_R_HAT}).",
                "Give a larger num_warmup and num_samples.",
                float(len(poor)),
            )
        diverging = float(np.mean(result.statistics.get("diverging", 0)))
        if diverging > 0:
            yield Finding(
                "search",
                Level.WARNING if diverging > 0.01 else Level.NOTE,
                f"{100 * diverging:.2g} % of the transitions of the sampler diverged.",
                "Give a larger target_accept_prob, such as .95, or a narrower prior.",
                diverging,
            )


def _of_roles(fit: Any) -> Iterator[Finding]:
    """Whether states explain their frames, by pseudo-residuals, sampled paths, and other numbers of states."""
    model, data = fit.model, fit.data
    if model.exclusive is not None or model.known_roles:
        return
    names = data.metadata.feature_names or [f"feature {at}" for at in range(data.observations.shape[-1])]
    try:
        bound = checks.checked(fit, data)
    except TypeError:
        bound = None
    if bound is not None:
        residuals = checks.pseudo_residuals(fit._key, bound, some_draws(fit, 1), data)
        yield from of_residuals(residuals, names)
    states = fit.states()
    yield from of_rare_states(states.frames, states.names)
    yield from of_wide_states(np.asarray(data.observations), states.path, states.names)
    if len(states.names) > 1:
        paths = fit.sample_paths(PATHS)
        seen = np.where(np.asarray(data.observed), paths[-1], -1)
        yield from of_paths(seen, len(states.names))
    if isinstance(fit.result, ConjugateResult):
        yield from _of_numbers(fit)


def _of_numbers(fit: Any) -> Iterator[Finding]:
    """Whether a fit with one state more or fewer has a higher ELBO, each given the number of orders of its states."""
    model, count = fit.model, fit.model.num_roles
    own = float(fit.result.elbo[-1]) + gammaln(count + 1)
    for number in (count - 1, count + 1):
        if number < 1:
            continue
        try:
            other = dataclasses.replace(model, num_roles=number)
            found = ConjugateSVI(other).run(
                jax.random.fold_in(fit._key, number),
                fit.data,
                STEPS,
                restarts=RESTARTS,
                progress_bar=False,
            )
        except (TypeError, ValueError):  # priors of the model are those of its own number of states
            return
        gain = float(found.elbo[-1]) + gammaln(number + 1) - own
        least = FEWER_GAIN if number < count else MORE_GAIN
        if gain > least:
            yield Finding(
                "number of states",
                Level.CAUTION,
                f"With {number} states in place of {count} the log evidence is at least {gain:.1f} nats higher.",
                f"Compare fits with {number} states and {'fewer' if number < count else 'more'} on held-out data.",
                float(np.log1p(gain - least)),
            )
