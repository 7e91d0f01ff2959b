r"""Linear-response draws from a variational role HMM with Gaussian roles, to compare with NUTS.

A CAVI iteration maps natural parameters :math:`\eta` to :math:`F(\eta) = \eta_0 + t(m(\eta))`, with m the mean
parameters and t the expected statistics. Tilting the posterior by :math:`\tau \cdot T(\theta)` moves the fixed point
by :math:`(I - F')^{-1}\tau`, which gives :math:`Cov(T) = V (I - F')^{-1}`, V the covariance of T under q. The surplus
over V is that of a normal perturbation of :math:`\eta` with covariance :math:`F' (I - F')^{-1} V^{-1}`. Draws from q
get it as normal noise in unconstrained coordinates: centred log probabilities, means, and Cholesky factors with the
logs of their diagonals.

Giordano, Broderick, Jordan (2018), "Covariances, robustness, and variational Bayes", section 3.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree

from ethogram.inference.conjugate.posterior import ConjugatePosterior
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import Dirichlet, expected_statistics
from ethogram.models.families.normal import MeanCovariance
from ethogram.models.families.numpyro_sites import by_site
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["draws", "surplus"]

RELATIVE_RANK = 1e-10


def draws(key: Array, posterior: ConjugatePosterior, data: Trajectories, count: int) -> dict[str, np.ndarray]:
    """Draws (count, ...) by site."""
    key_noise, *keys = jax.random.split(key, len(posterior.blocks) + 1)
    random = numpy_generator(key_noise)
    root = _root(surplus(posterior, data))
    noise = jnp.asarray(random.standard_normal((count, len(root))) @ root.T)
    drawn = {
        name: block.sample(one, (count,))
        for one, (name, block) in zip(keys, sorted(posterior.blocks.items()), strict=True)
    }
    return jax.tree.map(np.asarray, by_site(_shifted(drawn, noise)))


def surplus(posterior: ConjugatePosterior, data: Trajectories) -> np.ndarray:
    """Covariance that q lacks, in the unconstrained coordinates of all blocks, raveled by name."""
    batch = posterior.model.arrange(data)
    slope, variance, spread = (np.asarray(x) for x in _derivatives(posterior.model, posterior.blocks, batch))
    inverse = np.linalg.pinv(variance, rcond=RELATIVE_RANK, hermitian=True)
    natural = slope @ np.linalg.solve(np.eye(len(slope)) - slope, inverse)
    whole = spread @ natural @ spread.T
    return 0.5 * (whole + whole.T)


def _root(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))


@jax.jit
def _derivatives(model: Any, blocks: dict[str, Any], batch: Any) -> tuple[Array, Array, Array]:
    """By natural parameters: of a CAVI iteration, of mean parameters, and of expected unconstrained coordinates."""
    at, restore = ravel_pytree({name: block.natural for name, block in blocks.items()})

    def moved_to(natural):
        parts = restore(natural)
        return {name: dataclasses.replace(blocks[name], natural=parts[name]) for name in blocks}

    def iteration(natural):
        now = moved_to(natural)
        statistics = model.e_step.step(expected_statistics(now), batch, model.e_step.init(batch), 0)[1]
        after = model.update(now, model.prior(), statistics, 1.0, 1.0)
        return ravel_pytree({name: block.natural for name, block in after.items()})[0]

    def means(natural):
        return ravel_pytree(expected_statistics(moved_to(natural)))[0]

    def centres(natural):
        return ravel_pytree({name: _centre(block) for name, block in moved_to(natural).items()})[0]

    def jacobian(function):  # a column at a time: the chain's kernel has no vmapped derivative
        columns = lax.map(lambda one: jax.jvp(function, (at,), (one,))[1], jnp.eye(len(at), dtype=at.dtype))
        return columns.T

    return jacobian(iteration), jacobian(means), jacobian(centres)


def _centre(block: Any) -> Array:
    if isinstance(block, Dirichlet):
        logs = block.expected_statistics().concentration
        return logs - jnp.mean(logs, axis=-1, keepdims=True)
    return _unconstrained(block.reference_point())


def _unconstrained(value: Any) -> Array:
    if not isinstance(value, MeanCovariance):
        logs = jnp.log(value)
        return logs - jnp.mean(logs, axis=-1, keepdims=True)
    factor = jnp.linalg.cholesky(value.covariance)
    rows, columns = np.tril_indices(factor.shape[-1], -1)
    diagonal = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1))
    return jnp.concatenate([value.mean, diagonal, factor[..., rows, columns]], axis=-1)


def _constrained(like: Any, coordinates: Array) -> Any:
    if not isinstance(like, MeanCovariance):
        return jax.nn.softmax(coordinates, axis=-1)
    size = like.mean.shape[-1]
    rows, columns = np.tril_indices(size, -1)
    factor = jnp.zeros((*coordinates.shape[:-1], size, size), coordinates.dtype)
    factor = factor.at[..., np.arange(size), np.arange(size)].set(jnp.exp(coordinates[..., size : 2 * size]))
    factor = factor.at[..., rows, columns].set(coordinates[..., 2 * size :])
    return MeanCovariance(coordinates[..., :size], factor @ factor.mT)


@jax.jit
def _shifted(drawn: dict[str, Any], noise: Array) -> dict[str, Any]:
    def one(values, step):
        coordinates = {name: _unconstrained(value) for name, value in values.items()}
        flat, restore = ravel_pytree(coordinates)
        moved = restore(flat + step)
        return {name: _constrained(values[name], moved[name]) for name in values}

    return jax.vmap(one)(drawn, noise)
