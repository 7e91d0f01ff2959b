"""The intents behind traces, as a fitted agent Markov model infers them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram.inference.conjugate_result import ConjugateResult
from ethogram.models.agent_markov import AgentMarkov
from ethogram.models.markov_chain import Marginals
from ethogram.models.trajectories import Trajectories

__all__ = ["USED", "InferredIntents", "infer_intents"]

USED = 0.01
"""Share of the steps from which an intent counts as used."""


class InferredIntents(NamedTuple):
    """What a fit says of the intents of traces.

    Attributes
    ----------
    probability : (sequence, time, intent), given the whole trace, zero beyond a length.
    labels : (sequence, time) the most probable intent, -1 beyond a length.
    change : (sequence, time - 1) probability that the intent changes after each step.
    visits : (intent, state) expected steps.
    used : numbers of the intents that hold more than `USED` of the steps, the most used first.
    """

    probability: np.ndarray
    labels: np.ndarray
    change: np.ndarray
    visits: np.ndarray
    used: np.ndarray


def infer_intents(result: ConjugateResult, data: Trajectories) -> InferredIntents:
    """Posterior of the intents of traces, at the posterior means of the parameters.

    Parameters
    ----------
    result : a fit of :class:`~ethogram.models.agent_markov.AgentMarkov`.
    data : traces of the same world, those of the fit or others.

    Raises
    ------
    TypeError
        If the fit is of another model.
    """
    model = result.posterior.model
    if not isinstance(model, AgentMarkov):
        raise TypeError(f"result is a fit of {type(model).__name__}: intents are those of an AgentMarkov")
    marginals = _smoothed(model, result.posterior.mean(), data)
    probability, pair = np.asarray(marginals.state), np.asarray(marginals.pair)
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
    return model.observation(parameters, data).smooth(model.observed_value(data))
