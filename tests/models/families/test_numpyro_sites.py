"""Conjugate blocks as sample sites: their densities by scipy, what is known or forbidden, names of parts."""

from __future__ import annotations

import jax
import numpy as np
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.util import log_density
from scipy import stats

from ethogram.models.families.exponential_family import (
    Beta,
    Dirichlet,
    Known,
    MeanCovariance,
    Normal,
    NormalInverseWishart,
    PartlyKnown,
)
from ethogram.models.families.numpyro_sites import by_site, sample_parameters

NAN = float("nan")
ROWS = np.array([[2.0, 3.0, 1.0], [0.5, 0.5, 4.0]])
MEANS = np.array([[0.0, 1.0], [2.0, -1.0]])
SCALE = np.array([[2.0, 0.5], [0.5, 1.0]])


def close(actual, desired, rtol=1e-8, atol=1e-10):
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol)


def prior():
    """A block of every kind, two rows each."""
    return {
        "row": Dirichlet.from_standard(ROWS),
        "share": Beta.from_standard(np.array([2.0, 1.0]), np.array([3.0, 0.5])),
        "centre": Normal.from_standard(MEANS, SCALE),
        "mean_covariance": NormalInverseWishart.from_standard(MEANS, 0.5, 6.0, SCALE, origin=MEANS[0]),
    }


def test_densities_are_scipys():
    """Of all sites of all blocks at once; a mean and a covariance are sites of their own."""
    rng = np.random.default_rng(0)
    at = {
        "row": np.stack([rng.dirichlet(row) for row in ROWS]),
        "share": rng.beta(2, 2, 2),
        "centre": rng.normal(size=(2, 2)),
        "mean": rng.normal(size=(2, 2)),
        "covariance": stats.invwishart.rvs(6, SCALE, 2, rng),
    }
    drawn = {}

    def model():
        drawn.update(sample_parameters(prior()))

    total, sites = jax.jit(lambda at: (log_density(model, (), {}, at)[0], dict(drawn)))(at)
    expected = sum(stats.dirichlet.logpdf(p, a) for p, a in zip(at["row"], ROWS, strict=True))
    expected += stats.beta.logpdf(at["share"], [2.0, 1.0], [3.0, 0.5]).sum()
    for k in range(2):
        expected += stats.multivariate_normal.logpdf(at["centre"][k], MEANS[k], SCALE)
        expected += stats.invwishart.logpdf(at["covariance"][k], 6, SCALE)
        expected += stats.multivariate_normal.logpdf(at["mean"][k], MEANS[k], at["covariance"][k] / 0.5)
    close(total, expected)
    assert set(sites) == set(at)
    jax.tree.map(np.testing.assert_array_equal, sites, at)


def test_forbidden_entries_leave_the_rest_dirichlet():
    """Zeros stay zero; the rest is the Dirichlet draw of the free entries: its means and variances.

    5000 draws, 4.5 standard errors.
    """
    concentration = np.array([[2.0, 0.0, 3.0], [0.0, 1.5, 0.0]])
    block = {"row": Dirichlet.from_standard(concentration)}
    kinds = {}

    def draw(key):
        sites = trace(seed(sample_parameters, key)).get_trace(block)
        kinds.update({name: site["type"] for name, site in sites.items()})
        return sites["row"]["value"]

    rows = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 5000)))
    assert kinds == {"row_free": "sample", "row": "deterministic"}
    assert np.array_equal((rows > 0).all(0), concentration > 0)
    close(rows.sum(-1), 1.0)
    close(rows[:, 1, 1], 1.0)
    x, spread = rows[:, 0, 0], 0.4 * 0.6 / 6
    assert abs(x.mean() - 0.4) < 4.5 * np.sqrt(spread / 5000)
    assert abs(x.var() - spread) < 4.5 * ((x - 0.4) ** 2).std() / np.sqrt(5000)


def test_known_rows_are_held():
    """For every kind of block: the free part is a latent site, the known value a deterministic one."""
    means = np.array([[7.0, 8.0], [NAN, NAN]])
    covariances = np.stack([np.eye(2), np.full((2, 2), NAN)])
    known = {
        "row": Known(np.array([[0.2, 0.3, 0.5], [NAN, NAN, NAN]])),
        "share": Known(np.array([0.25, NAN])),
        "centre": Known(means),
        "mean_covariance": Known((means, covariances)),
    }
    blocks = {name: PartlyKnown.from_known(block, known[name]) for name, block in prior().items()}
    rng = np.random.default_rng(1)
    free = {
        "row": rng.dirichlet(np.ones(3), 2),
        "share": rng.random(2),
        "centre": rng.normal(size=(2, 2)),
        "mean": rng.normal(size=(2, 2)),
        "covariance": np.stack([np.eye(2), SCALE]),
    }
    kinds = {}

    @jax.jit
    def values(free):
        sites = trace(substitute(sample_parameters, data=free)).get_trace(blocks)
        kinds.update({name: site["type"] for name, site in sites.items()})
        return {name: site["value"] for name, site in sites.items()}

    at = jax.device_get(values({f"{name}_free": value for name, value in free.items()}))
    names = ("row", "share", "centre", "mean", "covariance")
    assert kinds == {**dict.fromkeys(names, "deterministic"), **{f"{name}_free": "sample" for name in names}}
    for name, held in zip(names, ([0.2, 0.3, 0.5], 0.25, [7.0, 8.0], [7.0, 8.0], np.eye(2)), strict=True):
        close(at[name][0], held)
        np.testing.assert_array_equal(at[name][1], at[f"{name}_free"][1])
        assert np.isfinite(at[name]).all()


def test_known_rows_beside_forbidden_entries():
    """Both at once: the known row as given, the zero of the other kept."""
    block = Dirichlet.from_standard(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 2.0]]))
    held = PartlyKnown.from_known(block, Known(np.array([[0.2, 0.3, 0.5], [NAN, NAN, NAN]])))
    free = {"row_free": np.array([[0.1, 0.1, 0.8], [0.2, 0.4, 0.4]])}
    row = jax.jit(lambda free: substitute(sample_parameters, data=free)({"row": held})["row"])(free)
    close(row[0], [0.2, 0.3, 0.5])
    close(row[1], [1 / 3, 0, 2 / 3])


def test_parts_get_names_of_their_own():
    """Draws of blocks as one flat dict."""
    pair = MeanCovariance(np.zeros(2), np.eye(2))
    flat = by_site({"initial": np.ones(3), "mean_covariance": pair})
    assert set(flat) == {"initial", "mean", "covariance"}
    assert flat["mean"] is pair.mean
