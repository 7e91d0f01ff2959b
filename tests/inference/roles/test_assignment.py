"""optimal_assignment against brute force over all one-to-one maps."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.optimal_assignment import Assignment, optimal_assignment


def brute_force(cost):
    """Lexicographically first best map, its cost and its margin, or None."""
    num_agents, num_roles = cost.shape
    maps = list(itertools.permutations(range(num_roles), num_agents))
    totals = [math.fsum(cost[agent, role] for agent, role in enumerate(one)) for one in maps]
    best = min(totals)
    if best == math.inf:
        return None
    first = totals.index(best)
    return maps[first], best, min(totals[:first] + totals[first + 1 :], default=math.inf) - best


def random_cost(seed, square):
    """Costs of up to 7 roles: with many ties, real-valued or with forbidden pairs in turn."""
    rng = np.random.default_rng([seed, square])
    num_roles = int(rng.integers(1, 8 if seed % 10 == 0 else 7))
    num_agents = num_roles if square else int(rng.integers(1, num_roles + 1))
    shape = (num_agents, num_roles)
    cost = rng.integers(0, 3, shape).astype(float) if seed % 2 else rng.normal(size=shape) * 100
    if seed % 3 == 0:
        cost[rng.random(shape) < 0.5] = np.inf
    return cost


@pytest.mark.parametrize("square", [True, False])
def test_200_random_costs_equal_brute_force(square):
    impossible = ties = 0
    for seed in range(100):
        cost = random_cost(seed, square)
        expected = brute_force(cost)
        if expected is None:
            impossible += 1
            with pytest.raises(ValueError, match="cost has no feasible assignment"):
                optimal_assignment(cost)
            continue
        role, total, margin = optimal_assignment(cost)
        assert len(set(role)) == len(role) and math.fsum(cost[np.arange(len(role)), role]) == expected[1]
        assert tuple(role) == expected[0] or expected[2] == 0
        assert float(total) == expected[1]
        assert float(margin) == expected[2]
        ties += expected[2] == 0
    assert impossible > 3
    assert ties > 10


def test_batch_axes_dtypes_and_inputs():
    cost = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    found = optimal_assignment(jnp.asarray(cost, jnp.float32))
    assert isinstance(found, Assignment)
    assert (found.role.shape, found.cost.shape, found.margin.shape) == ((2, 3, 4), (2, 3), (2, 3))
    assert (found.role.dtype, found.cost.dtype, found.margin.dtype) == (np.int32, np.float64, np.float64)
    for entry in np.ndindex(2, 3):
        assert tuple(found.role[entry]) == brute_force(cost[entry])[0]
        assert found.margin[entry] == pytest.approx(brute_force(cost[entry])[2], rel=1e-4)


def test_one_possible_map_has_an_infinite_margin():
    assert optimal_assignment([[3.0]]).margin == math.inf
    lower = np.where(np.tri(4, dtype=bool), 1.0, np.inf)
    role, cost, margin = optimal_assignment(lower)
    assert (list(role), float(cost), float(margin)) == ([0, 1, 2, 3], 4.0, math.inf)
    assert optimal_assignment(np.zeros((2, 0, 3))).margin.tolist() == [math.inf, math.inf]


def test_equal_agents_tie():
    rows = np.tile(np.random.default_rng(1).normal(size=6) / 3, (4, 1))
    role, _, margin = optimal_assignment(rows)
    assert sorted(role) == sorted(np.argsort(rows[0])[:4])
    assert margin == 0


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros((3, 2)), "3 agents but 2 roles"),
        (np.array([[[0.0, 1.0], [np.nan, 0.0]]]), r"cost\[0, 1, 0\] is nan"),
        (np.array([[0.0, -np.inf]]), r"cost\[0, 1\] is -inf"),
        (np.stack([np.zeros((2, 2)), np.full((2, 2), np.inf)])[None], r"cost\[0, 1\] has no feasible"),
    ],
)
def test_bad_costs_are_refused(cost, message):
    with pytest.raises(ValueError, match=message):
        optimal_assignment(cost)
