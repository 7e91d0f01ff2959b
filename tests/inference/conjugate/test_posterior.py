"""Posteriors: draws and means by site, and files of every family."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate import posterior as posteriors
from ethogram.inference.conjugate.posterior import ConjugatePosterior, load_posterior
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.emissions import (
    BinomialEmission,
    CategoricalEmission,
    GaussianEmission,
    GaussianMixtureEmission,
    KnownCovarianceEmission,
)
from ethogram.models.families.exponential_family import Known, PartlyKnown
from ethogram.models.roles.role_hmm import RoleHMM

HALF_KNOWN = np.array([[0.2, 0.8], [np.nan, np.nan]])
MODELS = {
    "gaussian": lambda: RoleHMM(2, GaussianEmission(2, mean=3.0), sticky=1.0),
    "known covariance": lambda: RoleHMM(2, KnownCovarianceEmission(np.eye(2) + 0.2), sticky=1.0),
    "categorical": lambda: RoleHMM(2, CategoricalEmission(3), transition=np.array([[1.0, 0.0], [1.0, 1.0]])),
    "binomial": lambda: RoleHMM(2, BinomialEmission(np.array([3, 4]), num_features=2)),
    "mixture": lambda: RoleHMM(2, GaussianMixtureEmission(1, 2)),
    "known": lambda: RoleHMM(2, CategoricalEmission(2, known=Known(HALF_KNOWN)), initial=Known([0.5, 0.5])),
    "exclusive": lambda: RoleHMM(3, CategoricalEmission(3), exclusive="per_sequence"),
    "known roles": lambda: RoleHMM(2, CategoricalEmission(3), known_roles=True),
}


def make_posterior(model, seed=0):
    """A posterior off its prior: natural coordinates that are longer, which lie inside the cone."""
    rng = np.random.default_rng(seed)

    def move(block):
        if isinstance(block, PartlyKnown):
            return dataclasses.replace(block, block=move(block.block))
        weight = rng.uniform(1.5, 2)
        natural = jax.tree.map(lambda x: jax.device_put(weight * np.asarray(x)), block.natural)
        return dataclasses.replace(block, natural=natural)

    return ConjugatePosterior(model, {name: move(block) for name, block in model.prior().items()})


@pytest.mark.parametrize(
    ("family", "double"), [*((family, True) for family in MODELS), ("known", False)], ids=str
)
def test_files_bring_back_every_family(tmp_path, family, double):
    with jax.enable_x64(double):
        posterior = make_posterior(MODELS[family]())
        path = tmp_path / "fit.ethogram"
        posterior.save(path)
        back = load_posterior(path)
        assert jax.tree.structure(back) == jax.tree.structure(posterior)
        for one, other in zip(jax.tree.leaves(posterior), jax.tree.leaves(back), strict=True):
            assert one.dtype == other.dtype
            assert isinstance(other, jax.Array) or not isinstance(one, jax.Array)
            np.testing.assert_array_equal(one, other)
        again = back.mean()
        for name, mean in posterior.mean().items():
            np.testing.assert_array_equal(mean, again[name])
        assert [file.name for file in tmp_path.iterdir()] == ["fit.ethogram"]


@pytest.mark.usefixtures("float64")
def test_draws_are_those_of_the_blocks():
    posterior = make_posterior(MODELS["known"]())
    draws, mean = jax.tree.map(np.asarray, (posterior.sample(jax.random.key(0), 4000), posterior.mean()))
    assert set(draws) == set(mean)
    for site, value in draws.items():
        assert value.shape == (4000, *mean[site].shape)
        error = value.std(axis=0) / np.sqrt(4000)
        assert (np.abs(value.mean(axis=0) - mean[site]) <= 4.5 * error + 1e-12).all(), site
    np.testing.assert_allclose(draws["transition"].sum(-1), 1, rtol=1e-12)
    again = posterior.sample(jax.random.key(0), 4000)
    np.testing.assert_array_equal(draws["transition"], again["transition"])
    np.testing.assert_array_equal(draws["probability"][:, 0], np.tile(HALF_KNOWN[0], (4000, 1)))
    np.testing.assert_array_equal(draws["initial"], 0.5)


def test_expected_statistics_are_by_block():
    posterior = make_posterior(MODELS["categorical"]())
    statistics = posterior.expected_statistics()
    assert set(statistics) == {"initial", "transition", "probability"}
    assert np.asarray(statistics["transition"].concentration)[0, 1] == -np.inf


@pytest.mark.parametrize(("num_draws", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError)])
def test_numbers_of_draws_are_checked(num_draws, error):
    with pytest.raises(error, match="num_draws must be"):
        make_posterior(MODELS["categorical"]()).sample(jax.random.key(0), num_draws)


def test_models_of_others_are_not_saved(tmp_path):
    class Mine(ConjugateModel):
        def prior(self):
            return make_posterior(MODELS["categorical"]()).blocks

        def log_normalizer(self, expected, batch):
            raise NotImplementedError

    posterior = ConjugatePosterior(Mine(), Mine().prior())
    with pytest.raises(TypeError, match="Mine cannot be saved"):
        posterior.save(tmp_path / "fit.ethogram")
    assert not list(tmp_path.iterdir())


def test_one_program_draws_any_number():
    """Of parameters with a rejection sampler, which compiles for seconds; more draws begin with those of fewer."""
    posterior, key = make_posterior(MODELS["known"]()), jax.random.key(3)
    few = posterior.sample(key, 7)
    compiled = posteriors._sample._cache_size()
    many = posterior.sample(key, 211)
    assert posteriors._sample._cache_size() == compiled
    for name, draws in jax.tree.map(np.asarray, many).items():
        assert draws.shape == (211, *few[name].shape[1:])
        np.testing.assert_array_equal(draws[:7], few[name])
        assert len(np.unique(draws.reshape(211, -1)[:, -1])) == (1 if name == "initial" else 211)


def test_the_model_of_a_posterior_is_conjugate():
    class Foreign:
        def prior(self):
            return {}

    with pytest.raises(TypeError, match="model is Foreign: give a ConjugateModel"):
        ConjugatePosterior(Foreign(), {})
