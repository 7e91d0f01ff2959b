"""Chains of NUTS against numpyro's own kernel, and what they compile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import lax
from numpyro.infer import NUTS

from ethogram.inference import nuts_chains

QUIET = (2, False)  # chains, progress bar


@jax.tree_util.register_static
class Curved:
    """A location and scale of normal data, with a site that follows from them."""

    def __call__(self, data):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        location = numpyro.sample("location", dist.Normal(jnp.zeros(2), scale).to_event(1))
        numpyro.deterministic("ratio", location / scale)
        numpyro.sample("observations", dist.Normal(location, scale), obs=data)


MODEL = Curved()


def of_numpyro(key, data, starts, num_warmup, num_draws, settings):
    """Draws of numpyro's kernel, whose warm-up is a part of its structure."""
    kernel = NUTS(MODEL, **settings)

    @jax.jit
    @jax.vmap
    def chain(key, start):
        state = kernel.init(key, num_warmup, init_params=start, model_args=(data,), model_kwargs={})

        def step(state, _):
            state = kernel.sample(state, (data,), {})
            return state, (state.z, state.num_steps)

        return lax.scan(step, state, None, length=num_warmup + num_draws)[1]

    return jax.tree.map(lambda x: np.asarray(x)[:, num_warmup:], chain(jax.random.split(key, 2), starts))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "compared"),
    [
        ({}, (7, 149)),
        ({"dense_mass": True, "max_tree_depth": (3, 2)}, (60,)),
        ({"find_heuristic_step_size": True}, (0,)),
    ],
    ids=["diagonal", "dense", "heuristic"],
)
def test_draws_are_those_of_numpyro_and_no_length_of_the_warmup_compiles(settings, compared):
    """With no warm-up, without windows, with short ones, and with two; in double precision, for they are chaotic.

    Numpyro compiles each length anew: a length is compared under one setting.
    """
    key, data = jax.random.key(0), np.random.default_rng(0).normal(1.0, size=(6, 2))
    programs = set()
    with jax.enable_x64(True):
        starts = {"location": jnp.array([[0.5, -0.5], [1.0, 0.0]]), "scale": jnp.array([0.1, -0.3])}
        for num_warmup in (0, 7, 60, 149):
            counts = (num_warmup, 10, *QUIET)
            found = nuts_chains.run_chains(key, MODEL, data, *counts, settings=settings, starts=starts)
            programs.add(nuts_chains._advance._cache_size())
            ratio = found.sites["location"] / found.sites["scale"][..., None]
            np.testing.assert_allclose(found.sites["ratio"], ratio, rtol=1e-9)
            if num_warmup not in compared:
                continue
            expected, num_steps = of_numpyro(key, data, starts, num_warmup, 10, settings)
            np.testing.assert_array_equal(found.statistics["n_steps"], num_steps)
            np.testing.assert_allclose(found.sites["location"], expected["location"], atol=0.02)
            np.testing.assert_allclose(found.sites["scale"], np.exp(expected["scale"]), atol=0.02)
    assert len(programs) == 1


@pytest.mark.slow
def test_chains_start_where_the_strategy_says_and_are_refused_where_nothing_is_finite():
    strategy = numpyro.infer.init_to_value(values={"scale": 2.0, "location": jnp.array([3.0, 4.0])})
    data = np.zeros((6, 2))
    fixed = {"init_strategy": strategy, "step_size": 1e-9, "adapt_step_size": False}
    found = nuts_chains.run_chains(jax.random.key(0), MODEL, data, 0, 1, *QUIET, settings=fixed)
    np.testing.assert_allclose(found.sites["scale"], 2.0, rtol=1e-5)
    np.testing.assert_allclose(found.sites["location"][0, 0], [3.0, 4.0], rtol=1e-5)
    with pytest.raises(ValueError, match="not finite where chains start"):
        nuts_chains.run_chains(jax.random.key(0), MODEL, data + np.nan, 0, 1, *QUIET, settings={})
