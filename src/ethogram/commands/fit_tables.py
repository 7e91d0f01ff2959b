"""Tables of `ethogram fit`: from CSV files to data and a model, or to a function from a number of roles to one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ethogram.commands.fit import FRAMES, flag
from ethogram.commands.transition_tables import read_mdp, read_state_features
from ethogram.commands.typed_tables import named, numeric, read_csv, refuse_rows, require_columns
from ethogram.models.choices import Decisions, NoisyMDP
from ethogram.models.data import Metadata, Trajectories, group_labels
from ethogram.models.data.angles import RADIANS
from ethogram.models.data.columns import label_columns
from ethogram.models.emissions import GammaEmission, GaussianEmission, ProductEmission, VonMisesEmission
from ethogram.models.emissions.emission import Emission
from ethogram.models.intents import AgentMarkov
from ethogram.models.rewards import GPIRL
from ethogram.models.roles import RoleHMM

if TYPE_CHECKING:
    import pandas

__all__ = ["SizedModels", "read_models"]

COLUMNS = (
    *("sequence", "time", "agent", "group", "subject", "features", "states", "actions"),
    *("decision", "option", "chosen", "available", "weight"),
)
"""Arguments that name columns of the table."""

IDENTIFIERS, LABELS = ("sequence", "decision", "option"), ("agent", "group", "subject", "states", "actions")
"""Those of columns that are text, or integers where all entries are; the first have no missing entry."""

APART = 50.0
"""Relevance of the number of a state by which the rewards of any two states are independent a priori."""

OF_FEATURES = ("max_entropy", "levine")
"""Methods whose rewards are none without features."""


class SizedModels(NamedTuple):
    """Data, and the model of each size; where the model has no size to pick, `sizes` is (0,)."""

    data: Any
    make_model: Callable[[int], Any]
    sizes: tuple[int, ...] = (0,)


def read_models(arguments: argparse.Namespace) -> SizedModels:
    """Data and model of checked arguments.

    Raises
    ------
    ValueError : a file, column or value is not as expected; the message names the argument or the file.
    """
    table = _table(arguments)
    require_columns(arguments.table, table, {flag(name): getattr(arguments, name) for name in COLUMNS})
    try:
        return READERS[arguments.model](arguments, table)
    except (TypeError, ValueError) as error:
        message = str(error)
        raise ValueError(message if message.startswith("--") else f"{arguments.table}: {message}") from error


def _table(arguments: argparse.Namespace, **names: Iterable[str]) -> pandas.DataFrame:
    """The table, whose labels are text; `names` are those that labels of some arguments are known to have."""

    def columns(*of: str) -> list[str]:
        return [column for name in of for column in _listed(getattr(arguments, name))]

    labels = [(column, names.get(name)) for name in LABELS for column in columns(name)]
    return read_csv(
        "DATA.csv", arguments.table, label_columns(columns(*IDENTIFIERS), labels, columns("features"))
    )


def _listed(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _frames(
    arguments: argparse.Namespace, table: pandas.DataFrame, metadata: Metadata, **behaviour: Any
) -> Trajectories:
    """Trajectories of the columns of behaviour, which are named as arguments are."""
    _check_times(arguments, table)
    if arguments.missing != "nan":
        for name, columns in behaviour.items():
            for column in _listed(columns):
                cells = table[column]
                refuse_rows(flag(name), cells, cells.isna(), ": fill it in, or pass --missing nan")
    given = {name: getattr(arguments, name) for name in FRAMES if getattr(arguments, name) is not None}
    return Trajectories.from_table(table, metadata=metadata, **given, **behaviour)


def _check_times(arguments: argparse.Namespace, table: pandas.DataFrame) -> None:
    step, time = arguments.step, arguments.time
    for name, needed, what in (
        ("step", "time", "the column of times"),
        ("snap", "step", "the time between frames"),
    ):
        if getattr(arguments, name) is not None and getattr(arguments, needed) is None:
            raise ValueError(f"--{name} needs --{needed}: give {what}")
    if step is None:
        return
    are_numbers = table[time].dtype.kind in "iuf"
    if are_numbers and isinstance(step, str):
        raise ValueError(f"--step is {step!r}, but the times in --time {time} are numbers: give a number")
    if not are_numbers and not isinstance(step, str):
        raise ValueError(
            f"--step is {step:g}, but the times in --time {time} are not numbers: give a duration such as 1s or 10min"
        )


def _roles(arguments: argparse.Namespace, table: pandas.DataFrame) -> SizedModels:
    features = arguments.features
    given = arguments.units or ["rad" if name.lower() == "turn" else "" for name in features]
    if len(given) != len(features):
        raise ValueError(
            f"--units has {len(given)} entries, --features {len(features)}: give one per feature"
        )
    units = dict(zip(features, given, strict=True))
    emission, features = _emission(units)
    own = [units[name] for name in features] if any(given) else None
    names = Metadata(name=arguments.table.name, feature_units=own)
    data = _frames(arguments, numeric(table, "--features", features), names, features=features)
    sizes = tuple(arguments.num_roles or range(2, 9))
    if len(sizes) > 1 and len(np.unique(group_labels(data))) < 2:
        held_out = "sequences" if data.group is None else "groups"
        raise ValueError(
            f"--num-roles {sizes[0]}:{sizes[-1]} needs at least two {held_out} for held-out scores: give a single "
            "number"
        )
    return SizedModels(data, lambda size: RoleHMM(size, emission), sizes)


def _emission(units: dict[str, str]) -> tuple[Emission, list[str]]:
    """The emission of features by their units, and the features in its order: others, ``step`` and angles in radians.

    One Gaussian, a gamma distribution, and von Mises distributions.
    """
    angles = [name for name, unit in units.items() if unit.lower() in RADIANS]
    step = [name for name in units if name.lower() == "step" and name not in angles]
    others = [name for name in units if name not in (*angles, *step)]
    if others and not angles and not step:
        return GaussianEmission(len(others)), others
    parts: dict[str, Emission] = {}
    if others:
        parts["others"] = GaussianEmission(len(others))
    if step:
        parts["step"] = GammaEmission()
    if angles:
        parts["turn" if angles == ["turn"] else "angles"] = VonMisesEmission(len(angles))
    return ProductEmission(parts), [*others, *step, *angles]


def _intents(arguments: argparse.Namespace, table: pandas.DataFrame) -> SizedModels:
    states, actions = arguments.states, arguments.actions
    data = _frames(arguments, table, Metadata(name=arguments.table.name), states=states, actions=actions)
    names = data.metadata
    model = AgentMarkov(
        num_states=_count(arguments.num_states, "--num-states", data.states, names.state_names),
        num_actions=_count(arguments.num_actions, "--num-actions", data.actions, names.action_names),
        truncation=arguments.truncation or 10,
    )
    return SizedModels(data, lambda size: model)


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


def _choices(arguments: argparse.Namespace, table: pandas.DataFrame) -> SizedModels:
    features = arguments.features
    names = ("decision", "option", "chosen", "subject", "weight", "available")
    given = {name: getattr(arguments, name) for name in names}
    data = Decisions.from_table(
        numeric(table, "--features", features),
        features=features,
        metadata=Metadata(name=arguments.table.name),
        **given,
    )
    if not (np.asarray(data.choice) >= 0).any():
        raise ValueError(f"--chosen is {arguments.chosen!r}, and no row of it is 1: mark the chosen options")
    model = NoisyMDP(arguments.kappa or 25.0, kind="features")
    return SizedModels(data, lambda size: model)


def _rewards(arguments: argparse.Namespace, table: pandas.DataFrame) -> SizedModels:
    mdp = read_mdp(arguments.transitions, arguments.discount)
    states, actions = arguments.states, arguments.actions
    table = _table(arguments, states=mdp.state_names, actions=mdp.action_names)
    table = table.assign(
        **{
            states: named(table, "--states", states, mdp.state_names, arguments.transitions),
            actions: named(table, "--actions", actions, mdp.action_names, arguments.transitions),
        }
    )
    names = Metadata(name=arguments.table.name, state_names=mdp.state_names, action_names=mdp.action_names)
    data = _frames(arguments, table, names, states=states, actions=actions)
    if arguments.state_features is not None:
        model = GPIRL(mdp, read_state_features(arguments.state_features, mdp.state_names))
    elif arguments.method in OF_FEATURES:
        raise ValueError(
            f"--method {arguments.method} learns what features of states are worth: give --state-features"
        )
    else:
        model = GPIRL(mdp, np.arange(mdp.num_states, dtype=float)[:, None], relevance_prior=APART)
    return SizedModels(data, lambda size: model)


READERS = {"roles": _roles, "intents": _intents, "choices": _choices, "rewards": _rewards}
