r"""The belief about an agent's intent while it acts: one compiled step, whatever the length of the trace.

.. math:: f_t(y) \propto \pi(a_t \mid y, s_t) \sum_x f_{t-1}(x)\, T(y \mid x, s_{t-1}, a_{t-1})\, \psi_{t-1}(x, y)

over the K intents of the truncation and one more, which stands for all others; psi is the likelihood of a stay label.
The normaliser is the probability of the action given those before it. With several draws of the parameters there is a
belief for each, weighted by its own predictive probabilities.

Equations 7 and 8 of Unhelkar and Shah (2019), forward in time. Change and surprise: the standardised surprisal of the
actions, with forgetting; and a cumulative sum (Page 1954, "Continuous inspection schemes") of its excess over that of
random actions.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.inference.conjugate.posterior import posterior_of, require_model_of
from ethogram.inference.draws import ExportsDraws
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.chains.log_space import safe_log
from ethogram.models.intents.agent_markov import AgentMarkov
from ethogram.models.intents.agent_trace import log_stay_evidence
from ethogram.models.intents.updates import agent_tables
from ethogram.models.printing import short_repr

__all__ = ["BeliefReport", "BelievedAgent", "IntentBelief"]

FORGETTING = 0.95
"""Factor of the surprise of earlier steps."""


class BelievedAgent(NamedTuple):
    """Tables of the agent, one per draw of the parameters; intents are those of the truncation and one for the rest."""

    initial: Array  # (draw, intent)
    transition: Array  # (draw, row, intent, next intent)
    policy: Array  # (draw, state, intent, action)
    row_of: Array  # (state, action + 1), the row of each pair; the last column for missing actions
    log_stay: Array  # (label, intent, next intent): changed, stayed, unknown


@short_repr
class BeliefReport(NamedTuple):
    """What a step says of the intents.

    Attributes
    ----------
    intent : (..., intent + 1) probabilities of the intents given all steps; the last is "none of these".
    action : (..., action) probabilities of the action of this step given the steps before it, and this state.
    change : (...) probability that the intent has changed since the step before; 0 at the first.
    log_predictive : (...) ln p of the action given those before; 0 where it is missing.
    surprise : (...) standardised surprisal: near 0 if the actions are as random as the model says, above 3 if not.
    unlike : (...) nats, the largest excess of a run of steps over random actions: high if no intent explains them.
    """

    intent: Float[Array, "*batch intent"]
    action: Float[Array, "*batch action"]
    change: Float[Array, "*batch"]
    log_predictive: Float[Array, "*batch"]
    surprise: Float[Array, "*batch"]
    unlike: Float[Array, "*batch"]


@short_repr
class IntentBelief(NamedTuple):
    """The belief after the steps so far, of one agent or a batch of them; made by :meth:`start`.

    A pytree of arrays of constant shapes: :meth:`step` compiles once.
    """

    agent: BelievedAgent
    intent: Array  # (draw, ..., intent)
    log_weight: Array  # (draw, ...), relative evidence of each draw
    state: Array  # (...), of the last step, -1 before the first
    action: Array  # (...), of the last step, the number of actions where missing
    excess: Array  # (...), decayed sum of surprisals less their means
    variance: Array  # (...), of that sum
    unlike: Array  # (...)

    @classmethod
    def start(
        cls,
        fit: Any,
        batch_shape: tuple[int, ...] = (),
        *,
        num_draws: int = 0,
        key: Array | None = None,
        model: AgentMarkov | None = None,
    ) -> IntentBelief:
        """The belief before the first step.

        Parameters
        ----------
        fit : result or posterior of an `AgentMarkov`, a `SampledPosterior`, or what has one as
            ``result``, such as an :class:`ethogram.Fit`.
        batch_shape : of the agents that are watched.
        num_draws : draws of the parameters that the belief averages over; 0 takes the posterior means.
        key : for the draws; required with them.
        model : of the draws, where the fit holds none.

        Raises
        ------
        TypeError, ValueError
            The fit is none of an `AgentMarkov`, or the numbers are not positive integers.
        """
        result = getattr(fit, "result", fit)
        require_integer("num_draws", num_draws, 0)
        for size in batch_shape:
            require_integer("batch_shape", size, 1)
        if not (isinstance(result, ExportsDraws) or hasattr(result, "mean")):
            result = posterior_of(result, "fit")
        posterior = getattr(result, "posterior", result)
        model = posterior.model if model is None else model
        require_model_of(model, AgentMarkov, "fit")
        if num_draws:
            if key is None:
                raise ValueError("key is None: draws of the parameters need a typed key")
            require_key(key)
            drawn = posterior.sample(key, num_draws)
            sites = {name: jnp.asarray(site) for name, site in drawn.items()}
        else:
            sites = posterior.mean()
        bound = dataclasses.replace(model, visited=model.rows_carried())
        return cls(*_started(bound, sites, num_draws == 0, tuple(batch_shape)))

    def step(self, state: Any, action: Any, stay: Any = None) -> tuple[IntentBelief, BeliefReport]:
        """The belief after one more step of every agent, and what the step says of the intents.

        Parameters
        ----------
        state : (...) integers, the states now.
        action : (...) integers, the actions taken in them; -1 where missing.
        stay : (...) integers, whether the intent stayed since the step before: 1 stayed, 0 changed, -1 unknown, as
            ``data.stay`` of the step before.

        Raises
        ------
        ValueError, TypeError
            A number is out of range, or not one for each agent; stay labels for a model without `stay_accuracy`.
        """
        shape = self.state.shape
        num_states, _, num_actions = self.agent.policy.shape[1:]
        now = _read("state", state, shape, 0, num_states)
        taken = _read("action", action, shape, -1, num_actions)
        label = np.full(shape, -1, np.int32) if stay is None else _read("stay", stay, shape, -1, 2)
        if (label >= 0).any() and not self.agent.log_stay.size:
            raise ValueError("stay has labels, and the model has no stay_accuracy: give it one, or no labels")
        moved_on, report = _step(self, now, np.where(taken < 0, num_actions, taken).astype(np.int32), label)
        return IntentBelief(self.agent, *moved_on), report

    def next_action(self, state: Any) -> Float[Array, "*batch action"]:
        """Probabilities of the next action of every agent, should its next state be `state` (...)."""
        now = _read("state", state, self.state.shape, 0, self.agent.policy.shape[1])
        return _next_action(self, now)


def _read(name: str, value: Any, shape: tuple[int, ...], least: int, count: int) -> np.ndarray:
    """Integers of this shape from `least` to `count` - 1."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}: give integers")
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}: give one number for each agent, {shape}")
    if array.size and (array.min() < least or array.max() >= count):
        raise ValueError(
            f"{name} is {array.min()} to {array.max()}: expected integers from {least} to {count - 1}"
        )
    return array.astype(np.int32)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _started(
    model: AgentMarkov, sites: dict[str, Array], alone: bool, batch_shape: tuple[int, ...]
) -> tuple[Any, ...]:
    """The fields of a belief before the first step; `alone` where the sites have no axis of draws."""
    agent = _tables(model, jax.tree.map(lambda x: x[None], sites) if alone else sites)
    shape, count = (len(agent.initial), *batch_shape), agent.initial.shape[-1]
    first = agent.initial.reshape(shape[0], *(1,) * len(batch_shape), count)
    zeros, none = jnp.zeros(shape, agent.initial.dtype), jnp.full(batch_shape, -1, jnp.int32)
    return agent, jnp.broadcast_to(first, (*shape, count)), zeros, none, none, *[zeros[0]] * 3


def _tables(model: AgentMarkov, sites: dict[str, Array]) -> BelievedAgent:
    tables = jax.vmap(functools.partial(agent_tables, model), out_axes=(0, 0, None))
    table, policy, row_of = tables(sites)
    count = sites["initial"].shape[-1]
    stay = (
        jnp.zeros((0, count, count))
        if model.stay_accuracy is None
        else log_stay_evidence(model.stay_accuracy, count)
    )
    return BelievedAgent(
        sites["initial"],
        table,
        jnp.moveaxis(policy, 1, 2),
        jnp.asarray(row_of, jnp.int32),
        stay,
    )


def moved(belief: IntentBelief) -> Array:
    """Probabilities (draw, ..., intent, next intent) of the intents of the last step and of the next."""
    agent = belief.agent
    rows = agent.row_of[jnp.maximum(belief.state, 0), belief.action]
    return belief.intent[..., None] * agent.transition[:, rows]


@jax.jit
def _next_action(belief: IntentBelief, state: Array) -> Array:
    following = jnp.where((belief.state < 0)[..., None], belief.intent, moved(belief).sum(-2))
    each = jnp.einsum("d...i,d...ia->d...a", following, belief.agent.policy[:, state])
    return jnp.einsum("d...,d...a->...a", jax.nn.softmax(belief.log_weight, 0), each)


@jax.jit
def _step(
    belief: IntentBelief, state: Array, action: Array, label: Array
) -> tuple[tuple[Array, ...], BeliefReport]:
    """The fields of the belief after the agent, whose tables are not copied, and the report."""
    agent, first = belief.agent, belief.state < 0
    num_actions = agent.policy.shape[-1]
    pair = moved(belief)
    if agent.log_stay.size:  # the label is conditioned on: the predictive is of the action alone
        pair = pair * jnp.exp(agent.log_stay)[label]
        pair = pair / jnp.maximum(pair.sum((-2, -1), keepdims=True), jnp.finfo(pair.dtype).tiny)
    before = jnp.where(first[..., None], belief.intent, pair.sum(-2))
    policy = agent.policy[:, state]
    chances = jnp.einsum("d...i,d...ia->d...a", before, policy)
    known, taken = action < num_actions, jnp.minimum(action, num_actions - 1)
    taken = jnp.broadcast_to(taken[..., None], (*belief.log_weight.shape, 1))
    likelihood = jnp.where(known[..., None], jnp.take_along_axis(policy, taken[..., None], -1)[..., 0], 1)
    joint = before * likelihood
    evidence = joint.sum(-1)
    possible = evidence > 0
    intent = jnp.where(possible[..., None], joint / jnp.where(possible, evidence, 1)[..., None], before)
    share = jax.nn.softmax(belief.log_weight, 0)
    log_weight = belief.log_weight + safe_log(evidence)
    log_weight = log_weight - jnp.maximum(log_weight.max(0), jnp.finfo(evidence.dtype).min)
    after = jax.nn.softmax(log_weight, 0)
    kept = jnp.trace(pair * likelihood[..., None, :], axis1=-2, axis2=-1)
    kept = kept / jnp.where(possible, evidence, 1)
    predicted = jnp.einsum("d...,d...a->...a", share, chances)
    log_chance = safe_log(predicted)
    surprisal = jnp.where(known, -jnp.take_along_axis(log_chance, taken[0], -1)[..., 0], 0)
    entropy = -jnp.sum(jnp.where(predicted > 0, predicted * log_chance, 0), -1)
    square = jnp.sum(jnp.where(predicted > 0, predicted * jnp.square(log_chance), 0), -1)
    decay = jnp.where(known, FORGETTING, 1.0)
    excess = decay * belief.excess + jnp.where(known, surprisal - entropy, 0)
    variance = decay**2 * belief.variance + jnp.where(known, square - jnp.square(entropy), 0)
    unlike = jnp.maximum(belief.unlike + jnp.where(known, surprisal - jnp.log(num_actions), 0), 0)
    report = BeliefReport(
        jnp.einsum("d...,d...i->...i", after, intent),
        predicted,
        jnp.where(first, 0, 1 - jnp.einsum("d...,d...->...", after, kept)),
        -surprisal,
        jnp.where(variance > 0, excess / jnp.sqrt(jnp.where(variance > 0, variance, 1)), 0),
        unlike,
    )
    return (intent, log_weight, state, action, excess, variance, unlike), report
