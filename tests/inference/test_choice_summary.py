"""Summaries of choice models against their definitions, and a mode against scipy."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from ethogram.inference.choice_summary import find_mode, summarize_choices
from ethogram.models.decisions import Decisions
from ethogram.models.noisy_mdp import NoisyMDP
from ethogram.models.trajectories import Metadata


def two_options(count=60, seed=0, **parts):
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, 2, 2))
    gap = (features[:, 0] - features[:, 1]) @ (0.9, -0.5)
    choice = (gap + np.sqrt(2) * random.normal(size=count) < 0).astype(int)
    names = Metadata(feature_names=["hours", "price"])
    return Decisions(features, np.ones((count, 2), bool), choice, metadata=names)._replace(**parts)


def log_likelihood(theta, data):
    """Two options have a closed form."""
    gap = (data.features[:, 0] - data.features[:, 1]) @ theta / np.sqrt(2)
    each = norm.logcdf(np.where(data.choice == 0, gap, -gap))
    return (
        each[data.choice >= 0]
        @ (np.ones(len(each)) if data.weight is None else data.weight)[data.choice >= 0]
    )


@pytest.mark.parametrize("kappa", [float("inf"), 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mode_is_scipys(kappa, weighted):
    data = two_options(weight=np.arange(60) % 4 if weighted else None)

    def loss(theta):
        return -log_likelihood(theta, data) + theta @ theta / (2 * kappa)

    best = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12})
    found = find_mode(NoisyMDP(kappa, "features"), data)
    np.testing.assert_allclose(found.theta, best.x, atol=1e-6)
    assert found.log_likelihood == pytest.approx(log_likelihood(best.x, data), abs=1e-8)
    step = 1e-4
    curvature = [
        [
            (
                loss(best.x + step * (a + b)) - loss(best.x + step * (a - b))
                - loss(best.x - step * (a - b)) + loss(best.x - step * (a + b))
            ) / (4 * step**2)
            for a in np.eye(2)
        ]
        for b in np.eye(2)
    ]  # fmt: skip
    np.testing.assert_allclose(found.deviation, np.sqrt(np.diag(np.linalg.inv(curvature))), rtol=1e-4)


def test_a_summary_says_what_it_is_defined_to_say():
    data, model = two_options(), NoisyMDP(9.0, "features")
    draws = np.random.default_rng(1).normal((0.8, -0.4), 0.2, size=(4000, 2))
    told = summarize_choices(model, {"theta": draws}, data, probability=0.8)
    mode = find_mode(model, data)
    assert told.log_likelihood == mode.log_likelihood
    assert told.null_log_likelihood == pytest.approx(-60 * np.log(2))
    assert told.aic == pytest.approx(4 - 2 * mode.log_likelihood)
    assert told.mcfadden_r2 == pytest.approx(1 - mode.log_likelihood / told.null_log_likelihood)
    assert told.names == ["v[hours]", "v[price]"]
    np.testing.assert_allclose(told.mean, draws.mean(0))
    assert ((told.lower < draws) & (draws < told.upper)).mean() == pytest.approx(0.8, abs=0.01)
    assert told.separated is None
    assert "McFadden's R2" in str(told)
    assert "v[price]" in str(told)


def test_subjects_are_summarised_each_at_the_mean():
    who = np.arange(60) % 3
    data, model = two_options(subject=who), NoisyMDP(9.0, "features")
    draws = np.random.default_rng(1).normal((0.8, -0.4), 0.2, size=(50, 3, 2))
    told = summarize_choices(model, {"theta": draws}, data)
    assert told.names[:3] == ["v[0, hours]", "v[0, price]", "v[1, hours]"]
    each = [log_likelihood(draws.mean(0)[i], data.take(who == i)) for i in range(3)]
    assert told.log_likelihood == pytest.approx(sum(each), rel=1e-6)


def test_separated_choices_are_told():
    data = Decisions.from_list([[[1.0], [0.0]]] * 3, [0, 0, 0])
    told = summarize_choices(NoisyMDP(4.0, "features"), {"theta": np.ones((5, 1))}, data)
    assert "say nothing against" in told.separated
    assert "separated" in str(told)


def test_what_has_no_mode_is_refused():
    with pytest.raises(ValueError, match="leave subject out"):
        find_mode(NoisyMDP(4.0, "features"), two_options(subject=np.zeros(60, int)))
    with pytest.raises(ValueError, match="probability is 1"):
        summarize_choices(NoisyMDP(), {}, two_options(), probability=1)
    with jax.enable_x64(True), pytest.raises(ValueError, match="kappa is infinite"):
        find_mode(NoisyMDP(float("inf"), "features"), Decisions.from_list([[[1.0], [0.0]]] * 3, [0, 0, 0]))
