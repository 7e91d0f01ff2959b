r"""A reward that is linear in features, learned by maximum entropy: the baseline of inverse reinforcement learning.

.. math:: \max_w\; \ln p(D \mid r = X w) - \frac{\lambda}{2} \lVert w \rVert^2

with the likelihood of :class:`~ethogram.models.soft_policy.SoftPolicy`, an agent that is soft about a discounted return
without end. Ziebart, Maas, Bagnell and Dey (2008), "Maximum entropy inverse reinforcement learning", for the linear
reward; Ziebart, Bagnell and Dey (2010) for worlds of chance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.blocks.conjugate_block import read_reals, require_reals
from ethogram.models.mdp import MDP
from ethogram.models.policy_values import read_interest
from ethogram.models.soft_policy import demonstration_counts
from ethogram.models.soft_values import soft_values

__all__ = ["LinearReward", "fit_linear_reward"]


class LinearReward(NamedTuple):
    """What maximum entropy found.

    Attributes
    ----------
    weights : w (feature,).
    reward : X w, (state,) or (state, action).
    policy : soft-optimal for it, (state, action).
    log_likelihood : of the demonstrations, in nats, without the penalty.
    converged : whether the search ended at a maximum.
    """

    weights: Float[np.ndarray, "feature"]
    reward: Float[np.ndarray, "*point"]
    policy: Float[np.ndarray, "state action"]
    log_likelihood: float
    converged: bool


def fit_linear_reward(
    mdp: MDP, features: Any, demonstrations: Any, *, penalty: float | int = 1e-3, max_steps: int = 1000
) -> LinearReward:
    """The most probable weights of features behind demonstrations, by L-BFGS in double precision.

    Parameters
    ----------
    mdp : world, a discount below 1.
    features : (state, feature) or (state, action, feature).
    demonstrations : `Trajectories` with states and actions, or counts (state, action).
    penalty : lambda >= 0; above zero where features are collinear, such as several that are constant.
    max_steps : of the search.

    Raises
    ------
    TypeError, ValueError
        As :func:`~ethogram.models.soft_policy.demonstration_counts`, features do not fit the world, or the penalty is
        negative.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> fit = fit_linear_reward(corridor, np.eye(3), np.array([[0, 3], [1, 3], [1, 3]]), penalty=0.1)
    >>> int(fit.reward.argmax())
    2
    """
    from scipy.optimize import minimize

    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    read_interest(mdp)
    (features,) = read_reals(features=features)
    shape = (mdp.num_states, mdp.num_actions)
    if features.ndim not in (2, 3) or features.shape[:-1] != shape[: features.ndim - 1]:
        raise ValueError(
            f"features has shape {features.shape}, not ({shape[0]}, feature) or ({shape[0]}, {shape[1]}, feature)"
        )
    require_reals("penalty", penalty)
    if np.ndim(penalty) or not 0 <= penalty < np.inf:
        raise ValueError(f"penalty must be a number of at least 0, not {penalty!r}")
    counts = demonstration_counts(mdp, demonstrations)
    features = np.asarray(features, float)
    with jax.enable_x64(True):
        task = (mdp, jnp.asarray(features), jnp.asarray(counts))

        def told(weights):
            value, gradient = _objective(jnp.asarray(weights), *task)
            return (
                0.5 * penalty * float(weights @ weights) - float(value),
                penalty * weights - np.asarray(gradient),
            )

        options = {"maxiter": max_steps, "maxfun": 2 * max_steps, "ftol": 1e-12, "gtol": 1e-6}
        found = minimize(told, np.zeros(features.shape[-1]), jac=True, method="L-BFGS-B", options=options)
        reward = features @ found.x
        policy = np.asarray(soft_values(mdp, jnp.asarray(reward)).policy)
        likelihood = float(_objective(jnp.asarray(found.x), *task)[0])
    return LinearReward(found.x, reward, policy, likelihood, bool(found.success))


@jax.jit
def _objective(weights: Array, mdp: MDP, features: Array, counts: Array) -> tuple[Array, Array]:
    def log_likelihood(weights):
        log_policy = soft_values(mdp, features @ weights).log_policy
        return jnp.sum(jnp.where(counts > 0, counts * jnp.where(counts > 0, log_policy, 0), 0))

    return jax.value_and_grad(log_likelihood)(weights)
