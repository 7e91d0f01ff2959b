"""Chains whose steps share the rows of a table, against the same chains with a matrix of their own for each step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.chains.forward_backward import RowTransitions, chunk_e_step
from ethogram.models.markov_chain import marginals

T, K, N, R, ROWS = 9, 3, 5, 2, 4


def problem(seed):
    random = np.random.default_rng(seed)
    return {
        "log_initial": np.log(random.dirichlet(np.ones(K), size=R)),
        "table": np.log(random.dirichlet(np.ones(K), size=(R, ROWS, K))),
        "row": random.integers(ROWS, size=(N, T - 1)),
        "log_likelihood": random.normal(size=(R, N, T, K)),
        "length": np.array([T, 0, 1, 5, T]),
        "weight": random.uniform(size=N),
    }


def by_row(p, dtype):
    alive = np.arange(T)[:, None, None] < p["length"]
    likelihood = jnp.asarray(np.transpose(p["log_likelihood"], (2, 3, 0, 1)), dtype)
    return jax.jit(chunk_e_step, static_argnums=2)(
        jnp.asarray(p["log_initial"].T[..., None], dtype),
        RowTransitions(jnp.asarray(np.moveaxis(p["table"], 0, -1), dtype), jnp.asarray(p["row"].T)),
        lambda: likelihood,
        jnp.asarray(alive),
        jnp.asarray(p["weight"][None], dtype),
    )


def truth(p):
    """Marginals with every step's matrix written out, in float64, and pairs added up by row."""
    values, states, pairs = [], [], np.zeros((R, ROWS, K, K))
    for r in range(R):
        matrices = p["table"][r][p["row"]]
        one = marginals(p["log_initial"][r], matrices, p["log_likelihood"][r], p["length"])
        values.append(one.log_normalizer)
        states.append(one.state)
        for n in range(N):
            np.add.at(pairs[r], p["row"][n], p["weight"][n] * np.asarray(one.pair[n]))
    return np.stack(values), np.stack(states), pairs


def impossible(p):
    p["log_likelihood"][:, 0, 3] = -np.inf
    return p


def lost_by_scaling(p):
    """One way in at 1e-300 is the only way out: products underflow, the posterior does not."""
    p["table"][:, 0] = -1e3 * (1 - np.eye(K))
    p["row"][:] = 0
    p["log_initial"][:] = [0.0, -800.0, -900.0]
    p["log_likelihood"][:, :, 4] = [-3e3, 0.0, -3e3]
    return p


@pytest.mark.parametrize(
    "spoil", [lambda p: p, impossible, lost_by_scaling], ids=["plain", "impossible", "lost"]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_of_a_table_equal_matrices_of_every_step(spoil, dtype):
    with jax.enable_x64(True):
        p = spoil(problem(1))
        value, state, pair = truth(p)
    with jax.enable_x64(dtype == "float64"):
        result = by_row(p, dtype)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == "float64" else {"rtol": 2e-5, "atol": 2e-5}
    np.testing.assert_allclose(result.log_normalizer, value, **tolerance)
    np.testing.assert_allclose(np.transpose(result.state, (2, 3, 0, 1)), state, **tolerance)
    np.testing.assert_allclose(np.moveaxis(result.pair, -1, 0), pair, **tolerance)
    assert {x.dtype for x in result} == {np.dtype(dtype)}
