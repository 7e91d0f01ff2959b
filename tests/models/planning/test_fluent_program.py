"""Derivatives of a planning program, against finite differences; counts of rows."""

import jax
import jax.numpy as jnp
import numpy as np

from ethogram.models.planning import ExpressionGraph, compile_program
from ethogram.models.planning.fluent_program import step


def example():
    """A program with every kind of row: products of many, a long sum, and each function."""
    graph = ExpressionGraph()
    fluents, actions = tuple(f"s{i}" for i in range(6)), ("a0", "a1")
    s, a = [graph.input(name) for name in fluents], [graph.input(name) for name in actions]
    nexts = [
        graph.some(s[:4]),
        graph.every([*s, a[0]]),
        graph.apply("exp", graph.add([(-1.0, s[0]), (0.5, a[1])], 0.2)),
        graph.apply("reciprocal", graph.add([(1.0, s[1]), (2.0, a[0])], 1.5)),
        graph.apply("log", graph.add([(1.0, s[2])], 2.0)),
        graph.apply("sqrt", graph.add([(1.0, graph.multiply((s[3], s[3]))), (1.0, a[1])], 0.5)),
    ]
    pairs = [graph.multiply((x, y)) for x in s for y in [*s, *a]]
    reward = graph.add([(0.1 * i - 2, pair) for i, pair in enumerate(pairs)], 0.3)
    return compile_program(graph, fluents, actions, nexts, reward, graph.multiply((s[0], a[0])))


def test_derivatives_by_state_and_action_are_those_of_finite_differences():
    program, rng = example(), np.random.default_rng(0)
    state, action, weights = rng.random((6, 3)), rng.random((2, 3)), rng.normal(size=(6, 3))

    def total(state, action):
        following, reward, end = step(program, state, action)
        return (weights * following).sum() + (reward * jnp.arange(1.0, 4.0)).sum() + jnp.sin(end).sum()

    both = jax.jit(jax.value_and_grad(total, (0, 1)))
    slopes = both(state, action)[1]
    h = 1e-5
    for _ in range(3):
        moves = rng.normal(size=(6, 3)), rng.normal(size=(2, 3))
        up, down = (both(state + t * moves[0], action + t * moves[1])[0] for t in (h, -h))
        along = sum(np.vdot(slope, move) for slope, move in zip(slopes, moves, strict=True))
        np.testing.assert_allclose(along, (up - down) / (2 * h), rtol=1e-6)


def test_restarts_do_not_touch_each_other_and_vmap_is_more_restarts():
    """One at a time on the host, where nothing is compiled, against four side by side, and twice two by vmap."""
    program, rng = example(), np.random.default_rng(1)
    state, action = rng.random((6, 4)), rng.random((2, 4))
    alone = [program.expectations(state[:, [i]], action[:, [i]]) for i in range(4)]
    wanted = [np.concatenate(each, -1) for each in zip(*alone, strict=True)]
    together = jax.jit(jax.vmap(lambda s, a: step(program, s, a), (1, 1), (1, 0, 0)))(
        state.reshape(6, 2, 2), action.reshape(2, 2, 2)
    )
    for found, each in zip(together, wanted, strict=True):
        np.testing.assert_allclose(np.reshape(found, each.shape), each, rtol=1e-13)
