r"""One sweep of (parameter-expanded) data augmentation for the multinomial probit.

Latent utilities w given theta, then theta given w, by way of a scale :math:`z_1` and translations :math:`z_2` that
change no choice, :math:`y = \sqrt{z_1}\,(w + z_2)`. Under improper priors of both, the move is valid for the Haar
measure of the group only, which gives the inverse gamma of the scale the shape (n - g) / 2, with n legal options in
total and g translations: none, one, or one per decision.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section 3, Algorithm 2 and eq.
16-20. Errata: "omit the terms" of an improper prior gives a shape of n / 2 or n / 2 - 1, which is wrong as soon as the
sweep translates too (eq. 20 and section 5.1); with choice sets n counts legal options (eq. 17-19). One translation a
decision ("local") is not in the paper. The moves leave the posterior invariant by theorem 2 of Liu and Wu (1999),
"Parameter expansion for data augmentation"; see also Hobert and Marchev (2008).

Where theta has a nonzero prior mean m (a subject's, around that of all), the scale is not inverse gamma: the density of
:math:`s = z_1^{-1/2}` is proportional to :math:`s^{k-1} \exp(-A s^2 / 2 + B s)`, with k = n - g,
:math:`A = y'(I + X \Lambda^{-1} X')^{-1} y` and :math:`B = y'(I + X \Lambda^{-1} X')^{-1} X m`. It is log-concave, and
drawn by rejection.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cholesky, solve_triangular

from ethogram.inference.choices.latent_utilities import draw_latents
from ethogram.inference.choices.tilted_scale import draw_tilted

__all__ = [
    "MOVES",
    "Move",
    "ProbitProblem",
    "draw_parameters",
    "draw_scale",
    "draw_theta",
    "fitted",
    "latents_of_subjects",
    "padded_problem",
    "probit_problem",
    "projected",
    "residual",
    "scale_shape",
    "subject_problems",
    "sweep",
    "with_prior",
]


class Move(NamedTuple):
    """The parameter expansion of a sweep."""

    scale: bool = False
    translations: str = "none"  # "one" for all, or "local": one per decision


MOVES = {
    "da": Move(),
    "scale": Move(True),
    "scale+translate": Move(True, "one"),
    "local+scale": Move(True, "local"),
}


class ProbitProblem(NamedTuple):
    """Decisions as a sweep reads them: the chosen option first, decisions with a single option dropped.

    The design is zero for options that are not legal; centred in each decision for "local"; with a column of ones for
    one translation; rotated to its principal axes, so that columns are orthogonal. Along axes on which the data are
    uninformative only the prior is left. In terms of parameters it would be the difference of large numbers, which
    single precision rounds to zero. With subjects, every part has a leading subject axis, and decisions are
    padded by some without legal options.
    """

    design: Array  # (option * decision, component)
    axes: Array  # (parameter, component), orthonormal: parameters are axes @ components
    squares: Array  # (component,), sums of squares of the columns
    legal: Array  # (option, decision, 1) booleans
    counts: Array  # (decision, 1) numbers of legal options
    precision: Array  # (parameter,) of the prior
    pull: Array  # (parameter,), the precision times the prior mean
    factor: Array  # lower Cholesky factor of the posterior precision of the components


def probit_problem(design: np.ndarray, legal: np.ndarray, choice: np.ndarray, move: Move) -> ProbitProblem:
    """The decisions in the order of a sweep, computed on the host in double precision; without a prior yet.

    From a design (decision, option, parameter); decisions with an unknown choice (-1) are dropped.
    """
    kept = (legal.sum(-1) > 1) & (choice >= 0)
    design, legal, choice = np.asarray(design, float)[kept], legal[kept], choice[kept]
    order = np.argsort(np.arange(legal.shape[1]) != choice[:, None], axis=1, kind="stable")
    legal = np.take_along_axis(legal, order, 1)
    design = np.where(legal[..., None], np.take_along_axis(design, order[..., None], 1), 0)
    counts = legal.sum(-1)
    if move.translations == "local":
        mean = design.sum(1, keepdims=True) / np.maximum(counts, 1)[:, None, None]
        design = np.where(legal[..., None], design - mean, 0)
    elif move.translations == "one":
        design = np.concatenate([design, legal[..., None].astype(float)], axis=-1)
    rows = np.swapaxes(design, 0, 1).reshape(-1, design.shape[-1])
    squares, axes = np.linalg.eigh(rows.T @ rows)
    dtype = jnp.result_type(float)
    none = np.zeros(len(axes))
    reals = (rows @ axes, axes, np.maximum(squares, 0), none, none, np.eye(len(axes)))
    *known, precision, pull, factor = (part.astype(dtype) for part in reals)
    parts: Any = (*known, legal.T[..., None], counts[:, None], precision, pull, factor)
    return ProbitProblem(*parts)


def padded_problem(problem: Any, num_decisions: int) -> ProbitProblem:
    """The problem with decisions without legal options added, up to this number."""
    options, decisions = problem.legal.shape[:2]
    missing = num_decisions - decisions
    rows = np.reshape(problem.design, (options, decisions, problem.design.shape[1]))
    return problem._replace(
        design=np.pad(rows, ((0, 0), (0, missing), (0, 0))).reshape(-1, rows.shape[-1]),
        legal=np.pad(problem.legal, ((0, 0), (0, missing), (0, 0))),
        counts=np.pad(problem.counts, ((0, missing), (0, 0))),
    )


def subject_problems(
    design: np.ndarray,
    legal: np.ndarray,
    choice: np.ndarray,
    subject: np.ndarray,
    num_subjects: int,
    move: Move,
) -> ProbitProblem:
    """:func:`probit_problem` of each subject, stacked and padded to the largest number of decisions."""
    kept = (legal.sum(-1) > 1) & (choice >= 0)
    design, legal, choice, subject = design[kept], legal[kept], choice[kept], subject[kept]
    counts = np.bincount(subject, minlength=num_subjects)
    each = []
    for number in range(num_subjects):
        mine = subject == number
        ordered = probit_problem(design[mine], legal[mine], choice[mine], move)
        each.append(padded_problem(ordered, max(int(counts.max(initial=0)), 1)))
    return jax.tree.map(lambda *parts: np.stack(parts), *each)


@jax.jit
def with_prior(problem: ProbitProblem, precision: Array, mean: Array | None = None) -> ProbitProblem:
    """The problem with a prior precision (..., parameter), zero where flat, and a prior mean, zero where None."""
    dtype, axes = problem.axes.dtype, problem.axes
    precision = jnp.broadcast_to(precision, problem.precision.shape).astype(dtype)
    pull = jnp.zeros_like(precision) if mean is None else (precision * mean).astype(dtype)
    added = jnp.matmul(jnp.swapaxes(axes, -2, -1), precision[..., None] * axes, precision="highest")
    whole = added + problem.squares[..., None] * jnp.eye(precision.shape[-1], dtype=dtype)
    return problem._replace(precision=precision, pull=pull, factor=cholesky(whole, lower=True))


def sweep(
    key: Array, problem: ProbitProblem, theta: Array, latents: Array, move: Move, winner: str
) -> tuple[Array, Array, Array]:
    """Theta (parameter, chain), latents (option, decision, chain) and scales (chain,) after a sweep of all chains.

    With subjects, they are the first axis of all; the winner is that of `draw_latents`.
    """
    key_latents, key_parameters = jax.random.split(key)
    drawn = latents_of_subjects(
        functools.partial(draw_latents, key_latents, winner=winner), problem, theta, latents
    )
    if latents.ndim == 3:
        return draw_parameters(key_parameters, problem, drawn, move)
    keys = jax.random.split(key_parameters, len(latents))
    return jax.vmap(functools.partial(draw_parameters, move=move, shifted=True))(keys, problem, drawn)


def latents_of_subjects(draw: Any, problem: ProbitProblem, theta: Array, latents: Array) -> Array:
    """New latents by a function of means, legal options and latents (option, decision, chain), all subjects at once."""
    means = jnp.reshape(fitted(problem, theta), latents.shape)
    if latents.ndim == 3:
        return draw(means, problem.legal, latents)
    subjects, options, decisions, chains = latents.shape
    joined = (
        jnp.moveaxis(x, 0, 1).reshape(options, -1, x.shape[-1]) for x in (means, problem.legal, latents)
    )
    return jnp.moveaxis(jnp.reshape(draw(*joined), (options, subjects, decisions, chains)), 1, 0)


def fitted(problem: ProbitProblem, theta: Array) -> Array:
    """Utilities (option * decision, chain) given theta (parameter, chain), with a leading subject axis, if any."""
    axes = problem.axes[..., : theta.shape[-2], :]  # without that of a translation
    components = jnp.matmul(jnp.swapaxes(axes, -2, -1), theta, precision="highest")
    return jnp.matmul(problem.design, components, precision="highest")


def draw_parameters(
    key: Array, problem: ProbitProblem, latents: Array, move: Move, shifted: bool = False
) -> tuple[Array, Array, Array]:
    """Theta (parameter, chain), the latents on the model's scale and the scale (chain,), relative to one.

    A joint draw of scale, translation and theta given the latents; the choices do not enter. `shifted` says that the
    prior mean of theta may be nonzero.
    """
    key_scale, key_rest = jax.random.split(key)
    y = latents
    if move.translations == "local":
        centre = jnp.sum(latents, axis=0) / jnp.maximum(problem.counts, 1)  # padding has no option
        y = jnp.where(problem.legal, latents - centre, 0)
    root = projected(problem, y)
    scale = jnp.ones(latents.shape[-1], latents.dtype)
    if move.scale:
        rest, drift = residual(problem, y, root, shifted)
        scale = draw_scale(key_scale, rest, drift, problem, move)
    return draw_theta(key_rest, problem, y, root, scale, move, shifted)


def projected(problem: ProbitProblem, y: Array) -> Array:
    """Latents (option, decision, chain) on the components, divided by the factor of the posterior precision."""
    flat = jnp.reshape(y, (-1, y.shape[-1]))
    return solve_triangular(
        problem.factor, jnp.matmul(problem.design.T, flat, precision="highest"), lower=True
    )


def residual(problem: ProbitProblem, y: Array, root: Array, shifted: bool) -> tuple[Array, Array | None]:
    """A and B (chain,) of the density of the scale given latents; B is None where the prior mean of theta is zero."""
    flat = jnp.reshape(y, (-1, y.shape[-1]))
    best = solve_triangular(problem.factor, root, lower=True, trans=1)
    # The residual sum of squares, as a sum: a difference would cancel where values are large against the noise.
    off = flat - jnp.matmul(problem.design, best, precision="highest")
    centre = jnp.matmul(problem.axes, best, precision="highest")
    rest = jnp.sum(off**2, axis=0) + problem.precision @ centre**2
    return rest, problem.pull @ centre if shifted else None


def draw_theta(
    key: Array, problem: ProbitProblem, y: Array, root: Array, scale: Array, move: Move, shifted: bool
) -> tuple[Array, Array, Array]:
    """Theta and translations given latents before them, their projection and the scale; as `draw_parameters`."""
    key_theta, key_level = jax.random.split(key)
    noise = jax.random.normal(key_theta, root.shape, y.dtype)
    if shifted:
        pull = jnp.matmul(problem.axes.T, problem.pull[:, None], precision="highest")
        noise = noise + solve_triangular(problem.factor, pull, lower=True)
    components = solve_triangular(problem.factor, root / jnp.sqrt(scale) + noise, lower=True, trans=1)
    theta = jnp.matmul(problem.axes, components, precision="highest")
    after = y / jnp.sqrt(scale)
    if move.translations == "one":
        theta, translation = theta[:-1], theta[-1]
        after = after - translation
    elif move.translations == "local":
        level = jax.random.normal(key_level, y.shape[1:], y.dtype)
        after = after + level / jnp.sqrt(jnp.maximum(problem.counts, 1))
    return theta, jnp.where(problem.legal, after, 0), scale


def draw_scale(key: Array, rest: Array, drift: Array | None, problem: ProbitProblem, move: Move) -> Array:
    """A draw of z_1: inverse gamma; with a drift, 1 / s^2 with s from `draw_tilted`, and one without decisions."""
    shape = scale_shape(problem.counts[:, 0], move).astype(rest.dtype)
    if drift is None:
        found = rest / 2 / jax.random.gamma(key, jnp.maximum(shape, 0.5), rest.shape, rest.dtype)
        return jnp.where(shape > 0, found, 1)
    some, tiny = jnp.any(problem.counts > 0), jnp.finfo(rest.dtype).tiny
    powers, squares = jnp.where(some, 2 * shape, 1), jnp.where(some, jnp.maximum(rest, tiny), 1)
    return jnp.where(some, 1 / draw_tilted(key, powers, squares, jnp.where(some, drift, 0)) ** 2, 1)


def scale_shape(counts: Array, move: Move) -> Array:
    """Half the options less the translations, by the Haar measure, from numbers of options (..., decision)."""
    levels = jnp.any(counts > 0, axis=-1) if move.translations == "one" else counts > 0
    return (jnp.sum(counts) - (jnp.sum(levels) if move.translations != "none" else 0)) / 2
