"""Roll-outs of many games at once, such as those of the policies of all roles together.

Le, Yue, Carr, Lucey (2017), Algorithms 2 and 6: every policy sees what its team-mates did in the roll-out, never what
they did in the demonstration (the cross-update).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int

from ethogram.inference.imitation.policies import choose_actions
from ethogram.inference.imitation.world import Demonstrations, observe, put, read_actions, step, take

__all__ = ["joint_actions", "roll_out"]


def roll_out(
    world: Any,
    act: Callable[[Any, np.ndarray], np.ndarray],
    state: Any,
    rng: np.random.Generator,
    limits: Int[np.ndarray, "game"],
) -> tuple[Demonstrations, Bool[np.ndarray, "game"]]:
    """Games from given states until their goal, or for `limits` (game,) steps, and whether they reached it.

    After the end of a game its last state repeats, and actions are 0.

    Parameters
    ----------
    act : ``act(state, game)`` returns legal joint actions (row, agent) of the games (row,) at their states.
    state : first states, leading with the games.
    """
    num_games, num_steps = len(limits), int(limits.max())
    reached, lengths = np.zeros(num_games, bool), np.zeros(num_games, int)
    states, played = [], []
    for time in range(num_steps):
        active = np.flatnonzero(~reached & (time < limits))
        if not len(active):
            break
        now = take(state, active)
        actions = act(now, active)
        after, reached[active] = step(world, rng, now, actions)
        everyone = np.zeros((num_games, *actions.shape[1:]), actions.dtype)
        everyone[active] = actions
        states.append(state)
        played.append(everyone)
        state = put(state, active, after)
        lengths[active] += 1
    together = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *states)
    return Demonstrations(together, np.stack(played, axis=1), lengths), reached


def joint_actions(
    world: Any,
    policies: Sequence[Any],
    roles: Int[np.ndarray, "game agent"],
    state: Any,
    rng: np.random.Generator,
    deterministic: bool = True,
) -> np.ndarray:
    """Joint actions of agents in their roles, by one call of the policy of each role."""
    features = observe(world, roles, state)
    actions: np.ndarray | None = None
    for role in np.unique(roles):
        where = roles == role
        chosen = choose_actions(
            policies[role], features[where], world.num_actions, deterministic, rng, int(role)
        )
        if actions is None:
            actions = np.zeros((*roles.shape, *chosen.shape[1:]), chosen.dtype)
        if chosen.shape[1:] != actions.shape[2:]:
            raise ValueError(
                f"the policy of role {role} answered {chosen.shape[1:]}, others {actions.shape[2:]}"
            )
        actions[where] = chosen
    return read_actions("the policies", actions, len(roles), world)
