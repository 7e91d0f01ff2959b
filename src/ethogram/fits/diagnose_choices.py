"""What is wrong with a fit of choices: its predictions, its prior, and tables that explain the choices better."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro.distributions import Distribution
from scipy.special import logsumexp

from ethogram.inference.diagnostics import Finding
from ethogram.inference.diagnostics.choices import Predicted, of_predictions, of_prior
from ethogram.inference.diagnostics.tables import of_scores, table_scores
from ethogram.inference.draws import flat_draws
from ethogram.models.quick_jit import quick_jit

__all__ = ["of_choices"]

DRAWS = 20
"""Of the parameters, of which predictions are means."""
LEAST_PROBABILITY = 1e-9
"""Of a choice: below it they are rounded."""
LARGE = 2**24
"""Probabilities of all draws from which on there are fewer."""


def of_choices(fit: Any, thorough: bool) -> Iterator[Finding]:
    """Findings of the choices that are known; each is predicted by all, which is cautious."""
    from ethogram.models.choices.choice_problem import padded
    from ethogram.models.choices.decisions import weights_of

    data, model = fit.data, fit.model
    weight = weights_of(data, known=True)
    known = weight > 0
    sites = flat_draws(fit.draws().sites)
    count = min(DRAWS, max(10, LARGE // data.legal.size)) * (10 if thorough else 1)
    rows = np.unique(np.linspace(0, len(sites["theta"]) - 1, count).round().astype(int))
    problem = padded(model.check(data, condition=False)).without_names()
    found = _predicted(model, sites["theta"][rows], problem)
    probability, of_chosen = (np.asarray(each, float)[..., : len(known), :][..., known, :] for each in found)
    log_density = np.log(np.maximum(of_chosen[..., 0], LEAST_PROBABILITY))
    names = data.metadata.feature_names or [f"feature {at}" for at in range(data.features.shape[-1])]
    subject = np.zeros(len(known), int) if data.subject is None else np.asarray(data.subject)
    legal, choice = np.asarray(data.legal)[known], np.asarray(data.choice)[known]
    features = np.asarray(data.features, float)[known]
    design = np.asarray(problem.design, float)[: len(known)][known]
    design = design if data.subject is None else design[..., :0]
    predicted = Predicted(
        probability, choice, features, legal, weight[known], subject[known], design, np.flatnonzero(known)
    )
    if model.kind == "features":
        yield from of_predictions(predicted, names)
    else:
        yield from of_predictions(predicted._replace(features=features[..., :0]), [])
    score = logsumexp(log_density, axis=0) - np.log(len(rows)) - log_density.var(0)
    yield from of_scores(score, table_scores(legal, choice), weight[known])
    variance = model.kappa if data.subject is None else model.loc_kappa
    if model.kind == "features" and not isinstance(variance, Distribution) and np.isfinite(variance):
        site = sites["theta" if data.subject is None else "loc"]
        deviation = np.sqrt(np.full(features.shape[-1], float(variance)))
        yield from of_prior(site[:, : len(deviation)], deviation, names)


@quick_jit(calls=2**11)
def _predicted(model: Any, theta: Array, problem: Any) -> tuple[Array, Array]:
    """Mean probabilities (decision, option), and those of what was chosen (draw, decision, 1)."""
    chosen = jax.numpy.maximum(problem.data.choice, 0)[:, None]

    def add(total: Array, one: Array) -> tuple[Array, Array]:
        probs = model.likelihood({"theta": one}, problem).probs
        return total + probs / len(theta), jax.numpy.take_along_axis(probs, chosen, 1)

    start = jax.numpy.zeros(problem.data.legal.shape, theta.dtype)
    return jax.lax.scan(add, start, theta)
