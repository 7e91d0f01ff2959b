"""MDPs and rewards as solvers take them: arrays of one float type, checked before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.arguments import (
    Reals,
    concretely,
    is_concrete,
    read_reals,
    refuse_fork,
    require_one_of,
    require_reals,
)
from ethogram.models.mdps.mdp import MDP

__all__ = ["Tabular", "mapped", "read_reward", "require_discounted", "tabular"]


class Tabular(NamedTuple):
    """The parts of an MDP that its values depend on."""

    transitions: Any
    discount: Any
    one_minus_discount: Any  # in double precision: in single, 1 - 0.9999 has three digits
    mask: Any  # (state, action) booleans, or None

    def cast(self, *arrays: Array | None) -> tuple[Any, ...]:
        """The table, and arrays or None, in their common float type; called inside jit."""
        dtype = jnp.result_type(
            self.transitions.probabilities.dtype, *(x.dtype for x in arrays if x is not None)
        )
        transitions = jax.tree.map(
            lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, self.transitions
        )
        discount, rest = (jnp.asarray(x, dtype) for x in (self.discount, self.one_minus_discount))
        return Tabular(transitions, discount, rest, self.mask), *(
            None if x is None else x.astype(dtype) for x in arrays
        )

    def where_available(self, values: Array, otherwise: Any) -> Array:
        """Values (action or 1, state), replaced where an action is not available."""
        return values if self.mask is None else jnp.where(self.mask.T, values, otherwise)


def tabular(mdp: MDP) -> Tabular:
    """The parts of an MDP for solvers; nothing is computed but one minus the discount."""
    known = is_concrete(mdp.discount)
    return Tabular(
        mdp.transitions, mdp.discount, 1 - (float(mdp.discount) if known else mdp.discount), mdp.action_mask
    )


def require_discounted(mdp: MDP, fix: str = "pass an MDP with a discount below 1") -> None:
    """Raise ValueError unless the discount is below 1, where it is not traced."""
    if is_concrete(mdp.discount) and not mdp.discount < 1:
        raise ValueError(
            f"mdp.discount is {mdp.discount}: over an infinite horizon it must be below 1; {fix}"
        )


def mapped(solve: Callable[..., Any], batch: tuple[int, ...], *arrays: tuple[Array | None, int]) -> Any:
    """What `solve` gives for each entry of the batch axes, in these axes.

    Each array comes with the number of its own axes, the last; it may be None.
    """
    if not batch:
        return solve(*(x for x, _ in arrays))
    rows = []
    for x, own in arrays:
        shape = () if x is None else x.shape[x.ndim - own :]
        rows.append(None if x is None else jnp.broadcast_to(x, (*batch, *shape)).reshape(-1, *shape))
    found = jax.vmap(solve)(*rows)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), found)


def read_reward(
    mdp: Any, reward: Reals, name: str = "reward", pairs: bool | None = None
) -> tuple[Array, tuple[int, ...]]:
    """Checked rewards (..., state, action or 1), and their batch axes; reads and refuses as :func:`soft_values`."""
    refuse_fork()
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    require_one_of("pairs", pairs, (None, True, False))
    (reward,) = read_reals(**{name: _without_unavailable(mdp, name, reward)})
    count, num_actions = mdp.num_states, mdp.num_actions
    of_pairs, of_states = reward.shape[-2:] == (count, num_actions), reward.shape[-1:] == (count,)
    if pairs is None and of_pairs and of_states and count > 1:
        raise ValueError(
            f"{name} has shape {reward.shape}, and there are {count} states and {count} actions: pass pairs=True if "
            "its last two axes are (state, action), or pairs=False if the last one is the state"
        )
    if pairs is None and count > 1 and reward.shape[-3:] == (count, num_actions, count):
        raise ValueError(
            f"{name} has shape {reward.shape}, as of state, action and next state: give its mean over next states, "
            "(probabilities * reward).sum(-1); or pairs=False, if it is a batch of rewards of states"
        )
    if (of_pairs and pairs is not False) or reward.shape[-2:] == (count, 1):
        return reward, reward.shape[:-2]
    if of_states and (not pairs or reward.ndim == 1):
        return concretely(lambda xp, x: x[..., None], reward), reward.shape[:-1]
    last, both = f"the last axis must be states, ({count},)", f"states and actions, ({count}, {num_actions})"
    expected = {
        None: f"{last}, or the last two {both}",
        False: last,
        True: f"the last two axes must be {both}",
    }
    given = "" if pairs is None else f", and pairs is {pairs}"
    raise ValueError(f"{name} has shape {reward.shape}{given}: {expected[pairs]}")


def _without_unavailable(mdp: MDP, name: str, reward: Reals) -> Reals:
    """Rewards (..., state, action) with 0 for the -inf of actions that are not available, which no solver reads."""
    require_reals(name, reward)
    mask = mdp.action_mask
    if mask is None or np.shape(reward)[-2:] != mask.shape:
        return reward
    if is_concrete(reward) and not np.isneginf(np.asarray(reward)).any():
        return reward
    xp = np if is_concrete(reward, mask) else jnp
    rows = xp.asarray(reward)
    return xp.where(~xp.asarray(mask) & xp.isneginf(rows), xp.zeros_like(rows), rows)
