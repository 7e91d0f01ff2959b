"""Bounds of agent Markov models against enumeration and across truncations."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from scipy.special import digamma, gammaln, logsumexp

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.intents import AgentMarkov
from ethogram.models.intents.updates import prior_given

S, A, GAMMA = 2, 2, 2.5
STATES, ACTIONS = [0, 1, 1, 0, 1, 0], [0, 1, 1, 1, 0, 0]
DATA = Trajectories.from_list(states=[STATES], actions=[ACTIONS])


def model_of(truncation, **settings):
    return AgentMarkov(S, A, truncation, gamma=GAMMA, **{"stickiness": None, **settings}).bind(DATA)


@jax.jit
def ascended(model, blocks, batch):
    """Blocks after 60 steps of coordinate ascent, and their bound."""

    def value(expected):
        return model.log_normalizer(expected, batch)

    def sweep(blocks, _):
        return model.update(blocks, None, jax.grad(value)(expected_statistics(blocks)), 1.0, 1.0), None

    blocks, _ = jax.lax.scan(sweep, blocks, length=60)
    return blocks, bound(model, blocks, batch)


@jax.jit
def bound(model, blocks, batch):
    return model.log_normalizer(expected_statistics(blocks), batch) - model.divergence(blocks)


def started(model):
    """The prior, with policies that differ by intent."""
    blocks = model.prior()
    policy = blocks["policy"]
    tilt = np.random.default_rng(0).gamma(1.0, size=policy.natural.concentration.shape)
    natural = policy.natural._replace(concentration=np.asarray(policy.natural.concentration) + tilt)
    return {**blocks, "policy": dataclasses.replace(policy, natural=natural)}


def test_the_bound_reaches_the_evidence_without_latent_paths(trace_oracle):
    """Log p(data | beta), rows integrated exactly: with one intent q is exact, and every term counts."""
    rho, known = np.array([[0.5, 2.0], [3.0, 0.2]]), np.array([0.8, 0.2])
    model = model_of(1, beta_prior="fixed", rho=rho, weights=known)
    blocks, value = ascended(model, started(model), model.arrange(DATA))
    np.testing.assert_allclose(blocks["weights"].mean(), known)
    trace = trace_oracle.Trace(STATES, ACTIONS, [-1] * 5)
    np.testing.assert_allclose(value, trace_oracle.log_marginal([trace], 3.0, known, rho, S, A), rtol=1e-10)


def tilted(model):
    """The prior with more counts in every row, other than the weights' own."""
    spread = np.random.default_rng(1)

    def more(block):
        natural = jax.tree.map(lambda x: np.asarray(x) + spread.gamma(2.0, size=x.shape), block.natural)
        return dataclasses.replace(block, natural=natural)

    return {name: block if name == "weights" else more(block) for name, block in model.prior().items()}


@pytest.mark.slow
def test_an_unused_intent_leaves_the_bound_where_it_is():
    """Two intents among six, the others without counts and at their prior: the limit of small weights."""
    small, model, more, tiny = model_of(2), model_of(6), 4, 1e-9
    before, blocks = small.prior(), tilted(small)
    for name in ("initial", "transition"):  # none of the counts are of the rest
        mine, theirs = (x[name].natural.concentration for x in (blocks, before))
        mine[..., 2] = np.asarray(theirs)[..., 2]
    first = np.asarray(blocks["weights"].natural)
    weights = np.concatenate([first[:2], np.full(more, tiny), [first[2] - more * tiny]])
    point = dataclasses.replace(model.prior()["weights"], natural=weights)
    prior = prior_given(model, point)
    padding = {"initial": [(0, more)], "transition": [(0, 0), (0, more), (0, more)]}
    padding["policy"] = [(0, more), (0, 0), (0, 0)]
    q = {"weights": point}
    for name, around in padding.items():
        mine, theirs, rows = (np.asarray(x[name].natural.concentration) for x in (blocks, before, prior))
        natural = prior[name].natural._replace(concentration=rows + np.pad(mine - theirs, around))
        q[name] = dataclasses.replace(prior[name], natural=natural)
    value = bound(small, blocks, small.arrange(DATA))
    np.testing.assert_allclose(bound(model, q, model.arrange(DATA)), value, atol=1e-6)


def log_dirichlet(points, concentration):
    """Log densities (draw, row) of rows (draw, row, category)."""
    constant = gammaln(concentration.sum(-1)) - gammaln(concentration).sum(-1)
    return constant + ((concentration - 1) * np.log(points)).sum(-1)


def test_the_bound_is_the_mean_of_its_definition():
    """E_q[ln p(data, path, rows, beta) - ln q]: paths enumerated, 20 000 draws of the rows; error rate 1e-5."""
    model = model_of(2)
    blocks = tilted(model)
    value = bound(model, blocks, model.arrange(DATA))
    rows, random, prior = (
        model.rows_carried(),
        np.random.default_rng(0),
        prior_given(model, blocks["weights"]),
    )
    drawn, gap, logs = {}, np.zeros(20_000), {}
    for name in ("initial", "transition", "policy"):
        own, before = (np.asarray(one[name].natural.concentration) for one in (blocks, prior))
        if name == "transition":
            own, before = own[: len(rows.pairs)], before[: len(rows.pairs)]
        gammas = random.gamma(own, size=(len(gap), *own.shape))
        drawn[name] = gammas / gammas.sum(-1, keepdims=True)
        both = (log_dirichlet(drawn[name], one).reshape(len(gap), -1).sum(-1) for one in (before, own))
        gap += next(both) - next(both)
        logs[name] = digamma(own) - digamma(own.sum(-1, keepdims=True))
    place = {state: number for number, state in enumerate(np.asarray(rows.states).tolist())}

    def log_joint(tables, path):
        total = tables["initial"][..., path[0]]
        for t, (state, action) in enumerate(zip(STATES, ACTIONS, strict=True)):
            total = total + tables["policy"][..., path[t], place[state], action]
            if t + 1 < len(path):
                total = total + tables["transition"][..., rows.row_of[state, action], path[t], path[t + 1]]
        return total

    paths = list(itertools.product(range(2), repeat=len(STATES)))
    weight = np.array([log_joint(logs, path) for path in paths])
    weight -= logsumexp(weight)
    log_drawn = {name: np.log(table) for name, table in drawn.items()}
    for path, log_q in zip(paths, weight, strict=True):
        gap += np.exp(log_q) * (log_joint(log_drawn, path) - log_q)
    gap += (GAMMA - 1) * np.log(np.asarray(blocks["weights"].mean())[-1])
    assert abs(gap.mean() - float(value)) < 4.5 * gap.std() / np.sqrt(len(gap))


@pytest.mark.slow
def test_single_steps_and_traces_without_actions_have_their_probabilities():
    """Of one step: sum over intents; without actions: one. A second data set of another size is as good."""
    model = AgentMarkov(S, A, 2, stickiness=None).bind(DATA)
    random = np.random.default_rng(0)
    parameters = {
        name: random.dirichlet(
            np.ones(block.natural.concentration.shape[-1]), block.natural.concentration.shape[:-1]
        )
        for name, block in model.prior().items()
        if name != "weights"
    }
    parameters |= {"weights": np.array([0.5, 0.3, 0.2])}
    first = parameters["policy"][:, list(np.asarray(model.rows_carried().states)).index(1), 0]
    one = parameters["initial"][:2] @ first + parameters["initial"][2] / A  # the rest is at its prior mean
    small = Trajectories.from_list(states=[[1]], actions=[[0]])
    large = Trajectories.from_list(states=[[1], [0, 1, 1], [0]], actions=[[0], [-1, -1, -1], [-1]])
    score = jax.jit(lambda data: model.likelihood(parameters, data).log_prob(model.entries(data).value))
    for data, expected in ((small, [one]), (large, [one, 1, 1])):
        np.testing.assert_allclose(np.exp(score(data)), expected, rtol=1e-10)
