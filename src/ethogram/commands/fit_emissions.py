"""Emissions of `ethogram fit`: the kind of each feature, as asked for or by its name and unit."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

import ethogram
from ethogram.commands.argument_types import KINDS, Kind
from ethogram.models.data import Trajectories
from ethogram.models.data.angles import AXIS, LATITUDE, LONGITUDE, RADIANS
from ethogram.models.emissions.emission import Emission

__all__ = ["emission_of", "kinds_of", "usual_kinds", "usual_units"]

STEPS = ("step", "step_length", "sl_")
TURNS = ("turn", "turn_angle", "turning_angle", "angle", "ta_")
"""Names of step lengths and turning angles, by step_and_turn, moveHMM and amt."""
LENGTH = re.compile(
    r"([nuµmck]?m|(nano|micro|milli|centi|kilo)?met(re|er)s?|in|ft|feet|mi|miles?|px|pixels?)( ?(/|per) ?\w+|s\^?-1)?"
)
"""Units of lengths and speeds."""
POSITIONS = (LONGITUDE, LATITUDE, AXIS, re.compile("(east|north)(ing)?"))
"""Names of positions, which are lengths but no steps."""
COMPONENTS = 2
"""Components of a mixture, unless their number is given."""


def usual_units(names: Sequence[str]) -> list[str]:
    """Units of features that are given without: radians of turning angles."""
    return ["rad" if name.lower() in TURNS else "" for name in names]


def _recorded(data: Trajectories) -> np.ndarray:
    """Features (frame, feature) of the frames that were recorded."""
    return np.asarray(data.observations)[np.asarray(data.observed)]


def usual_kinds(data: Trajectories) -> list[Kind]:
    """Kinds by names and units: von Mises of angles in radians, gamma of steps, Gaussian of others.

    A step is what is called so, or a length or speed beside an angle that is no position and never negative.
    """
    names = data.metadata.feature_names or ()
    units = [unit.lower() for unit in data.metadata.feature_units or [""] * len(names)]
    lowest = np.nanmin(_recorded(data), axis=0, initial=np.inf)
    beside_angle = any(unit in RADIANS for unit in units)

    def kind(name: str, unit: str, least: float) -> str:
        if unit in RADIANS:
            return "von-mises"
        is_length = LENGTH.fullmatch(unit) and not any(kind.fullmatch(name) for kind in POSITIONS)
        is_step = beside_angle and is_length and least >= 0
        return "gamma" if is_step or name in STEPS else "gaussian"

    return [(kind(name.lower(), *each), None) for name, *each in zip(names, units, lowest, strict=True)]


def kinds_of(asked: dict[str, Kind] | list[Kind] | None, data: Trajectories) -> list[Kind]:
    """The kind of each feature: as asked for by name, in their order, or for all of them; else the usual one."""
    names = data.metadata.feature_names or ()
    if isinstance(asked, list):
        if len(asked) not in (1, len(names)):
            raise ValueError(
                f"--emission has {len(asked)} kinds, and there are {len(names)} features ({', '.join(names)}): give "
                "one for all, or one per feature"
            )
        return asked * (len(names) // len(asked))
    for name in asked or ():
        if name not in names:
            raise ValueError(f"--emission names {name!r}: the features are {', '.join(names)}")
    found = dict(zip(names, usual_kinds(data), strict=True)) | (asked or {})
    return [found[name] for name in names]


def emission_of(kinds: Sequence[Kind], data: Trajectories) -> Emission:
    """The emission of the features, one part for neighbours of one kind, which are jointly Gaussian where they are so.

    Categories are counted in the data where their number is not given.
    """
    names = data.metadata.feature_names or ()
    groups = list[list[int]]()
    for number, each in enumerate(kinds):
        joins = groups and kinds[groups[-1][0]] == each and each[0] != "categorical"
        groups = [*groups[:-1], [*groups[-1], number]] if joins else [*groups, [number]]
    parts = {}
    for group in groups:
        kind, count = kinds[group[0]]
        function, argument = KINDS[kind]
        numbers = {} if kind == "categorical" else {"num_features": len(group)}
        if kind == "categorical" and count is None:
            count = int(np.nanmax(_recorded(data)[:, group], initial=0)) + 1
        count = COMPONENTS if kind == "mixture" and count is None else count
        if kind == "binomial" and count is None:
            raise ValueError("--emission binomial needs the largest count: give binomial:10, say")
        if argument is not None and count is not None:
            numbers[argument] = count
        name = re.sub(r"\W", "_", names[group[0]] if len(group) == 1 else kind)
        parts[name if name.isidentifier() else f"_{name}"] = getattr(ethogram, function)(**numbers)
    return next(iter(parts.values())) if len(parts) == 1 else ethogram.ProductEmission(parts)
