"""States that their priors tell apart keep their labels in every draw: posteriors against enumeration of all paths."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

import ethogram

ROWS = [[0.2, -0.3, np.nan, 0.4], [-0.1, 0.15, 0.3], [-0.2, 0.1]]
MEANS, STRENGTH, DOF, SCALE = np.array([-0.3, 0.3]), 1.0, 5.0, 1.5


def log_marginal(y: np.ndarray, prior_mean: float) -> tuple[float, float, float]:
    """Log evidence of numbers of one state, and posterior means of its mean and variance."""
    strength, dof = STRENGTH + len(y), DOF + len(y)
    mean = (STRENGTH * prior_mean + y.sum()) / strength
    scale = SCALE + (y**2).sum() + STRENGTH * prior_mean**2 - strength * mean**2
    evidence = (
        gammaln(dof / 2) - gammaln(DOF / 2) - len(y) / 2 * np.log(np.pi) + np.log(STRENGTH / strength) / 2
    )
    return evidence + DOF / 2 * np.log(SCALE) - dof / 2 * np.log(scale), mean, scale / (dof - 2)


def log_dirichlet(counts: np.ndarray) -> float:
    """Log evidence of counts (..., state) under flat Dirichlet rows."""
    size, total = counts.shape[-1], counts.sum(-1)
    return (gammaln(size) - gammaln(size + total) + gammaln(1 + counts).sum(-1)).sum()


def enumerated() -> tuple[np.ndarray, np.ndarray]:
    """Posterior means of means, variances and the first initial probability; probabilities of state 1 by frame."""
    lengths, y = [len(row) for row in ROWS], np.concatenate(ROWS)
    starts = np.cumsum([0, *lengths])[:-1]
    within = np.setdiff1d(np.arange(len(y)), starts)
    weights, values = [], []
    for each in itertools.product([0, 1], repeat=len(y)):
        path, changes = np.array(each), np.zeros((2, 2))
        np.add.at(changes, (path[within - 1], path[within]), 1)
        first = np.bincount(path[starts], minlength=2)
        parts = [log_marginal(y[(path == state) & ~np.isnan(y)], MEANS[state]) for state in (0, 1)]
        weights.append(log_dirichlet(first) + log_dirichlet(changes) + sum(part[0] for part in parts))
        estimates = [
            *(part[1] for part in parts),
            *(part[2] for part in parts),
            (1 + first[0]) / (2 + len(ROWS)),
        ]
        values.append(np.concatenate([estimates, path]))
    posterior = np.exp(weights - logsumexp(weights)) @ np.array(values)
    return posterior[:5], posterior[5:]


def model() -> ethogram.RoleHMM:
    emission = ethogram.GaussianEmission(1, mean=MEANS[:, None], strength=STRENGTH, dof=DOF, scale=SCALE)
    return ethogram.RoleHMM(2, emission)


def test_labels_may_switch_where_nothing_tells_states_apart():
    same = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
    assert same.switches_labels() and ethogram.AgentMarkov(3, 2).switches_labels()
    assert not model().switches_labels()
    assert not ethogram.RoleHMM(2, same.emission, known_roles=True).switches_labels()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the prior outweighs", "ignore:the draws have not converged")
def test_estimates_and_states_are_those_of_enumeration():
    """Labels matched to one draw gave the two initial probabilities as .75 and .25 in place of .5."""
    data = ethogram.Trajectories.from_list([np.array(row)[:, None] for row in ROWS], missing="nan")
    settings = {"num_samples": 500, "num_warmup": 200, "progress_bar": False}
    fit = ethogram.fit(jax.random.key(0), model(), data, "nuts", **settings)
    exact, probability = enumerated()
    found = fit.summary()["mean"]
    names = ["mean[0, 0]", "mean[1, 0]", "covariance[0, 0]", "covariance[1, 0]", "initial[0]"]
    np.testing.assert_allclose(found[names], exact, atol=0.05)
    inside = np.arange(4) < np.array([4, 3, 2])[:, None]
    np.testing.assert_allclose(fit.states().probability[inside][:, 1], probability, atol=0.05)
    observed = ~np.isnan(np.concatenate(ROWS))
    share = fit.time_budget(num_draws=1000)["mean"].iloc[1]
    assert share == pytest.approx(probability[observed].mean(), abs=0.05)
