"""Rollouts of agents with latent intent: frequencies against the tables, labels, and refusals of bad input."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.models.intents import IntentAgent, noisy_stay_labels, roll_out

X, S, A = 2, 3, 2


def drawn_agent(seed):
    random = np.random.default_rng(seed)
    agent = IntentAgent(
        *(random.dirichlet(np.ones(n), size) for n, size in ((X, ()), (X, (X, S, A)), (A, (X, S))))
    )
    return agent, random.dirichlet(np.ones(S), (S, A))


def frequencies(labels, outcome, shape):
    counts = np.zeros(shape)
    np.add.at(counts, (*labels, outcome), 1)
    return counts.sum(-1), counts / np.maximum(counts.sum(-1, keepdims=True), 1)


def test_steps_come_at_the_rates_of_the_tables():
    """Some 28 free rates from 80 000 steps, each within 4.5 standard errors: all hold but with probability 2e-4."""
    agent, dynamics = drawn_agent(0)
    rollout = roll_out(jax.random.key(0), agent, dynamics, np.zeros(2000, int), 40)
    s, a, x = (np.asarray(part) for part in (rollout.data.states, rollout.data.actions, rollout.intents))
    tables = [
        (agent.policy, (x, s), a),
        (agent.transition, (x[:, :-1], s[:, :-1], a[:, :-1]), x[:, 1:]),
        (dynamics, (s[:, :-1], a[:, :-1]), s[:, 1:]),
        (agent.initial[None], (np.zeros(2000, int),), x[:, 0]),
    ]
    for table, labels, outcome in tables:
        counts, rates = frequencies([label.ravel() for label in labels], outcome.ravel(), table.shape)
        error = np.sqrt(table * (1 - table) / np.maximum(counts, 1)[..., None])
        assert (np.abs(rates - table) <= 4.5 * error + 1e-9).all()


def test_deterministic_dynamics_and_ragged_lengths():
    agent, _ = drawn_agent(1)
    dynamics = np.array([[1, 2], [2, 0], [0, 1]])
    rollout = roll_out(jax.random.key(1), agent, dynamics, [0, 1, 2], [4, 1, 7])
    inside = np.arange(7) < np.array([4, 1, 7])[:, None]
    for part in (rollout.data.states, rollout.data.actions, rollout.intents):
        np.testing.assert_array_equal(part >= 0, inside)
    s, a = rollout.data.states, rollout.data.actions
    for i, n in enumerate([4, 1, 7]):
        np.testing.assert_array_equal(s[i, 1:n], dynamics[s[i, : n - 1], a[i, : n - 1]])


def test_evidence_is_right_as_often_as_it_says():
    """Of 4000 statements 3600 are right, give or take 4.5 standard errors (85)."""
    random = np.random.default_rng(2)
    intents = random.integers(2, size=(100, 41))
    intents[:, -1] = np.where(np.arange(100) < 50, -1, intents[:, -1])
    labels = noisy_stay_labels(jax.random.key(2), intents, 0.9)
    labelled = (intents[:, :-1] >= 0) & (intents[:, 1:] >= 0)
    np.testing.assert_array_equal(labels[:, :-1] >= 0, labelled)
    assert (labels[:, -1] == -1).all()
    right = (labels[:, :-1] == (intents[:, 1:] == intents[:, :-1]))[labelled]
    assert abs(right.sum() - 0.9 * labelled.sum()) < 4.5 * np.sqrt(0.09 * labelled.sum())
    certain = noisy_stay_labels(jax.random.key(3), intents, 1.0)
    np.testing.assert_array_equal(certain[:, :-1][labelled], (intents[:, 1:] == intents[:, :-1])[labelled])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dynamics": np.zeros((S + 1, A), int)}, r"dynamics has shape \(4, 2\)"),
        ({"first_states": [0, 3]}, "first_states must be .* integers from 0 to 2"),
        ({"first_states": [0.0, 1.0]}, "first_states must be .* integers from 0 to 2"),
        ({"lengths": [3, 0]}, r"lengths must be integers of at least 1.*, not \[3, 0\]"),
        ({"lengths": 2.5}, "lengths must be integers of at least 1.*, not 2.5"),
        ({"agent": drawn_agent(0)[0]._replace(initial=np.ones(3) / 3)}, r"agent.initial has shape \(3,\)"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    agent, dynamics = drawn_agent(0)
    settings = {"agent": agent, "dynamics": dynamics, "first_states": [0, 1], "lengths": 3} | change
    with pytest.raises(ValueError, match=message):
        roll_out(jax.random.key(0), **settings)
    with pytest.raises(ValueError, match="accuracy must be greater than 0"):
        noisy_stay_labels(jax.random.key(0), np.zeros((1, 2), int), 0.0)


def test_dynamics_of_other_states_or_no_probabilities_are_named():
    agent, dynamics = drawn_agent(0)
    table = np.array([[1, 2], [2, 7], [0, 1]])
    for wrong, message in (
        (table, "dynamics must hold next states, integers from 0 to 2"),
        (2 * dynamics, r"dynamics\[0, 0\] is"),
    ):
        with pytest.raises(ValueError, match=message):
            roll_out(jax.random.key(0), agent, wrong, [0], 3)
