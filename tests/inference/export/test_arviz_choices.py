"""Choice models as ArviZ reads them, sampled by PX-DA, and by PX-DA and NUTS together."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs

from ethogram.inference.choices.px_da import PXDA
from ethogram.inference.export.arviz_export import to_arviz
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import ProbitChoice
from ethogram.models.data.trajectories import Metadata

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what ArviZ says at import depends on its version
    import arviz as az


def decisions(count=60, **parts):
    random = np.random.default_rng(0)
    features = random.normal(size=(count, 3, 2))
    choice = np.argmax(features @ (1.2, -0.8) + random.normal(size=(count, 3)), axis=1)
    names = Metadata(feature_names=["hours", "price"], action_names=["bus", "car", "walk"])
    return Decisions(features, np.ones((count, 3), bool), choice, metadata=names)._replace(**parts)


def run(kernel, data, **options):
    mcmc = MCMC(kernel, num_warmup=30, num_samples=60, progress_bar=False, **options)
    mcmc.run(jax.random.key(0), data, extra_fields=("z1",) if isinstance(kernel, PXDA) else ())
    return mcmc


def stored(kernel, **states):
    """What an MCMC of a kernel holds after a run; nothing is compiled."""
    mcmc = MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False)
    mcmc._states = mcmc._last_state = states
    return mcmc


def elpd_of(found):
    """What `az.loo` found, whose name depends on the version."""
    return float(found.elpd if hasattr(found, "elpd") else found.elpd_loo)


@pytest.mark.slow
def test_draws_of_px_da_with_unknown_choices():
    """They and decisions of weight zero have no log likelihood, and stay in what was observed and is predicted."""
    data = decisions(weight=np.where(np.arange(60) == 11, 0, 1 + np.arange(60) % 2))
    data = data._replace(choice=np.where(np.isin(np.arange(60), (3, 20)), -1, data.choice))
    model = NoisyMDP(9.0, "features", action_rewards=True)
    random = np.random.default_rng(1)
    sites = {"theta": random.normal(size=(2, 100, 4)), "action_rewards": random.normal(size=(2, 100, 3))}
    sites["v"] = sites["theta"][..., :2]
    mcmc = stored(PXDA(model), z=sites, z1=random.normal(size=(2, 100)))
    tree = to_arviz(mcmc, data, key=jax.random.key(1), log_likelihood="sequence", posterior_predictive=True)
    values = tree.posterior["v"]
    assert values.dims == ("chain", "draw", "feature") and values.shape == (2, 100, 2)
    assert values["feature"].values.tolist() == ["hours", "price"]
    assert tree.posterior["action_rewards"]["action"].values.tolist() == ["bus", "car", "walk"]
    assert {"z1"} <= set(tree.sample_stats.data_vars) | set(tree.sample_stats)
    kept = np.setdiff1d(np.arange(60), (3, 11, 20))
    scores = tree.log_likelihood["choice"]
    assert scores.dims == ("chain", "draw", "decision") and scores.shape == (2, 100, 57)
    assert scores["decision"].values.tolist() == kept.tolist()
    theta = np.asarray(tree.posterior["theta"])[1, 7]

    @jax.jit
    def log_prob(theta):
        return ProbitChoice(model.utilities(theta, data), data.legal).log_prob(data.choice)

    exact = np.asarray(log_prob(theta))[kept]
    np.testing.assert_allclose(np.asarray(scores)[1, 7], exact, rtol=1e-9)
    np.testing.assert_array_equal(tree.observed_data["choice"], data.choice)
    assert tree.posterior_predictive["choice"].shape == (2, 100, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = az.loo(tree, pointwise=True)
    assert found.n_data_points == 57 and np.isfinite(elpd_of(found))
    named = to_arviz(mcmc, data, coords={"decision": range(100, 160)}, log_likelihood="sequence")
    assert named.log_likelihood["choice"]["decision"].values.tolist() == (100 + kept).tolist()


@pytest.mark.slow
def test_subjects_have_a_dim_under_gibbs():
    who = np.arange(60) % 2
    names = Metadata(feature_names=["hours", "price"], subject_names=["ann", "ben"])
    data = decisions(subject=who, metadata=names)
    model = NoisyMDP(dist.InverseGamma(3.0, 2.0), "features")
    kernel = Gibbs([(PXDA(model), ["theta"]), (NUTS(model), ["kappa", "loc"])])
    tree = to_arviz(run(kernel, data), data, model=model, log_likelihood="sequence")
    values = tree.posterior["v"]
    assert values.dims == ("chain", "draw", "subject", "feature")
    assert values["subject"].values.tolist() == ["ann", "ben"]
    assert tree.posterior["v_loc"].dims == ("chain", "draw", "feature")
    assert np.isfinite(np.asarray(tree.log_likelihood["choice"])).all()


@pytest.mark.slow
def test_tabular_values_stand_on_states():
    data = Decisions.from_list([np.eye(3)[:2], np.eye(3)[1:], np.eye(3)] * 3, [0, 1, 2, 1, 0, 0, 1, 1, 1])
    tree = to_arviz(run(PXDA(NoisyMDP(4.0)), data), data)
    assert tree.posterior["v"].dims == ("chain", "draw", "state")
