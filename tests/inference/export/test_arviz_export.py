"""What ArviZ is given, against enumeration and forward recursions in NumPy; both generations of ArviZ."""

from __future__ import annotations

import dataclasses
import itertools

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from numpyro.infer import MCMC, NUTS
from numpyro.infer.svi import SVIRunResult
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from ethogram.inference.conjugate.conjugate_svi import ConjugateResult
from ethogram.inference.conjugate.posterior import ConjugatePosterior
from ethogram.inference.export.arviz_export import to_arviz
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.data.xarray_dataset import read_metadata
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families.exponential_family import Dirichlet, NormalInverseWishart
from ethogram.models.roles.role_hmm import RoleHMM

# ArviZ says so of a single influential sequence; that is its business, here the numbers are looked at.
# ArviZ 0.23 calls pandas in a way that pandas 3 will drop.
inplace = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.sort_values")
pareto = pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")

METADATA = Metadata(
    feature_names=["x", "y"],
    feature_units=["m", "m"],
    time_unit="s",
    frame_rate=25.0,
    agent_names=["left", "right"],
    group_names=["first", "second", "third", "fourth", "fifth", "sixth"],
    name="two places",
)
TRUTH = {
    "initial": np.array([0.5, 0.5]),
    "transition": np.array([[0.8, 0.2], [0.3, 0.7]]),
    "mean": np.array([[0.0, 0.0], [4.0, 2.0]]),
    "covariance": np.stack([np.eye(2), 0.5 * np.eye(2)]),
}


def observations_of(rng, parameters, num_sequences, num_steps):
    """Draws of a hidden Markov chain (sequence, time, feature)."""
    num_states, num_features = parameters["mean"].shape
    x = np.zeros((num_sequences, num_steps, num_features), np.float32)
    for n in range(num_sequences):
        state = rng.choice(num_states, p=parameters["initial"])
        for t in range(num_steps):
            x[n, t] = rng.multivariate_normal(parameters["mean"][state], parameters["covariance"][state])
            state = rng.choice(num_states, p=parameters["transition"][state])
    return x


class Stored:
    """A guide of which the draws are known."""

    def __init__(self, **draws):
        self.draws = {name: np.asarray(draw) for name, draw in draws.items()}

    def sample_posterior(self, key, params, *args, sample_shape=()):
        return self.draws


STORED = SVIRunResult(params={}, state=None, losses=jnp.array([5.0, 4.0, 3.0]))


@pytest.fixture(scope="module")
def model() -> RoleHMM:
    return RoleHMM(2, GaussianEmission(2, dof=5.0, scale=1.0), sticky=1.0)


@pytest.fixture(scope="module")
def data() -> Trajectories:
    x = observations_of(np.random.default_rng(1), TRUTH, 12, 12)
    lengths = np.repeat(np.array([12, 9, 12, 10, 12, 7], np.int32), 2)
    observed = np.arange(12) < lengths[:, None]
    x[~observed] = 0
    observed[3, 2:5] = False
    x[3, 2:5] = np.nan
    agent, group = np.tile(np.arange(2, dtype=np.int32), 6), np.repeat(np.arange(6, dtype=np.int32), 2)
    return Trajectories(x, None, None, lengths, observed, agent, group, metadata=METADATA)


@pytest.fixture(scope="module")
def fit(model):
    """What a fit to much data might have left."""
    gaussian = NormalInverseWishart.from_standard(
        TRUTH["mean"], np.full(2, 60.0), np.full(2, 63.0), 60 * TRUTH["covariance"], origin=np.zeros(2)
    )
    blocks = {
        "initial": Dirichlet.from_standard(20 * TRUTH["initial"]),
        "transition": Dirichlet.from_standard(60 * TRUTH["transition"]),
        "mean_covariance": dataclasses.replace(gaussian, origin=np.zeros((2, 2))),
    }
    elbo, restarts = np.array([-500.0, -410.0, -400.0]), np.array([-400.0, -405.0])
    return ConjugateResult(
        ConjugatePosterior(model, blocks),
        elbo,
        restarts,
        True,
        30,
        jax.random.key(0),
        np.array([0, 15, 30]),
        restarts[:, None],
    )


@pytest.fixture(scope="module")
def tree(fit, data):
    return to_arviz(fit, data, num_draws=150, log_likelihood="sequence", posterior_predictive=True)


@pytest.fixture(scope="module")
def by_step(fit, data):
    return to_arviz(fit, data, num_draws=150, log_likelihood="step")


def increments(parameters, x, observed):
    """Forward recursion of one sequence in float64: log p(y_t given y_<t)."""
    parts = {name: np.asarray(value, float) for name, value in parameters.items()}
    log_predicted, result = np.log(parts["initial"]), []
    for frame, seen in zip(np.asarray(x, float), observed, strict=True):
        pairs = zip(parts["mean"], parts["covariance"], strict=True)
        score = [multivariate_normal.logpdf(frame, *pair) if seen else 0.0 for pair in pairs]
        joint = log_predicted + score
        result.append(logsumexp(joint))
        log_predicted = logsumexp(joint[:, None] - result[-1] + np.log(parts["transition"]), axis=0)
    return np.array(result)


def one_draw(tree, chain, draw):
    return {name: site[chain, draw].values for name, site in tree["posterior"].data_vars.items()}


def test_the_object_is_the_one_that_the_installed_arviz_speaks(tree):
    expected = az.InferenceData if az.__version__.startswith("0.") else xarray.DataTree
    assert isinstance(tree, expected)


def test_log_likelihood_is_the_forward_recursion_of_every_draw_and_sequence(tree, data):
    scores = tree["log_likelihood"]["observations"]
    assert scores.dims == ("chain", "draw", "sequence") and scores.shape == (1, 150, 12)
    for draw in (0, 77, 149):
        parameters = one_draw(tree, 0, draw)
        for sequence, length in enumerate(data.lengths):
            steps = increments(
                parameters, data.observations[sequence, :length], data.observed[sequence, :length]
            )
            assert float(scores[0, draw, sequence]) == pytest.approx(steps.sum(), rel=1e-4)


def test_steps_stand_where_something_was_observed_and_add_up_to_the_sequence(tree, by_step, data):
    steps = by_step["log_likelihood"]["observations"]
    assert steps.dims == ("chain", "draw", "observation") and np.isfinite(steps.values).all()
    where = np.stack([steps["sequence"].values, steps["time"].values])
    assert (where == np.nonzero(data.observed)).all()
    summed = np.stack([steps.values[..., where[0] == n].sum(-1) for n in range(12)], -1)
    np.testing.assert_allclose(summed, tree["log_likelihood"]["observations"].values, rtol=1e-4)
    expected = increments(one_draw(tree, 0, 5), data.observations[3, :9], data.observed[3, :9])
    np.testing.assert_allclose(
        steps.values[0, 5, where[0] == 3], expected[data.observed[3, :9]], rtol=1e-3, atol=1e-4
    )


def test_axes_have_names_and_coordinates(tree):
    posterior = tree["posterior"]
    named = {name: site.dims[2:] for name, site in posterior.data_vars.items()}
    assert named == {
        "initial": ("state",),
        "transition": ("state", "next_state"),
        "mean": ("state", "feature"),
        "covariance": ("state", "feature", "next_feature"),
    }
    assert posterior["mean"].coords["feature"].values.tolist() == ["x", "y"]
    assert posterior["covariance"].coords["next_feature"].values.tolist() == ["x", "y"]
    assert posterior["transition"].coords["next_state"].values.tolist() == [0, 1]
    agents = tree["log_likelihood"]["observations"].coords["agent"].values.tolist()
    assert agents == ["left", "right"] * 6


def test_fit_statistics_hold_the_bound(tree, fit):
    stats = tree["fit_stats"]
    np.testing.assert_array_equal(stats["elbo"].values, fit.elbo)
    np.testing.assert_array_equal(stats["elbo"].coords["step"].values, fit.evaluated)
    assert stats["restart_elbos"].shape == (2,)
    assert tree.attrs["converged"] == fit.converged
    assert (
        tree.posterior.attrs["draws_from"] == "variational approximation"
        and "held-out" in tree.attrs["caution"]
    )


def test_data_and_metadata_come_back(tree, data):
    observed, constant = (tree[group] for group in ("observed_data", "constant_data"))
    observed, constant = (getattr(group, "to_dataset", lambda g=group: g)() for group in (observed, constant))
    assert read_metadata(observed) == METADATA
    back = Trajectories.from_xarray(observed.merge(constant, compat="equals", join="exact"))
    assert back.metadata == METADATA
    for name in ("observations", "lengths", "observed", "agent", "group"):
        np.testing.assert_array_equal(getattr(back, name), getattr(data, name))
    assert {name: tree.attrs[name] for name in ("name", "time_unit", "frame_rate")} == {
        "name": "two places", "time_unit": "s", "frame_rate": 25.0,
    }  # fmt: skip


def test_new_data_have_the_shape_of_the_data_and_the_moments_of_the_model(tree, data):
    new = tree["posterior_predictive"]["observations"]
    assert new.dims == ("chain", "draw", "sequence", "time", "feature")
    inside = np.arange(12) < data.lengths[:, None]
    assert (new.values[:, :, ~inside] == 0).all()
    drawn = new.values[0][:, inside].reshape(-1, 2)
    np.testing.assert_allclose(drawn.mean(0), data.observations[data.observed].mean(0), atol=0.3)
    np.testing.assert_allclose(drawn.std(0), data.observations[data.observed].std(0), rtol=0.15)


@inplace
@pareto
def test_summary_loo_and_compare_run(tree, by_step, fit, data):
    assert len(az.summary(tree)) == 2 + 4 + 4 + 8
    for result, count in ((tree, 12), (by_step, int(data.observed.sum()))):
        loo = az.loo(result, pointwise=True)
        assert np.isfinite(loo.pareto_k.values).all() and loo.pareto_k.size == count
        elpd = float(getattr(loo, "elpd_loo", np.nan) if hasattr(loo, "elpd_loo") else loo.elpd)
        assert elpd < float(result["log_likelihood"]["observations"].mean(("chain", "draw")).sum())
    rng = np.random.default_rng(12)
    wrong = {name: np.stack([value] * 150) for name, value in TRUTH.items()}
    wrong["mean"] = wrong["mean"] + 1 + 0.02 * rng.normal(size=wrong["mean"].shape)
    other = to_arviz(
        STORED, data, model=fit.posterior.model, guide=Stored(**wrong), log_likelihood="sequence"
    )
    np.testing.assert_array_equal(other["fit_stats"]["elbo"].values, [-5, -4, -3])
    table = az.compare({"wrong": other, "fit": tree})
    assert list(table.index) == ["fit", "wrong"]


def test_netcdf_gives_the_same_back(tree, tmp_path):
    path = str(tmp_path / "fit.nc")
    tree.to_netcdf(path, engine="h5netcdf")
    back = az.from_netcdf(path, engine="h5netcdf")
    for group in (
        "posterior", "log_likelihood", "observed_data", "constant_data", "posterior_predictive", "fit_stats",
    ):  # fmt: skip
        for name, variable in tree[group].data_vars.items():
            assert back[group][name].dims == variable.dims
            np.testing.assert_array_equal(back[group][name].values, variable.values)
    assert back.attrs == tree.attrs and back.attrs["name"] == "two places"
    observed = xarray.load_dataset(path, group="observed_data", engine="h5netcdf")
    assert read_metadata(observed) == METADATA


def test_alignment_recovers_permuted_labels_exactly():
    model = RoleHMM(3, GaussianEmission(1, dof=4.0, scale=1.0))
    rng = np.random.default_rng(4)
    weights = rng.uniform(1.0, 2.0, (20, 4, 3))
    weights /= weights.sum(-1, keepdims=True)
    truth = {
        "initial": weights[:, 0],
        "transition": weights[:, 1:],
        "mean": np.array([[0.0], [3.0], [6.0]]) + 0.1 * rng.normal(size=(20, 3, 1)),
        "covariance": rng.uniform(0.8, 1.2, (20, 3, 1, 1)),
    }
    reference = {name: value[0] for name, value in truth.items()}
    truth = {name: value.astype(np.float32) for name, value in truth.items()}
    data = Trajectories.from_list(observations_of(rng, reference, 4, 15))
    by_draw = np.stack([rng.permutation(3) for _ in range(20)])
    by_chain = np.repeat([[0, 1, 2], [1, 2, 0]], 10, axis=0)
    rows = np.arange(20)[:, None]
    for orders in (by_draw, by_chain):
        mixed = {name: value[rows, orders] for name, value in truth.items()}
        mixed["transition"] = mixed["transition"][rows[:, None], np.arange(3)[:, None], orders[:, None]]
        sampler = MCMC(NUTS(model), num_warmup=1, num_samples=1)  # of two chains, as a run leaves it
        sampler._states = sampler._last_state = {
            "z": {name: x.reshape(2, 10, *x.shape[1:]) for name, x in mixed.items()}
        }
        tree = to_arviz(sampler, data, align=reference)
        for name, value in truth.items():
            np.testing.assert_array_equal(tree["posterior"][name].values.reshape(value.shape), value)
        by_default, as_drawn = to_arviz(sampler, data), to_arviz(sampler, data, align=False)
        for name in ("mean", "covariance"):  # in the order of the last draw of the first chain
            one = truth[name][:, orders[9]]
            np.testing.assert_array_equal(by_default["posterior"][name].values.reshape(one.shape), one)
            np.testing.assert_array_equal(as_drawn["posterior"][name].values.reshape(one.shape), mixed[name])
    r_hat = [
        np.sort(az.summary(each)["r_hat"]) for each in (tree, by_default, as_drawn)
    ]  # of permuted chains
    np.testing.assert_array_equal(r_hat[0], r_hat[1])
    assert r_hat[2].max() > 1.5 > r_hat[0].max()
    with pytest.warns(UserWarning, match="labels of states may differ from chain to chain"):
        to_arviz(sampler)


@pytest.mark.slow
def test_exclusive_roles_have_one_entry_a_group():
    model = RoleHMM(3, GaussianEmission(1, dof=4.0, scale=1.0), exclusive="per_sequence")
    rng = np.random.default_rng(11)
    draws = {"mean": rng.normal(0, 3, (4, 3, 1)), "covariance": rng.uniform(0.5, 2.0, (4, 3, 1, 1))}
    lengths = np.array([5, 3, 4])
    group = np.array([12, 10, 11, 11, 12, 10], np.int32)
    data = Trajectories.from_list(
        [rng.normal(0, 3, (lengths[number - 10], 1)) for number in group],
        group=group,
        agent=[0, 0, 1, 0, 1, 1],
    )
    parameters = {name: draw[0] for name, draw in draws.items()}
    tree = to_arviz(
        STORED,
        data,
        model=model,
        guide=Stored(**draws),
        align=parameters,
        log_likelihood="sequence",
        posterior_predictive=True,
    )
    scores = tree["log_likelihood"]["observations"]
    assert scores.dims == ("chain", "draw", "group") and scores.coords["group"].values.tolist() == [
        10,
        11,
        12,
    ]
    for draw in range(4):
        parameters = one_draw(tree, 0, draw)
        assert set(parameters) == {"mean", "covariance"}
        for column, group in enumerate((10, 11, 12)):
            x = data.observations[data.group == group, : lengths[column]]
            each = [
                [multivariate_normal.logpdf(agent[:, 0], m, c).sum()
                 for m, c in zip(parameters["mean"][:, 0], parameters["covariance"][:, 0, 0], strict=True)]
                for agent in np.asarray(x, float)
            ]  # fmt: skip
            maps = [each[0][i] + each[1][j] for i, j in itertools.permutations(range(3), 2)]
            assert float(scores[0, draw, column]) == pytest.approx(logsumexp(maps) - np.log(6), rel=1e-4)
    new = tree["posterior_predictive"]["observations"].values
    inside = np.arange(5) < data.lengths[:, None]
    assert (new[:, :, ~inside] == 0).all() and (new[:, :, inside] != 0).all()
    with pytest.raises(ValueError, match="needs a latent chain"):
        to_arviz(STORED, data, model=model, guide=Stored(**draws), log_likelihood="step")


def test_without_data_there_are_draws_only(fit):
    tree = to_arviz(fit, num_draws=150)
    groups = (
        [name.strip("/") for name in tree.groups if name != "/"]
        if not callable(tree.groups)
        else tree.groups()
    )
    assert sorted(groups) == ["fit_stats", "posterior"]


def test_the_same_draws_however_they_are_cut_into_chunks(fit, data, tree, monkeypatch):
    monkeypatch.setattr("ethogram.inference.export.pointwise.BUDGET", 12 * 12 * 2 * 2 * 40)
    again = to_arviz(fit, data, num_draws=150, log_likelihood="sequence")
    expected = tree["log_likelihood"]["observations"].values
    np.testing.assert_allclose(again["log_likelihood"]["observations"].values, expected, rtol=1e-5)


def test_bad_arguments_are_named(fit, data, model):
    def refuse(error, match, result=fit, given=data, **options):
        with pytest.raises(error, match=match):
            to_arviz(result, given, **options)

    refuse(TypeError, "result is dict: give a ConjugateResult", {})
    refuse(ValueError, "result is an MCMC that has not run", MCMC(NUTS(model), num_warmup=1, num_samples=1))
    refuse(ValueError, "model, guide is missing", STORED)
    refuse(ValueError, "data is missing", STORED, None, model=model, guide=Stored())
    refuse(
        ValueError, "log_likelihood must be 'sequence', 'step' or None, not 'frame'", log_likelihood="frame"
    )
    refuse(ValueError, "num_draws must be at least 1, not 0", num_draws=0)
    refuse(ValueError, 'log_likelihood="step" needs data', given=None, log_likelihood="step")
    refuse(ValueError, "align needs data", given=None, align=fit)
    refuse(TypeError, "align is int", align=3, num_draws=150)
    refuse(ValueError, "align has no site covariance", align={"mean": 0}, num_draws=150)
    wrong = {**fit.posterior.mean(), "mean": np.zeros((3, 2))}
    refuse(ValueError, r"align\['mean'\] has shape \(3, 2\)", align=wrong, num_draws=150)
    infinite = {**fit.posterior.mean(), "mean": np.full((2, 2), np.inf)}
    refuse(ValueError, r"align\['mean'\] is not finite", align=infinite, num_draws=150)
    refuse(
        ValueError, r"dims\['mean'\] is \('state',\): give 2 names", dims={"mean": ["state"]}, num_draws=150
    )
    refuse(ValueError, "no two alike", dims={"mean": ["state", "state"]}, num_draws=150)
    refuse(ValueError, r"coords\['state'\] has 3 entries", coords={"state": range(3)}, num_draws=150)
    refuse(TypeError, "key must be one typed key", key=jnp.zeros(2, jnp.uint32))


def groups_of(tree):
    return set(tree.groups()) if callable(tree.groups) else {name.strip("/") for name in tree.groups} - {""}


def test_nothing_is_scored_or_simulated_unless_asked(fit, data, monkeypatch):
    """Any pass over the data would go through chunks of draws."""
    monkeypatch.setattr("ethogram.inference.export.pointwise.chunks_of", None)
    lean = to_arviz(fit, data, num_draws=10)
    assert groups_of(lean) == {"posterior", "fit_stats", "observed_data", "constant_data"}


def test_a_progress_bar_appears_where_it_takes_long(fit, data, monkeypatch, capsys):
    monkeypatch.setattr("ethogram.inference.export.pointwise.DELAY", 0.0)
    to_arviz(fit, data, num_draws=150, log_likelihood="sequence")
    assert "log likelihood: 100%" in capsys.readouterr().err
    to_arviz(fit, data, num_draws=150, log_likelihood="sequence", progress_bar=False)
    assert not capsys.readouterr().err


def test_an_export_compiles_nothing_for_its_draws(data, fit, compiler_events):
    """Samplers of gamma variates take seconds to compile, as long as the fit; the same key gives the same draws."""
    key = jax.random.key(2)
    first = to_arviz(fit, data, key=key, num_draws=7)
    compiler_events.clear()
    more = to_arviz(fit, data, key=key, num_draws=11)
    assert not compiler_events["backend_compile_duration"]
    assert more.posterior["transition"].shape[:2] == (1, 11)
    np.testing.assert_allclose(more.posterior["transition"].sum("next_state"), 1, rtol=1e-6)
    again = to_arviz(fit, data, key=key, num_draws=7)
    np.testing.assert_array_equal(first.posterior["transition"], again.posterior["transition"])
