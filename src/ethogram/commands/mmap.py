"""The command `ethogram mmap`: reads a network, evidence and MAP variables from files, and prints the answer."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import jax

from ethogram.inference.networks.solve_mmap import MarginalMAPResult, solve_mmap
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.read_network import read
from ethogram.models.networks.tokens import write_text
from ethogram.models.networks.uai import read_evidence, read_map_variables

__all__ = ["answer", "record", "take_variables"]


def answer(
    network: Path,
    *,
    evidence: Path | None,
    variables: str,
    names: Path | None,
    method: str,
    time_limit: float,
    seed: int,
    json_file: Path | None,
) -> MarginalMAPResult:
    """The result of a marginal MAP query given by files; printed, and written to a JSON file where one is given.

    An OSError or ValueError where a file cannot be read or is malformed; ImpossibleEvidenceError as `solve_mmap`.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found, of_factors = read(network, names)
    for warning in caught:
        print(f"ethogram: {warning.message}", file=sys.stderr)
    observed = {} if evidence is None else read_evidence(evidence, found)
    maximised = take_variables(variables, found)
    for argument, numbers in (("--evidence", observed), ("--map", maximised)):
        for number in numbers:
            if number in of_factors:
                outside = f"outside 0..{min(of_factors) - 1}, the variables of {network}"
                raise ValueError(f"{argument}: variable {number} is {outside}")
    query = MarginalMAP(found, of_factors | observed, maximised)
    result = solve_mmap(jax.random.key(seed), query, method, time_limit=time_limit)
    if json_file is not None:
        write_text(json_file, json.dumps(record(result), indent=1) + "\n")
    print(_summary(result))
    return result


def take_variables(text: str, network: BayesNet) -> tuple[int, ...]:
    """MAP variables of a query file, or of a comma-separated list of numbers and names; a ValueError for others."""
    if os.path.exists(text):
        return read_map_variables(text, network)
    found = []
    for word in (word.strip() for word in text.split(",")):
        if word:
            named = word in network.names or not word.isdecimal()
            found.append(network.variable(word if named else int(word), "--map (not a file)"))
    return tuple(found)


def record(result: MarginalMAPResult) -> dict[str, Any]:
    """The result as JSON; where no possible assignment was found, that and its log probability are null."""
    possible = result.log_probability > -math.inf
    return {
        "assignment": result.assignment if possible else None,
        "log_probability": result.log_probability if possible else None,
        "possible": possible,
        "kind": result.kind,
        "upper_bound": result.upper_bound if math.isfinite(result.upper_bound) else None,
        "proved_optimal": result.proved_optimal,
        "method": result.method,
        "seconds": result.seconds,
    }


def _summary(result: MarginalMAPResult) -> str:
    lines = []
    if result.assignment is not None and result.log_probability > -math.inf:
        lines += [f"{name} = {state}" for name, state in result.assignment.items()]
        kind = "" if result.kind == "exact" else " (Bethe estimate)"
        lines.append(f"log probability: {result.log_probability:.6f}{kind}")
    if result.proved_optimal:
        lines.append("proved optimal")
    else:
        bound = f"; upper bound {result.upper_bound:.6f}" if math.isfinite(result.upper_bound) else ""
        lines.append(f"not proved optimal{bound}")
    lines.append(f"method {result.method}, {result.seconds:.2f} s")
    return "\n".join(lines)
