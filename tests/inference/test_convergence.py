"""Effective sample sizes and R-hat against chains whose own are known, and the warning."""

from __future__ import annotations

import contextlib
import threading
import warnings

import numpy as np
import pytest

from ethogram.inference.convergence import convergence, warn_of_convergence
from ethogram.models.held_warnings import import_quietly


def autoregressive(rho, shape, seed=0):
    """Stationary chains (chain, draw) with autocorrelation rho, whose ESS is n (1 - rho) / (1 + rho)."""
    noise = np.random.default_rng(seed).normal(size=shape)
    x = np.empty(shape)
    x[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return x


def test_the_effective_sample_size_is_that_of_an_autoregression():
    found = convergence(autoregressive(0.9, (4, 5000)))
    assert float(found.ess) == pytest.approx(20_000 * 0.1 / 1.9, rel=0.2)
    assert found.enough and float(found.r_hat) < 1.01


def test_few_effective_samples_and_chains_apart_warn_by_site_with_the_cure():
    good, slow = autoregressive(0, (2, 500)), autoregressive(0.99, (1, 1000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_convergence({"good": good})
    with pytest.warns(
        UserWarning, match=r"slow \(smallest ESS \d+\).*: run a longer warm-up and more draws$"
    ) as seen:
        warn_of_convergence({"good": good, "slow": slow})
    assert len(seen) == 1 and "good (" not in str(seen[0].message) and seen[0].filename == __file__
    with pytest.warns(UserWarning, match=r"apart .*largest r_hat"):
        warn_of_convergence({"apart": good + np.array([[0.0], [0.5]])})


def test_few_or_constant_draws_count_as_one_each():
    assert convergence(np.ones((2, 3, 1))).ess.tolist() == [6]
    assert convergence(np.ones((1, 50))).ess == 50


def test_effective_sample_sizes_in_threads_leave_filters_as_they_were(monkeypatch):
    """ArviZ changes them for a moment; a thread that had begun within that of another ended it for good."""
    arviz = import_quietly("arviz", FutureWarning)
    draws, before = np.random.default_rng(0).normal(size=(2, 8)), list(warnings.filters)
    within = threading.Barrier(2, timeout=0.2)

    def ess(*_, **__):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            with contextlib.suppress(threading.BrokenBarrierError):
                within.wait()
            return 16.0

    monkeypatch.setattr(arviz, "ess", ess)
    threads = [threading.Thread(target=convergence, args=(draws,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert within.broken and warnings.filters == before
