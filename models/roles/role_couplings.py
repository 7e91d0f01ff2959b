"""How the roles of the agents of a group depend on each other; here: not at all, every agent is a chain of its own.

A coupling has what a role HMM needs of this choice: log normaliser and local step, distribution of the data, first
labels, and decoding.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Float, Int

from ethogram.models.chains.conjugate_chain import ChainData, conjugate_log_normalizer
from ethogram.models.chains.hidden_markov import HiddenMarkov
from ethogram.models.chains.markov_chain import e_step, most_likely_path
from ethogram.models.conjugate_model import EStep, exact_e_step
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.starts import START_KINDS, StartData, rough_labels

__all__ = ["Decoded", "IndependentRoles", "role_potentials"]

Decoded = tuple[Int[np.ndarray, "sequence time"], Float[np.ndarray, "sequence time role"]]


class IndependentRoles:
    """Every agent is a chain of its own."""

    has_chain: ClassVar[bool] = True
    is_joint: ClassVar[bool] = False  # whether the agents of a group are scored jointly
    start_kinds: ClassVar[tuple[str, ...]] = START_KINDS

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
        self, model: Any, rng: np.random.Generator, kind: str, data: StartData
    ) -> list[np.ndarray]:
        """Rough labels (sequence, time) of every batch."""
        return rough_labels(rng, kind, data, model.num_roles)

    def decode(self, model: Any, expected: dict[str, Any], batch: Any) -> Decoded:
        """Most likely roles, and the probability of every role at every step."""
        path, probability = _decode_chains(model, expected, batch)
        return np.asarray(path), np.asarray(probability)


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
