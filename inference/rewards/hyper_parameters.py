r"""Hyper-parameters of rewards: their logarithms as one vector, the mode of their posterior, and nodes around it.

At hyper-parameters :math:`\eta` the best Gaussian q(w | :math:`\eta`) has the ELBO :math:`L(\eta)`, and

.. math:: q(w, \eta_k) \propto \Delta_k\, p(\eta_k)\, e^{L(\eta_k)}\, q(w \mid \eta_k), \qquad
          \ln p(D) \ge \ln \int p(\eta)\, e^{L(\eta)}\, d\eta .

No factorisation of q is between w and the hyper-parameters, whose product the rewards are. The gradient of L at the
best q is its partial derivative in :math:`\eta`. Moved along with :math:`\eta`, one q has an ELBO that is smooth and
touches L where it is the best, so that a quasi-Newton search finds the mode with few fits. The nodes lie around it in
the directions of the curvature of that ELBO. In coordinates z in which the posterior has unit curvature at its mode,

.. math:: \int f(\eta)\, d\eta \approx (2 \pi)^{m/2} \prod_i \sigma_i \sum_k w_k\, f(\eta_k)\, e^{|z_k|^2 / 2},

where the weights w integrate a standard normal density: a trapezoidal rule in one dimension, the same on a disc in
two, and a central composite design in more, whose nodes are the centre, the corners of a cube and points on its axes,
all on one sphere; it integrates polynomials of second degree exactly.

Rue, Martino and Chopin (2009), "Approximate Bayesian inference for latent Gaussian models by using integrated nested
Laplace approximations", sections 3 and 6.5, with Gaussian variational approximations in place of Laplace's.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Float

from ethogram.models.arguments import require_reals
from ethogram.models.held_warnings import import_quietly
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.priors import MATTERS
from ethogram.models.rewards.reward_settings import FEW_FEATURES

__all__ = [
    "Mode",
    "Nodes",
    "active_hypers",
    "curvature_at",
    "find_mode",
    "free_sizes",
    "has_open_direction",
    "integration_nodes",
    "log_integral",
    "log_prior",
    "prior_medians",
    "priors_of",
    "read_start",
    "unpack",
]

MAX_INTEGRATED = 4
"""Hyper-parameters that are integrated over, at most."""

MAX_ROUNDS = 10
"""Gaussians that the search for the mode may fit."""

MAX_EVALUATIONS = 40
"""Places to which each of them may be moved."""

REACH = 2.0
"""Farthest that a Gaussian is moved, in logarithms of hyper-parameters."""

GRADIENT_TOL = 0.2
"""Largest entry of the gradient, in nats, at a mode; nodes around it need no better one."""

DIFFERENCE = 0.3
"""Step of the central differences of gradients, in logarithms of hyper-parameters."""

LINE = np.linspace(-2.8, 2.8, 9)
PLANE = np.linspace(-2.4, 2.4, 5)
RADIUS = 2.8
"""Nodes along an axis in one and in two dimensions, and the radius within which those of the plane are used."""

STRETCH = 1.1
"""Radius of the sphere of a central composite design, in units of the square root of the dimension."""

MIN_CURVATURE = 0.16
"""Lower limit of the curvature of the log posterior in a direction: a standard deviation of 2.5."""

NOT_FINITE = 1e300
"""Value reported to the optimiser where the ELBO is not finite."""


def priors_of(model: GPIRL) -> dict[str, Any]:
    """Prior, or fixed value, of each hyper-parameter."""
    return {"scale": model.scale_prior, "relevance": model.relevance_prior, "rationality": model.rationality}


def free_sizes(model: GPIRL) -> dict[str, int]:
    """Hyper-parameters that have a prior, in order, and their sizes."""
    sizes = {"scale": 1, "relevance": model.num_features, "rationality": 1}
    priors = priors_of(model)
    return {name: sizes[name] for name, prior in priors.items() if isinstance(prior, dist.Distribution)}


def unpack(model: GPIRL, log_hyper: Array) -> dict[str, Array]:
    """Values of scale, relevance (..., feature) and rationality at logarithms (..., hyper) of the free ones."""
    values: dict[str, Array] = {}
    first = 0
    for name, size in free_sizes(model).items():
        found = jnp.exp(log_hyper[..., first : first + size])
        values[name] = found if name == "relevance" else found[..., 0]
        first += size
    for name, value in priors_of(model).items():
        if name not in values:
            shape = (model.num_features,) if name == "relevance" else ()
            values[name] = jnp.broadcast_to(jnp.asarray(value), (*log_hyper.shape[:-1], *shape))
    return values


def log_prior(model: GPIRL, log_hyper: Array) -> Array:
    """Log prior density (...) of the logarithms (..., hyper)."""
    values, priors = unpack(model, log_hyper), priors_of(model)
    total = jnp.sum(log_hyper, -1)
    for name in free_sizes(model):
        density = priors[name].log_prob(values[name])
        total += jnp.sum(density, -1) if name == "relevance" else density
    return total


def read_start(model: GPIRL, start: Any) -> Float[np.ndarray, "hyper"]:
    """Checked logarithms of initial hyper-parameters, which a user gives by name."""
    sizes = free_sizes(model)
    if not isinstance(start, dict) or set(start) != set(sizes):
        came = ", ".join(sorted(start)) if isinstance(start, dict) else type(start).__name__
        expected = (
            f"must be a dict of {', '.join(sizes)}"
            if sizes
            else "must be empty: no hyper-parameter has a prior"
        )
        raise ValueError(f"start {expected}; it is {came or 'empty'}")  # fmt: skip
    given = [np.zeros(0)]
    for name, size in sizes.items():
        require_reals(f"start[{name!r}]", start[name])
        value = np.asarray(start[name], float)
        if value.shape not in ((), (size,)) or not (np.isfinite(value) & (value > 0)).all():
            raise ValueError(
                f"start[{name!r}] must be a number above 0, or {size} of them, not {start[name]!r}"
            )
        given.append(np.log(np.broadcast_to(value, (size,))))
    return np.concatenate(given)


def prior_medians(model: GPIRL) -> dict[str, Float[np.ndarray, "size"]]:
    """Logarithms of the medians of the priors, by name."""
    priors = priors_of(model)
    return {name: np.full(size, np.log(_median(priors[name]))) for name, size in free_sizes(model).items()}


def _median(prior: Any) -> float:
    if importlib.util.find_spec("tensorflow_probability"):  # numpyro imports it for some priors, and it warns
        import_quietly("tensorflow_probability.substrates.jax.math", DeprecationWarning)
    try:
        return float(prior.icdf(0.5))
    except (NotImplementedError, ImportError):  # numpyro needs another package for some of them
        draws = prior.sample(jax.random.key(0), (10_001,))
        return float(np.median(np.asarray(draws)))


def active_hypers(model: GPIRL, log_hyper: Float[np.ndarray, "hyper"]) -> np.ndarray:
    """Numbers of the hyper-parameters to integrate over, at most `MAX_INTEGRATED`: relevances only where they matter.

    Relevances that hardly bend the kernel are held, and enter the ELBO by their prior density.
    """
    found: list[int] = []
    first, sizes = 0, free_sizes(model)
    most = MAX_INTEGRATED - sum(size for name, size in sizes.items() if name != "relevance")
    for name, size in sizes.items():
        if name == "relevance" and size > min(most, FEW_FEATURES):
            bend = np.exp(log_hyper[first : first + size]) * np.var(np.asarray(model.points), axis=0)
            largest = np.argsort(-bend, kind="stable")[:most]
            found += [first + int(one) for one in np.sort(largest) if bend[one] > MATTERS]
        else:
            found += range(first, first + size)
        first += size
    return np.array(found, int)


class Mode(NamedTuple):
    """Mode of the posterior of the hyper-parameters."""

    log_hyper: Float[np.ndarray, "hyper"]
    trace: list[float]  # ELBOs, with the log prior density, in the order of the search
    converged: bool


def find_mode(
    fit_at: Callable[[np.ndarray], Any],
    moved: Callable[[np.ndarray, Any, np.ndarray], tuple[float, np.ndarray]],
    start: Float[np.ndarray, "hyper"],
    active: np.ndarray,
    tol: float,
    max_rounds: int = MAX_ROUNDS,
) -> Mode:
    """Mode over the active hyper-parameters: Gaussians are fitted, and each is moved to where its ELBO is largest.

    ``fit_at(log_hyper)`` has the best Gaussian q there, with its `elbo`; ``moved(log_hyper, q, new)`` is the ELBO, and
    its gradient (hyper,), of that q moved elsewhere, a smooth function that L-BFGS maximises. Gains of a round below
    `tol` nats end the search.
    """
    from scipy.optimize import minimize

    fit = fit_at(start)
    trace = [fit.elbo]
    converged = not len(active)

    def loss(x):
        value, slope = moved(fit.log_hyper, fit.q, _replaced(fit.log_hyper, active, x))
        if not np.isfinite([value, *slope]).all():
            return NOT_FINITE, np.zeros(len(active))
        return -value, -slope[active]

    while not converged and len(trace) <= max_rounds and np.isfinite(fit.elbo):
        here = fit.log_hyper[active]
        bounds = np.column_stack([here - REACH, here + REACH])
        options = {"maxfun": MAX_EVALUATIONS, "ftol": tol / 4 / max(abs(fit.elbo), 1.0), "gtol": GRADIENT_TOL}
        found = minimize(loss, here, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if not loss(here)[0] - found.fun > tol:
            converged = found.fun < NOT_FINITE
            break
        after = fit_at(_replaced(fit.log_hyper, active, found.x))
        trace.append(after.elbo)
        converged = not after.elbo > fit.elbo + tol
        fit = after if after.elbo > fit.elbo else fit
    return Mode(fit.log_hyper, trace, bool(converged))


def _replaced(log_hyper: np.ndarray, active: np.ndarray, values: np.ndarray) -> np.ndarray:
    changed = log_hyper.copy()
    changed[active] = values
    return changed


def curvature_at(
    gradient_at: Callable[[np.ndarray], np.ndarray], mode: Float[np.ndarray, "hyper"], active: np.ndarray
) -> Float[np.ndarray, "active active"]:
    """Negative Hessian of the log posterior at the mode, by central differences of gradients (hyper,)."""
    columns = []
    for step in DIFFERENCE * np.eye(len(mode))[active]:
        change = gradient_at(mode + step) - gradient_at(mode - step)
        columns.append(-change[active] / (2 * DIFFERENCE))
    return np.reshape(columns, (len(active), len(active)))


class Nodes(NamedTuple):
    """Nodes in coordinates of unit curvature, with the weights that integrate a standard normal density."""

    coordinates: Float[np.ndarray, "node hyper"]
    weights: Float[np.ndarray, "node"]
    spread: Float[np.ndarray, "hyper hyper"]  # from coordinates to logarithms of hyper-parameters

    def around(self, mode: Float[np.ndarray, "hyper"]) -> Float[np.ndarray, "node hyper"]:
        """Logarithms of hyper-parameters at the nodes; the first node is the mode."""
        return mode + self.coordinates @ self.spread.T


def integration_nodes(curvature: Float[np.ndarray, "hyper hyper"]) -> Nodes:
    """Nodes around a mode with this negative Hessian of the log density, the mode first."""
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    spread = vectors / np.sqrt(np.maximum(values, MIN_CURVATURE))
    size = len(curvature)
    if not size:
        return Nodes(np.zeros((1, 0)), np.ones(1), spread)
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


def has_open_direction(curvature: Float[np.ndarray, "hyper hyper"]) -> bool:
    """Whether nodes around a mode of this curvature may miss mass."""
    values = np.linalg.eigvalsh(0.5 * (curvature + curvature.T))
    return bool((values < MIN_CURVATURE).any())


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
