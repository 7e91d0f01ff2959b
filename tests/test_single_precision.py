"""Every system in single precision, which is what users get by default, near the same numbers in double precision.

The rest of the suite runs in double precision.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC
from scipy.special import ndtr

from ethogram.inference.choices.px_da import PXDA
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.networks import ags
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.models.chains.markov_chain import log_normalizer, marginals
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.intents.agent_markov import AgentMarkov
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import soft_values
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.roles.role_hmm import RoleHMM

EPS = float(np.finfo(np.float32).eps)
IN_DOUBLE = {"role HMM": -402.179154, "agent Markov": -29.7839473, "GP-IRL": -2.54568152}
"""ELBO of three fits below, as found in double precision."""


@pytest.fixture(autouse=True)
def single():
    """Single precision, whatever the suite runs in."""
    with jax.enable_x64(False):
        yield


def in_double(function):
    """What a function of no arguments gives in double precision."""
    with jax.enable_x64(True):
        return function()


def types(tree):
    """Types of the floats of a tree of JAX arrays."""
    return {
        x.dtype
        for x in jax.tree.leaves(tree)
        if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
    }


def forward_backward(log_initial, log_transition, log_likelihood):
    """Log normaliser and state marginals in float64 NumPy, step by step."""
    alpha, beta = [log_initial + log_likelihood[0]], [np.zeros(len(log_initial))]
    for row in log_likelihood[1:]:
        alpha.append(np.logaddexp.reduce(alpha[-1][:, None] + log_transition, 0) + row)
    for row in log_likelihood[:0:-1]:
        beta.append(np.logaddexp.reduce(log_transition + row + beta[-1], 1))
    total = np.logaddexp.reduce(alpha[-1])
    return total, np.exp(np.array(alpha) + np.array(beta[::-1]) - total)


def test_a_long_chain():
    random = np.random.default_rng(0)
    num_steps, num_states = 5000, 3
    log_initial = np.log(random.dirichlet(np.ones(num_states)))
    log_transition = np.log(random.dirichlet(np.ones(num_states), num_states))
    log_likelihood = 4 * random.normal(size=(num_steps, num_states)) - 50
    given = [np.float32(x) for x in (log_initial, log_transition, log_likelihood)]
    total, state = forward_backward(*(np.asarray(x, np.float64) for x in given))
    value, slope = jax.jit(jax.value_and_grad(log_normalizer, 2))(*given)
    found = jax.jit(marginals)(*given)
    assert types((value, slope, found)) == {jnp.dtype(np.float32)}
    assert float(value) == pytest.approx(total, rel=10 * EPS)
    np.testing.assert_allclose(found.state, state, atol=2e-5)
    np.testing.assert_allclose(slope, state, atol=2e-5)


def two_roles():
    """Two groups of two agents, whose roles lie far apart, and far from zero for single precision."""
    random = np.random.default_rng(1)
    role = np.repeat([[0, 1, 1, 0, 1, 0]], 5, 1) ^ np.arange(4)[:, None] % 2
    place = 100 + 6 * role[..., None] + random.normal(size=(*role.shape, 2))
    place[0, 3] = np.nan
    return Trajectories.from_list(list(place.astype(np.float32)), missing="nan", group=[0, 0, 1, 1])


@pytest.mark.slow
def test_role_hmm_by_coordinate_ascent():
    data = two_roles()
    model = RoleHMM(2, GaussianEmission(2, mean=np.full(2, 100.0)))
    fit = ConjugateSVI(model).run(
        jax.random.key(0), data, 40, restarts=2, init="segments", tol=1e-6, progress_bar=False
    )
    assert types(fit.posterior.blocks) == {jnp.dtype(np.float32)}
    assert np.isfinite(fit.restart_traces).all()
    assert fit.elbo[-1] == pytest.approx(IN_DOUBLE["role HMM"], rel=1e-5)


@pytest.mark.slow
def test_agent_markov_by_coordinate_ascent():
    cells, goals = 4, np.repeat([[0, 1], [1, 0], [0, 1], [1, 1]], 6, 1)
    states, actions = np.zeros((2, *goals.shape), int)
    for trace, goal in enumerate(goals):
        for t in range(goals.shape[1]):
            actions[trace, t] = goal[t]
            if t + 1 < goals.shape[1]:
                states[trace, t + 1] = np.clip(states[trace, t] + 2 * goal[t] - 1, 0, cells - 1)
    data = Trajectories.from_list(states=list(states), actions=list(actions))

    model = AgentMarkov(cells, 2, truncation=3)
    fit = ConjugateSVI(model).run(jax.random.key(0), data, 60, restarts=4, progress_bar=False)
    assert types(fit.posterior.blocks) == {jnp.dtype(np.float32)}
    assert np.isfinite(fit.restart_traces).all()
    assert fit.elbo[-1] == pytest.approx(IN_DOUBLE["agent Markov"], rel=1e-5)


def probit_posterior(features, choice, variance):
    """Posterior means and deviations of two weights by quadrature, over them and over the chosen noise."""
    axis, noise = np.linspace(-3, 4, 71), np.linspace(-6, 6, 121)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    log_posterior = -0.5 * (points**2).sum(1) / variance
    for sets, chosen in zip(features, choice, strict=True):
        gaps = points @ (sets[chosen] - np.delete(sets, chosen, 0)).T
        within = ndtr(noise + gaps[..., None]).prod(1)
        log_posterior += np.log(within @ np.exp(-0.5 * noise**2))
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()
    mean = weight @ points
    return mean, np.sqrt(weight @ (points - mean) ** 2)


@pytest.mark.slow
def test_noisy_mdp_by_px_da():
    random = np.random.default_rng(0)
    features = random.normal(size=(60, 3, 2))
    choice = np.argmax(features @ [1.0, -0.7] + random.normal(size=(60, 3)), 1)
    data = Decisions.from_list(list(features.astype(np.float32)), choice)

    kernel = PXDA(NoisyMDP(4.0, "features"))
    mcmc = MCMC(
        kernel,
        num_warmup=50,
        num_samples=500,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), data)
    drawn = mcmc.get_samples()["theta"]
    assert types(drawn) == {jnp.dtype(np.float32)}
    mean, spread = probit_posterior(features, choice, variance=4.0)
    assert (np.abs(np.asarray(drawn).mean(0) - mean) < 0.2 * spread).all()
    np.testing.assert_allclose(np.asarray(drawn).std(0), spread, rtol=0.2)


CORRIDOR = [[0, 1], [0, 2], [1, 3], [2, 3]]


def test_soft_values():
    reward, discount = np.array([0.0, -1.0, 0.5, 2.0]), 0.95
    values = np.zeros(4)
    for _ in range(2000):
        values = np.logaddexp.reduce(reward[:, None] + discount * values[np.array(CORRIDOR)], axis=1)
    found = soft_values(MDP.deterministic(CORRIDOR, discount=discount), reward.astype(np.float32))
    assert types(found.values) == {jnp.dtype(np.float32)} and bool(found.converged)
    np.testing.assert_allclose(found.values, values, rtol=20 * EPS)


@pytest.mark.slow
def test_gp_irl():
    world = MDP.deterministic(CORRIDOR, discount=0.9)
    model = GPIRL(world, np.arange(4.0)[:, None], scale_prior=5.0, relevance_prior=1.0)
    fit = fit_reward(jax.random.key(0), model, np.full((4, 2), (0, 3)), progress_bar=False)
    assert bool(fit.converged)
    assert float(fit.elbo) == pytest.approx(IN_DOUBLE["GP-IRL"], rel=1e-4)


@pytest.mark.slow
def test_ascents_are_double_whatever_the_switch():
    random = np.random.default_rng(0)
    tables = (random.dirichlet(np.ones(2)), *random.dirichlet(np.ones(2), (4, 2)))
    query = MarginalMAP(BayesNet(tables, ((), (0,), (1,), (2,), (3,))), {4: 1}, [0, 2])

    def answers():
        return ags.ascend(jax.random.key(0), query, num_restarts=4, max_steps=20)

    single, double = answers(), in_double(answers)
    for one, other in zip(jax.tree.leaves(single), jax.tree.leaves(double), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_absorbing_states_and_a_discount_near_one():
    """Three states absorb; from another the better two are reached, whose values of 1e4 differ by a half.

    Rounding errors of their own values would be multiplied by 1e4. Values of 3e5 are said to be too large.
    """
    world = MDP.deterministic([[0, 0], [1, 1], [2, 2], [0, 1], [2, 3]], discount=0.9999)
    for size in (0.3, 30.0):
        reward = size * np.array([1.0, 1.0, 0.0, 0.0, 0.0]) + 5e-5 * np.eye(5)[1]
        found, exact = soft_values(world, reward), in_double(lambda reward=reward: soft_values(world, reward))
        assert bool(exact.converged) and bool(found.converged) == (size < 1)
        np.testing.assert_allclose(found.policy, exact.policy, atol=1e-3 if size < 1 else 1e-2)
