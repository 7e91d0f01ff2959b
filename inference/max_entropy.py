r"""A reward, and one policy, learned from behaviour by maximum entropy: the baseline without latent intents.

.. math:: \max_r\; \frac{1}{N} \sum_i \Big(\sum_{t < T_i} r(s_{i,t}) - V_{T_i}(s_{i,0})\Big)
          - \frac{\lambda}{2} \lVert r \rVert^2, \qquad N = \sum_i T_i

V is the soft value with the length of the trace as its horizon, so that in a world without chance the large bracket is
:math:`\ln p(a_{i,0}, \dots, a_{i,T_i - 1} \mid s_{i,0})`. Its gradient is the share of steps at which a state was
visited less the share expected under the policy from the same first states. Ziebart, Maas, Bagnell and Dey (2008),
"Maximum entropy inverse reinforcement learning", eq. 6; for a world of chance the same gradient is that of Ziebart,
Bagnell and Dey (2010), maximum causal entropy.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ethogram.models import trajectories
from ethogram.models.agents.steps import read_steps, require_possible
from ethogram.models.blocks.conjugate_block import require_reals
from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP
from ethogram.models.soft_policy_by_step import soft_policy_by_step
from ethogram.models.trajectories import Trajectories

__all__ = ["MaxEntropyFit", "fit_max_entropy"]


class MaxEntropyFit(NamedTuple):
    """What gradient ascent ended with.

    Attributes
    ----------
    reward : r (state,).
    policy : (state, action): pi_t averaged over steps, weighted by how often the fitted agent, started as the traces
        were, is expected in the state at step t; where it never is, a plain average.
    log_likelihood : (evaluation,), the bracket above per step, without the penalty: at the start, where r = 0, and
        after every step of the ascent. In a world of chance it is the log likelihood of the actions plus
        :math:`V(s_{t+1}) - E V(s_{t+1})` of every step, of mean zero.
    residual : largest entry of the gradient at the end, penalty included: near zero if the ascent has converged.
    """

    reward: Float[Array, "state"]
    policy: Float[Array, "state action"]
    log_likelihood: Float[Array, "evaluation"]
    residual: float


def fit_max_entropy(
    mdp: MDP, data: Trajectories, *, num_steps: int = 60, step_size: float = 0.5, penalty: float = 1e-3
) -> MaxEntropyFit:
    """Reward of each state under which an agent of maximum entropy visits states as often as the traces do.

    Gradient ascent with a fixed step from r = 0, one compiled program for all steps. Counts are shares of all steps,
    whatever the number and length of traces: with gradients per trace a step of one half diverges on traces of
    twenty. The reward is determined by the data up to a constant, which the penalty sets.

    Parameters
    ----------
    mdp : the world, S states, A actions, with discount 1: the end of a trace is its horizon.
    data : with `states`; where `actions` are given they must be possible, but what is learned follows from the
        states. Lengths may differ, and actions may be missing (-1).
    num_steps : >= 1, of the ascent.
    step_size : > 0.
    penalty : lambda >= 0.

    Raises
    ------
    TypeError
        If `mdp` is no MDP, the data are no `Trajectories`, or a number is of the wrong kind.
    ValueError
        If states or actions are missing or out of range, a transition is impossible, all traces are empty, the
        discount is not 1, or a setting is out of range.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]])
    >>> data = Trajectories.from_list(states=[[0, 1, 2, 2, 2]], actions=[[1, 1, 1, 1, 1]])
    >>> fit_max_entropy(corridor, data).policy.argmax(1).tolist()
    [1, 1, 1]
    """
    whole_number("num_steps", num_steps, 1)
    for name, value in (("step_size", step_size), ("penalty", penalty)):
        require_reals(name, value)
        if np.ndim(value) or not np.isfinite(value) or value < 0 or (name == "step_size" and value == 0):
            least = "above 0" if name == "step_size" else "0 or above"
            raise ValueError(f"{name} must be a number {least}, not {value!r}")
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    if float(mdp.discount) != 1:
        raise ValueError(
            f"mdp.discount is {mdp.discount}: the end of a trace is the horizon here, so give MDP(mdp.transitions)"
        )
    visited, entering = _shares(mdp, data)
    fit = _ascend(mdp, visited, entering, step_size, penalty, int(num_steps))
    return fit._replace(residual=float(fit.residual))


def _shares(mdp: MDP, data: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    """Share of steps at which each state was visited (state,), and first states (time, state), likewise scaled.

    Traces are put so that they end together: values depend on the steps to go only, so one pass backwards serves
    every length.
    """
    trajectories.check(data)
    if data.states is None:
        raise ValueError("data.states is None: a reward is learned from states (sequence, time)")
    if data.actions is None:
        data = data._replace(actions=np.full(np.shape(data.states), -1))
    steps = read_steps(data, mdp.num_states, mdp.num_actions, said=False)
    total = int(steps.inside.sum())
    if not total:
        raise ValueError("data.lengths is 0 for every trace: give a trace with at least one step")
    require_possible(mdp, steps)
    visited = np.bincount(steps.state[steps.inside], minlength=mdp.num_states)
    lengths = steps.inside.sum(1)
    some, horizon = lengths > 0, int(lengths.max())
    entering = np.zeros((horizon, mdp.num_states))
    np.add.at(entering, (horizon - lengths[some], steps.state[some, 0]), 1)
    return visited / total, entering / total


@functools.partial(jax.jit, static_argnames="num_steps")
def _ascend(mdp, visited, entering, step_size, penalty, num_steps):
    horizon = entering.shape[0]

    def log_likelihood(reward):
        values = soft_policy_by_step(mdp, reward, horizon).values
        return jnp.sum(visited * reward) - jnp.sum(entering * values)

    def climb(reward):
        likelihood, gradient = jax.value_and_grad(log_likelihood)(reward)
        return likelihood, gradient - penalty * reward

    def step(reward, _):
        likelihood, gradient = climb(reward)
        return reward + step_size * gradient, likelihood

    reward, climbed = lax.scan(step, jnp.zeros_like(visited), None, length=num_steps)
    likelihood, gradient = climb(reward)
    policy = _average_policy(mdp, soft_policy_by_step(mdp, reward, horizon).log_policy, entering)
    return MaxEntropyFit(reward, policy, jnp.append(climbed, likelihood), jnp.abs(gradient).max())


def _average_policy(mdp: MDP, log_policy: Array, entering: Array) -> Array:
    """Policy (state, action), averaged over time with the expected visits as weights."""

    def step(arriving, now):
        policy, entering = jnp.exp(now[0]), now[1]
        joint = (arriving + entering)[:, None] * policy
        return mdp.push(joint), joint

    _, joint = lax.scan(step, jnp.zeros_like(entering[0]), (log_policy, entering))
    weight, reached = jnp.sum(joint, 0), jnp.sum(joint, (0, 2)) > 0
    total = jnp.where(reached, jnp.sum(weight, 1), 1)[:, None]
    return jnp.where(reached[:, None], weight / total, jnp.mean(jnp.exp(log_policy), 0))
