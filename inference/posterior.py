"""The posterior that a conjugate fit leaves: blocks of q(theta), with the model they belong to."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.models.exponential_family import ConjugateBlock, expected_statistics
from ethogram.models.model_object import model_object
from ethogram.models.parameter_sites import by_site

__all__ = ["Posterior", "load"]


@model_object
class Posterior:
    """q(theta): independent conjugate blocks by name, and the model.

    Parameters
    ----------
    model : the model object that was fitted.
    blocks : posterior blocks, named as in ``model.prior()``.
    """

    model: Any
    blocks: dict[str, ConjugateBlock]

    def sample(self, key: Array, num_draws: int) -> dict[str, Array]:
        """Independent draws of the parameters by site, with a leading axis of `num_draws`."""
        if isinstance(num_draws, bool) or not isinstance(num_draws, int | np.integer):
            raise TypeError(f"num_draws must be an integer, not {num_draws!r}")
        if num_draws < 1:
            raise ValueError(f"num_draws must be at least 1, not {num_draws}")
        return _sample(self, key, num_draws)

    def mean(self) -> dict[str, Array]:
        """Posterior means of the parameters by site; infinite where a mean does not exist."""
        return by_site({name: block.mean() for name, block in self.blocks.items()})

    def expected_statistics(self) -> dict[str, Any]:
        """Expected log potentials of the blocks: what the model's log normaliser takes."""
        return expected_statistics(self.blocks)

    def save(self, path: str | os.PathLike) -> None:
        """Write the posterior and its model to one file, whole or not at all; :func:`load` reads it."""
        storage.write(path, {"posterior": self})


def load(path: str | os.PathLike) -> Any:
    """The posterior that :meth:`Posterior.save`, or that of a learned reward, wrote.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is truncated, or holds something else.
    """
    content = storage.read(path)
    found = content.get("posterior") if isinstance(content, dict) else None
    if not all(callable(getattr(found, part, None)) for part in ("sample", "save")):
        raise ValueError(f"{os.fspath(path)} holds no posterior: a file written by Posterior.save is needed")
    return found


def _sample(posterior: Posterior, key: Array, num_draws: int) -> dict[str, Array]:
    names = sorted(posterior.blocks)
    keys = jax.random.split(key, len(names))
    return by_site({n: posterior.blocks[n].sample(k, (num_draws,)) for n, k in zip(names, keys, strict=True)})


_sample = jax.jit(_sample, static_argnums=2)
