"""Bayesian networks: ancestral draws against enumeration, names, evidence, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import pickle

import jax
import numpy as np
import numpyro
import pytest
from numpyro.infer import Predictive
from numpyro.infer.util import log_density

from ethogram.inference import storage
from ethogram.inference.networks import exact_log_probability, exact_map, solve_mmap
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.factors import FactorNetwork
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.named import (
    read_evidence,
    read_map_variables,
    write_evidence,
    write_map_variables,
)
from ethogram.models.networks.uai import UAIFile

PARENTS = ((2,), (), (1,), (0, 2))


def small(seed=0):
    """Four variables of two to four states, the third of which comes before the first."""
    random = np.random.default_rng(seed)
    sizes = (3, 2, 4, 2)
    tables = [random.dirichlet(np.ones(sizes[i]), [sizes[p] for p in each]) for i, each in enumerate(PARENTS)]
    states = (("a", "b", "c"), ("no", "yes"), ("0", "1", "2", "3"), ("off", "on"))
    return BayesNet(tuple(tables), PARENTS, names=("first", "root", "middle", "last"), state_names=states)


def test_joint_probabilities_sum_to_one_and_are_those_of_numpyro():
    network, total = small(), 0.0
    for states in itertools.product(*map(range, network.sizes)):
        a, b, c, d = states
        tables = network.tables
        by_hand = tables[0][c, a] * tables[1][b] * tables[2][b, c] * tables[3][a, c, d]
        assert network.log_joint(np.array(states)) == pytest.approx(np.log(by_hand), rel=1e-12)
        total += by_hand
    assert total == pytest.approx(1)
    values = dict(zip(network.names, (2, 1, 3, 0), strict=True))
    with jax.enable_x64(True):
        found = jax.jit(lambda values: log_density(network, (), {}, values)[0])(values)
    assert float(found) == pytest.approx(network.log_joint(np.array([2, 1, 3, 0])), rel=1e-6)


def test_draws_have_the_marginals_of_enumeration():
    """5000 draws, seven shares within five standard errors."""
    network = small()
    drawn = Predictive(network, num_samples=5000)(jax.random.key(0))
    joint = np.zeros(network.sizes)
    for states in itertools.product(*map(range, network.sizes)):
        joint[states] = np.exp(network.log_joint(np.array(states)))
    for axis, name in enumerate(network.names):
        share = joint.sum(tuple(i for i in range(4) if i != axis))
        found = np.bincount(np.asarray(drawn[name]), minlength=len(share)) / 5000
        assert (np.abs(found - share) < 5 * np.sqrt(share * (1 - share) / 5000)).all()
    held = Predictive(network, num_samples=50)(jax.random.key(1), {"middle": "2"})
    assert (
        set(np.asarray(held["middle"]).tolist()) == {2} and len(set(np.asarray(held["last"]).tolist())) == 2
    )


def test_order_has_parents_first_also_through_a_pytree():
    network = jax.tree.map(lambda x: x, small())
    place = {number: at for at, number in enumerate(network.order)}
    assert all(place[p] < place[i] for i, each in enumerate(PARENTS) for p in each)


def test_queries_by_name_and_number():
    query = MarginalMAP(small(), {"root": "yes", 3: 0}, ["first"])
    assert query.observed == ((1, 1), (3, 0)) and query.map_variables == (0,) and query.summed == (2,)
    assert query.named(np.array([2])) == {"first": "c"}
    soft = MarginalMAP(small(), {"middle": [0.1, 0.9, 0.0, 1.0]}, (0, 3))
    assert soft.soft == ((2, (0.1, 0.9, 0.0, 1.0)),) and soft.summed == (1, 2)
    assert MarginalMAP(small(), {"root": jax.numpy.asarray(1)}, ["last"]).observed == ((1, 1),)
    with pytest.raises(ValueError, match="evidence has root twice"):
        small()({"root": 1, 1: 0})


def test_rows_that_do_not_sum_to_one_warn_and_are_kept():
    with pytest.warns(UserWarning, match=r"off by up to 0.001, in the table of x0"):
        network = BayesNet((np.array([0.5, 0.501]),), ((),))
    assert network.tables[0].sum() == 1.001
    BayesNet((np.array([0.333333, 0.333333, 0.333334 + 5e-7]),), ((),))  # rounding in a file


HALF, PAIR = np.full(2, 0.5), np.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: BayesNet((), ()), ValueError, "tables is empty"),
        (lambda: BayesNet((HALF,), ((), ())), ValueError, "parents has 2 entries, but tables has 1"),
        (lambda: BayesNet((HALF, PAIR), ((), (7,))), ValueError, r"parents\[1\] \(of x1\): 7 is outside 0..1"),
        (lambda: BayesNet((HALF, PAIR), ((), (1,))), ValueError, "is repeated, or is its own"),
        (
            lambda: BayesNet((HALF, HALF), ((), (0,))),
            ValueError,
            r"tables\[1\] \(of x1\) has shape \(2,\), not \(2, 2\)",
        ),
        (lambda: BayesNet((np.array([0.5, np.nan]),), ((),)), ValueError, r"tables\[0\]\[1\] is nan"),
        (lambda: BayesNet((np.array(["a"]),), ((),)), TypeError, r"tables\[0\] is <U1"),
        (
            lambda: BayesNet((HALF, HALF), ((), ()), names=("a", "a")),
            ValueError,
            "names must be unique strings; 'a' appears twice",
        ),
        (lambda: BayesNet((HALF,), ((),), state_names=(("a",),)), ValueError, "state_names of x0"),
        (
            lambda: BayesNet((PAIR, PAIR, PAIR), ((2,), (0,), (1,)), names=("a", "b", "c")),
            ValueError,
            "cycle: a -> b -> c -> a",
        ),
        (lambda: small().log_joint([0, 1]), ValueError, "assignment must be integers"),
        (lambda: small().log_joint([0, 1, 9, 0]), ValueError, "assignment: middle has no state 9"),
        (lambda: MarginalMAP("net", {}, [0]), TypeError, "network must be a BayesNet, not str"),
        (lambda: MarginalMAP(small(), {"nobody": 0}, [0]), ValueError, "evidence: no variable is named 'nobody'"),
        (
            lambda: MarginalMAP(small(), {"root": "perhaps"}, [0]),
            ValueError,
            "evidence: root has no state 'perhaps'; its states are no, yes",
        ),
        (lambda: MarginalMAP(small(), {"root": 0, 1: 0}, [0]), ValueError, "evidence has root twice"),
        (lambda: MarginalMAP(small(), {"first": 0}, [0]), ValueError, "first is in both evidence and map_variables"),
        (lambda: MarginalMAP(small(), {}, []), ValueError, "map_variables is empty"),
        (
            lambda: MarginalMAP(small(), {}, [0, "first"]),
            ValueError,
            "map_variables must be unique; first appears twice",
        ),
        (
            lambda: MarginalMAP(small(), {}, "first"),
            TypeError,
            "map_variables is str: give a list, the variables to maximise over",
        ),
        (lambda: MarginalMAP(small(), {"root": [0.0, 0.0]}, [0]), ValueError, "evidence of root is"),
        (lambda: MarginalMAP(small(), {"root": [1.0]}, [0]), ValueError, r"\(2,\) likelihoods"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_constants_and_rows_that_miss_one_are_in_the_density_too():
    with pytest.warns(UserWarning, match="do not sum to one"):
        network = BayesNet(
            (np.array([0.4999, 0.5]), np.array([[2.0, 1.0], [0.0, 0.5]])), ((), (0,)), names=("mass", "b"),
            log_constant=5.0,
        )  # fmt: skip
    for states in ((0, 0), (0, 1), (1, 1)):
        given = dict(zip(network.names, states, strict=True))
        value = jax.jit(lambda given=given: log_density(network, (given,), {}, {})[0])()
        assert value == pytest.approx(network.log_joint(states), rel=1e-5)
    drawn = Predictive(network, num_samples=2000)(jax.random.key(0))
    share = np.mean(np.asarray(drawn["b"])[np.asarray(drawn["mass"]) == 0])
    assert abs(share - 1 / 3) < 4.5 * np.sqrt(2 / 9 / 1000)


def test_assignments_by_number_by_name_and_as_named_returns_them():
    query = MarginalMAP(small(), {"last": "on"}, ["middle", "first"])
    for assignment in (
        [3, 1], ("3", "b"), np.array([3, 1]), jax.numpy.array([3, 1]), {"first": "b", "middle": 3}, {2: 3, 0: 1},
        query.named(np.array([3, 1])),
    ):  # fmt: skip
        assert query.states(assignment) == (3, 1)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([1], "assignment has 1 states for 2 MAP variables"),
        ([4, 0], "assignment: middle has no state 4; its states are 0, 1, 2, 3"),
        (np.array([0.5, 1]), r"assignment: middle has no state 0\.5"),
        ({"first": "b"}, "assignment has 1 variables: give each of the 2 MAP variables once"),
        ({"first": "b", 0: 1, "middle": 0}, "assignment has 3 variables"),
        ({"first": "b", "root": "no"}, "give each of the 2 MAP variables once"),
        ({"first": "d", "middle": 0}, "assignment: first has no state 'd'; its states are a, b, c"),
    ],
)
def test_answers_that_do_not_fit(assignment, message):
    with pytest.raises(ValueError, match=message):
        MarginalMAP(small(), {"last": "on"}, ["middle", "first"]).states(assignment)


def numerals():
    """Variables and states named by numbers that are not their own: 1 -> 2, with the states 1, 2 and home."""
    random = np.random.default_rng(3)
    tables = (random.dirichlet(np.ones(3)), random.dirichlet(np.ones(3), 3))
    return BayesNet(tables, ((), (0,)), names=("1", "0"), state_names=(("1", "2", "home"),) * 2)


@pytest.mark.parametrize("one", [1, "1", 1.0, np.int64(1), np.float32(1), np.str_("1"), jax.numpy.asarray(1)])
def test_numbers_are_looked_up_by_their_text_where_names_are_numerals(one, tmp_path):
    network = numerals()
    assert (network.variable(one), network.state(0, one)) == (0, 0)
    query = MarginalMAP(network, {int(one): one}, [0])
    assert (query.observed, query.map_variables) == (((0, 0),), (1,))
    assert query.states([one]) == (0,) and query.states({0: one}) == (0,)
    assert query.states(np.array([1])) == (1,), "an integer array has numbers, as results do"
    with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
        network({int(one): one})
    assert trace["1"]["is_observed"] and int(trace["1"]["value"]) == 0
    write_evidence(tmp_path / "net.evid", network, {"1": one})
    write_map_variables(tmp_path / "net.map", network, [0])
    assert (tmp_path / "net.evid").read_text().split() == ["1", "0", "0"]
    assert (tmp_path / "net.map").read_text().split() == ["1", "1"]


def test_numbers_that_are_no_name_are_refused_where_names_are_numerals():
    network = numerals()
    for make in (lambda: MarginalMAP(network, {1: 0}, [0]), lambda: MarginalMAP(network, {0: 0}, [1])):
        with pytest.raises(ValueError, match=r"evidence: .* has no state 0; its states are 1, 2, home"):
            make()
    with pytest.raises(ValueError, match="map_variables: no variable is named 2; there are 1, 0"):
        MarginalMAP(network, {}, [2])


def test_numbers_by_an_explicit_argument_and_of_files_and_earlier_queries(tmp_path):
    """Whatever writes numbers reads them back as numbers."""
    network = numerals()
    query = MarginalMAP(network, {1: 2}, [0], by_number=True)
    assert (query.observed, query.map_variables) == (((1, 2),), (0,))
    again = [
        dataclasses.replace(query),
        jax.tree.map(lambda x: x, query),
        MarginalMAP(network, query.evidence, query.map_variables),
        pickle.loads(pickle.dumps(query)),
    ]
    storage.write(tmp_path / "query.npz", query)
    again.append(storage.read(tmp_path / "query.npz"))
    (tmp_path / "net.evid").write_text("1 1 2")
    (tmp_path / "net.map").write_text("1 0")
    evidence, maximised = (
        read_evidence(tmp_path / "net.evid", network),
        read_map_variables(tmp_path / "net.map", network),
    )
    again.append(MarginalMAP(network, evidence, maximised))
    write_evidence(tmp_path / "net.evid", network, evidence)
    write_map_variables(tmp_path / "net.map", network, maximised)
    assert read_evidence(tmp_path / "net.evid", network) == {1: 2}
    assert read_map_variables(tmp_path / "net.map", network) == (0,)
    for each in again:
        assert (each.observed, each.map_variables) == (query.observed, query.map_variables)
    found = exact_map(query)
    table = network.tables[0] * network.tables[1][:, 2]
    assert exact_log_probability(query, found.states) == pytest.approx(np.log(table.max()), rel=1e-12)
    soft = MarginalMAP(network, {"1": [0.0, 1.0, 0.0]}, ["0"])
    smoothed = solve_mmap(jax.random.key(0), soft, "exact", smoothed_score=True)
    assert smoothed.log_probability_smoothed == pytest.approx(smoothed.log_probability, rel=1e-12)


@pytest.mark.parametrize(
    "evidence", [(("root", 1), ("last", 0)), (("root", 1),), ((1, 1), (3, 0)), 5, [("root", 1)]]
)
def test_evidence_that_is_no_dict(evidence):
    with pytest.raises(TypeError, match="evidence must be a dict from variables to states, not"):
        MarginalMAP(small(), evidence, ["first"])


@pytest.mark.parametrize(
    "variables",
    [jax.numpy.asarray([2, 0]), np.array([2, 0]), np.array(["middle", "first"]), iter([2, "first"])],
)
def test_map_variables_in_any_list(variables):
    assert MarginalMAP(small(), {}, variables).map_variables == (2, 0)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"tables": 0, "parents": ()}, TypeError, "tables is int: give a list, one table per variable"),
        ({"parents": "x"}, TypeError, "parents is str: give a list, one tuple per variable"),
        ({"parents": (0,)}, TypeError, r"parents\[0\] is int: give a list"),
        ({"parents": ((0.5,),)}, TypeError, r"parents\[0\] must be an integer, not 0.5"),
        ({"parents": ((10**400,),)}, ValueError, r"parents\[0\] \(of x0\): 1000+ is outside"),
        ({"names": float("nan")}, TypeError, "names is float: give a list, one name per variable"),
        ({"names": "x"}, TypeError, "names is str: give a list"),
        ({"names": ([],)}, ValueError, r"names must be unique strings; \[\] is not a string"),
        ({"state_names": 3}, TypeError, "state_names is int: give a list"),
        ({"state_names": (7,)}, TypeError, r"state_names\[0\] is int: give a list"),
        ({"state_names": ((set(), "y"),)}, ValueError, "state_names of x0 must be 2 unique strings, not"),
        ({"state_names": ((0, 1),)}, ValueError, "state_names of x0 must be 2 unique strings, not"),
        ({"tables": ([[0.5], [0.5, 1]],)}, ValueError, r"tables\[0\] has rows of different lengths"),
        ({"tables": (np.ma.masked_array(HALF, [0, 1]),)}, TypeError, r"tables\[0\] is a masked array"),
        ({"log_constant": "much"}, TypeError, "log_constant must be a real number"),
    ],
)
def test_constructors_refuse_by_name(settings, error, message):
    with pytest.raises(error, match=message):
        BayesNet(**{"tables": (HALF,), "parents": ((),), **settings})


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"map_variables": np.array(0)}, TypeError, "map_variables is int: give a list"),
        ({"map_variables": {"first"}}, TypeError, "map_variables is set: give a list"),
        ({"map_variables": None}, TypeError, "map_variables is NoneType: give a list"),
        ({"map_variables": [[0]]}, ValueError, r"map_variables: no variable is named \[0\]"),
        ({"evidence": {"root": [[0.5], [0.5, 1]]}}, ValueError, "evidence of root has rows of different lengths"),
        ({"evidence": {"root": np.ma.masked_array(HALF, [0, 1])}}, TypeError, "evidence of root is a masked"),
        ({"evidence": {"root": {0: 1}}}, TypeError, "evidence of root is dict"),
        (
            {"evidence": {"root": None}},
            ValueError,
            "evidence: root has no state None; its states are no, yes, or by number 0..1",
        ),
        ({"evidence": {("root",): 1}}, ValueError, r"evidence: no variable is named \('root',\)"),
        ({"by_number": "yes"}, ValueError, "by_number must be True or False, not 'yes'"),
    ],
)  # fmt: skip
def test_queries_refuse_by_name(settings, error, message):
    with pytest.raises(error, match=message):
        MarginalMAP(small(), **{"evidence": {}, "map_variables": [0], **settings})


def test_a_large_table_is_not_printed():
    """A table of 20 parents has a million rows: repr has its shape."""
    table = np.full((2,) * 21, 0.5)
    network = BayesNet((*[HALF] * 20, table), (*[()] * 20, tuple(range(20))))
    factors = UAIFile("BAYES", (2,) * 21, (tuple(range(21)),), (table,))
    for shown in (network, FactorNetwork(network, {}), factors):
        assert len(repr(shown)) < 500 and "(2, 2, 2," in repr(shown)
    assert "21 variables" in repr(MarginalMAP(network, {0: 1}, [1]))
    assert "21 variables: x0, x1, x2, x3, x4, x5 and 15 more" in repr(network)
    jax.tree.map(lambda table: None, network)
    assert repr(jax.tree.map(lambda table: 0, small())).startswith("BayesNet(4 variables: first, root")
