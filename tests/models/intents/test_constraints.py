"""What an observer may say of an agent: which rows it bounds, and what contradicts itself."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.models.intents import AgentMarkov, IntentConstraints
from ethogram.models.intents.constraints import bounds_of, check_constraints

S, A, K = 4, 2, 3


def bounds_at(constraints, state, action):
    checked = check_constraints(constraints, S, A, K)
    never, lower, upper = bounds_of(checked, "intents", np.array([state * (A + 1) + action]), A, K)
    return bool(never[0]), lower[0], upper[0]


def test_statements_hold_where_they_are_made():
    """A region as a mask or as numbers; a missing action counts as any where a statement holds for all of them."""
    mask = np.array([False, True, True, False])
    known = (
        IntentConstraints.never_switch(mask, actions=[0])
        .stay([1, 3], at_least=0.6)
        .stay([1], [1], at_most=0.8)
    )
    never, lower, upper = bounds_at(known, 1, 1)
    assert not never
    np.testing.assert_array_equal(lower, 0.6 * np.eye(K, K + 1))
    np.testing.assert_array_equal(upper, 1 - 0.2 * np.eye(K, K + 1))
    assert bounds_at(IntentConstraints.never_switch(mask, actions=[0]), 2, 0)[0]
    assert not bounds_at(IntentConstraints.never_switch(mask, actions=[0]), 2, 1)[0]
    assert not bounds_at(IntentConstraints.never_switch(mask, actions=[0]), 2, A)[0], (
        "a missing action may be another"
    )
    assert bounds_at(IntentConstraints.never_switch([1, 2]), 2, A)[0]
    assert (bounds_at(known, 0, 0)[1] == 0).all()


def test_entries_and_actions_have_their_own_rows():
    known = (
        IntentConstraints.entry(0, 2, [1], equal=0.3)
        .action(1, [2], intent=1, at_most=0.1)
        .action(0, [3], equal=0.0)
    )
    _, lower, upper = bounds_at(known, 1, 0)
    expected = np.zeros((K, K + 1))
    expected[0, 2] = 0.3
    np.testing.assert_array_equal(lower, expected)
    np.testing.assert_array_equal(upper, np.where(expected > 0, 0.3, 1))
    checked = check_constraints(known, S, A, K)
    _, lower, upper = bounds_of(checked, "actions", np.arange(S), A, K)
    assert upper[2].tolist() == [[1, 1], [1, 0.1], [1, 1]]
    assert upper[3].tolist() == [[0, 1]] * K and (lower == 0).all()


@pytest.mark.parametrize(
    ("known", "error", "message"),
    [
        (lambda: IntentConstraints.stay([0]), ValueError, "stay needs equal=, or at_least= or at_most="),
        (lambda: IntentConstraints.stay([0], equal=0.5, at_least=0.2), ValueError, "stay needs equal="),
        (
            lambda: IntentConstraints.stay([0], equal=1.0),
            ValueError,
            "equal of stay must lie strictly between 0 and 1, not 1: .* never_switch",
        ),
        (
            lambda: IntentConstraints.stay([0], at_least=0.8, at_most=0.2),
            ValueError,
            "at_least of stay, 0.8, is above at_most, 0.2",
        ),
        (lambda: IntentConstraints.entry(-1, 0, equal=0.5), ValueError, "intent must be at least 0, not -1"),
        (lambda: IntentConstraints.stay([4], equal=0.5), ValueError, r"stay equal to 0.5: states has 4, outside 0..3"),
        (lambda: IntentConstraints.stay([0], [2], equal=0.5), ValueError, r"actions has 2, outside 0..1"),
        (
            lambda: IntentConstraints.never_switch(np.ones(3, bool)),
            ValueError,
            r"states is a mask of shape \(3,\), not \(4,\)",
        ),
        (
            lambda: IntentConstraints.never_switch([0], [True] * 3),
            ValueError,
            r"actions is a mask of shape \(3,\), not \(2,\)",
        ),
        (lambda: IntentConstraints.never_switch([0.5]), TypeError, "states must be a mask or indices"),
        (lambda: IntentConstraints.entry(0, 3, equal=0.5), ValueError, "entry from intent 0 to 3.*: 3 is outside 0..2"),
        (lambda: IntentConstraints.action(2, equal=0.5), ValueError, "2 is outside 0..1"),
        (lambda: "never", TypeError, "constraints must be an IntentConstraints, not str"),
    ],
)  # fmt: skip
def test_statements_that_make_no_sense_are_named(known, error, message):
    with pytest.raises(error, match=message):
        AgentMarkov(S, A, K, constraints=known())


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            IntentConstraints.stay([1], equal=0.9).stay([1, 2], equal=0.8),
            "at state 1, action 0 .*must be at least 0.9 and at most 0.8",
        ),
        (
            IntentConstraints.stay([1], at_least=0.9).stay([1], [1], at_most=0.5),
            "at state 1, action 1 .*must be at least 0.9 and",
        ),
        (
            IntentConstraints.never_switch([2]).stay([2], equal=0.9),
            "at state 2.*never changes it stays with probability 1",
        ),
        (IntentConstraints.never_switch([2]).entry(0, 1, at_least=0.1), "at state 2.*no other can follow"),
        (
            IntentConstraints.entry(0, 1, equal=0.6).entry(0, 2, equal=0.4),
            ".*lower bounds of the row of intent 0 sum to 1 and leave nothing",
        ),
        (IntentConstraints.entry(0, 1, at_least=0.7).stay(at_least=0.7), ".*row of intent 0 sum to 1.4"),
        (
            IntentConstraints.action(0, [3], equal=0.0).action(1, [3], at_most=0.5),
            "at state 3 .*upper bounds .* sum to 0.5, less than 1",
        ),
    ],
)
def test_contradictions_are_refused_by_name(known, message):
    with pytest.raises(ValueError, match=f"constraints contradict each other {message}"):
        AgentMarkov(S, A, K, constraints=known)


def test_a_bound_beside_certainty_is_no_contradiction():
    AgentMarkov(S, A, K, constraints=IntentConstraints.stay([1], equal=0.9).stay([1, 2], equal=0.9))
    AgentMarkov(S, A, K, constraints=IntentConstraints.never_switch([2]).stay(at_least=0.9))
    AgentMarkov(S, A, K, constraints=IntentConstraints.action(0, equal=0.3).action(1, equal=0.7))
