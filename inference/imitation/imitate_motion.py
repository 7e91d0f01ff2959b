r"""Coordinated imitation of moving agents without an expert: recurrent policies, trained on roll-outs.

Le, Yue, Carr, Lucey (2017), Algorithms 1 and 2: the horizon of the roll-outs is raised stage by stage; after each stage
the role model is fitted to the roll-outs, and the demonstrations are assigned to roles anew. The loss is the mean
squared distance of the roll-outs from the demonstrations.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.inference.imitation.motion import Scenes, check_scenes, motion_features, roll_motion
from ethogram.inference.imitation.stages import MotionSettings, Stages
from ethogram.inference.imitation.world import sequences_of_games
from ethogram.models.arguments import (
    as_list,
    read_array,
    require_integer,
    require_key,
    require_number,
    require_one_of,
)
from ethogram.models.data import trajectories
from ethogram.models.data.angles import require_planar
from ethogram.models.data.gaps import require_complete
from ethogram.models.data.trajectories import Trajectories, group_labels
from ethogram.models.printing import short_repr
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["MotionResult", "fit_linear_motion", "imitate_motion", "residual_scale"]

LARGEST_ROUNDING = 1e-3
"""Metres by which data may differ from scenes, and a millionth of the largest position more."""


@short_repr
class MotionResult(NamedTuple):
    """Recurrent policies of roles.

    Attributes
    ----------
    parameters : of `recurrent_step`, leaves leading with the roles.
    num_units : size of the memory of each role.
    role : (play, agent), most probable role of each agent in the training plays.
    role_probability : (play, agent, role).
    fit : the role model; None unless roles were learned.
    loss : (stage, step), mean squared distance in square metres during training.
    """

    parameters: dict[str, Array]
    num_units: int
    role: Int[np.ndarray, "play agent"]
    role_probability: Float[np.ndarray, "play agent role"]
    fit: ConjugateResult | None
    loss: Float[np.ndarray, "stage step"]


def imitate_motion(
    key: Array,
    model: RoleHMM | ConjugateResult | None,
    scenes: Scenes,
    data: Trajectories | None,
    *,
    roles: str = "learned",
    horizons: Sequence[int] = (1, 2, 5, 10),
    num_steps: int = 60,
    num_units: int = 8,
    learning_rate: float = 3e-3,
    weight_decay: float = 10.0,
    progress_bar: bool = True,
    checkpoint: str | os.PathLike | None = None,
) -> MotionResult:
    """Recurrent policies of all roles, trained together on joint roll-outs of growing horizon.

    Parameters
    ----------
    key : a typed key.
    model : a `RoleHMM` with as many roles as agents, or a fit of it to begin with; None for the baseline.
    scenes : the plays.
    data : the same plays for the role model, one sequence per agent, with ``group``, relative to the centroid of the
        agents (``data.centred()``), as roll-outs are for the next fit; None for the baseline.
    roles : ``"learned"``, or ``"shuffled"``: an arbitrary map of agents to policies in each play.
    horizons : steps of the roll-outs in each stage.
    num_steps : gradient steps (Adam with weight decay) in each stage.
    num_units, learning_rate, weight_decay : of the networks and their training.
    checkpoint : file written after every stage. The same call resumes after the last whole stage, and returns what an
        uninterrupted run returns; more `horizons` extend it.

    Raises
    ------
    ValueError, TypeError
        For scenes of inconsistent shapes or with numbers that are not finite, `data` of other plays or not about the
        centroid, invalid arguments, a loss that is not finite, and a checkpoint that is damaged or of another run.
    """
    require_key(key)
    horizons = as_list("horizons", horizons, "the steps of each stage")
    if not horizons:
        raise ValueError("horizons is empty: give the steps of one stage at least")
    require_one_of("roles", roles, ("learned", "shuffled"))
    for name, count in (
        ("num_steps", num_steps),
        ("num_units", num_units),
        *(("horizons", h) for h in horizons),
    ):
        require_integer(name, count, 1)
    rate = require_number("learning_rate", learning_rate, above=0)
    decay = require_number("weight_decay", weight_decay, 0)
    check_scenes(scenes)
    num_plays, _, num_agents, _ = scenes.positions.shape
    if roles == "learned":
        if model is None or data is None:
            raise ValueError("model or data is None: roles='learned' needs both")
        found_model = model.posterior.model if isinstance(model, ConjugateResult) else model
        if not isinstance(found_model, RoleHMM):
            raise TypeError(f"model is {type(found_model).__name__}: give a RoleHMM, or a fit of one")
        if not isinstance(data, Trajectories):
            raise TypeError(f"data is {type(data).__name__}: give Trajectories")
        trajectories.check(data)
        found_plays = len(np.unique(group_labels(data)))
        if found_plays != num_plays or data.num_sequences != num_plays * num_agents:
            raise ValueError(
                f"data have {found_plays} groups of {data.num_sequences} sequences, the scenes {num_plays} plays of "
                f"{num_agents} agents: give the same plays"
            )
        if found_model.num_roles != num_agents:
            raise ValueError(f"num_roles is {found_model.num_roles}, the scenes have {num_agents} agents")
        _check_plays(scenes, data)
    else:
        model = data = None
    settings = MotionSettings(num_steps, num_units, rate, decay)
    stages = Stages(key, model, scenes, data, horizons, settings)
    state = stages.advance(progress_bar, checkpoint)
    probability, maps = stages.probability(state)
    return MotionResult(state.parameters, num_units, maps.best, probability, state.fit, state.loss)


def _check_plays(scenes: Scenes, data: Trajectories) -> None:
    """Raise ValueError unless data have the plays of the scenes, about the centroids of their agents."""
    sequences = sequences_of_games(data, scenes.positions.shape[2])
    frames, lengths = np.asarray(data.lengths)[sequences[:, 0]], np.asarray(scenes.lengths)
    for play in np.flatnonzero(frames != lengths)[:1]:
        raise ValueError(
            f"data have {frames[play]} frames of play {play}, the scenes {lengths[play]}: give the same plays, by "
            "ascending group"
        )
    if data.observations is None or data.observations.shape[2] != 2:
        raise ValueError("data.observations must have two features, the positions about the centroid")
    require_planar(data)
    require_complete(data, "plays need")
    width, positions = int(lengths.max()), np.asarray(scenes.positions, float)
    given, seen = (
        np.asarray(x)[sequences, :width].swapaxes(1, 2) for x in (data.observations, data.observed)
    )
    away = np.abs(given - (positions - positions.mean(axis=2, keepdims=True))[:, :width]).max(axis=(2, 3))
    # The centroid of data with missing agents is that of the others.
    wrong = seen.all(axis=2) & (away > LARGEST_ROUNDING + 1e-6 * np.abs(positions).max())
    for play, time in np.argwhere(wrong)[:1]:
        raise ValueError(
            f"data.observations of play {play} are {away[play, time]:.3g} m from scenes.positions about their centroid "
            f"at time {time}: give data.centred(), and plays by ascending group"
        )


@jax.jit
def _one_step(scenes: Scenes) -> tuple[Array, Array]:
    """Features (play, time, role, feature) at true positions, and the changes of velocity, from time 1 on."""
    positions, context = jnp.asarray(scenes.positions), jnp.asarray(scenes.context)
    velocity, after = positions[:, 1:-1] - positions[:, :-2], positions[:, 2:] - positions[:, 1:-1]
    objects = context[:, 1:-1]
    phi = jax.vmap(jax.vmap(motion_features))
    return phi(positions[:, 1:-1], velocity, objects, objects - context[:, :-2]), after - velocity


def fit_linear_motion(
    scenes: Scenes, weight: Float[np.ndarray, "play role"] | None = None, ridge: float = 10.0
) -> Float[np.ndarray, "role row 2"]:
    """One linear autoregression for each role, of its change of velocity on the features, by ridge regression.

    A large `ridge`, which is above 0, gives constant velocity. `weight` of a role in a play is 1 where None. A
    ValueError or TypeError for scenes of inconsistent shapes, and numbers out of range or not finite.
    """
    check_scenes(scenes)
    ridge = require_number("ridge", ridge, above=0)
    if weight is not None:
        weight, expected = read_array("weight", weight), scenes.positions.shape[::2]
        if weight.shape != expected:
            raise ValueError(f"weight has shape {weight.shape}: give {expected}, (play, role)")
        if not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError("weight must be finite, and not negative")
    features, change = (np.asarray(x, float) for x in _one_step(scenes))
    num_plays, num_times, num_roles, width = features.shape
    inside = (np.arange(num_times) + 2 < np.asarray(scenes.lengths)[:, None]).astype(float)
    share = inside[..., None] * (np.ones((num_plays, num_roles)) if weight is None else weight)[:, None]
    design = np.concatenate([features, np.ones((*features.shape[:-1], 1))], axis=-1)
    penalty = ridge * np.eye(width + 1)
    gram = np.einsum("ptrf,ptr,ptrg->rfg", design, share, design) + penalty
    return np.linalg.solve(gram, np.einsum("ptrf,ptr,ptrd->rfd", design, share, change))


def residual_scale(
    step: Any, parameters: Any, scenes: Scenes, num_units: int = 1
) -> Float[np.ndarray, "role 2 2"]:
    """Cholesky factors of the covariance of one-step errors of each role, for sampled futures.

    A ValueError as of `roll_motion`, and where no play has three frames.
    """
    rolled = roll_motion(step, parameters, scenes, 1, num_units=num_units)
    true = np.moveaxis(np.asarray(scenes.positions), 1, 0)[1:]
    error = true - np.asarray(rolled.positions)
    inside = np.arange(1, len(true) + 1)[:, None] < np.asarray(scenes.lengths)
    inside[0] = False  # nobody has a velocity yet
    chosen = error[inside]
    if not len(chosen):
        raise ValueError("scenes.lengths are 2: errors of a step need three frames of one play at least")
    covariance = np.einsum("nrd,nre->rde", chosen, chosen) / len(chosen)
    return np.linalg.cholesky(covariance + 1e-9 * np.eye(2))
