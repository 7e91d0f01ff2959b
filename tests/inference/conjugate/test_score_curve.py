"""The held-out score against enumeration, and scores over sizes."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from ethogram.inference import storage
from ethogram.inference.conjugate.conjugate_svi import ConjugateResult, ConjugateSVI
from ethogram.inference.conjugate.posterior import ConjugatePosterior
from ethogram.inference.conjugate.score_curve import (
    ScoreCurve,
    heldout_log_likelihood,
    heldout_score_curve,
    standard_errors,
)
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families.exponential_family import Dirichlet
from ethogram.models.intents import AgentMarkov
from ethogram.models.roles.role_hmm import RoleHMM

pytestmark = pytest.mark.usefixtures("float64")


def result_of(model, blocks=None):
    blocks = model.prior() if blocks is None else blocks
    empty = np.zeros(1)
    key = jax.random.key(0)
    return ConjugateResult(ConjugatePosterior(model, blocks), empty, empty, True, 1, key, empty, empty[None])


def test_the_heldout_score_is_that_of_all_paths(symbol_model, symbols):
    rng = np.random.default_rng(0)
    model, data = symbol_model(), symbols(lengths=np.array([4, 5, 0, 2], np.int32), group=None)
    blocks = {
        name: Dirichlet.from_standard(rng.gamma(1.0, size=block.natural.concentration.shape) + 0.1)
        for name, block in model.prior().items()
    }
    rows = {k: np.asarray(b.natural.concentration) for k, b in blocks.items()}
    initial, transition, probability = (
        rows[k] / rows[k].sum(-1, keepdims=True) for k in ("initial", "transition", "probability")
    )
    total = 0.0
    for x, seen, length in zip(data.observations[..., 0], data.observed, data.lengths, strict=True):
        evidence = 0.0
        for path in itertools.product(range(2), repeat=int(length)):
            share = np.prod([probability[z, x[t]] for t, z in enumerate(path) if seen[t]])
            chain = np.prod([transition[pair] for pair in itertools.pairwise(path)])
            evidence += (initial[path[0]] if path else 1) * chain * share
        total += np.log(evidence)
    score = heldout_log_likelihood(result_of(model, blocks), data)
    assert isinstance(score, float)
    np.testing.assert_allclose(score, total / data.observed.sum(), rtol=1e-10)


def test_scores_that_do_not_exist_are_refused(symbol_model, symbols):
    data = symbols()
    with pytest.raises(ValueError, match="test data have no observed step"):
        nothing = data._replace(observed=np.zeros_like(data.observed))
        heldout_log_likelihood(result_of(symbol_model()), nothing)
    with pytest.raises(ValueError, match="outside the 3 categories"):
        heldout_log_likelihood(result_of(symbol_model()), data._replace(observations=data.observations + 5))
    vague = RoleHMM(2, GaussianEmission(1, dof=1.5))
    with pytest.raises(
        ValueError, match="the posterior mean of covariance does not exist: strengthen its prior"
    ):
        heldout_log_likelihood(result_of(vague), data._replace(observations=data.observations.astype(float)))


@pytest.mark.slow
def test_a_curve_over_sizes(symbol_model, symbols):
    data = symbols(lengths=np.full(12, 12, np.int32), group=np.arange(12, dtype=np.int32))
    sizes = iter([1, 100])
    curve = heldout_score_curve(
        jax.random.key(0),
        lambda size: symbol_model(concentration=float(size)),
        sizes,
        data,
        num_steps=30,
        restarts=2,
        progress_bar=False,
    )
    np.testing.assert_array_equal(curve.size, [1, 100])
    assert curve.heldout[0] > curve.heldout[1] + 0.01
    assert curve.elbo[0] > curve.elbo[1] + 1
    for size, elbo, fit in zip(curve.size, curve.elbo, curve.fits, strict=True):
        np.testing.assert_array_equal(fit.posterior.model.emission.concentration, [size] * 3)
        assert fit.restart_elbos.max() == elbo
    key_split, _ = jax.random.split(jax.random.key(0))
    train, test = data.split(key_split, by="group")
    assert (train.num_sequences, test.num_sequences) == (9, 3)
    np.testing.assert_allclose(curve.heldout[1], heldout_log_likelihood(curve.fits[1], test))
    with pytest.raises(ValueError, match="sizes is empty: give at least one"):
        heldout_score_curve(jax.random.key(0), RoleHMM, [], data)
    without_groups = data._replace(group=None)
    with pytest.raises(ValueError, match="by='group' needs"):
        heldout_score_curve(jax.random.key(0), RoleHMM, [1], without_groups, by="group")
    _, test = data.split(jax.random.split(jax.random.key(0))[0], by="group")
    each = [test.take([i])._replace(group=None) for i in range(test.num_sequences)]
    scores = [[heldout_log_likelihood(fit, one) * one.observed.sum() for one in each] for fit in curve.fits]
    gaps, steps = np.subtract(scores[1], scores[0]), test.observed.sum(axis=1)
    left = gaps - gaps.sum() / steps.sum() * steps
    expected = left.std(ddof=1) * np.sqrt(len(gaps)) / steps.sum()
    np.testing.assert_allclose(curve.heldout_se, [0, expected], rtol=1e-9)
    assert curve.selected_size == 1


@pytest.mark.slow
def test_peers_of_an_agent_are_scored_on_its_split():
    """A table by its own fit, and the hidden Markov model by a fit of its own, whose ELBO never falls."""
    random = np.random.default_rng(0)
    states, actions = random.integers(3, size=(8, 12)), random.integers(2, size=(8, 12))
    data = Trajectories.from_list(states=states.tolist(), actions=actions.tolist())
    data = data._replace(stay=np.tile(np.repeat([1, 0, -1], [4, 1, 7]).astype(np.int32), (8, 1)))
    options = {"restarts": 2, "tol": 0.0, "progress_bar": False}
    model = AgentMarkov(3, 2, 2, stay_accuracy=1.0)
    curve = heldout_score_curve(jax.random.key(0), lambda size: model, [2], data, num_steps=15, **options)
    assert list(curve.peers) == ["one intent", "input-driven HMM", "p(a | s)", "p(a | s, previous a)"]
    key_split, key_fits = jax.random.split(jax.random.key(0))
    train, test = data.split(key_split, by="sequence")
    hidden = test._replace(stay=np.full_like(test.stay, -1))
    np.testing.assert_allclose(curve.heldout[0], heldout_log_likelihood(curve.fits[0], hidden))
    peers = curve.fits[0].posterior.model.peers()
    table = peers["p(a | s)"].fit(train).log_prob(test)
    found = curve.peers["p(a | s)"]
    np.testing.assert_allclose(found.heldout, table.sum() / test.observed.sum(), rtol=1e-12)
    mine = [heldout_log_likelihood(curve.fits[0], hidden.take([i])) * 12 for i in range(2)]
    gaps = table - mine
    error = (gaps - gaps.mean()).std(ddof=1) * np.sqrt(2) / 24
    np.testing.assert_allclose(found.heldout_se, error, rtol=1e-9)
    chain = ConjugateSVI(peers["input-driven HMM"]).run(jax.random.fold_in(key_fits, 1), train, 15, **options)
    np.testing.assert_allclose(
        curve.peers["input-driven HMM"].heldout, heldout_log_likelihood(chain, hidden), rtol=1e-9
    )
    assert chain.posterior.model.visited.num_rows == 1
    assert np.diff(chain.restart_traces, axis=1).min() >= -1e-8


def test_the_smallest_size_within_one_standard_error_is_selected():
    curve = ScoreCurve(
        np.array([5, 3, 2, 4]),
        np.zeros(4),
        np.array([-1.0, -1.01, -1.3, -1.005]),
        (),
        np.array([0, 0.02, 0.1, 0.001]),
        1,
    )
    assert curve.selected_size == 3


@pytest.mark.parametrize(("sizes", "warns"), [([1, 2, 3], True), ([4, 3, 2], False), ([3], False)])
def test_a_curve_that_still_rises_says_so(sizes, warns):
    """Where the largest of several sizes is selected; scores are those of sizes from 1 to 3, better and better."""
    heldout = np.array([-3.0, -2.0, -1.0])[: len(sizes)]
    curve = ScoreCurve(np.array(sizes), np.zeros(len(sizes)), heldout, (), np.full(len(sizes), 0.1), 1)
    assert bool(curve.caution) == warns
    assert (
        curve.caution.startswith("3 is the largest size offered, and the held-out score still rises") == warns
    )


def test_sequences_without_a_step_count_for_nothing_in_standard_errors():
    gaps, steps = np.array([[0.0, 0.0, 0.0], [1.0, -3.0, 0.5]]), np.array([4, 9, 5])
    alone = standard_errors(gaps, steps)
    assert alone[1] > 0
    places = [0, 1, 1, 3]
    with_empty = standard_errors(np.insert(gaps, places, 0.0, axis=1), np.insert(steps, places, 0))
    np.testing.assert_array_equal(with_empty, alone)
    assert (
        standard_errors(np.array([[0.0, 2.0, 0.0]]), np.array([0, 3, 0])) == 0
    )  # of one sequence there is none


def test_scores_of_impossible_data_select_nothing():
    curve = ScoreCurve(np.array([1, 2]), np.zeros(2), np.full(2, -np.inf), (), np.zeros(2), 1)
    with pytest.raises(ValueError, match="no size gives the test data a positive probability"):
        _ = curve.selected_size


def test_sizes_of_a_curve_have_checkpoints_of_their_own(symbol_model, symbols, tmp_path):
    """The second size was refused, since the file was that of the first."""
    data = symbols(lengths=np.full(12, 12, np.int32), group=np.arange(12, dtype=np.int32))

    def curve(**more):
        options = {"restarts": 1, "tol": 0.0, "progress_bar": False, "num_steps": 12} | more
        return heldout_score_curve(
            jax.random.key(0), lambda size: symbol_model(float(size)), [1, 100], data, **options
        )

    whole = curve()
    for other in (curve(checkpoint=tmp_path / "curve"), curve(checkpoint=tmp_path / "curve")):
        np.testing.assert_array_equal(other.elbo, whole.elbo)
        np.testing.assert_array_equal(other.heldout, whole.heldout)
    assert {path.suffix for path in tmp_path.iterdir()} - {".previous"} == {".1", ".100"}
    assert storage.read(tmp_path / "curve.100")["state"].steps == 10
