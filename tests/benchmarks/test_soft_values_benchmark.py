"""Benchmark of soft values: sweeps and reference against dense algebra."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks.speed import soft_values as benchmark
from benchmarks.speed.soft_values_reference import (
    draw_problem,
    exact,
    iterate_values,
    log_likelihood,
    rounded,
)


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


def test_a_size_that_is_none_is_refused():
    settings = argparse.Namespace(quick=True, seed=0, size="small", dtype=None, rounds=None)
    with pytest.raises(SystemExit, match=r"'small' is none of 256/\.9, 1024/\.9"):
        benchmark.measure(settings)
