"""Findings of whole fits: notes at most in sound data, and the planted fault first.

Keys are fixed; one in a hundred others has a finding by chance.
"""

from __future__ import annotations

import dataclasses
import pickle
import types

import jax
import numpy as np
import numpyro.distributions as dist
import pandas
import pytest

import ethogram
from ethogram.fits.diagnose import of_roles, of_search
from ethogram.fits.diagnose_rewards import _of_prior
from ethogram.fits.fit_object import Fit
from ethogram.inference.diagnostics import Level
from ethogram.inference.rewards import RewardPosterior, Status
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.mdps import MDP, soft_values


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
def test_sound_roles_have_no_finding_and_faults_are_named():
    fit = fitted(0, lambda x, rng: x)
    fit.time_budget()
    kept = {**fit._paths}
    assert all(finding.level == Level.NOTE for finding in fit.diagnose())
    assert kept and fit._paths.keys() == kept.keys() and all(fit._paths[each] is kept[each] for each in kept)
    fit.data = fit.data._replace(observations=np.full_like(fit.data.observations, 0.1))
    constant = next(each for each in of_roles(fit, False) if each.level > Level.NOTE)
    assert constant.kind == "features" and "feature 0 does not differ" in constant.evidence
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
    result = types.SimpleNamespace(converged=False, status=Status.NOISY, reason=Status.NOISY.sentence)
    (ended,) = of_search(types.SimpleNamespace(model=None, result=result))
    assert ended.kind == "search" and "not converged" in ended.evidence
    assert ended.advice == "Pass a larger num_evaluations and a larger num_steps."
    with pytest.raises(TypeError, match="thorough must be True or False"):
        other.diagnose(thorough="yes")
    assert "features explain nothing" in table._repr_html_() and type(table.head(1)) is not type(table)


def test_twins_of_choices_are_named(choices):
    """A feature that is there twice, in two units, and one that is of the decision and of no option."""
    x = choices.data.features
    of_decision = np.repeat(np.random.default_rng(0).normal(size=(60, 1, 1)), 2, axis=1)
    data = choices.data._replace(features=np.concatenate([x, 100 * x, of_decision], axis=-1))
    theta = np.random.default_rng(2).normal(np.array([2.0, 0.0, 0.0]), 0.3, size=(2, 400, 3))
    result = SampledPosterior(choices.model, {"theta": theta}, {})
    found = Fit(choices.model, data, "px-da", "", result, 1.0, choices._key).diagnose()
    said = repr(found)
    assert "nonlinear" not in {each.kind for each in found}
    assert (
        "feature 1 is feature 0, each times" in said
        and "feature 2 does not differ between the options" in said
    )


@pytest.mark.slow
def test_a_prior_of_policies_that_decides_is_named():
    """48 steps of an agent that takes one action in each state, under ten and half an action of each in the prior."""
    states = np.random.default_rng(0).integers(0, 3, (3, 16))
    data = ethogram.Trajectories.from_list(states=list(states), actions=list(states))
    for rho, count in ((10.0, 1), (0.5, 0)):
        model = ethogram.AgentMarkov(3, 3, truncation=3, rho=rho)
        fit = ethogram.fit(jax.random.key(0), model, data, restarts=2, progress_bar=False)
        found = [each for each in fit.diagnose() if each.kind == "prior"]
        assert len(found) == count and all("per step" in each.evidence for each in found)


def test_priors_of_rewards_that_decide_are_named(rewards):
    """Of a fixed scale, and of one that is integrated over, whose nodes another prior weights anew."""
    (fixed,) = _of_prior(rewards)
    assert fixed.kind == "prior" and "the reward of state" in fixed.evidence
    narrow = rewards.result.posterior.latent_root / 50  # of data that say more than any prior
    told = rewards.result._replace(
        posterior=dataclasses.replace(rewards.result.posterior, latent_root=narrow)
    )
    assert not list(_of_prior(Fit(rewards.model, rewards.data, "laplace", "", told, 1.0, rewards._key)))
    prior = dist.LogNormal(np.log(5.0), 0.5)
    model = ethogram.GPIRL(rewards.model.mdp, [[0.0], [1.0], [2.0]], scale_prior=prior, relevance_prior=1.0)
    mean, root = np.array([[[0.0, 0.0, 0.0]], [[-1.0, 0.0, 3.0]]]), np.tile(0.1 * np.eye(3), (2, 1, 1, 1))
    nodes = RewardPosterior(
        model, mean, root, np.log([[2.0], [12.0]]), np.log([0.5, 0.5]), "natural_gradient"
    )
    result = rewards.result._replace(posterior=nodes)
    (found,) = _of_prior(Fit(model, rewards.data, "natural_gradient", "", result, 1.0, rewards._key))
    assert "half or twice the scale" in found.evidence


@pytest.mark.slow
def test_folds_of_choices_that_slots_explain():
    """People who take the second slot, whatever its features: shares predict what folds have not seen."""
    random = np.random.default_rng(0)
    features = random.normal(size=(200, 3, 1))
    choice = np.where(random.random(200) < 0.8, 1, random.integers(0, 3, 200))
    data = ethogram.Decisions(features, np.ones((200, 3), bool), choice)
    fit = ethogram.fit(jax.random.key(0), ethogram.NoisyMDP(kind="features"), data, "laplace")
    held = [each for each in fit.diagnose(thorough=True) if "held-out" in each.evidence]
    assert len(held) == 1 and held[0].kind == "baseline"
    assert not any("held-out" in each.evidence for each in fit.diagnose())


@pytest.mark.slow
def test_another_discount_is_named():
    """A corridor with a goal at its end, of an agent that looks far ahead, and of models that do and do not."""
    ends = np.stack([np.maximum(np.arange(10) - 1, 0), np.minimum(np.arange(10) + 1, 9)], axis=1)
    kinds = []
    for discount in (0.95, 0.3):
        far = MDP.deterministic(ends, discount=0.95)
        policy = np.exp(soft_values(far, 2.0 * (np.arange(10) == 9)).log_policy)
        counts = np.round(60 * policy).astype(int)
        model = ethogram.GPIRL(
            MDP.deterministic(ends, discount=discount),
            np.arange(10.0)[:, None],
            scale_prior=4.0,
            relevance_prior=0.1,
        )
        fit = ethogram.fit(jax.random.key(0), model, counts, "laplace", progress_bar=False)
        kinds.append({each.kind for each in fit.diagnose()})
    assert "discount" not in kinds[0] and "discount" in kinds[1]
