"""Posterior of the latent intents of traces under a fitted agent Markov model.

Smoothed marginals of the chain of intents, eq. 7-8 of Unhelkar and Shah (2019), at posterior means of the parameters,
given that the intents are among the K of the truncation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult, posterior_of
from ethogram.models.chains.markov_chain import Marginals
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents.agent_markov import AgentMarkov

__all__ = ["USED", "InferredIntents", "infer_intents"]

USED = 0.01
"""Smallest share of the steps with which an intent counts as used."""


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


def infer_intents(posterior: ConjugatePosterior | ConjugateResult, data: Trajectories) -> InferredIntents:
    """Posterior probabilities of the intents of traces, at posterior means of the parameters.

    Paths are among the K intents of the truncation, as in the fit; ``model.observation(parameters, data).smooth`` has
    one more intent, for all others.

    Parameters
    ----------
    posterior : posterior of an :class:`~ethogram.models.intents.AgentMarkov`, or a result that has one.
    data : traces in the same environment, those of the fit or others.

    Raises
    ------
    TypeError
        If `posterior` is none, or of another model.
    """
    posterior = posterior_of(posterior)
    model = posterior.model
    if not isinstance(model, AgentMarkov):
        raise TypeError(f"posterior is of a {type(model).__name__}: give one of an AgentMarkov")
    marginals = _smoothed(model, posterior.mean(), data)
    probability, pair = np.asarray(marginals.state)[..., :-1], np.asarray(marginals.pair)
    inside = np.arange(probability.shape[1]) < np.asarray(data.lengths)[:, None]
    probability = np.where(inside[..., None], probability, 0)
    visits = np.zeros((model.truncation, model.num_states))
    np.add.at(visits.T, np.asarray(data.states)[inside], probability[inside])
    share = visits.sum(-1) / visits.sum()
    order = np.argsort(-share)
    change = pair.sum((-2, -1)) - np.trace(pair, axis1=-2, axis2=-1)
    labels = np.where(inside, probability.argmax(-1), -1)
    return InferredIntents(probability, labels, change, visits, order[share[order] > USED])


@jax.jit
def _smoothed(model: AgentMarkov, parameters: dict[str, Any], data: Trajectories) -> Marginals:
    return model.observation(parameters, data).within_truncation().smooth(model.observed_value(data))
