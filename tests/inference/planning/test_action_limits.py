"""Limits of actions: marginals by enumeration, projection against quadratic programming, and rounding."""

import contextlib
import io
import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from ethogram.inference.planning.action_limits import project, random_policy_marginals, round_actions
from ethogram.models.planning import limited_actions, read_rddl


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 1, 1, 1, 1), (1, 2, 2, 3), (0, 1, 1)])
@pytest.mark.parametrize("bound", [0, 1, 2, 4])
def test_random_policy_marginals_are_shares_of_allowed_sets(weights, bound):
    sets = [each for each in itertools.product((0, 1), repeat=len(weights)) if np.dot(each, weights) <= bound]
    found = random_policy_marginals(np.array([weights], float), np.array([bound], float))
    np.testing.assert_allclose(found, np.mean(sets, 0), atol=1e-12)


def test_without_limits_half_and_of_three_at_most_one_a_quarter():
    np.testing.assert_array_equal(random_policy_marginals(np.zeros((0, 2)), np.zeros(0)), [0.5, 0.5])
    np.testing.assert_allclose(random_policy_marginals(np.ones((1, 3)), np.ones(1)), 0.25)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_projection_is_the_point_nearest_to_the_clipped_one(seed):
    rng = np.random.default_rng(seed)
    weights, point = rng.choice([0.0, 1.0, 2.0], 4), rng.normal(0.5, 1, 4)
    low, high = np.array([0, 0, 0, rng.integers(0, 2)]), np.array([1, rng.integers(0, 2), 1, 1])
    bound = float(weights @ low + rng.random() * 2)
    given = point.reshape(1, 4, 1), low[None], high[None], weights[None], np.array([bound])
    found = np.asarray(project(*given))[0, :, 0]
    assert (found >= low - 1e-12).all() and (found <= high + 1e-12).all()
    assert weights @ found <= bound + 1e-9

    def distance(shift):
        return np.clip(np.clip(point, low, high) - shift * weights, low, high)

    if weights @ distance(0.0) <= bound:
        wanted = distance(0.0)
    else:  # the multiplier of the sum, by Brent's method
        wanted = distance(optimize.brentq(lambda shift: weights @ distance(shift) - bound, 0, 50, xtol=1e-14))
    np.testing.assert_allclose(found, wanted, atol=1e-8)


def test_a_bound_from_below_adds_what_lacks_evenly():
    """Of (0.9, 0.2, 0.1, 0) at least 2, the last forbidden: 0.9 goes to its most, the others share the rest."""
    point, high = np.array([0.9, 0.2, 0.1, 0.0]), np.array([[1, 1, 1, 0]])
    given = point.reshape(1, 4, 1), np.zeros((1, 4), int), high, -np.ones((1, 4)), np.array([-2.0])
    found = np.asarray(project(*given))[0, :, 0]
    np.testing.assert_allclose(found, [1, 0.55, 0.45, 0], atol=1e-6)


def test_rounding_takes_the_largest_above_the_random_policy():
    rules = limited_actions(("s",), ("a", "b", "c"), 2)
    marginals = np.array([[0.9, 0.5, 0.1], [0.6, 0.9, 0.2], [0.7, 0.2, 0.3]])
    policy = random_policy_marginals(rules.weights, rules.bounds(np.zeros(1)))
    found = round_actions(rules, np.zeros(1), marginals, policy)
    np.testing.assert_array_equal(found.T, [[1, 0, 1], [1, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    "name",
    [
        "AcademicAdvising_ippc2018",
        pytest.param("Manufacturer_ippc2018", marks=pytest.mark.slow),
        "SysAdmin_MDP_ippc2011",
    ],
)
def test_rounded_actions_break_no_rule_in_any_state(name):
    pytest.importorskip("pyRDDLGym")
    pytest.importorskip("rddlrepository")
    problem = read_rddl(name, 1)
    rng = np.random.default_rng(0)
    policy = random_policy_marginals(problem.rules.weights, problem.rules.bounds(problem.initial))
    for _ in range(10):
        state = rng.integers(0, 2, len(problem.fluents)).astype(float)
        made = round_actions(problem.rules, state, rng.random((len(problem.actions), 16)), policy)
        assert set(np.unique(made)) <= {0.0, 1.0}
        assert (problem.rules.unmet(state, made) == 0).all()
        low, high = problem.rules.range(state)
        assert (made >= low[:, None]).all() and (made <= high[:, None]).all()


def test_where_no_action_is_allowed_it_says_so():
    rules = limited_actions(("s",), ("a", "b"), -1)
    with pytest.raises(ValueError, match="no allowed set of actions"):
        round_actions(rules, np.zeros(1), np.ones((2, 3)), np.zeros(2))


RULES = """
domain together {
  requirements = { reward-deterministic };
  types { thing : {@x, @y, @z, @w}; };
  pvariables {
    must : { state-fluent, bool, default = true };
    act(thing) : { action-fluent, bool, default = false };
    wait : { action-fluent, bool, default = false };
  };
  cpfs { must' = KronDelta(~must); };
  reward = 0;
  %s
}
"""
INSTANCE = """
non-fluents nf { domain = together; }
instance one { domain = together; non-fluents = nf; max-nondef-actions = %s; horizon = 5; discount = 1.0; }
"""


def written(folder, rules, limit):
    (folder / "domain.rddl").write_text(RULES % rules)
    (folder / "instance.rddl").write_text(INSTANCE % limit)
    return str(folder / "domain.rddl"), str(folder / "instance.rddl")


@pytest.mark.parametrize(
    ("preconditions", "limit"),
    [
        ("(sum_{?t: thing}[act(?t)]) >= 2;", "2"),
        ("(sum_{?t: thing}[act(?t)]) + wait == 3;", "pos-inf"),
        ("must => ((sum_{?t: thing}[act(?t)]) == 3); (~must) => (wait | exists_{?t: thing}[act(?t)]);", "3"),
        ("forall_{?t: thing, ?u: thing}[(?t ~= ?u) => ~(act(?t) ^ act(?u))]; wait <=> act(@y);", "pos-inf"),
        ("act(@x) | act(@y); act(@z) | act(@w); ~(act(@x) ^ act(@z)); ~(act(@x) ^ act(@w));", "2"),
        ("if (must) then (act(@y) ^ act(@z)) else (~act(@y) ^ act(@w));", "pos-inf"),
        ("(sum_{?t: thing}[(1.5 + (?t == @x)) * act(?t)]) < 4.1; act(@x) => wait;", "pos-inf"),
        ("must; wait;", "pos-inf"),
        ("(sum_{?t: thing}[act(?t)]) < 2.5; wait == must;", "pos-inf"),
        ("2 - (sum_{?t: thing}[act(?t)]) < wait; wait > must - 1;", "pos-inf"),
    ],
)
def test_sets_are_allowed_where_the_simulator_says_so_and_one_is_found(tmp_path, preconditions, limit):
    """All 32 sets of actions in both states, and a rounding of random marginals wherever a set is allowed."""
    pyRDDLGym = pytest.importorskip("pyRDDLGym")
    files = written(tmp_path, f"action-preconditions {{ {preconditions} }};", limit)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounds of a box that it does not find
        problem, world = read_rddl(*files), pyRDDLGym.make(*files)
    world.reset(seed=0)
    every = np.array(list(itertools.product((0.0, 1.0), repeat=5))).T
    most = 5 if limit == "pos-inf" else int(limit)
    for must in (0.0, 1.0):
        state, allowed = np.array([must]), []
        for action in every.T:
            world.sampler.subs["must"] = np.bool_(must)
            named = world.sampler.prepare_actions_for_sim(problem.decode_action(action))
            met = world.sampler.check_action_preconditions(named, silent=True)
            allowed.append(met and action.sum() <= most)
        np.testing.assert_array_equal(problem.rules.unmet(state, every) == 0, allowed)
        threshold = random_policy_marginals(problem.rules.weights, problem.rules.bounds(state))
        marginals = np.random.default_rng(0).random((5, 8))
        if any(allowed):
            made = round_actions(problem.rules, state, marginals, threshold)
            assert (problem.rules.unmet(state, made) == 0).all()
            low, high = problem.rules.range(state)
            found = every[:, allowed]
            assert (found >= low[:, None]).all() and (found <= high[:, None]).all()
        else:
            with pytest.raises(ValueError, match="no allowed set of actions"):
                round_actions(problem.rules, state, marginals, threshold)


def test_many_actions_that_must_be_taken_together_are_found(tmp_path):
    """Two of each of twelve groups of five, exactly: there are 10^12 such sets of 2^60."""
    pytest.importorskip("pyRDDLGym")
    text = RULES.replace(
        "thing : {@x, @y, @z, @w};", f"thing : {{{', '.join(f'@t{i}' for i in range(12))}}};"
    )
    text = text.replace("act(thing)", "act(thing, seat)").replace(
        "types {", "types { seat : {@a, @b, @c, @d, @e};"
    )
    rules = "action-preconditions { forall_{?t: thing}[(sum_{?s: seat}[act(?t, ?s)]) == 2]; ~wait; };"
    (tmp_path / "domain.rddl").write_text(text % rules)
    (tmp_path / "instance.rddl").write_text(INSTANCE % "pos-inf")
    problem = read_rddl(tmp_path / "domain.rddl", tmp_path / "instance.rddl")
    marginals = np.random.default_rng(0).random((len(problem.actions), 4))
    threshold = random_policy_marginals(problem.rules.weights, problem.rules.bounds(problem.initial))
    made = round_actions(problem.rules, problem.initial, marginals, threshold)
    seats = [i for i, name in enumerate(problem.actions) if name != "wait"]
    grouped = made[seats].reshape(12, 5, 4)
    np.testing.assert_array_equal(grouped.sum(1), 2)
    best = np.sort(marginals[seats].reshape(12, 5, 4), 1)[:, -2:].sum(1)
    np.testing.assert_allclose((grouped * marginals[seats].reshape(12, 5, 4)).sum(1), best)


def test_state_action_constraints_about_actions_are_rules(tmp_path):
    """Elevators of 2011 has such; a constraint on the state alone checks the instance."""
    pytest.importorskip("pyRDDLGym")
    problem = read_rddl(
        *written(tmp_path, "state-action-constraints { act(@x) => wait; ~must; };", "pos-inf")
    )
    actions = np.array([[1.0, 0, 0, 0, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0]]).T
    np.testing.assert_array_equal(problem.rules.unmet(problem.initial, actions), [1, 0, 0])


def test_real_coefficients_have_shares_in_short_time():
    """Exact where sets are few, by units of the bound; 60 actions have 2^60 sets."""
    weights = np.random.default_rng(0).random(60) * 3
    sets = [each for each in itertools.product((0, 1), repeat=6) if np.dot(each, weights[:6]) <= 2.3]
    found = random_policy_marginals(weights[None, :6], np.array([2.3]))
    np.testing.assert_allclose(found, np.mean(sets, 0), atol=1e-12)
    many = random_policy_marginals(weights[None], np.array([5.0]))
    assert ((many > 0) & (many < 0.5)).all() and (np.diff(many[np.argsort(weights)]) <= 0).all()
