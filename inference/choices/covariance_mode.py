"""The mode of values and of a covariance of alternatives, with the prior of values and a flat one of the covariance.

The likelihood is not concave in both. Quasi-Newton steps start from the mode in independent noise.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to

from ethogram.inference.choices.choice_expansion import prior_variance, units
from ethogram.models.choices.choice_problem import ChoiceProblem
from ethogram.models.choices.covariance_noise import CovariancePrior, independent_covariance, scaled_to_trace
from ethogram.models.choices.decisions import weights_of
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.quick_jit import quick_jit

__all__ = ["covariance_mode"]

DIFFERENCE = 1e-3
"""Step of the differences of gradients."""

LARGEST_SLOPE = 1e-2
"""Of the log posterior at a mode, in units of about a posterior standard deviation."""

_TO_COVARIANCE = biject_to(CovariancePrior.support)


def covariance_mode(
    model: NoisyMDP, problem: ChoiceProblem, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Theta, the covariance, and that of the estimate of theta by the curvature at both.

    From a start of theta in independent noise of variance one. A RuntimeError where the search does not converge: the
    likelihood may have no maximum but at a singular covariance.
    """
    from scipy.optimize import minimize

    size, unit = problem.data.legal.shape[1] - 1, units(problem)
    with jax.enable_x64(True):
        first, square = scaled_to_trace(jnp.asarray(independent_covariance(size)))
        begun = np.concatenate([start / unit / np.sqrt(square), _TO_COVARIANCE.inv(first)])
        weight, variance = (
            weights_of(problem.data, known=True),
            prior_variance(model, problem.data, model.kappa),
        )
        fixed = model, problem.without_names(), unit, variance, weight

        def value_and_slopes(x):
            value, slopes = _negative(x, *fixed)
            return float(value), np.asarray(slopes, float)

        at = minimize(value_and_slopes, begun, jac=True, method="BFGS").x
        if not np.abs(value_and_slopes(at)[1]).max() < LARGEST_SLOPE:
            raise RuntimeError(
                "the search for the mode of values and covariance did not converge: the likelihood may have no maximum "
                "with a regular covariance"
            )
        steps = DIFFERENCE * np.eye(len(at))
        curvature = [(value_and_slopes(at + one)[1] - value_and_slopes(at - one)[1]) / 2 for one in steps]
        spread = np.linalg.inv(np.array(curvature) / DIFFERENCE)
        count = len(unit)
        spread = np.outer(unit, unit) * ((spread + spread.T) / 2)[:count, :count]
        return unit * at[:count], np.asarray(_TO_COVARIANCE(at[count:])), spread


@quick_jit(calls=2**8)
def _negative(x: Array, *fixed: Any) -> tuple[Array, Array]:
    """Minus the log posterior at scaled theta and unconstrained covariance, and its slopes."""
    model, problem, unit, variance, weight = fixed
    choice = jnp.maximum(problem.data.choice, 0)

    def negative(x):
        theta = unit * x[: len(unit)]
        parameters = {"theta": theta, "noise_covariance": _TO_COVARIANCE(x[len(unit) :])}
        each = model.likelihood(parameters, problem).log_prob(choice)
        likelihood = jnp.sum(jnp.where(weight > 0, weight * each, 0))
        return jnp.sum(theta**2 / variance) / 2 - likelihood

    return jax.value_and_grad(negative)(x)
