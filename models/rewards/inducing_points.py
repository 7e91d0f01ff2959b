r"""Selection of inducing points, the states or state-action pairs whose rewards are inferred.

By demonstrations: Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian
processes", section 4; the kinds are named as in their toolkit. By features: greedily the point of largest prior
variance given those chosen before, which is a pivoted Cholesky factorisation; Burt, Rasmussen and van der Wilk (2020),
"Convergence of sparse variational inference in Gaussian processes regression", section 4.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array
from jaxtyping import Int
from numpy.typing import ArrayLike

from ethogram.models.arguments import read_features, require_integer, require_key, require_one_of
from ethogram.models.data.state_action_steps import read_steps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.demonstrations import demonstration_counts
from ethogram.models.mdps.mdp import MDP

__all__ = ["representative_points", "select_inducing_points"]

MOST = 200
"""Points that represent the features of all others, at most."""

KNOWN = 1e-4
"""Largest prior variance given the points chosen, relative to that of a reward, with which no more are needed."""

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
        steps = read_steps(demonstrations, ANY, ANY)
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


def representative_points(features: ArrayLike, num: int = MOST) -> Int[np.ndarray, "inducing"]:
    """Points (inducing,), sorted, whose rewards determine those of all others best, at most `num`.

    Every next point has the largest prior variance given those before, under a squared exponential whose lengthscales
    are the standard deviations of the features times the square root of their number, constant ones left out. The first
    is point 0, and of several the first is taken. Fewer than `num` are enough where that variance vanishes: points with
    equal features are never both chosen.

    Parameters
    ----------
    features : (point, feature); of rewards of pairs, in the order of state * A + action.
    num : integer, at least 1.

    Raises
    ------
    TypeError, ValueError
        `features` is not a finite table (point, feature), or `num` is not an integer above 0.

    Examples
    --------
    >>> print(representative_points(np.linspace(0, 1, 9)[:, None], 3))
    [0 4 8]
    >>> print(representative_points([[0.0], [1.0], [0.0], [1.0]]))
    [0 1]
    """
    checked = read_features("features", features)
    if checked.ndim != 2 or not checked.size:
        raise ValueError(f"features has shape {checked.shape}, not (point, feature)")
    require_integer("num", num, 1)
    table = np.asarray(checked, float)
    table = table[:, np.ptp(table, axis=0) > 0]  # whose deviations may be rounding errors instead of zero
    table = (table - table.mean(0)) / table.std(0) / np.sqrt(max(table.shape[1], 1))
    squares = np.sum(table**2, 1)
    left = np.ones(len(table))
    chosen: list[int] = []
    factor = np.zeros((len(table), min(num, len(table))))
    while len(chosen) < factor.shape[1]:
        at = int(np.argmax(left))
        if left[at] <= KNOWN:
            break
        apart = np.maximum(squares + squares[at] - 2 * table @ table[at], 0)
        so_far = factor[:, : len(chosen)]
        column = (np.exp(-0.5 * apart) - so_far @ so_far[at]) / np.sqrt(left[at])
        factor[:, len(chosen)] = column
        left = np.maximum(left - column**2, 0)
        left[at] = 0.0
        chosen.append(at)
    return np.sort(chosen)
