"""Findings of whole fits: notes at most in sound data, and the planted fault first.

Keys are fixed; one in a hundred others has a finding by chance.
"""

from __future__ import annotations

import pickle
import types

import jax
import numpy as np
import pandas
import pytest

import ethogram
from ethogram.fits.diagnose import of_search
from ethogram.fits.fit_object import Fit
from ethogram.inference.diagnostics import Level


def fitted(seed, fault, roles=2):
    rng = np.random.default_rng(seed)
    role = np.cumsum(rng.random((4, 200)) < 0.1, axis=1) % 2
    x = 5000 + 40 * (rng.normal(size=(4, 200, 1)) + 6 * role[..., None])
    x, observed = fault(x, rng), rng.random((4, 200)) > 0.02
    x[~observed] = 1e6  # what stands in frames that were not recorded says nothing
    data = ethogram.Trajectories.from_list(list(x), observed=list(observed))
    model = ethogram.RoleHMM(roles, ethogram.GaussianEmission(1))
    return ethogram.fit(jax.random.key(seed), model, data, progress_bar=False)


@pytest.mark.slow
def test_sound_roles_have_no_finding_and_a_drift_is_named():
    assert all(finding.level == Level.NOTE for finding in fitted(0, lambda x, rng: x).diagnose())
    found = fitted(0, lambda x, rng: x + 60 * np.linspace(0, 1, 200)[:, None]).diagnose()
    assert found[0].level > Level.NOTE and "drift" in {finding.kind for finding in found[:3]}
    assert str(found[0]) == repr(found).splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize(("roles", "better"), [(1, "With 2 states"), (3, "With 2 states")])
def test_another_number_of_states_is_named(roles, better):
    found = fitted(0, lambda x, rng: x, roles).diagnose()
    assert any(finding.level > Level.NOTE and finding.evidence.startswith(better) for finding in found)


@pytest.mark.slow
def test_a_table_of_actions_is_named_first():
    """Actions that follow one another in a circle, whatever the state."""
    actions = np.tile(np.arange(4), (3, 30))
    states = np.random.default_rng(0).integers(0, 3, actions.shape)
    data = ethogram.Trajectories.from_list(states=list(states), actions=list(actions))
    fit = ethogram.fit(jax.random.key(0), ethogram.AgentMarkov(3, 4, truncation=2), data, progress_bar=False)
    found = fit.diagnose()
    assert found[0].kind == "baseline" and "by last action" in found[0].evidence


def test_first_lines_are_findings_of_choices(choices):
    """Of choices that follow the values there is none above a note; of a coin's, that the features explain nothing."""
    assert choices.diagnose().first_lines() == [] == repr(choices).splitlines()[1:]
    coin = np.random.default_rng(1).integers(0, 2, 60)
    other = Fit(
        choices.model, choices.data._replace(choice=coin), "px-da", "", choices.result, 1.0, choices._key
    )
    assert repr(other).splitlines()[1:] == []  # it is not diagnosed by the way
    found = other.diagnose()
    assert "features" in {finding.kind for finding in found[:3]} and other.diagnose() is found
    lines = found.first_lines()
    assert repr(other).splitlines()[1:] == lines and len(lines) <= 4
    table = other.summary()
    assert repr(table).splitlines()[: len(lines)] == lines and table.findings is found
    assert pickle.loads(pickle.dumps(table)).equals(table)
    with pandas.option_context("display.notebook_repr_html", False):
        assert table._repr_html_() is None
    older = Fit.__new__(Fit)
    older.__setstate__({name: value for name, value in other.__getstate__().items() if name != "_diagnoses"})
    assert repr(older) == repr(other).splitlines()[0]
    (ended,) = of_search(types.SimpleNamespace(model=None, result=types.SimpleNamespace(converged=False)))
    assert ended.kind == "search" and "not converged" in ended.evidence
    with pytest.raises(TypeError, match="thorough must be True or False"):
        other.diagnose(thorough="yes")
    assert "features explain nothing" in table._repr_html_() and type(table.head(1)) is not type(table)
