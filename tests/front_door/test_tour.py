"""The tour of role-hmm from end to end on few sweeps; its table, and its registry."""

from __future__ import annotations

import warnings
from importlib import import_module

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_t

from ethogram import football_roles, tour, tour_roles
from ethogram.domains import football
from ethogram.models.trajectories import Trajectories

TINY = tour_roles.TourSizes(
    restarts=1, sweeps=3, train_games=8, test_games=4, draws=6, predictive=False, sides=("home",)
)
MEASURED = ("ELBO, nats", "consistency", "agreement", "held-out, nats/frame")
TOUR = tour_roles.tour


@pytest.mark.slow
def test_the_table_has_a_row_a_fit(first):
    report, said = first
    assert [row["what was learned"] for row in report.rows] == [
        "home defence, plain",
        "home defence, plain + assignment",
        "predators, exclusive roles",
    ]
    plain, assigned = report.rows[:2]
    assert float(plain["duplicates"]) > 0.3 and float(assigned["duplicates"]) == 0
    assert float(plain["held-out, nats/frame"]) > float(plain["one role"])
    assert all(0.2 < float(row["agreement"]) <= 1 for row in report.rows[:2])
    assert all(float(row["seconds"]) >= 0 for row in report.rows)
    assert any("first ELBO" in line for line in said[:3])


@pytest.mark.slow
def test_falling_short_of_convergence_is_said(first):
    report, _ = first
    assert report.rows[0]["sweeps"] == "3, not converged"


@pytest.mark.slow
def test_files_are_written_whole_and_can_be_read(first):
    import matplotlib.image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ says at import depends on its version
        import arviz
    report, _ = first
    picture, record = report.files
    assert matplotlib.image.imread(picture).shape[0] > 500
    tree = arviz.from_netcdf(str(record))
    mean = np.asarray(tree["posterior"]["mean"])
    assert mean.shape == (1, TINY.draws, 10, 2) and np.isfinite(mean).all()
    assert sorted(path.name for path in picture.parent.iterdir()) == ["role-hmm.nc", "role-hmm.png"]


@pytest.mark.slow
def test_two_seeds_differ(first, second):
    rows = [
        [tuple(row.get(name) for name in MEASURED) for row in report.rows] for report, _ in (first, second)
    ]
    for one, other in zip(*rows, strict=True):
        assert one != other


def test_the_score_of_one_gaussian_is_near_its_exact_predictive_density():
    """Many frames: plugging the posterior means in comes near to the exact predictive, a Student t."""
    random = np.random.default_rng(3)
    data = Trajectories.from_list(random.normal([2.0, -1.0], [3.0, 5.0], (40, 50, 2)))
    train, test = data.split(jax.random.key(0))
    x = np.asarray(train.observations, float).reshape(-1, 2)
    count, strength, dof = len(x), 0.01, 4.0
    centre = x.mean(axis=0)
    scale = 25 * np.eye(2) + (x - centre).T @ (x - centre)
    scale += strength * count / (strength + count) * np.outer(centre, centre)
    spread = scale * (strength + count + 1) / ((strength + count) * (dof + count - 1))
    exact = multivariate_t(count * centre / (count + strength), spread, df=dof + count - 1)
    expected = exact.logpdf(np.asarray(test.observations, float).reshape(-1, 2)).mean()
    assert football_roles.gaussian_score(train, test) == pytest.approx(expected, abs=1e-3)


def test_laying_out_changes_no_sequence_that_is_there():
    data = football.load("away").data
    wide = football_roles.laid_out(data, (data.num_sequences + 20, data.observed.shape[1] + 3))
    kept = wide.take(np.arange(data.num_sequences))
    for name in ("lengths", "agent", "group"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(data, name))
    np.testing.assert_array_equal(kept.observations[:, :-3], data.observations)
    assert wide.lengths[-20:].sum() == 0 and not wide.observed[-20:].any()
    assert len(np.unique(wide.group)) == 15 and set(wide.group[-20:]).isdisjoint(data.group)


def test_every_system_is_there():
    for place in tour.SYSTEMS.values():
        module, function = place.split(":")
        assert callable(getattr(import_module(module), function))


def test_an_unknown_system_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"systems has 'ghost': choose from .*role-hmm"):
        tour.take_tour(["ghost"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_systems_are_taken_once_and_told_at_the_end(monkeypatch, tmp_path):
    calls = []

    def echo(settings):
        calls.append((settings.seed, settings.quick))
        settings.say("fitting")
        return tour.TourReport(
            [{"what was learned": "nothing", "seconds": "0.1"}], ["a note"], [settings.out / "x"]
        )

    monkeypatch.setattr(tour_roles, "echo", echo, raising=False)
    monkeypatch.setattr(tour, "SYSTEMS", {"echo": "ethogram.tour_roles:echo"})
    said: list[str] = []
    tour.take_tour(["echo", "echo"], tmp_path / "a" / "b", quick=True, seed=5, say=said.append)
    assert calls == [(5, True)]
    assert said[0] == "fitting" and "nothing" in said[1] and said[2] == "a note" and said[3].endswith("x")
    assert (tmp_path / "a" / "b").is_dir()


def test_numbers_stand_to_the_right_and_gaps_are_dashes():
    text = tour.format_table([{"name": "a", "score": "10.5"}, {"name": "long", "score": "2", "other": "yes"}])
    assert text.splitlines() == [
        "name  score  other",
        "----  -----  -----",
        "a      10.5  -",
        "long      2  yes",
    ]


def test_an_interrupted_file_leaves_the_old_one(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), tour.whole_file(path) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
