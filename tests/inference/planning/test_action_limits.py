"""Limits of actions: marginals by enumeration, projection against quadratic programming, and rounding."""

import itertools

import jax
import jax.numpy as jnp
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


projected = jax.jit(project)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_projection_is_the_point_nearest_to_the_clipped_one(seed):
    rng = np.random.default_rng(seed)
    weights, point = rng.choice([0.0, 1.0, 2.0], 4), rng.normal(0.5, 1, 4)
    low, high = np.array([0, 0, 0, rng.integers(0, 2)]), np.array([1, rng.integers(0, 2), 1, 1])
    bound = float(weights @ low + rng.random() * 2)
    found = projected(
        jnp.asarray(point).reshape(1, 4, 1),
        low[None],
        high[None],
        jnp.asarray(weights)[None],
        jnp.array([bound]),
    )[0, :, 0]
    assert (found >= low - 1e-12).all() and (found <= high + 1e-12).all()
    assert weights @ found <= bound + 1e-9

    def distance(shift):
        return np.clip(np.clip(point, low, high) - shift * weights, low, high)

    if weights @ distance(0.0) <= bound:
        wanted = distance(0.0)
    else:  # the multiplier of the sum, by Brent's method
        wanted = distance(optimize.brentq(lambda shift: weights @ distance(shift) - bound, 0, 50, xtol=1e-14))
    np.testing.assert_allclose(found, wanted, atol=1e-8)


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
        "CooperativeRecon_ippc2018",
        "Manufacturer_ippc2018",
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


TOGETHER = """
domain together {
  requirements = { reward-deterministic };
  types { thing : object; };
  pvariables {
    must : { state-fluent, bool, default = true };
    act(thing) : { action-fluent, bool, default = false };
    wait : { action-fluent, bool, default = false };
  };
  cpfs { must' = KronDelta(~must); };
  reward = 0;
  action-preconditions {
    must => (forall_{?t : thing} [act(?t)]);
    (~must) => (wait | exists_{?t : thing} [act(?t)]);
  };
}
non-fluents nf { domain = together; objects { thing : {x, y, z}; }; }
instance one { domain = together; non-fluents = nf; horizon = 5; discount = 1.0; }
"""


def test_actions_that_must_be_taken_together_are(tmp_path):
    """Three at once where the state says so, else at least one: doing nothing is never allowed."""
    pytest.importorskip("pyRDDLGym")
    domain, instance = tmp_path / "domain.rddl", tmp_path / "instance.rddl"
    head, tail = TOGETHER.split("non-fluents nf", 1)
    domain.write_text(head)
    instance.write_text("non-fluents nf" + tail)
    problem = read_rddl(domain, instance)
    threshold = np.full(4, 0.5)
    made = round_actions(problem.rules, np.ones(1), np.zeros((4, 2)), threshold)
    np.testing.assert_array_equal(made[:3], 1)
    made = round_actions(
        problem.rules, np.zeros(1), np.array([[0.1, 0.9, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4]]).T, threshold
    )
    np.testing.assert_array_equal(made.T, [[0, 1, 0, 0], [0, 0, 0, 1]])
