"""What `ethogram fit` reads: from files to data and a model, or one model per number of roles, with their code."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ethogram.commands.fit import FRAMES, GROUPS, READERS, TABLES, flag
from ethogram.commands.fit_emissions import emission_of, kinds_of, usual_units
from ethogram.commands.python_code import Code, call, resolve
from ethogram.models.arguments import require_one_of
from ethogram.models.data import group_labels

__all__ = ["Program", "read_models"]

APART = 50.0
"""Relevance of the number of a state by which the rewards of any two states are independent a priori."""

OF_FEATURES = ("max_entropy", "levine")
"""Methods whose rewards are none without features."""


ARGUMENTS = {name for options in GROUPS.values() for name in options}
PASSED = re.compile(
    r"(?P<pass>pass )?\b(?P<name>\w+)=(?P<quote>[\"']?)(?P<value>\S*?)(?P=quote)(?=[\s,.:;)]|$)"
)
"""An argument of Python in a message, ``pass missing="nan"``."""


class Program(NamedTuple):
    """Data, and the model of each size; where the model has no size to pick, `sizes` is (0,).

    `lines` are the assignments before that of the model, in Python.
    """

    data: Any
    make_model: Callable[[int], Code]
    lines: tuple[str, ...]
    sizes: tuple[int, ...] = (0,)


def read_models(arguments: argparse.Namespace) -> Program:
    """Data and model of checked arguments.

    Raises
    ------
    TypeError, ValueError : a file, column or value is not as expected; the message names the argument or the file.
    """
    return PROGRAMS[arguments.model](arguments)


@contextlib.contextmanager
def _of(place: str) -> Iterator[None]:
    """Messages of Python functions, with the place in front, and arguments of the command in place of theirs."""

    def spelled(match: re.Match[str]) -> str:
        asked, name, value = match["pass"] or "", match["name"], match["value"]
        if name in ARGUMENTS:
            return asked + flag(name) + ("" if value in ("", "True") else f" {shlex.quote(value)}")
        return f"pass --read {name}={value}" if asked else match[0]

    try:
        yield
    except (TypeError, ValueError) as error:
        message = PASSED.sub(spelled, re.sub(r"metadata\.(state|action)_names", "--transitions", str(error)))
        raise ValueError(message if place in message else f"{place}: {message}") from error


def _given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}


def _read(function: str, arguments: argparse.Namespace, names: Iterable[str], **named: Any) -> Code:
    """Data of the files, by a function of Python, with those of these arguments that are given."""
    given = _given(arguments, names)
    further = dict(arguments.read)
    takes = inspect.signature(resolve(function)).parameters
    for name in further:
        require_one_of("--read", name, sorted(takes.keys() - {*given, *named, "table", "path"}))
    files = arguments.data if len(arguments.data) > 1 else arguments.data[0]
    with _of(files if isinstance(files, str) else f"{len(files)} files"):
        return call(function, files, **given, **further, **named)


def _frames(arguments: argparse.Namespace, names: dict[str, Any], **behaviour: Any) -> Code:
    """Trajectories of a table with these names and units, and these columns of behaviour."""
    metadata = call("ethogram.Metadata", name=_name(arguments), **names)
    return _read(
        "ethogram.Trajectories.from_table", arguments, (*FRAMES, "max_speed"), **behaviour, metadata=metadata
    )


def _name(arguments: argparse.Namespace) -> str:
    """Name of the data: that of the file, of several that of the first and their number."""
    first, *others = arguments.data
    return Path(first).name + (f" and {len(others)} more" if others else "")


def _roles(arguments: argparse.Namespace) -> Program:
    data = _features(arguments, arguments.features)
    kinds = kinds_of(arguments.emission, data.value)
    names: tuple[str, ...] = data.value.metadata.feature_names
    together = sorted(names, key=lambda name: kinds.index(kinds[names.index(name)]))
    if names == tuple(arguments.features or ()) != tuple(together):  # of a table
        data, kinds = _features(arguments, together), [kinds[names.index(name)] for name in together]
        names = tuple(together)
    emission = emission_of(kinds, data.value)
    print("emission:", ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, kinds, strict=True)))
    sizes = tuple(arguments.num_roles or range(2, 9))
    if len(sizes) > 1 and len(np.unique(group_labels(data.value))) < 2:
        held_out = "sequences" if data.value.group is None else "groups"
        raise ValueError(
            f"--num-roles {sizes[0]}:{sizes[-1]} needs at least two {held_out} for held-out scores: give a single "
            "number"
        )
    lines = (f"data = {data.text}",)
    return Program(data.value, lambda size: call("ethogram.RoleHMM", size, emission), lines, sizes)


def _features(arguments: argparse.Namespace, features: Any) -> Code:
    """Data with features: those of a table in this order, those of other files as they are, or steps and turns."""
    reader = arguments.reader or "table"
    if reader == "table":
        units = [unit.strip() for unit in arguments.units or usual_units(arguments.features)]
        if len(units) != len(arguments.features):
            raise ValueError(
                f"--units has {len(units)} entries, --features {len(arguments.features)}: give one per feature"
            )
        unit_of = dict(zip(arguments.features, units, strict=True))
        named = {"feature_units": [unit_of[name] for name in features]} if any(units) else {}
        data = _frames(arguments, named, features=features)
    else:
        metres = {"metres": not arguments.step_and_turn} if reader == "movebank" else {}
        data = _read(f"ethogram.tracking.read_{reader}", arguments, READERS[reader], **metres)
    if arguments.egocentric is not None:
        if len(arguments.egocentric) != 2:
            raise ValueError("--egocentric needs two keypoints: give centre and heading, such as tail,nose")
        centre, heading = arguments.egocentric
        with _of("--egocentric"):
            data = call(
                "ethogram.tracking.egocentric", data, centre=centre, heading=heading, keep_motion=True
            )
    if not arguments.step_and_turn:
        return data
    with _of("--step-and-turn"):
        return call("ethogram.step_and_turn", data, **_given(arguments, ("zero_steps", "smallest")))


def _intents(arguments: argparse.Namespace) -> Program:
    data = _frames(arguments, {}, states=arguments.states, actions=arguments.actions)
    names = data.value.metadata
    model = call(
        "ethogram.AgentMarkov",
        _count(arguments.num_states, "--num-states", data.value.states, names.state_names),
        _count(arguments.num_actions, "--num-actions", data.value.actions, names.action_names),
        truncation=arguments.truncation or 10,
    )
    return Program(data.value, lambda size: model, (f"data = {data.text}",))


def _count(given: int | None, argument: str, codes: Any, names: Iterable[str] | None) -> int:
    """How many states or actions there are: those of the data, unless more are given."""
    found = int(np.max(np.asarray(codes), initial=-1)) + 1 if names is None else len(tuple(names))
    if given is None:
        return max(found, 1)
    if given < found:
        raise ValueError(f"{argument} is {given}, but the data have {found}: give at least {found}")
    if names is not None and given > found:
        raise ValueError(
            f"{argument} is {given}, but the column has {found} names: leave it out, or use numbers"
        )
    return given


def _choices(arguments: argparse.Namespace) -> Program:
    names = ("decision", "option", "chosen", "features", "subject", "weight", "available", *TABLES)
    metadata = call("ethogram.Metadata", name=_name(arguments))
    data = _read("ethogram.Decisions.from_table", arguments, names, metadata=metadata)
    if not (np.asarray(data.value.choice) >= 0).any():
        raise ValueError(f"--chosen is {arguments.chosen!r}, and no row of it is 1: mark the chosen options")
    model = call("ethogram.NoisyMDP", arguments.kappa or 25.0, kind="features")
    return Program(data.value, lambda size: model, (f"data = {data.text}",))


def _rewards(arguments: argparse.Namespace) -> Program:
    with _of(f"--transitions {arguments.transitions}"):
        made = call("ethogram.mdps.read_mdp", arguments.transitions, discount=arguments.discount)
    mdp = Code(made.value, "mdp")
    names = {name: Code(getattr(mdp.value, name), f"mdp.{name}") for name in ("state_names", "action_names")}
    data = _frames(arguments, names, states=arguments.states, actions=arguments.actions)
    if arguments.state_features is not None:
        with _of(f"--state-features {arguments.state_features}"):
            features = call("ethogram.mdps.read_state_features", arguments.state_features, mdp)
        model = call("ethogram.GPIRL", mdp, features)
    elif arguments.method in OF_FEATURES:
        raise ValueError(
            f"--method {arguments.method} learns what features of states are worth: give --state-features"
        )
    else:
        number = Code(
            np.arange(mdp.value.num_states, dtype=float)[:, None],
            "np.arange(mdp.num_states, dtype=float)[:, None]",
        )
        model = call("ethogram.GPIRL", mdp, number, relevance_prior=APART)
    return Program(data.value, lambda size: model, (f"mdp = {made.text}", f"data = {data.text}"))


PROGRAMS = {"roles": _roles, "intents": _intents, "choices": _choices, "rewards": _rewards}
