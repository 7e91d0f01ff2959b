"""Conjugate blocks as numpyro sample sites, and their draws by site name.

A block whose draw is one array is a site of the block's name; a draw in parts (a mean and a covariance) gives
a site a part, of the part's name.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ethogram.models.conjugate_block import is_concrete
from ethogram.models.exponential_family import (
    Beta,
    ConjugateBlock,
    Dirichlet,
    Normal,
    NormalInverseWishart,
    PartlyKnown,
)

__all__ = ["by_site", "sample_parameters"]


def by_site(draws: dict[str, Any]) -> dict[str, Any]:
    """Draws (or means) of blocks, a dict by block name, as a flat dict by site name."""
    sites: dict[str, Any] = {}
    for name, draw in draws.items():
        sites.update(draw._asdict() if hasattr(draw, "_asdict") else {name: draw})
    return sites


def sample_parameters(prior: dict[str, ConjugateBlock]) -> dict[str, Any]:
    """Sample every block of a prior inside a numpyro model; parameters by site name.

    Where parts are known or forbidden, the free part is the latent site ``NAME_free``, and ``NAME`` a
    deterministic one.
    """
    return by_site({name: _sample_block(name, block) for name, block in prior.items()})


def _sample_block(name: str, block: ConjugateBlock) -> Any:
    if isinstance(block, PartlyKnown):
        return _sample_partly_known(name, block)
    if isinstance(block, Dirichlet):
        return _sample_rows(name, block)
    return _sample_plain(block, {name: name, "mean": "mean", "covariance": "covariance"}, name)


def _sample_plain(block: ConjugateBlock, names: dict[str, str], name: str) -> Any:
    if isinstance(block, NormalInverseWishart):
        mean, strength, dof, scale = block.standard()
        batch = scale.ndim - 2
        covariance = numpyro.sample(names["covariance"], dist.InverseWishart(dof, scale).to_event(batch))
        spread = covariance / strength[..., None, None]
        centre = numpyro.sample(names["mean"], dist.MultivariateNormal(mean, spread).to_event(batch))
        return type(block.inner_point())(centre, covariance)
    if isinstance(block, Normal):
        mean, covariance = block.standard()
        prior = dist.MultivariateNormal(mean, covariance)
    elif isinstance(block, Beta):
        prior = dist.Beta(*block.standard())
    elif isinstance(block, Dirichlet):
        prior = dist.Dirichlet(block.standard().concentration)
    else:
        raise TypeError(f"block {name} of type {type(block).__name__} is not known as a numpyro site")
    return numpyro.sample(names[name], prior.to_event(len(prior.batch_shape)))


def _sample_rows(name: str, block: Dirichlet, site: str | None = None) -> Any:
    """Probability rows; where entries are forbidden, the rest of a Dirichlet draw, which is Dirichlet again."""
    concentration = block.natural.concentration
    present = concentration > 0
    if not is_concrete(concentration) or (np.asarray(concentration) > 0).all():
        return _sample_plain(block, {name: site or name}, name)
    full = dist.Dirichlet(jnp.where(present, concentration, 1)).to_event(concentration.ndim - 1)
    free = jnp.where(present, numpyro.sample(f"{name}_free", full), 0)
    return numpyro.deterministic(name, free / jnp.sum(free, axis=-1, keepdims=True))


def _sample_partly_known(name: str, held: PartlyKnown) -> Any:
    names = {part: f"{part}_free" for part in (name, "mean", "covariance")}
    if isinstance(held.block, Dirichlet):
        free: Any = _sample_rows(name, held.block, site=f"{name}_free")
    else:
        free = _sample_plain(held.block, names, name)
    known = jnp.asarray(held.known)

    def fix(part, value):
        rows = known.reshape(known.shape + (1,) * (value.ndim - known.ndim))
        return jnp.where(rows, value, part)

    if hasattr(free, "_asdict"):
        parts = type(free)(*(fix(*pair) for pair in zip(free, held.values, strict=True)))
        return type(free)(*(numpyro.deterministic(key, part) for key, part in parts._asdict().items()))
    return numpyro.deterministic(name, fix(free, held.values))
