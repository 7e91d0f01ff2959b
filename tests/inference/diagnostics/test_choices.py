"""Findings of choices, of actions and of next states, of predictions that are true, and of planted faults.

Predictions are the truth, so that nothing is fitted. Keys are fixed; a sound one fails by chance in fewer than 1 of 100
other keys.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from ethogram.inference.diagnostics import Level
from ethogram.inference.diagnostics.actions import of_policy, of_transitions
from ethogram.inference.diagnostics.choices import (
    Predicted,
    _sums,
    of_predictions,
    of_prior,
    with_centred_design,
)
from ethogram.inference.diagnostics.paths import of_alike, of_paths
from ethogram.inference.diagnostics.tables import log_loo, of_heldout, of_scores, table_scores

UNIT = 1e3


def predicted(change=lambda utility, x, rng: utility, seen=lambda x, rng: x, lapses=0.0, number=3000):
    """Choices between two options of a probit, and its predictions of utility 1.5 a unit of the first feature."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(number, 2, 2))
    utility = change(1.5 * x[..., 0], x, rng)
    choice = np.argmax(utility + rng.normal(size=utility.shape), axis=1)
    lapse = rng.random(number) < lapses
    choice[lapse] = rng.integers(0, 2, lapse.sum())
    x = seen(x, rng)
    first = ndtr((x[:, 0, 0] - x[:, 1, 0]) * 1.5 / np.sqrt(2))
    probability, ones = np.stack([first, 1 - first], axis=1), np.ones(number)
    features = UNIT * (x + 50)
    legal, subject = np.ones((number, 2), bool), np.zeros(number, int)
    return Predicted(probability, choice, features, legal, ones, subject, features, np.arange(number) + 7)


def test_true_predictions_have_no_finding():
    assert not list(of_predictions(predicted(), ["x", "y"]))


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("calibration", {"lapses": 0.15}),
        ("position", {"change": lambda utility, x, rng: utility + np.array([0.5, 0])}),
        ("nonlinear", {"change": lambda utility, x, rng: utility + 0.5 * x[..., 1] ** 2}),
        (
            "drift",
            {"change": lambda utility, x, rng: utility + np.linspace(-1, 1, 3000)[:, None] * x[..., 1]},
        ),
    ],
)
def test_planted_faults_of_choices_are_found(kind, fault):
    found = list(of_predictions(predicted(**fault), ["x", "y"]))
    assert kind in {finding.kind for finding in found[:3]}
    assert all(finding.evidence.endswith(".") and finding.advice.endswith(".") for finding in found)


def test_lapses_habits_and_outliers_of_features_are_found():
    data = predicted()
    choice = data.choice.copy()
    rare = np.flatnonzero(data.probability.min(1) < 0.02)[:30]
    choice[rare] = data.probability[rare].argmin(1)
    found = {each.kind: each for each in of_predictions(data._replace(choice=choice), ["x", "y"])}
    assert f"decisions {rare[0] + 7}, {rare[1] + 7}" in found["lapses"].evidence  # as the data number them
    again = np.array(data.choice)
    for number in range(1, 3000):
        again[number] = again[number - 1] if number % 3 == 0 else again[number]
    assert "habit" in {finding.kind for finding in of_predictions(data._replace(choice=again), ["x", "y"])}
    half = data._replace(probability=0.5 + (data.probability - 0.5) / 2)  # the value is held back
    far = half._replace(features=half.features + 30 * UNIT * (np.arange(3000) % 100 == 0)[:, None, None])
    assert "outliers" in {finding.kind for finding in of_predictions(far, ["x", "y"])}


def test_sums_are_the_moments_of_enumerated_choices():
    """Mean zero, and the variance, over all choices of two decisions; parameters account for their own features."""
    rng = np.random.default_rng(0)
    probability, number = rng.dirichlet(np.ones(3), 2), rng.normal(size=(2, 3))
    x = rng.normal(size=(2, 3, 1))
    sums, weights = [], []
    for choice in np.ndindex(3, 3):
        legal, subject = np.ones((2, 3), bool), np.zeros(2, int)
        data = Predicted(probability, np.array(choice), x, legal, np.ones(2), subject, x, np.arange(2))
        data = with_centred_design(data)
        own = _sums(data, number)
        sums.append(own.beyond.sum())
        weights.append(probability[0, choice[0]] * probability[1, choice[1]])
        assert _sums(data, x[..., 0], fitted=True).beyond == pytest.approx(0)
        rest = _sums(data, number + 7 * x[..., 0], fitted=True)
        np.testing.assert_allclose(rest.beyond, _sums(data, number, fitted=True).beyond, atol=1e-9)
    assert np.dot(weights, sums) == pytest.approx(0, abs=1e-12)
    assert np.dot(weights, np.square(sums)) == pytest.approx(own.variance.sum(), rel=1e-12)


def test_priors_that_decide_are_named():
    """Of a normal mean: the posterior of n = 25 values of mean 3 about a prior of deviation .1 moves with its scale."""
    rng = np.random.default_rng(0)

    def posterior(deviation, precision=25.0, mean=3.0):
        total = precision + deviation**-2
        return rng.normal(precision * mean / total, total**-0.5, (4000, 1)), np.array([deviation]), ["x"]

    assert not list(of_prior(*posterior(10.0)))
    (moved,) = of_prior(*posterior(0.1))
    kept = [*of_prior(*posterior(0.1, precision=1e-3))]
    assert not list(of_prior(np.ones((8, 2)), np.ones(2), ["x", "y"]))  # of a chain that never moved
    assert "half or twice" in moved.evidence and "next to nothing of x" in kept[0].evidence


def test_scores_of_tables_are_those_without_the_entry():
    choice = np.array([0, 1, 0, 0])
    found = log_loo(np.zeros((4, 1)), choice, 2)
    np.testing.assert_allclose(np.exp(found), [2.5 / 4, 0.5 / 4, 2.5 / 4, 2.5 / 4])
    tables = table_scores(np.ones((4, 2), bool), choice)
    np.testing.assert_array_equal(tables["shares of the slots"], found)
    assert set(table_scores(np.array([[True, True], [False, True]]), choice[:2])) == {"equal chances"}
    many = np.ones(100)
    (nothing,) = of_scores(np.full(100, np.log(0.5)), {"equal chances": np.full(100, np.log(0.5))}, many)
    assert nothing.kind == "features" and nothing.level == Level.WARNING
    (worse,) = of_scores(-many, {"equal chances": np.full(100, np.log(0.5))}, many)
    assert "30.7 nats worse than equal chances" in worse.evidence
    assert list(of_heldout(-1.0, {"one row": (-0.9, 0.02)})) and not list(
        of_heldout(-1.0, {"one row": (-0.9, 0.0)})
    )
    (table,) = of_scores(
        np.full(100, -0.5), {"equal chances": -many, "shares of the slots": -0.3 * many}, many
    )
    assert table.kind == "baseline" and "shares of the slots" in table.evidence


def walk(rows, rng, number=4000):
    return np.array([rng.choice(rows.shape[1], p=row) for row in rows[:number]])


def test_policies_and_transitions_are_compared_with_what_was_seen():
    rng = np.random.default_rng(0)
    policy, state = rng.dirichlet(np.ones(3), 5), rng.integers(0, 5, 4000)
    action, other = walk(policy[state], rng), walk(policy[::-1][state], rng)
    assert not list(of_policy(rng, state, action, policy))
    (wrong,) = of_policy(rng, state, other, policy)
    both = np.where(np.arange(4000) < 2000, action, other)
    (drift,) = of_policy(rng, state, both, (policy + policy[::-1]) / 2)
    assert (wrong.kind, drift.kind) == ("policy", "drift")
    rows = np.tile([0.9, 0.1, 0.0], (4000, 1))
    assert not list(of_transitions(rows, walk(rows, rng)))
    for true in ([0.7, 0.3, 0.0], [0.9, 0.09, 0.01]):
        (found,) = of_transitions(rows, walk(np.tile(true, (4000, 1)), rng))
        assert found.kind == "transitions"


def test_intents_that_choose_alike_and_changes_by_context():
    rng = np.random.default_rng(0)
    path, state = rng.integers(0, 2, (4, 500)), rng.integers(0, 3, (4, 500))
    policy = np.array([[0.5, 0.5], [0.9, 0.1], [0.1, 0.9]])
    action = (rng.random((4, 500)) > policy[state, 0]).astype(int)
    apart = np.where(path == 1, 1 - action, action)
    (alike,) = of_alike(path, state, action, ["rest", "walk"])
    assert alike.kind == "number of states" and "rest and walk" in alike.evidence
    assert not list(of_alike(path, state, apart, ["rest", "walk"]))
    assert not list(of_paths(np.tile(np.arange(500) % 2, (4, 1)), 2))  # it is always left
    hour = np.tile(np.arange(500) // 50 % 2, (4, 1))
    leaves = rng.random((4, 500)) < np.where(hour == 1, 0.3, 0.02)
    switching = np.cumsum(leaves, axis=1) % 2
    assert list(of_paths(switching, 2)) and not list(of_paths(switching, 2, np.roll(hour, -1, axis=1)))
