"""Highway: states, dynamics and police car against the rules written out state by state, traces against the tables."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from ethogram.domains import highway
from ethogram.models.data.trajectories import check

STATES = list(itertools.product(range(4), range(5), range(5), range(2)))
LEFT, STAY, RIGHT = range(3)
# Chance is tested at fixed keys, each assertion failing a right program for one key in a thousand.
ERROR_RATE = 1e-3


def is_racing(lane, gap_1, gap_2, flag):
    return bool(flag) and gap_1 in (1, 2, 3) and gap_2 in (1, 2, 3) and gap_1 - gap_2 in (-1, 0, 1)


def is_level(lane, gap_1, gap_2, flag):
    return {1: gap_1, 2: gap_2}.get(lane) == 0


def on_patrol(lane, gap_1, gap_2, flag):
    """Intended action of the patrol, lane by lane."""
    free_1, free_2 = gap_1 >= 2, gap_2 >= 2
    if lane == 0:
        return RIGHT if free_1 else STAY
    if lane == 1:
        return STAY if free_1 else RIGHT if free_2 else LEFT
    if lane == 2:
        return STAY if free_2 else LEFT if free_1 else RIGHT
    return LEFT if free_2 else STAY


def in_pursuit(lane, gap_1, gap_2, flag):
    """Intended action of the pursuit, lane by lane."""
    if lane == 0:
        return RIGHT
    if lane == 1:
        return RIGHT if gap_2 < gap_1 else STAY
    if lane == 2:
        return LEFT if gap_1 < gap_2 else STAY
    return LEFT


def after_gap(gap, p_fast):
    """Chance of the next gap."""
    return {3: 0.5, 4: 0.5} if gap == 0 else {gap - 1: p_fast, gap: 1 - p_fast}


def changing_states():
    stays = np.einsum("xsax->xsa", highway.true_agent().transition)
    return np.any(stays < 1, axis=(0, 2))


@pytest.fixture(scope="module")
def rollout():
    return highway.simulate(jax.random.key(0), num_traces=500, p_fast=0.7, eps=0.1)


@pytest.fixture(scope="module")
def parts(rollout):
    return highway.state_parts(rollout.data.states)


def test_parts_of_a_state_are_those_of_its_number():
    assert len(STATES) == highway.NUM_STATES == 200
    np.testing.assert_array_equal(np.transpose(highway.state_parts(range(200))), STATES)


@pytest.mark.parametrize("p_fast", [0.9, 0.25, 0, 1])
def test_the_dynamics_follow_the_rules(p_fast):
    table = highway.transitions(p_fast)
    expected = np.zeros((200, 3, 200))
    for number, (lane, gap_1, gap_2, _) in enumerate(STATES):
        flag = int(abs(gap_1 - gap_2) <= 1)
        for action in (LEFT, STAY, RIGHT):
            moved = min(max(lane + action - 1, 0), 3)
            ahead = itertools.product(after_gap(gap_1, p_fast).items(), after_gap(gap_2, p_fast).items())
            for (next_1, chance_1), (next_2, chance_2) in ahead:
                after = STATES.index((moved, next_1, next_2, flag))
                expected[number, action, after] += chance_1 * chance_2
    np.testing.assert_allclose(table, expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(table.sum(axis=-1), 1, rtol=0, atol=1e-14)


@pytest.mark.parametrize("eps", [0.01, 0.3, 0])
def test_the_agent_follows_the_rules(eps):
    agent = highway.true_agent(eps)
    np.testing.assert_array_equal(agent.initial, [1, 0])
    assert agent.policy.shape == (2, 200, 3) and agent.transition.shape == (2, 200, 3, 2)
    for number, state in enumerate(STATES):
        for intent, intended in enumerate((on_patrol(*state), in_pursuit(*state))):
            row = [1 - eps if action == intended else eps / 2 for action in range(3)]
            np.testing.assert_allclose(agent.policy[intent, number], row, rtol=0, atol=1e-15)
        following = [int(is_racing(*state)), int(not is_level(*state))]
        np.testing.assert_array_equal(agent.transition[:, number], np.eye(2)[following][:, None].repeat(3, 1))


def test_48_of_200_states_change_the_intent():
    racing, level = (np.array([rule(*state) for state in STATES]) for rule in (is_racing, is_level))
    assert racing.sum() == 28 and level.sum() == 20 and not np.any(racing & level)
    np.testing.assert_array_equal(changing_states(), racing | level)
    assert changing_states().sum() == 48


def test_a_policy_of_maximum_entropy_is_as_far_off_as_in_the_paper():
    policy = highway.true_agent().policy
    divergence = np.log(3) + np.sum(policy * np.log(policy), axis=-1)
    np.testing.assert_allclose(divergence, 1.04, rtol=0, atol=0.005)


def test_traces_begin_on_patrol_in_a_driving_lane(rollout, parts):
    data = check(rollout.data)
    assert data.states.shape == data.actions.shape == rollout.intents.shape == (500, 40)
    assert data.observed.all() and data.metadata.action_names == ("left", "stay", "right")
    lane, gap_1, gap_2, flag = (part[:, 0] for part in parts)
    assert not rollout.intents[:, 0].any() and not flag.any() and set(lane) == {1, 2}
    first = np.bincount(((lane - 1) * 5 + gap_1) * 5 + gap_2, minlength=50)
    assert stats.chisquare(first).pvalue > ERROR_RATE


def test_what_is_certain_is_so_in_every_trace(rollout, parts):
    lane, gap_1, gap_2, flag = parts
    np.testing.assert_array_equal(lane[:, 1:], np.clip(lane + rollout.data.actions - 1, 0, 3)[:, :-1])
    np.testing.assert_array_equal(flag[:, 1:], (abs(gap_1 - gap_2) <= 1)[:, :-1])
    patrol = rollout.intents == 0
    racing = np.vectorize(is_racing)(*parts)
    level = np.vectorize(is_level)(*parts)
    changed = rollout.intents[:, 1:] != rollout.intents[:, :-1]
    np.testing.assert_array_equal(changed, np.where(patrol, racing, level)[:, :-1])
    assert 0.2 < patrol.mean() < 0.95


def test_what_is_chance_has_the_chances_of_the_tables(rollout, parts):
    for gap in (parts.gap_1, parts.gap_2):
        before, after = gap[:, :-1], gap[:, 1:]
        closing, passed = before > 0, before == 0
        assert set((before - after)[closing].tolist()) == {0, 1}
        closed = int((before - after)[closing].sum())
        assert stats.binomtest(closed, int(closing.sum()), 0.7).pvalue > ERROR_RATE
        assert set(after[passed].tolist()) == {3, 4}
        assert stats.binomtest(int((after[passed] == 3).sum()), int(passed.sum()), 0.5).pvalue > ERROR_RATE
    intended = np.where(
        rollout.intents == 0, np.vectorize(on_patrol)(*parts), np.vectorize(in_pursuit)(*parts)
    )
    turn = (rollout.data.actions - intended) % 3
    share = turn.size * np.array([0.9, 0.05, 0.05])
    assert stats.chisquare(np.bincount(turn.ravel(), minlength=3), share).pvalue > ERROR_RATE


def test_without_noise_only_the_first_state_is_chance():
    one, same = (highway.simulate(jax.random.key(5), 3, 9, p_fast=1, eps=0) for _ in range(2))
    np.testing.assert_array_equal(one.data.states, same.data.states)
    assert one.data.states.shape == (3, 9)
    for states, actions, intents in zip(one.data.states, one.data.actions, one.intents, strict=True):
        for state, action, intent in zip(states, actions, intents, strict=True):
            assert action == (in_pursuit if intent else on_patrol)(*STATES[state])


def test_regions_are_random_halves_of_the_quiet_states():
    regions = np.array([highway.random_region(key) for key in jax.random.split(jax.random.key(2), 200)])
    assert regions.shape == (200, 200) and regions.dtype == bool
    np.testing.assert_array_equal(regions.sum(axis=1), 76)
    changing = changing_states()
    assert not regions[:, changing].any()
    # A state is in half of the regions; 76 of 152 without replacement scale the sum of squares by 152 / 151.
    count = regions[:, ~changing].sum(axis=0)
    statistic = ((count - 100) ** 2).sum() / (200 * 0.25) * 151 / 152
    assert ERROR_RATE / 2 < stats.chi2(151).cdf(statistic) < 1 - ERROR_RATE / 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_traces": 0}, "num_traces must be at least 1, not 0"),
        ({"length": 0}, "length must be at least 1, not 0"),
        ({"p_fast": 1.1}, "p_fast must be at least 0 and at most 1, not 1.1"),
        ({"p_fast": float("nan")}, "p_fast must be .*, not nan"),
        ({"eps": -0.1}, "eps must be at least 0"),
    ],
)
def test_settings_out_of_range_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        highway.simulate(jax.random.key(0), **change)


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (-1, ValueError, "state is -1: give 0 to 199"),
        ([3, 200], ValueError, r"state\[1\] is 200: give 0 to 199"),
        (1.5, TypeError, "state has dtype float64: give integers"),
        ([[1], [2, 3]], ValueError, "state has rows of different lengths"),
    ],
)
def test_numbers_of_no_state_are_named(number, error, words):
    with pytest.raises(error, match=words):
        highway.state_parts(number)


@pytest.mark.parametrize("draw", [highway.simulate, highway.random_region])
def test_a_number_is_no_key(draw):
    with pytest.raises(TypeError, match="key must be one typed key, not int"):
        draw(0)
