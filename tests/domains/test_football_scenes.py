"""Scenes of football against the plays of the football domain."""

from __future__ import annotations

import numpy as np

from ethogram.domains import football, football_scenes


def test_scenes_are_the_plays_of_both_teams_on_the_pitch():
    found = football_scenes.load()
    scenes, data = found.scenes, found.data
    assert scenes.positions.shape[2:] == (10, 2) and scenes.context.shape[2:] == (12, 2)
    assert scenes.lengths.sum() == 1166 and found.team.tolist() == [0] * 14 + [1] * 13
    first = 0
    for team in football.SIDES:
        plays = football.load(team).data
        count, width = plays.num_sequences, plays.observations.shape[1]
        np.testing.assert_allclose(
            data.observations[first : first + count, :width], plays.observations, atol=1e-4
        )
        np.testing.assert_array_equal(data.lengths[first : first + count], plays.lengths)
        first += count
    centred = scenes.positions - scenes.positions.mean(axis=2, keepdims=True)
    rows = centred.swapaxes(1, 2).reshape(270, -1, 2)
    np.testing.assert_allclose(rows, np.asarray(data.observations), atol=1e-4)


def test_defenders_stand_between_the_ball_and_their_goal():
    """Teams attack towards +x, so that in most frames their centroid is nearer to their goal than the ball."""
    scenes = football_scenes.load().scenes
    inside = np.arange(scenes.positions.shape[1]) < scenes.lengths[:, None]
    behind = scenes.positions.mean(axis=2)[..., 0] < scenes.context[:, :, 0, 0]
    assert behind[inside].mean() > 0.7
    assert np.abs(scenes.context[inside][:, 1:]).max() < 70
