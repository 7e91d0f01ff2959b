"""Log ratios of the posterior and q against densities by hand."""

import jax
import numpy as np
from scipy.stats import dirichlet

import ethogram
from ethogram.inference.conjugate.log_ratios import log_ratios
from ethogram.models.numpy_generator import numpy_generator

SYMBOLS = np.array([0, 0, 1, 1, 0, 1, 1, 0, 1, 0])


def test_log_ratios_are_those_of_the_densities():
    """Two roles, whose frames are sequences of their own, so that the likelihood is a product of mixtures."""
    model = ethogram.RoleHMM(2, ethogram.CategoricalEmission(2))
    data = ethogram.Trajectories.from_list([[[x]] for x in SYMBOLS])
    fit = ethogram.fit(
        jax.random.key(0), model, data, num_steps=2000, tol=1e-12, restarts=1, progress_bar=False
    )
    posterior, random = fit.result.posterior, numpy_generator(jax.random.key(1))
    blocks = {name: posterior.blocks[name] for name in sorted(posterior.blocks)}
    drawn = {name: block.sample_numpy(random, 50) for name, block in blocks.items()}
    wanted = np.zeros(50)
    emission = next(name for name in blocks if name not in ("initial", "transition"))
    for row in range(50):
        wanted[row] = np.log(drawn["initial"][row] @ drawn[emission][row][:, SYMBOLS]).sum()
        for name, block in blocks.items():
            prior = np.asarray(model.prior()[name].natural.concentration)
            own = np.asarray(block.natural.concentration)
            pairs = zip(*(x.reshape(-1, x.shape[-1]) for x in (prior, own, drawn[name][row])), strict=True)
            wanted[row] += sum(dirichlet.logpdf(x, p) - dirichlet.logpdf(x, q) for p, q, x in pairs)
    found = log_ratios(jax.random.key(1), posterior, data, 50)
    assert found.std() > 0.1
    np.testing.assert_allclose(found - found.mean(), wanted - wanted.mean(), atol=1e-3)
