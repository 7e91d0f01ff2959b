r"""The role HMM: which role each agent of a group is in, step by step, learned without labels.

.. math:: \pi \sim Dir(\alpha_0), \quad A_j \sim Dir(\alpha + s e_j), \quad \phi_k \sim p(\phi), \\
          z_1 \sim \pi, \quad z_t \sim A_{z_{t-1}}, \quad x_t \sim p(\cdot \mid \phi_{z_t})

Each agent of each demonstration is one chain; chains are independent given the parameters. With
``exclusive="per_sequence"`` an agent keeps one role for a whole demonstration, no two agents of a group share
one, and there is no chain.

Le, Yue, Carr, Lucey (2017), "Coordinated multi-agent imitation learning", supplement. What is printed there
and built otherwise here: the joint has transitions (without them it is a mixture); the local step uses
:math:`\exp E \ln p_0`, and :math:`F_1 = \tilde p_0 \tilde L_1` (their :math:`F_1 = p_0` leaves the first
observation out of q(z)); the initial count is :math:`\tilde p_0 \tilde L_1 B_1 / Z` (their eq. 15 lacks
:math:`\tilde L_1`); statistics of a state are counted with that state's own weight (eq. 4, 13); natural-gradient
steps mix natural, never usual, parameters (eq. 16), scaled by whole sequences (eq. 6).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array

from ethogram.models import trajectories
from ethogram.models.blocks.conjugate_block import concretely, is_concrete, read_reals
from ethogram.models.chains.conjugate_chain import ChainData, conjugate_log_normalizer, masked_log_likelihood
from ethogram.models.emissions.emission import whole_number
from ethogram.models.exclusive_roles import ExclusiveRoles, GroupedChains, log_num_maps
from ethogram.models.exponential_family import (
    ConjugateBlock,
    Dirichlet,
    Known,
    PartlyKnown,
)
from ethogram.models.hidden_markov import HiddenMarkov
from ethogram.models.log_permanent import MAX_ROLES, log_permanent
from ethogram.models.model_object import model_object, static_field
from ethogram.models.parameter_sites import Zeros, by_site, sample_parameters, zeros_of
from ethogram.models.role_starts import start_statistics
from ethogram.models.trajectories import Trajectories

__all__ = ["RoleHMM", "Simulated"]


class Simulated(NamedTuple):
    """Simulated data with the hidden truth."""

    data: Trajectories
    states: Array  # (sequence, time): roles, -1 beyond the length
    parameters: dict[str, Any]


@model_object
class RoleHMM:
    """Bayesian hidden Markov model of roles; a numpyro model, and a conjugate one.

    Parameters
    ----------
    num_roles : K.
    emission : an emission of :mod:`ethogram.models.emissions`.
    initial : concentration alpha_0, a number or (role,), or ``Known(pi)``; 1 where None.
    transition : concentrations of the transition rows, a number, (role,) or (role, next_role), exact zeros
        forbidding a transition; or ``Known(A)`` with rows of NaN where not known; 1 where None.
    sticky : s >= 0, added to the concentration of staying, where that is not forbidden; 0 where None.
    exclusive : None, or ``"per_sequence"``: one role a demonstration, held by one agent at most; ``initial``,
        ``transition`` and ``sticky`` then have no meaning and may not be given.
    known_roles : whether ``data.states`` holds roles, known where not -1, and held there; otherwise
        ``data.states`` (of the world, say) is not looked at.

    Examples
    --------
    >>> from ethogram.models.emissions import GaussianEmission
    >>> model = RoleHMM(10, GaussianEmission(2, strength=0.01, dof=4.0, scale=25.0), sticky=1.0)
    >>> sorted(model.prior())
    ['initial', 'mean_covariance', 'transition']
    """

    num_roles: int = static_field()
    emission: Any = None
    initial: Any = None
    transition: Any = None
    sticky: Any = None
    exclusive: Literal["per_sequence"] | None = static_field(default=None)
    known_roles: bool = static_field(default=False)
    zeros: Zeros = static_field(init=False, default=())

    def __post_init__(self):
        count = self.num_roles
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"num_roles must be an integer of at least 1, not {count!r}")
        if not hasattr(self.emission, "expected_log_likelihood"):
            raise TypeError(f"emission must be one of ethogram.models.emissions, not {self.emission!r}")
        if self.exclusive not in (None, "per_sequence"):
            raise ValueError(f'exclusive must be None or "per_sequence", not {self.exclusive!r}')
        if self.exclusive is None:
            initial = 1.0 if self.initial is None else self.initial
            transition = 1.0 if self.transition is None else self.transition
            object.__setattr__(self, "initial", self._concentration("initial", initial, (count,)))
            object.__setattr__(
                self, "transition", self._concentration("transition", transition, (count, count))
            )
            self._check_sticky()
        else:
            for name in ("initial", "transition", "sticky"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} has no meaning with exclusive={self.exclusive!r}: leave it out")
            if count > MAX_ROLES:
                raise ValueError(f"num_roles is {count}: exclusive roles are summed over at most {MAX_ROLES}")
        with jax.ensure_compile_time_eval():  # which entries are forbidden is structure, also inside jit
            object.__setattr__(self, "zeros", zeros_of(self.prior()))

    def _check_sticky(self) -> None:
        if isinstance(self.transition, Known) and np.isfinite(np.asarray(self.transition.value)).all():
            if self.sticky is not None:
                raise ValueError("sticky has no meaning where every row of transition is Known: leave it out")
            return
        (sticky,) = read_reals(sticky=0.0 if self.sticky is None else self.sticky)
        if sticky.ndim:
            raise ValueError(f"sticky must be a number, not of shape {sticky.shape}")
        if is_concrete(sticky) and sticky < 0:
            raise ValueError(f"sticky must be at least 0, not {sticky}")
        object.__setattr__(self, "sticky", sticky)

    @staticmethod
    def _concentration(name: str, value: Any, shape: tuple[int, ...]) -> Any:
        if isinstance(value, Known):
            (rows,) = read_reals_or_nan(**{name: value.value})
            if rows.shape != shape:
                raise ValueError(f"{name} is Known with shape {rows.shape}, not {shape}")
            return Known(rows)
        (concentration,) = read_reals(**{name: value})
        try:
            return concretely(lambda xp, x: xp.broadcast_to(x, shape), concentration)
        except ValueError:
            raise ValueError(
                f"{name} has shape {concentration.shape}, which does not broadcast to {shape}"
            ) from None

    def prior(self) -> dict[str, ConjugateBlock]:
        """Conjugate blocks of the prior: ``initial``, ``transition`` (not where exclusive), and the emission's."""
        blocks = self.emission.prior(self.num_roles)
        if self.exclusive is not None:
            return blocks
        return {
            "initial": _rows("initial", self.initial, None),
            "transition": _rows("transition", self.transition, self.sticky),
            **blocks,
        }

    def check(self, data: Trajectories) -> None:
        """Raise ValueError or TypeError unless the data fit the model; nothing is looked at under jit."""
        trajectories.check(data)
        self.emission.read(data)
        if self.known_roles and data.states is None:
            raise ValueError(
                "data.states is None: known_roles=True needs roles (sequence, time), -1 where not known"
            )
        if self.known_roles and is_concrete(data.states, data.lengths):
            states = np.asarray(self._roles(data))
            if states.max() >= self.num_roles:
                place = np.argwhere(states >= self.num_roles)[0].tolist()
                raise ValueError(
                    f"data.states{place} is {states.max()}, but there are num_roles={self.num_roles}"
                )
        if self.exclusive is not None:
            self._agents_of_groups(data)

    def arrange(self, data: Trajectories) -> ChainData | GroupedChains:
        """Data as :meth:`log_normalizer` reads them; every array has the sequences on its leading axis.

        Exclusive roles need the sequences in order of their groups.
        """
        observed, lengths = jnp.asarray(data.observed), jnp.asarray(data.lengths)
        chains = ChainData(self.emission.read(data), observed, lengths, self._roles(data))
        return chains if self.exclusive is None else GroupedChains(chains, self._agents_of_groups(data))

    def _roles(self, data: Trajectories) -> Array | None:
        """Known roles (sequence, time), -1 where not known; nothing is known beyond a length."""
        if not self.known_roles:
            return None

        def inside(xp, states, lengths):
            return xp.where(xp.arange(states.shape[1]) < lengths[:, None], states, -1)

        return concretely(inside, data.states, data.lengths)

    def _agents_of_groups(self, data: Trajectories) -> int:
        """How many agents every group has."""
        if data.group is None:
            raise ValueError("data.group is None: exclusive roles need the group of every sequence")
        if not is_concrete(data.group):
            raise TypeError("data.group is traced: exclusive roles need to know the groups before jit")
        unknown = np.flatnonzero(np.asarray(data.group) < 0)
        if unknown.size:
            raise ValueError(
                f"data.group[{unknown[0]}] is {data.group[unknown[0]]}: exclusive roles need the group of every "
                "sequence; leave the others out"
            )
        groups, counts = np.unique(np.asarray(data.group), return_counts=True)
        if (counts != counts[0]).any():
            odd = int(np.argmax(counts != counts[0]))
            raise ValueError(
                f"ragged groups: group {groups[odd]} has {counts[odd]} agents, group {groups[0]} has {counts[0]}; "
                "exclusive roles need the same number in every group: leave the others out"
            )
        if counts[0] > self.num_roles:
            raise ValueError(
                f"groups have {counts[0]} agents for num_roles={self.num_roles} exclusive roles: "
                f"give num_roles >= {counts[0]}"
            )
        if data.agent is not None:
            pairs = np.stack([np.asarray(data.group), np.asarray(data.agent)])
            unique, repeats = np.unique(pairs, axis=1, return_counts=True)
            if (repeats > 1).any():
                group, agent = unique[:, np.argmax(repeats > 1)]
                raise ValueError(f"agent {agent} stands twice in group {group}")
        return int(counts[0])

    def log_normalizer(
        self, expected: dict[str, Any], batch: ChainData | GroupedChains | Trajectories
    ) -> Array:
        r"""Summed :math:`\ln \tilde Z` of a batch under expected log potentials, a scalar.

        Parameters
        ----------
        expected : expected statistics of the blocks of :meth:`prior`.
        batch : data, as :meth:`arrange` gives them; sequences of length zero add nothing.
        """
        if isinstance(batch, Trajectories):
            batch = self.arrange(batch)
        if isinstance(batch, ChainData):
            return conjugate_log_normalizer(self.emission, expected, batch)
        potentials = self.role_potentials(expected, batch.chains)
        potentials = potentials.reshape(-1, batch.num_agents, self.num_roles)
        return jnp.sum(log_permanent(potentials) - log_num_maps(batch.num_agents, self.num_roles))

    def step_potentials(self, expected: dict[str, Any], chains: ChainData) -> Array:
        """Expected log likelihood of every step in every role (sequence, time, role)."""
        observed = chains.observed
        inside = observed.reshape(observed.shape + (1,) * (chains.observations.ndim - 2))
        each = self.emission.expected_log_likelihood(expected, jnp.where(inside, chains.observations, 0))
        return masked_log_likelihood(each, observed, chains.states)

    def role_potentials(self, expected: dict[str, Any], chains: ChainData) -> Array:
        """Expected log likelihood of every sequence in every role (sequence, role), summed over its steps."""
        return jnp.sum(self.step_potentials(expected, chains), axis=1)

    def start_statistics(self, rng: np.random.Generator, kind: str, batches: list[Any]) -> dict[str, Any]:
        """Statistics of rough labels of every step, as :func:`~ethogram.models.role_starts.start_statistics`."""
        return start_statistics(self, rng, kind, batches)

    def observation(self, parameters: dict[str, Any], data: Trajectories) -> HiddenMarkov | ExclusiveRoles:
        """Distribution of the observations at given parameters, one batch entry a sequence (or a group)."""
        emission = self.emission.distribution(parameters)
        observed, states = jnp.asarray(data.observed), self._roles(data)
        if self.exclusive is None:
            initial, transition = parameters["initial"], parameters["transition"]
            return HiddenMarkov(initial, transition, emission, jnp.asarray(data.lengths), observed, states)
        shape, order = self.group_shape(data), self.group_order(data)
        lengths = jnp.asarray(data.lengths)[order].reshape(shape)
        states = None if states is None else states[order].reshape(*shape, -1)
        return ExclusiveRoles(emission, lengths, observed[order].reshape(*shape, -1), states)

    def observed_value(self, data: Trajectories) -> Array:
        """The observations as the value of :meth:`observation`."""
        value = self.emission.read(data)
        if self.exclusive is None:
            return value
        return value[self.group_order(data)].reshape(*self.group_shape(data), *value.shape[1:])

    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Names of the axes of every parameter site, no two of one site alike."""
        chain: dict[str, tuple[str, ...]] = {"initial": ("state",), "transition": ("state", "next_state")}
        own = getattr(self.emission, "site_dims", {})
        return {**chain, **own} if self.exclusive is None else {**own}

    def group_order(self, data: Trajectories) -> np.ndarray:
        """Sequences in order of their groups, agents of a group in order of appearance."""
        return np.argsort(np.asarray(data.group), kind="stable")

    def group_shape(self, data: Trajectories) -> tuple[int, int]:
        """Groups and agents."""
        num_agents = self._agents_of_groups(data)
        return data.num_sequences // num_agents, num_agents

    def __call__(self, data: Trajectories, *, condition: bool = True) -> None:
        """The numpyro model; ``condition=False`` keeps lengths and masks and samples the observations.

        Sites: ``initial``, ``transition``, those of the emission (``mean`` and ``covariance``, say), and
        ``observations``, with one batch entry a sequence, or a group where roles are exclusive.
        """
        self.check(data)
        parameters = sample_parameters(self.prior(), self.zeros)
        distribution = self.observation(parameters, data)
        name = "sequence" if self.exclusive is None else "group"
        with numpyro.plate(name, distribution.batch_shape[0]):
            value = self.observed_value(data) if condition else None
            numpyro.sample("observations", distribution, obs=value)

    def simulate(
        self,
        key: Array,
        num_groups: int = 20,
        num_agents: int = 1,
        lengths: Any = 50,
        *,
        parameters: dict[str, Any] | None = None,
    ) -> Simulated:
        """Data from the model, with the roles and parameters behind them.

        Parameters
        ----------
        num_groups, num_agents : demonstrations, and agents in each.
        lengths : steps of a demonstration, a number or (group,).
        parameters : by site; drawn from the prior where None.
        """
        for name, count in {"num_groups": num_groups, "num_agents": num_agents}.items():
            whole_number(name, count, 1)
        key_parameters, key_data = jax.random.split(key)
        if parameters is None:
            parameters = _draw_parameters(key_parameters, self.prior())
        lengths = np.broadcast_to(np.asarray(lengths), (num_groups,))
        each = np.repeat(lengths, num_agents)
        observed = np.arange(lengths.max()) < each[:, None]
        labels: dict[str, Any] = {
            "agent": np.tile(np.arange(num_agents, dtype=np.int32), num_groups),
            "group": np.repeat(np.arange(num_groups, dtype=np.int32), num_agents),
        }
        empty = np.zeros((*observed.shape, 1), np.int32)
        data = Trajectories(empty, None, None, each.astype(np.int32), observed, **labels)
        distribution = self.observation(parameters, data)
        x, states = _draw_observations(key_data, distribution)
        if isinstance(distribution, ExclusiveRoles):
            x = x.reshape(-1, *x.shape[2:])
            states = jnp.where(observed, states.reshape(-1, 1), -1)
        x = np.asarray(x[..., None] if self.emission.event_dim == 0 else x)
        return Simulated(data._replace(observations=x), states, parameters)


@jax.jit
def _draw_parameters(key: Array, prior: dict[str, ConjugateBlock]) -> dict[str, Any]:
    keys = jax.random.split(key, len(prior))
    return by_site({name: prior[name].sample(k) for k, name in zip(keys, prior, strict=True)})


@jax.jit
def _draw_observations(key: Array, distribution: HiddenMarkov | ExclusiveRoles) -> tuple[Array, Array]:
    """Observations, and the states or roles behind them."""
    if isinstance(distribution, HiddenMarkov):
        return distribution.sample_with_states(key)
    return distribution.sample_with_roles(key)


def read_reals_or_nan(**named: Any) -> list[Array]:
    """Arrays of reals in which NaN marks what is not known."""
    for name, value in named.items():
        if hasattr(value, "dtype") and not jnp.issubdtype(value.dtype, jnp.floating):
            raise TypeError(f"{name} has dtype {value.dtype}, not a float type")
    return [jnp.asarray(value, dtype=jnp.result_type(float)) for value in named.values()]


def _rows(name: str, value: Any, sticky: Any) -> ConjugateBlock:
    """Block of probability rows, with more weight on staying; ones stand in where rows are known."""

    def add_staying(xp, rows, sticky):
        return xp.where(rows > 0, rows + sticky * xp.eye(len(rows), dtype=rows.dtype), 0)

    known = isinstance(value, Known)
    rows = concretely(lambda xp, x: xp.ones_like(x), value.value) if known else value
    if sticky is not None:
        rows = concretely(add_staying, rows, sticky)
    block = Dirichlet.from_standard(rows)
    return PartlyKnown.from_known(block, value) if known else block
