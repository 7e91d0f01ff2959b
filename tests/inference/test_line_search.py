"""The authors' line search, against a plain rewriting of its rule in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.inference.line_search import line_search


def by_hand(value, gradient, position, rounds):
    """One copy, step by step as the authors' program."""
    top = position.max() + 1
    room = [
        (top - q) / g if g > 0 else (q + 1) / -g for q, g in zip(position, gradient, strict=True) if g != 0
    ]
    largest, best, best_value = min(room), 0.0, -np.inf
    for _ in range(rounds):
        tried = [largest * j / 10 for j in range(1, 11)]
        values = [value(np.clip(position + a * gradient, 0, 1)) for a in tried]
        at = int(np.argmax(values))
        if values[at] > best_value:
            best, best_value = tried[at], values[at]
        if best != tried[0]:
            break
        largest /= 10
    return np.clip(position + best * gradient, 0, 1)


@pytest.mark.parametrize("rounds", [1, 6])
def test_each_copy_takes_the_step_of_the_rule(rounds):
    rng = np.random.default_rng(0)
    centre, position = rng.random((3, 1)), rng.random((3, 5))
    scale = np.array([1e-3, 1.0, 30.0])[:, None]

    def value(q):
        return -(scale * (q - centre[..., : q.shape[-1]]) ** 2).sum(0)

    gradient = -2 * scale * (position - centre)

    @jax.jit
    def search(gradient, position):
        return line_search(value, gradient, position, lambda q: jnp.clip(q, 0, 1), rounds=rounds)

    found = np.asarray(search(gradient, position))
    for copy in range(5):
        unit = gradient[:, copy] / np.abs(gradient[:, copy]).max()
        wanted = by_hand(lambda q: float(value(q[:, None])[0]), unit, position[:, copy], rounds)
        np.testing.assert_allclose(found[:, copy], wanted, atol=1e-12)


def test_without_a_gradient_nothing_moves():
    position = np.full((2, 3), 0.4)
    found = jax.jit(lambda *at: line_search(lambda q: q.sum(0), *at, lambda q: q))(np.zeros((2, 3)), position)
    np.testing.assert_array_equal(found, position)
