r"""Distinct roles in every frame: the agents of a group are independent chains, given that no two share a role.

The evidence D, "roles are distinct in every frame", is conditioned on like data, so that conjugate updates stand:
``log_prob`` is :math:`\ln p(y, D \mid \theta)`. The probability of D alone is `role_sets.log_prob_distinct`.

A map :math:`\sigma` of the agents of a group to distinct roles is one state of a chain with initial weight
:math:`\sum_a \ln p_0(\sigma(a))`, transitions :math:`\sum_a \ln P(\sigma(a), \sigma'(a))` and step potentials
:math:`\sum_a L_t(a, \sigma(a))`, so that the recursions of :mod:`ethogram.models.chains` apply. Where the maps are too
many to sum over, q(z) is the mean field of :mod:`ethogram.models.roles.mean_field_roles`.

The model is original to this package; Le, Yue, Carr, Lucey (2017), Algorithm 4, assign distinct roles after the fit,
one per demonstration.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jaxtyping import Float, Int

from ethogram.models.chains import markov_chain
from ethogram.models.chains.log_space import safe_log
from ethogram.models.conjugate_model import EStep
from ethogram.models.families.exponential_family import expected_statistics, natural_step, total_kl
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.mean_field_roles import (
    PROPOSE_EVERY,
    FrameChain,
    bound,
    field_of,
    improve,
    settle,
)
from ethogram.models.roles.per_sequence import PerSequence
from ethogram.models.roles.role_couplings import Decoded, IndependentRoles
from ethogram.models.roles.role_groups import GroupDistribution, GroupedChains
from ethogram.models.roles.role_sets import log_prob_distinct, sample_distinct
from ethogram.models.roles.starts import (
    MAX_SEED_FRAMES,
    StartData,
    chosen_frames,
    cluster_centres,
    clusters_without_outliers,
    frames_on_host,
    random_maps,
    without_tails,
)

__all__ = ["MAX_MAPS", "DistinctRoles", "PerFrame"]

MAX_MAPS = 720
"""Maps of agents to roles that are summed over at most: 6 agents in 6 roles."""

FEW_MAPS = 100
"""Maps of as many agents as roles above which padded frames cost more than a compilation: from 5 roles on."""

SETTLING = 10
"""Sweeps of the mean field where parameters are fixed."""

STARTS, ITERATIONS = 3, 40
"""Random seeds of a start with one map per demonstration, of which the best is taken, and iterations from each."""


@functools.lru_cache
def one_to_one_maps(num_agents: int, num_roles: int) -> Int[np.ndarray, "map agent"]:
    """All one-to-one maps of agents to roles, the roles of the agents of each."""
    return np.array(list(itertools.permutations(range(num_roles), num_agents)), np.int32)


class MapChain(NamedTuple):
    """The chain of maps of every group, with its log potentials."""

    maps: np.ndarray  # (map, agent)
    log_initial: Array  # (map,)
    log_transition: Array  # (map, next_map)
    step_potentials: Array  # (group, time, map)
    lengths: Array  # (group,)

    def log_normalizer(self) -> Float[Array, "group"]:
        """Log of the summed weight of all sequences of maps."""
        return markov_chain.log_normalizer(*self[1:])

    def marginals(self) -> Float[Array, "group time agent role"]:
        """Probability of every agent-role pair in every frame; zero beyond a length."""
        state = markov_chain.marginals(*self[1:]).state
        holds = self.maps[..., None] == np.arange(self.maps.max() + 1)
        return jnp.einsum("gtm,mak->gtak", state, holds.astype(state.dtype), precision="highest")

    def most_likely(self) -> Int[Array, "group time agent"]:
        """Roles of the agents along the most likely sequence of maps."""
        return jnp.asarray(self.maps)[jnp.maximum(markov_chain.most_likely_path(*self[1:]).path, 0)]


def map_chain(chain: FrameChain) -> MapChain:
    """Chains of the maps of the agents of every group, from the log potentials of the agents."""
    log_initial, log_transition, potentials, alive = chain
    maps = one_to_one_maps(*potentials.shape[-2:])
    of_agents = list(maps.T)
    initial = jnp.sum(log_initial[maps], axis=-1)
    transition = functools.reduce(jnp.add, [log_transition[roles][:, roles] for roles in of_agents])
    steps = functools.reduce(jnp.add, [potentials[..., a, roles] for a, roles in enumerate(of_agents)])
    return MapChain(maps, initial, transition, steps, jnp.sum(alive, axis=1))


class DistinctRoles(GroupDistribution):
    """Distribution of a group's observations jointly with the evidence that its roles are distinct in every frame.

    One batch entry is one group; values are ``(..., agent, time, *event)``. All agents hold a role until the last frame
    of the group. Entries beyond a length, or at unobserved steps, are ignored. With more than 720 maps of agents to
    roles, ``log_prob`` is the lower bound of :mod:`ethogram.models.roles.mean_field_roles`.

    Parameters
    ----------
    initial, transition : probabilities (role,) and (role, next_role).
    emission : a numpyro distribution with batch shape (role,).
    lengths : (group, agent) integers.
    observed : (group, agent, time) booleans.
    states : (group, agent, time) integers, known roles, -1 where unknown; None for none.
    """

    pytree_data_fields: ClassVar[tuple[str, ...]] = ("initial", "transition")

    def __init__(
        self,
        initial: Any,
        transition: Any,
        emission: dist.Distribution,
        lengths: Any,
        observed: Any,
        states: Any = None,
        *,
        validate_args: bool | None = None,
    ):
        self.initial, self.transition = jnp.asarray(initial), jnp.asarray(transition)
        super().__init__(emission, lengths, observed, states, validate_args=validate_args)

    @property
    def is_exact(self) -> bool:
        """Whether ``log_prob`` is the log evidence, not a bound."""
        return math.perm(self.num_roles, self.event_shape[0]) <= MAX_MAPS

    @property
    def _group_lengths(self) -> Int[Array, "group"]:
        return jnp.max(jnp.asarray(self.lengths), axis=-1)

    def _chain(self, value: Any) -> FrameChain:
        potentials = jnp.swapaxes(self._step_potentials(value), 1, 2)
        frames = jnp.arange(self.event_shape[1]) < self._group_lengths[:, None]
        return FrameChain(safe_log(self.initial), safe_log(self.transition), potentials, frames)

    def log_prob(self, value: Any) -> Float[Array, "*batch"]:
        """Log probability of each group's data and distinct roles, in nats; a lower bound unless `is_exact`."""
        chain = self._chain(value)
        if self.is_exact:
            return map_chain(chain).log_normalizer()
        return bound(chain, lax.stop_gradient(settle(chain, SETTLING)))

    @jax.jit
    def log_prob_of_condition(self) -> Float[Array, "*batch"]:
        """Log probability that the roles of each group are distinct in every frame, by `role_sets`."""
        num_agents, num_steps = self.event_shape[:2]
        each = log_prob_distinct(self.initial, self.transition, num_agents, num_steps)
        lengths = self._group_lengths
        return jnp.where(lengths > 0, each[jnp.maximum(lengths - 1, 0)], 0)

    def smooth(self, value: Any) -> Float[Array, "*batch time agent role"]:
        """Posterior probability of every role of every agent in every frame (group, time, agent, role)."""
        chain = self._chain(value)
        return map_chain(chain).marginals() if self.is_exact else settle(chain, SETTLING).marginals

    def sample_with_roles(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Observations, and the role of every agent in every frame (*sample_shape, group, agent, time).

        Exact for up to 500 sets of roles, else a ValueError. Known roles are ignored.
        """
        if sample_shape:
            keys = jax.random.split(key, sample_shape[0])
            return jax.vmap(lambda one: self.sample_with_roles(one, sample_shape[1:]))(keys)
        num_agents, num_steps = self.event_shape[:2]
        key_roles, key_observations = jax.random.split(key)
        lengths = self._group_lengths
        roles = sample_distinct(key_roles, self.initial, self.transition, num_agents, lengths, num_steps)
        roles = jnp.swapaxes(roles, 1, 2)
        return self._emitted(key_observations, roles), jnp.where(self._alive(), roles, -1)


class PerFrame(IndependentRoles):
    """The agents' chains, given that their roles are distinct in every frame.

    Up to 720 maps of agents to roles are summed exactly; with more, q(z) is a mean field over frames, whose marginals
    are the local state.
    """

    is_joint = True
    start_kinds = ("sticky", "sticky", "sticky", "kmeans++")

    def is_exact(self, num_agents: int, num_roles: int) -> bool:
        """Whether the maps are few enough to be summed."""
        return math.perm(num_roles, num_agents) <= MAX_MAPS

    def log_normalizer(self, model: Any, expected: dict[str, Any], batch: GroupedChains) -> Float[Array, ""]:
        """Summed log weights of all maps, or the bound of the mean field in iteration 0."""
        return self._bound(model, expected, batch, self._first_marginals(model, batch), 0)[0]

    def e_step(self, model: Any) -> EStep:
        """The exact step, or a mean field that starts from that of the iteration before."""

        def step(expected, batch, marginals, iteration):
            def value_of(expected):
                return self._bound(model, expected, batch, marginals, iteration)

            (value, marginals), statistics = jax.value_and_grad(value_of, has_aux=True)(expected)
            return value, statistics, marginals

        costly = math.factorial(model.num_roles) > FEW_MAPS
        return EStep(functools.partial(self._first_marginals, model), step, PROPOSE_EVERY, costly)

    def _first_marginals(self, model: Any, batch: GroupedChains) -> Any:
        """Marginals (group, time, agent, role) of zero; none where maps are summed."""
        if self.is_exact(batch.num_agents, model.num_roles):
            return ()
        num_sequences, num_steps = batch.chains.observed.shape
        shape = (num_sequences // batch.num_agents, num_steps, batch.num_agents, model.num_roles)
        return jnp.zeros(shape, jnp.result_type(float))

    def _bound(
        self, model: Any, expected: dict[str, Any], batch: GroupedChains, marginals: Any, iteration: Any
    ) -> tuple[Float[Array, ""], Any]:
        """Summed log weights of all maps, or the bound of the mean field, with its marginals."""
        chain = _frame_chain(model, expected, batch)
        if self.is_exact(batch.num_agents, model.num_roles):
            return jnp.sum(map_chain(chain).log_normalizer()), ()
        before = marginals.astype(chain.potentials.dtype)
        found = lax.stop_gradient(improve(lax.stop_gradient(chain), before, iteration))
        return jnp.sum(bound(chain, found)), found.marginals.astype(marginals.dtype)

    def observation(
        self, emission: Any, parameters: dict[str, Any], lengths: Any, observed: Any, states: Any
    ) -> DistinctRoles:
        """Distribution of the data of whole groups, jointly with distinct roles, at parameters by site."""
        return DistinctRoles(
            parameters["initial"], parameters["transition"], emission, lengths, observed, states
        )

    def start_labels(
        self, model: Any, rng: np.random.Generator, kind: str, data: StartData
    ) -> list[np.ndarray]:
        """Labels (sequence, time) of every batch, distinct in every frame, by optimal matching of agents to clusters.

        ``"kmeans++"`` matches the agents of each frame to cluster centres, which is quick, but full of switches.
        ``"sticky"`` improves such a start with one map per demonstration by coordinate ascent, and keeps one role per
        agent; most restarts take it.
        """
        # Known roles are copied in afterwards; they may rule out one map per demonstration.
        batches = [dataclasses.replace(b, chains=b.chains._replace(states=None)) for b in data.batches]
        if not any(np.asarray(batch.chains.observed).any() for batch in batches):
            return [random_maps(rng, batch, model.num_roles) for batch in batches]
        if kind != "sticky":
            return [_matched_frames(cost) for cost in _seed_distances(model, rng, batches)]
        return _one_map_each(model, rng, batches)

    def decode(self, model: Any, expected: dict[str, Any], batch: GroupedChains) -> Decoded:
        """Most likely maps; of a mean field, the optimal assignment of the field of every frame."""
        exact = self.is_exact(batch.num_agents, model.num_roles)
        found, probability = _decode_frames(model, expected, batch, exact)
        found = np.asarray(found)
        role = found if exact else optimal_assignment(-np.asarray(found, dtype=float)).role
        num_sequences, num_steps = batch.chains.observed.shape
        probability = np.swapaxes(np.asarray(probability), 1, 2).reshape(num_sequences, num_steps, -1)
        return np.swapaxes(role, 1, 2).reshape(num_sequences, num_steps), probability


def _frame_chain(model: Any, expected: dict[str, Any], batch: GroupedChains) -> FrameChain:
    """Expected log potentials of all groups, whose length is that of their longest sequence."""
    steps = model.step_potentials(expected, batch.chains)
    potentials = jnp.swapaxes(steps.reshape(-1, batch.num_agents, *steps.shape[1:]), 1, 2)
    lengths = jnp.max(batch.chains.lengths.reshape(-1, batch.num_agents), axis=1)
    alive = jnp.arange(steps.shape[1]) < lengths[:, None]
    return FrameChain(
        expected["initial"].concentration, expected["transition"].concentration, potentials, alive
    )


@quick_jit(static_argnames="exact")
def _decode_frames(model, expected, batch, exact):
    """Roles of the most likely maps, or the field of every frame; and the marginals."""
    chain = _frame_chain(model, expected, batch)
    if exact:
        maps = map_chain(chain)
        return maps.most_likely(), maps.marginals()
    marginals = settle(chain, SETTLING).marginals
    return field_of(chain, marginals), marginals


def _seed_distances(model: Any, rng: np.random.Generator, batches: list[GroupedChains]) -> list[np.ndarray]:
    """Squared distances (group, agent, time, role) of frames to k-means++ centres; zero where not observed.

    Where there are outliers, half of the draws have centres that these do not draw, and distances up to a limit.
    """
    count = model.num_roles
    observed = [np.asarray(batch.chains.observed) for batch in batches]
    features = [
        model.emission.start_features(frames_on_host(batch.chains.observations), seen)
        for batch, seen in zip(batches, observed, strict=True)
    ]
    each = [x[seen] for x, seen in zip(features, observed, strict=True)]
    seen_points = np.asarray_chkfinite(np.concatenate(each))
    centre, spread = seen_points.mean(axis=0), seen_points.std(axis=0)
    points = (seen_points - centre) / np.where(spread > 0, spread, 1)
    if len(points) > MAX_SEED_FRAMES:
        points = points[np.sort(rng.choice(len(points), MAX_SEED_FRAMES, replace=False))]
    sample = points + 1e-6 * rng.standard_normal(points.shape)
    if len(sample) < count:
        sample = np.concatenate([sample, rng.standard_normal((count - len(sample), points.shape[1]))])
    centres = cluster_centres(rng, sample, count, 1)
    limits: Any = np.inf
    other = rng.spawn(1)[0]
    trimmed = without_tails(seen_points)
    robust = clusters_without_outliers(other, trimmed, count)
    if robust is not None and other.random() < 0.5:
        (centre, spread, _), (centres, limits, *_) = trimmed, robust
    found = []
    for x, seen, batch in zip(features, observed, batches, strict=True):
        scaled = (x - centre) / np.where(spread > 0, spread, 1)
        distance = np.minimum(((scaled[..., None, :] - centres) ** 2).sum(-1), limits)
        distance = np.where(seen[..., None], distance, 0)
        found.append(distance.reshape(-1, batch.num_agents, *distance.shape[1:]))
    return found


def _matched_frames(cost: np.ndarray) -> np.ndarray:
    """Labels (sequence, time) of the best map of every frame, at costs (group, agent, time, role)."""
    role = optimal_assignment(np.moveaxis(cost, 2, 1)).role  # (group, time, agent)
    return np.moveaxis(role, 2, 1).reshape(-1, cost.shape[2]).astype(np.int64)


def _matched_groups(cost: np.ndarray, num_steps: int) -> np.ndarray:
    """Labels (sequence, time) of the best map of every demonstration, at costs (group, agent, role)."""
    role = optimal_assignment(cost).role
    return np.repeat(role.reshape(-1, 1), num_steps, axis=1).astype(np.int64)


def _one_map_each(model: Any, rng: np.random.Generator, batches: list[GroupedChains]) -> list[np.ndarray]:
    """Labels (sequence, time) of every batch: the best of three fits with one map per demonstration."""
    observed = [np.asarray(batch.chains.observed) for batch in batches]
    frames = chosen_frames([batch.chains.observations for batch in batches], observed)

    def statistics():
        costs = _seed_distances(model, rng, batches)
        labels = [
            _matched_groups(cost.sum(axis=2), cost.shape[2])[seen]
            for cost, seen in zip(costs, observed, strict=True)
        ]
        return model.emission.label_statistics(rng, frames, np.concatenate(labels), model.num_roles)

    stacked = jax.tree.map(
        lambda *x: np.stack(x).astype(jnp.result_type(float)), *(statistics() for _ in range(STARTS))
    )
    values, potentials = _with_one_map(model, model.emission.prior(model.num_roles), stacked, batches)
    best = int(np.argmax(np.where(np.isnan(values), -np.inf, values)))
    return [
        _matched_groups(
            -np.asarray(part, float)[best].reshape(-1, batch.num_agents, model.num_roles), seen.shape[1]
        )
        for part, batch, seen in zip(potentials, batches, observed, strict=True)
    ]


@quick_jit
def _with_one_map(model: Any, prior: Any, statistics: Any, batches: list[GroupedChains]) -> Any:
    """Bounds (start,), and role potentials (start, sequence, role) of every batch: fits with one map per group."""
    coupling = PerSequence()

    def local(expected):
        return sum(coupling.log_normalizer(model, expected, batch) for batch in batches)

    def fit(statistics):
        blocks = natural_step(prior, prior, statistics, 1.0, 1.0)

        def iterate(blocks, _):
            value, found = jax.value_and_grad(local)(expected_statistics(blocks))
            return natural_step(blocks, prior, found, 1.0, 1.0), value - total_kl(blocks, prior)

        blocks, values = lax.scan(iterate, blocks, length=ITERATIONS)
        expected = expected_statistics(blocks)
        return values[-1], [model.role_potentials(expected, batch.chains) for batch in batches]

    return jax.vmap(fit)(statistics)
