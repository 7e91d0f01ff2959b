"""HiddenMarkov against enumeration, numpyro's own enumeration, and its own draws."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import stats

from ethogram.models.chains.hidden_markov import HiddenMarkov
from ethogram.models.chains.log_space import safe_log

NAN = float("nan")
INITIAL = np.array([0.2, 0.5, 0.3])
TRANSITION = np.array([[0.7, 0.2, 0.1], [0.0, 0.6, 0.4], [0.3, 0.3, 0.4]])
MEAN, SPREAD = np.array([-1.0, 0.5, 2.0]), np.array([0.7, 1.0, 1.5])
LENGTHS = np.array([5, 3, 5, 0, 1])
FAIR = np.array([2 / 3, 1 / 3])  # stationary under LAZY
LAZY = np.array([[0.9, 0.1], [0.2, 0.8]])
CODES = np.array([[0.8, 0.2], [0.3, 0.7]])


def close(actual, desired, rtol=1e-10, atol=1e-10):
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol)


def ragged():
    """Values with NaN wherever nothing is to be looked at, and which frames were seen."""
    y = np.random.default_rng(0).normal(size=(5, 5))
    observed = np.arange(5) < LENGTHS[:, None]
    observed[0, 2] = observed[2, 0] = False
    return np.where(observed, y, NAN), observed


def chain(states=None, emission=None):
    _, observed = ragged()
    emission = dist.Normal(MEAN, SPREAD, validate_args=False) if emission is None else emission
    return HiddenMarkov(INITIAL, TRANSITION, emission, LENGTHS, observed, states, validate_args=False)


def enumerated(chain_oracle, states=None):
    """What all paths of each sequence add up to."""
    y, observed = ragged()
    steps = np.where(observed[..., None], stats.norm.logpdf(np.nan_to_num(y)[..., None], MEAN, SPREAD), 0)
    if states is not None:
        steps[(states[..., None] >= 0) & (states[..., None] != np.arange(3))] = -np.inf
    with np.errstate(divide="ignore"):
        log_initial, log_transition = np.log(INITIAL), np.log(TRANSITION)
    return [
        chain_oracle.enumerate_chain(log_initial, log_transition, one, length)
        for one, length in zip(steps, LENGTHS, strict=True)
    ]


@jax.jit
def everything(hidden, y):
    """Log probability, its gradient, and every decoding, in one compilation."""

    def total(initial, transition, mean):
        emission = dist.Normal(mean, hidden.emission.scale)
        moved = HiddenMarkov(initial, transition, emission, hidden.lengths, hidden.observed, hidden.states)
        value = moved.log_prob(y)
        return jnp.sum(value), value

    slopes = jax.grad(total, (0, 1, 2), has_aux=True)
    gradient, value = slopes(hidden.initial, hidden.transition, hidden.emission.loc)
    return value, gradient, hidden.filter(y), hidden.smooth(y), hidden.most_likely_path(y)


@pytest.mark.slow
def test_log_prob_and_decoding_equal_enumeration(chain_oracle):
    """NaN at missing frames and in padding harms neither values nor gradients."""
    y, _ = ragged()
    truth = enumerated(chain_oracle)
    value, gradient, filtered, smooth, path = everything(chain(), y)
    close(value, [one.log_normalizer for one in truth])
    assert value[3] == 0
    close(smooth.state, np.stack([one.state for one in truth]))
    close(smooth.pair, np.stack([one.pair for one in truth]))
    assert np.array_equal(path.path, np.stack([one.best_path for one in truth]))
    close(path.log_probability, [one.best_weight for one in truth])
    close(filtered.log_increment.sum(-1), value)
    last = LENGTHS - 1
    close(filtered.state[[0, 1, 2, 4], last[[0, 1, 2, 4]]], [truth[s].state[last[s]] for s in (0, 1, 2, 4)])
    initial, transition, mean = gradient
    close(initial, sum(one.state[0] for one in truth if one.state.any()) / INITIAL)
    counts = sum(one.pair.sum(0) for one in truth)
    positive = TRANSITION > 0
    close(np.asarray(transition)[positive], counts[positive] / TRANSITION[positive])
    assert np.isfinite(transition).all()
    y, observed = ragged()
    weight = np.stack([one.state for one in truth])[observed]
    close(mean, (weight * (y[observed][:, None] - MEAN) / SPREAD**2).sum(0))


def test_known_states_restrict_the_paths(chain_oracle):
    """The joint log probability of what was seen and what is known; impossible labels have none."""
    y, _ = ragged()
    states = np.full((5, 5), -1)
    states[0, :3], states[1, 1], states[2, 2:4] = [1, 2, 0], 2, [1, 0]
    truth = enumerated(chain_oracle, states)
    value, gradient, _, smooth, _ = everything(chain(states), y)
    assert truth[2].log_normalizer == -np.inf
    close(value, [one.log_normalizer for one in truth])
    close(smooth.state, np.stack([one.state for one in truth]))
    assert all(np.isfinite(part).all() for part in gradient)


def coin(initial=FAIR, **options):
    emission = dist.CategoricalProbs(CODES, validate_args=False)
    return HiddenMarkov(initial, LAZY, emission, validate_args=False, **options)


def test_draws_have_their_exact_frequencies():
    """Of all eight observation sequences of three steps; chi-square at p > 1e-3."""
    hidden = coin(np.array([0.1, 0.9]), num_steps=3)
    every = np.array(list(itertools.product(range(2), repeat=3)))
    logs, draws = jax.jit(lambda key: (hidden.log_prob(every), hidden.sample(key, (20_000,))))(
        jax.random.key(0)
    )
    expected = np.exp(logs)
    close(expected.sum(), 1.0, 1e-5)
    counts = np.bincount(np.asarray(draws) @ [4, 2, 1], minlength=8)
    assert stats.chisquare(counts, 20_000 * expected / expected.sum()).pvalue > 1e-3


def test_a_stationary_chain_stays_stationary():
    """Share of each state at each of 30 steps of 4000 sequences, within 4.5 standard errors; none beyond."""
    lengths = np.full(4000, 30)
    lengths[0] = 7
    hidden = coin(lengths=jnp.asarray(lengths), num_steps=30)
    y, states = jax.jit(lambda key: hidden.sample_with_states(key))(jax.random.key(3))
    states, y = np.asarray(states), np.asarray(y)
    assert (states[0, 7:] == -1).all()
    assert (y[0, 7:] == 0).all()
    share = (states[1:] == 1).mean(0)
    assert (np.abs(share - 1 / 3) < 4.5 * np.sqrt(2 / 9 / 3999)).all()
    moves = np.zeros((2, 2))
    np.add.at(moves, (states[1:, :-1], states[1:, 1:]), 1)
    error = np.sqrt(LAZY * (1 - LAZY) / moves.sum(1, keepdims=True))
    assert (np.abs(moves / moves.sum(1, keepdims=True) - LAZY) < 4.5 * error).all()


def test_posterior_paths_have_their_exact_frequencies(chain_oracle):
    """Of all eight paths given three symbols; chi-square at p > 1e-3."""
    y = np.array([0, 1, 1])
    hidden = coin(num_steps=3)
    draws = jax.jit(lambda key: hidden.sample_path(key, jnp.broadcast_to(y, (20_000, 3))).path)(
        jax.random.key(4)
    )
    paths = np.array(list(itertools.product(range(2), repeat=3)))
    weight = chain_oracle.weights_of(paths, np.log(FAIR), np.log(LAZY), np.log(CODES[:, y].T))
    counts = np.bincount(np.asarray(draws) @ [4, 2, 1], minlength=8)
    share = np.exp(weight) / np.exp(weight).sum()
    assert stats.chisquare(counts, 20_000 * share).pvalue > 1e-3


def test_forecasts_go_on_from_each_length():
    """Exact state probabilities, and symbols drawn from them (4.5 standard errors of 5000 sequences)."""
    y = np.broadcast_to([0, 1, 1, 0], (5000, 4))
    lengths = np.where(np.arange(5000) % 2, 2, 4)
    hidden = coin(lengths=jnp.asarray(lengths), num_steps=4)
    state, symbols = jax.device_get(jax.jit(lambda key: tuple(hidden.forecast(key, y, 3)))(jax.random.key(5)))
    assert state.shape == (5000, 3, 2)
    assert symbols.shape == (5000, 3)
    for parity, length in ((0, 4), (1, 2)):
        alpha = FAIR * CODES[:, 0]
        for symbol in y[0, 1:length]:
            alpha = (alpha @ LAZY) * CODES[:, symbol]
        now = alpha / alpha.sum()
        for ahead in range(3):
            now = now @ LAZY
            close(state[parity, ahead], now, 1e-5, 1e-5)
            share, one = np.asarray(symbols)[parity::2, ahead].mean(), (now @ CODES)[1]
            assert abs(share - one) < 4.5 * np.sqrt(one * (1 - one) / 2500)


@pytest.mark.slow
def test_batches_plates_vmap_and_pytrees():
    """One batch entry per sequence; draws of parameters by vmap; the object travels through jit."""
    y = np.random.default_rng(2).integers(0, 2, (4, 6))
    hidden = coin(lengths=jnp.array([6, 4, 2, 6]), num_steps=6)
    assert hidden.batch_shape == (4,)
    assert hidden.event_shape == (6,)

    def model():
        with numpyro.plate("sequence", 4):
            return numpyro.sample("y", hidden, obs=y)

    def masked():
        with numpyro.plate("sequence", 4), numpyro.handlers.mask(mask=np.array([True, False, True, True])):
            numpyro.sample("y", hidden, obs=y)

    @jax.jit
    def everything(one, initials):
        def at(initial):
            return HiddenMarkov(initial, LAZY, one.emission, one.lengths, num_steps=6).log_prob(y)

        totals = (log_density(each, (), {}, {})[0] for each in (model, masked))
        return one.log_prob(y), jax.vmap(at)(initials), at(initials[1]), *totals

    value, mapped, alone, total, part = everything(hidden, np.array([FAIR, [0.5, 0.5]]))
    close(mapped, [value, alone], 1e-6)
    close(total, value.sum(), 1e-6)
    close(part, value.sum() - value[1], 1e-6)


def test_shapes_of_every_method(event=(2,)):
    """Batch axes (2, 3) of values, with features."""
    emission = dist.Normal(np.zeros((3, *event)), 1.0, validate_args=False).to_event(len(event))
    hidden = HiddenMarkov(INITIAL, TRANSITION, emission, num_steps=4, validate_args=False)

    @jax.jit
    def shapes(key):
        y = hidden.sample(key, (2, 3))
        states = hidden.sample_with_states(key, (2, 3))[1]
        return y, states, hidden.log_prob(y), hidden.filter(y), hidden.smooth(y), hidden.most_likely_path(y), (
            hidden.sample_path(key, y), hidden.forecast(key, y, 5)
        )  # fmt: skip

    y, states, value, filtered, smooth, best, (drawn, ahead) = jax.eval_shape(shapes, jax.random.key(0))
    assert y.shape == (2, 3, 4, *event)
    assert states.shape == best.path.shape == drawn.path.shape == (2, 3, 4)
    assert value.shape == best.log_probability.shape == (2, 3)
    assert filtered.state.shape == smooth.state.shape == (2, 3, 4, 3)
    assert smooth.pair.shape == (2, 3, 3, 3, 3)
    assert ahead.state.shape == (2, 3, 5, 3)
    assert ahead.observations.shape == (2, 3, 5, *event)


def test_log_of_zero():
    """Exactly -inf, with gradient zero."""
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(safe_log)))(np.array([0.0, 0.5]))
    close(value, [-np.inf, np.log(0.5)], 1e-6)
    close(gradient, [0.0, 2.0])


BAD = {
    "transition of another size": (lambda: HiddenMarkov(FAIR, TRANSITION, dist.Normal(np.zeros(2), 1.0), num_steps=3),
                                   r"transition has shape \(3, 3\), but initial has 2 states"),
    "emission of another size": (lambda: HiddenMarkov(FAIR, LAZY, dist.Normal(np.zeros(3), 1.0), num_steps=3),
                                 r"emission has batch shape \(3,\), not \(2,\)"),
    "steps not known": (lambda: HiddenMarkov(FAIR, LAZY, dist.Normal(np.zeros(2), 1.0)), "num_steps is unknown"),
    "initial that is no distribution": (
        lambda: HiddenMarkov(2 * FAIR, LAZY, dist.Normal(np.zeros(2), 1.0), num_steps=3, validate_args=True), "initial"
    ),
    "rows that do not sum to one": (
        lambda: HiddenMarkov(FAIR, 2 * LAZY, dist.Normal(np.zeros(2), 1.0), num_steps=3, validate_args=True),
        "transition",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_are_refused(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make()
