r"""Objectworld: a square grid with coloured objects, whose reward depends on the distances to two colours.

The cell (x, y) is state ``y * size + x``. An object lies on a cell with probability 0.05; its outer and its inner
colour are 1 or 2, at random. With :math:`d_c(s)` the Euclidean distance to the nearest object of outer colour c,

.. math:: r(s) = 5 \text{ if } d_1(s) < 3 \text{ and } d_2(s) < 2, \quad
          -10 \text{ if only } d_1(s) < 3, \quad 0 \text{ elsewhere.}

Inner colours are distractors. Actions stay or move by one cell; an action succeeds with probability 0.7, and each of
the four others is executed instead with probability 0.075. A move off the grid leaves the agent in place. The discount
is 0.9.

Features are the distances to the nearest object of outer colour 1, outer colour 2, inner colour 1 and inner colour 2,
or for every k = 1, ..., size - 1 whether each of these is below k. Where there is no object of a colour, the distance
is :math:`\sqrt 2` times the size. A bit that is constant in one objectworld may vary in another: transfer needs all of
them.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes",
section 6.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.models.arguments import require, require_integer, require_kind, require_number, require_one_of
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.mdps.bellman import require_converged
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import SoftPolicy
from ethogram.models.mdps.values import soft_values

__all__ = [
    "ACTION_NAMES", "MOVES", "ObjectWorld", "draw", "draw_policy", "feature_names", "from_maps", "objectworld",
    "simulate",
]  # fmt: skip

ACTION_NAMES = ("stay", "+y", "+x", "-y", "-x")
MOVES = np.array([[0, 0], [0, 1], [1, 0], [0, -1], [-1, 0]])
"""Steps along x and y, one row per action."""

NUM_ACTIONS = len(ACTION_NAMES)
COLOURS = (1, 2)
KINDS = ("discrete", "continuous")

SHADES = {1: "tab:red", 2: "tab:blue"}
"""Colours of objects in figures."""


class ObjectWorld(NamedTuple):
    """An objectworld: MDP, objects, true reward and features.

    Attributes
    ----------
    mdp : the transitions, with the features in its own precision.
    outer, inner : (state,) colour 1 or 2 of the object on a cell, 0 where there is none.
    reward : (state,), the true reward.
    features : (state, feature), distances in cells, or zeros and ones.
    """

    mdp: MDP
    outer: Int[np.ndarray, "state"]
    inner: Int[np.ndarray, "state"]
    reward: Float[np.ndarray, "state"]
    features: Float[np.ndarray, "state feature"]

    @property
    def size(self) -> int:
        """Cells along a side."""
        return math.isqrt(len(self.outer))


def objectworld(
    key: Array,
    size: int = 16,
    *,
    features: str = "discrete",
    density: float | int = 0.05,
    success: float | int = 0.7,
    discount: float | int = 0.9,
) -> ObjectWorld:
    """An objectworld with random objects.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    size : cells along a side, at least 2.
    features : ``"discrete"``, 4 (size - 1) bits, or ``"continuous"``, 4 distances.
    density : probability of an object on a cell.
    success : probability that the chosen action is executed.
    discount : gamma in [0, 1].

    Examples
    --------
    >>> world = objectworld(jax.random.key(0), 8)
    >>> world.features.shape, bool(np.isin(world.reward, [-10, 0, 5]).all())
    ((64, 28), True)
    """
    require_integer("size", size, 2)
    require_number("density", density, 0, 1)
    key_place, key_outer, key_inner = jax.random.split(key, 3)
    shape = (size * size,)
    present = np.asarray(jax.random.bernoulli(key_place, float(density), shape))
    outer, inner = (
        np.where(present, np.asarray(jax.random.randint(colour, shape, 1, len(COLOURS) + 1)), 0)
        for colour in (key_outer, key_inner)
    )
    return from_maps(outer, inner, features=features, success=success, discount=discount)


def from_maps(
    outer: Any,
    inner: Any,
    *,
    features: str = "discrete",
    success: float | int = 0.7,
    discount: float | int = 0.9,
) -> ObjectWorld:
    """The objectworld with given objects.

    Parameters
    ----------
    outer, inner : (state,) integers, colour 1 or 2 of the object on a cell and 0 where there is none.
    features, success, discount : as in `objectworld`.

    Examples
    --------
    >>> world = from_maps([1, 0, 0, 0], [2, 0, 0, 0], features="continuous")
    >>> world.reward.tolist(), world.features[1].round(2).tolist()
    ([-10.0, -10.0, -10.0, -10.0], [1.0, 2.83, 2.83, 1.0])
    """
    require_one_of("features", features, KINDS)
    require_number("success", success, 0, 1)
    outer, inner = _read_map("outer", outer), _read_map("inner", inner)
    if len(outer) != len(inner):
        raise ValueError(f"inner has {len(inner)} cells, outer {len(outer)}: give maps of the same length")
    for cell in np.flatnonzero((outer > 0) != (inner > 0))[:1]:
        raise ValueError(
            f"outer[{cell}] is {outer[cell]}, inner[{cell}] {inner[cell]}: "
            "an object has both colours, an empty cell 0 in both maps"
        )
    size = math.isqrt(len(outer))
    of_colour = [colours == colour for colours in (outer, inner) for colour in COLOURS]
    distances = np.stack([_distance(size, present) for present in of_colour], axis=1)
    near_1, near_2 = distances[:, 0] < 3, distances[:, 1] < 2
    reward = np.where(near_1, np.where(near_2, 5.0, -10.0), 0.0)
    seen = distances
    if features == "discrete":
        limits = np.arange(1, size)[None, :, None]
        seen = (distances[:, None] < limits).reshape(size * size, -1).astype(float)
    return ObjectWorld(_moves(size, success, discount, seen), outer, inner, reward, seen)


def feature_names(size: int = 16, features: str = "discrete") -> tuple[str, ...]:
    """Names of the features, in order: ``"outer 1"``, or ``"outer 1 < 3"`` and so on."""
    require_integer("size", size, 2)
    require_one_of("features", features, KINDS)
    names = tuple(f"{where} {colour}" for where in ("outer", "inner") for colour in COLOURS)
    if features == "continuous":
        return names
    return tuple(f"{name} < {limit}" for limit in range(1, size) for name in names)


def simulate(key: Array, world: ObjectWorld, num_trajectories: int, length: int = 8) -> Trajectories:
    """Demonstrations of the soft-optimal agent for the true reward, from uniform first cells.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    num_trajectories : number of sequences.
    length : steps of each, with a state and an action.

    Examples
    --------
    >>> world = objectworld(jax.random.key(0), 8)
    >>> simulate(jax.random.key(1), world, 5).states.shape
    (5, 8)
    """
    require_integer("num_trajectories", num_trajectories, 1)
    require_integer("length", length, 1)
    agent = require_converged("soft_values", soft_values(world.mdp, world.reward))
    acts = SoftPolicy(
        world.mdp, None, length=length, solution=agent
    )  # from uniform cells: the MDP has no start
    states, actions = np.moveaxis(np.asarray(acts.sample(key, (num_trajectories,))), -1, 0)
    metadata = Metadata(name="objectworld", action_names=ACTION_NAMES, time_unit="step")
    return Trajectories.from_list(states=states, actions=actions, metadata=metadata, codes=True)


def draw(world: ObjectWorld, axes: Any = None, values: Any = None) -> Any:
    """Map of the reward and of the objects, discs of the inner colour in rings of the outer one.

    Parameters
    ----------
    axes : Matplotlib axes to draw into; new ones by default.
    values : (state,) numbers to map instead of the true reward, such as its posterior mean.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Circle

    shown = np.asarray(world.reward if values is None else values, float)
    if shown.shape != world.reward.shape or not np.isfinite(shown).all():
        raise ValueError(f"values has shape {shown.shape}: give ({len(world.reward)},) finite numbers")
    axes = plt.subplots(figsize=(5.2, 4.4), layout="constrained")[1] if axes is None else axes
    size = world.size
    image = axes.imshow(shown.reshape(size, size), origin="lower", cmap="gray", interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label="reward" if values is None else None)
    for cell in np.flatnonzero(world.outer):
        y, x = divmod(int(cell), size)
        for colour, radius in ((world.outer[cell], 0.4), (world.inner[cell], 0.2)):
            disc = Circle((x, y), radius, facecolor=SHADES[int(colour)], edgecolor="white", linewidth=0.6)
            axes.add_patch(disc)
    for colour, shade in SHADES.items():
        axes.scatter([], [], s=40, color=shade, label=f"colour {colour}")
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, borderaxespad=0.2, handletextpad=0.2
    )
    ticks = np.arange(0, size, max(1, size // 4))
    axes.set(xlabel="x", ylabel="y", xticks=ticks, yticks=ticks)
    return axes


def draw_policy(world: ObjectWorld, policy: Any, axes: Any = None) -> Any:
    """Arrows along the most probable move of each cell, of length its probability; dots for staying.

    Parameters
    ----------
    policy : (state, action) probabilities.
    axes : Matplotlib axes to draw into, such as those of `draw`; without them the reward is drawn first.
    """
    chance = np.asarray(policy, float)
    expected = (len(world.reward), NUM_ACTIONS)
    if chance.shape != expected:
        raise ValueError(
            f"policy has shape {chance.shape}, not {expected}: give a probability for each action"
        )
    wrong = ~((chance >= 0).all(1) & (np.abs(chance.sum(1) - 1) <= 1e-4))
    require(~wrong, "policy", chance, ": give probabilities that sum to 1")
    axes = draw(world) if axes is None else axes
    action = chance.argmax(1)
    y, x = np.divmod(np.arange(len(chance)), world.size)
    moves = MOVES[action] * chance.max(1)[:, None]
    goes = action != ACTION_NAMES.index("stay")
    axes.quiver(
        x[goes], y[goes], *moves[goes].T, color="tab:orange", pivot="middle", zorder=4,
        angles="xy", scale_units="xy", scale=1.1, width=0.006, headwidth=3.5, headlength=3.5, headaxislength=3,
    )  # fmt: skip
    axes.plot(x[~goes], y[~goes], ".", color="tab:orange", markersize=4, zorder=4)
    return axes


def _read_map(name: str, colours: Any) -> np.ndarray:
    """Checked colours (state,) of the cells of a square."""
    cells = np.asarray(colours)
    require_kind(name, cells, "iu", "give integers, 0 where there is no object")
    if cells.ndim != 1 or len(cells) < 4 or math.isqrt(len(cells)) ** 2 != len(cells):
        raise ValueError(f"{name} has shape {cells.shape}: give (size * size,) cells, at least 2 x 2")
    wrong = (cells < 0) | (cells > len(COLOURS))
    require(~wrong, name, cells, ": colours are 1 and 2, 0 is no object")
    return cells.astype(int)


def _distance(size: int, present: np.ndarray) -> np.ndarray:
    """Distance (state,) of every cell to the nearest present one."""
    from scipy.ndimage import distance_transform_edt

    if not present.any():
        return np.full(size * size, math.sqrt(2) * size)
    return distance_transform_edt(~present.reshape(size, size)).ravel()


def _moves(size: int, success: float | int, discount: float | int, features: np.ndarray) -> MDP:
    y, x = np.divmod(np.arange(size * size), size)
    along, up = (np.clip(at[:, None] + step, 0, size - 1) for at, step in zip((x, y), MOVES.T, strict=True))
    reached = up * size + along
    slip = (1 - success) / (NUM_ACTIONS - 1)
    chance = slip + (success - slip) * np.eye(NUM_ACTIONS)
    shape = (len(reached), NUM_ACTIONS, NUM_ACTIONS)
    return MDP.sparse(
        np.broadcast_to(reached[:, None], shape),
        np.broadcast_to(chance, shape),
        discount=discount,
        features=features,
        action_names=ACTION_NAMES,
    )
