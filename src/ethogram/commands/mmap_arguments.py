"""Evidence and MAP variables of `ethogram mmap`: each a file, or a list on the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.named import (
    parse_assignments,
    parse_variables,
    read_evidence,
    read_map_variables,
)

__all__ = ["ALL", "take_evidence", "take_variables"]

ALL = "all"
"""In place of MAP variables: every variable without evidence; ``all,`` is a variable of this name, ``./all`` a file."""


def take_evidence(text: str | None, sample: int | None, network: BayesNet) -> dict[int, int]:
    """Observed states by variable, from a file or a list ``variable=state,variable=state``; none of None.

    Parameters
    ----------
    sample : which of a file's samples, from 0; None for the only one.
    """
    if text is None:
        if sample is not None:
            raise ValueError(
                f"--sample {sample} chooses a sample of an evidence file, and there is no --evidence"
            )
        return {}
    if not text.strip():
        raise ValueError("--evidence is empty: give a file or variable=state,..., or leave it out")
    if _is_file(text, "--evidence", network, parse_assignments):
        return read_evidence(text, network, sample)
    found = parse_assignments(network, text, "--evidence (not a file)")
    if sample is not None:
        raise ValueError(f"--sample {sample} chooses a sample of an evidence file, and --evidence is a list")
    return found


def take_variables(text: str, network: BayesNet, evidence: Collection[int]) -> tuple[int, ...]:
    """MAP variables, from a file or a list of names and numbers between commas; of ``all``, those without evidence."""
    if text == ALL:
        found = tuple(number for number in range(network.num_variables) if number not in evidence)
        if not found:
            raise ValueError("--map is all, and every variable has evidence: leave some out of --evidence")
        return found
    if _is_file(text, "--map", network, parse_variables):
        return read_map_variables(text, network)
    return parse_variables(network, text, "--map (not a file)")


def _is_file(text: str, argument: str, network: BayesNet, parse: Callable[[BayesNet, str, str], Any]) -> bool:
    """Whether a text is the path of a file; ValueError where it is that of a file and a list as well."""
    if not os.path.exists(text) or os.path.isdir(text):
        return False
    try:
        parse(network, text, argument)
    except ValueError:
        return True
    raise ValueError(
        f"{argument}: {text!r} is a file and a list as well: write {os.path.join('.', text)!r} for the file, or "
        f"{text + ','!r} for the list"
    )
