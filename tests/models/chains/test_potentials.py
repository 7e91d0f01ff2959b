"""What bad potentials get, and how batch axes fold."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.models.chains.markov_chain import (
    entropy,
    filter_states,
    forecast_states,
    log_normalizer,
    marginals,
    most_likely_path,
    sample_path,
)
from ethogram.models.chains.potentials import chain_potentials

EVERY_DOOR = {
    "log_normalizer": log_normalizer,
    "marginals": marginals,
    "entropy": entropy,
    "most_likely_path": most_likely_path,
    "sample_path": lambda *args: sample_path(jax.random.key(0), *args),
    "filter_states": filter_states,
    "forecast_states": lambda *args: forecast_states(*args[:3], 2, *args[3:]),
}


def good():
    """A batch of four sequences of five steps with three states."""
    return [np.zeros(3), np.zeros((3, 3)), np.zeros((4, 5, 3)), np.array([5, 3, 1, 0])]


def with_entry(index, place, value):
    potentials = good()
    potentials[index] = potentials[index].copy()
    potentials[index][place] = value
    return potentials


def with_shape(index, *shape):
    potentials = good()
    potentials[index] = np.zeros(shape, potentials[index].dtype)
    return potentials


WRONG_VALUES = {
    "NaN initial": (with_entry(0, 1, np.nan), r"log_initial\[1\] is nan: use -inf"),
    "infinite initial": (with_entry(0, 2, np.inf), r"log_initial\[2\] is inf: use -inf"),
    "NaN transition": (with_entry(1, (1, 2), np.nan), r"log_transition\[1, 2\] is nan"),
    "NaN likelihood": (with_entry(2, (1, 2, 0), np.nan), r"step_log_likelihood\[1, 2, 0\] is nan: .* zeros"),
    "infinite likelihood": (with_entry(2, (0, 4, 1), np.inf), r"step_log_likelihood\[0, 4, 1\] is inf"),
    "length beyond": (with_entry(3, 2, 6), r"length\[2\] is 6, outside 0\.\.5"),
    "negative length": (with_entry(3, 1, -1), r"length\[1\] is -1, outside 0\.\.5"),
}

WRONG_SHAPES = {
    "no time": (with_shape(2, 3), r"step_log_likelihood must have shape .* not \(3,\)"),
    "empty time": (with_shape(2, 4, 0, 3), "at least one step"),
    "states of initial": (with_shape(0, 2), r"log_initial must end in the 3 states .* not \(2,\)"),
    "scalar initial": (with_shape(0), r"log_initial must end in the 3 states .* not \(\)"),
    "states of transition": (with_shape(1, 3, 2), r"log_transition must end in \(3, 3\)"),
    "steps of transition": (with_shape(1, 4, 3, 3, 3), r"time - 1 = 4, state, state"),
    "axes of transition": (with_shape(1, 2, 4, 4, 3, 3), "has more axes than step_log_likelihood"),
    "axes of initial": (with_shape(0, 2, 3), r"batch axes do not broadcast: .* log_initial \(2,\)"),
    "axes of length": (with_shape(3, 3), r"batch axes do not broadcast: .* length \(3,\)"),
}


@pytest.mark.parametrize(("potentials", "message"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_wrong_values_are_named(potentials, message):
    with pytest.raises(ValueError, match=message):
        chain_potentials(*potentials)


@pytest.mark.parametrize(("potentials", "message"), WRONG_SHAPES.values(), ids=WRONG_SHAPES)
def test_wrong_shapes_are_named(potentials, message):
    with pytest.raises(ValueError, match=message):
        chain_potentials(*potentials)


@pytest.mark.parametrize("index", range(4))
def test_wrong_types_are_named(index):
    name, fix = (
        ("log_initial", "take the log first"),
        ("log_transition", "take the log first"),
        ("step_log_likelihood", "take the log first"),
        ("length", "count the steps"),
    )[index]
    potentials = good()
    potentials[index] = potentials[index].astype(float if index == 3 else int)
    with pytest.raises(TypeError, match=f"{name} must be .*{fix}"):
        chain_potentials(*potentials)
    with pytest.raises(TypeError, match=f"{name} must be"):
        jax.jit(lambda *args: chain_potentials(*args).log_likelihood)(*potentials)


@pytest.mark.parametrize("door", EVERY_DOOR.values(), ids=EVERY_DOOR)
def test_every_door_checks_before_it_compiles(door, compilations):
    jax.random.key(0)
    compilations.clear()
    with pytest.raises(ValueError, match=r"log_transition\[1, 2\] is nan"):
        door(*WRONG_VALUES["NaN transition"][0])
    with pytest.raises(ValueError, match=r"length\[2\] is 6"):
        door(*WRONG_VALUES["length beyond"][0])
    assert compilations == []


def test_what_stands_beyond_a_length_is_not_read():
    potentials = with_entry(2, (1, 3, 0), np.nan)
    assert chain_potentials(*potentials).length.tolist() == [[5, 3, 1, 0]]
    log_likelihood = np.zeros((5, 3))
    log_likelihood[3] = np.nan
    shorter = chain_potentials(np.zeros(3), np.zeros((3, 3)), log_likelihood, np.array([3, 2]))
    assert shorter.batch_shape == (2,)
    with pytest.raises(ValueError, match=r"step_log_likelihood\[1, 3, 0\] is nan"):
        chain_potentials(np.zeros(3), np.zeros((3, 3)), log_likelihood, np.array([3, 4]))
    driven = np.zeros((4, 3, 3))
    driven[2] = np.nan
    assert chain_potentials(np.zeros(3), driven, np.zeros((5, 3)), 3).driven
    with pytest.raises(ValueError, match=r"log_transition\[2, 0, 0\] is nan: use -inf"):
        chain_potentials(np.zeros(3), driven, np.zeros((5, 3)), 4)


FOLDS = {
    "one sequence": ((3,), (3, 3), (5, 3), (1, 1)),
    "sequences": ((3,), (3, 3), (4, 5, 3), (1, 4)),
    "chains by sequences": ((6, 1, 3), (6, 1, 3, 3), (1, 4, 5, 3), (6, 4)),
    "two axes of sequences": ((3,), (3, 3), (2, 4, 5, 3), (1, 8)),
    "parameters along the last axis": ((4, 3), (3, 3), (2, 4, 5, 3), (8, 1)),
    "driven": ((3,), (2, 4, 4, 3, 3), (2, 4, 5, 3), (1, 8)),
    "driven by chain": ((2, 1, 3), (2, 4, 4, 3, 3), (2, 4, 5, 3), (2, 4)),
}


@pytest.mark.parametrize(("initial", "transition", "likelihood", "folded"), FOLDS.values(), ids=FOLDS)
def test_parameters_that_are_shared_fold_into_one_chain(initial, transition, likelihood, folded):
    random = np.random.default_rng(0)
    given = [random.normal(size=shape) for shape in (initial, transition, likelihood)]
    potentials = chain_potentials(*given, None)
    num_chains, num_sequences = folded
    assert potentials.log_likelihood.shape == (num_chains, num_sequences, 5, 3)
    assert potentials.log_initial.shape == (num_chains, 3)
    driven = len(transition) == len(likelihood) + 1
    assert potentials.log_transition.shape == ((*folded, 4, 3, 3) if driven else (num_chains, 3, 3))
    back = potentials.unfold(potentials.log_likelihood)
    np.testing.assert_allclose(back, np.broadcast_to(given[2], back.shape), rtol=1e-6)
    total = lambda pi, a, lik, n: pi.sum() + lik.sum() + (a * a).sum() * n  # noqa: E731
    together = jax.jit(lambda potentials: potentials.over_sequences(total))(potentials)
    inner = (given[1] ** 2).sum((-3, -2, -1)) if driven else (given[1] ** 2).sum((-2, -1))
    apart = given[0].sum(-1) + given[2].sum((-2, -1)) + 5 * inner
    np.testing.assert_allclose(together, np.broadcast_to(apart, potentials.batch_shape), rtol=1e-5)


def test_the_widest_type_is_everyones_type():
    mixed = chain_potentials(np.zeros(2, np.float32), np.zeros((2, 2)), np.zeros((3, 2), np.float32), None)
    single = chain_potentials(*(x.astype(np.float32) for x in good()[:3]), None)
    assert {x.dtype for x in mixed.arrays[:3]} == {np.dtype(np.float64)}
    assert {x.dtype for x in single.arrays[:3]} == {np.dtype(np.float32)}
