"""Programs that are compiled at a level of optimisation by their work."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.quick_jit import LEVELS, has_option, quick_jit


def test_more_work_has_a_program_of_its_own_and_the_same_result():
    @quick_jit(calls=lambda x, times: int(times))
    def total(x, times):
        return jnp.sum(x**2) + 0 * times

    x, programs = np.arange(5.0, dtype=np.float32), []
    for times in (1, 2, *(most // 6 - 1 for most, _ in LEVELS), *(most // 6 + 1 for most, _ in LEVELS)):
        assert total(x, times) == 30.0
        programs.append(total._cache_size())
    assert programs == [1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("inline", [False, True])
def test_within_another_program_it_is_a_call_or_the_function_itself(inline):
    double = quick_jit(lambda x: 2 * x, inline=inline)
    program = jax.make_jaxpr(lambda x: double(x) + 1)(1.0)
    assert {each.primitive.name for each in program.eqns} == ({"mul", "add"} if inline else {"jit", "add"})
    jax.jit(lambda x: x + double(1.0))(1.0)  # of a constant, within another program, which refuses options
    assert double(3.0) == 6.0 and jax.grad(lambda x: double(x) ** 2)(3.0) == 24.0


def test_options_that_this_version_lacks_are_left_out():
    assert has_option("xla_backend_optimization_level", 0) and not has_option("xla_no_such_option", False)
