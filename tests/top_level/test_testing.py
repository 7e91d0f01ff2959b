"""`check_model` passes models of the package (the example model in its own test), and names planted faults."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from ethogram import testing
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.data import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families import Beta
from ethogram.models.hooks import misspelt
from ethogram.models.intents import AgentMarkov
from ethogram.models.model_object import model_object, static_field
from ethogram.models.roles import RoleHMM
from ethogram.testing import check_model
from examples.habit import Habit

ACTIONS = Trajectories.from_list(actions=[[0, 1, 1, 1], [1, 0]])


@model_object
class Coin(ConjugateModel):
    """Actions are tosses of one coin, and each fault is a hook of the model without it."""

    note: Any = static_field(default=None)
    observed_site: ClassVar[str] = "actions"

    def prior(self):
        return {"share": Beta.from_standard(2.0, 1.0)}

    def log_normalizer(self, expected, batch):
        inside = jnp.arange(batch.actions.shape[1]) < batch.lengths[:, None]
        heads, tails = (jnp.sum(inside & (batch.actions == side)) for side in (1, 0))
        return heads * expected["share"].successes + tails * expected["share"].failures

    def likelihood(self, parameters, batch):
        share = parameters["share"]
        inside = jnp.arange(batch.actions.shape[1]) < batch.lengths[:, None]
        toss = dist.CategoricalProbs(jnp.stack([1 - share, share]))
        return toss.expand(inside.shape).mask(inside).to_event(1)


@model_object
class Misspelt(Coin):
    label_dim = ("side",)


@model_object
class WrongGradient(Coin):
    def log_normalizer(self, expected, batch):
        tails = expected["share"]._replace(successes=0.0)
        kept = super().log_normalizer({"share": tails}, batch)
        return super().log_normalizer(expected, batch) - kept + jax.lax.stop_gradient(kept)


@model_object
class CountsPadding(Coin):
    def log_normalizer(self, expected, batch):
        return super().log_normalizer(expected, batch._replace(lengths=jnp.full_like(batch.lengths, 99)))


@model_object
class CountsEmpty(Coin):
    def log_normalizer(self, expected, batch):
        return super().log_normalizer(expected, batch) - len(batch.lengths)


@model_object
class Swapped(Coin):
    def likelihood(self, parameters, batch):
        return super().likelihood({"share": 1 - parameters["share"]}, batch)


@model_object
class OtherShape(Coin):
    """The distribution of one action, where the data have rows of them."""

    def likelihood(self, parameters, batch):
        return dist.Bernoulli(parameters["share"]).expand(batch.lengths.shape)


@model_object
class Unnormalised(Coin):
    """Both hooks leave the same constant out, which only enumeration finds."""

    def log_normalizer(self, expected, batch):
        return super().log_normalizer(expected, batch) + jnp.log(2.0) * jnp.sum(batch.lengths)

    def likelihood(self, parameters, batch):
        share = parameters["share"]
        inside = jnp.arange(batch.actions.shape[1]) < batch.lengths[:, None]

        class Twice(dist.CategoricalProbs):
            def log_prob(self, value):
                return super().log_prob(value) + jnp.log(2.0)

        return Twice(jnp.stack([1 - share, share])).expand(inside.shape).mask(inside).to_event(1)


@model_object
class Overshoots(Coin):
    def update(self, blocks, prior, statistics, scale, step_size):
        return super().update(
            blocks, prior, statistics, 4 * scale / (1 + blocks["share"].natural[0]), step_size
        )


@model_object
class Undimensioned(Coin):
    def site_dims(self):
        return {"share": ("side",)}


@model_object
class Infinite(Coin):
    def log_normalizer(self, expected, batch):
        return super().log_normalizer(expected, batch) / jnp.zeros(())


@pytest.mark.slow
def test_a_model_without_faults_passes():
    """As `RoleHMM` does in its docstring, and the models of `examples` in their tests."""
    check_model(AgentMarkov(2, 2, truncation=2), ACTIONS._replace(states=ACTIONS.actions))


def test_misspelt_hooks_are_found_on_models_and_their_parts():
    assert [*misspelt(Misspelt())] == ["Misspelt.label_dim looks like a misspelling of the hook label_dims"]
    assert [*misspelt(Coin(), Habit(3), *RoleHMM(2, GaussianEmission(1)).prior().values())] == []

    class Wrong(GaussianEmission):
        chain_weight: Any = 0

    assert "looks like a misspelling of the hook chain_weights" in "".join(misspelt(Wrong(1)))


@pytest.mark.slow
def test_a_model_that_is_no_model_object_is_named():
    class Plain(Coin):
        pass

    with pytest.raises(AssertionError, match=r"^Plain is no pytree: decorate its class with model_object$"):
        check_model(Plain(), ACTIONS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Misspelt(), "spelling: Misspelt.label_dim looks like a misspelling of the hook label_dims"),
        (WrongGradient(), r"log_normalizer or e_step: its slope by expected\['share'\] is"),
        (CountsPadding(), "arrange or log_normalizer: is .*, with other values beyond the lengths"),
        (CountsEmpty(), "arrange or log_normalizer: is .*, with empty sequences"),
        (Swapped(), "likelihood: is .*, and the log normaliser at the same parameters"),
        (OtherShape(), r"likelihood: has shape \(2,\), but data.actions has \(2, 4\)"),
        (Unnormalised(), "likelihood: probabilities of all values of the shortest sequence sum to 4"),
        (Overshoots(), "save: the ELBO falls by"),
        (Undimensioned(), r"save: raises ValueError: dims\['share'\]"),
        (Infinite(), "log_normalizer or e_step: is -inf at parameters"),
        (Coin(object()), "save: raises TypeError: object cannot be saved"),
    ],
)
def test_planted_faults_are_named(model, message, monkeypatch):
    """By the check of that hook, the only one that runs: each compiles programs of its own."""
    hook = message.partition(":")[0]
    named = {hooks: check for hooks, check in testing.CHECKS.items() if hooks.endswith(hook)}
    monkeypatch.setattr(testing, "CHECKS", named)
    with pytest.raises(AssertionError, match=message):
        check_model(model, ACTIONS)
