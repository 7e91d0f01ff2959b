"""Warnings that one thread keeps back, while others give theirs."""

import threading
import warnings

import numpy as np
import pytest

from ethogram.domains.uai_networks import load as load_network
from ethogram.inference import storage
from ethogram.inference.networks.methods import smoothed_score
from ethogram.models.arguments import warn_user
from ethogram.models.data import Trajectories
from ethogram.models.held_warnings import held_warnings
from ethogram.models.networks import BayesNet, MarginalMAP
from ethogram.models.roles.starts import cluster_centres


def test_warnings_of_a_thread_are_kept_and_those_of_another_shown():
    def other():
        warn_user("of another thread")

    with pytest.warns(UserWarning, match="of another thread|afterwards") as seen:
        with held_warnings() as outer:
            warn_user("first")
            with held_warnings() as inner:
                warn_user("second")
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        warn_user("afterwards")
    assert outer == ["first"] and inner == ["second"]
    assert [str(one.message) for one in seen] == ["of another thread", "afterwards"]


@pytest.fixture(scope="module")
def rounded():
    """A network whose rows sum to .99, with the warning of it."""
    with pytest.warns(UserWarning, match="rows that do not sum to one"):
        return BayesNet((np.array([0.5, 0.49]), np.array([[0.2, 0.8], [0.6, 0.4]])), ((), (0,)))


def saved(network, folder):
    storage.write(folder / "network", network)
    return storage.read(folder / "network")


def centred():
    observations = [[[1.0, np.nan], [3.0, np.nan]]]
    data = Trajectories.from_list(observations, missing="nan")
    return [data.centred(by, center) for by in ("all", "group", "sequence") for center in ("mean", "median")]


@pytest.mark.parametrize(
    "call",
    [
        saved,
        lambda network, _: smoothed_score(MarginalMAP(network, {0: 1}, (1,)), [1], 10**6),
        lambda *_: load_network("50-12-5"),
        lambda *_: cluster_centres(np.random.default_rng(0), np.eye(3)[[0, 0, 1, 1, 2, 2]], 3, 4),
        lambda *_: centred(),
    ],
    ids=["files", "smoothed", "networks", "clusters", "centred"],
)
def test_filters_of_the_process_are_not_touched(rounded, tmp_path, monkeypatch, call):
    """`catch_warnings` in two threads at a time left UserWarnings ignored for good."""

    def touched(*_, **__):
        raise AssertionError("filters of all threads were changed")

    with monkeypatch.context() as patch:
        patch.setattr(warnings, "catch_warnings", touched)
        call(rounded, tmp_path)
