r"""Part of `noisy_mdp_truth` and `noisy_mdp_toy`, which print: reference posteriors of the noisy MDP.

Moments without latent utilities, and autocorrelation times. Moments come from the likelihood by quadrature, which no
sampler of latent utilities uses: of two parameters on a grid, of more by importance sampling. Proposals are a mixture
of multivariate t densities fitted to the posterior by adaptive importance sampling, Cappé, Douc, Guillin, Marin and
Robert (2008), "Adaptive importance sampling in general mixture classes": every round is an expectation-maximisation
step in which draws have their importance weights. The posterior is log-concave, so that heavier tails than its own are
easy.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

from ethogram.inference.choices.px_da import PXDA, PXDAState
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import ProbitChoice

__all__ = [
    "Autocorrelation",
    "Means",
    "autocorrelation",
    "autocovariances",
    "grid_moments",
    "importance_means",
    "integrated_time",
    "log_posterior",
    "run_chains",
]

DEGREES = 6
COMPONENTS = 8
ROUNDS = 10
NODES = 16
CHUNK = 2000
WINDOW = 6


class Means(NamedTuple):
    """Posterior means of the values (state,), their Monte Carlo errors, and the effective number of draws."""

    mean: np.ndarray
    error: np.ndarray
    effective: float


class Autocorrelation(NamedTuple):
    """Of every component of some draws.

    Attributes
    ----------
    time : (component,) integrated autocorrelation time, in draws.
    total, total_error : the sum of the times, and its Monte Carlo error.
    at_lag : (lag, component) autocorrelations, from lag zero.
    """

    time: np.ndarray
    total: float
    total_error: float
    at_lag: np.ndarray


def log_posterior(theta: Array, design: Array, legal: Array, choice: Array, kappa: Array) -> Array:
    """Log of the posterior density at theta (parameter,), up to a constant; `kappa` may be infinite."""
    choices = ProbitChoice(design @ theta, legal, num_nodes=NODES).log_prob(choice)
    return jnp.sum(choices) - 0.5 * jnp.sum(theta**2) / kappa


_slopes = jax.jit(jax.value_and_grad(log_posterior))


@jax.jit
def _each(points: Array, *posterior: Array) -> Array:
    return jax.lax.map(jax.vmap(lambda theta: log_posterior(theta, *posterior)), points)


def importance_means(model: NoisyMDP, data: Decisions, num_draws: int, seed: int) -> Means:
    """Posterior means of the values of a tabular model, in double precision."""
    with jax.enable_x64(True):
        return _importance_means(model, data, num_draws, np.random.default_rng(seed))


def _importance_means(model: NoisyMDP, data: Decisions, num_draws: int, random: np.random.Generator) -> Means:
    posterior = (np.asarray(model.design(data)), data.legal, data.choice, float(model.kappa))
    mode, covariance = _laplace(posterior)
    root = np.linalg.cholesky(covariance)
    mixture = _Mixture(
        np.full(COMPONENTS, 1 / COMPONENTS),
        mode + random.standard_normal((COMPONENTS, len(mode))) @ root.T,
        np.tile(2 * covariance, (COMPONENTS, 1, 1)),
    )
    for _ in range(ROUNDS):
        points = mixture.draw(random, max(num_draws // 10, CHUNK))
        mixture = mixture.fitted(points, _weights(points, mixture, posterior))
    points = mixture.draw(random, num_draws)
    weights = _weights(points, mixture, posterior)
    values = np.asarray(model.parts(points, data)["v"])
    mean = weights @ values
    error = np.sqrt(weights**2 @ (values - mean) ** 2)
    return Means(mean, error, float(1 / (weights**2).sum()))


def _laplace(posterior: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Mode, and roughly the inverse of minus the Hessian there."""

    def loss(theta):
        value, slope = _slopes(theta, *posterior)
        return -float(value), -np.asarray(slope)

    found = minimize(loss, np.zeros(posterior[0].shape[-1]), jac=True, method="BFGS")
    return found.x, found.hess_inv


class _Mixture(NamedTuple):
    """Of multivariate t densities: shares (part,), centres (part, parameter), squared scales."""

    shares: np.ndarray
    centres: np.ndarray
    covariances: np.ndarray

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        part = random.choice(len(self.shares), count, p=self.shares)
        normal = random.standard_normal((count, self.centres.shape[1]))
        spread = np.sqrt(DEGREES / random.chisquare(DEGREES, count))
        shift = np.einsum("npq,nq->np", np.linalg.cholesky(self.covariances)[part], normal)
        return self.centres[part] + spread[:, None] * shift

    def log_densities(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log share times density of every part (part, point), and squared distances in its own metric."""
        size = points.shape[1]
        roots = np.linalg.cholesky(self.covariances)
        away = np.linalg.solve(roots, np.swapaxes(points - self.centres[:, None], 1, 2))
        square = (away**2).sum(1)
        constant = gammaln((DEGREES + size) / 2) - gammaln(DEGREES / 2) - size / 2 * np.log(DEGREES * np.pi)
        volume = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(1)
        level = np.log(self.shares) + constant - volume
        return level[:, None] - (DEGREES + size) / 2 * np.log1p(square / DEGREES), square

    def fitted(self, points: np.ndarray, weights: np.ndarray) -> _Mixture:
        """One step of expectation-maximisation; parts that have almost no weight are widened, not lost."""
        size = points.shape[1]
        logs, square = self.log_densities(points)
        owned = weights * np.exp(logs - logsumexp(logs, axis=0))
        shares = owned.sum(1)
        pull = owned * (DEGREES + size) / (DEGREES + square)
        kept = shares > 1e-3
        scale = np.where(kept, pull.sum(1), 1)[:, None]
        centres = np.where(kept[:, None], pull @ points / scale, self.centres)
        off = points - centres[:, None]
        covariances = np.einsum("kn,knp,knq->kpq", pull, off, off) / np.where(kept, shares, 1)[:, None, None]
        covariances = np.where(kept[:, None, None], covariances, 2 * self.covariances)
        shares = np.maximum(shares, 1e-2)
        return _Mixture(shares / shares.sum(), centres, covariances)


def _log_posteriors(points: np.ndarray, posterior: tuple) -> np.ndarray:
    padded = np.zeros((-len(points) % CHUNK, points.shape[1]))
    chunks = np.concatenate([points, padded]).reshape(-1, CHUNK, points.shape[1])
    return np.asarray(_each(chunks, *posterior)).ravel()[: len(points)]


def _weights(points: np.ndarray, mixture: _Mixture, posterior: tuple) -> np.ndarray:
    """Importance weights (point,) that sum to one."""
    logs = _log_posteriors(points, posterior) - logsumexp(mixture.log_densities(points)[0], axis=0)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def grid_moments(posterior: tuple, nodes: int = 201, width: float = 10.0) -> np.ndarray:
    """First and second moments (2, parameter) of two parameters, on a grid about the mean, in double precision.

    `posterior` has the arguments of `log_posterior` after the first. The grid is laid twice: about the mode as far as
    the curvature there says, then about the mean, in the axes of the covariance that the first one found.
    """
    axis = np.linspace(-width, width, nodes)
    square = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    centre, covariance = _laplace(posterior)
    for _ in range(2):
        points = centre + square @ np.linalg.cholesky(covariance).T
        logs = _log_posteriors(points, posterior)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        centre = weights @ points
        covariance = (points - centre).T * weights @ (points - centre)
    return np.stack([weights @ points, weights @ points**2])


def integrated_time(products: np.ndarray) -> tuple[float, int]:
    """Autocorrelation time of autocovariances (lag,), and the lag that its sum ends at: six times itself (Sokal)."""
    running = 2 * np.cumsum(products / products[0]) - 1
    enough = np.arange(len(products)) >= WINDOW * running
    window = int(np.argmax(enough)) if enough.any() else len(products) - 1
    return float(running[window]), window


def autocovariances(draws: np.ndarray) -> np.ndarray:
    """Sums of products (chain, lag) of draws (chain, draw) that are centred."""
    length = draws.shape[1]
    spectrum = np.abs(np.fft.rfft(draws, 2 * length, axis=1)) ** 2
    return np.fft.irfft(spectrum, axis=1)[:, :length]


def autocorrelation(draws: np.ndarray, num_lags: int = 100) -> Autocorrelation:
    """Autocorrelations and their integrated times, of draws (chain, draw, component).

    Chains are centred on their common mean, so that short ones are not flattered. The error of the sum of the times is
    a jackknife over chains.
    """
    chains = len(draws)
    at_lag, times, left_out = [], [], []
    for column in np.moveaxis(draws - draws.mean((0, 1)), -1, 0):
        products = autocovariances(column)
        pooled = products.sum(0)
        time, window = integrated_time(pooled)
        near = products[:, : window + 1]
        without = near.sum(0) - near
        at_lag.append((pooled / pooled[0])[: num_lags + 1])
        times.append(time)
        left_out.append(2 * (without / without[:, :1]).sum(1) - 1)
    error = np.sqrt((chains - 1) * np.sum(left_out, axis=0).var())
    return Autocorrelation(np.array(times), float(np.sum(times)), float(error), np.stack(at_lag, axis=-1))


@functools.partial(jax.jit, static_argnames=("kernel", "sweeps"))
def run_chains(kernel: PXDA, state: PXDAState, data: Decisions, sweeps: int) -> tuple[Array, Array]:
    """Theta (sweep, chain, parameter) and shares of proposals taken (sweep, chain), from the state on."""

    def step(state, _):
        after = kernel.sample(state, (data,), {})
        kept = (after.latents[0] == state.latents[0]) & jnp.any(state.problem.legal, axis=0)
        return after, (after.z["theta"], 1 - jnp.sum(kept, axis=0) / jnp.sum(state.problem.counts > 0))

    return jax.lax.scan(step, state, length=sweeps)[1]
