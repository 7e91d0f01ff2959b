"""Step sizes: schedules and their range."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ethogram.inference.conjugate.step_sizes import check_step_size, robbins_monro, step_size_at


def test_robbins_monro_is_its_formula():
    schedule = robbins_monro(delay=3.0, forgetting=0.6)
    steps = np.arange(50)
    np.testing.assert_allclose(step_size_at(schedule, steps), (steps + 3.0) ** -0.6, rtol=1e-15)
    assert 0 < robbins_monro()(0) <= 1


@pytest.mark.parametrize("bad", [{"delay": 0.5}, {"delay": np.nan}, {"forgetting": 0.5}, {"forgetting": 1.1}])
def test_schedules_that_do_not_converge_are_refused(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=f"{name} must"):
        robbins_monro(**bad)


def test_numbers_and_optax_schedules():
    np.testing.assert_array_equal(step_size_at(0.25, np.arange(3)), [0.25] * 3)
    schedule = optax.polynomial_schedule(init_value=1.0, end_value=0.1, power=1.0, transition_steps=10)
    steps = np.array([0, 5, 10, 30])
    np.testing.assert_allclose(step_size_at(schedule, steps), [1, 0.55, 0.1, 0.1], rtol=1e-6)
    assert step_size_at(1, np.array([], dtype=int)).shape == (0,)


def test_kinds():
    for good in (None, 1, 0.5, np.float32(0.5), jnp.float32(0.5), robbins_monro()):
        check_step_size(good)
    for bad in ("0.5", True, [0.5, 0.4], np.ones(2), 1j):
        with pytest.raises(TypeError, match="step_size must be a number in"):
            check_step_size(bad)
