r"""The multinomial probit with independent errors as a distribution, its probabilities by quadrature.

.. math:: a = \arg\max_{j\ \mathrm{legal}} \mu_j + \epsilon_j, \quad \epsilon_j \sim N(0, 1), \qquad
          P(a \mid \mu) = \int \phi(x) \prod_{j \ne a} \Phi(x + \mu_a - \mu_j)\, dx

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", eq. 7. The integrand is log-concave:
Gauss-Hermite nodes centred at its mode and scaled by the curvature there (Liu and Pierce 1994, "A note on Gauss-Hermite
quadrature") are accurate in the far tails, where fixed nodes are not.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erfcx

from ethogram.models.arguments import require_integer
from ethogram.models.choices.choice_distribution import ChoiceDistribution, ChoiceNoise
from ethogram.models.model_object import model_object, static_field

__all__ = [
    "OFFSETS",
    "NormalNoise",
    "ProbitChoice",
    "above_hazard",
    "hazard",
    "log_ndtr",
    "log_ndtr_and_hazard",
    "log_probability",
    "option_probabilities",
    "placed_nodes",
    "winner_density",
    "winner_mode",
]

NODES = {np.dtype(np.float32): 16, np.dtype(np.float64): 32}
"""Quadrature nodes by precision: errors of ln P relative to 1 + |ln P| are below 4e-7 and 5e-10; with 48, 5e-13."""

NEWTON_STEPS = {np.dtype(np.float32): 5, np.dtype(np.float64): 6}
"""Of the centre of the nodes, which need not be exact."""

WRITTEN_OUT, UNROLL_AT_MOST = 8, 48
"""Options, and terms of a sum, that programs handle one by one: XLA's reductions on a CPU are slow."""

_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
_ROOT_HALF = math.sqrt(0.5)
_CENTRE, _TERMS = 3.5, {np.dtype(np.float32): 11, np.dtype(np.float64): 22}
"""Of the series of hazards, whose errors are those of rounding."""


@model_object
class NormalNoise(ChoiceNoise):
    """Independent standard normal errors; `num_nodes` of None are 16 in single and 32 in double precision."""

    num_nodes: int | None = static_field(default=None)

    no_lapses = ""

    def log_probability(self, gaps: Array, others: Array, num_nodes: int | None = None) -> Array:
        """Log probability (...), by nodes at the mode of the integrand."""
        return log_probability(gaps, others, num_nodes or self.num_nodes or NODES[gaps.dtype])

    def probabilities(self, utilities: Any, legal: Any) -> Array:
        """Probability of every option (..., option), by one quadrature rule for all."""
        return option_probabilities(utilities, legal)

    def perturbed(self, key: Array, utilities: Array) -> Array:
        """Utilities with an error each."""
        return utilities + jax.random.normal(key, utilities.shape, utilities.dtype)

    def in_words(self) -> str:
        """What a summary calls it."""
        return "normal noise (probit)"

    def placed(self, gaps: Array, others: Array, num_nodes: int) -> tuple[Array, Array]:
        """Nodes (node, ...) and logs of their weights."""
        return placed_nodes(winner_mode(gaps, others), num_nodes)

    def on_nodes(self, gaps: Array, others: Array, nodes: tuple[Array, Array], near: bool) -> Array:
        """Log probability (...) by these nodes; those of products that underflow all the same are ``-inf``."""
        x, log_weights = nodes
        if len(gaps) < 2:
            return log_probability(gaps, others, len(x))  # in closed form
        if near:  # a product: half the time of sums of logarithms
            below = jnp.exp(log_weights)
            for gap, there in zip(gaps, others, strict=True):
                below *= jnp.where(there, 0.5 * jax.scipy.special.erfc(-_ROOT_HALF * (x + gap)), 1)
            return jnp.log(jnp.sum(below, axis=0))

        def of_option(terms, option):
            gap, there = option
            return terms + jnp.where(there, log_ndtr(jnp.where(there, x + gap, 0)), 0), None

        unroll = len(gaps) <= WRITTEN_OUT
        return logsumexp(lax.scan(of_option, log_weights, (gaps, others), unroll=unroll)[0], axis=0)


class ProbitChoice(ChoiceDistribution):
    r"""The index of the option with the largest utility, each with a standard normal error of its own.

    A batch entry is a decision, the value is the chosen option. ``log_prob`` has derivatives of every order in the
    utilities, is finite for every legal option however improbable, and ``-inf`` for others.

    Parameters
    ----------
    utilities : mu (..., option); entries of options that are not legal are ignored, even NaN.
    legal : (..., option) booleans; None for all.
    num_nodes : quadrature nodes; None for 16 in single and 32 in double precision.

    Raises
    ------
    TypeError, ValueError
        As :class:`~ethogram.models.choices.choice_distribution.ChoiceDistribution`; if `num_nodes` is not a positive
        integer.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> choice = ProbitChoice(jnp.array([0.0, 1.0, -2.0]))
    >>> [round(float(p), 3) for p in choice.probs]
    [0.237, 0.756, 0.007]
    """

    def __init__(
        self,
        utilities: Any,
        legal: Any = None,
        *,
        num_nodes: Any = None,
        validate_args: bool | None = None,
    ):
        if num_nodes is not None:
            require_integer("num_nodes", num_nodes, 1)
        super().__init__(utilities, legal, NormalNoise(num_nodes), validate_args=validate_args)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def log_probability(gaps: Array, others: Array, num_nodes: int) -> Array:
    r"""Log of :math:`\int \phi(x) \prod_j \Phi(x + d_j)\, dx`.

    Parameters
    ----------
    gaps : d (option, ...), how much better the chosen option is than each other one.
    others : (option, ...) booleans: which of them there are.
    num_nodes : of the quadrature.
    """
    return _evaluate(gaps, others, num_nodes)[0]


@log_probability.defjvp
def _log_probability_jvp(num_nodes, primals, tangents):
    """The derivative in d_j is the mean of the hazard there under the integrand; nodes do not move."""
    gaps, others = primals
    value, slopes = _evaluate(gaps, others, num_nodes)
    return value, total(jnp.where(others, slopes * tangents[0], 0))


def _evaluate(gaps: Array, others: Array, num_nodes: int) -> tuple[Array, Array]:
    """The log probability (...), and its derivatives (option, ...)."""
    if len(gaps) == 0:
        return jnp.zeros(gaps.shape[1:], gaps.dtype), gaps
    if len(gaps) == 1:
        gap = gaps / math.sqrt(2)
        return jnp.where(others, log_ndtr(gap), 0)[0], hazard(gap) / math.sqrt(2)
    return integrate(gaps, others, winner_mode(lax.stop_gradient(gaps), others), num_nodes)


def integrate(gaps: Array, others: Array, normal: tuple[Array, Array], num_nodes: int) -> tuple[Array, Array]:
    """The log probability (...), and its derivatives (option, ...), by nodes of a normal with this mode and precision.

    Gaps and others (option, ...) are those of `log_probability`.
    """
    x, log_weights = placed_nodes(normal, num_nodes)
    log_cdf: Any
    rates: Any
    if len(gaps) > WRITTEN_OUT:
        log_cdf, rates = log_ndtr_and_hazard(jnp.where(others[:, None], x + gaps[:, None], 0))
        log_cdf = jnp.where(others[:, None], log_cdf, 0)
    else:
        each = [
            log_ndtr_and_hazard(jnp.where(there, x + gap, 0)) for gap, there in zip(gaps, others, strict=True)
        ]
        log_cdf = [jnp.where(there, one, 0) for (one, _), there in zip(each, others, strict=True)]
        rates = [rate for _, rate in each]
    terms = total(log_cdf) + log_weights
    top = lax.stop_gradient(jnp.max(terms, axis=0))
    shares = jnp.exp(terms - top)
    mass = jnp.sum(shares, axis=0)
    return jnp.log(mass) + top, jnp.stack([jnp.sum(shares * rate, axis=0) for rate in rates]) / mass


def placed_nodes(normal: tuple[Array, Array], num_nodes: int) -> tuple[Array, Array]:
    r"""Nodes (node, ...) of normals with these modes and precisions, and logs of their weights times phi."""
    mode, precision = normal
    points, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    heights = points**2 / 2 + np.log(weights) - _LOG_ROOT_TWO_PI
    nodes, log_weights = (jnp.asarray(x.reshape(-1, *[1] * mode.ndim), mode.dtype) for x in (points, heights))
    x = mode + nodes / jnp.sqrt(precision)
    return x, log_weights - x**2 / 2 - 0.5 * jnp.log(precision)


OFFSETS = np.linspace(-9.0, 10.0, 97)
"""Trapezoid nodes of the largest utility, relative to the largest mean: the mass beyond them is 1e-18. Steps of a fifth
are a third of the smallest standard deviation of the largest of a hundred, and the rule converges geometrically; of few
options every second node suffices."""

LEAST_OFFSET = {np.dtype(np.float32): -6.1, np.dtype(np.float64): -9.1}
"""By precision; the largest is one more from zero."""

AT_ONCE = 2**15
"""Numbers that one step of the rule handles: the steps of a loop take longer than small arrays."""


@jax.jit
def option_probabilities(utilities: Any, legal: Any) -> Array:
    r"""Probability of every option (..., option): :math:`\int h(x - \mu_j) \prod_k \Phi(x - \mu_k)\, dx`."""
    top = jnp.max(jnp.where(legal, utilities, -jnp.inf), axis=-1, keepdims=True)
    gaps = jnp.moveaxis(jnp.where(legal, top - utilities, 0), -1, 0)
    allowed = jnp.moveaxis(jnp.broadcast_to(legal, utilities.shape), -1, 0)[:, None]

    def add(sums, offsets):
        return sums + jnp.sum(winner_density(offsets, gaps[:, None], allowed), axis=1), None

    inside = (LEAST_OFFSET[gaps.dtype] < OFFSETS) & (OFFSETS < -LEAST_OFFSET[gaps.dtype] + 1)
    offsets = OFFSETS[inside][:: 2 if len(gaps) <= WRITTEN_OUT else 1]
    together = max(1, min(len(offsets), AT_ONCE // max(gaps.size, 1)))
    # Nodes that fill the last part up are beyond all others, where there is no mass.
    offsets = np.pad(offsets, (0, -len(offsets) % together), constant_values=100.0)
    parts = jnp.asarray(offsets.reshape(-1, together, *[1] * (gaps.ndim - 1)), gaps.dtype)
    found = jnp.moveaxis(lax.scan(add, jnp.zeros_like(gaps), parts)[0], 0, -1)
    return found / jnp.sum(found, axis=-1, keepdims=True)


def winner_density(offset: Array, gaps: Array, legal: Array) -> Array:
    """Joint density (option, ...) of each option's being chosen and of its utility, relative to the largest mean.

    Parameters
    ----------
    offset : utility of the chosen option, relative to the largest mean.
    gaps : (option, ...), the largest mean less each mean.
    legal : (option, ...) booleans.
    """
    at = offset + gaps
    size = jnp.abs(at)
    density = jnp.exp(-0.5 * at**2 - _LOG_ROOT_TWO_PI)
    steep = size + _excess(size)  # without logarithms: half the time, and an absolute error of rounding
    beyond = density / steep
    cdf = jnp.where(legal, jnp.where(at < 0, beyond, 1 - beyond), 1)
    rate = jnp.where(at < 0, steep, density / (1 - beyond))
    return jnp.where(legal, functools.reduce(jnp.multiply, cdf) * rate, 0)


def winner_mode(gaps: Array, others: Array) -> tuple[Array, Array]:
    r"""Mode (...) of :math:`\phi(x) \prod_j \Phi(x + d_j)`, and minus the second derivative of its log there.

    By Newton's method from zero, where the first derivative is not negative; as it is convex and decreasing, no step
    overshoots. Gaps and others (option, ...) are those of `log_probability`.
    """

    def of_options(x, gaps, others):
        at = jnp.where(others, x + gaps, 0)
        rate = jnp.where(others, hazard(at), 0)
        return rate, rate * above_hazard(at, rate)

    def slopes(x):
        if len(gaps) > WRITTEN_OUT:
            rate, curvature = map(total, of_options(x, gaps, others))
        else:  # one kernel of XLA
            each = [of_options(x, *one) for one in zip(gaps, others, strict=True)]
            rate, curvature = (sum(terms) for terms in zip(*each, strict=True))
        return rate - x, 1 + curvature

    def step(_, x):
        slope, curvature = slopes(x)
        return x + slope / curvature

    x = lax.fori_loop(0, NEWTON_STEPS[gaps.dtype], step, jnp.zeros(gaps.shape[1:], gaps.dtype))
    return x, slopes(x)[1]


def total(x: Any) -> Array:
    """Sum over the first axis."""
    return sum(x[1:], x[0]) if len(x) <= UNROLL_AT_MOST else jnp.sum(x, axis=0)


@jax.custom_jvp
def log_ndtr_and_hazard(x: Array) -> tuple[Array, Array]:
    r"""Logs of :math:`\Phi(x)`, and hazards :math:`\phi(x) / \Phi(x)`, exact to rounding."""
    size = jnp.abs(x)
    steep = size + _excess(size)  # the hazard of -|x|
    density = jnp.exp(-0.5 * x**2 - _LOG_ROOT_TWO_PI)
    beyond = density / steep  # 1 - Phi(|x|)
    near = 1 - beyond
    logs = jnp.log(jnp.where(x < 0, steep, near))
    # Above zero log1p(-beyond), from the logarithm of what 1 - beyond is rounded to.
    above = jnp.where(near < 1, logs * (beyond / jnp.where(near < 1, 1 - near, 1)), -beyond)
    log_probability = jnp.where(x < 0, -0.5 * x**2 - _LOG_ROOT_TWO_PI - logs, above)
    return log_probability, jnp.where(x < 0, steep, density / near)


@log_ndtr_and_hazard.defjvp
def _log_ndtr_and_hazard_jvp(primals, tangents):
    log_ndtr, rate = log_ndtr_and_hazard(*primals)
    step = rate * tangents[0]
    return (log_ndtr, rate), (step, -above_hazard(primals[0], rate) * step)


def log_ndtr(x: Array) -> Array:
    r"""Log of :math:`\Phi(x)`; that of jax has an error of 1e-9 below -20."""
    return log_ndtr_and_hazard(x)[0]


def hazard(x: Array) -> Array:
    r"""Hazard :math:`h(x) = \phi(x) / \Phi(x)`."""
    return log_ndtr_and_hazard(x)[1]


def above_hazard(x: Array, rate: Array) -> Array:
    """The sum x + h(x) given h(x), without cancellation in the tail."""
    return jnp.where(x < 0, _excess(jnp.abs(x)), x + rate)


def _excess(size: Array) -> Array:
    r"""The difference h(-a) - a at :math:`a \ge 0`, by a series in (a - c) / (a + c) of its product with a + c."""
    share = 1 / (size + _CENTRE)
    y, series = (size - _CENTRE) * share, jnp.zeros((), size.dtype)
    for coefficient in _excess_series(_TERMS[size.dtype]):
        series = series * y + coefficient
    return series * share


@functools.cache
def _excess_series(degree: int) -> tuple[float, ...]:
    """Coefficients of `_excess`, the highest power first: of the Chebyshev interpolant."""

    def product(y):
        size = _CENTRE * (1 + y) / (1 - y)
        tail = size  # the continued fraction of Mills' ratio, which converges where a is large
        for term in range(300, 1, -1):
            tail = size + term / tail
        small = np.minimum(size, 2)
        near = math.sqrt(2 / math.pi) / erfcx(small * _ROOT_HALF) - small
        return (size + _CENTRE) * np.where(size < 2, near, 1 / tail)

    series = Chebyshev.interpolate(product, degree).convert(kind=Polynomial)
    return tuple(map(float, series.coef[::-1]))
