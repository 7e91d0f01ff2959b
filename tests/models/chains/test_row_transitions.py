"""Chains whose steps share the rows of a table, against the same chains with a matrix of their own for each step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.chains.forward_backward import RowTransitions, SymbolLikelihoods, chunk_e_step

T, K, N, R, ROWS, SYMBOLS = 6, 3, 5, 2, 4, 6


def problem(seed):
    random = np.random.default_rng(seed)
    return {
        "log_initial": np.log(random.dirichlet(np.ones(K), size=R)),
        "table": np.log(random.dirichlet(np.ones(K), size=(R, ROWS, K))),
        "row": random.integers(ROWS, size=(N, T - 1)),
        "symbols": random.normal(size=(R, SYMBOLS, K)),
        "symbol": random.integers(2, SYMBOLS, size=(N, T)),
        "length": np.array([T, 0, 1, 4, T]),
    }


@jax.jit
def by_row(log_initial, table, row, symbols, symbol, length):
    likelihood = SymbolLikelihoods(jnp.moveaxis(symbols, 0, -1), symbol.T)
    return chunk_e_step(
        log_initial.T[..., None],
        RowTransitions(jnp.moveaxis(table, 0, -1), row.T),
        likelihood,
        jnp.arange(T)[:, None, None] < length,
        summed=True,
    )


def truth(chain_oracle, p):
    """By the list of all paths with every step's matrix written out, and pairs added up by row."""
    pairs = np.zeros((R, ROWS, K, K))
    matrices = np.stack([table[p["row"]] for table in p["table"]])
    likelihoods = np.stack([table[p["symbol"]] for table in p["symbols"]])
    length = np.broadcast_to(p["length"], (R, N))
    found = chain_oracle.enumerate_batch(p["log_initial"][:, None], matrices, likelihoods, length)
    for r, n in np.ndindex(R, N):
        np.add.at(pairs[r], p["row"][n], found.pair[r, n])
    return found.log_normalizer, found.state, pairs


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
def test_rows_of_a_table_equal_matrices_of_every_step(spoil, chain_oracle):
    p = spoil(problem(1))
    value, state, pair = truth(chain_oracle, p)
    result = by_row(**p)
    tolerance = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(result.log_normalizer, value, **tolerance)
    np.testing.assert_allclose(np.transpose(result.state, (2, 3, 0, 1)), state, **tolerance)
    np.testing.assert_allclose(np.moveaxis(result.pair, -1, 0), pair, **tolerance)
