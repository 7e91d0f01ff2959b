"""Fits of the agent Markov model: an ELBO that never falls and has its definition, rows within their bounds."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy.special import digamma, gammaln

from ethogram.domains import line_world
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.conjugate.score_curve import heldout_log_likelihood
from ethogram.inference.conjugate.starts import start_blocks
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import Dirichlet, DirichletCoordinates, expected_statistics
from ethogram.models.intents import AgentMarkov
from ethogram.models.intents.updates import agent_tables

# Traces with stay labels serve models that do not take them, too.
pytestmark = pytest.mark.filterwarnings("ignore:data.stay is ignored")

S, A = line_world.NUM_CELLS, line_world.NUM_ACTIONS


def largest_fall(fit):
    """Largest relative decrease of the ELBO between iterations, over all restarts."""
    trace = fit.restart_traces
    assert np.isfinite(trace).all()
    return (-np.diff(trace, axis=1) / np.abs(trace[:, 1:])).max()


def run(model, data, steps=30, **options):
    options = {"restarts": 3, "tol": 0.0, "progress_bar": False} | options
    return ConjugateSVI(model).run(jax.random.key(2), data, steps, **options)


def test_the_elbo_never_falls_under_constraints(fitted):
    assert largest_fall(fitted.result) <= 1e-8


@pytest.mark.slow
def test_edits_end_at_one_intent_and_resume(walks, tmp_path):
    """By default: few steps support one intent of eight; a fit goes on as if never stopped, wherever it ends."""
    model, options = AgentMarkov(S, A, 8, stickiness=None), {"tol": 1e-4, "init": "prior"}
    plain, moved = run(model, walks, 400, search="restarts", **options), run(model, walks, 400, **options)
    assert moved.converged and largest_fall(moved) <= 1e-8
    mass = moved.posterior.model.growth.mass(moved.posterior.blocks)
    np.testing.assert_allclose(np.sort(mass), [0] * 7 + [48], atol=1e-6)
    assert moved.elbo[-1] > plain.elbo[-1] + 10
    for steps in (plain.step + 5, plain.step + 42, 400):
        found = run(model, walks, steps, checkpoint=tmp_path / "fit", checkpoint_every=7, **options)
    np.testing.assert_array_equal(found.elbo, moved.elbo)
    with pytest.raises(
        ValueError, match=f"checkpoint is of {moved.step} steps, more than num_steps={plain.step}"
    ):
        run(model, walks, plain.step, checkpoint=tmp_path / "fit", **options)


@pytest.mark.slow
def test_a_second_fit_with_another_key_compiles_nothing(walks, compiler_events):
    """The search by default, which grows, edits and reduces; the stickiness is learned."""
    for number in range(2):
        compiler_events.clear()
        found = ConjugateSVI(AgentMarkov(S, A, 5)).run(jax.random.key(number), walks, 400, progress_bar=False)
        assert found.converged
    assert "backend_compile_duration" not in compiler_events


@jax.jit
def scored(model, parameters, data):
    return model.likelihood(parameters, data).log_prob(model.entries(data).value)


def log_beta(rows):
    some = np.where(rows > 0, rows, 1)
    return np.where(rows > 0, gammaln(some), 0).sum(-1) - gammaln(rows.sum(-1))


def kl(q, p):
    """KL divergence of Dirichlet rows, by the definition; entries that are 0 in both are left out."""
    some = np.where(q > 0, q, 1)
    away = np.where(q > 0, (q - p) * (digamma(some) - digamma(q.sum(-1, keepdims=True))), 0)
    return (log_beta(p) - log_beta(q) + away.sum(-1)).sum()


def test_the_elbo_is_the_definition(fitted, rows):
    """The last ELBO: the local term, minus the KL terms, plus the log density of the weights, in NumPy."""
    result, data, _ = fitted
    model, blocks = result.posterior.model, result.posterior.blocks
    local = jax.jit(lambda model, blocks, batch: model.log_normalizer(expected_statistics(blocks), batch))
    value = float(local(model, blocks, model.arrange(data)))
    weights = np.asarray(blocks["weights"].natural)
    prior, leaving, policy = 3.0 * weights, rows["transition"][: len(model.visited.pairs)], rows["policy"]
    rest = kl(rows["initial"], prior) + kl(leaving, np.where(leaving > 0, prior, 0))
    rest += kl(policy, np.where(policy > 0, 1.0, 0))
    density = 2 * np.log(weights[-1])
    np.testing.assert_allclose(result.elbo[-1], value - rest + density, rtol=1e-9)


def test_means_obey_the_constraints(fitted):
    """At states and actions with data and without."""
    model, mean = fitted.result.posterior.model, fitted.result.posterior.mean()
    agent = model.agent(mean)
    own = np.diagonal(
        np.moveaxis(np.asarray(agent.transition), 0, 2), axis1=2, axis2=3
    )  # (state, action, intent)
    np.testing.assert_allclose(own[2], 1, rtol=1e-15)
    assert own[[1, 3]][:, :2].min() >= 0.8 - 1e-10
    np.testing.assert_allclose(own[4], 0.99, rtol=1e-9)
    np.testing.assert_array_equal(np.asarray(agent.policy)[:, 2, 2], 0)
    np.testing.assert_allclose(np.asarray(agent.policy).sum(-1), 1)


def test_rows_that_invent_counts_are_warned_of(fitted):
    """A mean of .99 on rows of three pseudo-counts is worth some hundred of them."""
    assert any(
        "constraints make" in text and "constrained rows of transition" in text for text in fitted.warned
    )


def test_no_intent_changes_where_it_never_does(fitted, decoded):
    changes, path = decoded.change, decoded.path
    region = fitted.data.states[:, :-1] == 2
    assert region.sum() > 5 and changes[region].max() < 1e-12 and changes[~region].max() > 0.1
    assert (path[:, 1:] == path[:, :-1])[region].all()


def test_held_out_scores_count_actions_where_training_did_not_go(fitted):
    """Unseen states and actions are scored by prior rows, without stay labels; a missing action is no step."""
    random, shape = np.random.default_rng(9), (27, 3)
    states, actions = random.integers(S, size=shape), random.integers(A, size=shape)
    actions[:, 1::2] = -1
    test = Trajectories.from_list(states=list(states), actions=list(actions))
    test = test._replace(stay=np.full(shape, -1, np.int32))
    model, mean = fitted.result.posterior.model, fitted.result.posterior.mean()
    pairs = states * (A + 1) + np.where(actions < 0, A, actions)
    assert not np.isin(pairs, model.visited.pairs).all()  # rows of missing actions
    score = heldout_log_likelihood(fitted.result, test)
    total = np.sum(scored(model, mean, test))
    np.testing.assert_allclose(score, total / (actions >= 0).sum(), rtol=1e-12)


def test_the_held_out_score_of_a_constrained_fit_is_a_density(fitted):
    """All sequences of three actions, in states that training visits under every kind of constraint."""
    sequences = np.array(list(itertools.product(range(3), repeat=3)))
    model, mean = fitted.result.posterior.model, fitted.result.posterior.mean()
    for states in ([2, 1, 4], [0, 2, 2]):
        data = Trajectories.from_list(states=[states] * len(sequences), actions=sequences.tolist())
        data = data._replace(stay=np.full((len(sequences), 3), -1, np.int32))
        logs = np.asarray(scored(model, mean, data))
        np.testing.assert_allclose(np.exp(logs).sum(), 1, atol=1e-10)
        score = heldout_log_likelihood(fitted.result, data)
        finite = np.isfinite(logs)
        assert finite.all() == np.isfinite(score)


def test_an_intent_beyond_the_truncation_stays_where_none_may_change(fitted):
    model, mean = fitted.result.posterior.model, fitted.result.posterior.mean()
    table, _, row_of = map(np.asarray, agent_tables(model, mean))
    rest = table[row_of[2], -1]
    np.testing.assert_array_equal(rest, np.tile(np.eye(5)[-1], (len(rest), 1)))


def test_a_step_is_the_natural_gradient(walks):
    """With fixed weights: q + step * (prior + scale * statistics - q), in every block."""
    model = AgentMarkov(S, A, 2, beta_prior="fixed", stickiness=None).bind(walks)
    prior, random = model.prior(), np.random.default_rng(3)
    names = ("initial", "transition", "policy")
    shapes = {name: prior[name].natural.concentration.shape for name in names}
    q, counts = ({name: random.gamma(2.0, size=shape) for name, shape in shapes.items()} for _ in range(2))
    blocks = {**prior, **{name: Dirichlet(DirichletCoordinates(x)) for name, x in q.items()}}
    statistics = {"weights": (), **{name: DirichletCoordinates(x) for name, x in counts.items()}}
    moved = jax.jit(model.update)(blocks, prior, statistics, 5.0, 0.25)
    for name in names:
        start = np.asarray(prior[name].natural.concentration)
        expected = q[name] + 0.25 * (start + 5.0 * counts[name] - q[name])
        np.testing.assert_allclose(moved[name].natural.concentration, expected, rtol=1e-12)


def test_starts_from_the_prior_are_possible_in_single_precision(walks):
    """Draws near zero are no zeros, though the step to them cancels most of the prior."""
    with jax.enable_x64(False):
        model = AgentMarkov(S, A, 10, alpha=0.5).bind(walks)
        blocks = start_blocks(jax.random.key(7), model, model.prior(), [], 20, "prior")
        for name in ("initial", "transition", "policy"):
            rows = np.asarray(blocks[name].natural.concentration)
            assert rows.dtype == np.float32 and (rows > 0).all() and np.isfinite(rows).all()


def test_a_fit_goes_on_only_with_the_rows_it_has(walks, fitted):
    """Data of equal shape in which other states occur are refused, though every block has the right shape."""
    model = AgentMarkov(2 * S, A, truncation=2)
    bound = model.bind(walks)
    with pytest.raises(ValueError, match="init is a result of data with other states"):
        model.bind(walks._replace(states=walks.states + S), like=bound)
    model.bind(walks, like=bound)
    with pytest.raises(ValueError, match="init is a result under other constraints"):
        AgentMarkov(S, A, 4, stickiness=None).bind(walks, like=fitted.result.posterior.model)


@pytest.mark.slow
def test_rows_without_data_change_nothing_in_block_steps(walks):
    """Carried or marginalised, they give the same ELBO and weights."""
    whole, visited = (
        run(
            AgentMarkov(3 * S, A, 4, rows=rows, stickiness=None),  # most states have no data
            walks,
            init="sticky",
            restarts=2,
            search="restarts",
        )
        for rows in ("all", "visited")
    )
    sizes = [len(fit.posterior.blocks["transition"].mean()) for fit in (whole, visited)]
    assert sizes[0] > sizes[1]
    # From the first step on: the start has a self-transition in every row that is carried.
    np.testing.assert_allclose(whole.restart_traces[:, 1:], visited.restart_traces[:, 1:], rtol=1e-9)
    weights = (fit.posterior.blocks["weights"].mean() for fit in (whole, visited))
    np.testing.assert_allclose(*weights, rtol=1e-6)
