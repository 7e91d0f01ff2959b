"""The population of PX-DA against a grid, and against NUTS."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy.stats import invgamma, norm

import ethogram
from ethogram.inference import nuts_chains
from ethogram.inference.choices import px_da_chains
from ethogram.inference.choices.slice_draw import draw_log_variances
from ethogram.models.choices import Decisions, NoisyMDP
from ethogram.models.data.trajectories import Metadata

PEOPLE = 5


def decisions_of_people(count=6, features=2, seed=0):
    """Choices of people whose weights differ about (1.5, -1)."""
    random = np.random.default_rng(seed)
    who = np.repeat(np.arange(PEOPLE), count)
    x = random.normal(size=(len(who), 3, features))
    weights = np.array([1.5, -1.0])[:features] + 0.5 * random.normal(size=(PEOPLE, features))
    utility = np.einsum("dof,df->do", x, weights[who]) + random.normal(size=x.shape[:2])
    names = Metadata(feature_names=["speed", "price"][:features])
    return Decisions(x, np.ones(x.shape[:2], bool), utility.argmax(1), who, metadata=names)


@pytest.mark.parametrize("method", ["px-da", pytest.param("nuts", marks=pytest.mark.slow)])
def test_interrupted_chains_go_on_to_the_same_bits(tmp_path, monkeypatch, method):
    """And another number of draws goes on, too; other warm-ups, decisions and settings are refused."""
    data, path = decisions_of_people(), tmp_path / "chains"
    model = NoisyMDP(dist.InverseGamma(3.0, 2.0), "features")
    module = {"px-da": px_da_chains, "nuts": nuts_chains}[method]
    advance, calls = module._advance, []

    def run(num_samples=120, data=data, **settings):
        settings = {"num_warmup": 60, "num_chains": 2, "progress_bar": False} | settings
        found = ethogram.fit(jax.random.key(1), model, data, method, num_samples=num_samples, **settings)
        return found.result.sites | found.result.statistics

    def interrupted(*given):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*given)

    whole = run()
    with monkeypatch.context() as patch:
        interrupted.eval_shape = advance.eval_shape
        patch.setattr(module, "_advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(checkpoint=path)
        found, short = run(checkpoint=path), run(40, checkpoint=path)
    assert len(calls) == 5  # of 180 iterations in blocks of 50, the third of which was begun twice
    assert whole.keys() == found.keys() and len(whole["theta"][0]) == 120
    for name, site in whole.items():
        np.testing.assert_array_equal(found[name], site)
        np.testing.assert_array_equal(short[name], site[:, :40])
    other = {"px-da": {"moves": "da"}, "nuts": {"max_tree_depth": 2}}[method]
    for changed in ({"num_warmup": 50}, {"data": decisions_of_people(seed=1)}, other):
        with pytest.raises(ValueError, match="checkpoint of another model, data, key or settings"):
            run(checkpoint=path, **changed)


@pytest.mark.slow
def test_a_variance_given_the_values_is_that_of_a_grid():
    """Of 4000 chains after 20 iterations each: within five Monte Carlo errors, which fails once in a million runs."""
    prior, theta = dist.InverseGamma(3.0, 2.0), np.array([0.3, 1.2, -0.4, 2.0, 0.9])

    def chain(key):
        def step(log_kappa, key):
            return draw_log_variances(key, prior, log_kappa, np.array(5.0), np.sum(theta**2)), None

        return jax.lax.scan(step, np.zeros(()), jax.random.split(key, 20))[0]

    drawn = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 4000)))
    grid = np.linspace(-4, 5, 601)
    logs = invgamma.logpdf(np.exp(grid), 3.0, scale=2.0) + grid
    logs += sum(norm.logpdf(one, 0, np.exp(grid / 2)) for one in theta)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    mean = mass @ grid
    deviation = np.sqrt(mass @ (grid - mean) ** 2)
    assert abs(drawn.mean() - mean) < 5 * deviation / np.sqrt(4000)
    assert abs(drawn.std() / deviation - 1) < 5 / np.sqrt(2 * 4000)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the draws have not converged")
def test_subjects_are_fitted_by_both_methods_and_the_population_comes_first():
    """Means within four and a half Monte Carlo errors of each other."""
    data = decisions_of_people(count=8)
    model = NoisyMDP(dist.InverseGamma(3.0, 2.0), "features", loc_kappa=4.0)
    lengths = {"num_warmup": 150, "num_chains": 2, "progress_bar": False}
    means, errors, found = {}, {}, {}
    for name, size in {"px-da": 1000, "nuts": 250}.items():
        fit = ethogram.fit(jax.random.key(1), model, data, name, num_samples=size, **lengths)
        sites, lead = fit.result.sites, (2, size)
        assert sites["kappa"].shape == (*lead, 2) and sites["theta"].shape == (*lead, PEOPLE, 2)
        drawn = np.concatenate(
            [sites["loc"], np.log(sites["kappa"]), sites["theta"].reshape(*lead, -1)], axis=-1
        )
        means[name] = drawn.mean((0, 1))
        errors[name] = drawn.std((0, 1)) / np.sqrt(np.asarray(effective_sample_size(drawn)))
        table = fit.summary()
        assert list(table.index[:4]) == ["v_loc[speed]", "v_loc[price]", "kappa[speed]", "kappa[price]"]
        assert len(table) == 4 + 2 * PEOPLE
        found[name] = fit.result
    assert (abs(means["px-da"] - means["nuts"]) < 4.5 * np.hypot(errors["px-da"], errors["nuts"])).all()
    assert np.asarray(effective_sample_size(found["nuts"].sites["loc"])).min() > 60
    assert found["nuts"].statistics["diverging"].mean() < 0.02


@pytest.mark.slow
def test_a_variance_with_a_prior_needs_no_subjects():
    data = decisions_of_people()._replace(subject=None)
    lengths = {"num_warmup": 20, "num_samples": 40, "num_chains": 2, "progress_bar": False}
    model = NoisyMDP(dist.Uniform(0.5, 3.0), "features")
    kappa = ethogram.fit(jax.random.key(1), model, data, "px-da", **lengths).result.sites["kappa"]
    assert kappa.shape == (2, 40) and kappa.min() >= 0.5 and kappa.max() <= 3.0 and kappa.std() > 0.1
