"""Posterior of a reward with its model, and the result of a fit.

The Gaussian is that of Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian
processes", section 2.1; the point that of Levine, Popovic and Koltun (2011), eq. 8.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.inference import storage
from ethogram.inference.draws import Draws, draw_in_chunks, one_chain, variational_attributes
from ethogram.inference.rewards.gaussian import free_hypers, hyper_values, reward_map_of, white_root
from ethogram.inference.rewards.posterior_mode import levine_conditional
from ethogram.models.arguments import is_concrete, require, require_integer, require_key, require_one_of
from ethogram.models.model_object import model_object, static_field
from ethogram.models.printing import short_repr
from ethogram.models.rewards.gp_irl import GPIRL, reward_sites

__all__ = ["METHODS", "RewardFit", "RewardPosterior", "as_double", "naming"]

METHODS = ("natural_gradient", "laplace", "map")
"""Methods of `fit_reward`."""


@model_object
class RewardPosterior:
    """Posterior of a reward, with its model: Gaussian over the standard normal variables of the reward, or a point.

    With `log_weights` it is a mixture: `mean`, `root`, `log_hyper` and `log_hyper_sd` have a leading axis ``node``.

    Parameters
    ----------
    model : the model object that was fitted.
    mean : (w,) or (expert, w), of the standard normal variables of the reward.
    root : (w, w) or (expert, w, w), Cholesky factor of their covariance; zero for a point, whose rewards of states that
        are not inducing points keep the noise of the prior.
    log_hyper, log_hyper_sd : (hyper,) of the logarithms of the hyper-parameters that have priors.
    method : that of the fit.
    levine : inducing points of Levine's estimate, whose ``mean`` is their rewards and whose ``log_hyper`` are scale and
        relevance; else None.
    log_weights : (node,), logarithms of the weights of the nodes of a mixture; None for one Gaussian.
    """

    model: GPIRL
    mean: Any
    root: Any
    log_hyper: Any
    log_hyper_sd: Any
    method: str = static_field(default="natural_gradient")
    levine: Any = None
    log_weights: Any = None

    def __post_init__(self):
        require_one_of("method", self.method, METHODS)
        if not isinstance(self.model, GPIRL):
            raise TypeError(f"model is {type(self.model).__name__}: give a GPIRL")
        parts = {name: getattr(self, name) for name in ("mean", "root", "log_hyper", "log_hyper_sd")}
        if not is_concrete(*parts.values()):
            return
        shapes = {name: np.shape(value) for name, value in parts.items()}
        for name, value in parts.items():
            require(np.isfinite(np.asarray(value)), name, value, "is not finite", "fit the reward again")
        num_white = len(np.asarray(self.levine)) if self.levine is not None else self._num_white()
        num_hyper = (
            1 + self.model.num_features if self.levine is not None else sum(free_hypers(self.model).values())
        )
        nodes: tuple[int, ...] = ()
        if self.log_weights is not None:
            weights = np.asarray(self.log_weights)
            if weights.ndim != 1 or not np.isclose(np.exp(weights).sum(), 1, atol=1e-6):
                raise ValueError(
                    f"log_weights has shape {weights.shape} and weights of total {np.exp(weights).sum():g}: give "
                    "(node,) logarithms of weights of total 1"
                )
            nodes = weights.shape
        lead = (*nodes, *shapes["mean"][len(nodes) : -1][:1])
        expected = {
            "mean": (*lead, num_white),
            "root": (*lead, num_white, num_white),
            "log_hyper": (*nodes, num_hyper),
            "log_hyper_sd": (*nodes, num_hyper),
        }
        for name, shape in expected.items():
            if shapes[name] != shape:
                raise ValueError(f"{name} has shape {shapes[name]}, expected {shape} of this model")
        deviation = np.asarray(self.log_hyper_sd)
        require(deviation >= 0, "log_hyper_sd", deviation, "is negative", "give standard deviations")

    def _num_white(self) -> int:
        """Number of standard normal variables of the reward of the model."""
        return self.model.num_points if self.model.inducing is None else len(np.asarray(self.model.inducing))

    def of_model(self, model: GPIRL) -> RewardPosterior:
        """The same posterior with the model in another precision."""
        return dataclasses.replace(self, model=model)

    def sample(self, key: Array, num_draws: int) -> dict[str, Array]:
        """Independent draws of the sites of the model, with a leading axis ``draw``."""
        require_key(key)
        require_integer("num_draws", num_draws, 1)
        if self.levine is not None:
            point = self.mean_sites()
            return {name: jnp.broadcast_to(x, (num_draws, *jnp.shape(x))) for name, x in point.items()}
        with jax.enable_x64(True):
            double = as_double(dataclasses.replace(self, levine=None))
            fixed = self.log_weights is None and not np.any(np.asarray(self.log_hyper_sd))

            def draw(key, size):
                return _draw(double, key, size, fixed)

            columns = self._num_white() if self.model.conditional == "independent" else self.model.num_points
            return self._rounded(draw_in_chunks(draw, key, num_draws, self.model.num_points * columns))

    def mean_sites(self) -> dict[str, Array]:
        """Sites of the model at the mean of w and of the logarithms of the hyper-parameters.

        Of a mixture, ``reward`` is the mean over the nodes, and ``values`` and ``policy`` are those for it.
        """
        with jax.enable_x64(True):
            model = as_double(self.model)
            if self.log_weights is not None:
                weights = np.exp(self.log_weights)
                return self._rounded(_mean_sites(model, self.log_hyper, self.mean, weights))
            return self._rounded(_middle_sites(model, self.log_hyper, self.mean, self.levine))

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws from q in one chain."""
        attributes = variational_attributes() | {"method": self.method}
        return Draws(self.model, one_chain(self.sample(key, num_draws)), {}, {}, attributes)

    def _rounded(self, sites: dict[str, Array]) -> dict[str, Array]:
        """In the precision of the model: w in double precision does not fit Cholesky factors in single precision."""
        return {name: x.astype(self.model.dtype) for name, x in sites.items()}

    def save(self, path: str | os.PathLike) -> None:
        """Write the posterior and its model to one file, atomically; ``ethogram.load_posterior`` reads it."""
        storage.write(path, {"posterior": self})


@short_repr
class RewardFit(NamedTuple):
    """Result of `fit_reward`.

    Attributes
    ----------
    posterior : its Gaussian, or point; `sample` draws from it.
    elbo, elbo_se : evidence lower bound in nats, on fresh draws, and its standard error; NaN for a point. With
        ``hyper="point"`` it has the log prior density of the hyper-parameters in place of their divergence, and with
        ``"nested"`` that of those that are held.
    laplace_elbo : ELBO of Laplace's approximation on the same draws; with ``hyper="nested"`` with it at the mode only.
    trace : (evaluation,) ELBOs on a fixed set of draws, the first that of Laplace's approximation.
    objective : log likelihood minus half the squared norm of w at the mode, in nats, which ``method="map"`` maximises;
        Levine's objective with ``prior="levine"``.
    converged : whether the expected remaining gain of the ELBO is within the tolerance, see `fit_reward`; of ``"map"``
        and ``"laplace"``, whether the search for the mode ended at a maximum.
    steps : natural-gradient steps.
    white_share : share of the prior variance of rewards that is white noise, independent between states.
    reason : why the search is not converged; empty where it is.
    search_se : standard error of the last ELBO of the search, in nats.
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
    reason: str = ""
    search_se: float = float("nan")

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """Independent draws from q in one chain, with the ELBO trace."""
        attributes: dict[str, Any] = {
            "converged": int(self.converged),
            "num_steps": int(self.steps),
            "reason": self.reason,
        }
        attributes |= {"objective": float(self.objective), "white_share": float(self.white_share)}
        if np.isfinite(self.elbo):
            attributes |= {"final_elbo": float(self.elbo), "final_elbo_se": float(self.elbo_se)}
            attributes |= {"laplace_elbo": float(self.laplace_elbo)}
        drawn = self.posterior.draws_for_export(key, num_draws)
        return drawn._replace(
            fit={"elbo": (("step",), np.asarray(self.trace))}, attributes=drawn.attributes | attributes
        )


def as_double(tree: Any) -> Any:
    """A pytree whose real numbers have double precision; under ``jax.enable_x64``."""

    def one(x):
        real = jnp.issubdtype(jnp.result_type(x), jnp.floating)
        return jax.device_put(np.asarray(x, np.float64)) if real else x

    return jax.tree.map(one, tree)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _draw(posterior: RewardPosterior, key: Array, num_draws: int, fixed: bool) -> dict[str, Array]:
    """Draws of the sites, in double precision; `fixed` says that all have the same hyper-parameters."""
    model, mean = posterior.model, posterior.mean
    root, middle, spread = posterior.root, posterior.log_hyper, posterior.log_hyper_sd
    key_hyper, key_white, key_rest = jax.random.split(key, 3)
    if posterior.log_weights is None:
        log_hyper = middle + spread * jax.random.normal(key_hyper, (num_draws, len(middle)))
        noise = jax.random.normal(key_white, (num_draws, *mean.shape))
        white = mean + jnp.einsum("...ij,d...j->d...i", root, noise)
    else:
        node = jax.random.categorical(key_hyper, posterior.log_weights, shape=(num_draws,))
        log_hyper, mean = middle[node], mean[0]
        noise = jax.random.normal(key_white, (num_draws, *mean.shape))

        def of_node(arguments):
            node, noise = arguments
            return posterior.mean[node] + jnp.einsum("...ij,...j->...i", root[node], noise)

        white = jax.lax.map(of_node, (node, noise))
    rest = None
    if model.family == "inducing":
        rest = jax.random.normal(key_rest, (num_draws, *mean.shape[:-1], model.num_points))
    return _sites(model, log_hyper, white, rest, fixed)


@jax.jit
def _middle_sites(model: GPIRL, log_hyper: Array, mean: Array, levine: Array | None) -> dict[str, Array]:
    """Sites at the mean of one Gaussian, or at Levine's estimate."""
    if levine is None:
        return {name: x[0] for name, x in _sites(model, log_hyper[None], mean[None], None).items()}
    hypers = {"scale": jnp.exp(log_hyper[0]), "relevance": jnp.exp(log_hyper[1:])}
    reward = levine_conditional(model, levine, *hypers.values())[1] @ mean
    return reward_sites(model, reward, model.agent(reward)) | hypers | {"u": mean}


@jax.jit
def _mean_sites(model: GPIRL, log_hyper: Array, mean: Array, weights: Array) -> dict[str, Array]:
    """Means over the nodes (node, ...) of a mixture; of hyper-parameters, of their logarithms."""
    each = _sites(model, log_hyper, mean, None)
    sites = {name: jnp.tensordot(weights, x, 1) for name, x in each.items()}
    middle = hyper_values(model, weights @ log_hyper)
    sites |= {name: value for name, value in middle.items() if name in sites}
    reward = sites["reward"].reshape(*mean.shape[1:-1], model.num_points)
    return sites | reward_sites(model, reward, model.agent(reward, middle["rationality"]))


def _sites(
    model: GPIRL, log_hyper: Array, white: Array, rest: Array | None, fixed: bool = False
) -> dict[str, Array]:
    """Sites of the model at draws of hyper-parameters, all the same where `fixed`, and standard normal variables."""
    values = hyper_values(model, log_hyper)

    def one(arguments):
        log_hyper, white, rest = arguments
        return reward_map_of(model, log_hyper)[0].reward(white, rest)

    def at_points(arguments):
        log_hyper, white = arguments
        now = hyper_values(model, log_hyper)
        return white @ white_root(model, now["scale"], now["relevance"]).T

    if fixed:
        reward = one((log_hyper[0], white, rest))
    else:
        reward = jax.lax.map(one, (log_hyper, white, rest))
    name = "reward_white" if model.family == "direct" else "u_white"
    times = values["rationality"].reshape(-1, *[1] * (reward.ndim - 1))
    sites = {"scale", "relevance", *free_hypers(model)}
    hypers = {name: value for name, value in values.items() if name in sites}
    variables = {name: white} if rest is None else {name: white, "reward_white": rest}
    if model.family == "inducing":
        at_all = at_points((log_hyper[0], white)) if fixed else jax.lax.map(at_points, (log_hyper, white))
        variables["u"] = at_all
    return hypers | variables | reward_sites(model, reward, model.agent(reward, times))


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts the name of a saved part in front of the messages of its checks, which become ValueErrors."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error
