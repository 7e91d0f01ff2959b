"""GP-IRL against quadrature on five small MDPs: the best Gaussian, and posterior moments by NUTS.

The evidence is an integral over the rewards of three or four states, and over two more dimensions where the scale and
the relevance of the three-state MDP have priors.

"bound": the ELBO of the natural-gradient fit by quadrature, beside the largest one that L-BFGS finds; with inducing
points at all states the noise of the kernel keeps its prior, at a small cost. No ELBO is above the evidence.
"posterior": means and standard deviations of centred rewards and mean probabilities of actions, of four chains by NUTS
against quadrature; `off` is the largest deviation, in Monte Carlo standard errors.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from numpyro.infer import MCMC, NUTS
from scipy import stats
from scipy.optimize import minimize

from benchmarks import report
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.models.mdps.mdp import MDP
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = ["measure"]

GAP, OFF, RHAT, DIVERGENT = 1e-3, 4.0, 1.01, 0.01
KNOWN = {"evidence": -1.3577403816, "bound": -1.3686171707, "evidence, free": -1.3445577}
"""Of the three-state world, worked out elsewhere by quadrature; the bound is through inducing points."""

LARGER = 1.2
"""Nodes are laid about Laplace's approximation, with standard deviations so much larger: tails are heavier."""


class Case(NamedTuple):
    """A small world with demonstrations.

    Attributes
    ----------
    table : (state, action, next state), and its discount.
    counts : (state, action).
    scale, relevance : of the prior, a number and (feature,).
    """

    name: str
    table: np.ndarray
    discount: float
    features: np.ndarray
    counts: np.ndarray
    scale: float
    relevance: np.ndarray

    def model(self, **settings: Any) -> GPIRL:
        """With known hyper-parameters, by default."""
        known = {"scale_prior": self.scale, "relevance_prior": self.relevance}
        return GPIRL(MDP.dense(self.table, discount=self.discount), self.features, **known | settings)


def cases() -> list[Case]:
    """The three-state world with a demonstration of either kind, and four worlds that are drawn."""
    table = np.eye(3)[[[1, 2], [0, 2], [0, 1]]]  # of small_mdps.three_state
    counts, features = np.array([[1, 0], [0, 0], [0, 1]]), np.array([[1.0], [2.0], [3.0]])
    found = [Case("three states", table, 0.9, features, counts, 5.0, np.ones(1))]
    sizes = ((3, 2, 0.5, 2.0, 6), (4, 2, 0.9, 5.0, 4), (3, 3, 0.97, 1.0, 8), (4, 3, 0.8, 10.0, 5))
    for number, (states, actions, discount, scale, most) in enumerate(sizes):
        random = np.random.default_rng(number)
        table = random.dirichlet(np.full(states, 0.5), (states, actions))
        features, counts = random.normal(size=(states, 2)), random.integers(0, most, (states, actions))
        name = f"{states} states, {actions} actions, discount {discount:g}"
        found.append(Case(name, table, discount, features, counts, scale, np.array([0.5, 2.0])))
    return found


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of bounds and of posteriors, in double precision."""
    quick, rows = settings.quick, []
    with jax.enable_x64(True):
        for case in cases()[: 2 if quick else 5]:
            exact = posterior(case, 20 if len(case.counts) > 3 else 40)
            rows += [row_of_bound(case, family, exact, settings.seed) for family in ("direct", "inducing")]
            rows.append(row_of_nuts(case, case.model(), exact, quick, settings.seed))
        case = cases()[0]._replace(name="three states, free")
        priors = {"scale_prior": dist.LogNormal(np.log(5), 1.0), "relevance_prior": dist.LogNormal(0.0, 1.0)}
        exact = posterior_with_priors(case, *((8, 10) if quick else (16, 16)))
        return [*rows, row_of_nuts(case, case.model(**priors), exact, quick, settings.seed)]


@functools.cache
def nodes(count: int, axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and weights of a Gauss-Hermite sum over standard normal variables."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = np.array(list(itertools.product(x, repeat=axes)))
    return grid, np.array(list(itertools.product(w / w.sum(), repeat=axes))).prod(1)


def kernel(features: np.ndarray, scale: Any, relevance: Any, noise: float = 0.005) -> np.ndarray:
    """Prior covariance of rewards, entry by entry as printed."""
    squares = (relevance * (features[:, None] - features) ** 2).sum(-1)
    table = scale * np.exp(-0.5 * squares - noise * np.sum(relevance))
    return np.where(np.eye(len(features)), scale, table)


def log_policies(case: Case, rewards: np.ndarray) -> np.ndarray:
    """Log policies (node, state, action) of rewards (node, state), by sweeps of soft value iteration."""
    values = np.zeros_like(rewards)
    for _ in range(int(np.ceil(np.log(1e-13) / np.log(case.discount)))):
        ahead = rewards[..., None] + case.discount * np.einsum("san,dn->dsa", case.table, values)
        values = np.logaddexp.reduce(ahead, -1)
    return ahead - values[..., None]


class Exact(NamedTuple):
    """Sums over nodes.

    Attributes
    ----------
    moments : means and standard deviations of centred rewards, then mean chances of the first action.
    variance : of the first reward itself.
    """

    evidence: float
    moments: np.ndarray
    variance: float


def summed(case: Case, rewards: np.ndarray, log_weights: np.ndarray) -> Exact:
    """Evidence and moments where nodes (node, state) weigh what they do before the data are seen."""
    log_policy = log_policies(case, rewards)
    mass = np.exp(log_weights + (log_policy * case.counts).sum((1, 2)))
    evidence, share = float(np.log(mass.sum())), mass / mass.sum()
    centred = rewards - rewards.mean(1, keepdims=True)
    mean = share @ centred
    sd = np.sqrt(share @ (centred - mean) ** 2)
    first = rewards[:, 0]
    variance = float(share @ (first - share @ first) ** 2)
    return Exact(evidence, np.concatenate([mean, sd, share @ np.exp(log_policy[:, :, 0])]), variance)


def posterior(case: Case, count: int) -> Exact:
    """At known hyper-parameters, nodes laid about Laplace's approximation."""
    fit = fit_reward(jax.random.key(0), case.model(), case.counts, "laplace", progress_bar=False)
    covariance = kernel(case.features, case.scale, case.relevance)
    low = np.linalg.cholesky(covariance)
    grid, weights = nodes(count, len(low))
    rewards = low @ fit.posterior.mean + grid @ (LARGER * low @ fit.posterior.root).T
    drawn = stats.multivariate_normal(np.zeros(len(low)), covariance).logpdf(rewards)
    laid = stats.norm.logpdf(grid).sum(1) - np.linalg.slogdet(LARGER * low @ fit.posterior.root)[1]
    return summed(case, rewards, drawn - laid + np.log(weights))


def posterior_with_priors(case: Case, outer: int, inner: int) -> Exact:
    """With log-normal priors of scale and relevance: nodes of the prior, of them and of rewards given them."""
    middle = np.array([5.0, 1.0])  # medians
    places, chances = nodes(outer, 2)
    grid, weights = nodes(inner, len(case.counts))
    lows = [np.linalg.cholesky(kernel(case.features, *hyper)) for hyper in np.exp(places + np.log(middle))]
    rewards = np.concatenate([grid @ low.T for low in lows])
    return summed(case, rewards, np.log(np.outer(chances, weights).ravel()))


def row_of_bound(case: Case, family: str, exact: Exact, seed: int) -> dict[str, Any]:
    """What natural gradients find in a family, and what there is to find."""
    states = len(case.counts)
    settings = {} if family == "direct" else {"inducing": np.arange(states)}
    model = case.model(family=family, **settings)
    mapping = model.reward_map(case.scale, jnp.asarray(case.relevance))
    rest = 0.0 if mapping.noise is None else mapping.noise @ mapping.noise.T
    counts, lower = jnp.asarray(case.counts), np.tril_indices(states)

    def rewards(mean, root, grid):
        spread = mapping.weights @ root @ root.T @ mapping.weights.T + rest
        return mapping.weights @ mean + grid @ jnp.linalg.cholesky(spread).T

    def divergence(mean, root):
        half = 0.5 * (jnp.sum(root**2) + jnp.sum(mean**2) - states)
        return half - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root))))

    def split(flat):
        return flat[:states], jnp.zeros((states, states)).at[lower].set(flat[states:])

    places, chances = (jnp.asarray(x) for x in nodes(20 if states < 4 else 10, states))

    @jax.jit
    def negative(flat):
        mean, root = split(flat)
        log_likelihoods = model.count_log_likelihood(rewards(mean, root, places), counts, jnp.ones(()))
        return divergence(mean, root) - chances @ log_likelihoods

    def judged(mean, root):
        grid, weights = nodes(34 if states < 4 else 16, states)
        policy = log_policies(case, np.asarray(rewards(jnp.asarray(mean), jnp.asarray(root), grid)))
        return float(weights @ (policy * case.counts).sum((1, 2)) - divergence(mean, root))

    fit = fit_reward(
        jax.random.key(seed), model, case.counts, hyper="variational", num_draws=512, num_evaluations=512, tol=1e-3,
        progress_bar=False,
    )  # fmt: skip
    start = np.concatenate([fit.posterior.mean, fit.posterior.root[lower]])
    both = jax.jit(jax.value_and_grad(negative))
    best = minimize(lambda x: tuple(np.asarray(y) for y in both(x)), start, jac=True, method="L-BFGS-B")
    highest = judged(*(np.asarray(x) for x in split(jnp.asarray(best.x))))
    found = judged(fit.posterior.mean, fit.posterior.root)
    row = {"kind": "bound", "case": case.name, "family": family, "evidence": exact.evidence, "bound": found}
    row |= {"best_gaussian": highest, "gap": highest - found, "target": GAP, "steps": fit.steps}
    reached, correct = highest - found <= GAP, max(found, highest) <= exact.evidence + 1e-6
    if case.name == "three states":
        row |= {"known_evidence": KNOWN["evidence"]}
        correct &= abs(exact.evidence - KNOWN["evidence"]) < 1e-6
        if family == "inducing":
            row |= {"known_bound": KNOWN["bound"]}
            reached &= abs(found - KNOWN["bound"]) <= GAP
    return row | {"reached": bool(reached), "correct": bool(correct)}


def row_of_nuts(case: Case, model: GPIRL, exact: Exact, quick: bool, seed: int) -> dict[str, Any]:
    """Moments of four chains against those of the sum."""
    warmup, draws = (300, 300) if quick else (1000, 2000)
    kernel = NUTS(model, target_accept_prob=0.9)
    mcmc = MCMC(kernel, num_warmup=warmup, num_samples=draws, num_chains=4, chain_method="vectorized",
                progress_bar=False)  # fmt: skip
    mcmc.run(jax.random.key(seed), case.counts, extra_fields=("diverging",))
    found = {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}
    diverging = float(np.mean(mcmc.get_extra_fields()["diverging"]))
    rewards, states = found["centred_reward"], len(case.counts)
    mean, sd = exact.moments[:states], exact.moments[states : 2 * states]
    # A standard deviation by its square, about the mean that is known: its error is that of a mean.
    columns = np.concatenate([rewards, (rewards - mean) ** 2, found["policy"][..., 0]], -1)
    wanted = np.concatenate([mean, sd**2, exact.moments[2 * states :]])
    error = columns.std((0, 1)) / np.sqrt(effective_sample_size(columns))
    off = float(np.max(np.abs(columns.mean((0, 1)) - wanted) / error))
    rhat = float(np.max(gelman_rubin(rewards)))
    row = {"kind": "posterior", "case": case.name, "evidence": exact.evidence, "off": off, "target": OFF}
    row |= {"numbers": len(wanted), "rhat": rhat, "divergent": diverging}
    reached = off < OFF and (quick or (rhat < RHAT and diverging < DIVERGENT))
    if case.name.endswith("free"):
        row |= {"known_evidence": KNOWN["evidence, free"]}
        reached &= abs(exact.evidence - KNOWN["evidence, free"]) < (0.02 if quick else 2e-3)
    return row | {"reached": bool(reached)}


if __name__ == "__main__":
    raise SystemExit(report.run("gp_irl_truth", __doc__, measure))
