"""Samplers and guides of numpyro as ArviZ is given them, on models of one's own too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.svi import SVIRunResult
from scipy.stats import bernoulli

from ethogram.inference.export.arviz_export import to_arviz
from ethogram.models.conjugate_model import Exportable
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.model_object import model_object
from ethogram.models.roles.role_hmm import RoleHMM


@model_object
class Coin(Exportable):
    """A numpyro model of one's own, with its likelihood."""

    observed_site: ClassVar[str] = "actions"

    def __call__(self, data, *, condition=True):
        share = numpyro.sample("share", dist.Beta(2.0, 1.0))
        entries = self.entries(data)
        with numpyro.plate("sequence", data.num_sequences):
            each = self.likelihood({"share": share}, entries.batch)
            numpyro.sample("actions", each, obs=jnp.asarray(entries.value) if condition else None)

    def likelihood(self, parameters, batch):
        return dist.Bernoulli(parameters["share"]).expand(batch.actions.shape).to_event(1)


coin = Coin()


def plain(data):
    """The same as a function."""
    return coin(data)


COINS = Trajectories.from_list(actions=[[1, 0, 1], [0, 1, 1]], metadata=Metadata(name="coins"))


@pytest.fixture(scope="module", params=["stored", pytest.param("run", marks=pytest.mark.slow)])
def mcmc(request):
    sampler = MCMC(
        NUTS(coin), num_warmup=20, num_samples=30, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    if request.param == "stored":  # what a run leaves, by hand
        rng, shape = np.random.default_rng(3), (2, 30)
        x = rng.uniform(0.1, 0.9, shape)
        potential = -np.log(2 * x) - np.log(x**4 * (1 - x) ** 2 * x * (1 - x))
        sampler._states = sampler._last_state = {
            "z": {"share": x},
            "diverging": np.zeros(shape, bool),
            "potential_energy": potential,
            "energy": potential + rng.gamma(0.5, size=shape),
            "num_steps": 2 ** rng.integers(1, 4, size=shape) - 1,
            "accept_prob": rng.uniform(size=shape),
            "adapt_state.step_size": np.full(shape, 0.7),
        }
        return sampler
    extra = ("potential_energy", "energy", "num_steps", "accept_prob", "adapt_state.step_size")
    sampler.run(jax.random.key(3), COINS, extra_fields=extra)
    return sampler


def test_mcmc_keeps_its_chains_and_statistics(mcmc):
    tree = to_arviz(mcmc, COINS, log_likelihood="sequence")
    stats, extra = tree["sample_stats"], mcmc.get_extra_fields(group_by_chain=True)
    names = {"diverging", "lp", "energy", "n_steps", "tree_depth", "acceptance_rate", "step_size"}
    assert set(stats.data_vars) == names
    share = mcmc.get_samples(group_by_chain=True)["share"]
    np.testing.assert_array_equal(tree["posterior"]["share"].values, share)
    x = np.asarray(share, float)  # 4 heads, 2 tails, Beta(2, 1), and the logistic map's Jacobian
    np.testing.assert_allclose(
        stats["lp"].values, np.log(2 * x) + np.log(x**4 * (1 - x) ** 2 * x * (1 - x)), rtol=1e-3
    )
    assert (stats["energy"].values >= -stats["lp"].values).all()
    np.testing.assert_array_equal(stats["n_steps"].values, extra["num_steps"])
    scores = tree["log_likelihood"]["actions"]
    np.testing.assert_allclose(scores.values[..., 0], np.log(x**2 * (1 - x)), rtol=1e-4)


@pytest.mark.slow
def test_draws_of_a_guide_are_read():
    guide = AutoNormal(coin)
    svi = SVI(coin, guide, numpyro.optim.Adam(0.1), Trace_ELBO())
    result = svi.run(jax.random.key(10), 20, COINS, progress_bar=False)
    tree = to_arviz(
        result,
        COINS,
        model=coin,
        guide=guide,
        num_draws=7,
        log_likelihood="sequence",
        posterior_predictive=True,
    )
    scores = tree["log_likelihood"]["actions"]
    assert scores.dims == ("chain", "draw", "sequence")
    share = tree["posterior"]["share"].values.astype(float)[..., None, None]
    np.testing.assert_allclose(scores.values, bernoulli.logpmf(COINS.actions, share).sum(-1), rtol=1e-4)
    new = tree["posterior_predictive"]["actions"]
    assert new.dims == ("chain", "draw", "sequence", "time") and new.shape == (1, 7, 2, 3)
    assert tree["fit_stats"]["elbo"].shape == (20,)
    with pytest.raises(
        ValueError, match='"step" needs a latent chain, but the observations of Coin are Independent'
    ):
        to_arviz(result, COINS, model=coin, guide=guide, log_likelihood="step")


def test_actions_are_the_observed_data_where_nothing_is_asked_of_the_model(mcmc):
    tree = to_arviz(mcmc, COINS)
    np.testing.assert_array_equal(tree["observed_data"]["actions"].values, COINS.actions)
    assert set(tree["constant_data"].data_vars) == {"lengths", "observed"}


def test_sites_without_draws_are_refused(mcmc):
    with pytest.raises(ValueError, match="result has no site initial and no transition and no probability"):
        data = Trajectories.from_list(list(COINS.actions[..., None]))
        to_arviz(mcmc, data, model=RoleHMM(2, CategoricalEmission(2)), align=False, log_likelihood="sequence")


def test_of_plain_functions_draws_are_exported_and_nothing_is_scored(mcmc):
    tree = to_arviz(mcmc, COINS, model=plain)
    assert tree["posterior"]["share"].shape == (2, 30) and set(tree["observed_data"].data_vars) == {"actions"}
    with pytest.raises(
        TypeError, match=r"model is plain, which is no model of ethogram: .* arviz.from_numpyro"
    ):
        to_arviz(mcmc, COINS, model=plain, log_likelihood="sequence")


@pytest.mark.slow
def test_symbols_stay_integers_and_forbidden_transitions_zero():
    transition = np.array([[1.0, 1.0], [0.0, 1.0]])
    model = RoleHMM(2, CategoricalEmission(3), transition=transition)
    data = Trajectories.from_list([[[0], [1], [2], [2]], [[1], [1], [0]], [[2], [0]]])
    rng = np.random.default_rng(9)
    rows = rng.dirichlet(np.ones(2), size=(5, 2))
    draws = {
        "initial": rng.dirichlet(np.ones(2), size=5),
        "transition_free": rows,
        "probability": rng.dirichlet(np.ones(3), (5, 2)),
    }
    guide = SimpleNamespace(sample_posterior=lambda *_, **__: draws)
    result = SVIRunResult(params={}, state=None, losses=np.zeros(3))
    tree = to_arviz(
        result,
        data,
        model=model,
        guide=guide,
        coords={"category": ["a", "b", "c"]},
        posterior_predictive=True,
    )
    posterior = tree["posterior"]
    assert set(posterior.data_vars) == {"initial", "transition", "probability"}
    expected = rows * (transition > 0)
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(posterior["transition"].values[0], expected, rtol=1e-5)
    assert posterior["probability"].coords["category"].values.tolist() == ["a", "b", "c"]
    new = tree["posterior_predictive"]["observations"]
    assert new.shape == (1, 5, 3, 4, 1) and new.dtype.kind == "i" and new.values.max() <= 2


@pytest.mark.slow
def test_numpyros_svi_takes_a_role_hmm():
    """With a forbidden transition and full covariances: the guide's draws keep both, and the loss falls."""
    x = np.random.default_rng(1).normal(size=(4, 12, 1)) + np.repeat([0.0, 4.0], 6)[None, :, None]
    data = Trajectories.from_list(list(x.astype(np.float32)))
    model = RoleHMM(2, GaussianEmission(1, dof=4.0), transition=np.array([[2.0, 1.0], [0.0, 1.0]]))
    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    result = svi.run(jax.random.key(0), 150, data, progress_bar=False)
    assert result.losses[-20:].mean() < result.losses[:20].mean() - 10
    tree = to_arviz(result, data, model=model, guide=guide, num_draws=20, log_likelihood="sequence")
    transition = tree["posterior"]["transition"].values
    assert (transition[..., 1, 0] == 0).all()
    np.testing.assert_allclose(transition.sum(-1), 1, rtol=1e-5)
    assert (tree["posterior"]["covariance"].values > 0).all()
    scores = tree["log_likelihood"]["observations"]
    assert scores.sizes["sequence"] == 4 and np.isfinite(scores.values).all()
