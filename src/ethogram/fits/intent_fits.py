"""Fits of agent Markov models: which intent, and which action next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ethogram.fits.role_fits import states_source
from ethogram.fits.systems import System, bound_model, draws_by_site
from ethogram.inference.intents import InferredIntents, infer_intents
from ethogram.models.data import Trajectories
from ethogram.plots import intents as plots

__all__ = ["IntentFits"]

NUM_DRAWS = 50


@jax.jit
def _next_actions(model: Any, data: Any, draws: Any) -> Any:
    """Probabilities of the actions given those before, for each draw."""

    def one(draw: Any) -> Any:
        chain = model.observation(draw, data)
        predicted = chain.filter(model.observed_value(data)).predicted
        policy = chain.policy[:, jnp.maximum(chain.states, 0)]  # (intent, sequence, time, action)
        return jnp.einsum("nti,inta->nta", predicted, policy)

    return jax.lax.map(one, draws)


class IntentFits(System):
    """Fits of an `AgentMarkov`."""

    def states(self, fit: Any, data: Trajectories) -> InferredIntents:
        source, options = states_source(fit)
        return infer_intents(source, data, **options)

    def predict(
        self, fit: Any, data: Trajectories, settings: Mapping[str, int]
    ) -> Float[np.ndarray, "sequence time action"]:
        model = bound_model(fit)
        model.check(data)
        draws = draws_by_site(fit, NUM_DRAWS)
        count = len(next(iter(draws.values())))
        rows = np.unique(np.linspace(0, count - 1, NUM_DRAWS).round().astype(int))
        return np.asarray(
            _next_actions(model, data, {name: site[rows] for name, site in draws.items()})
        ).mean(0)

    def draw(self, fit: Any, figure: Any) -> None:
        found = self.states(fit, fit.data)
        left, right = figure.subplots(1, 2, width_ratios=(2, 1))
        longest = int(np.argmax(np.asarray(fit.data.lengths)))
        length = int(np.asarray(fit.data.lengths)[longest])
        plots.intent_timeline(
            found.probability[longest, :length], left, change=found.change[longest, : length - 1]
        )
        left.set_title("intents along the longest trace")
        plots.intent_shares(found.probability, right)
        right.set_title("shares of the steps")
