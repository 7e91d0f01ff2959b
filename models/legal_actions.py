"""Which actions are legal in a world, as somebody says who knows more than the world's own mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array, Bool

from ethogram.models.blocks.conjugate_block import is_concrete
from ethogram.models.mdp import MDP

__all__ = ["legal_actions"]


def legal_actions(mdp: MDP, legal: Any = None, states: Any = ()) -> Bool[np.ndarray | Array, "state action"]:
    """Which actions are legal in a world: those given, or all that it has.

    Parameters
    ----------
    legal : (state, action) booleans; None for the world's ``action_mask``, or where it has none, for all actions.
    states : (decision,) integers, for the message.

    Raises
    ------
    ValueError
        If `legal` has another type or shape, or an action that the world does not have; the message names the first
        decision that could take it. What is traced is not checked.
    """
    shape, mask = (mdp.num_states, mdp.num_actions), mdp.action_mask
    if legal is None:
        return np.ones(shape, bool) if mask is None else mask
    allowed = legal if hasattr(legal, "dtype") else np.asarray(legal)
    if allowed.shape != shape or allowed.dtype != bool:
        raise ValueError(f"legal is {allowed.dtype} {allowed.shape}, not booleans {shape}")
    if mask is not None and is_concrete(allowed, mask):
        beyond = np.asarray(allowed) & ~np.asarray(mask)
        if beyond.any():
            seen = np.flatnonzero(beyond.any(-1)[np.asarray(states, int)])
            state = np.asarray(states)[seen[0]] if len(seen) else beyond.any(-1).argmax()
            place = f" at decision {seen[0]}" if len(seen) else ""
            raise ValueError(
                f"legal[{state}, {beyond[state].argmax()}] is True{place}, an action that the world does not have "
                "there: see its action_mask"
            )
    return allowed
