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
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpyro.distributions import TransformedDistribution, biject_to
from numpyro.handlers import reparam, seed, substitute, trace
from numpyro.infer import NUTS, init_to_uniform
from numpyro.infer.hmc_util import build_adaptation_schedule
from numpyro.infer.reparam import LocScaleReparam, TransformReparam
from numpyro.infer.util import ParamInfo, constrain_fn, potential_energy

from ethogram.inference import storage
from ethogram.inference.checkpoint import CURE, Checkpoint
from ethogram.models.arguments import require_integer
from ethogram.models.quick_jit import quick_jit

__all__ = ["BLOCK", "Chains", "ChainsState", "run_chains"]

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

    def after_block(self, leaves: list[Any], drawn: Any, num_warmup: int) -> ChainsState:
        """The state after a block with these states of the kernel, draws and statistics (chain, iteration, ...)."""
        after_warmup = max(num_warmup - self.done, 0)
        new = jax.tree.map(lambda x: np.asarray(x)[:, after_warmup:], drawn)
        if self.sites:
            before = (self.sites, self.statistics)
            new = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), before, new)
        return ChainsState(self.done + BLOCK, leaves, *new)


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
    signature: Callable[[], str] | None = None,
    title: str = "nuts",
) -> Chains:
    """Chains of the model, a pytree, on data that it has checked; the checkpoint is written after each block.

    Parameters
    ----------
    settings : of `NUTS`. Arrays in them are arguments of the program, all else belongs to its structure.
    starts : unconstrained starts (chain, ...) by site; those of numpyro where None.
    non_centred : sites of location and scale that are sampled as standardised: by ``LocScaleReparam``, or
        ``TransformReparam`` where their law is transformed.
    signature : of what a checkpoint belongs to; None: of all arguments but the number of draws.

    Raises
    ------
    ValueError : the density is not finite anywhere that numpyro tries to start.
    """
    from tqdm.auto import tqdm

    data = jax.device_put(data)
    varying, fixed = _without_constants(settings)
    sampled = (model, data, varying, fixed, non_centred)
    begun = _begin(*sampled, key, starts, num_chains)
    total = num_warmup + num_draws

    def first():
        if not all(np.isfinite(x).all() for x in jax.tree.leaves((begun.potential_energy, begun.z_grad))):
            raise ValueError(
                "the log density of the model is not finite where chains start: check the scale of data and priors, or "
                "pass init_strategy"
            )
        return ChainsState(0, jax.tree.leaves(begun), {}, {})

    def own_signature():
        named = jax.tree.map(_in_words, dict(settings))
        given = [named, num_warmup, num_chains, list(non_centred)]
        return storage.fingerprint(jax.random.key_data(key), model, data, starts, given)

    def check(name, state):
        drawn = _advance.eval_shape(*sampled, begun, _stages(num_warmup, 0))[1]
        _check_saved(name, state, begun, drawn, num_warmup)

    bar_settings: Any = {"total": total, "disable": not progress_bar, "desc": title, "delay": 2.0}
    with Checkpoint(checkpoint) as store, tqdm(**bar_settings) as bar:
        state = store.resumed(signature or own_signature, ChainsState, check, first)
        bar.update(min(state.done, total))
        while state.done < total:
            kernel_state = jax.tree.unflatten(jax.tree.structure(begun), state.leaves)
            kernel_state, drawn = _advance(*sampled, kernel_state, _stages(num_warmup, state.done))
            state = state.after_block(jax.tree.leaves(kernel_state), drawn, num_warmup)
            store.save(state, state.done)
            bar.update(min(BLOCK, total - state.done + BLOCK))
    sites, statistics = jax.tree.map(lambda x: x[:, :num_draws], (state.sites, state.statistics))
    own = {f"{name}{suffix}" for name in non_centred for suffix in ("_decentered", "_base")}
    sites = {name: site for name, site in sites.items() if name not in own}
    return Chains(sites, statistics | {"tree_depth": np.log2(statistics["n_steps"]).astype(int) + 1})


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


def _in_words(leaf: Any) -> Any:
    """A setting with names in place of functions."""
    parts = isinstance(leaf, functools.partial) and [leaf.func.__qualname__, list(leaf.args), leaf.keywords]
    return parts or getattr(leaf, "__qualname__", leaf)


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


class Stage(NamedTuple):
    """Where iterations stand in the warm-up, as numpyro's schedule of `SHORTEST` iterations has it."""

    iteration: np.ndarray
    window: np.ndarray


SHORTEST = 20
"""Iterations of the shortest warm-up that has all windows of Stan's: before, while and after masses are learnt."""


def _stages(num_warmup: int, done: int) -> Stage:
    """Of a block of iterations after those that are done.

    Numpyro's kernel adapts by the window that an iteration is in, and by whether it is the last of it. So any warm-up
    is one of `SHORTEST` iterations in which some come again, and its length no part of the program.
    """
    windows, (_, masses, _) = build_adaptation_schedule(num_warmup), build_adaptation_schedule(SHORTEST)
    ends = [window.end for window in windows]
    t = np.arange(done, done + BLOCK)
    window = np.searchsorted(ends, t)
    window = np.where(window == 0, 0, np.where(window < len(windows) - 1, 1, 2))
    iteration = np.where((window == 1) & np.isin(t, ends), masses.end, 0)
    iteration = np.where(t == num_warmup - 1, SHORTEST - 1, np.where(t < num_warmup, iteration, SHORTEST))
    return Stage(iteration, window)


def _model(model: Any, non_centred: tuple[str, ...]) -> Any:
    def of_site(site):
        if site["name"] not in non_centred:
            return None
        fn = site["fn"]
        while not isinstance(fn, TransformedDistribution) and hasattr(fn, "base_dist"):
            fn = fn.base_dist
        return TransformReparam() if isinstance(fn, TransformedDistribution) else LocScaleReparam(0)

    return reparam(model, config=of_site) if non_centred else model


@functools.partial(jax.jit, static_argnames=("non_centred", "forward_mode"))
def _energy_and_gradient(model, data, position, non_centred, forward_mode):
    """Potential energy of the unconstrained sites and its gradient, which the programs below share once traced."""

    def energy(position):
        return potential_energy(_model(model, non_centred), (data,), {}, position)

    if forward_mode:
        return energy(position), jax.jacfwd(energy)(position)
    return jax.value_and_grad(energy)(position)


def _kernel(model: Any, data: Any, non_centred: tuple[str, ...], settings: dict[str, Any]) -> Any:
    """A kernel of the potential energy, and what gives the energy and its gradient at unconstrained sites."""
    settings = dict(settings)
    settings.pop("init_strategy", None)
    forward_mode = settings.get("forward_mode_differentiation", False)

    def value_and_gradient(position):
        return _energy_and_gradient(model, data, position, non_centred, forward_mode)

    @jax.custom_jvp
    def energy(position):
        return value_and_gradient(position)[0]

    @energy.defjvp
    def along(positions, directions):
        value, gradient = value_and_gradient(*positions)
        return value, sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, *directions)))

    return NUTS(potential_fn=energy, **settings), value_and_gradient


def _begun(kernel: Any, key: Array, info: ParamInfo) -> Any:
    """First state of a kernel, which has its functions afterwards."""
    # A list of blocks, as numpyro has it for models: masses may be by site.
    if isinstance(kernel._dense_mass, bool):
        kernel._dense_mass = [tuple(sorted(info.z))] if kernel._dense_mass else []
    return kernel.init(key, SHORTEST, init_params=info)


def _over_chains(of_chain: Callable[..., Any], chains: tuple[Any, ...], num_chains: int) -> Any:
    """Of each chain: on a CPU one after the other, where none waits for the longest tree, elsewhere at once."""
    at_once = None if jax.default_backend() == "cpu" else num_chains
    return lax.map(lambda chain: of_chain(*chain), chains, batch_size=at_once)


STATIC = ("fixed", "non_centred")


@quick_jit(static_argnames=(*STATIC, "num_chains"))
def _begin(model, data, varying, fixed, non_centred, key, starts, num_chains):
    """First states of the chains, at the starts given, or at the first finite ones in 100 tries of the strategy."""
    settings = _with_constants(varying, fixed)
    strategy = settings.get("init_strategy", init_to_uniform)
    kernel, value_and_gradient = _kernel(model, data, non_centred, settings)

    def drawn(key):
        seeded = substitute(seed(_model(model, non_centred), key), substitute_fn=strategy)
        sites = trace(seeded).get_trace(data)
        return {
            name: biject_to(site["fn"].support).inv(site["value"])
            for name, site in sites.items()
            if site["type"] == "sample" and not site["is_observed"]
        }

    def of_chain(key, start):
        key_start = jax.random.split(key)[1]  # the first is what the kernel goes on with
        if start is not None:
            return _begun(kernel, key, ParamInfo(start, *value_and_gradient(start)))

        def is_wrong(state):
            tries, _, info = state
            finite = [jnp.isfinite(x).all() for x in jax.tree.leaves((info.potential_energy, info.z_grad))]
            return (tries < 100) & ~jnp.stack(finite).all()

        def again(state):
            tries, key, _ = state
            key, key_draw = jax.random.split(key)
            position = drawn(key_draw)
            return tries + 1, key, ParamInfo(position, *value_and_gradient(position))

        like = jax.eval_shape(again, (0, key_start, None))[2]
        wrong = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), like)
        return _begun(kernel, key, lax.while_loop(is_wrong, again, (0, key_start, wrong))[2])

    return lax.map(lambda chain: of_chain(*chain), (jax.random.split(key, num_chains), starts))


@quick_jit(calls=2**16, static_argnames=STATIC)
def _advance(model, data, varying, fixed, non_centred, state, stages):
    """States after a block of iterations, with its draws and statistics."""
    settings = _with_constants(varying, fixed)

    def sites(position):
        return constrain_fn(_model(model, non_centred), (data,), {}, position, return_deterministic=True)

    def of_chain(state):
        kernel, _ = _kernel(model, data, non_centred, settings)
        # The first state is not used, and XLA drops what makes it.
        _begun(kernel, state.rng_key, ParamInfo(state.z, state.potential_energy, state.z_grad))

        def step(state, stage):
            adapted = state.adapt_state._replace(window_idx=stage.window)
            state = kernel.sample(state._replace(i=stage.iteration, adapt_state=adapted), (), {})
            statistics = {
                "diverging": state.diverging,
                "lp": -state.potential_energy,
                "n_steps": state.num_steps,
                "acceptance_rate": state.accept_prob,
            }
            return state, (state.z, statistics)

        state, (unconstrained, statistics) = lax.scan(step, state, stages)
        return state, (jax.vmap(sites)(unconstrained), statistics)

    return lax.map(of_chain, state)
