"""Held-out log predictive density over model sizes (Gelman, Hwang, Vehtari 2014, section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.models.chains.latent_chain import LatentChain
from ethogram.models.data.trajectories import Trajectories

__all__ = ["ScoreCurve", "heldout_log_likelihood", "heldout_score_curve"]


class ScoreCurve(NamedTuple):
    """Scores over model sizes, with the fits.

    Attributes
    ----------
    size : (size,) model sizes.
    elbo : (size,) final ELBOs on the training data, in nats.
    heldout : (size,) held-out log likelihood per observed step, in nats, at the posterior means.
    fits : the result of each size.
    heldout_se : (size,) standard error of the difference of `heldout` to its largest value, over the test sequences (or
        groups), which the sizes share; 0 at the best size.
    train_steps : observed steps of the training data, which put `elbo` on the scale of `heldout`.
    """

    size: np.ndarray
    elbo: np.ndarray
    heldout: np.ndarray
    fits: tuple[ConjugateResult, ...]
    heldout_se: np.ndarray
    train_steps: int

    @property
    def selected_size(self) -> int:
        """Smallest size within one standard error of the best held-out score.

        Breiman, Friedman, Olshen, Stone (1984), "Classification and regression trees", section 3.4.3.
        """
        if not np.isfinite(self.heldout).any():
            raise ValueError("no size gives the test data a positive probability: heldout is -inf everywhere")
        within = self.heldout.max() - self.heldout <= self.heldout_se
        return int(self.size[within].min())


def heldout_log_likelihood(result: ConjugateResult, test: Trajectories) -> float:
    """Held-out log likelihood at the posterior means, in nats per observed step.

    A plug-in score: one normalised model, comparable with others. Roles that are distinct in every frame are a
    condition D, and the score is that of p(x | D): beyond 720 maps of agents to roles a lower bound. Further evidence
    in the test data, such as ``stay``, is scored with them; set it to missing (-1) to score the actions alone.

    Parameters
    ----------
    result : of :class:`~ethogram.inference.conjugate.ConjugateSVI`.
    test : data that the fit has not seen.

    Raises
    ------
    ValueError, TypeError
        If the test data do not fit the model, or have no observed step, or the posterior mean of a parameter
        does not exist.
    """
    scores, steps = _scores(result, test)
    return float(scores.sum() / steps.sum())


def _informative_steps(model: Any, parameters: Any, data: Trajectories) -> tuple[Any, Any, np.ndarray]:
    """Distribution of the data, their value, and the steps with information in each sequence (or group)."""
    value = model.observed_value(data)
    distribution = model.observation(parameters, data)
    known = distribution.informative(value) if isinstance(distribution, LatentChain) else data.observed
    groups = model.grouped_sequences(data)
    each = np.asarray(known).sum(axis=1)
    return distribution, value, each if groups is None else each[groups].sum(axis=1)


def _scores(result: ConjugateResult, test: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood of every test sequence (or group), and the observed steps of each."""
    posterior = result.posterior
    posterior.model.check(test)
    mean = posterior.mean()
    for site, value in mean.items():
        if not np.isfinite(np.asarray(value)).all():
            raise ValueError(
                f"the posterior mean of {site} does not exist: strengthen its prior "
                "(a covariance has a mean if dof > num_features + 1)"
            )
    distribution, value, steps = _informative_steps(posterior.model, mean, test)
    if steps.sum() == 0:
        raise ValueError("test data have no observed step")
    condition = posterior.model.log_prob_of_condition(mean, test)
    return np.asarray(_log_prob(distribution, value) - condition, dtype=float), steps


@jax.jit
def _log_prob(distribution, value):
    return distribution.log_prob(value)


def heldout_score_curve(
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
    """ELBO and held-out log likelihood of a model over several sizes.

    Parameters
    ----------
    make_model : function from a size (a number of roles, say) to a model.
    sizes : model sizes.
    by, test_fraction : of the split of `data`, the same for all sizes; see `Trajectories.split`.
    num_steps, options : of `ConjugateSVI.run`.

    Examples
    --------
    ``heldout_score_curve(key, lambda k: RoleHMM(k, GaussianEmission(2)), [2, 4, 8], data)``
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
    found = [_scores(fit, test) for fit in fits]
    scores, steps = np.stack([score for score, _ in found]), found[0][1]
    heldout = scores.sum(axis=1) / steps.sum()
    with np.errstate(invalid="ignore"):  # impossible data have scores of -inf
        gaps = scores - scores[heldout.argmax()]
    known = np.isfinite(gaps).all(axis=1) & (scores.shape[1] > 1)
    error = np.zeros(len(sizes))
    left = gaps[known] - gaps[known].sum(axis=1, keepdims=True) / steps.sum() * steps  # of a ratio of sums
    error[known] = left.std(axis=1, ddof=1) * np.sqrt(scores.shape[1]) / steps.sum()
    posterior = fits[0].posterior
    *_, known = _informative_steps(posterior.model, posterior.mean(), train)
    return ScoreCurve(sizes, elbo, heldout, fits, error, int(known.sum()))
