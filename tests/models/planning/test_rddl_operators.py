"""Every operator of RDDL that is supported, against pyRDDLGym's simulator, and random events by hand."""

import contextlib
import io
import warnings

import numpy as np
import pytest

from ethogram.models.planning import problem_from_model, read_rddl

pyRDDLGym = pytest.importorskip("pyRDDLGym")

COUNT = "(sum_{?t: thing}[s(?t)])"
ACTIVE = "(sum_{?t: thing}[act(?t)])"
FORMULAS = (
    "forall_{?t: thing}[s(?t) => act(?t)]",
    "exists_{?t: thing}[s(?t) ^ ~act(?t)]",
    "(s(@x) <=> go) | ~(s(@y) <=> s(@z))",
    "s(@x) == s(@y)",
    "go ~= s(@z)",
    "s(@x) < s(@y)",
    f"{COUNT} >= 5",
    f"{COUNT} == {ACTIVE}",
    f"{COUNT} - s(@x) < 4",
    f"{COUNT} * (1 + go) > 7",
    "(s(@x) + s(@y)) * (s(@z) + go) >= 2",
    f"(if (go) then {COUNT} else {ACTIVE} - 1) <= 3",
    f"{COUNT} / {COUNT.replace('s(?t)', '1 + act(?t)')} > 0.4",
    "(sum_{?t: thing}[s(?t) | act(?t)]) <= 6",
    "(sum_{?t: thing}[COST(?t)*s(?t)]) > 8.2",
    "(prod_{?t: thing}[1 + s(?t)]) >= 16",
    "(avg_{?t: thing}[s(?t)]) ~= 0.5",
    f"max[{COUNT}, 2 * {ACTIVE}] >= 6",
    f"abs[{COUNT} - {ACTIVE}] == 2",
    "(max_{?t: thing}[COST(?t)*s(?t)]) == 2.0",
    "m(@x) == @red",
    "m(@x) ~= m(@y)",
    "PAINT(m(@x)) + PAINT(m(@y)) > 0.6",
    "switch (m(@x)) { case @red: s(@x), case @blue: go, default: s(@z) }",
    "exists_{?t: thing}[(?t ~= @x) ^ s(?t)]",
)
NUMBERS = (
    "sum_{?t: thing}[COST(?t)*s(?t) - 0.5*act(?t)]",
    f"max[{COUNT}, 2]",
    "min_{?t: thing}[COST(?t) + s(?t)]",
    f"abs[{COUNT} - 2]",
    f"pow[{COUNT}, 2] + pow[0.5, {ACTIVE}]",
    "exp[-0.5*s(@x)] + sqrt[1 + s(@y)] + ln[2 + s(@z)]",
    "round[2.6*s(@x)] + floor[1.5*s(@y)] + ceil[0.2*s(@z)] + sgn[s(@x) - 2]",
    "div[7, 2] + fmod[7.5, 2] + hypot[3, 4] + log[8, 2]",
    "switch (m(@y)) { case @red: 0.5, case @green: 2.5, case @blue: 7.5 }",
    "sum_{?c: colour}[PAINT(?c) * (m(@x) == ?c)]",
)
DOMAIN = """
domain operators {
  requirements = { reward-deterministic };
  types { thing : {%s}; colour : {@red, @green, @blue}; };
  pvariables {
    COST(thing) : { non-fluent, real, default = 1.5 };
    PAINT(colour) : { non-fluent, real, default = 0.25 };
    s(thing) : { state-fluent, bool, default = false };
    m(thing) : { state-fluent, colour, default = @red };
    %s
    act(thing) : { action-fluent, bool, default = false };
    go : { action-fluent, bool, default = false };
  };
  cpfs {
    s'(?t) = s(?t);
    m'(?t) = switch (m(?t)) { case @red: @green, case @green: if (act(?t)) then @blue else m(?t), default: @red };
    %s
  };
  reward = %s;
}
"""
INSTANCE = """
non-fluents nf { domain = operators; non-fluents { COST(@x) = 2.0; PAINT(@red) = 0.5; }; }
instance one { domain = operators; non-fluents = nf; init-state { s(@x); }; max-nondef-actions = pos-inf; horizon = 5;
  discount = 1.0; }
"""


def written(folder, things, fluents, formulas, reward):
    (folder / "domain.rddl").write_text(DOMAIN % (", ".join(things), fluents, formulas, reward))
    (folder / "instance.rddl").write_text(INSTANCE)
    return str(folder / "domain.rddl"), str(folder / "instance.rddl")


def test_every_operator_is_that_of_the_simulator(tmp_path):
    """Ten events in a sum, more than are written into one row: 40 random states and actions."""
    things = ["@x", "@y", "@z", *(f"@o{i}" for i in range(7))]
    files = written(
        tmp_path,
        things,
        "\n".join(f"f{i} : {{ state-fluent, bool, default = false }};" for i in range(len(FORMULAS))),
        "\n".join(f"f{i}' = {formula};" for i, formula in enumerate(FORMULAS)),
        " + ".join(f"{i + 1} * ({number})" for i, number in enumerate(NUMBERS)),
    )
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        world = pyRDDLGym.make(*files)
        world.reset(seed=0)
    problem, simulator = problem_from_model(world.model), world.sampler
    rng = np.random.default_rng(0)
    for _ in range(40):
        on, colour = rng.random(10) < 0.5, rng.integers(0, 3, 10)
        simulator.subs.update(s=on, m=colour)
        action = {name: True for name in problem.actions if rng.random() < 0.5}
        state = {f"f{i}": False for i in range(len(FORMULAS))}
        for i, thing in enumerate(things):
            name = ("red", "green", "blue")[colour[i]]
            state |= {f"s___{thing[1:]}": bool(on[i]), f"m___{thing[1:]}": name}
        chances, reward, _ = problem.program.expectations(
            problem.encode_state(state)[:, None],
            np.array([[float(name in action)] for name in problem.actions]),
        )
        following, wanted, _ = simulator.step(simulator.prepare_actions_for_sim(action))
        plain = {name.replace("@", ""): value for name, value in following.items()}
        for i, formula in enumerate(FORMULAS):
            at = problem.fluents.index(f"f{i}")
            assert chances[at, 0] == pytest.approx(float(plain[f"f{i}"]), abs=1e-9), formula
        np.testing.assert_allclose(chances[:, 0], problem.encode_state(plain), atol=1e-9)
        assert reward[0] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("semantics", ["expression", "local"])
def test_random_intermediate_fluents_are_events_of_their_own(tmp_path, semantics):
    """Three of equal probability p: a count of two has 3 p^2 (1 - p) + p^3, and one without another p (1 - p)."""
    files = written(
        tmp_path,
        ["@x", "@y", "@z"],
        "i(thing) : { interm-fluent, bool }; f : { state-fluent, bool, default = false };"
        "g : { state-fluent, bool, default = false }; h : { state-fluent, bool, default = false };",
        "i(?t) = Bernoulli(0.3 + 0.4*g); f' = (sum_{?t: thing}[i(?t)]) >= 2; g' = i(@x) ^ ~i(@y);"
        "h' = (i(@x) ^ g) | (i(@x) ^ s(@x));",
        "0",
    )
    problem = read_rddl(*files, semantics=semantics)
    for g, p in ((0.0, 0.3), (1.0, 0.7)):
        state = problem.initial.copy()
        state[problem.fluents.index("g")] = g
        chances = problem.program.expectations(state[:, None], np.zeros((len(problem.actions), 1)))[0][:, 0]
        found = dict(zip(problem.fluents, chances, strict=True))
        assert found["f"] == pytest.approx(3 * p**2 * (1 - p) + p**3, abs=1e-12)
        assert found["g"] == pytest.approx(p * (1 - p), abs=1e-12)
        if semantics == "local":  # operator by operator, a random event that is named twice is two
            assert found["h"] == pytest.approx(p, abs=1e-12)


ENDING = """
domain ending {
  requirements = { reward-deterministic };
  types { thing : {@x, @y}; };
  pvariables {
    over(thing) : { state-fluent, bool, default = false };
    fine : { state-fluent, bool, default = true };
    act : { action-fluent, bool, default = false };
  };
  cpfs {
    over'(?t) = if (over(?t)) then KronDelta(true) else Bernoulli(0.25);
    fine' = if (fine) then Bernoulli(0.8) else KronDelta(false);
  };
  reward = 1 + (sum_{?t: thing}[10 * over(?t)]) + 4 * fine + act;
  termination { exists_{?t: thing}[over(?t)]; ~fine; };
}
"""


def test_the_episode_ends_in_the_state_that_is_reached(tmp_path):
    """The chance to go on is 0.75^2 * 0.8 a step, whatever the rewards of states that end the episode."""
    (tmp_path / "domain.rddl").write_text(ENDING)
    (tmp_path / "instance.rddl").write_text(
        "non-fluents nf { domain = ending; } instance one { domain = ending; non-fluents = nf; horizon = 9;"
        " discount = 1.0; }"
    )
    files = str(tmp_path / "domain.rddl"), str(tmp_path / "instance.rddl")
    problem = read_rddl(*files)
    from ethogram.domains.fluent_world import FluentWorld
    from ethogram.inference.planning import rollout

    value = rollout(problem.program, problem.initial, np.zeros((3, 1, 1)))
    going = 0.75**2 * 0.8
    np.testing.assert_allclose(value, [5 * (1 + going + going**2)], rtol=1e-6)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pyRDDLGym.make(*files)
    for world in (theirs, FluentWorld(problem)):
        steps = []
        for seed in range(200):
            world.reset(seed=seed)
            over, count = False, 0
            while not over:
                state, reward, ended, cut, _ = world.step({})
                over, count = ended or cut, count + 1
                assert reward == 5
                assert ended == (state["over___x"] or state["over___y"] or not state["fine"])
            steps.append(count)
        error = np.std(steps) / np.sqrt(200)
        assert abs(np.mean(steps) - (1 - going**9) / (1 - going)) < 4.5 * error


def test_a_terminal_condition_on_actions_is_refused(tmp_path):
    (tmp_path / "domain.rddl").write_text(ENDING.replace("~fine;", "act;"))
    (tmp_path / "instance.rddl").write_text(
        "non-fluents nf { domain = ending; } instance one { domain = ending; non-fluents = nf; horizon = 9;"
        " discount = 1.0; }"
    )
    with pytest.raises(ValueError, match="in a terminal condition: it depends on the action act"):
        read_rddl(tmp_path / "domain.rddl", tmp_path / "instance.rddl")
