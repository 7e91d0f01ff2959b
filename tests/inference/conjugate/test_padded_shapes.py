"""Padded shapes: another size compiles nothing, and what is padded counts for nothing."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.gibbs_draws import gibbs_draws
from ethogram.inference.conjugate.padded_shapes import pad_batch, padded_data, padded_shape
from ethogram.inference.conjugate.score_curve import heldout_log_likelihood
from ethogram.inference.roles import infer_roles
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.roles import RoleHMM


def walks(rng, num_sequences, num_steps, **fields):
    """Sequences of two features, the first with `num_steps` steps and the others shorter."""
    lengths = [num_steps, *rng.integers(1, num_steps + 1, size=num_sequences - 1)]
    steps = [rng.normal(50, 3, size=(length, 2)).astype(np.float32) for length in lengths]
    return Trajectories.from_list(steps, **fields)


def test_sizes_share_few_shapes():
    """Of little data; larger ones have at most as many padded cells as real ones, and their shapes are their own."""
    sizes = itertools.product((2, 9, 16, 17, 60), range(20, 250, 23))
    assert len({padded_shape(*size) for size in sizes}) == 21
    for size in itertools.product((1, 5, 33, 700), (60, 1000, 1025, 20_000)):
        sequences, steps = padded_shape(*size)
        cells, most = size[0] * size[1], 2.1 if size[0] * size[1] < 2**16 else 1.5
        assert sequences >= size[0] and steps >= size[1] and sequences * steps <= max(most * cells, 2**11)
        assert padded_shape(sequences, steps) == (sequences, steps)


@pytest.mark.parametrize(
    ("count", "most", "batch_size"),
    [(4, 9, None), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((3, 60, None), (4, 16, 2)))],
)
def test_fits_of_many_sizes_share_compilations(compiler_events, count, most, batch_size):
    """A program per padded shape, whatever the sizes and the numbers of iterations."""
    rng = np.random.default_rng(0)

    def fit(num_sequences, num_steps, num_iterations):
        model = RoleHMM(2, GaussianEmission(2) if most == 60 else CategoricalEmission(7), sticky=2.0)
        data = walks(rng, num_sequences, num_steps)
        if most < 60:
            data = data._replace(observations=np.abs(data.observations[..., :1]).astype(int) % 3)
        settings = {"restarts": 1, "batch_size": batch_size, "tol": 0, "progress_bar": False}
        ConjugateSVI(model).run(jax.random.key(0), data, num_iterations, **settings)

    fit(3, 20, 5)
    compiler_events.clear()
    spare = 0 if batch_size is None else 1  # an empty sequence, for the empty slots of mini-batches
    sizes = [
        [int(number) for number in size]
        for size in zip(
            rng.integers(2, most, count), rng.integers(20, 65 if most == 9 else 250, count), strict=True
        )
    ]
    for size in sizes:
        fit(*size, int(rng.integers(1, 4)))
    # A shape has a program of the ELBO, of mini-batches one of the steps too; the first fit compiled its own.
    shapes = [{padded_shape(n + more, steps) for n, steps in [(3, 20), *sizes]} for more in {0, spare}]
    assert compiler_events["backend_compile_duration"] == sum(len(each) - 1 for each in shapes)


def test_scores_states_and_paths_of_another_size_compile_nothing(compiler_events):
    rng, key = np.random.default_rng(1), jax.random.key(0)
    first, other = (walks(rng, count, steps) for count, steps in ((3, 20), (4, 50)))
    result = ConjugateSVI(RoleHMM(2, GaussianEmission(2))).run(key, first, 3, restarts=1, progress_bar=False)

    def answers(data):
        paths = gibbs_draws(key, result.posterior, data, 2)[1]
        return heldout_log_likelihood(result, data), infer_roles(result, data).probability, paths

    answers(first)
    compiler_events.clear()
    score, probability, paths = answers(other)
    assert not compiler_events["backend_compile_duration"]
    known = np.arange(50) < other.lengths[:, None]
    assert probability.shape == (4, 50, 2) and paths.shape == (2, 4, 50)
    np.testing.assert_array_equal((paths >= 0)[0], known)
    np.testing.assert_allclose(probability.sum(-1), known, atol=1e-12)
    model, parameters = result.posterior.model, result.posterior.mean()
    exact = model.likelihood(parameters, other).log_prob(model.entries(other).value)
    np.testing.assert_allclose(score, exact.sum() / other.lengths.sum(), rtol=1e-12)


def test_padded_groups_are_as_large_as_those_of_the_data():
    data = walks(np.random.default_rng(0), 6, 20, group=[4, 4, 4, 0, 0, 0], agent=[0, 1, 2] * 2)
    wider = padded_data(RoleHMM(3, GaussianEmission(2), exclusive="per_sequence"), data)
    assert wider.observed.shape == (12, 64) and isinstance(wider.lengths, np.ndarray)
    np.testing.assert_array_equal(wider.group[6:], [5, 5, 5, 6, 6, 6])
    assert wider.agent[6:].tolist() == [0, 1, 2] * 2 and not wider.lengths[6:].any()


@jax.jit
def elbo_of(model, blocks, batch):
    return model.log_normalizer(expected_statistics(blocks), batch) - model.divergence(blocks, model.prior())


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("exclusive", "batch_size"),
    [(False, None), (False, 2), (True, 2), pytest.param(True, None, marks=pytest.mark.slow)],
)
def test_elbo_of_a_padded_fit_is_that_of_the_data(symbol_model, symbols, exclusive, batch_size):
    model, data = symbol_model(), symbols()
    if exclusive:  # with roles that are known in part
        lengths, group = np.array([6, 6, 9, 9, 5, 5], np.int32), np.repeat([0, 1, 2], 2).astype(np.int32)
        data = symbols(lengths=lengths, group=group)
        states = np.full(data.observed.shape, -1, np.int32)
        states[0, :6] = 1
        data = data._replace(states=states)
        model = RoleHMM(2, CategoricalEmission(3), exclusive="per_sequence", known_roles=True)
    settings = {"restarts": 1, "batch_size": batch_size, "tol": 0, "progress_bar": False}
    fit = ConjugateSVI(model).run(jax.random.key(0), data, 3, **settings)
    assert padded_shape(*data.observed.shape) != data.observed.shape
    expected = elbo_of(model, fit.posterior.blocks, model.arrange(data))
    np.testing.assert_allclose(fit.elbo[-1], expected, rtol=1e-10)


@settings(max_examples=100)
@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 7))
def test_padded_shapes_hold_the_data_in_whole_groups(groups, num_steps, size):
    num_sequences = groups * size
    padded = padded_shape(num_sequences, num_steps, size)
    assert padded[0] >= num_sequences and padded[0] % size == 0 and padded[1] >= num_steps
    if num_sequences * num_steps > 2**20:  # large data are as they are
        assert padded == (num_sequences, num_steps)


def test_padding_is_zeros_at_the_end_of_both_axes():
    batch = {"step": np.arange(6.0).reshape(2, 3), "length": np.array([3, 2]), "none": None}
    padded = pad_batch(batch, 4, 5)
    np.testing.assert_array_equal(padded["step"][:2, :3], batch["step"])
    assert padded["step"].shape == (4, 5) and padded["step"].sum() == 15
    np.testing.assert_array_equal(padded["length"], [3, 2, 0, 0])
    assert padded["none"] is None


def test_time_is_not_guessed():
    """An array (sequence, feature) was taken for one of steps where it had as many features."""
    batch = {"step": np.zeros((2, 3, 4)), "kind": np.zeros((2, 4))}
    with pytest.raises(
        ValueError, match=r"different steps, \['kind'\] with 4, \['step'\] with 3: their axes"
    ):
        pad_batch(batch, 4, 5)
