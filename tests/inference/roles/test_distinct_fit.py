"""Fits with roles that are distinct in every frame: bounds, decoding, resuming, export."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy.stats import norm

from ethogram.inference.conjugate import (
    ConjugatePosterior,
    ConjugateResult,
    ConjugateSVI,
    heldout_log_likelihood,
)
from ethogram.inference.export import to_arviz
from ethogram.inference.export.pointwise import Pointwise
from ethogram.inference.roles import duplicate_share, infer_roles
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families.exponential_family import Known, expected_statistics
from ethogram.models.roles import RoleHMM, per_frame
from ethogram.models.roles.role_sets import log_prob_distinct

pytestmark = pytest.mark.usefixtures("float64")

INITIAL = np.array([0.5, 0.3, 0.2])
TRANSITION = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
MAPS = np.array(list(itertools.permutations(range(3))))
MEANS, COVARIANCE = np.array([[-3.0], [0.0], [3.0]]), np.full((3, 1, 1), 0.8)


@pytest.fixture(scope="module")
def simulated():
    rng = np.random.default_rng(0)
    states = np.zeros((6, 3, 12), int)
    for group in states:
        weight = np.ones(6)
        for time in range(12):
            group[:, time] = MAPS[rng.choice(6, p=weight / weight.sum())]
            weight = TRANSITION[group[:, time], MAPS].prod(axis=1)
    states = states.reshape(18, 12)
    lengths = np.array(
        [7, 9, 8, *[12] * 15]
    )  # who leaves early holds a role until the last frame of the group
    x = MEANS[states] + np.sqrt(0.8) * rng.normal(size=(18, 12, 1))
    observed = np.arange(12) < lengths[:, None]
    states = np.where(observed, states, -1)
    observed[4, 2:4] = False
    groups = {"group": np.repeat(np.arange(6), 3), "agent": np.tile(np.arange(3), 6)}
    return Trajectories(x, None, None, lengths, observed, **groups), states


@pytest.fixture
def mean_field(monkeypatch):
    """Any maps are too many. Compiled programs do not see that: only models of `with_weight` are used with it."""
    monkeypatch.setattr(per_frame, "MAX_MAPS", 1)


def fit(model, data, num_steps=9, **options):
    options = {"restarts": 4, "tol": 0, "progress_bar": False} | options
    return ConjugateSVI(model).run(jax.random.key(0), data, num_steps, **options)


def with_weight(weight):
    """A model whose prior is worth so many observations of the truth: with many, parameters are as good as known."""
    each = np.full(3, weight)
    emission = GaussianEmission(1, mean=MEANS, strength=each, dof=each + 2, scale=weight * COVARIANCE)
    return RoleHMM(3, emission, weight * INITIAL, weight * TRANSITION, exclusive="per_frame")


def exact_evidence(data):
    """By steps through the six maps of a group, in NumPy."""
    total = 0.0
    each = norm.logpdf(np.asarray(data.observations), MEANS[:, 0], np.sqrt(COVARIANCE[:, 0, 0]))
    each = np.where(np.asarray(data.observed)[..., None], each, 0).reshape(6, 3, 12, 3)
    between = np.log(TRANSITION)[MAPS[:, None], MAPS].sum(-1)
    for frames, lengths in zip(each, np.asarray(data.lengths).reshape(6, 3), strict=True):
        weight = np.log(INITIAL).sum()
        for time in range(lengths.max()):
            into = weight if time == 0 else np.logaddexp.reduce(weight[:, None] + between, axis=0)
            weight = into + frames[np.arange(3), time, MAPS].sum(-1)
        total += np.logaddexp.reduce(weight)
    return total


@pytest.fixture(scope="module")
def known():
    """A result whose parameters are known."""
    emission = GaussianEmission(1, known=Known((MEANS, COVARIANCE)))
    model = RoleHMM(3, emission, Known(INITIAL), Known(TRANSITION), exclusive="per_frame")
    posterior = ConjugatePosterior(model, model.prior())
    return ConjugateResult(posterior, *[None] * (len(ConjugateResult._fields) - 1))


def test_known_parameters_give_the_exact_evidence(simulated, known):
    data, _ = simulated
    model = known.posterior.model
    local = jax.jit(lambda blocks, batch: model.log_normalizer(expected_statistics(blocks), batch))
    np.testing.assert_allclose(
        local(known.posterior.blocks, model.arrange(data)), exact_evidence(data), rtol=1e-10
    )
    steps = np.asarray(data.observed).sum()
    distinct = np.asarray(log_prob_distinct(INITIAL, TRANSITION, 3, 12))
    condition = sum(distinct[longest - 1] for longest in (9, 12, 12, 12, 12, 12))
    score = (exact_evidence(data) - condition) / steps
    np.testing.assert_allclose(heldout_log_likelihood(known, data), score, rtol=1e-9)
    mean = {name: np.asarray(value)[None] for name, value in known.posterior.mean().items()}
    exported = Pointwise(model, mean, data).log_likelihood()  # of the same data, given the same condition
    assert exported.shape == (1, 6)
    np.testing.assert_allclose(exported.sum() / steps, score, rtol=1e-9)


def test_roles_at_known_parameters_are_distinct_and_those_simulated(simulated, known):
    """In any order of the sequences of a group."""
    data, states = simulated
    roles, inside = infer_roles(known, data), states >= 0
    for path in (states, roles.path):
        assert duplicate_share(path, np.asarray(data.group), np.asarray(data.lengths), data.observed) == 0
        np.testing.assert_array_equal(path >= 0, inside)
    assert (roles.path[inside] == states[inside]).mean() > 0.9
    np.testing.assert_allclose(roles.probability[inside].sum(-1), 1, atol=1e-9)
    backwards = data.take(np.arange(data.num_sequences)[::-1])
    np.testing.assert_array_equal(infer_roles(known, backwards).path, roles.path[::-1])


@pytest.mark.slow
def test_steps_of_a_mean_field_are_bounds_that_rise(simulated, mean_field):
    """At parameters as good as known; expected counts are of all agents in all frames of their groups."""
    data, _ = simulated
    model = with_weight(1e7)
    batch = model.arrange(data)
    step = jax.jit(lambda blocks, *rest: model.e_step.step(expected_statistics(blocks), batch, *rest))
    blocks, nothing, values = model.prior(), model.e_step.init(batch), []
    local = nothing
    for number in (1, 2, 3):  # from nothing at all; the third may start anew
        value, statistics, local = step(blocks, local, number)
        values.append(float(value))
    exact = exact_evidence(data)
    assert (np.diff(values) >= -1e-9).all() and values[-1] > values[0]
    anew, better = (float(step(blocks, nothing, number)[0]) for number in (0, 3))
    assert exact - 2 < min(values[-1], anew) and max(values[-1], anew) <= exact + 1e-3
    assert (
        values[0] < anew <= better + 1e-9
    )  # the first iteration starts anew, the third where that is better
    first, pairs = (np.asarray(statistics[name].concentration) for name in ("initial", "transition"))
    np.testing.assert_allclose([first.sum(), pairs.sum()], [18, 3 * (8 + 5 * 11)], rtol=1e-9)


@pytest.mark.slow
def test_fits_of_a_mean_field_rise_and_resume(simulated, mean_field, tmp_path):
    data, _ = simulated
    model = with_weight(0.1)
    whole = fit(model, data, 9, restarts=1)
    assert (np.diff(whole.elbo) >= -1e-9 * np.abs(whole.elbo[1:])).all()
    path = tmp_path / "fit"
    fit(model, data, 4, restarts=1, checkpoint=path)
    resumed = fit(model, data, 9, restarts=1, checkpoint=path)
    np.testing.assert_array_equal(whole.restart_elbos, resumed.restart_elbos)
    jax.tree.map(np.testing.assert_array_equal, whole.posterior.blocks, resumed.posterior.blocks)
    roles = infer_roles(whole, data)
    assert duplicate_share(roles.path, np.asarray(data.group), np.asarray(data.lengths), data.observed) == 0


@pytest.mark.slow
def test_fits_rise_and_find_roles_and_their_export_has_one_log_likelihood_a_group(simulated):
    data, states = simulated
    fitted = fit(RoleHMM(3, GaussianEmission(1), exclusive="per_frame"), data, 30)
    assert (np.diff(fitted.restart_traces, axis=1) >= -1e-9 * np.abs(fitted.restart_traces[:, 1:])).all()
    order = np.argsort(np.asarray(fitted.posterior.mean()["mean"])[:, 0])
    path, inside = infer_roles(fitted, data).path, states >= 0
    assert (np.argsort(order)[path][inside] == states[inside]).mean() > 0.9
    exported = to_arviz(
        fitted, data, num_draws=3, log_likelihood="sequence", posterior_predictive=True, progress_bar=False
    )
    assert exported.log_likelihood["observations"].shape == (1, 3, 6)
    assert np.isfinite(exported.posterior_predictive["observations"].to_numpy()).all()


def test_nuts_refuses_a_bound_and_sequences_need_groups(simulated):
    data, _ = simulated
    wide = Trajectories.from_list(np.zeros((7, 3, 1)), group=np.zeros(7, int), agent=np.arange(7))
    with pytest.raises(ValueError, match="7 agents have over 720 maps"):
        RoleHMM(7, GaussianEmission(1), exclusive="per_frame")(wide)
    with pytest.raises(ValueError, match=r"data\.group is None"):
        fit(with_weight(1.0), data._replace(group=None))


@pytest.mark.slow
def test_known_roles_that_change_and_unobserved_data_have_starts(simulated):
    data, states = simulated
    partly = np.where((np.arange(12) % 4 == 0) & (np.arange(len(states))[:, None] < 6), states, -1)
    model = RoleHMM(3, GaussianEmission(1), exclusive="per_frame", known_roles=True)
    found = fit(model, data._replace(states=partly), 9, restarts=1)
    roles = infer_roles(found, data._replace(states=partly))
    known = partly >= 0
    np.testing.assert_array_equal(roles.path[known], partly[known])
    once = data._replace(
        observed=np.asarray(data.observed) & (np.cumsum(data.observed).reshape(data.observed.shape) == 1)
    )
    assert np.isfinite(fit(RoleHMM(3, GaussianEmission(1), exclusive="per_frame"), once, 3).elbo).all()


@pytest.mark.slow
def test_a_mean_field_goes_on_where_it_ended(simulated, mean_field):
    data, _ = simulated
    model = with_weight(0.1)
    engine = ConjugateSVI(model)
    for num_steps in (6, 7, 8):
        first = fit(model, data, num_steps, restarts=1)
        more = engine.run(first.key, data, 3, init=first, tol=0, progress_bar=False)
        assert more.elbo[0] >= first.elbo[-1] - 0.5


def test_a_mean_field_refuses_forbidden_transitions(simulated, mean_field):
    data, _ = simulated
    band = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    with pytest.raises(ValueError, match="cannot respect forbidden transitions"):
        fit(RoleHMM(3, GaussianEmission(1), transition=band, exclusive="per_frame"), data)
