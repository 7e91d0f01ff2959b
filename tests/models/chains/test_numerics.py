"""What the chain kernel promises at the ends of the number range, and that neighbours change nothing."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma

from ethogram.models.chains.markov_chain import filter_states, log_normalizer, marginals, most_likely_path

NEVER = -np.inf
NUM_STEPS, NUM_STATES = 24, 3


@pytest.fixture(autouse=True)
def strict_ranks():
    with jax.numpy_rank_promotion("raise"):
        yield


close = np.testing.assert_allclose


@jax.jit
def kernel(log_initial, log_transition, log_likelihood, length=None):
    return marginals(log_initial, log_transition, log_likelihood, length)


@jax.jit
def value_and_gradient(log_initial, log_transition, log_likelihood):
    def value(*potentials):
        each = log_normalizer(*potentials)
        return jnp.sum(each), each

    gradient, each = jax.grad(value, argnums=(0, 1, 2), has_aux=True)(
        log_initial, log_transition, log_likelihood
    )
    return each, gradient


STAY = np.where(np.eye(NUM_STATES, dtype=bool), 0.0, NEVER)
RIGHT = np.eye(NUM_STATES, k=1, dtype=bool)


def hard_chains(least):
    """Chains by name on which probabilities smaller than ``exp(least)`` decide."""
    chains = {}

    def add(name, log_initial, log_transition, first=(), second=()):
        """Likelihoods of states as ``{(start, stop): value}`` beside zeros; the third state's is the first's."""
        steps = np.zeros((NUM_STEPS, NUM_STATES))
        for states, parts in (([0, 2], first), ([1], second)):
            for start, stop in parts:
                steps[start:stop, states] = parts[start, stop]
        chains[name] = np.array(log_initial, float), log_transition, steps
        return steps

    lost = [0, 1.3 * least, NEVER]
    add("lost at the start, favoured at every step", lost, STAY, first={(0, 24): least / 8})
    add("lost at the start, favoured at one step", lost, STAY, first={(17, 18): 2 * least})
    sixth = {(t, t + 1): 0.6 * least for t in range(0, 24, 6)}
    add("lost at the start, favoured at every sixth step", lost, STAY, first=sixth)
    gone = {(20, 21): 1.5 * least}
    add("lost at the start, favoured, then lost again", lost, STAY, first={(0, 9): least / 3}, second=gone)
    between = {(3, 4): 1.2 * least, (12, 13): 1.2 * least}
    add("lost between two steps", [0, 0, NEVER], STAY, first={(4, 12): 0.3 * least}, second=between)
    add("what cannot be reached fits", [NEVER, 0, NEVER], STAY, second={(0, 24): 4 * least})
    add("the only start is rare", [NEVER, -1e4, NEVER], STAY)

    rare = np.where(RIGHT, 0.7 * least, STAY)
    steps = add("left to right, two rare moves", [0, NEVER, NEVER], rare)
    steps[:8, 1:] = steps[8:, 0] = steps[16:, 1] = 3 * least
    steps = add("left to right, two rare moves in a row", [0, NEVER, NEVER], rare)
    steps[:8, 1:] = steps[8:, 0] = steps[9:, 1] = 3 * least
    add("left to right, pulled slowly", [0, NEVER, NEVER], rare)[12:, :2] = 0.4 * least
    cycle = np.where(RIGHT, -2000, NEVER)
    cycle[2, 0] = 0
    add("the only moves are rare", [0, 0, 0], cycle)
    counts = np.array([[40, 1e-4, 1e-4], [1e-4, 1e-4, 30], [1e-4, 20, 1e-4]])
    expected = digamma(counts) - digamma(counts.sum(1, keepdims=True))
    add("Dirichlet counts of 1e-4", expected[0], expected)[10:, 0] = -2000

    add("impossible at a step", [0, 0, 0], STAY)[5] = NEVER
    add("impossible by two steps", [0, 0, NEVER], STAY, first={(4, 5): NEVER}, second={(9, 10): NEVER})
    return chains


def random_hard_chains(least, number):
    """Chains whose paths gain and lose more than the number range between any two steps."""
    random = np.random.default_rng(0)
    unit = least / -87

    def draw(values, share, *shape):
        return unit * random.choice(np.array(values, float), p=share, size=(number, 1, *shape))

    log_initial = draw([0, -60, -110], [0.4, 0.3, 0.3], NUM_STATES)
    log_transition = draw([-100, NEVER, -60, -3], [0.3, 0.4, 0.2, 0.1], NUM_STATES, NUM_STATES)
    log_transition[..., np.arange(NUM_STATES), np.arange(NUM_STATES)] = 0
    log_likelihood = 15 * unit * np.round(random.normal(size=(number, 1, NUM_STEPS, NUM_STATES)), 1)
    log_likelihood[..., 2] = log_likelihood[..., 0]
    return log_initial, log_transition, log_likelihood + draw([0, -100], [0.95, 0.05], NUM_STEPS, NUM_STATES)


def with_more_states(log_initial, log_transition, log_likelihood):
    """The same chains beside nine states that nothing reaches."""
    states, rows = (0, 9), [(0, 0)] * 2
    pads = ([*rows, states], [*rows, states, states], [*rows, (0, 0), states])
    chains = (log_initial, log_transition, log_likelihood)
    return [np.pad(x, pad, constant_values=NEVER) for x, pad in zip(chains, pads, strict=True)]


@pytest.mark.parametrize(("dtype", "transitions"), [(np.float32, "fixed"), (np.float64, "driven")])
def test_the_guard_catches_every_loss(dtype, transitions, chain_oracle):
    """Fixed transitions with so many states that a matrix product is taken, driven ones with three."""
    double = dtype == np.float64
    least, tolerance = (-708, 1e-9) if double else (-87, 2e-3)
    hard = hard_chains(least)
    named = (np.stack([chain[i] for chain in hard.values()])[:, None] for i in range(3))
    chains = [np.concatenate(pair) for pair in zip(named, random_hard_chains(least, 1000), strict=True)]
    names = [*hard, *("random" for _ in range(1000))]
    truth = chain_oracle.log_space_recursion(*chains)
    with jax.enable_x64():
        if transitions == "driven":
            result = kernel(*(x.astype(dtype) for x in chains))
            value, state, pair, exact_pair = *result, truth.pair
        else:
            value, gradient = value_and_gradient(*(x.astype(dtype) for x in with_more_states(*chains)))
            state, pair, exact_pair = gradient[2][..., :3], gradient[1][..., :3, :3], truth.pair.sum(2)

    good = np.isclose(value, truth.log_normalizer, rtol=1e-12 if double else 1e-6, atol=1e-4)
    for mine, exact in ((state, truth.state), (pair, exact_pair)):
        error = np.abs(np.asarray(mine, float) - exact) / np.maximum(exact, 1)
        good &= np.max(error, axis=tuple(range(2, exact.ndim))) < tolerance
    wrong = [f"{names[r]}: {value[r, 0]}, not {truth.log_normalizer[r, 0]}" for r in np.argwhere(~good)[:, 0]]
    assert not wrong, f"{len(wrong)} wrong, the first: {wrong[:8]}"
    possible = truth.log_normalizer[: len(hard), 0] > -np.inf
    assert possible.tolist() == [not name.startswith("impossible") for name in hard]


@pytest.fixture(scope="module")
def long_chains(chain_oracle):
    """Four states with overlapping evidence: as it is, and such that scaled probabilities cannot do it."""
    random = np.random.default_rng(1)
    log_transition = np.log(random.dirichlet(np.ones(4), 4))
    log_initial, log_likelihood = np.log(random.dirichlet(np.ones(4))), 2 * random.normal(size=(5000, 4)) - 3
    lost = log_likelihood.copy()
    lost[:60, 0] -= 40
    stay = np.where(np.eye(4, dtype=bool), -0.01, -70)
    chains = {
        "plain": (log_initial, log_transition, log_likelihood),
        "lost": (np.array([0, -1e3, NEVER, NEVER]), stay, lost),
    }
    return {name: (chain, chain_oracle.log_space_recursion(*chain)) for name, chain in chains.items()}


@pytest.mark.slow
def test_a_long_chain_to_ten_digits_in_float64(long_chains):
    potentials, truth = long_chains["plain"]
    value, gradient = value_and_gradient(*potentials)
    close(value, truth.log_normalizer, rtol=1e-10)
    # Unnormalised messages of the oracle are of size 1e4, and good to 1e-12 of that.
    close(gradient[0], truth.state[0], atol=1e-8)
    close(gradient[1], truth.pair.sum(0), rtol=1e-8)
    close(gradient[2], truth.state, atol=1e-8)


@pytest.mark.slow
def test_a_long_chain_in_float32(long_chains):
    potentials, truth = long_chains["lost"]
    value, gradient = value_and_gradient(*(x.astype(np.float32) for x in potentials))
    close(value, truth.log_normalizer, rtol=1e-6)
    assert value.dtype == np.float32
    close(gradient[0], truth.state[0], atol=1e-4)
    close(gradient[1], truth.pair.sum(0), rtol=1e-3, atol=1e-3)
    close(gradient[2], truth.state, atol=1e-4)


def test_path_and_filter_of_a_long_chain_in_float32(long_chains, chain_oracle):
    potentials, truth = long_chains["lost"]
    single = [x.astype(np.float32) for x in potentials]
    filtered = filter_states(*single)
    close(filtered.log_evidence, truth.log_normalizer, rtol=1e-6)
    close(filtered.state.sum(-1), np.ones(5000), atol=1e-5)
    best = most_likely_path(*single)
    weight = chain_oracle.weights_of(np.asarray(best.path)[None], *potentials)[0]
    close((best.log_probability, weight), chain_oracle.best_weight(*potentials), rtol=1e-6)


def ragged(number=70):
    """Sequences of one easy chain, some of which only the log-space pass can do, and their lengths."""
    random = np.random.default_rng(2)
    log_initial, log_transition = np.log([0.5, 0.3, 0.2]), np.log(random.dirichlet(np.ones(3), 3))
    log_likelihood = random.normal(size=(number, NUM_STEPS, NUM_STATES))
    log_likelihood[1::10, :9] += 2000 * random.normal(size=(number // 10, 9, 3))
    log_likelihood[2::10, 3] = NEVER
    return log_initial, log_transition, log_likelihood, random.integers(1, NUM_STEPS, number)


@pytest.mark.slow
def test_batch_mates_order_and_padding_change_nothing():
    log_initial, log_transition, log_likelihood, length = ragged()
    hard = np.arange(len(length)) % 10 == 1
    order = np.random.default_rng(3).permutation(len(length))
    longer = np.pad(log_likelihood, ((0, 0), (0, 7), (0, 0)), constant_values=1e3)
    among = kernel(log_initial, log_transition, log_likelihood, length)
    tame = np.where(hard[:, None, None], 0, log_likelihood)
    among_others = kernel(log_initial, log_transition, tame, length)
    moved = kernel(log_initial, log_transition, log_likelihood[order], length[order])
    alone = [kernel(log_initial, log_transition, longer[n], length[n]) for n in range(12)]

    among, among_others, moved, alone = jax.tree.map(np.asarray, (among, among_others, moved, alone))
    same = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    for mine, tamed, elsewhere in zip(among, among_others, moved, strict=True):
        np.testing.assert_array_equal(mine[~hard], tamed[~hard])
        same(mine[order], elsewhere)
    for n, result in enumerate(alone):
        same(result.log_normalizer, among.log_normalizer[n])
        same(result.state, np.pad(among.state[n], ((0, 7), (0, 0))))
        same(result.pair, np.pad(among.pair[n], ((0, 7), (0, 0), (0, 0))))


def test_nan_inside_jit_is_handed_on_and_touches_no_batch_mate():
    """In a likelihood of one sequence, in the transitions; not where it stands beyond a length."""
    half = np.log(np.full(2, 0.5))
    transition = np.broadcast_to(half, (2, 2))
    likelihood = np.zeros((3, 4, 2))
    broken = likelihood.copy()
    broken[1, 2, 0] = np.nan

    @jax.jit
    def value_and_slope(transition, likelihood, length):
        def total(likelihood):
            each = log_normalizer(half, transition, likelihood, length)
            return jnp.sum(each), each

        slope, each = jax.grad(total, has_aux=True)(likelihood)
        return each, slope

    whole = np.array([4, 4, 4])
    good, _ = value_and_slope(transition, likelihood, whole)
    got, slope = value_and_slope(transition, broken, whole)
    assert np.isnan(got).tolist() == [False, True, False]
    np.testing.assert_array_equal(np.delete(got, 1), np.delete(good, 1))
    assert np.isnan(slope[1]).all() and np.isfinite(slope[0]).all() and np.isfinite(slope[2]).all()
    np.testing.assert_allclose(value_and_slope(transition, broken, np.array([4, 2, 4]))[0], 0, atol=1e-6)
    spoilt = np.where(np.eye(2, dtype=bool), np.nan, transition)
    got, _ = value_and_slope(spoilt, likelihood, np.array([4, 4, 1]))
    assert np.isnan(got).tolist() == [True, True, False]
