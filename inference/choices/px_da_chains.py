"""Chains of PX-DA as compiled blocks of sweeps, with the population of subjects, or a variance that has a prior.

Model, decisions and state are arguments of the program: fits of one structure and one shape share it.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from numpyro.distributions import biject_to

from ethogram.inference import storage
from ethogram.inference.checkpoint import Checkpoint
from ethogram.inference.choices.px_da import PXDA
from ethogram.inference.choices.slice_draw import draw_log_variances
from ethogram.inference.choices.subject_sweep import first_population, grams, sweep_subjects
from ethogram.inference.nuts_chains import BLOCK, ChainsState
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.choices.choice_problem import padded
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

__all__ = ["sample_px_da"]


def sample_px_da(
    key: Array,
    model: NoisyMDP,
    data: Decisions,
    *,
    num_warmup: int,
    num_samples: int,
    num_chains: int,
    progress_bar: bool,
    checkpoint: str | os.PathLike | None = None,
    **settings: Any,
) -> SampledPosterior:
    """Draws of `PXDA` with these settings; what is unknown of their prior is a block of the same sweep.

    Raises
    ------
    TypeError, ValueError : as `PXDA` and the model; the checkpoint is of another call.
    """
    from tqdm.auto import tqdm

    checked = model.check(data).without_names(model.random is not None)
    bare = padded(checked).data  # of which only sizes are read
    key_chains, key_population = jax.random.split(key)
    kernel, population = PXDA(model, **settings), _first_population(model, bare, num_chains)
    keys = jax.random.split(key_chains, num_chains)
    if population is None:
        state: Any = kernel.init(keys, num_warmup, model_args=(checked,))
    elif data.subject is not None:
        state = kernel.first_state(keys, checked)
    else:  # each chain has a factor of its own
        one: Any = kernel.first_state(keys[0], checked)
        state = one._replace(problem=None, rng_key=None)
        state = jax.tree.map(lambda x: np.broadcast_to(x, (num_chains, *x.shape)), state)
        state = state._replace(rng_key=keys, problem=one.problem)
    static = tuple(sorted(settings.items()))
    carry, total = (state, population, key_population), num_warmup + num_samples

    def signature() -> str:
        return storage.fingerprint(
            jax.random.key_data(key), model, checked, [*static], num_warmup, num_chains
        )

    with (
        Checkpoint(checkpoint) as store,
        tqdm(total=total, disable=not progress_bar, desc="px-da", delay=2.0) as bar,
    ):
        begun = ChainsState(0, jax.tree.leaves(carry), {}, {})
        run = store.resumed(signature, ChainsState, lambda *_: None, lambda: begun)
        bar.update(min(run.done, total))
        while run.done < total:
            carry = jax.tree.unflatten(jax.tree.structure(carry), run.leaves)
            carry, drawn = _advance(model, bare, carry, static)
            run = run.after_block(jax.tree.leaves(carry), (drawn, {}), num_warmup)
            store.save(run, run.done)
            bar.update(min(BLOCK, total - run.done + BLOCK))
    sites = {name: site[:, :num_samples] for name, site in run.sites.items()}
    if "kappa" in sites:
        sites["kappa"] = np.exp(sites["kappa"])
    return SampledPosterior(model, model.with_parts(sites, bare), {})


def _first_population(model: NoisyMDP, data: Decisions, num_chains: int) -> Any:
    """That of subjects, or the logarithm of the variance without them; None where nothing of the prior is unknown."""
    if data.subject is not None:
        return first_population(model, data, num_chains)
    if not isinstance(model.kappa, dist.Distribution):
        return None
    middle = np.log(float(biject_to(model.kappa.support)(0.0)))
    return np.full(num_chains, middle, jnp.result_type(float))


@functools.partial(jax.jit, static_argnames="static")
def _advance(model: NoisyMDP, data: Decisions, carry: Any, static: tuple[tuple[str, Any], ...]) -> Any:
    """The carry after a block of sweeps, and the draws (chain, sweep, ...) by site, of kappa the logarithm."""
    kernel = PXDA(model, **dict(static))

    def alone(carry, _):
        state = kernel._one_sweep(carry[0])
        return (state, *carry[1:]), state.z

    def with_variance(carry, _):
        state, log_kappa, key = carry
        key, *keys = jax.random.split(key, len(state.i) + 1)
        problem = state.problem

        def of_chain(state, log_kappa, key):
            counts, *each = model.variances(jnp.exp(log_kappa), data)
            parts = [jnp.full(count, one, float) for count, one in zip(counts, each, strict=True)]
            variance = jnp.concatenate(parts)
            whole = kernel.with_moments(state._replace(problem=problem), jnp.zeros_like(variance), variance)
            whole = kernel._one_sweep(whole)
            theta = whole.z["theta"]
            theta = theta[: counts[0]] if model.rewards == "own" else theta
            number, total = jnp.asarray(float(theta.size)), jnp.sum(theta**2)
            return whole._replace(problem=None), draw_log_variances(
                key, model.kappa, log_kappa, number, total
            )

        chains, log_kappa = jax.vmap(of_chain)(state._replace(problem=None), log_kappa, jnp.stack(keys))
        state = chains._replace(problem=problem)
        return (state, log_kappa, key), {"theta": state.z["theta"], "kappa": log_kappa}

    def of_subjects(carry, _):
        state, population, key = carry
        key, key_sweep = jax.random.split(key)
        theta = jnp.moveaxis(state.z["theta"], 0, -1)
        parts = state.problem, gram, theta, state.latents, population
        theta, latents, scale, population = sweep_subjects(
            key_sweep, model, data, *parts, kernel.move, kernel.winner
        )
        theta = jnp.moveaxis(theta, -1, 0)
        scale = jnp.broadcast_to(scale[:, None], state.z1.shape)
        state = state._replace(i=state.i + 1, z={"theta": theta}, z1=scale, latents=latents)
        sites = {
            "loc": population.coefficients[:, 0],
            "slope": population.coefficients[:, 1:],
            "theta": theta,
        }
        sites["covariance" if model.correlated else "kappa"] = population.spread
        empty = sites["slope"].shape[1] == 0
        return (state, population, key), {
            name: x for name, x in sites.items() if x is not None and not (name == "slope" and empty)
        }

    gram = grams(carry[0].problem) if data.subject is not None else None
    one_sweep = of_subjects if data.subject is not None else alone if carry[1] is None else with_variance
    carry, sites = lax.scan(one_sweep, carry, None, length=BLOCK)
    return carry, {name: x.swapaxes(0, 1) for name, x in sites.items()}
