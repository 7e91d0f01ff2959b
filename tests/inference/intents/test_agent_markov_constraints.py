"""Constraints in fits of the agent Markov model: bounds that never fall, storage, and contradictory labels."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks.papers.literal_agent import LiteralAgent
from ethogram.domains import line_world
from ethogram.inference.conjugate import ConjugateSVI, load_posterior
from ethogram.models.intents import AgentMarkov, IntentConstraints

S, A = line_world.NUM_CELLS, line_world.NUM_ACTIONS

# Traces with stay labels serve models that do not take them, too.
pytestmark = [
    pytest.mark.filterwarnings("ignore:constraints make:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:data.stay is ignored"),
]

SETTINGS = {"rows": "all", "stay_accuracy": 0.9, "stickiness": None}
EQUAL = IntentConstraints.stay([1, 2, 3], equal=0.95)
NEVER = IntentConstraints.never_switch([1, 2])
KNOWN = NEVER.stay([3], equal=0.95).action(2, [1], at_most=0.05)
MODEL = AgentMarkov(S, A, 4, constraints=KNOWN, **SETTINGS)


def run(model, data, steps, **options):
    options = {"restarts": 2, "tol": 0.0, "search": "restarts", "progress_bar": False} | options
    return ConjugateSVI(model).run(jax.random.key(1), data, steps, **options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [AgentMarkov, LiteralAgent])
def test_the_elbo_never_falls(walks, kind):
    """With rows that are free, bounded, never switch, or have no data; in the paper's coordinate steps, too."""
    trace = run(kind(S, A, 4, constraints=KNOWN, **SETTINGS), walks, 30).restart_traces
    assert np.isfinite(trace).all()
    assert (-np.diff(trace, axis=1) / np.abs(trace[:, 1:])).max() <= 1e-8


@pytest.mark.slow
def test_means_obey_the_constraints_after_every_mini_batch_and_rows_may_keep_their_concentration(walks):
    """The sum of a row is then that of its free posterior."""
    known = IntentConstraints(concentration="keep").never_switch([1, 2]).stay([3], at_least=0.8)
    model = AgentMarkov(S, A, 3, constraints=known, stickiness=None)
    data = walks._replace(group=np.arange(4, dtype=np.int32))
    fit = "sticky"
    for _ in range(3):
        fit = run(model, data, 1, restarts=1, init=fit, batch_size=2, step_size=0.5)
        agent = fit.posterior.model.agent(fit.posterior.mean())
        own = np.diagonal(np.moveaxis(np.asarray(agent.transition), 0, 2), axis1=2, axis2=3)
        np.testing.assert_allclose(own[[1, 2]], 1, rtol=1e-15)
        assert own[3].min() >= 0.8 - 1e-10
        np.testing.assert_allclose(fit.posterior.blocks["transition"].inflation(), 1, rtol=1e-12)


def test_labels_that_contradict_constraints_are_named(walks):
    """By trace and step, before anything is compiled; labels of accuracy below 1 are no contradiction."""
    stay = np.full(walks.states.shape, -1)
    trace, step = np.argwhere(np.isin(walks.states[:, :-1], [1, 2]))[3].tolist()
    stay[trace, step] = 0
    wrong = walks._replace(stay=stay)
    model = AgentMarkov(S, A, 3, stay_accuracy=1.0, constraints=NEVER, stickiness=None)
    with pytest.raises(
        ValueError, match=rf"data.stay\[{trace}, {step}\] says that the intent changed at state"
    ):
        run(model, wrong, 5)
    AgentMarkov(S, A, 3, stay_accuracy=0.9, constraints=NEVER).bind(wrong)
    with pytest.raises(ValueError, match="truncation=1 allows one intent"):
        AgentMarkov(S, A, 1, stay_accuracy=1.0).bind(wrong)


def test_bounds_on_means_are_refused_by_the_numpyro_model(walks):
    model = AgentMarkov(S, A, 3, constraints=EQUAL, stickiness=None)
    with pytest.raises(ValueError, match=r"constraints on means .* restrict q and have no density"):
        jax.eval_shape(lambda: model(walks))


def test_concentration_is_one_of_two():
    with pytest.raises(ValueError, match="concentration must be 'maximise' or 'keep', not 'more'"):
        IntentConstraints(concentration="more")


@pytest.mark.slow
def test_a_constrained_fit_is_saved_and_continued(walks, tmp_path):
    """By a checkpoint, as if never stopped, and by a file; under other constraints it is refused."""
    run(MODEL, walks, 11, checkpoint=tmp_path / "half")
    continued, whole = run(MODEL, walks, 20, checkpoint=tmp_path / "half"), run(MODEL, walks, 20)
    np.testing.assert_array_equal(continued.elbo, whole.elbo)
    whole.posterior.save(tmp_path / "whole")
    agents = (each.model.agent(each.mean()) for each in (load_posterior(tmp_path / "whole"), whole.posterior))
    for one, other in zip(*agents, strict=True):
        np.testing.assert_array_equal(one, other)
    other = AgentMarkov(S, A, 4, constraints=EQUAL, **SETTINGS)
    with pytest.raises(ValueError, match="checkpoint of another model"):
        run(other, walks, 20, checkpoint=tmp_path / "half")
    with pytest.raises(ValueError, match="init is a result"):
        run(other, walks, 2, init=whole)


def test_only_constrained_rows_are_bounded(walks):
    """A constraint on one intent leaves the rows of the others to the exact step."""
    known = IntentConstraints.entry(0, 1, [1], at_least=0.2)
    rows = np.asarray(AgentMarkov(S, A, 3, constraints=known).bind(walks).visited.pair_bounds.rows)
    assert len(rows) and (rows % 3 == 0).all()
