"""Parts of the tour of noisy-mdp."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ethogram.tour import choices as tour_choices


def test_the_jacobian_of_the_hyperbolic_sine_is_its_derivative():
    transform, x = tour_choices.Sinh(), jnp.array([-4.0, -0.1, 0.0, 2.0, 5.0])
    slopes = jax.vmap(jax.grad(transform))(x)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(x, None), jnp.log(slopes), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(transform.inv(transform(x)), x, rtol=1e-5, atol=1e-6)
