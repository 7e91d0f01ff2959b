r"""The role HMM: a Bayesian hidden Markov model of the role of each agent, step by step.

.. math:: \pi \sim Dir(\alpha_0), \quad A_j \sim Dir(\alpha + s e_j), \quad \phi_k \sim p(\phi), \\
          z_1 \sim \pi, \quad z_t \sim A_{z_{t-1}}, \quad x_t \sim p(\cdot \mid \phi_{z_t})

Each agent of each demonstration is one chain; chains are independent given the parameters. With
``exclusive="per_sequence"`` each agent keeps one role for a whole demonstration, the roles of a group are distinct,
and there is no chain; with ``exclusive="per_frame"`` the chains are conditioned on distinct roles in every frame
(:mod:`ethogram.models.roles.per_frame`).

Le, Yue, Carr, Lucey (2017), "Coordinated multi-agent imitation learning", supplement. Corrected here: the joint has
transitions (as printed it is a mixture); the local step uses :math:`\exp E \ln p_0`, and :math:`F_1 = \tilde p_0
\tilde L_1` (the printed :math:`F_1 = p_0` leaves the first observation out of q(z)); the initial count is
:math:`\tilde p_0 \tilde L_1 B_1 / Z` (eq. 15 lacks :math:`\tilde L_1`); statistics of a state are weighted by its
own responsibility (eq. 4, 13); natural-gradient steps mix natural, never standard, parameters (eq. 16), scaled by
whole sequences (eq. 6).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jaxtyping import Bool, Float

from ethogram.models.arguments import (
    concretely,
    host_arrays,
    is_concrete,
    read_reals,
    require,
    require_covariance,
    require_integer,
    require_one_of,
)
from ethogram.models.chains.conjugate_chain import (
    ChainData,
    masked_log_likelihood,
    state_marginals,
    zero_where_missing,
)
from ethogram.models.chains.hidden_markov import HiddenMarkov
from ethogram.models.conjugate_model import (
    ConjugateModel,
    Entries,
    EStep,
    Labelling,
    group_size,
    overrides,
    require_informative,
    unlabelled,
)
from ethogram.models.data import trajectories
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.emission import Emission
from ethogram.models.families.exponential_family import ConjugateBlock, Known
from ethogram.models.families.numpyro_sites import Zeros, by_site, sample_parameters, zeros_of
from ethogram.models.label_permutations import is_exchangeable
from ethogram.models.model_object import changed, computed_once, model_object, static_field
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.log_permanent import MAX_ROLES
from ethogram.models.roles.per_frame import MAX_MAPS, PerFrame
from ethogram.models.roles.per_sequence import PerSequence
from ethogram.models.roles.role_couplings import IndependentRoles
from ethogram.models.roles.role_groups import GroupedChains, agents_of_groups, grouped_sequences
from ethogram.models.roles.role_priors import concentration, probability_rows
from ethogram.models.roles.starts import SHARED_NUMBERS, StartData, label_statistics, start_statistics
from ethogram.models.roles.starts_of_fits import statistics_of_fits

__all__ = ["RoleHMM", "Simulated"]

COUPLINGS = {None: IndependentRoles(), "per_sequence": PerSequence(), "per_frame": PerFrame()}
"""How the roles of a group depend on one another, by the argument `exclusive`."""

OF_DWELL: dict[str, type] = {}  # classes by `dwell` that is not geometric, which enter themselves
STATIONARY = 1e-12
"""Change of the probabilities of roles from one step to the next at which they count as stationary."""


@short_repr
class Simulated(NamedTuple):
    """Simulated data with the true roles and parameters."""

    data: Trajectories
    states: Array  # (sequence, time): roles, -1 beyond the length
    parameters: dict[str, Any]


@model_object
class RoleHMM(ConjugateModel):
    """Bayesian hidden Markov model of roles: a numpyro model, and a conjugate model for `ConjugateSVI`.

    Parameters
    ----------
    num_roles : K.
    emission : an emission of :mod:`ethogram.models.emissions`.
    initial : concentration alpha_0, a number or (role,), or ``Known(pi)``; 1 where None.
    transition : concentrations of the transition rows, a number, (role,) or (role, next_role), where an exact zero
        forbids a transition; or ``Known(A)`` with rows of NaN where unknown; 1 where None.
    sticky : s >= 0, added to the concentration of self-transitions that are not forbidden; 0 where None.
    exclusive : None; ``"per_sequence"``: one role per agent and demonstration, all distinct; ``initial``,
        ``transition`` and ``sticky`` must then be None; or ``"per_frame"``: agents may change roles, which are distinct
        in every frame. That is evidence, like data: the ELBO bounds ln p(x, D), and does not compare with that of
        another choice. Up to 720 maps of agents to roles are summed exactly, more by a mean field.
    known_roles : whether to condition on the roles in ``data.states``, -1 where unknown.
    dwell : how long states last, ``"geometric"`` or ``"negative-binomial"`` with None or `Covariates` as `transition`.

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
    exclusive: Literal["per_sequence", "per_frame"] | None = static_field(default=None)
    known_roles: bool = static_field(default=False)
    dwell: Literal["geometric", "negative-binomial"] = static_field(default="geometric")
    zeros: Zeros = static_field(init=False, default=())

    def __new__(cls, *fields: Any, **named: Any) -> Any:
        """The model, of the class that `dwell`, transition or emission ask for: of covariates a `CovariateRoleHMM`."""
        if cls is not RoleHMM:
            return object.__new__(cls)
        given: dict[str, Any] = dict(zip(RoleHMM.__match_args__, fields, strict=False)) | named
        parts: Any = (given.get("transition"), given.get("emission"))
        asks = [part.role_model() for part in parts if hasattr(type(part), "role_model")]
        return object.__new__(OF_DWELL.get(str(given.get("dwell")), (*asks, cls)[0]))

    @property
    def coupling(self) -> Any:
        """How the roles of a group depend on one another; of :mod:`ethogram.models.roles.role_couplings`."""
        return COUPLINGS[self.exclusive]

    @property
    def start_kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """Starts that ``init="mixed"`` takes in turn."""
        return self.coupling.start_kinds

    def __post_init__(self):
        count = self.num_roles
        require_integer("num_roles", count, 1)
        if not isinstance(self.emission, Emission):
            raise TypeError(f"emission must be of a subclass of Emission, not {self.emission!r}")
        require_one_of("exclusive", self.exclusive, tuple(COUPLINGS))
        require_one_of("dwell", self.dwell, ("geometric", *OF_DWELL))
        if self.coupling.has_chain:
            for name, shape in {"initial": (count,), "transition": (count, count)}.items():
                object.__setattr__(self, name, concentration(name, getattr(self, name), shape))
            self._check_sticky()
        else:
            for name in ("initial", "transition", "sticky"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is not a parameter of exclusive={self.exclusive!r}: leave it out"
                    )
        if self.coupling.is_joint and count > MAX_ROLES:
            raise ValueError(f"num_roles is {count}: exclusive roles are summed over at most {MAX_ROLES}")
        with jax.ensure_compile_time_eval():  # which entries are forbidden is structure, also inside jit
            object.__setattr__(self, "zeros", zeros_of(self.prior()))

    def _check_sticky(self) -> None:
        if isinstance(self.transition, Known) and np.isfinite(np.asarray(self.transition.value)).all():
            if self.sticky is None:
                return
            raise ValueError("sticky has no effect where every row of transition is Known: leave it out")
        (sticky,) = read_reals(sticky=0.0 if self.sticky is None else self.sticky)
        if sticky.ndim:
            raise ValueError(f"sticky must be a number, not of shape {sticky.shape}")
        if is_concrete(sticky) and np.asarray(sticky) < 0:
            raise ValueError(f"sticky must be at least 0, not {sticky}")
        object.__setattr__(self, "sticky", sticky)

    def prior(self) -> dict[str, ConjugateBlock]:
        """Conjugate blocks of the prior: ``initial``, ``transition`` (where roles change), and the emission's."""
        return {**self._prior()}

    @computed_once
    def _prior(self) -> dict[str, ConjugateBlock]:
        blocks = self.emission.prior(self.num_roles)
        if not self.coupling.has_chain:
            return blocks
        return {**self._chain_prior(), **blocks}

    @computed_once
    def _chain_prior(self) -> dict[str, ConjugateBlock]:
        return {
            "initial": probability_rows("initial", self.initial, None),
            "transition": probability_rows("transition", self.transition, self.sticky),
        }

    def check(self, data: Trajectories) -> None:
        """Raise ValueError or TypeError unless the data fit the model; traced arrays are not checked."""
        trajectories.check(data)
        self.emission.read(data)
        if self.known_roles and data.states is None:
            raise ValueError(
                "data.states is None: known_roles=True needs roles (sequence, time), -1 where not known"
            )
        if self.known_roles and is_concrete(data.states, data.lengths):
            states = np.asarray(self._roles(data))
            rule = f", but there are num_roles={self.num_roles}"
            require(states < self.num_roles, "data.states", states, rule)
        if self.coupling.is_joint:
            num_agents = agents_of_groups(data, self.num_roles)
            forbidden = any(name in ("initial", "transition") for name, _ in self.zeros)
            if forbidden and not self.coupling.is_exact(num_agents, self.num_roles):
                raise ValueError(
                    f"{num_agents} agents have over {MAX_MAPS} maps to {self.num_roles} roles: their mean field cannot "
                    "respect forbidden transitions (zeros of initial or transition); give small positive "
                    "concentrations, or fewer roles"
                )

    def bind(self, data: Trajectories, like: Any = None) -> RoleHMM:
        """The model with the prior that its emission takes from these data, or that of the model `like`."""
        emission = self.emission
        if isinstance(like, RoleHMM) and type(like.emission) is type(emission):
            emission = emission.with_prior_of(like.emission)
        emission = emission.bind(data, self.num_roles)
        if emission is self.emission:
            return self
        model = changed(self, ("_chain_prior",), emission=emission)
        with jax.ensure_compile_time_eval():
            object.__setattr__(model, "zeros", zeros_of(model.prior()))
        return model

    @property
    def is_bound(self) -> bool:
        """Whether the density of the emission takes nothing from data, besides the parameters."""
        return not self.emission.observation_needs_data

    def arrange(self, data: Trajectories) -> ChainData | GroupedChains:
        """Data in the form of :meth:`log_normalizer`; every array leads with the sequence axis.

        Exclusive roles need the sequences in order of their groups.
        """
        observed, lengths = host_arrays(lambda xp, *x: x, data.observed, data.lengths)
        chains = ChainData(self.emission.arrange(data), observed, lengths, self._roles(data))
        if not self.coupling.is_joint:
            return chains
        return GroupedChains(chains, agents_of_groups(data, self.num_roles))

    def _roles(self, data: Trajectories) -> Any:
        """Known roles (sequence, time), -1 where unknown and beyond a length."""
        if not self.known_roles:
            return None

        def inside(xp, states, lengths):
            return xp.where(xp.arange(states.shape[1]) < lengths[:, None], states, -1)

        return host_arrays(inside, data.states, data.lengths)

    def log_normalizer(self, expected: dict[str, Any], batch: ChainData | GroupedChains) -> Float[Array, ""]:
        r"""Summed :math:`\ln \tilde Z` of a batch under expected log potentials, a scalar.

        Parameters
        ----------
        expected : expected statistics of the blocks of :meth:`prior`.
        batch : data, as :meth:`arrange` gives them; sequences of length zero add nothing.
        """
        return self.coupling.log_normalizer(self, expected, batch)

    @property
    def e_step(self) -> EStep:
        """The exact step; with ``exclusive="per_frame"`` and many maps of agents to roles a mean field."""
        return self.coupling.e_step(self)

    def exchangeable_axes(self) -> dict[str, tuple[int, ...]]:
        """Axes of the roles by block, where all roles have the same prior and no data name them."""
        prior = self.prior()
        axes: dict[str, tuple[int, ...]] = {name: (0, 1) if name == "transition" else (0,) for name in prior}
        return axes if not self.known_roles and is_exchangeable(prior, axes, self.num_roles) else {}

    def switches_labels(self) -> bool:
        """Whether nothing tells the roles apart: the prior is the same for all, and no data name them."""
        return bool(self.exchangeable_axes())

    def state_positions(self, draws: Any, data: Trajectories) -> np.ndarray | None:
        """Means of the first feature, increasing; without one, minus the expected steps of each role."""
        found = self.emission.locations(draws)
        if found is not None or not self.coupling.has_chain:
            return found
        occupied, transition = draws["initial"].mean(0), draws["transition"].mean(0)
        lengths, expected = np.sort(np.asarray(data.lengths)), np.zeros(self.num_roles)
        alive = len(lengths) - np.searchsorted(lengths, np.arange(lengths[-1]), side="right")
        for time in range(len(alive)):
            following = occupied @ transition
            if np.abs(following - occupied).max() < STATIONARY:
                return -expected - alive[time:].sum() * occupied
            expected += alive[time] * occupied
            occupied = following
        return -expected

    @property
    def labelling(self) -> Labelling | None:
        """Labels of every step; None where the roles of a group are scored jointly, or roles have no chain."""
        if self.coupling.is_joint or not self.coupling.has_chain:
            return None
        return Labelling(
            lambda rng, labels, batches: label_statistics(self, rng, labels, StartData.of(self, batches)),
            functools.partial(state_marginals, self.emission),
        )

    def step_potentials(
        self, expected: dict[str, Any], chains: ChainData
    ) -> Float[Array, "sequence time role"]:
        """Expected log likelihood of every step in every role (sequence, time, role)."""
        observed = chains.observed
        observations = zero_where_missing(chains.observations, observed)
        each = self.emission.expected_log_likelihood(expected, observations)
        states = chains.states
        if states is not None:  # a padded step has no known state
            states = jnp.where(jnp.arange(states.shape[1]) < chains.lengths[:, None], states, -1)
        return masked_log_likelihood(each, observed, states)

    def role_potentials(self, expected: dict[str, Any], chains: ChainData) -> Float[Array, "sequence role"]:
        """Expected log likelihood of every sequence in every role (sequence, role), summed over its steps."""
        return jnp.sum(self.step_potentials(expected, chains), axis=1)

    def start_statistics(
        self, rng: np.random.Generator, kind: str, batches: Any, number: int | None = None
    ) -> dict[str, Any]:
        """Statistics of rough labels of every step, as :func:`~ethogram.models.roles.starts.start_statistics`."""
        return start_statistics(self, rng, kind, StartData.of(self, batches))

    @classmethod
    def starts_of_fits(
        cls, fits: Any, words: Any, kinds: Any, number: int | None = None
    ) -> list[dict[str, Any]]:
        """Statistics (start, ...) of rough labels of several fits, where they are small with k-means side by side."""
        model, emission = fits[0][0], fits[0][0].emission
        quick = (
            overrides(emission, "statistics_of_labels") and not emission.differs_by_state and model.labelling
        )
        if quick and all(isinstance(data, StartData) for _, data in fits):
            return statistics_of_fits(fits, words, kinds)
        return super().starts_of_fits(fits, words, kinds, number)

    def start_data(self, batches: list[Any]) -> Any:
        """The batches, with what all starts take from them where they are not large."""
        steps = sum(np.size(jax.tree.leaves(batch)[0]) for batch in batches)
        return StartData(self, batches) if steps <= SHARED_NUMBERS else batches

    def entries(self, data: Trajectories | GroupedChains) -> Entries:
        """Sequences, or whole groups where roles are exclusive, which then are the batch of :meth:`likelihood`.

        Such a batch, traced or not, is taken in place of data.
        """
        if isinstance(data, GroupedChains):
            value = self.emission.read(data.chains)
            return Entries(value.reshape(-1, data.num_agents, *value.shape[1:]), data, unit="group")
        frames = unlabelled(data)._replace(actions=None, stay=None, states=self._roles(data))
        if not self.coupling.is_joint:
            return Entries(self.emission.read(data), frames)
        groups = grouped_sequences(data, self.num_roles)
        found = self.entries(GroupedChains(frames.take(groups.ravel()), groups.shape[1]))
        return dataclasses.replace(found, sequences=groups)

    def likelihood(self, parameters: dict[str, Any], batch: Any) -> Any:
        """Distribution of the observations at given parameters, one batch entry per sequence, or per group.

        Parameters
        ----------
        parameters : by site.
        batch : data, or the batch of :meth:`entries`, which is needed inside jit where roles are exclusive.
        """
        if self.coupling.is_joint and isinstance(batch, Trajectories):
            batch = self.entries(batch).batch
        self._check_covariances(parameters)
        grouped = isinstance(batch, GroupedChains)
        data, size = (batch.chains, batch.num_agents) if grouped else (batch, 1)

        def by_group(xp, *parts):
            return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]) if grouped else x, parts)

        emission = self.emission.distribution(parameters, data)
        parts = concretely(by_group, data.lengths, data.observed, self._roles(data))
        return self.coupling.observation(emission, parameters, *parts)

    def _check_covariances(self, parameters: dict[str, Any]) -> None:
        """Raise ValueError unless covariances are symmetric positive definite; traced ones are not checked."""
        for name, dims in self.emission.site_dims.items():
            if dims[-1].endswith("next_feature") and is_concrete(parameters[name]):
                require_covariance(f"parameters[{name!r}] of role ", parameters[name])

    def informative_steps(self, data: Trajectories) -> Bool[np.ndarray, "sequence time"]:
        """Which steps are observed, or have a known role."""
        observed, roles = super().informative_steps(data), self._roles(data)
        return observed if roles is None else observed | (np.asarray(roles) >= 0)

    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of every parameter site."""
        chain: dict[str, tuple[str, ...]] = {"initial": ("state",), "transition": ("state", "next_state")}
        own = self.emission.site_dims
        return {**chain, **own} if self.coupling.has_chain else {**own}

    def site_layout(self, data: Any) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        """Dims of every site, and the names of regressors where the emission has any."""
        return self.site_dims(), self.emission.site_coords(
            None if data is None else data.metadata.feature_names
        )

    def __call__(self, data: Trajectories | GroupedChains, *, condition: bool = True) -> None:
        """The numpyro model; ``condition=False`` samples the observations, with lengths and masks of the data.

        A bound model also takes the batch of :meth:`entries`, which it does not check.

        Sites: ``initial``, ``transition``, those of the emission (``mean`` and ``covariance``, say), and
        ``observations``, with one batch entry per sequence, or a group where roles are exclusive.
        """
        model = self
        if isinstance(data, Trajectories):
            self.check(data)
            require_informative(self, data, condition)
            model = self.bind(data)
        entries = model.entries(data)
        num_agents = group_size(entries.batch)
        if condition and not self.coupling.is_exact(num_agents, self.num_roles):
            raise ValueError(
                f"{num_agents} agents have over {MAX_MAPS} maps to {self.num_roles} roles: the density of "
                'exclusive="per_frame" is a bound, which NUTS cannot sample; fit by ConjugateSVI'
            )
        parameters = sample_parameters(model.prior(), self.zeros)
        distribution = model.likelihood(parameters, entries.batch)
        with numpyro.plate(entries.unit, distribution.batch_shape[0]):
            numpyro.sample("observations", distribution, obs=entries.value if condition else None)

    def simulate(
        self,
        key: Array,
        num_groups: int = 20,
        num_agents: int = 1,
        lengths: Any = 50,
        *,
        parameters: dict[str, Any] | None = None,
    ) -> Simulated:
        """Simulate data, with their true roles and parameters.

        Parameters
        ----------
        num_groups, num_agents : demonstrations, and agents in each.
        lengths : steps of a demonstration, a number or (group,).
        parameters : by site; drawn from the prior where None.
        """
        require_integer("num_groups", num_groups, 1)
        require_integer("num_agents", num_agents, 1)
        key_parameters, key_data = jax.random.split(key)
        if parameters is None:
            parameters = _draw_parameters(key_parameters, self.prior())
        self._check_covariances(parameters)
        lengths = np.broadcast_to(np.asarray(lengths), (num_groups,))
        each = np.repeat(lengths, num_agents)
        observed = np.arange(lengths.max()) < each[:, None]
        agent = np.tile(np.arange(num_agents, dtype=np.int32), num_groups)
        group = np.repeat(np.arange(num_groups, dtype=np.int32), num_agents)
        data = Trajectories(None, None, None, each.astype(np.int32), observed, agent=agent, group=group)
        lead = (
            (num_groups, agents_of_groups(data, self.num_roles)) if self.coupling.is_joint else (len(each),)
        )
        x, states = _draw_observations(
            key_data, self, parameters, data.lengths.reshape(lead), observed.reshape(*lead, -1)
        )
        if self.coupling.is_joint:
            x = x.reshape(-1, *x.shape[2:])
            states = jnp.where(observed, states.reshape(len(x), -1), -1)
        return Simulated(data._replace(observations=np.asarray(x)), states, parameters)


_own = list(inspect.signature(RoleHMM.__init__).parameters.values())[1:]
RoleHMM.__signature__ = inspect.Signature(_own)  # type: ignore[attr-defined]  # that of __new__ says nothing


@quick_jit
def _draw_parameters(key: Array, prior: dict[str, ConjugateBlock]) -> dict[str, Any]:
    keys = jax.random.split(key, len(prior))
    return by_site({name: prior[name].sample(k) for k, name in zip(keys, prior, strict=True)})


@quick_jit
def _draw_observations(key: Array, model: Any, parameters: Any, lengths: Any, observed: Any) -> Any:
    """Observations, and the states or roles behind them."""
    emission = model.emission.distribution(parameters)
    distribution = model.coupling.observation(emission, parameters, lengths, observed, None)
    if isinstance(distribution, HiddenMarkov):
        return distribution.sample_with_states(key)
    return distribution.sample_with_roles(key)
