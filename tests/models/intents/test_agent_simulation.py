"""Simulated agents: from the prior and back, tables of an agent, forecasts, and the numpyro model."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.domains import line_world
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov, IntentAgent, IntentConstraints, roll_out

DYNAMICS = line_world.NEXT_STATE
S, A = DYNAMICS.shape


@pytest.mark.parametrize("drawn", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_simulated_agent_keeps_to_its_parameters(drawn):
    """Rates of actions and of intents in 60 000 steps, each within 4.5 standard errors of the parameters."""
    model = AgentMarkov(
        S, A, 2, stay_accuracy=0.8, constraints=IntentConstraints.never_switch([2]), stickiness=None
    )
    parameters, random = None, np.random.default_rng(0)
    if not drawn:
        rows, never = (
            random.dirichlet(np.ones(3), (len(model.rows_carried().pairs), 2)),
            model.rows_carried().never,
        )
        parameters = {"weights": random.dirichlet(np.ones(3)), "initial": random.dirichlet(np.ones(3))}
        parameters["transition"] = np.where(np.asarray(never)[:, None, None], np.eye(2, 3), rows)
        parameters["policy"] = random.dirichlet(np.ones(A), (2, S))
    first = np.zeros(1500, int) + 2
    data, intents, parameters = model.simulate(jax.random.key(0), DYNAMICS, first, 40, parameters=parameters)
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
    known = IntentConstraints.never_switch([4]).stay([0, 3], at_least=0.9).stay([1], equal=0.7)
    model = AgentMarkov(S, A, 3, constraints=known).bind(
        Trajectories.from_list(states=[[3, 2]], actions=[[0, 2]])
    )
    blocks = model.prior()
    assert model.visited.num_rows < 10, "pairs without data share a row by their bounds"
    means = jax.jit(lambda blocks: {name: block.mean() for name, block in blocks.items()})
    agent = model.agent(means(blocks))
    own = np.diagonal(np.moveaxis(np.asarray(agent.transition), 0, 2), axis1=2, axis2=3)
    np.testing.assert_allclose(own[4], 1, rtol=1e-6)
    assert own[[0, 3]].min() >= 0.9 - 1e-6
    np.testing.assert_allclose(own[1], 0.7, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(agent.transition).sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(agent.policy).sum(-1), 1, rtol=1e-5)


def test_a_forecast_goes_on_from_the_last_step():
    """The first state to come follows from the last step; a deterministic policy is followed to its goal."""
    agent = line_world.true_agent()
    model = AgentMarkov(S, A, 2, stickiness=None)
    padded = np.pad(agent.transition, [(0, 0)] * 3 + [(0, 1)])
    # A third intent that none takes: the program is that of the other simulations.
    tables = np.append(agent.initial, 0.0), np.pad(padded, [(0, 1)] + [(0, 0)] * 3, constant_values=1 / 3)
    three = IntentAgent(*tables, np.pad(agent.policy, [(0, 1), (0, 0), (0, 0)], constant_values=1 / A))
    pairs = np.asarray(model.rows_carried().pairs)
    parameters = {
        "weights": np.array([0.5, 0.3, 0.2]),
        "initial": np.append(agent.initial, 0.0),
        "transition": np.moveaxis(padded, 0, 2)[pairs // (A + 1), pairs % (A + 1)],
        "policy": np.asarray(agent.policy),
    }
    first = np.random.default_rng(2).integers(S, size=1500)
    rollout = roll_out(jax.random.key(2), three, DYNAMICS, first, 40)
    states, actions, intents = (
        x[:30, :6] for x in (rollout.data.states, rollout.data.actions, rollout.intents)
    )
    data = Trajectories.from_list(states=list(states), actions=list(actions))

    @jax.jit
    def continued(parameters):
        trace = model.likelihood(parameters, data)
        return trace.forecast(jax.random.key(3), actions, 5, DYNAMICS)

    ahead = jax.device_get(continued(parameters))
    np.testing.assert_array_equal(ahead.states[:, 0], DYNAMICS[states[:, -1], actions[:, -1]])
    np.testing.assert_array_equal(ahead.states[:, 1:], DYNAMICS[ahead.states[:, :-1], ahead.actions[:, :-1]])
    towards = np.asarray(agent.policy)[ahead.intents, ahead.states].argmax(-1)
    np.testing.assert_array_equal(ahead.actions, towards)
    # Between the ends an action reveals the intent, which then goes on.
    revealed = np.isin(states[:, -1], [1, 2, 3])
    np.testing.assert_array_equal(ahead.intents[revealed, 0], intents[revealed, -1])


@pytest.mark.slow
def test_the_numpyro_model_has_hard_zeros_and_finite_gradients():
    """Identity rows where the intent never changes, zeros where an action is forbidden; NUTS can start there."""
    from numpyro.infer import Predictive
    from numpyro.infer.util import initialize_model

    data = line_world.simulate(jax.random.key(4), num_traces=1, length=6).data
    data = data._replace(lengths=np.array([5], np.int32), observed=np.arange(6)[None] < 5)
    known = IntentConstraints.never_switch([1, 2, 3]).action(2, [2], equal=0.0)
    model = AgentMarkov(S, A, 2, constraints=known, stickiness=None)
    predict = jax.jit(lambda key: Predictive(model, num_samples=6)(key, data, condition=False))
    drawn = jax.device_get(predict(jax.random.key(1)))
    actions = np.asarray(drawn["actions"])
    assert actions.shape == (6, 1, 6) and (actions[..., 5:] == -1).all()
    assert set(np.unique(actions[..., :5])) <= set(range(A))
    np.testing.assert_allclose(drawn["weights"].sum(-1), 1, rtol=1e-12)
    visited = model.bind(data).visited
    never = np.asarray(visited.never)
    assert never.any() and not never.all()
    np.testing.assert_array_equal(
        drawn["transition"][:, never], np.broadcast_to(np.eye(2, 3), (6, never.sum(), 2, 3))
    )
    np.testing.assert_array_equal(drawn["policy"][:, :, visited.states.tolist().index(2), 2], 0)
    begin = jax.jit(lambda key: initialize_model(key, model, model_args=(data,)).param_info)
    start = begin(jax.random.key(5))
    assert np.isfinite(start.potential_energy)
    assert all(np.isfinite(x).all() and np.any(x) for x in jax.tree.leaves(start.z_grad))
