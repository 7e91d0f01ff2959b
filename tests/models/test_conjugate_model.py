"""The hooks of models: defaults, and misspelt ones that are refused when the class is defined."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.chains.conjugate_chain import ChainEmission
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
from ethogram.models.emissions.emission import Emission
from ethogram.models.families.conjugate_block import ConjugateBlock
from ethogram.models.families.exponential_family import Dirichlet, NormalInverseWishart
from ethogram.models.intents.agent_markov import AgentMarkov
from ethogram.models.model_object import model_object, static_field
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
    assert coin.check(data) is None and coin.check_continues(coin) is None
    assert coin.bind(data) is coin and coin.is_bound
    assert coin.arrange(data) is data and group_size(data) == 1
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


@pytest.mark.parametrize(
    ("base", "name", "hook"),
    [
        (ConjugateModel, "log_normaliser", "log_normalizer"),
        (ConjugateModel, "likelyhood", "likelihood"),
        (ConjugateModel, "check_continue", "check_continues"),
        (ConjugateModel, "divergance", "divergence"),
        (ConjugateModel, "start_kind", "start_kinds"),
        (ConjugateModel, "updates", "update"),
        (Emission, "chain_weight", "chain_weights"),
        (ChainEmission, "expected_log_likelihoods", "expected_log_likelihood"),
        (CategoricalEmission, "symbol_tabel", "symbol_table"),
        (GaussianEmission, "label_statistic", "label_statistics"),
        (ConjugateBlock, "divergances", "divergence"),
        (ConjugateBlock, "natral", "natural"),
        (Dirichlet, "reference_points", "reference_point"),
        (NormalInverseWishart, "expected_statistic", "expected_statistics"),
    ],
)
def test_a_misspelt_hook_is_refused_where_the_class_is_defined(base, name, hook):
    with pytest.raises(TypeError, match=rf"Wrong[.]{name} looks like a misspelling of the hook {hook}:"):
        type("Wrong", (base,), {name: lambda *_: None})


@pytest.mark.parametrize(
    ("base", "name", "kind", "message"),
    [
        (Exportable, "label_dim", ClassVar[tuple], "looks like a misspelling of the hook label_dims"),
        (ConjugateBlock, "naturals", tuple, "looks like a misspelling of the hook natural:"),
        (ConjugateBlock, "mean", tuple, "overrides the hook mean: make it a method"),
    ],
)
def test_a_misspelt_field_is_refused_and_one_in_place_of_a_method(base, name, kind, message):
    with pytest.raises(TypeError, match=rf"Wrong[.]{name} {message}"):
        type("Wrong", (base,), {"__annotations__": {name: kind}})


@pytest.mark.parametrize(("base", "name"), [(Exportable, "site_dims"), (CategoricalEmission, "symbol_table")])
def test_a_hook_that_is_no_method_is_refused(base, name):
    with pytest.raises(TypeError, match=rf"Wrong[.]{name} overrides the hook {name}: make it a method"):
        type("Wrong", (base,), {name: {"rate": ("state",)}})


def test_starts_need_their_kinds():
    with pytest.raises(TypeError, match="Wrong defines start_statistics without start_kinds"):
        type("Wrong", (ConjugateModel,), {"start_statistics": lambda *_: {}})


def test_a_model_without_prior_is_not_made():
    with pytest.raises(TypeError, match="prior"):
        type("Half", (ConjugateModel,), {"log_normalizer": Coin.log_normalizer})()


def test_other_names_are_free():
    """Names unlike any hook, private ones, and names that a base class has already."""

    @model_object
    class Walker(Coin):
        num_states: int = static_field(default=2)
        rate: Any = 1.0

        def simulate(self, key):
            return key

        def step_potentials(self, expected):
            return expected

        def _observations(self, data):
            return data

    class Runner(Walker):
        def simulate(self, key):
            return 2 * key

    assert Walker(3).num_states == 3 and Walker(rate=2.0).rate == 2.0
    assert not overrides(Runner(), "likelihood") and overrides(Runner(), "prior")


def test_a_feature_without_any_value_is_named():
    """What is learnt of it is its prior."""
    walk = np.stack([np.arange(5.0), np.full(5, np.nan)], axis=1)
    data = Trajectories.from_list([walk], missing="nan")
    with pytest.warns(UserWarning, match="^feature 1 has no value in any frame, and what is learnt of it"):
        require_informative(RoleHMM(2, GaussianEmission(2)), data)
    walk[2, 1] = 0.0
    require_informative(RoleHMM(2, GaussianEmission(2)), Trajectories.from_list([walk], missing="nan"))
