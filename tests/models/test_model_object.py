"""Model objects: what they compute once."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from ethogram.models.emissions import GaussianEmission
from ethogram.models.roles import RoleHMM


def test_a_prior_is_computed_once_and_follows_its_parameters():
    """The blocks are kept, not their dict; a traced model, a rebuilt one and a changed one have their own."""
    model = RoleHMM(2, GaussianEmission(1, mean=3.0))
    first, again = model.prior(), model.prior()
    first.pop("initial")
    assert first["transition"] is again["transition"] and "initial" in model.prior()
    changed = dataclasses.replace(model, transition=2.0)
    doubled = jax.tree.map(lambda x: 2 * x, model)
    for other in (changed, doubled):
        np.testing.assert_array_equal(other.prior()["transition"].mean(), 0.5)
        np.testing.assert_array_equal(other.prior()["transition"].natural.concentration, 2.0)

    def total(number, model):
        rows = dataclasses.replace(model, transition=number).prior()["transition"]
        return rows.natural.concentration.sum() + model.prior()["initial"].natural.concentration.sum()

    assert jax.jit(total)(3.0, model) == 14.0
    assert jax.jit(lambda x: total(x, model))(3.0) == 14.0  # nothing traced is kept
    assert model.prior()["initial"].natural.concentration.sum() == 2.0
