"""Fits of the agent Markov model as ArviZ reads them: dims and coords, scores by step, relabelled intents."""

from __future__ import annotations

import dataclasses

import arviz
import numpy as np
import pytest

from ethogram.inference.conjugate.posterior import ConjugatePosterior
from ethogram.inference.export import to_arviz
from ethogram.models.families.constrained_dirichlet import ConstrainedDirichlet
from ethogram.models.families.exponential_family import DirichletCoordinates

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trees(fitted, rows):
    """Draws of q with permuted intents, aligned to q: with log likelihoods by sequence, and by step."""
    result, data, _ = fitted
    order = np.array([2, 0, 3, 1])
    whole = np.append(order, 4)
    places = {"initial": whole, "policy": order, "transition": (slice(None), order[:, None], whole)}
    blocks = dict(result.posterior.blocks)
    blocks["weights"] = dataclasses.replace(
        blocks["weights"], natural=np.asarray(blocks["weights"].natural)[whole]
    )
    for name, place in places.items():
        natural = rows[name][place]
        held = {}
        if isinstance(blocks[name], ConstrainedDirichlet):
            held["held"] = natural.reshape(-1, natural.shape[-1])[np.asarray(blocks[name].rows)]
        blocks[name] = dataclasses.replace(blocks[name], natural=DirichletCoordinates(natural), **held)
    other = ConjugatePosterior(result.posterior.model, blocks)
    asked = {"num_draws": 400, "align": result}
    whole = to_arviz(other, data, log_likelihood="sequence", posterior_predictive=True, **asked)
    return whole, to_arviz(other, data, log_likelihood="step", **asked)


def test_axes_have_the_names_of_intents_and_pairs(fitted, trees):
    data, tree = fitted.data, trees[0]
    posterior = tree.posterior
    assert posterior["transition"].dims == ("chain", "draw", "pair", "intent", "next_intent")
    assert posterior["policy"].dims == ("chain", "draw", "intent", "visited_state", "action")
    assert posterior["weights"].sizes["next_intent"] == 5 and posterior["policy"].sizes["intent"] == 4
    state, action = data.states[0, 0], data.actions[0, 0]
    taken = data.metadata.action_names[action]
    assert taken in posterior["action"].values
    assert {f"{state},{taken}", f"{data.states[1, 4]},-"} <= set(posterior["pair"].values.tolist())
    np.testing.assert_allclose(posterior["transition"].sum("next_intent"), 1, rtol=1e-5)
    assert tree.posterior_predictive["actions"].shape == (1, 400, *data.actions.shape)
    # Weights, and entries that are constrained to 0 or 1, are constant: ArviZ divides by their deviation.
    assert len(arviz.summary(tree, var_names=["initial"])) == 5


def test_steps_add_up_to_sequences_and_missing_ones_are_left_out(fitted, trees):
    """The missing action is no observation, unless the step before it has a stay label."""
    data, (whole, steps) = fitted.data, trees
    entries = steps.log_likelihood["actions"]
    assert entries.sizes["observation"] == int((data.actions >= 0).sum()) + int(data.stay[1, 3] >= 0)
    by_sequence = entries.groupby("sequence").sum("observation")
    np.testing.assert_allclose(by_sequence.values, whole.log_likelihood["actions"].values, rtol=1e-4)


def test_intents_of_another_numbering_are_brought_back(fitted, trees):
    """Aligned draws have the means of q; the rest stays behind the intents."""
    for name, value in fitted.result.posterior.mean().items():
        drawn = trees[0].posterior[name].mean(("chain", "draw"))
        # Entries have a deviation below .35 and a mean over 400 draws: .1 is more than five standard errors.
        assert np.abs(drawn - np.asarray(value)).max() < 0.1, name
