"""Posterior predictions of rewards of new states, transfer to other MDPs, and policies.

Levine, Popovic and Koltun (2011), section 5, predict new states by their conditional mean given the inducing points;
here they are drawn, with the noise of new states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float
from numpy.typing import ArrayLike

from ethogram.inference.convergence import grouped_draws, warn_of_convergence
from ethogram.inference.rewards.gaussian_vi import whitening_root
from ethogram.models.arguments import Reals, concretely, read_features, read_reals, require_key
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import optimal_values, soft_values
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = [
    "PolicySummary", "RewardPrediction", "RewardTransfer", "difference_coverage", "feature_rewards", "policies",
    "predict_reward", "transfer_reward",
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
class PolicySummary(NamedTuple):
    """Three policies (state, action) under uncertainty about the reward.

    Attributes
    ----------
    mean_reward : soft-optimal for the mean reward.
    posterior_mean : posterior mean of the soft-optimal policy, the predictive probability of the next action.
    greedy : optimal for the mean reward, which maximises the expected return over the posterior.
    """

    mean_reward: Float[Array, "state action"]
    posterior_mean: Float[Array, "state action"]
    greedy: Float[Array, "state action"]


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
    num_points = math.prod(table.shape[:-1])
    samples = _by_site(samples)
    count, order, *known = _known(model, samples)
    white = _conditioned_on(model, samples) == "u_white"
    flat = concretely(
        lambda xp, x: _padded(xp, x.reshape(num_points, -1).astype(model.dtype)), table - model.centre
    )
    found = _predicted(key, model.centred(), flat, count, *known, white=white, noise_free=noise_free)

    def read(xp, mean, sd, draws, order):
        shape = table.shape[:-1]
        given = draws[order, :num_points].reshape(count, *shape)
        return mean[:num_points].reshape(shape), sd[:num_points].reshape(shape), given

    return RewardPrediction(*concretely(read, *found, order))


@quick_jit(
    calls=lambda key, model, features, *_, **__: len(features), static_argnames=("white", "noise_free")
)
def _predicted(
    key: Array, model: GPIRL, features: Array, count: Array, scale: Array, relevance: Array, known: Array, *,
    white: bool, noise_free: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Means, deviations and draws of rewards given those that are `known`, or the variables that whiten them.

    Of draws only the first `count` are averaged. Consecutive ones with the same hyper-parameters share their matrices.
    """
    points = model.points if model.inducing is None else model.points[model.inducing]
    noise = jnp.asarray(model.noise, features.dtype)

    def matrices(scale, relevance):
        """Weights (point, known) of the mean, standard deviations (point,), and a root of the covariance or None."""
        low = whitening_root(model, scale, relevance)
        cross = reward_kernel.cross_covariance(points, features, scale, relevance, noise)
        half = solve_triangular(low, cross, lower=True)
        weights = half.T if white else solve_triangular(low, half, lower=True, trans=1).T
        if model.conditional == "independent":
            shared = 1 - reward_kernel.white_share(relevance, noise) if noise_free else 1.0
            return weights, reward_kernel.conditional_sd(half, shared * scale), None
        own = reward_kernel.covariance(features, scale, relevance, noise)
        if noise_free:
            own = reward_kernel.cross_covariance(features, features, scale, relevance, noise)
        rest = own - half.T @ half
        return weights, jnp.sqrt(jnp.maximum(jnp.diag(rest), 0)), reward_kernel.root(rest, scale)

    def step(carry, draw):
        before, found = carry
        key, known, *hyper = draw
        same = jnp.all(jnp.stack([jnp.all(x == y) for x, y in zip(before, hyper, strict=True)]))
        found = lax.cond(same, lambda: found, lambda: matrices(*hyper))
        weights, sd, root = found
        mean, e = weights @ known, jax.random.normal(key, sd.shape, sd.dtype)
        return (hyper, found), (mean, sd, mean + (sd * e if root is None else root @ e))

    nothing = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(matrices, scale[0], relevance[0])
    )
    start = [jnp.full_like(scale[0], jnp.nan), relevance[0]], nothing
    keys = jax.random.split(key, len(known))
    means, spreads, draws = lax.scan(step, start, (keys, known, scale, relevance))[1]
    weight = (jnp.arange(len(known)) < count)[:, None] / jnp.asarray(count, means.dtype)
    middle = jnp.sum(weight * means, 0)
    variance = jnp.sum(weight * (spreads**2 + (means - middle) ** 2), 0)
    return middle, jnp.sqrt(variance), draws


def _padded(xp: Any, rows: Any) -> Any:
    """Rows and copies of the last, to a power of two or three quarters of one: few programs serve all numbers."""
    size = 1 << (len(rows) - 1).bit_length()
    size = size * 3 // 4 if len(rows) <= size * 3 // 4 else size
    return xp.concatenate([rows, xp.repeat(rows[-1:], size - len(rows), 0)])


def feature_rewards(key: Array, model: GPIRL, samples: Any) -> Float[Array, "draw *reward point"]:
    """Draws of the rewards of a model as a function of the features of its points, without the noise of single points.

    A point that was visited a few times has noise with a posterior of its own, of which these visits say little: the
    mean without it gives the better policy.

    Parameters
    ----------
    key : typed PRNG key.
    model : the fitted model.
    samples : as for :func:`predict_reward`; draws may have an axis of experts or intents before that of the points.

    Returns
    -------
    (draw, ..., state), or (draw, ..., state, action).
    """
    samples = dict(_by_site(samples))
    site, lead = _conditioned_on(model, samples), 2
    if site == "reward":
        lead = model.features.ndim
    extra = np.shape(samples[site])[1 : 1 + np.ndim(samples[site]) - lead]
    if extra:
        each = math.prod(extra)
        for name in ("scale", "relevance"):
            samples[name] = concretely(lambda xp, x: xp.repeat(x, each, 0), samples[name])
        merged = (-1, *np.shape(samples[site])[1 + len(extra) :])
        samples[site] = concretely(lambda xp, x: x.reshape(merged), samples[site])
    draws = predict_reward(key, model, samples, model.features, noise_free=True).draws
    return concretely(lambda xp, x: x.reshape(-1, *extra, *x.shape[1:]), draws)


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
    count = len(reward.draws)
    values, policy = concretely(
        lambda xp, *x: tuple(one[:count] for one in x), solution.values, solution.policy
    )
    return RewardTransfer(reward, values, policy)


def policies(
    mdp: MDP, rewards: Reals, *, rationality: Reals = 1.0, pairs: bool | None = None
) -> PolicySummary:
    """Policies under posterior draws of the reward.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    rewards : (draw, state) or (draw, state, action); or (draw, intent, state) or (draw, intent, state, action), for
        policies (intent, state, action).
    rationality : inverse temperature of the agent, a number or (draw,).
    pairs : whether rewards are (draw, state, action). None reads it from the shape, where S and A differ.

    Raises
    ------
    TypeError, ValueError : rewards are not finite numbers of these shapes, or have two readings without `pairs`;
        rationality has the wrong shape.
    """
    rewards, times = read_reals(rewards=rewards, rationality=rationality)
    if rewards.ndim not in (2, 3, 4):
        raise ValueError(f"rewards has shape {rewards.shape}, not (draw, state) or (draw, state, action)")
    if times.shape not in ((), rewards.shape[:1]):
        raise ValueError(f"rationality has shape {times.shape}: give a number, or one per draw")
    if rewards.ndim != 3:
        pairs = rewards.ndim == 4
    count, acted = len(rewards), concretely(_acted, times, rewards)
    mean = concretely(lambda xp, x: x[:count].mean(0), acted)
    each = soft_values(mdp, acted, pairs=pairs).policy
    average = concretely(lambda xp, x: x[:count].mean(0), each)
    greedy = optimal_values(mdp, mean, pairs=pairs).policy
    return PolicySummary(soft_values(mdp, mean, pairs=pairs).policy, average, greedy)


def _acted(xp: Any, times: Any, rewards: Any) -> Any:
    """Draws times rationalities, `_padded`; of rewards of states (draw, state, 1), never read as (state, action)."""
    times = xp.broadcast_to(xp.asarray(times, rewards.dtype), len(rewards))
    acted = _padded(xp, times.reshape(-1, *[1] * (rewards.ndim - 1)) * rewards)
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


def _conditioned_on(model: GPIRL, samples: Any) -> str:
    """The site of the rewards, or of variables that whiten them, on which others are conditioned."""
    name = "reward" if model.inducing is None else "u_white" if "u" not in samples else "u"
    for site in ("scale", "relevance", name):
        if site not in samples:
            raise ValueError(
                f"samples have no {site}, only {', '.join(sorted(samples))}: give draws of the model's sites"
            )
    return name


def _known(model: GPIRL, samples: Any) -> tuple[int, Array, Array, Array, Array]:
    """Number of draws, how to order those of `_padded` as they came, scale, relevance and rewards (draw, point)."""
    name = _conditioned_on(model, samples)

    def read(xp, *values):
        scale, relevance, known = (xp.asarray(x, model.dtype) for x in values)
        flat = known.ndim == model.features.ndim and name == "reward"
        return scale, relevance, known.reshape(len(known), -1) if flat else known

    def arranged(xp, scale, relevance, known):
        order = np.arange(len(known)) if xp is jnp else np.lexsort([*relevance.T, scale])
        rows = (_padded(xp, x[order]) for x in (scale, relevance, known))
        return np.argsort(order), *rows

    given = concretely(read, *(samples[site] for site in ("scale", "relevance", name)))
    count, num_draws = model.num_points if model.inducing is None else len(model.inducing), len(given[2])
    if given[2].shape[1:] != (count,):
        raise ValueError(
            f"samples[{name!r}] has shape {given[2].shape}, not (draw, {count}): with several experts or "
            "intents, select one"
        )
    return num_draws, *concretely(arranged, *given)
