"""Role HMMs with dwell times: hazards, phases that suffice, covariates of where states go, and what is refused."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from scipy.stats import nbinom

import ethogram
from ethogram.models.roles.dwell_times import (
    MOST_PHASES,
    DwellRoleHMM,
    phases_needed,
    phases_of,
)

EMISSION = ethogram.GaussianEmission(1)


def test_phases_have_the_hazards_of_the_negative_binomial():
    mean, size = np.array([2.0, 9.0, 40.0]), np.array([0.5, 1.0, 12.0])
    found = phases_of(mean, size, 200)
    steps, ends = np.arange(200)[:, None], size / (size + mean - 1)
    hazard = nbinom.pmf(steps, size, ends) / nbinom.sf(steps - 1, size, ends)
    known = nbinom.sf(steps, size, ends) > 1e-10
    leave, stay = np.exp(np.asarray(found.leave)).T, np.exp(np.asarray(found.stay)).T
    np.testing.assert_allclose(leave[known], hazard[known], rtol=1e-4)
    np.testing.assert_allclose(leave + stay, 1)
    age = nbinom.sf(steps - 1, size, ends) / mean
    np.testing.assert_allclose(np.exp(np.asarray(found.first)).T[:150], age[:150], atol=1e-5)


@pytest.mark.parametrize(("mean", "size"), [(5.0, 0.6), (20.0, 5.0), (60.0, 2.0)])
def test_as_many_phases_as_dwell_times_need(mean, size):
    count = phases_needed([mean], [size])
    found = phases_of(np.array([mean]), np.array([size]), count)
    leave, stay = np.exp(np.asarray(found.leave[0])), np.exp(np.asarray(found.stay[0]))
    lasts = np.append(1, np.cumprod(stay))
    pmf = np.concatenate([leave * lasts[:-1], lasts[-1] * leave[-1] * stay[-1] ** np.arange(5000)])
    expected = nbinom.pmf(np.arange(count + 5000), size, size / (size + mean - 1))
    assert np.abs(pmf - expected).sum() / 2 < 1e-4


def test_dwell_times_beyond_all_phases_warn():
    model = ethogram.RoleHMM(2, EMISSION, dwell="negative-binomial")
    sites = {"dwell_mean": np.array([3000.0, 5.0]), "dwell_size": np.array([4.0, 1.0])}
    with pytest.warns(UserWarning, match="keep every tenth frame"):
        assert model.with_phases(sites).num_phases == MOST_PHASES


def test_covariates_move_where_a_state_is_left_to():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 300))
    data = ethogram.Trajectories.from_list([np.zeros((300, 1))] * 30, covariates={"x": list(x)})
    model = ethogram.RoleHMM(3, EMISSION, transition=ethogram.Covariates("x"), dwell="negative-binomial")
    effect = np.zeros((3, 3, 1))
    effect[0, 1:, 0] = [1.5, -1.5]
    parameters = {
        "initial": np.full(3, 1 / 3),
        "mean": np.zeros((3, 1)),
        "covariance": np.ones((3, 1, 1)),
        "dwell_mean": np.full(3, 4.0),
        "dwell_size": np.array([5.0, 1.0, 1.0]),
        "log_odds": np.zeros((3, 3)),
        "effect": effect,
    }
    states = np.asarray(model.simulate(jax.random.key(0), data, parameters=parameters).states)
    left = (states[:, :-1] == 0) & (states[:, 1:] != 0)
    chance = 1 / (1 + np.exp(-3 * (x[:, :-1][left] - x.mean())))
    surplus = (states[:, 1:][left] == 1).sum() - chance.sum()
    assert abs(surplus) < 4 * np.sqrt((chance * (1 - chance)).sum())  # fails for one key in 15 000
    bound = model.bind(data)
    eta = effect[None, None, :, :, 0]
    per_step = bound.per_step(eta, {"dwell_mean": np.full((1, 3), 4.0)})
    np.testing.assert_allclose(per_step[0, 0, 0], [0.75, 0.25 / (1 + np.exp(-3)), 0.25 / (1 + np.exp(3))])


def test_dwell_makes_a_model_of_its_own_and_the_default_none():
    model = ethogram.RoleHMM(2, EMISSION, None, None, None, None, False, "negative-binomial")
    assert type(model) is DwellRoleHMM
    assert type(ethogram.RoleHMM(2, EMISSION, dwell="geometric")) is ethogram.RoleHMM


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dwell": "negative_binomial"}, "dwell must be .*'negative-binomial'"),
        ({"sticky": 1.0}, "sticky"),
        ({"exclusive": "per_frame"}, "exclusive"),
        ({"transition": np.ones((2, 2))}, "leave it out, or give Covariates"),
        ({"transition": ethogram.Covariates("x")}, "which takes 3 or more"),
        ({"transition": ethogram.Covariates(vary="subject")}, "same for all subjects"),
        ({"num_roles": 1}, "num_roles=1"),
        ({"initial": 2.0}, "initial"),
    ],
)
def test_models_that_are_refused(options, message):
    given = {"num_roles": 2, "emission": EMISSION, "dwell": "negative-binomial"} | options
    with pytest.raises(ValueError, match=message):
        ethogram.RoleHMM(**given)


def test_conjugate_fits_are_refused():
    model = ethogram.RoleHMM(2, EMISSION, dwell="negative-binomial")
    data = ethogram.Trajectories.from_list([[[0.0], [1.0]]])
    with pytest.raises(TypeError, match=r"with dwell=, has no conjugate prior"):
        ethogram.ConjugateSVI(model).run(jax.random.key(0), data, num_steps=2)
    with pytest.raises(ValueError, match="geometric"):
        dataclasses.replace(model, dwell="geometric")
