"""Data and axes of several tests of figures."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from ethogram.models.data.trajectories import Metadata, Trajectories

matplotlib.use("Agg")


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.fixture
def plays() -> Trajectories:
    """Two plays of two players at 5 frames a second: 4 and 3 frames."""
    rows = [np.zeros((length, 2)) for length in (4, 4, 3, 3)]
    metadata = Metadata(agent_names=("Ada", "Bo"), time_unit="s", frame_rate=5.0)
    return Trajectories.from_list(rows, agent=["Ada", "Bo"] * 2, group=[0, 0, 1, 1], metadata=metadata)
