"""The command `ethogram mmap`: reads a network, evidence and MAP variables, and prints the answer."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ethogram.commands.argument_types import LARGEST_SEED, integer, seconds
from ethogram.commands.process import BAD_INPUT, IMPOSSIBLE, NOTHING_FOUND, importing, refuse

if TYPE_CHECKING:
    from ethogram.inference.networks import MarginalMAPResult
    from ethogram.models.networks import MarginalMAP

__all__ = ["METHODS", "add_parser", "run"]

METHODS = ("hybrid", "ags", "exact", "mpbp", "mpbp-cavity", "mpe", "sequential", "marginal")
FORMATS = ("text", "json", "uai")


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "mmap",
        help="marginal MAP in a Bayesian network",
        description="Solves a marginal MAP query: the most probable joint assignment of some variables given evidence, "
        "all other variables summed out. Exit code 3 if the evidence is impossible, 4 if no assignment of positive "
        "probability was found.",
    )
    parser.add_argument(
        "network", type=Path, metavar="NETWORK", help="UAI, BIF, XMLBIF, NET, XDSL, DSL, XBN or .jgum file"
    )
    parser.add_argument(
        "--evidence",
        metavar="FILE|LIST",
        help="file (UAI, one 'variable = state' per line, or JSON), or variable=state,variable=state (none)",
    )
    parser.add_argument(
        "--sample", type=integer(0), metavar="K", help="sample of an evidence file with several, from 0"
    )
    parser.add_argument(
        "--map",
        required=True,
        metavar="FILE|LIST|all",
        help="file (UAI, one name per line, or JSON), names separated by commas, or all without evidence",
    )
    parser.add_argument(
        "--names", type=Path, metavar="FILE", help="JSON with the variable and state names of a UAI file"
    )
    parser.add_argument("--method", choices=METHODS, default="hybrid", help="%(choices)s (hybrid)")
    parser.add_argument("--time-limit", type=seconds, default=10.0, metavar="S", help="seconds (10)")
    parser.add_argument(
        "--seed", type=integer(0, LARGEST_SEED), default=0, metavar="N", help="random seed (0)"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="what is printed: text; json; or uai, the MMAP result of the UAI competitions (text)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code, after the answer is printed in its format, and written to a JSON file if one is named."""
    with importing():
        import jax

        from ethogram.inference.networks import ImpossibleEvidenceError, solve_mmap
        from ethogram.models.networks.tokens import write_text
        from ethogram.models.whole_files import refuse_place

    try:
        if arguments.json is not None and (arguments.json.is_file() or not arguments.json.exists()):
            refuse_place(arguments.json)
        query = _query(arguments)
        key = jax.random.key(arguments.seed)
        result = solve_mmap(key, query, arguments.method, time_limit=arguments.time_limit)
    except ValueError as error:
        return refuse(error, IMPOSSIBLE if isinstance(error, ImpossibleEvidenceError) else BAD_INPUT)
    possible = result.log_probability > -math.inf
    record = json.dumps(_record(result), indent=1)
    if arguments.format == "json":
        print(record)
    elif arguments.format == "text":
        print(_summary(result))
    elif possible:
        print(_uai_result(query, result))
    if arguments.json is not None:
        write_text(arguments.json, record + "\n")
    if not possible:
        message = (
            "no assignment of positive probability was found: increase --time-limit, or try another --seed"
        )
        return refuse(message, NOTHING_FOUND)
    return 0


def _query(arguments: argparse.Namespace) -> MarginalMAP:
    """The query; what a reader warns of is printed, each warning in one line."""
    from ethogram.commands.mmap_arguments import take_evidence, take_variables
    from ethogram.models.held_warnings import held_warnings
    from ethogram.models.networks import MarginalMAP
    from ethogram.models.networks.read_network import read

    with held_warnings() as caught:
        network, of_factors = read(arguments.network, arguments.names)
    for message in caught:
        print(f"ethogram: {message}", file=sys.stderr)
    evidence = take_evidence(arguments.evidence, arguments.sample, network)
    maximised = take_variables(arguments.map, network, of_factors | evidence)
    for flag, variables in (("--evidence", evidence), ("--map", maximised)):
        for variable in variables:
            if variable in of_factors:  # a variable that stands for a factor of a Markov network
                outside = f"outside 0..{min(of_factors) - 1}, the variables of {arguments.network}"
                raise ValueError(f"{flag}: variable {variable} is {outside}")
    return MarginalMAP(network, of_factors | evidence, maximised, by_number=True)


def _record(result: MarginalMAPResult) -> dict[str, Any]:
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
    """The result in the format of the UAI 2014 inference competition: the task, then pairs of variable and state."""
    states = [] if result.states is None else result.states.tolist()
    numbers = [number for pair in zip(query.map_variables, states, strict=False) for number in pair]
    return f"MMAP\n{' '.join(map(str, (len(states), *numbers)))}"


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
