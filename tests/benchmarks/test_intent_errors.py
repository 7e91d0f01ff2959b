"""Errors of learned agents against sums taken step by step, and against numbers worked out by hand."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.papers.intent_errors import IntentErrors, intent_errors
from ethogram.inference.roles.alignment import align_states
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import IntentAgent

S, A = 4, 3


def agent(random, num_intents, rest=0, zeros=False):
    """Random tables; with `zeros` about a third of the entries are none."""

    def rows(*shape):
        weights = random.exponential(size=shape)
        if zeros:
            weights *= random.random(shape) < 0.7
            weights[..., 0] += 1e-3
        return weights / weights.sum(-1, keepdims=True)

    width = num_intents + rest
    return IntentAgent(rows(width), rows(num_intents, S, A, width), rows(num_intents, S, A))


def traces(random, num_intents, lengths=(6, 1, 9, 3)):
    """Ragged traces with missing actions, and what must not matter beyond their ends; their true intents."""
    lengths = np.array(lengths, np.int32)
    shape = (len(lengths), 9)
    inside = np.arange(9) < lengths[:, None]
    states, intents = (np.where(inside, random.integers(n, size=shape), 77) for n in (S, num_intents))
    actions = np.where(random.random(shape) < 0.2, -1, random.integers(A, size=shape))
    return Trajectories(None, states, np.where(inside, actions, 88), lengths, inside), intents


def by_steps(true, learned, data, intents, permutation):
    """The six errors by a loop over steps, each step one equal part of the weight."""
    num_intents, floor = len(true.policy), 1e-12
    label = {int(x): k for k, x in enumerate(permutation) if 0 <= x < num_intents and k < len(learned.policy)}

    def over_intents(row):
        kept = [float(row[label[x]]) if x in label else 0.0 for x in range(num_intents)]
        return kept, 1 - sum(kept)

    def pair(p, q, lost=0.0):
        divergence = sum(a * math.log(a / max(b, floor)) for a, b in zip(p, q, strict=True) if a > 0)
        return divergence, math.sqrt(sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) + lost**2)

    moves, deeds = [], []
    for i, length in enumerate(data.lengths):
        for t in range(length):
            x, s, a = int(intents[i, t]), int(data.states[i, t]), int(data.actions[i, t])
            known = x in label
            deeds.append(pair(true.policy[x, s], learned.policy[label[x], s] if known else np.full(A, 1 / A)))
            if t + 1 < length and a >= 0:
                row = learned.transition[label[x], s, a] if known else None
                kept = over_intents(row) if known else (np.full(num_intents, 1 / num_intents), 0.0)
                moves.append(pair(true.transition[x, s, a], *kept))
    start = pair(true.initial, *over_intents(learned.initial))
    wkl, wl2 = zip(np.mean(moves, 0), np.mean(deeds, 0), start, strict=True)
    return IntentErrors(*wkl, *wl2)


@pytest.mark.parametrize(
    ("num_true", "num_learned", "rest", "permutation"),
    [
        (2, 2, 1, [1, 0]),
        (2, 2, 0, [0, 1]),
        (2, 4, 1, [-1, 1, -1, 0]),
        (2, 4, 1, [3, 1, 2, 0]),
        (3, 2, 1, [2, 0]),
        (4, 2, 0, [0, -1]),
        (3, 4, 1, [2]),
        (3, 1, 1, [1, 0, 2]),
        (2, 3, 1, [-1, -1, -1]),
    ],
)
def test_errors_are_sums_over_steps(num_true, num_learned, rest, permutation):
    for seed in range(3):
        random = np.random.default_rng([seed, num_true, num_learned])
        true, learned = agent(random, num_true, zeros=True), agent(random, num_learned, rest, zeros=seed > 0)
        data, intents = traces(random, num_true)
        found = intent_errors(true, learned, data, intents, np.array(permutation))
        assert all(type(error) is float for error in found)
        np.testing.assert_allclose(found, by_steps(true, learned, data, intents, permutation), rtol=1e-12)


def test_numbers_worked_out_by_hand():
    """One intent, matched to the second of two learned ones; .3 and .5 go to the other or beyond, and are lost."""
    true = IntentAgent([1.0], np.ones((1, 1, 2, 1)), np.array([[[0.75, 0.25]]]))
    transition = np.zeros((2, 1, 2, 3))
    transition[0, ..., 0] = 1
    transition[1, 0] = [[0.1, 0.7, 0.2], [0.0, 0.5, 0.5]]
    learned = IntentAgent([0.2, 0.8, 0.0], transition, np.array([[[1.0, 0.0]], [[0.5, 0.5]]]))
    data = Trajectories.from_list(states=[[0, 0, 0, 0], [0]], actions=[[0, 0, 1, 1], [-1]])
    found = intent_errors(true, learned, data, np.zeros((2, 4), int), [-1, 0])
    policy = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    lost = (2 * 0.3 + 0.5) / 3 * math.sqrt(2)
    expected = [
        -(2 * math.log(0.7) + math.log(0.5)) / 3,
        policy,
        -math.log(0.8),
        lost,
        0.25 * math.sqrt(2),
        0.2 * math.sqrt(2),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_an_intent_without_a_label_is_uniform_and_never_begins():
    true = IntentAgent([0.0, 1.0], np.tile(np.eye(2)[:, None, None], (1, S, A, 1)), np.zeros((2, S, A)))
    true.policy[..., 0] = 1
    learned = IntentAgent([1.0], np.ones((1, S, A, 1)), true.policy[:1])
    data, intents = traces(np.random.default_rng(0), 1, lengths=(9, 4))
    found = intent_errors(true, learned, data, intents + 1, [0])
    np.testing.assert_allclose(
        found,
        [math.log(2), math.log(3), -math.log(1e-12), math.sqrt(0.5), math.sqrt(2 / 3), math.sqrt(2)],
        rtol=1e-12,
    )


def test_other_labels_for_the_truth_are_no_error_and_labels_do_not_matter():
    random = np.random.default_rng(4)
    true, learned = agent(random, 3, zeros=True), agent(random, 4, 1)
    data, intents = traces(random, 3)
    order = np.array([2, 0, 1])
    renamed = IntentAgent(true.initial[order], true.transition[order][..., order], true.policy[order])
    labels = np.where(intents < 3, np.argsort(order)[np.minimum(intents, 2)], -1)
    permutation = align_states(np.where(intents < 3, intents, -1), labels).permutation
    np.testing.assert_allclose(
        intent_errors(true, renamed, data, intents, permutation), np.zeros(6), atol=1e-12
    )

    columns, order = np.array([3, 1, 0, 2, 4]), np.array([3, 1, 0, 2])
    moved = IntentAgent(
        learned.initial[columns], learned.transition[order][..., columns], learned.policy[order]
    )
    permutation = np.array([1, -1, 0, 2])
    before, after = (
        intent_errors(true, one, data, intents, which)
        for one, which in ((learned, permutation), (moved, permutation[order]))
    )
    np.testing.assert_allclose(before, after, rtol=1e-13)
    shuffled = data.take([2, 0, 3, 1])
    after = intent_errors(true, learned, shuffled, intents[[2, 0, 3, 1]], permutation)
    np.testing.assert_allclose(before, after, rtol=1e-13)


def test_only_rows_that_occur_are_looked_at():
    """Rows elsewhere may hold anything; the first K of K + 1 entries say the same as all of them."""
    random = np.random.default_rng(8)
    true, learned = agent(random, 2), agent(random, 3, 1)
    data, intents = traces(random, 2)
    expected = intent_errors(true, learned, data, intents, [1, -1, 0])
    cut = IntentAgent(learned.initial[:3], learned.transition[..., :3], learned.policy)
    np.testing.assert_allclose(intent_errors(true, cut, data, intents, [1, -1, 0]), expected, rtol=1e-13)

    x, s, a = (y[data.observed] for y in (intents, data.states, data.actions))
    blank = np.full_like(learned.transition, np.nan)
    for k, intent in ((0, 1), (2, 0)):
        at = s[(x == intent) & (a >= 0)], a[(x == intent) & (a >= 0)]
        blank[k][at] = learned.transition[k][at]
    on_device = IntentAgent(*map(jnp.asarray, learned._replace(transition=blank)))
    found = intent_errors(true, on_device, data, jnp.asarray(intents), jnp.array([1, -1, 0]))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"intents": np.zeros((4, 8), int)}, ValueError, r"intents has shape \(4, 8\), not .* \(4, 9\)"),
        ({"intents": np.zeros((4, 9))}, TypeError, "intents has dtype float64"),
        ({"intents": np.full((4, 9), -1)}, ValueError, r"intents\[0, 0\] is -1, outside 0..1"),
        ({"permutation": [0, 0, 1]}, ValueError, "permutation is .* no two learned intents"),
        ({"permutation": [[0, 1]]}, ValueError, "permutation is .* for every learned intent"),
        ({"permutation": [0, -2]}, ValueError, "permutation is .* for every learned intent"),
        ({"permutation": [0.0, 1.0]}, TypeError, "permutation has dtype float64"),
        ({"learned": {"initial": np.full(5, 0.2)}}, ValueError, r"initial has shape \(5,\), not \(3,\) or \(4,\)"),
        ({"learned": {"initial": np.full(4, 2.0)}}, ValueError, "learned.initial has a row that sums to 8"),
        ({"learned": {"transition": np.ones((3, S, A, 2))}}, ValueError, r"learned.transition has shape .*, 2\)"),
        ({"learned": {"transition": np.full((3, S, A, 4), -1.0)}}, ValueError, "learned.transition has the entry -1.0"),
        ({"learned": {"transition": np.full((3, S, A, 4), np.nan)}}, ValueError, "transition has the entry nan"),
        ({"learned": {"policy": np.ones((3, S, 2))}}, ValueError, r"learned.policy has shape \(3, 4, 2\), true.policy"),
        ({"learned": {"policy": np.ones((S, 2))}}, ValueError, "learned.policy .* not .intent, state, action"),
        ({"learned": {"policy": np.full((3, S, A), 0.2)}}, ValueError, "learned.policy has a row that sums to 0.6"),
        ({"true": {"initial": np.array([0.5, 0.4])}}, ValueError, "true.initial has a row that sums to 0.9"),
        ({"true": {"transition": np.ones((2, S, A, 3))}}, ValueError, r"true.transition has .* not \(2, 4, 3, 2\)$"),
        ({"data": {"states": np.full((4, 9), 4)}}, ValueError, r"data.states\[0, 0\] is 4, outside 0..3"),
        ({"data": {"actions": np.full((4, 9), 3)}}, ValueError, r"data.actions\[0, 0\] is 3"),
        ({"data": {"actions": np.full((4, 9), -1)}}, ValueError, "no step with a known action and a next step"),
        ({"data": {"actions": None}}, ValueError, "data.actions is None"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(change, error, message):
    random = np.random.default_rng(2)
    data, intents = traces(random, 2)
    given = {"true": agent(random, 2), "learned": agent(random, 3, 1), "data": data}
    given |= {"intents": intents, "permutation": [0, 1, -1]}
    for name, new in change.items():
        given[name] = given[name]._replace(**new) if isinstance(new, dict) else new
    with pytest.raises(error, match=message):
        intent_errors(**given)
