r"""Posterior draws of MDPs given counts of transitions, to propagate uncertainty about the environment.

.. math:: P(\cdot \mid s, a) \sim \mathrm{Dirichlet}(n(s, a, \cdot) + c)

as normalised gamma variables: Gelman et al. (2013), "Bayesian data analysis", section 3.4 and appendix A.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from ethogram.models.arguments import require_integer, require_key
from ethogram.models.mdps.from_tables import SPARSE_WAY, concentrations, read_counts
from ethogram.models.mdps.mdp import MDP
from ethogram.models.memory_bound import require_room
from ethogram.models.quick_jit import quick_jit

__all__ = ["draw_transitions"]


def draw_transitions(
    key: Any,
    counts: ArrayLike,
    *,
    prior: float | int,
    num_draws: int,
    discount: float | int,
    successors: ArrayLike | None = None,
    support: ArrayLike | None = None,
    action_mask: ArrayLike | None = None,
    **parts: Any,
) -> MDP:
    """MDPs drawn from the posterior of their transition probabilities: one whose arrays have a leading axis draw.

    Solve them by `jax.vmap`; ``jax.tree.map(lambda x: x[i], drawn)`` is one of them.

    Parameters
    ----------
    key : typed PRNG key.
    counts : n (state, action, next state), >= 0; or (state, action, slot) with `successors`.
    prior, discount, successors, support, action_mask, parts : as for :meth:`MDP.from_counts
        <ethogram.models.mdps.MDP.from_counts>`, which has the mean of the draws: `successors` and `support` have the
        shape of `counts`, `action_mask` is (state, action). Rows without a count are drawn from the prior; with a
        prior of zero, next states that were never counted have probability zero.
    num_draws : number of MDPs, >= 1.

    Examples
    --------
    >>> from ethogram.models.mdps import soft_values
    >>> drawn = draw_transitions(jax.random.key(0), [[[3, 1]], [[0, 2]]], prior=1.0, num_draws=50, discount=0.9)
    >>> values = jax.vmap(lambda mdp: soft_values(mdp, [0.0, 1.0]).values)(drawn)
    >>> values.shape
    (50, 2)
    """
    require_key(key)
    require_integer("num_draws", num_draws, 1)
    read = read_counts(counts, prior, successors, support, action_mask)
    dtype = jnp.result_type(float)
    require_room("draws", (num_draws, *read.counts.shape), dtype, f"draw fewer at a time, or {SPARSE_WAY}")
    weights = concentrations(read, prior)
    settings = {"discount": discount, "action_mask": action_mask, **parts}
    return jax.vmap(lambda one: MDP._of_slots(read.successors, one, **settings))(
        _drawn(key, weights.astype(dtype), num_draws)
    )


@quick_jit(calls=lambda key, weights, num_draws: 20 * num_draws, static_argnames="num_draws")
def _drawn(key: Any, weights: Any, num_draws: int) -> Any:
    """Probabilities (draw, state, action, slot) of Dirichlet rows, zero where the weight is."""
    logs = jax.random.loggamma(key, jnp.where(weights > 0, weights, 1), (num_draws, *weights.shape))
    return jax.nn.softmax(jnp.where((weights > 0)[None], logs, -jnp.inf), axis=-1)
