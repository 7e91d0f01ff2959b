"""Rust's buses: the counts of his table, his estimates, and the world against the stored one."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from benchmarks.papers.rust_bus import choice_values
from ethogram.domains import rust_bus
from ethogram.models.mdps.values import soft_values

STORED = "gp_irl/zurcher_group4_mdp.npz"


@pytest.fixture
def stored(stored_file):
    """MDP and counts of group 4, as others have made them from the same records."""
    return dict(np.load(stored_file(STORED)))


def test_counts_are_those_of_the_paper():
    months = rust_bus.load(first_month=True)
    assert [int((months.group == group).sum()) for group in (1, 2, 3, 4)] == [375, 196, 3360, 4329]
    assert [len(np.unique(months.bus[months.group == group])) for group in (1, 2, 3, 4)] == [15, 4, 48, 37]
    assert [int(months.replaced[months.group == group].sum()) for group in (1, 2, 3, 4)] == [0, 0, 27, 33]
    assert len(rust_bus.load().bin) == 8156
    with pytest.raises(ValueError, match="group must be at most 4, not 5"):
        rust_bus.load(5)


def test_mileage_moves_on_as_counted():
    months = rust_bus.load(4, first_month=True)
    same = (np.diff(months.bus) == 0) & (np.diff(months.month) == 1)
    steps, replaced = np.diff(months.bin)[same], months.replaced[:-1][same]
    assert np.bincount(steps[~replaced]).tolist() == [1682, 2522, 55]
    assert (months.bin[1:][same][replaced] == 0).all() and replaced.sum() == 33


def test_estimates_are_the_published_ones():
    months = rust_bus.load(4)
    found = rust_bus.estimate(months)
    assert found.replacement_cost == pytest.approx(10.0750, abs=2e-4)
    assert found.theta == pytest.approx(2.2930, abs=2e-4)
    assert found.log_likelihood == pytest.approx(-163.584, abs=5e-4)
    # of another group, as the nested fixed point finds them
    other = rust_bus.estimate(rust_bus.load(3))
    np.testing.assert_allclose(other, (11.298631, 4.551552, -131.894919), rtol=1e-5)


def test_decisions_with_free_values():
    free = rust_bus.tabular(rust_bus.load(4))
    assert free.choice.sum() == 33
    np.testing.assert_allclose(free.features.sum(-1), 1, atol=1e-6)
    assert (free.features[:, 1, :3].sum(-1) > 0.999).all()


def test_simulated_buses_are_replaced_as_often_as_they_should():
    """The share of months with a replacement, by bin, within four standard errors of the model's."""
    months = rust_bus.simulate(jax.random.key(0), 10.075, 2.293, num_buses=300)
    utilities = choice_values(10.075, 2.293)
    chance = 1 / (1 + np.exp(utilities[:, 0] - utilities[:, 1]))[months.bin]
    error = np.sqrt((chance * (1 - chance)).sum())
    assert abs(months.replaced.sum() - chance.sum()) < 4 * error
    assert len(months.bin) == 300 * 116 and months.bin[::116].max() == 0


def test_the_world_and_the_counts_are_the_stored_ones(stored):
    with jax.enable_x64(True):
        world = rust_bus.mdp()
        table = np.moveaxis(np.asarray(world.expect(np.eye(90))), 0, -1)
        np.testing.assert_allclose(table, stored["T"], atol=1e-15)
        rounded = rust_bus.mdp((0.3919, 0.5953, 0.0128)).transitions.probabilities
        np.testing.assert_allclose(rounded, stored["T"], atol=5e-5)
    assert world.discount == float(stored["gamma"]) == 0.9999
    assert world.action_names == ("keep", "replace")
    months = rust_bus.load(4)
    np.testing.assert_array_equal(rust_bus.decision_counts(months), stored["n_sa"])
    np.testing.assert_array_equal(5000 * np.arange(90), stored["state_miles"])


def test_a_soft_agent_is_the_logit_superintendent():
    """Q of the world with its reward is what the nested fixed point finds, and the likelihood the published one."""
    with jax.enable_x64(True):
        counts = rust_bus.decision_counts(rust_bus.load(4))

        @jax.jit
        @functools.partial(jax.value_and_grad, has_aux=True)
        def loss(both):
            costs = rust_bus.reward(*both)
            found = soft_values(rust_bus.mdp(), costs)
            return -(counts * found.log_policy).sum(), (costs, found)

        (value, (costs, found)), _ = loss(np.array([10.0750, 2.2930]))
        assert found.converged
        assert float(value) == pytest.approx(163.584, abs=5e-4)
        utilities = choice_values(10.0750, 2.2930)
        np.testing.assert_allclose(np.diff(found.action_values), np.diff(utilities), atol=1e-7)
        np.testing.assert_allclose(costs[:, 0], -0.001 * 2.2930 * np.arange(90), rtol=1e-14)
        np.testing.assert_array_equal(costs[:, 1], -10.0750)
        np.testing.assert_allclose(loss(np.array([10.07495, 2.29310]))[1], 0, atol=1e-4)


def test_increments_are_counted_from_records():
    counted = [rust_bus.count_increments(rust_bus.load(group, first_month=True)) for group in (1, 2, 3, 4)]
    assert counted[3] == (1682, 2522, 55)
    # Rust (1987), table V, in thousandths; replacements are of one bin there.
    for counts, replaced, shares in zip(
        counted, (0, 0, 27, 33), ((197, 789, 14), (391, 599, 10), (307, 683, 10), (392, 595, 13)), strict=True
    ):
        whole = np.add(counts, [0, replaced, 0])
        np.testing.assert_allclose(1000 * whole / whole.sum(), shares, atol=0.51)
    assert rust_bus.INCREMENTS == (1682, 2522 + 33, 55)
    with jax.enable_x64(True):
        of_records = rust_bus.mdp(counted[0]).transitions.probabilities
    np.testing.assert_allclose(of_records[3, 0, 3:6], np.array(counted[0]) / sum(counted[0]), rtol=1e-12)


def test_estimates_take_the_increments_of_their_buses():
    """Of a group, of several and of records by hand, which are counted as they are."""
    for group, shares in ((1, (197, 789, 14)), (4, (392, 595, 13))):  # Rust (1987), table V, in thousandths
        counts = np.array(rust_bus.increments_of(rust_bus.load(group)))
        np.testing.assert_allclose(1000 * counts / counts.sum(), shares, atol=0.51)
    both = [np.array(rust_bus.increments_of(rust_bus.load(group))) for group in (3, 4)]
    joined = rust_bus.Records(*map(np.concatenate, zip(rust_bus.load(3), rust_bus.load(4), strict=True)))
    assert rust_bus.increments_of(joined) == tuple(both[0] + both[1])
    own = rust_bus.Records(
        *(np.array(x) for x in ([0] * 4, [1] * 4, range(4), [0] * 4, [0, 2, 2, 5], [False] * 4))
    )
    assert rust_bus.increments_of(own) == (1, 0, 1, 1)

    given = rust_bus.estimate(rust_bus.load(3), increments=both[0])
    assert (
        given
        == rust_bus.estimate(rust_bus.load(3))
        != rust_bus.estimate(rust_bus.load(3), increments=(1, 2, 3))
    )
    table = np.asarray(rust_bus.tabular(rust_bus.load(3)).features)[0, 0]
    np.testing.assert_allclose(table[table > 0], both[0] / both[0].sum(), rtol=1e-5)


def test_costs_of_any_shape_have_a_prior_for_replacing_and_next_to_no_noise():
    model = rust_bus.free_costs()
    assert model.num_points == 180 and model.inducing is None
    with jax.enable_x64(True):
        covariance = np.asarray(jax.jit(lambda: model.reward_map(100.0, np.full(2, 0.1)).weights)())
        covariance = covariance @ covariance.T
    keep, replace = covariance[::2, ::2], covariance[1::2, 1::2]
    np.testing.assert_allclose(np.diag(covariance), 100, rtol=1e-4)
    np.testing.assert_allclose(replace, 100, rtol=1e-3)  # replacing costs the same everywhere
    apart = 2 * 100 * (1 - np.exp(-0.5 * 0.1 * 2**2))
    np.testing.assert_allclose(keep[0, 0] + keep[-1, -1] - 2 * keep[0, -1], apart, rtol=1e-3)


@pytest.mark.parametrize("increments", [(1,), (5, 0, 0)])
def test_mileage_that_never_advances_is_said(increments):
    with pytest.warns(UserWarning, match="mileage never advances"):
        rust_bus.mdp(increments)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda of: rust_bus.estimate(rust_bus.load(1)), ValueError, "records have 0 replacements"),
        (lambda of: rust_bus.estimate(rust_bus.load(4), discount=1.0), ValueError, "discount must be .*less than 1"),
        (lambda of: rust_bus.mdp(()), TypeError, r"increments is \(\): pass numbers for 0, 1, 2, ... bins"),
        (lambda of: rust_bus.mdp([[1], [1, 2]]), ValueError, "increments has rows of different lengths"),
        (lambda of: rust_bus.mdp("many"), TypeError, "increments is 'many'"),
        (lambda of: rust_bus.mdp(np.ones(91)), TypeError, "pass numbers for 0, 1, 2, ... bins"),
        (lambda of: rust_bus.mdp((1, -1, 2)), ValueError, r"increments is \(1, -1, 2\): pass nonnegative numbers"),
        (lambda of: rust_bus.mdp(discount=1.1), ValueError, r"discount must be a number in \[0, 1\], not 1.1"),
        (lambda of: rust_bus.reward(1.0, np.ones(2)), ValueError, r"theta has shape \(2,\): pass a number"),
        (lambda of: rust_bus.reward(float("nan"), 1.0), ValueError, "replacement_cost is not finite"),
        (lambda of: rust_bus.decision_counts(of._replace(bin=of.bin * 0 + 90)), ValueError, r"bin\[0\] is 90: pass"),
        (lambda of: rust_bus.count_increments(of._replace(month=of.month * 0)), ValueError, "no two consecutive"),
        (
            lambda of: rust_bus.count_increments(of._replace(bin=-of.month, replaced=of.replaced & False)),
            ValueError,
            "falls by 1 in a month without",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(rust_bus.load(4))
