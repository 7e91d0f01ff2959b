"""Chains of numpyro's NUTS as compiled blocks of iterations, with model, data and starts as arguments.

Refreshes of fits of one structure and one shape of data share the compiled programs; numpyro's ``MCMC`` compiles anew
for each.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpyro.infer import NUTS

from ethogram.models.data.trajectories import Metadata, Trajectories

__all__ = ["Chains", "run_chains"]

BLOCK = 50
"""Iterations per compiled call; the progress bar advances between calls."""

LABELS = ("agent", "group", "subject")
"""Integer labels of the sequences; models need them concretely, also under jit, which takes them as tuples."""


class Chains(NamedTuple):
    """Draws after warm-up, and the statistics of the sampler."""

    sites: dict[str, np.ndarray]  # (chain, draw, ...), with deterministic sites
    statistics: dict[str, np.ndarray]  # (chain, draw), under ArviZ's names


def run_chains(
    key: Array,
    model: Any,
    data: Trajectories,
    starts: dict[str, Array],
    variance: Array,
    num_warmup: int,
    num_draws: int,
    progress_bar: bool,
) -> Chains:
    """Chains of the model from unconstrained starts (chain, ...) by site.

    The variance of each unconstrained coordinate, raveled by site, is the first inverse mass matrix, which warm-up
    adapts.
    """
    from tqdm.auto import tqdm

    labels = tuple(
        None if x is None else tuple(np.asarray(x).tolist()) for x in (getattr(data, name) for name in LABELS)
    )
    arrays = jax.tree.map(
        jnp.asarray, data._replace(agent=None, group=None, subject=None, times=None, metadata=Metadata())
    )
    num_chains = len(next(iter(starts.values())))
    keys = jax.random.split(key, num_chains)
    fixed = (model, arrays, labels, keys, starts, variance, num_warmup)
    state, total, parts = _begin(*fixed), num_warmup + num_draws, []
    with tqdm(total=total, disable=not progress_bar, desc="refresh", delay=2.0) as bar:
        for start in range(0, total, BLOCK):
            state, drawn = _advance(*fixed, state)
            kept = slice(max(num_warmup - start, 0), total - start)
            parts.append(jax.tree.map(lambda x, kept=kept: np.asarray(x[:, kept]), drawn))
            bar.update(min(BLOCK, total - start))
    sites, statistics = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)
    return Chains(sites, statistics)


def _kernel(
    model: Any, arrays: Any, labels: Any, key: Array, start: Any, variance: Array, num_warmup: int
) -> Any:
    """A kernel, the arguments of its model, and its first state."""
    restored = [None if x is None else np.asarray(x, np.int32) for x in labels]
    data = arrays._replace(**dict(zip(LABELS, restored, strict=True)))
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
