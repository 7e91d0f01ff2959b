"""Posterior of rewards with its model, and the result of a fit.

The Gaussian is that of Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian
processes", section 2.1.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.inference import storage
from ethogram.inference.draws import Draws, draw_in_chunks, one_chain, variational_attributes
from ethogram.inference.rewards.gaussian_vi import whitening_root
from ethogram.inference.rewards.hyper_parameters import free_sizes, unpack
from ethogram.inference.rewards.laplace import reward_map
from ethogram.inference.rewards.search_status import Status
from ethogram.models.arguments import is_concrete, require, require_integer, require_key, require_one_of
from ethogram.models.families.conjugate_block import require_finite
from ethogram.models.model_object import model_object, static_field
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit
from ethogram.models.rewards.gp_irl import GPIRL, reward_sites
from ethogram.models.rewards.switching import SwitchingGPIRL

__all__ = ["METHODS", "RewardFit", "RewardPosterior", "as_double"]

METHODS = ("natural_gradient", "laplace", "map")
"""Methods of `fit_reward`."""


@model_object
class RewardPosterior:
    """Posterior of rewards, with its model: a Gaussian over their standard normal variables at each node.

    Nodes are values of the hyper-parameters; where these are held or optimised, there is one.

    Parameters
    ----------
    model : the model object that was fitted.
    latent_mean : (node, reward, w), of the standard normal variables of each reward: of experts, intents, or one.
    latent_root : (node, reward, w, w), Cholesky factors of their covariances; zero for a point, whose rewards of states
        that are not inducing points keep the noise of the prior.
    log_hyper : (node, hyper), logarithms of the hyper-parameters that have priors.
    log_weights : (node,), logarithms of the weights of the nodes.
    method : that of the fit.
    chain : of a `SwitchingGPIRL`, Dirichlet blocks ``initial (intent,)`` and ``transition (intent, next_intent)``.
    """

    model: GPIRL | SwitchingGPIRL
    latent_mean: Any
    latent_root: Any
    log_hyper: Any
    log_weights: Any
    method: str = static_field(default="natural_gradient")
    chain: Any = None

    def __post_init__(self):
        require_one_of("method", self.method, METHODS)
        if not isinstance(self.model, GPIRL | SwitchingGPIRL):
            raise TypeError(f"model is {type(self.model).__name__}: give a GPIRL or a SwitchingGPIRL")
        parts = {
            name: getattr(self, name) for name in ("latent_mean", "latent_root", "log_hyper", "log_weights")
        }
        if not is_concrete(*parts.values()):
            return
        for name, value in parts.items():
            require(np.isfinite(np.asarray(value)), name, value, "is not finite", "fit the reward again")
        total = np.exp(np.asarray(self.log_weights, float)).sum()
        if np.ndim(self.log_weights) != 1 or not np.isclose(total, 1, atol=1e-6):
            raise ValueError(
                f"log_weights has shape {np.shape(self.log_weights)} and weights of total {total:g}: give (node,) "
                "logarithms of weights of total 1"
            )
        count, num_white = len(self.log_weights), self._num_white()
        rewards = np.shape(self.latent_mean)[1:2]
        if isinstance(self.model, SwitchingGPIRL):
            intents = self.model.num_intents
            rewards, blocks = (intents,), {"initial": (intents,), "transition": (intents, intents)}
            found = {
                name: np.shape(block.natural.concentration) for name, block in (self.chain or {}).items()
            }
            if found != blocks:
                raise ValueError(f"chain has blocks {found}, expected {blocks} of {intents} intents")
            for name, block in self.chain.items():
                require_finite(f"chain[{name!r}]", block)
        elif self.chain is not None:
            raise ValueError("chain is given, but the model is a GPIRL, which has none: leave it out")
        expected = {
            "latent_mean": (count, *rewards, num_white),
            "latent_root": (count, *rewards, num_white, num_white),
            "log_hyper": (count, sum(free_sizes(self.reward_model).values())),
        }
        for name, shape in expected.items():
            if np.shape(parts[name]) != shape:
                raise ValueError(f"{name} has shape {np.shape(parts[name])}, expected {shape} of this model")

    @property
    def reward_model(self) -> GPIRL:
        """The model of each reward."""
        return self.model.base if isinstance(self.model, SwitchingGPIRL) else self.model

    def _num_white(self) -> int:
        """Number of standard normal variables of a reward of the model."""
        model = self.reward_model
        return model.num_points if model.inducing is None else len(np.asarray(model.inducing))

    def of_model(self, model: Any) -> RewardPosterior:
        """The same posterior with the model in another precision."""
        return dataclasses.replace(self, model=model)

    def sample(self, key: Array, num_draws: int) -> dict[str, Array]:
        """Independent draws of the sites of the model, with a leading axis ``draw``."""
        require_key(key)
        require_integer("num_draws", num_draws, 1)
        with jax.enable_x64(True):
            double = as_double(self)
            model = double.reward_model
            columns = self._num_white() if model.conditional == "independent" else model.num_points
            size = model.num_points * columns
            return self._rounded(
                draw_in_chunks(lambda key, count: _draw(double, key, count), key, num_draws, size)
            )

    def mean(self, *, cell_noise: bool = False) -> dict[str, Array]:
        """Sites of the model at posterior means.

        ``reward`` is the mean over the nodes, ``values`` and ``policy`` are those for it, and hyper-parameters are the
        means of their logarithms.

        Parameters
        ----------
        cell_noise : whether the reward of each state, or pair, has its own noise, as in the draws of `sample`. By
            default it is the mean as a function of features, which is nearer to the truth where states are not visited.
        """
        with jax.enable_x64(True):
            return self._rounded(_mean_sites(as_double(self), cell_noise))

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws from q in one chain."""
        attributes = variational_attributes() | {"method": self.method}
        return Draws(self.model, one_chain(self.sample(key, num_draws)), {}, {}, attributes)

    def _rounded(self, sites: dict[str, Array]) -> dict[str, Array]:
        """In the precision of the model: w in double precision does not fit Cholesky factors in single precision."""
        return {name: x.astype(self.reward_model.dtype) for name, x in sites.items()}

    def save(self, path: str | os.PathLike) -> None:
        """Write the posterior and its model to one file, atomically; ``ethogram.load_posterior`` reads it."""
        storage.write(path, {"posterior": self})


class _Fields(NamedTuple):
    posterior: RewardPosterior
    elbo: float
    elbo_se: float
    laplace_elbo: float
    trace: Float[np.ndarray, "evaluation"]
    objective: float
    status: str
    steps: int
    white_share: float
    search_se: float = float("nan")
    restart_elbos: Float[np.ndarray, "restart"] = np.zeros(0)


@short_repr
class RewardFit(_Fields):
    """Result of `fit_reward`, or of `fit_switching`.

    Attributes
    ----------
    posterior : its Gaussians, or point; `sample` draws from it.
    elbo, elbo_se : evidence lower bound in nats, on fresh draws, and its standard error; NaN for a point. It has the
        log prior density of hyper-parameters that are not integrated over.
    laplace_elbo : the same with Laplace's approximation at the mode of the hyper-parameters; NaN of switching rewards.
    trace : (evaluation,) ELBOs on a fixed set of draws, the first that of Laplace's approximation.
    objective : log likelihood minus half the squared norm of w at its mode, at the mode of the hyper-parameters, in
        nats, which ``method="map"`` maximises; NaN of switching rewards.
    status : a `Status`: whether the expected remaining gain of the ELBO is within the tolerance, see `fit_reward`; of
        ``"map"`` and ``"laplace"``, whether the search for the mode ended at a maximum. ``converged`` and ``reason``, a
        sentence, follow from it.
    steps : natural-gradient steps.
    white_share : share of the prior variance of rewards that is white noise, independent between states.
    search_se : standard error of the last ELBO of the search, in nats.
    restart_elbos : (restart,) ELBOs of the starts of switching rewards after some steps, on the same draws.
    """

    __slots__ = ()
    status: Status

    def __new__(cls, *args: Any, **fields: Any) -> RewardFit:
        given = super().__new__(cls, *args, **fields)
        return given._replace(status=Status(given.status))  # files hold its value

    @property
    def converged(self) -> bool:
        """Whether the search has converged."""
        return self.status == Status.CONVERGED

    @property
    def reason(self) -> str:
        """Why the search has not converged; empty where it has."""
        return self.status.sentence

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws from q in one chain, with the ELBO trace."""
        attributes: dict[str, Any] = {
            "converged": int(self.converged),
            "num_steps": int(self.steps),
            "status": str(self.status),
            "reason": self.reason,
        }
        numbers = {
            "objective": self.objective, "white_share": self.white_share, "final_elbo": self.elbo,
            "final_elbo_se": self.elbo_se, "laplace_elbo": self.laplace_elbo,
        }  # fmt: skip
        attributes |= {name: float(value) for name, value in numbers.items() if np.isfinite(value)}
        series: dict[str, Any] = {"elbo": (("step",), np.asarray(self.trace))}
        if len(self.restart_elbos):
            series["restart_elbos"] = (("restart",), np.asarray(self.restart_elbos))
        drawn = self.posterior.draws_for_export(key, num_draws)
        return drawn._replace(fit=series, attributes=drawn.attributes | attributes)


def as_double(tree: Any) -> Any:
    """A pytree whose real numbers have double precision; under ``jax.enable_x64``."""

    def one(x):
        real = jnp.issubdtype(jnp.result_type(x), jnp.floating)
        return jax.device_put(np.asarray(x, np.float64)) if real else x

    return jax.tree.map(one, tree)


@quick_jit(static_argnums=2)
def _draw(posterior: RewardPosterior, key: Array, num_draws: int) -> dict[str, Array]:
    """Draws of the sites, in double precision."""
    model, num_rewards = posterior.reward_model, posterior.latent_mean.shape[1]
    key_node, key_white, key_rest, *key_chain = jax.random.split(key, 5)
    node = jax.random.categorical(key_node, posterior.log_weights, shape=(num_draws,))
    noise = jax.random.normal(key_white, (num_draws, *posterior.latent_mean.shape[1:]))

    def of_node(arguments):
        node, noise = arguments
        return posterior.latent_mean[node] + jnp.einsum(
            "...ij,...j->...i", posterior.latent_root[node], noise
        )

    white = lax.map(of_node, (node, noise))
    rest = None
    if model.inducing is not None:
        rest = jax.random.normal(key_rest, (num_draws, num_rewards, model.num_points))
    sites, reward = _variables(posterior, node, white, rest)
    blocks = zip(key_chain, sorted((posterior.chain or {}).items()), strict=False)
    sites |= {name: block.sample(key, (num_draws,)) for key, (name, block) in blocks}
    rationality = unpack(model, posterior.log_hyper)["rationality"][node].reshape(
        -1, *[1] * (reward.ndim - 1)
    )
    return sites | reward_sites(model, reward, model.agent(reward, rationality))


@quick_jit(static_argnames="cell_noise")
def _mean_sites(posterior: RewardPosterior, cell_noise: bool) -> dict[str, Array]:
    """Means over the nodes; of hyper-parameters, of their logarithms."""
    model, weights = posterior.reward_model, jnp.exp(posterior.log_weights)
    each, reward = _variables(posterior, jnp.arange(len(weights)), posterior.latent_mean, None, cell_noise)
    sites = {name: jnp.tensordot(weights, x, 1) for name, x in each.items()}
    sites |= {name: block.mean() for name, block in (posterior.chain or {}).items()}
    middle = unpack(model, weights @ posterior.log_hyper)
    sites |= {name: value for name, value in middle.items() if name in sites}
    reward = jnp.tensordot(weights, reward, 1)
    return sites | reward_sites(model, reward, model.agent(reward, middle["rationality"]))


def _variables(
    posterior: RewardPosterior, node: Array, white: Array, rest: Array | None, cell_noise: bool = True
) -> tuple[dict[str, Array], Array]:
    """Sites that are sampled, and rewards (draw, reward, point), at nodes (draw,) and standard normal variables.

    The axis of rewards is left out where there is one, and no chain.
    """
    model, log_hyper = posterior.reward_model, posterior.log_hyper
    values = unpack(model, log_hyper)

    def rewards_of(arguments):
        node, white, rest = arguments
        if not cell_noise:
            hypers = (values[name][node] for name in ("scale", "relevance"))
            return white @ model.feature_weights(*hypers).T
        return reward_map(model, log_hyper[node])[0].reward(white, rest)

    def at_points(arguments):
        node, white = arguments
        return white @ whitening_root(model, values["scale"][node], values["relevance"][node]).T

    def mapped(function, arguments):
        if len(log_hyper) == 1:  # all draws share a map
            return function((0, *arguments[1:]))
        return lax.map(function, arguments)

    reward = mapped(rewards_of, (node, white, rest))
    sites = {"reward_white": white}
    if model.inducing is not None:
        sites = {"u_white": white, "u": mapped(at_points, (node, white))}
        sites |= {} if rest is None else {"reward_white": rest}
    if white.shape[1] == 1 and posterior.chain is None:
        reward, sites = reward[:, 0], {name: x[:, 0] for name, x in sites.items()}
    kept = {"scale", "relevance", *free_sizes(model)}
    return {name: value[node] for name, value in values.items() if name in kept} | sites, reward
