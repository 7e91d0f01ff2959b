"""Padded shapes: another size compiles nothing, and what is padded counts for nothing."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.padded_shapes import pad_batch, padded_shape
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.roles import RoleHMM

COMPILED = "/jax/core/compile/backend_compile_duration"


def walks(rng, num_sequences, num_steps, **fields):
    """Sequences of two features, the first with `num_steps` steps and the others shorter."""
    lengths = [num_steps, *rng.integers(1, num_steps + 1, size=num_sequences - 1)]
    steps = [rng.normal(50, 3, size=(length, 2)).astype(np.float32) for length in lengths]
    return Trajectories.from_list(steps, **fields)


@pytest.mark.parametrize("batch_size", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_fifty_sizes_share_at_most_four_compilations(batch_size):
    rng = np.random.default_rng(0)
    programs = []

    def listen(event, seconds, **details):
        if event == COMPILED:
            programs.append(details.get("fun_name", ""))

    def fit(num_sequences, num_steps, num_iterations):
        model = RoleHMM(2, GaussianEmission(2))
        data = walks(rng, num_sequences, num_steps)
        settings = {"restarts": 1, "batch_size": batch_size, "tol": 0, "progress_bar": False}
        ConjugateSVI(model).run(jax.random.key(0), data, num_iterations, **settings)

    fit(3, 20, 5)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        sizes = np.stack([rng.integers(2, 60, size=49), rng.integers(20, 250, size=49)], axis=1)
        for num_sequences, num_steps in sizes.tolist():
            fit(num_sequences, num_steps, int(rng.integers(1, 4)))
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    # The first fit compiled one shape; three more may follow, with the program of the ELBO and that of the steps.
    assert len(programs) <= (3 if batch_size is None else 6), programs


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("options", [{}, {"exclusive": "per_sequence", "known_roles": True}])
def test_elbo_of_a_padded_fit_is_that_of_the_data(options):
    rng = np.random.default_rng(1)
    fields = {}
    if options:
        fields = {"group": [0, 0, 1, 1, 2, 2]}
    data = walks(rng, 6, 9, **fields)
    if options:
        states = np.full(data.observed.shape, -1)
        states[0] = np.where(np.arange(9) < data.lengths[0], 1, -1)
        data = data._replace(states=states)
    model = RoleHMM(2, CategoricalEmission(3), **options)
    data = data._replace(observations=np.where(data.observed, rng.integers(3, size=(6, 9)), 0)[..., None])
    for batch_size in (None, 2):
        settings = {"restarts": 1, "batch_size": batch_size, "tol": 0, "progress_bar": False}
        fit = ConjugateSVI(model).run(jax.random.key(0), data, 3, **settings)
        blocks = fit.posterior.blocks
        local = model.log_normalizer(expected_statistics(blocks), model.arrange(data))
        assert padded_shape(6, 9) != (6, 9)
        np.testing.assert_allclose(fit.elbo[-1], local - model.divergence(blocks, model.prior()), rtol=1e-10)


@settings(max_examples=200)
@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 7))
def test_padded_shapes_hold_the_data_in_whole_groups(groups, num_steps, size):
    num_sequences = groups * size
    padded = padded_shape(num_sequences, num_steps, size)
    assert padded[0] >= num_sequences and padded[0] % size == 0 and padded[1] >= num_steps
    if num_sequences * num_steps > 2**16:  # large data are as they are
        assert padded == (num_sequences, num_steps)


def test_padding_is_zeros_at_the_end_of_both_axes():
    batch = {"step": np.arange(6.0).reshape(2, 3), "length": np.array([3, 2]), "none": None}
    padded = pad_batch(batch, 4, 5)
    np.testing.assert_array_equal(padded["step"][:2, :3], batch["step"])
    assert padded["step"].shape == (4, 5) and padded["step"].sum() == 15
    np.testing.assert_array_equal(padded["length"], [3, 2, 0, 0])
    assert padded["none"] is None
