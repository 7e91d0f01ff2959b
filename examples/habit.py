r"""The habit model: an agent repeats its last action more often, or less often, than chance would have it.

.. math:: p \sim Beta(r, c), \quad a_1 \sim U, \quad P(a_t = a_{t-1}) = p, \quad
          P(a_t = i) = (1 - p) / (A - 1) \text{ for each other action } i

Source: CONTRIBUTING.md, "Add a model".
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from ethogram.models.arguments import is_concrete
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.data import Trajectories, check, valid_steps
from ethogram.models.families import Beta, sample_parameters
from ethogram.models.model_object import model_object, static_field

__all__ = ["ActionTrace", "Habit", "Simulated", "log_mass"]


def log_mass(actions: Array, lengths: Array, log_repeat: Array, log_change: Array, num_actions: int) -> Array:
    """Log probability (...) of action rows (..., time), whatever stands beyond their lengths (...).

    The one potential of the model: `log_repeat` and `log_change` are log p and log (1 - p) for samplers,
    their expectations for the conjugate engine, which takes the gradient as the expected statistics.
    """
    inside = jnp.arange(1, actions.shape[-1]) < lengths[..., None]
    same = actions[..., 1:] == actions[..., :-1]
    num_repeats = jnp.sum(inside & same, axis=-1)
    num_changes = jnp.sum(inside & ~same, axis=-1)
    first = jnp.where(lengths > 0, -jnp.log(num_actions), 0)
    repeats = jnp.where(num_repeats > 0, num_repeats * log_repeat, 0)
    changes = jnp.where(num_changes > 0, num_changes * (log_change - jnp.log(num_actions - 1)), 0)
    return first + repeats + changes


class ActionTrace(dist.Distribution):
    """Distribution of action rows: integers (time,), -1 beyond the length, one batch entry per sequence."""

    arg_constraints = {"repeat": constraints.unit_interval}
    pytree_data_fields = ("repeat", "lengths")
    pytree_aux_fields = ("num_actions",)

    def __init__(self, repeat, lengths, num_steps, num_actions, *, validate_args=None):
        self.repeat, self.lengths, self.num_actions = repeat, lengths, num_actions
        super().__init__(jnp.shape(lengths), (num_steps,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.independent(constraints.integer_interval(-1, self.num_actions - 1), 1)

    def sample(self, key, sample_shape=()):
        key_first, key_repeat, key_other = jax.random.split(key, 3)
        shape = (*sample_shape, *self.batch_shape, self.event_shape[0])
        first = jax.random.randint(key_first, (*shape[:-1], 1), 0, self.num_actions)
        repeated = jax.random.bernoulli(key_repeat, self.repeat, (*shape[:-1], shape[-1] - 1))
        other = jax.random.randint(key_other, repeated.shape, 1, self.num_actions)
        moves = jnp.concatenate([first, jnp.where(repeated, 0, other)], axis=-1)
        actions = jnp.cumsum(moves, axis=-1) % self.num_actions
        return jnp.where(jnp.arange(shape[-1]) < self.lengths[..., None], actions, -1)

    def log_prob(self, value):
        log_repeat, log_change = jnp.log(self.repeat), jnp.log1p(-self.repeat)
        return log_mass(value, self.lengths, log_repeat, log_change, self.num_actions)


class Simulated(NamedTuple):
    """Simulated data with the parameters behind them."""

    data: Trajectories
    parameters: dict[str, Array]


@model_object
class Habit(ConjugateModel):
    """Habit model; a numpyro model, and a conjugate one.

    Parameters
    ----------
    num_actions : A, at least 2.
    repeats, changes : r, c > 0, prior counts of repeated and of changed actions.
    """

    observed_site: ClassVar[str] = "actions"

    num_actions: int = static_field()
    repeats: Any = 1.0
    changes: Any = 1.0

    def __post_init__(self):
        if self.num_actions < 2:
            raise ValueError(
                f"num_actions is {self.num_actions}: a habit needs at least 2 actions to choose from"
            )
        self.prior()

    def prior(self) -> dict[str, Beta]:
        """Conjugate blocks of the prior, by name."""
        return {"repeat": Beta.from_standard(self.repeats, self.changes)}

    def check(self, data: Trajectories) -> None:
        """Raise ValueError unless the data are whole rows of known actions."""
        check(data)
        if data.actions is None:
            raise ValueError("data.actions is None: Habit explains actions, pass them to the constructor")
        if not is_concrete(data.actions):
            return
        actions = np.asarray(data.actions)
        wrong = (actions >= self.num_actions) | ((actions < 0) & valid_steps(data))
        if wrong.any():
            place = np.argwhere(wrong)[0]
            raise ValueError(
                f"data.actions{place.tolist()} is {actions[tuple(place)]}, not in 0..{self.num_actions - 1}: "
                "leave sequences with missing actions out, or give more num_actions"
            )

    def log_normalizer(self, expected: dict[str, Any], batch: Trajectories) -> Array:
        """Expected log likelihood, a scalar; a log normaliser where a model has hidden states to sum out.

        Parameters
        ----------
        expected : expected statistics of the blocks of `prior`, here E log p and E log (1 - p).
        batch : some sequences of the data; the engine may add empty ones, which must add nothing.
        """
        log_repeat, log_change = expected["repeat"]
        actions, lengths = jnp.asarray(batch.actions), jnp.asarray(batch.lengths)
        return jnp.sum(log_mass(actions, lengths, log_repeat, log_change, self.num_actions))

    def likelihood(self, parameters: dict[str, Any], batch: Trajectories) -> ActionTrace:
        """Distribution of the actions given `repeat`, for samplers, scores, exports and predictions."""
        lengths, actions = jnp.asarray(batch.lengths), jnp.asarray(batch.actions)
        return ActionTrace(parameters["repeat"], lengths, actions.shape[1], self.num_actions)

    def __call__(self, data: Trajectories, *, condition: bool = True) -> None:
        """The numpyro model: sites `repeat` and `actions`; ``condition=False`` samples the actions."""
        self.check(data)
        trace = self.likelihood(sample_parameters(self.prior()), data)
        with numpyro.plate("sequence", data.num_sequences):
            numpyro.sample("actions", trace, obs=jnp.asarray(data.actions) if condition else None)

    def simulate(self, key: Array, num_sequences: int = 20, num_steps: int = 50) -> Simulated:
        """Data from the prior predictive, with the parameters behind them."""
        key_repeat, key_actions = jax.random.split(key)
        repeat = self.prior()["repeat"].sample(key_repeat)
        trace = ActionTrace(repeat, jnp.full(num_sequences, num_steps), num_steps, self.num_actions)
        data = Trajectories.from_list(actions=np.asarray(trace.sample(key_actions)))
        return Simulated(data, {"repeat": repeat})
