"""Benchmark of soft values: sweeps and reference against dense algebra, rows with their columns and targets."""

from __future__ import annotations

import argparse
import importlib.util

import jax
import numpy as np
import pytest

from benchmarks.speed import soft_values as benchmark
from benchmarks.speed.soft_values_reference import (
    QUANTECON,
    draw_problem,
    exact,
    iterate_values,
    log_likelihood,
    rounded,
)

COLUMNS = {
    "size", "peer", "dtype", "ours_ms", "peer_ms", "ours_wall_ms", "peer_wall_ms", "ratio", "ratio_low", "ratio_high",
    "compile_s", "peak_mb", "error", "discount", "steps", "transitions",
}  # fmt: skip


def dense(problem):
    shape = problem.successors.shape
    table = np.zeros((*shape[:2], shape[0]))
    state, action, _ = np.indices(shape)
    np.add.at(table, (state, action, problem.successors), problem.chances)
    return table


def likelihood(table, reward, counts, discount):
    """Log likelihood of counted decisions by many dense sweeps."""
    values = np.zeros(len(table))
    for _ in range(600):
        q = reward + discount * table @ values
        values = q.max(1) + np.log(np.exp(q - q.max(1)[:, None]).sum(1))
    return values, np.sum(counts * (q - values[:, None]))


@pytest.mark.parametrize("num_states", [25, 90])
def test_sweeps_and_reference_are_those_of_dense_algebra(num_states):
    problem = draw_problem(3, num_states, 0.9)
    table, reward = dense(problem), problem.reward
    np.testing.assert_allclose(table.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(problem.matrix.toarray().reshape(table.shape), table, atol=1e-15)
    values, expected = likelihood(table, reward, problem.counts, 0.9)
    swept, policy, sweeps = iterate_values(problem, reward, 1e-12)
    np.testing.assert_allclose(swept, values, atol=1e-10)
    np.testing.assert_allclose(policy.sum(1), 1, rtol=1e-12)
    assert 100 < sweeps < 400
    found, slope = log_likelihood(problem, reward, 1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    newton, same = exact(problem, reward)
    np.testing.assert_allclose(newton, values, atol=1e-10)
    np.testing.assert_allclose(same, slope, atol=1e-9)
    for at in [(0, 0), (7, 1), (num_states - 1, 0)]:
        step = np.zeros_like(reward)
        step[at] = 1e-5
        ahead, behind = (likelihood(table, reward + s, problem.counts, 0.9)[1] for s in (step, -step))
        np.testing.assert_allclose(slope[at], (ahead - behind) / 2e-5, atol=1e-5)


def test_rounded_problems_are_near_and_sum_to_one():
    problem = draw_problem(3, 25, 0.9)
    near = rounded(problem, "float32")
    assert 0 < abs(near.discount - 0.9) < 1e-7
    np.testing.assert_allclose(near.chances.sum(-1), 1, rtol=1e-15)
    np.testing.assert_allclose(near.reward, problem.reward, rtol=1e-6)
    assert rounded(problem, "float64").discount == 0.9


@pytest.mark.slow
def test_rows_have_their_columns_and_targets():
    with jax.enable_x64(True):
        problem = draw_problem(0, 25, 0.9)
        rows = benchmark.measure_size("256/.9", problem, "float64", 2)
        batch = benchmark.measure_batch("256/.9", problem, "float64", 1, 0)
        linear = benchmark.measure_linearity((25, 100), "float64", 1, 0)
    timed = {row["peer"]: row for row in rows if "ratio" in row}
    for row in timed.values():
        assert row.keys() >= COLUMNS and row["correct"] and row["steps"] <= 15 and row["error"] < 1e-6
        assert row["peer_error"] < 1e-6 if "NumPy" in row["peer"] else "hard" in row["peer"]
    gradient = timed["NumPy sweeps and visits"]
    assert gradient["target"] == 8 and gradient["reached"] == (gradient["ratio"] >= 8)
    steps = rows[-1]
    assert steps["what"] == "steps" and steps["target"] == 15 and steps["reached"] and steps["correct"]
    told = [row["peer"] for row in rows if "quantecon" in row["peer"]]
    assert len(told) >= len(QUANTECON)
    if importlib.util.find_spec("quantecon") is None:
        assert sum(row.get("note") == "skipped: quantecon is not installed" for row in rows) == len(QUANTECON)
    assert batch["peer"] == "ours, 64 one by one" and batch["each_ms"] > 0 and batch["steps"] <= 15
    assert [row["size"] for row in linear] == ["100 states"] and linear[0]["transitions"] == 2500


def test_a_size_that_is_none_is_refused():
    settings = argparse.Namespace(quick=True, seed=0, size="small", dtype=None, rounds=None)
    with pytest.raises(SystemExit, match=r"'small' is none of 256/\.9, 1024/\.9"):
        benchmark.measure(settings)
