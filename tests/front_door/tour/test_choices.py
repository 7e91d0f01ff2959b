"""The tour of noisy-mdp from end to end on few sweeps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.choices import Decisions, NoisyMDP
from ethogram.tour import choices as tour_choices

TINY = tour_choices.TourSizes(
    tested=20, repetitions=2, draws=40, warmup=30, bus=40, games=3, moves=20, shown=8
)
NAME, TOUR = "noisy-mdp", tour_choices.tour

slow = pytest.mark.slow


def test_the_jacobian_of_the_hyperbolic_sine_is_its_derivative():
    transform, x = tour_choices.Sinh(), jnp.array([-4.0, -0.1, 0.0, 2.0, 5.0])
    slopes = jax.vmap(jax.grad(transform))(x)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(x, None), jnp.log(slopes), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(transform.inv(transform(x)), x, rtol=1e-5, atol=1e-6)


@slow
@pytest.mark.parametrize("separated", [False, True])
def test_both_samplers_of_a_separated_choice_agree_with_quadrature(separated):
    from scipy.special import ndtr
    from scipy.stats import norm

    data = Decisions.from_list([[[1.0], [0.0]]] * 3, [0, 0, 0])
    mcmc = tour_choices.samplers(NoisyMDP(100.0, "features"), 300, 2000, progress_bar=False)[separated]
    mcmc.run(jax.random.key(0), data)
    v = np.linspace(-20, 80, 20_001)
    mass = norm.pdf(v / 10) * ndtr(v / np.sqrt(2)) ** 3
    mean = (mass @ v) / mass.sum()
    spread = np.sqrt((mass @ (v - mean) ** 2) / mass.sum())
    told = tour_choices._mixing(mcmc)
    assert told.enough
    found = float(np.asarray(mcmc.get_samples()["v"]).mean())
    assert abs(found - mean) < 4.5 * spread / np.sqrt(told.ess.min())


@slow
def test_the_table_has_a_row_a_player_and_one_of_the_buses(first):
    report, said = first
    assert [row["fit"].split(",")[0] for row in report.rows] == [*["Tetris"] * 3, "bus engines"]
    for row in report.rows:  # 80 draws are no 100 effective ones
        assert row["posterior mean (truth; buses: mode)"].startswith("not converged: ")
        assert row["ess; r_hat"].endswith(", not converged") and row["divergent"].endswith(" of 80")
    for row in report.rows[:3]:
        error, floor = (float(part) for part in row["error; oracle"].split(";"))
        assert 0 <= error < 0.9 and 0 < floor < 0.5
        assert all(0 < float(part) <= 20 for part in row["moves player; imitator"].split(";"))
    assert any("log likelihood -164.65 at the mode" in note and "RC 10.07" in note for note in report.notes)
    assert any("the low player: 100 placements, 20 held out" in line for line in said)


@slow
def test_the_file_holds_the_careful_player(written):
    assert np.asarray(written["posterior"]["v"]).shape == (2, 40, 3)
    assert written["posterior"]["feature"].values.tolist() == ["height", "holes", "bumpiness"]
    assert np.isfinite(np.asarray(written["log_likelihood"]["choice"])).all()
