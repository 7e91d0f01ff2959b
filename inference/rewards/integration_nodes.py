r"""Nodes and weights that integrate over a few hyper-parameters around the mode of their posterior.

In coordinates z in which the posterior has unit curvature at its mode,

.. math:: \int f(\eta)\, d\eta \approx (2 \pi)^{m/2} \prod_i \sigma_i \sum_k w_k\, f(\eta_k)\, e^{|z_k|^2 / 2},

where the weights w integrate a standard normal density: a trapezoidal rule in one dimension, the same on a disc in
two, and a central composite design in more, whose nodes are the centre, the corners of a cube and points on its axes,
all on one sphere; it integrates polynomials of second degree exactly. Rue, Martino and Chopin (2009), "Approximate
Bayesian inference for latent Gaussian models by using integrated nested Laplace approximations", section 6.5.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["MOST_HYPERS", "Nodes", "integration_nodes", "log_integral", "open_direction"]

MOST_HYPERS = 4
"""Hyper-parameters that are integrated over, at most."""

LINE = np.linspace(-2.8, 2.8, 9)
PLANE = np.linspace(-2.4, 2.4, 5)
RADIUS = 2.8
"""Nodes along an axis in one and in two dimensions, and the radius within which those of the plane are used."""

STRETCH = 1.1
"""Radius of the sphere of a central composite design, in units of the square root of the dimension."""

LEAST_CURVATURE = 0.16
"""Lower limit of the curvature of the log posterior in a direction: a standard deviation of 2.5."""


class Nodes(NamedTuple):
    """Nodes in coordinates of unit curvature, with the weights that integrate a standard normal density."""

    coordinates: Float[np.ndarray, "node hyper"]
    weights: Float[np.ndarray, "node"]
    spread: Float[np.ndarray, "hyper hyper"]  # from coordinates to logarithms of hyper-parameters

    def places(self, mode: Float[np.ndarray, "hyper"]) -> Float[np.ndarray, "node hyper"]:
        """Logarithms of hyper-parameters at the nodes; the first node is the mode."""
        return mode + self.coordinates @ self.spread.T


def integration_nodes(curvature: Float[np.ndarray, "hyper hyper"]) -> Nodes:
    """Nodes around a mode with this negative Hessian of the log density, the mode first."""
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    spread = vectors / np.sqrt(np.maximum(values, LEAST_CURVATURE))
    size = len(curvature)
    if size <= 2:
        line = LINE if size == 1 else PLANE
        grid = np.array(list(itertools.product(line, repeat=size))).reshape(-1, size)
        grid = grid[np.linalg.norm(grid, axis=1) <= RADIUS + 1e-9]
        grid = grid[np.argsort(np.linalg.norm(grid, axis=1), kind="stable")]
        mass = np.exp(-0.5 * np.sum(grid**2, axis=1))
        return Nodes(grid, mass / mass.sum(), spread)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=size)))
    corners = signs if size == 3 else signs[np.prod(signs, axis=1) > 0]
    axes = np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
    grid = np.concatenate([np.zeros((1, size)), STRETCH * corners, STRETCH * axes])
    outside = np.full(len(grid) - 1, 1 / ((len(grid) - 1) * STRETCH**2))
    return Nodes(grid, np.concatenate([[1 - 1 / STRETCH**2], outside]), spread)


def open_direction(curvature: Float[np.ndarray, "hyper hyper"]) -> str:
    """Why nodes around a mode of this curvature may miss mass, in words; empty where its limit is not met."""
    least = float(np.linalg.eigvalsh(0.5 * (curvature + curvature.T))[0])
    if least >= LEAST_CURVATURE or not np.isfinite(least):
        return ""
    width = f"a standard deviation of {1 / np.sqrt(least):.2g}" if least > 0 else "no maximum"
    return f"the posterior of the hyper-parameters has {width} in a direction, and nodes reach {LINE[-1]:g} times 2.5"


def log_integral(
    nodes: Nodes, log_density: Float[np.ndarray, "node"]
) -> tuple[float, Float[np.ndarray, "node"]]:
    """Logarithm of the integral of a density with these logarithms at the nodes, and the share of each node."""
    size = nodes.coordinates.shape[1]
    terms = np.log(nodes.weights) + log_density + 0.5 * np.sum(nodes.coordinates**2, axis=1)
    most = terms.max()
    shares = np.exp(terms - most)
    volume = 0.5 * size * np.log(2 * np.pi) + np.linalg.slogdet(nodes.spread)[1]
    return float(most + np.log(shares.sum()) + volume), shares / shares.sum()
