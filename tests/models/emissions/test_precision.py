"""Single-precision dots of emissions ask for full precision, which accelerators else round to ten bits (TF32)."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from scipy import stats

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import (
    AutoregressiveGaussianEmission,
    BernoulliEmission,
    BinomialEmission,
    CategoricalEmission,
    GammaEmission,
    GaussianEmission,
    GaussianMixtureEmission,
    KnownCovarianceEmission,
    PoissonEmission,
    ProductEmission,
    VonMisesEmission,
)
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.families.numpyro_sites import by_site
from ethogram.models.hooks import overrides

EVERY = {
    "gaussian": GaussianEmission(2),
    "known covariance": KnownCovarianceEmission(np.eye(2)),
    "mixture": GaussianMixtureEmission(2, 2),
    "autoregressive": AutoregressiveGaussianEmission(2),
    "gamma": GammaEmission(2),
    "von mises": VonMisesEmission(2),
    "poisson": PoissonEmission(2),
    "bernoulli": BernoulliEmission(2),
    "binomial": BinomialEmission(4, num_features=2),
    "categorical": CategoricalEmission(3),
    "product": ProductEmission({"cell": CategoricalEmission(3), "place": GaussianEmission(1)}),
}
WITH_GAPS = ("gaussian", "known covariance", "mixture")


def precisions(jaxpr):
    """Precisions of all dots of a jaxpr, and of those inside it."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]
        for inner in jaxprs_in_params(equation.params):
            yield from precisions(inner)


@pytest.mark.parametrize("name", [*EVERY, *(f"{name}, gaps" for name in WITH_GAPS)])
def test_every_dot_asks_for_full_precision(name):
    name, _, gaps = name.partition(", ")
    emission = EVERY[name]
    x = np.ones((2, 5, 1 if name == "categorical" else 2), np.float32)
    if gaps:
        x[0, 1, 0] = np.nan
    data = Trajectories(x, None, None, np.full(2, 5), np.ones((2, 5), bool))
    arranged, value = emission.arrange(data), emission.read(data)
    prior = emission.prior(2)
    parameters = jax.eval_shape(
        lambda prior: by_site({key: block.mean() for key, block in prior.items()}), prior
    )

    def statistics(prior, arranged):
        expected = expected_statistics(prior)
        found, pull = jax.vjp(lambda e: emission.expected_log_likelihood(e, arranged), expected)
        return pull(found)

    def densities(parameters, value):
        distribution = emission.distribution(parameters, data)
        of_steps = getattr(distribution, "log_prob_of_steps", None)
        if of_steps is not None:
            return of_steps(value, np.ones((2, 5), bool))
        return distribution.log_prob(value[:, :, None])

    used = [jax.make_jaxpr(statistics)(prior, arranged), jax.make_jaxpr(densities)(parameters, value)]
    if overrides(emission, "chain_weights"):
        used.append(jax.make_jaxpr(lambda prior: emission.chain_weights(expected_statistics(prior)))(prior))
    found = [each for jaxpr in used for each in precisions(jaxpr.jaxpr)]
    highest = jax.lax.Precision.HIGHEST
    assert all(each == (highest, highest) for each in found), found
    assert found or name == "categorical"  # which reads its table


def test_densities_100_standard_deviations_from_the_origin():
    """In single precision to the rounding of the frames themselves; squares of frames would lose 100 times as much."""
    rng = np.random.default_rng(0)
    mean = np.array([[100.0, -80.0], [100.5, -81.0]])
    covariance = np.array([[[1.0, 0.4], [0.4, 2.0]], [[0.5, -0.2], [-0.2, 1.0]]])
    x = mean[rng.integers(0, 2, 500)] + rng.normal(size=(500, 2))
    desired = np.stack(
        [stats.multivariate_normal(*pair).logpdf(x) for pair in zip(mean, covariance, strict=True)], 1
    )
    single = {"mean": np.float32(mean), "covariance": np.float32(covariance)}
    emission = GaussianEmission(2, mean=0.0, scale=1.0)
    found = jax.jit(lambda p, x: emission.distribution(p).log_prob(x))(single, np.float32(x)[:, None])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, desired, atol=1e-4)
