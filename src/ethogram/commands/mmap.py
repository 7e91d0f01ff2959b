"""The command `ethogram mmap`: reads a network, evidence and MAP variables, and prints the answer."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import jax

from ethogram.commands.mmap_arguments import take_evidence, take_variables
from ethogram.inference.networks.solve_mmap import MarginalMAPResult, solve_mmap
from ethogram.models.held_warnings import held_warnings
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.read_network import read
from ethogram.models.networks.tokens import write_text
from ethogram.models.whole_files import refuse_place

__all__ = ["answer", "record"]


def answer(
    network: Path,
    *,
    evidence: str | None,
    sample: int | None,
    variables: str,
    names: Path | None,
    method: str,
    time_limit: float,
    seed: int,
    json_file: Path | None,
    form: str,
) -> MarginalMAPResult:
    """The result of a marginal MAP query; printed in a form, and written to a JSON file where one is given.

    Evidence and variables are files or lists; the form is ``"text"``, ``"json"`` or ``"uai"``.
    An OSError or ValueError where a file cannot be read or is malformed; ImpossibleEvidenceError as `solve_mmap`.
    """
    if json_file is not None and (json_file.is_file() or not json_file.exists()):
        refuse_place(json_file)
    with held_warnings() as caught:
        found, of_factors = read(network, names)
    for message in caught:
        print(f"ethogram: {message}", file=sys.stderr)
    observed = take_evidence(evidence, sample, found)
    maximised = take_variables(variables, found)
    for argument, numbers in (("--evidence", observed), ("--map", maximised)):
        for number in numbers:
            if number in of_factors:
                outside = f"outside 0..{min(of_factors) - 1}, the variables of {network}"
                raise ValueError(f"{argument}: variable {number} is {outside}")
    query = MarginalMAP(found, of_factors | observed, maximised, by_number=True)
    result = solve_mmap(jax.random.key(seed), query, method, time_limit=time_limit)
    if form == "json":
        print(json.dumps(record(result), indent=1))
    elif form == "text":
        print(_summary(result))
    elif result.log_probability > -math.inf:
        print(_uai_result(query, result))
    if json_file is not None:
        write_text(json_file, json.dumps(record(result), indent=1) + "\n")
    return result


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


def _uai_result(query: MarginalMAP, result: MarginalMAPResult) -> str:
    """The result in the format of the UAI 2014 inference competition: the task, then pairs of variable and state.

    No pairs where no possible assignment was found.
    """
    if result.states is None:
        return "MMAP\n0"
    pairs = zip(query.map_variables, result.states.tolist(), strict=True)
    numbers = [len(query.map_variables), *(number for pair in pairs for number in pair)]
    return f"MMAP\n{' '.join(map(str, numbers))}"


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
