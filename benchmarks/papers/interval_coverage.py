"""Coverage of 90 % credible intervals of q, of linear-response draws, and of NUTS started at the fit.

Role HMMs: parameters are drawn from the prior, 200 times, and data from them; sequences are few and short, so that
roles are uncertain. Intervals for all entries of `initial`, `transition`, `mean` and `covariance` come from three kinds
of draws: of q; of q with linear-response covariances (`benchmarks.linear_response`); of `refresh_posterior`. Agent
Markov: intervals for the probability that an intent stays, averaged over the steps of the data, for each intent. Labels
of the truth are matched to the fit by the steps that they share, which is the same for all methods.

`coverage90` is the mean over data sets, with its standard error; `by_site` has that of each site. `seconds` are those
of a data set once programs are compiled, `divergent` the share of divergent transitions. No paper has figures to
compare with: the target is that of a calibrated method.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from benchmarks import linear_response, report
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.export.labelled_arrays import relabel
from ethogram.inference.intents import infer_intents
from ethogram.inference.refresh import refresh_posterior
from ethogram.inference.roles import infer_roles
from ethogram.models.emissions import GaussianEmission
from ethogram.models.intents import AgentMarkov
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["measure"]

DRAWS = 1000
CHAINS = {"num_warmup": 200, "num_draws": 500, "num_chains": 2, "progress_bar": False}
FIT = {"restarts": 6, "tol": 1e-8, "progress_bar": False}
ITERATIONS = 500
BETWEEN = (0.88, 0.92)

STATES, ACTIONS, INTENTS, TRACES, STEPS = 3, 3, 2, 8, 15
"""Of the agent Markov case."""


class Roles(NamedTuple):
    """Sizes of a role HMM case."""

    roles: int
    features: int
    sequences: int
    steps: int


CASES = (Roles(2, 1, 8, 12), Roles(3, 2, 10, 20))


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Three rows a case of roles, two of intents, in double precision."""
    count = 4 if settings.quick else 200
    cases = CASES[:1] if settings.quick else CASES
    rows: list[dict[str, Any]] = []
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the draws have not converged")
        warnings.filterwarnings("ignore", message="the prior outweighs")
        warnings.filterwarnings("ignore", message="the prior lies far")
        for case in cases:
            rows += _rows(f"{case.roles} roles", [role_case(case, settings.seed, i) for i in range(count)])
        if not settings.quick:
            rows += _rows("P(stay)", [intent_case(settings.seed, i) for i in range(count)])
    return rows


def role_model(case: Roles) -> RoleHMM:
    """The model with its prior."""
    emission = GaussianEmission(
        case.features, mean=0.0, strength=0.2, dof=case.features + 5.0, scale=4.0 * np.eye(case.features)
    )
    return RoleHMM(case.roles, emission, sticky=3.0)


def simulated_intents(key: Array, seed: int, number: int) -> tuple[AgentMarkov, Any]:
    """The agent Markov model, and parameters from its prior with traces in a world of their own."""
    model = AgentMarkov(STATES, ACTIONS, truncation=INTENTS, beta_prior="fixed", rows="all", stickiness=None)
    random = np.random.default_rng([seed, number])
    dynamics = random.integers(STATES, size=(STATES, ACTIONS))
    return model, model.simulate(key, dynamics, random.integers(STATES, size=TRACES), STEPS)


def mean_staying(bound: AgentMarkov, data: Any, sites: dict[str, Any]) -> np.ndarray:
    """Probability (..., intent) that an intent stays, over the steps of the data."""
    row_of = np.asarray(bound.rows_carried().row_of)
    visited = row_of[np.asarray(data.states)[:, :-1], np.asarray(data.actions)[:, :-1]]
    own = np.diagonal(np.asarray(sites["transition"])[..., :INTENTS], axis1=-2, axis2=-1)
    share = np.bincount(visited.ravel(), minlength=own.shape[-2]) / visited.size
    return np.einsum("...rk,r->...k", own, share)


def role_case(case: Roles, seed: int, number: int) -> dict[str, dict[str, Any]]:
    """Coverage by site, and seconds, of each method on one data set."""
    model = role_model(case)
    key_data, key_fit, *keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), number), 5)
    made = model.simulate(key_data, num_groups=case.sequences, lengths=case.steps)
    start = time.perf_counter()
    fit = ConjugateSVI(model).run(key_fit, made.data, ITERATIONS, **FIT)
    fitted = time.perf_counter() - start
    order = _order(np.asarray(made.states), infer_roles(fit, made.data).probability)
    truth = _relabelled(model, made.parameters, order)

    found = {}
    for name, draw in {
        "q": lambda key: fit.posterior.sample(key, DRAWS),
        "linear response": lambda key: linear_response.draws(key, fit.posterior, made.data, DRAWS),
        "NUTS": lambda key: _refreshed(key, fit, made.data, found),
    }.items():
        start = time.perf_counter()
        drawn = draw(keys[len(found)])
        seconds = time.perf_counter() - start + (fitted if name == "q" else 0)
        found[name] = {**found.get(name, {}), "seconds": seconds, "by_site": _covered(drawn, truth)}
    return found


def intent_case(seed: int, number: int) -> dict[str, dict[str, Any]]:
    """The same for the probability that an intent stays, over the steps of the data."""
    key = jax.random.fold_in(jax.random.key(seed + 1), number)
    key_data, key_fit, key_q, key_nuts = jax.random.split(key, 4)
    model, made = simulated_intents(key_data, seed, number)
    start = time.perf_counter()
    fit = ConjugateSVI(model).run(key_fit, made.data, ITERATIONS, **FIT)
    fitted = time.perf_counter() - start
    order = _order(made.intents, infer_intents(fit, made.data).probability)
    bound = fit.posterior.model
    truth = _relabelled(bound, made.parameters, order)

    def staying(sites: dict[str, Any]) -> dict[str, np.ndarray]:
        return {"stay": mean_staying(bound, made.data, sites)}

    found: dict[str, dict[str, Any]] = {}
    for name, draw in {
        "q": lambda: fit.posterior.sample(key_q, DRAWS),
        "NUTS": lambda: _refreshed(key_nuts, fit, made.data, found),
    }.items():
        start = time.perf_counter()
        drawn = draw()
        seconds = time.perf_counter() - start + (fitted if name == "q" else 0)
        here = _covered(staying(drawn), staying(truth))
        found[name] = {**found.get(name, {}), "seconds": seconds, "by_site": here}
    return found


def _refreshed(key: Array, fit: Any, data: Any, found: dict[str, Any]) -> dict[str, np.ndarray]:
    drawn = refresh_posterior(key, fit, data, **CHAINS)
    found["NUTS"] = {"divergent": float(drawn.statistics["diverging"].mean()), "r_hat": drawn.r_hat}
    return drawn.sample(key, CHAINS["num_chains"] * CHAINS["num_draws"])


def _order(truth: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """True label of each fitted one (label,), by their shared steps."""
    count = probability.shape[-1]
    overlap = np.stack([probability[truth == label].sum(axis=0) for label in range(count)])
    return np.argsort(optimal_assignment(-overlap).role)


def _relabelled(model: Any, parameters: dict[str, Any], order: np.ndarray) -> dict[str, np.ndarray]:
    dims = model.site_dims()
    return {
        name: relabel(np.asarray(site)[None, None], dims[name], model.label_dims, order[None, None])[0, 0]
        for name, site in parameters.items()
    }


def _covered(drawn: dict[str, Any], truth: dict[str, np.ndarray]) -> dict[str, float]:
    """Share of entries, by site, whose truth lies within the central 90 % of the draws."""
    inside = {}
    for name, true in truth.items():
        low, high = np.quantile(np.asarray(drawn[name]), [0.05, 0.95], axis=0)
        hit = (low <= true) & (true <= high)
        if name == "covariance":
            hit = hit[..., *np.tril_indices(true.shape[-1])]
        inside[name] = float(hit.mean())
    return inside


def _rows(case: str, found: list[dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = []
    for method in found[0]:
        each = [one[method] for one in found]
        sites = {name: [one["by_site"][name] for one in each] for name in each[0]["by_site"]}
        whole = np.mean(list(sites.values()), axis=0)
        row: dict[str, Any] = {
            "case": case,
            "method": method,
            "data_sets": len(each),
            "coverage90": float(whole.mean()),
            "standard_error": float(whole.std(ddof=1) / np.sqrt(len(whole))),
            "seconds": float(np.median([one["seconds"] for one in each])),
        }
        if method == "NUTS":
            row |= {
                "divergent": float(np.mean([one["divergent"] for one in each])),
                "r_hat_above_1.05": float(np.mean([one["r_hat"] > 1.05 for one in each])),
                "at_least": BETWEEN[0],
                "at_most": BETWEEN[1],
                "reached": bool(BETWEEN[0] <= whole.mean() <= BETWEEN[1]),
            }
        rows.append(row | {"by_site": {name: float(np.mean(values)) for name, values in sites.items()}})
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("interval_coverage", __doc__, measure))
