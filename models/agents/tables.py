"""Parameters of an agent Markov model as tables over all states and actions, and draws of them from the prior."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ethogram.models.agents import sweep
from ethogram.models.blocks.stick_weights import weights_of_sticks

__all__ = ["agent_tables", "drawn_parameters"]


def agent_tables(model: Any, parameters: dict[str, Any]) -> tuple[Array, Array, Array]:
    """Rows over intents (row, intent + 1, intent + 1), policies (intent + 1, state, action), and the row of each pair.

    Rows that the model does not carry, and the intent beyond the truncation, stand at prior means. The last table,
    (state, action + 1), numbers the rows; its last column is for missing actions.
    """
    rows, count = model.rows_carried(), model.truncation
    weights = parameters["weights"]
    # Behind the rows carried: that of no change, and the prior's; -2 and -1 are their places from the end.
    table = jnp.broadcast_to(weights, (rows.num_rows + 2, count + 1, count + 1))
    table = table.at[:-2, :-1].set(jnp.asarray(parameters["transition"])).at[-2].set(jnp.eye(count + 1))
    rho = jnp.broadcast_to(model.rho, (model.num_states, model.num_actions))
    policy = jnp.broadcast_to(rho / jnp.sum(rho, axis=-1, keepdims=True), (count + 1, *rho.shape))
    policy = policy.at[:-1, rows.states].set(parameters["policy"])
    return table, policy, jnp.where(rows.row_of < 0, rows.row_of + rows.num_rows + 2, rows.row_of)


def drawn_parameters(model: Any, key: Array) -> dict[str, Array]:
    """Parameters by site, drawn from the prior; rows with bounds are drawn about a mean within them."""
    key_sticks, *keys = jax.random.split(key, 4)
    start = sweep.start_weights(model)
    weights = start.natural
    if model.beta_prior != "fixed":
        sticks = jax.random.beta(key_sticks, 1.0, model.gamma, (model.truncation,))
        weights = weights_of_sticks(sticks)
    blocks = sweep.around(model, dataclasses.replace(start, natural=weights))
    parts = {name: block for name, block in blocks.items() if name != "weights"}
    drawn = {name: block.sample(one) for one, (name, block) in zip(keys, parts.items(), strict=True)}
    return {"weights": weights, **drawn}
