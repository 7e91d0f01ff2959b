"""The agent Markov model: local step and ELBO against enumeration, its rows, and refusals of bad input."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import Dirichlet, expected_statistics
from ethogram.models.intents import AgentMarkov, IntentConstraints

S, A = 3, 2


@jax.jit
def local_step(model, expected, batch):
    """Summed log normaliser, and the expected counts."""
    return jax.value_and_grad(lambda e: model.log_normalizer(e, batch))(expected)


expect = jax.jit(expected_statistics)
AXES = {"initial": [0], "transition": [1, 2], "policy": [0]}


def trajectories(traces, padding=0):
    """Ragged traces as arrays; what stands in the padding is nonsense."""
    lengths = np.array([len(trace.states) for trace in traces], np.int32)
    shape = (len(traces), lengths.max() + padding)
    states, actions, stay = (
        np.full(shape, 77, np.int32),
        np.full(shape, 55, np.int32),
        np.full(shape, -1, np.int32),
    )
    for i, trace in enumerate(traces):
        states[i, : lengths[i]], actions[i, : lengths[i]] = trace.states, trace.actions
        stay[i, : len(trace.stay)] = trace.stay
    inside = np.arange(shape[1]) < lengths[:, None]
    return Trajectories(np.zeros((*shape, 1)), states, actions, lengths, inside, stay=stay)


def draw_traces(oracle, seed, lengths=(4, 1, 3)):
    random = np.random.default_rng(seed)
    return [
        oracle.Trace(
            random.integers(S, size=n).tolist(),
            random.integers(-1, A, size=n).tolist(),
            random.integers(-1, 2, size=n - 1).tolist(),
        )
        for n in lengths
    ]


def drawn_blocks(model, seed):
    """Blocks with concentrations from far below one to ten."""
    random = np.random.default_rng(seed)

    def anew(block):
        if not isinstance(block, Dirichlet):
            return block
        shape = block.natural.concentration.shape
        return Dirichlet.from_standard(10 ** random.uniform(-3, 1, size=shape))

    return {name: anew(block) for name, block in model.prior().items()}


def as_tables(model, logs):
    """Expected logs as the oracle indexes them: by state and action."""
    rows = model.visited
    count = model.truncation
    transition = np.full((S, A + 1, count, count + 1), np.nan)
    pairs = np.asarray(rows.pairs)
    transition[pairs // (A + 1), pairs % (A + 1)] = logs["transition"].concentration
    policy = np.full((count, S, A), np.nan)
    policy[:, np.asarray(rows.states)] = logs["policy"].concentration
    return np.asarray(logs["initial"].concentration), transition, policy


@pytest.mark.parametrize(("truncation", "accuracy", "rows"), [(3, 0.9, "visited"), (2, 1.0, "all")])
def test_local_step_equals_enumeration(trace_oracle, truncation, accuracy, rows):
    """Value and expected counts, with missing actions, traces of one step, and labels that rule paths out."""
    traces = draw_traces(trace_oracle, 3)
    if rows == "all":  # the paper's rows have no place for a missing action
        traces = [t._replace(actions=[max(a, 0) for a in t.actions]) for t in traces]
    data = trajectories(traces, padding=2)
    model = AgentMarkov(S, A, truncation, stay_accuracy=accuracy, rows=rows, stickiness=None).bind(data)
    expected = expect(drawn_blocks(model, 5))

    value, statistics = local_step(model, expected, model.arrange(data))

    logs = as_tables(model, expected)
    truth, (initial, transition, policy) = trace_oracle.local_step(traces, *logs, accuracy)
    np.testing.assert_allclose(value, truth, rtol=1e-10)
    np.testing.assert_allclose(statistics["initial"].concentration, initial, atol=1e-10)
    pairs = np.asarray(model.visited.pairs)
    carried = transition[pairs // (A + 1), pairs % (A + 1)]
    np.testing.assert_allclose(statistics["transition"].concentration, carried, atol=1e-10)
    assert carried.sum() == pytest.approx(transition.sum()), "a row that occurs is not carried"
    visited = np.asarray(model.visited.states)
    np.testing.assert_allclose(statistics["policy"].concentration, policy[:, visited], atol=1e-10)


def test_misprints_of_the_local_step_would_show(trace_oracle):
    """Eq. 6 without the last action, eq. 10 with every step, eq. 13 without F_0: none is the enumeration."""
    traces, random = draw_traces(trace_oracle, 3), np.random.default_rng(5)
    shapes = (4,), (S, A + 1, 3, 4), (3, S, A)
    logs = [trace_oracle.expected_log(random.gamma(2.0, size=shape)) for shape in shapes]
    value, (initial, transition, _) = trace_oracle.local_step(traces, *logs, 0.9)
    short = [trace._replace(actions=[*trace.actions[:-1], -1]) for trace in traces]
    assert abs(value - trace_oracle.local_step(short, *logs, 0.9)[0]) > 1e-3
    assert (transition.sum((0, 1)) - transition).sum((2, 3)).min() > 1e-3
    backward = np.zeros(3)
    for trace in traces:
        _, (first, *_) = trace_oracle.local_step([trace], *logs, 0.9)
        action = trace.actions[0]
        factor = logs[2][:, trace.states[0], action] if action >= 0 else 0.0
        backward += first[:3] / np.exp(logs[0][:3] + factor)
    assert np.abs(initial[:3] - backward).max() > 1e-3


def test_only_what_occurs_is_carried(trace_oracle):
    data = trajectories([trace_oracle.Trace([2, 2, 0], [1, 1, -1], [])])
    model = AgentMarkov(S, A, 4, stickiness=None).bind(data)
    shapes = {
        name: block.natural.concentration.shape for name, block in model.prior().items() if name != "weights"
    }
    assert shapes == {"initial": (5,), "transition": (1, 4, 5), "policy": (4, 2, A)}
    assert AgentMarkov(S, A, 4, rows="all").bind(data).prior()["transition"].natural.concentration.shape == (
        6,
        4,
        5,
    )


def test_all_rows_are_carried_where_most_occur(trace_oracle):
    """Data with other pairs then have blocks of one shape."""
    traces = [([0, 1, 2], [0, 0, 1]), ([2, 1, 0], [1, 1, 0]), ([1, 1, 0], [0, 1, 0])]
    both = [trajectories([trace_oracle.Trace(*one, []) for one in traces[:size]]) for size in (2, 3)]
    models = [AgentMarkov(S, A, 3, stickiness=None).bind(data) for data in both]
    assert [model.prior()["transition"].natural.concentration.shape for model in models] == [
        (S * A, 3, 4)
    ] * 2
    alone = AgentMarkov(S + 3, A, 3, stickiness=None).bind(both[0])
    assert alone.prior()["transition"].natural.concentration.shape == (4, 3, 4)


BAD_ARGUMENTS = {
    "gamma": ({"gamma": 1.0}, "gamma is not above 1"),
    "truncation": ({"truncation": 0}, "truncation"),
    "alpha": ({"alpha": 0.0}, "alpha is not above 0"),
    "rho": ({"rho": np.ones((2, 2))}, r"rho must be a scalar, or of shape \(2,\) or \(3, 2\)"),
    "accuracy": ({"stay_accuracy": 0.0}, r"stay_accuracy must be a scalar in \(0, 1\]"),
    "beta_prior": ({"beta_prior": "gem"}, "beta_prior must be 'stick' or 'fixed', not 'gem'"),
    "rows": ({"rows": "some"}, "rows must be 'visited', 'all' or 'shared', not 'some'"),
    "weights of sticks": ({"weights": [0.5, 0.5], "truncation": 1}, 'weights are given, and beta_prior="stick"'),
    "weights, too few": ({"weights": [0.5, 0.5], "beta_prior": "fixed"}, r"weights has shape \(2,\): give one for"),
    "weights of 0": ({"weights": [0.0, 1.0], "truncation": 1, "beta_prior": "fixed"}, r"weights\[0\] is not above 0"),
    "weights, no distribution": (
        {"weights": [0.5, 0.6], "truncation": 1, "beta_prior": "fixed"},
        "weights sums to 1.1, not 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        AgentMarkov(S, A, **arguments)


def test_bad_traces_are_named(trace_oracle):
    good = trajectories([trace_oracle.Trace([0, 1, 2], [0, 1, -1], [1, 0]), trace_oracle.Trace([1], [0], [])])
    model = AgentMarkov(S, A, stay_accuracy=0.9)
    model.check(good)

    def broken(field, at, value):
        array = np.array(getattr(good, field))
        array[at] = value
        return good._replace(**{field: array})

    cases = [
        (broken("states", (0, 1), 3), r"data.states\[0, 1\] is 3, outside 0..2"),
        (broken("states", (0, 1), -1), "where one is missing"),
        (broken("actions", (0, 2), 2), r"data.actions\[0, 2\] is 2, outside -1..1"),
        (broken("stay", (0, 2), 1), r"data.stay\[0, 2\] is given for the last step"),
        (good._replace(states=None), "data.states is None"),
        (good._replace(stay=None), "data.stay is None"),
    ]
    for data, message in cases:
        with pytest.raises(ValueError, match=message):
            model.check(data)
    with pytest.warns(UserWarning, match="data.stay is ignored, since the model has no stay_accuracy"):
        AgentMarkov(S, A).check(good)
    with pytest.raises(ValueError, match="not bound to"):
        model.bind(good).arrange(trajectories([trace_oracle.Trace([2, 2], [1, 1], [-1])]))


def test_parameters_that_lack_a_site_are_named():
    """Without its stickiness, such as that of a fit by an older version, the model would be another one."""
    with pytest.raises(
        ValueError, match="parameters have no initial, stickiness, but policy, transition, weights"
    ):
        AgentMarkov(S, A, 2).agent(dict.fromkeys(("weights", "transition", "policy"), 1.0))


def test_rows_of_many_states_small_integers_and_missing_actions_are_distinct(trace_oracle):
    """Small integers do not overflow; all rows of the paper grow by those of missing actions; one step is enough."""
    wide = trajectories([trace_oracle.Trace([0, 16384, 3], [0, 0, 1], [])])
    wide = wide._replace(states=np.minimum(wide.states, 20_000).astype(np.int16))
    assert len(AgentMarkov(20_000, 3, 2).bind(wide).visited.pairs) == 2
    missing = trajectories([trace_oracle.Trace([0, 1, 0], [0, -1, 1], [])])
    model = AgentMarkov(S, A, 2, rows="all").bind(missing)
    assert len(model.visited.pairs) == S * A + 1
    rows = np.asarray(model.visited.row_pair)[model.arrange(missing).rows]
    np.testing.assert_array_equal(model.visited.pairs[rows[0, :2]], [0, 1 * (A + 1) + A])
    single = trajectories([trace_oracle.Trace([0], [0], []), trace_oracle.Trace([1], [1], [])])
    for rows in ("all", "visited"):
        model = AgentMarkov(S, A, 2, rows=rows).bind(single)
        assert len(model.visited.pairs) == (S * A if rows == "all" else 1)
        np.testing.assert_array_equal(model.arrange(single).rows, 0)


def test_what_is_not_observed_or_padding_means_nothing(trace_oracle):
    data = trajectories([trace_oracle.Trace([0, 1, 2], [0, 1, 1], [1, 0])], padding=2)
    hidden = data._replace(
        observed=np.array([[True, False, True, False, False]]), stay=np.array([[1, 0, -1, 0, 1]])
    )
    missing = data._replace(actions=np.array([[0, -1, 1, 0, 0]]))
    model = AgentMarkov(S, A, 2, stay_accuracy=0.9)
    one, other = (model.bind(x).arrange(x) for x in (hidden, missing))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    np.testing.assert_array_equal(model.bind(hidden).entries(hidden).value[0], [0, -1, 1, -1, -1])


def test_labels_switch_where_constraints_let_them():
    """Each step is counted once, and none as a switch that is impossible; possible labels stay as they are."""
    random = np.random.default_rng(3)
    states, actions = random.integers(0, S, (1, 30)), random.integers(0, A, (1, 30))
    data = Trajectories(None, states, actions, np.array([30]), np.ones((1, 30), bool))
    labels, off = random.integers(0, 3, (1, 30)), ~np.eye(3, 4, dtype=bool)
    counts = {}
    for name, known in (("known", IntentConstraints.never_switch([0, 2])), ("free", None)):
        model = AgentMarkov(S, A, 3, constraints=known, rows="all").bind(data)
        found = model.labelling.statistics(random, [labels], [model.arrange(data)])
        counts[name] = np.asarray(found["transition"].concentration)[:, off].reshape(S, A, -1).sum((1, 2))
        assert np.asarray(found["transition"].concentration).sum() == 29
    switches = np.bincount(states[0, :-1], np.diff(labels[0]) != 0, minlength=S)
    np.testing.assert_array_equal(counts["free"], switches)
    assert counts["known"][1] > 0 and not counts["known"][[0, 2]].any()
