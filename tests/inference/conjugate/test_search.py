"""The search of coordinate ascent: labels and their statistics by hand and by enumeration, growth, edits, resuming."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate import ConjugatePosterior, ConjugateResult, ConjugateSVI
from ethogram.inference.conjugate import search as search_module
from ethogram.inference.conjugate.problem import make_problem
from ethogram.inference.conjugate.search import Labelled, Settled, _labelled, reductions, splits
from ethogram.inference.conjugate.steps import bounds
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families.exponential_family import Dirichlet, DirichletCoordinates
from ethogram.models.intents import AgentMarkov, IntentConstraints
from ethogram.models.roles import RoleHMM

pytestmark = pytest.mark.usefixtures("float64")

S, A = 4, 3
MODEL = AgentMarkov(S, A, 4, stickiness="learn", rows="all")
OPTIONS = {"restarts": 4, "progress_bar": False}


@pytest.fixture(scope="module")
def walks():
    """Walks over a ring of four cells with three sticky intents, each with an action of its own."""
    rng, shape = np.random.default_rng(0), (8, 40)
    changes = np.where(rng.random(shape) < 0.06, rng.integers(1, 3, size=shape), 0)
    intents = np.cumsum(changes, axis=1) % 3
    actions = np.where(rng.random(shape) < 0.85, intents, rng.integers(A, size=shape))
    states = (np.arange(8)[:, None] + np.cumsum(actions, axis=1) - actions) % S
    return Trajectories.from_list(states=list(states), actions=list(actions))


def run(model, data, steps, seed=2, **options):
    return ConjugateSVI(model).run(jax.random.key(seed), data, steps, **OPTIONS | options)


def mass_of(fit):
    return np.asarray(jax.jit(lambda blocks: fit.posterior.model.growth.mass(blocks))(fit.posterior.blocks))


def test_label_statistics_of_intents_are_counts_by_hand(walks):
    """Of ragged traces with a missing action: every step in Python."""
    data = walks.take([0, 1, 2])._replace(lengths=np.array([40, 7, 1])).trim()
    actions = np.array(data.actions)
    actions[0, 5] = -1
    model = AgentMarkov(S, A, 3).bind(data._replace(actions=actions))
    data = data._replace(actions=actions)
    batch, rows = model.arrange(data), model.rows_carried()
    labels = np.random.default_rng(1).integers(3, size=data.actions.shape)
    found = model.labelling.statistics(np.random.default_rng(0), [labels], [batch])
    initial, policy = np.zeros(4), np.zeros((3, len(rows.states), A))
    transition = np.zeros((rows.num_rows, 3, 4))
    where = {int(state): at for at, state in enumerate(rows.states)}
    for n, length in enumerate(data.lengths):
        initial[labels[n, 0]] += 1
        for t in range(length):
            state, action = where[int(data.states[n, t])], actions[n, t]
            if action >= 0:
                policy[labels[n, t], state, action] += 1
            if t + 1 < length:
                row = rows.row_pair[np.asarray(batch.rows)[n, t]]
                transition[row, labels[n, t], labels[n, t + 1]] += 1
    for name, wanted in {"initial": initial, "transition": transition, "policy": policy}.items():
        np.testing.assert_array_equal(found[name].concentration, wanted)


def test_label_statistics_of_roles_are_those_of_known_roles():
    """The gradient of the log normaliser where all roles are known, which has one path alone."""
    rng = np.random.default_rng(0)
    data = Trajectories.from_list([rng.normal(size=(n, 2)) for n in (6, 1, 4)])
    labels = rng.integers(3, size=(3, 6))
    known = RoleHMM(3, GaussianEmission(2, scale=1.0), known_roles=True)
    told = data._replace(states=labels)
    expected = search_module.expected_statistics(known.prior())
    wanted = jax.jit(jax.grad(known.log_normalizer))(expected, known.arrange(told))
    model = RoleHMM(3, GaussianEmission(2, scale=1.0))
    found = model.labelling.statistics(rng, [labels], [model.arrange(data)])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), found, wanted)


def test_state_probabilities_are_those_of_all_paths(walks):
    """Of a trace of five steps under random potentials: 3^5 paths."""
    data = walks.take([0, 1])._replace(lengths=np.array([5, 2])).trim()
    model = AgentMarkov(S, A, 3, rows="all").bind(data)
    rng = np.random.default_rng(0)
    blocks = {
        name: block
        if not isinstance(block, Dirichlet)
        else Dirichlet(DirichletCoordinates(rng.gamma(1.0, size=block.natural.concentration.shape) + 0.1))
        for name, block in model.prior().items()
    }
    problem = make_problem(model, data)
    found = _labelled(problem, Settled(blocks, 0.0, False)).probability[0][:2, :5]
    expected = search_module.expected_statistics(blocks)
    initial, transition, policy = (
        np.asarray(expected[n].concentration) for n in ("initial", "transition", "policy")
    )
    row_of, paths = (
        np.asarray(model.rows_carried().row_of),
        np.stack(np.unravel_index(np.arange(243), (3,) * 5), 1),
    )
    states, actions = np.asarray(data.states), np.asarray(data.actions)
    wanted = np.zeros((5, 3))
    weight = initial[paths[:, 0]].copy()
    for t in range(5):
        weight += policy[paths[:, t], states[0, t], actions[0, t]]
        if t < 4:
            weight += transition[row_of[states[0, t], actions[0, t]], paths[:, t], paths[:, t + 1]]
    weight = np.exp(weight - weight.max())
    for t in range(5):
        np.add.at(wanted[t], paths[:, t], weight / weight.sum())
    np.testing.assert_allclose(found[0], wanted, atol=1e-12)
    np.testing.assert_allclose(found[1].sum(-1), [1, 1, 0, 0, 0], atol=1e-12)


def labelled_steps():
    """Two sequences in states 0, 2 and 3 of four; the second best of state 0 is 3, of 2 is 0, of 3 is 2."""
    labels = np.array([[0, 0, 0, 2, 2, 3, 3, 3, 3], [3, 3, 3, 3, 3, 0, 0, 2, 2]])
    second = np.array([3, 1, 0, 2])[labels]
    probability = 0.7 * np.eye(4)[labels] + 0.3 * np.eye(4)[second]
    return Labelled([probability], [labels], np.array([5.0, 0.1, 4.0, 9.0]))


def test_reductions_merge_every_state_into_a_larger_one_and_delete_it():
    labelled = labelled_steps()
    labels, (first, *rest) = labelled.labels[0], [each[0] for each in reductions(labelled)]
    np.testing.assert_array_equal(first, np.where(labels == 2, 0, labels))  # deleted: its second best state
    merges = [np.where(labels == state, into, labels) for state, into in ((2, 0), (2, 3))]
    wanted = [*merges, np.where(labels == 0, 3, labels), np.where(labels == 0, 3, labels)]
    wanted.append(np.where(labels == 3, 2, labels))
    assert len(rest) == len(wanted)
    for found, one in zip(rest, wanted, strict=True):
        np.testing.assert_array_equal(found, one)
    alone = labelled._replace(mass=np.array([18.0, 0.1, 0.0, 0.0]))
    assert reductions(alone) == []


def test_splits_give_part_of_one_state_a_free_label_or_that_of_a_merged_state():
    rng, labelled = np.random.default_rng(0), labelled_steps()
    labels = labelled.labels[0]
    for (found,) in splits(rng, labelled, 30):
        moved = found != labels
        assert set(found[moved]) <= {1} and len(set(labels[moved])) <= 1
    assert any((each[0] != labels).any() for each in splits(rng, labelled, 3))
    full = labelled._replace(mass=np.array([5.0, 2.0, 4.0, 9.0]))
    for (found,) in splits(rng, full, 30):
        assert set(found.ravel()) <= {0, 1, 2, 3}
    assert splits(rng, labelled._replace(mass=np.array([9.0]), labels=[0 * labels]), 3) == []


@pytest.mark.slow
def test_as_many_intents_are_used_as_there_are(walks, monkeypatch):
    """With 4 allowed three are found, from two at first, with room for two, then for four; steps may run out before."""
    monkeypatch.setattr(search_module, "ROOM", 2)
    fit = run(MODEL, walks, 2000)
    assert fit.converged and np.diff(fit.elbo).min() >= -1e-8
    mass = mass_of(fit)
    assert mass.shape == (4,) and (mass > 0.5).sum() == 3
    np.testing.assert_allclose(fit.elbo[-1], fit.restart_elbos.max(), rtol=1e-12)
    assert len(fit.elbo) == len(fit.evaluated) == fit.restart_traces.shape[1]
    problem = make_problem(MODEL.bind(walks), walks)
    for steps in (30, 36, 60, 100):  # those of the first restarts with three intents, and of edits
        short = run(MODEL, walks, steps)
        assert not short.converged and short.step <= steps
        blocks = jax.tree.map(lambda x: np.asarray(x)[None], short.posterior.blocks)
        (elbo,) = np.asarray(bounds(problem.model, blocks, problem.prior, problem.batches))
        np.testing.assert_allclose(short.elbo[-1], elbo, rtol=1e-8)


@pytest.mark.slow
def test_a_search_resumes_as_if_never_stopped(walks, tmp_path):
    """Wherever its steps run out: in restarts, among candidates, while it converges."""
    whole = run(MODEL, walks, 2000)
    path = tmp_path / "fit"
    for steps in (7, 23, 64, 65, 111, 160, whole.step - 3, 2000):
        found = run(MODEL, walks, steps, checkpoint=path, checkpoint_every=9)
        alone = run(MODEL, walks, steps)
        np.testing.assert_array_equal(found.elbo, alone.elbo)
        np.testing.assert_array_equal(found.restart_elbos, alone.restart_elbos)
        assert found.step == alone.step <= steps and found.converged == alone.converged
    np.testing.assert_array_equal(found.elbo, whole.elbo)
    assert jax.tree.all(jax.tree.map(np.array_equal, found.posterior.blocks, whole.posterior.blocks))


def test_unused_states_leave_the_counts_and_the_rest_of_the_weights(walks):
    """Blocks of a narrow model in a wide one, by hand: concentrations are alpha beta + kappa + counts."""
    wide = MODEL.bind(walks)
    narrow = dataclasses.replace(wide, truncation=2)
    prior, rng = narrow.prior(), np.random.default_rng(0)
    counts = rng.gamma(1.0, size=prior["transition"].natural.concentration.shape)
    weights = np.array([0.5, 0.2, 0.3])
    rows = 3 * weights + 20 * np.eye(2, 3) + counts
    blocks = {**prior, "weights": dataclasses.replace(prior["weights"], natural=weights)}
    blocks["transition"] = Dirichlet(DirichletCoordinates(rows))
    found = wide.growth.widened(narrow, blocks)
    least = found["weights"].natural[2]
    assert 0 < least < 1e-6
    wanted = np.array([0.5, 0.2, least, least, 0.3 - 2 * least])
    np.testing.assert_allclose(found["weights"].natural, wanted, rtol=1e-12)
    after = np.zeros((len(rows), 4, 5))
    after[:, :2, [0, 1, 4]] = counts
    after += 3 * wanted + 20 * np.eye(4, 5)
    np.testing.assert_allclose(found["transition"].natural.concentration, after, rtol=1e-12)


NOT_FREE = (
    {"beta_prior": "fixed"},
    {"constraints": IntentConstraints.stay(at_least=0.8)},
    {"constraints": IntentConstraints.action(2, intent=2, equal=0.0)},
)


def test_models_whose_unused_states_are_not_free_start_with_all(walks):
    for settings, free in [({}, True), *((settings, False) for settings in NOT_FREE)]:
        model = AgentMarkov(S, A, 3, rows="all", **settings).bind(walks)
        assert (model.growth.prior_of_first is not None) == free


@pytest.fixture(scope="module")
def roles_on_a_line():
    """Three roles; a start that has two of them in one, and the third twice, and one of the true labels."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        roles = np.repeat(rng.integers(3, size=(8, 10)), 6, axis=1)
        data = Trajectories.from_list([rng.normal(4.0 * row, 1.0)[:, None] for row in roles])
        model = RoleHMM(3, GaussianEmission(1, scale=1.0))
        problem = make_problem(model.bind(data), data)
        short = run(model, data, 1, restarts=1)

        def start(labels):
            padded = np.zeros(problem.batches[0].observed.shape, int)
            padded[: len(labels), : labels.shape[1]] = labels
            statistics = problem.model.labelling.statistics(rng, [padded], problem.batches)
            blocks = search_module._updated(problem.model, problem.prior, statistics)
            return short._replace(posterior=ConjugatePosterior(problem.model, blocks))

        poor = np.where(roles == 2, 1 + (rng.random(roles.shape) < 0.5), 0)
        yield model, data, {"true": start(roles), "poor": start(poor)}


@pytest.mark.slow
def test_a_role_that_was_split_and_two_that_were_merged_are_repaired(roles_on_a_line, tmp_path):
    model, data, starts = roles_on_a_line
    best, stuck = (run(model, data, 400, init=starts[name]).elbo[-1] for name in ("true", "poor"))
    assert stuck < best - 20
    options = {"init": starts["poor"], "search": "edits"}
    found = run(model, data, 600, **options)
    np.testing.assert_allclose(found.elbo[-1], best, rtol=1e-5)
    assert (np.diff(found.elbo) >= -1e-9 * np.abs(best)).all() and found.converged
    for steps in (60, 600):
        again = run(model, data, steps, checkpoint=tmp_path / "fit", checkpoint_every=7, **options)
    np.testing.assert_array_equal(again.elbo, found.elbo)


def test_searches_that_cannot_be_made_are_refused():
    model, data = RoleHMM(2, GaussianEmission(1)), Trajectories.from_list([np.zeros((3, 1))] * 4)
    with pytest.raises(ValueError, match="coordinate ascent"):
        run(model, data, 1, search="edits", batch_size=2)
    with pytest.raises(ValueError, match="labels steps"):
        run(
            dataclasses.replace(model, initial=None, transition=None, sticky=None, exclusive="per_sequence"),
            data._replace(group=np.zeros(4, int)).take([0, 1]),
            1,
            search="edits",
        )
    with pytest.raises(ValueError, match="search"):
        run(model, data, 1, search="merge")


def test_a_result_with_other_fixed_weights_or_stickiness_does_not_go_on():
    rng = np.random.default_rng(0)
    data = Trajectories.from_list(
        states=list(rng.integers(2, size=(3, 8))), actions=list(rng.integers(3, size=(3, 8)))
    )
    settings = {"rows": "all", "beta_prior": "fixed"}
    model = AgentMarkov(2, 3, 2, weights=[0.3, 0.3, 0.4], stickiness=None, **settings).bind(data)
    none = np.zeros(1)
    posterior = ConjugatePosterior(model, model.prior())
    first = ConjugateResult(posterior, none, none, True, 2, jax.random.key(0), none, none[None])
    for other, message in (
        (AgentMarkov(2, 3, 2, weights=[0.7, 0.2, 0.1], stickiness=None, **settings), "other fixed weights"),
        (AgentMarkov(2, 3, 2, weights=[0.3, 0.3, 0.4], **settings), "kind of stickiness"),
    ):
        with pytest.raises(ValueError, match=message):
            run(other, data, 2, init=first)
