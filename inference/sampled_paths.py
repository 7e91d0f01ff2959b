"""Draws of paths of hidden labels, under draws of the parameters, with labels that agree over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.quick_jit import quick_jit

__all__ = ["sampled_paths"]

CHUNK = 16
"""Draws of one compiled call."""


def sampled_paths(
    key: Array,
    model: Any,
    draws: Mapping[str, Any],
    data: Trajectories,
    num_states: int,
    reference: Float[np.ndarray, "sequence time state"] | None,
) -> Int[np.ndarray, "draw sequence time"]:
    """One path of every sequence per draw of the parameters, -1 beyond its length.

    Each is an exact draw from p(z | y, parameters). The labels of a draw are matched, one to one, to those of the
    reference, where their probabilities overlap most on the data.

    Parameters
    ----------
    key : a typed key.
    model : bound to the data, with chains.
    draws : (draw, ...) by site.
    num_states : of the labels.
    reference : probabilities of the labels, such as those of `infer_roles`; None where labels agree in all draws, as
        in those of a factorised posterior.
    """
    draws = {name: np.asarray(draws[name]) for name in model.needed_sites()}
    count = len(next(iter(draws.values())))
    found = np.empty((count, *np.shape(data.observed)), np.int8 if num_states <= 127 else np.int32)
    keys = jax.random.split(key, count)
    for start in range(0, count, CHUNK):
        rows = np.minimum(np.arange(start, start + CHUNK), count - 1)
        part = {name: site[rows] for name, site in draws.items()}
        paths, overlaps = jax.tree.map(np.asarray, _sampled(model, part, keys[rows], data, reference))
        last = min(CHUNK, count - start)
        if reference is None:
            found[start : start + last] = paths[:last]
            continue
        for number in range(last):
            label = np.argsort(
                optimal_assignment(-overlaps[number]).role
            )  # of the reference, by the draw's own
            found[start + number] = np.where(paths[number] < 0, -1, label[paths[number]])
    return found


@quick_jit(calls=2**8)
def _sampled(model: Any, draws: Any, keys: Array, data: Any, reference: Any) -> tuple[Array, Array | None]:
    """Paths (draw, sequence, time), and overlaps (draw, reference label, own label) where there is a reference."""
    value = model.observed_value(data)
    inside = (jnp.arange(np.shape(data.observed)[1]) < jnp.asarray(data.lengths)[:, None])[..., None]

    def one(drawn: Any) -> Any:
        chain = model.observation(drawn[0], data).within_truncation()
        path = chain.sample_path(drawn[1], value).path
        if reference is None:
            return path, None
        state = jnp.where(inside, chain.smooth(value).state[..., : reference.shape[-1]], 0)
        return path, jnp.einsum("ntk,ntj->kj", jnp.where(inside, reference, 0), state)

    return jax.lax.map(one, (draws, keys))
