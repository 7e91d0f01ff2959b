"""Bounds of agent Markov models against enumeration and across truncations."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.intents import AgentMarkov
from ethogram.models.intents.updates import prior_given

S, A, GAMMA = 2, 2, 2.5
STATES, ACTIONS = [0, 1, 1, 0, 1, 0], [0, 1, 1, 1, 0, 0]
DATA = Trajectories.from_list(states=[STATES], actions=[ACTIONS])


def model_of(truncation, **settings):
    return AgentMarkov(S, A, truncation, gamma=GAMMA, **settings).bind(DATA)


@jax.jit
def ascended(model, blocks, batch):
    """Blocks after 60 steps of coordinate ascent, and their bound."""

    def value(expected):
        return model.log_normalizer(expected, batch)

    def sweep(blocks, _):
        return model.update(blocks, None, jax.grad(value)(expected_statistics(blocks)), 1.0, 1.0), None

    blocks, _ = jax.lax.scan(sweep, blocks, length=60)
    return blocks, bound(model, blocks, batch)


def bound(model, blocks, batch):
    return model.log_normalizer(expected_statistics(blocks), batch) - model.divergence(blocks)


def started(model):
    """The prior, with policies that differ by intent."""
    blocks = model.prior()
    policy = blocks["policy"]
    tilt = jnp.asarray(np.random.default_rng(0).gamma(1.0, size=policy.natural.concentration.shape))
    natural = policy.natural._replace(concentration=policy.natural.concentration + tilt)
    return {**blocks, "policy": dataclasses.replace(policy, natural=natural)}


@pytest.mark.parametrize(
    ("truncation", "beta_prior"), [(1, "stick"), (2, "stick"), (1, "fixed"), (2, "fixed")]
)
def test_the_bound_is_below_the_evidence_and_reaches_it_without_latent_paths(
    trace_oracle, truncation, beta_prior
):
    """Log p(data, beta), paths enumerated and rows integrated exactly; with one intent q is exact."""
    model = model_of(truncation, beta_prior=beta_prior)
    blocks, value = ascended(model, started(model), model.arrange(DATA))
    weights = np.asarray(blocks["weights"].mean())
    trace = trace_oracle.Trace(STATES, ACTIONS, [-1] * 5)
    exact = trace_oracle.log_marginal([trace], 3.0, weights, np.ones(A), S, A)
    exact += (GAMMA - 1) * np.log(weights[-1]) if beta_prior == "stick" else 0
    if truncation == 1:
        np.testing.assert_allclose(value, exact, rtol=1e-10)
    else:
        assert exact - 3 < value < exact


def test_an_unused_intent_leaves_the_bound_where_it_is():
    """Two intents among K, the others without counts and at their prior: the limit of small weights."""
    small = model_of(2)
    blocks, value = ascended(small, started(small), small.arrange(DATA))
    for truncation in (3, 6):
        model, more, tiny = model_of(truncation), truncation - 2, 1e-9
        first = np.asarray(blocks["weights"].natural)
        weights = np.concatenate([first[:2], np.full(more, tiny), [first[2] - more * tiny]])
        point = dataclasses.replace(model.prior()["weights"], natural=jnp.asarray(weights))
        prior = prior_given(model, point)
        counts = {
            name: np.asarray(blocks[name].natural.concentration)
            - np.asarray(prior_given(small, blocks["weights"])[name].natural.concentration)
            for name in ("initial", "transition", "policy")
        }
        padding = {"initial": [(0, more)], "transition": [(0, 0), (0, more), (0, more)]}
        padding["policy"] = [(0, more), (0, 0), (0, 0)]
        q = {"weights": point}
        for name, around in padding.items():
            rows = prior[name].natural.concentration
            natural = prior[name].natural._replace(concentration=rows + np.pad(counts[name], around))
            q[name] = dataclasses.replace(prior[name], natural=natural)
        found = jax.jit(bound)(model, q, model.arrange(DATA))
        np.testing.assert_allclose(found, value, atol=1e-6)
