"""Methods of every model: their settings, the algorithms that they reach, and what is refused before they compute."""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import warnings

import jax
import numpy as np
import pytest
from numpyro.infer import NUTS

import ethogram
from ethogram import fits
from ethogram.domains import diagnosis
from ethogram.fits import choice_methods, methods, systems
from ethogram.fits.fit_object import Fit
from ethogram.inference.choices import choice_expansion, px_da_chains
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.sampled_posterior import SampledPosterior

QUIET = {"progress_bar": False}
KEY = jax.random.key(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "settings"),
    [
        ("choices", "px-da", {"num_warmup": 50, "num_samples": 200, "num_chains": 2}),
        ("choices", "nuts", {"num_warmup": 50, "num_samples": 100, "num_chains": 2}),
        ("rewards", "laplace", {}),
    ],
)
def test_methods_find_what_the_posteriors_here_have(name, method, settings, request):
    """From the model and the data to a fit whose estimates have the signs of those that are made here."""
    made = request.getfixturevalue(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the draws have not converged")
        found = fits.fit(jax.random.key(2), made.model, made.data, method, **settings, **QUIET)
        names = [each for each in made.summary().index if not each.startswith("log_")]
        ours, theirs = (fit.summary().loc[names, "mean"].to_numpy() for fit in (made, found))
    assert found.method == method and type(found.result) is type(made.result)
    assert np.sign(theirs[np.argmax(abs(ours))]) == np.sign(ours[np.argmax(abs(ours))])


@pytest.mark.parametrize(
    ("name", "method", "settings", "expected"),
    [
        ("roles", "cavi", {}, {"num_steps": 1000}),
        ("roles", "svi", {"tol": 0.1}, {"num_steps": 2000, "batch_size": 1, "tol": 0.1}),
        ("roles", "refresh", {"num_steps": 7, "checkpoint": "x"}, {"num_steps": 7}),
        ("choices", "px-da", {}, {"num_warmup": 500, "num_samples": 2000, "num_chains": 4}),
        ("choices", "auto", {"num_chains": 1}, {"non_centred": ()}),
        ("people", "nuts", {}, {"settings": {"dense_mass": False}, "non_centred": ("theta",)}),
        ("people", "nuts", {"centred": True}, {"non_centred": ()}),
        ("rewards", "auto", {}, {"method": "natural_gradient"}),
        ("rewards", "laplace", {}, {"method": "laplace"}),
        ("rewards", "levine", {}, {}),
    ],
)
def test_methods_reach_their_algorithms(name, method, settings, expected, request, monkeypatch):
    """With settings of their own, which those that are given replace."""
    seen = {}

    def stopped(function):
        @functools.wraps(function)
        def stop(*given, **named):
            seen.update(named)
            raise InterruptedError

        return stop

    made = request.getfixturevalue(name)
    monkeypatch.setattr(ConjugateSVI, "run", stopped(ConjugateSVI.run))
    for module, name in (
        (methods, "run_chains"),
        (px_da_chains, "sample_px_da"),
        (ethogram.inference.rewards, "fit_reward"),
        (ethogram.inference.rewards, "levine_map"),
    ):
        monkeypatch.setattr(module, name, stopped(getattr(module, name)))
    with pytest.raises(InterruptedError):
        fits.fit(KEY, made.model, made.data, method, **settings)
    assert seen == seen | expected


def test_levines_estimate_is_shown_as_it_is(rewards):
    """It is a function of features already, and a point."""
    fit = ethogram.fit(KEY, rewards.model, rewards.data, "levine")
    table = fit.summary().filter(like="centred_reward", axis=0)
    np.testing.assert_allclose(table["mean"], fit.result.reward - fit.result.reward.mean(), atol=1e-5)
    assert (table["sd"] < 1e-5).all()
    np.testing.assert_allclose(fit.predict().mean_reward, fit.result.mean()["policy"], atol=1e-5)


def test_a_feature_that_never_differs_is_warned_of(decisions, monkeypatch):
    """Its posterior is its prior: at the start of both samplers, in the summary, and in effects of it alone."""
    features = np.concatenate([decisions.features, np.full((60, 2, 1), 1e8)], axis=-1)
    data, model = decisions._replace(features=features), ethogram.NoisyMDP(4.0, kind="features")
    said = "no option differs along it.*only the prior bounds the values along it"

    def stop(*given, **named):
        raise InterruptedError

    monkeypatch.setattr(methods, "run_chains", stop)
    monkeypatch.setattr("ethogram.inference.choices.px_da_chains._advance", stop)
    for method in ("nuts", "px-da"):
        with pytest.warns(UserWarning, match=said) as caught, pytest.raises(InterruptedError):
            fits.fit(KEY, model, data, method, **QUIET)
        assert [each.filename for each in caught] == [__file__]
    draws = {"theta": np.random.default_rng(2).normal(2.0, 0.3, size=(2, 400, 2))}
    made = Fit(model, data, "nuts", "", SampledPosterior(model, draws, {}), 1.0, KEY)
    assert "warning, features: feature 1 does not differ between the options" in repr(made.summary())
    wide = data._replace(features=np.concatenate([features, features[..., :1] ** 2], axis=-1))
    pay = functools.partial(ethogram.choices.willingness_to_pay, model)
    three = {"theta": np.random.default_rng(2).normal(-2.0, 0.3, size=(2, 400, 3))}
    with pytest.warns(UserWarning, match="the decisions say nothing of feature 1 by itself"):
        pay(three, wide, 0, 1)
    pay(three, wide, 0, 2)  # does not need what the decisions say nothing of
    pay(three, wide._replace(choice=np.full(60, -1)), 0, 1)  # a counterfactual


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        ((0,), {}, "key"),
        ((jax.random.key(0),), {"method": "magic"}, "method"),
        ((jax.random.key(0),), {"steps": 3}, "'cavi' takes no setting steps: it takes num_steps"),
    ],
)
def test_wrong_arguments_are_named(role_data, arguments, settings, words):
    with pytest.raises((TypeError, ValueError), match=words):
        fits.fit(*arguments, *role_data, **settings)


COUNTS, NUMBERS, FLAGS = ("5", True, 2.5, -1), ("5", True, float("nan"), -1), ("5", 1, None)


@pytest.mark.parametrize(
    ("method", "names", "values"),
    [
        ("cavi", "num_steps restarts", COUNTS),
        ("nuts", "num_warmup num_samples num_chains max_tree_depth", COUNTS),
        ("nuts", "step_size target_accept_prob trajectory_length", NUMBERS),
        ("nuts", "progress_bar adapt_step_size adapt_mass_matrix dense_mass find_heuristic_step_size", FLAGS),
        ("nuts", "forward_mode_differentiation regularize_mass_matrix", FLAGS),
        ("nuts", "max_tree_depth", ([5, 8], (5, 8, 3), (5, "8"))),
        ("nuts", "kinetic_fn init_strategy inverse_mass_matrix", ("5", 3, [1])),
        ("refresh", "num_steps restarts num_warmup num_draws num_chains", COUNTS),
        ("refresh", "checkpoint", (5, "missing/file")),
    ],
)
def test_wrong_values_of_settings_are_named(method, names, values, role_data):
    """Before anything is computed."""
    for name, value in itertools.product(names.split(), values):
        with pytest.raises((TypeError, ValueError), match=name):
            fits.fit(KEY, *role_data, method, **{name: value})


@pytest.mark.parametrize(
    ("settings", "function", "others"),
    [
        (methods.CAVI, ConjugateSVI.run, "self key data"),
        (methods.NUTS, NUTS, "model potential_fn num_warmup num_samples num_chains progress_bar checkpoint"),
        (methods.PXDA, ethogram.PXDA, "model num_warmup num_samples num_chains progress_bar checkpoint"),
        (methods.REFRESH, ethogram.refresh_posterior, "key fit data num_steps restarts"),
        (methods.IMITATION, ethogram.imitate, "key model_or_roles data roles"),
        (methods.REWARD, ethogram.fit_reward, "key model demonstrations method"),
        (methods.MAX_ENTROPY, ethogram.fit_max_entropy, "mdp demonstrations progress_bar"),
        (methods.QUERY, ethogram.solve_mmap, "key query method progress_bar"),
    ],
)
def test_settings_are_those_of_the_algorithms(settings, function, others):
    """What one has and the other has not is known."""
    assert {*settings} ^ {*inspect.signature(function).parameters} == {*others.split()}


def test_systems_are_found_by_the_paths_of_their_models(answer):
    for path in systems.SYSTEMS:
        package, name = path.split(".")
        layer = "inference" if name.endswith("Result") else "models"
        assert hasattr(importlib.import_module(f"ethogram.{layer}.{package}"), name)

    class Own(ethogram.RoleHMM):
        pass

    assert systems.system_of(Own(2, ethogram.GaussianEmission(1))) is systems.SYSTEMS["roles.RoleHMM"]


def test_every_model_takes_a_progress_bar(answer, rewards):
    """One mapping of settings serves a loop over models."""
    again = fits.fit(KEY, answer.model, method="mpe", time_limit=2.0, **QUIET)
    assert again.predict() is not None
    assert fits.fit(KEY, rewards.model, rewards.data, "max_entropy", **QUIET).result.converged


def test_what_is_no_model_and_missing_data_are_named(role_data):
    with pytest.raises(TypeError, match="model is int: give a RoleHMM"):
        fits.fit(jax.random.key(0), 3, role_data[1])
    with pytest.raises(TypeError, match="data is None"):
        fits.fit(jax.random.key(0), role_data[0])
    with pytest.raises(ValueError, match="num_chains must be at least 1, not 0"):
        fits.fit(jax.random.key(0), *role_data, "nuts", num_chains=0, **QUIET)
    unseen = role_data[1]._replace(observed=np.zeros_like(role_data[1].observed))
    for method in ("cavi", "nuts", "refresh"):
        with pytest.raises(ValueError, match="data have no observed frame to learn from"):
            fits.fit(jax.random.key(0), role_data[0], unseen, method)
    with pytest.raises(TypeError, match="takes no data"):
        fits.fit(jax.random.key(0), diagnosis.heating_query(), role_data[1])


def test_units_of_choices_follow_the_units_of_their_features():
    """A price in cents starts chains as the same price in hundreds of euros does; unknown choices have no part."""
    random = np.random.default_rng(1)
    features, choice = random.normal(5.0, 1.0, (60, 3, 2)), 2 * random.integers(2, size=60)
    legal = np.repeat([[True, True, True], [True, False, True]], 30, axis=0)
    model = ethogram.NoisyMDP(kind="features")

    def units(scale):
        data = ethogram.Decisions.from_list(
            features * scale, np.where(np.arange(60) < 3, -1, choice)
        )._replace(legal=legal)
        return choice_expansion.units(model.check(data))

    found = units(np.ones(2))
    np.testing.assert_allclose(units(np.array([1e4, 0.1])), found / np.array([1e4, 0.1]), rtol=1e-9)
    assert ((found > 0.1) & (found < 0.3)).all()


def test_auto_takes_laplace_of_choices_where_its_pareto_k_is_small(choices, monkeypatch):
    """And NUTS elsewhere; the reason has the k, and the call that the fit records has the method."""
    found = fits.fit(KEY, choices.model, choices.data, num_samples=500)
    k = found.result.pareto_k
    assert found.method == "laplace" and found.method_reason.endswith(f"is {k:.2f}, below 0.5")
    assert "method='laplace'" in found.code and found.result.sites["v"].shape == (1, 500, 1)
    assert found.summary().loc["v[0]", "ess"] > 100 and np.isfinite(found.score().total)

    def stop(*given, **named):
        raise InterruptedError

    monkeypatch.setattr(methods, "run_chains", stop)
    with pytest.raises(TypeError, match="'auto' takes no setting moves: it takes num_warmup"):
        fits.fit(KEY, choices.model, choices.data, moves="da")
    few = {"num_samples": 500}
    for place, name, value, settings in (
        (choice_methods, "LARGEST_K", k, few),
        (choice_methods, "LEAST_SHARE", 1.5, few),
        (choice_expansion, "MOST_STEPS", 0, few),  # Newton's method does not converge
        (choice_methods, "LARGEST_K", choice_methods.LARGEST_K, {"num_chains": 1}),
    ):
        with monkeypatch.context() as patched, pytest.raises(InterruptedError):
            patched.setattr(place, name, value)
            fits.fit(KEY, choices.model, choices.data, **settings, **QUIET)


def test_px_da_is_taken_where_it_is_fast_and_mixes(monkeypatch):
    """Of subjects; NUTS where its draws are too few, or weights make it repeat decisions."""
    random = np.random.default_rng(0)
    x, chosen, who = random.normal(size=(30, 3, 1)), random.integers(3, size=30), np.arange(30) % 3
    data = ethogram.Decisions(x, np.ones((30, 3), bool), chosen, who)
    model = ethogram.Probit(4.0, correlated=True)
    settings = {"num_warmup": 100, "num_samples": 100, "num_chains": 2, "progress_bar": False}

    def stop(*given, **named):
        raise InterruptedError

    monkeypatch.setattr(methods, "run_chains", stop)
    with monkeypatch.context() as patched:
        patched.setattr(choice_methods, "LEAST_ESS", 1)
        assert fits.fit(KEY, model, data, **settings).method == "px-da"
    monkeypatch.setattr(choice_methods, "LEAST_ESS", 1000)
    for other, more in (
        (data._replace(weight=np.full(30, 1.5)), {}),
        (data, {"dense_mass": True}),
        (data, {}),
    ):
        with pytest.raises(InterruptedError):
            fits.fit(KEY, model, other, **settings, **more)
