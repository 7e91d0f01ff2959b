"""Fits of role HMMs: who plays which role, and where they move next."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ethogram.fits.systems import System, bound_model, draws_by_site
from ethogram.inference.conjugate import ConjugateResult
from ethogram.inference.roles import InferredRoles, infer_roles
from ethogram.models.arguments import require_integer
from ethogram.models.data import Trajectories
from ethogram.plots import roles as plots

__all__ = ["RoleFits", "RoleForecast", "states_source"]


class RoleForecast(NamedTuple):
    """The steps after each sequence.

    Attributes
    ----------
    observations : (draw, sequence, step, feature...) one future a draw of the parameters.
    probability : (sequence, step, role) of the roles.
    """

    observations: Float[np.ndarray, "draw sequence step ..."]
    probability: Float[np.ndarray, "sequence step role"]


def states_source(fit: Any) -> tuple[Any, dict[str, Any]]:
    """What `infer_roles` and `infer_intents` take of a fit: a posterior, or draws with their model."""
    if isinstance(fit.result, ConjugateResult):
        return fit.result, {}
    return draws_by_site(fit, 200), {"model": fit.model}


@functools.partial(jax.jit, static_argnames="steps")
def _forecasts(model: Any, data: Any, draws: Any, keys: Any, steps: int) -> Any:
    """The next observations, and probabilities of the roles, for each draw."""
    value = model.observed_value(data)

    def one(drawn: Any) -> Any:
        following = model.observation(drawn[0], data).forecast(drawn[1], value, steps)
        return following.observations, following.state

    return jax.lax.map(one, (draws, keys))


class RoleFits(System):
    """Fits of a `RoleHMM`."""

    def states(self, fit: Any, data: Trajectories) -> InferredRoles:
        source, options = states_source(fit)
        return infer_roles(source, data, **options)

    prediction_settings: tuple[str, ...] = ("steps", "num_draws")

    def predict(self, fit: Any, data: Trajectories, settings: Mapping[str, int]) -> Any:
        steps, num_draws = settings.get("steps", 10), settings.get("num_draws", 100)
        require_integer("steps", steps, 1)
        require_integer("num_draws", num_draws, 1)
        model = bound_model(fit)
        model.check(data)
        if model.grouped_sequences(data) is not None:
            raise ValueError(
                "the model scores groups jointly (exclusive roles), of which there are no forecasts: predict with a "
                "model without exclusive roles"
            )
        draws = draws_by_site(fit, num_draws)
        rows = np.linspace(0, len(next(iter(draws.values()))) - 1, num_draws).round().astype(int)
        chosen = {name: site[rows] for name, site in draws.items()}
        found = _forecasts(model, data, chosen, jax.random.split(fit._key, num_draws), steps)
        return RoleForecast(np.asarray(found[0]), np.asarray(found[1]).mean(0))

    def draw(self, fit: Any, figure: Any) -> None:
        data, found = fit.data, self.states(fit, fit.data)
        posterior = fit.result.posterior if isinstance(fit.result, ConjugateResult) else fit.result
        left, right = figure.subplots(1, 2)
        mean = posterior.mean()
        shapes = [np.shape(mean.get(name, 0.0)) for name in ("mean", "covariance")]  # a mixture has more axes
        if [len(shape) for shape in shapes] == [2, 3] and shapes[0][-1] >= 2:
            plots.role_ellipses(posterior, left, data=data)
            left.set_title("roles: mean, covariance and posterior draws")
        elif isinstance(fit.result, ConjugateResult):
            plots.elbo_traces(fit.result, left)
        else:
            left.set_axis_off()
        few = data.take(np.arange(min(data.num_sequences, 20)))
        plots.role_timelines(found.path[:20], found.probability[:20], few, right)
        right.set_title(
            "most probable roles" + (", the first 20 sequences" if data.num_sequences > 20 else "")
        )
