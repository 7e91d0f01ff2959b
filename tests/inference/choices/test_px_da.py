"""PX-DA: every expansion against posteriors by quadrature, exponents of the scale, and numpyro's kernel contract."""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC
from scipy.special import ndtr

from benchmarks.papers.noisy_mdp_variants import VariantPXDA
from ethogram.inference.choices.px_da import PXDA
from ethogram.models.choices import noisy_mdp
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

PROPER = {"scale_proper": (3.0, 2.0), "scale+translate_proper": (3.0, 2.0)}


def ragged_decisions(seed=3, count=14):
    """Sets of two to four options with two features, and choices of weights (1, -0.7)."""
    random = np.random.default_rng(seed)
    sets = [random.normal(size=(random.integers(2, 5), 2)) for _ in range(count)]
    choice = [int(np.argmax(one @ (1.0, -0.7) + random.normal(size=len(one)))) for one in sets]
    return Decisions.from_list(sets, choice)


def by_quadrature(data, kappa, centre, spread, nodes=25, width=6):
    """Posterior means and deviations of two weights on a grid, each probability by a trapezoid rule in NumPy."""
    axis = np.linspace(-width, width, nodes)
    grid = np.stack(
        np.meshgrid(*(m + s * axis for m, s in zip(centre, spread, strict=True)), indexing="ij"), -1
    )
    points = grid.reshape(-1, 2)
    x = np.linspace(-9, 9, 61)
    density = np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi) * (x[1] - x[0])
    log_posterior = -0.5 * (points**2).sum(-1) / kappa
    for features, legal, chosen in zip(data.features, data.legal, data.choice, strict=True):
        others = [j for j in np.flatnonzero(legal) if j != chosen]
        gaps = points @ (features[chosen] - features[others]).T
        product = np.ones((len(points), len(x)))
        for gap in gaps.T:
            product *= ndtr(x + gap[:, None])
        log_posterior += np.log(product @ density)
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()
    mean = weight @ points
    return mean, np.sqrt(weight @ (points - mean) ** 2)


@pytest.fixture(scope="module")
def flat_truth():
    data = ragged_decisions(count=12)
    NoisyMDP(float("inf"), "features").check(data)  # choices overlap
    rough = by_quadrature(data, np.inf, (1.0, -0.7), (1.0, 1.0))
    return data, by_quadrature(data, np.inf, *rough, nodes=51, width=10)


@pytest.fixture(scope="module")
def truth():
    data = ragged_decisions()
    rough = by_quadrature(data, 4.0, (1.0, -0.7), (1.0, 1.0))
    return data, by_quadrature(data, 4.0, *rough)


def run_of(kernel, data, seed=0, chains=16, draws=300, warmup=100, method="vectorized"):
    mcmc = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method=method,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), data, extra_fields=("z1",))
    return mcmc


def draws_of(*arguments, **settings):
    return np.asarray(run_of(*arguments, **settings).get_samples(group_by_chain=True)["v"])


@contextlib.contextmanager
def counting():
    """How often data are checked, designs built and linear programmes for the separation solved."""
    calls = Counter()

    def counted(owner, name):
        function = getattr(owner, name)

        @functools.wraps(function)
        def call(*arguments, **options):
            calls[name] += 1
            return function(*arguments, **options)

        patch.setattr(owner, name, call)

    with pytest.MonkeyPatch.context() as patch:
        counted(noisy_mdp, "check_decisions")
        counted(noisy_mdp.NoisyMDP, "design")
        counted(noisy_mdp, "find_separation")
        yield calls


@functools.cache
def run_of_variant(moves, winner, draws=300):
    """A run of 16 chains, and how often it has checked its data."""
    kernel = VariantPXDA(NoisyMDP(4.0, "features"), moves, winner, scale_prior=PROPER.get(moves))
    with counting() as calls:
        return run_of(kernel, ragged_decisions(), draws=draws), calls


def distance(draws, truth):
    """How many Monte Carlo errors the means are off, and the ratios of deviations."""
    mean, deviation = truth
    error = deviation / np.sqrt(np.array(effective_sample_size(draws)))
    return np.abs(draws.mean((0, 1)) - mean) / error, draws.std((0, 1)) / deviation


def variance_distance(draws, truth):
    """How many Monte Carlo errors the variances about the true means are off."""
    squares = (draws - truth[0]) ** 2
    return distance(squares, (truth[1] ** 2, squares.std((0, 1))))[0]


SLOW = [
    ("scale+translate", "gibbs"),
    ("scale+translate_proper", "gibbs"),
    ("local+scale", "rejection"),
    ("da", "paper"),
    ("local+scale", "mh"),
]


@pytest.mark.parametrize(
    ("moves", "winner"),
    [("local+scale", "gibbs"), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_every_variant_has_the_same_posterior(truth, moves, winner):
    """Means and variances within four of their own Monte Carlo errors: fails by chance in 1 of 4000 runs."""
    mcmc, _ = run_of_variant(moves, winner, 600 if winner == "paper" else 300)
    drawn, exact = np.asarray(mcmc.get_samples(group_by_chain=True)["v"]), truth[1]
    errors, ratio = distance(drawn, exact)
    squares = variance_distance(drawn, exact)
    assert (errors < 4).all(), errors
    assert (squares < 4).all(), squares
    np.testing.assert_allclose(ratio, 1, atol=0.1)


@pytest.mark.slow
def test_the_posterior_under_a_flat_prior(flat_truth):
    data, exact = flat_truth
    with counting() as calls:
        drawn = draws_of(PXDA(NoisyMDP(float("inf"), "features")), data, 1, 16, 600, 200)
    assert calls == {"check_decisions": 1, "design": 1, "find_separation": 1}
    errors, _ = distance(drawn, exact)
    assert (errors < 4).all(), errors
    squares = variance_distance(drawn, exact)
    assert (squares < 4).all(), squares


def test_runs_of_mcmc_are_sweeps_that_a_pickled_state_goes_on_with():
    """One check of the data and one design; a kernel and a state that were pickled go on; other data are forgotten."""
    mcmc, calls = run_of_variant("local+scale", "gibbs", 300)
    assert calls == {"check_decisions": 1, "design": 1, "find_separation": 1}
    kernel, data = VariantPXDA(NoisyMDP(4.0, "features")), ragged_decisions()
    keys = jax.random.split(jax.random.key(0), 16)
    kernel.init(keys, 100, None, (ragged_decisions(4),), {})
    state = kernel.init(keys, 100, None, (data,), {})
    sweep = jax.jit(lambda state: kernel.sample(state, (data,), {}))
    for number in range(103):
        if number == 50:
            stored = state._replace(rng_key=jax.random.key_data(state.rng_key))
            kernel, stored = pickle.loads(pickle.dumps((kernel, jax.tree.map(np.asarray, stored))))
            state = jax.tree.map(jnp.asarray, stored)._replace(
                rng_key=jax.random.wrap_key_data(stored.rng_key)
            )
        state = sweep(state)
    drawn = mcmc.get_samples(group_by_chain=True)["theta"][:, 2]
    np.testing.assert_allclose(state.z["theta"], drawn, rtol=1e-9)
    assert (np.asarray(state.i) == 103).all() and kernel.get_diagnostics_str(state).startswith("scale ")


@pytest.mark.parametrize("key", [0, 1.5, None, "key"])
def test_what_is_no_key_is_named(key):
    mcmc = MCMC(PXDA(NoisyMDP(4.0, "features")), num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(TypeError, match=f"rng_key must be one typed key, not {type(key).__name__}: pass"):
        mcmc.run(key, ragged_decisions())


def test_fields_that_do_not_exist_are_refused_by_name():
    mcmc = MCMC(PXDA(NoisyMDP(4.0, "features")), num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(ValueError, match="extra_fields has 'potential_energy': a state of PXDA has 'z1'"):
        mcmc.run(jax.random.key(0), ragged_decisions(), extra_fields=("potential_energy",))


@pytest.mark.filterwarnings("ignore:Some donated buffers")  # numpyro's, under vmap
@pytest.mark.parametrize("method", ["vectorized", pytest.param(jax.vmap, marks=pytest.mark.slow)])
def test_chains_in_every_way_and_fields(method):
    if method == "vectorized":
        mcmc, chains = run_of_variant("local+scale", "gibbs", 300)[0], 16
    else:
        mcmc = run_of(PXDA(NoisyMDP(4.0, "features")), ragged_decisions(), chains=3, method=method)
        chains = 3
    grouped = mcmc.get_samples(group_by_chain=True)
    assert grouped["v"].shape == (chains, 300, 2) and grouped["theta"].shape == (chains, 300, 2)
    fields = mcmc.get_extra_fields(group_by_chain=True)
    assert {name: field.shape for name, field in fields.items()} == dict.fromkeys(fields, (chains, 300))
    means = np.asarray(grouped["v"]).mean(1)
    assert len(np.unique(means.round(6), axis=0)) == chains  # chains of their own


def test_starts_and_states_that_do_not_fit():
    data = ragged_decisions()
    kernel = PXDA(NoisyMDP(4.0, "features"))
    start = {"theta": jnp.array([3.0, -2.0])}
    state = kernel.init(jax.random.key(0), 0, start, (data,), {})
    np.testing.assert_array_equal(state.z["theta"], start["theta"])
    for wrong, message in {
        "shape": (jnp.zeros(3), r"init_params theta has shape \(3,\), not \(2,\)"),
        "finite": (jnp.array([0.0, jnp.nan]), "init_params theta must be finite"),
    }.values():
        with pytest.raises(ValueError, match=message):
            kernel.init(jax.random.key(0), 0, {"theta": wrong}, (data,), {})
    with pytest.raises(ValueError, match="the state belongs to other decisions"):
        kernel.sample(state, (ragged_decisions(4),), {})


@pytest.mark.slow
def test_single_precision_is_the_same_posterior(truth):
    data, (mean, deviation) = truth
    with jax.enable_x64(False):
        drawn = draws_of(PXDA(NoisyMDP(4.0, "features")), data, draws=600)
    assert drawn.dtype == np.float32
    assert (np.abs(drawn.mean((0, 1)) - mean) < 0.08 * deviation).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: PXDA("model"), TypeError, "model is str"),
        (lambda: PXDA(NoisyMDP(), "both"), ValueError, "moves must be 'da', .*, not 'both'"),
        (lambda: PXDA(NoisyMDP(), winner="luck"), ValueError, "winner must be 'gibbs' or 'rejection', not 'luck'"),
        (lambda: PXDA(NoisyMDP(), "translate"), ValueError, "moves must be"),
        (lambda: PXDA(NoisyMDP(), winner="paper"), ValueError, "winner must be"),
    ],
)  # fmt: skip
def test_bad_options_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_data_that_say_nothing_are_refused():
    alone = Decisions.from_list([[[1.0]], [[2.0]]], [0, 0])
    with pytest.raises(ValueError, match="no decision has two legal options"):
        PXDA(NoisyMDP(4.0, "features")).init(jax.random.key(0), 0, None, (alone,), {})
    with pytest.raises(TypeError, match="data are missing"):
        PXDA(NoisyMDP(4.0, "features")).init(jax.random.key(0), 0, None, (), {})
    separated = Decisions.from_list([[[1.0], [0.0]]] * 3, [0, 0, 0])
    overlapping = Decisions.from_list([np.eye(2)] * 2, [0, 1])
    with pytest.raises(ValueError, match="kappa is infinite"):
        PXDA(NoisyMDP(float("inf"), "features")).init(jax.random.key(0), 0, None, (separated,), {})
    with pytest.raises(ValueError, match="kappa has a prior"):
        PXDA(NoisyMDP(dist.LogNormal())).init(jax.random.key(0), 0, None, (overlapping,), {})
