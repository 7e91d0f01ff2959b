"""What is learned of a reward: its posterior with its model, and how the search for it went."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.inference import storage
from ethogram.inference.reward_gaussian import free_hypers, hyper_values, law_of
from ethogram.inference.reward_map import levine_conditional
from ethogram.models import reward_kernel
from ethogram.models.emissions.emission import whole_number
from ethogram.models.gp_irl import GPIRL
from ethogram.models.model_object import model_object, static_field

__all__ = ["RewardFit", "RewardPosterior", "as_double"]


@model_object
class RewardPosterior:
    """Posterior of a reward, with its model: a Gaussian over what makes the reward, or a point.

    Parameters
    ----------
    model : the model object that was fitted.
    mean : (w,) or (expert, w), of the standard normal variables behind the reward.
    root : (w, w) or (expert, w, w), lower triangular root of their covariance; zero for a point, whose rewards of
        states that are no inducing points keep the noise of the prior.
    log_hyper, log_hyper_sd : (hyper,) of the logarithms of those hyper-parameters that have priors.
    method : how it was found.
    levine : where ``mean`` are rewards of inducing points instead, these points, and the hyper-parameters are
        Levine's, scale and relevance.
    """

    model: GPIRL
    mean: Any
    root: Any
    log_hyper: Any
    log_hyper_sd: Any
    method: str = static_field(default="natural_gradient")
    levine: Any = None

    def sample(self, key: Array, num_draws: int) -> dict[str, Array]:
        """Independent draws of the sites of the model, with a leading axis of `num_draws`."""
        whole_number("num_draws", num_draws, 1)
        if self.levine is not None:
            point = self.mean_sites()
            return {name: jnp.broadcast_to(x, (num_draws, *jnp.shape(x))) for name, x in point.items()}
        with jax.enable_x64(True):
            key_hyper, key_white, key_rest = jax.random.split(key, 3)
            log_hyper = self.log_hyper + self.log_hyper_sd * jax.random.normal(
                key_hyper, (num_draws, len(self.log_hyper))
            )
            noise = jax.random.normal(key_white, (num_draws, *self.mean.shape))
            white = self.mean + jnp.einsum("...ij,d...j->d...i", jnp.asarray(self.root), noise)
            rest = jax.random.normal(key_rest, (num_draws, *self.mean.shape[:-1], self.model.num_points))
            inducing = self.model.family == "inducing"
            return self._rounded(_sites(as_double(self.model), log_hyper, white, rest if inducing else None))

    def mean_sites(self) -> dict[str, Array]:
        """Sites at the mean of q: the hyper-parameters' logarithms, and w, at theirs."""
        with jax.enable_x64(True):
            model, log_hyper, mean = (
                as_double(self.model),
                jnp.asarray(self.log_hyper),
                jnp.asarray(self.mean),
            )
            if self.levine is None:
                one = _sites(model, log_hyper[None], mean[None], None)
                return self._rounded({name: x[0] for name, x in one.items()})
            hypers = {"scale": jnp.exp(log_hyper[0]), "relevance": jnp.exp(log_hyper[1:])}
            reward = levine_conditional(model, self.levine, *hypers.values())[1] @ mean
            return self._rounded(_of_reward(model, reward) | hypers | {"u": mean})

    def _rounded(self, sites: dict[str, Array]) -> dict[str, Array]:
        """In the precision of the model: what is learned in double precision means nothing in another's roots."""
        return {name: x.astype(self.model.features.dtype) for name, x in sites.items()}

    def save(self, path: str | os.PathLike) -> None:
        """Write the posterior and its model to one file, whole or not at all; ``ethogram.load`` reads it."""
        storage.write(path, {"posterior": self})


class RewardFit(NamedTuple):
    """What `fit_reward` found.

    Attributes
    ----------
    posterior : its Gaussian, or point; `sample` draws from it.
    elbo, elbo_se : bound on the log evidence in nats, on fresh draws, and its standard error; NaN for a point. With
        hyper-parameters at a point, their log prior density stands in it for what would be their divergence.
    laplace_elbo : that of Laplace's approximation on the same draws.
    trace : (evaluation,) bounds on a fixed set of draws as the search went on; Laplace's first.
    objective : log likelihood less half the square of w at the mode, in nats, which is what ``method="map"``
        maximises; Levine's objective where `prior` says so.
    converged : whether the search ended because nothing more was gained.
    steps : natural gradient steps.
    white_share : share of the prior variance of rewards that is noise, of which other states say nothing.
    """

    posterior: RewardPosterior
    elbo: float
    elbo_se: float
    laplace_elbo: float
    trace: Float[np.ndarray, "evaluation"]
    objective: float
    converged: bool
    steps: int
    white_share: float


def as_double(tree: Any) -> Any:
    """A pytree whose real numbers have double precision; under ``jax.enable_x64``."""

    def one(x):
        real = jnp.issubdtype(jnp.result_type(x), jnp.floating)
        return jnp.asarray(np.asarray(x, np.float64)) if real else x

    return jax.tree.map(one, tree)


def _sites(model: GPIRL, log_hyper: Array, white: Array, rest: Array | None) -> dict[str, Array]:
    """Sites of the model at draws of what is behind them."""
    values = hyper_values(model, log_hyper)

    def one(arguments):
        log_hyper, white, rest = arguments
        return law_of(model, log_hyper)[0].reward(white, rest)

    def at_points(arguments):
        log_hyper, white = arguments
        now, noise = hyper_values(model, log_hyper), jnp.asarray(model.noise)
        points = model.points[model.inducing]
        own = reward_kernel.covariance(points, now["scale"], now["relevance"], noise)
        return white @ reward_kernel.root(own, now["scale"]).T

    reward = jax.lax.map(one, (log_hyper, white, rest))
    name = "reward_white" if model.family == "direct" else "u_white"
    hypers = {
        name: value
        for name, value in values.items()
        if name != "rationality" or "rationality" in free_hypers(model)
    }
    times = values["rationality"].reshape(-1, *[1] * (reward.ndim - 1))
    behind = {name: white} if rest is None else {name: white, "reward_white": rest}
    if model.family == "inducing":
        behind["u"] = jax.lax.map(at_points, (log_hyper, white))
    return hypers | behind | _of_reward(model, reward, times)


def _of_reward(model: GPIRL, reward: Array, times: Any = None) -> dict[str, Array]:
    solution = model.agent(reward, times)
    shaped = reward.reshape(*reward.shape[:-1], *model.features.shape[:-1])
    middle = jnp.mean(reward, -1).reshape(*reward.shape[:-1], *[1] * (model.features.ndim - 1))
    return {
        "reward": shaped,
        "centred_reward": shaped - middle,
        "values": solution.values,
        "policy": solution.policy,
    }
