"""Fits of every system, of posteriors made here: the same key, scores against sums of their own, files, pictures."""

from __future__ import annotations

import dataclasses
import io
from types import SimpleNamespace

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal

import ethogram
from ethogram import fits
from ethogram.fits import estimates
from ethogram.fits.figures import draw_roles
from ethogram.fits.fit_object import Fit
from ethogram.fits.new_data import by_group, require_alike
from ethogram.fits.systems import _draw_own
from ethogram.inference import storage
from ethogram.inference.conjugate import (
    ConjugatePosterior,
    ConjugateResult,
    heldout_log_likelihood,
)
from ethogram.inference.export import to_arviz
from ethogram.inference.rewards import RewardPosterior
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data import Metadata

QUIET = {"progress_bar": False}
KEY = jax.random.key(0)


def of_prior(model, data):
    """A fit whose posterior is the prior."""
    posterior = ConjugatePosterior(model.bind(data), model.bind(data).prior())
    trace = np.array([-2.0, -1.0])
    result = ConjugateResult(posterior, trace, trace[1:], True, 2, KEY, np.arange(2), trace[None])
    return Fit(model, data, "cavi", "", result, 1.0, KEY)


def test_a_population_comes_before_its_subjects(people):
    """Rows, and draws of comparisons, in one order under one name."""
    table, features, sites = people.summary(), ("speed", "its square"), people.result.sites
    population = [f"{site}[{feature}]" for site in ("v_loc", "kappa") for feature in features]
    assert list(table.index) == [*population, *(f"v[{who}, {each}]" for who in range(4) for each in features)]
    wanted = [sites[name][..., number].mean() for name in ("loc", "kappa") for number in range(2)]
    np.testing.assert_allclose(table["mean"].iloc[:5], [*wanted, sites["theta"][:, :, 0, 0].mean()])
    names, values = people._entries()
    assert names == list(table.index)
    np.testing.assert_allclose(values[..., 3], sites["kappa"][..., 1])


def test_auto_says_why_and_the_same_key_gives_the_same_fit(roles, role_data):
    assert roles.method == "cavi" and "coordinate ascent" in roles.method_reason
    again = fits.fit(jax.random.key(1), *role_data, num_steps=40, restarts=2, **QUIET)
    np.testing.assert_array_equal(again.result.elbo, roles.result.elbo)
    np.testing.assert_array_equal(again.score().entries, roles.score().entries)


def test_states_and_forecasts_of_roles(roles, role_data):
    found, data = roles.states(), role_data[1]
    np.testing.assert_array_equal(
        found.path, ethogram.infer_roles(roles.result, data).path
    )  # those of the posterior
    ahead = roles.predict(steps=3, num_draws=20)
    assert ahead.observations.shape == (20, 6, 3, 2) and ahead.probability.shape == (6, 3, 2)
    np.testing.assert_allclose(ahead.probability.sum(-1), 1, atol=1e-5)


def test_names_of_roles_go_to_tables_exports_and_files(roles, role_data, tmp_path):
    named = roles.rename({1: "walk"})
    assert roles.state_names == ("0", "1") and named.state_names == ("0", "walk")
    assert "transition[walk, 0]" in named.summary().index
    tree = named.to_arviz(num_draws=5)
    assert (
        tree.posterior["state"].values.tolist()
        == tree.posterior["next_state"].values.tolist()
        == ["0", "walk"]
    )
    named.save(tmp_path / "fit")
    again = fits.load(tmp_path / "fit").rename({"walk": "run", 0: "rest"})
    assert set(again.states().to_table()["state"]) == {"rest", "run"}
    budget = again.time_budget(num_draws=20)
    again.sample_paths(20)[:] = -9  # a copy: what is sampled once serves all tables
    assert again.sample_paths(20).max() >= 0
    probability = again.states().probability.sum((0, 1))
    expected = probability / probability.sum()
    assert budget["mean"].tolist() == pytest.approx(expected.tolist(), abs=0.05)
    assert len(again.bouts()) and again.transitions(num_draws=5).shape[0] == 2


def test_models_without_hidden_states_have_no_names(choices):
    assert choices.state_names == ()
    for ask in (lambda: choices.rename({0: "a"}), choices.sample_paths, choices.time_budget, choices.bouts):
        with pytest.raises(TypeError, match="NoisyMDP has no hidden states"):
            ask()
    with pytest.raises(TypeError, match="a figure of a NoisyMDP takes no window"):
        choices.plot(window=(0, 1))


def test_states_of_a_model_of_ones_own_are_drawn_beside_its_estimates():
    data, path = ethogram.Trajectories.from_list(np.zeros((2, 5, 1))), np.array([[0, 0, 1, 1, 1]] * 2)
    fit = SimpleNamespace(model=None, data=data, state_names=("calm", "hungry"))
    fit.states = lambda: SimpleNamespace(path=path, probability=np.eye(2)[path])
    fit._entries = lambda: (["feeding[calm]", "feeding[hungry]"], np.random.default_rng(0).random((1, 9, 2)))
    figure = Figure()
    _draw_own(fit, figure, window=(0, 3))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "means and 90 % intervals" and titles[1].startswith("most probable states")
    assert {"calm", "hungry"} <= {text.get_text() for text in figure.axes[1].get_legend().get_texts()}
    fit.state_names = ()
    with pytest.raises(TypeError, match="without hidden states takes no window"):
        _draw_own(fit, Figure(), window=(0, 3))


def test_what_stands_beside_the_timelines_of_roles(role_data):
    """Ellipses of Gaussians; densities of features where there are none, as of mixtures; the ELBO where neither is."""
    data, path = role_data[1], np.zeros((6, role_data[1].observed.shape[1]), int)
    states = SimpleNamespace(path=path, probability=np.full((*path.shape, 2), 0.5))

    def titles(emission, size=(11, 5)):
        fit, figure = of_prior(ethogram.RoleHMM(2, emission), data), Figure(figsize=size)
        found = {
            "data": data,
            "result": fit.result,
            "states": lambda: states,
            "state_names": ("rest", "walk"),
        }
        draw_roles(SimpleNamespace(model=fit.model, **found), figure)
        assert [text.get_text() for text in figure.axes[-1].get_legend().get_texts()] == ["rest"]
        return [axes.get_title().split(";")[0] for axes in figure.axes]

    shown = "most probable roles"
    assert titles(ethogram.GaussianEmission(2)) == ["mean, covariance and draws", shown]
    for size, first in (((11, 5), ["by role", ""]), ((4, 5), ["by role"])):
        assert titles(ethogram.GaussianMixtureEmission(2, 2), size) == [*first, shown]
    assert titles(ethogram.AutoregressiveGaussianEmission(2)) == ["ELBO of the restarts", shown]


def test_a_score_is_the_log_of_the_mean_density(roles, role_data, role_tracks):
    """By the forward algorithm for each draw, of new data too; near the plug-in score where the posterior is narrow."""
    sites = roles.to_arviz(num_draws=100).posterior.data_vars
    draws = {name: np.asarray(site)[0] for name, site in sites.items()}

    def of_draw(initial, transition, mean, covariance, rows):
        density = [multivariate_normal(*each).pdf(rows) for each in zip(mean, covariance, strict=True)]
        forward, total = initial, 0.0
        for step in np.moveaxis(density, (0, 2), (2, 0)):
            joint = forward * step
            total += np.log(joint.sum(-1))
            forward = joint / joint.sum(-1, keepdims=True) @ transition
        return total

    for data in (role_data[1], role_tracks.take(range(6, 12))):
        rows = np.asarray(data.observations)
        each = [
            of_draw(*(draws[name][i] for name in ("initial", "transition", "mean", "covariance")), rows)
            for i in range(100)
        ]
        found = roles.score(data, num_draws=100)
        assert found.entries.shape == (6,) and found.unit == "step"
        np.testing.assert_allclose(found.entries, logsumexp(each, axis=0) - np.log(100), rtol=1e-4)
        assert found.mean == pytest.approx(found.total / 96)
        gaps = found.entries - found.mean * 16
        assert found.se == pytest.approx(gaps.std(ddof=1) * np.sqrt(6) / 96)
    assert found.mean == pytest.approx(heldout_log_likelihood(roles.result, data), abs=0.1)
    blind = data._replace(observed=np.asarray(data.observed) & (np.arange(6) != 2)[:, None])
    without, alone = roles.score(blind, num_draws=100), np.arange(6) != 2
    np.testing.assert_allclose(
        without.entries, found.entries[alone], rtol=1e-6
    )  # nothing was observed of one
    gaps = found.entries[alone] - without.mean * 16
    assert without.counts.tolist() == [16] * 5
    assert without.se == pytest.approx(gaps.std(ddof=1) * np.sqrt(5) / 80)


def test_new_data_of_another_kind_or_vocabulary_are_refused(roles, role_data, choices, decisions):
    data = role_data[1]
    named = [data._replace(metadata=Metadata(feature_names=names)) for names in (["x", "y"], ["y", "x"])]
    fitted = Fit(roles.model, named[0], "cavi", "", roles.result, 1.0, jax.random.key(0))
    assert fitted.score(named[0]).total == pytest.approx(roles.score().total, abs=1.0)
    for ask in (fitted.score, fitted.states, fitted.predict):
        with pytest.raises(ValueError, match=r"feature_names\[0\] is 'y', and that of the fit is 'x'"):
            ask(named[1])
        with pytest.raises(TypeError, match="data is Decisions, and the fit is of Trajectories"):
            ask(decisions)
    with pytest.raises(TypeError, match="data is Trajectories, and the fit is of Decisions"):
        choices.predict(data)
    with pytest.raises(ValueError, match="no observed step"):
        roles.score(data._replace(observed=np.zeros_like(data.observed)))


def test_sequences_of_a_group_are_one_entry_of_a_score(role_data):
    data = role_data[1]._replace(group=np.repeat([2, 0, 1], 2))
    values, counts = np.random.default_rng(0).normal(size=(5, 6)), np.arange(6.0)
    added, total = by_group(data, values, counts)
    np.testing.assert_allclose(added, values.reshape(5, 3, 2).sum(2)[:, [1, 2, 0]])
    assert total.tolist() == [5.0, 9.0, 1.0]
    assert by_group(data, added, total)[0].shape == (5, 3)  # entries of groups stay


def test_intents_are_named_drawn_and_scored_on_new_pairs():
    """Traces of unequal length, and new ones that visit fewer states than those of the fit."""
    states, actions = [["home", "$w", "home"], ["$w", "$w"]], [["eat", "run", "eat"], ["run", "eat"]]
    data = ethogram.Trajectories.from_list(states=states, actions=actions)
    model = ethogram.AgentMarkov(2, 2, truncation=2)
    found = of_prior(model, data)
    assert {"policy[0, home, eat]", "transition[$w,run, 1, 0]"} <= set(found.summary().index)
    from matplotlib.figure import Figure

    assert len(found.plot(Figure()).axes) >= 2
    drawn = found.draws()
    sites = {**drawn.sites, "sticks": np.full((1, 1000, 2), 0.5)}  # which samplers have beside those of q
    sampled = SampledPosterior(drawn.model, sites, {})
    other = Fit(model, data, "nuts", "", sampled, 1.0, jax.random.key(7))
    assert len(ethogram.compare({"cavi": found, "nuts": other}).disagreements) == 0
    new = data.take([1, 1])
    assert found.score(new).entries[0] == pytest.approx(found.score().entries[1], abs=1e-3)
    np.testing.assert_allclose(found.predict(new)[0, :2], found.predict()[1, :2], atol=1e-4)


@pytest.mark.slow
def test_named_intents_have_paths_budgets_and_exports():
    data = ethogram.Trajectories.from_list(
        states=[["home", "$w", "home"], ["$w", "$w"]], actions=[["eat", "run", "eat"], ["run", "eat"]]
    )
    drawn = of_prior(ethogram.AgentMarkov(2, 2, truncation=2), data).draws()
    sites = {**drawn.sites, "sticks": np.full((1, 1000, 2), 0.5)}  # which samplers have beside those of q
    sampled = SampledPosterior(drawn.model, sites, {})
    other = Fit(drawn.model, data, "nuts", "", sampled, 1.0, jax.random.key(7))
    named = other.rename({1: "forage"})
    assert {"transition[$w,run, forage, 0]", "transition[$w,run, 0, others]"} <= {*named.summary().index}
    paths = named.sample_paths(5)
    assert paths.shape == (5, 2, 3) and (paths[:, 1, 2] == -1).all() and paths.max() <= 1
    paths[:] = 0  # a copy: what is sampled once serves all tables, of the fit by any names
    assert named._sample_paths(5, None) is other._sample_paths(5, None) and other.sample_paths(5).min() < 0
    assert named.states().used.size and named.time_budget()["mean"].sum() == pytest.approx(1)


def test_new_data_without_names_are_refused_where_names_are_numerals(tmp_path):
    """Such as those of a file in which no row is a word: a 1 would be taken for the second state, "2"."""
    (tmp_path / "old.csv").write_text("s,a\n1,0\nhome,1\n2,0\n")
    (tmp_path / "new.csv").write_text("s,a\n1,0\n2,1\n")
    columns = {"states": "s", "actions": "a"}
    old = ethogram.Trajectories.from_table(tmp_path / "old.csv", **columns)
    new = ethogram.Trajectories.from_table(tmp_path / "new.csv", **columns)
    for data, fitted in ((new, old), (old, new)):
        with pytest.raises(
            ValueError, match=r"metadata.state_names of (the fit|data) are numerals, such as '1' for 0"
        ):
            require_alike(data, fitted, None)
    named = ethogram.Trajectories.from_table(tmp_path / "new.csv", **columns, metadata=old.metadata)
    require_alike(named, old, None)
    assert named.states.tolist() == [[0, 1]]


def test_a_truncation_that_is_used_up_is_named():
    data = ethogram.Trajectories.from_list(states=[[0, 1, 0]], actions=[[0, 1, 0]])
    found = of_prior(ethogram.AgentMarkov(2, 2, truncation=2), data)
    assert "that the truncation offers" not in repr(found)
    posterior = found.result.posterior
    counted = {
        **posterior.blocks,
        "transition": jax.tree.map(lambda x: x + 1, posterior.blocks["transition"]),
    }
    found.result = found.result._replace(posterior=ConjugatePosterior(posterior.model, counted))
    said = "caution, number of states: All 2 intents that the truncation offers are used. Offer more."
    assert repr(found).splitlines()[1:] == [said] and repr(found.summary()).startswith(said)


def test_intents_are_predicted_and_scored_by_filtering():
    """Two steps by hand, for draws that are all the same and have no other intents."""
    data = ethogram.Trajectories.from_list(states=[["w", "w"]], actions=[["run", "eat"]])
    model = ethogram.AgentMarkov(1, 2, truncation=2, stickiness=None).bind(data)
    initial, policy = np.array([0.7, 0.3]), np.array([[0.9, 0.1], [0.4, 0.6]])
    turn = np.tile([[0.8, 0.2], [0.5, 0.5]], (2, 1, 1))  # one for each pair
    sites = {"weights": initial, "initial": initial, "transition": turn}
    sites = {name: np.pad(site, [(0, 0)] * (site.ndim - 1) + [(0, 1)]) for name, site in sites.items()}
    sites["policy"] = policy[:, None]
    sampled = SampledPosterior(
        model, {name: np.tile(x, (1, 3, *[1] * x.ndim)) for name, x in sites.items()}, {}
    )
    found = Fit(model, data, "nuts", "", sampled, 1.0, KEY)
    first, (run, eat) = initial @ policy, data.actions[0]
    belief = initial * policy[:, run] / first[run]
    second = belief @ turn[0] @ policy
    np.testing.assert_allclose(found.predict()[0], [first, second], rtol=1e-5)
    assert found.score().total == pytest.approx(np.log(first[run] * second[eat]), rel=1e-5)
    assert found.score().counts.tolist() == [2]


def test_estimates_are_moments_and_quantiles_of_the_draws(roles):
    draws = np.asarray(roles.to_arviz(num_draws=1000).posterior["mean"])[0, :, 1, 0]
    row = roles.summary(0.5).loc["mean[1, 0]"]
    wanted = [draws.mean(), draws.std(ddof=1), *np.quantile(draws, [0.25, 0.75])]
    np.testing.assert_allclose(row[["mean", "q_sd", "q_lower", "q_upper"]].astype(float), wanted)
    assert np.isnan(row["ess"])


def test_choices_are_predicted_scored_and_summarised(choices, decisions):
    table = choices.summary()
    assert list(table.columns) == ["mean", "sd", "lower", "upper", "ess", "r_hat"]
    theta = choices.draws().sites["theta"].reshape(-1)
    apart = np.asarray(decisions.features)[..., 0] @ np.array([-1.0, 1.0])
    gap = np.outer(theta, apart) / np.sqrt(2)  # each option has noise of variance 1
    log_second, log_first = log_ndtr(gap), log_ndtr(-gap)
    chosen = np.asarray(decisions.choice) == 1
    values = np.where(chosen, log_second, log_first)
    wanted = logsumexp(values, axis=0) - np.log(len(theta))
    np.testing.assert_allclose(choices.score().entries, wanted, atol=1e-4)
    np.testing.assert_allclose(choices.predict()[:, 1], np.exp(log_second).mean(0), atol=1e-4)
    with pytest.raises(TypeError, match="no hidden states"):
        choices.states()
    weighted = choices.score(decisions._replace(weight=np.arange(60) % 3))
    assert weighted.total == pytest.approx((wanted * (np.arange(60) % 3)).sum(), rel=1e-4)
    assert weighted.mean == pytest.approx(weighted.total / 60)
    wider = decisions._replace(features=np.ones((60, 2, 3), np.float32))
    for ask in (choices.score, choices.predict):
        with pytest.raises(ValueError, match="those of the fit have"):
            ask(wider)


def test_rewards_have_policies_and_scores_of_counts(rewards):
    found = rewards.predict()
    assert found.greedy.argmax(1).tolist() == [1, 1, 1]
    score = rewards.score()
    assert score.counts.tolist() == [3, 3, 3] and score.total < 0
    visited = rewards.score(
        np.array([[0, 3], [0, 0], [0, 3]])
    )  # an entry is a state in which something was done
    assert visited.counts.tolist() == [3, 3]
    np.testing.assert_allclose(visited.entries, score.entries[[0, 2]], rtol=1e-6)
    experts = ethogram.Trajectories.from_list(states=[[0], [1]], actions=[[1], [1]], subject=["Ana", "Bo"])
    assert rewards.model.site_layout(experts)[1]["expert"] == ["Ana", "Bo"]
    with pytest.raises(ValueError, match="data have 2 experts"):
        rewards.score(experts)


def test_the_linear_baseline_scores_by_its_policy(rewards):
    base = fits.fit(jax.random.key(5), rewards.model, rewards.data, "max_entropy", features=None)
    log_policy = np.log(np.asarray(base.result.policy, float))
    assert base.score().total == pytest.approx((rewards.data * log_policy).sum(), rel=1e-6)
    with pytest.raises(TypeError, match="has no draws"):
        base.draws()
    with pytest.warns(UserWarning, match="the search has not converged") as caught:
        fits.fit(KEY, rewards.model, rewards.data, "max_entropy", features=None, num_steps=1)
    assert [each.filename for each in caught] == [__file__]
    found = ethogram.compare({"gp": rewards, "linear": base})
    assert found.kind == "models" and set(found.scores.index) == {"gp", "linear"}


def test_an_answer_leaves_for_arviz_without_chains(answer):
    tree = answer.to_arviz()
    assert dict(tree.sizes) == {"method": 1, "variable": len(answer.predict())}
    assert float(tree.upper_bound[0]) >= float(tree.log_probability[0])
    assert list(answer.summary()["state"]) == list(answer.predict().values())
    with pytest.raises(TypeError, match=r"read fit\.result\.log_probability"):
        answer.score()


def test_uncertain_relevances_are_told_by_their_logarithms(rewards):
    """Of log-normal draws about 1 with a deviation of 2, whose mean as such is exp(3), within five errors."""
    model = dataclasses.replace(rewards.model, relevance_prior=dist.LogNormal(0.0, 1.0))
    nodes = 1 + 2 * stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
    means, roots = np.zeros((2000, 1, 3)), np.tile(np.eye(3), (2000, 1, 1, 1))
    posterior = RewardPosterior(model, means, roots, nodes[:, None], np.full(2000, -np.log(2000)))
    table = Fit(model, rewards.data, "natural_gradient", "", posterior, 0.0, jax.random.key(0)).summary()
    assert "relevance[0]" not in table.index and table.loc["scale", "sd"] == 0
    assert abs(table.loc["log_relevance[0]", "mean"] - 1) < 5 * 2 / np.sqrt(1000)
    assert abs(table.loc["log_relevance[0]", "sd"] / 2 - 1) < 5 / np.sqrt(2000)


@pytest.mark.parametrize("name", ["roles", "choices", "rewards", "answer"])
def test_pictures_files_and_reports(name, request, tmp_path):
    found = request.getfixturevalue(name)
    assert found.plot().axes
    found.save(tmp_path / "fit")
    again = fits.load(tmp_path / "fit")
    assert (again.method, again.seconds) == (found.method, found.seconds)
    assert again.summary().equals(found.summary())
    (tmp_path / "private.html").touch(0o600)
    (tmp_path / "report.html").symlink_to(tmp_path / "private.html")
    page = found.report(tmp_path / "report.html").read_text("utf-8")
    assert (tmp_path / "private.html").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "private.html").stat().st_size > 1000
    assert "data:image/svg+xml;base64," in page and type(found.model).__name__ in page
    assert "http" not in page.replace("https://", "", page.count("href=")) or 'src="http' not in page


def test_a_fit_is_exported_as_by_its_own_method(roles):
    own, other = roles.to_arviz(num_draws=5), to_arviz(roles, num_draws=5)
    np.testing.assert_array_equal(own.posterior["mean"], other.posterior["mean"])
    assert own.observed_data.sizes == other.observed_data.sizes


def test_names_of_the_data_are_no_formulas(roles):
    """A column called ``$x^$`` was an error of the figure; logarithmic axes have formulas of their own."""
    metadata = dataclasses.replace(roles.data.metadata, feature_names=("$x^$", "y"))
    named = Fit(roles.model, roles.data._replace(metadata=metadata), roles.method, "", roles.result, 1.0, KEY)
    figure = named.plot(Figure(layout="constrained"))
    figure.savefig(io.BytesIO(), format="svg")
    assert any("$x^$" in text.get_text() for text in figure.findobj(Text))


def test_a_file_of_something_else_is_named(roles, tmp_path):
    roles.result.posterior.save(tmp_path / "posterior")
    assert isinstance(fits.load(tmp_path / "posterior"), type(roles.result.posterior))
    with pytest.raises(FileNotFoundError):
        fits.load(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    for write in (roles.save, roles.report):
        for folder in (tmp_path / "folder", f"{tmp_path}/new/", f"{tmp_path}/folder/"):
            with pytest.raises(OSError, match=r"director|folder"):
                write(folder)
        with pytest.raises(FileNotFoundError, match="missing is no folder: make it before file is written"):
            write(tmp_path / "missing" / "file")
    storage.write(tmp_path / "part", {"fit": {"model": roles.model}})
    with pytest.raises(
        ValueError,
        match="part cannot be read: code, data, key, method, method_reason, names, result, seconds",
    ):
        fits.load(tmp_path / "part")


def test_the_one_feature_of_a_part_is_in_the_name_of_its_sites():
    def labels(site, feature, name):
        dims = {"state": ["rest"], feature: [name]}
        return estimates._labels({site: xarray.DataArray(np.zeros((1, 1)), dims, list(dims))})

    assert (
        labels("step_mean", "step_feature", "step")
        == labels("step_mean", "step_feature", 0)
        == ["step_mean[rest]"]
    )
    assert labels("pose_mean", "pose_feature", "x") == ["pose_mean[rest, x]"]


def test_means_that_a_few_draws_decide_are_infinite():
    draws = np.random.default_rng(0).normal(size=(1, 1000, 2))
    draws[..., 1] = -np.exp(20 * draws[..., 1])
    fit = SimpleNamespace(
        has_draws=True, model=None, result=None, _entries=lambda: (["fine", "heavy"], draws)
    )
    table = estimates.estimates(fit, 0.9)
    assert table.loc["heavy", ["mean", "sd"]].tolist() == [-np.inf, np.inf]
    assert np.isfinite(table.loc["heavy", ["lower", "upper"]].astype(float)).all()
    assert table["mean"]["fine"] == pytest.approx(draws[..., 0].mean())
