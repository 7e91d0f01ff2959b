"""Sticky rows: bounds against enumeration of paths, steps against objectives written apart from the code."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import gammaln, logsumexp

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import Dirichlet, DirichletCoordinates, expected_statistics
from ethogram.models.intents import AgentMarkov, IntentConstraints, StickinessPrior
from ethogram.models.intents.row_counts import CountedRows, counted_rows
from ethogram.models.intents.row_sites import sample_rows
from ethogram.models.intents.stick_weights import StickWeights, fit_to_counts
from ethogram.models.intents.stickiness import Stickiness, fit_stickiness
from ethogram.models.intents.updates import agent_tables

S, A, K, ALPHA, GAMMA = 2, 2, 2, 3.0, 2.5
STATES, ACTIONS = [0, 1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 0, 0, 1]
STAY = [1, -1, 0, 1, -1, 1]
DATA = Trajectories.from_list(states=[STATES], actions=[ACTIONS])._replace(
    stay=np.array([[*STAY, -1]], np.int32)
)


def log_beta(rows):
    return gammaln(rows).sum(-1) - gammaln(rows.sum(-1))


def log_labels(path, accuracy):
    """Log probability of the stay labels given a path."""
    right = [(path[t] == path[t + 1]) == (label == 1) for t, label in enumerate(STAY) if label >= 0]
    return np.log(np.where(right, accuracy, 1 - accuracy)).sum()


def exact_evidence(weights, kappa, accuracy):
    """Paths enumerated; all rows integrated, as Dirichlet-multinomials."""
    logs, sticky = [], ALPHA * weights + kappa * np.eye(K, K + 1)
    for path in itertools.product(range(K), repeat=len(STATES)):
        policy, rows = np.zeros((K, S, A)), np.zeros((S, A, K, K + 1))
        np.add.at(policy, (list(path), STATES, ACTIONS), 1)
        np.add.at(rows, (STATES[:-1], ACTIONS[:-1], list(path[:-1]), list(path[1:])), 1)
        value = log_labels(path, accuracy) + np.log(weights[path[0]])
        value += (log_beta(1 + policy) - log_beta(np.ones(A))).sum()
        logs.append(value + (log_beta(sticky + rows) - log_beta(sticky)).sum())
    return logsumexp(logs)


@jax.jit
def ascended(model, blocks, batch):
    """Blocks after 40 sweeps; the expected potentials, local terms and counts, and bounds before each of them."""

    def sweep(blocks, _):
        def value(expected):
            return model.log_normalizer(expected, batch)

        expected = expected_statistics(blocks)
        local, statistics = jax.value_and_grad(value)(expected)
        found = expected, local, statistics, local - model.divergence(blocks)
        return model.update(blocks, None, statistics, 1.0, 1.0), found

    return jax.lax.scan(sweep, blocks, length=40)


@pytest.fixture(scope="module")
def fitted():
    """Weights and stickiness moved at once, from counts that differ by intent."""
    settings = {"gamma": GAMMA, "stickiness": "learn", "stay_accuracy": 0.9}
    model = AgentMarkov(S, A, K, **settings).bind(DATA)
    statistics = model.start_statistics(np.random.default_rng(0), "sticky", [model.arrange(DATA)])
    start = {
        name: block
        if name in ("weights", "stickiness")
        else Dirichlet(
            DirichletCoordinates(np.asarray(block.natural.concentration) + statistics[name].concentration)
        )
        for name, block in model.prior().items()
    }
    return model, *jax.device_get(ascended(model, start, model.arrange(DATA)))


def test_the_bound_is_below_the_evidence_and_never_falls_when_all_moves(fitted):
    """The evidence is that of the weights where it ends."""
    _, blocks, (*_, bounds) = fitted
    kappa, weights = float(blocks["stickiness"].natural), np.asarray(blocks["weights"].natural)
    exact = exact_evidence(weights, kappa, 0.9)
    exact += (GAMMA - 1) * np.log(
        weights[-1]
    ) - 0.05 * kappa  # both densities relative to their largest values
    assert 0 < kappa < 20 and np.diff(bounds).min() > -1e-9
    assert exact - 4 < bounds[-1] < exact


def test_the_local_step_is_enumeration_over_paths(fitted):
    """Log normaliser, and the expected number of stays by its gradient."""
    model, _, found = fitted
    expected, value, counts, _ = jax.tree.map(lambda x: x[0], found)
    logs = {name: x.concentration for name, x in expected.items() if x}
    rows = np.asarray(model.visited.row_of)[STATES[:-1], ACTIONS[:-1]]
    total, stays = [], []
    for path in map(np.array, itertools.product(range(K), repeat=len(STATES))):
        weight = (
            logs["initial"][path[0]] + log_labels(path, 0.9) + logs["policy"][path, STATES, ACTIONS].sum()
        )
        total.append(weight + logs["transition"][rows, path[:-1], path[1:]].sum())
        stays.append((path[:-1] == path[1:]).sum())
    np.testing.assert_allclose(value, logsumexp(total), rtol=1e-12)
    found = np.einsum("rii->", counts["transition"].concentration[..., :K])
    np.testing.assert_allclose(found, np.exp(np.array(total) - value) @ np.array(stays), rtol=1e-10)


def row_set(seed=0, count=30):
    """Counted rows of three intents, among them some that q holds."""
    random = np.random.default_rng(seed)
    intents = np.concatenate([[-1], np.tile(np.arange(3), count // 3)])
    own = intents[:, None] == np.arange(4)
    counts = random.gamma(0.5, 6, size=(len(own), 3)) + 9 * own[:, :3]
    logs = np.log(random.dirichlet(np.ones(4), size=6))
    held_own = np.tile(np.arange(3), 2)[:, None] == np.arange(4)
    return CountedRows(counts, logs, np.arange(6) < 4, own, held_own)


def objective(weights, kappa, rows, shape=1.0, rate=0.05):
    """Free rows integrated, held rows by their expected logs; densities relative to their largest values."""
    prior, held = ALPHA * weights + kappa * rows.own, (ALPHA * weights + kappa * rows.held_own)[rows.taken]
    value = (log_beta(prior + np.pad(rows.counts, ((0, 0), (0, 1)))) - log_beta(prior)).sum()
    value += (held * rows.logs[rows.taken]).sum() - log_beta(held).sum()
    value += (GAMMA - 1) * np.log(weights[-1])
    mode = (shape - 1) / rate
    return value + (shape - 1) * (np.log(kappa / mode) if mode else 0) - rate * (kappa - mode)


def test_the_weight_step_has_the_stickiness_in_its_argument():
    """Many steps end where the objective falls in every direction; without stickiness they would not."""
    rows, kappa = row_set(), 20.0

    @jax.jit
    def moved(weights, rows):
        step = lambda _, w: fit_to_counts(w, ALPHA, *rows[:3], kappa, rows.own, rows.held_own)  # noqa: E731
        return jax.lax.fori_loop(0, 30, step, weights)

    best = np.asarray(moved(StickWeights(np.full(4, 0.25), np.asarray(GAMMA), "stick"), rows).natural)
    top = objective(best, kappa, rows)
    for direction in np.random.default_rng(1).normal(size=(20, 4)):
        away = best * np.exp(1e-3 * direction)
        change = (objective(away / away.sum(), kappa, rows) - top) / 1e-3
        assert -1 < change < 1e-3


@pytest.mark.parametrize("shape", [1.0, 3.0])
def test_the_stickiness_step_finds_the_maximum(shape):
    rows, weights = row_set(), np.array([0.5, 0.2, 0.2, 0.1])
    grid = np.exp(np.linspace(np.log(0.01), np.log(300), 4000))
    best = grid[np.argmax([objective(weights, kappa, rows, shape) for kappa in grid])]
    step = jax.jit(fit_stickiness)
    for start in (0.1, 20.0, 200.0):
        block, last = Stickiness(*map(np.asarray, (start, shape, 0.05))), -np.inf
        for _ in range(6):
            value = objective(weights, float(block.natural), rows, shape)
            assert value >= last - 1e-9
            block, last = step(block, ALPHA, weights, rows), value
        np.testing.assert_allclose(block.natural, best, rtol=5e-3)


def test_zero_is_no_stickiness():
    """The same leaves and structure: the same programs, and the same numbers."""
    plain, zero = (AgentMarkov(S, A, K, stickiness=x) for x in (None, 0))
    assert jax.tree.structure(plain) == jax.tree.structure(zero)


def test_predictions_stay_as_the_prior_does():
    """Rows without data, and the intent beyond the truncation, at their prior means; sums of one."""
    kappa = 4.0
    model = AgentMarkov(6, A, K, stickiness="learn").bind(DATA)
    random = np.random.default_rng(0)
    parameters = {
        name: random.dirichlet(
            np.ones(block.natural.concentration.shape[-1]), block.natural.concentration.shape[:-1]
        )
        for name, block in model.prior().items()
        if name not in ("weights", "stickiness")
    }
    weights = np.array([0.5, 0.3, 0.2])
    table, _, row_of = map(
        np.asarray, agent_tables(model, parameters | {"weights": weights, "stickiness": kappa})
    )
    np.testing.assert_allclose(table.sum(-1), 1, atol=1e-12)
    mean = (ALPHA * weights + kappa * np.eye(3)) / (ALPHA + kappa)
    np.testing.assert_allclose(table[row_of[2, 0]], mean, rtol=1e-12)
    visited = row_of[0, 0]
    np.testing.assert_allclose(table[visited, :-1], parameters["transition"][visited], rtol=1e-12)


def test_rows_of_the_numpyro_model_are_shares_of_staying_and_of_the_prior():
    """Beta shares of staying beside Dirichlet rows, which are sticky Dirichlet rows together."""
    model, random = AgentMarkov(2, A, K, beta_prior="fixed", stickiness=4.0), np.random.default_rng(0)
    free, stay = random.dirichlet(np.ones(K + 1), (4, K)), random.beta(4.0, ALPHA, (4, K))
    at = {"initial": random.dirichlet(np.ones(K + 1)), "transition_free": free, "transition_stay": stay}

    @jax.jit
    def density(at):
        total, sites = log_density(sample_rows, (model,), {}, at)
        return total, sites["transition"]["value"]

    found, rows = density(at)
    wanted = sum(
        stats.dirichlet.logpdf(row, np.ones(K + 1)) for row in (at["initial"], *free.reshape(-1, K + 1))
    )
    np.testing.assert_allclose(found, wanted + stats.beta.logpdf(stay, 4.0, ALPHA).sum(), rtol=1e-10)
    np.testing.assert_allclose(rows, stay[..., None] * np.eye(K, K + 1) + (1 - stay[..., None]) * free)


BAD = {
    "negative": ({"stickiness": -1.0}, "stickiness must be a scalar >= 0"),
    "word": ({"stickiness": "lots"}, "stickiness"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        AgentMarkov(S, A, K, **arguments)
    with pytest.raises(ValueError, match="shape is below 1"):
        StickinessPrior(shape=0.5)


def test_rows_that_never_switch_do_not_inform_the_weights():
    model = AgentMarkov(S, A, K, constraints=IntentConstraints.never_switch([1])).bind(DATA)
    rows, random = model.visited, np.random.default_rng(0)
    counts = {"initial": random.random(K + 1), "transition": random.random((rows.num_rows, K, K + 1))}
    found = jax.jit(lambda counts: counted_rows(model, {}, counts).counts)(counts)
    never = np.asarray(rows.never)[: len(rows.pairs)]
    assert never.any() and not never.all()
    wanted = np.where(never[:, None, None], 0, counts["transition"][: len(never), :, :-1])
    np.testing.assert_array_equal(found, [counts["initial"][:-1], *wanted.reshape(-1, K)])
