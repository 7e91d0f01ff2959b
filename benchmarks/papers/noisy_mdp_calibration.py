"""Part of `noisy_mdp_truth`, which prints its rows: simulation-based calibration of PX-DA.

Ranks of true values among posterior draws, with vectorised replications. Values are drawn from their prior and
choices from the model; where the sampler is right, the rank of a true value among 99 draws is uniform. Talts,
Betancourt, Simpson, Vehtari and Gelman (2018), "Validating Bayesian inference algorithms with simulation-based
calibration". The log likelihood is among the statistics, which makes them depend on the data: Modrák et al. (2023).
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.infer import NUTS, Gibbs
from scipy import stats

from benchmarks.papers.noisy_mdp_reference import autocovariances, integrated_time, log_posterior
from benchmarks.papers.noisy_mdp_variants import VariantPXDA
from ethogram.inference.choices.gibbs_sweep import MOVES, probit_problem, with_prior
from ethogram.inference.choices.px_da import PXDA, PXDAState
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

__all__ = ["Ranks", "begin_gibbs", "begin_ranks", "rows_of_ranks", "world"]

DRAWS = 99
WARMUP = 3
"""Times 99 sweeps, before the pilot."""

NAMES = ("v 1", "v 2", "|v|^2", "log likelihood", "log kappa")
KAPPA_PRIOR = (3.0, 8.0)
"""Shape and rate of an inverse gamma prior with mean 4."""

LEVEL = 0.01


class Ranks(NamedTuple):
    """Chains at their start, one a replication, and the truth (replication, statistic) of each."""

    kind: str
    variant: str
    kernel: Any
    states: Any
    data: Decisions
    choices: np.ndarray
    truth: np.ndarray


def world(num_states: int, num_decisions: int, seed: int) -> Decisions:
    """Probabilities of next states, two or three options per decision; without choices."""
    random = np.random.default_rng(seed)
    rows = random.dirichlet(np.full(num_states, 0.5), (num_decisions, 3))
    legal = np.ones((num_decisions, 3), bool)
    legal[::3, 2] = False
    return Decisions(np.where(legal[..., None], rows, 0), legal, np.full(num_decisions, -1))


def begin_ranks(moves: str, kappa: float, replications: int, seed: int) -> Ranks:
    """A calibration of PX-DA, by moves of its own or of its variants, at a known variance."""
    kernel = (PXDA if moves in MOVES else VariantPXDA)(NoisyMDP(kappa), moves)
    return _begin("sbc", moves, kernel, np.full(replications, kappa), {}, seed)


def begin_gibbs(replications: int, seed: int) -> Ranks:
    """A calibration of PX-DA for the values and NUTS for their variance, in numpyro's Gibbs."""
    shape, rate = KAPPA_PRIOR
    model = NoisyMDP(dist.InverseGamma(shape, rate))
    kernel = Gibbs([(PXDA(model), ["theta"]), (NUTS(model), ["kappa"])])
    kappa = rate / np.random.default_rng(seed + 1).gamma(shape, size=replications)
    return _begin("sbc gibbs", "local+scale, NUTS on kappa", kernel, kappa, {"kappa": np.log(kappa)}, seed)


def _begin(kind: str, variant: str, kernel: Any, kappa: np.ndarray, known: dict, seed: int) -> Ranks:
    random = np.random.default_rng(seed)
    data = world(4, 10, seed + 2)
    design = NoisyMDP().design(data)
    theta = np.sqrt(kappa)[:, None] * random.standard_normal((len(kappa), design.shape[-1]))
    noisy = np.einsum("top,rp->rto", design, theta)
    noisy = np.where(data.legal, noisy + random.standard_normal(noisy.shape), -np.inf)
    choices = noisy.argmax(-1)
    keys = jax.random.split(jax.random.key(seed), len(kappa))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of choices that do not overlap: this prior is proper
        if isinstance(kernel, PXDA):
            states = _side_by_side(kernel, keys, data, choices)
        else:
            each = [
                kernel.init(key, WARMUP * DRAWS, None, (data._replace(choice=choice),), {})
                for key, choice in zip(keys, choices, strict=True)
            ]
            states = jax.tree.map(_stacked, *each)
    truth = _all_statistics({"theta": theta} | known, choices, data)
    return Ranks(kind, variant, kernel, states, data, choices, np.asarray(truth))


def _side_by_side(kernel: PXDA, keys: Array, data: Decisions, choices: np.ndarray) -> PXDAState:
    """States of all replications, from that of the first: choices only affect the order of options."""
    first = kernel.init(keys[0], 0, None, (data._replace(choice=choices[0]),), {})
    design, move = np.asarray(kernel.model.design(data)), kernel.move
    each = [probit_problem(design, data.legal, choice, move) for choice in choices]
    problems = jax.tree.map(_stacked, *each)
    precision = jnp.broadcast_to(first.problem.precision, problems.precision.shape)
    problems = jax.vmap(with_prior)(problems, precision)
    start = jnp.where(jnp.arange(data.legal.shape[1]) == 0, 1.0, -1.0)[:, None, None]
    several = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (len(choices), *jnp.shape(x))), first._replace(rng_key=0)
    )
    return several._replace(rng_key=keys, problem=problems, latents=jnp.where(problems.legal, start, 0))


def _stacked(*leaves: Array) -> Array:
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(np.stack([jax.random.key_data(leaf) for leaf in leaves]))
    return jnp.asarray(np.stack(leaves))


def _statistics(z: dict[str, Array], choice: Array, data: Decisions) -> Array:
    """Two values, their squared length, the log likelihood, and log kappa where it is unknown."""
    model = NoisyMDP()
    values = model.parts(z["theta"], data)["v"]
    log_density = log_posterior(z["theta"], model.design(data), data.legal, choice, jnp.inf)
    found = jnp.stack([values[0], values[1], jnp.sum(values**2), log_density])
    return jnp.append(found, z["kappa"]) if "kappa" in z else found


_all_statistics = jax.jit(jax.vmap(_statistics, in_axes=(0, 0, None)))


@functools.partial(jax.jit, static_argnames="kernel")
def _draw(kernel: Any, states: Any, choices: Array, data: Decisions, thin: Array) -> tuple[Any, Array]:
    """States after 99 draws of every replication, and statistics (replication, draw, statistic) of them."""

    def replication(state, choice):
        chosen = data._replace(choice=choice)

        def draw(state, _):
            state = jax.lax.fori_loop(0, thin, lambda _, state: kernel.sample(state, (chosen,), {}), state)
            return state, _statistics(state.z, choice, data)

        return jax.lax.scan(draw, state, length=DRAWS)

    return jax.vmap(replication)(states, choices)


def rows_of_ranks(ranks: Ranks, bins: int, pilot: int) -> list[dict[str, Any]]:
    """A row a statistic: whether the ranks fill the bins evenly.

    Draws are thinned by twice the time that 19 of 20 replications stay below, of the slowest statistic, as a pilot of
    so many times 99 sweeps has it.
    """
    draw = functools.partial(_draw, ranks.kernel, choices=ranks.choices, data=ranks.data)
    states, _ = draw(ranks.states, thin=WARMUP)
    several = []
    for _ in range(pilot):
        states, drawn = draw(states, thin=1)
        several.append(np.asarray(drawn))
    whole = np.concatenate(several, axis=1)
    times = []
    for column in np.moveaxis(whole - whole.mean(1, keepdims=True), -1, 0):
        each = [integrated_time(products)[0] for products in autocovariances(column)]
        times.append(np.quantile(each, 0.95))
    thin = math.ceil(2 * max(times))
    drawn = np.asarray(draw(states, thin=thin)[1])
    rows = []
    for place, (name, time) in enumerate(zip(NAMES, times, strict=False)):
        rank = (drawn[..., place] < ranks.truth[:, None, place]).sum(1)
        counts = np.bincount(rank * bins // (DRAWS + 1), minlength=bins)
        p = float(stats.chisquare(counts).pvalue)
        row = {"kind": ranks.kind, "variant": ranks.variant, "statistic": name, "replications": len(rank)}
        adjusted = min(1.0, p * len(times))
        row |= {"iact": float(time), "thinning": thin, "p": p, "p_adjusted": adjusted}
        rows.append(row | {"reached": adjusted > LEVEL})
    return rows
