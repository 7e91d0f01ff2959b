"""The habit model against enumeration, counting and the beta function."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy.special import betaln
from scipy.stats import beta

import ethogram
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.models.data import Trajectories
from ethogram.testing import check_model
from examples.habit import ActionTrace, Habit

pytestmark = pytest.mark.slow  # it compiles a fit

ROWS = [[0, 0, 1, 1, 1], [2, 2, 2], [1]]
NUM_REPEATS, NUM_CHANGES = 5, 1
CONSTANT = -3 * np.log(3) - NUM_CHANGES * np.log(2)  # first actions, and which other action it was


@pytest.fixture
def data() -> Trajectories:
    return Trajectories.from_list(actions=ROWS)


def test_the_hooks_agree_with_one_another(data):
    check_model(Habit(3), data)


def test_probabilities_of_all_rows_sum_to_one_whatever_stands_in_the_padding():
    rows = jnp.asarray(list(itertools.product(range(3), repeat=4)))
    for padding in (-1, 0, 2):
        padded = jnp.pad(rows, ((0, 0), (0, 2)), constant_values=padding)
        trace = ActionTrace(jnp.asarray(0.7), jnp.full(len(rows), 4), num_steps=6, num_actions=3)
        assert jnp.exp(trace.log_prob(padded)).sum() == pytest.approx(1.0, rel=1e-5)


def test_posterior_is_counted_and_the_bound_is_the_evidence(data):
    with jax.enable_x64(True):
        model = Habit(num_actions=3, repeats=2.0, changes=3.0)
        result = ConjugateSVI(model).run(jax.random.key(0), data, 3, restarts=1, progress_bar=False)
    repeats, changes = result.posterior.blocks["repeat"].standard()
    assert (float(repeats), float(changes)) == pytest.approx(
        (2.0 + NUM_REPEATS, 3.0 + NUM_CHANGES), rel=1e-12
    )
    evidence = betaln(2.0 + NUM_REPEATS, 3.0 + NUM_CHANGES) - betaln(2.0, 3.0) + CONSTANT
    assert float(result.elbo[-1]) == pytest.approx(evidence, rel=1e-10)


def test_numpyro_sees_the_same_density(data):
    density, _ = log_density(Habit(3, 2.0, 3.0), (data,), {}, {"repeat": jnp.asarray(0.3)})
    likelihood = NUM_REPEATS * np.log(0.3) + NUM_CHANGES * np.log(0.7) + CONSTANT
    assert float(density) == pytest.approx(beta(2.0, 3.0).logpdf(0.3) + likelihood, rel=1e-5)


def test_simulated_actions_repeat_as_often_as_the_truth_says():
    simulated = Habit(4).simulate(jax.random.key(1), num_sequences=50, num_steps=200)
    actions = np.asarray(simulated.data.actions)
    share = np.mean(actions[:, 1:] == actions[:, :-1])
    assert share == pytest.approx(float(simulated.parameters["repeat"]), abs=0.02)


@pytest.mark.filterwarnings("ignore:the draws have not converged")  # r_hat of 500 draws may pass 1.01
@pytest.mark.parametrize("method", ["cavi", "nuts", "refresh"])
def test_every_method_and_what_fits_answer(method, tmp_path):
    """Nuts and refresh find the posterior of the counts; figure, report, file and score need no hook of the model."""
    data, model = Trajectories.from_list(actions=ROWS), Habit(3)
    settings = {"nuts": {"num_samples": 500}, "refresh": {"num_draws": 500}}.get(method, {})
    found = ethogram.fit(jax.random.key(0), model, data, method, progress_bar=False, **settings)
    exact = beta(1 + NUM_REPEATS, 1 + NUM_CHANGES)
    assert found.summary()["mean"]["repeat"] == pytest.approx(exact.mean(), abs=0.02)
    assert found.score().counts.tolist() == [5, 3, 1]
    assert [text.get_text() for text in found.plot().axes[0].get_yticklabels()] == ["repeat"]
    assert "repeat" in found.report(tmp_path / "habit.html").read_text()
    found.save(tmp_path / "habit.npz")
    again = ethogram.load(tmp_path / "habit.npz")
    assert type(again.model) is Habit and again.model.num_actions == 3
    np.testing.assert_array_equal(again.draws(5).sites["repeat"], found.draws(5).sites["repeat"])
    new = found.predict(num_draws=300)["actions"].values[:, 0]  # the row of five, 300 times
    assert np.mean(new[:, 1:5] == new[:, :4]) == pytest.approx(exact.mean(), abs=0.06)
    with pytest.raises(TypeError, match="take num_draws and no steps"):
        found.predict(steps=3)
    with pytest.raises(TypeError, match="a Habit has no hidden states"):
        found.states()
    assert "agree" in ethogram.compare({"one": found, "other": again}).statement


def test_an_action_that_does_not_exist_is_named(data):
    with pytest.raises(ValueError, match=r"data.actions\[1, 0\] is 2, not in 0..1"):
        Habit(num_actions=2).check(data)
