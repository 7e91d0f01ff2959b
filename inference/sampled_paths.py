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

__all__ = ["sampled_paths"]

CHUNK = 16
"""Draws of one compiled call."""


def sampled_paths(
    key: Array,
    model: Any,
    draws: Mapping[str, Any],
    data: Trajectories,
    reference: Float[np.ndarray, "sequence time state"],
) -> Int[np.ndarray, "draw sequence time"]:
    """One path of every sequence per draw of the parameters, -1 beyond its length.

    Each is an exact draw from p(z | y, parameters). The labels of a draw are matched, one to one, to those of the
    reference, where their probabilities overlap most on the data.

    Parameters
    ----------
    key : a typed key.
    model : bound to the data, with chains.
    draws : (draw, ...) by site.
    reference : probabilities of the labels, such as those of `infer_roles`.
    """
    draws = {name: np.asarray(draws[name]) for name in model.needed_sites()}
    count = len(next(iter(draws.values())))
    kind = np.int8 if reference.shape[-1] <= 127 else np.int32
    found = np.empty((count, *reference.shape[:2]), kind)
    keys = jax.random.split(key, count)
    for start in range(0, count, CHUNK):
        rows = np.minimum(np.arange(start, start + CHUNK), count - 1)
        part = {name: site[rows] for name, site in draws.items()}
        paths, overlaps = map(np.asarray, _sampled(model, part, keys[rows], data, reference))
        for number in range(min(CHUNK, count - start)):
            label = np.argsort(
                optimal_assignment(-overlaps[number]).role
            )  # of the reference, by the draw's own
            found[start + number] = np.where(paths[number] < 0, -1, label[paths[number]])
    return found


@jax.jit
def _sampled(model: Any, draws: Any, keys: Array, data: Any, reference: Any) -> tuple[Array, Array]:
    """Paths (draw, sequence, time), and overlaps (draw, reference label, own label)."""
    value = model.observed_value(data)
    inside = jnp.arange(reference.shape[1]) < jnp.asarray(data.lengths)[:, None]
    weight = jnp.where(inside[..., None], reference, 0)

    def one(drawn: Any) -> Any:
        chain = model.observation(drawn[0], data).within_truncation()
        state = jnp.where(inside[..., None], chain.smooth(value).state[..., : reference.shape[-1]], 0)
        return chain.sample_path(drawn[1], value).path, jnp.einsum("ntk,ntj->kj", weight, state)

    return jax.lax.map(one, (draws, keys))
