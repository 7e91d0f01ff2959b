"""Chains of numpyro's NUTS as compiled blocks of iterations, with model, data and starts as arguments.

Refreshes of fits of one structure and one shape of data share the compiled programs; numpyro's ``MCMC`` compiles anew
for each.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from numpyro.infer import NUTS

from ethogram.inference.checkpoint import CURE, resumed
from ethogram.inference.concrete_labels import with_labels, without_labels
from ethogram.models.arguments import require_integer
from ethogram.models.data.trajectories import Trajectories

__all__ = ["Chains", "ChainsState", "run_chains"]

BLOCK = 50
"""Iterations per compiled call; between calls the progress bar advances, and a checkpoint is written."""


class Chains(NamedTuple):
    """Draws after warm-up, and the statistics of the sampler."""

    sites: dict[str, np.ndarray]  # (chain, draw, ...), with deterministic sites
    statistics: dict[str, np.ndarray]  # (chain, draw), under ArviZ's names


class ChainsState(NamedTuple):
    """State after a whole block of iterations; what a checkpoint holds."""

    done: int  # iterations of each chain, warm-up included
    leaves: list[Any]  # of the states of numpyro's kernel, leading with the chains
    sites: dict[str, np.ndarray]  # as in `Chains`, also those of the block that are more than was asked for
    statistics: dict[str, np.ndarray]


def run_chains(
    key: Array,
    model: Any,
    data: Trajectories,
    starts: dict[str, Array],
    variance: Array,
    num_warmup: int,
    num_draws: int,
    progress_bar: bool,
    checkpoint: str | os.PathLike | None,
    signature: Callable[[], str],
) -> Chains:
    """Chains of the model from unconstrained starts (chain, ...) by site; the checkpoint is written after each block.

    The variance of each unconstrained coordinate, raveled by site, is the first inverse mass matrix, which warm-up
    adapts.
    """
    from tqdm.auto import tqdm

    arrays, labels = without_labels(data)
    num_chains = len(next(iter(starts.values())))
    keys = jax.random.split(key, num_chains)
    fixed = (model, arrays, labels, keys, starts, variance, num_warmup)
    like = _begin.eval_shape(*fixed)
    structure, total = jax.tree.structure(like), num_warmup + num_draws

    def first():
        return ChainsState(0, jax.tree.leaves(_begin(*fixed)), {}, {})

    def check(name, state):
        _check_saved(name, state, like, _advance.eval_shape(*fixed, like)[1], num_warmup)

    state, save = resumed(checkpoint, signature, ChainsState, check, first)
    with tqdm(total=total, disable=not progress_bar, desc="refresh", delay=2.0) as bar:
        bar.update(min(state.done, total))
        while state.done < total:
            state = _next_block(fixed, structure, state, num_warmup)
            save(state)
            bar.update(min(BLOCK, total - state.done + BLOCK))
    return Chains(*jax.tree.map(lambda x: x[:, :num_draws], (state.sites, state.statistics)))


def _next_block(fixed: Any, structure: Any, state: ChainsState, num_warmup: int) -> ChainsState:
    kernel_state, drawn = _advance(*fixed, jax.tree.unflatten(structure, state.leaves))
    after_warmup = max(num_warmup - state.done, 0)
    new = jax.tree.map(lambda x: np.asarray(x[:, after_warmup:]), drawn)
    if state.sites:
        before = (state.sites, state.statistics)
        new = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), before, new)
    return ChainsState(state.done + BLOCK, jax.tree.leaves(kernel_state), *new)


def _check_saved(name: str, state: ChainsState, like: Any, drawn: Any, num_warmup: int) -> None:
    """Raise ValueError unless a state has the arrays of these chains, all draws of them finite."""
    require_integer(f"{name}: done", state.done, 1)
    count, saved = max(state.done - num_warmup, 0), (state.sites, state.statistics)
    expected = jax.tree.map(lambda x: jax.ShapeDtypeStruct((x.shape[0], count, *x.shape[2:]), x.dtype), drawn)

    def described(*trees):
        leaves, structure = jax.tree.flatten(trees)
        return structure, [(np.shape(x), getattr(x, "dtype", None)) for x in leaves]

    same = described(state.leaves, saved) == described(jax.tree.leaves(like), expected)
    if not (same and all(np.isfinite(x).all() for x in jax.tree.leaves(saved))):
        raise ValueError(f"{name} is damaged: its draws or states do not agree; {CURE}")


def _kernel(
    model: Any, arrays: Any, labels: Any, key: Array, start: Any, variance: Array, num_warmup: int
) -> Any:
    """A kernel, the arguments of its model, and its first state."""
    data = with_labels(arrays, labels)
    kernel = NUTS(model, inverse_mass_matrix=variance)
    state = kernel.init(key, num_warmup, init_params=start, model_args=(data,), model_kwargs={})
    return kernel, (data,), state


@functools.partial(jax.jit, static_argnames=("labels", "num_warmup"))
def _begin(model, arrays, labels, keys, starts, variance, num_warmup):
    def of_chain(key, start):
        return _kernel(model, arrays, labels, key, start, variance, num_warmup)[2]

    return jax.vmap(of_chain)(keys, starts)


@functools.partial(jax.jit, static_argnames=("labels", "num_warmup"))
def _advance(model, arrays, labels, keys, starts, variance, num_warmup, state):
    def of_chain(key, start, state):
        # The first state is not used, and XLA drops what makes it: it gives the kernel its functions.
        kernel, arguments, _ = _kernel(model, arrays, labels, key, start, variance, num_warmup)

        def step(state, _):
            state = kernel.sample(state, arguments, {})
            statistics = {
                "diverging": state.diverging,
                "lp": -state.potential_energy,
                "n_steps": state.num_steps,
                "acceptance_rate": state.accept_prob,
            }
            return state, (state.z, statistics)

        state, (unconstrained, statistics) = lax.scan(step, state, None, length=BLOCK)
        return state, (jax.vmap(kernel.postprocess_fn(arguments, {}))(unconstrained), statistics)

    return jax.vmap(of_chain)(keys, starts, state)
