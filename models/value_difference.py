"""How much worth is lost by acting on a learned reward, or by a learned policy, where another reward is true."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ethogram.models.blocks.conjugate_block import Reals, is_concrete
from ethogram.models.hard_values import optimal_values
from ethogram.models.mdp import MDP, read_reward
from ethogram.models.policy_values import expected_value
from ethogram.models.soft_values import soft_policy

__all__ = ["expected_value_difference"]

KINDS = ("standard", "soft")


def expected_value_difference(
    mdp: MDP,
    true_reward: Reals,
    reward: Reals | None = None,
    *,
    policy: Reals | None = None,
    kind: str = "standard",
) -> Float[Array, "*batch"]:
    r"""Expected value difference: what the best policy is worth under the true reward, less what a learned one is.

    .. math:: \sum_s p(s) \bigl( V^{\pi^\star}(s) - V^{\hat\pi}(s) \bigr)

    Both values are expected discounted sums of the true reward, from the start of the world or, where it has none, from
    all states alike. Nothing is clipped. The standard difference is not negative but for rounding. The soft one can be:
    a soft policy does not get all it can of its reward, and another one may get more. Neither has a bonus for entropy.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    true_reward : r (state,) or (state, action), or (..., state) and (..., state, action).
    reward : the learned reward, (..., state) or (..., state, action): one of the latter where the last two axes are (S,
        A). Draws of it give a difference each. Batch axes broadcast against those of the true reward.
    policy : the learned policy (..., state, action), probabilities, in place of a reward.
    kind : ``"standard"``, policies that are optimal for the true reward and for the learned one, the first action where
        several are; or ``"soft"``, their soft-optimal policies. A learned policy is taken as it is, in either.

    Raises
    ------
    TypeError, ValueError : there is neither a reward nor a policy, or both; `kind` is none; `mdp` is no MDP or has
        discount 1; an array is not of finite floats or does not fit; rows of the policy are no probabilities.
    RuntimeError : values did not converge. What is being traced is not checked.

    References
    ----------
    Levine, Popovic, Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", section 6.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> print(expected_value_difference(corridor, [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]))
    2.5
    >>> print(expected_value_difference(corridor, [0.0, 0.0, 3.0], [0.0, 0.0, 5.0]))
    0.0
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, not {kind!r}")
    if (reward is None) == (policy is None):
        came = "neither" if reward is None else "both"
        raise ValueError(f"there must be a learned reward or a learned policy, not {came}: give one of them")
    read_reward(mdp, true_reward, "true_reward")
    best = _policy(mdp, true_reward, kind)
    learned = _policy(mdp, reward, kind) if policy is None else policy
    return expected_value(mdp, true_reward, best) - expected_value(mdp, true_reward, learned)


def _policy(mdp: MDP, reward: Any, kind: str) -> Array:
    """Probabilities (..., state, action) of the agent of a kind that has the reward."""
    if kind == "soft":
        return soft_policy(mdp, reward)
    best = optimal_values(mdp, reward)
    if is_concrete(best.converged) and not np.all(best.converged):
        raise RuntimeError(
            f"optimal values have not converged after {np.max(best.steps)} steps, to a residual of "
            f"{np.max(best.residual):.3g}: optimal_values returns them as they are"
        )
    return best.policy
