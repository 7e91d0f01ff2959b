"""The imitation loop on a toy ring, whose experts, roles and tables are known; nothing here needs scikit-learn."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ethogram
from ethogram.inference.conjugate import ConjugatePosterior, ConjugateResult
from ethogram.inference.imitation import Demonstrations, imitate
from ethogram.inference.imitation.roll_outs import joint_actions, roll_out

HORIZON = 8
SHORT = {"rounds": 1, "horizon": HORIZON, "evaluation_games": 20, "progress_bar": False}
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def made(ring):
    """Demonstrations that show every cell in every role, their roles (game, agent), and the games."""
    data, roles, games = ring.demonstrations()
    inside = np.arange(HORIZON) < games[2][:, None]
    shown = set(zip(roles[np.nonzero(inside)[0]].ravel(), games[0][inside].ravel(), strict=True))
    assert len(shown) == 12
    return data, roles, games


@pytest.fixture(scope="module")
def model(ring):
    return ethogram.RoleHMM(2, ethogram.CategoricalEmission(ring.NUM_SYMBOLS), exclusive="per_sequence")


@pytest.fixture(scope="module")
def learned(ring, made, model):
    """Two rounds with learned roles, and the experts that were asked."""
    data, roles, _ = made
    experts = ring.RingExperts(roles)
    settings = SHORT | {"rounds": 2, "restarts": 3, "fit_steps": 30}
    return imitate(KEY, model, ring.Majority(), ring.Ring(), data, expert=experts, **settings), experts


def test_with_known_roles_the_roll_outs_are_the_experts_games(ring, made):
    data, roles, _ = made
    result = imitate(
        KEY, roles.ravel(), ring.Majority(), ring.Ring(), data, expert=ring.RingExperts(roles), **SHORT
    )
    first = result.rolled.observations[:, 0, 0].reshape(-1, 2) // 3
    shown = (
        np.arange(len(first)) % 2 == 1
    )  # every other game begins as it was demonstrated, the others at fresh cells
    np.testing.assert_array_equal(first[shown], data.states[:, 0].reshape(-1, 2)[shown])
    assert (first[~shown] != data.states[:, 0].reshape(-1, 2)[~shown]).any()
    expected = ring.trajectories(*ring.play_experts(first, roles))
    for field in ("lengths", "observed", "actions", "agent", "group"):
        np.testing.assert_array_equal(getattr(result.rolled, field), getattr(expected, field))
    seen = result.rolled.observed
    np.testing.assert_array_equal(result.rolled.observations[seen], expected.observations[seen])
    assert result.loss.tolist() == [0] and result.failure.tolist() == [0]
    np.testing.assert_array_equal(result.role.reshape(-1, 2), roles)
    # Fresh games end when experts of both roles would.
    first = result.played.observations[:, 0, 0].reshape(-1, 2) // 3
    for game, cells in enumerate(first):
        steps = [ring.play_experts(cells[None], np.array([order]))[2][0] for order in ([0, 1], [1, 0])]
        assert result.game_steps[0, game] in steps


def test_learned_roles_are_the_true_ones_up_to_their_names(ring, made, learned):
    result, (_, roles, _) = learned[0], made
    assert ethogram.align_states(roles.ravel(), result.role).hamming == 0
    np.testing.assert_allclose(result.role_probability.sum(1), 1)
    assert result.failure[-1] == 0 and result.loss[-1] == 0
    np.testing.assert_allclose(result.policy_role, [np.eye(2)] * 2)
    assert result.fit.posterior.model.num_roles == 2 and np.isfinite(result.elbo).all()
    names = dict(zip(result.role, roles.ravel(), strict=True))
    for role, policy in enumerate(result.policies):
        cells = np.arange(6.0)[:, None]
        np.testing.assert_array_equal(policy.predict(cells), ring.expert_move(names[role], np.arange(6)))


def test_the_expert_is_asked_at_the_states_of_the_roll_outs_each_once(learned):
    result, experts = learned
    assert len(experts.asked) == 2
    states, games = experts.asked[-1]
    lengths = np.asarray(result.rolled.lengths)[::2]
    np.testing.assert_array_equal(games, np.repeat(np.arange(len(lengths)), lengths))
    visited = (result.rolled.observations[..., 0] // 3).reshape(len(lengths), 2, -1).swapaxes(1, 2)
    inside = np.arange(visited.shape[1]) < lengths[:, None]
    np.testing.assert_array_equal(states, visited[inside])


def test_a_policy_learns_from_demonstrations_and_roll_outs_of_its_role(ring, made, learned):
    result, experts = learned
    _, roles, (states, actions, lengths) = made
    first_states, first_games = experts.asked[0]
    held = result.role.reshape(-1, 2)
    inside = np.arange(HORIZON) < lengths[:, None]
    games = np.concatenate([np.nonzero(inside)[0], first_games])
    cells = np.concatenate([states[inside], first_states])
    moves = np.concatenate([actions[inside], ring.expert_move(roles[first_games], first_states)])
    for role, policy in enumerate(result.policies):
        where = held[games] == role
        expected = sorted(zip(cells[where], moves[where], strict=True))
        assert sorted(zip(policy.X[:, 0], policy.y, strict=True)) == expected
        assert (policy.weight > 0.99).all()


def test_probabilities_of_roles_weight_the_training(ring, made, model):
    """Under a posterior that cannot tell the roles apart, each agent teaches both policies with weight one half."""
    data, roles, (states, _, lengths) = made
    ignorant = ConjugateResult(
        ConjugatePosterior(model, model.prior()),
        *(np.zeros(1), np.zeros(1), True, 0, KEY, np.zeros(1, int), np.zeros((1, 1))),
    )
    settings = SHORT | {"fit_steps": 2}
    result = imitate(
        KEY, ignorant, ring.Majority(), ring.Ring(), data, expert=ring.RingExperts(roles), **settings
    )
    np.testing.assert_allclose(result.role_probability, 0.5)
    for policy in result.policies:
        assert len(policy.X) == 2 * lengths.sum()
        np.testing.assert_allclose(policy.weight, 0.5)
        # The features are those of the role: own cell first, whichever agent holds it.
        assert sorted(policy.X[:, 0]) == sorted(states[np.arange(HORIZON) < lengths[:, None]].ravel())


def test_policies_are_those_that_played(ring, made):
    """Not others that were trained again: a policy of a random library is another one after each training."""
    data, roles, _ = made
    fitted = []

    class Counted(ring.Majority):
        asked = 0

        def fit(self, X, y, sample_weight):
            fitted.append(self)
            return super().fit(X, y, sample_weight)

        def predict(self, X):
            self.asked += 1
            return super().predict(X)

    result = imitate(
        KEY, roles.ravel(), Counted(), ring.Ring(), data, expert=ring.RingExperts(roles), **SHORT
    )
    assert [id(policy) for policy in result.policies] == list(map(id, fitted))
    assert all(policy.asked for policy in result.policies)


def test_shuffled_roles_give_the_majority_policy(ring, made):
    data, roles, (states, actions, lengths) = made
    settings = SHORT | {"roles": "shuffled"}
    result = imitate(
        KEY, None, ring.Majority(), ring.Ring(), data, expert=ring.RingExperts(roles), **settings
    )
    held = result.role.reshape(-1, 2)
    assert (held.sum(1) == 1).all() and not (held == roles).all() and (held == roles).any()
    inside = np.arange(HORIZON) < lengths[:, None]
    for role, policy in enumerate(result.policies):
        agent = np.argmax(held == role, axis=1)
        cells, moves = (x[np.arange(len(held)), :, agent][inside] for x in (states, actions))
        for cell in range(6):
            counts = np.bincount(moves[cells == cell], minlength=3)
            assert policy.predict(np.array([[cell, 0]]))[0] == counts.argmax()
    assert result.failure[0] > 0.2 and np.isnan(result.policy_role).all() and result.fit is None


def rolled_from(world, policies, roles, start, limits):
    rng = np.random.default_rng(0)
    return roll_out(
        world,
        lambda state, game: joint_actions(world, policies, roles[game], state, rng),
        start,
        rng,
        limits,
    )


def test_team_mates_are_seen_where_the_roll_out_took_them(ring):
    """Policies that leave the demonstrations see each other's roll-outs, not what was demonstrated."""

    class Follower(ring.Majority):
        """Moves right, and records what it saw."""

        def predict(self, X):
            self.seen = [*getattr(self, "seen", []), X]
            return np.full(len(X), 2)

    both = [Follower(), Follower()]
    start = np.array([[1, 2]])
    rolled, reached = rolled_from(ring.Ring(), both, np.array([[1, 0]]), start, np.array([3]))
    np.testing.assert_array_equal(rolled.states[0], [[1, 2], [2, 3], [3, 4]])
    np.testing.assert_array_equal(np.concatenate(both[1].seen), [[1, 2], [2, 3], [3, 4]])
    np.testing.assert_array_equal(np.concatenate(both[0].seen), [[2, 1], [3, 2], [4, 3]])
    assert rolled.lengths.tolist() == [3] and not reached.any()


def test_finished_games_stop_and_others_go_on(ring):
    still, right = ring.Majority(), ring.Majority()
    still.table, right.table = {}, {(float(cell),): np.array([0, 0, 1.0]) for cell in range(6)}
    start = np.array([[0, 2], [0, 1]])
    roles = np.array([[0, 1], [0, 1]])
    rolled, reached = rolled_from(ring.Ring(), [still, right], roles, start, np.array([5, 5]))
    assert rolled.lengths.tolist() == [1, 2] and reached.all()
    assert rolled.actions[:, :, 1].tolist() == [[2, 0], [2, 2]]


def test_without_an_expert_segments_grow_and_targets_are_those_of_the_same_step(ring, made):
    data, roles, (_, _, lengths) = made
    settings = SHORT | {"rounds": 2, "horizon": 3}
    result = imitate(KEY, roles.ravel(), ring.Majority(), ring.Ring(), data, **settings)
    rolled = np.asarray(result.rolled.lengths)[::2]
    expected = [min(3, n - t) for n in lengths for t in range(0, n, 3)]
    # Policies are perfect, and a segment ends with its demonstration.
    assert rolled.tolist() == expected and result.loss.tolist() == [0, 0]
    # One row a step in each of: the demonstrations, and the first round's segments of one step.
    assert sum(len(policy.X) for policy in result.policies) == 2 * 2 * lengths.sum()


class Plane:
    """Two agents on a line of reals, whose actions are displacements; the goal is to be near both targets."""

    num_agents = 2
    num_actions = None
    targets = np.array([-4.0, 4.0])

    def reset(self, rng, num_games):
        return rng.normal(size=(num_games, 2, 1)) * 5

    def step(self, rng, state, actions):
        after = state + actions
        return after, (np.abs(np.sort(after[..., 0]) - self.targets) < 0.2).all(axis=1)

    def observe(self, roles, state):
        return np.concatenate([state, np.ones_like(state)], axis=-1)

    def role_features(self, state, actions):
        return state


class LeastSquares:
    """A weighted linear regression."""

    def fit(self, X, y, sample_weight):
        root = np.sqrt(sample_weight)[:, None]
        self.slope = np.linalg.lstsq(root * X, root * y, rcond=None)[0]

    def predict(self, X):
        return X @ self.slope


def test_actions_may_be_vectors_of_reals():
    """Experts go half of the way to the target of their role: a linear policy finds exactly this."""
    rng = np.random.default_rng(0)
    roles = rng.permuted(np.tile([0, 1], (10, 1)), axis=1)
    places = [rng.normal(size=(10, 2)) * 5]
    for _ in range(6):
        places.append((places[-1] + Plane.targets[roles]) / 2)
    places = np.stack(places, axis=1)[..., None]
    data = Demonstrations(places[:, :-1], np.diff(places, axis=1), np.full(10, 6))

    def expert(state, game):
        return (Plane.targets[roles[game]][..., None] - state) / 2

    result = imitate(
        KEY, roles.ravel(), LeastSquares(), Plane(), data, expert=expert, **SHORT | {"horizon": 12}
    )
    for role, policy in enumerate(result.policies):
        np.testing.assert_allclose(policy.slope.ravel(), [-0.5, Plane.targets[role] / 2], atol=1e-9)
    assert result.loss[0] == pytest.approx(0, abs=1e-9) and result.failure.tolist() == [0]
    alone = imitate(KEY, roles.ravel(), LeastSquares(), Plane(), data, **SHORT | {"rounds": 2, "horizon": 4})
    assert alone.loss == pytest.approx([0, 0], abs=1e-9)


class Breaking:
    """A world that fails in a given round, once."""

    def __init__(self, world, at, error):
        self.world, self.left, self.error = world, at, error
        self.num_agents, self.num_actions = world.num_agents, world.num_actions

    def __getattr__(self, name):
        return getattr(self.world, name)

    def reset(self, rng, num_games):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.world.reset(rng, num_games)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("the world broke")])
def test_a_run_that_was_cut_short_goes_on_to_the_same_result(ring, made, tmp_path, error):
    data, roles, _ = made
    settings = SHORT | {"rounds": 3, "roles": "shuffled"}

    def run(world, **more):
        return imitate(
            KEY, None, ring.Majority(2), world, data, expert=ring.RingExperts(roles), **settings, **more
        )

    whole, found = run(Breaking(ring.Ring(), 99, None)), []
    for at in range(
        2, 8
    ):  # one reset tries the world; two per round: of its roll-outs, and of its fresh games
        path = tmp_path / f"{at}.npz"
        with pytest.raises(type(error)) as caught:
            run(Breaking(ring.Ring(), at, error), checkpoint=path)
        if isinstance(error, ValueError):
            assert caught.value.__notes__.pop() == f"in round {at // 2} of 3"
        resumed_world = Breaking(ring.Ring(), 99, None)
        found.append(run(resumed_world, checkpoint=path))
        assert resumed_world.left == 90 + 2 * (at // 2)  # finished rounds are not done again
    with pytest.warns(UserWarning, match="all 3 rounds were in the checkpoint, .* trained again"):
        found.append(run(Breaking(ring.Ring(), 2, AssertionError), checkpoint=path))
    for other in found:
        for name in ("failure", "steps", "loss", "reached", "game_steps", "role", "role_probability"):
            np.testing.assert_array_equal(getattr(other, name), getattr(whole, name))
        for one, two in zip(whole.policies, other.policies, strict=True):
            np.testing.assert_array_equal(one.X, two.X)
            np.testing.assert_array_equal(one.y, two.y)
        for one, two in zip(jax.tree.leaves(whole.played), jax.tree.leaves(other.played), strict=True):
            np.testing.assert_array_equal(one, two)


def test_learned_roles_resume_too_and_more_rounds_extend_the_run(ring, made, model, learned, tmp_path):
    data, roles, _ = made
    whole, _ = learned
    path = tmp_path / "run.npz"

    def run(rounds):
        settings = SHORT | {"rounds": rounds, "restarts": 3, "fit_steps": 30, "checkpoint": path}
        return imitate(
            KEY, model, ring.Majority(), ring.Ring(), data, expert=ring.RingExperts(roles), **settings
        )

    run(1)
    part = run(2)
    for name in ("failure", "steps", "loss", "elbo", "policy_role", "role_probability"):
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name))
    for one, two in zip(
        jax.tree.leaves(whole.fit.posterior.blocks), jax.tree.leaves(part.fit.posterior.blocks), strict=True
    ):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="rounds=1"):
        run(1)


def test_a_checkpoint_of_another_run_is_refused(ring, made, tmp_path):
    data, roles, _ = made
    path = tmp_path / "run.npz"
    imitate(KEY, roles.ravel(), ring.Majority(), ring.Ring(), data, checkpoint=path, **SHORT)
    with pytest.raises(ValueError, match="checkpoint of another model, data, key or settings"):
        imitate(
            jax.random.key(5), roles.ravel(), ring.Majority(), ring.Ring(), data, checkpoint=path, **SHORT
        )
    with pytest.raises(ValueError, match="checkpoint of another model, data, key or settings"):
        imitate(KEY, roles.ravel(), ring.Majority(2), ring.Ring(), data, checkpoint=path, **SHORT)


def test_arviz_reads_curves_draws_and_data(made, learned):
    data, _, _ = made
    result, _ = learned
    tree = ethogram.to_arviz(result, data, num_draws=7)
    stats = tree["fit_stats"]
    assert tree["posterior"]["probability"].shape == (1, 7, 2, 18)
    np.testing.assert_array_equal(stats["failure"], result.failure)
    assert stats["reached"].dims == ("round", "game") and stats["policy_role"].dims == (
        "round",
        "policy",
        "role",
    )
    np.testing.assert_array_equal(stats["role_probability"], result.role_probability)
    rolled = ethogram.to_arviz(result, result.rolled, num_draws=2)  # roll-outs as data
    np.testing.assert_array_equal(rolled["observed_data"]["observations"], result.rolled.observations)
    without = ethogram.to_arviz(result._replace(fit=None), data)
    np.testing.assert_array_equal(without["fit_stats"]["steps"], result.steps)


@pytest.mark.slow
def test_a_plain_model_weights_by_assignment(ring, made, model):
    """Roles of a model without exclusivity are distinct in each demonstration all the same."""
    data, roles, _ = made
    plain = ethogram.RoleHMM(2, ethogram.CategoricalEmission(ring.NUM_SYMBOLS), sticky=20.0)
    settings = SHORT | {"restarts": 3, "fit_steps": 30}
    result = imitate(
        KEY, plain, ring.Majority(), ring.Ring(), data, expert=ring.RingExperts(roles), **settings
    )
    assert (result.role.reshape(-1, 2).sum(1) == 1).all()
    assert ethogram.align_states(roles.ravel(), result.role).hamming < 0.1
    assert result.policy_role[0].trace() > 1.8


def test_one_way_in_gives_the_same_imitation(ring, made, model, tmp_path):
    """By ``ethogram.fit``, whose result has the roles, the roll-outs, a picture and a page."""
    data, roles, _ = made
    settings = SHORT | {"restarts": 3, "fit_steps": 30, "expert": ring.RingExperts(roles)}
    given = {"policy": ring.Majority(), "world": ring.Ring(), **settings}
    found = ethogram.fit(KEY, model, data, "imitate", **given)
    key_fit, _ = jax.random.split(KEY)
    plain = imitate(key_fit, model, ring.Majority(), ring.Ring(), data, **settings)
    np.testing.assert_array_equal(found.result.loss, plain.loss)
    np.testing.assert_array_equal(found.predict().observations, plain.rolled.observations)
    assert (
        found.states().path.shape == data.observed.shape and found.draws(3).sites["probability"].shape[1] == 3
    )
    assert [axes.get_xlabel() for axes in found.plot().axes[:2]] == ["round", "round"]
    page = found.report(tmp_path / "page.html").read_text("utf-8")
    assert "0 % of the 20 fresh games of the last of 1 rounds failed" in page
    table = found.summary()
    assert table.index[0] == "failure" and table.index[1].startswith("probability[")
    assert table["mean"]["failure"] == pytest.approx(
        0.5 / 21, rel=0.1
    )  # none of 20 games, after Jeffreys' prior
    shown = ethogram.fit(KEY, model, ring.Ring().demonstrations(data), "imitate", **given)
    np.testing.assert_array_equal(shown.states().path, found.states().path)  # of games without trajectories
    for wrong, message in (
        (lambda: found.save(tmp_path / "fit"), "policies are objects of other libraries"),
        (lambda: found.predict(data.take([0, 1])), "data is new"),
        (
            lambda: ethogram.fit(KEY, model, data, "imitate", policy=ring.Majority()),
            "needs world, rounds, horizon",
        ),
    ):
        with pytest.raises(TypeError, match=message):
            wrong()


def test_states_are_those_of_what_the_role_model_observed(ring, made, model):
    """A world may show it something else than the recorded observations, of agents in another order."""
    data, _, _ = made
    odd_first = np.argsort(np.arange(data.num_sequences) % 2 == 0, kind="stable")
    places = data.take(odd_first)._replace(
        observations=np.repeat(np.asarray(data.states)[odd_first, :, None].astype(float), 2, axis=2),
        metadata=ethogram.Metadata(feature_names=("place", "again")),
        group=3 * np.asarray(data.group)[odd_first] + 1,
    )
    settings = SHORT | {"policy": ring.Majority(), "world": ring.Ring(), "restarts": 3, "fit_steps": 30}
    found = ethogram.fit(KEY, model, places, "imitate", **settings)
    np.testing.assert_array_equal(found.states().path[:, 0], found.result.role)
    np.testing.assert_array_equal(found.data.observations, data.take(odd_first).observations)
    np.testing.assert_array_equal(found.data.group, places.group)


def test_a_world_that_answers_wrongly_is_refused_before_a_fit(ring, made):
    data, roles, _ = made

    class Wrong(ring.Ring):
        def step(self, rng, state, actions):
            return state, 0

    with pytest.raises(ValueError, match=r"step returned goals as int64 of shape \(\)") as caught:
        imitate(KEY, roles.ravel(), ring.Majority(), Wrong(), data, **SHORT)
    assert not hasattr(caught.value, "__notes__")  # which say the round


def test_without_an_expert_segments_of_the_first_round_are_single_steps(ring, made):
    data, roles, (_, _, lengths) = made
    result = imitate(KEY, roles.ravel(), ring.Majority(), ring.Ring(), data, **SHORT)
    assert result.rolled.lengths.tolist() == [1] * (2 * lengths.sum())


def test_loss_is_measured_at_fresh_states_too(ring, made):
    """Policies that know the first states of two demonstrations by heart, and nothing else, are asked elsewhere."""
    _, roles, games = made
    world, few = ring.Ring(), Demonstrations(*(part[:2] for part in games))

    class ByHeart(ring.Majority):
        def predict(self, X):
            return np.where(np.isin(X[:, 0], self.X[:, 0]), super().predict(X), 0)

    settings = SHORT | {"rounds": 4, "horizon": 4, "evaluation_games": 200}
    result = imitate(
        KEY, roles[:2].ravel(), ByHeart(2), world, few, expert=ring.RingExperts(roles[:2]), **settings
    )
    assert result.failure[0] > 0.5 and result.loss[0] > 0
    assert result.failure[-1] < result.failure[0]
    assert repr(result).startswith(
        f"{100 * result.failure[-1]:.0f} % of the 200 fresh games of the last of 4 rounds"
    )


def test_a_single_demonstration_begins_afresh_in_every_round(ring, made):
    _, roles, games = made
    experts = ring.RingExperts(roles[:1])
    one = Demonstrations(*(part[:1] for part in games))
    imitate(KEY, roles[0], ring.Majority(), ring.Ring(), one, expert=experts, **SHORT | {"rounds": 6})
    begun = {tuple(states[0].tolist()) for states, _ in experts.asked}
    assert len(begun) > 2
