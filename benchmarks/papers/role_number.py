"""Number of roles selected on simulated data of three roles, by LOO of different draws and by other scores.

Six data sets of three Gaussian roles in the plane are fitted with two to five roles. Leave-one-out scores (PSIS-LOO,
Vehtari, Gelman, Gabry 2017; the unit is a sequence) come from draws of q, of q with linear-response covariances, and of
NUTS started at the fit. Beside them the ELBO, and held-out scores by `heldout_score_curve`: their maximum, and the
smallest number within one standard error. For each kind of draws, fresh sequences of the true model say what LOO should
estimate: their log predictive density, averaged over draws, per sequence and times the number of training sequences.

Rows of `kind` "selection" have the number selected in each data set, "draws" the means over data sets of LOO, of the
density of fresh data, and of the share of sequences with a Pareto k above .7. LOO above the density of fresh data by
more than its standard error over data sets is optimistic.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import logsumexp

from benchmarks import linear_response, report
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.score_curve import heldout_score_curve
from ethogram.inference.export.pointwise import Pointwise
from ethogram.inference.refresh import refresh_posterior
from ethogram.models.emissions import GaussianEmission
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["Sizes", "measure"]

TRUE = 3
STAY = 0.8
CENTRES = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])
LARGE_K = 0.7


class Sizes(NamedTuple):
    """Sizes of the simulations and the fits."""

    data_sets: int = 6
    sequences: int = 24
    steps: int = 25
    fresh: int = 200
    roles: tuple[int, ...] = (2, 3, 4, 5)
    draws: int = 600
    warmup: int = 200
    chains: int = 2


QUICK = Sizes(data_sets=1, fresh=50, roles=(3,), draws=300, warmup=100)
FIT = {"restarts": 8, "progress_bar": False}
ITERATIONS = 300


class Scores(NamedTuple):
    """Scores of one number of roles on one data set."""

    elbo: float
    loo: dict[str, float]  # by kind of draws, nats
    fresh: dict[str, float]  # log predictive density of as many fresh sequences
    large_k: dict[str, float]  # share of sequences
    r_hat: float


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, in double precision."""
    sizes = QUICK if settings.quick else Sizes()
    with jax.enable_x64(True), warnings.catch_warnings():
        for message in ("the draws have not converged", "Estimated shape parameter", r"\s*ArviZ is under"):
            warnings.filterwarnings("ignore", message=message)
        found = [_data_set(sizes, settings.seed + number) for number in range(sizes.data_sets)]
    counts = np.array(sizes.roles)
    scores = [one[0] for one in found]
    chosen = {"ELBO": [counts[np.argmax([s.elbo for s in each])] for each in scores]}
    for kind in scores[0][0].loo:
        chosen[f"LOO, {kind}"] = [counts[np.argmax([s.loo[kind] for s in each])] for each in scores]
        chosen[f"fresh data, {kind}"] = [counts[np.argmax([s.fresh[kind] for s in each])] for each in scores]
    chosen["held-out, maximum"] = [counts[int(np.argmax(curve.heldout))] for _, curve in found]
    chosen["held-out, one standard error"] = [curve.selected_size for _, curve in found]
    rows: list[dict[str, Any]] = []
    for by, selected in chosen.items():
        right = int((np.array(selected) == TRUE).sum())
        row = {"kind": "selection", "by": by, "data_sets": len(found), "right": right}
        rows.append(row | {"selected": " ".join(str(int(one)) for one in selected)})
    for kind in scores[0][0].loo:
        for place, roles in enumerate(counts):
            each = [one[place] for one in scores]
            loo, fresh = (np.array([getattr(one, name)[kind] for one in each]) for name in ("loo", "fresh"))
            row = {
                "kind": "draws",
                "by": kind,
                "roles": int(roles),
                "loo": float(loo.mean()),
                "fresh": float(fresh.mean()),
                "loo_minus_that_of_three": float(
                    (loo - [one[counts.tolist().index(TRUE)].loo[kind] for one in scores]).mean()
                ),
                "fresh_minus_that_of_three": float(
                    (fresh - [one[counts.tolist().index(TRUE)].fresh[kind] for one in scores]).mean()
                ),
                "loo_minus_fresh": float((loo - fresh).mean()),
                "standard_error": float((loo - fresh).std(ddof=1) / np.sqrt(len(found)))
                if len(found) > 1
                else None,
                "large_k": float(np.mean([one.large_k[kind] for one in each])),
            }
            if kind == "NUTS":
                row["r_hat"] = float(np.median([one.r_hat for one in each]))
            rows.append(row)
    return rows


def _data_set(sizes: Sizes, seed: int) -> tuple[list[Scores], Any]:
    """Scores by number of roles, and the curve of held-out scores."""
    key_data, key_fresh, key_curve, key_fit = jax.random.split(jax.random.key(seed), 4)
    move = (1 - STAY) / (TRUE - 1)
    truth = {
        "initial": np.full(TRUE, 1 / TRUE),
        "transition": np.full((TRUE, TRUE), move) + (STAY - move) * np.eye(TRUE),
        "mean": CENTRES,
        "covariance": np.broadcast_to(np.eye(2), (TRUE, 2, 2)),
    }
    truth = jax.tree.map(jax.numpy.asarray, truth)
    simulate = RoleHMM(TRUE, GaussianEmission(2, mean=0.0, scale=1.0)).simulate
    data = simulate(key_data, num_groups=sizes.sequences, lengths=sizes.steps, parameters=truth).data
    fresh = simulate(key_fresh, num_groups=sizes.fresh, lengths=sizes.steps, parameters=truth).data
    curve = heldout_score_curve(key_curve, _model, sizes.roles, data, num_steps=ITERATIONS, **FIT)
    return [_scores(sizes, jax.random.fold_in(key_fit, k), k, data, fresh) for k in sizes.roles], curve


def _model(roles: int) -> RoleHMM:
    return RoleHMM(roles, GaussianEmission(2))


def _scores(sizes: Sizes, key: Any, roles: int, data: Any, fresh: Any) -> Scores:
    key_fit, key_q, key_linear, key_nuts = jax.random.split(key, 4)
    fit = ConjugateSVI(_model(roles)).run(key_fit, data, ITERATIONS, **FIT)
    nuts = refresh_posterior(
        key_nuts,
        fit,
        data,
        num_warmup=sizes.warmup,
        num_draws=sizes.draws // sizes.chains,
        num_chains=sizes.chains,
        progress_bar=False,
    )
    kinds = {
        "q": fit.posterior.sample(key_q, sizes.draws),
        "linear response": linear_response.draws(key_linear, fit.posterior, data, sizes.draws),
        "NUTS": {name: site.reshape(-1, *site.shape[2:]) for name, site in nuts.sites.items()},
    }
    loo, density, large = {}, {}, {}
    for kind, sites in kinds.items():
        drawn = {name: np.asarray(site) for name, site in sites.items()}
        chains = sizes.chains if kind == "NUTS" else 1
        each = Pointwise(fit.posterior.model, drawn, data).log_likelihood()
        loo[kind], large[kind] = _loo(each.reshape(chains, -1, each.shape[-1]))
        new = Pointwise(fit.posterior.model, drawn, fresh).log_likelihood()
        per_sequence = (logsumexp(new, axis=0) - np.log(len(new))).mean()
        density[kind] = float(per_sequence * data.num_sequences)
    return Scores(float(fit.elbo[-1]), loo, density, large, nuts.r_hat)


def _loo(log_likelihood: np.ndarray) -> tuple[float, float]:
    """Expected log predictive density, and the share of sequences with a large Pareto k."""
    import arviz

    draws = {"posterior": {"x": np.zeros(log_likelihood.shape[:2])}, "log_likelihood": {"y": log_likelihood}}
    tree = arviz.from_dict(**draws) if arviz.__version__.startswith("0.") else arviz.from_dict(draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = arviz.loo(tree, pointwise=True)
    elpd = float(found.elpd if hasattr(found, "elpd") else found.elpd_loo)
    return elpd, float((np.asarray(found.pareto_k) > LARGE_K).mean())


if __name__ == "__main__":
    raise SystemExit(report.run("role_number", __doc__, measure))
