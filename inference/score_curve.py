"""How many roles the data support: the bound and the held-out score of a model over its size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.inference.conjugate_svi import ConjugateResult, ConjugateSVI
from ethogram.models.trajectories import Trajectories

__all__ = ["ScoreCurve", "heldout_log_likelihood", "score_curve"]


class ScoreCurve(NamedTuple):
    """Scores over sizes, and the fits behind them.

    Attributes
    ----------
    size : (size,) what was given.
    elbo : (size,) final bounds on the training data, in nats.
    heldout : (size,) log likelihood a test step, in nats, at the posterior-mean parameters.
    fits : the result of each size.
    """

    size: np.ndarray
    elbo: np.ndarray
    heldout: np.ndarray
    fits: tuple[ConjugateResult, ...]


def heldout_log_likelihood(result: ConjugateResult, test: Trajectories) -> float:
    """Log likelihood of test data at the posterior-mean parameters, in nats an observed step.

    The parameters are plugged in: it is the score of one normalised model, to be compared with others. What else
    the model is told of the test data, such as evidence in ``stay``, is scored with them: say nothing (-1) to score
    actions alone.

    Raises
    ------
    ValueError, TypeError
        If the test data do not fit the model, or have no observed step, or the posterior mean of a parameter
        does not exist.
    """
    posterior = result.posterior
    posterior.model.check(test)
    mean = posterior.mean()
    for site, value in mean.items():
        if not np.isfinite(np.asarray(value)).all():
            raise ValueError(
                f"the posterior mean of {site} does not exist: give its prior more weight "
                "(a covariance has a mean from dof > num_features + 1 on)"
            )
    value = posterior.model.observed_value(test)
    distribution = posterior.model.observation(mean, test)
    known = distribution.informative(value) if hasattr(distribution, "informative") else test.observed
    steps = int(np.sum(np.asarray(known)))
    if steps == 0:
        raise ValueError("test data have no observed step")
    return float(_total(distribution, value)) / steps


@jax.jit
def _total(distribution, value):
    return jnp.sum(distribution.log_prob(value))


def score_curve(
    key: Array,
    make_model: Callable[[int], Any],
    sizes: Iterable[int],
    data: Trajectories,
    *,
    by: str = "group",
    test_fraction: float = 0.25,
    num_steps: int = 200,
    **options: Any,
) -> ScoreCurve:
    """Bound and held-out score of a model for several sizes.

    Parameters
    ----------
    make_model : from a size (a number of roles, say) to a model.
    sizes : to try.
    by, test_fraction : how `data` are split, once for all sizes; see `Trajectories.split`.
    num_steps, options : of `ConjugateSVI.run`.

    Examples
    --------
    ``score_curve(key, lambda k: RoleHMM(k, GaussianEmission(2)), [2, 4, 8], data)``
    """
    key_split, key_fits = jax.random.split(key)
    train, test = data.split(key_split, by=by, test_fraction=test_fraction)
    sizes = np.asarray(list(sizes))
    if sizes.size == 0:
        raise ValueError("sizes is empty: give at least one")
    fits = tuple(
        ConjugateSVI(make_model(int(size))).run(one, train, num_steps, **options)
        for size, one in zip(sizes, jax.random.split(key_fits, len(sizes)), strict=True)
    )
    elbo = np.array([fit.restart_elbos.max() for fit in fits])
    heldout = np.array([heldout_log_likelihood(fit, test) for fit in fits])
    return ScoreCurve(sizes, elbo, heldout, fits)
