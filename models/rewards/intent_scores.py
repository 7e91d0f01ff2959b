"""Demonstrations of an agent with several intents as latent chains, which export scores, steps and relabels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool
from numpyro.distributions import Distribution

from ethogram.models.conjugate_model import Exportable
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.soft_policy import demonstration_value
from ethogram.models.model_object import model_object
from ethogram.models.rewards.intent_chain import IntentChain, SwitchingPolicies

__all__ = ["IntentScores"]


@model_object
class IntentScores(Exportable):
    """A `GPIRL` with several intents and given sites, with the intents summed out.

    Parameters
    ----------
    model : that has the sites.
    """

    observed_site: ClassVar[str] = "demonstrations"
    label_dims: ClassVar[tuple[str, ...]] = ("intent", "next_intent")

    model: Any

    def check(self, data: Any) -> None:
        """As that of the model."""
        self.model.check(data)

    def has_labels(self) -> bool:
        """True: the intents, of which there are several."""
        return True

    def site_layout(self, data: Any) -> tuple[Mapping[str, Sequence[str]], Mapping[str, Any]]:
        """Dims and coords of the model, with demonstrations as sequences."""
        dims, coords = self.model.site_layout(data)
        return {**dims, "demonstrations": ("sequence", "time", "part")}, coords

    def needed_sites(self) -> tuple[str, ...]:
        """The rewards and the chain; the rationality where it has a prior."""
        learned = isinstance(self.model.rationality, Distribution)
        return ("reward", "initial", "transition", *(("rationality",) if learned else ()))

    def observation(self, parameters: dict[str, Any], data: Trajectories) -> SwitchingPolicies:
        """Distribution of the actions; rewards are taken as they are, not recomputed."""
        model, reward = self.model, jnp.asarray(parameters["reward"])
        times = parameters.get("rationality", model.rationality)
        log_policy = model.agent(reward.reshape(len(reward), -1), times).log_policy
        chain = IntentChain(jnp.asarray(parameters["initial"]), jnp.asarray(parameters["transition"]))
        states: Any = data.states
        parts: dict[str, Any] = {"length": states.shape[1], "lengths": data.lengths, "start": states[:, 0]}
        return SwitchingPolicies(model.mdp, log_policy, chain, **parts)

    def informative_steps(self, data: Trajectories) -> Bool[np.ndarray, "sequence time"]:
        """Which steps have a known action."""
        return np.all(np.asarray(self.observed_value(data)) >= 0, axis=-1)

    def observed_value(self, data: Trajectories) -> Array:
        """States and actions (sequence, time, 2)."""
        return demonstration_value(data)
