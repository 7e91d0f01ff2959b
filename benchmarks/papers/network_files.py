"""Networks, marginal MAP queries and peers' results in the folder ``bayes_nets`` under ``ETHOGRAM_DATA``."""

from __future__ import annotations

import functools
import json
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.named import read_evidence
from ethogram.models.networks.read_network import read_network

__all__ = [
    "GIVEN",
    "StoredQuery",
    "explanation",
    "folder",
    "load",
    "optima",
    "peers",
    "proofs",
    "queries",
    "restricted_mpe",
    "sets_of",
    "stored_mpe",
]

GIVEN = "given"
"""The fraction of a query that comes with its network."""


class StoredQuery(NamedTuple):
    """A stored query: a network and one of its sets of MAP variables.

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
    """The folder; None where it is missing."""
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
        warnings.simplefilter("ignore")  # rows are rounded
        network = read_network(place / "uai" / f"{instance}.uai")
    return network, read_evidence(place / "evid" / f"{instance}.evid", network)


def load(query: StoredQuery) -> MarginalMAP:
    """The marginal MAP query itself."""
    network, evidence = _network(query.instance)
    stored = _read("queries.json")["instances"][query.instance]
    given = query.fraction == GIVEN
    return MarginalMAP(
        network, evidence, stored["given_map"] if given else stored["sets"][query.fraction][query.number]
    )


def sets_of(instance: str, numbers: range) -> list[StoredQuery]:
    """Stored queries of one network: the given set numbers at each fraction of MAP variables."""
    stored = _read("queries.json")["instances"][instance]["sets"]
    return [StoredQuery(instance, fraction, number) for fraction in stored for number in numbers]


def queries() -> list[StoredQuery]:
    """Set 0 of every fraction of every network, and the queries that come with networks."""
    found = []
    for instance, stored in _read("queries.json")["instances"].items():
        found += sets_of(instance, range(1))
        if stored.get("given_map"):
            found.append(StoredQuery(instance, GIVEN, 0))
    return found


def _query(key: str) -> StoredQuery:
    instance, fraction, *number = key.split("|")
    return StoredQuery(instance, fraction, int(number[0]) if number else 0)


def optima() -> dict[StoredQuery, float]:
    """Optima by constrained elimination, log probabilities."""
    return {_query(key): each["log_value"] for key, each in _read("reference_optima.json")["optima"].items()}


def proofs() -> dict[StoredQuery, float]:
    """Optima by branch and bound, with six digits."""
    stored = _read("reference_optima.json")["aobb_proofs"]["optima"]
    return {_query(key): each["log_value"] for key, each in stored.items()}


def stored_mpe() -> dict[str, dict[str, Any]]:
    """What toulbar2 found by network: `mpe_log`, and `optimal`, whether it was proved."""
    return {
        name: stored for name, stored in _read("mpe_baseline.json").items() if stored["mpe_log"] is not None
    }


def explanation(instance: str) -> MarginalMAP:
    """The query of a network's MPE: every variable that is not evidence is maximised."""
    network, evidence = _network(instance)
    return MarginalMAP(network, evidence, [v for v in range(network.num_variables) if v not in evidence])


def restricted_mpe() -> dict[StoredQuery, float]:
    """Log probabilities of the MPEs of toulbar2, restricted to the MAP variables."""
    found = {}
    for instance, stored in _read("mpe_baseline.json").items():
        for fraction, value in stored["sets"].items():
            found[StoredQuery(instance, fraction, 0)] = _number(value)
    return found


def peers() -> dict[StoredQuery, list[dict[str, Any]]]:
    """Results of other programs: `method`, `seconds`, `log_probability`, `log_probability_smoothed`, and `raw`, whether
    the first is that of the tables as given.
    """
    found: dict[StoredQuery, list[dict[str, Any]]] = {}
    for query in queries():
        place = folder()
        assert place is not None
        path = place / "peer_results" / f"{query.instance}.{query.fraction}.{query.number}.json"
        if path.is_file():
            stored = json.loads(path.read_text(encoding="utf-8"))["results"]
            found[query] = [row for each in stored for row in _peer_rows(each)]
    return found


def _peer_rows(stored: dict[str, Any]) -> list[dict[str, Any]]:
    name = stored["algorithm"].split(" ")[0]
    raw = "--positive" not in stored.get("flags", "")
    name = name if raw else f"{name}, smoothed by 1e-6"
    if "score_raw" in stored:
        seconds = stored.get("limit_cpu_s") or stored.get("cpu_s")
        smoothed = _number(stored.get("score_smoothed"))
        return [{"method": name, "seconds": seconds, "log_probability": _number(stored["score_raw"]),
                 "log_probability_smoothed": smoothed, "raw": raw}]  # fmt: skip
    rows = [(float(at), value) for at, value in (stored.get("value_at") or {}).items()]
    if stored.get("value") is not None and stored.get("cpu_s") is not None:
        rows.append((stored["cpu_s"], stored["value"]))
    return [{"method": name, "seconds": at, "log_probability": _number(value), "raw": raw} for at, value in rows
            if value is not None]  # fmt: skip


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
