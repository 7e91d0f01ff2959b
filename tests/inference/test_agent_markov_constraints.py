"""Fits of the agent Markov model under constraints: the bound, the rows, and what is impossible."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.special import digamma, gammaln

from ethogram.domains import line_world
from ethogram.inference.conjugate_svi import ConjugateSVI
from ethogram.inference.posterior import load
from ethogram.inference.score_curve import heldout_log_likelihood
from ethogram.models.agent_markov import AgentMarkov, Constraints
from ethogram.models.exponential_family import expected_statistics
from ethogram.models.intent_agent import said_of_stay

S, A = line_world.NUM_CELLS, line_world.NUM_ACTIONS

pytestmark = pytest.mark.filterwarnings("ignore:constraints make:RuntimeWarning")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def data():
    """Four walks of twelve steps, with what was said of the first two."""
    life = line_world.simulate(jax.random.key(0), num_traces=4, length=12)
    said = said_of_stay(jax.random.key(1), life.intents, 0.9)
    said[2:] = -1
    return life.data._replace(stay=said)


KNOWN = {
    "never": Constraints.never_switch([1, 2]),
    "equal": Constraints.stay([1, 2, 3], equal=0.95),
    "bounds": Constraints.stay([1, 2], at_least=0.9).action(2, [1], at_most=0.05),
    "all": Constraints.never_switch([2]).stay([1, 3], [0, 1], at_least=0.8).action(2, [2], equal=0.0),
}


def fitted(known, data, steps=30, **settings):
    model = AgentMarkov(S, A, 4, constraints=known, **settings)
    return ConjugateSVI(model).run(jax.random.key(2), data, steps, restarts=3, tol=0.0, progress_bar=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("never", {"beta_prior": "stick", "beta_step": "block", "stay_accuracy": 0.9}),
        ("equal", {"beta_prior": "gem", "beta_step": "coordinate", "rows": "all"}),
        ("bounds", {"beta_prior": "stick", "beta_step": "block"}),
        ("all", {"beta_prior": "stick", "beta_step": "coordinate", "stay_accuracy": 0.9}),
        ("all", {"beta_prior": "fixed", "beta_step": "block", "stay_accuracy": 1.0}),
    ],
)
def test_the_bound_never_falls(data, name, settings):
    trace = fitted(KNOWN[name], data, **settings).restart_traces
    assert np.isfinite(trace).all()
    assert (-np.diff(trace, axis=1) / np.abs(trace[:, 1:])).max() <= 1e-8


def mean_of_rows(fit, states, actions=range(A)):
    """Mean rows (state, action, intent, next intent) of an agent's tables."""
    transition = np.asarray(model_agent(fit).transition)
    return np.moveaxis(transition, 0, 2)[np.ix_(list(states), list(actions))]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"batch_size": 2, "step_size": 0.5}], ids=["ascent", "batches"])
def test_means_keep_to_what_is_known_at_every_step(data, settings):
    """After each single step, where the data went and where they did not."""
    model = AgentMarkov(S, A, 4, constraints=KNOWN["all"])
    data = data._replace(group=np.arange(4, dtype=np.int32))
    fit = "mixed"
    for step in range(4):
        fit = ConjugateSVI(model).run(
            jax.random.key(step), data, 1, restarts=1, init=fit, progress_bar=False, **settings
        )
        own = np.diagonal(mean_of_rows(fit, range(S)), axis1=2, axis2=3)  # (state, action, intent)
        np.testing.assert_allclose(own[2], 1, rtol=1e-15)
        assert own[[1, 3]][:, :2].min() >= 0.8 - 1e-10
        policy = np.asarray(fit.posterior.model.agent(fit.posterior.mean()).policy)
        np.testing.assert_array_equal(policy[:, 2, 2], 0)
        np.testing.assert_allclose(policy.sum(-1), 1)


def log_beta(rows):
    rows = np.where(rows > 0, rows, 1)[..., :], rows
    return np.where(rows[1] > 0, gammaln(rows[0]), 0).sum(-1) - gammaln(rows[1].sum(-1))


def kl(q, p):
    """Of Dirichlet rows, by the definition; entries that are 0 in both are left out."""
    present = q > 0
    away = np.where(
        present, (q - p) * (digamma(np.where(present, q, 1)) - digamma(q.sum(-1, keepdims=True))), 0
    )
    return (log_beta(p) - log_beta(q) + away.sum(-1)).sum()


@pytest.mark.parametrize("name", ["equal", "all"])
def test_the_bound_is_the_definition(data, name):
    """The last bound of a constrained fit: the local term, less KL and plus the density of the weights, in NumPy."""
    fit = fitted(KNOWN[name], data, steps=8, stay_accuracy=0.9)
    model, blocks = fit.posterior.model, fit.posterior.blocks
    local = float(model.log_normalizer(expected_statistics(blocks), model.arrange(data)))
    weights = np.asarray(blocks["weights"].mean())
    prior = 3.0 * weights
    rows = np.asarray(blocks["transition"].standard().concentration)[: len(model.visited.pairs)]
    policy = np.asarray(blocks["policy"].standard().concentration)
    rest = kl(np.asarray(blocks["initial"].standard().concentration), prior)
    rest += kl(rows, np.where(rows > 0, prior, 0)) + kl(policy, np.where(policy > 0, 1.0, 0))
    density = 4 * np.log(3.0) + 2 * np.log(weights[-1])
    np.testing.assert_allclose(fit.elbo[-1], local - rest + density, rtol=1e-9)


@pytest.mark.slow
def test_all_traces_at_step_one_are_the_batch_step(data):
    data = data._replace(group=np.arange(4, dtype=np.int32))
    engine = ConjugateSVI(AgentMarkov(S, A, 3, constraints=KNOWN["equal"]))
    start = engine.run(jax.random.key(3), data, 1, restarts=1, progress_bar=False)
    ascent, stochastic = (
        engine.run(jax.random.key(4), data, 3, init=start, tol=0.0, progress_bar=False, **kind)
        for kind in ({}, {"batch_size": 4, "step_size": 1.0})
    )
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6),
        ascent.posterior.blocks["transition"].standard(),
        stochastic.posterior.blocks["transition"].standard(),
    )


def test_no_intent_changes_where_it_never_does(data):
    fit = fitted(KNOWN["never"], data)
    model = fit.posterior.model
    trace = model.observation(fit.posterior.mean(), data)
    changes = np.asarray(trace.change_probability(model.observed_value(data)))
    leaving = np.arange(11) < np.asarray(data.lengths)[:, None] - 1
    region = np.isin(data.states[:, :-1], [1, 2]) & leaving
    assert region.sum() > 10 and changes[region].max() < 1e-12
    path = np.asarray(trace.most_likely_path(model.observed_value(data)).path)
    assert (path[:, 1:] == path[:, :-1])[region].all()


def test_certain_evidence_against_certainty_is_named(data):
    """By trace and step, before anything is compiled; with doubt about the evidence it is no contradiction."""
    stay = np.array(data.stay)
    trace, step = np.argwhere(np.isin(data.states[:, :-1], [1, 2]))[3].tolist()
    stay[trace, step] = 0
    wrong = data._replace(stay=stay)
    model = AgentMarkov(S, A, 3, stay_accuracy=1.0, constraints=KNOWN["never"])
    first = np.argwhere(np.isin(wrong.states, [1, 2]) & (stay == 0))[0].tolist()
    with pytest.raises(
        ValueError, match=rf"data.stay\[{first[0]}, {first[1]}\] says that the intent changed at state"
    ):
        ConjugateSVI(model).run(jax.random.key(0), wrong, 5, progress_bar=False)
    AgentMarkov(S, A, 3, stay_accuracy=0.9, constraints=KNOWN["never"]).bind(wrong)
    with pytest.raises(ValueError, match="there is one intent"):
        AgentMarkov(S, A, 1, stay_accuracy=1.0).bind(wrong)


def test_rows_that_invent_data_are_warned_of(data):
    """A mean of .99 on rows of three pseudo-counts is worth some hundred of them."""
    with pytest.warns(RuntimeWarning, match="constraints make .* constrained rows of transition up to"):
        fitted(Constraints.stay([1, 2, 3], equal=0.99), data, steps=2)


def test_bounds_are_on_q_and_nuts_says_so(data):
    model = AgentMarkov(S, A, 3, constraints=KNOWN["equal"])
    with pytest.raises(ValueError, match="constraints on means are on q"):
        jax.eval_shape(lambda: model(data))


@pytest.mark.slow
def test_rows_may_keep_their_certainty(data):
    """The mean is kept to, and the sum of a row is that of its free posterior."""
    known = Constraints(concentration="keep").stay([1, 2, 3], equal=0.95)
    block = fitted(known, data, steps=3).posterior.blocks["transition"]
    np.testing.assert_allclose(block.inflation(), 1, rtol=1e-12)
    held = np.asarray(block.held)
    own = (np.asarray(block.lower) > 0) & (held > 0)
    np.testing.assert_allclose((held / held.sum(-1, keepdims=True))[own], 0.95, rtol=1e-9)
    with pytest.raises(ValueError, match='concentration must be "maximise" or "keep"'):
        Constraints(concentration="more")


@pytest.mark.slow
def test_a_constrained_fit_is_kept_and_goes_on(data, tmp_path):
    """By a checkpoint, as if never stopped, and by a file; under other constraints it is refused."""
    model = AgentMarkov(S, A, 3, constraints=KNOWN["all"])

    def run(steps, model=model, **options):
        options = {"restarts": 2, "tol": 0.0, "progress_bar": False} | options
        return ConjugateSVI(model).run(jax.random.key(1), data, steps, **options)

    run(11, checkpoint=tmp_path / "half")
    went_on, whole = run(20, checkpoint=tmp_path / "half"), run(20)
    np.testing.assert_array_equal(went_on.elbo, whole.elbo)
    whole.posterior.save(tmp_path / "whole")
    read = load(tmp_path / "whole")
    for one, other in zip(read.model.agent(read.mean()), model_agent(whole), strict=True):
        np.testing.assert_array_equal(one, other)
    other = AgentMarkov(S, A, 3, constraints=KNOWN["bounds"])
    with pytest.raises(ValueError, match="checkpoint of another model"):
        run(20, model=other, checkpoint=tmp_path / "half")
    with pytest.raises(ValueError, match="init is a result"):
        run(2, model=other, init=whole)


def model_agent(fit):
    return fit.posterior.model.agent(fit.posterior.mean())


def test_only_rows_that_are_spoken_of_are_bounded(data):
    """A word on the entries of one intent leaves the rows of the others to the exact step."""
    model = AgentMarkov(S, A, 3, constraints=Constraints.entry(0, 1, [1], at_least=0.2)).bind(data)
    rows = np.asarray(model.visited.pair_bounds.rows)
    assert len(rows) and (rows % 3 == 0).all()


def test_held_out_scores_count_the_actions(data):
    """A missing action adds no step to the score."""
    fit = fitted(KNOWN["never"], data, steps=5)
    actions = np.array(data.actions)
    actions[:, 1::2] = -1
    score = heldout_log_likelihood(fit, data._replace(actions=actions))
    trace = fit.posterior.model.observation(fit.posterior.mean(), data)
    total = float(np.sum(trace.log_prob(np.where(np.arange(12) % 2 == 1, -1, np.asarray(data.actions)))))
    np.testing.assert_allclose(score, total / (actions >= 0).sum(), rtol=1e-12)
