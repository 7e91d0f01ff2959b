"""Blocks against scipy, quadrature and Monte Carlo; the engine's three functions against the textbook."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from ethogram.models.families.exponential_family import (
    Beta,
    BetaCoordinates,
    Dirichlet,
    DirichletCoordinates,
    Normal,
    NormalInverseWishart,
    expected_statistics,
    natural_step,
    total_kl,
)
from tests.models.families import log_partitions

KINDS = ("dirichlet", "beta", "normal", "niw")
# A standard error is missed by 5 of itself about once in two million looks.
STANDARD_ERRORS = 5


@pytest.fixture
def precision():
    """Relative tolerance; ranks are not promoted."""
    with jax.numpy_rank_promotion("raise"):
        yield 1e-12


def spread(random, size, dimension):
    """Random covariance matrices (size, dimension, dimension)."""
    root = random.normal(size=(size, dimension, dimension + 2))
    return root @ root.swapaxes(-1, -2) / dimension


def make(kind, seed=0, rows=3):
    """A random block with ``rows`` rows."""
    random = np.random.default_rng(seed)
    if kind == "dirichlet":
        return Dirichlet.from_standard(random.gamma(2.0, size=(rows, 4)) + 0.3)
    if kind == "beta":
        return Beta.from_standard(random.gamma(2.0, size=rows) + 0.3, random.gamma(2.0, size=rows) + 0.3)
    if kind == "normal":
        return Normal.from_standard(random.normal(size=(rows, 2)), spread(random, rows, 2))
    return NormalInverseWishart.from_standard(
        random.normal(size=(rows, 2)) + 1.0,
        random.gamma(2.0, size=rows) + 0.3,
        random.gamma(2.0, size=rows) + 6.0,
        spread(random, rows, 2),
        origin=np.array([0.5, 0.7]),
    )


def make_all(seed, rows=3):
    """One random block of each kind."""
    return {kind: make(kind, seed, rows) for kind in KINDS}


def naturals(blocks):
    """Natural coordinates of a tree of blocks."""
    return {kind: block.natural for kind, block in blocks.items()}


def at(block, point):
    """Statistics of a draw, whose parts may be a tuple."""
    return block.statistics(*point) if isinstance(point, tuple) else block.statistics(point)


def inner(kind, natural, statistics):
    """<natural, statistics>, summed over all but sample and row axes."""
    axes = {"dirichlet": [1], "beta": [0, 0], "normal": [1, 2], "niw": [1, 0, 0, 2]}[kind]
    products = [np.asarray(a) * np.asarray(b) for a, b in zip(natural, statistics, strict=True)]
    return sum(p.sum(tuple(range(-n, 0))) if n else p for p, n in zip(products, axes, strict=True))


def assert_trees_close(left, right, **tolerance):
    """Leaf by leaf, in value and in type."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for (path, one), other in zip(jax.tree.leaves_with_path(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(one, other, err_msg=jax.tree_util.keystr(path), **tolerance)
        assert one.dtype == other.dtype


expect = jax.jit(expected_statistics)
PARTITIONS = {
    "dirichlet": log_partitions.dirichlet,
    "beta": log_partitions.beta,
    "normal": log_partitions.normal,
    "niw": log_partitions.normal_inverse_wishart,
}
partitions = jax.jit(
    lambda blocks: {kind: PARTITIONS[kind](*block.natural) for kind, block in blocks.items()}
)
divergences = jax.jit(lambda blocks, others: {k: b.kl(others[k]) for k, b in blocks.items()})
step = jax.jit(natural_step)


def test_expected_statistics_are_the_gradient_of_the_log_partition(precision):
    blocks = make_all(0)
    total = lambda n: sum(jnp.sum(PARTITIONS[kind](*parts)) for kind, parts in n.items())  # noqa: E731
    with jax.numpy_rank_promotion("allow"):
        gradient = jax.jit(jax.grad(total))(naturals(blocks))
    assert_trees_close(gradient, expect(blocks), rtol=1e-9, atol=20 * precision)


@pytest.mark.slow
def test_draws_have_the_expected_statistics_and_the_kl_divergence():
    with jax.numpy_rank_promotion("raise"):
        blocks, others = make_all(0), make_all(1)

        @jax.jit
        def draw(blocks):
            key = jax.random.key(3)
            return {kind: at(block, block.sample(key, (8_000,))) for kind, block in blocks.items()}

        drawn, expected, divergence = draw(blocks), expect(blocks), divergences(blocks, others)
        own, other = partitions(blocks), partitions(others)
        for kind, statistics in drawn.items():
            for values, mean in zip(statistics, expected[kind], strict=True):
                error = STANDARD_ERRORS * np.std(values, 0) / np.sqrt(len(values))
                assert np.all(np.abs(np.mean(values, 0) - mean) <= error), kind
            log_ratio = inner(kind, blocks[kind].natural, statistics) - np.asarray(own[kind])
            log_ratio -= inner(kind, others[kind].natural, statistics) - np.asarray(other[kind])
            error = STANDARD_ERRORS * log_ratio.std(0) / np.sqrt(len(log_ratio))
            assert np.all(np.abs(log_ratio.mean(0) - divergence[kind]) <= error), kind
            assert np.all(np.asarray(divergence[kind]) > 0.01), kind


@pytest.mark.slow
def test_natural_step_is_the_natural_gradient():
    """The gradient of E<t, statistics> - KL is the Fisher information times (prior + t - q)."""
    q, prior = make_all(0), make_all(1)
    data = jax.tree.map(lambda x: 0.3 * x, naturals(make_all(2)))

    def elbo(blocks):
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), expected_statistics(blocks), data)
        return jax.tree.reduce(jnp.add, products) - total_kl(blocks, prior)

    def moments(natural):
        moved = {kind: dataclasses.replace(q[kind], natural=natural[kind]) for kind in KINDS}
        return expected_statistics(moved)

    direction = jax.tree.map(jnp.subtract, naturals(step(q, prior, data, 1.0, 1.0)), naturals(q))
    _, fisher = jax.jit(lambda v: jax.jvp(moments, (naturals(q),), (v,)))(direction)
    assert_trees_close(naturals(jax.jit(jax.grad(elbo))(q)), fisher, rtol=1e-8, atol=1e-8)


def test_step_sizes_zero_and_one(precision):
    blocks, prior = make_all(0), make_all(1)
    nothing = jax.tree.map(np.zeros_like, naturals(blocks))
    something = naturals(prior)
    assert_trees_close(naturals(step(blocks, prior, nothing, 7.0, 1.0)), naturals(prior), rtol=0)
    assert_trees_close(naturals(step(blocks, prior, something, 7.0, 0.0)), naturals(blocks), rtol=0)
    halfway = jax.tree.map(lambda q, p: (q + 3 * p) / 2, *jax.device_get((naturals(blocks), naturals(prior))))
    assert_trees_close(
        naturals(step(blocks, prior, something, 2.0, 0.5)), halfway, rtol=precision, atol=precision
    )


def test_dirichlet_is_scipys(precision):
    concentration = np.array([[0.5, 1.0, 2.5], [4.0, 0.2, 1.0]])
    block = Dirichlet.from_standard(concentration)
    total = concentration.sum(-1, keepdims=True)
    row = np.array([0.2, 0.5, 0.3])

    @jax.jit
    def of(block):
        statistics = block.statistics(jnp.broadcast_to(row, (2, 3)))
        return block.expected_statistics(), block.mean(), statistics

    (expected,), mean, (statistic,) = jax.device_get(of(block))
    partition = special.gammaln(concentration).sum(-1) - special.gammaln(total[:, 0])
    np.testing.assert_allclose(
        expected, special.digamma(concentration) - special.digamma(total), rtol=precision
    )
    np.testing.assert_allclose(mean, concentration / total, rtol=precision)
    # The base measure is prod 1 / p.
    density = (concentration * statistic).sum(-1) - partition - np.log(row).sum()
    against = [stats.dirichlet(alpha).logpdf(row) for alpha in concentration]
    np.testing.assert_allclose(density, against, rtol=10 * precision, atol=10 * precision)


def test_dirichlet_of_extreme_counts(precision):
    """Expected logs near -1e4 and divergences between counts of a million are right, not merely finite."""
    q = np.array([[1e-4, 1e-4, 3], [1e-4, 1e6, 3], [1e6, 1e6, 3], [1e6, 2e6, 5e5], [1.0, 1e6, 1e-4]])
    ones = np.ones_like(q)
    block, prior = Dirichlet.from_standard(q), Dirichlet.from_standard(ones)
    (expected,) = expect(block)
    mean_log = special.digamma(q) - special.digamma(q.sum(-1, keepdims=True))
    assert mean_log[0, 0] < -9999
    np.testing.assert_allclose(expected, mean_log, rtol=precision, atol=10 * precision)
    pairs = {"forth": block, "back": prior}, {"forth": prior, "back": block}
    for name, divergence in divergences(*pairs).items():
        a, b = (q, ones) if name == "forth" else (ones, q)
        log_beta = special.gammaln(a).sum(-1) - special.gammaln(a.sum(-1))
        other_log_beta = special.gammaln(b).sum(-1) - special.gammaln(b.sum(-1))
        logs = special.digamma(a) - special.digamma(a.sum(-1, keepdims=True))
        against = other_log_beta - log_beta + ((a - b) * logs).sum(-1)
        # The reference itself loses digits: its terms are as large as 1e7.
        np.testing.assert_allclose(divergence, against, rtol=max(precision, 1e-9), atol=1e-7)


def test_structural_zeros(precision):
    concentration = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0]])
    block, prior = Dirichlet.from_standard(concentration), Dirichlet.from_standard((concentration > 0) * 1.0)
    (expected,) = jax.device_get(expect(block))
    assert np.array_equal(np.isneginf(expected), concentration == 0)
    assert expected[1, 2] == 0
    everywhere = Dirichlet.from_standard(np.ones((2, 3)))
    blocks = {"d": block, "to": block, "from": everywhere, "b": Beta.from_standard(2.0, 3.0)}
    others = {"d": prior, "to": everywhere, "from": block, "b": Beta.from_standard(1.0, 1.0)}
    divergence = jax.device_get(divergences(blocks, others))
    assert divergence["d"][1] == 0
    np.testing.assert_allclose(divergence["d"][0], divergence["b"], rtol=10 * precision)
    assert np.all(np.isposinf(divergence["to"])) and np.all(np.isposinf(divergence["from"]))
    ones = DirichletCoordinates(np.ones((2, 3)))
    mean, moved = jax.jit(lambda b, more: (b.mean(), b.step(prior, more, 1.0, 1.0).natural.concentration))(
        block, ones
    )
    np.testing.assert_allclose(mean, [[0, 0.4, 0.6], [0, 0, 1]], rtol=precision)
    np.testing.assert_array_equal(moved, np.where(concentration > 0, 2.0, 0.0))


def test_structural_zeros_have_gradient_zero():
    concentration = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0]])
    block, prior = Dirichlet.from_standard(concentration), Dirichlet.from_standard((concentration > 0) * 1.0)

    def finite_part(b):
        (rows,) = b.expected_statistics()
        return jnp.sum(jnp.exp(rows)) + jnp.sum(b.kl(prior)) + b.mean()[0, 1]

    slope = np.asarray(jax.jit(jax.grad(finite_part))(block).natural.concentration)
    assert np.all(np.isfinite(slope))
    assert np.all(slope[concentration == 0] == 0)
    assert np.all(slope[0, 1:] != 0)


def test_draws_of_extreme_rows():
    block = Dirichlet.from_standard(np.array([[0, 1e-4, 1e-4], [0, 0, 5], [1e6, 1e-4, 3]]))
    draws = np.asarray(jax.jit(lambda b: b.sample(jax.random.key(0), (200,)))(block))
    np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-6)
    assert np.all(draws[:, [0, 1, 1], [0, 0, 1]] == 0)
    assert np.all(draws[:, 1, 2] == 1)
    assert 0.3 < draws[:, 0, 1].mean() < 0.7


def test_statistics_at_the_border_have_no_nan_gradient(precision):
    block = Dirichlet.from_standard(np.ones(3))

    @jax.jit
    def of(row, ends):
        slope = jax.grad(lambda p: jnp.sum(jnp.exp(block.statistics(p).concentration)))(row)
        return block.statistics(row).concentration, slope, Beta.from_standard(1.0, 1.0).statistics(ends)

    statistics, slope, ends = of(np.array([0.0, 0.4, 0.6]), np.array([0.0, 1.0]))
    assert np.isneginf(statistics[0]) and np.all(np.isfinite(slope))
    assert np.isneginf(ends.successes[0]) and np.isneginf(ends.failures[1])


def test_beta_is_its_integral():
    pairs = np.array([[0.7, 2.5], [3.0, 8.0]])
    block = Beta.from_standard(*pairs.T)
    expected, point = jax.device_get(
        jax.jit(lambda b: (b.expected_statistics(), b.statistics(jnp.array([0.3, 0.3]))))(block)
    )
    for row, (a, b) in enumerate(pairs):

        def integral(weight, a=a, b=b):
            """Substitution p = sigmoid(t) takes the poles away."""
            integrand = lambda t: weight(t) * np.exp(-a * np.logaddexp(0, -t) - b * np.logaddexp(0, t))  # noqa: E731
            return integrate.quad(integrand, -80, 80, points=[0], limit=200, epsabs=1e-13)[0]

        mass = integral(lambda t: 1.0)
        successes = integral(lambda t: -np.logaddexp(0, -t)) / mass
        failures = integral(lambda t: -np.logaddexp(0, t)) / mass
        np.testing.assert_allclose([x[row] for x in expected], [successes, failures], rtol=1e-8)
        # The base measure is 1 / (p (1 - p)).
        density = a * point.successes[row] + b * point.failures[row] - np.log(mass) - np.log(0.3 * 0.7)
        np.testing.assert_allclose(density, stats.beta(a, b).logpdf(0.3), rtol=1e-9)


def test_conjugate_steps_are_the_textbook(precision):
    """One full step of a tree of blocks from expected counts, with the data standing for twice themselves."""
    prior = {
        "transition": Dirichlet.from_standard(np.full((2, 3), 0.5)),
        "hit": Beta.from_standard(np.array([1.0, 2.0]), 1.0),
        "nothing": None,
    }
    start = {"transition": make("dirichlet", 0, 2), "hit": make("beta", 0, 2), "nothing": None}
    start["transition"] = Dirichlet.from_standard(np.full((2, 3), 9.0))
    counts = np.array([[3.0, 0.0, 1.0], [2.0, 2.0, 2.0]])
    data = {
        "transition": DirichletCoordinates(counts),
        "hit": BetaCoordinates(np.array([4.0, 0.0]), np.array([1.0, 5.0])),
        "nothing": None,
    }
    after = step(start, prior, data, 2.0, 1.0)
    np.testing.assert_allclose(after["transition"].standard().concentration, 0.5 + 2 * counts, rtol=precision)
    np.testing.assert_allclose(after["hit"].standard().successes, [9.0, 2.0], rtol=precision)
    np.testing.assert_allclose(after["hit"].standard().failures, [3.0, 11.0], rtol=precision)
    assert after["nothing"] is None
    assert jax.tree.structure(after) == jax.tree.structure(start)
    del after["nothing"], prior["nothing"]
    against = sum(np.sum(part) for part in jax.device_get(divergences(after, prior)).values())
    total = jax.jit(total_kl)
    np.testing.assert_allclose(total(after, prior), against, rtol=precision)
    assert total(prior, prior) == 0


def test_standard_parameters_come_back():
    concentration = 10 ** np.random.default_rng(0).uniform(-3, 3, size=(20, 3))
    block = Dirichlet.from_standard(concentration)
    np.testing.assert_array_equal(block.standard().concentration, concentration)
    again = Dirichlet.from_standard(*block.standard())
    np.testing.assert_array_equal(again.natural.concentration, block.natural.concentration)
    pair = concentration[:, 0], concentration[:, 1]
    np.testing.assert_array_equal(Beta.from_standard(*pair).standard(), pair)
