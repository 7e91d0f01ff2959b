"""What a learned reward says of other states, of other worlds, and of what to do.

Levine, Popovic and Koltun (2011), section 5, carry rewards to new states by their mean given the inducing points; here
they are drawn, with the noise that new states have of their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from ethogram.models import reward_kernel
from ethogram.models.blocks.conjugate_block import read_reals
from ethogram.models.gp_irl import GPIRL
from ethogram.models.hard_values import optimal_values
from ethogram.models.mdp import MDP
from ethogram.models.soft_values import soft_values

__all__ = [
    "RewardPrediction", "RewardTransfer", "ThreePolicies", "difference_coverage", "policies", "predict_reward",
    "transfer",
]  # fmt: skip


class RewardPrediction(NamedTuple):
    """Rewards of new states, or pairs, under the posterior.

    Attributes
    ----------
    mean, sd : (...), of each, without Monte Carlo error but that of the draws of the posterior.
    draws : (draw, ...), jointly.
    """

    mean: Float[Array, "*point"]
    sd: Float[Array, "*point"]
    draws: Float[Array, "draw *point"]


class RewardTransfer(NamedTuple):
    """A learned reward in another world: draws of the reward, of values (draw, state), of policies."""

    reward: RewardPrediction
    values: Float[Array, "draw state"]
    policy: Float[Array, "draw state action"]


class ThreePolicies(NamedTuple):
    """Three answers to what to do, each (state, action).

    Attributes
    ----------
    of_mean_reward : soft-optimal for the mean reward; more random than any draw's where the scale is learned.
    mean : the mean of the draws' policies: the predictive probability of the next action.
    optimal : optimal without noise for the mean reward, which is best on average over the posterior.
    """

    of_mean_reward: Float[Array, "state action"]
    mean: Float[Array, "state action"]
    optimal: Float[Array, "state action"]


def predict_reward(
    key: Array, model: GPIRL, samples: Any, features: Any, *, noise_free: bool = False
) -> RewardPrediction:
    """Rewards of states that are not of the world of the demonstrations.

    Parameters
    ----------
    model : that was fitted.
    samples : draws by site, of a `RewardPosterior`, of numpyro's MCMC (``get_samples()``) or of its SVI: ``scale``,
        ``relevance``, and ``reward``, or where the model has inducing points ``u_white`` or ``u``.
    features : (state, feature) or (state, action, feature), in the units of the model's.
    noise_free : whether the noise of new states is left out.

    Raises
    ------
    TypeError, ValueError
        Features do not fit the model's, a site is missing, or draws have experts, of whom one must be taken.
    """
    (features,) = read_reals(features=features)
    if features.ndim != model.features.ndim or features.shape[-1] != model.num_features:
        raise ValueError(
            f"features has shape {features.shape}, the model's {model.features.shape}: the number of axes and the last "
            "one must be the same"
        )
    scale, relevance, known = _known(model, samples)
    flat = features.reshape(-1, features.shape[-1]).astype(model.features.dtype)
    points = model.points if model.inducing is None else model.points[model.inducing]
    noise = jnp.asarray(model.noise, flat.dtype)

    def one(arguments):
        key, scale, relevance, known = arguments
        low = reward_kernel.root(reward_kernel.covariance(points, scale, relevance, noise), scale)
        cross = reward_kernel.cross_covariance(points, flat, scale, relevance, noise)
        half = solve_triangular(low, cross, lower=True)
        mean = half.T @ solve_triangular(low, known, lower=True)
        own = reward_kernel.covariance(flat, scale, relevance, noise)
        if noise_free:
            own = reward_kernel.cross_covariance(flat, flat, scale, relevance, noise)
        rest = own - half.T @ half
        spread = jnp.sqrt(jnp.maximum(jnp.diag(rest), 0))
        return (
            mean,
            spread,
            mean + reward_kernel.root(rest, scale) @ jax.random.normal(key, mean.shape, mean.dtype),
        )

    keys = jax.random.split(key, len(known))
    means, spreads, draws = jax.jit(lambda x: jax.lax.map(one, x))((keys, scale, relevance, known))
    shape = features.shape[:-1]
    sd = jnp.sqrt(jnp.mean(spreads**2, 0) + jnp.var(means, 0))
    return RewardPrediction(jnp.mean(means, 0).reshape(shape), sd.reshape(shape), draws.reshape(-1, *shape))


def transfer(
    key: Array, model: GPIRL, samples: Any, mdp: MDP, features: Any, *, noise_free: bool = False
) -> RewardTransfer:
    """The learned reward, and what an agent that has it does, in another world with features of the same kind.

    Parameters
    ----------
    mdp : the other world.
    features : of its states, or pairs of state and action.

    Raises
    ------
    TypeError, ValueError : as :func:`predict_reward`, or features are not of the states of `mdp`.
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    shape = (mdp.num_states, mdp.num_actions)[: model.features.ndim - 1]
    if np.shape(features)[:-1] != shape:
        raise ValueError(
            f"features has shape {np.shape(features)}, and the world has {shape} states (and actions)"
        )
    reward = predict_reward(key, model, samples, features, noise_free=noise_free)
    times = jnp.asarray(samples.get("rationality", model.rationality), reward.draws.dtype)
    times = jnp.broadcast_to(times, len(reward.draws)).reshape(-1, *[1] * len(shape))
    solution = soft_values(mdp, _of_points(times * reward.draws, len(shape) + 1))
    return RewardTransfer(reward, solution.values, solution.policy)


def policies(mdp: MDP, rewards: Any, *, rationality: Any = 1.0) -> ThreePolicies:
    """Policies for a world under draws of its reward.

    Parameters
    ----------
    rewards : (draw, state) or (draw, state, action).
    rationality : what the agent multiplies its reward by, a number or one a draw.

    Raises
    ------
    TypeError, ValueError : rewards are no finite numbers of these shapes, or there is not one rationality a draw.
    """
    rewards, times = read_reals(rewards=rewards, rationality=rationality)
    if rewards.ndim not in (2, 3):
        raise ValueError(f"rewards has shape {rewards.shape}, not (draw, state) or (draw, state, action)")
    if times.shape not in ((), rewards.shape[:1]):
        raise ValueError(f"rationality has shape {times.shape}: give a number, or one a draw")
    acted = times.reshape(-1, *[1] * (rewards.ndim - 1)) * rewards
    mean = jnp.mean(acted, 0)
    return ThreePolicies(
        soft_values(mdp, mean).policy,
        jnp.mean(soft_values(mdp, _of_points(acted, rewards.ndim)).policy, 0),
        optimal_values(mdp, mean).policy,
    )


def _of_points(rewards: Array, num_axes: int) -> Array:
    """Draws of rewards of states as (draw, state, 1), which as many draws of as many rewards as actions are not."""
    return rewards[..., None] if num_axes == 2 else rewards


def difference_coverage(draws: Any, truth: Any, levels: Any = 0.9) -> Float[np.ndarray, "*level"]:
    """Shares of all differences of two true rewards that central intervals of these probabilities hold.

    Differences, because a level of rewards cannot be learned.

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
    # The share of draws below the truth says which central intervals hold it.
    width = np.sort(2 * np.abs(np.concatenate(below) - 0.5))
    return np.asarray(np.searchsorted(width, levels, side="right") / len(width))


def _known(model: GPIRL, samples: Any) -> tuple[Array, Array, Array]:
    """Scale (draw,), relevance (draw, feature), and rewards (draw, point) of the points that say all there is."""
    name = "reward" if model.inducing is None else "u"
    for site in ("scale", "relevance", name):
        if site not in samples and not (site == "u" and "u_white" in samples):
            raise ValueError(f"samples have no {site}: they have {', '.join(sorted(samples))}")
    dtype = model.features.dtype
    scale, relevance = (jnp.asarray(samples[site], dtype) for site in ("scale", "relevance"))
    if name in samples:
        known = jnp.asarray(samples[name], dtype)
        known = known.reshape(len(known), -1) if known.ndim == model.features.ndim or name == "u" else known
    else:
        points, noise = model.points[model.inducing], jnp.asarray(model.noise, dtype)

        def one(arguments):
            scale, relevance, white = arguments
            return (
                reward_kernel.root(reward_kernel.covariance(points, scale, relevance, noise), scale) @ white
            )

        known = jax.lax.map(one, (scale, relevance, jnp.asarray(samples["u_white"], dtype)))
    count = model.num_points if model.inducing is None else len(model.inducing)
    if known.shape[1:] != (count,):
        raise ValueError(
            f"samples[{name!r}] has shape {known.shape}, not (draw, {count}): of several experts, take the draws of one"
        )
    return scale, relevance, known
