"""Actions of an agent with latent intent: log density and draws against enumeration."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import stats

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov, AgentTrace

S, A, K = 3, 2, 2


def parameters(seed):
    random = np.random.default_rng(seed)
    initial = random.dirichlet(np.ones(K + 1))
    transition = random.dirichlet(np.ones(K + 1), size=(S, A + 1, K + 1))
    return initial, transition, random.dirichlet(np.ones(A), size=(K + 1, S))


def distribution(traces, drawn, accuracy=None):
    """Of 96 traces, the last one repeated: all numbers of them share a program."""
    initial, transition, policy = drawn
    traces = [*traces, *traces[-1:] * (96 - len(traces))]
    lengths = np.array([len(trace.states) for trace in traces])
    states, stay = np.full((len(traces), lengths.max()), 99), np.full((len(traces), lengths.max()), -1)
    actions = np.full_like(states, -1)
    for i, trace in enumerate(traces):
        states[i, : lengths[i]], actions[i, : lengths[i]] = trace.states, trace.actions
        stay[i, : len(trace.stay)] = trace.stay
    row_of = np.arange(S * (A + 1)).reshape(S, A + 1)
    said = () if accuracy is None else (stay, accuracy)
    table = transition.reshape(-1, K + 1, K + 1)
    return (initial, table, policy, states, row_of, lengths, *said), actions


@jax.jit
def evidence(arguments, actions):
    """Log density, its increments step by step, and the density of paths within the truncation."""
    traced = AgentTrace(*arguments)
    within = traced.within_truncation().log_prob(actions)
    return traced.log_prob(actions), traced.filter(actions).log_increment, within


@pytest.mark.parametrize("accuracy", [None, 0.8, 1.0])
def test_evidence_equals_enumeration(trace_oracle, accuracy):
    """Per trace, with missing actions; paths beyond the truncation count, but not in the bound's messages."""
    traces = [
        trace_oracle.Trace([0, 2, 1, 1], [1, -1, 0, 1], [1, -1, 0]),
        trace_oracle.Trace([2], [0], []),
        trace_oracle.Trace([1, 1], [-1, 0], [0]),
    ]
    drawn = parameters(1)
    value, increments, found = (np.asarray(x)[:3] for x in evidence(*distribution(traces, drawn, accuracy)))
    logs = [np.log(x) for x in drawn]
    # One more column of zeros: the oracle takes tables of all intents that paths visit, and one for the rest.
    whole = [np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)]) for x in logs[:2]]
    truth = [trace_oracle.local_step([trace], *whole, logs[2], accuracy)[0] for trace in traces]
    np.testing.assert_allclose(value, truth, rtol=1e-12)
    within = [
        trace_oracle.local_step([x], logs[0], logs[1][:, :, :K], logs[2][:K], accuracy)[0] for x in traces
    ]
    np.testing.assert_allclose(found, within, rtol=1e-12)
    if accuracy is None:
        np.testing.assert_allclose(increments.sum(1), truth, rtol=1e-10)


@pytest.mark.parametrize(
    ("accuracy", "x64", "tolerance"),
    [(None, True, 1e-12), (0.8, True, 1e-12), pytest.param(0.8, False, 1e-5, marks=pytest.mark.slow)],
)
def test_the_score_is_a_density(trace_oracle, accuracy, x64, tolerance):
    """Over all action sequences, and all stay labels where they are scored, probabilities sum to 1."""
    states, traces, sizes = [0, 2, 1, 1], [], []
    for free in ([0, 1, 2, 3], [0, 2, 3]):  # none missing, one missing
        for chosen in itertools.product(range(A), repeat=len(free)):
            actions = np.full(4, -1)
            actions[free] = chosen
            for labels in itertools.product([0, 1], repeat=0 if accuracy is None else 2):
                stay = [labels[0], -1, labels[1]] if labels else [-1, -1, -1]
                traces.append(trace_oracle.Trace(states, actions.tolist(), stay))
        sizes.append(len(traces))
    with jax.enable_x64(x64):
        value = np.exp(np.asarray(evidence(*distribution(traces, parameters(1), accuracy))[0], float))
    whole, part = np.split(value[: sizes[1]], sizes[:1])
    np.testing.assert_allclose([whole.sum(), part.sum()], 1, atol=tolerance)


def test_draws_have_the_frequencies_of_the_model():
    """Actions of two steps in fixed states, 40 000 draws: each cell within five standard errors."""
    initial, transition, policy = parameters(3)
    row_of = np.arange(S * (A + 1)).reshape(S, A + 1)
    table = transition.reshape(-1, K + 1, K + 1)

    @jax.jit
    def draw(key):
        traced = AgentTrace(initial, table, policy, np.array([[0, 2, 1]]), row_of, np.array([2]))
        return traced.sample_with_intents(key, (40_000,))

    draws, intents = map(np.asarray, draw(jax.random.key(0)))
    assert (draws[..., 2] == -1).all() and (intents[..., 2] == -1).all()
    exact = np.einsum("j,ja,ajk,kb->ab", initial, policy[:, 0], transition[0, :A], policy[:, 2])
    seen = np.zeros((A, A))
    np.add.at(seen, tuple(draws[:, 0, :2].T), 1 / 40_000)
    assert (np.abs(seen - exact) < 5 * np.sqrt(exact * (1 - exact) / 40_000)).all()


def small_problem(trace_oracle):
    stay = [1, -1, 1, 0, -1, 1, -1, 0]
    trace = trace_oracle.Trace([0, 1, 2, 1, 0, 1, 2, 1, 0], [1, 1, 0, 0, 1, 1, 0, 0, 1], stay)
    arrays = (np.array([x], np.int32) for x in (trace.states, trace.actions))
    states, actions = arrays
    said_array = np.array([[*stay, -1]], np.int32)
    inside = np.ones((1, 9), bool)
    return trace, Trajectories(
        np.zeros((1, 9, 1)), states, actions, np.array([9], np.int32), inside, stay=said_array
    )


@pytest.mark.slow
def test_a_model_that_is_bound_while_it_is_traced_has_the_density(trace_oracle):
    """As NUTS does, with its gradient; comparisons of the accuracy of stay labels are traced there."""
    trace, data = small_problem(trace_oracle)
    model, random = (
        AgentMarkov(S, A, K, beta_prior="fixed", stay_accuracy=0.9, stickiness=None),
        np.random.default_rng(1),
    )
    bound, drawn, density = model.bind(data), {}, 0.0
    for name in ("initial", "transition", "policy"):
        rows = np.asarray(bound.prior()[name].natural.concentration)
        drawn[name] = np.apply_along_axis(random.dirichlet, -1, rows)
        pairs = zip(*(x.reshape(-1, rows.shape[-1]) for x in (drawn[name], rows)), strict=True)
        density += sum(stats.dirichlet.logpdf(*pair) for pair in pairs)
    pairs, states = np.divmod(np.asarray(bound.visited.pairs), A + 1), np.asarray(bound.visited.states)
    table, policy = np.full((S, A + 1, K + 1, K + 1), 1 / (K + 1)), np.full((K + 1, S, A), 1 / A)
    table[(*pairs, slice(K))], policy[:K, states] = drawn["transition"], drawn["policy"]
    # One more column of zeros: the oracle takes tables of all intents that paths visit, and one for the rest.
    initial, table = (np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)]) for x in (drawn["initial"], table))
    with np.errstate(divide="ignore"):
        logs = np.log(initial), np.log(table), np.log(policy)
    density += trace_oracle.local_step([trace], *logs, 0.9)[0]
    traced = jax.jit(jax.value_and_grad(lambda one: log_density(model, (data,), {}, one)[0]))
    found, slope = traced(drawn)
    np.testing.assert_allclose(found, density, rtol=1e-12)
    # Along rows that keep their sums.
    steps = {name: 1e-6 * rows * random.normal(size=rows.shape) for name, rows in drawn.items()}
    steps = {name: step - drawn[name] * step.sum(-1, keepdims=True) for name, step in steps.items()}
    ends = ({name: drawn[name] + sign * steps[name] for name in drawn} for sign in (1, -1))
    above, below = (traced(end)[0] for end in ends)
    along = sum((np.asarray(slope[name]) * steps[name]).sum() for name in drawn)
    np.testing.assert_allclose(along, (above - below) / 2, rtol=1e-5)


def test_what_does_not_fit_is_refused():
    initial, transition, policy = parameters(0)
    table = transition.reshape(-1, K + 1, K + 1)
    row_of = np.zeros((S, A + 1), int)
    with pytest.raises(ValueError, match="initial has 2 intents"):
        AgentTrace(initial[:2], table, policy, np.zeros((1, 3), int), row_of, np.array([3]))
    with pytest.raises(ValueError, match="must be given together"):
        AgentTrace(
            initial, table, policy, np.zeros((1, 3), int), row_of, np.array([3]), jnp.zeros((1, 3), int)
        )
