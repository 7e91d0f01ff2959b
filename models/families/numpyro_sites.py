"""Conjugate blocks as numpyro sample sites, and their draws by site name.

A block whose draw is one array is a site of the block's name; a draw in parts (a mean and a covariance) gives
a site per part, of the part's name. What comes before a dot in the name of a block comes before those of its sites:
block ``step.mean_shape`` has the sites ``step_mean`` and ``step_shape``.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ethogram.models.arguments import is_concrete
from ethogram.models.families.exponential_family import (
    Beta,
    ConjugateBlock,
    Dirichlet,
    Normal,
    NormalInverseWishart,
    PartlyKnown,
)
from ethogram.models.families.gamma import Gamma
from ethogram.models.families.gamma_conjugate import GammaConjugate, MeanShape
from ethogram.models.families.matrix_normal_inverse_wishart import MatrixNormalInverseWishart
from ethogram.models.families.quadrature_sites import LENGTH_SPREAD, PlanarDirection, SizeDensity
from ethogram.models.families.von_mises_conjugate import DirectionConcentration, VonMisesConjugate

__all__ = ["Zeros", "by_site", "sample_parameters", "start_of_site", "zeros_of"]

FAMILIES = (
    (Normal, dist.MultivariateNormal),
    (Beta, dist.Beta),
    (Dirichlet, dist.Dirichlet),
    (Gamma, dist.Gamma),
)

VECTOR, WHITE = "_vector", "_white"

Zeros = tuple[tuple[str, Any], ...]
"""Which entries of which Dirichlet blocks are forbidden: block name, and nested tuples of booleans."""


def zeros_of(prior: dict[str, ConjugateBlock]) -> Zeros:
    """Forbidden entries of a prior's Dirichlet blocks, those that have any; what is traced is taken to have none.

    Structure, in a form that can be hashed: a model that keeps it can be an argument of a jitted function.
    """
    found = []
    for name, block in prior.items():
        block = block.block if isinstance(block, PartlyKnown) else block
        if isinstance(block, Dirichlet) and is_concrete(block.natural.concentration):
            forbidden = np.asarray(block.natural.concentration) == 0
            if forbidden.any():
                found.append((name, _nested_tuple(forbidden.tolist())))
    return tuple(found)


def _nested_tuple(values: Any) -> Any:
    return tuple(map(_nested_tuple, values)) if isinstance(values, list) else values


def by_site(draws: dict[str, Any]) -> dict[str, Any]:
    """Draws (or means) of blocks, a dict by block name, as a flat dict by site name."""
    sites: dict[str, Any] = {}
    for name, draw in draws.items():
        parts = draw._asdict() if hasattr(draw, "_asdict") else {name.rpartition(".")[2]: draw}
        sites.update({f"{_front(name)}{part}": value for part, value in parts.items()})
    return sites


def _front(name: str) -> str:
    """What the sites of a block have in front of their names."""
    return f"{name.rpartition('.')[0]}_" if "." in name else ""


def start_of_site(
    name: str, draws: dict[str, np.ndarray], blocks: dict[str, ConjugateBlock]
) -> np.ndarray | None:
    """Draws of a latent site, from draws of the sites by name; None where they have none.

    Directions are latent as vectors in the plane, of lengths spread as their prior has them, and coefficients in the
    coordinates of their block.
    """
    name = name.removesuffix("_free") if name not in draws else name
    if name.endswith(WHITE) and (site := name.removesuffix(WHITE)) in draws:
        bare = {key: b.block if isinstance(b, PartlyKnown) else b for key, b in blocks.items()}
        of = {f"{_front(key)}coefficients": b for key, b in bare.items() if hasattr(b, "whitened")}
        return np.asarray(of[site].whitened(draws[site])) if site in of else None
    if name in draws or not name.endswith(VECTOR):
        return draws.get(name)
    angle = draws[name.removesuffix(VECTOR)]
    length = np.exp(LENGTH_SPREAD * np.random.default_rng(0).standard_normal(angle.shape))
    return np.stack([length * np.cos(angle), length * np.sin(angle)], axis=-1).astype(angle.dtype)


def sample_parameters(prior: dict[str, ConjugateBlock], zeros: Zeros | None = None) -> dict[str, Any]:
    """Sample every block of a prior inside a numpyro model; parameters by site name.

    Where parts are known or forbidden, the free part is the latent site ``NAME_free``, and ``NAME`` a
    deterministic one.

    Parameters
    ----------
    prior : blocks by name.
    zeros : forbidden entries; those of :func:`zeros_of` where None, which must be given where `prior` is traced.
    """
    forbidden = dict(zeros_of(prior) if zeros is None else zeros)
    return by_site({name: _sample_block(name, block, forbidden.get(name)) for name, block in prior.items()})


def _sample_block(name: str, block: ConjugateBlock, zeros: Any) -> Any:
    if not isinstance(block, PartlyKnown):
        return _sample_free(name, block, zeros)
    fixed = block.hold(_sample_free(name, block.block, zeros, "_free"))
    sites = {site: numpyro.deterministic(site, value) for site, value in by_site({name: fixed}).items()}
    return type(fixed)(*sites.values()) if hasattr(fixed, "_asdict") else sites.popitem()[1]


def _sample_free(name: str, block: ConjugateBlock, zeros: Any, suffix: str = "") -> Any:
    """A draw of the block, at sites whose names end in the suffix."""
    front, name = _front(name), f"{_front(name)}{name.rpartition('.')[2]}"
    if isinstance(block, GammaConjugate):
        shape = numpyro.sample(f"{front}shape{suffix}", SizeDensity(block).to_event(block.natural.count.ndim))
        mean = dist.InverseGamma(block.natural.count * shape, block.natural.sum * shape)
        return MeanShape(numpyro.sample(f"{front}mean{suffix}", mean.to_event(shape.ndim)), shape)
    if isinstance(block, VonMisesConjugate):
        size = SizeDensity(block).to_event(block.natural.count.ndim)
        concentration = numpyro.sample(f"{front}concentration{suffix}", size)
        law = PlanarDirection(block.mean().direction, concentration * block.resultant)
        vector = numpyro.sample(f"{front}direction{VECTOR}{suffix}", law.to_event(concentration.ndim))
        direction = jnp.arctan2(vector[..., 1], vector[..., 0])
        if not suffix:
            direction = numpyro.deterministic(f"{front}direction", direction)
        return DirectionConcentration(direction, concentration)
    if isinstance(block, NormalInverseWishart):
        mean, strength, dof, scale = block.standard()
        batch = scale.ndim - 2
        covariance = numpyro.sample(
            f"{front}covariance{suffix}", dist.InverseWishart(dof, scale, validate_args=False).to_event(batch)
        )
        spread = covariance / strength[..., None, None]
        normal = dist.MultivariateNormal(
            mean, spread, validate_args=False
        )  # a check compiles each of its operations
        centre = numpyro.sample(f"{front}mean{suffix}", normal.to_event(batch))
        return type(block.inner_point())(centre, covariance)
    if isinstance(block, MatrixNormalInverseWishart):
        own, root, dof, scale = block.law_of_whitened()
        covariance = numpyro.sample(
            f"{front}covariance{suffix}", dist.InverseWishart(dof, scale).to_event(scale.ndim - 2)
        )
        law = dist.MatrixNormal(own, jnp.linalg.cholesky(covariance), root)
        white = numpyro.sample(f"{front}coefficients{WHITE}{suffix}", law.to_event(own.ndim - 2))
        coefficients = block.in_units(white)
        if not suffix:
            coefficients = numpyro.deterministic(f"{front}coefficients", coefficients)
        return type(block.inner_point())(coefficients, covariance)
    if isinstance(block, Dirichlet) and zeros is not None:  # the rest of a Dirichlet draw is Dirichlet again
        concentration, present = block.natural.concentration, ~jnp.asarray(zeros)
        full = dist.Dirichlet(jnp.where(present, concentration, 1)).to_event(concentration.ndim - 1)
        free = jnp.where(present, numpyro.sample(f"{name}_free", full), 0)
        rows = free / jnp.sum(free, axis=-1, keepdims=True)
        return rows if suffix else numpyro.deterministic(name, rows)
    for kind, family in FAMILIES:
        if isinstance(block, kind):
            prior = family(*block.standard())
            return numpyro.sample(f"{name}{suffix}", prior.to_event(len(prior.batch_shape)))
    raise TypeError(f"block {name} of type {type(block).__name__} has no numpyro site: use another block")
