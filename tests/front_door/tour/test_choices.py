"""Parts of the tour of noisy-mdp."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.choices import Decisions, NoisyMDP
from ethogram.tour import choices as tour_choices

slow = pytest.mark.slow


def test_the_jacobian_of_the_hyperbolic_sine_is_its_derivative():
    transform, x = tour_choices.Sinh(), jnp.array([-4.0, -0.1, 0.0, 2.0, 5.0])
    slopes = jax.vmap(jax.grad(transform))(x)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(x, None), jnp.log(slopes), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(transform.inv(transform(x)), x, rtol=1e-5, atol=1e-6)


@slow
@pytest.mark.parametrize("separated", [False, True])
def test_both_samplers_of_a_separated_choice_agree_with_quadrature(separated):
    from scipy.special import ndtr
    from scipy.stats import norm

    data = Decisions.from_list([[[1.0], [0.0]]] * 3, [0, 0, 0])
    mcmc = tour_choices.samplers(NoisyMDP(100.0, "features"), 300, 2000, progress_bar=False)[separated]
    mcmc.run(jax.random.key(0), data)
    v = np.linspace(-20, 80, 20_001)
    mass = norm.pdf(v / 10) * ndtr(v / np.sqrt(2)) ** 3
    mean = (mass @ v) / mass.sum()
    spread = np.sqrt((mass @ (v - mean) ** 2) / mass.sum())
    told = tour_choices._mixing(mcmc)
    assert told.enough
    found = float(np.asarray(mcmc.get_samples()["v"]).mean())
    assert abs(found - mean) < 4.5 * spread / np.sqrt(told.ess.min())
