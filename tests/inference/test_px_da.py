"""PX-DA: every expansion against posteriors by quadrature, exponents of the scale, and numpyro's kernel contract."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS, Gibbs
from scipy.special import ndtr

from ethogram.inference import probit_sweep
from ethogram.inference.px_da import PXDA
from ethogram.models.decisions import Decisions
from ethogram.models.noisy_mdp import NoisyMDP

PROPER = {"scale_proper": (3.0, 2.0), "scale+translate_proper": (3.0, 2.0)}


def ragged_decisions(seed=3, count=14):
    """Sets of two to four options with two features, and choices of weights (1, -0.7)."""
    random = np.random.default_rng(seed)
    sets = [random.normal(size=(random.integers(2, 5), 2)) for _ in range(count)]
    choice = [int(np.argmax(one @ (1.0, -0.7) + random.normal(size=len(one)))) for one in sets]
    return Decisions.from_list(sets, choice)


def by_quadrature(data, kappa, centre, spread, nodes=61, width=6):
    """Posterior means and deviations of two weights on a grid, each probability by a trapezoid rule in NumPy."""
    axis = np.linspace(-width, width, nodes)
    grid = np.stack(
        np.meshgrid(*(m + s * axis for m, s in zip(centre, spread, strict=True)), indexing="ij"), -1
    )
    points = grid.reshape(-1, 2)
    x = np.linspace(-9, 9, 181)
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
    with jax.enable_x64(True):
        NoisyMDP(float("inf"), "features").check(data)  # choices overlap
    rough = by_quadrature(data, np.inf, (1.0, -0.7), (1.0, 1.0))
    return data, by_quadrature(data, np.inf, *rough, nodes=101, width=10)


@pytest.fixture(scope="module")
def truth():
    data = ragged_decisions()
    rough = by_quadrature(data, 4.0, (1.0, -0.7), (1.0, 1.0))
    return data, by_quadrature(data, 4.0, *rough)


def draws_of(kernel, data, seed, chains=32, draws=2500, warmup=200):
    mcmc = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), data)
    return np.asarray(mcmc.get_samples(group_by_chain=True)["v"])


def distance(draws, truth):
    """How many Monte Carlo errors the means are off, and the ratios of deviations."""
    mean, deviation = truth
    error = deviation / np.sqrt(np.array(effective_sample_size(draws)))
    return np.abs(draws.mean((0, 1)) - mean) / error, draws.std((0, 1)) / deviation


def variance_distance(draws, truth):
    """How many Monte Carlo errors the variances about the true means are off."""
    squares = (draws - truth[0]) ** 2
    return distance(squares, (truth[1] ** 2, squares.std((0, 1))))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moves", "winner"),
    [(moves, "gibbs") for moves in probit_sweep.MOVES]
    + [(moves, winner) for moves in ("da", "local+scale") for winner in ("rejection", "mh", "paper")],
)
def test_every_variant_has_the_posterior_for_its_law(truth, moves, winner):
    """Means and variances within four of their own Monte Carlo errors: fails by chance in 1 of 4000 runs."""
    data, exact = truth
    kernel = PXDA(NoisyMDP(4.0, "features"), moves, winner, scale_prior=PROPER.get(moves))
    with jax.enable_x64(True):
        drawn = draws_of(kernel, data, 0)
        errors, ratio = distance(drawn, exact)
        squares = variance_distance(drawn, exact)
    assert (errors < 4).all(), errors
    assert (squares < 4).all(), squares
    np.testing.assert_allclose(ratio, 1, atol=0.06)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moves", "wrong"),
    [("scale+translate", (0.0, -1.0)), ("local+scale", ("all",))]
    + [(moves, ()) for moves in ("da", "scale", "translate", "local", *PROPER)],
)
def test_flat_priors_and_the_power_to_tell_wrong_exponents(flat_truth, moves, wrong, monkeypatch):
    """With the shapes n / 2 and n / 2 - 1 means are ten errors off and more, with the right one four at most."""
    data, exact = flat_truth
    model = NoisyMDP(float("inf"), "features")
    with jax.enable_x64(True):
        kernel = PXDA(model, moves, scale_prior=PROPER.get(moves))
        drawn = draws_of(kernel, data, 1, chains=200 if wrong else 50, warmup=2000)
        errors, ratio = distance(drawn, exact)
        assert (errors < 4).all(), errors
        if wrong:
            np.testing.assert_allclose(ratio, 1, atol=0.03)
        # Moves without a scale are slow here: variances are compared by their own Monte Carlo errors.
        squares = variance_distance(drawn, exact)
        assert (squares < 4).all(), squares
        for shift in wrong:
            spoil_shape(monkeypatch, moves, shift)
            errors, _ = distance(draws_of(PXDA(model, moves), data, 2, chains=200), exact)
            assert errors.max() > 10, (shift, errors)


def spoil_shape(monkeypatch, moves, shift):
    """Put n / 2 + shift, or half of all options, for the shape of the scale."""
    lost = 0 if shift == "all" else shift

    def draw_scale(key, rest, problem, move, scale_prior):
        options = jnp.sum(problem.counts).astype(rest.dtype)
        return rest / 2 / jax.random.gamma(key, options / 2 + lost, rest.shape, rest.dtype)

    monkeypatch.setattr(probit_sweep, "_draw_scale", draw_scale)


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [4.0, 4e6])
@pytest.mark.parametrize("moves", ["scale", "scale+translate", "local+scale"])
def test_the_shape_of_the_scale_keeps_the_prior(moves, kappa, monkeypatch):
    """Utilities given values, then values given utilities, keep the prior of the values; a wrong shape does not."""
    random = np.random.default_rng(5)
    chains = 400
    design = random.dirichlet(np.ones(3), size=(6, 3)) @ probit_sweep_basis()
    move = probit_sweep.MOVES[moves]
    with jax.enable_x64(True):
        problem = probit_sweep.probit_problem(design, np.ones((6, 3), bool), np.zeros(6, int), move)
        precision = jnp.array([1 / kappa] * 2 + ([0.0] if move.translations == "one" else []))
        problem = probit_sweep.with_prior(problem, precision)

        def off():
            """How many standard errors of the mean of |theta|^2 its prior mean is away."""

            def step(theta, key):
                key_noise, key_draw = jax.random.split(key)
                mean = jnp.reshape(probit_sweep.fitted(problem, theta), (3, 6, chains))
                latents = mean + jax.random.normal(key_noise, mean.shape)
                drawn = probit_sweep.draw_parameters(
                    key_draw, problem, latents, move, scale_prior=None, translation_sd=jnp.ones(())
                )
                return drawn.theta, jnp.sum(drawn.theta**2, axis=0)

            start = jnp.sqrt(kappa) * jax.random.normal(jax.random.key(0), (2, chains))
            sizes = jax.lax.scan(step, start, jax.random.split(jax.random.key(1), 600))[1]
            by_chain = np.asarray(sizes).mean(0)
            return (by_chain.mean() - 2 * kappa) / (by_chain.std(ddof=1) / np.sqrt(chains))

        assert abs(off()) < 4
        right = probit_sweep._draw_scale
        for half in (-0.5, 0.5):
            monkeypatch.setattr(probit_sweep, "_draw_scale", _shifted(right, half))
            assert abs(off()) > 10, half


def _shifted(right, half):
    """The same draw with another shape: a gamma variate of shape s + 1/2 in place of one of shape s."""

    def draw_scale(key, rest, problem, move, scale_prior):
        options = jnp.sum(problem.counts).astype(rest.dtype)
        lost = {"none": 0, "one": 1, "local": problem.counts.shape[0]}[move.translations]
        return rest / 2 / jax.random.gamma(key, (options - lost) / 2 + half, rest.shape, rest.dtype)

    return draw_scale


def probit_sweep_basis():
    """An orthonormal basis of the values of three states that sum to zero."""
    return np.array([[1, 1], [-1, 1], [0, -2]]) / np.sqrt([2, 6])


def test_resuming_in_another_process_is_the_same_run():
    """A state that was pickled goes on, in a kernel that was pickled, to the last bit."""
    data = ragged_decisions()
    kernel = PXDA(NoisyMDP(4.0, "features"))

    def run(kernel, draws, state=None, key=None):
        mcmc = MCMC(kernel, num_warmup=0, num_samples=draws, progress_bar=False)
        mcmc.post_warmup_state = state
        mcmc.run(jax.random.key(0) if key is None else key, data)
        return np.asarray(mcmc.get_samples()["v"]), mcmc.last_state

    whole, _ = run(kernel, 20)
    first, state = run(kernel, 12)
    stored = state._replace(rng_key=jax.random.key_data(state.rng_key))
    again, stored = pickle.loads(pickle.dumps((kernel, jax.tree.map(np.asarray, stored))))
    state = jax.tree.map(jnp.asarray, stored)._replace(rng_key=jax.random.wrap_key_data(stored.rng_key))
    second, _ = run(again, 8, state, state.rng_key)
    np.testing.assert_array_equal(whole, np.concatenate([first, second]))


@pytest.mark.filterwarnings("ignore:Some donated buffers")  # numpyro's, under vmap
@pytest.mark.parametrize("method", ["sequential", "vectorized", jax.vmap])
def test_chains_in_every_way_and_fields(method):
    data = ragged_decisions()
    mcmc = MCMC(
        PXDA(NoisyMDP(4.0, "features"), winner="mh"),
        num_warmup=20, num_samples=300, num_chains=3, chain_method=method, progress_bar=False, thinning=2,
    )  # fmt: skip
    mcmc.run(jax.random.key(0), data, extra_fields=("z1", "accept_prob"))
    grouped = mcmc.get_samples(group_by_chain=True)
    assert grouped["v"].shape == (3, 150, 2) and grouped["theta"].shape == (3, 150, 2)
    fields = mcmc.get_extra_fields(group_by_chain=True)
    assert {name: field.shape for name, field in fields.items()} == dict.fromkeys(fields, (3, 150))
    assert 0.5 < float(fields["accept_prob"].mean()) <= 1
    means = np.asarray(grouped["v"]).mean(1)
    assert len(np.unique(means.round(6), axis=0)) == 3  # chains of their own
    mcmc.print_summary()


def test_compiled_arguments_and_other_data_of_the_same_size():
    model = NoisyMDP(4.0, "features")
    one, other = ragged_decisions(3), ragged_decisions(4)
    width = max(one.features.shape[1], other.features.shape[1])

    def widened(data):
        more = width - data.features.shape[1]
        return data._replace(
            features=np.pad(data.features, ((0, 0), (0, more), (0, 0))),
            legal=np.pad(data.legal, ((0, 0), (0, more))),
        )

    results = {}
    for compiled in (False, True):
        mcmc = MCMC(PXDA(model), num_warmup=5, num_samples=20, progress_bar=False, jit_model_args=compiled)
        for name, data in (("one", widened(one)), ("other", widened(other))):
            mcmc.run(jax.random.key(0), data)
            results[compiled, name] = np.asarray(mcmc.get_samples()["v"])
    for name in ("one", "other"):
        np.testing.assert_allclose(results[False, name], results[True, name], rtol=1e-5)
    assert not np.allclose(results[True, "one"], results[True, "other"])


def test_a_state_belongs_to_its_decisions():
    one, other = ragged_decisions(3), ragged_decisions(4)
    mcmc = MCMC(PXDA(NoisyMDP(4.0, "features")), num_warmup=5, num_samples=10, progress_bar=False)
    mcmc.warmup(jax.random.key(0), one)
    with pytest.raises(ValueError, match="the state is one of other decisions"):
        mcmc.run(jax.random.key(1), other)


def test_progress_and_starts():
    data = ragged_decisions()
    kernel = PXDA(NoisyMDP(4.0, "features"), winner="mh")
    start = {"theta": jnp.array([3.0, -2.0])}
    state = kernel.init(jax.random.key(0), 0, start, (data,), {})
    np.testing.assert_array_equal(state.z["theta"], start["theta"])
    state = kernel.sample(state, (data,), {})
    assert int(state.i) == 1 and kernel.get_diagnostics_str(state).startswith("scale ")
    with pytest.raises(ValueError, match=r"init_params theta has shape \(3,\), not \(2,\)"):
        kernel.init(jax.random.key(0), 0, {"theta": jnp.zeros(3)}, (data,), {})
    with pytest.raises(ValueError, match="init_params theta must be finite"):
        kernel.init(jax.random.key(0), 0, {"theta": jnp.array([0.0, jnp.nan])}, (data,), {})


@pytest.mark.slow
def test_a_block_of_gibbs_beside_nuts_on_the_variance():
    """The same posterior of variance and weights as NUTS on both, within four Monte Carlo errors."""
    data = ragged_decisions(count=30)
    with jax.enable_x64(True):
        model = NoisyMDP(dist.InverseGamma(3.0, 4.0), "features")
        with pytest.raises(ValueError, match="kappa has a prior"):
            PXDA(model).init(jax.random.key(0), 0, None, (data,), {})
        kernels = {
            "gibbs": Gibbs([(PXDA(model), ["theta"]), (NUTS(model), ["kappa"])]),
            "nuts": NUTS(model),
        }
        found = {}
        for name, kernel in kernels.items():
            mcmc = MCMC(kernel, num_warmup=500, num_samples=6000, progress_bar=False)
            mcmc.run(jax.random.key(1), data)
            drawn = mcmc.get_samples(group_by_chain=True)
            found[name] = np.concatenate([np.asarray(drawn["v"]), np.log(drawn["kappa"])[..., None]], axis=-1)
    errors = {
        name: x.std((0, 1)) / np.sqrt(np.asarray(effective_sample_size(x))) for name, x in found.items()
    }
    apart = np.abs(found["gibbs"].mean((0, 1)) - found["nuts"].mean((0, 1)))
    assert (apart < 4 * np.hypot(errors["gibbs"], errors["nuts"])).all()


@pytest.mark.slow
def test_single_precision_is_the_same_posterior(truth):
    data, (mean, deviation) = truth
    drawn = draws_of(PXDA(NoisyMDP(4.0, "features")), data, 0)
    assert drawn.dtype == np.float32
    assert (np.abs(drawn.mean((0, 1)) - mean) < 0.05 * deviation).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: PXDA("model"), TypeError, "model is str"),
        (lambda: PXDA(NoisyMDP(), "both"), ValueError, "moves must be one of"),
        (lambda: PXDA(NoisyMDP(), winner="luck"), ValueError, "winner must be one of"),
        (lambda: PXDA(NoisyMDP(), "scale_proper"), ValueError, r"need \(a, b\)"),
        (lambda: PXDA(NoisyMDP(), scale_prior=(1.0, 1.0)), ValueError, "have no prior of the scale"),
        (
            lambda: PXDA(NoisyMDP(), "scale_proper", scale_prior=(0.0, 1.0)),
            ValueError,
            "two finite numbers above 0",
        ),
        (
            lambda: PXDA(NoisyMDP(), "scale_proper", scale_prior=(1.0, float("nan"))),
            ValueError,
            "two finite numbers",
        ),
        (
            lambda: PXDA(NoisyMDP(), "scale_proper", scale_prior=(1.0, float("inf"))),
            ValueError,
            "two finite numbers",
        ),
        (lambda: PXDA(NoisyMDP(), proposals=0), ValueError, "proposals must be"),
    ],
)
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
    with pytest.raises(ValueError, match="kappa is infinite"):
        PXDA(NoisyMDP(float("inf"), "features")).init(jax.random.key(0), 0, None, (separated,), {})
