"""The hooks of models and their defaults."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.conjugate_model import (
    ConjugateModel,
    Exportable,
    group_size,
    overrides,
    require_informative,
)
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.intents.agent_markov import AgentMarkov
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.roles.role_hmm import RoleHMM


class Coin(ConjugateModel):
    """The least that a conjugate model may be."""

    def prior(self):
        return {"row": Dirichlet.from_standard(np.ones(2))}

    def log_normalizer(self, expected, batch):
        return expected["row"].concentration[0]


def test_models_of_the_package_declare_what_they_are():
    assert issubclass(RoleHMM, ConjugateModel) and issubclass(AgentMarkov, ConjugateModel)
    for model in (NoisyMDP, GPIRL):
        assert issubclass(model, Exportable) and not issubclass(model, ConjugateModel)


def test_defaults():
    """Every hook but prior and log_normalizer may be left out."""
    coin, data = Coin(), object()
    assert coin.check(data) is None and coin.is_bound
    assert coin.bind(data) is coin and coin.bind(data, like=coin) is coin
    assert coin.arrange(data) is data and coin.start_data(data) is data and group_size(data) == 1
    assert coin.site_layout(data) == ({}, {}) and coin.needed_sites() == ()
    assert (coin.start_kinds, coin.observed_site, coin.label_dims) == (
        ("prior",),
        "observations",
        ("state", "next_state"),
    )
    for hook, arguments in {
        "likelihood": ({}, data),
        "start_statistics": (np.random.default_rng(0), "sticky", []),
    }.items():
        with pytest.raises(NotImplementedError, match=f"Coin has no method {hook}"):
            getattr(coin, hook)(*arguments)


def test_the_default_local_step_is_exact_and_carries_nothing():
    """Statistics are the gradient of the log normaliser."""
    step, expected = Coin().e_step, {"row": Coin().prior()["row"].natural}
    value, statistics, local = step.step(expected, None, step.init(None), 0)
    assert (value, local, step.period, step.costly) == (expected["row"].concentration[0], (), 1, False)
    np.testing.assert_array_equal(statistics["row"].concentration, [1.0, 0.0])


def test_default_steps_are_those_of_every_block():
    """The divergence is KL, and a whole step goes to prior plus statistics."""
    coin, prior = Coin(), Coin().prior()
    blocks = {"row": Dirichlet.from_standard(np.array([3.0, 1.0]))}
    statistics = {"row": prior["row"].natural._replace(concentration=jnp.array([4.0, 2.0]))}
    moved = coin.update(blocks, prior, statistics, 2.0, 1.0)
    np.testing.assert_allclose(moved["row"].standard().concentration, [9.0, 5.0])
    # KL(Dir(3, 1) || Dir(1, 1)) = ln 3 + 2 (psi(3) - psi(4)) = ln 3 - 2/3
    np.testing.assert_allclose(coin.divergence(blocks, prior), np.log(3) - 2 / 3, rtol=1e-12)
    assert coin.divergence(prior, prior) == 0


def test_starts_need_their_kinds():
    with pytest.raises(TypeError, match="Wrong defines start_statistics without start_kinds"):
        type("Wrong", (ConjugateModel,), {"start_statistics": lambda *_: {}})


def test_a_model_without_prior_is_not_made():
    with pytest.raises(TypeError, match="prior"):
        type("Half", (ConjugateModel,), {"log_normalizer": Coin.log_normalizer})()


def test_hooks_that_a_class_replaces():
    class Runner(Coin):
        def arrange(self, data):
            return data

    assert (
        not overrides(Runner(), "likelihood")
        and overrides(Runner(), "prior")
        and overrides(Runner(), "arrange")
    )
    assert overrides(RoleHMM(2, CategoricalEmission(2)), "likelihood")
    assert overrides(CategoricalEmission(2), "symbol_table") and not overrides(
        GaussianEmission(1), "symbol_table"
    )


def test_a_feature_without_any_value_is_named():
    """What is learnt of it is its prior."""
    walk = np.stack([np.arange(5.0), np.full(5, np.nan)], axis=1)
    data = Trajectories.from_list([walk], missing="nan")
    with pytest.warns(UserWarning, match="^feature 1 has no value in any frame, and what is learnt of it"):
        require_informative(RoleHMM(2, GaussianEmission(2)), data)
    walk[2, 1] = 0.0
    require_informative(RoleHMM(2, GaussianEmission(2)), Trajectories.from_list([walk], missing="nan"))
