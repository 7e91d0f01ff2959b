"""The multinomial probit: probabilities against a trapezoid rule, closed forms and anchors; gradients; draws."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfcx, log_ndtr
from scipy.stats import chisquare, multivariate_normal, norm

from ethogram.models.choices.probit_choice import ProbitChoice, above_hazard, log_ndtr_and_hazard

OPTIONS, ROWS = 40, 50


def by_trapezoid(utilities, legal, chosen):
    """Log probability on a fine grid about the mode, which converges fast for entire integrands with Gaussian tails."""
    others = [j for j in range(len(utilities)) if legal[j] and j != chosen]
    gaps = utilities[chosen] - utilities[others]
    mode, curvature = 0.0, 1.0
    for _ in range(40):
        at = mode + gaps
        rate = np.sqrt(2 / np.pi) / erfcx(-at / np.sqrt(2))
        curvature = 1 + (rate * (at + rate)).sum()
        mode += (rate.sum() - mode) / curvature
    x = np.linspace(mode - 9 / np.sqrt(curvature), mode + 9, 301)
    logs = norm.logpdf(x) + log_ndtr(x[:, None] + gaps).sum(1)
    top = logs.max()
    return top + np.log(np.exp(logs - top).sum() * (x[1] - x[0]))


@pytest.fixture(scope="module")
def problems():
    """Fifty decisions of 2 to 40 options, utilities up to 1000, padded to one shape."""
    random = np.random.default_rng(0)
    utilities, legal = np.full((ROWS, OPTIONS), np.nan), np.zeros((ROWS, OPTIONS), bool)
    chosen, truth = np.zeros(ROWS, int), np.zeros(ROWS)
    for row in range(ROWS):
        count = random.integers(2, OPTIONS + 1)
        utilities[row, :count] = random.uniform(-1, 1, count) * 10 ** random.uniform(-1, 3)
        legal[row, :count] = random.random(count) < 0.8
        legal[row, random.integers(count)] = True
        chosen[row] = random.choice(np.flatnonzero(legal[row]))
        truth[row] = by_trapezoid(utilities[row], legal[row], chosen[row])
    return utilities, legal, chosen, truth


@functools.partial(jax.jit, static_argnames="nodes")
def both(utilities, legal, chosen, nodes=None):
    """Log probabilities, and gradients by the utilities."""

    def total(x):
        each = ProbitChoice(x, legal, num_nodes=nodes).log_prob(chosen)
        return jnp.sum(each), each

    slopes, each = jax.grad(total, has_aux=True)(utilities)
    return each, slopes


def padded(utilities, legal, chosen, nodes):
    """As `both`, for more than two options padded to one shape, in one program."""
    rows, options = np.shape(utilities)
    if options > 2:
        more = (0, ROWS - rows), (0, OPTIONS - options)
        utilities = np.pad(utilities, more, constant_values=np.nan)
        legal, chosen = np.pad(legal, more), np.pad(chosen, more[0])
        utilities[rows:, 0], legal[rows:, 0] = 0, True
    each, slopes = map(np.asarray, both(utilities, legal, chosen, nodes=nodes))
    return each[:rows], slopes[:rows, :options]


def log_prob(utilities, legal, chosen, nodes=None):
    return padded(utilities, legal, chosen, nodes)[0]


def slope(utilities, legal, chosen, nodes=None):
    """Gradients of all decisions by their utilities."""
    return padded(utilities, legal, chosen, nodes)[1]


@pytest.mark.parametrize(("nodes", "within"), [(None, 1e-8), (48, 1e-11)])
def test_probabilities_are_right_far_out(problems, nodes, within):
    """Padded by utilities that are NaN, which the truth does not see."""
    utilities, legal, chosen, truth = problems
    found = np.asarray(log_prob(utilities, legal, chosen, nodes=nodes))
    assert (np.abs(found - truth) / (1 + np.abs(truth))).max() < within


@pytest.mark.slow
def test_single_precision_is_right_and_finite_far_out(problems):
    utilities, legal, chosen, truth = problems
    with jax.enable_x64(False):
        single = np.where(legal, utilities, 0).astype(np.float32)
        each = log_prob(single, legal, chosen)
        assert np.isfinite(slope(single, legal, chosen)).all()
    assert each.dtype == np.float32
    assert (np.abs(each - truth) / (1 + np.abs(truth))).max() < 1e-4


def test_probabilities_of_all_options_sum_to_one_and_have_their_entropy(problems):
    utilities, legal = (x[:50, :12] for x in problems[:2])
    legal = legal | (np.arange(12) == 0)
    utilities = np.where(np.isfinite(utilities), utilities, 0.5)
    legal[:2], utilities[:2] = np.arange(12) < [[3], [4]], 0
    utilities[0, :4] = [0.2, 1.0, -0.5, np.nan]

    @jax.jit
    def every(utilities, legal):
        choice = ProbitChoice(utilities, legal)
        each = choice.log_prob(jnp.arange(12)[:, None]).T
        return each, choice.logits, choice.probs, choice.entropy()

    each, logits, probs, entropy = (np.asarray(x) for x in every(utilities, legal))
    np.testing.assert_allclose(np.exp(each).sum(-1), 1, atol=1e-9)
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(probs, np.exp(each), atol=1e-9)
    np.testing.assert_allclose(logits[legal], each[legal], atol=1e-8)
    assert (
        (each[~legal] == -np.inf).all() and (logits[~legal] == -np.inf).all() and (probs[~legal] == 0).all()
    )
    logs = np.array([by_trapezoid(utilities[0], legal[0], option) for option in range(3)])
    np.testing.assert_allclose(entropy[:2], [-(np.exp(logs) * logs).sum(), np.log(4)], rtol=1e-9)
    np.testing.assert_allclose(each[0, :3], logs, atol=1e-9)


def test_closed_forms_and_anchors():
    four = np.array([[0.0, 3.0, -2.0, 0.5], [-40.0, 0.0, 1.0, 2.0], [7.0] * 4, [0.0, -0.7, 1.2, 5.0]])
    legal = np.array([[True] * 4] * 3 + [[True, True, True, False]])
    bivariate = multivariate_normal.cdf([0.7, -1.2], [0, 0], [[2, 1], [1, 2]], abseps=1e-12, releps=1e-12)
    found = log_prob(four, legal, np.zeros(4, int))
    for value, truth, within in zip(
        found, (-4.2491, -641.81, -np.log(4), np.log(bivariate)), (1e-4, 1e-2, 1e-11, 1e-9), strict=True
    ):
        assert float(value) == pytest.approx(truth, abs=within)
    two = np.array([[1000.0, 0.0], [2.0, 0.5], [3.0, 1.0]])
    legal = np.array([[True, True], [True, True], [True, False]])
    truth = [log_ndtr(-1000 / np.sqrt(2)), norm.logcdf(1.5 / np.sqrt(2)), 0.0]
    np.testing.assert_allclose(log_prob(two, legal, np.array([1, 0, 0])), truth, rtol=1e-12, atol=1e-12)
    assert float(ProbitChoice(np.array([3.0])).log_prob(0)) == 0


def test_gradients_are_finite_differences(problems):
    utilities, legal, chosen, truth = problems
    random, step = np.random.default_rng(1), 1e-4
    moved = np.where(legal, random.normal(size=legal.shape), 0)
    filled = np.where(legal, utilities, 0)
    # Five points: the error is of fourth order, and rounding that of |ln P| over the step.
    near, far = (
        np.asarray(log_prob(filled + h * moved, legal, chosen, nodes=48))
        - np.asarray(log_prob(filled - h * moved, legal, chosen, nodes=48))
        for h in (step, 2 * step)
    )
    difference = (8 * near - far) / (12 * step)
    found = (np.asarray(slope(filled, legal, chosen, nodes=48)) * moved).sum(-1)
    tolerance = 1e-6 * (1 + np.abs(difference)) + 1e-14 * np.abs(truth) / step
    assert (np.abs(difference - found) <= tolerance).all()


@pytest.mark.parametrize(
    "points", [[[0.3, -1.0, 2.0, 0.0], [30.0, -2.0, 0.0, 45.0]], [[0.5, -0.5], [4.0, -3.0], [-1.0, 1.0]]]
)
def test_hessians_are_differences_of_gradients(points):
    points, step = np.array(points), 1e-5
    legal, chosen = np.ones(points.shape, bool), np.ones(len(points), int)

    direction = np.random.default_rng(0).normal(size=points.shape)

    @jax.jit
    def along(points, direction):
        return jax.jvp(jax.grad(lambda x: ProbitChoice(x).log_prob(1).sum()), (points,), (direction,))[1]

    more, less = (slope(points + sign * step * direction, legal, chosen) for sign in (1, -1))
    np.testing.assert_allclose(along(points, direction), (more - less) / (2 * step), atol=1e-8, rtol=1e-7)


def test_what_is_not_legal_is_impossible_and_has_no_gradient():
    legal = np.array([[True, False, True]] * 3)
    points = np.array([[1.0, np.nan, 0.0], [1.0, np.nan, 0.0], [1.0, 5.0, 0.0]])
    chosen = np.array([1, 7, 2])
    assert (log_prob(points, legal, chosen)[:2] == -np.inf).all()
    found = slope(points, legal, chosen)
    assert (found[:2] == 0).all()
    assert found[2, 1] == 0 and found[2, 0] == -found[2, 2] != 0


def test_draws_have_the_probabilities():
    """A chi-square test at 1e-3 with a fixed key."""
    utilities, legal = np.array([0.2, 1.0, -0.5, 9.0]), np.array([True, True, True, False])
    choice = ProbitChoice(utilities, legal)
    drawn = np.asarray(choice.sample(jax.random.key(0), (25_000, 4)))
    assert drawn.shape == (25_000, 4)
    counts = np.bincount(drawn.ravel(), minlength=4)
    assert counts[3] == 0
    expected = np.exp([by_trapezoid(utilities, legal, option) for option in range(3)])
    assert chisquare(counts[:3], 100_000 * expected / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0, 1.0], [np.inf, 0.0]],), r"utilities\[1, 0\] is inf"),
        (([[0.0, 1.0]] * 3, [[True, True], [False, True], [False, False]]), r"legal\[2\] has no legal option"),
        (([0.0, 1.0], [True, True, True]), r"legal is bool \(3,\): pass booleans \(\.\.\., 2\)"),
        (([0.0, 1.0], [1, 0]), "legal is int"),
        ((1.0,), r"utilities has shape \(\)"),
        ((np.zeros((3, 2)), np.ones((4, 2), bool)), r"utilities has shape \(3, 2\), legal \(4, 2\): give batch axes"),
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-5), ("float64", 1e-13)])
def test_hazards_and_their_logarithms_are_exact_to_rounding(dtype, rtol):
    """Against SciPy, and for the sum of x and the hazard, which cancels, the continued fraction of Mills' ratio."""
    x = np.concatenate([-np.geomspace(1e6, 60, 50), np.linspace(-60, 9, 2001)]).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        logs, rate = jax.jit(log_ndtr_and_hazard)(x)
        above = jax.jit(above_hazard)(x, rate)
    exact = x.astype(float)
    truth = np.sqrt(2 / np.pi) / erfcx(-exact / np.sqrt(2))
    tail = -exact
    for term in range(300, 1, -1):
        tail = term / tail - exact
    sums = np.where(exact < -3, 1 / tail, exact + truth)
    for found, right in ((rate, truth), (logs, log_ndtr(exact)), (above, sums)):
        np.testing.assert_allclose(np.asarray(found, float), right, rtol=rtol)
