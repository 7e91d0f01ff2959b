r"""Switching rewards: a Markov chain over the rewards of a soft-optimal agent, summed out of its demonstrations.

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
from jaxtyping import Bool, Int
from numpyro.distributions import constraints

from ethogram.models.arguments import (
    concretely,
    is_concrete,
    read_reals,
    require_distributions,
    require_integer,
    require_key,
)
from ethogram.models.chains.hidden_markov import LatentChain
from ethogram.models.chains.log_space import safe_log
from ethogram.models.conjugate_model import Entries, Exportable
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.mdps.demonstrations import demonstration_value
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import first_states, spread
from ethogram.models.model_object import model_object, static_field
from ethogram.models.printing import short_repr
from ethogram.models.rewards.gp_irl import GPIRL, OF_A_REWARD, Demonstrations, prior_sites

__all__ = ["IntentChain", "SimulatedIntents", "SwitchingGPIRL", "SwitchingPolicies", "chain_prior"]

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


@model_object
class SwitchingGPIRL(Exportable):
    """GP-IRL of an agent that switches between rewards within a demonstration; a numpyro model.

    Sites: ``initial (intent,)`` and ``transition (intent, next_intent)``; those of the `GPIRL`, of which ``scale`` and
    ``relevance`` are common to all intents and the others have an axis ``intent``; and ``demonstrations`` in the plate
    ``sequence``. The policy of an intent is that of an agent that acts as if the intent lasted.

    Parameters
    ----------
    base : model of each reward.
    num_intents : number of rewards.
    sticky : concentration on staying with an intent, >= 0, beyond the 1 of every intent.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = SwitchingGPIRL(GPIRL(corridor, [[0.0], [1.0], [2.0]]), 2)
    >>> simulated = model.simulate(jax.random.key(0), num_trajectories=5, length=4)
    >>> simulated.intents.shape, simulated.parameters["reward"].shape
    ((5, 4), (2, 3))
    """

    observed_site: ClassVar[str] = "demonstrations"
    label_dims: ClassVar[tuple[str, ...]] = ("intent", "next_intent")

    base: GPIRL
    num_intents: int = static_field()
    sticky: Any = STICKY

    def __post_init__(self):
        if not isinstance(self.base, GPIRL):
            raise TypeError(f"base is {type(self.base).__name__}: give a GPIRL")
        require_integer("num_intents", self.num_intents, 1)
        (sticky,) = read_reals(sticky=self.sticky)
        if sticky.ndim or (is_concrete(sticky) and not float(sticky) >= 0):
            raise ValueError(f"sticky must be a number of at least 0, not {self.sticky!r}")
        object.__setattr__(self, "sticky", sticky)

    @property
    def mdp(self) -> MDP:
        """That of the base."""
        return self.base.mdp

    def has_labels(self) -> bool:
        """Whether draws have labels of intents."""
        return self.num_intents > 1

    def __call__(self, demonstrations: Any = None, *, condition: bool = True) -> None:
        """Sample hyper-parameters, rewards and chain, and demonstrations given them.

        Parameters
        ----------
        demonstrations : `Trajectories` with states and actions; None for the prior alone. The batch of :meth:`entries`
            is not checked.
        condition : False samples demonstrations with the same first states and lengths.
        """
        if not isinstance(demonstrations, Demonstrations):
            self.check(demonstrations)
        solution = self.base.sample_agent("intent", self.num_intents)
        prior = {name: block.natural.concentration for name, block in chain_prior(self).items()}
        chain = IntentChain(
            numpyro.sample("initial", dist.Dirichlet(prior["initial"])),
            numpyro.sample("transition", dist.Dirichlet(prior["transition"]).to_event(1)),
        )
        if demonstrations is None:
            return
        batch = self.entries(demonstrations).batch
        known = concretely(lambda xp, value: (value >= 0).all(-1).any(-1), batch.value)
        with numpyro.plate("sequence", len(batch.value)), numpyro.handlers.mask(mask=known):
            acts = self._acts(solution.log_policy, chain, batch)
            numpyro.sample("demonstrations", acts, obs=batch.value if condition else None)

    def entries(self, data: Any) -> Entries:
        """Demonstrations, one entry per sequence."""
        if isinstance(data, Trajectories):
            states: Any = data.states
            data = Demonstrations(demonstration_value(data), states[:, 0], data.lengths)
        return Entries(data.value, data)

    def likelihood(self, parameters: dict[str, Any], batch: Demonstrations) -> SwitchingPolicies:
        """Distribution of the actions given rewards, which are taken as they are, and not recomputed.

        Parameters
        ----------
        parameters : ``reward``, ``initial`` and ``transition``; ``rationality`` where it has a prior.
        batch : of :meth:`entries`.
        """
        reward = jnp.asarray(parameters["reward"])
        rationality = parameters.get("rationality", self.base.rationality)
        solution = self.base.agent(reward.reshape(self.num_intents, -1), rationality)
        return self._acts(
            solution.log_policy, IntentChain(parameters["initial"], parameters["transition"]), batch
        )

    def _acts(self, log_policy: Array, chain: IntentChain, batch: Demonstrations) -> SwitchingPolicies:
        length = batch.value.shape[1]
        return SwitchingPolicies(
            self.mdp, log_policy, chain, length=length, lengths=batch.lengths, start=batch.start
        )

    def needed_sites(self) -> tuple[str, ...]:
        """The rewards and the chain; the rationality where it has a prior."""
        return (*self.base.needed_sites(), "initial", "transition")

    def informative_steps(self, data: Trajectories) -> Bool[np.ndarray, "sequence time"]:
        """Which steps have a known action."""
        return self.base.informative_steps(data)

    def check(self, demonstrations: Any) -> None:
        """Raise TypeError or ValueError unless the demonstrations are valid `Trajectories` without subjects."""
        if demonstrations is not None and not isinstance(demonstrations, Trajectories):
            raise TypeError(
                f"demonstrations is {type(demonstrations).__name__}: the order of the actions matters, so give "
                "Trajectories with states and actions"
            )
        if demonstrations is not None and demonstrations.subject is not None:
            raise ValueError(
                "demonstrations.subject is given, but all demonstrations share the rewards of a SwitchingGPIRL: leave "
                "subject out, or fit each subject by itself"
            )
        self.base.check(demonstrations)

    def simulate(
        self, key: Array, *, num_trajectories: int, length: int, parameters: dict[str, Any] | None = None
    ) -> SimulatedIntents:
        """Simulated demonstrations and their intents.

        Parameters
        ----------
        num_trajectories, length : number of demonstrations, and their steps.
        parameters : ``reward`` (intent, state) or (intent, state, action), ``initial`` and ``transition``, in place of
            a prior draw.
        """
        require_key(key)
        require_integer("num_trajectories", num_trajectories, 1)
        require_integer("length", length, 1)
        key_prior, key_data = jax.random.split(key)
        if parameters is None:
            parameters = prior_sites(self, key_prior)
        count = self.num_intents
        shapes = {
            "reward": (count, *self.base.features.shape[:-1]),
            "initial": (count,),
            "transition": (count, count),
        }
        for name, shape in shapes.items():
            if name not in parameters:
                raise ValueError(
                    f"parameters have no {name}: they have {', '.join(sorted(parameters)) or 'nothing'}"
                )
            (given,) = read_reals(**{name: parameters[name]})
            if given.shape != shape:
                raise ValueError(
                    f"parameters[{name!r}] has shape {given.shape}, not {shape} of {count} intents"
                )
            if name != "reward":
                require_distributions(f"parameters[{name!r}]", given)
        acts = self.likelihood(parameters, Demonstrations(np.zeros((1, length, 2), np.int32)))
        drawn, intents = (np.asarray(x) for x in acts.sample_with_intents(key_data, (num_trajectories,)))
        names = Metadata(state_names=self.mdp.state_names, action_names=self.mdp.action_names)
        data = Trajectories.from_list(
            states=list(drawn[..., 0]), actions=list(drawn[..., 1]), metadata=names, codes=True
        )
        return SimulatedIntents(data, parameters, intents)

    def state_positions(self, draws: Any, data: Trajectories) -> np.ndarray:
        """Places (intent,) of the intents in their order: those of most steps at mean policies and chain come first."""
        batch = self.entries(data).batch
        policy, *chain = (np.asarray(draws[name]).mean(0) for name in ("policy", "initial", "transition"))
        acts = self._acts(safe_log(jnp.asarray(policy)), IntentChain(*map(jnp.asarray, chain)), batch)
        return -np.asarray(_expected_steps(acts, batch.value))

    def site_layout(self, data: Any = None) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        """Dims of every site, and coords."""
        dims, coords = self.base.site_layout()
        dims |= {name: ("intent", *dims[name]) for name in OF_A_REWARD}
        dims |= {"initial": ("intent",), "transition": ("intent", "next_intent")}
        return dims | {"demonstrations": ("sequence", "time", "part")}, coords


def chain_prior(model: SwitchingGPIRL) -> dict[str, Dirichlet]:
    """Dirichlet blocks of ``initial`` and of the rows of ``transition``: 1 everywhere, and `sticky` more on staying."""
    dtype, count = jnp.result_type(float), model.num_intents
    rows = concretely(lambda xp, sticky: xp.asarray(1 + sticky * np.eye(count), dtype), model.sticky)
    return {
        "initial": Dirichlet.from_standard(np.ones(count, dtype)),
        "transition": Dirichlet.from_standard(rows),
    }


@jax.jit
def _expected_steps(acts: SwitchingPolicies, value: Array) -> Array:
    inside = jnp.arange(acts.length) < acts.lengths[..., None]
    return jnp.sum(acts.smooth(value).state, (0, 1), where=inside[..., None])
