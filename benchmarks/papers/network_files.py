"""Networks, questions and what others found, of the folder ``bayes_nets`` under ``ETHOGRAM_DATA``."""

from __future__ import annotations

import functools
import json
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from ethogram.models.bayes_net import BayesNet, MarginalMAP
from ethogram.models.uai import read_evidence, read_network

__all__ = [
    "GIVEN",
    "Question",
    "folder",
    "load",
    "optima",
    "peers",
    "proofs",
    "questions",
    "restricted_mpe",
    "sets_of",
]

GIVEN = "given"
"""The fraction of a question that comes with its network."""


class Question(NamedTuple):
    """Which MAP variables are asked for, in which network.

    Attributes
    ----------
    instance : name of the network.
    fraction : of the variables that are not evidence, as text; or :data:`GIVEN`.
    number : of the set of MAP variables.
    """

    instance: str
    fraction: str
    number: int

    @property
    def key(self) -> str:
        return f"{self.instance}|{self.fraction}" + ("" if self.fraction == GIVEN else f"|{self.number}")


def folder() -> Path | None:
    """The folder, where it is."""
    place = Path(os.environ.get("ETHOGRAM_DATA", "")) / "bayes_nets"
    return place if "ETHOGRAM_DATA" in os.environ and (place / "queries.json").is_file() else None


@functools.cache
def _read(name: str) -> Any:
    place = folder()
    assert place is not None
    return json.loads((place / name).read_text(encoding="utf-8"))


@functools.cache
def _network(instance: str) -> tuple[BayesNet, dict[int, int]]:
    place = folder()
    assert place is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rounded rows are known, and kept
        network = read_network(place / "uai" / f"{instance}.uai")
    return network, read_evidence(place / "evid" / f"{instance}.evid", network)


def load(question: Question) -> MarginalMAP:
    """The question, for solving."""
    network, evidence = _network(question.instance)
    told = _read("queries.json")["instances"][question.instance]
    given = question.fraction == GIVEN
    return MarginalMAP(
        network, evidence, told["given_map"] if given else told["sets"][question.fraction][question.number]
    )


def sets_of(instance: str, numbers: range) -> list[Question]:
    """Questions of a network, of every fraction."""
    told = _read("queries.json")["instances"][instance]["sets"]
    return [Question(instance, fraction, number) for fraction in told for number in numbers]


def questions() -> list[Question]:
    """Set 0 of every fraction of every network, and the questions that come with networks."""
    found = []
    for instance, told in _read("queries.json")["instances"].items():
        found += sets_of(instance, range(1))
        if told.get("given_map"):
            found.append(Question(instance, GIVEN, 0))
    return found


def _question(key: str) -> Question:
    instance, fraction, *number = key.split("|")
    return Question(instance, fraction, int(number[0]) if number else 0)


def optima() -> dict[Question, float]:
    """Optima by constrained elimination, log probabilities."""
    return {
        _question(key): each["log_value"] for key, each in _read("reference_optima.json")["optima"].items()
    }


def proofs() -> dict[Question, float]:
    """Optima by branch and bound, with six digits."""
    told = _read("reference_optima.json")["aobb_proofs"]["optima"]
    return {_question(key): each["log_value"] for key, each in told.items()}


def restricted_mpe() -> dict[Question, float]:
    """Explanations of everything by toulbar2, restricted to the MAP variables: their log probabilities."""
    found = {}
    for instance, told in _read("mpe_baseline.json").items():
        for fraction, value in told["sets"].items():
            found[Question(instance, fraction, 0)] = _number(value)
    return found


def peers() -> dict[Question, list[dict[str, Any]]]:
    """What other programs found: `method`, `seconds`, `log_probability`, `log_probability_smoothed`, and `raw`, whether
    the first is of the tables as they are.
    """
    found: dict[Question, list[dict[str, Any]]] = {}
    for question in questions():
        place = folder()
        assert place is not None
        path = place / "peer_results" / f"{question.instance}.{question.fraction}.{question.number}.json"
        if path.is_file():
            told = json.loads(path.read_text(encoding="utf-8"))["results"]
            found[question] = [row for each in told for row in _peer_rows(each)]
    return found


def _peer_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    name = told["algorithm"].split(" ")[0]
    raw = "--positive" not in told.get("flags", "")
    name = name if raw else f"{name}, smoothed by 1e-6"
    if "score_raw" in told:
        seconds = told.get("limit_cpu_s") or told.get("cpu_s")
        smoothed = _number(told.get("score_smoothed"))
        return [{"method": name, "seconds": seconds, "log_probability": _number(told["score_raw"]),
                 "log_probability_smoothed": smoothed, "raw": raw}]  # fmt: skip
    rows = [(float(at), value) for at, value in (told.get("value_at") or {}).items()]
    if told.get("value") is not None and told.get("cpu_s") is not None:
        rows.append((told["cpu_s"], told["value"]))
    return [{"method": name, "seconds": at, "log_probability": _number(value), "raw": raw} for at, value in rows
            if value is not None]  # fmt: skip


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
