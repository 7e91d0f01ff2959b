"""Findings against data whose faults are planted, and against sound data. Keys are fixed; a sound one fails by chance
in fewer than 1 of 1000 other keys.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ethogram.inference.diagnostics import Diagnosis, Finding, Level
from ethogram.inference.diagnostics.columns import of_columns
from ethogram.inference.diagnostics.paths import of_paths, of_rare_states, of_wide_states
from ethogram.inference.diagnostics.residuals import of_residuals
from ethogram.inference.diagnostics.tables import log_evidence, of_tables, table_evidence
from ethogram.inference.diagnostics.weights import (
    of_ratios,
    of_shifts,
    shifts_of_normal,
    shifts_of_weighted,
)


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


@pytest.mark.parametrize("dtype", [np.float32, float])
def test_constant_and_doubled_features_are_named(dtype):
    """Also in single precision, far from zero, where differences have three digits."""
    x = np.random.default_rng(0).normal(size=(500, 3)).astype(dtype)
    other, both = 7 * x[:, :1] + dtype(1e3), x[:, :1] - 2 * x[:, 1:2]
    values = np.concatenate([x, np.full((500, 1), 0.1, dtype), other, both], axis=1)
    found = list(of_columns(values.astype(float), list("xyzcdb"), "at all"))
    said = " ".join(each.evidence for each in found)
    assert len(found) == 3 and "c does not differ at all" in said
    assert "d is x, each times" in said and "b is x plus y, each times" in said
    pairs = list(of_columns(values.astype(float), list("xyzcdb"), "at all", sums=False))
    assert len(pairs) == 2 and not any(each.evidence.startswith("b") for each in pairs)
    assert not list(of_columns(x.astype(float), list("xyz"), "at all"))


@pytest.mark.parametrize(("sd", "far"), [(0.3, True), (0.9, False)])
def test_pareto_k_of_a_normal_that_is_too_narrow(sd, far):
    """Ratios of N(0, 1) and N(0, sd^2) have a tail of shape 1 - sd^2."""
    x = np.random.default_rng(0).normal(size=4000) * sd
    found = list(of_ratios(x**2 / (2 * sd**2) - x**2 / 2, "Advice."))
    assert bool(found) is far
    if far:
        k = float(found[0].evidence.partition("k of ")[2].partition(",")[0])
        assert k == pytest.approx(1 - sd**2, abs=0.15)


def test_shifts_of_weighted_draws_are_those_of_the_conjugate_posterior():
    """Of a normal mean: prior N(0, 1), precision 4 of the data, whose mean is 3."""
    mean, variance = 3 * 4 / 5, 1 / 5
    draws = np.random.default_rng(0).normal(mean, variance**0.5, (20_000, 1))
    log_prior = [-((draws[:, 0] / scale) ** 2) / 2 for scale in (0.5, 1.0, 2.0)]
    shift = shifts_of_weighted(draws, [log_prior[0] - log_prior[1], log_prior[2] - log_prior[1]])
    wanted = max(abs(3 * 4 / (4 + scale**-2) - mean) for scale in (0.5, 2.0)) / variance**0.5
    assert shift == pytest.approx(wanted, rel=0.05)
    exact = shifts_of_normal(np.array([mean]), np.array([[variance]]), np.ones(1), np.array([[-2.0]]))
    assert exact == pytest.approx(wanted, rel=1e-9)
    (finding,) = of_shifts(np.append(0.1, shift), ["x", "y"], "Advice.")
    assert finding.kind == "prior" and "move y by 2" in finding.evidence
    assert not list(of_shifts(np.full(2, 0.4), ["x", "y"], "Advice."))
