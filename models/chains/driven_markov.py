r"""The hidden Markov model whose transitions change from step to step, as a numpyro distribution.

.. math:: z_1 \sim \pi, \qquad z_{t+1} \sim A_t(z_t, \cdot), \qquad y_t \sim p(\cdot \mid z_t)

Bengio and Frasconi (1996), "Input-output HMMs for sequence processing", with observations that depend on the state
alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array, lax

from ethogram.models.chains.hidden_markov import Forecast, HiddenMarkov

__all__ = ["DrivenMarkov"]


class DrivenMarkov(HiddenMarkov):
    """Distribution of the observations of a hidden Markov chain with one transition matrix per step.

    Parameters
    ----------
    initial : pi (state,).
    log_transition : (..., time - 1, state, state), normalised log probabilities of the step into times 1, 2, ...; minus
        infinity where forbidden.
    emission, lengths, observed, states : as of `HiddenMarkov`.
    num_steps : time.
    """

    pytree_data_fields = (*HiddenMarkov.pytree_data_fields, "log_transition")  # type: ignore[assignment]

    def __init__(
        self,
        initial: Any,
        log_transition: Any,
        emission: dist.Distribution,
        lengths: Any = None,
        observed: Any = None,
        states: Any = None,
        *,
        validate_args: bool | None = None,
    ):
        self.log_transition = jnp.asarray(log_transition)
        steps, count = self.log_transition.shape[-3] + 1, jnp.shape(initial)[-1]
        if lengths is None:
            lengths = jnp.full(self.log_transition.shape[:-3], steps)
        uniform = jnp.full((count, count), 1 / count)  # the matrices of the steps stand in its place
        settings: Any = {"num_steps": steps, "validate_args": validate_args}
        super().__init__(initial, uniform, emission, lengths, observed, states, **settings)
        if self.log_transition.shape[-2:] != (count, count):
            raise ValueError(
                f"log_transition has shape {self.log_transition.shape}, but initial has {count} states: pass "
                f"(..., time - 1, {count}, {count})"
            )

    @property
    def _log_transition(self) -> Array:
        return self.log_transition

    def forecast(self, key: Array, value: Any, steps: int) -> Forecast:
        """Raise TypeError: the covariates of the steps to come are not known."""
        raise TypeError(
            "a forecast needs the covariates of the steps to come: fit.predict(at=) takes them, or append the steps "
            "to the data as missing frames, and read their hidden states"
        )

    def _walk(self, key: Array, first: Array, steps: int) -> Array:
        """States (..., time) from the first one on."""
        matrices = jnp.moveaxis(self.log_transition, -3, 0)

        def step(state: Array, now: Any) -> tuple[Array, Array]:
            key, matrix = now
            matrix = jnp.broadcast_to(matrix, (*state.shape, *matrix.shape[-2:]))
            rows = jnp.take_along_axis(matrix, state[..., None, None], axis=-2)[..., 0, :]
            after = jax.random.categorical(key, rows).astype(state.dtype)
            return after, after

        _, later = lax.scan(step, first, (jax.random.split(key, steps)[1:], matrices))
        return jnp.concatenate([first[..., None], jnp.moveaxis(later, 0, -1)], axis=-1)
