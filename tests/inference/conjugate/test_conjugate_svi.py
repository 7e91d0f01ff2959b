"""The conjugate engine: coordinate ascent, stochastic steps, restarts, what it reports and what it refuses."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ethogram.inference.conjugate import problem as problem_module
from ethogram.inference.conjugate.ascent import Ascended
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.mini_batches import group_layout, in_group_order, plan_batches
from ethogram.inference.conjugate.search import restart_search
from ethogram.inference.conjugate.starts import start_blocks
from ethogram.inference.conjugate.step_sizes import robbins_monro
from ethogram.inference.conjugate.steps import restart_slices
from ethogram.inference.export.arviz_export import to_arviz
from ethogram.models.conjugate_model import ConjugateModel, require_informative
from ethogram.models.data import trajectories
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.families.exponential_family import (
    Dirichlet,
    DirichletCoordinates,
    expected_statistics,
)
from ethogram.models.intents import AgentMarkov
from ethogram.models.model_object import model_object
from ethogram.models.roles.role_hmm import RoleHMM

pytestmark = pytest.mark.usefixtures("float64")


def fit(model, data, num_steps=10, seed=0, **options):
    options = {"restarts": 1, "progress_bar": False} | options
    return ConjugateSVI(model).run(jax.random.key(seed), data, num_steps, **options)


def assert_same_fit(one, other, **tolerance):
    """Bounds and posteriors alike; exactly alike without a tolerance."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **({"rtol": 0} | tolerance)),
        (one.posterior.blocks, one.restart_traces, one.restart_elbos),
        (other.posterior.blocks, other.restart_traces, other.restart_elbos),
    )
    assert (one.converged, one.step) == (other.converged, other.step)
    np.testing.assert_array_equal(one.evaluated, other.evaluated)


@pytest.mark.slow
def test_stochastic_steps_are_the_formula(symbol_model, symbols, sequence_statistics):
    model, data = symbol_model(), in_group_order(symbols())
    schedule = robbins_monro(delay=2.0, forgetting=0.7)
    result = fit(model, data, 4, init="segments", batch_size=2, step_size=schedule, restarts=2)
    key_start, key_plan, _ = jax.random.split(jax.random.key(0), 3)
    prior = model.prior()
    start = start_blocks(key_start, model, prior, [model.arrange(data)], 2, "segments")
    best = int(np.argmax(result.restart_elbos))
    entropy = np.asarray(jax.random.key_data(key_plan)).ravel().tolist()
    plan = plan_batches(group_layout(data, 0.999), 2, 0, 4, entropy)
    assert plan.scale == 2.5
    concentration = {name: np.asarray(block.natural.concentration)[best] for name, block in start.items()}
    for step, rows in zip(range(4), plan.rows, strict=True):
        expected = expected_statistics({k: Dirichlet.from_standard(c) for k, c in concentration.items()})
        each = sequence_statistics(model, expected, data)
        rho = (step + 2.0) ** -0.7
        for name, old in concentration.items():
            counts = sum(np.asarray(each[row][name].concentration) for row in rows[rows >= 0])
            goal = np.asarray(prior[name].natural.concentration) + 2.5 * counts
            concentration[name] = (1 - rho) * old + rho * goal
    for name, value in concentration.items():
        np.testing.assert_allclose(result.posterior.blocks[name].natural.concentration, value, rtol=1e-10)


def test_a_second_fit_traces_nothing_even_of_another_model(symbol_model, symbols, compiler_events):
    settings = [{}, {"batch_size": 2}, {"step_size": 0.5}]
    for options in settings:
        fit(symbol_model(), symbols(), **options)
    compiler_events.clear()
    for options in settings:
        other = fit(symbol_model(concentration=0.5, sticky=1.0), symbols(seed=3), 12, seed=4, **options)
        assert np.isfinite(other.elbo).all()
    assert "backend_compile_duration" not in compiler_events
    assert "jaxpr_trace_duration" not in compiler_events


def test_schedules_see_the_steps_and_go_on_after_a_result(symbol_model, symbols):
    model, data, seen = symbol_model(), symbols(), []

    def schedule(step):
        seen.append(step)
        return 1 / (step + 1)

    first = fit(model, data, 7, batch_size=2, step_size=schedule)
    assert first.step == 7
    assert set(seen) == set(range(7))
    seen.clear()
    second = fit(model, data, 5, init=first, batch_size=2, step_size=schedule, restarts=8)
    assert second.step == 12
    assert set(seen) == set(range(7, 12))
    assert second.restart_elbos.shape == (1,)
    assert second.elbo[0] == first.elbo[-1]
    np.testing.assert_array_equal(second.evaluated, [7, 10, 12])


def test_optax_schedules_are_their_numbers(symbol_model, symbols):
    schedule = optax.polynomial_schedule(init_value=1.0, end_value=0.1, power=1, transition_steps=9)
    table = np.array([float(schedule(step)) for step in range(12)])
    one = fit(symbol_model(), symbols(), 12, batch_size=2, step_size=schedule)
    assert_same_fit(one, fit(symbol_model(), symbols(), 12, batch_size=2, step_size=lambda step: table[step]))


def test_ascent_goes_on_as_if_never_stopped(symbol_model, symbols):
    model, data = symbol_model(), symbols()
    whole = fit(model, data, 9, tol=0, init="segments")
    part = fit(model, data, 4, tol=0, init="segments")
    rest = fit(model, data, 5, init=part, tol=0)
    assert rest.step == 9
    np.testing.assert_array_equal(rest.evaluated, np.arange(4, 10))
    np.testing.assert_allclose(rest.elbo, whole.elbo[4:], rtol=1e-13)


def test_bounds_are_taken_when_asked(symbol_model, symbols):
    model, data = symbol_model(), symbols()
    every = fit(model, data, 10, tol=0)
    some = fit(model, data, 10, tol=0, evaluate_every=4)
    np.testing.assert_array_equal(some.evaluated, [0, 4, 8, 10])
    np.testing.assert_array_equal(some.elbo, every.elbo[[0, 4, 8, 10]])
    np.testing.assert_array_equal(
        fit(model, data, 7, batch_size=2).evaluated, [0, 3, 6, 7]
    )  # 5 groups: 3 steps
    np.testing.assert_array_equal(fit(model, data, 7, batch_size=2, evaluate_every=7).evaluated, [0, 7])


def test_convergence_is_reported_as_it_is(symbol_model, symbols):
    model, data = symbol_model(), symbols()
    assert not fit(model, data, 1).converged
    loose = fit(model, data, 100, tol=1e9)
    assert loose.converged
    assert loose.step == 2
    done = fit(model, data, 400, tol=1e-10)
    assert done.converged
    assert done.step < 400
    assert abs(done.elbo[-1] - done.elbo[-2]) <= 1e-10 * abs(done.elbo[-1])
    never = fit(model, data, 400, tol=0)
    assert never.step == 400
    assert not never.converged
    np.testing.assert_allclose(never.elbo[-1], never.elbo[-2], rtol=1e-13)  # at rest, but not called so
    again = fit(model, data, 400, init=done, tol=1e-10)
    assert again.converged
    assert again.step > done.step


@pytest.mark.slow
def test_units_that_bring_the_elbo_near_zero_take_as_many_iterations():
    roles = (np.arange(200) // 10 % 2).reshape(4, 50)
    frames = np.random.default_rng(0).normal(1.5 * roles[..., None], size=(4, 50, 2))

    def in_units(size):
        emission = GaussianEmission(2, mean=np.zeros(2), scale=size**2)
        return fit(RoleHMM(3, emission), Trajectories.from_list(list(frames * size)), 1000)

    one = in_units(1.0)
    near_zero = in_units(np.exp(one.elbo[-1] / frames.size))
    assert abs(near_zero.elbo[-1]) < 1e-3 * abs(one.elbo[-1]) and one.converged and near_zero.converged
    assert one.step <= near_zero.step <= 1.3 * one.step


def test_convergence_of_stochastic_steps_is_over_whole_intervals(symbol_model, symbols):
    model, data = symbol_model(), symbols()
    assert fit(model, data, 400, step_size=lambda step: 1.0, evaluate_every=20).converged
    assert not fit(model, data, 21, tol=0.5, step_size=1e-9, evaluate_every=22).converged
    slow = fit(model, data, 21, tol=1e-12, step_size=0.1, evaluate_every=20)
    assert not slow.converged


@model_object
class Bowl(ConjugateModel):
    """A "conjugate model" whose log normaliser is not convex, so that full steps overshoot."""

    steepness: object

    def prior(self):
        return {"row": Dirichlet.from_standard(jnp.ones(2))}

    def log_normalizer(self, expected, batch):
        return -self.steepness * jnp.sum(expected["row"].concentration ** 2)


def test_a_falling_bound_warns_and_any_model_will_do(symbols):
    with pytest.warns(RuntimeWarning, match=r"the ELBO decreased by .* run in float64"):
        result = fit(Bowl(10.0), symbols(), 8, tol=0)
    assert isinstance(result.posterior.blocks["row"].natural, DirichletCoordinates)
    with pytest.raises(ValueError, match="Bowl has no start_statistics"):
        fit(Bowl(10.0), symbols(), init="sticky")
    with pytest.raises(ValueError, match="the ELBO is NaN at every restart"):
        fit(Bowl(np.nan), symbols())
    with pytest.raises(TypeError, match=r"model is int, .* inherit from ethogram\.ConjugateModel and"):
        ConjugateSVI(3)


def test_the_progress_bar_can_be_switched_off(symbol_model, symbols, capfd):
    fit(symbol_model(), symbols())
    assert capfd.readouterr() == ("", "")
    fit(symbol_model(), symbols(), tol=0, progress_bar=True)
    shown = capfd.readouterr()
    assert "fit: 100%" in shown.err
    assert "ELBO -" in shown.err


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_steps": 0}, ValueError, "num_steps must be at least 1, not 0"),
        ({"num_steps": True}, TypeError, "num_steps must be an integer, not True"),
        ({"restarts": 0}, ValueError, "restarts must be at least 1"),
        ({"tol": -1.0}, ValueError, "tol must be at least 0"),
        ({"tol": math.nan}, ValueError, "tol must be at least 0, not nan"),
        ({"tol": "x"}, TypeError, "tol must be a real number, not 'x'"),
        ({"evaluate_every": 0}, ValueError, "evaluate_every must be at least 1"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every must be at least 1"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batch_size": True}, TypeError, "batch_size must be an integer"),
        ({"batch_size": 6}, ValueError, "batch_size is 6, more than the 5 groups"),
        ({"step_size": 0.0}, ValueError, r"step_size is 0.0 at step 0: natural-gradient steps lie in \(0, 1\]"),
        ({"step_size": 1.5}, ValueError, "step_size is 1.5 at step 0"),
        ({"step_size": math.nan}, ValueError, "step_size is nan at step 0"),
        ({"step_size": lambda step: 1 - step / 9}, ValueError, "step_size is 0.0 at step 9"),
        ({"step_size": "fast"}, TypeError, "step_size must be a number in"),
        ({"step_size": True}, TypeError, "step_size must be a number in"),
        ({"init": "random"}, ValueError, 'init must be "mixed", one of'),
        ({"init": 3}, ValueError, 'init must be "mixed", one of'),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_before_compiling(
    symbol_model, symbols, compiler_events, options, error, message
):
    model, data = symbol_model(), symbols()
    model.arrange(data)
    with pytest.raises(error, match=message):
        fit(model, data, **{"num_steps": 10} | options)
    assert "backend_compile_duration" not in compiler_events or len(compiler_events) < 10
    assert compiler_events["jaxpr_trace_duration"] < 5


def test_bad_keys_are_refused(symbol_model, symbols):
    engine = ConjugateSVI(symbol_model())
    with pytest.raises(TypeError, match="key must be one typed key, not ArrayImpl"):
        engine.run(jnp.zeros(2, jnp.uint32), symbols(), 5)
    with pytest.raises(TypeError, match=r"key must be one typed key, not keys of shape \(2,\)"):
        engine.run(jax.random.split(jax.random.key(0)), symbols(), 5)


def test_bad_data_are_refused(symbol_model, symbols):
    data = symbols()
    x = np.full((9, 12, 2), 0.5)
    for place, worst in (((0, 0), np.nan), ((0, 0, 1), np.inf)):  # a feature may be missing, a frame not
        bad = x.copy()
        bad[place] = worst
        broken = data._replace(observations=bad, observed=np.arange(12) < data.lengths[:, None])
        with pytest.raises(ValueError, match=r"observations\[0, 0, [01]\] is (nan|inf)"):
            fit(RoleHMM(2, GaussianEmission(2)), broken)
    with pytest.raises(TypeError):
        fit(symbol_model(), np.zeros((3, 4, 1)))
    with pytest.raises(ValueError, match="outside the 3 categories"):
        fit(symbol_model(), data._replace(observations=data.observations + 3))
    none = Trajectories(np.zeros((0, 4, 1), int), None, None, np.zeros(0, np.int32), np.zeros((0, 4), bool))
    with pytest.raises(ValueError, match="lengths is empty"):
        fit(symbol_model(), none)


@pytest.mark.slow
def test_impossible_data_are_named(symbol_model, symbols):
    """By the first of the sequences that no state can emit, in the caller's own order."""
    model = symbol_model(concentration=np.array([1.0, 0.0, 1.0]))
    data = symbols()
    possible = data._replace(observations=np.zeros((9, 12, 1), int))
    lengths = np.full(8, 12, np.int32)
    pairs = possible.take(np.arange(8))._replace(
        lengths=lengths, observed=np.ones((8, 12), bool), group=np.repeat(np.arange(4), 2).astype(np.int32)
    )
    odd = pairs.observations.copy()
    odd[5, 0] = 1
    with pytest.raises(ValueError, match="probability zero to the data, sequence 5 first of 1:"):
        fit(model, pairs._replace(observations=odd))
    shown = data.observed & (np.arange(12) < data.lengths[:, None])
    with_one = np.flatnonzero(((data.observations[..., 0] == 1) & shown).any(axis=1))
    place = f"probability zero to the data, sequence {with_one[0]} first of {len(with_one)}"
    for options in ({}, {"batch_size": 2}):
        with pytest.raises(ValueError, match=place):
            fit(model, data, **options)
    good = fit(model, possible, restarts=1)
    assert np.isfinite(good.elbo).all()
    with pytest.raises(ValueError, match=place):
        fit(model, data, init=good)


def rearranged(data, order):
    """Sequences in another order, in twice the padding, which holds nonsense."""
    data = data.take(order)
    junk = np.full_like(data.observations, 2)
    none = np.zeros_like(data.observed)
    return data._replace(
        observations=np.concatenate([np.where(data.observed[..., None], data.observations, 1), junk], axis=1),
        observed=np.concatenate([data.observed, none], axis=1),
    )


@pytest.mark.slow
def test_order_padding_numbers_and_buckets_change_nothing(symbol_model, symbols, monkeypatch):
    model, data = symbol_model(), symbols()
    start = fit(model, data, 1, restarts=1)
    ascent = {"init": start, "tol": 0}
    stochastic = {"init": start, "batch_size": 2, "step_size": robbins_monro()}
    reference = [fit(model, data, **options) for options in (ascent, stochastic)]
    order = np.array([4, 8, 0, 2, 7, 5, 3, 1, 6])
    moved = rearranged(data, order)
    for before, options in zip(reference, (ascent, stochastic), strict=True):
        assert_same_fit(before, fit(model, moved, **options), rtol=1e-9)
    renumbered = moved._replace(group=(97 - 10 * moved.group).astype(np.int32))
    assert_same_fit(reference[0], fit(model, renumbered, **ascent), rtol=1e-9)
    monkeypatch.setattr(problem_module, "SMALL_CELLS", 0)
    monkeypatch.setattr(problem_module, "MAX_WASTE", 0.2)
    layout = group_layout(in_group_order(data), 0.2)
    assert len(layout.widths) == 2
    for before, options in zip(reference, (ascent, stochastic), strict=True):
        assert_same_fit(before, fit(model, data, **options), rtol=1e-9)


def test_data_without_an_observed_step_are_refused(symbol_model, symbols, compiler_events):
    """By every algorithm, before anything is compiled; known roles and stay labels are observations."""
    model, data = symbol_model(), symbols()
    nothing = data._replace(observed=np.zeros_like(data.observed))
    walk = Trajectories.from_list(states=[[0, 1, 1]], actions=[[-1, -1, -1]], stay=[[1, -1, -1]])
    agent, labelled = AgentMarkov(2, 2, 2), AgentMarkov(2, 2, 2, stay_accuracy=0.9)
    walk = walk._replace(stay=np.full((1, 3), -1, np.int32))
    jax.random.key(0)
    compiler_events.clear()
    for one, empty, what in ((model, nothing, "frame"), (labelled, walk, "action")):
        for ask in (fit, functools.partial(fit, batch_size=1), type(one).__call__):
            with pytest.raises(ValueError, match=f"data have no observed {what} to learn from, in any of"):
                ask(one, empty)
    assert not compiler_events
    known = RoleHMM(2, CategoricalEmission(3), known_roles=True)
    require_informative(known, nothing._replace(states=np.zeros(data.observed.shape, np.int32)))
    require_informative(labelled, walk._replace(stay=np.array([[1, -1, -1]], np.int32)))
    np.testing.assert_array_equal(agent.informative_steps(walk), np.zeros((1, 3), bool))


def test_thin_data_are_fitted(symbol_model, symbols):
    model, data = symbol_model(), symbols()
    one_frame = np.zeros_like(data.observed)
    one_frame[0, 0] = True
    thin = data._replace(observed=one_frame)
    result = fit(model, thin, 500, seed=2)
    assert -np.inf < result.elbo[-1] <= np.log(1 / 3)  # the evidence of one symbol of three
    assert result.converged
    assert not fit(model, thin, tol=0).converged
    alone = data._replace(group=np.full(9, -1, np.int32))
    assert np.isfinite(fit(model, alone).elbo).all()
    assert_same_fit(fit(model, alone), fit(model, data._replace(group=None)))


@pytest.mark.slow
def test_a_model_in_single_precision_takes_data_in_double(symbols):
    data = symbols()
    noise = np.random.default_rng(0).normal(
        size=(*data.observations.shape[:2], 2)
    )  # no feature repeats another
    data = data._replace(observations=data.observations + noise)
    with jax.enable_x64(False):
        model = RoleHMM(2, GaussianEmission(2))
        reference = fit(model, data._replace(observations=data.observations.astype(np.float32)), 5, tol=0)
    result = fit(model, data, 5, tol=0)
    assert result.posterior.blocks["mean_covariance"].natural.scatter.dtype == np.float32
    np.testing.assert_allclose(result.elbo, reference.elbo, rtol=1e-5)


@pytest.mark.slow
def test_known_roles_hold_in_empty_slots_of_a_batch(symbols):
    data = symbols()
    roles = np.where(data.observed & (data.observations[..., 0] == 0), 1, -1).astype(np.int32)
    model = RoleHMM(2, CategoricalEmission(3), sticky=2.0, known_roles=True)
    data = data._replace(states=roles)
    result = fit(model, data, batch_size=5, step_size=1.0)
    zeros = int((data.observed & (data.observations[..., 0] == 0)).sum())
    counts = result.posterior.blocks["probability"].natural.concentration
    np.testing.assert_allclose(counts[:, 0], [1, 1 + zeros], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"batch_size": 2, "step_size": 0.5}])
def test_restarts_in_slices_are_the_same_restarts(symbol_model, symbols, monkeypatch, settings):
    """One by one on a CPU; side by side on an accelerator, in slices where their blocks are too large for that."""
    data, options = symbols(), {"restarts": 4, "tol": 1e-3, **settings}
    alone = fit(symbol_model(), data, 25, **options)
    four = jax.tree.map(lambda x: jnp.stack([x] * 4), symbol_model().prior())
    assert len(restart_slices(four)) == 4
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert len(restart_slices(four)) == 1
    assert_same_fit(alone, fit(symbol_model(), data, 25, **options), rtol=1e-9)
    monkeypatch.setattr("ethogram.inference.conjugate.steps.LARGEST", 40)
    assert len(restart_slices(four)) == 2
    assert_same_fit(alone, fit(symbol_model(), data, 25, **options), rtol=1e-9)


def test_data_are_checked_once_a_fit_and_once_an_export(symbol_model, symbols, monkeypatch):
    model, data, seen = symbol_model(), symbols(), []
    whole = trajectories.check
    monkeypatch.setattr(trajectories, "check", lambda data: seen.append(data) or whole(data))
    result = fit(model, data)
    assert len(seen) == 1 and seen[0] is data
    seen.clear()
    to_arviz(result, data, num_draws=2)
    assert len(seen) == 1 and seen[0] is data
    to_arviz(result, data, num_draws=2, log_likelihood="sequence")
    assert len(seen) == 2


def test_the_restart_with_the_highest_elbo_is_returned(symbol_model):
    """Of three, of which one has not converged and one has no ELBO; nothing is compiled."""
    prior = symbol_model().prior()
    blocks = jax.tree.map(lambda x: np.stack([x, 2 * x, 3 * x]), prior)
    found = Ascended(blocks, np.array([-5.0, -3.0, np.nan]), np.array([True, False, True]))
    best, elbos = restart_search(lambda problem, blocks: found, None, blocks)
    assert best.elbo == -3 and not best.active
    np.testing.assert_array_equal(elbos, found.elbo)
    for one, doubled in zip(jax.tree.leaves(prior), jax.tree.leaves(best.blocks), strict=True):
        np.testing.assert_array_equal(2 * one, doubled)
