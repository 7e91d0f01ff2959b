"""Roll-outs of the policies of all roles together, all games at once.

Le, Yue, Carr, Lucey (2017), Algorithms 2 and 6: every policy sees what its team-mates did in the roll-out, never what
they did in the demonstration (the cross-update).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from ethogram.inference.imitation.policies import choose_actions
from ethogram.inference.imitation.world import observe, read_actions, step, take

__all__ = ["RollOut", "roll_out"]


class RollOut(NamedTuple):
    """What the policies did.

    Attributes
    ----------
    states : pytree of arrays (game, time, ...), before each joint action; the last state repeats after the end.
    actions : (game, time, agent) or (game, time, agent, dim), 0 after the end.
    lengths : (game,), joint actions played.
    reached : (game,), whether the goal was reached.
    """

    states: Any
    actions: np.ndarray
    lengths: Int[np.ndarray, "game"]
    reached: Bool[np.ndarray, "game"]


def roll_out(
    world: Any,
    policies: Sequence[Any],
    roles: Int[np.ndarray, "game agent"],
    state: Any,
    rng: np.random.Generator,
    limits: Int[np.ndarray, "game"],
    choose: str = "mode",
) -> RollOut:
    """Games from given states until their goal, or for `limits` (game,) steps.

    Parameters
    ----------
    policies : one for each role.
    roles : policy that plays each agent.
    state : first states, leading with the games.
    choose : ``"mode"`` or ``"sample"``, how policies choose.
    """
    num_games = len(roles)
    num_steps = int(limits.max())
    reached, lengths = np.zeros(num_games, bool), np.zeros(num_games, int)
    states, everything = [], None
    for time in range(num_steps):
        active = np.flatnonzero(~reached & (time < limits))
        if not len(active):
            break
        states.append(state)
        now, held = take(state, active), roles[active]
        actions = _act(world, policies, held, observe(world, held, now), rng, choose)
        after, done = step(world, rng, now, actions)
        state = _put(state, active, after)
        reached[active] = done
        lengths[active] += 1
        if everything is None:
            everything = np.zeros((num_games, num_steps, *actions.shape[1:]), actions.dtype)
        everything[active, time] = actions
    assert everything is not None  # limits are at least 1
    together = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *states)
    return RollOut(together, everything[:, : len(states)], lengths, reached)


def _act(
    world: Any,
    policies: Sequence[Any],
    roles: np.ndarray,
    features: np.ndarray,
    rng: np.random.Generator,
    choose: str,
) -> np.ndarray:
    """Joint actions, by one call of each policy."""
    actions: np.ndarray | None = None
    for role in np.unique(roles):
        where = roles == role
        chosen = choose_actions(policies[role], features[where], world.num_actions, choose, rng, int(role))
        if actions is None:
            actions = np.zeros((*roles.shape, *chosen.shape[1:]), chosen.dtype)
        if chosen.shape[1:] != actions.shape[2:]:
            raise ValueError(
                f"the policy of role {role} answered {chosen.shape[1:]}, others {actions.shape[2:]}"
            )
        actions[where] = chosen
    return read_actions("the policies", actions, len(roles), world)


def _put(state: Any, rows: np.ndarray, new: Any) -> Any:
    def put(old, values):
        changed = np.array(old)
        changed[rows] = values
        return changed

    return jax.tree.map(put, state, new)
