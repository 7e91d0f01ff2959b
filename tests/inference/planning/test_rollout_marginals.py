"""Values of forward marginals: hand arithmetic, exact expectations where fluents are independent, and gradients."""

import itertools

import jax
import numpy as np

from ethogram.domains.sysadmin import sysadmin
from ethogram.inference.planning import rollout
from ethogram.models.planning import ExpressionGraph, compile_program


def program(nexts, reward, end=None):
    """Three fluents and three actions; each argument is a function of the graph, the fluents and the actions."""
    graph = ExpressionGraph()
    names = ("x1", "x2", "x3"), ("a1", "a2", "a3")
    x, a = ([graph.input(name) for name in group] for group in names)
    made = [f(graph, x, a) for f in nexts]
    stop = graph.constant(0.0) if end is None else end(graph, x, a)
    return compile_program(graph, *names, made, reward(graph, x, a), stop)


def test_two_steps_by_hand():
    """x1' = .9 if a1 else .1 x1; x2' = x1 and (a2 or x2); x3' = not x3; reward x1 x2 + 2 x3 - .5 a3."""
    made = program(
        [
            lambda g, x, a: g.choose(a[0], g.constant(0.9), g.add([(0.1, x[0])])),
            lambda g, x, a: g.every((x[0], g.some((a[1], x[1])))),
            lambda g, x, a: g.complement(x[2]),
        ],
        lambda g, x, a: g.add([(1.0, g.every(x[:2])), (2.0, x[2]), (-0.5, a[2])]),
    )
    actions = np.array([[0.25, 0.5, 1.0], [0.0, 0.25, 0.5]])[..., None]
    first = 1.0 * 0.2 + 2 * 0.5 - 0.5
    x1 = 0.25 * 0.9 + 0.75 * 0.1 * 1.0
    x2 = 1.0 * (1 - 0.5 * (1 - 0.2))
    second = x1 * x2 + 2 * 0.5 - 0.25
    state = np.array([1.0, 0.2, 0.5])
    found = rollout(made, state, actions, discount=0.9)
    np.testing.assert_allclose(found, [first + 0.9 * second], atol=1e-12)
    np.testing.assert_allclose(rollout(made, state, actions, steps_left=1), [first], atol=1e-12)


def test_the_value_is_exact_where_fluents_are_independent():
    """Each fluent has its own action and no other parent, and the reward is a sum."""
    made = program(
        [
            lambda g, x, a, i=i: g.choose(a[i], g.constant(0.8), g.add([(0.6, x[i])], 0.1 * i))
            for i in range(3)
        ],
        lambda g, x, a: g.add([(1.0, x[0]), (-2.0, x[1]), (0.5, x[2]), (-0.3, a[1])]),
    )
    rng = np.random.default_rng(3)
    actions = rng.integers(0, 2, (3, 3)).astype(float)
    start = np.array([1.0, 0.0, 1.0])
    chances = {tuple(start): 1.0}
    total = 0.0
    for action in actions:
        following = {}
        for state, chance in chances.items():
            nexts, reward, _ = made.expectations(np.array(state)[:, None], action[:, None])
            total += chance * float(reward[0])
            for world in itertools.product((0.0, 1.0), repeat=3):
                p = np.where(world, nexts[:, 0], 1 - nexts[:, 0]).prod()
                following[world] = following.get(world, 0.0) + chance * p
        chances = following
    found = rollout(made, start, actions[..., None])
    np.testing.assert_allclose(found, [total], atol=1e-12)


def test_rewards_after_the_end_do_not_count():
    made = program(
        [lambda g, x, a, i=i: x[i] for i in range(3)],
        lambda g, x, a: g.constant(1.0),
        lambda g, x, a: g.add([(0.5, x[0])]),
    )
    found = rollout(made, np.array([1.0, 0.0, 0.0]), np.zeros((4, 3, 1)))
    np.testing.assert_allclose(found, [1 + 0.5 + 0.25 + 0.125], atol=1e-12)


def test_gradients_are_those_of_finite_differences():
    problem = sysadmin(5)
    rng = np.random.default_rng(0)
    actions, direction, state = rng.random((4, 5, 2)), rng.normal(size=(4, 5, 2)), rng.random(5)

    def value(actions, state):
        return rollout(problem.program, state, actions, discount=0.9).sum()

    both = jax.jit(jax.value_and_grad(value, (0, 1)))
    by_action, by_state = map(np.asarray, both(actions, state)[1])
    h = 1e-6
    (up, _), (down, _) = both(actions + h * direction, state), both(actions - h * direction, state)
    np.testing.assert_allclose(np.vdot(by_action, direction), (up - down) / (2 * h), rtol=1e-7)
    (up, _), (down, _) = both(actions, state + h), both(actions, state - h)
    np.testing.assert_allclose(by_state.sum(), (up - down) / (2 * h), rtol=1e-7)
