"""RDDL problems, against pyRDDLGym's own simulator with probabilities in place of draws."""

import contextlib
import io
import re
import sys
import threading
import warnings

import numpy as np
import pytest

from ethogram.domains.fluent_world import FluentWorld
from ethogram.models.planning import problem_from_model, rddl_problem, read_rddl

pyRDDLGym = pytest.importorskip("pyRDDLGym")
pytest.importorskip("rddlrepository")

BOOLEAN = (
    pytest.param("CooperativeRecon_MDP_ippc2011", marks=pytest.mark.slow),
    pytest.param("GameOfLife_MDP_ippc2011", marks=pytest.mark.slow),
    "SkillTeaching_MDP_ippc2011",
    pytest.param("Navigation_MDP_ippc2011", marks=pytest.mark.slow),
    "CrossingTraffic_MDP_ippc2011",
    pytest.param("Traffic_CTM_MDP_ippc2011", marks=pytest.mark.slow),
    "SysAdmin_MDP_ippc2011",
    "Elevators_MDP_ippc2011",
    "AcademicAdvising_MDP_ippc2014",
    "TriangleTireworld_MDP_ippc2014",
    "Wildfire_MDP_ippc2014",
    pytest.param("Tamarisk_MDP_ippc2014", marks=pytest.mark.slow),
    pytest.param("CooperativeRecon_ippc2018", marks=pytest.mark.slow),
    "AcademicAdvising_ippc2018",
)
"""One of each domain whose fluents are true or false; later competitions repeat some."""
ENUMERATED = (
    "lamps",
    pytest.param("RedFinnedBlueEye_ippc2018", marks=pytest.mark.slow),
    pytest.param("Manufacturer_ippc2018", marks=pytest.mark.slow),
    pytest.param("EarthObservation_ippc2018", marks=pytest.mark.slow),
    pytest.param("PushYourLuck_ippc2018", marks=pytest.mark.slow),
)


def environment(name, instance="1"):
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pyRDDLGym.make(name, instance)


def simulated(model):
    """PyRDDLGym's simulator, whose Bernoulli draws are their probabilities."""
    from pyRDDLGym.core.simulator import RDDLSimulator

    class Means(RDDLSimulator):
        def _sample_bernoulli(self, expr, subs):
            return np.asarray(self._sample(expr.args[0], subs), float)

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        simulator = Means(model, np.random.default_rng(0))
        simulator.reset()
    return simulator


def expectation(model, simulator, state, actions):
    """Next probabilities and reward by a simulator."""
    subs = simulator.subs
    for name in model.state_fluents:
        values = np.array([state[each] for each in model.variable_groundings[name]])
        subs[name] = values.reshape(np.shape(subs[name]))
    subs.update(simulator.prepare_actions_for_sim({name: True for name, on in actions.items() if on}))
    for name, expression, _ in simulator.cpfs:
        subs[name] = simulator._sample(expression, subs)
    following = {}
    for name, primed in model.next_state.items():
        found = np.ravel(np.asarray(subs[primed], float))
        following.update(zip(model.variable_groundings[name], found, strict=True))
    return following, float(simulator.sample_reward())


@pytest.mark.parametrize("name", BOOLEAN)
def test_the_program_is_the_simulators_expectation(name):
    model = environment(name).model
    problem, simulator = problem_from_model(model), simulated(model)
    rng = np.random.default_rng(1)
    count = 12
    states = rng.integers(0, 2, (len(problem.fluents), count))
    actions = (rng.random((len(problem.actions), count)) < 0.2).astype(int)
    following, rewards, _ = problem.program.expectations(states, actions)
    for i in range(count):
        state = dict(zip(problem.fluents, states[:, i].astype(bool), strict=True))
        wanted, reward = expectation(
            model, simulator, state, dict(zip(problem.actions, actions[:, i], strict=True))
        )
        np.testing.assert_allclose(following[:, i], [wanted[each] for each in problem.fluents], atol=1e-12)
        np.testing.assert_allclose(rewards[i], reward, rtol=1e-12, atol=1e-12)


LAMPS = """
domain lamps {
  requirements = { reward-deterministic };
  types { place : {@x, @y}; colour : {@red, @green, @blue}; };
  pvariables {
    lamp(place) : { state-fluent, colour, default = @red };
    act : { action-fluent, bool, default = false };
  };
  cpfs {
    lamp'(?p) = if (lamp(?p) == @red) then Discrete(colour, @red : 0.2, @green : 0.3, @blue : 0.5)
      else lamp(?p);
  };
  reward = 0;
}
"""
NIGHT = """
non-fluents nf { domain = lamps; }
instance night { domain = lamps; non-fluents = nf; init-state { lamp(@y) = @blue; }; max-nondef-actions = 1;
  horizon = 5; discount = 1.0; }
"""


@pytest.fixture
def lamps(tmp_path):
    """Files of two lamps, one of which is red and draws its next colour."""
    (tmp_path / "domain.rddl").write_text(LAMPS)
    (tmp_path / "instance.rddl").write_text(NIGHT)
    return str(tmp_path / "domain.rddl"), str(tmp_path / "instance.rddl")


@pytest.mark.parametrize("name", ENUMERATED)
def test_enumerated_fluents_have_the_frequencies_of_the_simulator(name, lamps):
    """200 first steps from the start; the largest of some tens of deviations is above 4.5 errors once in 3000 tests."""
    world = environment(*(lamps if name == "lamps" else (name,)))
    problem = problem_from_model(world.model)
    following, _, _ = problem.program.expectations(
        problem.initial[:, None], np.zeros((len(problem.actions), 1))
    )
    chances = np.asarray(following[:, 0])
    for group in {each.partition("=")[0] for each in problem.fluents if "=" in each}:
        members = [i for i, each in enumerate(problem.fluents) if each.partition("=")[0] == group]
        assert chances[members].sum() == pytest.approx(1, abs=1e-6)
    count, seen = 200, np.zeros(len(chances))
    np.testing.assert_array_equal(problem.encode_state(world.reset(seed=0)[0]), problem.initial)
    for _ in range(count):
        world.reset()
        seen += problem.encode_state(world.step({})[0])
    error = np.sqrt(np.maximum(chances * (1 - chances), 0.25 / count) / count)
    assert (np.abs(seen / count - chances) < 4.5 * error).all()


def test_names_files_and_hidden_states():
    with pytest.raises(FileNotFoundError, match=r"did you mean .*SysAdmin_MDP_ippc2011"):
        read_rddl("SysAdmin", 1)
    with pytest.raises(FileNotFoundError, match="has no instance 11: choose from 1, 2"):
        read_rddl("SysAdmin_MDP_ippc2011", 11)
    with pytest.raises(FileNotFoundError, match=r"domain: there is no file nothing\.rddl"):
        read_rddl("nothing.rddl", "nothing.rddl")
    with pytest.raises(ValueError, match="is an observation: problems with a hidden state"):
        read_rddl("SysAdmin_POMDP_ippc2011", 1)
    with pytest.raises(ValueError, match="of type real: expected bool or an enumerated type"):
        read_rddl("UAV_Continuous", 1)
    with pytest.raises(TypeError, match="expected the model of a pyRDDLGym environment"):
        problem_from_model(3)
    with pytest.raises(ValueError, match="semantics"):
        read_rddl("SysAdmin_MDP_ippc2011", 1, semantics="exact")


DOMAIN = """
domain small {{
  requirements = {{ reward-deterministic }};
  types {{ thing : object; }};
  pvariables {{
    good(thing) : {{ state-fluent, bool, default = false }};
    act(thing) : {{ action-fluent, bool, default = false }};
  }};
  cpfs {{ good'(?t) = {formula}; }};
  reward = sum_{{?t : thing}} [good(?t)];
}}
"""
INSTANCE = """
non-fluents nf { domain = small; objects { thing : {x, y}; }; }
instance one { domain = small; non-fluents = nf; init-state { good(x); }; max-nondef-actions = 1; horizon = 5;
  discount = 0.9; }
"""


def written(folder, formula):
    (folder / "domain.rddl").write_text(DOMAIN.format(formula=formula))
    (folder / "instance.rddl").write_text(INSTANCE)
    return folder / "domain.rddl", folder / "instance.rddl"


def test_a_problem_from_files(tmp_path):
    formula = "if (act(?t)) then Bernoulli(0.7)\xa0else\f KronDelta(good(?t))"  # blanks as editors write them
    problem = read_rddl(*written(tmp_path, formula))
    assert problem.fluents == ("good___x", "good___y") and problem.actions == ("act___x", "act___y")
    np.testing.assert_array_equal(problem.initial, [1, 0])
    assert (problem.horizon, problem.discount) == (5, 0.9)
    following, reward, _ = problem.program.expectations([[0.5], [0.2]], [[0.0], [0.5]])
    np.testing.assert_allclose(following[:, 0], [0.5, 0.45], atol=1e-12)
    np.testing.assert_allclose(reward, 0.7, atol=1e-12)
    state = {"good___x": True, "good___y": False}
    np.testing.assert_array_equal(problem.encode_state(state), [1, 0])
    with pytest.raises(ValueError, match="state has no fluent good___y"):
        problem.encode_state({"good___x": True})
    with pytest.raises(ValueError, match=r"state\['good___y'\] = 2: must be true or false"):
        problem.encode_state({**state, "good___y": 2})


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("Bernoulli(Normal(0, 1))", "in good'___x: the distribution Normal is not supported"),
        ("Bernoulli(1.5)", "in good'___x: Bernoulli has probability 1.5: expected a number from 0 to 1"),
        ("Bernoulli(1 / 0)", "in good'___x: reciprocal of 0 has no finite value"),
    ],
)
def test_expressions_that_are_not_supported_name_the_fluent(tmp_path, formula, message):
    with pytest.raises(ValueError, match=message):
        read_rddl(*written(tmp_path, formula))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("domain = small; non", "domain = large; non", "instance one is of the domain large, not of small"),
        ("horizon = 5", "horizon = pos-inf", "has horizon pos-inf: expected a number of steps"),
        ("horizon = 5;", "", "has horizon None: expected a number of steps"),
        ("discount = 0.9;", "", "has discount None: expected a number from 0 to 1"),
        ("good(x)", "bad(x)", "init-state has bad___x: there is no state-fluent bad"),
        ("good(x)", "good(q)", "init-state has good___q: there is no thing q"),
        ("good(x)", "good(x, y)", "init-state has good___x__y: expected 1 objects"),
    ],
)
def test_what_is_wrong_in_an_instance_is_named(tmp_path, old, new, message):
    """A misspelt object was read as a state without it."""
    domain, instance = written(tmp_path, "KronDelta(good(?t))")
    instance.write_text(instance.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_rddl(domain, instance)


def test_a_value_that_an_enumerated_fluent_cannot_have_is_refused(lamps):
    problem = read_rddl(*lamps)
    fluent, values = next((name, len(numbers)) for name, numbers in problem.enumerated.items())
    state = FluentWorld(problem).reset()[0]
    np.testing.assert_array_equal(problem.encode_state(state), problem.initial)
    with pytest.raises(ValueError, match=f"{fluent}'. is 'purple': expected one of"):
        problem.encode_state({**state, fluent: "purple"})
    assert values > 1 and problem.initial[list(problem.enumerated[fluent])].sum() == 1
    with pytest.raises(ValueError, match=f"{fluent}'. is .*: expected one of"):
        problem.encode_state(np.zeros(len(problem.fluents)))


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        (
            "domain",
            "= good(?t);",
            "= Bernoulli(0.5;",
            "domain.rddl cannot be parsed, line 12: ';' is unexpected in cpfs",
        ),
        ("domain", "= good(?t)", "= !good(?t)", "domain.rddl cannot be parsed, line 12: '!' is no character of RDDL"),
        ("instance", "horizon = 5", "horizon 5", "instance.rddl cannot be parsed, line 4: '5' is unexpected in inst"),
        ("instance", "instance one", "one", "instance.rddl cannot be parsed: instance {...} block is missing"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_parsed_are_named_with_the_line(tmp_path, capfd, name, old, new, fault):
    """Lines are those of the file, with its comments and empty lines; a character that is none was left out."""
    files = dict(zip(("domain", "instance"), written(tmp_path, "good(?t)"), strict=True))
    text = files[name].read_text().replace(old, new).replace("pvariables", "// a comment\n\n\n  pvariables")
    files[name].write_text(text.replace("instance one", "// {\ninstance one"))
    with pytest.raises(ValueError, match=re.escape(fault)):
        read_rddl(files["domain"], files["instance"])
    assert not any(capfd.readouterr())


def test_reading_a_problem_keeps_the_window_of_figures(monkeypatch, tmp_path):
    """The import that takes it happens once, so that it is made to happen again."""
    import matplotlib

    asked, files = [], written(tmp_path, "good(?t)")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyRDDLGym"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(matplotlib, "use", lambda *names, **settings: asked.append(names))
    read_rddl(*files)
    assert "pyRDDLGym" in sys.modules and not asked
    matplotlib.use("svg")
    assert asked == [("svg",)]
    monkeypatch.delitem(sys.modules, "pyRDDLGym")
    with rddl_problem._backend_kept():  # while it is imported, for other threads
        matplotlib.use("agg")
        thread = threading.Thread(target=matplotlib.use, args=("pdf",))
        thread.start()
        thread.join()
    assert asked == [("svg",), ("pdf",)]


def test_reading_redirects_no_output_of_other_threads(monkeypatch, tmp_path):
    def redirected(*_):
        raise AssertionError("the output of all threads was redirected")

    for name in ("redirect_stdout", "redirect_stderr"):
        monkeypatch.setattr(contextlib, name, redirected)
    assert read_rddl(*written(tmp_path, "good(?t)")).horizon == 5
