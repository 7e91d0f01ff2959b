"""Selection of inducing points, the states or state-action pairs whose rewards are inferred.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", section 4; the
kinds are named as in their toolkit.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import Int

from ethogram.models.arguments import require_integer, require_key, require_one_of
from ethogram.models.data.state_action_steps import read_steps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import demonstration_counts

__all__ = ["select_inducing_points"]

ANY = 2**31 - 1
"""States and actions of an unknown MDP."""

KINDS = ("examples", "examplesplus", "random", "all")


def select_inducing_points(
    demonstrations: Any,
    mdp: MDP | None = None,
    *,
    kind: str = "examples",
    num: int | None = None,
    key: Array | None = None,
    pairs: bool = False,
) -> Int[np.ndarray, "inducing"]:
    """Inducing points (inducing,), sorted.

    Parameters
    ----------
    demonstrations : `Trajectories` with states and actions, or counts (state, action).
    mdp : their MDP; optional for ``kind="examples"`` with `Trajectories`.
    kind : ``"examples"``, all visited points; ``"examplesplus"``, those and random others up to `num` (default 64);
        ``"random"``, `num` random points; ``"all"``.
    key : for the random kinds.
    pairs : whether points are pairs state * A + action, for rewards of states and actions; otherwise states.

    Raises
    ------
    TypeError, ValueError
        `mdp` is not an MDP, `kind` is unknown, `num` is not an integer from 1 to the number of points, or a random kind
        has no key.
    """
    require_one_of("kind", kind, KINDS)
    if mdp is None and kind == "examples" and not pairs and isinstance(demonstrations, Trajectories):
        steps = read_steps(demonstrations, ANY, ANY, said=False)
        return np.unique(steps.state[steps.inside & (steps.action >= 0)])
    if not isinstance(mdp, MDP):
        raise TypeError(
            f"mdp is {type(mdp).__name__}: give the MDP, which kind={kind!r} needs for the number of points"
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
    most = require_integer("num", most, 1, points if kind == "random" else None)
    if key is None:
        raise ValueError(f"key is None: kind={kind!r} draws points, pass key=jax.random.key(0)")
    require_key(key)
    others = np.setdiff1d(np.arange(points), visited)
    missing = min(max(most - len(visited), 0), len(others))
    drawn = np.asarray(jax.random.permutation(key, others))[:missing]
    return np.sort(np.concatenate([visited, drawn]))
