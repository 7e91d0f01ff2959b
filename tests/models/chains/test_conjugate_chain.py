"""The conjugate log normaliser: many chains, many chunks, mapped axes; enumeration itself is in test_role_hmm."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.models.chains import conjugate_chain
from ethogram.models.chains.batching import chunk_size
from ethogram.models.chains.conjugate_chain import ChainData, conjugate_log_normalizer, masked_log_likelihood
from ethogram.models.families.exponential_family import expected_statistics


def close(actual, desired, tolerance=1e-9):
    np.testing.assert_allclose(actual, desired, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def problem(cases):
    """An emission, expected statistics of two starts, and the data of six sequences."""
    case, expect = cases.make("gaussian"), jax.jit(expected_statistics)
    expected = [expect(cases.blocks(case.model, cases.start(case, seed))) for seed in range(2)]
    return (
        case.model.emission,
        jax.device_get(expected),
        jax.tree.map(np.asarray, case.model.arrange(case.data)),
    )


gradient = jax.value_and_grad(conjugate_log_normalizer, argnums=1)
one_gradient = jax.jit(gradient)


def repeated(data, times):
    return jax.tree.map(lambda x: np.concatenate([x] * times), data)


@pytest.mark.slow
def test_many_chunks_add_up(problem):
    """Of 306 sequences, more than one chunk holds and no multiple of one: 51 times the six."""
    emission, expected, data = problem
    assert 306 % chunk_size(1, 306, 6, 3) > 0
    six, many = (one_gradient(emission, expected[0], one) for one in (data, repeated(data, 51)))
    jax.tree.map(lambda x, y: close(x, 51 * y), many, six)


@pytest.mark.slow
def test_the_gradient_is_that_of_the_value(problem):
    """Central differences along a random direction; forward mode gives the same number."""
    emission, expected, data = problem
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape), expected[0])
    at = jax.jit(
        lambda size: conjugate_log_normalizer(
            emission, jax.tree.map(lambda x, d: x + size * d, expected[0], direction), data
        )
    )
    numeric = (at(1e-5) - at(-1e-5)) / 2e-5
    _, statistics = one_gradient(emission, expected[0], data)
    along = sum(jax.tree.leaves(jax.tree.map(lambda s, d: np.sum(np.asarray(s) * d), statistics, direction)))
    close(along, numeric, 1e-6)
    close(jax.jit(lambda: jax.jvp(at, (0.0,), (1.0,))[1])(), along)


@pytest.mark.slow
@pytest.mark.parametrize("few", [10, 2])
def test_restarts_of_mapped_data_sets(problem, monkeypatch, few):
    """Two data sets, each with two starts, in one program, are the four one by one, also where states are many."""
    monkeypatch.setattr(conjugate_chain, "UNROLLED_STATES", few)
    emission, expected, data = problem
    halves = [jax.tree.map(lambda x, part=part: x[part], data) for part in (slice(0, 3), slice(3, 6))]
    stack = lambda *trees: jax.tree.map(lambda *x: np.stack(x), *trees)  # noqa: E731
    over_starts = jax.vmap(gradient, in_axes=(None, 0, None))
    together = jax.jit(jax.vmap(over_starts, in_axes=(None, None, 0)))
    found = jax.device_get(together(emission, stack(*expected), stack(*halves)))
    alone = [stack(*(one_gradient(emission, start, half) for start in expected)) for half in halves]
    jax.tree.map(close, found, stack(*alone))


def test_restarts_do_not_run_both_branches(problem, primitives):
    """The one cond of the kernel stays a cond when restarts are mapped."""
    emission, expected, data = problem
    stacked = jax.tree.map(lambda *x: np.stack(x), *expected)
    plain = jax.make_jaxpr(lambda e: gradient(emission, e, data))(expected[0])
    mapped = jax.make_jaxpr(jax.vmap(lambda e: gradient(emission, e, data)))(stacked)
    counts = [primitives(one.jaxpr)["cond"] for one in (plain, mapped)]
    assert counts == [1, 1]


def test_sequences_without_length_add_nothing(problem):
    """Nor does what stands where nothing was observed."""
    emission, expected, data = problem

    def without(empty):
        return data._replace(
            lengths=np.where(empty, 0, data.lengths),
            observed=data.observed & ~empty[:, None],
            observations=np.where(empty[:, None, None], np.nan, data.observations),
        )

    rest, others = (without(empty) for empty in (np.arange(6) > 3, np.arange(6) < 4))
    zero = rest._replace(observations=np.where(rest.observed[..., None], rest.observations, 0))
    first, second = one_gradient(emission, expected[0], rest), one_gradient(emission, expected[0], zero)
    jax.tree.map(np.testing.assert_array_equal, first, second)
    first, second, whole = jax.device_get(
        [first, *(one_gradient(emission, expected[0], x) for x in (others, data))]
    )
    jax.tree.map(lambda one, other, all_of_them: close(one + other, all_of_them), first, second, whole)


def test_impossible_data_say_so(problem):
    """A label that contradicts a forbidden transition gives -inf, and no statistics but finite ones."""
    emission, expected, data = problem
    forbidden = expected[0]["transition"].concentration.copy()
    forbidden[0, 1] = -np.inf
    parts = {**expected[0], "transition": expected[0]["transition"]._replace(concentration=forbidden)}
    states = np.full(data.observed.shape, -1)
    states[0, :2] = 0, 1
    value, statistics = one_gradient(emission, parts, data._replace(states=states))
    assert float(value) == -np.inf
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(statistics))


def test_masks():
    """Zero where nothing was seen, -inf off a known state, a known state at a missing frame included."""
    each = np.arange(12.0).reshape(1, 4, 3)
    observed = np.array([[True, True, False, False]])
    states = np.array([[-1, 2, 0, -1]])
    mask = jax.jit(masked_log_likelihood)
    masked, none = np.asarray(mask(each, observed, states)), -np.inf
    np.testing.assert_array_equal(masked[0], [[0, 1, 2], [none, none, 5], [0, none, none], [0, 0, 0]])
    np.testing.assert_array_equal(np.asarray(mask(each, observed, None))[0, 1:3], [[3, 4, 5], [0, 0, 0]])


def test_ranks_are_never_promoted(problem):
    emission, expected, data = problem
    with jax.numpy_rank_promotion("raise"):
        jax.eval_shape(gradient, emission, expected[0], data)
    assert isinstance(data, ChainData)
