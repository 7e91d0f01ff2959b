"""Initial q(theta), one per restart: Hoffman, Blei, Wang, Paisley (2013), eq. 15, from a rough labelling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.conjugate_model import ConjugateModel, overrides
from ethogram.models.families.exponential_family import ConjugateBlock, natural_step
from ethogram.models.families.projection import constrain
from ethogram.models.numpy_generator import key_words
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "KINDS",
    "continued_blocks",
    "kinds_of",
    "start_blocks",
    "updated_side_by_side",
]

KINDS = ("kmeans++", "sticky", "segments", "prior")


def start_blocks(
    key: Array,
    model: ConjugateModel,
    prior: dict[str, ConjugateBlock],
    batches: list[Any],
    restarts: int,
    init: Any,
    padded: list[Any] | None = None,
    number: int | None = None,
    scale: float = 1.0,
) -> dict[str, ConjugateBlock]:
    """Blocks with a leading axis of `restarts`: the prior updated once by the statistics of an initial guess.

    ``"kmeans++"``, ``"sticky"`` and ``"segments"`` use the model's ``start_statistics`` of rough labels;
    ``"prior"`` makes a local step at parameters drawn from the prior, unless the model lists it among its
    ``start_kinds`` and makes its own. ``"mixed"`` cycles through the ``start_kinds``.

    Parameters
    ----------
    key : typed PRNG key.
    model, prior : the model, and the blocks of its prior, by name.
    batches : data, as the model's ``arrange`` gives them.
    restarts : number of initial guesses.
    init : one of the kinds above.
    padded : the batches in the shapes that compiled programs take; None: as they are.
    scale : frames of the data per frame of `batches`, where these are part of the data.
    number : states that q uses, the first ones, where `prior` is of the model's ``growth.prior_of_first``; None: all.

    Raises
    ------
    ValueError
        If `init` is not a kind of start, or not one of the model.
    """
    known = model.start_kinds
    if not isinstance(init, str) or init not in ("mixed", *KINDS):
        raise ValueError(f'init must be "mixed", one of {KINDS}, or an earlier result, not {init!r}')
    if init not in ("mixed", "prior", *known):
        missing = "such start" if overrides(model, "start_statistics") else "start_statistics"
        raise ValueError(
            f"{type(model).__name__} has no {missing} for init={init!r}: use "
            f'{", ".join(dict.fromkeys(known))} or "mixed"'
        )
    rough, drawn = kinds_of(model, restarts, init)
    parts = []
    if rough:
        fits = [(model, model.start_data(batches))]
        (statistics,) = model.starts_of_fits(fits, [key_words(key)], rough, number)
        statistics = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), statistics)
        parts.append(_updated(prior, statistics, scale))
    if drawn:
        keys = jax.random.split(key, restarts)[np.asarray([*drawn])]
        parts.append(_from_prior(keys, model, prior, padded or batches, scale))
    return parts[0] if len(parts) == 1 else _in_order(parts, np.argsort([*rough, *drawn]))


def kinds_of(model: ConjugateModel, restarts: int, init: str) -> tuple[dict[int, str], dict[int, str]]:
    """Kinds of start by number of the restart: those from rough labels, and those from the prior."""
    known = model.start_kinds
    kinds = {i: known[i % len(known)] if init == "mixed" else init for i in range(restarts)}
    own = {*known} if overrides(model, "start_statistics") else set()
    rough = {i: kind for i, kind in kinds.items() if kind in own}
    return rough, {i: kind for i, kind in kinds.items() if kind not in own}


def continued_blocks(blocks: dict[str, ConjugateBlock], prior: dict[str, ConjugateBlock]) -> Any:
    """Blocks of an earlier fit, with a leading axis of one restart, to continue from.

    The values of the prior may have changed, but not its shapes, known parts, or the origin of its coordinates: a
    ValueError otherwise.
    """
    fault = "init is a result of another model"
    structure: Any = jax.tree.structure(blocks)
    if structure != jax.tree.structure(prior):
        raise ValueError(f"{fault}: its blocks are not those of this one")
    pairs = zip(jax.tree_util.tree_leaves_with_path(blocks), jax.tree.leaves(prior), strict=True)
    for (path, old), new in pairs:
        name = jax.tree_util.keystr(path)
        if old.shape != new.shape:
            raise ValueError(f"{fault}: its blocks{name} has shape {old.shape}, not {new.shape}")
        moves = any(getattr(part, "name", None) in ("natural", "held", "solved") for part in path)
        if not moves and not np.array_equal(old, new, equal_nan=new.dtype != bool):
            raise ValueError(
                f"{fault}: blocks{name} differs, and is constant during a fit; choose another init"
            )
    return jax.tree.map(lambda old, new: jax.device_put(np.asarray(old, new.dtype)[None]), blocks, prior)


@quick_jit
def _in_order(parts, order):
    """Blocks of all restarts, in their order."""
    return jax.tree.map(lambda *x: jnp.concatenate(x)[order], *parts)


def _updated_of(prior, statistics, scale=1.0):
    """Blocks of restarts after a step from the prior, with constrained rows projected."""
    return jax.vmap(lambda one: constrain(natural_step(prior, prior, one, scale, 1.0)))(statistics)


_updated, updated_side_by_side = quick_jit(_updated_of), quick_jit(jax.vmap(_updated_of))


@quick_jit
def _from_prior(keys, model, prior, batches, scale):
    def one(key):
        point = drawn_statistics(key, prior)
        statistics = jax.grad(lambda e: sum(model.log_normalizer(e, batch) for batch in batches))(point)
        return constrain(natural_step(prior, prior, statistics, scale, 1.0))

    return jax.vmap(one)(keys)


def drawn_statistics(key: Array, prior: dict[str, ConjugateBlock]) -> dict[str, Any]:
    """Statistics of every block at parameters drawn from it."""
    keys = jax.random.split(key, len(prior))
    draws = [block.sample(k) for k, block in zip(keys, prior.values(), strict=True)]
    parts = [draw if isinstance(draw, tuple) else (draw,) for draw in draws]
    return {name: prior[name].statistics(*part) for name, part in zip(prior, parts, strict=True)}
