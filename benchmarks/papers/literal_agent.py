r"""The agent Markov model with the weights as Unhelkar and Shah (2019) print them, eq. 2-3 and the step after eq. 14.

Their prior is the density of the weights themselves, and the weights move with q of all rows held. The density of beta
is that of the sticks, over the Jacobian of stick breaking:

.. math:: \ln p(\beta) = (\gamma - 1) \ln \beta_{K+1} + K \ln\gamma - \sum_{k=2}^{K} \ln(\beta_k + \dots + \beta_{K+1})

It is unbounded above for :math:`K > \gamma`, and ELBOs do not compare across truncations. "Minimise" is printed: the
ELBO is maximised.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ethogram.models.families.exponential_family import Dirichlet, DirichletCoordinates
from ethogram.models.intents import AgentMarkov
from ethogram.models.intents.stick_weights import Terms, maximised, terms_of_rows
from ethogram.models.intents.updates import LEAST, ROWS, prior_given
from ethogram.models.model_object import model_object, static_field

__all__ = ["LiteralAgent", "log_jacobian"]


@model_object
class LiteralAgent(AgentMarkov):
    """`AgentMarkov` without stickiness, whose weights move by coordinate steps under the density of beta."""

    stickiness: Any = None
    beta_prior: str = static_field(default="fixed")

    def divergence(self, blocks: dict[str, Any], prior: Any = None) -> Array:
        """KL(q || p) of the rows, minus the log density of the weights, in nats."""
        weights = blocks["weights"].natural
        density = (self.gamma - 1) * jnp.log(weights[-1]) + log_jacobian(weights, self.gamma)
        return super().divergence(blocks) - density

    def update(
        self, blocks: dict[str, Any], prior: Any, statistics: dict[str, Any], scale: Any, step_size: Any
    ) -> dict[str, Any]:
        """Blocks after a step of the rows given the weights, and of the weights given the rows."""
        moved = super().update(blocks, prior, statistics, scale, step_size)  # holds the weights
        moved["weights"] = self._moved_weights(moved)
        before, after = (prior_given(self, each["weights"]) for each in (blocks, moved))
        for name in ROWS:
            counts = moved[name].natural.concentration - before[name].natural.concentration
            rows = after[name].natural.concentration
            natural = DirichletCoordinates(jnp.maximum(rows + counts, LEAST * rows))
            moved[name] = dataclasses.replace(moved[name], natural=natural)
        return moved

    def _moved_weights(self, blocks: dict[str, Any]) -> Any:
        """Weights given q of the rows with data, of which those that never switch say nothing."""
        carried, size = self.rows_carried(), self.truncation + 1
        pairs = blocks["transition"].standard().concentration[: len(carried.pairs)].reshape(-1, size)
        rows = jnp.concatenate([blocks["initial"].natural.concentration[None], pairs])
        logs = Dirichlet(DirichletCoordinates(rows)).expected_statistics().concentration
        never = jnp.repeat(carried.never[: len(carried.pairs)], self.truncation)
        of_rows = terms_of_rows(self.alpha, logs, jnp.concatenate([jnp.ones(1, bool), ~never]))

        def terms(weights: Array) -> Terms:
            found = of_rows(weights)
            # The Jacobian is convex: its tangent is below it.
            value, slope = jax.value_and_grad(log_jacobian)(weights, self.gamma)
            return found._replace(value=found.value.at[0].add(value), slope=found.slope + slope)

        return maximised(blocks["weights"], terms)


def log_jacobian(weights: Array, gamma: Any) -> Array:
    """Log density of weights (state + 1,) over that of their sticks, relative to the largest of the latter."""
    count = weights.shape[-1] - 1
    # Summed from the small end: what is left is not lost to rounding.
    left = jnp.cumsum(weights[::-1])[::-1]
    return count * jnp.log(gamma) - jnp.sum(jnp.log(left[1:count]))
