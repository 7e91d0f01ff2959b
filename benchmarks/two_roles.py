"""Two sticky roles three standard deviations apart, at any offset and scale: the test case of priors from the data.

A role is kept with probability .95. Both features are independent normals of variance one; the mean of the first is 0
in role 0 and 3 in role 1, so that the error of the best classifier of single frames is .067.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Int

from ethogram.models.arguments import require_key
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["TwoRoles", "simulate"]

NUM_SEQUENCES, NUM_STEPS = 6, 30
APART = np.array([3.0, 0.0])
REDRAWN = 0.1
"""Share of steps at which the role is drawn anew, with equal probabilities."""


class TwoRoles(NamedTuple):
    """Simulated trajectories and their roles.

    Attributes
    ----------
    data : six sequences of thirty frames with two features, in double precision.
    roles : (sequence, time), 0 or 1.
    """

    data: Trajectories
    roles: Int[np.ndarray, "sequence time"]


def simulate(key: Array, offset: float | int = 0.0, scale: float | int = 1.0) -> TwoRoles:
    """Simulated trajectories, multiplied by `scale` and moved by `offset`, with their roles.

    The same key gives the same roles, and the same features up to `offset` and `scale`.
    """
    require_key(key)
    random = numpy_generator(key)
    roles = random.integers(2, size=(NUM_SEQUENCES, NUM_STEPS))
    for t in range(1, NUM_STEPS):
        redrawn = random.random(NUM_SEQUENCES) < REDRAWN
        roles[:, t] = np.where(redrawn, roles[:, t], roles[:, t - 1])
    features = roles[..., None] * APART + random.standard_normal((NUM_SEQUENCES, NUM_STEPS, len(APART)))
    return TwoRoles(Trajectories.from_list(list(offset + scale * features)), roles)
