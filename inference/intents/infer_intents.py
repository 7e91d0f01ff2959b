"""Posterior of the latent intents of traces under a fitted agent Markov model.

Smoothed marginals of the chain of intents, eq. 7-8 of Unhelkar and Shah (2019), at posterior means of the parameters,
given that the intents are among the K of the truncation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ethogram.inference.conjugate.padded_shapes import padded_data
from ethogram.inference.conjugate.posterior import posterior_that_fits
from ethogram.inference.smoothed_draws import DRAWS, are_draws, average_over_draws
from ethogram.models.chains.markov_chain import Marginals
from ethogram.models.data.parts import gathered
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents.agent_markov import AgentMarkov
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = ["USED", "InferredIntents", "infer_intents"]

USED = 0.01
"""Smallest share of the steps with which an intent counts as used."""


@short_repr
class InferredIntents(NamedTuple):
    """Posterior of the intents of traces.

    Attributes
    ----------
    probability : posterior probability of each intent given the whole trace, zero beyond a length.
    labels : most probable intent of each step, -1 beyond a length.
    change : posterior probability that the intent changes after each step.
    visits : expected number of steps in each state under each intent.
    used : intents with a share of the steps above `USED`, in decreasing order.
    """

    probability: Float[np.ndarray, "sequence time intent"]
    labels: Int[np.ndarray, "sequence time"]
    change: Float[np.ndarray, "sequence step"]
    visits: Float[np.ndarray, "intent state"]
    used: Int[np.ndarray, "used"]


def infer_intents(posterior: Any, data: Trajectories, *, model: Any = None) -> InferredIntents:
    """Posterior probabilities of the intents of traces, at posterior means of the parameters, or averaged over draws.

    `infer_roles` uses the expected log potentials of q instead, under which probabilities differ a little.

    Labels may switch between draws and chains: each draw is relabelled to overlap most with the mean of those before
    it, so that intents are numbered as in the first draw.

    Paths are among the K intents of the truncation, as in the fit; ``model.likelihood(parameters, data).smooth`` has
    one more intent, for all others.

    Parameters
    ----------
    posterior : posterior of an :class:`~ethogram.models.intents.AgentMarkov`, or a result that has one;
        or draws: a `SampledPosterior`, numpyro's ``MCMC`` after its run, or its ``get_samples()``, arrays (draw, ...)
        by site.
    data : traces in the same environment, those of the fit or others.
    model : of draws by site; an ``MCMC`` and a posterior hold theirs.
    """
    if are_draws(posterior):
        model, averaged = average_over_draws(posterior, data, model, AgentMarkov)
        return _summary(model, data, averaged.state, averaged.change)
    posterior = posterior_that_fits(posterior, data, AgentMarkov, accepted=DRAWS)
    model, mean = posterior.model, posterior.mean()
    visits = np.zeros((model.truncation, model.num_states))

    def decode(part: Trajectories) -> tuple[np.ndarray, ...]:
        found = _decoded(model, mean, part)
        np.add(visits, found.visits, out=visits)
        return found[:3]

    probability, labels, change = gathered(data, decode, "states")
    return InferredIntents(probability, labels, change, visits, _used(visits))


def _decoded(model: AgentMarkov, mean: Any, data: Trajectories) -> InferredIntents:
    """The intents of traces that fit the model, at parameters by site."""
    count, width = np.shape(data.observed)
    entries = model.entries(padded_data(model, data))
    marginals = _smoothed(model, mean, entries.batch, entries.value)
    pair = np.asarray(marginals.pair)[:count, : width - 1]
    change = pair.sum((-2, -1)) - np.trace(pair, axis1=-2, axis2=-1)
    return _summary(model, data, np.asarray(marginals.state)[:count, :width, :-1], change)


def _summary(
    model: AgentMarkov, data: Trajectories, probability: np.ndarray, change: np.ndarray
) -> InferredIntents:
    inside = np.arange(probability.shape[1]) < np.asarray(data.lengths)[:, None]
    probability = np.where(inside[..., None], probability, 0)
    visits = np.zeros((model.truncation, model.num_states))
    np.add.at(visits.T, np.asarray(data.states)[inside], probability[inside])
    labels = np.where(inside, probability.argmax(-1), -1)
    return InferredIntents(probability, labels, change, visits, _used(visits))


def _used(visits: np.ndarray) -> np.ndarray:
    """Intents with a share of the steps above `USED`, in decreasing order."""
    share = visits.sum(-1) / visits.sum()
    order = np.argsort(-share)
    return order[share[order] > USED]


@quick_jit
def _smoothed(model: AgentMarkov, parameters: dict[str, Any], batch: Any, value: Any) -> Marginals:
    return model.likelihood(parameters, batch).within_truncation().smooth(value)
