r"""GP-IRL: a Gaussian-process prior on the reward of a soft-optimal (maximum-entropy) agent.

.. math:: \lambda_0 \sim p(\lambda_0), \quad \lambda_l \sim p(\lambda_l), \qquad
          r \sim GP(0, k_\lambda(x, x')), \qquad a_t \sim \pi_r(\cdot \mid s_t)

The policy is that of :func:`~ethogram.models.mdps.soft_values`. Only differences of rewards are identified: a constant
added to all leaves the policy unchanged, and the level is determined by the prior alone.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", eq. 1, 6 and 7;
Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes". Differences: the
relevances have priors, since with few demonstrations their likelihood has no maximum; the noise of the kernel is kept
in the conditional distribution of the reward given the inducing points (Levine leaves it out).
"""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Bool, Float

from ethogram.models.arguments import concretely, is_concrete, require_integer, require_key
from ethogram.models.conjugate_model import Entries, Exportable
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.demonstrations import (
    demonstration_counts,
    demonstration_value,
    num_experts,
    read_demonstrations,
)
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import ActionCounts, SoftPolicy
from ethogram.models.mdps.tabular import require_discounted
from ethogram.models.mdps.values import SoftSolution, soft_values
from ethogram.models.model_object import model_object, static_field
from ethogram.models.printing import short_repr
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.kernel import RewardMap
from ethogram.models.rewards.reward_settings import (
    default_relevance_prior,
    read_family,
    read_features_of,
    read_inducing,
    read_prior,
    require_room_for_rewards,
    warn_of_constant_features,
)

__all__ = ["GPIRL", "OF_A_REWARD", "SimulatedRewards", "prior_sites", "reward_sites"]

OF_A_REWARD = ("u_white", "u", "reward_white", "reward", "centred_reward", "values", "policy")
"""Sites that each of several rewards has."""

TOGETHER_AT_MOST = 128
"""Number of states up to which the agents of several rewards are computed together."""


@short_repr
class SimulatedRewards(NamedTuple):
    """Simulated demonstrations and their true parameters.

    Attributes
    ----------
    data : states and actions; one sequence per demonstration.
    parameters : by site, ``scale``, ``relevance``, ``reward``, ``policy`` and so on.
    """

    data: Trajectories
    parameters: dict[str, Any]


@model_object
class Demonstrations:
    """Demonstrations as :meth:`GPIRL.likelihood` reads them.

    Attributes
    ----------
    value : (trajectory, time, 2), a state and an action per step, -1 where missing; or counts (state, action).
    start, lengths : (trajectory,), first state and number of steps; None of counts.
    expert : (trajectory,), who demonstrates; None where experts are pooled.
    num_experts : their number.
    """

    value: Any
    start: Any = None
    lengths: Any = None
    expert: Any = None
    num_experts: int | None = static_field(default=None)


@model_object
class GPIRL(Exportable):
    """Gaussian-process inverse reinforcement learning; a numpyro model.

    Sites: ``scale``, ``relevance (feature,)``, ``u_white (inducing,)`` and ``reward_white (point,)``, standard normal;
    deterministic ``reward``, ``centred_reward``, its deviations from its mean, ``values (state,)`` and ``policy (state,
    action)``; ``demonstrations`` in the plate ``trajectory``, or in the plate ``state`` where the data are counts.
    Where trajectories have subjects, each is an expert with its own reward under common hyper-parameters, in the plate
    ``expert``; to pool experts, leave ``subject`` out.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    features : (state, feature), or (state, action, feature) for a reward of states and actions; default: those of
        `mdp`. A point is a state, or a pair state * A + action.
    family : ``"direct"``, inference for the rewards of all points; or ``"inducing"``, for those of inducing points, on
        which all others are conditioned. Default: direct up to 500 points.
    inducing : (inducing,) integers, the inducing points; `select_inducing_points` chooses some where the demonstrations
        go. Default: up to 200 that represent the features of all points, by `representative_points`.
    conditional : covariance of the rewards given those of the inducing points: ``"full"``, or ``"independent"``, its
        diagonal, which is another prior of the reward (the fully independent training conditional of Snelson and
        Ghahramani 2006) and takes memory linear in the number of points. Default: full up to 2000 points.
    noise : variance of every feature, > 0: states with equal features have slightly different rewards.
    scale_prior : prior of the variance of a reward: a numpyro distribution, or a fixed number.
    relevance_prior : prior of the relevances (inverse squared lengthscales), likewise, or fixed numbers (feature,).
        Default: log-normal; for more than three features the square of a half-Cauchy variable, by whose
        scale three of them are expected to matter, or half of fewer than six; it follows from their variances.
    rationality : inverse temperature, which multiplies rewards: a number, or a distribution where the scale is fixed.
    whiten : whether rewards are sampled through standard normal variables; otherwise ``u`` and ``reward`` are sampled
        directly.
    check_transitions : whether demonstrated transitions of probability zero are refused.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type, shape or sign, or is NaN; inducing points are out of range or repeated; the
        discount is 1; a prior is not on the positive reals; or covariances would take more than 4 GiB.

    Warns
    -----
    UserWarning
        A feature is constant: its relevance is not identified, and matters for other environments only.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = GPIRL(corridor, [[0.0], [1.0], [2.0]])
    >>> simulated = model.simulate(jax.random.key(0), num_trajectories=5, length=4)
    >>> simulated.data.actions.shape, simulated.parameters["reward"].shape
    ((5, 4), (3,))
    """

    observed_site: ClassVar[str] = "demonstrations"
    label_dims: ClassVar[tuple[str, ...]] = ("intent", "next_intent")  # of which it has none

    mdp: Any
    features: Any = None
    family: str | None = static_field(default=None)
    inducing: Any = None
    conditional: str | None = static_field(default=None)
    noise: Any = 0.005
    scale_prior: Any = dist.LogNormal(math.log(5.0), 1.0)
    relevance_prior: Any = None
    rationality: Any = 1.0
    whiten: bool = static_field(default=True)
    check_transitions: bool = static_field(default=True)

    def __post_init__(self):
        if not isinstance(self.mdp, MDP):
            raise TypeError(f"mdp is {type(self.mdp).__name__}: give an MDP")
        require_discounted(self.mdp)
        object.__setattr__(self, "features", read_features_of(self.mdp, self.features))
        object.__setattr__(self, "noise", read_prior("noise", self.noise, ((),)))
        family, conditional = read_family(self.family, self.conditional, self.num_points)
        object.__setattr__(self, "family", family)
        object.__setattr__(self, "conditional", conditional)
        object.__setattr__(
            self, "inducing", read_inducing(self.inducing, family, self.features.reshape(self.num_points, -1))
        )
        independent = conditional == "independent"
        require_room_for_rewards(self.num_points, len(self.inducing) if independent else None)
        if self.relevance_prior is None:
            object.__setattr__(self, "relevance_prior", default_relevance_prior(self.points))
        for name in ("scale_prior", "relevance_prior", "rationality"):
            shapes = ((), (self.num_features,)) if name == "relevance_prior" else ((),)
            object.__setattr__(self, name, read_prior(name, getattr(self, name), shapes))
        if all(isinstance(x, dist.Distribution) for x in (self.rationality, self.scale_prior)):
            raise ValueError(
                "rationality and scale_prior are both distributions, but only their product is identified: give a "
                "number for one of them"
            )
        warn_of_constant_features(self.features)

    @property
    def num_points(self) -> int:
        """Number of states, or of state-action pairs, that have a reward."""
        return math.prod(self.features.shape[:-1])

    @property
    def num_features(self) -> int:
        """Number of features."""
        return self.features.shape[-1]

    @property
    def dtype(self) -> Any:
        """Float type of rewards: that of JAX where the model was made, or of the features, if that is smaller."""
        return min(self.features.dtype, self.noise.dtype, key=lambda dtype: dtype.itemsize)

    @property
    def centre(self) -> Float[np.ndarray, "feature"] | float:
        """What is subtracted from features before they are rounded: their mean, or 0 where they are arrays of JAX."""
        if not isinstance(self.features, np.ndarray):
            return 0.0
        return self.features.reshape(self.num_points, -1).mean(0, dtype=float)

    def centred(self) -> GPIRL:
        """The model with features less their `centre`, which has the same posterior and may be rounded under jit."""
        if not isinstance(self.features, np.ndarray):
            return self
        moved = copy.copy(self)
        object.__setattr__(
            moved, "features", jax.device_put((self.features - self.centre).astype(self.dtype))
        )
        return moved

    @property
    def points(self) -> Float[Array, "point feature"]:
        """Features of every point, less their centre."""
        return self.centred().features.reshape(self.num_points, self.num_features)

    @property
    def num_white(self) -> int:
        """Number of standard normal variables that inference is for."""
        return self.num_points if self.family == "direct" else len(self.inducing)

    def reward_map(self, scale: Any, relevance: Any) -> RewardMap:
        """Rewards of all points given the hyper-parameters, as a linear map of standard normal variables."""
        dtype, points = self.dtype, self.points
        scale, relevance, noise = (jnp.asarray(x, dtype) for x in (scale, relevance, self.noise))
        if self.family == "direct":
            matrix = reward_kernel.covariance(points, scale, relevance, noise)
            return RewardMap(reward_kernel.root(matrix, scale), None)
        independent = self.conditional == "independent"
        at = points[self.inducing]
        return reward_kernel.conditional_map(points, at, scale, relevance, noise, independent)

    def feature_weights(self, scale: Any, relevance: Any) -> Float[Array, "point w"]:
        """Means of the rewards of all points as a function of features, given w: without the noise of each point."""
        dtype, points = self.dtype, self.points
        scale, relevance, noise = (jnp.asarray(x, dtype) for x in (scale, relevance, self.noise))
        if self.inducing is not None:
            return reward_kernel.whitened_cross(points, points[self.inducing], scale, relevance, noise)[1].T
        root = self.reward_map(scale, relevance).weights
        own = scale * reward_kernel.white_share(relevance, noise)
        return root - own * solve_triangular(root, jnp.eye(len(root), dtype=dtype), lower=True).T

    def agent(self, reward: Any, rationality: Any = None) -> SoftSolution:
        """Soft-optimal agent for rewards (..., point), times a rationality that broadcasts with them."""
        times = self.rationality if rationality is None else rationality
        shape = (*reward.shape[:-1], self.mdp.num_states, *(self.features.shape[1:-1] or (1,)))
        return soft_values(self.mdp, (times * reward).reshape(shape), pairs=self.features.ndim == 3)

    def count_log_likelihood(
        self, reward: Array, counts: Array, rationality: Any = None
    ) -> Float[Array, "*batch"]:
        """Log likelihood (...) of counts (..., state, action) under rewards (..., point) and one rationality."""
        acted = (self.rationality if rationality is None else rationality) * reward
        if reward.ndim == 1 or self.mdp.num_states <= TOGETHER_AT_MOST:
            return self._count_log_likelihood(acted, counts)
        # One after the other, since policies of all draws would take more memory than everything else.
        one = jax.checkpoint(self._count_log_likelihood)
        if counts.ndim == 2:
            return jax.lax.map(lambda r: one(r, counts), acted)
        each = jax.lax.map(
            lambda x: jax.lax.map(lambda r: one(r, x[1]), x[0]), (jnp.moveaxis(acted, -2, 0), counts)
        )
        return jnp.moveaxis(each, 0, -1)

    def _count_log_likelihood(self, acted: Array, counts: Array) -> Array:
        log_policy = self.agent(acted, 1).log_policy
        return jnp.sum(jnp.where(counts > 0, counts * jnp.where(counts > 0, log_policy, 0), 0), (-2, -1))

    def __call__(self, demonstrations: Any = None, *, condition: bool = True) -> None:
        """Sample hyper-parameters and rewards, and demonstrations given them.

        Parameters
        ----------
        demonstrations : `Trajectories` with states and actions, or counts (state, action); None for the prior alone.
            The batch of :meth:`entries` is not checked.
        condition : False samples demonstrations with the same first states and lengths; counts with the same totals.

        Raises
        ------
        TypeError, ValueError
            As for :func:`~ethogram.models.mdps.demonstration_counts`. Traced data are not checked.
        """
        if not isinstance(demonstrations, Demonstrations):
            self.check(demonstrations)
        solution = self.sample_agent("expert", self._num_rewards(demonstrations))
        if demonstrations is None:
            return
        entries = self.entries(demonstrations)
        value = entries.batch.value

        def known(xp, value):
            return value.sum(-1) > 0 if entries.unit == "state" else (value >= 0).all(-1).any(-1)

        informative = numpyro.handlers.mask(mask=concretely(known, value))
        with numpyro.plate(entries.unit, len(value)), informative:
            acts = self._demonstrated(solution, entries.batch)
            numpyro.sample("demonstrations", acts, obs=value if condition else None)

    def sample_agent(self, plate: str, num_rewards: int | None) -> SoftSolution:
        """Sample hyper-parameters and rewards, these in a plate where they are counted; their soft-optimal agent."""
        scale = self._hyper("scale", self.scale_prior, ())
        relevance = self._hyper("relevance", self.relevance_prior, (self.num_features,))
        rationality = self._hyper("rationality", self.rationality, ())
        with numpyro.plate(plate, num_rewards) if num_rewards is not None else contextlib.nullcontext():
            reward = self._sample_reward(scale, relevance)
        solution = self.agent(reward, rationality)
        for name, value in reward_sites(self, reward, solution).items():
            if self.whiten or name != "reward":
                numpyro.deterministic(name, value)
        return solution

    def _num_rewards(self, demonstrations: Any) -> int | None:
        """Number of experts; None where there is one reward."""
        if isinstance(demonstrations, Demonstrations):
            return demonstrations.num_experts
        return num_experts(demonstrations)

    def _hyper(self, name: str, prior: Any, shape: tuple[int, ...]) -> Array:
        if isinstance(prior, dist.Distribution):
            with numpyro.plate("feature", shape[0]) if shape else contextlib.nullcontext():
                return numpyro.sample(name, prior)
        value = jnp.broadcast_to(jnp.asarray(prior), shape)
        return value if name == "rationality" else numpyro.deterministic(name, value)

    def _sample_reward(self, scale: Array, relevance: Array) -> Array:
        def white(name: str, count: int) -> Array:
            return numpyro.sample(name, dist.Normal(0, jnp.ones(count, self.dtype)).to_event(1))

        if self.whiten:
            mapping = self.reward_map(scale, relevance)
            if mapping.noise is None:
                return mapping.reward(white("reward_white", self.num_points))
            return mapping.reward(white("u_white", self.num_white), white("reward_white", self.num_points))
        noise = jnp.asarray(self.noise, self.dtype)
        points = self.points
        if self.family == "direct":
            low = reward_kernel.root(reward_kernel.covariance(points, scale, relevance, noise), scale)
            return numpyro.sample("reward", dist.MultivariateNormal(0.0, scale_tril=low))
        mapping = self.reward_map(scale, relevance)
        at = points[self.inducing]
        low = reward_kernel.root(reward_kernel.covariance(at, scale, relevance, noise), scale)
        u = numpyro.sample("u", dist.MultivariateNormal(0.0, scale_tril=low))
        mean = mapping.reward(solve_triangular(low, u[..., None], lower=True)[..., 0])
        if self.conditional == "independent":
            return numpyro.sample("reward", dist.Normal(mean, mapping.noise).to_event(1))
        return numpyro.sample("reward", dist.MultivariateNormal(mean, scale_tril=mapping.noise))

    def _demonstrated(self, solution: SoftSolution, batch: Demonstrations) -> Any:
        """Distribution of demonstrations, or of counts."""
        if batch.start is None:
            return ActionCounts(solution.log_policy, concretely(lambda xp, x: x.sum(-1), batch.value))
        parts = {"length": batch.value.shape[1], "lengths": batch.lengths, "start": batch.start}
        return SoftPolicy(self.mdp, None, agent=batch.expert, **parts, solution=solution)

    def entries(self, data: Any) -> Entries:
        """Trajectories, or the states of counts."""
        if isinstance(data, Trajectories):
            states: Any = data.states
            shown = (demonstration_value(data), states[:, 0], data.lengths, data.subject)
            data = Demonstrations(*shown, num_experts(data))
        elif not isinstance(data, Demonstrations):
            data = Demonstrations(concretely(lambda xp, x: x, data))
        unit = "state" if data.start is None else "trajectory"
        return Entries(data.value, data, unit=unit)

    def likelihood(self, parameters: dict[str, Any], batch: Demonstrations) -> Any:
        """Distribution of the actions given rewards, which are taken as they are, and not recomputed.

        Parameters
        ----------
        parameters : ``reward``; ``rationality`` where it has a prior.
        batch : of :meth:`entries`.
        """
        reward = jnp.asarray(parameters["reward"])
        lead = reward.shape[: reward.ndim - self.features.ndim + 1]
        solution = self.agent(
            reward.reshape(*lead, self.num_points), parameters.get("rationality", self.rationality)
        )
        return self._demonstrated(solution, batch)

    def needed_sites(self) -> tuple[str, ...]:
        """The rewards; the rationality where it has a prior."""
        learned = ("rationality",) if isinstance(self.rationality, dist.Distribution) else ()
        return ("reward", *learned)

    def informative_steps(self, data: Any) -> Bool[np.ndarray, "entry *time"]:
        """Which steps have a known action; which states have one, of counts."""
        if isinstance(data, Trajectories):
            return np.all(np.asarray(demonstration_value(data)) >= 0, axis=-1)
        return np.asarray(data).sum(-1) > 0

    def check(self, demonstrations: Any) -> None:
        """Raise TypeError or ValueError unless the demonstrations are valid; see :meth:`__call__`."""
        if demonstrations is None or not is_concrete(*jax.tree.leaves((demonstrations, self.mdp))):
            return
        if isinstance(demonstrations, Trajectories):
            read_demonstrations(self.mdp, demonstrations, self.check_transitions)
        else:
            demonstration_counts(self.mdp, demonstrations)

    def counts(self, demonstrations: Any) -> Float[np.ndarray, "*expert state action"]:
        """Checked counts of state-action pairs; with a leading axis where there are experts."""
        experts, checked = num_experts(demonstrations), self.check_transitions
        return demonstration_counts(self.mdp, demonstrations, check_transitions=checked, num_agents=experts)

    def simulate(
        self, key: Array, *, num_trajectories: int, length: int, parameters: dict[str, Any] | None = None
    ) -> SimulatedRewards:
        """Simulated demonstrations of one agent, with a reward from the prior or given.

        Parameters
        ----------
        num_trajectories, length : number of demonstrations, and their steps.
        parameters : ``reward`` (state,) or (state, action), in place of a prior draw.
        """
        require_key(key)
        require_integer("num_trajectories", num_trajectories, 1)
        require_integer("length", length, 1)
        key_prior, key_data = jax.random.split(key)
        if parameters is None:
            parameters = prior_sites(self, key_prior)
        if "reward" not in parameters:
            raise ValueError(
                f"parameters have no reward: they have {', '.join(sorted(parameters)) or 'nothing'}"
            )
        rationality = parameters.get("rationality", self.rationality)
        reward, pairs = rationality * jnp.asarray(parameters["reward"]), self.features.ndim == 3
        acts = SoftPolicy(self.mdp, reward, pairs=pairs, length=length)
        drawn = np.asarray(acts.sample(key_data, (num_trajectories,)))
        names = Metadata(state_names=self.mdp.state_names, action_names=self.mdp.action_names)
        data = Trajectories.from_list(
            states=list(drawn[..., 0]), actions=list(drawn[..., 1]), metadata=names, codes=True
        )
        return SimulatedRewards(data, parameters)

    def site_layout(self, data: Any = None) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        """Dims of every site, and coords."""
        pair = ("state", "action")
        reward = pair[: self.features.ndim - 1]
        dims: dict[str, tuple[str, ...]] = {
            "relevance": ("feature",), "u_white": ("inducing",), "u": ("inducing",), "reward_white": ("point",),
            "reward": reward, "centred_reward": reward, "values": ("state",), "policy": pair,
            "demonstrations": ("trajectory", "time", "part") if isinstance(data, Trajectories) else pair,
        }  # fmt: skip
        coords: dict[str, Any] = {"part": ["state", "action"]}
        if self._num_rewards(data) is not None:
            dims |= {name: ("expert", *dims[name]) for name in OF_A_REWARD}
            names = data.metadata.subject_names
            if names is not None and len(names) == num_experts(data):
                coords["expert"] = list(names)
        for dim in pair:
            names = getattr(self.mdp, f"{dim}_names", None)
            if names is not None:
                coords[dim] = list(names)
        return dims, coords


def prior_sites(model: Any, key: Array) -> dict[str, Array]:
    """A prior draw of the sites of a numpyro model of rewards."""
    sites = numpyro.handlers.trace(numpyro.handlers.seed(model, key)).get_trace()
    return {name: site["value"] for name, site in sites.items() if site["type"] != "plate"}


def reward_sites(model: GPIRL, reward: Array, solution: SoftSolution) -> dict[str, Array]:
    """Deterministic sites of rewards (..., point) and their agent."""
    shaped = reward.reshape(*reward.shape[:-1], *model.features.shape[:-1])
    middle = jnp.mean(reward, -1).reshape(*reward.shape[:-1], *[1] * (model.features.ndim - 1))
    of_agent = {"values": solution.values, "policy": solution.policy}
    return {"reward": shaped, "centred_reward": shaped - middle, **of_agent}
