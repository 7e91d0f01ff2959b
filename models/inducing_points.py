"""Which states stand for all when rewards are learned at a few points.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", section 4; the
names are those of their toolkit.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import Int

from ethogram.models.mdp import MDP
from ethogram.models.soft_policy import demonstration_counts

__all__ = ["inducing_points"]

KINDS = ("examples", "examplesplus", "random", "all")


def inducing_points(
    demonstrations: Any, mdp: MDP, *, kind: str = "examples", num: int | None = None, key: Array | None = None
) -> Int[np.ndarray, "inducing"]:
    """States whose rewards the others follow from, in order.

    Parameters
    ----------
    demonstrations : `Trajectories` with states and actions, or counts (state, action).
    mdp : their world.
    kind : ``"examples"``, all states that are visited; ``"examplesplus"``, those, and others drawn until there are
        `num` (64 where None); ``"random"``, `num` states; ``"all"``.
    key : for what is drawn.

    Raises
    ------
    TypeError, ValueError
        `kind` is none of these, `num` is no integer from 1 to the number of states, or a key is missing.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, not {kind!r}")
    if kind == "all":
        return np.arange(mdp.num_states)
    visited = np.zeros(0, int)
    if kind != "random":
        counts = demonstration_counts(mdp, demonstrations, check_transitions=False)
        visited = np.flatnonzero(counts.sum(1))
    if kind == "examples":
        return visited
    most = 64 if num is None and kind == "examplesplus" else num
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"num must be an integer of at least 1, not {num!r}")
    if kind == "random" and most > mdp.num_states:
        raise ValueError(f"num is {most}, and there are {mdp.num_states} states")
    if key is None:
        raise ValueError(f"key is None: kind={kind!r} draws states")
    others = np.setdiff1d(np.arange(mdp.num_states), visited)
    wanted = min(max(most - len(visited), 0), len(others))
    drawn = np.asarray(jax.random.permutation(key, others))[:wanted]
    return np.sort(np.concatenate([visited, drawn]))
