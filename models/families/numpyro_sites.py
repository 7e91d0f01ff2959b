"""Conjugate blocks as numpyro sample sites, and their draws by site name.

A block whose draw is one array is a site of the block's name; a draw in parts (a mean and a covariance) gives
a site per part, of the part's name. What comes before a dot in the name of a block comes before those of its sites:
block ``step.mean_shape`` has the sites ``step_mean`` and ``step_shape``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ethogram.models.arguments import is_concrete
from ethogram.models.families.conjugate_block import SiteNames
from ethogram.models.families.exponential_family import ConjugateBlock, Dirichlet, PartlyKnown
from ethogram.models.families.matrix_normal_inverse_wishart import WHITE
from ethogram.models.families.quadrature_sites import LENGTH_SPREAD, VECTOR

__all__ = ["Zeros", "by_site", "sample_parameters", "start_of_site", "zeros_of"]

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
        own = SiteNames(name)
        parts = draw._asdict() if hasattr(draw, "_asdict") else {"": draw}
        sites.update({own(part): value for part, value in parts.items()})
    return sites


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
        of = {SiteNames(key)("coefficients"): b for key, b in bare.items() if hasattr(b, "whitened")}
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
    return by_site({name: block.sites(SiteNames(name), forbidden.get(name)) for name, block in prior.items()})
