r"""The guide of GP-IRL for numpyro's SVI: a structured Gaussian over the whitened reward.

.. math:: q(w) = N(m, B B^\top + D^2), \qquad q(\ln \lambda) = N(\cdot, \cdot) \text{ or a point}, \qquad
          q(r \mid u) = p(r \mid u)

Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes", section 2.1, has B
and D for rewards u of inducing points. Here they are for w in :math:`u = L w`, with L the Cholesky factor of the
covariance of u, unless ``whiten=False``: the ELBO is the same at fixed hyper-parameters, and KL(q(w) || p(w)) needs no
inverse of a covariance that is being learned.
"""

from __future__ import annotations

import contextlib
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import constraints

from ethogram.inference.rewards.gaussian import HYPERS, free_hypers, hyper_priors, white_root
from ethogram.models.arguments import require_integer, require_number, require_one_of
from ethogram.models.mdps.demonstrations import num_experts
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = ["RewardGuide"]


class RewardGuide:
    """A numpyro guide for :class:`~ethogram.models.rewards.GPIRL`.

    Parameters, of numpyro's SVI: ``mean``, ``root`` (full rank), or ``factor`` and ``deviation`` (low rank); and for
    each hyper-parameter that has a prior ``NAME_log`` and ``NAME_log_sd``, or ``NAME_point``.

    Parameters
    ----------
    model : a GPIRL with ``whiten=True``.
    rank : columns of B, from 1 to the number of variables; None for full rank, with D zero.
    hyper : ``"variational"``, log-normal; ``"point"``; or ``"fixed"`` at `start`.
    start : initial hyper-parameters by name; default 1.
    init_scale : initial standard deviation of w.
    whiten : whether m, B and D are of w; otherwise of the rewards u themselves.

    Raises
    ------
    TypeError, ValueError
        `model` is not a GPIRL, or not whitened; `rank`, `hyper`, `start` or `init_scale` is invalid.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> from numpyro.optim import Adam
    >>> from ethogram.models.mdps import MDP
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> model = GPIRL(corridor, [[0.0], [1.0], [2.0]])
    >>> svi = SVI(model, RewardGuide(model), Adam(0.02), Trace_ELBO(num_particles=8))
    >>> fit = svi.run(jax.random.key(0), 50, np.array([[0, 3], [0, 3], [0, 3]]), progress_bar=False)
    >>> fit.params["mean"].shape
    (3,)
    """

    def __init__(
        self,
        model: Any,
        *,
        rank: int | None = None,
        hyper: str = "variational",
        start: dict[str, Any] | None = None,
        init_scale: float | int = 0.3,
        whiten: bool = True,
    ):
        if not isinstance(model, GPIRL):
            raise TypeError(f"model is {type(model).__name__}: give a GPIRL")
        if not model.whiten:
            raise ValueError("model has whiten=False: make it with whiten=True")
        if model.switches:
            raise ValueError(
                "model has num_intents > 1, which the guide does not take: use fit_reward, or NUTS"
            )
        if rank is not None:
            require_integer("rank", rank, 1, model.num_white)
        require_one_of("hyper", hyper, HYPERS)
        start = dict(start or {})
        unknown = set(start) - set(free_hypers(model))
        if unknown:
            raise ValueError(
                f"start has {sorted(unknown)[0]!r}: hyper-parameters with a prior are {', '.join(free_hypers(model))}"
            )
        require_number("init_scale", init_scale, above=0)
        self.model, self.rank, self.hyper, self.whiten = model, rank, hyper, whiten
        self.start, self.init_scale = start, init_scale

    def __call__(self, demonstrations: Any = None, *, condition: bool = True) -> None:
        """Sample the latent sites of the model from q."""
        model = self.model
        values = {name: self._hyper(name, size) for name, size in free_hypers(model).items()}
        values = hyper_priors(model) | values
        experts = num_experts(demonstrations)
        lead = () if experts is None else (experts,)
        name = "reward_white" if model.family == "direct" else "u_white"
        q = self._gaussian(values, lead)
        with numpyro.plate("expert", experts) if experts is not None else contextlib.nullcontext():
            numpyro.sample(name, q)
            if model.family == "inducing":
                ones = jnp.ones(model.num_points, model.dtype)
                numpyro.sample("reward_white", dist.Normal(0, ones).to_event(1))

    def _hyper(self, name: str, size: int) -> Array:
        shape = (size,) if name == "relevance" else ()
        first = jnp.broadcast_to(jnp.asarray(self.start.get(name, 1.0), float), shape)
        with numpyro.plate("feature", size) if name == "relevance" else contextlib.nullcontext():
            if self.hyper == "fixed":
                return numpyro.sample(name, dist.Delta(first))
            if self.hyper == "point":
                point = numpyro.param(f"{name}_point", first, constraint=constraints.positive)
                return numpyro.sample(name, dist.Delta(point))
            middle = numpyro.param(f"{name}_log", jnp.log(first))
            spread = numpyro.param(f"{name}_log_sd", jnp.full(shape, 0.3), constraint=constraints.positive)
            return numpyro.sample(name, dist.LogNormal(middle, spread))

    def _gaussian(self, values: dict[str, Any], lead: tuple[int, ...]) -> dist.Distribution:
        size, dtype = self.model.num_white, self.model.dtype
        mean = numpyro.param("mean", jnp.zeros((*lead, size), dtype))
        if self.rank is not None:
            # All-zero columns would have no gradient.
            first = 0.1 * self.init_scale * jnp.eye(size, self.rank, dtype=dtype)
            factor = numpyro.param("factor", jnp.broadcast_to(first, (*lead, size, self.rank)))
            deviation = numpyro.param(
                "deviation", jnp.full((*lead, size), self.init_scale, dtype), constraint=constraints.positive
            )
            if self.whiten:
                return dist.LowRankMultivariateNormal(mean, factor, deviation**2)
            diagonal = deviation[..., None] ** 2 * jnp.eye(size, dtype=dtype)
            root = jnp.linalg.cholesky(factor @ jnp.swapaxes(factor, -2, -1) + diagonal)
        else:
            first = jnp.broadcast_to(self.init_scale * jnp.eye(size, dtype=dtype), (*lead, size, size))
            root = numpyro.param("root", first, constraint=constraints.lower_cholesky)
        if not self.whiten:
            relevance = jnp.broadcast_to(values["relevance"], (self.model.num_features,))
            low = white_root(self.model, jnp.asarray(values["scale"]), relevance)
            low = jnp.broadcast_to(low, (*lead, size, size))
            mean = solve_triangular(low, mean[..., None], lower=True)[..., 0]
            root = solve_triangular(low, root, lower=True)
        return dist.MultivariateNormal(mean, scale_tril=root)
