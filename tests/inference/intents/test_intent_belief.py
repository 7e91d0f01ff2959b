"""The belief about intents: equal to the filter of the whole trace, forecasts by enumeration, nothing compiled anew."""

from __future__ import annotations

import itertools
import types

import jax
import numpy as np
import pytest
from scipy.special import logsumexp

import ethogram
from ethogram.inference.conjugate.posterior import ConjugatePosterior
from ethogram.inference.intents import IntentBelief, forecast_intents
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.intents.updates import agent_tables

STATES, ACTIONS, COUNT, LENGTH = 3, 2, 4, 12
DYNAMICS = np.random.default_rng(5).dirichlet(np.ones(STATES), (STATES, ACTIONS))


@pytest.fixture(scope="module")
def fitted():
    """A posterior of random rows, and data."""
    random = np.random.default_rng(0)
    states, actions = (
        random.integers(0, STATES, (COUNT, LENGTH)),
        random.integers(0, ACTIONS, (COUNT, LENGTH)),
    )
    stay = np.where(np.arange(LENGTH) < LENGTH - 1, random.integers(-1, 2, (COUNT, LENGTH)), -1)
    actions[0, 3], actions[1, LENGTH - 1] = -1, -1
    data = ethogram.Trajectories.from_list(states=list(states), actions=list(actions), stay=list(stay))
    model = ethogram.AgentMarkov(STATES, ACTIONS, truncation=2, stay_accuracy=0.8, stickiness=None).bind(data)
    blocks = model.prior()
    for name in ("initial", "transition", "policy"):
        shape = blocks[name].natural.concentration.shape
        blocks[name] = Dirichlet.from_standard(random.gamma(1.0, 5.0, shape))
    return ConjugatePosterior(model, blocks), data


def watched(belief, data):
    """The belief after all steps, and the reports."""
    reports = []
    for t in range(LENGTH):
        stay = None if t == 0 else np.asarray(data.stay)[:, t - 1]
        belief, report = belief.step(np.asarray(data.states)[:, t], np.asarray(data.actions)[:, t], stay)
        reports.append(jax.tree.map(np.asarray, report))
    return belief, reports


@pytest.fixture(scope="module")
def after(fitted):
    fit, data = fitted
    return watched(IntentBelief.start(fit, (COUNT,)), data)


@jax.jit
def filtered(model, parameters, data):
    return model.likelihood(parameters, data).filter(model.entries(data).value)


def test_the_filter_of_the_whole_trace(fitted, after):
    fit, data = fitted
    _, reports = after
    model, mean = fit.model, fit.mean()
    whole = filtered(model, mean, data)
    unlabelled = filtered(model, mean, data._replace(stay=np.full((COUNT, LENGTH), -1)))
    increments = np.asarray(unlabelled.log_increment)
    for t, report in enumerate(reports):
        np.testing.assert_allclose(report.intent, np.asarray(whole.state)[:, t], atol=1e-12)
        np.testing.assert_allclose(report.action.sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(reports[0].log_predictive, increments[:, 0], atol=1e-12)
    assert reports[3].log_predictive[0] == 0 and (reports[0].change == 0).all()


def test_change_is_that_of_both_steps(fitted):
    """Without labels and in one step, by Bayes' rule."""
    fit, _ = fitted
    table, policy, row_of = (np.asarray(x) for x in agent_tables(fit.model, fit.mean()))
    belief, first = IntentBelief.start(fit).step(0, 1)
    _, second = belief.step(2, 0)
    joint = np.asarray(first.intent)[:, None] * table[row_of[0, 1]] * policy[:, 2, 0]
    assert float(second.change) == pytest.approx(1 - np.trace(joint) / joint.sum(), abs=1e-12)
    assert float(second.log_predictive) == pytest.approx(np.log(joint.sum()), abs=1e-12)
    np.testing.assert_allclose(belief.next_action(2), second.action, atol=1e-12)


def test_draws_are_weighted_by_their_own_evidence(fitted):
    fit, data = fitted
    one = data._replace(stay=np.full((COUNT, LENGTH), -1))
    drawn, random = {"weights": np.tile(fit.mean()["weights"], (5, 1))}, np.random.default_rng(1)
    for name in ("initial", "transition", "policy"):
        rows = np.asarray(fit.blocks[name].natural.concentration)
        gammas = random.gamma(rows, size=(5, *rows.shape))
        drawn[name] = gammas / gammas.sum(-1, keepdims=True)
    draws = types.SimpleNamespace(model=fit.model, mean=fit.mean, sample=lambda key, number: drawn)
    _, reports = watched(IntentBelief.start(draws, (COUNT,), num_draws=5, key=jax.random.key(1)), one)
    chains = [filtered(fit.model, {name: site[i] for name, site in drawn.items()}, one) for i in range(5)]
    evidence = np.stack([np.asarray(chain.log_evidence) for chain in chains])
    share = np.exp(evidence - logsumexp(evidence, axis=0))
    wanted = np.einsum("dn,dni->ni", share, np.stack([np.asarray(chain.state)[:, -1] for chain in chains]))
    np.testing.assert_allclose(reports[-1].intent, wanted, atol=1e-10)
    total = sum(report.log_predictive for report in reports)
    np.testing.assert_allclose(total, logsumexp(evidence, axis=0) - np.log(5), atol=1e-10)


def paths(fit, belief, agent, steps):
    """Probability of every path (intents, states, actions) of the next steps, by nested loops, given the dynamics."""
    table, policy, row_of = (np.asarray(x) for x in agent_tables(fit.model, fit.mean()))
    belief = jax.device_get(belief)
    now, action = int(belief.state[agent]), int(belief.action[agent])
    start = belief.intent[0, agent] @ table[row_of[now, action]]
    found = {}
    for intents in itertools.product(range(3), repeat=steps):
        for states in itertools.product(range(STATES), repeat=steps):
            for actions in itertools.product(range(ACTIONS), repeat=steps):
                chance, led = start[intents[0]], DYNAMICS[now, action, states[0]]
                for k in range(steps):
                    chance *= policy[intents[k], states[k], actions[k]]
                    if k + 1 < steps:
                        chance *= table[row_of[states[k], actions[k]], intents[k], intents[k + 1]]
                        led *= DYNAMICS[states[k], actions[k], states[k + 1]]
                found[intents, states, actions] = chance, led
    return found


@pytest.mark.parametrize("kind", ["unknown", "given", "observed"])
def test_forecasts_by_enumeration(fitted, after, kind):
    fit, agent, steps = fitted[0], 2, 3
    states = np.array([[0, 2, 1]] * COUNT)
    options = {
        "unknown": {"steps": steps, "dynamics": DYNAMICS},
        "given": {"states": states},
        "observed": {"states": states, "dynamics": DYNAMICS},
    }[kind]
    found = forecast_intents(after[0], **options)
    every = paths(fit, after[0], agent, steps)
    intent, action = np.zeros((steps, 3)), np.zeros((steps, ACTIONS))
    for (intents, passed, actions), (chance, led) in every.items():
        weight = chance * (1 if kind == "given" else led)
        if kind != "unknown" and passed != (0, 2, 1):
            continue
        for k in range(steps):
            intent[k, intents[k]] += weight
            action[k, actions[k]] += weight
    np.testing.assert_allclose(found.intent[agent], intent / intent.sum(-1, keepdims=True), atol=1e-12)
    np.testing.assert_allclose(found.action[agent], action / action.sum(-1, keepdims=True), atol=1e-12)


def test_steps_compile_once(fitted, compiler_events):
    belief = IntentBelief.start(fitted[0])
    belief, _ = belief.step(0, 0, 1)
    belief, _ = belief.step(1, -1, 0)
    compiler_events.clear()
    for t in range(20):
        belief, _ = belief.step(t % STATES, t % ACTIONS, t % 2)
    assert "backend_compile_duration" not in compiler_events


def test_actions_of_no_intent_are_unlike(fitted):
    """An agent that does what every intent avoids; and one that does what they do."""
    worst, best = IntentBelief.start(fitted[0]), IntentBelief.start(fitted[0])
    for _ in range(60):
        chance = np.asarray(worst.next_action(1))
        worst, odd = worst.step(1, int(chance.argmin()))
        best, usual = best.step(1, int(np.asarray(best.next_action(1)).argmax()))
    assert float(odd.surprise) > float(usual.surprise) and float(odd.unlike) >= float(usual.unlike) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda belief: belief.step(STATES, 0), "state is 3 to 3: expected integers from 0 to 2"),
        (lambda belief: belief.step(0, ACTIONS), "action is 2 to 2"),
        (lambda belief: belief.step(0.5, 0), "state has dtype float64"),
        (lambda belief: belief.step([0, 1], 0), "state has shape"),
        (lambda belief: forecast_intents(belief, 3, dynamics=DYNAMICS), "has no step yet"),
        (lambda belief: forecast_intents(belief.step(0, 0)[0]), "give steps and dynamics, or states"),
        (lambda belief: forecast_intents(belief.step(0, 0)[0], states=[7]), "states are 7 to 7"),
    ],
)
def test_wrong_arguments_are_named(fitted, call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call(IntentBelief.start(fitted[0]))


def test_surprise_and_unlike_are_their_sums(fitted, after):
    """From the reported probabilities of actions, step by step; missing actions change nothing."""
    (_, data), (_, reports) = fitted, after
    excess, variance, unlike = np.zeros((3, COUNT))
    for t, report in enumerate(reports):
        action = np.asarray(data.actions)[:, t]
        known, logs = action >= 0, np.log(report.action)
        surprisal, entropy = -logs[np.arange(COUNT), action], -(report.action * logs).sum(-1)
        spread = (report.action * logs**2).sum(-1) - entropy**2
        excess = np.where(known, 0.95 * excess + surprisal - entropy, excess)
        variance = np.where(known, 0.95**2 * variance + spread, variance)
        unlike = np.where(known, np.maximum(unlike + surprisal - np.log(ACTIONS), 0), unlike)
        np.testing.assert_allclose(report.surprise, excess / np.sqrt(variance), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(report.unlike, unlike, rtol=1e-9, atol=1e-12)
