"""What `ethogram mmap` does: reads a network, evidence and a question, and tells the answer."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ethogram.inference.solve_mmap import MarginalMAPResult, solve_mmap
from ethogram.models.bayes_net import BayesNet, MarginalMAP
from ethogram.models.bif import read_bif
from ethogram.models.markov_networks import network_of_factors
from ethogram.models.uai import (
    read_evidence,
    read_factors,
    read_map_variables,
    read_names,
    read_network,
    write_text,
)

__all__ = ["answer", "record", "take_network", "take_variables"]


def answer(
    network: Path, *, evidence: Path | None, variables: str, names: Path | None, method: str, time_limit: float,
    seed: int, json_file: Path | None,
) -> MarginalMAPResult:  # fmt: skip
    """The answer to a question in files; it is printed, and written where there is a place for it.

    Raises
    ------
    OSError, ValueError : a file cannot be read, or says something that does not fit.
    ImpossibleEvidenceError : the evidence has probability zero.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        found, given = take_network(network, names)
    for one in said:
        print(f"ethogram: {one.message}", file=sys.stderr)
    told = {} if evidence is None else read_evidence(evidence, found)
    asked = take_variables(variables, found)
    for argument, numbers in (("--evidence", told), ("--map", asked)):
        beyond = [number for number in numbers if number in given]
        if beyond:
            last = min(given) - 1
            raise ValueError(f"{argument} has {beyond[0]}: variables of {network} are 0..{last}")
    query = MarginalMAP(found, dict(given) | told, asked)
    result = solve_mmap(jax.random.key(seed), query, method, time_limit=time_limit)
    if json_file is not None:
        write_text(json_file, json.dumps(record(result), indent=1) + "\n")
    print(_told(result))
    return result


def take_network(path: Path, names: Path | None = None) -> tuple[BayesNet, Mapping[int, int]]:
    """A network of a UAI file of either kind, or of a BIF file, and the evidence that comes with factors.

    Raises
    ------
    ValueError : as the readers; or there are names for a file that has its own.
    """
    if path.name.removesuffix(".gz").endswith(".bif"):
        if names is not None:
            raise ValueError(f"--names {names}: {path.name} has names of its own")
        return read_bif(path), {}
    found = read_factors(path)
    if found.kind == "BAYES":
        return read_network(path, names), {}
    return network_of_factors(found, **({} if names is None else read_names(names)))


def take_variables(text: str, network: BayesNet) -> tuple[int, ...]:
    """Variables of a query file, or of a list with commas, by number or name.

    Raises
    ------
    ValueError : there is no such file and no such variable.
    """
    if os.path.exists(text):
        return read_map_variables(text, network)
    said = [word.strip() for word in text.split(",") if word.strip()]
    found = []
    for word in said:
        known = word in network.names or not word.isdecimal()
        found.append(
            network.variable(word if known else int(word), "--map, neither a file nor a list of variables,")
        )
    return tuple(found)


def record(result: MarginalMAPResult) -> dict[str, Any]:
    """The answer as JSON has it: a probability of zero is null, and `possible` is false."""
    possible = result.log_probability > -math.inf
    return {
        "assignment": {name: _plain(state) for name, state in result.assignment.items()},
        "log_probability": result.log_probability if possible else None,
        "possible": possible,
        "kind": result.kind,
        "upper_bound": result.upper_bound if math.isfinite(result.upper_bound) else None,
        "proved_optimal": result.proved_optimal,
        "method": result.method,
        "seconds": result.seconds,
    }


def _plain(state: Any) -> Any:
    return int(state) if isinstance(state, np.integer) else state


def _told(result: MarginalMAPResult) -> str:
    lines = [f"{name} = {state}" for name, state in result.assignment.items()]
    if result.log_probability == -math.inf:
        lines.append("log probability: -inf: no answer that is possible was found")
    else:
        kind = "" if result.kind == "exact" else " (a Bethe estimate)"
        lines.append(f"log probability: {result.log_probability:.6f}{kind}")
    if result.proved_optimal:
        lines.append("proved: no other answer is more probable")
    elif math.isfinite(result.upper_bound):
        lines.append(f"not proved; no answer is above {result.upper_bound:.6f}")
    else:
        lines.append("not proved")
    lines.append(f"{result.method}, {result.seconds:.2f} s")
    return "\n".join(lines)
