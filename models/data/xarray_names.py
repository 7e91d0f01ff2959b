"""Datasets with names of their own, renamed to those that `read_dataset` reads."""

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["own_names"]


def own_names(dataset: Any, sequence: Any, agent: Any, time: Any, features: Any) -> Any:
    """The Dataset with dims ``sequence``, ``time`` and ``feature``; parameters of ``Trajectories.from_xarray``."""
    dims = list(dataset.dims)
    for argument, name in (("sequence", sequence), ("agent", agent), ("time", time)):
        if not isinstance(name, str):
            raise TypeError(f"{argument} is {name!r}: give the name of a dim of the dataset")
    chosen = [features] if isinstance(features, str) else features
    chosen = list(chosen) if isinstance(chosen, Iterable) else [None]
    if not all(isinstance(name, str) for name in chosen):
        raise TypeError(f"features is {features!r}: give the name of a dim, or of variables")
    for argument, name in (("sequence", sequence), ("time", time)):
        if name not in (argument, *dims) and not (argument == "sequence" and agent in dims):
            raise ValueError(f"{argument} is {name!r}, but the dataset has dims {dims}: name one")
    if not chosen:
        raise ValueError("features is empty: give the name of a dim, or of variables")
    by_dim = len(chosen) == 1 and chosen[0] in ("feature", *dims)
    for name in [] if by_dim else chosen:
        if name not in dataset.data_vars:
            raise ValueError(
                f"features names {name!r}, but the dataset has dims {dims} and variables "
                f"{sorted(map(str, dataset.data_vars))}: name a dim, or variables"
            )
    if not by_dim:
        dataset = _with_observations(dataset, chosen, {sequence, agent, time})
        chosen = ["feature"]
    if agent in dataset.dims and agent != sequence:
        dataset = _one_row_an_agent(dataset, sequence, agent)
        sequence, agent = "sequence", "agent"
    wanted = {sequence: "sequence", time: "time", chosen[0]: "feature", agent: "agent"}
    known = {*dataset.variables, *dataset.dims}
    present = {name: own for name, own in wanted.items() if name != own and name in known}
    for name, own in present.items():
        if own in known:
            raise ValueError(f"the dataset has both {name!r} and {own!r}: drop or rename {own!r}")
    return dataset.rename(present)


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
    kept = dataset.drop_vars([name for name in (agent, sequence) if name in dataset.coords])
    kept = kept.stack(rows=(sequence, agent), create_index=False)
    kept = kept.drop_vars("sequence", errors="ignore").rename(rows="sequence")
    if labels.dtype.kind in "OUT":
        names, labels = np.unique(labels.astype(str), return_inverse=True)
        kept = kept.assign_coords(agent_names=("agent_names", names))
    return kept.assign(
        agent=("sequence", np.tile(labels, groups)),
        group=("sequence", np.repeat(np.arange(groups), count)),
    )
