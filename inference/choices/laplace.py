r"""Laplace's approximation of the posterior of choices, its draws weighted by the joint density.

The log likelihood of each subject's values is replaced by its expansion to second order at the mode,
:math:`\ell_i(\theta) \approx c_i + b_i'\theta - \theta' L_i \theta / 2`. Values and their mean over subjects are then
Gaussian, and what is left of a variance that has a prior is

.. math:: \ln p(\kappa) + \ln \int p(\mathrm{loc}) \prod_i N(\theta_i; \mathrm{loc}, \kappa)\,
          e^{c_i + b_i'\theta_i - \theta_i' L_i \theta_i / 2}\, d\theta\, d\mathrm{loc},

whose mode and curvature give a multivariate t for the logarithms of the variances. Expansion and variances alternate
until neither moves: Breslow and Clayton (1993), "Approximate inference in generalized linear mixed models". The ratio
of the joint density to that of the draws is the error of the expansion, times that of the t. Ratios are smoothed, and
their Pareto k says whether they have the moments that estimates need: Vehtari, Simpson, Gelman, Yao, Gabry (2024),
"Pareto smoothed importance sampling".
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from numpyro.distributions import biject_to

from ethogram.inference.choices.choice_expansion import (
    DEGREES,
    ChosenGaps,
    Conditional,
    Expansion,
    chosen_gaps,
    condition,
    draw_values,
    expand,
    find_mode,
    log_t,
    prior_variance,
)
from ethogram.inference.laplace_posterior import USABLE_K, LaplacePosterior
from ethogram.inference.pareto_weights import smoothed_weights, systematic_resample
from ethogram.models.arguments import warn_user
from ethogram.models.choices.choice_noise import LapseNoise
from ethogram.models.choices.choice_problem import ChoiceProblem
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import WRITTEN_OUT
from ethogram.models.quick_jit import quick_jit

__all__ = ["laplace_choices", "log_ratios", "refusal"]

WEIGHT_NODES = 10
"""Quadrature nodes for the weights: from ten decisions on the error of a log weight is about .001 (30 options).

With few decisions it is tens of nats for draws far from the mode, of weight below 1e-5; where the weight counts, up to
.002 with 3 or 4 options, and .25 with 2 decisions among 100.
"""

MOST_STEPS = 100
"""Of the alternation of the expansion and the variances."""

VARIANCE_TOL = 1e-4
"""The alternation ends where no log variance moves by more."""

DIFFERENCE = 1e-3
"""Step of the differences for derivatives in log variances."""

LEAST_CURVATURE = 0.04
"""Least curvature of the log density of a log variance, whose t is then at most five wide."""

LEAST_GAP = -6.0
"""Of a chosen option to another at the mode, for products in place of sums of logarithms: probabilities then are above
e-24, and single precision reaches down to e-87."""

CHUNK = 250
"""Draws that are weighted in one call of a compiled program."""

LAPSES = np.array([-9.0, -6.0, -4.5, -3.5, -2.5, -1.5, -0.5, 1.0])
"""Logits of the lapse probabilities from which the search for its mode starts."""

NO_LAPSE = 1e-3
"""Lapse probability that counts as 0."""

LAPSE_STEP = 0.1
"""Step of the differences for derivatives in the logit of the lapse probability."""

LAPSE_NODES = np.arange(-3.0, 3.5)
"""Logits with an expansion of their own, in standard deviations about the mode."""

FARTHER = 10.0
"""Factor of the values at which the likelihood is still as large, if only the prior bounds them."""


def laplace_choices(
    key: Array, model: NoisyMDP, data: Decisions | ChoiceProblem, *, num_samples: int = 1000
) -> LaplacePosterior:
    """Draws from Laplace's approximation, resampled by weights that the joint density gives them.

    Parameters
    ----------
    num_samples : number of draws.

    Warns
    -----
    UserWarning
        The choices are separated, the Pareto k of the weights is above .7, the likelihood is largest without lapses, or
        no smaller where values are ten times as large, so that noise is next to none beside the lapses.

    Raises
    ------
    ValueError
        nu, or kappa and the lapse probability both, have priors, the noise is a covariance, or the model says how
        subjects differ.
    """
    if reason := refusal(model):
        raise ValueError(f'{reason}; use method="nuts"')
    problem = model.check(data)
    model.warn_of_separation(problem)
    model.warn_of_prior(problem)
    data = problem.data
    chosen, unit = chosen_gaps(model, problem)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    loc_variance = None if data.subject is None else float(model.loc_kappa) / unit**2
    count = data.num_subjects or 1
    if isinstance(model.kappa, dist.Distribution):
        draws, log_weights, expansion, conditional = _with_variances(
            rng, model, data, chosen, unit, loc_variance, num_samples
        )
    elif "lapse" in model.needed_sites():
        variance = prior_variance(model, data, model.kappa) / unit**2
        chosen, draws, log_weights, expansion, conditional = _with_lapse(
            rng, model, chosen, variance, loc_variance, count, num_samples
        )
    else:
        variance = prior_variance(model, data, model.kappa) / unit**2
        expansion, conditional = find_mode(chosen, variance, loc_variance, num_subjects=count)
        draws, log_weights = draw_values(
            rng, conditional, variance, num_samples, not chosen.noise.log_concave
        )
        log_weights = log_weights + conditional.evidence
    _warn_of_no_noise(chosen, expansion)
    noise = model.choice_noise({"lapse": draws["lapse"]} if "lapse" in draws else None)
    change = log_ratios(chosen, draws["theta"], expansion.theta, noise)
    log_weights = log_weights + expansion.constant + change - expansion.predicted(draws["theta"])
    log_weights, pareto_k = smoothed_weights(log_weights)
    if pareto_k > USABLE_K:
        warn_user(
            f"the Pareto k of the weights of Laplace's approximation is {pareto_k:.2f}, above {USABLE_K}: the draws "
            "are not those of the posterior; use method='nuts'"
        )
    rows = systematic_resample(rng, log_weights)
    mode = {"theta": conditional.theta * unit, "loc": conditional.loc * unit}
    covariance = np.linalg.inv(conditional.precision) * np.outer(unit, unit)
    draws = {name: site if name in ("kappa", "lapse") else site * unit for name, site in draws.items()}
    if data.subject is None:
        mode, covariance = {"theta": mode["theta"][0]}, covariance[0]
        draws = {name: site for name, site in draws.items() if name != "loc"} | {
            "theta": draws["theta"][:, 0]
        }
    if isinstance(chosen.noise, LapseNoise) and "lapse" in draws:
        mode["lapse"] = chosen.noise.lapse
    dtype = jnp.result_type(float)
    return LaplacePosterior(
        model,
        model.with_parts({name: site[rows][None].astype(dtype) for name, site in draws.items()}, data),
        {},
        draws_from="Laplace's approximation, resampled by importance weights",
        mode=mode,
        covariance=covariance,
        pareto_k=pareto_k,
        log_evidence=math.nan
        if model.flat
        else float(np.logaddexp.reduce(log_weights)) - math.log(num_samples),
    )


def refusal(model: Any) -> str:
    """Why this approximation does not take a model; empty where it does."""
    if not isinstance(model, NoisyMDP):  # latent classes have another
        return ""
    if isinstance(model.nu, dist.Distribution):
        return "nu has a prior, and Laplace's approximation takes a number"
    if isinstance(model.kappa, dist.Distribution) and "lapse" in model.needed_sites():
        return "kappa and lapse both have priors, and Laplace's approximation takes one of them"
    if model.noise == "covariance":
        return "the covariance of alternatives has a prior, of which Laplace's approximation takes none"
    if model.random is not None or model.correlated or model.subject_features is not None:
        return "random, correlated or subject_features is given, and Laplace's approximation takes independent values"
    return ""


def _warn_of_no_noise(chosen: ChosenGaps, expansion: Expansion) -> None:
    """Warn where the likelihood does not fall as all values grow, as that of noise without heavy tails does."""
    if chosen.noise.log_concave:
        return
    farther = expand(chosen, FARTHER * expansion.theta).value.sum()
    if farther >= expansion.value.sum():
        warn_user(
            f"the likelihood is no smaller where values are {FARTHER:g} times as large, {farther:.2f} beside "
            f"{expansion.value.sum():.2f}: it has no maximum, and only the prior bounds the values. Choices then have "
            "next to no noise beside lapses; judge this noise by fit.compare, and not by its likelihood"
        )


def _is_near(chosen: ChosenGaps, theta: np.ndarray) -> bool:
    """Whether no choice is so improbable at theta that products of normal probabilities underflow there, and count.

    With lapses, or where small scales count, those that underflow are negligible.
    """
    at = np.einsum("jdp,dp->jd", chosen.gaps, theta[chosen.subject])
    return 1 < len(at) <= WRITTEN_OUT and (not chosen.noise.log_concave or bool((at > LEAST_GAP).all()))


def log_ratios(
    chosen: ChosenGaps, theta: np.ndarray, centre: np.ndarray, noise: Any, groups: Any = None
) -> np.ndarray:
    """Log likelihoods (draw,) at theta (draw, subject, parameter), less that at the centre; (draw, group) of groups.

    Parameters
    ----------
    noise : with parameters that are the same for all draws, or (draw,).
    groups : of the decisions, and how many there are; None for one.
    """
    count, dtype = len(theta), jnp.result_type(float)
    rows = np.resize(np.arange(count), (-(-count // CHUNK), CHUNK))
    near = _is_near(chosen, centre)
    group, number = (None, 1) if groups is None else groups
    parts = [
        _log_ratios(
            chosen,
            theta[part].astype(dtype),
            centre.astype(dtype),
            jax.tree.map(lambda x, part=part: np.broadcast_to(x, count).astype(dtype)[part], noise),
            group,
            number,
            near,
        )
        for part in rows
    ]
    return np.concatenate(parts)[:count].astype(float)


@quick_jit(calls=lambda *args: 2**11 if args[-1] else 2**16, static_argnames=("number", "near"))
def _log_ratios(
    chosen: ChosenGaps, theta: Array, centre: Array, noises: Any, group: Array | None, number: int, near: bool
) -> Array:
    """As `log_ratios`, of a chunk of draws.

    By decision, since single precision would round the differences of sums away; with the nodes of the centre.
    """
    gaps, weight = (x.astype(theta.dtype) for x in (chosen.gaps, chosen.weight))

    def at(one):
        return jnp.einsum("jdp,dp->jd", gaps, one[chosen.subject], precision="highest")

    nodes = chosen.noise.placed(at(centre), chosen.others, WEIGHT_NODES)

    def step(base, each):
        one, noise = each
        value = noise.on_nodes(at(one), chosen.others, nodes, near)
        base = jnp.where(jnp.isnan(base), value, base)  # of the first, which is the centre
        change = jnp.where(weight > 0, weight * (value - base), 0)
        return base, jnp.sum(change) if group is None else jax.ops.segment_sum(change, group, number)

    each = jax.tree.map(
        lambda own, given: jnp.concatenate(
            [jnp.asarray(own, theta.dtype)[None], jnp.asarray(given, theta.dtype)]
        ),
        (centre, chosen.noise),
        (theta, noises),
    )
    return lax.scan(step, jnp.full(len(weight), jnp.nan, theta.dtype), each)[1][1:]


def _with_variances(
    rng: Any,
    model: NoisyMDP,
    data: Decisions,
    chosen: ChosenGaps,
    unit: np.ndarray,
    loc_variance: np.ndarray | None,
    num_draws: int,
) -> tuple[dict[str, np.ndarray], np.ndarray, Expansion, Conditional]:
    """Draws where variances have priors, their log weights under the expansion, and the latter with its Gaussian."""
    from scipy.optimize import minimize

    shape = model.shape_of_kappa(data)
    count = math.prod(shape)

    def at(x):
        """Kappa (row, ...), variances of theta in units (row, parameter) and log prior densities at x (row, ...)."""
        with jax.enable_x64(True):
            kappa, density = map(np.asarray, _log_prior(model, x))
        kappa = kappa.reshape(-1, *shape)
        return kappa, np.stack([prior_variance(model, data, one) / unit**2 for one in kappa]), density

    def log_density(x):
        _, variance, density = at(x)
        return density + [condition(expansion, one, loc_variance).evidence for one in variance]

    offsets = DIFFERENCE * np.concatenate([np.zeros((1, count)), np.eye(count), -np.eye(count)])

    def negative(x):
        height = log_density(x + offsets)
        return -height[0], -(height[1 : count + 1] - height[count + 1 :]) / (2 * DIFFERENCE)

    x, start = np.zeros(count), None
    for _ in range(MOST_STEPS):
        variance = at(x + offsets)[1][0]
        expansion, conditional = find_mode(chosen, variance, loc_variance, start, data.num_subjects or 1)
        start = expansion, conditional.loc
        before, x = x, minimize(negative, x, jac=True, method="BFGS").x
        if np.abs(x - before).max() < VARIANCE_TOL:
            break
    slopes = np.stack([negative(x + offset)[1] for offset in offsets[1:]])
    curvature = (slopes[:count] - slopes[count:]) / (2 * DIFFERENCE)
    sizes, axes = np.linalg.eigh((curvature + curvature.T) / 2)
    spread = 1 / np.sqrt(np.maximum(sizes, LEAST_CURVATURE))
    noise = rng.normal(size=(num_draws, count)) / np.sqrt(rng.chisquare(DEGREES, (num_draws, 1)) / DEGREES)
    log_density_of_noise = log_t(noise) - np.log(spread).sum()
    kappa, variance, density = at(x + (noise * spread) @ axes.T)
    each = [condition(expansion, one, loc_variance) for one in variance]
    heavy = not chosen.noise.log_concave
    drawn, log_ratios = zip(
        *(draw_values(rng, one, part, 1, heavy) for one, part in zip(each, variance, strict=True)),
        strict=True,
    )
    draws = {name: np.concatenate([one[name] for one in drawn]) for name in ("loc", "theta")}
    log_weights = density + [one.evidence for one in each] - log_density_of_noise + np.concatenate(log_ratios)
    return {"kappa": kappa, **draws}, log_weights, expansion, conditional


def _with_lapse(
    rng: Any,
    model: NoisyMDP,
    chosen: ChosenGaps,
    variance: np.ndarray,
    loc_variance: np.ndarray | None,
    num_subjects: int,
    num_draws: int,
) -> tuple[ChosenGaps, dict[str, np.ndarray], np.ndarray, Expansion, Conditional]:
    """Draws where the lapse probability has a prior, as `_with_variances`, and the decisions at its mode.

    The logit of the probability has a t about the mode of its Laplace density; values are Gaussian given it, by the
    expansion of the nearest node, with a mean that is linear in it.
    """
    from scipy.optimize import minimize_scalar

    found: dict[float, tuple[ChosenGaps, Expansion, Conditional]] = {}

    def at(x):
        with jax.enable_x64(True):
            return tuple(map(np.asarray, _lapse_and_log_prior(model.lapse, np.asarray(x, float))))

    def height(x, start=None):
        lapse, log_prior = map(float, at(x))
        here = chosen._replace(noise=model.choice_noise({"lapse": lapse}))
        begun = None if start is None else (expand(here, start[1].theta), start[2].loc)
        found[float(x)] = here, *find_mode(here, variance, loc_variance, begun, num_subjects)
        expansion, conditional = found[float(x)][1:]
        return log_prior + expansion.constant + conditional.evidence

    heights, (lapses, log_prior) = np.array([height(x) for x in LAPSES]), at(LAPSES)
    if lapses[0] < NO_LAPSE and (heights - log_prior).argmax() == 0:
        warn_user(
            "the likelihood is largest where the lapse probability is 0: the choices show no lapses beside the noise, "
            "and what is above zero of its posterior is its prior"
        )
    best = int(heights.argmax())
    ends = LAPSES[max(best - 1, 0)] - 3.0 * (best == 0), LAPSES[min(best + 1, len(LAPSES) - 1)]
    begun = found[float(LAPSES[best])]
    mode = minimize_scalar(
        lambda x: -height(x, begun), bounds=ends, method="bounded", options={"xatol": 0.01}
    ).x
    below, top, above = (height(mode + step, begun) for step in (-LAPSE_STEP, 0.0, LAPSE_STEP))
    curvature = (2 * top - below - above) / LAPSE_STEP**2
    spread = 1 / np.sqrt(max(curvature, LEAST_CURVATURE))
    nodes = mode + spread * LAPSE_NODES
    for node in nodes:
        height(node, begun)
    each = [found[float(node)] for node in nodes]
    here, reference, middle = each[len(each) // 2]
    noise = rng.standard_t(DEGREES, num_draws)
    x = mode + spread * noise
    lapses, log_prior = at(x)
    log_weights = log_prior - log_t(noise[:, None]) + math.log(spread)
    moved = {
        "lapse": lapses,
        "theta": np.empty((num_draws, *middle.theta.shape)),
        "loc": np.empty((num_draws, len(variance))),
    }
    slopes = {
        name: np.gradient(np.stack([getattr(one[2], name) for one in each]), nodes, axis=0)
        for name in ("theta", "loc")
    }

    def log_prior_of_values(sites):
        squares = ((sites["theta"] - sites["loc"][:, None]) ** 2 / variance).sum((1, 2))
        return -(squares if loc_variance is None else squares + (sites["loc"] ** 2 / loc_variance).sum(1)) / 2

    nearest = np.abs(x[:, None] - nodes).argmin(1)
    for number, (_, expansion, conditional) in enumerate(each):
        rows = np.flatnonzero(nearest == number)
        draws, log_ratio = draw_values(rng, conditional, variance, len(rows), heavy=True)
        own = {
            name: draws[name] + np.multiply.outer(x[rows] - nodes[number], slope[number])
            for name, slope in slopes.items()
        }
        for name, site in own.items():
            moved[name][rows] = site
        change = (
            log_ratio
            + log_prior_of_values(own)
            - log_prior_of_values(draws)
            - expansion.predicted(draws["theta"])
        )
        log_weights[rows] += change + conditional.evidence + expansion.constant - expansion.value.sum()
    log_weights += reference.value.sum() - reference.constant + reference.predicted(moved["theta"])
    return here, moved, log_weights, reference, middle


@quick_jit
def _lapse_and_log_prior(prior: dist.Distribution, x: Array) -> tuple[Array, Array]:
    """Lapse probabilities at logits x of their place in the support of the prior, and the log prior density of x."""
    transform = biject_to(prior.support)
    lapse = transform(x)
    return lapse, prior.log_prob(lapse) + transform.log_abs_det_jacobian(x, lapse)


@quick_jit
def _log_prior(model: NoisyMDP, x: Array) -> tuple[Array, Array]:
    """Variances (row, variance) at unconstrained x, and the log prior density (row,) of x."""
    transform = biject_to(model.kappa.support)
    kappa = transform(x)
    return kappa, jnp.sum(model.kappa.log_prob(kappa) + transform.log_abs_det_jacobian(x, kappa), axis=-1)
