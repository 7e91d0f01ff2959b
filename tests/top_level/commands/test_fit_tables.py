"""What `ethogram fit` reads: the data and models that tables and files of tracking lead to, and their code."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import ethogram
from ethogram.commands import command_line, fit_tables, main
from ethogram.fits.as_code import call_as_code


def fit_of(reached, tmp_path, table: str, *words: str):
    """Model and data that a table leads to."""
    (tmp_path / "table.csv").write_text(table)
    assert main(["fit", str(tmp_path / "table.csv"), "--out", str(tmp_path / "out"), *words]) == 2
    assert reached
    return reached["model"], reached["data"]


def test_intents_have_the_states_and_actions_of_the_data(reached, tmp_path):
    table = "walk,s,a\n0,3,left\n0,0,right\n1,2,left\n1,,left\n"
    words = "--model intents --sequence walk --states s --actions a --missing nan".split()
    model, data = fit_of(reached, tmp_path, table, *words, "--truncation", "3", "--method", "svi")
    assert (model.num_states, model.num_actions, model.truncation) == (4, 2, 3)
    assert data.states.tolist() == [[3, 0], [2, -1]] and data.actions.tolist() == [[0, 1], [0, 0]]
    assert data.metadata.action_names == ("left", "right") and reached["method"] == "svi"
    assert fit_of(reached, tmp_path, table, *words, "--num-states", "9")[0].num_states == 9


def parts_of(model) -> dict:
    """Emissions by name, with their numbers of features."""
    pairs = zip(model.emission.names, model.emission.emissions, strict=True)
    return {name: (type(part).__name__, part.num_features) for name, part in pairs}


MIXED = "x,turn,step,y\n1,0.5,2,9\n2,-3.1,1,8\n"
ROLES = "--model roles --num-roles 2 --features".split()


@pytest.mark.parametrize(
    ("words", "parts", "order"),
    [
        (
            ["x,turn,step,y"],
            {"gaussian": ("Gaussian", 2), "turn": ("VonMises", 1), "step": ("Gamma", 1)},
            ["x", "y", "turn", "step"],
        ),
        (
            ["x,turn,step,y", "--units", "rad,m,rad,km/h"],
            {"von_mises": ("VonMises", 2), "gaussian": ("Gaussian", 2)},
            ["x", "step", "turn", "y"],
        ),
        (
            ["step,turn", "--units", "km,Radians"],
            {"step": ("Gamma", 1), "turn": ("VonMises", 1)},
            ["step", "turn"],
        ),
        (
            ["x,y,turn", "--units", "m,m,rad"],
            {"gaussian": ("Gaussian", 2), "turn": ("VonMises", 1)},
            ["x", "y", "turn"],
        ),
        (
            ["x,step,y", "--emission", "gamma,poisson,binomial:9"],
            {"x": ("Gamma", 1), "step": ("Poisson", 1), "y": ("Binomial", 1)},
            ["x", "step", "y"],
        ),
        (
            ["y,turn", "--emission", "y=poisson"],
            {"y": ("Poisson", 1), "turn": ("VonMises", 1)},
            ["y", "turn"],
        ),
    ],
)
def test_emissions_are_those_of_names_and_units_or_as_asked_for(reached, tmp_path, words, parts, order):
    """Lengths beside angles are steps, but positions; features of one kind stand together."""
    model, data = fit_of(reached, tmp_path, MIXED, *ROLES, *words)
    assert parts_of(model) == {name: (f"{kind}Emission", count) for name, (kind, count) in parts.items()}
    assert list(data.metadata.feature_names) == order
    assert data.observations[0, 0].tolist() == [
        {"x": 1, "turn": 0.5, "step": 2, "y": 9}[name] for name in order
    ]
    model.check(data)


def test_emissions_of_all_features(reached, tmp_path):
    for words, kind, name, number in (
        (["x,y"], ethogram.GaussianEmission, "num_features", 2),
        (["x,step", "--emission", "gamma"], ethogram.GammaEmission, "num_features", 2),
        (["x,y", "--emission", "mixture:3"], ethogram.GaussianMixtureEmission, "num_components", 3),
        (["y", "--emission", "categorical"], ethogram.CategoricalEmission, "num_categories", 10),
        (["x,y", "--emission", "autoregressive:2"], ethogram.AutoregressiveGaussianEmission, "order", 2),
    ):
        emission = fit_of(reached, tmp_path, MIXED, *ROLES, *words)[0].emission
        assert isinstance(emission, kind) and getattr(emission, name) == number


WALKS = "walk,s,a\n0,2,go\n0,10,go\n1,30,stay\n"
MOVES = "state,action,next state,probability\n10,go,30,1\n2,go,10,1\n30,stay,30,1\n"
TRIPS = "trip,mode,hours,taken\n7,car,1,0\n7,bus,2.5,1\n9,bus,3,0\n9,walk,.5,1\n"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (MIXED, [*ROLES, "x,turn,step,y", "--setting", "num_steps=5"]),
        (
            "lon,lat\n0,0\n0.1,0\n0.2,0\n0.2,0.1\n",
            [*ROLES, "lon,lat", "--step-and-turn", "--read", "codes=true"],
        ),
        (WALKS, "--model intents --sequence walk --agent walk --states s --actions a --seed 3".split()),
        (TRIPS, "--model choices --decision trip --option mode --chosen taken --features hours".split()),
        (TRIPS, "--model choices --decision trip --subject trip --chosen taken --features hours".split()),
        (
            WALKS,
            "--model rewards --sequence walk --states s --actions a --discount .9 --transitions moves.csv".split(),
        ),
    ],
)
def test_code_of_the_report_makes_the_same_fit(reached, tmp_path, monkeypatch, table, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moves.csv").write_text(MOVES)
    model, data = fit_of(reached, Path(), table, *words)
    arguments = command_line._parser().parse_args(["fit", "table.csv", "--out", "out", *words])
    read = fit_tables.read_models(arguments)
    kept: dict = {}

    def recorded(key, model, data, method, **settings):
        kept.update(key=key, model=model, data=data, method=method, settings=settings)

    monkeypatch.setattr(ethogram, "fit", recorded)
    asked = (arguments.method, dict(arguments.setting), read.lines, read.model)
    exec(call_as_code(jax.random.key(arguments.seed), read.make_model(read.sizes[0]), read.data, *asked), {})
    assert jax.tree.structure((kept["model"], kept["data"])) == jax.tree.structure((model, data))
    for one, other in zip(*map(jax.tree.leaves, ((kept["model"], kept["data"]), (model, data))), strict=True):
        np.testing.assert_array_equal(one, other)
    assert kept["key"] == jax.random.key(arguments.seed) and kept["method"] == "auto"
    assert {"progress_bar": False, **kept["settings"]} == reached["settings"]


def test_angles_in_degrees_are_refused(reached, tmp_path):
    degrees, data = fit_of(reached, tmp_path, MIXED, *ROLES, "x,turn,step,y", "--units", ",deg,,")
    with pytest.raises(
        ValueError, match=r"feature 'turn' is in 'deg', .*give it a VonMisesEmission, in radians"
    ):
        degrees.check(data)
    degrees, data = fit_of(reached, tmp_path, "turn\n90\n-90\n", *ROLES, "turn")
    with pytest.raises(ValueError, match=r"np\.deg2rad of degrees"):
        degrees.check(data)


def test_steps_and_turns_of_positions(reached, tmp_path, capsys):
    """The equator at a tenth of a degree, and a square."""
    table = "lon,lat\n0,0\n0.1,0\n0.2,0\n0.2,0.1\n"
    model, data = fit_of(reached, tmp_path, table, *ROLES, "lon,lat", "--step-and-turn")
    assert parts_of(model) == {"step": ("GammaEmission", 1), "turn": ("VonMisesEmission", 1)}
    np.testing.assert_allclose(data.observations[0, :, 0], 11.1195, rtol=1e-4)
    assert "emission: step gamma, turn von-mises" in capsys.readouterr().out
    still = [*ROLES, "x,y", "--units", "m,m", "--step-and-turn"]
    _, data = fit_of(
        reached, tmp_path, "x,y\n0,0\n0,0\n3,4\n", *still, "--zero-steps", "offset", "--smallest", ".5"
    )
    assert data.observations[0, :, 0].tolist() == [0.5, 5] and data.metadata.feature_units == ("m", "rad")
    capsys.readouterr()
    assert main(["fit", str(tmp_path / "table.csv"), *still, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "--step-and-turn: positions[0, 0]" in said and "pass --zero-steps missing, or" in said


def test_warnings_name_flags():
    warning = "33 positions are out of reach: set them to NaN, or pass max_speed="
    assert fit_tables.as_flags(warning).endswith("or pass --max-speed")
    assert fit_tables.as_flags('pass missing="nan"') == "pass --missing nan"
    assert fit_tables.as_flags("pass snap=True, or a smaller snap=") == "pass --snap, or a smaller snap="


def test_labels_are_read_from_names_of_files(reached, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a1_wt", "a2_ko"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n2\n")
    words = ["--model", "roles", "--num-roles", "1", "--features", "x"]
    words += ["--agent", r"file:(a\d)", "--group", "file:_(wt|ko)", "--subject", "file"]
    assert main(["fit", "*.csv", "--out", "out", *words]) == 2
    data = reached["data"].metadata
    assert (data.agent_names, data.group_names) == (("a1", "a2"), ("ko", "wt"))
    assert data.subject_names == ("a1_wt", "a2_ko")
    arguments = command_line._parser().parse_args(["fit", "*.csv", "--out", "out", *words])
    code = call_as_code(
        jax.random.key(0), reached["model"], None, "auto", {}, fit_tables.read_models(arguments).lines
    )
    assert code.startswith("import re\n") and "agent=re.compile('(a\\\\d)')" in code


def test_files_of_tracking_have_readers(reached, tmp_path):
    """Movebank in metres, or as steps in kilometres; of DeepLabCut the keypoints that are asked for."""
    table = "timestamp,location-long,location-lat,individual-local-identifier\n"
    table += "".join(f"2010-05-01 {hour}:00:00,24.{hour},-1.5,Ngele\n" for hour in (10, 11, 12, 14))
    words = "--model roles --num-roles 2 --reader movebank --step 1h".split()
    _, data = fit_of(reached, tmp_path, table, *words)
    assert data.metadata.feature_names == ("east", "north") and data.observed.tolist()[0][3:] == [False, True]
    _, data = fit_of(reached, tmp_path, table, *words, "--step-and-turn")
    assert data.metadata.feature_units == ("km", "rad") and data.metadata.agent_names == ("Ngele",)
    rows = [
        "scorer" + ",net" * 6,
        "bodyparts,nose,nose,nose,tail,tail,tail",
        "coords" + ",x,y,likelihood" * 2,
    ]
    rows += ["0,1.0,2.0,0.99,3.0,2.0,0.98", "1,1.5,2.0,0.95,9.0,9.0,0.10"]
    words = "--model roles --num-roles 2 --reader deeplabcut --frame-rate 30".split()
    ego = ["--egocentric", "tail,nose", "--read", "swapped=missing"]
    _, data = fit_of(reached, tmp_path, "\n".join(rows), *words, *ego)
    assert data.metadata.feature_names == ("nose.x", "forward_speed", "turning_speed")
    words += ["--keypoints", "tail"]
    _, data = fit_of(reached, tmp_path, "\n".join(rows), *words)
    assert data.metadata.feature_names == ("tail.x", "tail.y") and data.observed.tolist() == [[True, False]]
    _, data = fit_of(reached, tmp_path, "\n".join(rows), *words, "--read", "min_likelihood=0.05")
    assert data.observed.all() and data.metadata.frame_rate == 30


def test_choices_of_a_long_table(reached, tmp_path):
    table = "trip,mode,hours,taken\n7,car,1,0\n7,bus,2.5,1\n9,bus,3,0\n9,walk,.5,1\n"
    words = ["--model", "choices", "--decision", "trip", "--option", "mode", "--chosen", "taken"]
    words += ["--features", "hours", "--kappa", "4", "--setting", "num_chains=2"]
    model, data = fit_of(reached, tmp_path, table, *words)
    assert data.features[..., 0].tolist() == [[2.5, 1, 0], [3, 0, 0.5]] and data.choice.tolist() == [0, 2]
    assert (model.kappa, model.kind, model.action_rewards) == (4.0, "features", True)
    words += ["--constants", "no", "--units", "h"]
    model, data = fit_of(reached, tmp_path, table, *words)
    assert not model.action_rewards and data.metadata.feature_units == ("h",)
    assert reached["settings"] == {"progress_bar": False, "num_chains": 2}


def test_rewards_in_an_mdp_of_a_table(reached, tmp_path):
    """States are 2, 10 and 30; the only action of the last is to stay."""
    (tmp_path / "moves.csv").write_text(
        "state,action,next state,probability\n10,go,30,.75\n10,go,2,.25\n10,stay,10,1\n"
        "2,go,10,1\n2,stay,2,1\n30,stay,30,1\n"
    )
    words = ["--model", "rewards", "--sequence", "walk", "--states", "s", "--actions", "a"]
    words += ["--discount", ".9", "--transitions", str(tmp_path / "moves.csv")]
    table = "walk,s,a\n0,2,go\n0,10,go\n1,30,stay\n"
    model, data = fit_of(reached, tmp_path, table, *words)
    mdp = model.mdp
    assert mdp.state_names == ("2", "10", "30") and mdp.action_names == ("go", "stay") and mdp.discount == 0.9
    np.testing.assert_allclose(mdp.probability(1, 0, [0, 1, 2]), [0.25, 0, 0.75])
    assert mdp.action_mask.tolist() == [[True, True], [True, True], [False, True]]
    assert data.states.tolist() == [[0, 1], [2, -1]]
    independent = jax.jit(model.reward_map(1.0, np.full(1, model.relevance_prior)).reward)(np.eye(3))
    np.testing.assert_allclose(independent, np.eye(3), atol=0.02)
    (tmp_path / "land.csv").write_text("state,height\n30,3\n2,1\n10,2\n")
    model, _ = fit_of(reached, tmp_path, table, *words, "--state-features", str(tmp_path / "land.csv"))
    assert model.features.tolist() == [[1], [2], [3]]


def test_identifiers_and_labels_of_a_table_are_text(reached, tmp_path):
    """States 1 and 01 differ, and None is an action; numbers of states do not depend on the type of a column."""
    words = "--model intents --sequence walk --agent walk --states s --actions a".split()
    _, data = fit_of(reached, tmp_path, "walk,s,a\n007,01,None\n7,1,go\n007,1,NA\nNA,01,null\n", *words)
    assert data.metadata.agent_names == ("007", "7", "NA") and data.lengths.tolist() == [2, 1, 1]
    assert data.metadata.state_names == ("01", "1") and data.states.tolist() == [[0, 1], [1, -1], [0, -1]]
    assert data.metadata.action_names == ("NA", "None", "go", "null")
    (tmp_path / "moves.csv").write_text(
        "state,action,next_state,probability\n1,None,01,1\n01,None,home,1\nhome,NA,1,1\n"
    )
    words = "--model rewards --states s --actions a --discount .9".split()
    words += ["--transitions", str(tmp_path / "moves.csv")]
    model, data = fit_of(reached, tmp_path, "s,a\n1,None\n01,None\nhome,NA\n", *words)
    assert model.mdp.state_names == ("01", "1", "home") and model.mdp.action_names == ("NA", "None")
    assert data.states.tolist() == [[1, 0, 2]] and data.actions.tolist() == [[1, 1, 0]]
    words = "--model choices --decision trip --option mode --chosen taken --features x --available av".split()
    table = "trip,mode,x,taken,av\n07,None,1,1,1\n07,car,,0,0\n7,None,3,0,1\n7,car,4,1,1\n"
    _, data = fit_of(reached, tmp_path, table, *words)
    assert data.metadata.action_names == ("None", "car") and data.choice.tolist() == [0, 1]
    assert data.legal.tolist() == [[True, False], [True, True]]


def test_covariates_of_switching_have_a_formula_or_are_added(reached, tmp_path):
    table = "x,heat,sex,name\n1,1,f,a\n2,4,f,a\n3,,f,a\n2,5,m,b\n4,6,m,b\n"
    words = [
        "--model",
        "roles",
        "--sequence",
        "name",
        "--subject",
        "name",
        "--features",
        "x",
        "--num-roles",
        "2",
    ]
    words += ["--covariates", "heat,sex", "--missing-covariates", "carry"]
    model, data = fit_of(reached, tmp_path, table, *words)
    assert model.transition.formula == "heat + sex" and model.transition.vary is None
    assert np.asarray(data.covariates)[0, :, 0].tolist() == [1, 4, 4]
    model, _ = fit_of(reached, tmp_path, table, *words, "--formula", "heat", "--vary", "subject")
    assert model.transition.formula == "heat" and model.transition.vary == "subject"
