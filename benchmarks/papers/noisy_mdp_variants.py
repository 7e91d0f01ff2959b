"""Variants of PX-DA that papers print: proper priors of the expansion, and Metropolis draws of winners.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes": expansion parameters with proper
priors, section 3, and the proposal of section 7.2, a normal with the curvature at the mode on both sides, which has a
lighter right tail than its target. Translations alone (\"translate\", \"local\") are here too.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ethogram.inference.choices import gibbs_sweep
from ethogram.inference.choices.gibbs_sweep import MOVES, Move, ProbitProblem, with_prior
from ethogram.inference.choices.latent_utilities import (
    draw_latents,
    open_uniform,
    winner_log_density,
    with_others,
)
from ethogram.inference.choices.px_da import PXDA, PXDAState
from ethogram.models.choices.probit_choice import winner_mode

__all__ = ["VARIANTS", "VariantPXDA", "draw_variant"]

VARIANTS = MOVES | {
    "translate": Move(False, "one"),
    "local": Move(False, "local"),
    "scale_proper": Move(True),
    "scale+translate_proper": Move(True, "one"),
}


class VariantPXDA(PXDA):
    """PX-DA with further moves and winners.

    Parameters
    ----------
    moves : those of `PXDA`, ``"translate"``, ``"local"``, ``"scale_proper"`` and ``"scale+translate_proper"``.
    winner : those of `PXDA`; ``"mh"``, Metropolis-Hastings from the envelope of ``"rejection"``; ``"paper"``, from the
        proposal of the paper.
    scale_prior : (a, b) of the inverse gamma prior of the scale, for proper moves; draws do not depend on b, a unit.
    """

    def __init__(
        self,
        model: Any,
        moves: str = "local+scale",
        winner: str = "gibbs",
        *,
        scale_prior: tuple[float, float] | None = None,
    ):
        super().__init__(model)
        self.move, self.winner, self.shape = (
            VARIANTS[moves],
            winner,
            None if scale_prior is None else scale_prior[0],
        )
        if (self.shape is not None) != moves.endswith("_proper"):
            raise ValueError(
                f"scale_prior is {scale_prior!r}, moves {moves!r}: proper moves alone take (a, b)"
            )

    def with_moments(self, state: PXDAState, mean: Any, variance: Any) -> PXDAState:
        """Translations of proper moves have the variance of the values over their number; 1 where that is flat."""
        state = super().with_moments(state, mean, variance)
        if self.shape is None or self.move.translations != "one":
            return state
        first = variance.ravel()[0]
        own = jnp.where(jnp.isinf(first), 1, (variance.shape[-1] + 1) / first)
        problem = state.problem
        precision = jnp.asarray(problem.precision).at[..., -1].set(own)
        zero = jnp.zeros_like(precision[..., :1])
        return state._replace(problem=with_prior(problem, precision, jnp.concatenate([mean, zero], axis=-1)))

    def _sweep(
        self, key: Array, problem: ProbitProblem, theta: Array, latents: Array
    ) -> tuple[Array, Array, Array]:
        key_latents, key_parameters = jax.random.split(key)
        drawn = gibbs_sweep.latents_of_subjects(
            functools.partial(draw_variant, key_latents, winner=self.winner), problem, theta, latents
        )
        if latents.ndim == 3:
            return self._draw_parameters(key_parameters, problem, drawn, False)
        keys = jax.random.split(key_parameters, len(latents))
        return jax.vmap(functools.partial(self._draw_parameters, shifted=True))(keys, problem, drawn)

    def _draw_parameters(
        self, key: Array, problem: ProbitProblem, latents: Array, shifted: bool
    ) -> tuple[Array, Array, Array]:
        """As `gibbs_sweep.draw_parameters`, with a scale and translation from their prior before the draw.

        Only the ratio of the scales before and after matters, so the scale before is one: b over it is a gamma variate,
        which does not under- or overflow however vague the prior.
        """
        if self.shape is None:
            return gibbs_sweep.draw_parameters(key, problem, latents, self.move, shifted)
        key_scale, key_before, key_shift, key_rest = jax.random.split(key, 4)
        chains, dtype = latents.shape[-1:], latents.dtype
        before, y = jax.random.gamma(key_before, self.shape, chains, dtype), latents
        if self.move.translations == "one":
            shift = jax.random.normal(key_shift, chains, dtype) / jnp.sqrt(problem.precision[-1])
            y = jnp.where(problem.legal, latents + shift, 0)
        root = gibbs_sweep.projected(problem, y)
        rest, drift = gibbs_sweep.residual(problem, y, root, shifted)
        shape = jnp.sum(problem.counts).astype(dtype) / 2 + self.shape
        if drift is None:
            scale = (rest + 2 * before) / 2 / jax.random.gamma(key_scale, shape, rest.shape, dtype)
        else:
            scale = 1 / gibbs_sweep.draw_tilted(key_scale, 2 * shape, rest + 2 * before, drift) ** 2
        return gibbs_sweep.draw_theta(key_rest, problem, y, root, scale, self.move, shifted)


def draw_variant(
    key: Array, mean: Array, legal: Array, utilities: Array, winner: str, proposals: int = 1
) -> Array:
    """As `draw_latents`; of ``"mh"`` and ``"paper"``, after so many proposals of the winner."""
    if winner not in ("mh", "paper"):
        return draw_latents(key, mean, legal, utilities, winner)
    key_bits, key_winner = jax.random.split(key)
    uniform = open_uniform(jax.random.bits(key_bits, mean.shape, jnp.uint32), mean.dtype)
    mode, curvature = winner_mode(mean[0] - mean[1:], legal[1:])
    mode, spread = mode + mean[0], 1 / jnp.sqrt(curvature)
    right = spread if winner == "paper" else jnp.ones_like(spread)

    def log_ratio(w: Array) -> Array:
        return (
            winner_log_density(w, mean, legal) + 0.5 * ((w - mode) / jnp.where(w < mode, spread, right)) ** 2
        )

    # The target is the marginal of the winner: the others do not enter.
    w = utilities[0]
    for key_one in jax.random.split(key_winner, proposals):
        key_side, key_size, key_take = jax.random.split(key_one, 3)
        left = jax.random.uniform(key_side, mode.shape, mode.dtype) < spread / (spread + right)
        size = jnp.abs(jax.random.normal(key_size, mode.shape, mode.dtype))
        proposed = mode + jnp.where(left, -spread, right) * size
        height = jnp.log(jax.random.uniform(key_take, mode.shape, mode.dtype))
        w = jnp.where(height < log_ratio(proposed) - log_ratio(w), proposed, w)
    return with_others(w, mean, legal, uniform[1:])
