"""Moves of a conjugate fit: bounds of merges and splits from statistics, against the definition of the bound."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.inference.conjugate import ConjugatePosterior, ConjugateResult, ConjugateSVI
from ethogram.inference.conjugate.moves import _changes, best_merge, best_split, posteriors
from ethogram.inference.conjugate.side_by_side_moves import candidates
from ethogram.inference.conjugate.steps import bounds
from ethogram.models.chains.relabelled_paths import (
    Paths,
    divided,
    merged,
    path_entropy,
    stay_change,
)
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families.exponential_family import (
    DirichletCoordinates,
    expected_statistics,
    natural_step,
)
from ethogram.models.intents import AgentMarkov
from ethogram.models.intents.updates import prior_given
from ethogram.models.roles import RoleHMM

S, A, K, FITS = 3, 2, 3, 100


def short_traces():
    rng = np.random.default_rng(5)
    lengths = (5, 4)
    return Trajectories.from_list(
        states=[rng.integers(S, size=n) for n in lengths],
        actions=[rng.integers(A, size=n) for n in lengths],
        stay=[[*rng.integers(-1, 2, size=n - 1), -1] for n in lengths],
    )


@pytest.fixture(scope="module")
def fits():
    """A hundred random fits of two short traces with stay labels: model, data, blocks, and their q(z)."""
    with jax.enable_x64(True):
        data = short_traces()
        model = AgentMarkov(S, A, K, stay_accuracy=0.8, stickiness=None).bind(data)
        batch = jax.tree.map(jnp.asarray, model.arrange(data))
        prior = model.prior()

        rng, statistics = np.random.default_rng(3), {"weights": ()}
        for name in ("initial", "transition", "policy"):
            counts = 3 * rng.gamma(1.0, size=(FITS, *prior[name].natural.concentration.shape))
            if name != "policy":
                counts[..., -1] = 0
            statistics[name] = DirichletCoordinates(counts)
        blocks = jax.jit(jax.vmap(lambda one: model.update(prior, prior, one, 1.0, 1.0)))(statistics)
        now = posteriors(model, blocks, prior, [batch], np.zeros((FITS, K), bool))
        yield model, data, batch, prior, blocks, now


def paths_of(length):
    return np.stack(np.meshgrid(*[np.arange(K)] * length, indexing="ij"), -1).reshape(-1, length)


def enumerated(potentials, trace, length):
    """All paths of a trace and their posterior probabilities, from its potentials."""
    paths = paths_of(length)
    log_weight = np.asarray(potentials.initial)[paths[:, 0]].copy()
    for t in range(length):
        log_weight += np.asarray(potentials.step)[trace, t, paths[:, t]]
        if t:
            log_weight += np.asarray(potentials.transition)[trace, t - 1, paths[:, t - 1], paths[:, t]]
    probability = np.exp(log_weight - log_weight.max())
    return paths, probability / probability.sum()


def test_the_bound_of_a_merge_is_that_of_the_merged_paths_by_enumeration(fits):
    """The merged q as the Markov chain with the marginals of relabelled paths; entropy and terms by enumeration."""
    model, data, batch, _, blocks, now = fits
    first, second = np.triu_indices(K, 1)
    changes = np.asarray(_changes(model, blocks, [batch], now.paths, first, second))
    chains = jax.jit(jax.vmap(lambda one: model.chain_of_steps(expected_statistics(one), batch)))(blocks)
    for fit in (0, 1, 2):
        potentials, change = jax.tree.map(lambda x, fit=fit: np.asarray(x)[fit], chains), changes[fit]
        for at, (i, j) in enumerate(zip(first, second, strict=True)):
            difference = 0.0
            for trace, length in enumerate(np.asarray(data.lengths)):
                paths, probability = enumerated(potentials, trace, length)
                renamed = np.where(paths == j, i, paths)
                label = np.asarray(data.stay)[trace]
                evidence = {1: np.log(0.8 / 0.2), 0: np.log(0.2 / 0.8), -1: 0.0}
                for t in range(length - 1):
                    stays = [x[:, t] == x[:, t + 1] for x in (renamed, paths)]
                    difference += probability @ (stays[0] * 1.0 - stays[1]) * evidence[int(label[t])]
                difference += markov_entropy(renamed, probability) + (probability @ np.log(probability))
            np.testing.assert_allclose(change[at], difference, rtol=1e-9, atol=1e-11)


def markov_entropy(paths, probability):
    """Entropy of the Markov chain with the pair marginals of weighted paths."""
    total = 0.0
    for t in range(paths.shape[1]):
        if t == 0:
            q = np.bincount(paths[:, 0], probability, K)
            total -= sum(x * np.log(x) for x in q if x > 0)
            continue
        pair = np.zeros((K, K))
        np.add.at(pair, (paths[:, t - 1], paths[:, t]), probability)
        before = np.broadcast_to(pair.sum(1)[:, None], pair.shape)
        some = pair > 0
        total -= (pair[some] * np.log(pair[some] / before[some])).sum()
    return total


@pytest.mark.slow
def test_merges_of_many_fits_have_the_bound_of_their_paths_and_sweeps_raise_it(fits):
    """From sums of counts and changes of entropy, as from the relabelled marginals of every step."""
    model, _, batch, prior, blocks, now = fits
    tried = np.zeros((FITS, K, K), bool)
    found = best_merge(model, blocks, prior, [batch], now, tried)
    assert np.isfinite(found.gain).all()

    @jax.jit
    @jax.vmap
    def direct(old, after, paths, pair):
        """The bound of the relabelled paths at the proposed blocks, from every step's potentials."""
        new = merged(paths, *pair)
        chain = model.chain_of_steps(expected_statistics(after), batch)
        linear = sum(
            jnp.sum(jnp.where(q > 0, q * e, 0))
            for q, e in (
                (jnp.sum(new.state[:, 0], 0), chain.initial),
                (new.pair, chain.transition),
                (new.state, chain.step),
            )
        )
        return path_entropy(new) + linear - model.divergence(after)

    value = np.asarray(now.bound) + found.gain
    np.testing.assert_allclose(
        direct(blocks, found.blocks, now.paths[0], jnp.asarray(found.states)), value, rtol=1e-9
    )
    after = posteriors(model, found.blocks, prior, [batch], np.zeros((FITS, K), bool))
    assert (np.asarray(after.bound) >= value - 1e-9 * np.abs(value)).all()


def test_a_split_renames_paths_one_to_one(fits):
    now = fits[-1]
    segments = jnp.asarray(np.random.default_rng(0).random(now.paths[0].state.shape[1:3]) < 0.5)

    def change(paths):
        # A free label: state 2 is merged away first.
        before = merged(paths, 0, 2)
        after = divided(before, 0, 2, segments)
        return (
            path_entropy(after) - path_entropy(before),
            jnp.sum(after.state),
            jnp.sum(after.pair[..., 2, :]),
        )

    entropy, total, moved = jax.jit(jax.vmap(change))(now.paths[0])
    assert np.abs(entropy).max() < 1e-12
    np.testing.assert_allclose(total, 9, rtol=1e-9)
    assert (moved > 0).all()


def test_relabelled_blocks_have_the_prior_of_their_weights_and_the_counts_of_both(fits):
    """Their mass is the expected steps; a deleted intent leaves none, and its weight goes to the rest."""
    model, _, _, prior, _, now = fits
    one = jax.tree.map(lambda x: np.asarray(x)[0], now.statistics)

    @jax.jit
    def relabelled(keep, drop, statistics):
        start = model.update(prior, prior, statistics, 1.0, 1.0)
        moved = model.relabelled(start, keep, drop)
        given = prior_given(model, moved["weights"])
        counts = {
            name: moved[name].natural.concentration - given[name].natural.concentration
            for name in model.label_axes()
        }
        return model.state_mass(start), start["weights"].natural, moved["weights"].natural, counts

    added, kept = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]]), np.diag([1, 1, 0])
    for keep, rename in ((0, added), (2, kept)):  # intent 2 is renamed 0, or deleted
        mass, before, after, counts = relabelled(keep, 2, one)
        np.testing.assert_allclose(mass, now.mass[0], rtol=1e-9)
        wider = np.eye(K + 1)
        wider[:K, :K] = rename
        for name, subscripts, maps in (
            ("initial", "ij,j->i", (wider,)),
            ("policy", "ij,jsa->isa", (rename,)),
            ("transition", "ij,lm,pjm->pil", (rename, wider)),
        ):
            expected = np.einsum(subscripts, *maps, one[name].concentration)
            np.testing.assert_allclose(counts[name], expected, rtol=1e-9, atol=1e-9)
        gain = np.array(after) - np.array(before)
        np.testing.assert_allclose(gain[3 if keep == 2 else 0], before[2] - 1e-8, rtol=1e-9)
        np.testing.assert_allclose(after.sum(), 1, rtol=1e-12)


def test_candidates_drop_the_smallest_states_first():
    assert candidates([5.0, 0.1, 2.0, 9.0], 10).tolist() == [[2, 2], [0, 2], [3, 2], [0, 0], [3, 0], [3, 3]]
    assert candidates([5.0, 0.1, 2.0, 9.0], 2).tolist() == [[2, 2], [0, 2]]
    assert candidates([5.0, 0.1], 8).shape == (0, 2)


def with_blocks(result, blocks):
    """A result whose posterior has other blocks: a start of one's own."""
    return result._replace(posterior=ConjugatePosterior(result.posterior.model, blocks))


def run(model, data, steps, **options):
    options = {"restarts": 1, "progress_bar": False} | options
    return ConjugateSVI(model).run(jax.random.key(2), data, steps, **options)


@pytest.fixture(scope="module")
def repaired_roles():
    """Three roles on a line; a start that has two of them in one, and the third twice, and what fits reach from it."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        roles = np.repeat(rng.integers(3, size=(8, 10)), 6, axis=1)
        data = Trajectories.from_list([rng.normal(4.0 * row, 1.0)[:, None] for row in roles])
        model = RoleHMM(3, GaussianEmission(1, scale=1.0))
        bound = model.bind(data)
        prior = bound.prior()

        def start(labels):
            counts = np.zeros((3, 3))
            np.add.at(counts, (labels[:, :-1], labels[:, 1:]), 1)
            frames = np.asarray(bound.arrange(data).observations).reshape(-1, 1)
            statistics = {
                "initial": DirichletCoordinates(np.bincount(labels[:, 0], minlength=3) * 1.0),
                "transition": DirichletCoordinates(counts),
                **bound.emission.label_statistics(rng, frames, labels.ravel(), 3),
            }
            return natural_step(prior, prior, jax.tree.map(jnp.asarray, statistics), 1.0, 1.0)

        short = run(model, data, 1, moves=False)
        poor = np.where(roles == 2, 1 + (rng.random(roles.shape) < 0.5), 0)
        first = {"true": start(roles), "poor": start(poor)}
        starts = {name: with_blocks(short, blocks) for name, blocks in first.items()}
        yield model, data, starts, run(model, data, 200, init=starts["poor"], moves=True)


@pytest.mark.slow
def test_a_role_that_was_split_and_two_that_were_merged_are_repaired(repaired_roles):
    model, data, starts, found = repaired_roles
    best = run(model, data, 400, init=starts["true"], moves=False).elbo[-1]
    stuck = run(model, data, 400, init=starts["poor"], moves=False).elbo[-1]
    assert stuck < best - 20
    np.testing.assert_allclose(found.elbo[-1], best, rtol=1e-5)
    assert (np.diff(found.elbo) >= -1e-9 * np.abs(best)).all()
    assert found.converged


@pytest.mark.slow
def test_a_fit_with_moves_resumes_as_if_never_stopped(repaired_roles, tmp_path):
    model, data, starts, whole = repaired_roles
    options = {"init": starts["poor"], "moves": True, "checkpoint_every": 7}
    for steps in (60, 200):
        found = run(model, data, steps, checkpoint=tmp_path / "fit", **options)
    np.testing.assert_array_equal(found.elbo, whole.elbo)
    assert jax.tree.all(jax.tree.map(np.array_equal, found.posterior.blocks, whole.posterior.blocks))


@pytest.mark.slow
def test_an_intent_that_occurs_twice_is_merged_and_the_bound_rises():
    """Two intents with policies of their own, the second under one label in some traces and another in the others."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        intents = np.repeat(rng.integers(2, size=(6, 4)), 15, axis=1)
        states = rng.integers(2, size=intents.shape)
        actions = np.where(
            rng.random(intents.shape) < 0.9, (states + intents) % 3, rng.integers(3, size=intents.shape)
        )
        data = Trajectories.from_list(states=list(states), actions=list(actions))
        result = run(AgentMarkov(2, 3, 4, rows="all", stickiness=None), data, 1, moves=False)
        model = result.posterior.model
        prior, rows = model.prior(), model.rows_carried()
        labels = np.where(intents == 1, 1 + np.arange(6)[:, None] % 2, 0)
        row = np.asarray(rows.row_of).ravel()[(states * 4 + actions)[:, :-1]]
        counts = {name: np.zeros(prior[name].natural.concentration.shape) for name in model.label_axes()}
        np.add.at(counts["initial"], labels[:, 0], 1)
        np.add.at(counts["transition"], (row, labels[:, :-1], labels[:, 1:]), 1)
        np.add.at(counts["policy"], (labels, states, actions), 1)
        statistics = {name: DirichletCoordinates(jnp.asarray(x)) for name, x in counts.items()}
        update = jax.jit(lambda one: model.update(prior, prior, one, 1.0, 1.0))
        start = with_blocks(result, update({"weights": (), **statistics}))
        plain, moved = (
            run(AgentMarkov(2, 3, 4, rows="all", stickiness=None), data, 300, init=start, moves=on)
            for on in (False, "auto")
        )
        assert moved.elbo[-1] > plain.elbo[-1] + 1
        assert (np.diff(moved.elbo) >= -1e-9 * np.abs(moved.elbo[1:])).all()
        batches = [jax.tree.map(jnp.asarray, model.arrange(data))]
        blocks = jax.tree.map(lambda x: x[None], start.posterior.blocks)
        now = posteriors(model, blocks, prior, batches, jnp.zeros((1, 4), bool))
        found = best_merge(model, blocks, prior, batches, now, np.zeros((1, 4, 4), bool))
        assert found.states.tolist() == [[1, 2]] and found.gain[0] > 1
        wider = run(AgentMarkov(2, 3, 5, rows="all", stickiness=None), data, 1, init=moved, moves=False)
        np.testing.assert_allclose(wider.elbo[0], moved.elbo[-1], rtol=1e-8)


def test_moves_that_cannot_be_made_are_refused():
    model, data = RoleHMM(2, GaussianEmission(1)), Trajectories.from_list([np.zeros((3, 1))] * 4)
    with pytest.raises(ValueError, match="coordinate ascent"):
        run(model, data, 1, moves=True, batch_size=2)
    with pytest.raises(ValueError, match='moves must be True, False or "auto"'):
        run(model, data, 1, moves="merge")


def test_renaming_a_state_changes_no_evidence_of_certain_labels():
    """Whose evidence is infinite: rounding of the same number of stays may not count."""
    pairs = np.random.default_rng(1).dirichlet(np.ones(9), (8, 1, 5)).reshape(8, 1, 5, 3, 3) * np.eye(3)
    pairs /= pairs.sum((-1, -2), keepdims=True)

    @jax.jit
    @jax.vmap
    def change(state, pair):
        paths = Paths(state, pair)
        return stay_change(paths, divided(paths, 0, 2, jnp.ones((1, 6), bool)), jnp.full((1, 5), jnp.inf))

    found = change(np.concatenate([pairs.sum(-1), pairs[:, :, -1:].sum(-2)], 2), pairs)
    np.testing.assert_array_equal(found, np.zeros(8))


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
            run(other, data, 2, init=first, moves=False)


def test_what_a_split_claims_is_reached_by_its_blocks(fits):
    """The q(z) of a split is one of those among which the local step chooses the best."""
    model, _, batch, prior, blocks, now = fits
    keys, pair = jax.random.split(jax.random.key(0), (FITS, 2)), np.tile([0, 1], (FITS, 1))
    split = best_split(model, blocks, prior, [batch], now, keys, np.arange(FITS) % 4, pair)
    some = np.isfinite(split.gain)
    assert some.sum() > FITS / 2
    claimed, reached = np.asarray(now.bound) + split.gain, bounds(model, split.blocks, prior, [batch])
    assert (np.asarray(reached) - claimed)[some].min() > -1e-9
