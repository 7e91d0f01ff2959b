r"""Chains of PX-DA as compiled blocks of sweeps, with the mean and variances of subjects where these have priors.

Model, decisions and state are arguments of the program: fits of one structure and one shape share it. Given the values
:math:`\theta_i` of all subjects, their mean is normal, and a variance has the density

.. math:: p(\kappa \mid \theta, \mathrm{loc}) \propto p(\kappa)\, \kappa^{-n/2} \exp(-\textstyle\sum_i
          (\theta_i - \mathrm{loc})^2 / 2 \kappa)

of which a slice of the logarithm is drawn. Gelman and others, "Bayesian data analysis", section 11.6, for the blocks;
Neal (2003), "Slice sampling", figures 3 and 5.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from numpyro.distributions import biject_to
from numpyro.handlers import condition

from ethogram.inference import storage
from ethogram.inference.checkpoint import Checkpoint
from ethogram.inference.choices.px_da import PXDA
from ethogram.inference.nuts_chains import BLOCK, ChainsState
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.choices.choice_problem import padded
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

__all__ = ["sample_px_da", "slice_draw"]

MOST_STEPS = 100
"""Most steps outwards, or shrinkages, of a slice."""


class Population(NamedTuple):
    """What the prior of theta depends on, by chain; None where it is known."""

    loc: Any  # (chain, parameter)
    log_kappa: Any  # (chain, ...)


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
    """Draws of `PXDA` with these settings; loc and kappa, where they have priors, are blocks of the same sweep.

    Raises
    ------
    TypeError, ValueError : as `PXDA` and the model; the checkpoint is of another call.
    """
    from tqdm.auto import tqdm

    checked = model.check(data).without_names()
    bare = padded(checked).data  # of which only sizes are read
    key_chains, key_population = jax.random.split(key)
    kernel, population = PXDA(model, **settings), _first_population(model, bare, num_chains)
    keys = jax.random.split(key_chains, num_chains)
    if population is None:
        state: Any = kernel.init(keys, num_warmup, model_args=(checked,))
    else:
        first = {"loc": population.loc, "kappa": population.log_kappa}
        held = {name: np.exp(x[0]) if name == "kappa" else x[0] for name, x in first.items() if x is not None}
        one: Any = kernel.wrap_model(lambda model: condition(model, held)).init(
            keys[0], num_warmup, model_args=(checked,)
        )
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


def _first_population(model: NoisyMDP, data: Decisions, num_chains: int) -> Population | None:
    """A mean of zero, and variances in the middle of their support; None where nothing of the prior is unknown."""
    dtype, loc, log_kappa = jnp.result_type(float), None, None
    if data.subject is not None:
        loc = np.zeros((num_chains, sum(model.sizes(data))), dtype)
    if isinstance(model.kappa, dist.Distribution):
        middle = float(biject_to(model.kappa.support)(0.0))
        log_kappa = np.full((num_chains, *model.shape_of_kappa(data)), np.log(middle), dtype)
    return None if loc is None and log_kappa is None else Population(loc, log_kappa)


@functools.partial(jax.jit, static_argnames="static")
def _advance(model: NoisyMDP, data: Decisions, carry: Any, static: tuple[tuple[str, Any], ...]) -> Any:
    """The carry after a block of sweeps, and the draws (chain, sweep, ...) by site, of kappa the logarithm."""
    kernel = PXDA(model, **dict(static))

    def of_all_chains(carry, _):
        state = kernel._one_sweep(carry[0])
        return (state, *carry[1:]), (state.z["theta"], None)

    def of_each_chain(carry, _):
        state, population, key = carry
        key, *keys = jax.random.split(key, len(state.i) + 1)
        problem = state.problem

        def of_chain(state, population, key):
            whole = state._replace(problem=problem)
            moments = _moments(model, data, population, whole.z["theta"].shape)
            whole = kernel._one_sweep(kernel.with_moments(whole, *moments))
            drawn = _draw_population(key, model, data, whole.z["theta"], population)
            return whole._replace(problem=None), drawn

        chains = state._replace(problem=None)
        chains, population = jax.vmap(of_chain)(chains, population, jnp.stack(keys))
        state = chains._replace(problem=problem)
        return (state, population, key), (state.z["theta"], population)

    one_sweep = of_all_chains if carry[1] is None else of_each_chain
    carry, (theta, population) = lax.scan(one_sweep, carry, None, length=BLOCK)
    sites = {
        "theta": theta,
        **({} if population is None else {"loc": population.loc, "kappa": population.log_kappa}),
    }
    return carry, {name: x.swapaxes(0, 1) for name, x in sites.items() if x is not None}


def _moments(
    model: NoisyMDP, data: Decisions, population: Population, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Mean and variance of theta under its prior."""
    kappa = model.kappa if population.log_kappa is None else jnp.exp(population.log_kappa)
    counts, *each = model.variances(kappa, data)
    parts = [jnp.full(count, one, float) for count, one in zip(counts, each, strict=True)]
    variance = jnp.broadcast_to(jnp.concatenate(parts), shape)
    return jnp.broadcast_to(0.0 if population.loc is None else population.loc, shape), variance


def _draw_population(
    key: Array, model: NoisyMDP, data: Decisions, theta: Array, population: Population
) -> Population:
    """Mean and variances of one chain given theta (subject, parameter), or variances given theta (parameter,)."""
    key_loc, key_kappa = jax.random.split(key)
    loc, log_kappa = population
    if loc is not None:
        variance = _moments(model, data, population, theta.shape)[1]
        precision = jnp.sum(1 / variance, 0) + 1 / model.loc_kappa
        mean = jnp.sum(theta / variance, 0) / precision
        loc = mean + jax.random.normal(key_loc, mean.shape, mean.dtype) / jnp.sqrt(precision)
    if log_kappa is not None:
        values, prior = model.sizes(data)[0], model.kappa
        squares = jnp.atleast_2d((theta - (0 if loc is None else loc)) ** 2)
        number, total = np.full(squares.shape[1], float(len(squares))), jnp.sum(squares, 0)
        if model.rewards == "own":
            number, total = number[:values], total[:values]
        if log_kappa.ndim == 0:
            number, total = number.sum(), jnp.sum(total)
        elif model.rewards == "shared":
            number = np.append(number[:values], number[values:].sum())
            total = jnp.append(total[:values], jnp.sum(total[values:]))

        def log_density(x):
            kappa = jnp.exp(x)
            inside = prior.support(kappa)
            density = prior.log_prob(jnp.where(inside, kappa, 1)) + (1 - number / 2) * x - total / (2 * kappa)
            return jnp.where(inside, density, -jnp.inf)

        log_kappa = slice_draw(key_kappa, log_density, log_kappa)
    return Population(loc, log_kappa)


def slice_draw(key: Array, log_density: Callable[[Array], Array], x: Array) -> Array:
    """The next draws of the entries of x, independent of each other, with this log density (...) up to a constant."""
    key_height, key_place, key_shrink = jax.random.split(key, 3)
    height = log_density(x) - jax.random.exponential(key_height, x.shape, x.dtype)
    left = x - jax.random.uniform(key_place, x.shape, x.dtype)

    def outwards(end, step):
        def above(carry):
            return (log_density(carry[0]) > height) & (carry[1] < MOST_STEPS)

        def further(carry):
            return jnp.where(above(carry), carry[0] + step, carry[0]), carry[1] + 1

        return lax.while_loop(lambda carry: jnp.any(above(carry)), further, (end, 0))[0]

    def shrink(carry):
        left, right, new, key, count = carry
        key, key_new = jax.random.split(key)
        found = log_density(new) > height
        left, right = (
            jnp.where(side, new, end)
            for side, end in ((~found & (new < x), left), (~found & (new > x), right))
        )
        tried = left + (right - left) * jax.random.uniform(key_new, x.shape, x.dtype)
        return left, right, jnp.where(found, new, tried), key, count + 1

    ends = outwards(left, -1.0), outwards(left + 1, 1.0)
    key_first, key_rest = jax.random.split(key_shrink)
    first = ends[0] + (ends[1] - ends[0]) * jax.random.uniform(key_first, x.shape, x.dtype)
    carry = lax.while_loop(
        lambda carry: jnp.any(~(log_density(carry[2]) > height)) & (carry[4] < MOST_STEPS),
        shrink,
        (*ends, first, key_rest, 0),
    )
    return jnp.where(log_density(carry[2]) > height, carry[2], x)
