r"""Parameters of an agent Markov model: the prior given the weights, the global step of a fit, and tables of draws.

Unhelkar and Shah (2019), eq. 9 and 12 (rows over intents, on K + 1 entries) and 14 (policies), in natural coordinates.
The weights move together with the rows, see :mod:`ethogram.models.intents.stick_weights`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.families.constrained_dirichlet import ConstrainedDirichlet
from ethogram.models.families.exponential_family import (
    Dirichlet,
    DirichletCoordinates,
    expected_statistics,
    total_kl,
)
from ethogram.models.intents.rows import RowBounds
from ethogram.models.intents.stick_weights import (
    SMALLEST_WEIGHT,
    StickWeights,
    fit_to_counts,
    fit_to_rows,
    weights_of_sticks,
)

__all__ = [
    "CountedRows",
    "agent_tables",
    "counted_rows",
    "divergence",
    "drawn_parameters",
    "prior_given",
    "start_weights",
    "update",
    "widened",
]

Blocks = dict[str, Any]

LEAST = 1e-3
"""Smallest concentration as a share of the prior's, where a small step from a start leaves less."""


def start_weights(model: Any) -> StickWeights:
    """Equal weights."""
    return StickWeights.uniform(model.truncation, model.gamma, model.beta_prior)


def prior_given(model: Any, weights: Any) -> Blocks:
    """Prior blocks of `model` given the weights; rows that never switch keep only their diagonal entry."""
    rows, count = model.rows_carried(), model.truncation
    row = model.alpha * weights.natural
    transition = jnp.broadcast_to(row, (rows.num_rows, count, count + 1))
    if model.constraints:
        own = jnp.eye(count, count + 1, dtype=bool)
        transition = jnp.where(rows.never[:, None, None] & ~own, 0, transition)
    policy = jnp.broadcast_to(model.rho, (model.num_states, model.num_actions))[rows.states]
    policy = jnp.broadcast_to(policy, (count, *policy.shape))
    if rows.forbidden is not None:
        policy = jnp.where(rows.forbidden, 0, policy)
    keep = model.constraints is not None and model.constraints.concentration == "keep"
    return {
        "weights": weights,
        "initial": Dirichlet(DirichletCoordinates(row)),
        "transition": _bounded(transition, rows.pair_bounds, keep),
        "policy": _bounded(policy, rows.policy_bounds, keep),
    }


def _bounded(concentration: Array, bounds: RowBounds | None, keep: bool) -> Dirichlet:
    """A block of rows; those with bounds start at a mean within them."""
    natural = DirichletCoordinates(concentration)
    if bounds is None:
        return Dirichlet(natural)
    total = jnp.sum(concentration.reshape(-1, concentration.shape[-1])[bounds.rows], -1, keepdims=True)
    lower, upper, held = (
        x.astype(concentration.dtype) for x in (bounds.lower, bounds.upper, bounds.mean * total)
    )
    solved = jnp.ones(len(bounds.rows), bool)
    return ConstrainedDirichlet(natural, held, solved, bounds.rows, lower, upper, keep)


def divergence(model: Any, blocks: Blocks) -> Array:
    """KL(q || p) of the rows with data, minus the log prior density of the weights, in nats."""
    prior = prior_given(model, blocks["weights"])
    free = {**prior, "transition": Dirichlet(prior["transition"].natural)}
    return total_kl(_with_data(model, blocks), _with_data(model, free))


def _with_data(model: Any, blocks: Blocks) -> Blocks:
    """Blocks without the spare rows, with constrained rows as q has them."""
    counted = blocks["transition"].standard().concentration[: len(model.rows_carried().pairs)]
    return {**blocks, "transition": Dirichlet(DirichletCoordinates(counted))}


def update(model: Any, blocks: Blocks, statistics: Blocks, scale: Any, step_size: Any) -> Blocks:
    """Blocks after a natural-gradient step on the rows, and the step of the weights that follows.

    Rows with bounds move in their free coordinates; the projection is the caller's.
    """
    before = prior_given(model, blocks["weights"])
    names = ("initial", "transition", "policy")
    moved = {name: blocks[name].step(before[name], statistics[name], scale, step_size) for name in names}

    def gained(name):  # counts, but for small steps from starts that lie below the prior
        return moved[name].natural.concentration - before[name].natural.concentration

    counts = (jnp.maximum(gained(name), 0) for name in ("initial", "transition"))
    weights = _moved_weights(model, {**blocks, **moved}, *counts)
    after = prior_given(model, weights)
    for name in ("initial", "transition"):
        rows = after[name].natural.concentration
        natural = DirichletCoordinates(jnp.maximum(rows + gained(name), LEAST * rows))
        moved[name] = dataclasses.replace(moved[name], natural=natural)
    return {"weights": weights, **moved}


class CountedRows(NamedTuple):
    """What the weights are fitted to: the counts of free rows over intents, and where q holds the others."""

    counts: Array  # (row, intent): of the initial row, then of every pair and intent; 0 where q holds the row
    logs: Array | None = None  # (held row, intent + 1): expected logs
    taken: Array | None = None  # (held row,): False for rows without data


def counted_rows(model: Any, blocks: Blocks, initial: Array, transition: Array) -> CountedRows:
    """Rows with data, by their counts (intent + 1,) and (row, intent, intent + 1) beyond the prior."""
    rows, size = model.rows_carried(), model.truncation + 1
    last = len(rows.pairs) * model.truncation
    never = jnp.repeat(rows.never[: len(rows.pairs)], model.truncation)
    counts = jnp.where(never[:, None], 0, transition.reshape(-1, size)[:last, :-1])
    if rows.pair_bounds is None:
        return CountedRows(jnp.concatenate([initial[None, :-1], counts]))
    bounded = rows.pair_bounds.rows
    counts = counts.at[jnp.where(bounded < last, bounded, last)].set(0, mode="drop")
    held = Dirichlet(DirichletCoordinates(blocks["transition"].held)).expected_statistics()
    return CountedRows(jnp.concatenate([initial[None, :-1], counts]), held.concentration, bounded < last)


def _moved_weights(model: Any, blocks: Blocks, initial: Array, transition: Array) -> StickWeights:
    """The weights after their step: free rows are profiled out, or, in a coordinate step, held."""
    rows, size, weights = model.rows_carried(), model.truncation + 1, blocks["weights"]
    if model.beta_step == "coordinate":
        names = ("initial", "transition")
        held = expected_statistics(_with_data(model, {name: blocks[name] for name in names}))
        logs = jnp.concatenate([held[name].concentration.reshape(-1, size) for name in names])
        never = jnp.repeat(rows.never[: len(rows.pairs)], model.truncation)
        return fit_to_rows(weights, model.alpha, logs, jnp.append(True, ~never))
    return fit_to_counts(weights, model.alpha, *counted_rows(model, blocks, initial, transition))


def widened(model: Any, earlier: Any, blocks: Blocks) -> Blocks:
    """Blocks of the model `earlier`, whose truncation is smaller, with intents that no step uses.

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
    weights = blocks["weights"]
    unused = jnp.full(more, SMALLEST_WEIGHT, weights.natural.dtype)
    natural = jnp.insert(weights.natural.at[-1].add(-jnp.sum(unused)), np.full(more, count), unused)
    before = prior_given(earlier, weights)
    after = prior_given(model, dataclasses.replace(weights, natural=natural))
    moved = {"weights": after["weights"]}
    for name, axes in model.label_axes().items():
        counts = blocks[name].natural.concentration - before[name].natural.concentration
        for axis in axes:
            counts = jnp.insert(counts, np.full(more, count), 0, axis=axis)
        natural = DirichletCoordinates(after[name].natural.concentration + counts)
        moved[name] = dataclasses.replace(after[name], natural=natural)
    return moved


def agent_tables(model: Any, parameters: Blocks) -> tuple[Array, Array, Array]:
    """Rows over intents (row, intent + 1, intent + 1), policies (intent + 1, state, action), and row numbers.

    Rows that the model does not carry, and the intent beyond the truncation, are at their prior means; this intent,
    too, never changes where none may, and takes no action that all are forbidden. The last table,
    (state, action + 1), has the row of each state and action; its last column is for missing actions.
    """
    rows, count = model.rows_carried(), model.truncation
    weights = parameters["weights"]
    # Two rows follow the carried ones: never switch (-2 from the end), and the prior's (-1).
    table = jnp.broadcast_to(weights, (rows.num_rows + 2, count + 1, count + 1))
    table = table.at[:-2, :-1].set(jnp.asarray(parameters["transition"])).at[-2].set(jnp.eye(count + 1))
    stays = jnp.where(rows.never[:, None], jnp.eye(count + 1)[-1], weights)
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
    key_sticks, *keys = jax.random.split(key, 4)
    start = start_weights(model)
    weights = start.natural
    if model.beta_prior != "fixed":
        sticks = jax.random.beta(key_sticks, 1.0, model.gamma, (model.truncation,))
        weights = weights_of_sticks(sticks)
    blocks = prior_given(model, dataclasses.replace(start, natural=weights))
    parts = {name: block for name, block in blocks.items() if name != "weights"}
    drawn = {name: block.sample(one) for one, (name, block) in zip(keys, parts.items(), strict=True)}
    return {"weights": weights, **drawn}
