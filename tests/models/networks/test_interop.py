"""Networks of other packages, played by objects that answer as theirs do."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ethogram.models.networks.interop import network_from

RAIN = np.array([0.8, 0.2])
WET = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.4, 0.6], [0.2, 0.8]]])  # rain, sprinkler, wet
SPRINKLER = np.array([[0.3, 0.7], [0.9, 0.1]])


class Pgmpy:
    """Child's axis first."""

    def nodes(self):
        return ["wet", "rain", "sprinkler"]

    def get_cpds(self, node):
        values = {"rain": RAIN, "sprinkler": SPRINKLER.T, "wet": np.moveaxis(WET, -1, 0)}[node]
        variables = {
            "rain": ["rain"],
            "sprinkler": ["sprinkler", "rain"],
            "wet": ["wet", "rain", "sprinkler"],
        }[node]
        return SimpleNamespace(
            values=values, variables=variables, state_names={v: ["no", "yes"] for v in variables}
        )


class PyAgrum:
    """Names begin with the child, arrays end with it."""

    def names(self):
        return {"rain", "sprinkler", "wet"}

    def cpt(self, name):
        names = {"rain": ("rain",), "sprinkler": ("sprinkler", "rain"), "wet": ("wet", "sprinkler", "rain")}[
            name
        ]
        return SimpleNamespace(
            names=names, toarray=lambda: {"rain": RAIN, "sprinkler": SPRINKLER, "wet": WET}[name]
        )

    def variable(self, name):
        return SimpleNamespace(labels=lambda: ("no", "yes"))


@pytest.mark.parametrize("other", [Pgmpy(), PyAgrum()])
def test_same_probabilities(other):
    network = network_from(other)
    assert set(network.names) == {"rain", "sprinkler", "wet"}
    for rain in (0, 1):
        for sprinkler in (0, 1):
            for wet in (0, 1):
                states_of = {"rain": rain, "sprinkler": sprinkler, "wet": wet}
                truth = RAIN[rain] * SPRINKLER[rain, sprinkler] * WET[rain, sprinkler, wet]
                assert np.exp(
                    network.log_joint([states_of[name] for name in network.names])
                ) == pytest.approx(truth)
    assert network.state_names == (("no", "yes"),) * 3


def test_something_else_is_refused():
    with pytest.raises(TypeError, match=r"other must be a pgmpy network .* not dict"):
        network_from({})


class Malformed(Pgmpy):
    """The table of wet has its axes in another order than its variables."""

    def get_cpds(self, node):
        found = super().get_cpds(node)
        if node == "wet":
            found.state_names["wet"], found.values = ["dry", "damp", "wet"], np.full((2, 2, 3), 1 / 3)
        return found


def test_tables_of_another_shape_are_refused():
    with pytest.raises(
        ValueError, match=r"other: the table of 'wet' has shape \(2, 2, 3\), and needs \(3, 2, 2\)"
    ):
        network_from(Malformed())
