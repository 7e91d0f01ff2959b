r"""Distinct roles in every frame where the maps are too many to sum over: a mean field over frames.

The posterior of the maps of a group is :math:`q(z) = \prod_t q_t(\sigma_t)` with :math:`q_t \propto \exp \sum_a W_t[a,
\sigma(a)]` over one-to-one maps, whose marginals :math:`m_t` are the gradient of a log-permanent and

.. math:: W_t[a] = L_t[a] + m_{t-1}[a] \ln P + \ln P \, m_{t+1}[a],

with :math:`\ln p_0` in place of the second term in the first frame, and no third one in the last. Updates of the even
frames, then of the odd ones, never lower the bound

.. math:: \sum_t H(q_t) + \sum_t m_t \cdot L_t + \sum_a m_1[a] \cdot \ln p_0
          + \sum_{t \ge 2, a} m_{t-1}[a] \ln P \, m_t[a],

but get stuck in switches of roles that are not there. Loopy belief propagation, in which each agent's chain and each
frame's permanent exchange messages, gives a second start. Its own (Bethe) value is no bound. The algorithm is
original to this package; Wainwright and Jordan (2008), "Graphical models, exponential families, and variational
inference", sections 4 and 5, has its parts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from ethogram.models.chains.log_space import logsumexp
from ethogram.models.roles.log_permanent import log_permanent_and_marginals

__all__ = ["PROPOSE_EVERY", "FrameChain", "MeanField", "energy", "field_of", "improve", "settle"]

PROPOSE_EVERY = 3
"""Iterations of a fit from one start by belief propagation to the next."""

ROUNDS = 3
"""Exchanges of messages between chains and frames."""

SWEEPS = 2
"""Sweeps over even and odd frames from a start."""

Marginals = Float[Array, "group time agent role"]


class FrameChain(NamedTuple):
    """Log potentials of the agents of every group."""

    log_initial: Float[Array, "role"]
    log_transition: Float[Array, "role role"]
    potentials: Marginals  # L; zero where an agent was not observed
    alive: Bool[Array, "group time"]  # frames within the length


class MeanField(NamedTuple):
    """Marginals m of the maps of every frame, and the entropy of q(z) of every group, in nats."""

    marginals: Marginals
    entropy: Float[Array, "group"]


def energy(chain: FrameChain, marginals: Marginals) -> Float[Array, "group"]:
    """Expected log weight of the roles under `marginals`: the bound less the entropy. Differentiable in the chain."""

    def weighted(probability, log_potential):  # zero times -inf is zero
        return jnp.where(probability > 0, probability * jnp.where(probability > 0, log_potential, 0), 0)

    pairs = jnp.einsum("gtaj,gtak->gjk", marginals[:, :-1], marginals[:, 1:], precision="highest")
    steps = jnp.sum(weighted(marginals, chain.potentials), axis=(1, 2, 3))
    first = jnp.sum(weighted(marginals[:, 0], chain.log_initial[None, None]), axis=(1, 2))
    return steps + first + jnp.sum(weighted(pairs, chain.log_transition[None]), axis=(1, 2))


def improve(chain: FrameChain, before: Marginals, step: Array | int) -> MeanField:
    """Two sweeps from the marginals of the iteration before or, where better, from belief propagation.

    Iterations 0, 3, 6, ... try both, group by group, and iteration 0 the latter only, so that with a chain that changes
    for the better the bound never falls.
    """

    def warm():
        return _swept(chain, before, SWEEPS)

    def either():
        old, new = warm(), _swept(chain, _propagated(chain), SWEEPS)
        better = (bound(chain, new) >= bound(chain, old)) | (step == 0)
        return jax.tree.map(lambda x, y: jnp.where(better.reshape(-1, *(1,) * (x.ndim - 1)), x, y), new, old)

    return lax.cond(step % PROPOSE_EVERY == 0, either, warm)


def settle(chain: FrameChain, num_sweeps: int) -> MeanField:
    """Sweeps from belief propagation, for a chain that no longer changes."""
    return _swept(chain, _propagated(chain), num_sweeps)


def bound(chain: FrameChain, found: MeanField) -> Float[Array, "group"]:
    """Lower bound on the log of the summed weight of all maps, of every group, in nats."""
    return found.entropy + energy(chain, found.marginals)


def field_of(chain: FrameChain, marginals: Marginals) -> Marginals:
    """Potentials W of every frame, given the marginals of its neighbours."""
    before, after = (
        jnp.pad(part, [(0, 0), pad, (0, 0), (0, 0)])
        for part, pad in ((marginals[:, :-1], (1, 0)), (marginals[:, 1:], (0, 1)))
    )
    first = jnp.arange(marginals.shape[1]) == 0
    return _field(chain, chain.potentials, before, after, first)


def _field(chain, potentials, before, after, first):
    into = jnp.where(first[:, None, None], chain.log_initial, _expected(before, chain.log_transition))
    return potentials + into + _expected(after, chain.log_transition.T)


def _expected(probability: Array, log_potential: Array) -> Array:
    """``probability @ log_potential``, where zero times ``-inf`` is zero."""
    never = jnp.isneginf(log_potential)
    value = jnp.matmul(probability, jnp.where(never, 0, log_potential), precision="highest")
    lost = jnp.matmul(probability, never.astype(probability.dtype)) > 0
    return jnp.where(lost, -jnp.inf, value)


def _swept(chain: FrameChain, marginals: Marginals, num_sweeps: int) -> MeanField:
    """Even frames, then odd ones, `num_sweeps` times."""
    num_steps = marginals.shape[1]
    odd_number = [(0, 0), (0, num_steps % 2)]
    alive = jnp.pad(chain.alive, odd_number)
    potentials, start = (jnp.pad(x, odd_number + [(0, 0)] * 2) for x in (chain.potentials, marginals))
    start = jnp.where(alive[..., None, None], start, 0)
    halves = [(potentials[:, i::2], alive[:, i::2]) for i in (0, 1)]
    first = jnp.arange(alive.shape[1] // 2) == 0

    def half(parity, before, after):
        values, here = halves[parity]
        begins = first if parity == 0 else jnp.zeros_like(first)
        field = _field(chain, values, before, after, begins)
        total, found = log_permanent_and_marginals(jnp.where(here[..., None, None], field, 0))
        inner = jnp.sum(jnp.where(found > 0, found * jnp.where(found > 0, field, 0), 0), axis=(-2, -1))
        entropy = jnp.where(here, total - inner, 0)
        return jnp.where(here[..., None, None], found, 0), jnp.sum(entropy, axis=1)

    def sweep(carry, _):
        _, odd, _ = carry
        even, one = half(0, jnp.pad(odd[:, :-1], [(0, 0), (1, 0), (0, 0), (0, 0)]), odd)
        odd, other = half(1, even, jnp.pad(even[:, 1:], [(0, 0), (0, 1), (0, 0), (0, 0)]))
        return (even, odd, one + other), None

    nothing = jnp.zeros(len(start), start.dtype)
    (even, odd, entropy), _ = lax.scan(sweep, (start[:, 0::2], start[:, 1::2], nothing), length=num_sweeps)
    both = jnp.stack([even, odd], axis=2).reshape(start.shape)
    return MeanField(both[:, :num_steps], entropy)


def _propagated(chain: FrameChain) -> Marginals:
    """Marginals by loopy belief propagation, between the chains of the agents and the permanents of the frames."""
    least = jnp.log(jnp.finfo(chain.potentials.dtype).tiny)

    def matched(potentials):
        found = log_permanent_and_marginals(jnp.where(chain.alive[..., None, None], potentials, 0))[1]
        return jnp.where(chain.alive[..., None, None], found, 0)

    def message(marginals, *incoming):
        return jnp.maximum(jnp.log(marginals), least) - sum(jnp.maximum(part, least) for part in incoming)

    def exchange(carry, _):
        site, _ = carry
        forward, backward = _predictions(chain, site)
        marginals = matched(chain.potentials + forward + backward)
        return (message(marginals, forward, backward), marginals), None

    first = matched(chain.potentials)
    (_, marginals), _ = lax.scan(exchange, (message(first), first), length=ROUNDS + 1)
    return marginals


def _predictions(chain: FrameChain, site: Marginals) -> tuple[Marginals, Marginals]:
    """Log predictive messages into every frame from those before and from those after, with a largest entry of zero."""

    def scaled(x):
        return x - jnp.maximum(jnp.max(x, axis=-1, keepdims=True), jnp.finfo(x.dtype).min)

    by_time = jnp.moveaxis(jnp.where(chain.alive[..., None, None], site, 0), 1, 0)
    alive = jnp.moveaxis(chain.alive, 1, 0)[..., None, None]

    def forward(predicted, here):
        following = logsumexp((predicted + here)[..., :, None] + chain.log_transition, axis=-2)
        return scaled(following), predicted

    def backward(expected, now):
        here, inside = now
        before = logsumexp(chain.log_transition + (here + expected)[..., None, :], axis=-1)
        return jnp.where(inside, scaled(before), expected), expected

    start = jnp.broadcast_to(scaled(chain.log_initial), by_time.shape[1:])
    _, ahead = lax.scan(forward, start, by_time)
    _, behind = lax.scan(backward, jnp.zeros_like(start), (by_time, alive), reverse=True)
    return jnp.moveaxis(ahead, 0, 1), jnp.moveaxis(behind, 0, 1)
