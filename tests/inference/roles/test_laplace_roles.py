"""Laplace's approximation of roles with covariates, against posteriors of logits whose states are known."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import minimize
from scipy.stats import norm

import ethogram
from ethogram.inference.roles.covariate_problem import Expansion
from ethogram.inference.roles.laplace_roles import _without_saddles, laplace_roles
from ethogram.models.roles.covariates import Covariates

STEPS = 150
APART = 40.0
"""Between the means of the states, so that the observations tell them."""


def simulated(num_sequences, effect=0.0, deviation=0.0):
    """Sequences of states far apart, one per subject, with their states."""
    rng = np.random.default_rng(5)
    x = rng.normal(3, 2, (num_sequences, STEPS))
    log_odds = -2 + deviation * rng.normal(size=num_sequences)
    states = np.zeros((num_sequences, STEPS), int)
    for row, time in itertools.product(range(num_sequences), range(STEPS - 1)):
        change = 1 / (1 + np.exp(-log_odds[row] - effect * (x[row, time] - 3)))
        states[row, time + 1] = states[row, time] ^ (rng.uniform() < change)
    values = APART * states + rng.normal(size=states.shape)
    data = ethogram.Trajectories.from_list(
        list(values[..., None]), subject=list(range(num_sequences)), covariates={"x": list(x)}
    )
    return data, states, x


def test_draws_are_those_of_a_logit_where_the_states_are_known():
    data, states, x = simulated(4, effect=0.4)
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1), transition=Covariates("x"))
    found = laplace_roles(jax.random.key(0), model, data, num_samples=800, restarts=2, progress_bar=False)
    order = np.argsort(found.sites["mean"][0].mean(0)[:, 0])
    assert found.pareto_k < 0.7
    centre, spread, expected = x.mean(), x.std(), -np.log(9)
    for state in range(2):
        left = states[:, :-1] == state
        moved = (x[:, :-1][left] - centre) / spread
        changes = (states[:, 1:] != states[:, :-1])[left]

        def minus_log_density(theta, moved=moved, changes=changes):
            eta = theta[0] + theta[1] * moved
            prior = ((theta[0] - expected) / Covariates().log_odds_scale) ** 2 / 2 + theta[1] ** 2 / 2
            return np.logaddexp(0, eta).sum() - eta[changes].sum() + prior

        best = minimize(minus_log_density, [expected, 0.0], method="BFGS")
        one, other = order[state], order[1 - state]
        odds = found.sites["log_odds"][0, :, one, other]
        effects = found.sites["effect"][0, :, one, other, 0] * spread
        for draws, mode, variance in zip((odds, effects), best.x, np.diag(best.hess_inv), strict=True):
            deviation = np.sqrt(variance)  # the posterior is nearly normal: 70 changes and more
            assert abs(draws.mean() - mode) < 0.2 * deviation
            assert draws.std() == pytest.approx(deviation, rel=0.15)


def test_the_log_evidence_of_one_state_is_that_of_the_conjugate_prior():
    """Exact there, as the bound of coordinate ascent is tight; no transition has an effect."""
    data, *_ = simulated(2)
    start = {"num_steps": 20, "restarts": 1, "progress_bar": False}
    emission = ethogram.GaussianEmission(1)
    exact = (
        ethogram.ConjugateSVI(ethogram.RoleHMM(1, emission)).run(jax.random.key(0), data, **start).elbo[-1]
    )
    model = ethogram.RoleHMM(1, emission, transition=Covariates("x"))
    found = laplace_roles(jax.random.key(0), model, data, num_samples=400, **start)
    assert found.log_evidence == pytest.approx(float(exact), abs=0.1)


def log_likelihood(log_odds, scale, stays, changes):
    """Of the changes of each subject, whose log odds are normal with this mean and scale, by quadrature."""
    nodes, weights = hermegauss(40)
    eta = log_odds + scale * nodes[:, None]
    each = changes * eta - (stays + changes) * np.logaddexp(0, eta)
    return np.log(weights @ np.exp(each - each.max(0)) / np.sqrt(2 * np.pi)).sum() + each.max(0).sum()


def test_the_scale_of_subjects_is_that_of_a_hierarchical_logit():
    data, states, _ = simulated(8, deviation=0.8)
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1), transition=Covariates(vary="subject"))
    found = laplace_roles(jax.random.key(1), model, data, num_samples=800, restarts=2, progress_bar=False)
    order = np.argsort(found.sites["mean"][0].mean(0)[:, 0])
    left, after = states[:, :-1], states[:, 1:]
    log_odds, scales = np.linspace(-6, 2, 60), np.linspace(0.01, 3, 60)
    for state in range(2):
        changes = ((left == state) & (after != state)).sum(1)
        stays = ((left == state) & (after == state)).sum(1)
        density = np.array(
            [
                [
                    log_likelihood(b, tau, stays, changes)
                    + norm.logpdf(b, -np.log(9), Covariates().log_odds_scale)
                    - tau**2 / 2
                    for b in log_odds
                ]
                for tau in scales
            ]
        )
        weights = np.exp(density - density.max())
        of_scale = weights.sum(1) / weights.sum()
        mean = of_scale @ scales
        deviation = np.sqrt(of_scale @ scales**2 - mean**2)
        one, other = order[state], order[1 - state]
        draws = found.sites["subject_scale"][0, :, one, other]
        assert abs(draws.mean() - mean) < 0.25 * deviation
        assert draws.std() == pytest.approx(deviation, rel=0.25)
        middle = (weights.sum(0) / weights.sum()) @ log_odds
        own = found.sites["log_odds"][0, :, one, other]
        assert abs(own.mean() - middle) < 0.25 * own.std()


@pytest.mark.slow
def test_nuts_has_the_same_posterior():
    data, *_ = simulated(3, effect=0.4)
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1), transition=Covariates("x"))
    settings = {"progress_bar": False, "num_warmup": 200, "num_samples": 300, "num_chains": 2}
    chains = ethogram.fit(jax.random.key(0), model, data, "nuts", **settings)
    first = ethogram.fit(jax.random.key(1), model, data, progress_bar=False)
    assert chains.result.r_hat < 1.05
    table, other = chains.summary(), first.summary()
    assert {*table.index} == {*other.index}
    other = other.loc[table.index]
    assert (np.abs(table["mean"] - other["mean"]) < 0.35 * table["sd"]).all()
    assert (np.abs(np.log(table["sd"] / other["sd"])) < 0.4).all()


def test_directions_of_angles_with_gaps_have_a_density_at_the_start():
    rng = np.random.default_rng(2)
    state = np.arange(120) // 15 % 2
    turn = rng.vonmises(1.5 * state, 2 + 6 * state)
    turn[0] = np.nan  # of a track whose first step has no turn
    step = rng.gamma(3, 1 + 5 * state)
    x = rng.normal(size=120)
    data = ethogram.Trajectories.from_list(
        [np.stack([step, turn], axis=1)], covariates={"x": [x]}, missing="nan"
    )
    emission = ethogram.ProductEmission(
        {"step": ethogram.GammaEmission(), "turn": ethogram.VonMisesEmission()}
    )
    model = ethogram.RoleHMM(2, emission, transition=Covariates("x"))
    start = {"restarts": 2, "progress_bar": False}
    found = laplace_roles(jax.random.key(0), model, data, num_samples=50, **start)
    mean = found.sites["step_mean"][0].mean(0)[:, 0]
    assert np.all(np.abs(np.sort(mean) / [3, 18] - 1) < 0.3)
    direction = found.sites["turn_direction"][0].mean(0)[np.argsort(mean), 0]
    assert np.all(np.abs(direction - [0, 1.5]) < 0.5)


def test_no_prior_puts_a_subject_far_away_where_its_likelihood_curves_upwards():
    """One of two subjects has a saddle: what a flat prior gains along it is half a nat at most, the rest as it was."""
    random = np.random.default_rng(0)
    root = random.normal(size=(2, 5, 5))
    information = root @ np.swapaxes(root, 1, 2)
    information[1, 2:, 2:] = np.diag([2.0, -0.3, -40.0])
    gradient = random.normal(size=(2, 5))
    given = Expansion(np.zeros(2), np.zeros((2, 3)), 0.0, gradient, information)
    found = _without_saddles(SimpleNamespace(layout=SimpleNamespace(shared=2)), given)
    np.testing.assert_allclose(found.information[0], information[0])
    np.testing.assert_allclose(found.information[1, :2], information[1, :2])
    own = found.information[1, 2:, 2:]
    assert own[0, 0] == pytest.approx(2) and own[2, 2] == pytest.approx(40)
    assert own[1, 1] == pytest.approx(max(0.3, gradient[1, 3] ** 2))
    assert (gradient[1, 3:] ** 2 / np.diag(own)[1:] / 2 <= 0.5 + 1e-9).all()
