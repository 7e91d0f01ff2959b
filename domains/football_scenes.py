"""Football plays as scenes: a defending team on the pitch, with the ball and its opponents as context.

The plays of `ethogram.domains.football`, of both teams, at 5 frames a second. Metres from the centre spot, turned so
that the defending team attacks towards +x, as for its own trajectories.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.domains import football
from ethogram.domains.data import archive
from ethogram.inference.imitation import Scenes, centred_plays
from ethogram.models.data.trajectories import Metadata, Trajectories

__all__ = ["FootballScenes", "load", "motion_features"]

POSITION_SCALE, DISTANCE_SCALE = (50.0, 30.0), 20.0
"""Metres by which features of positions on the pitch, and of distances between players, are divided."""
REACHES = (5.0, 15.0)
"""Metres within which a policy sees opponents, as kernels: their sums need no order of opponents."""


class FootballScenes(NamedTuple):
    """Defensive plays of both teams.

    Attributes
    ----------
    scenes : positions of the ten outfield players (play, time, agent, 2), and of the ball and the eleven opponents
        (play, time, object, 2); 0 beyond the length.
    data : the same players about their centroid, for the role model, as `football.load` has them; `group` is the play.
    team : (play,), 0 where the home team defends, else 1.
    """

    scenes: Scenes
    data: Trajectories
    team: Int[np.ndarray, "play"]


def load() -> FootballScenes:
    """The 27 defensive plays: 14 of the home team, 13 of the away team, 1166 frames."""
    keys = ("xy", "ball", "team", "formation_place", "sequences")
    xy, ball, side, place, spells = archive.embedded("football", "football_5hz.npz", keys)
    positions, context, team = [], [], []
    for defends in range(2):
        sign = 1 if defends == 0 else -1
        own = (side == defends) & (place != football.GOALKEEPER)
        objects = np.concatenate([ball[:, None, :2], xy[:, side != defends]], axis=1)
        for first, end, possession in spells:
            if possession != defends:
                positions.append(sign * xy[first:end, own].astype(float))
                context.append(sign * objects[first:end].astype(float))
                team.append(defends)
    lengths = np.array([len(play) for play in positions])
    scenes = Scenes(_padded(positions, lengths), _padded(context, lengths), lengths)
    metadata = Metadata(
        name="football, defence of both teams",
        feature_names=("x", "y"),
        feature_units=("m", "m"),
        time_unit="s",
        frame_rate=float(football.FRAMES_PER_SECOND),
    )
    return FootballScenes(scenes, centred_plays(scenes, metadata), np.array(team))


def motion_features(position: Array, velocity: Array, objects: Array, object_velocity: Array) -> Array:
    """Features (role, feature) of one play, for `imitate_motion`: of the ball, the team-mates and the opponents.

    Own position, about the pitch and the team's centroid; own velocity; the ball, and its velocity; the team-mates in
    order of their roles; sums over opponents nearby. Relative to the agent where not said; all are scaled to about 1.
    """
    num_roles = len(position)
    if len(objects) < 2:
        raise ValueError(f"scenes have {len(objects)} objects: give the ball and one opponent at least")
    others = np.array([np.delete(np.arange(num_roles), role) for role in range(num_roles)])
    mates = (position[others] - position[:, None]) / DISTANCE_SCALE
    away = objects[None, 1:] - position[:, None]
    square = jnp.sum(away**2, axis=-1, keepdims=True)
    near = [jnp.exp(-square / (2 * reach**2)) for reach in REACHES]
    opponents = [jnp.sum(each * away, axis=1) / reach for each, reach in zip(near, REACHES, strict=True)]
    parts = [
        position / jnp.array(POSITION_SCALE, position.dtype),
        (position - position.mean(0)) / DISTANCE_SCALE,
        velocity,
        jnp.broadcast_to(velocity.mean(0), velocity.shape),
        (objects[:1] - position) / DISTANCE_SCALE,
        jnp.broadcast_to(object_velocity[:1], velocity.shape),
        mates.reshape(num_roles, -1),
        *opponents,
        *(jnp.sum(each, axis=1) for each in near),
    ]
    return jnp.concatenate(parts, axis=1)


def _padded(plays: list[np.ndarray], lengths: np.ndarray) -> Float[np.ndarray, "play time object 2"]:
    whole = np.zeros((len(plays), lengths.max(), *plays[0].shape[1:]))
    for number, play in enumerate(plays):
        whole[number, : len(play)] = play
    return whole
