"""Groups of equal size, whose agents have roles that exclude one another."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from ethogram.models.arguments import is_concrete, require
from ethogram.models.data.selection import label_name
from ethogram.models.data.trajectories import Trajectories

__all__ = ["agents_of_groups", "grouped_sequences"]


def agents_of_groups(data: Trajectories, num_roles: int) -> int:
    """Number of agents of every group.

    Raises
    ------
    ValueError, TypeError
        If the group of a sequence is unknown or traced, groups differ in size or have more agents than roles, or an
        agent is twice in a group.
    """
    if data.group is None:
        raise ValueError("data.group is None: exclusive roles need the group of every sequence")
    if not is_concrete(data.group):
        raise TypeError(
            "data.group is traced: exclusive roles need concrete groups: pass NumPy arrays, outside jit"
        )
    group = np.asarray(data.group)
    rule = ": exclusive roles need the group of every sequence; drop sequences without one"
    require(group >= 0, "data.group", group, rule)
    groups, counts = np.unique(group, return_counts=True)
    for odd in np.flatnonzero(counts != counts[0])[:1]:
        raise ValueError(
            f"ragged groups: group {label_name(data, 'group', groups[odd])} has {counts[odd]} agents, group "
            f"{label_name(data, 'group', groups[0])} has {counts[0]}; exclusive roles need groups of equal size: drop "
            "the others"
        )
    if counts[0] > num_roles:
        raise ValueError(
            f"groups have {counts[0]} agents for num_roles={num_roles} exclusive roles: "
            f"give num_roles >= {counts[0]}"
        )
    if data.agent is not None:
        pairs, repeats = np.unique([group, np.asarray(data.agent)], axis=1, return_counts=True)
        for number, agent in pairs[:, repeats > 1].T[:1]:
            raise ValueError(
                f"agent {label_name(data, 'agent', agent)} appears twice in group {label_name(data, 'group', number)}: "
                "number the agents of a group apart"
            )
    return int(counts[0])


def grouped_sequences(data: Trajectories, num_roles: int) -> Int[np.ndarray, "group agent"]:
    """Sequence numbers of the agents of each group, in order of appearance; raises as `agents_of_groups`."""
    return np.argsort(np.asarray(data.group), kind="stable").reshape(-1, agents_of_groups(data, num_roles))
