"""Fits of the agent Markov model as ArviZ reads them: names of axes, scores by step, intents under one numbering."""

from __future__ import annotations

import arviz
import jax
import numpy as np
import pytest

from ethogram.domains import line_world
from ethogram.inference.arviz_export import to_arviz
from ethogram.inference.conjugate_svi import ConjugateSVI
from ethogram.inference.posterior import Posterior
from ethogram.inference.score_curve import heldout_log_likelihood
from ethogram.models.agent_markov import AgentMarkov, Constraints
from ethogram.models.exponential_family import Dirichlet, DirichletCoordinates
from ethogram.models.intent_agent import said_of_stay


@pytest.fixture(scope="module")
def fit():
    """Four walks with a gap in the actions, some words about them, and a region that never switches."""
    life = line_world.simulate(jax.random.key(3), num_traces=4, length=15)
    actions = life.data.actions.copy()
    actions[1, 4] = -1
    said = said_of_stay(jax.random.key(4), life.intents, 0.9)
    said[2:] = -1
    data = life.data._replace(actions=actions, stay=said)
    model = AgentMarkov(5, 3, truncation=4, stay_accuracy=0.9, constraints=Constraints.never_switch([2]))
    result = ConjugateSVI(model).run(jax.random.key(5), data, 60, restarts=3, progress_bar=False)
    return result, data


def test_axes_have_the_names_of_intents_and_pairs(fit):
    result, data = fit
    tree = to_arviz(result, data, num_draws=20)
    posterior = tree.posterior
    assert posterior["transition"].dims == ("chain", "draw", "pair", "intent", "next_intent")
    assert posterior["policy"].dims == ("chain", "draw", "intent", "visited_state", "action")
    assert posterior["weights"].sizes["next_intent"] == 5 and posterior["policy"].sizes["intent"] == 4
    state, action = data.states[0, 0], data.actions[0, 0]
    assert (
        f"{state},{action}" in posterior["pair"].values
        and f"{data.states[1, 4]},-" in posterior["pair"].values
    )
    np.testing.assert_allclose(posterior["transition"].sum("next_intent"), 1, rtol=1e-5)
    assert tree.posterior_predictive["actions"].shape == (1, 20, *data.actions.shape)
    summary = arviz.summary(tree, var_names=["policy"])  # weights are a point, at which ArviZ divides by zero
    assert len(summary) == posterior["policy"][0, 0].size


def test_steps_add_up_to_sequences_and_missing_ones_are_left_out(fit):
    """The missing action is no observation, unless something was said of the way to it."""
    result, data = fit
    key = jax.random.key(0)
    whole, steps = (
        to_arviz(result, data, key=key, num_draws=5, log_likelihood=kind, posterior_predictive=False)
        for kind in ("sequence", "step")
    )
    entries = steps.log_likelihood["actions"]
    assert entries.sizes["observation"] == int((data.actions >= 0).sum()) + int(data.stay[1, 3] >= 0)
    by_sequence = entries.groupby("sequence").sum("observation")
    np.testing.assert_allclose(by_sequence.values, whole.log_likelihood["actions"].values, rtol=1e-4)


def test_intents_of_another_numbering_are_brought_back(fit):
    """Q under permuted intents, aligned to q, draws what q draws; the rest stays behind the intents."""
    result, data = fit
    order = np.array([2, 0, 3, 1])
    whole = np.append(order, 4)
    blocks = dict(result.posterior.blocks)

    def moved(name, index):
        return Dirichlet(DirichletCoordinates(blocks[name].natural.concentration[index]))

    blocks["initial"], blocks["policy"] = moved("initial", whole), moved("policy", order)
    blocks["transition"] = moved("transition", (slice(None), order[:, None], whole))
    weights = blocks["weights"]
    blocks["weights"] = type(weights)(weights.natural[whole], weights.gamma, weights.density)
    other = Posterior(result.posterior.model, blocks)
    tree = to_arviz(other, data, num_draws=400, align=result, log_likelihood=None, posterior_predictive=False)
    for name, value in result.posterior.mean().items():
        drawn = tree.posterior[name].mean(("chain", "draw"))
        # Entries have a deviation below .35 and a mean over 400 draws: .1 is more than five standard errors.
        assert np.abs(drawn - value).max() < 0.1, name


def test_held_out_scores_go_where_training_did_not(fit):
    """States and actions that training never saw are scored by the prior's rows, without a word of evidence."""
    result, _ = fit
    test = line_world.simulate(jax.random.key(9), num_traces=3, length=20).data
    test = test._replace(stay=np.full(test.actions.shape, -1))
    score = heldout_log_likelihood(result, test)
    assert -np.log(3) < score < 0
