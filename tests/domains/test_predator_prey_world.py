"""The world of predator and prey against its rules."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.domains import predator_prey
from ethogram.domains.predator_prey import PredatorPreyExperts, PredatorPreyWorld
from ethogram.inference.imitation import role_trajectories

SIZE = 5


@pytest.fixture(scope="module")
def recorded():
    return predator_prey.simulate(jax.random.key(0), 30, SIZE)


class FixedOrder(np.random.Generator):
    """Random numbers that are known: the prey's moves and the order."""

    def __init__(self, prey, order):
        super().__init__(np.random.PCG64(0))
        self.prey, self.order = prey, order

    def choice(self, count, shape, p):
        assert count == 5 and p.sum() == pytest.approx(1)
        return self.prey[:, None]

    def permuted(self, agents, axis):
        return self.order[:, None]


def test_a_step_follows_the_rules_of_the_games():
    rng = np.random.default_rng(1)
    world = PredatorPreyWorld(3)  # crowded: many moves are lost
    state = world.reset(rng, 200)
    assert state.min() >= 0 and state.max() <= 2
    assert all(len({tuple(cell) for cell in game}) == 5 for game in state.tolist())
    actions, prey = rng.integers(5, size=(200, 4)), rng.integers(5, size=200)
    order = rng.permuted(np.broadcast_to(np.arange(5), (200, 5)), axis=1)
    after, done = world.step(FixedOrder(prey, order), state, actions)
    for game in range(200):
        cells = [tuple(cell) for cell in state[game].tolist()]
        for agent in order[game]:
            move = predator_prey.MOVES[[*actions[game], prey[game]][agent]]
            target = tuple(((np.array(cells[agent]) + move) % 3).tolist())
            cells[agent] = cells[agent] if target in cells else target
        assert [tuple(cell) for cell in after[game].tolist()] == cells
        around = {tuple(((np.array(cells[4]) + slot) % 3).tolist()) for slot in predator_prey.SLOTS}
        assert done[game] == (around <= set(cells[:4]))
    assert (after != state).any() and done.any() and not done.all()


def test_features_are_the_short_way_from_the_prey_by_role():
    state = np.array([[[0, 0], [4, 4], [2, 1], [1, 2], [0, 4]]])
    features = PredatorPreyWorld(SIZE).observe(np.array([[2, 0, 3, 1]]), state)
    own = np.array([[0, 1], [-1, 0], [2, 2], [1, -2]])
    np.testing.assert_array_equal(features[0, 0], own[[0, 1, 3, 2]].ravel())  # role 2: mates of roles 0, 1, 3
    np.testing.assert_array_equal(features[0, 1], own[[1, 3, 0, 2]].ravel())  # role 0: mates of roles 1, 2, 3


def test_demonstrations_are_the_games_and_the_role_model_observes_their_symbols(recorded):
    data, games = recorded
    world = PredatorPreyWorld(SIZE)
    demonstrations = world.demonstrations(data)
    states, actions, lengths = demonstrations
    inside = np.arange(actions.shape[1]) < lengths[:, None]
    relative = (games.positions[:, :-1] - games.positions[:, :-1, 4:]) % SIZE
    np.testing.assert_array_equal(states[inside], relative[:, : states.shape[1]][inside])
    np.testing.assert_array_equal(lengths, games.lengths)
    again = role_trajectories(world, demonstrations, data.metadata)
    for field in ("actions", "lengths", "observed", "agent", "group", "metadata"):
        np.testing.assert_array_equal(getattr(again, field), getattr(data, field))
    np.testing.assert_array_equal(again.observations[data.observed], data.observations[data.observed])


def test_experts_answer_as_they_played(recorded):
    data, games = recorded
    states, actions, lengths = PredatorPreyWorld(SIZE).demonstrations(data)
    game, time = np.nonzero(np.arange(actions.shape[1]) < lengths[:, None])
    experts = PredatorPreyExperts(games.roles, SIZE)
    np.testing.assert_array_equal(experts(states[game, time], game), actions[game, time])


def test_other_boards_and_data_are_refused(recorded):
    data, _ = recorded
    with pytest.raises(ValueError, match="size is 2"):
        PredatorPreyWorld(2)
    with pytest.raises(ValueError, match="on a board of size 3"):
        PredatorPreyWorld(3).demonstrations(data)
    with pytest.raises(ValueError, match=r"data\.states or data\.actions is None"):
        PredatorPreyWorld(SIZE).demonstrations(data._replace(states=None))
    gap = np.array(data.states)
    gap[5, 1] = -1
    with pytest.raises(ValueError, match=r"data\.states of sequence 5 is -1 at step 1"):
        PredatorPreyWorld().demonstrations(data._replace(states=gap))
    for roles, message in [
        (np.zeros(5, int), r"roles is int64 of shape \(5,\): give integers, 4 for each game"),
        (np.array([0, 1, 2, 4]), r"roles is in 0\.\.4: give 0 to 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            PredatorPreyExperts(roles)
