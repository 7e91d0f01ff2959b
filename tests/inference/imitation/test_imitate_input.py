"""Every wrong argument and every wrong answer of policy, world or expert raises an error that names it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ethogram
from ethogram.inference.imitation import Demonstrations

KEY = jax.random.key(0)
SHORT = {"rounds": 1, "horizon": 8, "evaluation_games": 5, "progress_bar": False}


@pytest.fixture
def made(ring):
    return ring.demonstrations(12)


@pytest.fixture(scope="module")
def imitate(unchecked):
    return unchecked("imitate").imitate


@pytest.fixture
def run(ring, made, imitate):
    """`imitate` on the toy, with some arguments replaced."""
    data, roles, _ = made

    def call(**given):
        arguments = {
            "key": KEY,
            "model_or_roles": roles.ravel(),
            "policy": ring.Majority(),
            "world": ring.Ring(),
        }
        arguments |= {"data": data, "expert": ring.RingExperts(roles)} | SHORT | given
        return imitate(**arguments)

    return call


@pytest.mark.parametrize("name", ["rounds", "horizon", "evaluation_games", "fit_steps", "restarts"])
def test_counts_are_positive_integers(run, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        run(**{name: 0})
    with pytest.raises(TypeError, match=f"{name} must be an integer"):
        run(**{name: 2.0})


def test_keys_are_typed(run):
    with pytest.raises(TypeError, match="key must be one typed key"):
        run(key=0)


def test_policies_have_their_methods(ring, run):
    class Mute:
        def fit(self, X, y, sample_weight): ...

    class Unweighted(ring.Majority):
        def fit(self, X, y): ...

    with pytest.raises(TypeError, match="object, which has no fit"):
        run(policy=object())
    with pytest.raises(TypeError, match="Mute, which has neither predict"):
        run(policy=Mute)
    with pytest.raises(TypeError, match="takes no sample_weight"):
        run(policy=Unweighted())
    with pytest.raises(TypeError, match="deterministic=False needs"):
        run(deterministic=False)
    with pytest.raises(TypeError, match="deterministic must be True or False, not 'no'"):
        run(deterministic="no")


@pytest.mark.parametrize(
    "answer, fault",
    [
        (lambda n: np.zeros((n, 2), int), "shape"),
        (lambda n: np.full(n, 3), "action 3: legal are 0 to 2"),
        (lambda n: np.full(n, np.nan), "give integers"),
        (lambda n: np.full(n, "left"), "give integers"),
    ],
)
def test_answers_of_policies_are_checked(ring, run, answer, fault):
    class Wrong(ring.Majority):
        def predict(self, X):
            return answer(len(X))

    with pytest.raises(ValueError, match=f"the policy of role 0 answered.*{fault}"):
        run(policy=Wrong)


def test_probabilities_of_policies_are_checked(ring, run):
    class Chancy:
        classes_ = np.array([0, 2])

        def fit(self, X, y, sample_weight): ...

        def predict_proba(self, X):
            return self.answer(len(X))

    class Short(Chancy):
        def answer(self, n):
            return np.full((n, 3), 1 / 3)

    class Unequal(Chancy):
        def answer(self, n):
            return np.full((n, 2), 0.7)

    class Good(Chancy):
        def answer(self, n):
            return np.tile([0.25, 0.75], (n, 1))

    with pytest.raises(ValueError, match=r"probabilities of shape \(\d+, 3\)"):
        run(policy=Short)
    with pytest.raises(ValueError, match="do not sum to one"):
        run(policy=Unequal)
    assert set(np.unique(run(policy=Good).played.actions)) <= {-1, 2}  # the mode, of classes_
    drawn = np.asarray(run(policy=Good, deterministic=False, evaluation_games=200).played.actions)
    assert np.mean(drawn[drawn >= 0] == 2) == pytest.approx(0.75, abs=0.05)


def changed(ring, **methods):
    """The ring with some methods replaced."""
    world = type("Changed", (ring.Ring,), methods)
    return world()


def test_worlds_have_their_methods(ring, run):
    with pytest.raises(TypeError, match="without reset, step, observe, role_features"):
        run(world=object())
    with pytest.raises(TypeError, match="world is the class Ring: give an object of it"):
        run(world=ring.Ring)
    with pytest.raises(ValueError, match=r"world\.num_agents must be at least 1"):
        run(world=changed(ring, num_agents=0))


def test_answers_of_worlds_are_checked(ring, run):
    toy = ring.Ring()

    def nan_features(self, roles, state):
        return np.where(state[..., None] == 3, np.nan, toy.observe(roles, state))

    def nan_state(self, rng, state, actions):
        return np.full(state.shape, np.nan), np.zeros(len(state), bool)

    def between_cells(self, rng, state, actions):
        return state + 0.5, np.zeros(len(state), bool)

    def nowhere(self, rng, num_games):
        return np.full((num_games, 2), np.nan)

    def short_goals(self, rng, state, actions):
        return state, np.zeros(1)

    def flat(self, roles, state):
        return state

    def flat_features(self, state, actions):
        return state

    def illegal(self, data):
        return toy.demonstrations(data)._replace(actions=toy.demonstrations(data).actions + 3)

    def longer(self, data):
        return toy.demonstrations(data)._replace(lengths=toy.demonstrations(data).lengths + 7)

    def fewer(self, data):
        return Demonstrations(*(part[1:] for part in toy.demonstrations(data)))

    cases = [
        ({"observe": nan_features}, r"world\.observe returned nan for game \d+, agent \d, feature 0"),
        ({"observe": flat}, r"world\.observe returned shape \(\d+, 2\)"),
        ({"step": nan_state}, r"world\.step gave nan in its state"),
        ({"step": between_cells}, r"world\.step returned a state of float64, others are int"),
        ({"step": short_goals}, r"world\.step returned goals as float64"),
        ({"observe": lambda self, roles, state: [[1, 2], [3]]}, r"world\.observe returned has rows of different"),
        ({"role_features": flat_features}, r"world\.role_features returned shape \(\d+, 2\)"),
        ({"demonstrations": illegal}, r"world\.demonstrations gave action [345] at row 0"),
        ({"demonstrations": longer}, r"lengths of world\.demonstrations are in \d+\.\.\d+: give 1 to 3"),
        ({"demonstrations": fewer}, r"world\.demonstrations has 11 games, data has 12 groups"),
        ({"demonstrations": None}, r"Changed has no demonstrations\(data\), which reads them"),
        ({"reset": lambda self, rng, n: np.zeros((n + 1, 2), int)}, r"world\.reset returned a state"),
        ({"reset": nowhere}, r"world\.reset gave nan in its state at \[0, 0\]"),
        ({"reset": lambda self, rng, n: None}, r"world\.reset gave the state None: give arrays"),
        ({"num_actions": 2}, r"world\.demonstrations gave action 2"),
    ]  # fmt: skip
    for methods, message in cases:
        with pytest.raises((ValueError, TypeError), match=message):
            run(world=changed(ring, **methods))


def test_answers_of_experts_are_kept_whatever_type_the_demonstrations_have(ring, run):
    """Action 200 is none that 8 bits can hold."""

    def narrow(self, data):
        games = ring.Ring().demonstrations(data)
        return games._replace(actions=games.actions.astype(np.int8))

    class Remembers(ring.Majority):
        def fit(self, X, y, sample_weight):
            self.seen = set(y.tolist())

        def predict(self, X):
            return np.zeros(len(X), int)

    answers = {"expert": lambda state, game: np.full(state.shape, 200), "rounds": 2}
    found = run(world=changed(ring, demonstrations=narrow, num_actions=201), policy=Remembers, **answers)
    assert max(found.policies[0].seen) == 200 and min(found.policies[0].seen) >= 0


def test_what_fit_returns_is_the_policy_only_if_it_acts(ring, run):
    class History(ring.Majority):
        def fit(self, X, y, sample_weight):
            super().fit(X, y, sample_weight)
            return {"loss": [1.0]}

    assert run(policy=History()).loss == run().loss


def test_errors_of_others_say_in_which_round(ring, run):
    class Failing(ring.Majority):
        def predict(self, X):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError) as caught:
        run(policy=Failing())
    assert caught.value.__notes__ == ["in round 1 of 1"]


def test_answers_of_experts_are_checked(run):
    with pytest.raises(TypeError, match="expert is int"):
        run(expert=3)
    for answer, message in [
        (lambda state, game: np.zeros(len(game), int), r"expert gave actions as int64 of shape \(\d+,\)"),
        (
            lambda state, game: np.full(state.shape, 7),
            "expert gave action 7 at row 0, agent 0: legal are 0 to 2",
        ),
        (lambda state, game: np.full(state.shape, np.nan), "expert gave actions as float64"),
    ]:
        with pytest.raises(ValueError, match=message):
            run(expert=answer)


def test_groups_are_games_of_the_agents_of_the_world(made, run):
    data, _, _ = made
    with pytest.raises(ValueError, match=r"data\.group is None"):
        run(data=data._replace(group=None))
    with pytest.raises(ValueError, match="group 0 has 3 sequences, the world num_agents=2"):
        run(data=data._replace(group=np.where(np.arange(24) == 2, 0, data.group)))
    with pytest.raises(ValueError, match=r"group 0 has sequences of lengths"):
        lengths = np.array(data.lengths)
        lengths[0] -= 1
        observed = np.arange(data.observed.shape[1]) < lengths[:, None]
        run(data=data._replace(lengths=lengths, observed=observed))
    with pytest.raises(
        TypeError, match=r"data is list: give Demonstrations\(states, actions, lengths\), or Trajectories"
    ):
        run(data=[])


def test_roles_are_checked(made, run):
    _, roles, _ = made
    same = roles.copy()
    same[3] = 1
    cases = [
        ({"model_or_roles": same.ravel()}, ValueError, r"model_or_roles of game 3 are \[1, 1\]"),
        ({"roles": roles.ravel()[:-1], "model_or_roles": None}, ValueError, r"roles has shape \(23,\)"),
        ({"model_or_roles": roles.ravel() - 1}, ValueError, "model_or_roles has -1"),
        ({"model_or_roles": roles.ravel() * 1.0}, TypeError, "model_or_roles has dtype float64"),
        ({"roles": 1 - roles.ravel()}, ValueError, "model_or_roles has known roles, and roles is array"),
        ({"roles": "random"}, ValueError, "model_or_roles has known roles, and roles is 'random'"),
        ({"roles": "random", "model_or_roles": None}, ValueError, "roles must be 'learned', 'shuffled'"),
        ({"model_or_roles": None}, ValueError, "roles='learned' needs a RoleHMM"),
        ({"model_or_roles": "RoleHMM"}, TypeError, "model_or_roles is 'RoleHMM'"),
    ]
    for given, kind, message in cases:
        with pytest.raises(kind, match=message):
            run(**given)
    few = ethogram.RoleHMM(1, ethogram.CategoricalEmission(18))
    with pytest.raises(ValueError, match="num_roles is 1, the world num_agents=2"):
        run(model_or_roles=few)


def test_a_role_that_nobody_holds_is_named(made, run):
    _, roles, _ = made
    with pytest.raises(ValueError, match="role 1 has no data"):
        run(model_or_roles=np.where(roles == 1, 2, roles).ravel())


def test_policies_get_their_own_seeds(ring, run):
    class Seeded(ring.Majority):
        def __init__(self, random_state=None):
            super().__init__()
            self.random_state = random_state

    first, again, fixed = run(policy=Seeded()), run(policy=Seeded), run(policy=Seeded(5))
    seeds = [policy.random_state for policy in first.policies]
    assert len(set(seeds)) == 2 and all(isinstance(seed, int) for seed in seeds)
    assert [policy.random_state for policy in again.policies] == seeds
    assert [policy.random_state for policy in fixed.policies] == [5, 5]
