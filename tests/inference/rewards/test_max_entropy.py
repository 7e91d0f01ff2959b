"""Maximum entropy fits against enumeration of every trace, expected features, known policies, and Line World."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from benchmarks.papers.intent_errors import intent_errors
from ethogram.inference.rewards.max_entropy import fit_max_entropy
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import IntentAgent, roll_out
from ethogram.models.mdps.mdp import MDP

pytestmark = pytest.mark.filterwarnings("ignore:the search has not converged:UserWarning")

NEXT_STATE = np.array([[0, 1], [2, 0], [2, 1]])


@pytest.fixture(autouse=True)
def ranks():
    with jax.numpy_rank_promotion("raise"):
        yield


def walks(next_state, seed, lengths):
    """Traces of random actions; a tenth of the actions are missing."""
    random = np.random.default_rng(seed)
    num_states, num_actions = next_state.shape
    states, actions = [], []
    for length in lengths:
        now, trace = random.integers(num_states), []
        moves = random.integers(num_actions, size=length)
        for move in moves:
            trace.append(now)
            now = next_state[now, move]
        states.append(trace)
        actions.append(np.where(random.random(length) < 0.1, -1, moves))
    return Trajectories.from_list(states=states, actions=actions)


def log_likelihood(next_state, reward, data):
    """Per step, of whole action sequences, each weighed by exp(return), by enumeration; actions read off states."""
    num_actions, total = next_state.shape[1], 0.0
    for row, length in zip(data.states, data.lengths, strict=True):

        def value(actions, first=row[0]):
            state, value = first, 0.0
            for action in actions:
                value += reward[state]
                state = next_state[state, action]
            return value

        returns = [value(actions) for actions in itertools.product(range(num_actions), repeat=int(length))]
        total += sum(reward[s] for s in row[:length]) - np.logaddexp.reduce(returns)
    return total / data.lengths.sum()


def slope(function, at, step=1e-5):
    """Central differences, good to about 1e-10 here."""
    moves = np.eye(len(at)) * step
    return np.array([(function(at + move) - function(at - move)) / (2 * step) for move in moves])


@pytest.mark.parametrize("dense", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_maximum_is_that_of_the_enumerated_likelihood(dense):
    """Ragged traces: the slope of the enumeration is the penalty's."""
    data = walks(NEXT_STATE, 3, (6, 2, 5, 1, 6))
    world = MDP.dense(np.eye(3)[NEXT_STATE]) if dense else MDP.deterministic(NEXT_STATE)
    fit = fit_max_entropy(world, data, penalty=0.05)
    assert fit.converged and fit.residual <= 1e-6
    np.testing.assert_allclose(fit.trace[0], log_likelihood(NEXT_STATE, np.zeros(3), data), rtol=1e-12)
    np.testing.assert_allclose(fit.log_likelihood, log_likelihood(NEXT_STATE, fit.reward, data), rtol=1e-12)
    gradient = slope(lambda r: log_likelihood(NEXT_STATE, r, data), fit.reward) - 0.05 * fit.reward
    assert fit.residual == pytest.approx(np.abs(gradient).max(), abs=1e-9)
    one = fit_max_entropy(world, data, penalty=0.05, num_steps=1)
    gradient = slope(lambda r: log_likelihood(NEXT_STATE, r, data), one.reward) - 0.05 * one.reward
    assert one.residual == pytest.approx(np.abs(gradient).max(), abs=1e-9) and not one.converged


def soft_agent(table, reward, horizon):
    """Policy (time, state, action) and values (time + 1, state), by a backward pass in NumPy."""
    values, policy = [np.zeros(len(reward))], []
    for _ in range(horizon):
        weights = np.exp(reward[:, None] + table @ values[0])
        policy.insert(0, weights / weights.sum(1, keepdims=True))
        values.insert(0, np.log(weights.sum(1)))
    return np.array(policy), np.array(values)


def expected(table, policy, first):
    """Expected visits (time, state) from shares of first states."""
    visits = [first]
    for step in policy[:-1]:
        visits.append(np.einsum("s,sa,san->n", visits[-1], step, table))
    return np.array(visits)


def world_of_chance(seed, num_states, num_actions):
    random = np.random.default_rng(seed)
    return random.dirichlet(np.full(num_states, 0.5), size=(num_states, num_actions))


def live(seed, table, policy, first_states):
    """States and actions of traces drawn from a policy by step."""
    random = np.random.default_rng(seed)
    states, actions, now = [], [], np.asarray(first_states)
    for step in policy:
        acts = (random.random((len(now), 1)) > np.cumsum(step[now], 1)[:, :-1]).sum(1)
        states.append(now)
        actions.append(acts)
        now = (random.random((len(now), 1)) > np.cumsum(table[now, acts], 1)[:, :-1]).sum(1)
    return np.array(states).T, np.array(actions).T


@pytest.mark.slow
@pytest.mark.parametrize("chance", [False, True])
def test_a_known_policy_is_recovered(chance):
    """20 000 traces of 8 steps of a soft-optimal agent: every probability of the average policy within 0.01.

    In the state that is seen least, 8 % of the steps, a share of 1/2 has a standard error of 0.0045.
    """
    corridor = np.array([[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]])
    table = world_of_chance(0, 4, 3) if chance else np.eye(5)[corridor]
    reward = np.linspace(-1, 1, len(table)) * (2.0 if chance else 0.3)
    policy, _ = soft_agent(table, reward, 8)
    first = np.arange(20_000) % len(table)
    states, actions = live(1, table, policy, first)
    data = Trajectories.from_list(states=list(states), actions=list(actions))
    fit = fit_max_entropy(MDP.dense(table), data, penalty=0.0)
    visits = expected(table, policy, np.bincount(first) / len(first))
    average = np.einsum("ts,tsa->sa", visits, policy) / visits.sum(0)[:, None]
    assert visits.sum(0).min() / 8 > 0.08
    assert np.abs(average - 1 / average.shape[1]).max() > 0.2
    np.testing.assert_allclose(fit.policy, average, atol=0.01)
    np.testing.assert_allclose(np.sum(fit.policy, 1), 1, rtol=1e-12)
    assert fit.residual < 1e-6 and fit.converged


def test_visits_match_and_the_policy_is_their_average():
    """A world of chance and ragged traces: features at the optimum, the policy and the likelihood, trace by trace."""
    table = world_of_chance(5, 4, 2)
    drawn, _ = soft_agent(table, np.array([1.0, 0.0, 0.5, -1.0]), 7)
    traces = [live(n, table, drawn[7 - n :], [i % 4]) for i, n in enumerate([7, 3, 5, 7, 1, 4, 6, 2])]
    data = Trajectories.from_list(states=[s[0] for s, _ in traces], actions=[a[0] for _, a in traces])
    fit = fit_max_entropy(MDP.dense(table), data, penalty=1e-3)
    reward, likelihood = np.asarray(fit.reward), 0.0
    excess, weighted, total = np.zeros(4), np.zeros((4, 2)), np.zeros(4)
    for (states,), (actions,) in traces:
        policy, values = soft_agent(table, reward, len(states))
        visits = expected(table, policy, np.eye(4)[states[0]])
        excess += np.bincount(states, minlength=4) - visits.sum(0)
        weighted += np.einsum("ts,tsa->sa", visits, policy)
        total += visits.sum(0)
        for t, (s, a) in enumerate(zip(states, actions, strict=True)):
            likelihood += np.log(policy[t, s, a])
            if t + 1 < len(states):
                likelihood += values[t + 1, states[t + 1]] - table[s, a] @ values[t + 1]
    np.testing.assert_allclose(excess / data.lengths.sum(), 1e-3 * reward, atol=1e-8)
    np.testing.assert_allclose(fit.policy, weighted / total[:, None], rtol=1e-10)
    np.testing.assert_allclose(fit.log_likelihood, likelihood / data.lengths.sum(), rtol=1e-12)


def test_padding_missing_actions_and_empty_traces_mean_nothing():
    data = walks(NEXT_STATE, 8, (5, 3, 4))
    plain = fit_max_entropy(MDP.deterministic(NEXT_STATE), data)
    inside = np.pad(data.observed, ((0, 1), (0, 2)))
    states = np.where(inside, np.pad(data.states, ((0, 1), (0, 2))), 99)
    padded = Trajectories(None, states, None, np.array([5, 3, 4, 0], np.int32), inside)
    for other in (padded, padded.take([3, 2, 0, 1])):
        found = fit_max_entropy(MDP.deterministic(NEXT_STATE), other)
        for one, same in zip(plain, found, strict=True):
            np.testing.assert_allclose(one, same, rtol=1e-12, atol=1e-15)


def test_the_reward_may_be_linear_in_features():
    """Over both horizons: with an identity nothing changes, and a constant feature takes no part in the policy."""
    data, world = walks(NEXT_STATE, 8, (5, 3, 4)), MDP.deterministic(NEXT_STATE)
    plain, same = fit_max_entropy(world, data), fit_max_entropy(world, data, np.eye(3))
    np.testing.assert_allclose(same.reward, plain.reward, atol=1e-6)
    np.testing.assert_allclose(same.policy, plain.policy, atol=1e-6)
    features = np.array([[1.0, 0.5], [1.0, -1.0], [1.0, 0.5]])
    fit = fit_max_entropy(world, data, features, penalty=0.1)
    slopes = slope(lambda w: log_likelihood(NEXT_STATE, features @ w, data), fit.weights)
    np.testing.assert_allclose(slopes, 0.1 * fit.weights, atol=2e-6)
    centred = features - features.mean(0)
    np.testing.assert_allclose(fit.reward, centred @ fit.weights, rtol=1e-10)


def test_features_of_an_infinite_horizon_match_in_expectation():
    """At the maximum X' (counts - visits) is the penalty's, of states and (one weight each) without features."""
    random = np.random.default_rng(4)
    table = random.dirichlet(np.ones(5), (5, 3))
    world, counts = MDP.dense(table, discount=0.9), random.integers(1, 9, (5, 3))
    for features in (random.normal(size=(5, 5)), None):
        fit = fit_max_entropy(world, counts, features, penalty=0.5)
        basis = np.eye(5) if features is None else features
        moved = np.einsum("sa,san->sn", fit.policy, table)
        signed = counts.sum(1) - 0.9 * np.einsum("sa,san->n", counts, table)
        visits = np.linalg.solve((np.eye(5) - 0.9 * moved).T, signed)
        assert fit.converged and fit.residual < 1e-3
        np.testing.assert_allclose(basis.T @ (counts.sum(1) - visits), 0.5 * fit.weights, atol=1e-3)
        np.testing.assert_allclose(fit.log_likelihood, (counts * np.log(fit.policy)).sum(), rtol=1e-9)
        centred = basis if features is None else basis - basis.mean(0)
        np.testing.assert_allclose(fit.reward, centred @ fit.weights, rtol=1e-10)
        np.testing.assert_allclose(fit.trace[0], -counts.sum() * np.log(3), rtol=1e-12)


def test_states_that_cannot_be_reached_have_the_plain_average():
    data = Trajectories.from_list(states=[[0, 1, 1]])
    fit = fit_max_entropy(MDP.deterministic([[0, 1], [1, 1], [0, 1]]), data)
    policy, _ = soft_agent(np.eye(3)[np.array([[0, 1], [1, 1], [0, 1]])], np.asarray(fit.reward), 3)
    np.testing.assert_allclose(np.asarray(fit.policy)[2], policy[:, 2].mean(0), rtol=1e-12)


def test_an_unconverged_fit_says_what_to_pass():
    """Of both horizons."""
    data = walks(NEXT_STATE, 3, [4, 6, 5])
    with pytest.warns(UserWarning, match="above 1e-06. Pass num_steps=2 or a larger penalty"):
        assert not fit_max_entropy(MDP.deterministic(NEXT_STATE), data, num_steps=1).converged
    discounted = MDP.deterministic(NEXT_STATE, discount=0.9)
    with pytest.warns(UserWarning, match="Pass num_steps=2 or a larger penalty"):
        fit_max_entropy(discounted, np.array([[0, 3], [1, 2], [2, 1]]), num_steps=1)


def test_traces_of_up_to_a_power_of_two_share_a_program(compiler_events):
    data, world = walks(NEXT_STATE, 3, (8, 2)), MDP.deterministic(NEXT_STATE)
    fit_max_entropy(world, data)
    compiler_events.clear()
    others = walks(NEXT_STATE[::-1], 4, (5, 2, 3))
    fit_max_entropy(MDP.deterministic(NEXT_STATE[::-1].copy()), others, penalty=0.1)
    assert not compiler_events["backend_compile_duration"] and not compiler_events["jaxpr_trace_duration"]


def line_world():
    """Cells 0 to 4; left, right, wait; intents are cells 0 and 4, and change on the step taken there."""
    cells = np.arange(5)
    world = np.stack([np.maximum(cells - 1, 0), np.minimum(cells + 1, 4), cells], 1)
    policy, transition = np.zeros((2, 5, 3)), np.zeros((2, 5, 3, 2))
    for x, goal in enumerate((0, 4)):
        policy[x, cells, np.where(cells == goal, 2, (cells < goal).astype(int))] = 1
        transition[x, ..., x] = 1
        transition[x, goal] = np.eye(2)[1 - x]
    return IntentAgent(np.full(2, 0.5), transition, policy), world


@pytest.mark.slow
@pytest.mark.parametrize("double_precision", [True, False])
def test_line_world_has_no_single_policy(double_precision):
    """Nothing but chance: KL of the true policies from the one learned is near ln 3 for three seeds."""
    with jax.enable_x64(double_precision):
        true, world = line_world()
        for seed in range(3):
            key_life, key_first = jax.random.split(jax.random.key(seed))
            first = jax.random.randint(key_first, (5,), 0, 5)
            life = roll_out(key_life, true, world, first, 20)
            fit = fit_max_entropy(MDP.deterministic(world), life.data)
            assert fit.converged
            both = true._replace(policy=np.stack([fit.policy, fit.policy]))
            error = intent_errors(true, both, life.data, life.intents, [0, 1]).wkl_policy
            assert 1.05 <= error <= 1.12


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"num_steps": 0}, ValueError, "num_steps must be at least 1"),
        ({"penalty": -1.0}, ValueError, "penalty must be at least 0"),
        ({"mdp": MDP.deterministic(NEXT_STATE, discount=0.9), "horizon": "trace"}, ValueError, "mdp.discount is 0.9"),
        ({"horizon": "infinite"}, ValueError, "mdp.discount is 1.0"),
        ({"horizon": "far"}, ValueError, "horizon must be 'infinite' or 'trace', not 'far'"),
        ({"demonstrations": np.ones((3, 2), int)}, TypeError, "needs Trajectories"),
        ({"features": np.ones((3, 2, 1))}, ValueError, r"features has shape \(3, 2, 1\): give \(3, feature\)"),
        ({"mdp": NEXT_STATE}, TypeError, "mdp"),
        ({"states": None}, ValueError, "data.states is None"),
        ({"states": [[0, 1, 3]]}, ValueError, r"data.states\[0, 2\] is 3, outside 0..2"),
        ({"states": [[0, -1, 0]]}, ValueError, r"data.states\[0, 1\] is -1"),
        ({"states": [[0, 1, 1]]}, ValueError, r"data.states\[0, 2\] is 1: action 1 never leads there from 1"),
        ({"states": [[0, 2, 1]]}, ValueError, r"data.states\[0, 1\] is 2: no action leads there from 0"),
        ({"actions": [[0, -1, 2]]}, ValueError, r"data.actions\[0, 2\] is 2"),
        ({"lengths": np.array([0], np.int32), "observed": np.zeros((1, 3), bool)}, ValueError, "data.lengths is 0"),
        ({"lengths": np.array([4], np.int32)}, ValueError, r"lengths\[0\] exceeds the padding"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(change, error, message):
    data = Trajectories.from_list(states=[[0, 1, 0]], actions=[[-1, 1, 0]])
    fields = {k: np.array(v) if isinstance(v, list) else v for k, v in change.items() if k in data._fields}
    settings = {k: v for k, v in change.items() if k not in data._fields}
    with pytest.raises(error, match=message):
        fit_max_entropy(
            **{"mdp": MDP.deterministic(NEXT_STATE), "demonstrations": data._replace(**fields)} | settings
        )


def test_converged_means_that_the_gradient_is_zero_and_features_may_be_far_from_zero():
    """By differences of the likelihood by value iteration in NumPy, of thousands of decisions.

    The digits of such a likelihood end L-BFGS where the gradient is 2e-4.
    """
    random = np.random.default_rng(3)
    table = random.dirichlet(np.full(6, 0.3), (6, 2))
    counts, features = random.integers(0, 2000, size=(6, 2)), random.normal(size=(6, 3))

    def log_likelihood(weights):
        values, reward = np.zeros(6), features @ weights
        for _ in range(400):
            of_actions = reward[:, None] + 0.9 * table @ values
            values = np.logaddexp.reduce(of_actions, axis=1)
        return (counts * (of_actions - values[:, None])).sum()

    world = MDP.dense(table / table.sum(-1, keepdims=True), discount=0.9)
    fit = fit_max_entropy(world, counts, features, penalty=0.0)
    rule = {-2: 1, -1: -8, 1: 8, 2: -1}
    slopes = [
        sum(c * log_likelihood(fit.weights + times * step) for times, c in rule.items()) / 0.012
        for step in 1e-3 * np.eye(3)
    ]
    assert fit.converged and fit.residual <= 1e-6
    np.testing.assert_allclose(slopes, 0, atol=2e-5)
    assert fit.log_likelihood == pytest.approx(log_likelihood(fit.weights), rel=1e-9)
    far = fit_max_entropy(world, counts, features + 1e8, penalty=0.0)
    np.testing.assert_allclose(far.policy, fit.policy, atol=1e-6)
    scales = np.array([1e6, 1.0, 1e-6])
    scaled = fit_max_entropy(world, counts, features * scales, penalty=0.0)
    assert scaled.converged
    np.testing.assert_allclose(scaled.weights * scales, fit.weights, atol=1e-6)
    with jax.enable_x64(False):
        whole = np.round(100 * features)
        rounded = [fit_max_entropy(world, counts, whole + shift, penalty=1.0).policy for shift in (0, 1e8)]
    np.testing.assert_allclose(*rounded, atol=1e-6)


def test_traces_take_features_far_from_zero():
    data = walks(NEXT_STATE, 0, [4, 6])
    with jax.enable_x64(False):
        near, far = (
            fit_max_entropy(MDP.deterministic(NEXT_STATE), data, np.array([[0.0], [1.0], [3.0]]) + shift)
            for shift in (0.0, 1e8)
        )
    np.testing.assert_allclose(far.weights, near.weights, rtol=1e-4)
    np.testing.assert_allclose(far.reward, near.reward, rtol=1e-4, atol=1e-6)
