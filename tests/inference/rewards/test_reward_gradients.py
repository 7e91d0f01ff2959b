"""Gradients of the bound on rewards against differences of a quadrature written in NumPy, and against their score form.

The score form of the gradient in a lengthscale is tested as printed too, which leaves out that the mean of a reward
given inducing points depends on it: a test that lets the printed one pass tests nothing.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from ethogram.domains import small_mdps
from ethogram.inference.rewards.gaussian_vi import BaseDraws, _elbo, natural_step
from ethogram.inference.rewards.laplace import Gaussian
from ethogram.models.rewards.gp_irl import GPIRL

FEATURES = np.array([[1.0], [2.0], [3.0]])
NEXT = np.array([[1, 2], [0, 2], [0, 1]])
COUNTS = np.array([[2, 0], [0, 0], [0, 1]])
DISCOUNT, NOISE = 0.9, 0.005
MEAN = np.array([-0.4, 0.8, -0.1])
ROOT = np.array([[1.2, 0, 0], [0.3, 0.9, 0], [-0.2, 0.1, 1.1]])
LOG_HYPER = np.log([5.0, 1.5])
LOWER = np.tril_indices(3)


def model(**settings):
    """The three-state world, with log-normal priors of scale and relevance."""
    world = small_mdps.three_state()
    np.testing.assert_array_equal(world.transitions.next_state, NEXT)
    priors = {"scale_prior": dist.LogNormal(np.log(5.0), 1.0), "relevance_prior": dist.LogNormal(0.0, 1.0)}
    return GPIRL(world, FEATURES, noise=NOISE, **priors, **settings)


def log_prior(log_hyper):
    return -0.5 * ((log_hyper[0] - np.log(5.0)) ** 2 + log_hyper[1] ** 2) - np.log(2 * np.pi)


def kernel(rows, columns, hyper, same):
    scale, relevance = hyper
    smooth = scale * np.exp(-0.5 * relevance * (rows[:, None] - columns) ** 2 - NOISE * relevance)
    return np.where(np.eye(len(rows)), scale, smooth) if same else smooth


def conditional(hyper, points):
    """Covariance of inducing points, S and Gamma; hyper-parameters may be complex."""
    every = FEATURES[:, 0]
    inner, cross = (
        kernel(every[points], every[points], hyper, True),
        kernel(every[points], every, hyper, False),
    )
    mean = np.linalg.solve(inner, cross).T
    return inner, mean, kernel(every, every, hyper, True) - mean @ cross


def of_rewards(rewards):
    """Log likelihood and the values (..., state) of rewards (..., state), by Newton's method."""
    values = np.zeros_like(rewards)
    for _ in range(12):
        ahead = rewards[..., None] + DISCOUNT * values[..., NEXT]
        best = np.logaddexp(ahead[..., 0], ahead[..., 1])
        moves = (np.exp(ahead - best[..., None])[..., None] * np.eye(3)[NEXT]).sum(-2)
        values = values + np.linalg.solve(np.eye(3) - DISCOUNT * moves, (best - values)[..., None])[..., 0]
        if np.abs(best - values).max() < 1e-13 * np.abs(values).max():
            break
    ahead = rewards[..., None] + DISCOUNT * values[..., NEXT]
    return ((ahead - values[..., None]) * COUNTS).sum((-2, -1)), values


@functools.cache
def nodes(count, axes):
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = np.array(list(itertools.product(x, repeat=axes)))
    return grid, np.array(list(itertools.product(w / w.sum(), repeat=axes))).prod(1)


def differences(function, at, step=1e-4):
    """Central differences of fourth order."""
    found = np.zeros(len(at))
    for i, e in enumerate(np.eye(len(at))):
        ahead, behind = (function(at + k * step * e) - function(at - k * step * e) for k in (1, 2))
        found[i] = (8 * ahead - behind) / (12 * step)
    return found


def split(flat, size):
    """Mean, root and logarithms of hyper-parameters out of one vector."""
    root = np.zeros((size, size))
    rows = np.tril_indices(size)
    root[rows] = flat[size:-2]
    return flat[:size], root, flat[-2:]


def joined(mean, root):
    return np.concatenate([mean, root[np.tril_indices(len(mean))], LOG_HYPER])


def standard_divergence(mean, root):
    return 0.5 * ((root**2).sum() + mean @ mean - len(mean)) - np.log(np.abs(np.diag(root))).sum()


@pytest.mark.parametrize(
    "points", [pytest.param(None, marks=pytest.mark.slow), pytest.param([1], marks=pytest.mark.slow), [0, 2]]
)
def test_gradient_of_the_bound_in_whitened_variables(points):
    """Mean, root and both hyper-parameters, within 1e-6, the expectation being a sum over nodes in both."""
    size = 3 if points is None else len(points)
    axes = 3 if points is None else 3 + size
    grid, weights = nodes({3: 4, 4: 3, 5: 3}[axes], axes)

    def reference(flat):
        mean, root, log_hyper = split(flat, size)
        hyper, white = np.exp(log_hyper), flat[:size] + grid[:, :size] @ root.T
        if points is None:
            rewards = white @ np.linalg.cholesky(kernel(FEATURES[:, 0], FEATURES[:, 0], hyper, True)).T
        else:
            inner, given, rest = conditional(hyper, points)
            rewards = (
                white @ (given @ np.linalg.cholesky(inner)).T + grid[:, size:] @ np.linalg.cholesky(rest).T
            )
        return weights @ of_rewards(rewards)[0] - standard_divergence(mean, root) + log_prior(log_hyper)

    start = joined(MEAN[:size], ROOT[:size, :size])
    with jax.enable_x64(True):
        family = {} if points is None else {"inducing": np.array(points)}
        ours = model(**family)
        rest = None if points is None else grid[:, None, size:]

        def value(mean, root, log_hyper, draws):
            q = Gaussian(mean[None], root[None])
            return jnp.asarray(weights) @ _elbo(ours, jnp.asarray(COUNTS)[None], log_hyper, q, draws)

        draws = BaseDraws(grid[:, None, :size], rest)
        found, gradient = jax.jit(jax.value_and_grad(value, (0, 1, 2)))(*split(start, size), draws)
        mean, root, log_hyper = (np.asarray(x) for x in gradient)
    np.testing.assert_allclose(found, reference(start), rtol=1e-9)
    gradient = np.concatenate([mean, root[np.tril_indices(size)], log_hyper])
    np.testing.assert_allclose(gradient, differences(reference, start), rtol=1e-6, atol=1e-6)


def test_a_natural_step_is_its_formula_whatever_the_rationality():
    """Mean and precision of q(w) after half a step, with derivatives in w by differences, within 1e-5."""
    rationality, size, hyper = 0.6, 0.5, np.exp(LOG_HYPER)
    low = np.linalg.cholesky(kernel(FEATURES[:, 0], FEATURES[:, 0], hyper, True))
    normals = np.array([[0.4, -1.0, 0.3], [-0.2, 0.7, 1.1]])

    def slope(white):
        return differences(lambda w: of_rewards(rationality * (low @ w))[0], white)

    at = MEAN + normals @ ROOT.T
    gradient = np.mean([slope(white) for white in at], 0)
    bend = np.mean([[(slope(w + e) - slope(w - e)) / 2e-3 for e in 1e-3 * np.eye(3)] for w in at], 0)
    precision = (1 - size) * np.linalg.inv(ROOT @ ROOT.T) + size * (np.eye(3) - bend)
    mean = MEAN + size * np.linalg.solve(precision, gradient - MEAN)
    with jax.enable_x64(True):
        fixed = {"scale_prior": hyper[0], "relevance_prior": hyper[1], "rationality": rationality}
        ours = GPIRL(small_mdps.three_state(), FEATURES, noise=NOISE, **fixed)
        q, draws = Gaussian(MEAN[None], ROOT[None]), BaseDraws(normals[:, None], None)
        found = natural_step(ours, COUNTS.astype(float)[None], np.zeros(0), q, draws, size)
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-5)
    np.testing.assert_allclose(
        found.root[0] @ found.root[0].T, np.linalg.inv(precision), rtol=1e-5, atol=1e-6
    )


def bound_of_rewards(flat, points=(0, 1, 2)):
    """The bound of q(u) at inducing points, by quadrature over the rewards of states."""
    mean, root, log_hyper = split(flat, len(points))
    inner, given, rest = conditional(np.exp(log_hyper), list(points))
    grid, weights = nodes(8, 3)
    rewards = given @ mean + grid @ np.linalg.cholesky(given @ root @ root.T @ given.T + rest).T
    low = np.linalg.cholesky(inner)
    whitened = np.linalg.solve(low, mean), np.linalg.solve(low, root)
    return weights @ of_rewards(rewards)[0] - standard_divergence(*whitened) + log_prior(log_hyper)


@pytest.mark.slow
def test_score_form_as_printed_and_as_it_is():
    """300 000 draws: all within 4.5 errors, the lengthscale's not as it is printed."""
    random = np.random.default_rng(0)
    hyper, count, points = np.exp(LOG_HYPER), 300_000, [0, 2]
    middle, low = MEAN[:2], ROOT[:2, :2]
    inner, given, rest = conditional(hyper, points)
    visits = COUNTS.sum(1)
    signed = visits - DISCOUNT * np.bincount(NEXT.ravel(), COUNTS.ravel(), 3)
    apart = random.normal(size=(count, 2)) @ low.T
    u = middle + apart
    off = random.normal(size=(count, 3)) @ np.linalg.cholesky(rest).T
    v = of_rewards(u @ given.T + off)[1] @ signed
    v -= v.mean()  # a score times a constant has no mean, only noise
    precision, inverse = np.linalg.inv(low @ low.T), np.linalg.inv(inner)
    score = apart @ precision
    mean = given.T @ visits - inverse @ middle - score * v[:, None]
    weighted = (score[:, :, None] * score[:, None, :] - precision) * v[:, None, None]
    root = ((precision - inverse) @ low - weighted @ low)[:, *np.tril_indices(2)]
    hypers, printed = [], None
    for i in range(2):  # complex steps of the dense algebra
        step = hyper + 1e-20j * np.eye(2)[i]
        inner_bent, given_bent, rest_bent = (x.imag / 1e-20 for x in conditional(step, points))
        held = np.linalg.inv(rest)
        late = off @ held
        spread = 0.5 * (np.einsum("di,ij,dj->d", late, rest_bent, late) - np.trace(held @ rest_bent))
        moved = np.einsum("di,ij,dj->d", late, given_bent, u)
        turned = inverse @ inner_bent @ inverse
        divergence = 0.5 * (
            np.trace(inverse @ inner_bent) - np.trace(turned @ low @ low.T) - middle @ turned @ middle
        )
        known = visits @ given_bent @ middle - divergence
        hypers.append((known - (spread + moved) * v) * hyper[i] - (LOG_HYPER[i] - (np.log(5.0), 0.0)[i]))
        if i == 1:
            printed = (known - spread * v) * hyper[i] - LOG_HYPER[i]
    found = np.concatenate([mean, root, np.stack(hypers, -1)], -1)
    exact = differences(lambda flat: bound_of_rewards(flat, points), joined(middle, low))
    error = found.std(0) / np.sqrt(count)
    assert (np.abs(found.mean(0) - exact) < 4.5 * error).all(), (found.mean(0) - exact) / error
    assert abs(printed.mean() - exact[-1]) > 10 * printed.std() / np.sqrt(count)
