"""What is wrong with a fit of choices: its predictions, its prior, and tables that explain the choices better."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro.distributions import Distribution
from scipy.special import logsumexp

from ethogram.inference.diagnostics import Finding
from ethogram.inference.diagnostics.choices import Predicted, of_predictions, of_prior
from ethogram.inference.diagnostics.tables import CONCENTRATION, of_heldout, of_scores, table_scores
from ethogram.inference.draws import flat_draws
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit

__all__ = ["of_choices"]

DRAWS, LEAST_DRAWS = 20, 6
"""Of the parameters, of which predictions are means; fewer of large data, whose posterior is narrow."""
LEAST_PROBABILITY = 1e-9
"""Of a choice: below it they are rounded."""
FOLDS = 4
LARGE = 2**19
"""Probabilities of all draws from which on there are fewer."""


def of_choices(fit: Any, thorough: bool) -> Iterator[Finding]:
    """Findings of the choices that are known; each is predicted by all, which is cautious."""
    from ethogram.models.choices.choice_problem import padded
    from ethogram.models.choices.decisions import weights_of

    data, model = fit.data, fit.model
    weight = weights_of(data, known=True)
    known = weight > 0
    sites = flat_draws(fit.draws().sites)
    count = int(np.clip(LARGE // data.legal.size, LEAST_DRAWS, DRAWS)) * (10 if thorough else 1)
    rows = np.unique(np.linspace(0, len(sites["theta"]) - 1, count).round().astype(int))
    problem = padded(model.check(data, condition=False)).without_names()
    found = _predicted(model, {name: sites[name][rows] for name in model.needed_sites()}, problem)
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
    if thorough:
        yield from _of_folds(fit)


def _of_folds(fit: Any) -> Iterator[Finding]:
    """Whether equal chances, shares of the slots, or the model with constants of these predict folds better."""
    from ethogram.inference.choices.laplace import laplace_choices
    from ethogram.models.choices.choice_problem import padded
    from ethogram.models.choices.decisions import weights_of

    data, weight = fit.data, np.asarray(weights_of(fit.data, known=True), float)
    legal, choice, known = np.asarray(data.legal), np.maximum(data.choice, 0), weight > 0
    models = {"the model": fit.model}
    if fit.model.rewards == "none":
        models["the model with action_rewards=True"] = dataclasses.replace(fit.model, action_rewards=True)
    names = (*models, "the table of shares of the slots", "the table of equal chances")
    fold = numpy_generator(fit._key).permutation(len(weight)) % FOLDS
    scores = np.zeros((len(names), len(weight)))
    for number in range(FOLDS):
        rest = np.where(fold == number, 0.0, weight)
        share = np.bincount(choice, rest, legal.shape[1]) + CONCENTRATION
        each = [share * legal / (legal @ share)[:, None], legal / legal.sum(1, keepdims=True)]
        for model in reversed(models.values()):
            try:
                drawn = laplace_choices(fit._key, model, data._replace(weight=rest))
            except (RuntimeError, ValueError):  # no mode, or the rest is separated under a flat prior
                return
            step = len(drawn.sites["theta"][0]) // DRAWS
            sites = {name: drawn.sites[name][0, ::step] for name in model.needed_sites()}
            problem = padded(model.check(data, condition=False)).without_names()
            each.insert(0, np.asarray(_predicted(model, sites, problem)[0], float)[: len(weight)])
        chosen = np.maximum(
            [probability[np.arange(len(choice)), choice] for probability in each], LEAST_PROBABILITY
        )
        scores += np.where(fold == number, np.log(chosen), 0)
    mean = np.average(scores, axis=1, weights=weight)
    error = (scores - scores[0])[:, known].std(1) / np.sqrt(known.sum())
    peers = {name: (float(mean[at]), float(error[at])) for at, name in enumerate(names) if at}
    yield from of_heldout(float(mean[0]), peers)


@quick_jit(calls=2**11)
def _predicted(model: Any, sites: dict[str, Array], problem: Any) -> tuple[Array, Array]:
    """Mean probabilities (decision, option), and those of what was chosen (draw, decision, 1)."""
    chosen, theta = jax.numpy.maximum(problem.data.choice, 0)[:, None], sites["theta"]

    def add(total: Array, one: dict[str, Array]) -> tuple[Array, Array]:
        probs = model.likelihood(one, problem).probs
        return total + probs / len(theta), jax.numpy.take_along_axis(probs, chosen, 1)

    start = jax.numpy.zeros(problem.data.legal.shape, theta.dtype)
    return jax.lax.scan(add, start, sites)
