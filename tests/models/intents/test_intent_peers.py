"""Peers of an agent Markov model: shared rows against enumeration; scores are densities."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov, IntentConstraints

S, A = 3, 2


@jax.jit
def log_probs(model, parameters, data):
    return model.likelihood(parameters, data).log_prob(model.entries(data).value)


def sequences(states):
    """Every sequence of actions in these states."""
    chosen = list(itertools.product(range(A), repeat=len(states)))
    return Trajectories.from_list(states=[states] * len(chosen), actions=[list(x) for x in chosen])


@pytest.mark.parametrize("counts", [(3,), pytest.param((3, 10), marks=pytest.mark.slow)])
def test_scores_are_densities_at_every_truncation_and_unused_intents_change_none(counts):
    """All 2^7 sequences of actions, with a pair where no intent changes; three intents embedded in ten."""
    data, random = sequences([0, 2, 1, 1, 0, 2, 2]), np.random.default_rng(3)
    never = IntentConstraints.never_switch([1], [0])
    weights = random.dirichlet(np.full(4, 2.0))
    rows, policy = random.dirichlet(np.ones(4), (S * A, 3)), random.dirichlet(np.ones(A), (3, S))
    initial = random.dirichlet(np.ones(4))
    share = random.dirichlet(np.ones(8))  # how seven more intents and the rest split what is left
    scores, used = {}, 3
    for count in counts:
        model = AgentMarkov(S, A, count, constraints=never, stickiness=None).bind(data)

        def spread(x, count=count):
            left = 1 - x[..., :used].sum(-1, keepdims=True)
            return np.concatenate([x[..., :used], left * (share if count == 10 else 1)], -1)

        parameters = {"weights": spread(weights), "initial": spread(initial)}
        transition = np.broadcast_to(parameters["weights"], (len(rows), count, count + 1)).copy()
        transition[:, :used] = spread(rows[:, :used])
        own = np.asarray(model.visited.never)
        transition[own] = np.eye(count, count + 1)
        parameters |= {"transition": transition, "policy": np.full((count, S, A), 1 / A)}
        parameters["policy"][:used] = policy[:used]
        scores[count] = log_probs(model, parameters, data)
        np.testing.assert_allclose(np.exp(scores[count]).sum(), 1, atol=1e-12)
    np.testing.assert_allclose(scores[counts[-1]], scores[3], rtol=1e-12)


def test_shared_rows_are_those_of_a_hidden_markov_model():
    """One matrix of transitions for all states and actions, those of missing actions and unseen states too."""
    data = Trajectories.from_list(states=[[0, 2, 0, 2]], actions=[[1, -1, 0, 1]])
    model = AgentMarkov(S, A, 2, rows="shared", beta_prior="fixed", stickiness=None)
    bound, random = model.bind(data), np.random.default_rng(5)
    matrix, first = random.dirichlet(np.ones(3), 3), random.dirichlet(np.ones(3))
    policy = random.dirichlet(np.ones(A), (2, 2))
    matrix[2] = 1 / 3  # of the rest: the prior mean
    parameters = {"weights": np.full(3, 1 / 3), "initial": first, "transition": matrix[None, :2]}
    parameters["policy"] = policy
    whole = np.full((3, S, A), 0.5)
    whole[:2, [0, 2]] = policy
    states, actions = [0, 2, 1, 2], [1, -1, 0, 1]
    truth = 0.0
    for path in itertools.product(range(3), repeat=4):
        chain = np.prod([matrix[pair] for pair in itertools.pairwise(path)])
        taken = [whole[x, s, a] for x, s, a in zip(path, states, actions, strict=True) if a >= 0]
        truth += first[path[0]] * chain * np.prod(taken)
    elsewhere = Trajectories.from_list(states=[states], actions=[actions])
    np.testing.assert_allclose(log_probs(bound, parameters, elsewhere), np.log(truth), rtol=1e-12)
    assert bound.site_layout(data)[1]["pair"] == ["any"]
    with pytest.raises(ValueError, match='rows="shared" has one row over intents'):
        AgentMarkov(S, A, 2, rows="shared", constraints=IntentConstraints.never_switch([1]))
