r"""Parameters of an agent Markov model: the prior given the weights, the global step of a fit, and tables of draws.

Unhelkar and Shah (2019), eq. 9 and 12 (rows over intents, on K + 1 entries) and 14 (policies), in natural coordinates.
The weights move together with the rows, see :mod:`ethogram.models.intents.stick_weights`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.arguments import host_arrays
from ethogram.models.families.constrained_dirichlet import ConstrainedDirichlet
from ethogram.models.families.exponential_family import (
    Dirichlet,
    DirichletCoordinates,
    total_kl,
)
from ethogram.models.intents.row_counts import counted_rows
from ethogram.models.intents.rows import RowBounds
from ethogram.models.intents.stick_weights import (
    SMALLEST_WEIGHT,
    StickWeights,
    fit_to_counts,
    weights_of_sticks,
)
from ethogram.models.intents.stickiness import Stickiness, StickinessPrior, fit_stickiness
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "LABEL_AXES",
    "LEAST",
    "ROWS",
    "agent_tables",
    "divergence",
    "drawn_parameters",
    "is_free",
    "prior_given",
    "prior_of_first",
    "start_weights",
    "state_mass",
    "stickiness_of",
    "update",
    "widened",
    "with_unused",
]

Blocks = dict[str, Any]

LEAST = 1e-3
"""Smallest concentration as a share of the prior's, where a small step from a start leaves less."""

ROWS = ("initial", "transition")
"""Blocks of rows over intents, around the shared weights."""

BLOCKS = ("weights", "stickiness", *ROWS, "policy")

LABEL_AXES = {"initial": (0,), "transition": (1, 2), "policy": (0,)}
"""Axes of the intents by block of rows, of which those over intents have one more entry."""


def start_weights(model: Any, number: int | None = None) -> StickWeights:
    """Known weights, or else equal ones, of the first `number` intents; the others have the smallest."""
    if model.weights is not None:
        return StickWeights(model.weights, model.gamma, model.beta_prior)
    weights = StickWeights.uniform(model.truncation, model.gamma, model.beta_prior)
    if number is None or number >= model.truncation:
        return weights
    natural = np.full(model.truncation + 1, SMALLEST_WEIGHT)
    natural[[*range(number), -1]] = 1 / (number + 1)
    return dataclasses.replace(weights, natural=natural.astype(weights.natural.dtype))


def prior_of_first(model: Any, number: int) -> Blocks:
    """The prior with the weights of the first `number` intents only."""
    return prior_given(model, start_weights(model, number))


def is_free(model: Any) -> bool:
    """Whether weights are sticks, and no rows have bounds or forbidden actions: then no intent differs by its prior."""
    rows = model.rows_carried()
    restricted = (rows.pair_bounds, rows.policy_bounds, rows.forbidden)
    return model.beta_prior == "stick" and all(one is None for one in restricted)


def stickiness_of(model: Any, learned: Any) -> Any:
    """The stickiness kappa: the model's where it is a number, `learned` where it has a prior, None for none."""
    return learned if isinstance(model.stickiness, StickinessPrior) else model.stickiness


def prior_given(model: Any, weights: Any, stickiness: Any = None) -> Blocks:
    """Prior blocks of `model` given the weights, and a learned stickiness (None: where fits begin).

    Rows that never switch keep only their diagonal entry.
    """
    found = host_arrays(_prior_given, model, model.rows_carried(), weights, stickiness)
    return {name: found[name] for name in BLOCKS if name in found}  # JAX sorts them, and starts draw in turn


def _prior_given(xp: Any, model: Any, rows: Any, weights: Any, stickiness: Any) -> Blocks:
    count, points = model.truncation, {"weights": weights}
    if isinstance(model.stickiness, StickinessPrior):
        points["stickiness"] = stickiness = stickiness or Stickiness.at_start(model.stickiness)
    row = model.alpha * weights.natural
    kappa = stickiness_of(model, stickiness and stickiness.natural)
    own = xp.eye(count, count + 1, dtype=bool)
    leaving = row if kappa is None else row + kappa * own
    transition = xp.broadcast_to(leaving, (rows.num_rows, count, count + 1))
    if model.constraints:
        transition = xp.where(rows.never[:, None, None] & ~own, 0, transition)
    policy = xp.broadcast_to(model.rho, (model.num_states, model.num_actions))[rows.states]
    policy = xp.broadcast_to(policy, (count, *policy.shape))
    if rows.forbidden is not None:
        policy = xp.where(rows.forbidden, 0, policy)
    keep = model.constraints is not None and model.constraints.concentration == "keep"
    return {
        **points,
        "initial": Dirichlet(DirichletCoordinates(row)),
        "transition": _bounded(xp, transition, rows.pair_bounds, keep),
        "policy": _bounded(xp, policy, rows.policy_bounds, keep),
    }


def _bounded(xp: Any, concentration: Any, bounds: RowBounds | None, keep: bool) -> Dirichlet:
    """A block of rows; those with bounds start at a mean within them."""
    natural = DirichletCoordinates(concentration)
    if bounds is None:
        return Dirichlet(natural)
    total = xp.sum(concentration.reshape(-1, concentration.shape[-1])[bounds.rows], -1, keepdims=True)
    lower, upper, held = (
        x.astype(concentration.dtype) for x in (bounds.lower, bounds.upper, bounds.mean * total)
    )
    solved = xp.zeros(len(bounds.rows), bool)  # no projection yet
    return ConstrainedDirichlet(natural, held, solved, bounds.rows, lower, upper, keep)


def divergence(model: Any, blocks: Blocks) -> Array:
    """KL(q || p) of the rows with data, minus the log prior densities of weights and stickiness, in nats."""
    prior = prior_given(model, blocks["weights"], blocks.get("stickiness"))
    free = {**prior, "transition": Dirichlet(prior["transition"].natural)}
    return total_kl(_with_data(model, blocks), _with_data(model, free))


def _with_data(model: Any, blocks: Blocks) -> Blocks:
    """Blocks without the spare rows, with constrained rows as q has them."""
    counted = blocks["transition"].standard().concentration[: len(model.rows_carried().pairs)]
    return {**blocks, "transition": Dirichlet(DirichletCoordinates(counted))}


def update(model: Any, blocks: Blocks, statistics: Blocks, scale: Any, step_size: Any) -> Blocks:
    """Blocks after a natural-gradient step on the rows, and the steps of weights and stickiness that follow.

    Rows with bounds move in their free coordinates; the projection is the caller's.
    """
    before = prior_given(model, blocks["weights"], blocks.get("stickiness"))
    moved = {name: blocks[name].step(before[name], statistics[name], scale, step_size) for name in blocks}
    gained = {  # counts, but for small steps from starts that lie below the prior
        name: moved[name].natural.concentration - before[name].natural.concentration for name in ROWS
    }
    counts = {name: jnp.maximum(each, 0) for name, each in gained.items()}
    moved |= _moved_points(model, moved, counts)
    after = prior_given(model, moved["weights"], moved.get("stickiness"))
    for name, each in gained.items():
        rows = after[name].natural.concentration
        natural = DirichletCoordinates(jnp.maximum(rows + each, LEAST * rows))
        moved[name] = dataclasses.replace(moved[name], natural=natural)
    return moved


def _moved_points(model: Any, blocks: Blocks, counts: dict[str, Array]) -> Blocks:
    """Weights and stickiness after their steps, with q of free rows profiled out."""
    weights, learned = blocks["weights"], blocks.get("stickiness")
    kappa = stickiness_of(model, learned and learned.natural)
    rows = counted_rows(model, blocks, counts)
    weights = fit_to_counts(weights, model.alpha, *rows[:3], kappa, rows.own, rows.held_own)
    if learned is None:
        return {"weights": weights}
    return {"weights": weights, "stickiness": fit_stickiness(learned, model.alpha, weights.natural, rows)}


def widened(model: Any, earlier: Any, blocks: Blocks) -> Blocks:
    """Blocks of the model `earlier`, whose truncation is smaller, with intents that no step uses, on the host.

    Raises ValueError where rows have bounds on their means.
    """
    count, more = earlier.truncation, model.truncation - earlier.truncation
    if more <= 0:
        return blocks
    rows = model.rows_carried()
    if rows.pair_bounds is not None or rows.policy_bounds is not None:
        raise ValueError(
            f"init has {count} intents, not {model.truncation}, and constraints bound the means of rows: give a "
            "result of the same truncation, or another init"
        )
    weights, learned = blocks["weights"], blocks.get("stickiness")
    natural = np.insert(np.asarray(weights.natural), np.full(more, count), SMALLEST_WEIGHT)
    natural[-1] -= more * SMALLEST_WEIGHT
    before = prior_given(earlier, weights, learned)
    after = prior_given(model, dataclasses.replace(weights, natural=natural), learned)
    moved = {**blocks, "weights": after["weights"]}
    for name, axes in LABEL_AXES.items():
        counts = with_unused(_rows(blocks[name]) - _rows(before[name]), axes, count, more)
        rows_after = DirichletCoordinates(_rows(after[name]) + counts)
        moved[name] = dataclasses.replace(after[name], natural=rows_after)
    return moved


def with_unused(counts: np.ndarray, axes: tuple[int, ...], count: int, more: int) -> np.ndarray:
    """Counts with zeros for `more` intents after the first `count`, along some axes."""
    for axis in axes:
        counts = np.insert(counts, np.full(more, count), 0, axis=axis)
    return counts


def _rows(block: Any) -> np.ndarray:
    return np.asarray(block.natural.concentration)


def _counts(model: Any, blocks: Blocks) -> dict[str, Array]:
    """Expected counts of blocks after a global step of size 1: what their free rows have beyond the prior."""
    before = prior_given(model, blocks["weights"], blocks.get("stickiness"))
    return {
        name: jnp.maximum(blocks[name].natural.concentration - before[name].natural.concentration, 0)
        for name in LABEL_AXES
    }


def state_mass(model: Any, blocks: Blocks) -> Array:
    """Expected steps (intent,) of every intent: the first ones, and those that a row leads to."""
    counts = _counts(model, blocks)
    return (counts["initial"] + jnp.sum(counts["transition"], (0, 1)))[: model.truncation]


def agent_tables(model: Any, parameters: Blocks) -> tuple[Array, Array, Array]:
    """Rows over intents (row, intent + 1, intent + 1), policies (intent + 1, state, action), and row numbers.

    Rows that the model does not carry, and the intent beyond the truncation, are at their prior means; this intent,
    too, never changes where none may, and takes no action that all are forbidden. The last table, (state, action + 1),
    has the row of each state and action; its last column is for missing actions. Raises ValueError where a site of the
    model is missing.
    """
    if missing := [name for name in model.needed_sites() if name not in parameters]:
        raise ValueError(
            f"parameters have no {', '.join(missing)}, but {', '.join(sorted(parameters)) or 'nothing'}: give all "
            "sites of the model, such as posterior.mean() of its fit"
        )
    return _tables_of(model, model.rows_carried(), parameters)


@functools.partial(jax.jit, inline=True)
def _tables_of(model: Any, rows: Any, parameters: Blocks) -> tuple[Array, Array, Array]:
    count = model.truncation
    weights, transition = parameters["weights"], jnp.asarray(parameters["transition"])
    kappa = stickiness_of(model, parameters.get("stickiness"))
    prior = jnp.broadcast_to(weights, (count + 1, count + 1))
    if kappa is not None:
        prior = (model.alpha * prior + kappa * jnp.eye(count + 1)) / (model.alpha + kappa)
    # Two rows follow the carried ones: never switch (-2 from the end), and the prior's (-1).
    table = jnp.broadcast_to(prior, (rows.num_rows + 2, count + 1, count + 1))
    table = table.at[:-2, :-1].set(transition).at[-2].set(jnp.eye(count + 1))
    stays = jnp.where(rows.never[:, None], jnp.eye(count + 1)[-1], prior[-1])
    table = table.at[:-2, -1].set(stays)
    rho = jnp.broadcast_to(model.rho, (model.num_states, model.num_actions))
    policy = jnp.broadcast_to(rho / jnp.sum(rho, axis=-1, keepdims=True), (count + 1, *rho.shape))
    policy = policy.at[:-1, rows.states].set(parameters["policy"])
    if rows.forbidden is not None:
        allowed = jnp.where(rows.forbidden.all(0), 0, rho[rows.states])
        policy = policy.at[-1, rows.states].set(allowed / jnp.sum(allowed, axis=-1, keepdims=True))
    return table, policy, jnp.where(rows.row_of < 0, rows.row_of + rows.num_rows + 2, rows.row_of)


def drawn_parameters(model: Any, key: Array) -> dict[str, Array]:
    """Parameters by site, sampled from the prior; rows with bounds around a mean within them."""
    return _drawn(dataclasses.replace(model, visited=model.rows_carried()), key)


@quick_jit
def _drawn(model: Any, key: Array) -> dict[str, Array]:
    names = ("sticks", "initial", "transition", "policy", "stickiness")
    keys = dict(zip(names, jax.random.split(key, len(names)), strict=True))
    start, prior = start_weights(model), model.stickiness
    weights, learned = start.natural, None
    if model.beta_prior != "fixed":
        sticks = jax.random.beta(keys["sticks"], 1.0, model.gamma, (model.truncation,))
        weights = weights_of_sticks(sticks)
    if isinstance(prior, StickinessPrior):
        kappa = jax.random.gamma(keys["stickiness"], prior.shape) / prior.rate
        learned = dataclasses.replace(Stickiness.at_start(prior), natural=kappa)
    blocks = prior_given(model, dataclasses.replace(start, natural=weights), learned)
    return {name: block.sample(keys.get(name)) for name, block in blocks.items()}
