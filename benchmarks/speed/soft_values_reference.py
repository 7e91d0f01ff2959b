"""Reference solvers: value iteration and state visitation in NumPy over a sparse matrix.

An MDP is a matrix of probabilities (state * action, state). Sweeps stop when no value changes by more than a tolerance.
Errors are relative to Newton's method with sparse factors; optimal (not soft) values are quantecon's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

__all__ = [
    "QUANTECON",
    "Problem",
    "draw_problem",
    "exact",
    "iterate_values",
    "iterate_visits",
    "log_likelihood",
    "quantecon_solver",
    "rounded",
]

QUANTECON = ("policy_iteration", "modified_policy_iteration", "value_iteration")

MOVES = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0))
INCREMENTS = (0.3919, 0.5953, 0.0128)
"""Shares of months in which Rust's buses of group 4 moved on by 0, 1 and 2 bins."""


class Problem(NamedTuple):
    """An MDP, its reward, and counted decisions.

    Attributes
    ----------
    successors, chances : (state, action, slot).
    matrix, arriving : probabilities (state * action, state), and their transpose.
    reward, counts : (state, action).
    """

    successors: np.ndarray
    chances: np.ndarray
    matrix: Any
    arriving: Any
    reward: np.ndarray
    counts: np.ndarray
    discount: float


def draw_problem(seed: int, num_states: int, discount: float) -> Problem:
    """A square grid with objects of positive or negative reward nearby; 90 states are Rust's bus engine.

    The five moves of the square succeed in seven of ten cases, else one of the others comes about. Objects of two
    colours lie in one place of twenty; the reward is 5 near both colours, -10 near the first alone. Every action has a
    little reward of its own: of equal actions, quantecon's policy iteration takes one and the other in turns, for ever.
    """
    random = np.random.default_rng(seed)
    state = np.arange(num_states)
    if num_states == 90:
        chances = np.broadcast_to(INCREMENTS, (90, 2, 3))
        successors = np.minimum(np.stack([state, 0 * state], 1)[..., None] + np.arange(3), 89)
        reward = np.stack([-0.002293 * state, np.full(90, -10.075)], axis=1)
    else:
        size = round(num_states**0.5)
        y, x = np.divmod(state, size)
        after = [np.clip(y + b, 0, size - 1) * size + np.clip(x + a, 0, size - 1) for a, b in MOVES]
        successors = np.repeat(np.stack(after, axis=1)[:, None], 5, axis=1)
        chances = np.broadcast_to(np.where(np.eye(5), 0.7, 0.075), successors.shape)
        colour = np.where(random.random(num_states) < 0.05, random.integers(1, 3, num_states), 0)
        near = []
        for one in (1, 2):
            from_y, from_x = y[colour == one], x[colour == one]
            distance = np.hypot(y[:, None] - from_y, x[:, None] - from_x)
            near.append(distance.min(axis=1, initial=np.inf) < 4 - one)
        state_reward = np.where(near[0], np.where(near[1], 5.0, -10.0), 0.0)
        reward = state_reward[:, None] + 0.01 * random.normal(size=(num_states, 5))
    counts = random.poisson(1.0, successors.shape[:2]).astype(float)
    return _problem(successors, chances, reward, counts, discount)


def rounded(problem: Problem, dtype: str) -> Problem:
    """The problem that is left of it in a precision; rows sum to one still."""
    chances = problem.chances.astype(dtype).astype(float)
    chances = chances / chances.sum(axis=-1, keepdims=True)
    reward, discount = (
        problem.reward.astype(dtype).astype(float),
        float(np.dtype(dtype).type(problem.discount)),
    )
    return _problem(problem.successors, chances, reward, problem.counts, discount)


def _problem(
    successors: np.ndarray, chances: np.ndarray, reward: np.ndarray, counts: np.ndarray, discount: float
) -> Problem:
    shape = successors.shape
    row = np.repeat(np.arange(shape[0] * shape[1]), shape[2])
    table = sparse.coo_array((chances.ravel(), (row, successors.ravel())), (shape[0] * shape[1], shape[0]))
    matrix = table.tocsr()
    return Problem(successors, chances, matrix, matrix.T.tocsr(), reward, counts, discount)


def iterate_values(problem: Problem, reward: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Soft values (state,) and policy (state, action) by value iteration from zero, and the number of sweeps."""
    values = np.zeros(len(reward))
    sweeps, change = 0, np.inf
    while change > tol:
        q = reward + problem.discount * (problem.matrix @ values).reshape(reward.shape)
        top = q.max(axis=1)
        weights = np.exp(q - top[:, None])
        total = weights.sum(axis=1)
        before, values = values, top + np.log(total)
        sweeps, change = sweeps + 1, np.abs(values - before).max()
    return values, weights / total[:, None], sweeps


def iterate_visits(problem: Problem, policy: np.ndarray, entering: np.ndarray, tol: float) -> np.ndarray:
    """Discounted visits (state,) of a policy after what enters, which may be negative."""
    visits = entering
    while True:
        moved = problem.arriving @ (policy * visits[:, None]).ravel()
        before, visits = visits, entering + problem.discount * moved
        if np.abs(visits - before).max() <= tol:
            return visits


def log_likelihood(problem: Problem, reward: np.ndarray, tol: float) -> tuple[float, np.ndarray]:
    """Log likelihood of the counts, and its gradient (state, action), by sweeps to both."""
    values, policy, _ = iterate_values(problem, reward, tol)
    q = reward + problem.discount * (problem.matrix @ values).reshape(reward.shape)
    entering = _entering(problem)
    gradient = problem.counts - policy * iterate_visits(problem, policy, entering, tol)[:, None]
    return float(np.sum(problem.counts * (q - values[:, None]))), gradient


def _entering(problem: Problem) -> np.ndarray:
    """What the values of each state are counted with: decisions there, less what decisions lead there."""
    led = problem.arriving @ problem.counts.ravel()
    return problem.counts.sum(axis=1) - problem.discount * led


def exact(problem: Problem, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and the gradient of the log likelihood by Newton's method, to rounding."""
    count, num_actions = reward.shape
    values = np.full(count, (reward.mean() + np.log(num_actions)) / (1 - problem.discount))
    one = sparse.eye_array(count, format="csc")
    for _ in range(100):
        q = reward + problem.discount * (problem.matrix @ values).reshape(reward.shape)
        top = q.max(axis=1)
        weights = np.exp(q - top[:, None])
        total = weights.sum(axis=1)
        policy = weights / total[:, None]
        chosen = sparse.coo_array(
            (policy.ravel(), (np.repeat(np.arange(count), num_actions), np.arange(policy.size)))
        )
        system = (one - problem.discount * (chosen.tocsr() @ problem.matrix)).tocsc()
        step = spsolve(system, top + np.log(total) - values)
        values = values + step
        if np.abs(step).max() <= 1e-13 * np.abs(values).max():
            break
    visits = spsolve(system.T.tocsc(), _entering(problem))
    return values, problem.counts - policy * visits[:, None]


def quantecon_solver(problem: Problem, method: str, residual: float) -> Callable[[], Any]:
    """A solver of the same world for the hard maximum, to the same residual."""
    from quantecon.markov import DiscreteDP

    count, num_actions = problem.reward.shape
    state, action = np.divmod(np.arange(count * num_actions), num_actions)
    matrix = sparse.csr_matrix(problem.matrix)
    world = DiscreteDP(problem.reward.ravel(), matrix, problem.discount, state, action)
    # Its tolerance is twice the error of the values.
    epsilon = 2 * residual * problem.discount / (1 - problem.discount)
    return lambda: world.solve(method=method, epsilon=epsilon, max_iter=10_000_000).v
