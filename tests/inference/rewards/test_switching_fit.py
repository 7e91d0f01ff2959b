"""Fits of several intents: the E-step and the ELBO against all paths in NumPy, recovery, checkpoints and scores."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln

import ethogram
from ethogram.fits import fit_object, methods
from ethogram.fits.fit_object import Fit
from ethogram.inference.export import to_arviz
from ethogram.inference.rewards import (
    fit_reward,
    fit_switching,
    heldout_policy_scores,
    heldout_reward_curve,
    infer_reward_intents,
    predictive_agent,
)
from ethogram.inference.rewards.switching_fit import chain_data, local_step
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.mdps.demonstrations import read_demonstrations
from ethogram.models.mdps.mdp import MDP
from ethogram.models.rewards import GPIRL, IntentChain, SwitchingGPIRL
from ethogram.models.rewards.switching import chain_prior

CORRIDOR = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
DATA = Trajectories.from_list(
    states=[[0, 1, 2, 2, 1], [2], [1, 0, 1]], actions=[[1, 1, -1, 0, 0], [0], [0, 1, -1]]
)
BASE = GPIRL(CORRIDOR, np.array([[0.0], [1.0], [2.0]]), scale_prior=5.0, relevance_prior=1.0)
MODEL = SwitchingGPIRL(BASE, 2, sticky=2.0)
SHORT = {
    "num_steps": 3, "num_draws": 2, "num_evaluations": 4, "num_restarts": 1, "progress_bar": False, "hyper": "fixed",
}  # fmt: skip


def paths_of(length):
    return itertools.product(range(2), repeat=int(length))


def log_sum(initial, transition, table, data=DATA):
    """Log of the summed weight of all paths, over sequences; parameters (..., intent, ...) may be draws."""
    total = 0.0
    for states, actions, length in zip(data.states, data.actions, data.lengths, strict=True):
        weights = []
        for path in paths_of(length):
            weight = initial[..., path[0]]
            for i, j in itertools.pairwise(path):
                weight = weight + transition[..., i, j]
            for intent, state, action in zip(path, states, actions, strict=False):
                weight = weight + (0.0 if action < 0 else table[..., intent, state, action])
            weights.append(weight)
        total = total + np.logaddexp.reduce(np.stack(weights), 0)
    return total


def fit(checkpoint=None, data=DATA, model=MODEL, **settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search has not converged")
        return fit_switching(jax.random.key(0), model, data, checkpoint=checkpoint, **(SHORT | settings))


@pytest.fixture(scope="module")
def short():
    return fit()


def test_the_e_step_is_the_gradient_over_all_paths():
    """Value, fractional counts and statistics of the chain, by differences of logs of sums in NumPy."""
    random = np.random.default_rng(0)
    table = np.log(random.uniform(0.1, 0.6, (2, 3, 2)))
    blocks = {
        "initial": Dirichlet.from_standard(np.array([1.5, 0.8])),
        "transition": Dirichlet.from_standard(np.array([[4.0, 1.0], [0.7, 3.0]])),
    }
    data = chain_data(read_demonstrations(CORRIDOR, DATA), 2)
    step = jax.tree.map(np.asarray, jax.jit(local_step)(table, blocks, data))
    logs = [
        np.asarray(blocks[name].expected_statistics().concentration) for name in ("initial", "transition")
    ]
    parts = [*logs, table]
    np.testing.assert_allclose(step.log_normalizer, log_sum(*parts), rtol=1e-12)
    found = [step.chain["initial"].concentration, step.chain["transition"].concentration, step.counts]
    for place, part in enumerate(parts):
        slope = np.empty(part.shape)
        for at in np.ndindex(part.shape):
            moved = [part.copy(), part.copy()]
            moved[0][at] += 1e-5
            moved[1][at] -= 1e-5
            up, down = (log_sum(*[*parts[:place], one, *parts[place + 1 :]]) for one in moved)
            slope[at] = (up - down) / 2e-5
        np.testing.assert_allclose(found[place], slope, atol=1e-8)
    assert np.sum(found[2]) == pytest.approx(7)  # known actions


def test_the_elbo_is_below_the_evidence(short):
    """The evidence by draws from the prior, with all paths summed in NumPy."""
    random, count = np.random.default_rng(1), 5_000
    initial = np.log(random.dirichlet([1.0, 1.0], count))
    transition = np.log(np.stack([random.dirichlet(row, count) for row in ([3.0, 1.0], [1.0, 3.0])], 1))
    apart = (BASE.features - np.asarray(BASE.features).T) ** 2
    low = np.linalg.cholesky(5 * np.exp(-0.5 * apart - 0.005 * (apart > 0)))
    reward, values = random.normal(size=(count, 2, 3)) @ low.T, np.zeros((count, 2, 3))
    for _ in range(100):
        ahead = reward[..., None] + 0.9 * values[..., CORRIDOR.transitions.next_state]
        values = np.logaddexp(ahead[..., 0], ahead[..., 1])
    policy = ahead - values[..., None]
    weights = np.exp(log_sum(initial, transition, policy))
    evidence, error = np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(len(weights))
    assert error < 0.04
    assert evidence - 4 < short.elbo < evidence + 3 * np.hypot(short.elbo_se, error)
    # The bound term by term: Dirichlet and Gaussian divergences as printed, and paths under expected logs.
    posterior, draws = short.posterior, short.posterior.sample(jax.random.key(2), 2000)
    rows, before = [], []
    for name in ("initial", "transition"):
        rows += list(np.atleast_2d(posterior.chain[name].natural.concentration))
        before += list(np.atleast_2d(chain_prior(MODEL)[name].natural.concentration))
    logs, divergence = [], 0.0
    for q, p in zip(rows, before, strict=True):
        logs.append(digamma(q) - digamma(q.sum()))
        divergence += gammaln(q.sum()) - gammaln(q).sum() - gammaln(p.sum()) + gammaln(p).sum()
        divergence += (q - p) @ logs[-1]
    mean, root = posterior.latent_mean[0], posterior.latent_root[0]
    divergence += 0.5 * ((root**2).sum() + (mean**2).sum() - mean.size)
    divergence -= np.log(np.diagonal(root, axis1=1, axis2=2)).sum()
    table = np.log(np.asarray(draws["policy"], float))
    bound = log_sum(logs[0], np.stack(logs[1:]), table.mean(0)) - divergence
    scatter = table.std(0).sum() / np.sqrt(len(table))
    assert abs(short.elbo - bound) < 4 * short.elbo_se + scatter


def test_a_search_goes_on_where_it_was_left(tmp_path, short):
    path = tmp_path / "search"
    fit(path, num_steps=1)
    went_on = fit(path)
    np.testing.assert_array_equal(went_on.trace, short.trace)
    np.testing.assert_array_equal(went_on.posterior.latent_root, short.posterior.latent_root)
    assert went_on.elbo == short.elbo and (went_on.restart_elbos == short.restart_elbos).all()
    with pytest.raises(ValueError, match="another model, data, key or settings"):
        fit(path, num_restarts=0)
    with pytest.raises(ValueError, match=r"checkpoint is of \d+ steps, more than num_steps=1"):
        fit(path, num_steps=1)
    with pytest.raises(ValueError, match="another model, data, key or settings"):
        fit(path, model=dataclasses.replace(MODEL, num_intents=3))


def test_a_posterior_is_saved(tmp_path, short):
    assert short.steps == 3 and not short.converged and short.reason
    short.posterior.save(tmp_path / "posterior")
    found = ethogram.load_posterior(tmp_path / "posterior")
    draws = found.sample(jax.random.key(0), 5)
    for name, draw in short.posterior.sample(jax.random.key(0), 5).items():
        np.testing.assert_array_equal(draws[name], draw)
    assert draws["transition"].shape == (5, 2, 2) and draws["policy"].shape == (5, 2, 3, 2)
    np.testing.assert_allclose(found.mean()["transition"].sum(-1), 1, rtol=1e-6)


@pytest.mark.slow
def test_a_posterior_is_exported(short):
    tree = to_arviz(short, DATA, num_draws=5, log_likelihood="sequence", progress_bar=False)
    assert tree.posterior["transition"].dims == ("chain", "draw", "intent", "next_intent")
    assert tree.posterior["reward"].dims == ("chain", "draw", "intent", "state")
    assert tree.log_likelihood["demonstrations"].shape == (1, 5, 3)
    logs = (np.log(np.asarray(tree.posterior[name])[0]) for name in ("initial", "transition", "policy"))
    scores = np.asarray(tree.log_likelihood["demonstrations"])[0].sum(-1)
    np.testing.assert_allclose(scores, log_sum(*logs), rtol=1e-6)
    assert tree.fit_stats["restart_elbos"].shape == (2,)


def test_intents_and_scores_of_data(short):
    """Predictive probabilities of actions, against all paths at the mean policies and chain."""
    agent = predictive_agent(jax.random.key(5), short)
    scores = agent.log_prob(DATA)
    logs = np.log(agent.chain.initial), np.log(agent.chain.transition), np.log(agent.policy)
    np.testing.assert_allclose(scores.sum(), log_sum(*logs), rtol=1e-9)
    found = infer_reward_intents(jax.random.key(5), short, DATA)
    np.testing.assert_allclose(found.log_increment.sum(1), scores, rtol=1e-9)
    np.testing.assert_allclose(found.probability.sum(-1), np.arange(5) < np.asarray(DATA.lengths)[:, None])
    whole = log_sum(*logs, DATA.take([0]))
    with np.errstate(divide="ignore"):
        first = log_sum(np.log(np.asarray(agent.chain.initial) * [1, 0]), *logs[1:], DATA.take([0]))
    np.testing.assert_allclose(found.probability[0, 0, 0], np.exp(first - whole), rtol=1e-9)
    weights = {}
    for path in paths_of(5):
        weight = logs[0][path[0]] + sum(logs[1][i, j] for i, j in itertools.pairwise(path))
        steps = zip(path, DATA.states[0], DATA.actions[0], strict=True)
        weights[path] = weight + sum(logs[2][i, s, a] for i, s, a in steps if a >= 0)
    assert tuple(found.path[0].tolist()) == max(weights, key=weights.get)
    table = heldout_policy_scores(jax.random.key(5), {"intents": short, "fair": np.full((3, 2), 0.5)}, DATA)
    assert table["intents"].log_density == pytest.approx(scores.sum() / 7)


@pytest.mark.slow
def test_a_curve_over_numbers_of_intents():
    """The split of a curve is shared with other curves of the same key."""
    data = DATA.take([0, 1, 2, 0])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search has not converged")
        curve = heldout_reward_curve(
            jax.random.key(0), lambda k: MODEL, [2], data, test_fraction=0.5, **SHORT
        )
    assert curve.heldout.shape == (1,) and curve.heldout_se[0] == 0 and curve.selected_size == 2
    test = data.split(jax.random.split(jax.random.key(0))[0], by="sequence", test_fraction=0.5)[1]
    again = heldout_policy_scores(jax.random.split(jax.random.key(0))[1], {"two": curve.fits[0]}, test)
    assert curve.heldout[0] == pytest.approx(again["two"].log_density)
    assert {"p(a | s)", "p(a | s, previous a)", "maximum entropy, features"} <= set(curve.peers)


def test_what_does_not_go_with_switching_is_refused():
    with pytest.raises(ValueError, match="hyper must be 'point' or 'fixed', not 'integrated'"):
        fit_switching(jax.random.key(0), MODEL, DATA, hyper="integrated")
    with pytest.raises(TypeError, match="use fit_switching for a SwitchingGPIRL"):
        fit_reward(jax.random.key(0), MODEL, DATA)
    with pytest.raises(TypeError, match="give a SwitchingGPIRL, or use fit_reward"):
        fit_switching(jax.random.key(0), BASE, DATA)
    for data in (None, np.ones((3, 2), int)):
        with pytest.raises(TypeError, match="give Trajectories with states and actions"):
            fit_switching(jax.random.key(0), MODEL, data)
    with pytest.raises(TypeError, match="of a SwitchingGPIRL"):
        infer_reward_intents(jax.random.key(0), MODEL, DATA)
    for sizes, match in (([], "sizes is empty"), ([2, 0], r"sizes\[1\] must be at least 1")):
        with pytest.raises(ValueError, match=match):
            heldout_reward_curve(jax.random.key(0), lambda k: MODEL, sizes, DATA)


GOALS = 2 * np.exp(-8 * np.array([[0, 1, 4, 9], [9, 4, 1, 0]]) / 9)
"""Rewards of rows or columns, by intent; that of a cell is the product of two, over 2: a corner."""


@pytest.fixture(scope="module")
def two_goals():
    """A 4 x 4 gridworld, demonstrations of an agent with two goals in opposite corners, and their truth."""
    row, column = np.divmod(np.arange(16), 4)
    moves = np.array([[-1, 0], [1, 0], [0, -1], [0, 1], [0, 0]])
    after = np.clip(np.stack([row, column], 1)[:, None] + moves, 0, 3)
    world = MDP.deterministic(after[..., 0] * 4 + after[..., 1], discount=0.9)
    truth = SwitchingGPIRL(GPIRL(world, np.stack([row, column], 1) / 3), 2)
    parameters = {"reward": GOALS[:, row] * GOALS[:, column] / 2, "initial": np.full(2, 0.5)}
    parameters["transition"] = np.array([[0.95, 0.05], [0.05, 0.95]])
    return truth, truth.simulate(jax.random.key(0), num_trajectories=50, length=60, parameters=parameters)


@pytest.mark.slow
def test_intents_of_a_gridworld_are_recovered(two_goals):
    """From 30 of 50 demonstrations."""
    truth, drawn = two_goals
    train, test = drawn.data.take(np.arange(30)), drawn.data.take(np.arange(30, 50))
    settings = {"num_restarts": 1, "num_evaluations": 32, "progress_bar": False}
    found = fit_switching(jax.random.key(1), truth, train, **settings)
    assert found.converged
    path, intents = infer_reward_intents(jax.random.key(2), found, train).path, drawn.intents[:30]
    shares = np.array([[((path == i) & (intents == j)).mean() for j in range(2)] for i in range(2)])
    assert shares.max(1).sum() > 0.9
    agent = predictive_agent(jax.random.key(3), found)
    true = np.asarray(truth.base.agent(jnp.asarray(drawn.parameters["reward"])).policy)
    divergence = (true * (np.log(true) - np.log(agent.policy[shares.argmax(0)]))).sum(-1).mean(-1)
    assert (divergence < 0.05).all()
    exact = agent._replace(
        policy=true, chain=IntentChain(drawn.parameters["initial"], drawn.parameters["transition"])
    )
    gap = (exact.log_prob(test) - agent.log_prob(test)).sum() / test.states.size
    assert -0.002 < gap < 0.02


def relabelled(posterior):
    """The posterior with its two intents in the other order."""
    swapped = {
        name: np.flip(np.asarray(posterior.chain[name].natural.concentration)) for name in posterior.chain
    }
    return dataclasses.replace(
        posterior,
        latent_mean=posterior.latent_mean[:, ::-1],
        latent_root=posterior.latent_root[:, ::-1],
        chain={name: Dirichlet.from_standard(x) for name, x in swapped.items()},
    )


def as_fit(result, method="natural_gradient"):
    return Fit(MODEL, DATA, method, "", result, 1.0, jax.random.key(7))


def test_paths_are_drawn_from_the_model_with_its_chain(monkeypatch):
    asked = []
    monkeypatch.setattr(Fit, "states", lambda *_: SimpleNamespace(probability=None))
    monkeypatch.setattr(
        fit_object, "sampled_paths", lambda key, model, *_: asked.append(model) or np.zeros(1)
    )
    sites = {"reward": np.zeros((1, 3, 2, 3)), "initial": np.full((1, 3, 2), 0.5)}
    as_fit(SampledPosterior(MODEL, sites, {}), "nuts").sample_paths()
    assert asked[0] is MODEL and MODEL.has_labels()


@pytest.mark.slow
def test_tables_of_intents_are_those_of_all_paths():
    """Draws of one value: shares within five errors of enumerated ones, of paths of 11 steps."""
    reward = np.array([[2.0, 0.0, -1.0], [-1.0, 0.0, 2.0]])
    chain = {"initial": np.array([0.3, 0.7]), "transition": np.array([[0.8, 0.2], [0.3, 0.7]])}
    log_policy = np.asarray(BASE.agent(jnp.asarray(reward)).log_policy)
    expected = np.zeros(2)
    for states, actions, length in zip(DATA.states, DATA.actions, DATA.lengths, strict=True):
        weight = {}
        for path in paths_of(length):
            weight[path] = chain["initial"][path[0]] * np.prod(
                [chain["transition"][move] for move in itertools.pairwise(path)]
            )
            for intent, state, action in zip(path, states, actions, strict=False):
                weight[path] *= np.exp(log_policy[intent, state, action]) if action >= 0 else 1
        for path, value in weight.items():
            expected += np.bincount(path, minlength=2) * value / sum(weight.values())
    sites = {"reward": reward, "policy": np.exp(log_policy), **chain}
    draws = {name: np.tile(x, (1, 400, *[1] * x.ndim)) for name, x in sites.items()}
    found = as_fit(SampledPosterior(MODEL, draws, {}), "nuts").time_budget(num_draws=400)
    np.testing.assert_allclose(found["mean"], expected / DATA.lengths.sum(), atol=5 * 0.25 / 20)


@pytest.mark.slow
def test_labels_are_aligned(short):
    """Draws of other labels, those of a comparison, and those of a sampler whose chains switched labels."""
    swapped = short._replace(posterior=relabelled(short.posterior))
    plain = to_arviz(swapped, num_draws=40)
    aligned = to_arviz(swapped, DATA, num_draws=40, align=short, progress_bar=False)
    kept = 0
    for draw in range(40):
        here, there = (np.asarray(tree.posterior["reward"])[0, draw] for tree in (aligned, plain))
        kept += (here == there).all()
        assert (here == there).all() or (here == there[::-1]).all()
    assert 0 < kept < 20  # draws of three short demonstrations may resemble the other intent
    found = ethogram.compare({"one": as_fit(short), "other": as_fit(swapped)})
    means = found.estimates.xs("mean", axis=1, level=1)
    spread = found.estimates.xs("upper", axis=1, level=1) - found.estimates.xs("lower", axis=1, level=1)
    assert ((means["one"] - means["other"]).abs() < 0.1 * spread.max(axis=1) + 1e-6).all()
    drawn = short.posterior.sample(jax.random.key(8), 30)
    labels = {
        name: (1, 2) if name == "transition" else 1 for name in drawn if name not in ("scale", "relevance")
    }
    flipped = {name: np.flip(x, labels[name]) if name in labels else x for name, x in drawn.items()}
    sites = {name: np.stack([drawn[name], flipped[name]]) for name in drawn}
    sampled = SampledPosterior(MODEL, sites, {"lp": np.zeros((2, 30))})
    matched = methods.aligned(sampled, DATA)
    np.testing.assert_array_equal(matched.sites["policy"][0], matched.sites["policy"][1])
    agent = predictive_agent(jax.random.key(9), matched)
    np.testing.assert_allclose(agent.policy, matched.sites["policy"].mean((0, 1)), rtol=1e-6)
    fit = as_fit(matched, "nuts")
    np.testing.assert_allclose(fit.states().probability.sum(-1), fit.predict().sum(-1), atol=1e-6)


@pytest.mark.slow
def test_increments_and_figure_of_a_fit(short):
    fit = as_fit(short)
    steps, whole = (
        fit.to_arviz(num_draws=5, log_likelihood=unit, progress_bar=False).log_likelihood["demonstrations"]
        for unit in ("step", "sequence")
    )
    sums = [np.asarray(steps)[0][:, np.asarray(steps.sequence) == number].sum(-1) for number in range(3)]
    np.testing.assert_allclose(np.stack(sums, -1), np.asarray(whole)[0], rtol=1e-9)
    assert steps.shape == (1, 5, 7)  # known actions
    figure = fit.plot()
    assert [axes.get_title() for axes in figure.axes] == [
        "rewards by intent: mean and 90 % interval", "most probable intents; paler is less certain"
    ]  # fmt: skip
    assert (
        len(figure.axes[0].collections) == 2
        and [x.get_text() for x in figure.axes[0].get_yticklabels()] != []
    )
