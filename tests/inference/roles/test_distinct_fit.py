"""Fits with roles that are distinct in every frame: bounds, decoding, resuming, export."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate import ConjugateSVI, heldout_log_likelihood
from ethogram.inference.export import to_arviz
from ethogram.inference.roles import duplicate_share, infer_roles
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families.exponential_family import Known
from ethogram.models.roles import RoleHMM, role_couplings
from ethogram.models.roles.role_sets import log_prob_distinct

pytestmark = pytest.mark.usefixtures("float64")

INITIAL = np.array([0.5, 0.3, 0.2])
TRANSITION = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
MEANS, COVARIANCE = np.array([[-3.0], [0.0], [3.0]]), np.full((3, 1, 1), 0.8)


@pytest.fixture(scope="module")
def simulated():
    with jax.enable_x64(True):
        parameters = {"initial": INITIAL, "transition": TRANSITION, "mean": MEANS, "covariance": COVARIANCE}
        model = RoleHMM(3, GaussianEmission(1), exclusive="per_frame")
        found = model.simulate(jax.random.key(0), 6, 3, 12, parameters=parameters)
        lengths = np.asarray(found.data.lengths).copy()
        lengths[:3] = [7, 9, 8]  # agents that leave early hold a role until the last frame of their group
        observed = np.arange(12) < lengths[:, None]
        observed[4, 2:4] = False
        data = found.data._replace(lengths=lengths, observed=observed)
        return data, np.where(np.arange(12) < lengths[:, None], found.states, -1)


@pytest.fixture
def mean_field(monkeypatch):
    monkeypatch.setattr(role_couplings, "MAX_MAPS", 1)
    jax.clear_caches()
    yield
    jax.clear_caches()


def fit(model, data, num_steps=9, **options):
    options = {"restarts": 4, "tol": 0, "progress_bar": False} | options
    return ConjugateSVI(model).run(jax.random.key(0), data, num_steps, **options)


def known_model():
    emission = GaussianEmission(1, known=Known((MEANS, COVARIANCE)))
    return RoleHMM(3, emission, Known(INITIAL), Known(TRANSITION), exclusive="per_frame")


def exact_evidence(data):
    model = known_model()
    parameters = {"initial": INITIAL, "transition": TRANSITION, "mean": MEANS, "covariance": COVARIANCE}
    return float(model.observation(parameters, data).log_prob(model.observed_value(data)).sum())


def test_roles_are_found_and_distinct(simulated):
    data, states = simulated
    found = fit(RoleHMM(3, GaussianEmission(1), exclusive="per_frame"), data, 30)
    assert (np.diff(found.restart_traces, axis=1) >= -1e-9 * np.abs(found.restart_traces[:, 1:])).all()
    roles = infer_roles(found, data)
    assert duplicate_share(roles.path, np.asarray(data.group), np.asarray(data.lengths), data.observed) == 0
    order = np.argsort(np.asarray(found.posterior.mean()["mean"])[:, 0])
    inside = states >= 0
    assert (np.argsort(order)[roles.path][inside] == states[inside]).mean() > 0.9
    np.testing.assert_allclose(roles.probability[inside].sum(-1), 1, atol=1e-9)
    np.testing.assert_array_equal(roles.path >= 0, inside)
    backwards = data.take(np.arange(data.num_sequences)[::-1])
    np.testing.assert_array_equal(infer_roles(found, backwards).path, roles.path[::-1])


def test_known_parameters_give_the_exact_evidence(simulated):
    data, _ = simulated
    found = fit(known_model(), data, 1, restarts=1)
    np.testing.assert_allclose(found.elbo[-1], exact_evidence(data), rtol=1e-10)
    steps = np.asarray(data.observed).sum()
    condition = sum(
        log_prob_distinct(INITIAL, TRANSITION, 3, 12)[longest - 1] for longest in (9, 12, 12, 12, 12, 12)
    )
    score = (exact_evidence(data) - float(condition)) / steps
    np.testing.assert_allclose(heldout_log_likelihood(found, data), score, rtol=1e-9)


def test_mean_field_is_a_close_bound_and_resumes(simulated, mean_field, tmp_path):
    data, _ = simulated
    found = fit(known_model(), data, 3, restarts=1)
    exact = exact_evidence(data)
    assert (np.diff(found.elbo) >= -1e-9).all()
    assert exact - 2 < found.elbo[-1] <= exact + 1e-9

    model = RoleHMM(3, GaussianEmission(1), exclusive="per_frame")
    whole = fit(model, data, 9)
    assert (np.diff(whole.restart_traces, axis=1) >= -1e-9 * np.abs(whole.restart_traces[:, 1:])).all()
    path = tmp_path / "fit"
    fit(model, data, 4, checkpoint=path)
    resumed = fit(model, data, 9, checkpoint=path)
    np.testing.assert_array_equal(whole.restart_elbos, resumed.restart_elbos)
    jax.tree.map(np.testing.assert_array_equal, whole.posterior.blocks, resumed.posterior.blocks)
    roles = infer_roles(whole, data)
    assert duplicate_share(roles.path, np.asarray(data.group), np.asarray(data.lengths), data.observed) == 0


def test_export_has_one_log_likelihood_a_group_and_distinct_predictions(simulated):
    data, _ = simulated
    found = fit(RoleHMM(3, GaussianEmission(1), exclusive="per_frame"), data, 9)
    exported = to_arviz(
        found, data, num_draws=3, log_likelihood="sequence", posterior_predictive=True, progress_bar=False
    )
    assert exported.log_likelihood["observations"].shape == (1, 3, 6)
    assert np.isfinite(exported.posterior_predictive["observations"].to_numpy()).all()


def test_nuts_refuses_a_bound_and_sequences_need_groups(simulated):
    data, _ = simulated
    wide = RoleHMM(7, GaussianEmission(1), exclusive="per_frame").simulate(jax.random.key(0), 1, 7, 3).data
    with pytest.raises(ValueError, match="7 agents have over 720 maps"):
        RoleHMM(7, GaussianEmission(1), exclusive="per_frame")(wide)
    with pytest.raises(ValueError, match=r"data\.group is None"):
        fit(known_model(), data._replace(group=None))


def test_known_roles_that_change_and_unobserved_data_have_starts(simulated):
    data, states = simulated
    partly = np.where((np.arange(12) % 4 == 0) & (np.arange(len(states))[:, None] < 6), states, -1)
    model = RoleHMM(3, GaussianEmission(1), exclusive="per_frame", known_roles=True)
    found = fit(model, data._replace(states=partly), 9)
    roles = infer_roles(found, data._replace(states=partly))
    known = partly >= 0
    np.testing.assert_array_equal(roles.path[known], partly[known])
    nothing = data._replace(observed=np.zeros_like(data.observed))
    assert np.isfinite(fit(RoleHMM(3, GaussianEmission(1), exclusive="per_frame"), nothing, 3).elbo).all()


def test_a_mean_field_goes_on_where_it_ended(simulated, mean_field):
    data, _ = simulated
    model = RoleHMM(3, GaussianEmission(1), exclusive="per_frame")
    engine = ConjugateSVI(model)
    for num_steps in (6, 7, 8):
        first = fit(model, data, num_steps, restarts=1)
        more = engine.run(first.key, data, 3, init=first, tol=0, progress_bar=False)
        assert more.elbo[0] >= first.elbo[-1] - 0.5


def test_a_mean_field_refuses_forbidden_transitions(simulated, mean_field, monkeypatch):
    data, _ = simulated
    band = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    with pytest.raises(ValueError, match="cannot respect forbidden transitions"):
        fit(RoleHMM(3, GaussianEmission(1), transition=band, exclusive="per_frame"), data)
