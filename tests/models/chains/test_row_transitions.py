"""Chains whose steps share the rows of a table, against the same chains with a matrix of their own for each step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.chains.forward_backward import RowTransitions, SymbolLikelihoods, chunk_e_step
from ethogram.models.markov_chain import marginals

T, K, N, R, ROWS, SYMBOLS = 9, 3, 5, 2, 4, 6


def problem(seed):
    random = np.random.default_rng(seed)
    return {
        "log_initial": np.log(random.dirichlet(np.ones(K), size=R)),
        "table": np.log(random.dirichlet(np.ones(K), size=(R, ROWS, K))),
        "row": random.integers(ROWS, size=(N, T - 1)),
        "symbols": random.normal(size=(R, SYMBOLS, K)),
        "symbol": random.integers(2, SYMBOLS, size=(N, T)),
        "length": np.array([T, 0, 1, 5, T]),
        "weight": random.uniform(size=N),
    }


def by_row(p, dtype, written_out):
    alive = np.arange(T)[:, None, None] < p["length"]
    likelihood = SymbolLikelihoods(
        jnp.asarray(np.moveaxis(p["symbols"], 0, -1), dtype), jnp.asarray(p["symbol"].T)
    )
    return jax.jit(
        lambda *rest: chunk_e_step(*rest[:2], likelihood.__call__ if written_out else likelihood, *rest[2:])
    )(
        jnp.asarray(p["log_initial"].T[..., None], dtype),
        RowTransitions(jnp.asarray(np.moveaxis(p["table"], 0, -1), dtype), jnp.asarray(p["row"].T)),
        jnp.asarray(alive),
        jnp.asarray(p["weight"][None], dtype),
    )


def truth(p):
    """Marginals with every step's matrix written out, in float64, and pairs added up by row."""
    values, states, pairs = [], [], np.zeros((R, ROWS, K, K))
    for r in range(R):
        matrices = p["table"][r][p["row"]]
        one = marginals(p["log_initial"][r], matrices, p["symbols"][r][p["symbol"]], p["length"])
        values.append(one.log_normalizer)
        states.append(one.state)
        for n in range(N):
            np.add.at(pairs[r], p["row"][n], p["weight"][n] * np.asarray(one.pair[n]))
    return np.stack(values), np.stack(states), pairs


def impossible(p):
    p["symbols"][:, 0] = -np.inf
    p["symbol"][0, 3] = 0
    return p


def lost_by_scaling(p):
    """One way in at 1e-300 is the only way out: products underflow, the posterior does not."""
    p["table"][:, 0] = -1e3 * (1 - np.eye(K))
    p["row"][:] = 0
    p["log_initial"][:] = [0.0, -800.0, -900.0]
    p["symbols"][:, 1] = [-3e3, 0.0, -3e3]
    p["symbol"][:, 4] = 1
    return p


@pytest.mark.parametrize(
    "spoil", [lambda p: p, impossible, lost_by_scaling], ids=["plain", "impossible", "lost"]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("written_out", [True, False], ids=["likelihoods of steps", "of symbols"])
def test_rows_of_a_table_equal_matrices_of_every_step(spoil, dtype, written_out):
    with jax.enable_x64(True):
        p = spoil(problem(1))
        value, state, pair = truth(p)
    with jax.enable_x64(dtype == "float64"):
        result = by_row(p, dtype, written_out)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == "float64" else {"rtol": 2e-5, "atol": 2e-5}
    np.testing.assert_allclose(result.log_normalizer, value, **tolerance)
    np.testing.assert_allclose(np.transpose(result.state, (2, 3, 0, 1)), state, **tolerance)
    np.testing.assert_allclose(np.moveaxis(result.pair, -1, 0), pair, **tolerance)
    assert {x.dtype for x in result} == {np.dtype(dtype)}
