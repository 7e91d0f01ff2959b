r"""Rewards behind demonstrations: a Gaussian process on the reward, and an agent that is soft about its return.

.. math:: \lambda_0 \sim p(\lambda_0), \quad \lambda_l \sim p(\lambda_l), \qquad
          r \sim GP(0, k_\lambda(x, x')), \qquad a_t \sim \pi_r(\cdot \mid s_t)

The policy is that of :func:`~ethogram.models.soft_values.soft_values`. Only differences of rewards can be learned:
a constant added to all changes no choice, and the prior alone says where the level is.

Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes"; Dilkas (2019),
"Variational inference for inverse reinforcement learning with Gaussian processes". Built otherwise than there: the
lengthscales have priors, since with few demonstrations their likelihood has no maximum; the noise of the kernel is
kept in the law of the reward given the inducing points (Levine leaves it out).
"""

from __future__ import annotations

import contextlib
import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Float
from numpyro.distributions import constraints

from ethogram.models import reward_kernel
from ethogram.models.blocks.conjugate_block import is_concrete, read_reals
from ethogram.models.mdp import MDP
from ethogram.models.model_object import model_object, static_field
from ethogram.models.policy_values import read_interest
from ethogram.models.relevance_priors import SquaredHalfCauchy
from ethogram.models.reward_arguments import read_inducing, read_prior
from ethogram.models.reward_kernel import RewardLaw
from ethogram.models.soft_policy import (
    ActionCounts,
    SoftPolicy,
    demonstration_counts,
    num_experts,
    read_demonstrations,
)
from ethogram.models.soft_values import SoftSolution, soft_values
from ethogram.models.trajectories import Trajectories

__all__ = ["GPIRL", "SimulatedRewards"]

FAMILIES = ("direct", "inducing")
DIRECT_AT_MOST = 500
"""Points up to which q may be over all rewards unasked."""

FEW_FEATURES = 3
TABLES, LARGEST = 6, 2**32
"""Tables of all pairs of points that a fit holds at once, and bytes that these may take."""


class SimulatedRewards(NamedTuple):
    """Demonstrations and what was behind them.

    Attributes
    ----------
    data : states and actions; one sequence a demonstration.
    parameters : by site, ``scale``, ``relevance``, ``reward``, ``policy`` and so on.
    """

    data: Trajectories
    parameters: dict[str, Any]


@model_object
class GPIRL:
    """Gaussian-process inverse reinforcement learning; a numpyro model.

    Sites: ``scale``, ``relevance (feature,)``, ``u_white (inducing,)`` and ``reward_white (point,)``, standard normal;
    deterministic ``reward``, ``centred_reward``, its deviations from its mean, ``values (state,)`` and ``policy (state,
    action)``; ``demonstrations`` in the plate ``trajectory``, or in the plate ``state`` where the data are counts.
    Where trajectories have subjects, each is an expert with a reward of its own under common hyper-parameters, in the
    plate ``expert``; to pool experts, leave ``subject`` out.

    Parameters
    ----------
    mdp : world, S states, A actions, a discount below 1.
    features : (state, feature), or (state, action, feature) for a reward of states and actions; those of the world
        where None. A point is a state, or a pair: state * A + action.
    family : ``"direct"``, the rewards of all points are what is learned; or ``"inducing"``, those of some points are,
        and all others follow. Direct up to 500 points where None.
    inducing : (inducing,) integers, which points; `inducing_points` chooses some.
    noise : variance of every feature, > 0: states that are equal in them differ a little in their rewards.
    scale_prior : of the prior variance of a reward: a numpyro distribution, or a number that is taken as known.
    relevance_prior : of how fast rewards change along a feature, likewise, or numbers (feature,). Log-normal where
        None; for more than three features the square of a half-Cauchy variable, most of which are near zero.
    rationality : what rewards are multiplied by before they act: a number, or a distribution where the scale is known.
    whiten : whether rewards are sampled through standard normal variables; otherwise ``u`` and ``reward`` are sampled
        themselves.
    check_transitions : whether a demonstrated step of probability zero is refused.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong kind, shape or sign, NaN, an inducing point is no point or named twice, the discount
        is 1, a prior is not of all numbers above 0, or covariances of all points would take more than four gibibytes.

    Warns
    -----
    UserWarning
        A feature is the same everywhere: its relevance is then not identified, and matters in other worlds only.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = GPIRL(corridor, [[0.0], [1.0], [2.0]])
    >>> world = model.simulate(jax.random.key(0), num_trajectories=5, length=4)
    >>> world.data.actions.shape, world.parameters["reward"].shape
    ((5, 4), (3,))
    """

    mdp: Any
    features: Any = None
    family: str | None = static_field(default=None)
    inducing: Any = None
    noise: Any = 0.005
    scale_prior: Any = dist.LogNormal(math.log(5.0), 1.0)
    relevance_prior: Any = None
    rationality: Any = 1.0
    whiten: bool = static_field(default=True)
    check_transitions: bool = static_field(default=True)

    def __post_init__(self):
        if not isinstance(self.mdp, MDP):
            raise TypeError(f"mdp is {type(self.mdp).__name__}: give an MDP")
        read_interest(self.mdp)
        if self.features is None and self.mdp.features is None:
            raise ValueError("features is None, and mdp has none: say what rewards depend on")
        (features,) = read_reals(features=self.mdp.features if self.features is None else self.features)
        lead = (self.mdp.num_states, self.mdp.num_actions)
        if (
            features.ndim not in (2, 3)
            or features.shape[:-1] != lead[: features.ndim - 1]
            or not features.shape[-1]
        ):
            raise ValueError(
                f"features has shape {features.shape}, not (state, feature), which is ({lead[0]}, ...), or (state, "
                f"action, feature), which is ({lead[0]}, {lead[1]}, ...)"
            )
        object.__setattr__(self, "features", features)
        family = self.family or ("direct" if self.num_points <= DIRECT_AT_MOST else "inducing")
        if family not in FAMILIES:
            raise ValueError(f"family must be one of {FAMILIES}, not {self.family!r}")
        object.__setattr__(self, "family", family)
        size = TABLES * self.num_points**2 * 8
        if size > LARGEST:
            raise ValueError(
                f"features has {self.num_points} points: covariances of their rewards, their roots and the curvature "
                f"of the likelihood take {size} bytes, more than {LARGEST}. Join states, or give rewards by a linear "
                "model (fit_linear_reward), which needs none and takes sparse worlds of any size"
            )
        object.__setattr__(self, "inducing", read_inducing(self.inducing, family, self.num_points))
        if self.relevance_prior is None:
            few = self.num_features <= FEW_FEATURES
            object.__setattr__(
                self, "relevance_prior", dist.LogNormal(0.0, 1.0) if few else SquaredHalfCauchy()
            )
        for name in ("noise", "scale_prior", "relevance_prior", "rationality"):
            shapes = ((), (self.num_features,)) if name == "relevance_prior" else ((),)
            object.__setattr__(self, name, read_prior(name, getattr(self, name), shapes))
        if all(isinstance(x, dist.Distribution) for x in (self.rationality, self.scale_prior)):
            raise ValueError(
                "rationality and scale_prior are both distributions: rewards twice as large and half as much "
                "rationality are one; give a number for one of them"
            )
        if is_concrete(features):
            flat = np.asarray(features).reshape(-1, features.shape[-1])
            same = np.flatnonzero(np.ptp(flat, axis=0) == 0)
            if len(same) and self.num_points > 1:
                warnings.warn(
                    f"{len(same)} features are the same everywhere, the first of them features[..., {same[0]}]: "
                    "nothing can be learned of their relevance here, which is then said by its prior alone",
                    stacklevel=3,
                )

    @property
    def num_points(self) -> int:
        """Number of states, or of pairs of state and action, that have a reward."""
        return math.prod(self.features.shape[:-1])

    @property
    def num_features(self) -> int:
        return self.features.shape[-1]

    @property
    def points(self) -> Float[Array, "point feature"]:
        """Features of every point."""
        return self.features.reshape(self.num_points, self.num_features)

    @property
    def num_white(self) -> int:
        """Number of standard normal variables that the data say something of."""
        return self.num_points if self.family == "direct" else len(self.inducing)

    def law(self, scale: Any, relevance: Any) -> RewardLaw:
        """Rewards of all points given the hyper-parameters."""
        dtype, points = self.features.dtype, self.points
        scale, relevance, noise = (jnp.asarray(x, dtype) for x in (scale, relevance, self.noise))
        if self.family == "direct":
            return RewardLaw(
                reward_kernel.root(reward_kernel.covariance(points, scale, relevance, noise), scale), None
            )
        low, given = reward_kernel.conditional(points, points[self.inducing], scale, relevance, noise)
        return RewardLaw(given.mean @ low, reward_kernel.root(given.covariance, scale))

    def agent(self, reward: Any, rationality: Any = None) -> SoftSolution:
        """Values and policy under rewards (..., point), times a rationality that broadcasts with them."""
        times = self.rationality if rationality is None else rationality
        pairs = self.features.shape[1:-1] or (1,)  # as many rewards as actions are no rewards of pairs
        return soft_values(
            self.mdp, (times * reward).reshape(*reward.shape[:-1], self.mdp.num_states, *pairs)
        )

    def __call__(self, demonstrations: Any = None, *, condition: bool = True) -> None:
        """Sample hyper-parameters and rewards, and demonstrations given them.

        Parameters
        ----------
        demonstrations : `Trajectories` with states and actions, or counts (state, action); None for the prior alone.
        condition : False draws demonstrations from the same starts, and as long; of counts, as many a state.

        Raises
        ------
        TypeError, ValueError
            As :func:`~ethogram.models.soft_policy.demonstration_counts`. What is traced is not checked.
        """
        self.check(demonstrations)
        scale = self._hyper("scale", self.scale_prior, ())
        relevance = self._hyper("relevance", self.relevance_prior, (self.num_features,))
        rationality = self._hyper("rationality", self.rationality, ())
        experts = num_experts(demonstrations)
        with numpyro.plate("expert", experts) if experts is not None else contextlib.nullcontext():
            reward = self._sample_reward(scale, relevance)
        solution = self.agent(reward, rationality)
        shaped = reward.reshape(*reward.shape[:-1], *self.features.shape[:-1])
        if self.whiten:
            numpyro.deterministic("reward", shaped)
        middle = jnp.mean(reward, axis=-1).reshape(*reward.shape[:-1], *[1] * (self.features.ndim - 1))
        numpyro.deterministic("centred_reward", shaped - middle)
        numpyro.deterministic("values", solution.values)
        numpyro.deterministic("policy", solution.policy)
        if demonstrations is not None:
            self._observe(solution, demonstrations, condition)

    def _hyper(self, name: str, prior: Any, shape: tuple[int, ...]) -> Array:
        if isinstance(prior, dist.Distribution):
            with numpyro.plate("feature", shape[0]) if shape else contextlib.nullcontext():
                return numpyro.sample(name, prior)
        value = jnp.broadcast_to(jnp.asarray(prior), shape)
        return value if name == "rationality" else numpyro.deterministic(name, value)

    def _sample_reward(self, scale: Array, relevance: Array) -> Array:
        def white(name: str, count: int) -> Array:
            return numpyro.sample(name, dist.Normal(0, jnp.ones(count, self.features.dtype)).to_event(1))

        if self.whiten:
            law = self.law(scale, relevance)
            if law.noise is None:
                return law.reward(white("reward_white", self.num_points))
            return law.reward(white("u_white", self.num_white), white("reward_white", self.num_points))
        noise = jnp.asarray(self.noise, self.features.dtype)
        points = self.points
        if self.family == "direct":
            low = reward_kernel.root(reward_kernel.covariance(points, scale, relevance, noise), scale)
            return numpyro.sample("reward", dist.MultivariateNormal(0.0, scale_tril=low))
        low, given = reward_kernel.conditional(points, points[self.inducing], scale, relevance, noise)
        u = numpyro.sample("u", dist.MultivariateNormal(0.0, scale_tril=low))
        spread = reward_kernel.root(given.covariance, scale)
        return numpyro.sample("reward", dist.MultivariateNormal(u @ given.mean.T, scale_tril=spread))

    def _observe(self, solution: SoftSolution, data: Any, condition: bool) -> None:
        if not isinstance(data, Trajectories):
            # Known numbers stay known under a map over draws: how many there are at most is a shape for new data.
            total = np.asarray(data).sum(-1) if is_concrete(data) else jnp.sum(data, -1)
            with numpyro.plate("state", self.mdp.num_states):
                of_states = ActionCounts(solution.log_policy, total)
                numpyro.sample("demonstrations", of_states, obs=jnp.asarray(data) if condition else None)
            return
        states, actions, lengths = map(jnp.asarray, (data.states, data.actions, data.lengths))
        inside = (jnp.arange(states.shape[1]) < lengths[:, None]) & jnp.asarray(data.observed)
        value = jnp.where(inside[..., None], jnp.stack([states, actions], -1), -1)
        agent = None if data.subject is None else jnp.asarray(data.subject)
        told: dict[str, Any] = {
            "length": states.shape[1],
            "lengths": lengths,
            "start": states[:, 0],
            "agent": agent,
        }
        acts = SoftPolicy(self.mdp, None, **told, solution=solution)
        with numpyro.plate("trajectory", states.shape[0]):
            numpyro.sample("demonstrations", acts, obs=value if condition else None)

    def given_reward(self, demonstrations: Any, *, condition: bool = True) -> None:
        """A numpyro model of the demonstrations with sites ``reward`` and ``rationality`` alone, for draws of these."""
        rationality = self._hyper("rationality", self.rationality, ())
        experts = num_experts(demonstrations)
        shape = (*(() if experts is None else (experts,)), *self.features.shape[:-1])
        reward = numpyro.sample("reward", dist.ImproperUniform(constraints.real, (), shape))
        flat = reward.reshape(*shape[: len(shape) - self.features.ndim + 1], self.num_points)
        self._observe(self.agent(flat, rationality), demonstrations, condition)

    def check(self, demonstrations: Any) -> None:
        """Raise TypeError or ValueError unless the demonstrations can be learned from; see :meth:`__call__`."""
        if demonstrations is None or not is_concrete(*jax.tree.leaves((demonstrations, self.mdp))):
            return
        if isinstance(demonstrations, Trajectories):
            read_demonstrations(self.mdp, demonstrations, self.check_transitions)
        else:
            demonstration_counts(self.mdp, demonstrations)

    def counts(self, demonstrations: Any) -> Float[np.ndarray, "*expert state action"]:
        """How often each action was taken in each state, checked; with a leading axis where there are experts."""
        return demonstration_counts(
            self.mdp,
            demonstrations,
            check_transitions=self.check_transitions,
            num_agents=num_experts(demonstrations),
        )

    def simulate(
        self, key: Array, *, num_trajectories: int, length: int, parameters: dict[str, Any] | None = None
    ) -> SimulatedRewards:
        """Demonstrations of one agent whose reward is drawn from the prior, or given.

        Parameters
        ----------
        num_trajectories, length : how many, and steps of each.
        parameters : ``reward`` (state,) or (state, action), to take in place of drawing.
        """
        key_prior, key_data = jax.random.split(key)
        if parameters is None:
            seeded = numpyro.handlers.seed(self, key_prior)
            sites = numpyro.handlers.trace(seeded).get_trace()
            parameters = {name: site["value"] for name, site in sites.items() if site["type"] != "plate"}
        if "reward" not in parameters:
            raise ValueError(
                f"parameters have no reward: they have {', '.join(sorted(parameters)) or 'nothing'}"
            )
        rationality = parameters.get("rationality", self.rationality)
        acts = SoftPolicy(self.mdp, rationality * jnp.asarray(parameters["reward"]), length=length)
        drawn = np.asarray(acts.sample(key_data, (num_trajectories,)))
        data = Trajectories.from_list(states=list(drawn[..., 0]), actions=list(drawn[..., 1]))
        return SimulatedRewards(data, parameters)

    def site_layout(self, data: Any = None) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        """Names of the axes of every site, and of what stands on them."""
        pair = ("state", "action")
        reward = pair[: self.features.ndim - 1]
        dims: dict[str, tuple[str, ...]] = {
            "relevance": ("feature",), "u_white": ("inducing",), "u": ("inducing",), "reward_white": ("point",),
            "reward": reward, "centred_reward": reward, "values": ("state",), "policy": pair,
            "demonstrations": ("trajectory", "time", "part") if isinstance(data, Trajectories) else pair,
        }  # fmt: skip
        if num_experts(data) is not None:
            own = ("u_white", "u", "reward_white", "reward", "centred_reward", "values", "policy")
            dims |= {name: ("expert", *dims[name]) for name in own}
        coords: dict[str, Any] = {"part": ["state", "action"]}
        for dim in pair:
            names = getattr(self.mdp, f"{dim}_names", None)
            if names is not None:
                coords[dim] = list(names)
        return dims, coords
