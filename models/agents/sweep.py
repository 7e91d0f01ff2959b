"""What a fit of an agent Markov model does after its local step: rows over intents, and the weights they share."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array

from ethogram.models.agents.rows import RowBounds
from ethogram.models.blocks.constrained_dirichlet import ConstrainedDirichlet
from ethogram.models.blocks.stick_weights import StickWeights, fit_to_counts, fit_to_rows
from ethogram.models.exponential_family import (
    Dirichlet,
    DirichletCoordinates,
    expected_statistics,
    total_kl,
)

__all__ = ["around", "divergence", "start_weights", "update"]

Blocks = dict[str, Any]

LEAST = 1e-3
"""Share of its prior that a concentration keeps at least, where the prior falls below what a start lacked."""


def start_weights(model: Any) -> StickWeights:
    """Equal weights."""
    return StickWeights.uniform(model.truncation, model.gamma, model.beta_prior)


def around(model: Any, weights: Any) -> Blocks:
    """The prior of `model` given the weights; rows where the intent never changes have that one entry."""
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
    """KL(q || p) of the rows of data, less the log prior density of the weights, in nats."""
    prior = around(model, blocks["weights"])
    return total_kl(
        _with_data(model, blocks), _with_data(model, {**prior, "transition": _free(prior["transition"])})
    )


def _free(block: Dirichlet) -> Dirichlet:
    return Dirichlet(block.natural)


def _with_data(model: Any, blocks: Blocks) -> Blocks:
    """Blocks without the spare rows, as they stand in q."""
    counted = blocks["transition"].standard().concentration[: len(model.rows_carried().pairs)]
    return {**blocks, "transition": Dirichlet(DirichletCoordinates(counted))}


def update(model: Any, blocks: Blocks, statistics: Blocks, scale: Any, step_size: Any) -> Blocks:
    """Blocks after a natural-gradient step of the counts, and of the weights with them.

    Rows with bounds move in their free coordinates, and are left to be projected.
    """
    before = around(model, blocks["weights"])
    names = ("initial", "transition", "policy")
    moved = {name: blocks[name].step(before[name], statistics[name], scale, step_size) for name in names}

    def gained(name):  # counts, but for small steps from starts that lie below the prior
        return moved[name].natural.concentration - before[name].natural.concentration

    counts = (jnp.maximum(gained(name), 0) for name in ("initial", "transition"))
    weights = _moved_weights(model, {**blocks, **moved}, *counts)
    after = around(model, weights)
    for name in ("initial", "transition"):
        rows = after[name].natural.concentration
        natural = DirichletCoordinates(jnp.maximum(rows + gained(name), LEAST * rows))
        moved[name] = dataclasses.replace(moved[name], natural=natural)
    return {"weights": weights, **moved}


def _moved_weights(model: Any, blocks: Blocks, initial: Array, transition: Array) -> StickWeights:
    """The weights after their step: rows that q has free are profiled out, or, by coordinates, held."""
    rows, size, weights = model.rows_carried(), model.truncation + 1, blocks["weights"]
    last = len(rows.pairs) * model.truncation
    never = jnp.repeat(rows.never[: len(rows.pairs)], model.truncation)
    if model.beta_step == "coordinate":
        names = ("initial", "transition")
        held = expected_statistics(_with_data(model, {name: blocks[name] for name in names}))
        logs = jnp.concatenate([held[name].concentration.reshape(-1, size) for name in names])
        return fit_to_rows(weights, model.alpha, logs, jnp.append(True, ~never))
    counts = jnp.where(never[:, None], 0, transition.reshape(-1, size)[:last, :-1])
    if rows.pair_bounds is None:
        return fit_to_counts(weights, model.alpha, jnp.concatenate([initial[None, :-1], counts]))
    bounded = rows.pair_bounds.rows
    counts = counts.at[jnp.where(bounded < last, bounded, last)].set(0, mode="drop")
    stand = Dirichlet(DirichletCoordinates(blocks["transition"].held)).expected_statistics()
    counts = jnp.concatenate([initial[None, :-1], counts])
    return fit_to_counts(weights, model.alpha, counts, stand.concentration, bounded < last)
