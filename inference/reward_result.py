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
from ethogram.models.emissions.emission import whole_number
from ethogram.models.gp_irl import GPIRL
from ethogram.models.model_object import model_object, static_field

__all__ = ["RewardFit", "RewardPosterior"]


@model_object
class RewardPosterior:
    """Posterior of a reward, with its model: a Gaussian over what makes the reward, or a point.

    Parameters
    ----------
    model : the model object that was fitted.
    mean : (w,) or (expert, w), of the standard normal variables behind the reward.
    root : (w, w) or (expert, w, w), lower triangular root of their covariance; zero for a point.
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
        key_hyper, key_white, key_rest = jax.random.split(key, 3)
        log_hyper = self.log_hyper + self.log_hyper_sd * jax.random.normal(
            key_hyper, (num_draws, len(self.log_hyper))
        )
        noise = jax.random.normal(key_white, (num_draws, *self.mean.shape))
        white = self.mean + jnp.einsum("...ij,d...j->d...i", jnp.asarray(self.root), noise)
        rest = jax.random.normal(key_rest, (num_draws, *self.mean.shape[:-1], self.model.num_points))
        return _sites(self.model, log_hyper, white, rest if self.model.family == "inducing" else None)

    def mean_sites(self) -> dict[str, Array]:
        """Sites at the mean of q: the hyper-parameters' logarithms, and w, at theirs."""
        if self.levine is None:
            one = _sites(self.model, jnp.asarray(self.log_hyper)[None], jnp.asarray(self.mean)[None], None)
            return {name: x[0] for name, x in one.items()}
        scale, relevance = jnp.exp(self.log_hyper[0]), jnp.exp(self.log_hyper[1:])
        mean = levine_conditional(self.model, self.levine, scale, relevance)[1]
        return _of_reward(self.model, mean @ self.mean) | {
            "scale": scale,
            "relevance": relevance,
            "u": jnp.asarray(self.mean),
        }

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
    objective : log posterior density at the mode, what ``method="map"`` maximises; Levine's where `prior` says so.
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


def _sites(model: GPIRL, log_hyper: Array, white: Array, rest: Array | None) -> dict[str, Array]:
    """Sites of the model at draws of what is behind them."""
    values = hyper_values(model, log_hyper)

    def one(arguments):
        log_hyper, white, rest = arguments
        return law_of(model, log_hyper)[0].reward(white, rest)

    reward = jax.lax.map(one, (log_hyper, white, rest))
    name = "reward_white" if model.family == "direct" else "u_white"
    hypers = {
        name: value
        for name, value in values.items()
        if name != "rationality" or "rationality" in free_hypers(model)
    }
    times = values["rationality"].reshape(-1, *[1] * (reward.ndim - 1))
    behind = {name: white} if rest is None else {name: white, "reward_white": rest}
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
