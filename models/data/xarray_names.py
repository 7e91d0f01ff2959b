"""Datasets with names of their own, renamed to those that `read_dataset` reads."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

__all__ = ["own_names"]


def own_names(dataset: Any, sequence: Any, agent: Any, time: Any, features: Any) -> Any:
    """The Dataset with dims ``sequence``, ``time`` and ``feature``; parameters of ``Trajectories.from_xarray``."""
    names = {"sequence": sequence, "agent": agent, "time": time}
    for argument, name in names.items():
        if not isinstance(name, str):
            raise TypeError(f"{argument} is {name!r}: give the name of a dim of the dataset")
    chosen = [features] if isinstance(features, str) else features
    chosen = list(chosen) if isinstance(chosen, Iterable) else [None]
    if not all(isinstance(name, str) for name in chosen):
        raise TypeError(f"features is {features!r}: give the name of a dim, or of variables")
    for argument, name, own in (("sequence", sequence, "sequence"), ("time", time, "time")):
        if (
            name != own
            and name not in dataset.dims
            and not (argument == "sequence" and agent in dataset.dims)
        ):
            raise ValueError(
                f"{argument} is {name!r}, but the dataset has dims {_dims_of(dataset)}: name one"
            )
    if not chosen:
        raise ValueError("features is empty: give the name of a dim, or of variables")
    by_dim = len(chosen) == 1 and (chosen[0] in dataset.dims or chosen == ["feature"])
    for name in [] if by_dim else chosen:
        if name not in dataset.data_vars:
            raise ValueError(
                f"features names {name!r}, but the dataset has dims {_dims_of(dataset)} and variables "
                f"{sorted(map(str, dataset.data_vars))}: name a dim, or variables"
            )
    if not by_dim:
        dataset = _with_observations(dataset, chosen, {sequence, agent, time})
        chosen = ["feature"]
    if agent in dataset.dims and agent != sequence:
        dataset = _one_row_an_agent(dataset, sequence, agent)
        sequence, agent = "sequence", "agent"
    wanted = {sequence: "sequence", time: "time", chosen[0]: "feature", agent: "agent"}
    present = {
        name: own
        for name, own in wanted.items()
        if name != own and (name in dataset.variables or name in dataset.dims)
    }
    for name, own in present.items():
        if own in dataset.variables or own in dataset.dims:
            raise ValueError(f"the dataset has both {name!r} and {own!r}: drop or rename {own!r}")
    return dataset.rename(present)


def _dims_of(dataset: Any) -> list[Hashable]:
    return list(dataset.dims)


def _with_observations(dataset: Any, names: list[str], lead: set[str]) -> Any:
    import xarray

    if "observations" in dataset and names != ["observations"]:
        raise ValueError("features names variables, but the dataset has observations too: drop one of them")
    if len(names) == 1 and len(rest := [dim for dim in dataset[names[0]].dims if dim not in lead]) == 1:
        dataset = dataset.rename({names[0]: "observations"} if names[0] != "observations" else {})
        return dataset.rename({rest[0]: "feature"} if rest[0] != "feature" else {})
    for name in names:
        if extra := [dim for dim in dataset[name].dims if dim not in lead]:
            raise ValueError(f"features names {name!r}, which has dims {extra} too: pass sequence= and time=")
    joined = xarray.concat(
        [dataset[name] for name in names], dim="feature", coords="minimal", compat="override"
    )
    units = [str(dataset[name].attrs.get("units", "")) for name in names]
    own = {"feature": names} | ({"feature_units": ("feature", units)} if any(units) else {})
    return (
        dataset.drop_vars(names)
        .assign(observations=joined.drop_vars([name for name in joined.coords if name not in joined.dims]))
        .assign_coords(own)
    )


def _one_row_an_agent(dataset: Any, sequence: str, agent: str) -> Any:
    """Agents of each sequence as sequences of their own, which share a group."""
    labels = dataset[agent].values if agent in dataset.coords else np.arange(dataset.sizes[agent])
    if sequence not in dataset.dims:
        dataset = dataset.expand_dims(sequence)
    groups, count = dataset.sizes[sequence], dataset.sizes[agent]
    text = labels.dtype.kind in "OUT"
    number = np.unique(labels.astype(str), return_inverse=True) if text else (None, labels)
    kept = dataset.drop_vars([name for name in (agent, sequence) if name in dataset.coords])
    spread = [name for name in kept.data_vars if {agent, sequence} & set(kept[name].dims)]
    lead = {name: kept[name].broadcast_like(_grid(sequence, groups, agent, count))
            for name in spread}  # fmt: skip
    kept = kept.drop_vars(spread).assign(lead).stack(rows=(sequence, agent), create_index=False)
    if "sequence" in kept.dims or "sequence" in kept.variables:
        kept = kept.drop_vars("sequence", errors="ignore")
    kept = kept.rename(rows="sequence")
    if number[0] is not None:
        kept = kept.assign_coords(agent_names=("agent_names", number[0]))
    return kept.assign(
        agent=("sequence", np.tile(np.asarray(number[1]), groups)),
        group=("sequence", np.repeat(np.arange(groups), count)),
    )


def _grid(sequence: str, groups: int, agent: str, count: int) -> Any:
    import xarray

    return xarray.DataArray(np.zeros((groups, count)), dims=(sequence, agent))
