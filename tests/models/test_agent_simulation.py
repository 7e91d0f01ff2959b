"""Simulated agents: from the prior and back, tables of an agent, and forecasts."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.domains import line_world
from ethogram.models.agent_markov import AgentMarkov, Constraints

WORLD = line_world.NEXT_STATE
S, A = WORLD.shape


def test_a_simulated_agent_keeps_to_its_parameters():
    """Rates of actions and of intents in 60 000 steps, each within 4.5 standard errors of the parameters."""
    model = AgentMarkov(S, A, 2, stay_accuracy=0.8, constraints=Constraints.never_switch([2]))
    data, intents, parameters = model.simulate(jax.random.key(0), WORLD, np.zeros(1500, int) + 2, 40)
    agent = model.agent(parameters)
    within = intents < 2
    for table, outcome, count in (
        (np.asarray(agent.policy), np.asarray(data.actions), A),
        (np.asarray(agent.transition), np.roll(intents, -1, axis=1), 3),
    ):
        labels = [intents, np.asarray(data.states)] + ([np.asarray(data.actions)] if table.ndim == 4 else [])
        take = within & (np.arange(40) < (39 if table.ndim == 4 else 40))
        seen = np.zeros((*table.shape[:-1], count))
        np.add.at(seen, (*(label[take] for label in labels), outcome[take]), 1)
        total = seen.sum(-1, keepdims=True)
        error = np.sqrt(table * (1 - table) / np.maximum(total, 1))
        assert (
            np.abs(seen / np.maximum(total, 1) - np.where(total > 0, table, 0)) <= 4.5 * error + 1e-6
        ).all()
    here = (np.asarray(data.states) == 2)[:, :-1] & within[:, :-1]
    assert here.sum() > 1000 and (intents[:, 1:] == intents[:, :-1])[here].all()
    right = (np.asarray(data.stay)[:, :-1] == (intents[:, 1:] == intents[:, :-1])).mean()
    assert abs(right - 0.8) < 4.5 * np.sqrt(0.16 / 58500)


def test_tables_obey_constraints_where_data_never_were():
    """Rows of pairs without data have the bounds too, a row for each kind of bounds."""
    known = Constraints.never_switch([4]).stay([0, 3], at_least=0.9).stay([1], equal=0.7)
    model = AgentMarkov(S, A, 3, constraints=known).bind(
        line_world.simulate(jax.random.key(1), num_traces=1, length=2).data
    )
    blocks = model.prior()
    assert model.visited.num_rows < 10, "pairs without data share a row by their bounds"
    agent = model.agent({name: block.mean() for name, block in blocks.items()})
    own = np.diagonal(np.moveaxis(np.asarray(agent.transition), 0, 2), axis1=2, axis2=3)
    np.testing.assert_allclose(own[4], 1, rtol=1e-6)
    assert own[[0, 3]].min() >= 0.9 - 1e-6
    np.testing.assert_allclose(own[1], 0.7, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(agent.transition).sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(agent.policy).sum(-1), 1, rtol=1e-5)


def test_a_forecast_goes_on_from_the_last_step():
    """The first state to come follows from the last step; a certain policy is followed to its goal."""
    agent = line_world.true_agent()
    model = AgentMarkov(S, A, 2)
    parameters = model.simulate(jax.random.key(0), WORLD, [0], 2).parameters
    padded = np.pad(agent.transition, [(0, 0)] * 3 + [(0, 1)])
    pairs = np.asarray(model.rows_carried().pairs)
    parameters |= {
        "initial": np.append(agent.initial, 0.0),
        "transition": np.moveaxis(padded, 0, 2)[pairs // (A + 1), pairs % (A + 1)],
        "policy": np.asarray(agent.policy),
    }
    life = line_world.simulate(jax.random.key(2), num_traces=30, length=6)
    trace = model.observation(parameters, life.data)
    ahead = trace.forecast(jax.random.key(3), model.observed_value(life.data), 5, WORLD)
    np.testing.assert_array_equal(
        ahead.states[:, 0], WORLD[life.data.states[:, -1], life.data.actions[:, -1]]
    )
    np.testing.assert_array_equal(ahead.states[:, 1:], WORLD[ahead.states[:, :-1], ahead.actions[:, :-1]])
    towards = np.asarray(agent.policy)[ahead.intents, ahead.states].argmax(-1)
    np.testing.assert_array_equal(ahead.actions, towards)
    # An intent that its actions give away goes on: the goal is known from any step between the ends.
    told = np.isin(life.data.states[:, -1], [1, 2, 3])
    np.testing.assert_array_equal(ahead.intents[told, 0], life.intents[told, -1])


@pytest.mark.slow
def test_nuts_keeps_hard_zeros():
    """With an identity row for the steps that never change, intents change elsewhere only."""
    from numpyro.infer import MCMC, NUTS

    data = line_world.simulate(jax.random.key(4), num_traces=1, length=6).data
    known = Constraints.never_switch([1, 2, 3]).action(2, [2], equal=0.0)
    model = AgentMarkov(S, A, 2, beta_prior="fixed", constraints=known)
    sampler = MCMC(NUTS(model), num_warmup=20, num_samples=20, progress_bar=False)
    sampler.run(jax.random.key(5), data)
    draws = sampler.get_samples()
    bound = model.bind(data)
    never = np.asarray(bound.visited.never)
    assert never.any()
    np.testing.assert_array_equal(
        draws["transition"][:, never], np.broadcast_to(np.eye(2, 3), (20, never.sum(), 2, 3))
    )
    place = np.asarray(bound.visited.states).tolist().index(2)
    np.testing.assert_array_equal(draws["policy"][:, :, place, 2], 0)
    assert np.isfinite(sampler.get_extra_fields()["diverging"]).all()
