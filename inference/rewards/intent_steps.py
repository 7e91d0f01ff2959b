r"""Steps of structured variational inference for rewards between which an agent switches.

q factorises into paths of intents, their chain, and the rewards, :math:`q(z)\, q(\pi, T) \prod_k q(w_k)`:

.. math:: L = \ln \sum_z \exp\big(E[\ln \pi_{z_1}] + \sum_t E[\ln T_{z_t z_{t+1}}]
              + \sum_t E[\ln \pi_{z_t}(a_t \mid s_t)]\big) - KL(q(\pi, T) \| p) - \sum_k KL(q(w_k) \| N(0, I))

The optimal q(z) is by forward-backward; the gradient of the first term has the statistics of the chain and the
fractional counts :math:`n_k(s, a) = \sum_t q(z_t = k) [s_t = s, a_t = a]`, on which the rewards take natural-gradient
steps. Expectations under q(w) are means over antithetic draws. At a fixed q(z) they enter the bound linearly, so that
on fresh draws its estimate is unbiased.

Ghahramani and Jordan (1997), "Factorial hidden Markov models", section 3.3, for structured approximations; Hoffman,
Blei, Wang and Paisley (2013), eq. 15, for the chain.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.inference.rewards.gaussian import (
    Normals,
    RewardGaussian,
    divergence,
    log_hyper_prior,
    rewards_at,
)
from ethogram.models.chains.conjugate_chain import ChainData, ChainEmission, conjugate_log_normalizer
from ethogram.models.data.state_action_steps import AgentSteps
from ethogram.models.families.exponential_family import Dirichlet, expected_statistics, natural_step, total_kl
from ethogram.models.model_object import model_object
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = [
    "LocalStep",
    "chain_data",
    "intent_bounds",
    "intent_sweeps",
    "local_step",
    "log_policies",
    "table_starts",
]

Blocks = dict[str, Dirichlet]


@model_object
class PolicyTable(ChainEmission):
    """State-action pairs as symbols, whose expected log probabilities under each intent are a block of their own."""

    def symbol_table(self, expected: dict[str, Any]) -> Array:
        """Expected log probability (symbol, intent)."""
        return expected["policy"]


class LocalStep(NamedTuple):
    """The optimal q(z): the log normaliser, and the statistics of the data under it."""

    log_normalizer: Array
    chain: dict[str, Any]  # statistics of the blocks of the chain
    counts: Array  # (intent, state, action), fractional


def chain_data(steps: AgentSteps, num_actions: int) -> ChainData:
    """State-action pairs of checked demonstrations as symbols."""
    known = steps.inside & (steps.action >= 0)
    symbol = np.where(known, steps.state * num_actions + steps.action, 0)
    return ChainData(jnp.asarray(symbol), jnp.asarray(known), jnp.asarray(steps.inside.sum(1)))


def local_step(log_policy: Array, blocks: Blocks, data: ChainData) -> LocalStep:
    """The optimal q(z) at expected log probabilities (intent, state, action) of actions and the blocks of the chain."""
    # Actions that are not available do not occur.
    table = jnp.where(jnp.isfinite(log_policy), log_policy, 0).reshape(len(log_policy), -1).T
    expected = expected_statistics(blocks) | {"policy": table}
    value, found = jax.value_and_grad(lambda e: conjugate_log_normalizer(PolicyTable(), e, data))(expected)
    counts = found.pop("policy").T.reshape(log_policy.shape)
    return LocalStep(value, found, counts)


@functools.partial(jax.jit, static_argnames="point")
def log_policies(model: GPIRL, q: RewardGaussian, normals: Normals, point: bool = True) -> Array:
    """Log probabilities (draw, intent, state, action) of actions under draws from q(w)."""
    reward, times, _ = rewards_at(model, q, normals, point)
    return model.agent(reward, times[:, None, None]).log_policy


@functools.partial(jax.jit, static_argnames="num_sweeps")
def intent_sweeps(
    at_draws: Array, blocks: Blocks, prior: Blocks, data: ChainData, num_sweeps: int
) -> tuple[Blocks, LocalStep]:
    """Blocks of the chain after some updates, each with the optimal q(z), and the last q(z)."""
    table = jnp.mean(at_draws, 0)

    def update(_, blocks):
        return natural_step(blocks, prior, local_step(table, blocks, data).chain, 1.0, 1.0)

    blocks = lax.fori_loop(0, num_sweeps, update, blocks)
    return blocks, local_step(table, blocks, data)


@jax.jit
def intent_bounds(
    model: GPIRL,
    q: RewardGaussian,
    blocks: Blocks,
    prior: Blocks,
    step: LocalStep,
    of_step: Array,
    at_draws: Array,
) -> Array:
    """The ELBO at every draw (draw,), whose mean estimates it, of a q(z) that is optimal at other draws.

    Parameters
    ----------
    step, of_step : q(z), and the log probabilities (draw, intent, state, action) that it is optimal for.
    at_draws : the same on the draws of which the ELBO is the mean.
    """
    counts = step.counts
    change = jnp.where(counts > 0, at_draws - jnp.where(counts > 0, jnp.mean(of_step, 0), 0), 0)
    expected = step.log_normalizer + jnp.sum(counts * change, (-3, -2, -1))
    rest = total_kl(blocks, prior) + divergence(q) - log_hyper_prior(model, q.log_hyper)
    return expected - rest


SMOOTHING = 5.0
"""Pseudo-counts, of the pooled actions, of a table of actions that starts an intent."""


@functools.partial(jax.jit, static_argnames="num_steps")
def table_starts(counts: Array, blocks: Blocks, prior: Blocks, data: ChainData, num_steps: int) -> LocalStep:
    """The q(z) of intents with tables of actions for policies, by expectation maximisation from counts of each."""
    pooled = jnp.sum(counts, 0)
    pooled = (pooled + 1) / jnp.sum(pooled + 1, -1, keepdims=True)

    def table(counts):
        smoothed = counts + SMOOTHING * pooled
        return jnp.log(smoothed) - jnp.log(jnp.sum(smoothed, -1, keepdims=True))

    def update(_, now):
        counts, blocks = now
        step = local_step(table(counts), blocks, data)
        return step.counts, natural_step(blocks, prior, step.chain, 1.0, 1.0)

    counts, blocks = lax.fori_loop(0, num_steps, update, (counts, blocks))
    return local_step(table(counts), blocks, data)
