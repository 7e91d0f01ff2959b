r"""Joint roll-outs of moving agents, all roles and plays in one scan, and policies to roll out.

At each step every role k sees :math:`x_k = \phi_k(p_1, \ldots, p_K, c)` and moves by :math:`\Delta_k`; then all
positions change at once (the cross-update of Le, Yue, Carr, Lucey 2017, Algorithm 2). Every `horizon` steps the scan
starts again at the true positions, with the memory that a policy has of the true past.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.models.arguments import is_concrete, read_array, require_kind
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.printing import short_repr

__all__ = [
    "MotionFeatures",
    "RolledMotion",
    "Scenes",
    "by_role",
    "centred_plays",
    "constant_velocity",
    "linear_step",
    "new_recurrent",
    "num_features",
    "read_scenes",
    "recurrent_step",
    "roll_motion",
    "stay_still",
]

Step = Callable[[Any, Array, Array, Array], tuple[Array, Array]]
"""Memory and displacements, from the parameters of one role, memory, features and velocities, each (play, ...)."""

MotionFeatures = Callable[[Array, Array, Array, Array], Array]
"""Features (role, feature) of one play, from positions and velocities (role, 2) of agents, and (object, 2) of objects.

Compiled once per function: define it at the top of a module.
"""


@short_repr
class Scenes(NamedTuple):
    """Agents on a plane, with other moving objects as context; metres.

    Attributes
    ----------
    positions : (play, time, agent, 2).
    context : (play, time, object, 2), such as the ball and the opponents.
    lengths : (play,) frames; positions beyond are ignored, and finite.
    """

    positions: Float[np.ndarray, "play time agent 2"]
    context: Float[np.ndarray, "play time object 2"]
    lengths: Int[np.ndarray, "play"]


@short_repr
class RolledMotion(NamedTuple):
    """A joint roll-out.

    Attributes
    ----------
    positions : (time - 1, play, role, 2), at times 1, 2, ...
    since : (time - 1,), steps since the last true positions, from 1 to the horizon.
    counted : (time - 1,), whether these came at `phase` or later.
    """

    positions: Array
    since: Array
    counted: Array


def read_scenes(scenes: Any) -> Scenes:
    """Scenes of arrays: a ValueError or TypeError unless shapes agree and numbers, where not traced, are finite."""
    if not isinstance(scenes, Scenes):
        raise TypeError(f"scenes is {type(scenes).__name__}: give Scenes(positions, context, lengths)")
    if not any(isinstance(part, jax.Array) for part in scenes):
        parts = zip(Scenes._fields, scenes, strict=True)
        scenes = Scenes(*(read_array(f"scenes.{name}", part) for name, part in parts))
    positions, context, lengths = map(np.shape, scenes)
    if len(positions) != 4 or positions[3] != 2 or len(context) != 4 or context[3] != 2:
        raise ValueError(
            f"scenes have positions {positions} and context {context}: give (play, time, agent, 2) and "
            "(play, time, object, 2)"
        )
    if context[:2] != positions[:2] or lengths != positions[:1] or not positions[0] * positions[2]:
        raise ValueError(
            f"scenes have positions {positions}, context {context} and lengths {lengths}: give the same plays and "
            "times, one play and one agent at least"
        )
    if not is_concrete(*scenes):
        return scenes
    frames = np.asarray(scenes.lengths)
    if frames.dtype.kind not in "iu":
        raise TypeError(f"scenes.lengths has dtype {frames.dtype}: give integers")
    if frames.min() < 2 or frames.max() > positions[1]:
        raise ValueError(f"scenes.lengths is in {frames.min()}..{frames.max()}: give 2 to {positions[1]}")
    for name in ("positions", "context"):
        array = np.asarray(getattr(scenes, name))
        require_kind(f"scenes.{name}", array, "iuf", "give real numbers")
        if not np.isfinite(array).all():
            raise ValueError(f"scenes.{name}{np.argwhere(~np.isfinite(array))[0].tolist()} is not finite")
    return scenes


def by_role(scenes: Scenes, play: np.ndarray, role: np.ndarray) -> Scenes:
    """Scenes of the plays (assignment,), with agents in the order of their roles (assignment, agent), a permutation.

    A ValueError where a row of `role` is no permutation.
    """
    scenes, play, role = read_scenes(scenes), read_array("play", play, 1), read_array("role", role)
    if play.dtype.kind not in "iu" or not np.isin(play, np.arange(len(scenes.positions))).all():
        raise ValueError(f"play is {play}: give numbers of plays, 0 to {len(scenes.positions) - 1}")
    expected = (len(play), scenes.positions.shape[2])
    if role.shape != expected:
        raise ValueError(f"role has shape {role.shape}: give {expected}, (assignment, agent)")
    for row in np.flatnonzero((np.sort(role, axis=1) != np.arange(expected[1])).any(axis=1))[:1]:
        raise ValueError(f"role[{row}] is {role[row].tolist()}: give a permutation of 0 to {expected[1] - 1}")
    agents = np.argsort(role, axis=1)
    positions = np.take_along_axis(scenes.positions[play], agents[:, None, :, None], axis=2)
    return Scenes(positions, scenes.context[play], scenes.lengths[play])


def centred_plays(scenes: Scenes, metadata: Metadata | None = None) -> Trajectories:
    """Positions of the agents about their centroid, as a role model observes plays: one sequence per agent of a play.

    `group` is the play.
    """
    scenes = read_scenes(scenes)
    positions, lengths = np.asarray(scenes.positions, float), np.asarray(scenes.lengths)
    num_plays, num_times, num_agents, _ = positions.shape
    inside = np.arange(num_times) < lengths[:, None]
    centred = np.where(inside[..., None, None], positions - positions.mean(axis=2, keepdims=True), 0)
    return Trajectories(
        observations=centred.swapaxes(1, 2).reshape(num_plays * num_agents, num_times, 2),
        states=None,
        actions=None,
        lengths=np.repeat(lengths, num_agents),
        observed=np.repeat(inside, num_agents, axis=0),
        agent=np.tile(np.arange(num_agents), num_plays),
        group=np.repeat(np.arange(num_plays), num_agents),
        metadata=Metadata() if metadata is None else metadata,
    )


def stay_still(parameters: Any, memory: Array, features: Array, velocity: Array) -> tuple[Array, Array]:
    """Nobody moves."""
    return memory, jnp.zeros_like(velocity)


def constant_velocity(
    parameters: Any, memory: Array, features: Array, velocity: Array
) -> tuple[Array, Array]:
    """Everybody goes on as in the last step."""
    return memory, velocity


def linear_step(parameters: Any, memory: Array, features: Array, velocity: Array) -> tuple[Array, Array]:
    """Linear autoregression: ``parameters`` (feature + 1, 2) of the change of velocity, the last row the intercept."""
    if len(parameters) != features.shape[-1] + 1:
        raise ValueError(
            f"parameters have {len(parameters)} rows: give {features.shape[-1]} features and one"
        )
    return memory, velocity + features @ parameters[:-1] + parameters[-1]


def recurrent_step(parameters: Any, memory: Array, features: Array, velocity: Array) -> tuple[Array, Array]:
    """A gated recurrent unit (Cho et al. 2014), whose output is added to the last displacement."""
    if memory.shape[-1] != len(parameters["output"]):
        raise ValueError(f"num_units is {memory.shape[-1]}, but parameters have {len(parameters['output'])}")
    both = jnp.concatenate([features, memory], axis=-1)
    gates = jax.nn.sigmoid(both @ parameters["gates"] + parameters["gates_bias"])
    reset, update = jnp.split(gates, 2, axis=-1)
    inner = jnp.concatenate([features, reset * memory], axis=-1)
    candidate = jnp.tanh(inner @ parameters["candidate"] + parameters["candidate_bias"])
    memory = update * memory + (1 - update) * candidate
    return memory, velocity + memory @ parameters["output"] + parameters["output_bias"]


def num_features(features: MotionFeatures, num_roles: int, num_objects: int) -> int:
    """Number of features of each role; a ValueError unless features are one array (role, feature)."""
    agents, objects = (jax.ShapeDtypeStruct((count, 2), float) for count in (num_roles, num_objects))
    found = jax.eval_shape(features, agents, agents, objects, objects)
    shape = getattr(found, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != num_roles:
        raise ValueError(f"features returned {shape or found}: give one array ({num_roles}, feature)")
    return shape[1]


def new_recurrent(key: Array, num_roles: int, num_features: int, num_units: int) -> dict[str, Array]:
    """Parameters (role, ...) of `recurrent_step`; the output is zero, so that it begins at constant velocity."""
    width = num_features + num_units
    key_gates, key_candidate = jax.random.split(key)
    scale = 1 / np.sqrt(width)
    return {
        "gates": scale * jax.random.normal(key_gates, (num_roles, width, 2 * num_units)),
        "gates_bias": jnp.zeros((num_roles, 2 * num_units)),
        "candidate": scale * jax.random.normal(key_candidate, (num_roles, width, num_units)),
        "candidate_bias": jnp.zeros((num_roles, num_units)),
        "output": jnp.zeros((num_roles, num_units, 2)),
        "output_bias": jnp.zeros((num_roles, 2)),
    }


def roll_motion(
    step: Step,
    parameters: Any,
    scenes: Scenes,
    horizon: Any,
    phase: Any = 0,
    noise: Any = None,
    num_units: int = 1,
    before: tuple[Any, Any] | None = None,
    *,
    features: MotionFeatures,
) -> RolledMotion:
    """Joint roll-outs of all plays, which start again at the true positions at times phase + horizon i.

    Parameters
    ----------
    step : one role's move; vectorised over roles.
    parameters : leaves lead with the roles.
    scenes : agents in order of their roles.
    horizon, phase : may be traced, so that one compiled program serves all.
    noise : (time - 1, play, role, 2), added to the displacements; None for none.
    num_units : size of the memory.
    before : positions (play, role, 2) and context (play, object, 2) one frame before the first, for the velocities
        there; None where nobody has a velocity yet.
    features : ``features(position, velocity, objects, object_velocity)`` of one play, arrays (role, 2) and (object, 2),
        returns what policies see (role, feature), such as ``football_scenes.motion_features``.
    """
    scenes = read_scenes(scenes)
    num_plays, num_steps, num_roles, _ = scenes.positions.shape
    num_features(features, num_roles, scenes.context.shape[2])
    for name, number, least in (("horizon", horizon, 1), ("phase", phase, -np.inf)):
        if is_concrete(number) and (np.asarray(number).dtype.kind not in "iu" or np.any(number < least)):
            raise ValueError(
                f"{name} is {number}: give an integer{', at least 1' if name == 'horizon' else ''}"
            )
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
        "noise": (noise, (num_steps - 1, num_plays, num_roles, 2))
    }
    if before is not None:
        shapes["before[0]"] = before[0], (num_plays, num_roles, 2)
        shapes["before[1]"] = before[1], (num_plays, scenes.context.shape[2], 2)
    for name, (array, expected) in shapes.items():
        if array is not None and np.shape(array) != expected:
            raise ValueError(f"{name} has shape {np.shape(array)}: give {expected}")
        if array is not None and is_concrete(array) and not np.isfinite(array).all():
            raise ValueError(f"{name}{np.argwhere(~np.isfinite(array))[0].tolist()} is not finite")
    for leaf in jax.tree.leaves(parameters):
        if np.shape(leaf)[:1] != (num_roles,):
            raise ValueError(f"parameters have shape {np.shape(leaf)}: give {num_roles} roles first")
    return _roll(step, parameters, scenes, horizon, phase, noise, num_units, before, features)


@functools.partial(jax.jit, static_argnames=("step", "num_units", "features"))
def _roll(step, parameters, scenes, horizon, phase, noise, num_units, before, features):
    given = (scenes.positions, scenes.context, parameters, noise, before)
    dtype = jnp.result_type(float, *jax.tree.leaves(given))
    positions, context = (jnp.asarray(x, dtype) for x in scenes[:2])
    num_plays, num_steps, num_roles, _ = positions.shape
    every = jax.vmap(step, in_axes=(0, 1, 1, 1), out_axes=(1, 1))
    phi = jax.vmap(features)
    true, objects = jnp.moveaxis(positions, 1, 0), jnp.moveaxis(context, 1, 0)
    first, objects_first = (
        (true[0], objects[0]) if before is None else (jnp.asarray(x, dtype) for x in before)
    )
    true_before = jnp.concatenate([first[None], true[:-1]])
    objects_before = jnp.concatenate([objects_first[None], objects[:-1]])
    noise = jnp.zeros((num_steps - 1, 1, 1, 1), dtype) if noise is None else jnp.asarray(noise, dtype)
    at_truth = jax.vmap(phi)(true, true - true_before, objects, objects - objects_before)

    def advance(carry, inputs):
        position, previous, memory, true_memory = carry
        time, true_now, true_then, true_features, now, then, shock = inputs
        sync = (time - phase) % horizon == 0
        position, previous = (jnp.where(sync, a, b) for a, b in ((true_now, position), (true_then, previous)))
        memory = jnp.where(sync, true_memory, memory)
        velocity = position - previous
        memory, displacement = every(parameters, memory, phi(position, velocity, now, now - then), velocity)
        true_memory, _ = every(parameters, true_memory, true_features, true_now - true_then)
        after = position + displacement + shock
        return (after, position, memory, true_memory), after

    empty = jnp.zeros((num_plays, num_roles, num_units), dtype)
    times = jnp.arange(num_steps - 1)
    inputs = (times, true[:-1], true_before[:-1], at_truth[:-1], objects[:-1], objects_before[:-1], noise)
    _, rolled = jax.lax.scan(advance, (true[0], first, empty, empty), inputs)
    return RolledMotion(rolled, (times - phase) % horizon + 1, times >= phase)
