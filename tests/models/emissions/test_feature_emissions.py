"""Emissions whose features are independent given the state, and products of emissions, against SciPy and exact sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import ethogram
from ethogram import plots
from ethogram.inference.conjugate import ConjugatePosterior
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.emissions import (
    AutoregressiveGaussianEmission,
    BernoulliEmission,
    BinomialEmission,
    CategoricalEmission,
    GammaEmission,
    GaussianEmission,
    GaussianMixtureEmission,
    KnownCovarianceEmission,
    PoissonEmission,
    ProductEmission,
    VonMisesEmission,
)
from ethogram.models.families.exponential_family import Known, expected_statistics, natural_step, total_kl
from ethogram.models.roles import RoleHMM

NAN = float("nan")
ONE, TWO = np.array([[0.5, 2.0], [4.0, 0.3]]), np.array([[3.0, 0.7], [1.0, 9.0]])
SHARE = np.array([[0.2, 0.9], [0.5, 0.4]])
FAMILIES = {
    "poisson": (PoissonEmission, {"rate": ONE}, lambda x, p: stats.poisson.logpmf(x, p["rate"])),
    "bernoulli": (
        BernoulliEmission,
        {"probability": SHARE},
        lambda x, p: stats.bernoulli.logpmf(x, p["probability"]),
    ),
    "gamma": (
        GammaEmission,
        {"mean": ONE, "shape": TWO},
        lambda x, p: stats.gamma.logpdf(x, p["shape"], scale=p["mean"] / p["shape"]),
    ),
    "von mises": (
        VonMisesEmission,
        {"direction": ONE - 2, "concentration": TWO},
        lambda x, p: stats.vonmises.logpdf(x, p["concentration"], loc=p["direction"]),
    ),
}
FRAMES = {
    "poisson": np.array([[0.0, 3], [NAN, 1], [2, NAN]]),
    "bernoulli": np.array([[0.0, 1], [NAN, 1], [1, NAN]]),
    "gamma": np.array([[0.2, 3], [NAN, 1], [2, NAN]]),
    "von mises": np.array([[0.2, -3], [NAN, 1], [2, NAN]]),
}


def data_of(x, **metadata):
    shape = x.shape[:2]
    return Trajectories(
        x, None, None, np.full(shape[0], shape[1]), np.ones(shape, bool), metadata=Metadata(**metadata)
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_densities_are_scipys_and_missing_features_add_nothing(name):
    """At known parameters, of q and of the distribution, with finite gradients where frames are padded by 0."""
    make, parameters, density = FAMILIES[name]
    x = FRAMES[name]
    seen = ~np.isnan(x)
    each = density(np.where(seen, x, 1)[:, None], parameters)
    expected = np.where(seen[:, None], each, 0).sum(-1)
    values = tuple(parameters.values())
    emission = make(2, known=Known(values if len(values) > 1 else values[0]))
    labels = np.array([0, 1, 1])

    @jax.jit
    def found(parameters):
        statistics = expected_statistics(emission.prior(2))
        of_q, pull = jax.vjp(lambda e: emission.expected_log_likelihood(e, jnp.asarray(x)), statistics)

        def summed(parameters, x):
            return jnp.sum(emission.distribution(parameters).log_prob(x[:, None]))

        padded = jax.grad(summed)(parameters, jnp.zeros((1, 2)))
        return (
            of_q,
            pull(jnp.eye(2)[labels])[0],
            jax.value_and_grad(summed)(parameters, jnp.asarray(x)),
            padded,
        )

    of_q, pulled, (value, slope), padded = found(parameters)
    np.testing.assert_allclose(of_q, expected, rtol=1e-9)
    np.testing.assert_allclose(value, expected.sum(), rtol=1e-9)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves((slope, padded)))
    own = emission.label_statistics(np.random.default_rng(0), x, labels, 2)
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(pulled), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_a_prior_is_worth_its_observations():
    (block,) = GammaEmission(mean=0.5, shape=1.5, strength=0.5).prior(1).values()
    logs = 0.5 * (np.log(0.5) + special.digamma(1.5) - np.log(1.5))
    np.testing.assert_allclose(np.ravel(block.natural), [0.5, logs, 0.25])
    np.testing.assert_allclose(np.ravel(block.centre), 1.5)


def test_a_product_is_the_sum_of_its_parts():
    """Symbols, counts out of a number, and Gaussians with gaps, as columns of one array of floats."""
    parts = {
        "cell": CategoricalEmission(3, known=Known(np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))),
        "hits": BinomialEmission(4, known=Known(np.array([[0.2], [0.7]]))),
        "place": GaussianEmission(
            2, known=Known((np.array([[0.0, 1.0], [2.0, 2.0]]), np.stack([np.eye(2), 2 * np.eye(2)])))
        ),
    }
    emission = ProductEmission(parts)
    x = np.array([[[0, 3, 0.5, 1], [NAN, 1, 0.3, NAN], [2, NAN, NAN, 1.5]]])
    model = RoleHMM(2, emission)
    data = data_of(x)
    model.check(data)
    normal = [stats.norm(m, s) for m, s in (([0.0, 1.0], 1.0), ([2.0, 2.0], np.sqrt(2)))]
    probability = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    expected = np.zeros((3, 2))
    for t, (cell, hits, *place) in enumerate(x[0]):
        for k, p in enumerate((0.2, 0.7)):
            expected[t, k] += 0 if np.isnan(cell) else np.log(probability[k, int(cell)])
            expected[t, k] += 0 if np.isnan(hits) else stats.binom.logpmf(hits, 4, p)
            each = normal[k].logpdf(np.nan_to_num(place))
            expected[t, k] += np.where(np.isnan(place), 0, each).sum()
    sites = {"cell_probability": probability, "hits_probability": np.array([[0.2], [0.7]])}
    sites["place_mean"] = np.array([[0.0, 1.0], [2.0, 2.0]])
    sites["place_covariance"] = np.stack([np.eye(2), 2 * np.eye(2)])

    @jax.jit
    def found(prior, given, sites, x):
        of_q = emission.expected_log_likelihood(expected_statistics(prior), given)
        return of_q[0], emission.distribution(sites, data).log_prob(x)

    for each in found(emission.prior(2), model.arrange(data).observations, sites, x[0][:, None]):
        np.testing.assert_allclose(each, expected, rtol=1e-6)
    assert set(emission.site_dims) == set(sites)
    assert emission.site_dims["place_covariance"] == ("state", "place_feature", "place_next_feature")


@pytest.mark.slow
def test_roles_of_mixed_features_are_found_and_the_bound_rises():
    sites = {
        "step_mean": np.array([[0.05], [1.0]]),
        "step_shape": np.array([[1.5], [5.0]]),
        "turn_direction": np.array([[3.0], [0.0]]),
        "turn_concentration": np.array([[1.0], [4.0]]),
        "dives_rate": np.array([[4.0], [1.0]]),
        "initial": np.full(2, 0.5),
        "transition": np.array([[0.9, 0.1], [0.1, 0.9]]),
    }
    emission = ProductEmission(
        {"step": GammaEmission(), "turn": VonMisesEmission(), "dives": PoissonEmission()}
    )
    model = RoleHMM(2, emission)
    simulated = model.simulate(jax.random.key(0), 4, lengths=100, parameters=sites)
    x = simulated.data.observations.copy()
    x[:, 0, 1], x[1, 7:20, 2] = NAN, NAN
    data = simulated.data._replace(observations=x)
    model = model.bind(data)
    prior, batch = model.prior(), model.arrange(data)

    @jax.jit
    def iteration(blocks):
        score = jax.value_and_grad(lambda e: model.log_normalizer(e, batch))
        value, statistics = score(expected_statistics(blocks))
        return natural_step(blocks, prior, statistics, 1.0, 1.0), value - total_kl(blocks, prior)

    statistics = model.start_statistics(np.random.default_rng(0), "kmeans++", [batch])
    blocks, elbos = jax.jit(natural_step)(prior, prior, statistics, 1.0, 1.0), []
    for _ in range(30):
        blocks, elbo = iteration(blocks)
        elbos.append(float(elbo))
    assert (np.diff(elbos) > -1e-6).all()
    draws = ConjugatePosterior(model, blocks).draws_for_export(jax.random.key(2), 400).sites
    order = np.argsort(draws["step_mean"][0].mean(0)[:, 0])
    for name, truth in sites.items():
        if name not in ("initial", "transition"):
            drawn = draws[name][0][:, order, 0]
            away = np.abs((drawn.mean(0) - truth[:, 0] + np.pi) % (2 * np.pi) - np.pi)
            assert (away < 5 * drawn.std(0)).all(), name


@pytest.mark.parametrize(
    ("emission", "x", "message"),
    [
        (GammaEmission(), 0.0, r"\[0, 1, 0\] is not positive.*half of the smallest step"),
        (VonMisesEmission(), 90.0, "is no angle.*np.deg2rad"),
        (PoissonEmission(), 1.5, "is no count"),
        (BernoulliEmission(), 2.0, "is not 0 or 1"),
        (ProductEmission({"hits": BinomialEmission(3)}), 1.5, "lies outside total_count"),
    ],
)
def test_values_outside_the_support_are_refused(emission, x, message):
    with pytest.raises(ValueError, match=message):
        emission.read(data_of(np.array([[[1.0], [x]]])))


def test_columns_in_another_order_are_refused():
    emission = ProductEmission({"step": GammaEmission(), "turn": VonMisesEmission()})
    with pytest.raises(
        ValueError, match="feature 0 of the data is 'turn', but the emission of that column is 'step'"
    ):
        emission.read(data_of(np.ones((1, 2, 2)), feature_names=("turn", "step")))
    with pytest.raises(TypeError, match="give a dict"):
        ProductEmission([GammaEmission()])
    with pytest.raises(ValueError, match="use letters"):
        ProductEmission({"step length": GammaEmission()})


def test_shape_and_mean_of_a_gamma_prior_are_those_of_the_data():
    """Of narrow values far from zero too, which single precision is warned of."""
    rng = np.random.default_rng(0)
    data = Trajectories.from_list([rng.gamma([2.0, 400.0], [3.0, 2.5], size=(4000, 2))])
    bound = GammaEmission(2).bind(data, 1)
    np.testing.assert_allclose(bound.shape, [2.0, 400.0], rtol=0.08)
    np.testing.assert_allclose(bound.mean, [6.0, 1000.0], rtol=0.03)
    np.testing.assert_array_equal(GammaEmission(2).with_prior_of(bound).shape, bound.shape)
    narrow = Trajectories.from_list([1000 + rng.normal(size=(100, 1)).astype(np.float32)])
    with jax.enable_x64(False), pytest.warns(UserWarning, match="feature 0 varies by less than a hundredth"):
        GammaEmission().bind(narrow, 1)


def test_steps_that_are_rounding_errors_of_zero_are_named():
    """A gamma distribution of small shape has values as small, and others between these and the usual ones."""
    rng = np.random.default_rng(0)
    steps = rng.gamma(4.5, size=(200, 1))
    steps[::20] = 5e-17
    with pytest.warns(
        UserWarning, match=r"feature 0 has 10 values of 5e-17 or less beside .* rounding errors"
    ):
        GammaEmission().bind(Trajectories.from_list([steps]), 1)
    spread = Trajectories.from_list([np.ones((400, 1))])
    spread = spread._replace(
        observations=rng.gamma(0.05, size=(1, 400, 1)) + 1e-300
    )  # readers warn of outliers
    GammaEmission().bind(spread, 1)


EVERY = {
    "gaussian": GaussianEmission(1), "gamma": GammaEmission(), "von mises": VonMisesEmission(),
    "poisson": PoissonEmission(), "bernoulli": BernoulliEmission(), "binomial": BinomialEmission(4),
    "categorical": CategoricalEmission(2), "autoregressive": AutoregressiveGaussianEmission(1),
    "product": ProductEmission({"calls": PoissonEmission()}),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_whole_numbers_are_the_same_as_integers_and_as_floats(name):
    """Those of a table are floats, of which some may be missing; arrays of integers have none missing."""
    x = np.array([[1, 1, 0, 1, 0, 1, 0, 0, 1, 1]])[..., None] + (name == "gamma")
    kinds = [data_of(x.astype(kind)) for kind in (np.int32, np.uint8, float)]
    arranged = [EVERY[name].bind(data, 2).arrange(data) for data in kinds]
    for one in arranged:
        np.testing.assert_array_equal(one, arranged[-1])


def test_a_missing_whole_number_is_missing_and_minus_one_is_a_number(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("x,n\n201,1\nNA,2\n203,\n")
    data = Trajectories.from_table(path, features="x", missing="nan")
    assert data.observed.tolist() == [[True, False, True]]
    assert float(GaussianEmission(1).bind(data, 1).mean[0]) == 202
    assert float(PoissonEmission().bind(data, 1).mean[0]) == 202
    both = Trajectories.from_table(path, features=["x", "n"], missing="nan")
    np.testing.assert_array_equal(GaussianEmission(2).bind(both, 1).mean, [202, 1.5])
    assert both.complete_frames().observed.tolist() == [[True, False, False]]
    below = data_of(np.array([[[-1], [1], [3]]]))
    assert below.complete_frames().observed.all()
    assert float(GaussianEmission(1).bind(below, 1).mean[0]) == 1
    for emission in (PoissonEmission(), BernoulliEmission(), ProductEmission({"calls": PoissonEmission()})):
        with pytest.raises(
            ValueError, match=r"data.observations\[0, 0, 0\] is (no count|not 0 or 1) \(it is -1\."
        ):
            emission.read(below)


def test_marginals_are_of_what_was_recorded():
    """Bars of a histogram over counts, without those that say missing."""
    x = np.array([[0.0, 2.0], [1.0, np.nan], [3.0, 4.0], [2.0, np.nan]])
    data = Trajectories.from_list([x], missing="nan")
    model = RoleHMM(1, PoissonEmission(2)).bind(data)
    axes = plots.role_marginals(ConjugatePosterior(model, model.prior()), data, np.ones((1, 4, 1)), 1)
    assert [bar.get_height() for bar in axes.patches] == [0.5, 0.0, 0.5]
    np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), [2, 3, 4])
    with pytest.raises(ValueError, match="feature 1 is missing in every frame"):
        gone = data._replace(observations=np.where([True, False], x, np.nan)[None])
        plots.role_marginals(ConjugatePosterior(model, model.prior()), gone, np.ones((1, 4, 1)), 1)


ANGLES = Metadata(feature_names=("step", "turn"), feature_units=("km", "rad"))
STEPS = np.random.default_rng(0).gamma(2.0, size=(1, 12, 2))


@pytest.mark.parametrize(
    "emission",
    [
        GaussianEmission(2),
        GaussianEmission(2, mean=0.0, scale=1.0),
        GaussianMixtureEmission(2, 2),
        KnownCovarianceEmission(np.eye(2)),
        AutoregressiveGaussianEmission(2),
        ProductEmission({"step": GammaEmission(), "turn": GaussianEmission(1)}),
    ],
)
def test_a_gaussian_of_an_angle_is_refused_by_its_unit(emission):
    """Where a model checks its data, where it is bound to them, and in `fit`."""
    data = Trajectories.from_list(STEPS, metadata=ANGLES)
    model = RoleHMM(2, emission)
    for call in (
        lambda: model.check(data),
        lambda: model.bind(data),
        lambda: ethogram.fit(jax.random.key(0), model, data),
    ):
        with pytest.raises(
            ValueError, match=r"feature 'turn' is in 'rad', which wraps around.*VonMisesEmission"
        ):
            call()


@pytest.mark.parametrize(
    ("name", "unit", "refused"),
    [
        ("heading", "Degrees", True),
        ("heading", "\N{DEGREE SIGN}", True),
        ("latitude", "radians", True),
        ("heading", "rads", True),
        ("heading", "degs", True),
        ("longitude", "degrees", False),
        ("location_lat", "degrees", False),
        ("nose.x", "deg", False),
        ("heading", "degrees C", False),
        ("heading", "rad/s", False),
    ],
)
def test_degrees_of_a_turn_are_angles_those_of_positions_are_not(name, unit, refused):
    data = Trajectories.from_list([[[1.0], [2.0]]], metadata=Metadata((name,), (unit,)))
    if refused:
        with pytest.raises(ValueError, match="VonMisesEmission"):
            GaussianEmission(1).read(data)
    else:
        GaussianEmission(1).read(data)
    if unit == "Degrees":
        with pytest.raises(
            ValueError, match="feature 'heading' is in 'Degrees', and a VonMisesEmission takes radians"
        ):
            VonMisesEmission().read(data)


def test_parts_of_a_product_keep_the_names_of_their_features():
    emission = ProductEmission({"step": GammaEmission(), "pose": GaussianEmission(2)})
    names = emission.site_coords(["step", "x", "y"])
    assert names == {"step_feature": ["step"], "pose_feature": ["x", "y"], "pose_next_feature": ["x", "y"]}
    assert emission.site_coords(None) == {}


@pytest.mark.parametrize(
    "emission",
    [PoissonEmission(), BernoulliEmission(), BinomialEmission(3), GammaEmission(), VonMisesEmission()],
    ids=lambda emission: type(emission).__name__,
)
def test_traced_data_are_read_by_traced_emissions(emission):
    """As in NUTS; nothing is compiled."""
    x = np.ones((2, 3, 1))
    frames = jax.eval_shape(
        lambda own, x: own.read(Trajectories.from_list(list(np.ones((2, 3, 1))))._replace(observations=x)),
        emission,
        x,
    )
    assert frames.shape == x.shape
