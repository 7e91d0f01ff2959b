r"""Objectworld: a square of cells with coloured objects, whose reward depends on how near objects of a colour are.

The cell (x, y) is state ``y * size + x``. An object lies on a cell with probability 0.05; its outer and its inner
colour are 1 or 2, at random. With :math:`d_c(s)` the Euclidean distance to the nearest object of outer colour c,

.. math:: r(s) = 5 \text{ if } d_1(s) < 3 \text{ and } d_2(s) < 2, \quad
          -10 \text{ if only } d_1(s) < 3, \quad 0 \text{ elsewhere.}

Inner colours are a distraction. Actions stay or move by one cell; one succeeds with probability 0.7, and each of the
four others happens in its place with probability 0.075. A move off the square leaves the agent where it is. The
discount is 0.9.

Features are the distances to the nearest object of outer colour 1, outer colour 2, inner colour 1 and inner colour 2,
or for every k = 1, ..., size - 1 whether each of these is below k. Where there is no object of a colour, the distance
is :math:`\sqrt 2` times the size. A bit that is the same all over one world may differ in the next: what is learned in
the one is carried to the other with all of them.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes".
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP
from ethogram.models.soft_values import soft_values
from ethogram.models.trajectories import Metadata, Trajectories

__all__ = [
    "ACTION_NAMES", "MOVES", "ObjectWorld", "draw", "draw_policy", "feature_names", "from_maps", "objectworld",
    "simulate",
]  # fmt: skip

ACTION_NAMES = ("stay", "+y", "+x", "-y", "-x")
MOVES = np.array([[0, 0], [0, 1], [1, 0], [0, -1], [-1, 0]])
"""Steps along x and y, one row an action."""

NUM_ACTIONS = len(ACTION_NAMES)
COLOURS = (1, 2)
KINDS = ("discrete", "continuous")

SHADES = {1: "tab:red", 2: "tab:blue"}
"""What the colours of objects look like in a drawing."""


class ObjectWorld(NamedTuple):
    """A world, and what lies in it.

    Attributes
    ----------
    mdp : the moves, with the features in its own precision.
    outer, inner : (state,) colour 1 or 2 of the object on a cell, 0 where there is none.
    reward : (state,), the true one.
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
    """A world with objects at random places.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    size : cells along a side, at least 2.
    features : ``"discrete"``, 4 (size - 1) bits, or ``"continuous"``, 4 distances.
    density : probability of an object on a cell.
    success : probability that the action chosen is the one that happens.
    discount : gamma in [0, 1].

    Raises
    ------
    TypeError, ValueError : `size` is no integer from 2, there are no such features, or a number is out of range.

    Examples
    --------
    >>> world = objectworld(jax.random.key(0), 8)
    >>> world.features.shape, bool(np.isin(world.reward, [-10, 0, 5]).all())
    ((64, 28), True)
    """
    whole_number("size", size, 2)
    _check_probability("density", density)
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
    """The world of given objects.

    Parameters
    ----------
    outer, inner : (state,) integers, colour 1 or 2 of the object on a cell and 0 where there is none.
    features, success, discount : as in `objectworld`.

    Raises
    ------
    TypeError, ValueError : a map is not of integers 0, 1 and 2, their number is no square (2 x 2 at least), an object
        has one colour only, or as for `objectworld`.

    Examples
    --------
    >>> world = from_maps([1, 0, 0, 0], [2, 0, 0, 0], features="continuous")
    >>> world.reward.tolist(), world.features[1].round(2).tolist()
    ([-10.0, -10.0, -10.0, -10.0], [1.0, 2.83, 2.83, 1.0])
    """
    if features not in KINDS:
        raise ValueError(f"features must be one of {KINDS}, not {features!r}")
    _check_probability("success", success)
    outer, inner = _read_map("outer", outer), _read_map("inner", inner)
    if len(outer) != len(inner):
        raise ValueError(f"inner has {len(inner)} cells, outer {len(outer)}: give both of one world")
    half = np.flatnonzero((outer > 0) != (inner > 0))
    if len(half):
        cell = half[0]
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
    """Names of the features of a world, in their order: ``"outer 1"``, or ``"outer 1 < 3"`` and so on.

    Raises
    ------
    TypeError, ValueError : `size` is no integer from 2, or there are no such features.
    """
    whole_number("size", size, 2)
    if features not in KINDS:
        raise ValueError(f"features must be one of {KINDS}, not {features!r}")
    names = tuple(f"{where} {colour}" for where in ("outer", "inner") for colour in COLOURS)
    if features == "continuous":
        return names
    return tuple(f"{name} < {limit}" for limit in range(1, size) for name in names)


def simulate(key: Array, world: ObjectWorld, num_trajectories: int, length: int = 8) -> Trajectories:
    """Demonstrations by an agent that is soft about the true reward, from first cells that are uniform.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    num_trajectories : number of sequences.
    length : steps of each, with a state and an action.

    Raises
    ------
    TypeError, ValueError : a number is no integer from 1, or the discount of the world is 1.
    RuntimeError : the values of the world did not converge.

    Examples
    --------
    >>> world = objectworld(jax.random.key(0), 8)
    >>> simulate(jax.random.key(1), world, 5).states.shape
    (5, 8)
    """
    whole_number("num_trajectories", num_trajectories, 1)
    whole_number("length", length, 1)
    agent = soft_values(world.mdp, world.reward)
    if not agent.converged:
        raise RuntimeError(f"the values of the world, of discount {world.mdp.discount}, did not converge")
    lived = _walk(key, world.mdp, agent.log_policy, int(num_trajectories), int(length))
    states, actions = (np.asarray(part) for part in lived)
    metadata = Metadata(name="objectworld", action_names=ACTION_NAMES, time_unit="step")
    return Trajectories.from_list(states=states, actions=actions, metadata=metadata)


def draw(world: ObjectWorld, axes: Any = None, values: Any = None) -> Any:
    """Axes with a map of the reward, and the objects: a ring of the outer colour about the inner one.

    Parameters
    ----------
    axes : Matplotlib axes to draw into; new ones by default.
    values : (state,) numbers to map in place of the true reward, such as its posterior mean.

    Raises
    ------
    ValueError : `values` are not finite, one a state.
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
    """Axes with an arrow a cell along its most probable move, as long as that is probable; a dot where it stays.

    Parameters
    ----------
    policy : (state, action) probabilities.
    axes : Matplotlib axes to draw into, such as those of `draw`; without them the reward is drawn first.

    Raises
    ------
    ValueError : `policy` has another shape, or rows that are no probabilities.
    """
    chance = np.asarray(policy, float)
    expected = (len(world.reward), NUM_ACTIONS)
    if chance.shape != expected:
        raise ValueError(
            f"policy has shape {chance.shape}, not {expected}: give probabilities of each action"
        )
    wrong = ~((chance >= 0).all(1) & (np.abs(chance.sum(1) - 1) <= 1e-4))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"policy[{row}] is {chance[row]}, no probabilities that sum to 1")
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
    """Colours (state,) of the cells of a square, once they are found in order."""
    cells = np.asarray(colours)
    if cells.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {cells.dtype}: give integers, 0 where there is no object")
    if cells.ndim != 1 or len(cells) < 4 or math.isqrt(len(cells)) ** 2 != len(cells):
        raise ValueError(f"{name} has shape {cells.shape}: give (size * size,) cells, 2 x 2 at least")
    wrong = np.flatnonzero((cells < 0) | (cells > len(COLOURS)))
    if len(wrong):
        raise ValueError(f"{name}[{wrong[0]}] is {cells[wrong[0]]}: colours are 1 and 2, 0 is no object")
    return cells.astype(int)


def _check_probability(name: str, value: float | int) -> None:
    """Raise ValueError where a number is no probability."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value}: a probability lies in [0, 1]")


def _distance(size: int, present: np.ndarray) -> np.ndarray:
    """Distance (state,) of every cell to the nearest of some."""
    cells = np.stack(np.divmod(np.arange(size * size), size), axis=1)
    gaps = cells[:, None] - cells[present]
    return np.sqrt((gaps**2).sum(-1)).min(1) if present.any() else np.full(len(cells), math.sqrt(2) * size)


def _reached(size: int) -> np.ndarray:
    """Cell (state, action) reached where an action happens."""
    y, x = np.divmod(np.arange(size * size), size)
    along, up = (np.clip(at[:, None] + step, 0, size - 1) for at, step in zip((x, y), MOVES.T, strict=True))
    return up * size + along


def _moves(size: int, success: float | int, discount: float | int, features: np.ndarray) -> MDP:
    reached = _reached(size)
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


@functools.partial(jax.jit, static_argnames=("num_trajectories", "length"))
def _walk(key, mdp, log_policy, num_trajectories, length):
    """States and actions (sequence, time)."""
    key_start, key_walk = jax.random.split(key)
    start = jax.random.randint(key_start, (num_trajectories,), 0, mdp.num_states, np.int32)

    def step(state, key):
        key_action, key_state = jax.random.split(key)
        action = jax.random.categorical(key_action, log_policy[state])
        arrived = mdp.transitions.draw(key_state, state, action)
        return arrived.astype(state.dtype), (state, action)

    lived = lax.scan(step, start, jax.random.split(key_walk, length))[1]
    return tuple(part.T for part in lived)
