"""Posterior predictions of rewards of new states, transfer to other MDPs, and policies.

Levine, Popovic and Koltun (2011), section 5, predict new states by their conditional mean given the inducing points;
here they are drawn, with the noise of new states.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float
from numpy.typing import ArrayLike

from ethogram.inference.convergence import grouped_draws, warn_of_convergence
from ethogram.inference.rewards.gaussian import white_root
from ethogram.models.arguments import Reals, concretely, read_features, read_reals, require_key
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import optimal_values, soft_values
from ethogram.models.printing import short_repr
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = [
    "RewardPrediction", "RewardTransfer", "ThreePolicies", "difference_coverage", "policies", "predict_reward",
    "transfer_reward",
]  # fmt: skip

SAMPLED = ("scale", "relevance", "reward", "u", "u_white")
"""Sites that predictions depend on."""


@short_repr
class RewardPrediction(NamedTuple):
    """Posterior predictive rewards of new states, or state-action pairs.

    Attributes
    ----------
    mean, sd : (...), Rao-Blackwellised over the posterior draws.
    draws : (draw, ...), jointly.
    """

    mean: Float[Array, "*point"]
    sd: Float[Array, "*point"]
    draws: Float[Array, "draw *point"]


@short_repr
class RewardTransfer(NamedTuple):
    """Posterior draws of the reward, values and policy in another MDP."""

    reward: RewardPrediction
    values: Float[Array, "draw state"]
    policy: Float[Array, "draw state action"]


@short_repr
class ThreePolicies(NamedTuple):
    """Three policies (state, action) under uncertainty about the reward.

    Attributes
    ----------
    of_mean_reward : soft-optimal for the mean reward.
    mean : posterior mean of the soft-optimal policy, the predictive probability of the next action.
    optimal : greedy-optimal for the mean reward, which maximises the expected return over the posterior.
    """

    of_mean_reward: Float[Array, "state action"]
    mean: Float[Array, "state action"]
    optimal: Float[Array, "state action"]


def predict_reward(
    key: Array, model: GPIRL, samples: Any, features: Reals, *, noise_free: bool = False
) -> RewardPrediction:
    """Posterior predictive rewards of new states.

    Parameters
    ----------
    key : typed PRNG key.
    model : the fitted model.
    samples : numpyro's `MCMC` after its run; or draws by site, of a `RewardPosterior`, of an `MCMC`
        (``get_samples()``) or of numpyro's SVI, whose convergence is not judged: ``scale``, ``relevance``, and
        ``reward``, or where the model has inducing points ``u_white`` or ``u``.
    features : (state, feature) or (state, action, feature), in the units of the model's.
    noise_free : whether to leave out the noise of new states.

    Raises
    ------
    TypeError, ValueError
        Features do not fit the model's, a site is missing, or draws have an axis ``expert``: select one.

    Warns
    -----
    UserWarning
        If a site of the `MCMC` has fewer than 100 effective samples, or chains an r_hat above 1.01.
    """
    require_key(key)
    table = read_features("features", features)
    if table.ndim != model.features.ndim or table.shape[-1] != model.num_features:
        raise ValueError(
            f"features has shape {table.shape}, the model's {model.features.shape}: give the same number of axes, "
            "and the same last one"
        )
    name, *known = _known(model, _by_site(samples))
    means, sd, draws = _predicted(
        key, model.centred(), table - model.centre, *known, name == "u_white", noise_free
    )
    shape = table.shape[:-1]
    return RewardPrediction(means.reshape(shape), sd.reshape(shape), draws.reshape(-1, *shape))


@functools.partial(jax.jit, static_argnames=("white", "noise_free"))
def _predicted(
    key: Array, model: GPIRL, features: Array, scale: Array, relevance: Array, known: Array, white: bool,
    noise_free: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Means, deviations and draws of rewards given those that are `known`, or the variables that whiten them."""
    flat = features.reshape(-1, features.shape[-1]).astype(model.dtype)
    points = model.points if model.inducing is None else model.points[model.inducing]
    noise = jnp.asarray(model.noise, flat.dtype)

    def one(arguments):
        key, scale, relevance, known = arguments
        low = white_root(model, scale, relevance)
        cross = reward_kernel.cross_covariance(points, flat, scale, relevance, noise)
        half = solve_triangular(low, cross, lower=True)
        mean = half.T @ (known if white else solve_triangular(low, known, lower=True))
        noise_drawn = jax.random.normal(key, mean.shape, mean.dtype)
        if model.conditional == "independent":
            known_share = 1 - reward_kernel.white_share(relevance, noise) if noise_free else 1.0
            spread = reward_kernel.conditional_sd(half, known_share * scale)
            return mean, spread, mean + spread * noise_drawn
        own = reward_kernel.covariance(flat, scale, relevance, noise)
        if noise_free:
            own = reward_kernel.cross_covariance(flat, flat, scale, relevance, noise)
        rest = own - half.T @ half
        spread = jnp.sqrt(jnp.maximum(jnp.diag(rest), 0))
        return mean, spread, mean + reward_kernel.root(rest, scale) @ noise_drawn

    keys = jax.random.split(key, len(known))
    means, spreads, draws = jax.lax.map(one, (keys, scale, relevance, known))
    return jnp.mean(means, 0), jnp.sqrt(jnp.mean(spreads**2, 0) + jnp.var(means, 0)), draws


def transfer_reward(
    key: Array,
    model: GPIRL,
    samples: Any,
    mdp: MDP,
    features: Reals,
    *,
    noise_free: bool = False,
) -> RewardTransfer:
    """Posterior draws of the reward in another MDP with the same kind of features, and of its values and policy.

    Parameters
    ----------
    key, model, samples, noise_free : as for :func:`predict_reward`.
    mdp : the other MDP.
    features : (state, feature) or (state, action, feature) of the other MDP, in the units of the model's.

    Raises
    ------
    TypeError, ValueError : as :func:`predict_reward`, or features are not of the states of `mdp`.
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    shape = (mdp.num_states, mdp.num_actions)[: model.features.ndim - 1]
    if np.shape(features)[:-1] != shape:
        raise ValueError(
            f"features has shape {np.shape(features)}: give features of the {shape} states (and actions) of mdp"
        )
    samples = _by_site(samples)
    reward = predict_reward(key, model, samples, features, noise_free=noise_free)
    acted = concretely(_acted, samples.get("rationality", model.rationality), reward.draws)
    solution = soft_values(mdp, acted, pairs=model.features.ndim == 3)
    return RewardTransfer(reward, solution.values, solution.policy)


def policies(
    mdp: MDP, rewards: Reals, *, rationality: Reals = 1.0, pairs: bool | None = None
) -> ThreePolicies:
    """Policies under posterior draws of the reward.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    rewards : (draw, state) or (draw, state, action); or (draw, intent, state), for policies (intent, state, action).
    rationality : inverse temperature of the agent, a number or (draw,).
    pairs : whether rewards are (draw, state, action). None reads it from the shape, where S and A differ.

    Raises
    ------
    TypeError, ValueError : rewards are not finite numbers of these shapes, or have two readings without `pairs`;
        rationality has the wrong shape.
    """
    rewards, times = read_reals(rewards=rewards, rationality=rationality)
    if rewards.ndim not in (2, 3):
        raise ValueError(f"rewards has shape {rewards.shape}, not (draw, state) or (draw, state, action)")
    if times.shape not in ((), rewards.shape[:1]):
        raise ValueError(f"rationality has shape {times.shape}: give a number, or one per draw")
    acted = concretely(_acted, times, rewards)
    if rewards.ndim == 2:
        pairs = False
    mean = concretely(lambda xp, x: x.mean(0), acted)
    each = soft_values(mdp, acted, pairs=pairs).policy
    optimal = optimal_values(mdp, mean, pairs=pairs).policy
    return ThreePolicies(soft_values(mdp, mean, pairs=pairs).policy, jnp.mean(each, 0), optimal)


def _acted(xp: Any, times: Any, rewards: Any) -> Any:
    """Draws times rationalities; of rewards of states (draw, state, 1), which is never read as (state, action)."""
    times = xp.broadcast_to(xp.asarray(times, rewards.dtype), len(rewards))
    acted = times.reshape(-1, *[1] * (rewards.ndim - 1)) * rewards
    return acted[..., None] if rewards.ndim == 2 else acted


def difference_coverage(
    draws: ArrayLike, truth: ArrayLike, levels: float | int | ArrayLike = 0.9
) -> Float[np.ndarray, "*level"]:
    """Coverage of central intervals for the differences of all pairs of true rewards.

    Differences, because the level of rewards is not identified.

    Parameters
    ----------
    draws : (draw, point) of the reward.
    truth : (point,).
    levels : probabilities of the intervals, a number or any shape.

    Raises
    ------
    ValueError
        The shapes disagree, or there are fewer than two points or draws.
    """
    samples, true, levels = (np.asarray(x, float) for x in (draws, truth, levels))
    if samples.ndim != 2 or true.shape != samples.shape[1:] or min(samples.shape) < 2:
        raise ValueError(
            f"draws has shape {samples.shape}, truth {true.shape}: give (draw, point) and (point,), at least two each"
        )
    below = [
        (samples[:, i, None] - samples[:, i + 1 :] < true[i] - true[i + 1 :]).mean(0)
        for i in range(len(true) - 1)
    ]
    # The share of draws below the truth determines which central intervals cover it.
    width = np.sort(2 * np.abs(np.concatenate(below) - 0.5))
    return np.asarray(np.searchsorted(width, levels, side="right") / len(width))


def _by_site(samples: Any) -> Mapping[str, Any]:
    """Draws by site; those of an `MCMC` with the warning where they have not converged, of sites that were sampled."""
    chains = grouped_draws(samples)
    if chains is None:
        return samples
    warn_of_convergence({name: chains[name] for name in SAMPLED if name in chains})
    return samples.get_samples()


def _known(model: GPIRL, samples: Any) -> tuple[str, Array, Array, Array]:
    """Site, scale (draw,), relevance (draw, feature), and rewards (draw, point) of the points to condition on."""
    name = "reward" if model.inducing is None else "u"
    for site in ("scale", "relevance", name):
        if site not in samples and not (site == "u" and "u_white" in samples):
            raise ValueError(
                f"samples have no {site}, only {', '.join(sorted(samples))}: give draws of the model's sites"
            )
    name = name if name in samples else "u_white"

    def read(xp, *values):
        scale, relevance, known = (xp.asarray(x, model.dtype) for x in values)
        flat = known.ndim == model.features.ndim or name == "u"
        return scale, relevance, known.reshape(len(known), -1) if flat else known

    scale, relevance, known = concretely(read, *(samples[site] for site in ("scale", "relevance", name)))
    count = model.num_points if model.inducing is None else len(model.inducing)
    if known.shape[1:] != (count,):
        raise ValueError(
            f"samples[{name!r}] has shape {known.shape}, not (draw, {count}): with several experts or "
            "intents, select one"
        )
    return name, scale, relevance, known
