"""Checked log potentials of chains (Rabiner 1989, section II: pi, A and b), in the layout of the kernels."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike

from ethogram.models.arguments import is_concrete, on_host, read_array, require

__all__ = ["ChainPotentials", "chain_potentials", "into_step"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("log_initial", "log_transition", "log_likelihood", "length"),
    meta_fields=("batch_shape", "chain_shape"),
)
@dataclasses.dataclass(frozen=True, eq=False)
class ChainPotentials:
    """Potentials as ``(chain, ...)`` parameters and ``(chain, sequence, ...)`` data, and the way back.

    Trailing batch axes along which no parameter changes are sequences, all others are chains. This is a pytree,
    so that a kernel is jitted over it once and kept.
    """

    log_initial: Any  # (chain, state)
    log_transition: Any  # (chain, state, state) or (chain, sequence, time - 1, state, state)
    log_likelihood: Any  # (chain, sequence, time, state); what varies by step is zero beyond the length
    length: Any  # (chain, sequence)
    batch_shape: tuple[int, ...]
    chain_shape: tuple[int, ...]  # the leading batch axes along which a parameter changes

    @property
    def arrays(self) -> tuple[Any, Any, Any, Any]:
        return self.log_initial, self.log_transition, self.log_likelihood, self.length

    @property
    def driven(self) -> bool:
        return self.log_transition.ndim == 5

    def every_step(self) -> ChainPotentials:
        """The same potentials with one transition matrix per step, so that there are pair marginals of every step."""
        if self.driven:
            return self
        num_chains, num_sequences, num_steps, num_states = self.log_likelihood.shape
        shape = (num_chains, num_sequences, num_steps - 1, num_states, num_states)
        return dataclasses.replace(
            self, log_transition=jnp.broadcast_to(self.log_transition[:, None, None], shape)
        )

    def unfold(self, x: Any) -> Any:
        """``(chain, sequence, ...)`` with the caller's batch axes."""
        return x.reshape(*self.batch_shape, *x.shape[2:])

    def over_sequences(self, function: Callable[..., Any], *, key: Array | None = None) -> Any:
        """Apply a function of one sequence over all batch axes.

        `function` gets ``log_initial (state,)``; ``log_transition``, ``(state, state)`` where fixed and
        ``(time - 1, state, state)`` where driven (see :func:`into_step`); ``log_likelihood (time, state)``, zero
        beyond the length; and ``length ()``. Where `key` is given, a key of the sequence's own comes first.
        """
        log_initial, log_transition, log_likelihood, length = self.arrays
        keys = () if key is None else (jax.random.split(key, length.shape),)
        axes = (*(0 for _ in keys), None, 0 if self.driven else None, 0, 0)
        by_chain = jax.vmap(jax.vmap(function, in_axes=axes))
        return jax.tree.map(self.unfold, by_chain(*keys, log_initial, log_transition, log_likelihood, length))


def chain_potentials(
    log_initial: ArrayLike,
    log_transition: ArrayLike,
    step_log_likelihood: ArrayLike,
    length: ArrayLike | None,
) -> ChainPotentials:
    """Potentials with shapes and, outside jit, values checked, folded to two batch axes.

    Arguments and errors are those of :func:`ethogram.models.chains.log_normalizer`.
    """
    xp: Any = np if on_host(log_initial, log_transition, step_log_likelihood, length) else jnp
    named: dict[str, Any] = {
        "log_initial": log_initial,
        "log_transition": log_transition,
        "step_log_likelihood": step_log_likelihood,
    }
    for name, value in named.items():
        x = named[name] = xp.asarray(value if isinstance(value, jax.Array) else read_array(name, value))
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(
                f"{name} must be floating-point log potentials, not {x.dtype}: take the log first"
            )
    dtype = jnp.result_type(*named.values())
    log_pi, log_a, log_lik = (x.astype(dtype, copy=False) for x in named.values())
    driven = _check_shapes(log_pi, log_a, log_lik)
    batch, num_steps = log_lik.shape[:-2], log_lik.shape[-2]
    lengths = xp.full(batch, num_steps) if length is None else xp.asarray(length)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise TypeError(f"length must be integers, not {lengths.dtype}: count the steps of each sequence")
    if is_concrete(lengths):
        values = np.asarray(lengths)
        rule = f", outside 0..{num_steps}, the steps of step_log_likelihood: pad it to the longest sequence"
        require((values >= 0) & (values <= num_steps), "length", values, rule)

    inner = 3 if driven else 2
    try:
        shape = np.broadcast_shapes(batch, log_pi.shape[:-1], log_a.shape[:-inner], lengths.shape)
    except ValueError:
        raise ValueError(
            f"batch axes do not broadcast: step_log_likelihood {batch}, log_initial {log_pi.shape[:-1]}, "
            f"log_transition {log_a.shape[:-inner]}, length {lengths.shape} (input-driven transitions need "
            "every batch axis of step_log_likelihood before their time axis)"
        ) from None
    _check_values("log_initial", named["log_initial"])
    _check_values("log_transition", named["log_transition"], lengths if driven else None, first_step=1)
    _check_values("step_log_likelihood", named["step_log_likelihood"], lengths)

    own = log_pi.shape[:-1] if driven else np.broadcast_shapes(log_pi.shape[:-1], log_a.shape[:-2])
    own = (1,) * (len(shape) - len(own)) + tuple(own)
    shared = len(shape)
    while shared > 0 and own[shared - 1] == 1:
        shared -= 1
    num_chains, num_sequences = math.prod(shape[:shared]), math.prod(shape[shared:])

    def parameter(x: Any, num_inner: int) -> Any:
        x = x.reshape((1,) * (len(shape) + num_inner - x.ndim) + x.shape)
        x = x.reshape(x.shape[:shared] + x.shape[len(shape) :])
        x = xp.broadcast_to(x, shape[:shared] + x.shape[shared:])
        return x.reshape(num_chains, *x.shape[shared:])

    def data(x: Any, num_inner: int) -> Any:
        x = xp.broadcast_to(x, shape + x.shape[x.ndim - num_inner :])
        return x.reshape(num_chains, num_sequences, *x.shape[len(shape) :])

    log_lik, counted = data(log_lik, 2), data(lengths, 0)
    log_a = data(log_a, 3) if driven else parameter(log_a, 2)
    if length is not None:
        alive = xp.arange(num_steps)[None, None] < counted[..., None]
        log_lik = xp.where(alive[..., None], log_lik, 0)
        log_a = xp.where(alive[..., 1:, None, None], log_a, 0) if driven else log_a
    return ChainPotentials(parameter(log_pi, 1), log_a, log_lik, counted, shape, shape[:shared])


def into_step(log_transition: Array, t: Array) -> Array:
    """Log transition (state, state) of one sequence into step t, for t >= 1; beyond the last, any matrix."""
    if log_transition.ndim == 2:
        return log_transition
    if log_transition.shape[0] == 0:
        return jnp.zeros_like(log_transition, shape=log_transition.shape[1:])
    return log_transition[jnp.minimum(t, log_transition.shape[0]) - 1]


def _check_shapes(log_initial: Any, log_transition: Any, log_likelihood: Any) -> bool:
    """Whether transitions are input-driven."""
    if log_likelihood.ndim < 2 or 0 in log_likelihood.shape[-2:]:
        raise ValueError(
            "step_log_likelihood must have shape (..., time, state) with at least one step and one state, "
            f"not {log_likelihood.shape}"
        )
    num_steps, num_states = log_likelihood.shape[-2:]
    if log_initial.ndim < 1 or log_initial.shape[-1] != num_states:
        raise ValueError(
            f"log_initial must end in the {num_states} states of step_log_likelihood, not {log_initial.shape}"
        )
    if log_transition.ndim < 2 or log_transition.shape[-2:] != (num_states, num_states):
        raise ValueError(
            f"log_transition must end in ({num_states}, {num_states}), the states of step_log_likelihood, "
            f"not {log_transition.shape}"
        )
    if log_transition.ndim <= log_likelihood.ndim:
        return False
    if log_transition.ndim > log_likelihood.ndim + 1 or log_transition.shape[-3] != num_steps - 1:
        raise ValueError(
            f"log_transition {log_transition.shape} has more axes than step_log_likelihood "
            f"{log_likelihood.shape}: input-driven transitions need its batch axes, then (time - 1 = "
            f"{num_steps - 1}, state, state); for a batch of fixed ones, give step_log_likelihood an axis of one "
            "for each batch axis"
        )
    return True


def _check_values(name: str, x: Any, lengths: Any = None, first_step: int = 0) -> None:
    """Refuse NaN and ``+inf``; where steps have `lengths`, only before these. Traced values cannot be read."""
    if not is_concrete(x):
        return
    values = np.asarray(x)
    wrong = ~(values < np.inf)
    if not wrong.any():
        return
    fix = "use -inf for the log of zero"
    if lengths is not None:
        if not is_concrete(lengths):
            return
        axis = -2 if first_step == 0 else -3
        alive = first_step + np.arange(values.shape[axis]) < np.asarray(lengths)[..., None]
        wrong = wrong & np.expand_dims(alive, tuple(range(axis + 1, 0)))
        values = np.broadcast_to(values, wrong.shape)
    if name == "step_log_likelihood":
        fix = "use a row of zeros at missing steps"
    require(~wrong, name, values, f": {fix}")
