"""Chains of numpyro's NUTS as compiled blocks of iterations, with model, data and starts as arguments.

Fits of one structure and one shape of data share the compiled programs. Numpyro's ``MCMC`` compiles anew for each
kernel and keeps what it compiled, until the process has no memory map left.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from numpyro.handlers import reparam
from numpyro.infer import NUTS
from numpyro.infer.reparam import LocScaleReparam

from ethogram.inference.checkpoint import CURE, resumed
from ethogram.models.arguments import require_integer
from ethogram.models.quick_jit import quick_jit

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
    data: Any,
    num_warmup: int,
    num_draws: int,
    num_chains: int,
    progress_bar: bool,
    *,
    settings: Mapping[str, Any],
    starts: dict[str, Array] | None = None,
    non_centred: tuple[str, ...] = (),
    checkpoint: str | os.PathLike | None = None,
    signature: Callable[[], str] = str,
    title: str = "nuts",
) -> Chains:
    """Chains of a bound model, a pytree; the checkpoint is written after each block.

    Parameters
    ----------
    data : that the model has checked, as its `entries` give the batch: without labels, which compiled code cannot read.
    settings : of `NUTS`. Arrays in them are arguments of the program, all else belongs to its structure.
    starts : unconstrained starts (chain, ...) by site; those of numpyro where None.
    non_centred : sites of location and scale that are sampled as standardised, by ``LocScaleReparam``.

    Raises
    ------
    ValueError : the density is not finite anywhere that numpyro tries to start.
    """
    from tqdm.auto import tqdm

    data = jax.device_put(data)
    varying, structure_of_settings = _without_constants(settings)
    keys = jax.random.split(key, num_chains)
    fixed = (model, data, keys, starts, varying, structure_of_settings, non_centred, num_warmup)
    like = _begin.eval_shape(*fixed)
    structure, total = jax.tree.structure(like), num_warmup + num_draws

    def first():
        state = _begin(*fixed)
        if not all(np.isfinite(x).all() for x in jax.tree.leaves((state.potential_energy, state.z_grad))):
            raise ValueError(
                "the log density of the model is not finite where chains start: check the scale of data and priors, or "
                "pass init_strategy"
            )
        return ChainsState(0, jax.tree.leaves(state), {}, {})

    def check(name, state):
        _check_saved(name, state, like, _advance.eval_shape(*fixed, like)[1], num_warmup)

    state, save = resumed(checkpoint, signature, ChainsState, check, first)
    with tqdm(total=total, disable=not progress_bar, desc=title, delay=2.0) as bar:
        bar.update(min(state.done, total))
        while state.done < total:
            state = _next_block(fixed, structure, state, num_warmup)
            save(state)
            bar.update(min(BLOCK, total - state.done + BLOCK))
    sites, statistics = jax.tree.map(lambda x: x[:, :num_draws], (state.sites, state.statistics))
    for name in non_centred:
        del sites[f"{name}_decentered"]
    return Chains(sites, statistics | {"tree_depth": np.log2(statistics["n_steps"]).astype(int) + 1})


def _next_block(fixed: Any, structure: Any, state: ChainsState, num_warmup: int) -> ChainsState:
    kernel_state, drawn = _advance(*fixed, jax.tree.unflatten(structure, state.leaves))
    after_warmup = max(num_warmup - state.done, 0)
    new = jax.tree.map(lambda x: np.asarray(x)[:, after_warmup:], drawn)
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


def _without_constants(settings: Mapping[str, Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """Arrays among the leaves of settings, and all else, which is hashable, with the places of the arrays."""
    leaves, structure = jax.tree.flatten(
        {name: jax.tree_util.Partial(x.func, *x.args, **x.keywords) if isinstance(x, functools.partial) else x
         for name, x in settings.items()}
    )  # fmt: skip
    varying = [isinstance(leaf, np.ndarray | jax.Array) for leaf in leaves]
    constants = tuple(None if vary else leaf for leaf, vary in zip(leaves, varying, strict=True))
    return [x for x, vary in zip(leaves, varying, strict=True) if vary], (
        structure,
        constants,
        tuple(varying),
    )


def _with_constants(arrays: list[Any], fixed: tuple[Any, ...]) -> dict[str, Any]:
    """Settings that :func:`_without_constants` took apart."""
    (structure, constants, varying), rest = fixed, iter(arrays)
    leaves = [next(rest) if vary else x for x, vary in zip(constants, varying, strict=True)]
    return jax.tree.unflatten(structure, leaves)


def _kernel(
    model: Any, data: Any, key: Array, start: Any, varying: Any, fixed: Any,
    non_centred: tuple[str, ...], num_warmup: int,
) -> Any:  # fmt: skip
    """A kernel, the arguments of its model, and its first state."""
    if non_centred:
        model = reparam(model, config={name: LocScaleReparam(0) for name in non_centred})
    kernel = NUTS(model, **_with_constants(varying, fixed))
    state = kernel.init(key, num_warmup, init_params=start, model_args=(data,), model_kwargs={})
    return kernel, (data,), state


STATIC = ("fixed", "non_centred", "num_warmup")


@quick_jit(static_argnames=STATIC)
def _begin(model, data, keys, starts, varying, fixed, non_centred, num_warmup):
    def of_chain(key, start):
        return _kernel(model, data, key, start, varying, fixed, non_centred, num_warmup)[2]

    return jax.vmap(of_chain)(keys, starts)


@quick_jit(calls=2**16, static_argnames=STATIC)
def _advance(model, data, keys, starts, varying, fixed, non_centred, num_warmup, state):
    settings = (varying, fixed, non_centred, num_warmup)

    def of_chain(key, start, state):
        # The first state is not used, and XLA drops what makes it: it gives the kernel its functions.
        kernel, arguments, _ = _kernel(model, data, key, start, *settings)

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
