"""Draws of paths of hidden labels, under draws of the parameters, with labels that agree over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.inference.smoothed_draws import by_draw, own_labels
from ethogram.models.data.trajectories import Trajectories

__all__ = ["sampled_paths"]


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
    keyed = draws, jax.random.split(key, count)
    for number, (path, state) in enumerate(by_draw(_sampled, keyed, model, data, reference)):
        if reference is not None:
            label = np.argsort(own_labels(reference, state, data))  # of the reference, by the draw's own
            path = np.where(path < 0, -1, label[path])
        found[number] = path
    return found


@jax.jit
def _sampled(drawn: Any, model: Any, data: Any, reference: Any) -> tuple[Array, Array | None]:
    """Paths (draw, sequence, time), and probabilities of their labels where there is a reference."""
    value = model.observed_value(data)

    def one(drawn: Any) -> Any:
        chain = model.observation(drawn[0], data).within_truncation()
        path = chain.sample_path(drawn[1], value).path
        return path, None if reference is None else chain.smooth(value).state[..., : reference.shape[-1]]

    return jax.lax.map(one, drawn)
