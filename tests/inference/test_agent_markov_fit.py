"""Fits of the agent Markov model: a bound that never falls, and intents that are found, number included."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate_svi import ConjugateSVI
from ethogram.models.agent_markov import AgentMarkov
from ethogram.models.trajectories import Trajectories

CELLS, LEFT, RIGHT, WAIT = 5, 0, 1, 2


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def line_walks(seed, num_traces=5, num_steps=20):
    """An agent that walks to one end of a line, waits a step there, and turns to the other; with its goals."""
    random = np.random.default_rng(seed)
    states, actions, goals = (np.zeros((num_traces, num_steps), np.int32) for _ in range(3))
    for i in range(num_traces):
        goal, cell = random.integers(2), random.integers(CELLS)
        for t in range(num_steps):
            target = goal * (CELLS - 1)
            action = WAIT if cell == target else (LEFT if target < cell else RIGHT)
            states[i, t], actions[i, t], goals[i, t] = cell, action, goal
            goal = 1 - goal if cell == target else goal
            cell += {LEFT: -1, RIGHT: 1, WAIT: 0}[action]
    lengths = np.full(num_traces, num_steps, np.int32)
    empty = np.zeros((num_traces, num_steps, 1))
    stay = np.full_like(states, -1)
    stay[:2, :-1] = goals[:2, :-1] == goals[:2, 1:]
    return Trajectories(empty, states, actions, lengths, np.ones(states.shape, bool), stay=stay), goals


COMBINATIONS = [
    pytest.param(
        {"beta_prior": prior, "beta_step": step, "stay_accuracy": said, "rows": rows},
        id=f"{prior} {step} {rows}",
    )
    for prior, step, said, rows in [
        ("stick", "block", 0.9, "visited"),
        ("stick", "coordinate", None, "all"),
        ("gem", "coordinate", 0.9, "visited"),
        ("fixed", "block", 1.0, "all"),
    ]
]


@pytest.mark.slow
@pytest.mark.parametrize("settings", COMBINATIONS)
def test_the_bound_never_falls(settings):
    data, _ = line_walks(1, num_traces=4, num_steps=12)
    model = AgentMarkov(CELLS, 3, truncation=4, **settings)
    fit = ConjugateSVI(model).run(jax.random.key(1), data, 40, restarts=3, tol=0.0, progress_bar=False)
    falls = -np.diff(fit.restart_traces, axis=1) / np.abs(fit.restart_traces[:, 1:])
    assert np.isfinite(fit.restart_traces).all()
    assert falls.max() <= 1e-8


@pytest.mark.slow
def test_two_goals_are_found_among_ten_intents():
    """The best of twelve mixed starts uses two intents, and one of them at every step with each goal."""
    data, _goals = line_walks(0)
    fit = ConjugateSVI(AgentMarkov(CELLS, 3)).run(
        jax.random.key(0), data, 200, restarts=12, progress_bar=False
    )
    weights = fit.posterior.mean()["weights"][:-1]
    used = np.flatnonzero(weights > 0.02)
    assert len(used) == 2
    policy = np.asarray(fit.posterior.mean()["policy"])[used]
    towards = policy[:, 1:-1].argmax(-1)  # in the cells between the goals each intent walks one way
    assert sorted(map(tuple, towards.tolist())) == [(LEFT,) * 3, (RIGHT,) * 3]
    assert fit.converged and np.diff(fit.elbo).min() > -1e-6


@pytest.mark.slow
def test_all_traces_at_step_one_are_the_batch_step():
    data, _ = line_walks(2, num_traces=4, num_steps=10)
    data = data._replace(group=np.arange(4, dtype=np.int32))
    model = AgentMarkov(CELLS, 3, truncation=3)
    start = ConjugateSVI(model).run(jax.random.key(3), data, 1, restarts=1, progress_bar=False)
    ascent, stochastic = (
        ConjugateSVI(model).run(jax.random.key(4), data, 3, init=start, tol=0.0, progress_bar=False, **kind)
        for kind in ({}, {"batch_size": 4, "step_size": 1.0})
    )
    for name, block in ascent.posterior.blocks.items():
        other = stochastic.posterior.blocks[name]
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), block, other)


@pytest.mark.slow
def test_a_fit_goes_on_only_with_the_rows_it_has():
    """Data of equal shape in which other states occur are refused, though every block has the right shape."""
    model = AgentMarkov(2 * CELLS, 3, truncation=2)
    data, _ = line_walks(5, num_traces=2, num_steps=8)
    first = ConjugateSVI(model).run(jax.random.key(0), data, 2, restarts=1, progress_bar=False)
    moved = data._replace(states=data.states + CELLS)
    with pytest.raises(ValueError, match="init is a result of data with other states"):
        ConjugateSVI(model).run(jax.random.key(0), moved, 2, init=first, progress_bar=False)


@pytest.mark.slow
def test_rows_without_data_change_nothing_in_block_steps():
    """Carried or marginalised, they leave the same bound and the same weights; by coordinates they hold these back."""
    data, _ = line_walks(6)
    assert set(np.unique(data.states)) == set(range(CELLS))
    whole, visited = (
        ConjugateSVI(AgentMarkov(CELLS, 3, 4, rows=rows)).run(
            jax.random.key(6), data, 30, restarts=2, init="sticky", tol=0.0, progress_bar=False
        )
        for rows in ("all", "visited")
    )
    assert len(whole.posterior.blocks["transition"].mean()) > len(
        visited.posterior.blocks["transition"].mean()
    )
    # From the first step on: the start has a stay in every row that is carried.
    np.testing.assert_allclose(whole.restart_traces[:, 1:], visited.restart_traces[:, 1:], rtol=1e-9)
    np.testing.assert_allclose(
        *(fit.posterior.blocks["weights"].mean() for fit in (whole, visited)), rtol=1e-6
    )


@pytest.mark.slow
def test_starts_from_the_prior_are_possible_in_single_precision():
    """Draws of nearly nothing are no zeros, though the step to them cancels most of the prior."""
    data, _ = line_walks(7)
    with jax.enable_x64(False):
        fit = ConjugateSVI(AgentMarkov(CELLS, 3, 10, alpha=0.5)).run(
            jax.random.key(7), data, 3, restarts=20, init="prior", progress_bar=False
        )
    assert np.isfinite(fit.restart_traces).all()
