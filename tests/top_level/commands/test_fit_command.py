"""The command `ethogram fit`: a fit of roles end to end, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

import ethogram
from ethogram.commands import fit_results, main
from ethogram.commands.fit_tables import Program
from ethogram.fits import Fit
from ethogram.inference.conjugate import PeerScore, ScoreCurve
from ethogram.inference.diagnostics import Diagnosis, Finding, Level
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov

SCORES = {"scores.png", "scores.pdf"}
TABLES = {"summary.csv", "states.csv", "time_budget.csv", "bouts.csv"}
FILES = {"fit.ethogram", "fit.nc", "figure.png", "figure.pdf", "report.html", *TABLES, *SCORES}
TRACKS = ["--model", "roles", "--sequence", "trip", "--time", "t", "--step", "1", "--features", "x,y"]
SHORT = ["--setting", "num_steps=15", "--setting", "restarts=1"]


@pytest.fixture(scope="module")
def tracks(role_data, tmp_path_factory):
    """Two roles about (-5, 2) and (5, -2); trip 0 lacks rows 4 and 5, and has an empty cell at 8."""
    rows = np.asarray(role_data[1].observations)
    trip, t = np.indices(rows.shape[:2]).reshape(2, -1)
    table = pandas.DataFrame({"trip": trip, "t": t, "x": rows[..., 0].ravel(), "y": rows[..., 1].ravel()})
    table.loc[8, "x"] = np.nan
    path = tmp_path_factory.mktemp("tracks") / "tracks.csv"
    table.drop([4, 5]).to_csv(path, index=False)
    return path


@pytest.fixture
def known_results(roles, monkeypatch):
    """In place of fits, that of the same tracks, and scores in favour of two roles; one finding, empty figures."""

    def fit(key, model, data, method, **settings):
        assert settings == {"progress_bar": False, "num_steps": 15, "restarts": 1} and method == "auto"
        return Fit(model, data, "cavi", "why", roles.result, 1.0, key)

    def scored(key, make_model, sizes, data, **options):
        assert options == {"progress_bar": False, "num_steps": 15, "restarts": 1}
        heldout, error = np.array([-4.0, -3.0]), np.array([0.1, 0.0])
        return ScoreCurve(np.array(sizes), np.zeros(2), heldout, (), error, 10)

    monkeypatch.setattr(fit_results, "fit", fit)
    monkeypatch.setattr(fit_results, "heldout_score_curve", scored)
    monkeypatch.setattr(Fit, "plot", lambda found, figure: figure)
    finding = Finding("drift", Level.CAUTION, "It drifts.", "Stop it.", 1.0)
    monkeypatch.setattr(Fit, "diagnose", lambda found: Diagnosis([finding]))


def test_a_table_becomes_the_results_of_the_picked_number_of_roles(known_results, tracks, tmp_path, capsys):
    said, page = results_of(tracks, tmp_path, capsys)
    line = "caution, drift: It drifts. Stop it."
    assert said.splitlines()[-2:] == [line, "1 finding"] and page.index(line) < page.index("What was read")


@pytest.mark.slow
def test_a_table_becomes_a_fit_of_the_right_number_of_roles(tracks, tmp_path, capsys):
    results_of(tracks, tmp_path, capsys)


def results_of(tracks, tmp_path, capsys):
    """All files of a fit, and those of another that may replace them."""
    out = tmp_path / "new" / "results"
    words = ["fit", str(tracks), *TRACKS, *SHORT, "--missing", "nan", "--out", str(out)]
    assert main([*words, "--num-roles", "1:2"]) == 0
    said = capsys.readouterr().out
    read = "gaps: 1, longest: 2 frames; missing frames without a row: 2; frames that lack a feature: 1 without x."
    assert f"6 sequences, 96 frames, 2 missing; a frame every 1 unit of time; features x, y; {read}" in said
    assert {path.name for path in out.iterdir()} == FILES
    found = ethogram.load(out / "fit.ethogram")
    assert found.model.num_roles == 2 and found.data.metadata.name == "tracks.csv"
    summary = pandas.read_csv(out / "summary.csv", index_col="parameter")
    means = [[summary["mean"][f"mean[{role}, {name}]"] for name in "xy"] for role in range(2)]
    np.testing.assert_allclose(sorted(means), [[-5, 2], [5, -2]], atol=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ says at import depends on its version
        import arviz
    assert arviz.from_netcdf(str(out / "fit.nc")).posterior["mean"].shape == (1, 1000, 2, 2)
    states, budget, bouts = (
        pandas.read_csv(out / f"{name}.csv") for name in ("states", "time_budget", "bouts")
    )
    assert len(states) == 94 and states.columns.tolist() == "sequence time x y state probability".split()
    assert set(budget["sequence"]) == set(states["sequence"]) == set(bouts["sequence"]) == {*range(6)}
    assert budget.groupby("sequence")["mean"].sum().round(6).eq(1).all() and bouts["frames"].sum() == 94
    page = (out / "report.html").read_text()
    assert read in page and "2, the least of 1 to 2 within one standard error" in page
    rises = "2 is the largest size offered, and the held-out score still rises"
    assert f"caution: {rises}" in said and rises in page
    assert page.count("data:image/svg+xml;base64,") == 2 and "src=" not in page.replace('src="data:', "")

    kept = (out / "fit.ethogram").read_bytes()
    assert main([*words, "--num-roles", "2"]) == 2
    assert (
        "fit.ethogram of an earlier fit: choose another folder, or pass --overwrite"
        in capsys.readouterr().err
    )
    assert (out / "fit.ethogram").read_bytes() == kept
    assert main([*words, "--num-roles", "2", "--overwrite"]) == 0
    assert {path.name for path in out.iterdir()} == FILES - SCORES
    return said, page


def test_a_figure_that_fails_loses_nothing_else(known_results, tracks, tmp_path, capsys, monkeypatch):
    """All results were lost; those of an earlier fit would no longer be of this one."""
    out = tmp_path / "results"
    out.mkdir()
    (out / "figure.png").write_text("of an earlier fit")
    for name in ("fit.ethogram", "summary.csv"):
        (out / name).touch(0o600)

    def fails(found, figure):
        raise RuntimeError("no such\nformula")

    monkeypatch.setattr(Fit, "plot", fails)
    words = ["fit", str(tracks), *TRACKS, *SHORT, "--missing", "nan", "--out", str(out), "--num-roles", "2"]
    assert main([*words, "--overwrite"]) == 2
    said = capsys.readouterr()
    lost = [f"{name} (no such formula)" for name in ("figure.png", "figure.pdf", "report.html")]
    assert f"not written: {', '.join(lost)}; {out} has the other results" in said.err
    assert said.out.index("fit.ethogram") < said.out.index("summary.csv")
    assert {path.name for path in out.iterdir()} == {"fit.ethogram", "fit.nc", *TABLES}
    assert ethogram.load(out / "fit.ethogram").model.num_roles == 2
    for name in ("fit.ethogram", "summary.csv"):
        assert (out / name).stat().st_mode & 0o777 == 0o600


def test_scores_of_peers_are_printed_beside_those_of_intents(monkeypatch, capsys):
    """Where there is more than one trace, with the settings of the fit but for its checkpoint."""
    seen = {}

    def scored(key, make_model, sizes, data, **options):
        seen.update(options)
        peers = {"p(a | s)": PeerScore(-0.5, 0.02)}
        return ScoreCurve(np.array(sizes), np.zeros(1), np.array([-0.75]), (), np.zeros(1), 1, peers)

    monkeypatch.setattr(fit_results, "heldout_score_curve", scored)
    data = Trajectories.from_list(states=[[0, 1], [1]], actions=[[0, 1], [1]])
    settings = {"restarts": 2, "checkpoint": "fit.ckpt"}
    model = AgentMarkov(2, 2, truncation=3)
    fit_results._print_peers(None, Program(data.take([0]), (), lambda size: model), "auto", settings)
    assert not capsys.readouterr().out and not seen
    fit_results._print_peers(None, Program(data, (), lambda size: model), "auto", settings)
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["up", "to", "3", "intents", "-0.7500", "0.0000"]
    assert second.split() == ["p(a", "|", "s)", "-0.5000", "0.0200"]
    assert seen == {"restarts": 2}


def test_tables_have_positions_of_steps_and_durations_in_hours():
    dates = [f"2024-05-01 0{hour}:00" for hour in range(3)]
    table = pandas.DataFrame({"t": dates, "x": [0.0, 3.0, 3.0], "y": [0.0, 4.0, 5.0]})
    positions = Trajectories.from_table(table, time="t", features=["x", "y"])
    steps = ethogram.step_and_turn(positions)
    states = SimpleNamespace(to_table=steps.to_table)
    found = SimpleNamespace(states=lambda: states, data=steps, model=None)
    tables = fit_results._tables(found, Program(steps, (), None, positions=positions), "roles")
    assert tables["states.csv"]()[["step", "x", "y"]].to_numpy().tolist() == [[5, 0, 0], [1, 3, 4]]
    bouts = pandas.DataFrame({"duration": pandas.to_timedelta(["90min"]), "frames": [3]})
    assert fit_results._in_hours(bouts).to_dict("list") == {"duration_hours": [1.5], "frames": [3]}


def test_effects_are_a_table_where_there_are_covariates():
    for formula, has in (("heat", True), ("", False)):
        model = ethogram.RoleHMM(
            2, ethogram.GaussianEmission(1), transition=ethogram.Covariates(formula, vary="subject")
        )
        found = SimpleNamespace(model=model, data=Trajectories.from_list([[[0.0]]]))
        assert ("effects.csv" in fit_results._tables(found, Program(None, (), None), "roles")) == has


CASES = {
    "no file": (["--features", "x"], None, "table.csv': there is no such file"),
    "no header": (["--features", "x"], "", "table.csv', which cannot be read: No columns"),
    "no rows": (["--features", "x"], "x,t\n", "table.csv: table has no rows"),
    "no column": (
        ["--features", "x,z"],
        "x,t\n1,2\n",
        "table.csv: table has no column 'z': its columns are ['x', 't'",
    ),
    "a word": (
        ["--features", "x"],
        "x\n1\nhigh\n",
        "table.csv: column 'x'",
        "features must be numbers, and row 1 is 'high'",
    ),
    "an empty cell": (
        ["--features", "x"],
        "x,t\n1,1\n,2\n",
        "sequence 0, step 1, feature 'x' is NaN or null: pass --missing nan to take it as missing",
    ),
    "no features": ([], "x\n1\n", "--features is missing: --model roles needs --features"),
    "units": (
        ["--features", "x", "--units", "m,rad"],
        "x\n1\n",
        "--units has 2 entries, --features 1: give one per feature",
    ),
    "of choices": (
        ["--features", "x", "--chosen", "x"],
        "x\n1\n",
        "--chosen is not an argument of --model roles",
    ),
    "one sequence": (
        ["--features", "x"],
        "x\n1\n2\n",
        "--num-roles 2:8 needs at least two sequences for held-out scores: give a single number",
    ),
    "a range": (["--num-roles", "8:2"], "x\n1\n", "--num-roles: '8:2' is neither a number from 1"),
    "a method": (
        ["--features", "x", "--num-roles", "2", "--method", "px-da"],
        "x\n1\n",
        "--method must be 'auto', 'cavi', 'svi', 'nuts', 'refresh' or 'imitate', not 'px-da'",
    ),
    "a setting": (
        ["--features", "x", "--num-roles", "2", "--setting", "num_warmup=3"],
        "x\n1\n",
        "--setting: method 'cavi' takes no setting num_warmup: it takes num_steps",
    ),
    "a range of roles with covariates": (
        ["--features", "x", "--covariates", "t"],
        "x,t\n1,1\n2,2\n",
        "--formula and --vary need one number of roles: give --num-roles 3, say",
    ),
    "a formula": (
        ["--features", "x", "--covariates", "t", "--formula", "t + heat", "--num-roles", "2"],
        "x,t\n1,1\n2,2\n",
        "--formula: formula 't + heat' takes heat, and the data have t",
    ),
    "no subject": (
        ["--features", "x", "--vary", "subject", "--num-roles", "2"],
        "x,t\n1,1\n2,2\n",
        "--vary",
        "needs data.subject",
    ),
    "a step": (
        ["--features", "x", "--time", "t", "--step", "2s"],
        "x,t\n1,1\n2,2\n",
        "step is '2s', but times are numbers: give a number",
    ),
    "a step of dates": (
        ["--features", "x", "--time", "t", "--step", "2"],
        "x,t\n1,2020-01-01\n2,2020-01-02\n",
        "step is 2.0, but times are dates or durations",
    ),
    "no times": (
        ["--features", "x", "--step", "2"],
        "x\n1\n",
        "step is 2.0 without time: name the column of times",
    ),
    "no step": (
        ["--features", "x", "--time", "t", "--snap"],
        "x,t\n1,1\n",
        "snap is True without step: pass --step, the time between frames",
    ),
    "a step back": (["--features", "x", "--step", "-1"], "x\n1\n", "--step: '-1' is not a positive time"),
    "times apart": (
        ["--features", "x", "--time", "t"],
        "x,t\n1,1\n2,2\n3,5\n",
        "table.csv: t advances by 1 to 3",
        "pass --step",
    ),
}


@pytest.mark.parametrize("words, table, parts", [(*case[:2], case[2:]) for case in CASES.values()], ids=CASES)
def test_what_is_refused_is_said_in_one_line(words, table, parts, tmp_path, capsys):
    path, out = tmp_path / "table.csv", tmp_path / "out"
    if table is not None:
        path.write_text(table)
    assert refusal(capsys, [str(path), "--model", "roles", "--out", str(out), *words], parts)
    assert not out.exists()


def reward_words(folder, transitions):
    """Words of a fit of rewards, whose walk and transitions are written into the folder."""
    (folder / "moves.csv").write_text(f"state,action,next_state,probability\n{transitions}")
    (folder / "walks.csv").write_text("s,a\n0,go\n")
    words = [str(folder / "walks.csv"), *"--model rewards --states s --actions a --discount .9".split()]
    return [*words, "--transitions", str(folder / "moves.csv"), "--out", str(folder / "out")]


@pytest.mark.parametrize(
    ("transitions", "parts"),
    [
        ("0,go,1,.5\n0,go,0,.4\n1,go,1,1\n", "state '0' and action 'go' sum to 0.9: expected 1"),
        ("0,go,1,1\n", "state '1' is a next state without a row of its own"),
        ("0,go,0,1.5\n0,go,1,-.5\n", "column 'probability' is 1.5 in row 0"),
        ("1,go,1,1\n", "walks.csv: states contains '0', which is not in --transitions"),
    ],
)
def test_transitions_that_are_no_mdp_are_refused(transitions, parts, tmp_path, capsys):
    assert refusal(capsys, reward_words(tmp_path, transitions), [parts])


def test_linear_rewards_need_features(tmp_path, capsys):
    words = [*reward_words(tmp_path, "0,go,0,1\n"), "--method", "max_entropy"]
    assert refusal(capsys, words, ["--method max_entropy", "give --state-features"])


def refusal(capsys, words: list[str], parts) -> str:
    """The one line of a refusal, with all that must be in it."""
    try:
        code = main(["fit", *words])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr().err
    assert code == 2 and said.count("\n") == 1 and all(part in said for part in parts), said
    return said


def test_a_folder_that_cannot_be_written_is_refused_before_the_fit(reached, tracks, capsys):
    words = [str(tracks), *TRACKS, "--missing", "nan", "--num-roles", "2", "--out", str(tracks)]
    assert refusal(capsys, words, ["tracks.csv is not a writable folder (File exists): choose another"])
    assert not reached and Path(tracks).is_file()
