"""The potential of a chain and its derivatives against the list of all paths."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.chains.batching import chunk_size
from ethogram.models.chains.markov_chain import entropy, expected_counts, log_normalizer, marginals

DOUBLE = {"rtol": 1e-11, "atol": 1e-11}
SINGLE = {"rtol": 3e-6, "atol": 2e-5}


@pytest.fixture(autouse=True)
def strict_ranks():
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="module")
def problems(chain_oracle):
    """Sixty chains of three states and up to six steps of each kind, with what enumeration says of them."""
    kinds = {kind: chain_oracle.random_chains(0, kind == "driven") for kind in ("fixed", "driven")}
    return {kind: (chains, chain_oracle.enumerate_batch(*chains)) for kind, chains in kinds.items()}


def close(actual, desired, **tolerance):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **tolerance), actual, desired)


def beyond_length(chains, value):
    """The same chains with that value in all that varies by step, beyond the length."""
    beyond = np.arange(chains.log_likelihood.shape[2]) >= chains.length[..., None]
    chains = chains._replace(log_likelihood=np.where(beyond[..., None], value, chains.log_likelihood))
    if chains.log_transition.ndim < 5:
        return chains
    return chains._replace(log_transition=np.where(beyond[..., 1:, None, None], value, chains.log_transition))


def finite_part(value):
    """The value where data are possible, zero elsewhere: sums of it have gradients to compare."""
    return jnp.where(value > -jnp.inf, value, 0)


@jax.jit
def everything(chains, cotangent):
    """Value, gradient under the cotangent, marginals, entropy and summed counts, in one compilation."""

    def weighted(*potentials):
        value = log_normalizer(*potentials, chains.length)
        return jnp.sum(cotangent * value), value

    gradient, value = jax.grad(weighted, argnums=(0, 1, 2), has_aux=True)(*chains[:3])
    summed = expected_counts(*chains) if chains.log_transition.ndim < 5 else None
    return value, gradient, marginals(*chains), entropy(*chains), summed


@pytest.mark.parametrize("kind", ["fixed", pytest.param("driven", marks=pytest.mark.slow)])
def test_every_quantity_equals_enumeration(problems, kind):
    chains, truth = problems[kind]
    cotangent = np.random.default_rng(1).normal(size=chains.length.shape)
    padded = beyond_length(chains, np.nan)
    assert np.isneginf(truth.log_normalizer).sum() > 4, "too few impossible problems"

    value, gradient, posterior, spread, summed = everything(padded, cotangent)
    close(value, truth.log_normalizer, **DOUBLE)
    close(tuple(posterior), (truth.log_normalizer, truth.state, truth.pair), **DOUBLE)
    close(spread, truth.entropy, **DOUBLE)
    state, pair = cotangent[..., None, None] * truth.state, cotangent[..., None, None, None] * truth.pair
    counts = pair if kind == "driven" else pair.sum((1, 2))[:, None]
    close(gradient, (state[:, :, 0].sum(1, keepdims=True), counts, state), **DOUBLE)
    if summed is not None:
        close(tuple(summed), (truth.log_normalizer, truth.state, truth.pair.sum((1, 2))), **DOUBLE)


@pytest.mark.slow
def test_hessians_are_posterior_covariances(problems):
    """Reverse over reverse mode; what stands beyond the length is of no account."""
    chains, truth = problems["fixed"]
    chains = beyond_length(chains, np.nan)
    num_steps, num_states = chains.log_likelihood.shape[2:]

    def value(log_likelihood, log_initial, log_transition, length):
        return log_normalizer(log_initial[0], log_transition[0], log_likelihood, length)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, 0, 0))
    @functools.partial(jax.vmap, in_axes=(0, None, None, 0))
    def hessian(*problem):
        return jax.jacrev(jax.grad(value))(*problem)

    result = hessian(chains.log_likelihood, chains.log_initial, chains.log_transition, chains.length)
    flat = np.reshape(result, (*chains.length.shape, num_steps * num_states, -1))
    close(flat, truth.covariance, **DOUBLE)


@pytest.mark.slow
def test_higher_derivatives_are_posterior_cumulants(problems, chain_oracle):
    """Along one direction in all potentials at once."""
    chains, _ = problems["driven"]
    random = np.random.default_rng(2)
    direction = tuple(random.normal(size=x.shape) for x in chains[:3])
    weight = random.normal(size=chains.length.shape)

    @jax.jit
    def second_and_third(chains, direction, weight):
        def moved(size):
            potentials = (x + size * d for x, d in zip(chains[:3], direction, strict=True))
            return jnp.sum(weight * finite_part(log_normalizer(*potentials, chains.length)))

        def second(size):
            return jax.jvp(jax.grad(moved), (size,), (1.0,))[1]

        return jax.jvp(second, (0.0,), (1.0,))

    derivatives = second_and_third(chains, direction, weight)
    expected = np.zeros(2)
    for r, n in np.ndindex(chains.length.shape):
        place = ((r, 0), (r, n), (r, n), (r, n))
        chain = [x[i] for x, i in zip(chains, place, strict=True)]
        along = [x[i] for x, i in zip(direction, place[:3], strict=True)]
        moments = [chain_oracle.central_moment(chain, along, order) for order in (2, 3)]
        expected += weight[r, n] * np.array(moments)
    close(np.array(derivatives), expected, rtol=1e-9)


def test_one_step_under_vmap_has_no_pairs(problems):
    steps = np.random.default_rng(3).normal(size=(2, 4, 1, 3))
    found = jax.jit(jax.vmap(functools.partial(marginals, np.zeros(3), np.zeros((3, 3)))))(steps)
    weight = np.exp(steps)
    close(found.state, weight / weight.sum(-1, keepdims=True), **SINGLE)
    assert found.pair.shape == (2, 4, 0, 3, 3)


def summed(log_initial, log_transition, log_likelihood, length=None):
    return finite_part(log_normalizer(log_initial, log_transition, log_likelihood, length)).sum()


gradient = jax.value_and_grad(summed, argnums=(0, 1, 2))


def test_gradients_under_nested_vmap(problems, chain_oracle):
    chains, _ = problems["fixed"]
    initial, transition = chains.log_initial[:, 0], chains.log_transition[:, 0]
    likelihood, length = chains.log_likelihood, chains.length
    split = (x.reshape(2, 5, *x.shape[1:]) for x in (initial, transition, likelihood, length))
    result = jax.device_get(jax.jit(jax.vmap(jax.vmap(gradient)))(*split))
    result = jax.tree.map(lambda x: x.reshape(10, *x.shape[2:]), result)
    truth = chain_oracle.enumerate_batch(initial[:, None], transition[:, None], likelihood, length)
    value = np.where(np.isfinite(truth.log_normalizer), truth.log_normalizer, 0).sum(1)
    expected = (truth.state[:, :, 0].sum(1), truth.pair.sum((1, 2)), truth.state)
    close(result, (value, expected), **DOUBLE)


def test_vmap_leaves_one_cond_and_no_select_over_its_branches(primitives):
    shapes = [(3,), (3, 3), (6, 7, 3)]

    def counted(function, *lead):
        jaxpr = jax.make_jaxpr(function)(*(np.zeros((*a, *b)) for a, b in zip(lead, shapes, strict=True)))
        total = primitives(jaxpr.jaxpr)
        return {name: total[name] for name in ("cond", "select_n", "scan", "exp")}

    plain = counted(gradient, (), (), ())
    assert plain["cond"] == 1
    assert counted(jax.vmap(gradient, in_axes=(0, 0, None)), (4,), (4,), ()) == plain
    assert counted(jax.vmap(gradient, in_axes=(None, None, 0)), (), (), (4,)) == plain
    assert counted(jax.vmap(jax.vmap(gradient, in_axes=(0, 0, None))), (2, 4), (2, 4), (2,)) == plain


def test_counts_are_the_summed_pairs_and_can_be_mapped(chain_oracle):
    """Twelve states take the matrix product; one sequence is impossible, one lost to scaling, one empty.

    The last of many chunks overlaps the one before.
    """
    num_sequences = 231
    assert num_sequences % chunk_size(2, num_sequences, 9, 12) > 0
    random = np.random.default_rng(7)
    log_pi, log_a = (np.log(random.dirichlet(np.ones(12), size)) for size in (2, (2, 12)))
    log_lik = random.normal(size=(num_sequences, 9, 12))
    log_lik[1, 3] = -np.inf
    log_lik[2, 4, 1:] = -900.0
    log_a[:, 0, :] = np.where(np.arange(12) == 0, -1e3, log_a[:, 0, :])
    length = np.where(np.arange(num_sequences) == 3, 0, 9)
    counted = jax.jit(jax.vmap(expected_counts, in_axes=(0, 0, None, None)))
    summed = jax.device_get(counted(log_pi, log_a, log_lik, length))
    seen = length > 0
    for one in range(2):
        truth = chain_oracle.log_space_recursion(log_pi[one], log_a[one], log_lik)
        close(summed.log_normalizer[one], np.where(seen, truth.log_normalizer, 0), **DOUBLE)
        close(summed.state[one], np.where(seen[:, None, None], truth.state, 0), **DOUBLE)
        close(summed.transition[one], truth.pair[seen].sum((0, 1)), **DOUBLE)


def test_counts_can_be_differentiated():
    """Of three sequences, one of them empty, along a direction."""
    random = np.random.default_rng(7)
    log_pi, log_a, direction, weight = (random.normal(size=size) for size in (3, (3, 3), (3, 3), (3, 3)))
    log_lik, length = random.normal(size=(3, 5, 3)), np.array([5, 0, 4])

    @jax.jit
    def weighted(log_a):
        total = lambda log_a: jnp.sum(weight * expected_counts(log_pi, log_a, log_lik, length).transition)  # noqa: E731
        return jax.jvp(total, (log_a,), (direction,))

    step = 1e-5 * direction
    numeric = (weighted(log_a + step)[0] - weighted(log_a - step)[0]) / 2e-5
    close(weighted(log_a)[1], numeric, rtol=1e-6)


def test_counts_want_one_matrix():
    with pytest.raises(ValueError, match=r"log_transition .* changes along the chain.*marginals\(\)"):
        expected_counts(np.zeros(2), np.zeros((4, 2, 2)), np.zeros((5, 2)))


@pytest.mark.parametrize("function", [pytest.param(entropy, marks=pytest.mark.slow), expected_counts])
def test_a_second_call_outside_jit_compiles_nothing(function, compilations):
    random = np.random.default_rng(4)

    def call():
        return function(random.normal(size=2), random.normal(size=(2, 2)), random.normal(size=(3, 5, 2)))

    call()
    compilations.clear()
    call()
    assert compilations == []


BATCHES = {
    "parameters along two axes": ((1, 5), (4, 1), (1, 1), (4, 5)),
    "driven": ((5,), "driven", (4, 5), (4, 1)),
}


@pytest.mark.parametrize("lead", BATCHES.values(), ids=BATCHES)
def test_batch_axes_broadcast(lead, chain_oracle, compilations):
    whole, given = chain_oracle.broadcast_chains(6, (4, 5), *lead)
    result = jax.device_get(marginals(*given))
    compilations.clear()
    marginals(*given)
    assert compilations == [], "a second call of one shape compiles nothing"
    assert result.log_normalizer.shape == (4, 5)
    for place in np.ndindex(4, 5):
        truth = chain_oracle.enumerate_chain(*(x[place] for x in whole))
        close(tuple(x[place] for x in result), (truth.log_normalizer, truth.state, truth.pair), **DOUBLE)
