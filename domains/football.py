"""Football: positions of the ten outfield players of a team relative to their centroid.

Six minutes of a match at 5 frames a second (origin and licence: ``data/football/NOTICE``). A play is a spell
of one team's possession; its sequences are the ten outfield players of one team, in metres about the mean of
the ten in each frame, turned so that the team attacks towards +x and its left side is +y.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ethogram.domains.data import archive
from ethogram.models.arguments import require_one_of
from ethogram.models.data.trajectories import Metadata, Trajectories

__all__ = ["FootballPlays", "load", "pitch"]

GOALKEEPER = 1
FRAMES_PER_SECOND = 5
SIDES = ("home", "away")


class FootballPlays(NamedTuple):
    """Plays of one team, with its line-up.

    Attributes
    ----------
    data : ten sequences a play, by play and then by player: `group` is the play, `agent` the player 0..9.
    formation_place : slot of each player in the line-up, a 4-2-3-1: 2 right back, 3 left back, 5 and 6 centre
        backs, 4 and 8 holding midfielders, 7 right, 10 centre, 11 left, 9 striker.
    position : "defender", "midfielder" or "forward" of each player.
    """

    data: Trajectories
    formation_place: Int[np.ndarray, "agent"]
    position: tuple[str, ...]


def load(team: str = "home", role: str = "defence") -> FootballPlays:
    """Plays in which a team defends or attacks: its outfield players about their centroid, in metres.

    Parameters
    ----------
    team : "home" or "away".
    role : "defence" takes the plays in which the other team has the ball, "attack" those with the ball.

    Returns
    -------
    The plays. Defending, home has 14 plays of 399 frames in all, away 13 plays of 767 frames.

    Examples
    --------
    >>> plays = load("away")
    >>> plays.data.observations.shape[0], plays.position[0]
    (130, 'defender')
    """
    require_one_of("team", team, SIDES)
    require_one_of("role", role, ("defence", "attack"))
    keys = ("xy", "team", "player", "position", "formation_place", "sequences")
    xy, side, player, position, place, spells = archive.embedded("football", "football_5hz.npz", keys)
    outfield = (side == SIDES.index(team)) & (place != GOALKEEPER)
    metres = xy[:, outfield].astype(float) * (1 if team == "home" else -1)
    metres -= metres.mean(axis=1, keepdims=True)
    metres = metres.astype(np.float32)
    with_ball = spells[:, 2] == SIDES.index(team)
    plays = [metres[first:end] for first, end, _ in spells[with_ball == (role == "attack")]]
    num_agents = int(outfield.sum())
    data = Trajectories.from_list(
        [play[:, agent] for play in plays for agent in range(num_agents)],
        agent=np.tile(np.arange(num_agents), len(plays)),
        group=np.repeat(np.arange(len(plays)), num_agents),
        metadata=Metadata(
            name=f"football, {team} {role}",
            feature_names=("x", "y"),
            feature_units=("m", "m"),
            time_unit="s",
            frame_rate=float(FRAMES_PER_SECOND),
            agent_names=tuple(str(label) for label in player[outfield]),
        ),
        codes=True,
    )
    words = tuple(str(word) for word in position[outfield])
    return FootballPlays(data, formation_place=place[outfield].astype(int), position=words)


def pitch(ax: Any = None, length: float | int = 104.9, width: float | int = 67.8) -> Any:
    """Axes with the lines of a football pitch, in metres about the centre spot.

    Parameters
    ----------
    ax : axes to draw into.
    length, width : of the pitch, in metres; the other markings have the sizes of the laws of the game.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Arc, Circle, Rectangle

    axes = plt.subplots(figsize=(8, 5.5), layout="constrained")[1] if ax is None else ax
    line: dict[str, Any] = {"fill": False, "edgecolor": "0.75", "linewidth": 1, "zorder": 0}
    axes.add_patch(Rectangle((-length / 2, -width / 2), length, width, **line))
    axes.plot([0, 0], [-width / 2, width / 2], color="0.75", linewidth=1, zorder=0)
    axes.add_patch(Circle((0, 0), 9.15, **line))
    for side in (-1, 1):
        goal_line = side * length / 2
        for depth, breadth in ((16.5, 40.32), (5.5, 18.32)):
            left = min(goal_line, goal_line - side * depth)
            axes.add_patch(Rectangle((left, -breadth / 2), depth, breadth, **line))
        spot, angle = goal_line - side * 11, 180 if side > 0 else 0
        axes.plot(spot, 0, ".", color="0.75", markersize=3, zorder=0)
        half = np.degrees(np.arccos(5.5 / 9.15))
        axes.add_patch(
            Arc((spot, 0), 18.3, 18.3, angle=angle, theta1=-half, theta2=half, color="0.75", zorder=0)
        )
    axes.set(xlim=(-length / 2 - 2, length / 2 + 2), ylim=(-width / 2 - 2, width / 2 + 2), aspect="equal")
    axes.set(xlabel="x, m", ylabel="y, m")
    return axes
