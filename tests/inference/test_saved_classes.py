"""Tags of saved classes: unique, found in a process that has imported nothing, and closed to foreign code."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import ethogram
from ethogram.inference import saved_classes, storage
from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.families.exponential_family import Beta
from ethogram.models.model_object import model_object


def every_class():
    """Named tuples and model objects of all modules, by tag."""
    found = {}
    for layer in (ethogram.models, ethogram.inference):
        for one in pkgutil.walk_packages(layer.__path__, f"{layer.__name__}."):
            module = importlib.import_module(one.name)
            for cls in vars(module).values():
                if isinstance(cls, type) and cls.__module__ == module.__name__ and saved_classes.tag_of(cls):
                    found.setdefault(saved_classes.tag_of(cls), []).append(cls)
    return found


def test_tags_are_unique_and_lead_to_their_class():
    found = every_class()
    assert {tag: classes for tag, classes in found.items() if len(classes) > 1} == {}
    for tag, (cls,) in found.items():
        assert saved_classes.find_class(tag) is cls, tag
    tags = {cls.__name__: tag for tag, (cls,) in found.items()}
    assert tags["RoleHMM"] == "ethogram.models.roles.RoleHMM"
    assert {"Trajectories", "ConjugateResult", "ChainsState", "RewardFit", "SquaredHalfCauchy"} <= set(tags)


def test_reading_imports_what_it_needs():
    """In a new process: public classes, blocks with their coordinates, and states of interrupted fits."""
    states = {
        "ImitationState",
        "MotionState",
        "SearchState",
        "ChainsState",
        "Pages",
        "AscentState",
        "Settled",
        "StochasticState",
    }
    code = "import sys; from ethogram.inference.saved_classes import find_class; [find_class(t) for t in sys.argv[1:]]"
    found = every_class()
    tags = [
        tag
        for tag in found
        if tag.rpartition(".")[2] in states
        or (
            tag.startswith("ethogram.models.families.")
            and not found[tag][0].__module__.endswith(".projection")
        )
        or hasattr(importlib.import_module(tag.rpartition(".")[0]), tag.rpartition(".")[2])
    ]
    assert len(tags) > 60 and states <= {tag.rpartition(".")[2] for tag in tags}
    subprocess.run([sys.executable, "-c", code, *tags], check=True)


@model_object
class Own(ConjugateModel):
    """A model that this package does not have."""

    share: float = 0.5

    def prior(self):
        return {"share": Beta.from_standard(1.0, 1.0)}

    def log_normalizer(self, expected, batch):
        return 0.0


def test_models_of_ones_own_are_read_where_they_are_defined(tmp_path):
    storage.write(tmp_path / "own", Own(0.25))
    assert saved_classes.tag_of(Own) == f"{__name__}:Own"
    assert storage.read(tmp_path / "own").share == 0.25
    assert saved_classes.find_class("notebook:Own") is Own  # it has moved, or was defined in a notebook
    for recorded in ("elsewhere:Lost", "builtins:list"):
        with pytest.raises(ValueError, match=f"it refers to {recorded}, .* define it, or import it from"):
            saved_classes.find_class(recorded)
    assert "elsewhere" not in sys.modules
