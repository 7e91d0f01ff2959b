"""The multinomial probit: probabilities against a trapezoid rule, closed forms and anchors; gradients; draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erfcx, log_ndtr
from scipy.stats import chisquare, multivariate_normal, norm

from ethogram.models import choice as choice_module
from ethogram.models.choice import ProbitChoice

OPTIONS = 40


def by_trapezoid(utilities, legal, chosen):
    """Log probability on a fine grid about the mode, which converges fast for entire integrands with Gaussian tails."""
    others = [j for j in range(len(utilities)) if legal[j] and j != chosen]
    gaps = utilities[chosen] - utilities[others]
    mode, curvature = 0.0, 1.0
    for _ in range(100):
        at = mode + gaps
        rate = np.sqrt(2 / np.pi) / erfcx(-at / np.sqrt(2))
        curvature = 1 + (rate * (at + rate)).sum()
        mode += (rate.sum() - mode) / curvature
    x = np.linspace(mode - 9 / np.sqrt(curvature), mode + 9, 2001)
    logs = norm.logpdf(x) + log_ndtr(x[:, None] + gaps).sum(1)
    top = logs.max()
    return top + np.log(np.exp(logs - top).sum() * (x[1] - x[0]))


@pytest.fixture(scope="module")
def problems():
    """Five hundred decisions of 2 to 40 options, utilities up to 1000, padded to one shape."""
    random = np.random.default_rng(0)
    utilities, legal = np.full((500, OPTIONS), np.nan), np.zeros((500, OPTIONS), bool)
    chosen, truth = np.zeros(500, int), np.zeros(500)
    for row in range(500):
        count = random.integers(2, OPTIONS + 1)
        utilities[row, :count] = random.uniform(-1, 1, count) * 10 ** random.uniform(-1, 3)
        legal[row, :count] = random.random(count) < 0.8
        legal[row, random.integers(count)] = True
        chosen[row] = random.choice(np.flatnonzero(legal[row]))
        truth[row] = by_trapezoid(utilities[row], legal[row], chosen[row])
    return utilities, legal, chosen, truth


@pytest.mark.parametrize(("nodes", "within"), [(None, 1e-8), (48, 1e-11)])
def test_probabilities_are_right_far_out(problems, nodes, within):
    utilities, legal, chosen, truth = problems
    with jax.enable_x64(True):
        found = np.asarray(ProbitChoice(utilities, legal, num_nodes=nodes).log_prob(chosen))
    assert (np.abs(found - truth) / (1 + np.abs(truth))).max() < within


def test_single_precision_is_right_and_finite_far_out(problems):
    utilities, legal, chosen, truth = problems
    single = utilities.astype(np.float32)
    found, slope = jax.value_and_grad(lambda x: jnp.sum(ProbitChoice(x, legal).log_prob(chosen)) / 500)(
        jnp.asarray(np.where(legal, single, 0))
    )
    assert np.isfinite(found) and np.isfinite(slope).all()
    each = ProbitChoice(single, legal).log_prob(chosen)
    assert each.dtype == np.float32
    assert (np.abs(each - truth) / (1 + np.abs(truth))).max() < 1e-4


def test_probabilities_of_all_options_sum_to_one(problems):
    utilities, legal = (x[:100] for x in problems[:2])
    with jax.enable_x64(True):
        choice = ProbitChoice(utilities, legal)
        each = np.asarray(choice.log_prob(np.arange(OPTIONS)[:, None])).T
        probs = np.asarray(choice.probs)
    np.testing.assert_allclose(np.exp(each).sum(-1), 1, atol=1e-9)
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-12)
    assert (each[~legal] == -np.inf).all() and (probs[~legal] == 0).all()


@pytest.mark.parametrize(
    ("utilities", "chosen", "truth", "within"),
    [
        ([0.0, 3.0, -2.0, 0.5], 0, -4.2491, 1e-4),
        ([-40.0, 0.0, 1.0, 2.0], 0, -641.81, 1e-2),
        ([1000.0, 0.0], 1, float(log_ndtr(-1000 / np.sqrt(2))), 1e-6),
        ([2.0, 0.5], 0, norm.logcdf(1.5 / np.sqrt(2)), 1e-12),
        ([7.0] * 9, 4, -np.log(9), 1e-11),
        ([3.0], 0, 0.0, 0.0),
    ],
)
def test_closed_forms_and_anchors(utilities, chosen, truth, within):
    with jax.enable_x64(True):
        found = float(ProbitChoice(np.array(utilities)).log_prob(chosen))
    assert found == pytest.approx(truth, abs=within)


def test_three_options_are_a_bivariate_normal():
    gaps = np.array([0.7, -1.2])
    truth = multivariate_normal.cdf(gaps, [0, 0], [[2, 1], [1, 2]], abseps=1e-12, releps=1e-12)
    with jax.enable_x64(True):
        found = float(ProbitChoice(np.array([0.0, *-gaps])).log_prob(0))
    assert found == pytest.approx(np.log(truth), abs=1e-9)


def test_gradients_are_finite_differences(problems):
    utilities, legal, chosen, truth = problems
    random, step = np.random.default_rng(1), 1e-4
    moved = np.where(legal, random.normal(size=legal.shape), 0)
    with jax.enable_x64(True):
        filled = jnp.asarray(np.where(legal, utilities, 0))

        def log_prob(x):
            return ProbitChoice(x, legal, num_nodes=48).log_prob(chosen)

        slope = np.asarray(jax.jvp(log_prob, (filled,), (jnp.asarray(moved),))[1])
        back = np.asarray(jax.grad(lambda x: jnp.sum(log_prob(x)))(filled))
        # Five points: the error is of fourth order, and rounding that of |ln P| over the step.
        near, far = (
            np.asarray(log_prob(filled + h * moved) - log_prob(filled - h * moved)) for h in (step, 2 * step)
        )
    difference = (8 * near - far) / (12 * step)
    tolerance = 1e-6 * (1 + np.abs(difference)) + 1e-14 * np.abs(truth) / step
    assert (np.abs(difference - slope) <= tolerance).all()
    np.testing.assert_allclose(slope, (back * moved).sum(-1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("utilities", [[0.3, -1.0, 2.0, 0.0], [30.0, -2.0, 0.0, 45.0], [0.5, -0.5]])
def test_hessians_are_differences_of_gradients(utilities):
    with jax.enable_x64(True):
        point = jnp.array(utilities)

        def log_prob(x):
            return ProbitChoice(x).log_prob(1)

        hessian = jax.hessian(log_prob)(point)
        slope = jax.grad(log_prob)
        step = 1e-5
        rows = [
            (slope(point + step * one) - slope(point - step * one)) / (2 * step) for one in np.eye(len(point))
        ]
    np.testing.assert_allclose(hessian, rows, atol=1e-8, rtol=1e-7)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_padding_and_order_change_nothing(seed, count):
    extra = 6 - count
    random = np.random.default_rng(seed)
    utilities, chosen = random.normal(scale=10, size=count), random.integers(count)
    order = random.permutation(count + extra)
    padded = np.append(utilities, np.full(extra, np.nan))[order]
    legal = np.append(np.ones(count, bool), np.zeros(extra, bool))[order]
    with jax.enable_x64(True):
        plain = float(ProbitChoice(utilities, num_nodes=48).log_prob(chosen))
        place = int(np.argwhere(order == chosen)[0, 0])
        moved = float(ProbitChoice(padded, legal, num_nodes=48).log_prob(place))
    assert moved == pytest.approx(plain, rel=1e-11, abs=1e-12)


def test_what_is_not_legal_is_impossible_and_has_no_gradient():
    legal = np.array([True, False, True])

    def log_prob(x, chosen):
        return ProbitChoice(x, legal).log_prob(chosen)

    point = jnp.array([1.0, jnp.nan, 0.0])
    assert log_prob(point, 1) == -jnp.inf and log_prob(point, 7) == -jnp.inf
    with jax.debug_nans(True):
        slope = jax.grad(log_prob)(jnp.array([1.0, 5.0, 0.0]), 2)
    assert slope[1] == 0 and slope[0] == -slope[2]
    assert (jax.grad(log_prob)(point, 1) == 0).all()


def test_draws_have_the_probabilities():
    """A chi-square test at 1e-3 with a fixed key."""
    choice = ProbitChoice(jnp.array([0.2, 1.0, -0.5, 9.0]), np.array([True, True, True, False]))
    drawn = np.asarray(choice.sample(jax.random.key(0), (100_000,)))
    counts = np.bincount(drawn, minlength=4)
    assert counts[3] == 0
    expected = np.asarray(choice.probs[:3], float)
    assert chisquare(counts[:3], 100_000 * expected / expected.sum()).pvalue > 1e-3
    assert choice.sample(jax.random.key(0), (2, 3)).shape == (2, 3)


def test_entropy_is_that_of_the_probabilities():
    choice = ProbitChoice(jnp.array([[0.2, 1.0, -0.5], [0.0, 0.0, 0.0]]))
    probs = np.asarray(choice.probs)
    np.testing.assert_allclose(choice.entropy(), -(probs * np.log(probs)).sum(-1), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0, 1.0], [np.inf, 0.0]],), r"utilities\[1, 0\] is inf"),
        (([[0.0, 1.0]] * 3, [[True, True], [False, True], [False, False]]), r"legal\[2\]: no option"),
        (([0.0, 1.0], [True, True, True]), r"legal is bool \(3,\): give booleans \(\.\.\., 2\)"),
        (([0.0, 1.0], [1, 0]), "legal is int"),
        ((1.0,), r"utilities has shape \(\)"),
        (
            (np.zeros((3, 2)), np.ones((4, 2), bool)),
            r"utilities has shape \(3, 2\), legal \(4, 2\): give batch axes",
        ),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ProbitChoice(*(np.asarray(x) for x in arguments))


@pytest.mark.parametrize(
    ("num_nodes", "error", "message"),
    [
        (1.5, TypeError, "num_nodes must be an integer, not 1.5"),
        (True, TypeError, "num_nodes must be an integer, not True"),
        (0, ValueError, "num_nodes must be at least 1, not 0"),
    ],
)
def test_numbers_of_nodes_are_whole(num_nodes, error, message):
    with pytest.raises(error, match=message):
        ProbitChoice(np.zeros(3), num_nodes=num_nodes)


def test_what_other_modules_use_is_public():
    used = {"OFFSETS", "above_hazard", "hazard", "log_probability", "option_probabilities", "winner_density"}
    assert used < set(choice_module.__all__)
