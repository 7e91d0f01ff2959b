"""Model objects: what they compute once."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from ethogram.models.data import Trajectories
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


def test_a_copy_with_other_fields_keeps_nothing_that_reads_them():
    """A bound model, which is such a copy, has the prior of one that is made from its parts."""
    rows = np.array([[1.0, 0.0], [1.0, 1.0]])
    model = RoleHMM(2, GaussianEmission(1), transition=rows)
    before = model.prior()["mean_covariance"]
    bound = model.bind(Trajectories.from_list([np.array([[3.0], [5.0]])]))
    made = RoleHMM(2, bound.emission, transition=rows)
    assert bound.zeros == made.zeros != ()
    jax.tree.map(np.testing.assert_array_equal, bound.prior(), made.prior())
    assert model.prior()["mean_covariance"] is before
    np.testing.assert_array_equal(bound.prior()["mean_covariance"].standard().mean, [[4.0], [4.0]])
