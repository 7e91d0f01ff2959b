"""Objects that hold arrays print in a few lines, whatever they hold, traced ones too."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil

import jax
import numpy as np
import pytest

import ethogram
from ethogram.fits.new_data import Score
from ethogram.inference.conjugate import ScoreCurve
from ethogram.models.data import Metadata, Trajectories
from ethogram.models.printing import describe_value

MOST_LINES, MOST_CHARACTERS = 20, 2000
BIG = np.arange(900.0).reshape(30, 30)
OTHERS = {"PeerScore", "TracePoint", "BayesNet", "ChoiceSummary", "Comparison"}
"""Of numbers alone, or with a text of their own, which the tests of their modules have."""


def public_classes() -> list[type]:
    """Named tuples and dataclasses that subpackages of models and inference export, and those of fits."""
    roots = [importlib.import_module(f"ethogram.{root}") for root in ("models", "inference", "fits")]
    below = [(root, each) for root in roots[:2] for each in pkgutil.iter_modules(root.__path__) if each.ispkg]
    names = [f"{root.__name__}.{each.name}" for root, each in below]
    modules = [roots[2], *map(importlib.import_module, names)]
    found = [getattr(module, name) for module in modules for name in getattr(module, "__all__", [])]
    records = {each for each in found if isinstance(each, type) and each.__name__ not in OTHERS}
    return [each for each in records if hasattr(each, "_fields") or dataclasses.is_dataclass(each)]


def filled(kind: type, value: object) -> object:
    """An instance whose fields all hold a value, made without its constructor's checks, as JAX makes them."""
    if hasattr(kind, "_fields"):
        return kind._make([value] * len(kind._fields))
    made = object.__new__(kind)
    for field in dataclasses.fields(kind):
        object.__setattr__(made, field.name, value)
    return made


def test_every_public_record_of_large_arrays_prints_in_twenty_lines():
    classes = public_classes()
    assert len(classes) > 80
    for kind in classes:
        for value in (
            BIG,
            jax.ShapeDtypeStruct((3, 4), np.float32),
            0,
            None,
            {"a": BIG, "b": BIG},
            [BIG] * 300,
        ):
            text = repr(filled(kind, value))
            assert len(text) <= MOST_CHARACTERS and text.count("\n") < MOST_LINES, (kind, text)
            assert kind.__name__ in text
            assert "30, 30" in text or value is not BIG, (kind, text)


def test_trajectories_print_sizes_dates_and_features_with_units():
    rows = 40
    times = np.datetime64("2026-05-01T22:30") + np.arange(rows) * np.timedelta64(1, "D")
    keep = np.arange(rows) % 4 > 0
    table = {
        "day": times[keep],
        "step": np.ones(keep.sum()),
        "turn": np.zeros(keep.sum()),
        "who": ["a"] * keep.sum(),
    }
    data = Trajectories.from_table(
        table,
        sequence="who",
        time="day",
        features=["step", "turn"],
        agent="who",
        step="1D",
        metadata=Metadata(feature_units=["m", "rad"], name="elk"),
    )
    first, second, *rest = repr(data).splitlines()
    assert f"{first} {second.strip()}" == (
        "Trajectories elk: 1 sequence, 39 frames, 9 missing; a frame every 86400 s; from 2 May 2026 to 9 June 2026; "
        "features step (m), turn (rad)"
    )
    assert len(rest) == 3 and "names a" in rest[-1]
    assert "float" in repr(jax.eval_shape(lambda data: data, data))


@pytest.mark.parametrize("data", [
    Trajectories.from_list([[[0.0], [1.0]], [[2.0]]], metadata=Metadata(frame_rate=30)),
    ethogram.Decisions.from_list([np.ones((3, 2))] * 3, [0, 1, 2]),
])  # fmt: skip
def test_data_are_neither_added_nor_multiplied_nor_indexed_in_silence(data):
    """A named tuple is a list of its arrays, of which a user knows nothing."""
    for operation in (
        lambda: data * 2,
        lambda: 2 * data,
        lambda: data + data,
        lambda: data[0],
        lambda: data[:2],
    ):
        with pytest.raises(
            TypeError, match=r"is a record, neither a list nor a number: choose .* by take\(\[0\]\)"
        ):
            operation()
    same = jax.tree.map(lambda leaf: leaf, pickle.loads(pickle.dumps(copy.copy(data))))
    assert len(same._replace(metadata=Metadata())) == len(data) and repr(same) == repr(data)
    with pytest.raises(TypeError, match=r"Score is a record.*: compute with fields, such as .total"):
        Score(0.0, 0.0, 0.0, BIG, BIG, "step") * 2


def test_decisions_print_numbers_of_decisions_options_and_subjects():
    data = ethogram.Decisions.from_list(
        [np.ones((3, 2))] * 1200,
        [-1] + [0] * 1199,
        subject=[0, 1] * 600,
        metadata=Metadata(feature_names=["cost", "time"]),
    )
    title = "Decisions: 1 200 decisions of 2 subjects between up to 3 options, 1 without a chosen option"
    assert repr(data).startswith(f"{title}; features cost, time\n")


def test_a_score_curve_prints_its_sizes_and_scores():
    curve = ScoreCurve(
        np.array([2, 3]), np.array([-5.0, -4.0]), np.array([-1.5, -1.25]), (BIG, BIG), np.zeros(2), 5990
    )
    assert "size=[2, 3]" in repr(curve) and "heldout=[-1.5, -1.25]" in repr(curve)
    assert curve._replace(train_steps=1).train_steps == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([1.0, np.nan] * 50), "float64[100], all 1, 50 NaN"),
        (np.full(9, np.nan), "float64[9], all NaN"),
        (np.arange(8) > 2, "bool[8], 5 true"),
        (np.zeros((0, 3)), "float64[0, 3]"),
        (np.array([[-np.inf, 2.0]]), "float64[1, 2], -inf to 2"),
        (np.float32(0.25), "0.25"),
        (np.bool_(True), "True"),
        (jax.random.key(0), "key<fry>[]"),
        (["a"] * 8, "8: a, a, a, a, a, a and 2 more"),
        ("x" * 90, "'" + "x" * 79 + "..."),
    ],
)
def test_values_in_one_line(value, text):
    assert describe_value(value) == text
