"""Which states, or pairs of state and action, stand for all when rewards are learned at a few points.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", section 4; the
names are those of their toolkit.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import Int

from ethogram.models.agents.steps import read_steps
from ethogram.models.mdp import MDP
from ethogram.models.soft_policy import demonstration_counts
from ethogram.models.trajectories import Trajectories

__all__ = ["inducing_points"]

ANY = 2**31 - 1
"""States and actions of a world that is not known."""

KINDS = ("examples", "examplesplus", "random", "all")


def inducing_points(
    demonstrations: Any,
    mdp: MDP | None = None,
    *,
    kind: str = "examples",
    num: int | None = None,
    key: Array | None = None,
    pairs: bool = False,
) -> Int[np.ndarray, "inducing"]:
    """Points whose rewards the others follow from, in order.

    Parameters
    ----------
    demonstrations : `Trajectories` with states and actions, or counts (state, action).
    mdp : their world; may be left out for the states that `Trajectories` visit.
    kind : ``"examples"``, all points that are visited; ``"examplesplus"``, those, and others drawn until there are
        `num` (64 where None); ``"random"``, `num` points; ``"all"``.
    key : for what is drawn.
    pairs : whether points are pairs state * A + action, for rewards of states and actions; otherwise states.

    Raises
    ------
    TypeError, ValueError
        `mdp` is no MDP, `kind` is none of these, `num` is no integer from 1 to the number of points, or a key is
        missing.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, not {kind!r}")
    if mdp is None and kind == "examples" and not pairs and isinstance(demonstrations, Trajectories):
        steps = read_steps(demonstrations, ANY, ANY, said=False)
        return np.unique(steps.state[steps.inside & (steps.action >= 0)])
    if not isinstance(mdp, MDP):
        raise TypeError(
            f"mdp is {type(mdp).__name__}: give the MDP, which kind={kind!r} asks for the number of points"
        )
    points = mdp.num_states * (mdp.num_actions if pairs else 1)
    if kind == "all":
        return np.arange(points)
    visited = np.zeros(0, int)
    if kind != "random":
        counts = demonstration_counts(mdp, demonstrations, check_transitions=False)
        visited = np.flatnonzero(counts if pairs else counts.sum(1))
    if kind == "examples":
        return visited
    most = 64 if num is None and kind == "examplesplus" else num
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"num must be an integer of at least 1, not {num!r}")
    if kind == "random" and most > points:
        raise ValueError(f"num is {most}, and there are {points} points")
    if key is None:
        raise ValueError(f"key is None: kind={kind!r} draws points")
    others = np.setdiff1d(np.arange(points), visited)
    wanted = min(max(most - len(visited), 0), len(others))
    drawn = np.asarray(jax.random.permutation(key, others))[:wanted]
    return np.sort(np.concatenate([visited, drawn]))
