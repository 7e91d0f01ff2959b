"""Findings against data whose faults are planted, and against sound data. Keys are fixed; a sound one fails by chance
in fewer than 1 of 1000 other keys.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ethogram.inference.diagnostics import Diagnosis, Finding, Level
from ethogram.inference.diagnostics.paths import of_paths, of_rare_states, of_wide_states
from ethogram.inference.diagnostics.residuals import of_residuals
from ethogram.inference.diagnostics.tables import log_evidence, of_tables, table_evidence


def kinds(findings):
    return {finding.kind for finding in findings}


@pytest.fixture
def normal():
    return np.random.default_rng(0).normal(size=(6, 400, 2))


def test_sound_residuals_have_no_finding(normal):
    normal[0, 100:, :] = np.nan
    normal[:, ::7, 1] = np.nan
    assert not list(of_residuals(normal, ["x", "y"]))


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (lambda x, rng: x + np.linspace(-0.5, 0.5, x.shape[1])[:, None], "drift"),
        (lambda x, rng: x + rng.normal(size=(len(x), 1, 1)), "drift"),
        (lambda x, rng: np.where(rng.random(x.shape) < 0.01, 6.0, x), "outliers"),
        (lambda x, rng: rng.standard_exponential(x.shape) - 1, "emission"),
        (lambda x, rng: x + 0.5 * np.roll(x, 1, axis=1), "number of states"),
    ],
)
def test_planted_faults_of_residuals_are_found(normal, planted, kind):
    found = list(of_residuals(planted(normal, np.random.default_rng(1)), ["x", "y"]))
    assert kind in kinds(found)
    assert all(finding.evidence.endswith(".") and finding.advice.endswith(".") for finding in found)


def chain(stay, seed=0):
    """Paths (sequence, time) of three states that are left with the chance of each step."""
    rng = np.random.default_rng(seed)
    path = np.zeros(stay.shape, int)
    for time in range(1, stay.shape[1]):
        leaves = rng.random(len(stay)) > stay[:, time]
        path[:, time] = (path[:, time - 1] + leaves * rng.integers(1, 3, len(stay))) % 3
    return path


def test_chances_of_changes_are_compared_over_time_and_between_sequences():
    time = np.arange(800)
    constant, waves = np.full((8, 800), 0.9), 1 - 0.1 * np.exp(np.sin(time / 30)) * np.ones((8, 1))
    unequal = np.repeat([[0.95], [0.8]], 4, axis=0) * np.ones(800)
    assert not list(of_paths(chain(constant), 3))
    for stay in (waves, unequal):
        (finding,) = of_paths(chain(stay), 3)
        assert finding.kind == "switching"
    assert not list(of_paths(np.zeros((2, 3), int), 1))


def test_states_of_few_frames_and_of_outliers_are_named():
    rng = np.random.default_rng(0)
    path = (rng.random((4, 500)) < 0.005).astype(int)
    values = rng.normal(size=(4, 500, 2)) * np.where(path == 1, 30, 1)[..., None]
    (rare,) = of_rare_states(np.bincount(path.ravel()), ["rest", "odd"])
    (wide,) = of_wide_states(values, path, ["rest", "odd"])
    assert rare.level == Level.NOTE and "odd" in rare.evidence
    assert wide.level == Level.WARNING and "odd" in wide.evidence
    assert not list(of_wide_states(rng.normal(size=values.shape), path, ["rest", "odd"]))


def test_evidence_of_a_table_is_that_of_polya_urns():
    """The probabilities of all sequences of five actions sum to one, and one of them is that of drawing in turn."""
    context = np.array([0, 0, 1, 0, 1])[:, None]
    every = [log_evidence(context, np.array(actions), 3) for actions in itertools.product(range(3), repeat=5)]
    assert np.exp(every).sum() == pytest.approx(1, rel=1e-12)
    in_turn = np.log([0.5 / 1.5, 0.5 / 2.5, 0.5 / 1.5, 1.5 / 3.5, 1.5 / 2.5]).sum()
    assert log_evidence(context, np.array([0, 1, 2, 1, 2]), 3) == pytest.approx(in_turn, rel=1e-12)


def test_a_table_that_explains_actions_better_is_named():
    actions = np.tile(np.arange(4), (3, 25))
    actions[:, 90:] = -1
    states = np.zeros_like(actions)
    uniform = 270 * np.log(1 / 4)
    (finding,) = of_tables(uniform, states, actions, 4)
    assert (
        finding.kind == "baseline" and "by last action" in finding.evidence and finding.level == Level.WARNING
    )
    assert not list(of_tables(max(table_evidence(states, actions, 4).values()), states, actions, 4))


def test_a_diagnosis_has_the_worst_first_and_prints_a_line_each():
    each = [
        Finding("search", level, "Evidence.", "Advice.", size)
        for level, size in ((1, 9.0), (3, 0.0), (3, 1.0))
    ]
    found = Diagnosis(finding._replace(level=Level(finding.level)) for finding in each)
    assert [(int(finding.level), finding.size) for finding in found] == [(3, 1.0), (3, 0.0), (1, 9.0)]
    assert repr(found).splitlines()[0] == "warning, search: Evidence. Advice."
    assert list(found.to_table()["level"]) == ["warning", "warning", "note"]
    assert repr(Diagnosis()) == "no findings" and not Diagnosis()
