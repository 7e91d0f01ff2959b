"""Rewards of fresh objectworlds: what the treatment of the hyper-parameters does for policies and held-out actions.

Objectworlds of 16 x 16 cells by the generator of Levine's toolkit, 64 demonstrations of 8 steps each, default
arguments but for `hyper`. Proper scores come first: the Kullback-Leibler divergence of a policy from the true
soft-optimal one, in nats a decision, averaged over all states, of the policy of the mean reward and of the mean policy,
at home and in another objectworld; and the log predictive density of the actions of fresh demonstrations under the
mean policy. Expected value differences stand beside them for comparison with papers; the soft one rewards
overconfidence, and is not shown. Levine's estimate is a point, so that its two policies are one. It leaves out the
noise of single cells: "by_features" is the mean reward as a function of features, which leaves it out of the others.

`coverage90` is the share of all differences of rewards that 90 % intervals hold. These rewards are made by hand, and
no draws from the prior.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import report
from ethogram.domains import objectworld
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.predictions import difference_coverage, policies, predict_reward
from ethogram.models.mdps.soft_values import soft_values
from ethogram.models.mdps.value_difference import expected_value_difference
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.inducing_points import select_inducing_points

__all__ = ["measure"]

METHODS = ("nested", "variational", "fixed")
DRAWS = 100


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of every world and method, in double precision, and the comparisons over all worlds."""
    rows: list[dict[str, Any]] = []
    size, count, worlds = (5, 12, 1) if settings.quick else (16, 64, 10)
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "[0-9]+ features are constant")
        warnings.filterwarnings("ignore", "the search has not converged")
        for number in range(worlds):
            rows += rows_of_world(settings.seed, number, size, count)
    return rows + checks(rows)


def rows_of_world(seed: int, number: int, size: int, count: int) -> list[dict[str, Any]]:
    """One row for each method."""
    key_home, key_away, key_shown, key_new, key_fit = jax.random.split(
        jax.random.fold_in(jax.random.key(seed), number), 5
    )
    home, away = objectworld.objectworld(key_home, size), objectworld.objectworld(key_away, size)
    shown, new = objectworld.simulate(key_shown, home, count), objectworld.simulate(key_new, home, 100)
    common = {"world": number, "size": size, "trajectories": count}
    rows = []
    for method in ("levine", *METHODS):
        start = time.process_time()
        if method == "levine":
            points = select_inducing_points(shown, home.mdp)
            model = GPIRL(home.mdp, home.features, family="inducing", inducing=points)
            fit = fit_reward(key_fit, model, shown, "map", prior="levine", progress_bar=False)
            draws = {name: np.asarray(x)[None] for name, x in fit.posterior.mean_sites().items()}
        else:
            model = GPIRL(home.mdp, home.features)
            fit = fit_reward(key_fit, model, shown, hyper=method, progress_bar=False)
            draws = fit.posterior.sample(jax.random.key(1), DRAWS)
        row = {**common, "method": method, "seconds": time.process_time() - start}
        rewards = np.asarray(draws["reward"])
        found = predict_reward(jax.random.key(2), model, draws, away.features)
        there = np.asarray(found.mean[None] if method == "levine" else found.draws)
        by_features = np.asarray(predict_reward(jax.random.key(3), model, draws, home.features).mean)[None]
        for name, place, drawn in (
            ("home", home, rewards), ("home_by_features", home, by_features), ("transfer", away, there),
        ):  # fmt: skip
            row |= scores(name, place, drawn)
        for name, drawn in (("held_out", rewards), ("held_out_by_features", by_features)):
            predictive = np.asarray(policies(home.mdp, drawn).mean)
            row[name] = float(np.mean(np.log(predictive[np.asarray(new.states), np.asarray(new.actions)])))
        row |= {"elbo": fit.elbo, "elbo_se": fit.elbo_se, "steps": fit.steps, "converged": fit.converged}
        if method != "levine":
            row["coverage90"] = float(difference_coverage(rewards, home.reward))
        rows.append(row)
        print(
            {name: value if not isinstance(value, float) else round(value, 4) for name, value in row.items()},
            flush=True,
        )
    return rows


def scores(name: str, place: objectworld.ObjectWorld, rewards: np.ndarray) -> dict[str, float]:
    """Divergences of the two policies from the true one, and the standard expected value difference."""
    truth = np.asarray(soft_values(place.mdp, jnp.asarray(place.reward)).policy)
    found = policies(place.mdp, rewards)
    told = {
        f"divergence_{name}": divergence(truth, np.asarray(found.of_mean_reward)),
        f"divergence_of_mean_policy_{name}": divergence(truth, np.asarray(found.mean)),
    }
    mean = jnp.asarray(rewards.mean(0))
    told[f"evd_standard_{name}"] = float(expected_value_difference(place.mdp, place.reward, mean))
    return told


def divergence(truth: np.ndarray, policy: np.ndarray) -> float:
    """Mean over states of KL(truth || policy), in nats a decision."""
    return float(np.mean(np.sum(truth * (np.log(truth) - np.log(policy)), axis=1)))


COMPARISONS = {
    ("variational", "divergence_home", 0.5): 0.9,
    ("variational", "divergence_transfer", 0.5): 0.9,
    ("fixed", "divergence_home", 1.0): 0.8,
    ("fixed", "divergence_transfer", 1.0): 0.8,
    ("levine", "evd_standard_home", 1.0): 0.8,
    ("levine", "evd_standard_transfer", 1.0): 0.8,
    ("levine", "evd_standard_home_by_features", 1.0): None,
    ("levine", "divergence_home", 1.0): None,
    ("levine", "divergence_home_by_features", 1.0): None,
    ("levine", "divergence_transfer", 1.0): None,
}
"""Peer, column, and factor, with the target of the share of worlds in which the nested column is at most as large."""


def checks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In how many worlds the nested posterior is at least as good as the others."""
    found = {(row["world"], row["method"]): row for row in rows}
    worlds = sorted({row["world"] for row in rows})
    told = []
    for (peer, column, factor), target in COMPARISONS.items():
        pairs = [(found[world, "nested"][column], found[world, peer][column]) for world in worlds]
        share = float(np.mean([ours <= factor * theirs for ours, theirs in pairs]))
        row = {
            "method": "check",
            "check": f"{column} at most {factor:g} times that of {peer}",
            "share": share,
        }
        told.append(row | ({} if target is None else {"target": target, "reached": share >= target}))
    return told


if __name__ == "__main__":
    raise SystemExit(report.run("reward_worlds", __doc__, measure))
