"""Joint roll-outs of moving agents against a loop in NumPy, and policies that recover a known motion."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest

import ethogram
from ethogram.domains.football_scenes import motion_features
from ethogram.inference.imitation import (
    Scenes,
    by_role,
    centred_plays,
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
from ethogram.inference.imitation.motion import new_recurrent, num_features
from ethogram.models.data.trajectories import Trajectories

stages = importlib.import_module("ethogram.inference.imitation.imitate_motion")
PLAYS, TIME, AGENTS = 12, 14, 3
FEATURES = {"features": motion_features}
WIDTH = num_features(motion_features, AGENTS, 3)
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
    position, before, objects, then = *scenes.positions[0, [3, 2]], *scenes.context[0, [3, 2]]
    found = jax.jit(motion_features)(position, position - before, objects, objects - then)
    assert found.shape == (AGENTS, WIDTH)
    for role in range(AGENTS):
        np.testing.assert_allclose(
            found[role], features_of(position, position - before, objects, objects - then, role)
        )


@pytest.mark.parametrize("horizon, phase", [(1, 0), (4, 2)])
def test_a_linear_roll_out_is_that_of_a_loop(horizon, phase):
    """Every agent sees where its team-mates were rolled to, and the truth again every `horizon` steps."""
    scenes, _ = drawn(1, 2)
    coefficients = 0.05 * np.random.default_rng(2).normal(size=(AGENTS, WIDTH + 1, 2))
    rolled = roll_motion(linear_step, coefficients, scenes, horizon, phase, **FEATURES)
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
    still = roll_motion(stay_still, nothing, scenes, 5, 1, **FEATURES)
    np.testing.assert_allclose(still.positions[3], true[1])
    shock = np.ones((TIME - 1, 2, AGENTS, 2))
    noisy = roll_motion(stay_still, nothing, scenes, 5, 1, shock, **FEATURES)
    np.testing.assert_allclose(noisy.positions[3], true[1] + 3)
    steady = roll_motion(constant_velocity, nothing, scenes, 5, 1, **FEATURES)
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
    pieces = stages.windows(Scenes(positions, positions[:, :, [0, 1]], lengths), weight)
    assert pieces.scenes.positions.shape[1] == 50 and (pieces.scenes.lengths <= 50).all()
    np.testing.assert_allclose(pieces.weight.sum((0, 1)), (lengths - 1).sum() * weight[0])
    assert (pieces.weight[:, 0] == 0).all()


def test_pieces_begin_with_the_velocity_of_the_frame_before():
    """Rolled out one step at a time, a piece that begins mid-play equals the whole play, the first play's start too."""
    rng = np.random.default_rng(4)
    positions, context = rng.normal(size=(2, 80, AGENTS, 2)), rng.normal(size=(2, 80, 3, 2))
    scenes = Scenes(positions, context, np.array([80, 60]))
    pieces = stages.windows(scenes, np.ones((2, AGENTS)))
    parameters = 0.1 * rng.normal(size=(AGENTS, WIDTH + 1, 2))

    def one_step(scenes, before=None):
        rolled = roll_motion(linear_step, parameters, scenes, 1, before=before, **FEATURES)
        return np.moveaxis(np.asarray(rolled.positions), 0, 1)

    whole, found = one_step(scenes), one_step(pieces.scenes, pieces.before)
    starts = [(0, 0), (0, 25), (0, 50), (1, 0), (1, 25)]
    assert len(found) == len(starts)
    for piece, (play, start) in enumerate(starts):
        steps = pieces.scenes.lengths[piece] - 1
        np.testing.assert_allclose(
            found[piece, :steps], whole[play, start : start + steps], rtol=1e-5, atol=1e-5
        )
    without = one_step(pieces.scenes)
    assert np.abs(without[[1, 2, 4], 0] - found[[1, 2, 4], 0]).max() > 0.1
    np.testing.assert_array_equal(without[[0, 3]], found[[0, 3]])  # nobody has a velocity yet


def test_linear_policies_with_learned_roles_recover_the_motion_and_shuffled_ones_do_not():
    """The truth is linear: the error of a step is that of its noise, 0.3 m in each direction."""
    scenes, roles = drawn()
    new, new_roles = drawn(9, 40)

    def error(held, held_new):
        fit = fit_linear_motion(by_role(scenes, np.arange(PLAYS), held), ridge=0.01, **FEATURES)
        ordered = by_role(new, np.arange(40), held_new)
        rolled = roll_motion(linear_step, fit, ordered, 6, 1, **FEATURES)
        inside = np.arange(1, TIME)[:, None] < new.lengths
        true = np.moveaxis(ordered.positions, 1, 0)[1:]
        return np.sqrt(((np.asarray(rolled.positions) - true)[inside] ** 2).mean()), fit

    best, fit = error(roles, new_roles)
    worst, _ = error(np.tile(np.arange(3), (PLAYS, 1)), np.tile(np.arange(3), (40, 1)))
    assert best < 0.6 and worst > 1.5 * best
    scale = residual_scale(linear_step, fit, by_role(new, np.arange(40), new_roles), **FEATURES)
    np.testing.assert_allclose(scale @ scale.swapaxes(1, 2), 0.09 * np.tile(np.eye(2), (3, 1, 1)), atol=0.07)


@pytest.mark.slow
def test_recurrent_policies_learn_roles_and_motion():
    scenes, roles = drawn()
    model = ethogram.RoleHMM(AGENTS, ethogram.GaussianEmission(2), exclusive="per_sequence")
    settings = {
        "horizons": (1, 3),
        "num_steps": 40,
        "num_units": 6,
        "weight_decay": 0.1,
        "learning_rate": 0.03,
        "progress_bar": False,
    }
    result = imitate_motion(jax.random.key(0), model, scenes, **settings, **FEATURES)
    assert ethogram.align_states(roles, result.role).hamming == 0
    assert result.loss.shape == (2, 40) and result.loss[1, -1] < 0.6 * result.loss[1, 0]
    ordered = by_role(scenes, np.arange(PLAYS), result.role)
    inside = np.arange(1, TIME)[:, None] < scenes.lengths
    true = np.moveaxis(ordered.positions, 1, 0)[1:]

    def error(step, parameters, units=1):
        rolled = np.asarray(
            roll_motion(step, parameters, ordered, 3, 1, num_units=units, **FEATURES).positions
        )
        return ((rolled - true)[inside] ** 2).mean()

    assert error(recurrent_step, result.parameters, 6) < 0.5 * error(constant_velocity, np.zeros(AGENTS))
    np.testing.assert_array_equal(roles_of_plays(result.fit, centred_plays(scenes), AGENTS).best, result.role)


class Stopped(Exception):
    pass


def stop_at(stage, monkeypatch):
    """Break the run off in a stage."""
    whole = stages._one_stage

    def broken(run, state, number):
        if number == stage:
            raise Stopped
        return whole(run, state, number)

    monkeypatch.setattr(stages, "_one_stage", broken)


def equal(one, two):
    assert jax.tree.structure(one.parameters) == jax.tree.structure(two.parameters)
    for name in ("parameters", "role", "role_probability", "loss"):
        for a, b in zip(
            jax.tree.leaves(getattr(one, name)), jax.tree.leaves(getattr(two, name)), strict=True
        ):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_run_of_learned_roles_that_was_broken_off_goes_on(tmp_path, monkeypatch):
    scenes, _ = drawn()
    model = ethogram.RoleHMM(AGENTS, ethogram.GaussianEmission(2), exclusive="per_sequence")
    call = (jax.random.key(0), model, scenes)
    settings = {"num_steps": 3, "num_units": 2, "progress_bar": False}
    whole = imitate_motion(*call, horizons=(1, 2, 2), **settings, **FEATURES)
    path = tmp_path / "run.npz"
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_at(3, patch)
        imitate_motion(*call, horizons=(1, 2, 2), checkpoint=path, **settings, **FEATURES)
    resumed = imitate_motion(*call, horizons=(1, 2, 2), checkpoint=path, **settings, **FEATURES)
    equal(resumed, whole)
    for a, b in zip(
        jax.tree.leaves(whole.fit.posterior.blocks),
        jax.tree.leaves(resumed.fit.posterior.blocks),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_checkpoints_resume_extend_and_refuse_what_is_not_theirs(tmp_path, monkeypatch, capsys):
    scenes, _ = drawn(plays=3)
    settings = {"roles": "shuffled", "num_steps": 2, "num_units": 2}

    def run(horizons, key=0, **changed):
        return imitate_motion(
            jax.random.key(key), None, scenes, horizons=horizons, **(settings | changed), **FEATURES
        )

    whole, path = run((1, 3)), tmp_path / "run.npz"
    assert "imitate_motion: 100%" in capsys.readouterr().err
    settings["progress_bar"] = False
    run((1,), checkpoint=path)
    with monkeypatch.context() as patch:
        stop_at(1, patch)  # the first stage is not done again
        equal(run((1, 3), checkpoint=path), whole)
        equal(run((1, 3), checkpoint=path), whole)
    assert not capsys.readouterr().err
    with pytest.raises(ValueError, match=r"after the horizons \(1, 3\), with which horizons=\(1, 2, 3\)"):
        run((1, 2, 3), checkpoint=path)
    for other in ({"key": 1}, {"weight_decay": 1.0}, {"num_steps": 3}):
        with pytest.raises(ValueError, match="checkpoint of another model, data, key or settings"):
            run((1, 3), checkpoint=path, **other)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.warns(
        UserWarning, match=r"run\.npz cannot be read: truncated.* goes on from the file before it"
    ):
        equal(run((1, 3), checkpoint=path), whole)
    with pytest.raises(ValueError, match="there is no folder"):
        run((1,), checkpoint=tmp_path / "nowhere" / "run.npz")


def test_scenes_are_checked(unchecked):
    scenes, _ = drawn()
    learn = unchecked("imitate_motion").imitate_motion
    wrong = scenes.positions.copy()
    wrong[2, 3, 1, 0] = np.nan
    cases = [
        (scenes._replace(positions=wrong), r"scenes\.positions\[2, 3, 1, 0\] is not finite"),
        (scenes._replace(lengths=scenes.lengths + 1), r"scenes\.lengths is in 11\.\.15"),
        (scenes._replace(lengths=scenes.lengths * 0 + 1), r"scenes\.lengths is in 1\.\.1: give 2 to"),
        (scenes._replace(context=scenes.context[:, :, :1]), "the ball and one opponent at least"),
        (scenes._replace(context=scenes.context[:, 1:]), "the same plays and times"),
        (Scenes(*(part[:0] for part in scenes)), "one play and one agent at least"),
        (scenes._replace(lengths=scenes.lengths * 1.0), r"scenes\.lengths has dtype float64: give integers"),
        (tuple(scenes), "scenes is tuple: give Scenes"),
    ]
    for given, message in cases:
        with pytest.raises((ValueError, TypeError), match=message):
            learn(jax.random.key(0), None, given, roles="shuffled", **FEATURES)
    with pytest.raises(ValueError, match="model is None: roles='learned' needs a RoleHMM"):
        imitate_motion(jax.random.key(0), None, scenes, **FEATURES)
    with pytest.raises(ValueError, match="horizons must be at least 1"):
        imitate_motion(jax.random.key(0), None, scenes, roles="shuffled", horizons=(0,), **FEATURES)
    for wrong, message in [
        ({"horizons": 3}, "horizons is int: give a list"),
        ({"learning_rate": np.nan}, "learning_rate must be greater than 0, not nan"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, not -1"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            learn(jax.random.key(0), None, scenes, roles="shuffled", **wrong, **FEATURES)


def test_models_are_checked(unchecked):
    scenes, _ = drawn()
    learn = unchecked("imitate_motion").imitate_motion
    few = ethogram.RoleHMM(2, ethogram.GaussianEmission(2), exclusive="per_sequence")
    for found, message in [
        ("model", "model is str: give a RoleHMM"),
        (few, "num_roles is 2, the scenes have 3 agents"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            learn(jax.random.key(0), found, scenes, **FEATURES)


def test_the_role_model_observes_plays_about_their_centroids():
    scenes, _ = drawn()
    found, expected = centred_plays(scenes), sequences(scenes).centred()
    for field in ("lengths", "observed", "agent", "group"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
    np.testing.assert_allclose(found.observations, expected.observations, atol=1e-5)


def by_distance(position, velocity, objects, object_velocity):
    """Not finite where an agent stands on the first object, as all do beyond the end of a play."""
    return jax.numpy.log(jax.numpy.sum((position - objects[:1]) ** 2, axis=1, keepdims=True))


def test_frames_beyond_the_end_teach_nothing_and_features_are_finite():
    scenes, _ = drawn(plays=3)
    beyond = np.arange(TIME)[None, :, None, None] >= np.asarray(scenes.lengths)[:, None, None, None]
    padded = scenes._replace(
        positions=np.where(beyond, 0, scenes.positions), context=np.where(beyond, 0, scenes.context)
    )
    np.testing.assert_array_equal(
        *(fit_linear_motion(each, features=by_distance) for each in (scenes, padded))
    )
    met = scenes._replace(context=np.array(scenes.context))
    met.context[1, 4, 0] = met.positions[1, 4, 2]
    with pytest.raises(ValueError, match="features of role 2 in play 1 at time 4 are not finite"):
        fit_linear_motion(met, features=by_distance)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: centred_plays(s._replace(positions=[[1], [1, 2]])), ValueError, "scenes.positions has rows of"),
        (lambda s: centred_plays(s._replace(positions=s.positions * np.nan)), ValueError, "is not finite"),
        (lambda s: centred_plays([1]), TypeError, "scenes is list: give Scenes"),
        (lambda s: by_role(s._replace(context=s.context.astype(str)), [0], [[0, 1, 2]]), TypeError, "dtype <U"),
        (lambda s: by_role(s, [3], [[0, 1, 2]]), ValueError, r"play is \[3\]: give numbers of plays, 0 to 2"),
        (lambda s: by_role(s._replace(positions=s.positions[:, :, :0]), [0], [[]]), ValueError, "one agent at least"),
        (
            lambda s: roll_motion(stay_still, {}, s, 2, noise=np.full((TIME - 1, 3, AGENTS, 2), np.nan), **FEATURES),
            ValueError,
            r"noise\[0, 0, 0, 0\] is not finite",
        ),
        (
            lambda s: fit_linear_motion(s, features=lambda p, v, o, w: p[:, 0]),
            ValueError,
            r"features returned \(3,\): give one array \(3, feature\)",
        ),
        (
            lambda s: imitate_motion(jax.random.key(0), None, s, roles="shuffled", features=lambda *x: x),
            ValueError,
            r"features returned .*give one array \(3, feature\)",
        ),
    ],
)  # fmt: skip
def test_what_is_no_motion_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(drawn(plays=3)[0])


def test_lists_are_scenes():
    scenes, roles = drawn(plays=2)
    listed = by_role(Scenes(*(part.tolist() for part in scenes)), [1], roles[1:].tolist())
    np.testing.assert_array_equal(listed.positions, by_role(scenes, np.array([1]), roles[1:]).positions)


def test_a_loss_that_is_not_finite_is_no_result():
    scenes, _ = drawn(plays=3)  # the program of another test
    settings = {"roles": "shuffled", "num_steps": 2, "num_units": 2, "progress_bar": False}
    with pytest.raises(ValueError, match="the loss of horizon 1 is nan after 2 steps"):
        imitate_motion(
            jax.random.key(0), None, scenes, horizons=(1,), learning_rate=1e200, **settings, **FEATURES
        )


def test_roll_outs_and_fits_of_motion_name_what_does_not_fit():
    scenes, roles = drawn(plays=3)
    nothing, few = np.zeros(AGENTS), np.zeros((AGENTS, 5, 2))
    shock = np.zeros((TIME - 2, 3, AGENTS, 2))
    cases = [
        (
            lambda: roll_motion(stay_still, nothing, scenes, 0, **FEATURES),
            "horizon is 0: give an integer, at least 1",
        ),
        (lambda: roll_motion(stay_still, nothing, scenes, 1.5, **FEATURES), "horizon is 1.5"),
        (
            lambda: roll_motion(stay_still, nothing[:2], scenes, 2, **FEATURES),
            r"parameters have shape \(2,\): give 3 roles",
        ),
        (
            lambda: roll_motion(stay_still, nothing, scenes, 2, 0, shock, **FEATURES),
            r"noise has shape .* give \(13, 3, 3, 2\)",
        ),
        (lambda: roll_motion(linear_step, few, scenes, 2, **FEATURES), "parameters have 5 rows"),
        (
            lambda: roll_motion(
                recurrent_step, new_recurrent(jax.random.key(0), AGENTS, WIDTH, 4), scenes, 2, **FEATURES
            ),
            "num_units is 1, but parameters have 4",
        ),
        (lambda: fit_linear_motion(scenes, ridge=0.0, **FEATURES), "ridge must be greater than 0"),
        (
            lambda: fit_linear_motion(scenes, np.ones((3, 1)), **FEATURES),
            r"weight has shape \(3, 1\): give \(3, 3\)",
        ),
        (
            lambda: fit_linear_motion(scenes, -np.ones((3, 3)), **FEATURES),
            "weight must be finite, and not negative",
        ),
        (lambda: by_role(scenes, np.arange(3), np.zeros((3, 3), int)), r"role\[0\] is \[0, 0, 0\]"),
        (lambda: by_role(scenes, np.arange(2), roles), r"role has shape \(3, 3\): give \(2, 3\)"),
        (
            lambda: residual_scale(stay_still, nothing, scenes._replace(lengths=np.full(3, 2)), **FEATURES),
            "errors of a step need three frames",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_positions_and_context_may_have_any_types():
    scenes, _ = drawn(plays=3)
    parts = [scenes.positions.round().astype(int), scenes.context.round().astype(np.float32)]
    nothing = np.zeros((AGENTS, WIDTH + 1, 2), np.float32)
    found, real = (
        roll_motion(linear_step, nothing, Scenes(*each, scenes.lengths), 3, **FEATURES).positions
        for each in (parts, [part.astype(float) for part in parts])
    )
    np.testing.assert_allclose(found, real, atol=1e-4)


def leaning(parameters, memory, features, velocity):
    """Moves towards the sum of the velocities so far."""
    memory = memory + velocity
    return memory, velocity + parameters * memory


def test_a_new_start_has_the_memory_of_the_true_past():
    scenes, _ = drawn(1, 2)
    rolled = roll_motion(leaning, np.full(AGENTS, 0.1), scenes, 4, 2, num_units=2, **FEATURES)
    true = np.swapaxes(scenes.positions, 0, 1)
    position = previous = true[0]
    memory = np.zeros_like(position)
    for time in range(TIME - 1):
        if (time - 2) % 4 == 0:
            position, previous = true[time], true[max(time - 1, 0)]
            memory = previous - true[0]
        memory = memory + position - previous
        position, previous = position + (position - previous) + 0.1 * memory, position
        np.testing.assert_allclose(rolled.positions[time], position, rtol=1e-5)
