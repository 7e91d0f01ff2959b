r"""Intents that switch: a Markov chain over the rewards of a soft-optimal agent, summed out of its demonstrations.

.. math:: z_1 \sim \pi, \qquad z_{t+1} \sim T_{z_t}, \qquad a_t \sim \pi_{r_{z_t}}(\cdot \mid s_t)

Each policy is that of an agent that acts as if its intent lasted: it does not plan for switches. States count as given,
so that a switch does not depend on them, and transitions of the MDP carry no information on intents.

Ke, Wu, Jha and Wu (2024), "Inverse reinforcement learning with switching rewards and history dependency for
characterizing animal behaviors"; Ashwood, Jha and Pillow (2022), "Dynamic inverse reinforcement learning for
characterizing animal behavior", whose rewards drift instead.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array, lax
from jaxtyping import Int
from numpyro.distributions import constraints

from ethogram.models.arguments import (
    concretely,
    is_concrete,
    read_reals,
    require_distributions,
    require_integer,
)
from ethogram.models.chains.hidden_markov import LatentChain
from ethogram.models.chains.log_space import safe_log
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import first_states, spread
from ethogram.models.printing import short_repr

__all__ = [
    "IntentChain", "SimulatedIntents", "SwitchingPolicies", "chain_prior", "read_sticky", "refuse_unordered",
    "sample_chain", "simulate",
]  # fmt: skip

STICKY = 10.0
"""Default concentration on staying, beyond the 1 of every intent."""


@short_repr
class IntentChain(NamedTuple):
    """Probabilities of the first intent (intent,), and of the next one (intent, next_intent)."""

    initial: Any
    transition: Any


@short_repr
class SimulatedIntents(NamedTuple):
    """Simulated demonstrations of an agent whose intent switches, with the truth.

    Attributes
    ----------
    data : states and actions; one sequence per demonstration.
    parameters : by site, ``initial``, ``transition``, ``scale``, ``relevance``, ``reward``, ``policy`` and so on.
    intents : (sequence, time) true intents.
    """

    data: Trajectories
    parameters: dict[str, Any]
    intents: Int[np.ndarray, "sequence time"]


class SwitchingPolicies(LatentChain):
    """Demonstrations of an agent that follows one of several policies; each batch entry is one demonstration.

    The value is integers (time, 2), a state and an action per step: -1 for a missing action, and for both in padding.
    ``log_prob`` is that of the actions given the states, with the intents summed out.

    Parameters
    ----------
    mdp : S states, A actions.
    log_policy : (intent, state, action), -inf where an action is not available.
    chain : of the intents.
    length : steps of the longest demonstration.
    lengths : (...) integers, steps of each; all of them `length` where None.
    start : (...) integers, first state of each demonstration; None to draw it from the start distribution.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 1]], discount=0.9)
    >>> left, right = jnp.array([0.9, 0.1]), jnp.array([0.1, 0.9])
    >>> policies = jnp.log(jnp.stack([jnp.stack([left, left]), jnp.stack([right, right])]))
    >>> chain = IntentChain(jnp.array([0.5, 0.5]), jnp.array([[0.95, 0.05], [0.05, 0.95]]))
    >>> agent = SwitchingPolicies(corridor, policies, chain, length=3)
    >>> went = jnp.array([[0, 1], [1, 1], [1, 0]])
    >>> agent.most_likely_path(went).path.tolist(), agent.sample(jax.random.key(0)).shape
    ([1, 1, 1], (3, 2))
    """

    arg_constraints: ClassVar[dict] = {}
    pytree_data_fields = ("mdp", "log_policy", "chain", "lengths", "start")
    pytree_aux_fields = ("length",)

    def __init__(
        self,
        mdp: MDP,
        log_policy: Any,
        chain: IntentChain,
        *,
        length: int,
        lengths: Any = None,
        start: Any = None,
        validate_args: bool | None = None,
    ):
        require_integer("length", length, 1)
        self.mdp, self.chain, self.length = mdp, chain, int(length)
        self.log_policy = spread(log_policy, np.shape(log_policy))
        batch = jnp.broadcast_shapes(*(jnp.shape(x) for x in (lengths, start) if x is not None))
        self.lengths = spread(length if lengths is None else lengths, batch)
        self.start = spread(start, batch)
        super().__init__(batch, (self.length, 2), validate_args=validate_args)

    @property
    def support(self):
        """Integers, -1 where missing; values that are not states or actions have probability zero."""
        return constraints.independent(constraints.integer_greater_than(-1), 2)

    def step_log_likelihood(self, value: Any) -> Array:
        """Log probability (..., time, intent) of every action under each policy; zero where it is missing."""
        states, actions = jnp.asarray(value)[..., 0], jnp.asarray(value)[..., 1]
        known = jnp.all(jnp.asarray(value) >= 0, axis=-1)
        inside = (states < self.mdp.num_states) & (actions < self.mdp.num_actions)
        by_intent = jnp.moveaxis(self.log_policy, 0, -1)
        each = by_intent[jnp.where(known, states, 0), jnp.where(known, actions, 0)]
        return jnp.where(known[..., None], jnp.where(inside[..., None], each, -jnp.inf), 0)

    def _chain(self, value: Any) -> tuple[Array, Array, Array, Array]:
        steps = self.step_log_likelihood(value)
        lengths = jnp.broadcast_to(self.lengths, steps.shape[:-2])
        return safe_log(self.chain.initial), safe_log(self.chain.transition), steps, lengths

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Simulated demonstrations (..., time, 2)."""
        return self.sample_with_intents(key, sample_shape)[0]

    def sample_with_intents(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Simulated demonstrations (..., time, 2), and their intents (..., time), -1 beyond a length."""
        return _draw(self, key, tuple(sample_shape))


@functools.partial(jax.jit, static_argnums=2)
def _draw(acts: SwitchingPolicies, key: Array, sample_shape: tuple[int, ...]) -> tuple[Array, Array]:
    shape = (*sample_shape, *acts.batch_shape)
    key_start, key_first, key_steps = jax.random.split(key, 3)
    first = jax.random.categorical(key_first, safe_log(acts.chain.initial), shape=shape)
    log_transition = safe_log(acts.chain.transition)

    def step(now, key):
        state, intent = now
        key_action, key_next, key_intent = jax.random.split(key, 3)
        action = jax.random.categorical(key_action, acts.log_policy[intent, state])
        next_state = acts.mdp.transitions.draw(key_next, state, action).astype(state.dtype)
        later = jax.random.categorical(key_intent, log_transition[intent]).astype(intent.dtype)
        return (next_state, later), (jnp.stack([state, action.astype(state.dtype)], -1), intent)

    began = (first_states(acts, key_start, shape), first.astype(np.int32))
    drawn, intents = lax.scan(step, began, jax.random.split(key_steps, acts.length))[1]
    inside = jnp.arange(acts.length) < acts.lengths[..., None]
    drawn, intents = jnp.moveaxis(drawn, 0, -2), jnp.moveaxis(intents, 0, -1)
    return jnp.where(inside[..., None], drawn, -1), jnp.where(inside, intents, -1)


def read_sticky(sticky: Any, num_intents: int | None) -> Any:
    """Checked concentration on staying, >= 0; None where the number of intents is."""
    if num_intents is None:
        if sticky is not None:
            raise ValueError("sticky is given, but num_intents is None: leave it out, or pass num_intents")
        return None
    require_integer("num_intents", num_intents, 1)
    (found,) = read_reals(sticky=STICKY if sticky is None else sticky)
    if found.ndim or (is_concrete(found) and not float(found) >= 0):
        raise ValueError(f"sticky must be a number of at least 0, not {sticky!r}")
    return found


def refuse_unordered(data: Any) -> None:
    """Raise ValueError for demonstrations whose intents could not switch: counts; and for several experts."""
    if data is None:
        return
    if not isinstance(data, Trajectories):
        if hasattr(data, "ndim"):
            raise ValueError(
                "demonstrations are counts (state, action), but with num_intents > 1 the order of the actions matters: "
                "give Trajectories with states and actions"
            )
    elif data.subject is not None:
        raise ValueError(
            "demonstrations.subject is given, but with num_intents > 1 all demonstrations share the rewards: leave "
            "subject out, or fit each subject by itself"
        )


def chain_prior(num_intents: int, sticky: Any) -> dict[str, Dirichlet]:
    """Dirichlet blocks of ``initial`` and of the rows of ``transition``: 1 everywhere, and `sticky` more on staying."""
    dtype = jnp.result_type(float)
    ones = np.ones(num_intents, dtype)
    rows = concretely(lambda xp, sticky: xp.asarray(1 + sticky * np.eye(num_intents), dtype), sticky)
    return {"initial": Dirichlet.from_standard(ones), "transition": Dirichlet.from_standard(rows)}


def sample_chain(num_intents: int, sticky: Any) -> IntentChain:
    """Numpyro sites ``initial`` and ``transition``."""
    prior = {name: block.natural.concentration for name, block in chain_prior(num_intents, sticky).items()}
    return IntentChain(
        numpyro.sample("initial", dist.Dirichlet(prior["initial"])),
        numpyro.sample("transition", dist.Dirichlet(prior["transition"]).to_event(1)),
    )


def simulate(
    model: Any, key: Array, num_trajectories: int, length: int, parameters: dict[str, Any], rationality: Any
) -> SimulatedIntents:
    """Demonstrations of the agent of a model with given sites, and its intents."""
    for name in ("initial", "transition"):
        if name not in parameters:
            raise ValueError(f"parameters have no {name}: they have {', '.join(sorted(parameters))}")
    count, given = model.num_intents, {}
    shapes = {
        "reward": (count, *model.features.shape[:-1]),
        "initial": (count,),
        "transition": (count, count),
    }
    for name, shape in shapes.items():
        (given[name],) = read_reals(**{name: parameters[name]})
        if given[name].shape != shape:
            raise ValueError(
                f"parameters[{name!r}] has shape {given[name].shape}, not {shape} of {count} intents"
            )
        if name != "reward":
            require_distributions(f"parameters[{name!r}]", given[name])
    reward = given["reward"]
    solution = model.agent(reward.reshape(len(reward), -1), rationality)
    chain = IntentChain(given["initial"], given["transition"])
    acts = SwitchingPolicies(model.mdp, solution.log_policy, chain, length=length)
    drawn, intents = (np.asarray(x) for x in acts.sample_with_intents(key, (num_trajectories,)))
    names = Metadata(state_names=model.mdp.state_names, action_names=model.mdp.action_names)
    data = Trajectories.from_list(
        states=list(drawn[..., 0]), actions=list(drawn[..., 1]), metadata=names, codes=True
    )
    return SimulatedIntents(data, parameters, intents)
