"""Small fits side by side: each is the fit of its own call, whatever stands beside it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ethogram
from ethogram.fits import fit_items
from ethogram.fits.task_types import Later
from ethogram.inference.conjugate import side_by_side

KEY = jax.random.key(7)
SHORT = {"num_steps": 60, "restarts": 3, "progress_bar": False}
GAUSSIAN = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
COUNTS = ethogram.RoleHMM(2, ethogram.PoissonEmission(1))


def tracks(number, whole=False):
    """One or two sequences of 3 to 29 frames; some have an outlier, some a missing frame."""
    random = np.random.default_rng(number)
    lengths = random.integers(3, 30, 1 + (number % 5 == 4))
    each = [random.normal(size=(n, 1)) + 4 * (np.arange(n)[:, None] // 4 % 2) for n in lengths]
    each = [np.abs(x).round() if whole else x for x in each]
    if number % 5 == 3:
        each[0][2] = np.nan
    data = ethogram.Trajectories.from_list(each, missing="nan")
    if number % 5 == 2 and not whole:
        data.observations[0, 1] = 900.0
    return data


@pytest.fixture(autouse=True)
def few_lanes(monkeypatch):
    """Eight at a time: later fits take the lanes of those that have converged."""
    monkeypatch.setattr(side_by_side, "LANES", (8, 8))


def require_alone(model, items, fits, **settings):
    words = fit_items.keys_of(KEY, [*items])
    for name, own in zip(items, words, strict=True):
        alone = ethogram.fit(jax.random.wrap_key_data(own), model, items[name], **settings)
        result, expected = fits[name].result, alone.result
        assert (result.step, result.converged) == (expected.step, expected.converged), name
        for field in ("elbo", "restart_elbos", "evaluated", "restart_traces"):
            np.testing.assert_allclose(getattr(result, field), getattr(expected, field), rtol=1e-9)
        np.testing.assert_array_equal(jax.random.key_data(result.key), jax.random.key_data(expected.key))
        leaves = jax.tree.leaves(expected.posterior.blocks)
        for x, y in zip(jax.tree.leaves(result.posterior.blocks), leaves, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("model", "whole"), [(GAUSSIAN, False), (COUNTS, True)])
def test_fits_are_those_of_their_own_calls(model, whole):
    items = {f"{number}": tracks(number, whole) for number in range(12)}
    fits = ethogram.map_fits(model, items, key=KEY, **SHORT)
    assert sum(isinstance(result, Later) for result, _ in fits._found.values()) == 12
    require_alone(model, items, fits, **SHORT)
    assert fits["3"] is fits["3"] and fits["3"].states().path.shape == items["3"].observed.shape


@pytest.mark.parametrize("settings", [{"num_steps": 10}, {"num_steps": 7, "evaluate_every": 3, "tol": 0}])
def test_fits_whose_steps_are_used_up(settings):
    settings = {"restarts": 2, "progress_bar": False, "init": "segments", **settings}
    items = {f"{number}": tracks(number) for number in range(9)}
    require_alone(GAUSSIAN, items, ethogram.map_fits(GAUSSIAN, items, key=KEY, **settings), **settings)


def test_a_bad_item_stops_no_other():
    """Of data that no check passes, of those that a fit cannot learn from, and of warnings of a prior."""
    far = ethogram.RoleHMM(2, ethogram.GaussianEmission(1, mean=1e6, scale=1.0))
    good = {f"good {number}": tracks(5 * number) for number in range(9)}
    bad = {
        "infinite": tracks(0)._replace(observations=np.full_like(tracks(0).observations, np.inf)),
        "wide": ethogram.Trajectories.from_list([np.zeros((12, 2))]),
        "unseen": tracks(0)._replace(observed=np.zeros_like(tracks(0).observed)),
    }
    with pytest.warns(UserWarning, match="of 12 fits"):
        fits = ethogram.map_fits(far, {**bad, **good}, key=KEY, num_steps=5, restarts=1, progress_bar=False)
    assert {*fits.failures} == {*bad} and {*fits.warnings} == {*good}
    assert "Traceback" in fits["wide"].traceback and "infinite" not in good


def test_a_folder_is_gone_on_with(tmp_path):
    items = {f"{number}": tracks(number) for number in range(10)}
    fits = ethogram.map_fits(GAUSSIAN, items, key=KEY, out=tmp_path / "runs", **SHORT)
    before = {name: fit.result.elbo[-1] for name, fit in fits.items()}
    for path in sorted((tmp_path / "runs").glob("*.ethogram"))[::3]:
        path.unlink()
    again = ethogram.map_fits(
        GAUSSIAN, dict(reversed(items.items())), key=KEY, out=tmp_path / "runs", **SHORT
    )
    after = {name: fit.result.elbo[-1] for name, fit in again.items()}
    assert before.keys() == after.keys()
    np.testing.assert_allclose([after[name] for name in before], [*before.values()], rtol=1e-12)
    assert again["1"].summary().equals(fits["1"].summary()) and again["1"].code == fits["1"].code
