"""What `ethogram fit` reads: from files to data and a model, or one model per number of roles, with their code."""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpyro.distributions import HalfCauchy

import ethogram
from ethogram.commands.fit import FRAMES, GROUPS, MOVING, READERS, TABLES, flag
from ethogram.commands.fit_emissions import emission_of, kinds_of, usual_units
from ethogram.fits.as_code import as_code
from ethogram.models.data import group_labels

__all__ = ["Program", "as_flags", "read_models"]

APART = 50.0
"""Relevance of the number of a state by which the rewards of any two states are independent a priori."""

OF_FEATURES = ("max_entropy", "levine")
"""Methods whose rewards are none without features."""


WIDTH = 88
"""Characters of a line of code that is not broken."""

ARGUMENTS = {name for options in GROUPS.values() for name in options}
PASSED = re.compile(
    r"(?P<pass>pass )?\b(?P<name>\w+)=(?P<quote>[\"']?)(?P<value>\S*?)(?P=quote)(?=[\s,.:;)]|$)"
)
"""An argument of Python in a message, ``pass missing="nan"``."""


class Program(NamedTuple):
    """Data, and the model of each size; where the model has no size to pick, `sizes` is (0,).

    `lines` make the data in Python; `model` makes the model where its own code is long. `positions` are those that
    steps and turns were made of.
    """

    data: Any
    lines: tuple[str, ...]
    make_model: Callable[[int], Any]
    sizes: tuple[int, ...] = (0,)
    model: str = ""
    positions: Any = None


def read_models(arguments: argparse.Namespace) -> Program:
    """Data and model of checked arguments."""
    return PROGRAMS[arguments.model](arguments)


def _made(name: str, function: str, first: Any, **named: Any) -> tuple[Any, str]:
    """What a function makes of a path or of data, and the line of Python that gives it this name."""
    module, *names = function.split(".")
    words = [repr(first) if isinstance(first, str | list) else "data"]
    words += [f"{each}={as_code(value)}" for each, value in named.items()]
    text = f"{name} = {function}({', '.join(words)})"
    if len(text) > WIDTH:
        text = f"{name} = {function}(\n    " + ",\n    ".join(words) + ",\n)"
    make: Any = functools.reduce(getattr, names, import_module(module))
    return make(first, **named), text


def as_flags(message: str) -> str:
    """A message of a Python function with arguments of the command in place of its own."""

    def spelled(match: re.Match[str]) -> str:
        asked, name, value = match["pass"] or "", match["name"], match["value"]
        if name in ARGUMENTS and (name != "snap" or value == "True"):  # --snap takes no number
            return asked + flag(name) + ("" if value in ("", "True") else f" {shlex.quote(value)}")
        return f"pass --read {name}={value}" if asked else match[0]

    return PASSED.sub(spelled, re.sub(r"metadata\.(state|action)_names", "--transitions", message))


@contextlib.contextmanager
def _of(place: str) -> Iterator[None]:
    """Messages of Python functions, with the place in front and as flags."""
    try:
        yield
    except (TypeError, ValueError) as error:
        message = as_flags(str(error))
        raise ValueError(message if place in message else f"{place}: {message}") from error


def _given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}


def _read(
    function: str, arguments: argparse.Namespace, names: Iterable[str], **named: Any
) -> tuple[Any, str]:
    """Data of the files, by a function of Python, with those of these arguments that are given, and its line."""
    files = arguments.data if len(arguments.data) > 1 else arguments.data[0]
    with _of(files if isinstance(files, str) else f"{len(files)} files"):
        read = dict(arguments.read)
        if arguments.egocentric is not None:
            read.pop("swapped", None)  # an argument of egocentric
        return _made("data", function, files, **_given(arguments, names), **read, **named)


def _frames(arguments: argparse.Namespace, names: dict[str, Any], **behaviour: Any) -> tuple[Any, str]:
    """Trajectories of a table with these names and units, and these columns of behaviour, and their line."""
    metadata = ethogram.Metadata(name=_name(arguments), **names)
    function, taken = "ethogram.Trajectories.from_table", (*FRAMES, "max_speed", *MOVING)
    return _read(function, arguments, taken, **behaviour, metadata=metadata)


def _name(arguments: argparse.Namespace) -> str:
    """Name of the data: that of the file, of several that of the first and their number."""
    first, *others = arguments.data
    return Path(first).name + (f" and {len(others)} more" if others else "")


def _roles(arguments: argparse.Namespace) -> Program:
    data, lines, positions = _features(arguments, arguments.features)
    kinds, names = kinds_of(arguments.emission, data), data.metadata.feature_names
    together = sorted(names, key=lambda name: kinds.index(kinds[names.index(name)]))
    if names == tuple(arguments.features or ()) != tuple(together):  # of a table
        data, lines, positions = _features(arguments, together)
        kinds, names = [kinds[names.index(name)] for name in together], tuple(together)
    emission = emission_of(kinds, data)
    print("emission:", ", ".join(f"{name} {kind}" for name, (kind, _) in zip(names, kinds, strict=True)))
    sizes = tuple(arguments.num_roles or range(2, 9))
    transition = _transition(arguments, data)
    if transition is not None and len(sizes) > 1:
        raise ValueError("--formula and --vary need one number of roles: give --num-roles 3, say")
    if len(sizes) > 1 and len(np.unique(group_labels(data))) < 2:
        held_out = "sequences" if data.group is None else "groups"
        raise ValueError(
            f"--num-roles {sizes[0]}:{sizes[-1]} needs at least two {held_out} for held-out scores: give a single "
            "number"
        )
    make = functools.partial(ethogram.RoleHMM, emission=emission, transition=transition)
    make(sizes[-1])  # the largest may be refused
    return Program(data, tuple(lines), make, sizes, positions=positions)


def _transition(arguments: argparse.Namespace, data: Any) -> Any:
    """Covariates of the switching of roles; None without any."""
    names = [name if name.isidentifier() else f"`{name}`" for name in arguments.covariates or ()]
    formula = arguments.formula or " + ".join(names)
    if not formula and arguments.vary is None:
        return None
    with _of("--formula" if arguments.formula else "--covariates" if formula else "--vary"):
        transition = ethogram.Covariates(formula, vary=arguments.vary)
        transition.check(data)
    return transition


def _features(arguments: argparse.Namespace, features: Any) -> tuple[Any, list[str], Any]:
    """Features, of a table in this order, or what is made of them; lines that make them; positions of steps."""
    reader = arguments.reader or "table"
    if reader == "table":
        unit_of = dict(
            zip(arguments.features, _units(arguments, usual_units(arguments.features)), strict=True)
        )
        units = [unit_of[name] for name in features]
        named = {"feature_units": units} if any(units) else {}
        data, line = _frames(arguments, named, features=features)
    else:
        metres = {"metres": not arguments.step_and_turn} if reader == "movebank" else {}
        data, line = _read(f"ethogram.tracking.read_{reader}", arguments, READERS[reader], **metres)
    lines, positions = [line], data if arguments.step_and_turn else None
    if arguments.egocentric is not None:
        if len(arguments.egocentric) != 2:
            raise ValueError("--egocentric needs two keypoints: give centre and heading, such as tail,nose")
        centre, heading = arguments.egocentric
        with _of("--egocentric"):
            function, options = "ethogram.tracking.egocentric", {"keep_motion": True}
            options |= {name: value for name, value in dict(arguments.read).items() if name == "swapped"}
            data, line = _made("data", function, data, centre=centre, heading=heading, **options)
        lines.append(line)
    if arguments.step_and_turn:
        with _of("--step-and-turn"):
            given = _given(arguments, ("zero_steps", "smallest"))
            data, line = _made("data", "ethogram.step_and_turn", data, **given)
        lines.append(line)
    return data, lines, positions


def _units(arguments: argparse.Namespace, usual: list[str]) -> list[str]:
    """Units of the features, one for each."""
    units = usual if arguments.units is None else [unit.strip() for unit in arguments.units]
    if len(units) != len(arguments.features):
        raise ValueError(
            f"--units has {len(units)} entries, --features {len(arguments.features)}: give one per feature"
        )
    return units


def _intents(arguments: argparse.Namespace) -> Program:
    data, line = _frames(arguments, {}, states=arguments.states, actions=arguments.actions)
    names = data.metadata
    model = ethogram.AgentMarkov(
        num_states=_count(arguments.num_states, "--num-states", data.states, names.state_names),
        num_actions=_count(arguments.num_actions, "--num-actions", data.actions, names.action_names),
        truncation=arguments.truncation or 10,
    )
    return Program(data, (line,), lambda size: model)


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
    units = None if arguments.units is None else _units(arguments, [])
    metadata = ethogram.Metadata(name=_name(arguments), feature_units=units)
    data, line = _read("ethogram.Decisions.from_table", arguments, names, metadata=metadata)
    if not (np.asarray(data.choice) >= 0).any():
        raise ValueError(f"--chosen is {arguments.chosen!r}, and no row of it is 1: mark the chosen options")
    constants = arguments.constants or ("yes" if arguments.option else "no")
    kappa, code = arguments.kappa or 25.0, ""
    if arguments.subject is not None and arguments.kappa is None:  # how subjects differ is learned
        prior = "numpyro.distributions.HalfCauchy(1.0)"
        kappa, rest = HalfCauchy(1.0), f"kind='features', action_rewards={constants == 'yes'}"
        code = f"model = ethogram.NoisyMDP({prior}, {rest})"
    model = ethogram.NoisyMDP(kappa, kind="features", action_rewards=constants == "yes")
    return Program(data, (line,), lambda size: model, model=code)


def _rewards(arguments: argparse.Namespace) -> Program:
    path, discount = str(arguments.transitions), arguments.discount
    with _of(f"--transitions {path}"):
        mdp, first = _made("mdp", "ethogram.mdps.read_mdp", path, discount=discount)
    names = {name: getattr(mdp, name) for name in ("state_names", "action_names")}
    data, line = _frames(arguments, names, states=arguments.states, actions=arguments.actions)
    for name, labels in names.items():
        line = line.replace(f"{name}={labels!r}", f"{name}=mdp.{name}")
    if arguments.state_features is not None:
        source = str(arguments.state_features)
        with _of(f"--state-features {source}"):
            model = ethogram.GPIRL(mdp, ethogram.mdps.read_state_features(source, mdp))
        text = f"ethogram.mdps.read_state_features({source!r}, mdp)"
    elif arguments.method in OF_FEATURES:
        raise ValueError(
            f"--method {arguments.method} learns what features of states are worth: give --state-features"
        )
    else:
        model = ethogram.GPIRL(mdp, np.arange(float(mdp.num_states))[:, None], relevance_prior=APART)
        text = f"np.arange(float(mdp.num_states))[:, None], relevance_prior={APART}"
    return Program(data, (first, line), lambda size: model, model=f"model = ethogram.GPIRL(mdp, {text})")


PROGRAMS = {"roles": _roles, "intents": _intents, "choices": _choices, "rewards": _rewards}
