"""Starts: of every kind, unlike each other, repeatable, and the way on from an earlier fit."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate.starts import KINDS, continued_blocks, start_blocks
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.families.exponential_family import Known, PartlyKnown
from ethogram.models.roles.role_hmm import RoleHMM

pytestmark = pytest.mark.usefixtures("float64")


def starts(model, data, restarts, init, seed=0):
    return start_blocks(jax.random.key(seed), model, model.prior(), [model.arrange(data)], restarts, init)


@pytest.mark.parametrize("init", ["mixed", *KINDS])
def test_starts_hold_all_the_data(symbol_model, symbols, init):
    model, data = symbol_model(), symbols()
    blocks = starts(model, data, 2, init)
    counts = np.asarray(blocks["probability"].natural.concentration) - 1
    assert counts.shape == (2, 2, 3)
    np.testing.assert_allclose(counts.sum(axis=1), [np.bincount(data.observations[data.observed][:, 0])] * 2)
    pairs = np.maximum(data.lengths - 1, 0).sum()
    moves = np.asarray(blocks["transition"].natural.concentration) - 1 - 2 * np.eye(2)
    np.testing.assert_allclose(moves.sum(axis=(1, 2)), pairs)
    first = np.asarray(blocks["initial"].natural.concentration) - 1
    np.testing.assert_allclose(first.sum(axis=1), (data.lengths > 0).sum())
    again = starts(model, data, 2, init)
    jax.tree.map(np.testing.assert_array_equal, blocks, again)
    if init in ("prior", "segments"):
        assert not np.array_equal(counts[0], counts[1])
        other = np.asarray(starts(model, data, 2, init, seed=1)["probability"].natural.concentration)
        assert not np.array_equal(counts + 1, other)


def test_mixed_takes_the_rough_kinds_in_turn(symbol_model, symbols):
    model, data = symbol_model(), symbols()
    mixed = np.asarray(starts(model, data, 4, "mixed")["probability"].natural.concentration)
    for place, kind in enumerate(("kmeans++", "sticky", "segments", "kmeans++")):
        alone = np.asarray(starts(model, data, 4, kind)["probability"].natural.concentration)
        np.testing.assert_array_equal(mixed[place], alone[place])
    sticky = np.asarray(starts(model, data, 4, "sticky")["transition"].natural.concentration)[0]
    np.testing.assert_array_equal(sticky[~np.eye(2, dtype=bool)], 1)


def test_known_parts_do_not_start_elsewhere(symbols):
    probability = np.array([[0.2, 0.3, 0.5], [np.nan] * 3])
    model = RoleHMM(
        2, CategoricalEmission(3, known=Known(probability)), transition=np.array([[1.0, 0], [1, 1]])
    )
    blocks = starts(model, symbols(), 2, "mixed")
    mean = np.asarray(jax.jit(PartlyKnown.mean)(blocks["probability"]))
    np.testing.assert_array_equal(mean[:, 0], [probability[0]] * 2)
    np.testing.assert_array_equal(np.asarray(blocks["transition"].natural.concentration)[:, 0, 1], 0)


def test_earlier_blocks_go_on_in_the_type_of_the_prior(symbol_model):
    prior = symbol_model().prior()
    earlier = jax.tree.map(lambda x: np.float32(np.asarray(x) + 3), prior)
    blocks = continued_blocks(earlier, prior)
    assert blocks["initial"].natural.concentration.dtype == np.float64
    np.testing.assert_allclose(blocks["initial"].natural.concentration, [[4.0, 4.0]])


def test_blocks_of_another_model_are_refused(symbol_model):
    prior = symbol_model().prior()
    fault = "init is a result of another model"
    with pytest.raises(ValueError, match=f"{fault}: its blocks are not those"):
        continued_blocks({"initial": prior["initial"]}, prior)
    with pytest.raises(ValueError, match=rf"{fault}: its blocks\['initial'\].* has shape \(3,\), not \(2,\)"):
        continued_blocks(RoleHMM(3, CategoricalEmission(3)).prior(), prior)
    one, other = (
        RoleHMM(2, CategoricalEmission(2), initial=Known(value)).prior() for value in ([0.5, 0.5], [0.4, 0.6])
    )
    continued_blocks(one, one)
    with pytest.raises(ValueError, match=rf"{fault}: blocks\['initial'\]\.values differ"):
        continued_blocks(one, other)
    here, there = (RoleHMM(2, GaussianEmission(2, mean=mean)).prior() for mean in (0.0, 5.0))
    with pytest.raises(ValueError, match=rf"{fault}: blocks\['mean_covariance'\]\.origin differ"):
        continued_blocks(here, there)
