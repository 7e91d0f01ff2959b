"""Benchmarks of the agent Markov model: the plain reference against the package, and rows with their columns."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks.papers import agent_markov_selection, intent_data, intent_number, intent_peers
from benchmarks.speed import agent_markov
from benchmarks.speed import agent_markov_reference as plain
from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult
from ethogram.inference.conjugate.projection import project_rows
from ethogram.inference.conjugate.score_curve import PeerScore, ScoreCurve
from ethogram.models.families.exponential_family import Dirichlet, expected_statistics
from ethogram.models.intents.stick_weights import StickWeights, fit_to_counts

COLUMNS = {
    "size", "peer", "dtype", "ours_ms", "peer_ms", "ours_wall_ms", "peer_wall_ms", "ratio", "ratio_low", "ratio_high",
    "compile_s", "peak_mb", "error",
}  # fmt: skip


@pytest.mark.slow
def test_reference_has_the_local_step_and_the_bound_of_the_package():
    fit = agent_markov.bind(3, (4, 3, 3), (5, 8))
    model, random = fit.model, np.random.default_rng(4)
    one = {
        name: block
        if name == "weights"
        else Dirichlet.from_standard(random.gamma(1.0, 2.0, block.natural.concentration.shape))
        for name, block in model.prior().items()
    }
    fit = fit._replace(blocks=jax.tree.map(lambda x: np.asarray(x)[None], one))
    tables = agent_markov.tables_of(fit)
    value, counts = plain.local_step(tables, fit.traces)
    found = agent_markov.found_by(fit, jax.jit(expected_statistics)(one))
    assert plain.relative_error(found, (value, counts)) < 1e-10
    assert counts.initial.sum() == pytest.approx(5) and counts.policy.sum() == pytest.approx(40)
    ours = float(found[0]) - float(jax.jit(lambda model, blocks: model.divergence(blocks))(model, one))
    assert plain.bound(value, tables, *agent_markov.PRIOR) == pytest.approx(ours, rel=1e-10)


def test_weights_of_the_reference_are_where_the_package_ends():
    counts = np.random.default_rng(1).gamma(0.3, 10, (12, 3))
    start = StickWeights.uniform(3, jax.device_put(3.0), "stick")
    step = jax.jit(lambda weights, counts: fit_to_counts(weights, 3.0, counts))
    weights = start
    for _ in range(20):
        weights = step(weights, counts)
    theirs = plain.fit_weights(np.asarray(start.natural), 3.0, 3.0, counts)
    np.testing.assert_allclose(theirs, weights.natural, atol=1e-4)


@pytest.mark.slow
def test_no_row_of_the_reference_is_better():
    free, lower, upper = plain.draw_rows(2, 8, ("equal", "least"), size=5)
    theirs = plain.project_rows(free, lower, upper)
    kept = plain.keeps_to(theirs, lower, upper)
    assert kept.sum() >= 5
    ours = plain.row_objective(np.asarray(project_rows(free, lower, upper).concentration), free)
    assert (ours >= plain.row_objective(theirs, free) - 1e-8 * (1 + abs(ours)))[kept].all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the peer's, at import
def test_rows_of_projections_and_e_steps_have_their_columns():
    (row,) = agent_markov.measure_projection("projection-equal", ("equal",), 8, "float64", 1, 0)
    assert row.keys() >= COLUMNS | {"correct", "case", "bounded_rows"} and row["correct"]
    pytest.importorskip("dynamax")
    rows = agent_markov.measure_e_step("small", (3, 6, 2, 3, 2), "float64", 1, 0)
    assert [row["peer"] for row in rows] == ["dynamax two-filter", "dynamax smoother"]
    for row in rows:
        assert row.keys() >= COLUMNS | {"correct", "target", "reached", "peer_error"}
        assert row["correct"] and row["peer_error"] < 1e-8


@pytest.mark.slow
def test_rows_of_memory_have_their_columns(monkeypatch):
    """From the blocks of a start: what compiled programs take is measured by the script alone."""
    monkeypatch.setattr(agent_markov, "one_sweep", lambda model, blocks, *rest: (blocks,))
    monkeypatch.setattr(agent_markov, "peak_memory", lambda contender: None)
    rows = agent_markov.measure_memory(100, 2, 1000, "float64", 0)
    assert rows[0]["visited_rows"] < rows[1]["visited_rows"] and rows[0]["blocks_mb"] < rows[1]["blocks_mb"]
    assert "reached" in rows[0]


@pytest.mark.slow
def test_rows_of_public_data_have_their_columns(monkeypatch):
    """With the prior in place of fits, which are tested elsewhere and take their time to compile."""

    def unfitted(model, data, sizes, number):
        model = model.bind(data)
        nothing = np.zeros(1)
        posterior = ConjugatePosterior(model, model.prior())
        key = jax.random.key(0)
        return ConjugateResult(posterior, nothing, nothing, False, 0, key, np.zeros(1, int), nothing[None])

    monkeypatch.setattr(intent_data, "_fit", unfitted)
    sizes = intent_data.Sizes(1, 1, 2, board=(5, 30), maze=(4, 2, 30), intents=(1, 3))
    board = intent_data.rows_of_gridworld5(sizes, 0)
    fits = {row["version"]: row for row in board if row["kind"] == "fit"}
    assert list(fits) == list(intent_data.VERSIONS)
    assert fits["K=1"]["hamming_test"] is None and 0 <= fits["CVI-LG"]["hamming_test"] <= 1
    assert fits["VI"]["reference_heldout_log_likelihood_per_step"] == -1.53
    assert sum("reached" in row for row in board) == 4
    monkeypatch.setattr(intent_data, "_without_truth", lambda result, train, test: [-1.0, 1, -50.0])
    maze = intent_data.rows_of_labyrinth(sizes, 0)
    assert [row["version"] for row in maze[:-1]] == ["K=1", "K=3"] and "reached" in maze[-1]
    assert maze[0]["heldout_log_likelihood_per_step"] == -1.0


def test_rows_of_peers_compare_them_with_the_best_size_of_each_draw(monkeypatch):
    curves = iter(
        ScoreCurve(np.array([2, 3, 5]), np.zeros(3), np.array(score), (), np.zeros(3), 1, peers)
        for score, peers in (
            ([-1.0, -0.8, -0.9], {"one intent": PeerScore(-1.0, 0.1)}),
            ([-0.7, -1.0, -0.9], {"one intent": PeerScore(-0.8, 0.2)}),
            ([-0.9, -0.9, -0.8], {"one intent": PeerScore(-0.9, 0.3)}),
        )
    )
    monkeypatch.setattr(intent_peers, "heldout_score_curve", lambda *_, **__: next(curves))
    case = intent_peers.Case("maze", lambda number: None, lambda size: None, 0.15)
    *sizes, peer = intent_peers._rows(case, False, 0)
    assert [row["model"] for row in sizes] == ["2 intents", "3 intents", "5 intents"]
    np.testing.assert_allclose([row["heldout"] for row in sizes], [-2.6 / 3, -0.9, -2.6 / 3])
    np.testing.assert_allclose([peer["gain_of_intents"], peer["heldout"], peer["se"]], [0.4 / 3, -0.9, 0.2])
    assert (peer["target"], peer["reached"]) == (0.15, False)


def test_the_smallest_truncation_that_ties_is_selected():
    """Within a nat of the best, whichever is the best."""
    scores = np.array([[-90.0, -50.0, -49.5, -49.4], [-90.0, -50.0, -50.0, -48.0]])
    assert agent_markov_selection._smallest(scores).tolist() == [1, 3]
    agent, dynamics = agent_markov_selection._agent(np.random.default_rng(0))
    np.testing.assert_allclose(agent.policy.sum(-1), 1)
    np.testing.assert_allclose(agent.transition.sum(-1), 1)
    assert len(np.unique(agent.policy.argmax(-1), axis=0)) == 3 and dynamics.shape == (12, 4, 12)


def test_targets_of_the_number_of_intents_are_of_the_worst_draw():
    """Two draws of made-up scores, of which the second misses the Hamming target and uses three intents."""
    good = np.array([[-7900.0, -7904, -1.55, 0.5, 1, 0], [-7600, -7604, -1.48, 0.1, 2, 40]])
    scores = {(v, k): good[[int(k > 1)] * 2].T.copy() for v in intent_number.VERSIONS for k in (1, 2, 5)}
    scores["learned", 5][3:5, 1] = 0.4, 3
    scores["stickiness 0", 2][4] = 1
    found = {(v, target): (value, hit) for v, target, value, hit in intent_number._targets(scores, 5)}
    assert found["learned", "K = 5: test Hamming <= 0.13"] == (0.4, False)
    assert found["learned", "K = 5: two intents used"] == (3, False)
    assert [key[0] for key, (_, hit) in found.items() if not hit] == ["learned"] * 2
