"""Draws of parameters and paths by Gibbs sweeps that start at draws of q.

q(theta) of a mean field is narrower than the posterior, since it takes the statistics of the states as known: counts of
states of which half the information is missing get intervals that hold 60 % in place of 90 %. A sweep draws a path of
every sequence given the parameters, and the parameters given the paths: Scott (2002), "Bayesian methods for hidden
Markov models". Each multiplies the variance that is missing by the square of the share of missing information.
Components of mixtures, and features that are missing beside others, are not drawn: they count by their expectations.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.inference.conjugate.padded_shapes import padded_data
from ethogram.models.conjugate_model import overrides
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.families.numpyro_sites import by_site
from ethogram.models.numpy_generator import numpy_generator
from ethogram.models.quick_jit import quick_jit

__all__ = ["can_sweep", "gibbs_draws"]

FIRST, BETWEEN = 10, 5
"""Sweeps before the first draw of a chain, and between its draws. Where two thirds of the information are missing, the
first finds all but a thousandth of the variance, and draws of a chain have a correlation of an eighth."""

LARGEST = 2**24
"""Maximum number of entries (chain, time, state, sequence) of the probabilities that are drawn from together."""


def can_sweep(model: Any) -> bool:
    """Whether sequences are independent chains of a model with one transition matrix and conjugate updates."""
    return overrides(model, "step_potentials") and bool(model.labelling) and not overrides(model, "update")


def gibbs_draws(
    key: Array, posterior: Any, data: Any, num_draws: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Joint draws of the sites (draw, ...) and of paths (draw, sequence, time), -1 beyond each length.

    They are of as many chains of sweeps as memory allows, at most of `num_draws`.

    Blocks are drawn outside of the compiled sweep, in which their samplers would compile for a minute.

    Parameters
    ----------
    key : a typed key.
    posterior : `ConjugatePosterior` of a model that `can_sweep`.
    data : of the fit.
    """
    model, blocks = posterior.model, posterior.blocks
    count, width = np.shape(data.observed)
    data = padded_data(model, data)
    prior, batch, random = model.prior(), model.arrange(data), numpy_generator(key)
    step = jax.eval_shape(lambda b: model.step_potentials(expected_statistics(b), batch), blocks)
    entries = np.size(data.observed) * step.shape[-1]
    rounds = -(-num_draws // min(num_draws, max(LARGEST // entries, 1)))
    chains = -(-num_draws // rounds)
    given = jax.tree.map(lambda x: np.broadcast_to(x, (chains, *np.shape(x))), blocks)
    sites, paths = [], []
    for left, one in reversed(list(enumerate(jax.random.split(key, FIRST + BETWEEN * (rounds - 1))))):
        each = {name: given[name].sample_numpy(random, 1) for name in sorted(blocks)}
        drawn = jax.tree.map(lambda x: x[0], each)
        given, found = _swept(model, blocks, prior, batch, drawn, jax.random.split(one, chains))
        if left % BETWEEN == 0 and left < BETWEEN * rounds:
            sites.append(by_site(drawn))
            paths.append(np.asarray(found)[:, :count, :width])
    joined = jax.tree.map(lambda *x: np.concatenate(x)[:num_draws], *sites)
    return joined, np.concatenate(paths)[:num_draws]


@quick_jit(calls=2**10)
def _swept(model: Any, blocks: Any, prior: Any, batch: Any, drawn: Any, keys: Array) -> tuple[Any, Array]:
    """Paths (chain, sequence, time) given parameters, and the blocks (chain, ...) of parameters given the paths."""

    def one(given: Any, key: Array) -> tuple[Any, Array]:
        values = {name: x if isinstance(x, tuple) else (x,) for name, x in given.items()}
        expected = {name: blocks[name].statistics(*value) for name, value in values.items()}
        step = model.step_potentials(expected, batch)
        initial, transition = (jnp.exp(expected[name].concentration) for name in ("initial", "transition"))
        path = _drawn_path(key, initial, transition, step)
        inside = (jnp.arange(step.shape[1]) < batch.lengths[:, None])[..., None]
        state = jnp.where(inside, jax.nn.one_hot(path, step.shape[2], dtype=step.dtype), 0)
        pairs = jnp.einsum("ntj,ntk->jk", state[:, :-1], state[:, 1:])

        # Of the path and the data: its gradient is the statistics.
        def log_probability(expected: Any) -> Array:
            chain = jnp.sum(expected["initial"].concentration * jnp.sum(state[:, 0], 0))
            chain += jnp.sum(expected["transition"].concentration * pairs)
            return chain + jnp.sum(model.step_potentials(expected, batch) * state)

        after = model.update(blocks, prior, jax.grad(log_probability)(expected), 1.0, 1.0)
        kind = jnp.int8 if step.shape[2] <= 127 else jnp.int32
        return after, jnp.where(inside[..., 0], path, -1).astype(kind)

    return jax.vmap(one)(drawn, keys)


def _drawn_path(key: Array, initial: Array, transition: Array, step: Array) -> Array:
    """A path (sequence, time) given log likelihoods: forward filtering, backward sampling, in scaled probabilities."""
    likelihood = jnp.exp(step - jnp.max(step, axis=-1, keepdims=True))
    likelihood = likelihood.transpose(1, 2, 0)  # time, state, sequence
    uniform = jax.random.uniform(key, step.shape[1::-1], step.dtype)

    def forward(predicted: Array, likelihood: Array) -> tuple[Array, Array]:
        joint = predicted * likelihood
        total = jnp.sum(joint, axis=0)
        state = jnp.where(total > 0, joint / total, likelihood)  # the data decide where a product underflows
        return jnp.sum(transition[:, :, None] * state[:, None], axis=0), state

    def backward(onward: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        state, uniform = now
        below = jnp.cumsum(state * onward, axis=0)
        drawn = jnp.sum(below[:-1] <= uniform * below[-1], axis=0)
        return transition[:, drawn], drawn

    first = jnp.broadcast_to(initial[:, None], likelihood.shape[1:])
    _, state = lax.scan(forward, first, likelihood)
    return lax.scan(backward, jnp.ones_like(first), (state, uniform), reverse=True)[1].T
