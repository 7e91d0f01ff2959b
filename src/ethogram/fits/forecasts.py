"""What comes after the data of a fit of roles: states and observations, also given covariates of the steps to come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ethogram.fits.new_data import require_free_states
from ethogram.inference.draws import flat_draws
from ethogram.models.arguments import require_integer
from ethogram.models.chains.emitted_steps import last_frames, sample_steps
from ethogram.models.data import Trajectories
from ethogram.models.data.labels import look_up
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "NUM_DRAWS",
    "RoleForecast",
    "forecast_covariates",
    "forecast_roles",
    "some_draws",
]

NUM_DRAWS = 1000
"""Draws of the parameters of a variational fit."""


@short_repr
class RoleForecast(NamedTuple):
    """The steps after each sequence.

    Attributes
    ----------
    observations : (draw, sequence, step, feature...) one future per draw of the parameters.
    probability : (sequence, step, role) of the roles.
    response : (sequence, step, shown) means of the observations, such as probabilities of options (of two options that
        of the second), averaged over roles and posterior; None where the emission has no covariates.
    """

    observations: Float[np.ndarray, "draw sequence step ..."]
    probability: Float[np.ndarray, "sequence step role"]
    response: Float[np.ndarray, "sequence step shown"] | None = None


def some_draws(fit: Any, count: int) -> dict[str, np.ndarray]:
    """Draws (draw, ...) of the parameters by site: `count` equally spaced of all chains, or all where fewer."""
    draws = flat_draws(fit.draws(max(count, NUM_DRAWS)).sites)  # one compiled program for all numbers
    total = len(next(iter(draws.values())))
    rows = np.linspace(0, total - 1, min(count, total)).round().astype(int)
    return {name: site[rows] for name, site in draws.items()}


@quick_jit(calls=2**7, static_argnames="steps")
def _forecasts(model: Any, batch: Any, value: Any, draws: Any, keys: Any, steps: int) -> Any:
    """The next observations, and probabilities of the roles, for each draw."""

    def one(drawn: Any) -> Any:
        following = model.likelihood(drawn[0], batch).forecast(drawn[1], value, steps)
        return following.observations, following.state

    return jax.lax.map(one, (draws, keys))


def forecast_roles(fit: Any, data: Trajectories, steps: int = 10, num_draws: int = 100) -> RoleForecast:
    """What `Fit.predict` describes, of roles without covariates."""
    require_integer("steps", steps, 1)
    require_integer("num_draws", num_draws, 1)
    model = fit.draws(1).model  # bound to the data of the fit
    model.check(data)
    require_free_states(model, data, "forecasts")
    draws = some_draws(fit, num_draws)
    keys = jax.random.split(fit._key, len(next(iter(draws.values()))))
    entries = model.entries(data)
    observations, probability = _forecasts(model, entries.batch, entries.value, draws, keys, steps)
    return RoleForecast(np.asarray(observations), np.asarray(probability).mean(0))


def forecast_covariates(
    fit: Any,
    data: Trajectories,
    steps: int | None = None,
    num_draws: int = 100,
    at: Mapping[str, Any] | None = None,
    future: Trajectories | None = None,
) -> RoleForecast:
    """What `Fit.predict` describes, of roles whose switching or observations depend on covariates."""
    require_integer("num_draws", num_draws, 1)
    model = fit.draws(1).model
    model.check(data)
    extended, steps = _extended(model, data, steps, at, future)
    draws = some_draws(fit, num_draws)
    keys = jax.random.split(fit._key, len(next(iter(draws.values()))))
    entries, begins = model.entries(extended), np.asarray(data.lengths)
    observations, probability, response = _given_covariates(
        model, entries.batch, entries.value, begins, draws, keys, steps
    )
    means = None if response is None else np.asarray(response).mean(0)
    return RoleForecast(np.asarray(observations), np.asarray(probability).mean(0), means)


@quick_jit(calls=2**7, static_argnames="steps")
def _given_covariates(
    model: Any, batch: Any, value: Any, begins: Any, draws: Any, keys: Any, steps: int
) -> Any:
    """Observations, probabilities of the roles, and means in the steps that begin somewhere, for each draw."""
    at = begins[:, None] + jnp.arange(steps)
    columns = jnp.take_along_axis(jnp.asarray(batch.covariates), at[..., None], 1)
    later = batch._replace(covariates=columns)

    def one(drawn: Any) -> Any:
        parameters, key = drawn
        key_path, key_observations = jax.random.split(key)
        chain = model.likelihood(parameters, batch)
        probability = jnp.take_along_axis(chain.smooth(value).state, at[..., None], 1)
        path = jnp.take_along_axis(chain.sample_path(key_path, value).path, at, 1)
        frames, seen = chain._with_known(value)
        past = last_frames(chain.emission, frames, seen, begins)
        emission = model.emission.distribution(parameters, later)
        known = jnp.ones(path.shape, bool)
        observations = sample_steps(emission, key_observations, jnp.maximum(path, 0), known, past)
        if not model.regresses:
            return observations, probability, None
        own = columns[..., -parameters["weight"].shape[-1] :]
        means = model.emission.response(parameters, model.emission.predictor(parameters, own))
        return observations, probability, jnp.einsum("nsk,nskr->nsr", probability, means)

    return jax.lax.map(one, (draws, keys))


def _extended(
    model: Any, data: Trajectories, steps: int | None, at: Any, future: Any
) -> tuple[Trajectories, int]:
    """The data with missing frames after each sequence that have covariates, and their number."""
    names = data.metadata.covariate_names or ()
    needed = {*model.transition.variables()}
    if model.regresses:
        needed |= {*model.emission.covariates.variables()}
    if at is not None and future is not None:
        raise TypeError(
            "both at and future are given: give the covariates of the steps to come by one of them"
        )
    if future is not None:
        steps, at = _of_future(data, future, steps, needed)
    elif at is None and needed:
        raise TypeError(
            f"predictions need the covariates of the steps to come, {', '.join(sorted(needed))}: give at=, such as "
            f"at={{{min(needed)!r}: 0}}, or future=, trajectories of these steps; at={{}} keeps the last ones"
        )
    steps = require_integer("steps", 10 if steps is None else steps, 1)
    if not isinstance(at, Mapping | None):
        raise TypeError(f"at is {at!r}: give values by covariate, such as {{'temperature': 25}}")
    if unknown := [name for name in at or {} if name not in names]:
        raise ValueError(
            f"at has {unknown[0]!r}, which is no covariate of the data: they have {', '.join(names)}"
        )
    lengths, count = np.asarray(data.lengths), data.num_sequences
    if (lengths < 1).any():
        raise ValueError(f"sequence {int(np.argmin(lengths))} has no frame: predictions follow a frame")
    inside = np.arange(steps) + lengths[:, None]
    row = np.arange(count)[:, None]

    def padded(part: Any, fill: Any) -> Any:
        if part is None:
            return None
        part = np.asarray(part)[:, : int(lengths.max())]
        rest = np.full((count, steps, *part.shape[2:]), fill, part.dtype)
        whole = np.concatenate([part, rest], axis=1)
        whole[row, inside] = fill
        return whole

    covariates = padded(data.covariates, 0)
    if covariates is not None:
        covariates[row, inside] = covariates[row, lengths[:, None] - 1]
        for name, values in (at or {}).items():
            place = names.index(name)
            covariates[row, inside, place] = _codes(data, place, name, values, (count, steps))
    empty = np.nan if np.asarray(data.observations).dtype.kind == "f" else 0
    extended = data._replace(
        observations=padded(data.observations, empty),
        states=padded(data.states, -1),
        actions=padded(data.actions, -1),
        observed=padded(data.observed, False),
        stay=padded(data.stay, -1),
        times=None,
        covariates=covariates,
        lengths=(lengths + steps).astype(lengths.dtype),
    )
    return extended, steps


def _codes(data: Trajectories, place: int, name: str, values: Any, shape: tuple[int, int]) -> np.ndarray:
    """Numbers (sequence, step) of a covariate, whose levels are those of the data."""
    levels = (data.metadata.covariate_levels or [None] * (place + 1))[place]
    given = np.asarray(values)
    try:
        given = np.broadcast_to(given, shape)
    except ValueError:
        raise ValueError(
            f"at[{name!r}] has shape {given.shape}: give one value, one per step ({shape[1]},), or (sequence, step) "
            f"{shape}"
        ) from None
    if levels is not None:
        return look_up(given.ravel(), levels, f"at[{name!r}]", f"its levels {levels}").reshape(shape)
    if given.dtype.kind not in "biuf" or not np.isfinite(given.astype(float)).all():
        raise ValueError(f"at[{name!r}] is {values!r}: give finite numbers")
    return given


def _subjects(data: Trajectories) -> list[Any]:
    """Name, or number, of the subject of every sequence."""
    names = data.metadata.subject_names
    return [who if names is None else names[who] for who in np.asarray(data.subject).tolist()]


def _of_future(data: Trajectories, future: Any, steps: int | None, needed: Any) -> tuple[int, dict[str, Any]]:
    """Number of steps, and covariates (sequence, step) by name, of trajectories of the steps to come."""
    if not isinstance(future, Trajectories):
        raise TypeError(f"future is {type(future).__name__}: give Trajectories with covariates")
    lengths = np.asarray(future.lengths)
    if len(lengths) != data.num_sequences or len({*lengths.tolist()}) != 1:
        raise ValueError(
            f"future has {len(lengths)} sequences of {min(lengths, default=0)} to {max(lengths, default=0)} steps: "
            f"give as many steps for each of the {data.num_sequences} sequences of the data, in their order"
        )
    if future.subject is not None and data.subject is not None:
        given, known = _subjects(future), _subjects(data)
        if given != known:
            at = next(row for row, pair in enumerate(zip(given, known, strict=True)) if pair[0] != pair[1])
            raise ValueError(
                f"future has subject {given[at]!r} in place {at}, where the data have {known[at]!r}: give the "
                "sequences of the data, in their order"
            )
    count = int(lengths[0])
    if steps not in (None, count):
        raise ValueError(f"steps is {steps}, and future has {count}: leave steps out")
    frame = future.covariate_frame()
    if missing := sorted(needed - {*frame.columns}):
        raise ValueError(f"future has no covariate {missing[0]!r}: give all of {', '.join(sorted(needed))}")
    shape = len(lengths), count
    return count, {name: np.asarray(frame[name]).reshape(shape) for name in sorted(needed)}
