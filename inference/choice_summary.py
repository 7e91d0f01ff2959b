r"""What people who fit choice models look at first: estimates with their bands, log likelihood, AIC, McFadden's R2.

.. math:: \mathrm{AIC} = 2 p - 2 \ln L, \qquad R^2 = 1 - \ln L / \ln L_0, \quad
          \ln L_0 = -\sum_t \ln M_t

with ln L at its maximum, M_t the number of legal options of decision t and p the number of parameters. Akaike (1974);
McFadden (1974), "Conditional logit analysis of qualitative choice behavior", section V. Where the choices do not
overlap the likelihood has no maximum, and ln L is taken at the mode of the posterior, or at its mean.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ethogram.inference.choice_predictions import band_ends, draws_of
from ethogram.models.blocks.conjugate_block import is_concrete
from ethogram.models.choice import ProbitChoice
from ethogram.models.decisions import Decisions, weights_of
from ethogram.models.noisy_mdp import NoisyMDP

__all__ = ["ChoiceSummary", "Mode", "find_mode", "summarize_choices"]


class Mode(NamedTuple):
    """Where the posterior density of theta is largest; the maximum of the likelihood where the prior is flat.

    Attributes
    ----------
    theta : (parameter,).
    values : by site: ``v``, ``action_rewards``.
    deviation : (parameter,) of the normal with the curvature there: standard errors under a flat prior.
    log_likelihood : there, in nats.
    """

    theta: np.ndarray
    values: dict[str, np.ndarray]
    deviation: np.ndarray
    log_likelihood: float


def find_mode(model: NoisyMDP, data: Decisions) -> Mode:
    """The mode of the posterior, by Newton's method with step halving on the log posterior, which is concave.

    Raises
    ------
    ValueError
        As the model's `check`; if kappa has a prior, or decisions have subjects: theirs has no mode worth the name.
    RuntimeError
        If Newton's method does not come to rest in 100 steps.
    """
    data = model.check(data)
    if isinstance(model.kappa, dist.Distribution) or data.subject is not None:
        raise ValueError(
            "the mode is that of theta alone: give kappa a number, and leave subject out of the decisions"
        )
    if not is_concrete(data.features, data.legal, data.choice):
        raise TypeError("data are traced: give concrete arrays")
    with jax.enable_x64(True):
        values, own = model.sizes(data)
        kappa = float(model.kappa)
        other = float(model.action_rewards) if model.rewards == "own" else kappa
        precision = jnp.asarray(np.repeat([1 / kappa, 1 / other], [values, own]))
        design = np.where(data.legal[..., None], np.asarray(model.design(data), float), 0)
        arrays = (
            jnp.asarray(design),
            jnp.asarray(data.legal),
            jnp.asarray(data.choice),
            jnp.asarray(weights_of(data, known=True)),
        )
        theta = jnp.zeros(values + own)
        score = -jnp.inf
        for _ in range(100):
            score, slope, curvature = _expansion(theta, precision, *arrays)
            step = jnp.linalg.solve(curvature, slope)
            if float(slope @ step) < 1e-12 * (1 + abs(float(score))):
                theta = theta + step
                break
            size = 1.0
            while (
                float(_log_posterior(theta + size * step, precision, *arrays)) < float(score) and size > 1e-9
            ):
                size /= 2
            theta = theta + size * step
        else:
            raise RuntimeError("the mode was not found in 100 steps: are features of very different sizes?")
        deviation = np.sqrt(np.diag(np.linalg.inv(np.asarray(curvature))))
        likelihood = float(_log_posterior(theta, jnp.zeros_like(precision), *arrays))
        found = np.asarray(theta)
        parts = {name: np.asarray(part) for name, part in model.parts(found, data).items()}
    return Mode(found, parts, deviation, likelihood)


@jax.jit
def _log_posterior(theta, precision, design, legal, choice, weight):
    each = ProbitChoice(design @ theta, legal).log_prob(jnp.maximum(choice, 0))
    return jnp.sum(jnp.where(weight > 0, weight * each, 0)) - 0.5 * precision @ theta**2


@jax.jit
def _expansion(theta, precision, *arrays):
    score, slope = jax.value_and_grad(_log_posterior)(theta, precision, *arrays)
    return score, slope, -jax.hessian(_log_posterior)(theta, precision, *arrays)


class ChoiceSummary(NamedTuple):
    """Estimates, and how well they explain the choices; printed, a table.

    Attributes
    ----------
    names : of the parameters, by the decisions' metadata where they have names.
    mean, deviation, lower, upper : (parameter,) of the posterior, and its central band.
    probability : of the band.
    log_likelihood : in nats, where `evaluated_at` says.
    null_log_likelihood : of choices at random among the legal options.
    aic, mcfadden_r2 : of these two; parameters are counted without what the sum to zero takes.
    num_decisions, num_parameters : that count; weights are added up.
    separated : a direction of the values that no choice contradicts, in words, or None: without it the likelihood has
        a maximum, and estimates are not of the prior's making.
    evaluated_at : ``"maximum"``, where the likelihood is largest, whatever the prior; ``"posterior mode"``, where the
        choices are separated and there is none; ``"posterior mean"``, of separated choices where kappa has a prior,
        and wherever decisions have subjects. The last two are less than the largest, and so is R2; AIC is more.
    """

    names: list[str]
    mean: np.ndarray
    deviation: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability: float
    log_likelihood: float
    null_log_likelihood: float
    aic: float
    mcfadden_r2: float
    num_decisions: float
    num_parameters: int
    separated: str | None
    evaluated_at: str

    def __str__(self) -> str:
        width = max(map(len, self.names))
        lines = [f"{'':{width}}  {'mean':>9}  {'sd':>9}  {'lower':>9}  {'upper':>9}"]
        for name, *row in zip(self.names, self.mean, self.deviation, self.lower, self.upper, strict=True):
            lines.append(f"{name:{width}}  " + "  ".join(f"{number:9.4g}" for number in row))
        lines.append(
            f"bands of {self.probability:.0%}; {self.num_decisions:g} decisions, {self.num_parameters} parameters"
        )
        place = "its maximum" if self.evaluated_at == "maximum" else f"the {self.evaluated_at}"
        lines.append(
            f"log likelihood at {place} {self.log_likelihood:.3f} (at random {self.null_log_likelihood:.3f}), "
            f"AIC {self.aic:.3f}, McFadden's R2 {self.mcfadden_r2:.4f}"
        )
        if self.separated is not None:
            lines.append(f"separated: {self.separated}")
        return "\n".join(lines)


def summarize_choices(
    model: NoisyMDP, samples: dict[str, Any], data: Decisions, *, probability: float | int = 0.9
) -> ChoiceSummary:
    """Estimates with their posterior bands, and log likelihood, AIC and McFadden's R2.

    Parameters
    ----------
    samples : with ``theta (draw, parameter)``, or ``(draw, subject, parameter)``, such as ``mcmc.get_samples()``; two
        draws at least.
    data : the decisions that were learned from.
    probability : of the bands, which leave out as much below as above.

    Raises
    ------
    TypeError, ValueError
        If the probability is not in (0, 1), there is one draw only, or as `draws_of` and the model's `check`.
    """
    ends = band_ends(probability)
    data = model.check(data)
    if len(draws_of(model, samples, data)) < 2:
        raise ValueError("samples have one draw of theta: deviations and bands need two at least")
    draws = np.asarray(samples["theta"], float)
    parts = model.parts(draws, data)
    flat = np.concatenate([np.asarray(part).reshape(len(draws), -1) for part in parts.values()], axis=1)
    lower, upper = np.percentile(flat, ends, axis=0)
    weight = weights_of(data, known=True)
    null = -float(weight @ np.log(np.asarray(data.legal).sum(-1)))
    separated = model.separation(data)
    if data.subject is not None or (separated and isinstance(model.kappa, dist.Distribution)):
        place, score = "posterior mean", _log_likelihood(model, draws.mean(0), data)
    elif separated:
        place, score = "posterior mode", find_mode(model, data).log_likelihood
    else:
        place, score = "maximum", find_mode(_flat(model), data).log_likelihood
    size = draws[0].size
    return ChoiceSummary(
        _names(parts, data),
        flat.mean(0),
        flat.std(0, ddof=1),
        lower,
        upper,
        float(probability),
        score,
        null,
        2 * size - 2 * score,
        1 - score / null if null < 0 else 0.0,
        float(weight.sum()),
        size,
        separated,
        place,
    )


def _flat(model: NoisyMDP) -> NoisyMDP:
    """The same likelihood under a flat prior."""
    own = np.inf if model.rewards == "own" else model.action_rewards
    return dataclasses.replace(model, kappa=np.inf, action_rewards=own)


def _log_likelihood(model: NoisyMDP, theta: np.ndarray, data: Decisions) -> float:
    weight = weights_of(data, known=True)
    with jax.enable_x64(True):
        chosen = ProbitChoice(model.utilities(theta, data), data.legal)
        each = np.asarray(chosen.log_prob(np.maximum(data.choice, 0)))
    return float(np.where(weight > 0, weight * each, 0).sum())


def _names(parts: dict[str, Any], data: Decisions) -> list[str]:
    known = {"v": data.metadata.feature_names, "action_rewards": data.metadata.action_names}
    names = []
    for site, part in parts.items():
        labels = known[site] or [str(number) for number in range(part.shape[-1])]
        names += (
            [f"{site}[{label}]" for label in labels]
            if data.subject is None
            else [f"{site}[{who}, {label}]" for who in _subjects(data, part.shape[-2]) for label in labels]
        )
    return names


def _subjects(data: Decisions, count: int) -> list[str]:
    """Names of so many subjects; those that the decisions do not name have numbers."""
    names = list(data.metadata.subject_names or ())
    return [*names, *map(str, range(len(names), count))]
