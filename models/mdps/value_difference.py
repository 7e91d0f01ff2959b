"""Expected value difference of a learned reward or policy: the return lost under the true reward.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", section 6.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Float

from ethogram.models.arguments import Reals, require_one_of
from ethogram.models.mdps.mdp import MDP, read_reward
from ethogram.models.mdps.optimal_values import optimal_values
from ethogram.models.mdps.policy_values import expected_value, require_converged
from ethogram.models.mdps.soft_values import soft_policy

__all__ = ["expected_value_difference"]

KINDS = ("standard", "soft")


def expected_value_difference(
    mdp: MDP,
    true_reward: Reals,
    reward: Reals | None = None,
    *,
    policy: Reals | None = None,
    kind: str = "standard",
    pairs: bool | None = None,
) -> Float[Array, "*batch"]:
    r"""Expected value difference: the value of the best policy under the true reward, minus that of a learned one.

    .. math:: \sum_s p(s) \bigl( V^{\pi^\star}(s) - V^{\hat\pi}(s) \bigr)

    Both values are expected discounted returns of the true reward, without an entropy bonus, over the start
    distribution (uniform where the MDP has none). Nothing is clipped. The standard difference is nonnegative up to
    rounding. The soft one can be negative, since a soft-optimal policy does not maximise the return.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    true_reward : r (state,) or (state, action), or (..., state) and (..., state, action).
    reward : the learned reward, (..., state) or (..., state, action). Draws give one difference each. Batch axes
        broadcast against those of the true reward.
    policy : the learned policy (..., state, action), probabilities, in place of a reward.
    kind : ``"standard"``, optimal policies for both rewards, with the first action where several are; or ``"soft"``,
        soft-optimal policies. A given policy is used as it is.
    pairs : whether rewards are of pairs (state, action), except those of one axis and (..., state, 1), which are of
        states. None reads it from the shapes, where S and A differ.

    Raises
    ------
    TypeError, ValueError : there is neither a reward nor a policy, or both; `kind` is unknown; `mdp` is not an MDP or
        has discount 1; an array is not of finite floats or has the wrong shape; rows of the policy do not sum to one.
    RuntimeError : values have not converged. Traced values are not checked.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> print(expected_value_difference(corridor, [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]))
    2.5
    >>> print(expected_value_difference(corridor, [0.0, 0.0, 3.0], [0.0, 0.0, 5.0]))
    0.0
    """
    require_one_of("kind", kind, KINDS)
    if (reward is None) == (policy is None):
        came = "neither" if reward is None else "both"
        raise ValueError(f"give either a learned reward or a learned policy, not {came}")
    read_reward(mdp, true_reward, "true_reward", pairs)
    best = _policy(mdp, true_reward, kind, pairs)
    learned = _policy(mdp, reward, kind, pairs) if policy is None else policy
    most = expected_value(mdp, true_reward, best, pairs=pairs)
    return most - expected_value(mdp, true_reward, learned, pairs=pairs)


def _policy(mdp: MDP, reward: Any, kind: str, pairs: bool | None) -> Array:
    """Policy (..., state, action) of a kind for a reward."""
    if kind == "soft":
        return soft_policy(mdp, reward, pairs=pairs)
    return require_converged("optimal_values", optimal_values(mdp, reward, pairs=pairs)).policy
