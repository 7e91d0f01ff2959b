"""PX-DA of several subjects about a common mean, and of decisions with weights, against grids."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.handlers import condition
from numpyro.infer import MCMC, NUTS, Gibbs
from scipy.special import ndtr
from scipy.stats import norm

from benchmarks.papers.noisy_mdp_variants import VariantPXDA
from ethogram.inference.choices.px_da import PXDA
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.data.trajectories import Metadata

KAPPA, LOC, COUNTS = 0.8, 1.5, (9, 3, 0)
PROPER = {"scale+translate_proper": (3.0, 2.0)}


def decisions_of_three():
    """Two options with one feature; the last subject decides nothing, and every fourth set has a third option."""
    random = np.random.default_rng(0)
    who = np.repeat(np.arange(3), COUNTS)
    features = random.normal(size=(len(who), 3, 1))
    legal = np.ones((len(who), 3), bool)
    legal[np.arange(len(who)) % 4 > 0, 2] = False
    choice = random.integers(0, 2, size=len(who))
    names = Metadata(subject_names=["ann", "ben", "cleo"])
    return Decisions(features, legal, choice, who, metadata=names)


def on_a_grid(data, number, loc=LOC, kappa=KAPPA):
    """Mean and deviation of one subject's weight; probabilities by a sum over the winner's noise, in NumPy."""
    axis, x = np.linspace(loc - 9, loc + 9, 361), np.linspace(-9, 9, 61)
    logs = norm.logpdf(axis, loc, np.sqrt(kappa))
    weights = np.ones(data.num_decisions) if data.weight is None else data.weight
    mine = np.ones(data.num_decisions, bool) if data.subject is None else data.subject == number
    for row in np.flatnonzero(mine):
        chosen, density = data.choice[row], norm.pdf(x)[None]
        for other in set(np.flatnonzero(data.legal[row])) - {chosen}:
            gap = (data.features[row, chosen, 0] - data.features[row, other, 0]) * axis
            density = density * ndtr(x + gap[:, None])
        logs += weights[row] * np.log(density.sum(1) * (x[1] - x[0]))
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    mean = mass @ axis
    return mean, np.sqrt(mass @ (axis - mean) ** 2)


@pytest.mark.filterwarnings("ignore:the choices are separated")
@pytest.mark.slow
@pytest.mark.parametrize("moves", ["local+scale", "scale+translate_proper"])
def test_every_expansion_about_a_mean(moves):
    """Means within four and a half Monte Carlo errors, deviations within 8 %: fails by chance in 1 of 3000 runs."""
    data = decisions_of_three()
    kernel = VariantPXDA(NoisyMDP(KAPPA, "features"), moves, scale_prior=PROPER.get(moves))
    kernel = kernel.wrap_model(lambda model: condition(model, {"loc": np.array([LOC])}))
    mcmc = MCMC(
        kernel, num_warmup=100, num_samples=300, num_chains=16, chain_method="vectorized", progress_bar=False
    )
    mcmc.run(jax.random.key(0), data)
    drawn = np.asarray(mcmc.get_samples(group_by_chain=True)["v"])
    assert drawn.shape == (16, 300, 3, 1)
    for number in range(3):
        mean, deviation = on_a_grid(data, number)
        one = drawn[:, :, number, 0]
        error = deviation / np.sqrt(float(effective_sample_size(one)))
        assert abs(one.mean() - mean) < 4.5 * error, (number, one.mean(), mean)
        assert one.std() == pytest.approx(deviation, rel=0.08)


@pytest.mark.optimised
@pytest.mark.filterwarnings("ignore:the choices are separated")
def test_the_mean_of_subjects_is_a_block_of_gibbs():
    """With NUTS on loc and kappa, the posterior that NUTS has of everything: within four Monte Carlo errors."""
    data = decisions_of_three()
    model = NoisyMDP(dist.InverseGamma(6.0, 5.0), "features", loc_kappa=4.0)
    with pytest.raises(ValueError, match=r'kappa has a prior, .*\["kappa", "loc"\]'):
        PXDA(model).init(jax.random.key(0), 0, None, (data,), {})
    found = {}
    for name, kernel in {
        "gibbs": Gibbs([(PXDA(model), ["theta"]), (NUTS(model), ["kappa", "loc"])]),
        "nuts": NUTS(model, target_accept_prob=0.95),
    }.items():
        mcmc = MCMC(kernel, num_warmup=200, num_samples=1000, progress_bar=False)
        mcmc.run(jax.random.key(1), data)
        drawn = mcmc.get_samples(group_by_chain=True)
        assert drawn["v_loc"].shape == (1, 1000, 1)
        parts = (drawn["v"][..., 0], drawn["loc"], np.log(drawn["kappa"])[..., None])
        found[name] = np.concatenate([np.asarray(part) for part in parts], axis=-1)
    errors = {
        name: x.std((0, 1)) / np.sqrt(np.asarray(effective_sample_size(x))) for name, x in found.items()
    }
    apart = np.abs(found["gibbs"].mean((0, 1)) - found["nuts"].mean((0, 1)))
    assert (apart < 4 * np.hypot(errors["gibbs"], errors["nuts"])).all()


@pytest.mark.filterwarnings("ignore:the choices are separated")
def test_weights_are_repetitions():
    data = decisions_of_three()._replace(subject=None)
    often = np.arange(data.num_decisions) % 3
    weighted = data._replace(weight=often)
    repeated = data.take(np.repeat(np.arange(data.num_decisions), often))
    kernel = PXDA(NoisyMDP(KAPPA, "features"))
    states = [kernel.init(jax.random.key(0), 0, None, (given,), {}) for given in (weighted, repeated)]
    for one, other in zip(*map(jax.tree.leaves, states), strict=True):
        np.testing.assert_array_equal(
            *(jax.random.key_data(x) if x.dtype == states[0].rng_key.dtype else x for x in (one, other))
        )
    assert (np.asarray(states[0].problem.counts) > 0).sum() == often.sum()
    broken = weighted._replace(weight=often + 0.5)
    with pytest.raises(
        ValueError, match=r"weight\[0\] is 0.5: PXDA repeats decisions, and takes integer weights"
    ):
        PXDA(NoisyMDP(KAPPA, "features")).init(jax.random.key(0), 0, None, (broken,), {})


def test_what_is_wrong_with_subjects_is_named():
    data = decisions_of_three()
    with pytest.raises(ValueError, match="data have subjects"):
        NoisyMDP(float("inf"), "features").check(data)
    for wrong in (float("inf"), dist.HalfNormal(1.0)):
        with pytest.raises(ValueError, match="loc_kappa must be a finite positive number"):
            NoisyMDP(1.0, "features", loc_kappa=wrong)
