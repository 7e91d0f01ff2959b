"""Joint roll-outs of moving agents against a loop in NumPy, and policies that recover a known motion."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ethogram
from ethogram.inference.imitation import (
    Scenes,
    by_role,
    constant_velocity,
    fit_linear_motion,
    imitate_motion,
    linear_step,
    recurrent_step,
    residual_scale,
    roles_of_plays,
    roll_motion,
    stay_still,
)
from ethogram.inference.imitation.imitate_motion import windows
from ethogram.inference.imitation.motion import motion_features, num_features
from ethogram.models.data.trajectories import Trajectories

PLAYS, TIME, AGENTS = 12, 14, 3
HOMES = np.array([[-12.0, 0.0], [0.0, 12.0], [12.0, -6.0]])


def drawn(seed=0, plays=PLAYS):
    """Agents that go a quarter of the way to the place of their role each step; roles are permuted by play."""
    rng = np.random.default_rng(seed)
    roles = rng.permuted(np.tile(np.arange(AGENTS), (plays, 1)), axis=1)
    positions = np.zeros((plays, TIME, AGENTS, 2))
    positions[:, 0] = HOMES[roles] + rng.normal(size=(plays, AGENTS, 2)) * 2
    for time in range(1, TIME):
        noise = 0.3 * rng.normal(size=(plays, AGENTS, 2))
        positions[:, time] = positions[:, time - 1] + (HOMES[roles] - positions[:, time - 1]) / 4 + noise
    context = rng.normal(size=(plays, TIME, 3, 2)) * 10
    lengths = np.full(plays, TIME)
    lengths[::3] = TIME - 4
    return Scenes(positions, context, lengths), roles


def sequences(scenes):
    """The plays for the role model."""
    rows = [scenes.positions[p, :n, a] for p, n in enumerate(scenes.lengths) for a in range(AGENTS)]
    return Trajectories.from_list(
        rows, agent=np.tile(np.arange(AGENTS), PLAYS), group=np.repeat(np.arange(PLAYS), AGENTS)
    )


def features_of(position, velocity, objects, object_velocity, role):
    """The features of one role, written out."""
    others = [other for other in range(len(position)) if other != role]
    own, parts = position[role], []
    parts += [own[0] / 50, own[1] / 30, *((own - position.mean(0)) / 20), *velocity[role], *velocity.mean(0)]
    parts += [*((objects[0] - own) / 20), *object_velocity[0]]
    for other in others:
        parts += [*((position[other] - own) / 20)]
    sums, near = [], []
    for reach in (5.0, 15.0):
        weights = [np.exp(-np.sum((one - own) ** 2) / (2 * reach**2)) for one in objects[1:]]
        sums += [*(sum(w * (one - own) for w, one in zip(weights, objects[1:], strict=True)) / reach)]
        near.append(sum(weights))
    return np.array([*parts, *sums, *near])


def test_features_are_those_written_out():
    scenes, _ = drawn()
    position, before, objects, then = map(
        jnp.asarray, (*scenes.positions[0, [3, 2]], *scenes.context[0, [3, 2]])
    )
    found = motion_features(position, position - before, objects, objects - then)
    assert found.shape == (AGENTS, num_features(AGENTS))
    for role in range(AGENTS):
        np.testing.assert_allclose(
            found[role], features_of(position, position - before, objects, objects - then, role)
        )


@pytest.mark.parametrize("horizon, phase", [(1, 0), (4, 2)])
def test_a_linear_roll_out_is_that_of_a_loop(horizon, phase):
    """Every agent sees where its team-mates were rolled to, and the truth again every `horizon` steps."""
    scenes, _ = drawn(1, 2)
    coefficients = 0.05 * np.random.default_rng(2).normal(size=(AGENTS, num_features(AGENTS) + 1, 2))
    rolled = roll_motion(linear_step, coefficients, scenes, horizon, phase)
    for play in range(2):
        true, objects = scenes.positions[play], scenes.context[play]
        position, previous = true[0], true[0]
        for time in range(TIME - 1):
            then = max(time - 1, 0)
            if (time - phase) % horizon == 0:
                position, previous = true[time], true[then]
            velocity = position - previous
            moved = [
                velocity[r]
                + features_of(position, velocity, objects[time], objects[time] - objects[then], r)
                @ coefficients[r, :-1]
                + coefficients[r, -1]
                for r in range(AGENTS)
            ]
            position, previous = position + np.array(moved), position
            np.testing.assert_allclose(rolled.positions[time, play], position, rtol=1e-6)
    np.testing.assert_array_equal(rolled.since, (np.arange(TIME - 1) - phase) % horizon + 1)
    np.testing.assert_array_equal(rolled.counted, np.arange(TIME - 1) >= phase)


def test_simple_policies_and_noise_have_closed_forms():
    scenes, _ = drawn(3, 2)
    nothing = np.zeros(AGENTS)
    true = np.moveaxis(scenes.positions, 1, 0)
    still = roll_motion(stay_still, nothing, scenes, 5, 1)
    np.testing.assert_allclose(still.positions[3], true[1])
    shock = np.ones((TIME - 1, 2, AGENTS, 2))
    noisy = roll_motion(stay_still, nothing, scenes, 5, 1, shock)
    np.testing.assert_allclose(noisy.positions[3], true[1] + 3)
    steady = roll_motion(constant_velocity, nothing, scenes, 5, 1)
    np.testing.assert_allclose(steady.positions[3], true[1] + 3 * (true[1] - true[0]))


def test_agents_are_put_in_the_order_of_their_roles():
    scenes, roles = drawn()
    ordered = by_role(scenes, np.arange(PLAYS), roles)
    for play in range(PLAYS):
        for agent, role in enumerate(roles[play]):
            np.testing.assert_array_equal(ordered.positions[play, :, role], scenes.positions[play, :, agent])


def test_windows_cover_every_frame_but_the_first_once():
    lengths = np.array([7, 60, 130])
    positions = np.random.default_rng(0).normal(size=(3, 130, AGENTS, 2))
    weight = np.array([[1.0, 0.5, 0.25]] * 3)
    pieces, share = windows(Scenes(positions, positions[:, :, [0, 1]], lengths), weight)
    assert pieces.positions.shape[1] == 50 and (pieces.lengths <= 50).all()
    np.testing.assert_allclose(share.sum((0, 1)), (lengths - 1).sum() * weight[0])
    assert (share[:, 0] == 0).all()


def test_linear_policies_with_learned_roles_recover_the_motion_and_shuffled_ones_do_not():
    """The truth is linear: the error of a step is that of its noise, 0.3 m in each direction."""
    scenes, roles = drawn()
    new, new_roles = drawn(9, 40)

    def error(held, held_new):
        fit = fit_linear_motion(by_role(scenes, np.arange(PLAYS), held), ridge=0.01)
        ordered = by_role(new, np.arange(40), held_new)
        rolled = roll_motion(linear_step, fit, ordered, 6, 1)
        inside = np.arange(1, TIME)[:, None] < new.lengths
        true = np.moveaxis(ordered.positions, 1, 0)[1:]
        return np.sqrt(((np.asarray(rolled.positions) - true)[inside] ** 2).mean()), fit

    best, fit = error(roles, new_roles)
    worst, _ = error(np.tile(np.arange(3), (PLAYS, 1)), np.tile(np.arange(3), (40, 1)))
    assert best < 0.6 and worst > 1.5 * best
    scale = residual_scale(linear_step, fit, by_role(new, np.arange(40), new_roles))
    np.testing.assert_allclose(scale @ scale.swapaxes(1, 2), 0.09 * np.tile(np.eye(2), (3, 1, 1)), atol=0.07)


@pytest.mark.slow
def test_recurrent_policies_learn_roles_and_motion():
    scenes, roles = drawn()
    data = sequences(scenes)
    model = ethogram.RoleHMM(AGENTS, ethogram.GaussianEmission(2), exclusive="per_sequence")
    settings = {
        "horizons": (1, 3),
        "num_steps": 40,
        "num_units": 6,
        "weight_decay": 0.1,
        "learning_rate": 0.03,
    }
    result = imitate_motion(jax.random.key(0), model, scenes, data, **settings)
    assert ethogram.align_states(roles, result.role).hamming == 0
    assert result.loss.shape == (2, 40) and result.loss[1, -1] < 0.6 * result.loss[1, 0]
    ordered = by_role(scenes, np.arange(PLAYS), result.role)
    inside = np.arange(1, TIME)[:, None] < scenes.lengths
    true = np.moveaxis(ordered.positions, 1, 0)[1:]

    def error(step, parameters, units=1):
        rolled = np.asarray(roll_motion(step, parameters, ordered, 3, 1, num_units=units).positions)
        return ((rolled - true)[inside] ** 2).mean()

    assert error(recurrent_step, result.parameters, 6) < 0.5 * error(constant_velocity, np.zeros(AGENTS))
    np.testing.assert_array_equal(roles_of_plays(result.fit, data, AGENTS)[1].best, result.role)


def test_scenes_are_checked():
    scenes, _ = drawn()
    wrong = scenes.positions.copy()
    wrong[2, 3, 1, 0] = np.nan
    cases = [
        (scenes._replace(positions=wrong), r"scenes\.positions\[2, 3, 1, 0\] is not finite"),
        (scenes._replace(lengths=scenes.lengths + 1), r"scenes\.lengths is in 11\.\.15"),
        (scenes._replace(context=scenes.context[:, :, :1]), "one opponent at least"),
        (scenes._replace(context=scenes.context[:, 1:]), "the same plays and times"),
    ]
    for given, message in cases:
        with pytest.raises(ValueError, match=message):
            imitate_motion(jax.random.key(0), None, given, None, roles="shuffled")
    with pytest.raises(ValueError, match="roles='learned' needs both"):
        imitate_motion(jax.random.key(0), None, scenes, None)
    with pytest.raises(ValueError, match="horizons must be at least 1"):
        imitate_motion(jax.random.key(0), None, scenes, None, roles="shuffled", horizons=(0,))
