"""How the roles of agents of a group depend on each other: not at all, one per sequence, or distinct in every frame.

A coupling has what a role HMM needs of this choice: arrangement, distribution of the data, local step with what it
carries from iteration to iteration, initial labels, and decoding.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.models.chains.conjugate_chain import ChainData, conjugate_log_normalizer
from ethogram.models.chains.hidden_markov import HiddenMarkov
from ethogram.models.chains.markov_chain import e_step, most_likely_path
from ethogram.models.conjugate_model import EStep, exact_e_step
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.distinct_roles import SETTLING, DistinctRoles
from ethogram.models.roles.distinct_starts import DISTINCT_KINDS, distinct_labels
from ethogram.models.roles.exclusive_roles import ExclusiveRoles, GroupedChains, log_num_maps
from ethogram.models.roles.log_permanent import log_permanent, matching_marginals
from ethogram.models.roles.mean_field_roles import (
    PROPOSE_EVERY,
    FrameChain,
    energy,
    field_of,
    improve,
    settle,
)
from ethogram.models.roles.role_maps import MAX_MAPS, map_chain, num_maps
from ethogram.models.roles.starts import START_KINDS, random_maps, rough_labels

__all__ = ["COUPLINGS", "DistinctInFrames", "IndependentRoles", "OneRoleEach", "role_potentials"]

FEW_MAPS = 100
"""Maps of agents to roles above which padded steps cost more than a compilation: from 5 roles on."""

Decoded = tuple[Int[np.ndarray, "sequence time"], Float[np.ndarray, "sequence time role"]]


class IndependentRoles:
    """Every agent is a chain of its own."""

    has_chain: ClassVar[bool] = True
    is_joint: ClassVar[bool] = False  # whether the agents of a group are scored jointly
    start_kinds: ClassVar[tuple[str, ...]] = START_KINDS

    def arrange(self, chains: ChainData, num_agents: int) -> Any:
        """Arranged data of a model, given the agents of every group (1 where they are independent)."""
        return chains

    def is_exact(self, num_agents: int, num_roles: int) -> bool:
        """Whether the local step is exact."""
        return True

    def log_normalizer(self, model: Any, expected: dict[str, Any], batch: Any) -> Float[Array, ""]:
        """Summed log normaliser, whose gradient is the expected statistics."""
        return conjugate_log_normalizer(model.emission, expected, batch)

    def e_step(self, model: Any) -> EStep:
        """Local step of a model."""
        return exact_e_step(model.log_normalizer)

    def observation(
        self, emission: Any, parameters: dict[str, Any], lengths: Any, observed: Any, states: Any
    ) -> Any:
        """Distribution of the data at parameters by site."""
        return HiddenMarkov(
            parameters["initial"], parameters["transition"], emission, lengths, observed, states
        )

    def start_labels(
        self, model: Any, rng: np.random.Generator, kind: str, batches: list[Any]
    ) -> list[np.ndarray]:
        """Rough labels (sequence, time) of every batch."""
        return rough_labels(rng, kind, batches, model.emission, model.num_roles)

    def decode(self, model: Any, expected: dict[str, Any], batch: Any) -> Decoded:
        """Most likely roles, and the probability of every role at every step."""
        path, probability = _decode_chains(model, expected, batch)
        return np.asarray(path), np.asarray(probability)


class OneRoleEach(IndependentRoles):
    """One role an agent and demonstration, all distinct: maps are summed by a log-permanent."""

    has_chain = False
    is_joint = True

    def arrange(self, chains: ChainData, num_agents: int) -> Any:
        """Arranged data of a model, in whole groups."""
        return GroupedChains(chains, num_agents)

    def log_normalizer(self, model: Any, expected: dict[str, Any], batch: GroupedChains) -> Float[Array, ""]:
        """Summed log-permanents of the potentials, relative to all maps."""
        potentials = model.role_potentials(expected, batch.chains)
        potentials = potentials.reshape(-1, batch.num_agents, model.num_roles)
        return jnp.sum(log_permanent(potentials) - log_num_maps(batch.num_agents, model.num_roles))

    def observation(
        self, emission: Any, parameters: dict[str, Any], lengths: Any, observed: Any, states: Any
    ) -> Any:
        """Distribution of the data of whole groups at parameters by site."""
        return ExclusiveRoles(emission, lengths, observed, states)

    def start_labels(
        self, model: Any, rng: np.random.Generator, kind: str, batches: list[Any]
    ) -> list[np.ndarray]:
        """One random map a group, whatever the kind."""
        return [random_maps(rng, batch, model.num_roles) for batch in batches]

    def decode(self, model: Any, expected: dict[str, Any], batch: GroupedChains) -> Decoded:
        """Optimal assignment of each group, and the marginals of the matching."""
        potentials = role_potentials(model, expected, batch.chains)
        grouped = potentials.reshape(-1, batch.num_agents, model.num_roles)
        role = optimal_assignment(-np.asarray(grouped, dtype=float)).role.reshape(-1, 1)
        probability = np.asarray(matching_marginals(grouped)).reshape(-1, 1, model.num_roles)
        num_steps = batch.chains.observed.shape[1]
        return np.repeat(role, num_steps, axis=1), np.repeat(probability, num_steps, axis=1)


class DistinctInFrames(OneRoleEach):
    """The agents' chains, given that their roles are distinct in every frame.

    Up to 720 maps of agents to roles are summed exactly; with more, q(z) is a mean field over frames, whose marginals
    are carried on.
    """

    has_chain = True
    start_kinds = DISTINCT_KINDS

    def is_exact(self, num_agents: int, num_roles: int) -> bool:
        """Whether the maps are few enough to be summed."""
        return num_maps(num_agents, num_roles) <= MAX_MAPS

    def log_normalizer(self, model: Any, expected: dict[str, Any], batch: GroupedChains) -> Float[Array, ""]:
        """Summed log weights of all maps, or the bound of the mean field."""
        return self._evidence(model, expected, batch, self._marginals(model, batch), 0)[0]

    def e_step(self, model: Any) -> EStep:
        """Local step of a model; its local state is the marginals of the mean field, if there is one."""

        def step(expected, batch, marginals, iteration):
            def evidence(expected):
                return self._evidence(model, expected, batch, marginals, iteration)

            (value, marginals), statistics = jax.value_and_grad(evidence, has_aux=True)(expected)
            return value, statistics, marginals

        costly = math.factorial(model.num_roles) > FEW_MAPS
        return EStep(lambda batch: self._marginals(model, batch), step, PROPOSE_EVERY, costly)

    def _marginals(self, model: Any, batch: GroupedChains) -> Any:
        """Marginals (group, time, agent, role) before the first iteration, zero; none where maps are summed."""
        if self.is_exact(batch.num_agents, model.num_roles):
            return ()
        num_sequences, num_steps = batch.chains.observed.shape
        shape = (num_sequences // batch.num_agents, num_steps, batch.num_agents, model.num_roles)
        return jnp.zeros(shape, jnp.result_type(float))

    def _evidence(
        self, model: Any, expected: dict[str, Any], batch: GroupedChains, marginals: Any, iteration: Any
    ) -> tuple[Float[Array, ""], Any]:
        """Summed log weights of all maps, or the bound of the mean field, with its marginals."""
        chain, lengths = _frame_chain(model, expected, batch)
        if self.is_exact(batch.num_agents, model.num_roles):
            values = map_chain(*chain[:3], lengths).log_normalizer()
            return jnp.sum(jnp.where(lengths > 0, values, 0)), ()
        fixed = jax.lax.stop_gradient(chain)
        found = jax.lax.stop_gradient(improve(fixed, marginals.astype(chain.potentials.dtype), iteration))
        value = jnp.sum(found.entropy + energy(chain, found.marginals))
        return value, found.marginals.astype(marginals.dtype)

    def observation(
        self, emission: Any, parameters: dict[str, Any], lengths: Any, observed: Any, states: Any
    ) -> Any:
        """Distribution of the data of whole groups, jointly with distinct roles, at parameters by site."""
        return DistinctRoles(
            parameters["initial"], parameters["transition"], emission, lengths, observed, states
        )

    def start_labels(
        self, model: Any, rng: np.random.Generator, kind: str, batches: list[Any]
    ) -> list[np.ndarray]:
        """Distinct labels in every frame."""
        return distinct_labels(model, rng, kind, batches)

    def decode(self, model: Any, expected: dict[str, Any], batch: GroupedChains) -> Decoded:
        """Most likely maps; of a mean field, the optimal assignment of the field of every frame."""
        exact = self.is_exact(batch.num_agents, model.num_roles)
        found, probability = _decode_frames(model, expected, batch, exact)
        found = np.asarray(found)
        role = found if exact else optimal_assignment(-np.asarray(found, dtype=float)).role
        num_sequences, num_steps = batch.chains.observed.shape
        probability = np.swapaxes(np.asarray(probability), 1, 2).reshape(num_sequences, num_steps, -1)
        return np.swapaxes(role, 1, 2).reshape(num_sequences, num_steps), probability


COUPLINGS = {None: IndependentRoles(), "per_sequence": OneRoleEach(), "per_frame": DistinctInFrames()}
"""Couplings by the argument ``exclusive`` of a role HMM."""


def _frame_chain(model: Any, expected: dict[str, Any], batch: GroupedChains) -> tuple[FrameChain, Array]:
    """Log potentials of all groups, and their lengths (group,): those of the longest sequence."""
    steps = model.step_potentials(expected, batch.chains)
    potentials = jnp.swapaxes(steps.reshape(-1, batch.num_agents, *steps.shape[1:]), 1, 2)
    lengths = jnp.max(batch.chains.lengths.reshape(-1, batch.num_agents), axis=1)
    alive = jnp.arange(steps.shape[1]) < lengths[:, None]
    initial, transition = expected["initial"].concentration, expected["transition"].concentration
    return FrameChain(initial, transition, potentials, alive), lengths


@quick_jit
def role_potentials(model: Any, expected: dict[str, Any], chains: ChainData) -> Float[Array, "sequence role"]:
    """Expected log likelihood of every sequence in every role, compiled."""
    return model.role_potentials(expected, chains)


@quick_jit
def _decode_chains(model, expected, chains):
    log_initial, log_transition = expected["initial"].concentration, expected["transition"].concentration
    steps = model.step_potentials(expected, chains)
    path = most_likely_path(log_initial, log_transition, steps, chains.lengths).path
    return path, e_step(log_initial[None], log_transition[None], steps[None], chains.lengths[None]).state[0]


@quick_jit(static_argnames="exact")
def _decode_frames(model, expected, batch, exact):
    """Roles of the most likely maps, or the field of every frame; and the marginals."""
    chain, lengths = _frame_chain(model, expected, batch)
    if exact:
        maps = map_chain(*chain[:3], lengths)
        return maps.most_likely(), maps.marginals()
    marginals = settle(chain, SETTLING).marginals
    return field_of(chain, marginals), marginals
