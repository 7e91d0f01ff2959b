"""What is wrong with a fit of rewards: transitions, policies, tables of actions, and features that explain nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from ethogram.fits.diagnose import LONG, of_actions, of_peers
from ethogram.inference.diagnostics import Finding, Level
from ethogram.inference.diagnostics.actions import of_policy, of_transitions
from ethogram.inference.diagnostics.columns import of_columns
from ethogram.inference.diagnostics.weights import (
    SCALES,
    of_ratios,
    of_shifts,
    shifts_of_normal,
    shifts_of_weighted,
)
from ethogram.inference.draws import flat_draws
from ethogram.models.data import Trajectories
from ethogram.models.model_object import changed
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit

__all__ = ["of_rewards"]

LARGE = 2**24
"""Steps times states from which on transitions are not looked at."""
DRAWS = 200
"""Of rewards and policies."""
MOST_POINTS = 500
"""Rewards of features, from which on independent ones are not fitted."""
VARIANCES = (1.0, 5.0, 25.0)
"""Variances of independent rewards."""
CHUNKS, CHUNK = 8, 128
"""Draws of q whose weights are looked at, in chunks as a fit has them."""
HORIZONS = (1 / 3, 1.0, 3.0)
"""Of other discounts, 1 / (1 - discount), as multiples of that of the fit."""
LEAST_DISCOUNT_GAIN = 5.0
"""Nats of the ELBO that another discount has to gain."""
LEAST_GAIN = 3.0
"""Nats of the ELBO that features have to gain over independent rewards."""


def of_rewards(fit: Any, thorough: bool) -> Iterator[Finding]:
    """Findings of one reward, or of those of several experts."""
    from ethogram.inference.rewards import RewardFit
    from ethogram.models.mdps.demonstrations import num_experts, read_demonstrations

    yield from of_actions(fit, thorough)
    points = np.asarray(fit.model.features, float).reshape(fit.model.num_points, -1)
    names = [f"feature {at}" for at in range(points.shape[1])]
    yield from of_columns(points, names, "between states", sums=False)
    if isinstance(fit.data, Trajectories):
        steps = read_demonstrations(fit.model.mdp, fit.data, False)
        yield from _of_transitions(fit.model.mdp, steps)
        if fit.has_draws and num_experts(fit.data) is None:
            known = steps.inside & (steps.action >= 0)
            policy = np.asarray(flat_draws(fit.draws(DRAWS).sites)["policy"], float).mean(0)
            rng = numpy_generator(fit._key)
            yield from of_policy(rng, steps.state[known], steps.action[known], policy)
    if isinstance(fit.result, RewardFit) and fit.result.posterior.method != "map":
        yield from of_ratios(_log_ratios(fit), 'Fit by method="nuts", which has no such error.')
        yield from _of_prior(fit)
        if fit.model.num_points <= MOST_POINTS and (thorough or fit.seconds < LONG):
            yield from _of_features(fit)
            yield from _of_discount(fit)
    if thorough:
        from ethogram.inference.rewards import heldout_reward_curve

        yield from of_peers(fit, heldout_reward_curve)


def _heaviest(fit: Any) -> tuple[Any, Any]:
    """Logarithms (hyper,) at the node of the largest weight, and its Gaussian."""
    from ethogram.inference.rewards.laplace import Gaussian

    posterior = fit.result.posterior
    at = int(np.argmax(posterior.log_weights))
    return posterior.log_hyper[at], Gaussian(posterior.latent_mean[at], posterior.latent_root[at])


def _log_ratios(fit: Any) -> np.ndarray:
    """Log ratios (draw,) of the posterior and q, up to a constant, given the hyper-parameters of the heaviest node."""
    from ethogram.inference.rewards.gaussian_vi import base_draws, elbo
    from ethogram.inference.rewards.reward_posterior import as_double

    log_hyper, q = _heaviest(fit)
    counts = np.asarray(fit.model.counts(fit.data), float)
    by_reward, random = counts if counts.ndim == 3 else counts[None], numpy_generator(fit._key)
    with jax.enable_x64(True):
        model = as_double(fit.model)
        draws = [base_draws(random, model, len(by_reward), CHUNK) for _ in range(CHUNKS)]
        return np.concatenate([elbo(model, by_reward, log_hyper, q, each) for each in draws])


def _of_prior(fit: Any) -> Iterator[Finding]:
    """How far rewards about their mean move under priors of half or twice the scale."""
    model, prior = fit.model, fit.model.scale_prior
    if isinstance(prior, Distribution):
        sites = flat_draws(fit.draws(DRAWS).sites)
        own = np.asarray(prior.log_prob(sites["scale"]))
        other = [np.asarray(prior.log_prob(sites["scale"] / scale**2)) for scale in SCALES]
        reward = np.asarray(sites["centred_reward"], float)
        shift = shifts_of_weighted(reward.reshape(len(own), -1), [each - own for each in other])
    else:
        log_hyper, q = _heaviest(fit)
        basis = np.asarray(_basis(model, log_hyper), float)
        shifts = [
            shifts_of_normal(mean, root @ root.T, np.ones(len(mean)), basis)
            for mean, root in zip(np.asarray(q.mean, float), np.asarray(q.root, float), strict=True)
        ]
        shift = np.concatenate(shifts)
    _, names = model.site_layout(fit.data)
    states = names.get("state", np.arange(model.mdp.num_states))
    of = [f"the reward of state {state}" for state in np.repeat(states, model.num_points // len(states))]
    of = of * (len(shift) // len(of))
    yield from of_shifts(
        shift, of, "Say in the report how rewards depend on scale_prior, or demonstrate more."
    )


@quick_jit
def _basis(model: Any, log_hyper: Any) -> Any:
    """Rewards about their mean (point, w) by the variables that q is of."""
    from ethogram.inference.rewards.laplace import reward_map

    weights = reward_map(model, log_hyper)[0].weights
    return weights - weights.mean(0)


def _of_discount(fit: Any) -> Iterator[Finding]:
    """Whether Laplace's approximation explains more at other discounts, with hyper-parameters at their prior medians.

    Those of the fit make up for its discount in part.
    """
    from ethogram.inference.rewards.hyper_parameters import prior_medians

    model = fit.model
    start = {name: np.exp(value) for name, value in prior_medians(model).items()} or None
    horizon = 1 / (1 - float(model.mdp.discount))
    discounts = [1 - 1 / max(horizon * factor, 1.0) for factor in HORIZONS]
    others = [changed(model, mdp=changed(model.mdp, discount=each)) for each in discounts]
    bounds = [_laplace_bound(fit, other, start) for other in others]
    best = int(np.argmax(bounds))
    gain = bounds[best] - bounds[HORIZONS.index(1.0)]
    if gain > LEAST_DISCOUNT_GAIN:
        yield Finding(
            "discount",
            Level.CAUTION,
            f"With a discount of {discounts[best]:.3g} in place of {model.mdp.discount:.3g} the ELBO (by Laplace's "
            f"approximation) is {gain:.1f} nats higher.",
            "Compare fits at some discounts on held-out data; rewards of different discounts are not the same.",
            float(np.log(gain / LEAST_DISCOUNT_GAIN)),
        )


def _laplace_bound(fit: Any, model: Any, start: Any = None) -> float:
    """ELBO of Laplace's approximation of another model, with hyper-parameters that have priors at `start`."""
    from ethogram.inference.rewards import fit_reward

    key = jax.random.fold_in(fit._key, 1)
    return fit_reward(key, model, fit.data, method="laplace", start=start, progress_bar=False).elbo


def _of_transitions(mdp: Any, steps: Any) -> Iterator[Finding]:
    leaving = steps.leaving & (steps.action >= 0)
    if leaving.sum() * mdp.num_states > LARGE or not leaving.any():
        return
    at = steps.state[leaving][:, None], steps.action[leaving][:, None], np.arange(mdp.num_states)[None]
    following = np.roll(steps.state, -1, axis=1)[leaving]
    yield from of_transitions(np.asarray(mdp.probability(*at), float), following)


def _of_features(fit: Any) -> Iterator[Finding]:
    """Whether rewards that are independent a priori explain the actions as well as those of the features."""
    from ethogram.models.rewards import GPIRL

    model, elbo = fit.model, fit.result.elbo
    count = model.num_points
    features = np.eye(count).reshape(*model.features.shape[:-1], count)
    rationality = 1.0 if isinstance(model.rationality, Distribution) else model.rationality
    bounds = []
    for scale in VARIANCES:
        other = GPIRL(
            model.mdp,
            features,
            noise=model.noise,
            scale_prior=scale,
            relevance_prior=50.0,
            rationality=rationality,
            check_transitions=model.check_transitions,
        )
        bounds.append(_laplace_bound(fit, other))
    gain = elbo - max(bounds)
    if gain < LEAST_GAIN:
        yield Finding(
            "features",
            Level.WARNING,
            "Rewards that are independent from state to state explain the actions as well as these features: their "
            f"ELBO is {abs(gain):.1f} nats {'lower' if gain > 0 else 'higher'}.",
            "Do not interpret relevances, nor rewards of states that were not visited; look for other features.",
            float(LEAST_GAIN - gain),
        )
