r"""What an agent that is soft about its return does: a distribution over demonstrations.

.. math:: \ln p(D \mid r) = \sum_{(s, a) \in D} \ln \pi_r(a \mid s)
          = \sum_{s,a} n(s, a)\, (Q_r(s, a) - V_r(s))

Only how often an action was taken in a state matters: n(s, a). The probabilities of transitions, which the reward has
no part in, are left out of densities, and are what samples are simulated by.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jaxtyping import Float
from numpyro.distributions import constraints

from ethogram.models.agents.steps import AgentSteps, read_steps, require_possible
from ethogram.models.blocks.conjugate_block import is_concrete
from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP
from ethogram.models.soft_values import SoftSolution, soft_values
from ethogram.models.trajectories import Trajectories

__all__ = ["ActionCounts", "SoftPolicy", "demonstration_counts", "num_experts", "read_demonstrations"]


class SoftPolicy(dist.Distribution):
    """Demonstrations of an agent whose reward is known; a batch entry is one of them.

    The value is integers (time, 2), a state and an action a step: -1 for an action that is missing, and for both
    beyond the end. ``log_prob`` is of the actions given the states.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    reward : (state,) or (state, action); with a leading axis, one an agent.
    length : steps of the widest demonstration.
    lengths : (...) integers, steps of each; all of them `length` where None.
    start : (...) integers, where each demonstration starts; None for the start distribution of the world.
    agent : (...) integers, whose reward it is, for rewards with a leading axis.
    solution : what `soft_values` finds, where that is known already.

    Raises
    ------
    TypeError, ValueError
        If `mdp` or `reward` is not what `soft_values` takes, `length` is no integer above 0, or a start is no state.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> agent = SoftPolicy(corridor, jnp.array([0.0, 0.0, 3.0]), length=4, start=jnp.array([0, 0]))
    >>> agent.sample(jax.random.key(0)).shape
    (2, 4, 2)
    """

    arg_constraints: ClassVar[dict] = {}
    pytree_data_fields = ("mdp", "log_policy", "lengths", "start", "agent")
    pytree_aux_fields = ("length",)

    def __init__(
        self,
        mdp: MDP,
        reward: Any,
        *,
        length: int,
        lengths: Any = None,
        start: Any = None,
        agent: Any = None,
        solution: SoftSolution | None = None,
        validate_args: bool | None = None,
    ):
        whole_number("length", length, 1)
        self.mdp, self.length = mdp, int(length)
        solution = soft_values(mdp, reward) if solution is None else solution
        self.log_policy = solution.log_policy
        batch = jnp.broadcast_shapes(*(jnp.shape(x) for x in (lengths, start, agent) if x is not None))
        if agent is None and self.log_policy.ndim > 2:
            raise ValueError(f"reward has shape {jnp.shape(reward)}: say by agent whose reward it is")
        if start is not None and is_concrete(start):
            outside = ~np.isin(np.asarray(start), np.arange(mdp.num_states))
            if outside.any():
                raise ValueError(
                    f"start has {np.asarray(start)[outside][0]}, outside 0..{mdp.num_states - 1}"
                )
        self.lengths = jnp.broadcast_to(length if lengths is None else jnp.asarray(lengths), batch)
        self.start = None if start is None else jnp.broadcast_to(jnp.asarray(start), batch)
        self.agent = None if agent is None else jnp.broadcast_to(jnp.asarray(agent), batch)
        super().__init__(batch, (self.length, 2), validate_args=validate_args)

    @property
    def support(self):
        """Arrays of integers; what is no state or action has no probability."""
        return constraints.independent(constraints.integer, 2)

    def log_prob(self, value: Any) -> Array:
        """Log probability (...) of the actions; -inf where one is not available."""
        states, actions = jnp.asarray(value)[..., 0], jnp.asarray(value)[..., 1]
        known = (states >= 0) & (actions >= 0)
        inside = (states < self.mdp.num_states) & (actions < self.mdp.num_actions)
        at: tuple[Array, ...] = (jnp.where(known, states, 0), jnp.where(known, actions, 0))
        if self.agent is not None:
            at = (jnp.broadcast_to(self.agent[..., None], known.shape), *at)
        each = jnp.where(inside, self.log_policy[at], -jnp.inf)
        return jnp.sum(jnp.where(known, each, 0), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Demonstrations (..., time, 2), simulated from their starts to their lengths."""
        shape = (*sample_shape, *self.batch_shape)
        key_start, key_steps = jax.random.split(key)
        num_states = self.mdp.num_states
        if self.start is None:
            chances = getattr(self.mdp, "start", None)
            chances = jnp.ones(num_states) if chances is None else chances
            state = jax.random.categorical(key_start, jnp.log(chances), shape=shape)
        else:
            state = jnp.broadcast_to(self.start, shape)
        agent = None if self.agent is None else jnp.broadcast_to(self.agent, shape)

        def step(state, key):
            key_action, key_next = jax.random.split(key)
            log_policy = self.log_policy[state] if agent is None else self.log_policy[agent, state]
            action = jax.random.categorical(key_action, log_policy)
            arrived = self.mdp.transitions.draw(key_next, state, action)
            return arrived.astype(state.dtype), jnp.stack([state, action.astype(state.dtype)], -1)

        steps = lax.scan(step, state.astype(np.int32), jax.random.split(key_steps, self.length))[1]
        inside = jnp.arange(self.length) < self.lengths[..., None]
        return jnp.where(inside[..., None], jnp.moveaxis(steps, 0, -2), -1)


class ActionCounts(dist.Distribution):
    """How often each action was taken in a state, given how often any was; a batch entry is a state.

    ``log_prob`` is that of the actions in the order in which they were taken, as of `SoftPolicy`: there is no
    multinomial coefficient.

    Parameters
    ----------
    log_policy : (..., action), -inf where an action is not available.
    total : (...) integers, number of actions.
    """

    arg_constraints: ClassVar[dict] = {}
    pytree_data_fields = ("log_policy", "total")
    pytree_aux_fields = ("most",)

    def __init__(self, log_policy: Any, total: Any, *, validate_args: bool | None = None):
        # Known here; as an array it is not, where draws are mapped over.
        self.most = int(np.max(total, initial=0)) if is_concrete(total) else None
        self.log_policy, self.total = jnp.asarray(log_policy), jnp.asarray(total)
        batch = jnp.broadcast_shapes(self.log_policy.shape[:-1], self.total.shape)
        super().__init__(batch, self.log_policy.shape[-1:], validate_args=validate_args)

    @property
    def support(self):
        """Numbers of times."""
        return constraints.independent(constraints.nonnegative_integer, 1)

    def log_prob(self, value: Any) -> Array:
        """Log probability (...) of actions that were taken so often."""
        value = jnp.asarray(value)
        return jnp.sum(jnp.where(value > 0, value * jnp.where(value > 0, self.log_policy, 0), 0), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Counts (..., action) that sum to the totals."""
        chances = jnp.broadcast_to(jnp.exp(self.log_policy), (*self.batch_shape, *self.event_shape))
        total = jnp.broadcast_to(self.total, self.batch_shape)
        return dist.MultinomialProbs(chances, total, total_count_max=self.most).sample(key, sample_shape)


def read_demonstrations(mdp: MDP, data: Any, check_transitions: bool = True) -> AgentSteps:
    """Demonstrations step by step, once they are found possible in the world.

    Raises
    ------
    TypeError
        If `data` are no `Trajectories`, or traced.
    ValueError
        If states or actions are missing or out of range, an action is not available, a step has probability zero
        (unless `check_transitions` is False), or no action is known at all.
    """
    if not isinstance(data, Trajectories):
        raise TypeError(
            f"demonstrations are {type(data).__name__}: give Trajectories with states and actions, or counts "
            "(state, action) as an array of integers"
        )
    steps = read_steps(data, mdp.num_states, mdp.num_actions, said=False)
    known = steps.inside & (steps.action >= 0)
    if not known.any():
        raise ValueError("demonstrations have no step with a known action: nothing can be learned from them")
    if mdp.action_mask is not None:
        allowed = np.asarray(mdp.action_mask)[
            np.where(known, steps.state, 0), np.where(known, steps.action, 0)
        ]
        wrong = np.argwhere(known & ~allowed)
        if len(wrong):
            at = tuple(wrong[0].tolist())
            raise ValueError(
                f"demonstrations.actions{list(at)} is {steps.action[at]}, which is not available in state "
                f"{steps.state[at]}: mend the trace, or the world's action_mask"
            )
    if check_transitions:
        require_possible(mdp, steps)
    return steps


def demonstration_counts(
    mdp: MDP, data: Any, *, check_transitions: bool = True, num_agents: int | None = None
) -> Float[np.ndarray, "*agent state action"]:
    """Numbers n(s, a) of times that an action was taken in a state; by `data.subject` where `num_agents` is given.

    Parameters
    ----------
    mdp : S states, A actions.
    data : `Trajectories` with states and actions, or counts (state, action), which are only checked.

    Raises
    ------
    TypeError, ValueError : as `read_demonstrations`, or counts are no integers of the world's shape, or negative.
    """
    if isinstance(data, list) and len({np.shape(row) for row in data}) > 1:
        raise ValueError(
            "demonstrations are a ragged list: give counts (state, action), or Trajectories.from_list(states=..., "
            "actions=...)"
        )
    if hasattr(data, "ndim") or isinstance(data, list):
        return _read_counts(mdp, np.asarray(data))
    steps = read_demonstrations(mdp, data, check_transitions)
    lead = () if num_agents is None else (num_agents,)
    counts = np.zeros((*lead, mdp.num_states, mdp.num_actions))
    known = steps.inside & (steps.action >= 0)
    at: tuple[np.ndarray, ...] = (steps.state[known], steps.action[known])
    if num_agents is not None:
        at = (np.broadcast_to(np.asarray(data.subject)[:, None], known.shape)[known], *at)
    np.add.at(counts, at, 1)
    return counts


def num_experts(demonstrations: Any) -> int | None:
    """Number of experts of whom the demonstrations are; None where that makes no difference."""
    if not isinstance(demonstrations, Trajectories) or demonstrations.subject is None:
        return None
    subject = demonstrations.subject
    if not is_concrete(subject):
        raise TypeError(
            "demonstrations.subject is traced: the number of experts is a shape; give concrete data"
        )
    subject = np.asarray(subject)
    if (subject < 0).any():
        first = int((subject < 0).argmax())
        raise ValueError(
            f"demonstrations.subject[{first}] is {subject[first]}: say whose every demonstration is, by a number "
            "from 0, or leave subject out to pool them"
        )
    return int(np.max(subject, initial=-1)) + 1


def _read_counts(mdp: MDP, counts: np.ndarray) -> np.ndarray:
    if counts.dtype.kind not in "iu":
        raise TypeError(f"demonstrations have dtype {counts.dtype}: counts are integers (state, action)")
    if counts.shape != (mdp.num_states, mdp.num_actions):
        raise ValueError(
            f"demonstrations have shape {counts.shape}: counts are (state, action), here "
            f"({mdp.num_states}, {mdp.num_actions})"
        )
    if (counts < 0).any():
        at = np.argwhere(counts < 0)[0].tolist()
        raise ValueError(f"demonstrations{at} is {counts[tuple(at)]}: a count is 0 or more")
    if not counts.any():
        raise ValueError("demonstrations are all 0: nothing can be learned from them")
    if mdp.action_mask is not None:
        wrong = np.argwhere((counts > 0) & ~np.asarray(mdp.action_mask))
        if len(wrong):
            at = wrong[0].tolist()
            raise ValueError(
                f"demonstrations{at} is {counts[tuple(at)]}: action {at[1]} is not available in state {at[0]}"
            )
    return counts.astype(float)
