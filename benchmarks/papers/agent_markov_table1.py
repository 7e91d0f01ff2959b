"""Table 1 of the agent Markov model: variational inference with and without partial specification.

Unhelkar and Shah (2019), Table 1: Line World and Highway, 25 trials of five training and five test traces. Versions: VI
(no specification), VI-L (local: noisy stay labels of accuracy .9 on two of the five training traces), CVI-G (global: a
region where the intent never changes), CVI-LG (both). MaxEnt, the paper's baseline, is maximum-entropy inverse
reinforcement learning with one reward and no intent.

Settings. The paper does not give K, alpha, gamma, rho, initialisation and restarts. "literal" is the closest reading:
Line World with K = 5, the density of beta maximised with q held (`literal_agent`), every row carried, a mean of .95 in
the region, one start from the prior, 80 iterations; Highway the same with fixed weights. "best" is the best found: Line
World with K = 10, block steps of the weights, unvisited rows marginalised, a structural zero in the region, the best
ELBO of ten sticky starts; Highway with K = 5, fixed weights, structural zero, best of five sticky starts. "one intent"
is Highway with learned weights, where the ELBO prefers a single intent. "default" is Line World with learned stickiness
and the default arguments of a fit, moves among them, which the other settings, as the paper, do without.

Intents are aligned to the truth on the training traces only, once for all metrics. Rows of `kind` "wilcoxon" are
one-sided paired tests over trials.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from benchmarks import report
from benchmarks.papers.intent_errors import intent_errors
from benchmarks.papers.literal_agent import LiteralAgent
from ethogram.domains import highway, line_world
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.intents import infer_intents
from ethogram.inference.rewards.max_entropy import fit_max_entropy
from ethogram.inference.roles.alignment import align_states, matched_hamming
from ethogram.models.intents import AgentMarkov, IntentAgent, IntentConstraints, Rollout, noisy_stay_labels
from ethogram.models.mdps.mdp import MDP

__all__ = ["measure"]

ACCURACY = 0.9
LABELLED = 2  # training traces with stay labels
VERSIONS = ("VI", "VI-L", "CVI-G", "CVI-LG")
METRICS = (
    "hamming_train", "hamming_test", "wkl_transition", "wkl_policy", "wkl_initial",
    "wl2_transition", "wl2_policy", "wl2_initial",
)  # fmt: skip
PUBLISHED = {
    ("line_world", "VI"): (0.51, 0.53, 2.01, 0.77, 0.85),
    ("line_world", "VI-L"): (0.39, 0.40, 1.38, 0.56, 0.87),
    ("line_world", "CVI-G"): (0.30, 0.30, 0.98, 0.41, 0.53),
    ("line_world", "CVI-LG"): (0.13, 0.14, 0.43, 0.19, 0.51),
    ("highway", "VI"): (0.56, 0.63, 2.11, 0.48, 1.67),
    ("highway", "VI-L"): (0.36, 0.44, 1.12, 0.38, 1.75),
    ("highway", "CVI-G"): (0.48, 0.55, 1.03, 0.38, 1.50),
    ("highway", "CVI-LG"): (0.35, 0.42, 0.64, 0.33, 1.58),
}
PUBLISHED_MAXENT = {"line_world": 1.08, "highway": 1.04}
"""Divergences of Table 1, in the order of the first five metrics; its distances are not comparable in scale."""


class Setting(NamedTuple):
    """Settings of a table."""

    domain: str
    name: str
    truncation: int
    model: dict[str, Any]  # no stickiness where it has none
    constraint: str  # "never", or the mean of "equal" .95
    sweeps: int
    restarts: int
    init: str
    search: str = "restarts"
    kind: type[AgentMarkov] = AgentMarkov


SETTINGS = (
    Setting("line_world", "literal", 5, {}, "equal", 80, 1, "prior", kind=LiteralAgent),
    Setting("line_world", "best", 10, {}, "never", 500, 10, "sticky"),
    Setting("line_world", "default", 10, {"stickiness": "learn"}, "never", 1000, 8, "mixed", "auto"),
    Setting("highway", "literal", 5, {"beta_prior": "fixed"}, "equal", 80, 1, "prior"),
    Setting("highway", "best", 5, {"beta_prior": "fixed"}, "never", 300, 5, "sticky"),
    Setting("highway", "one intent", 5, {}, "never", 300, 1, "prior"),
)
"""Rows of all states and actions are carried, to share shapes: without data they have no effect in block steps."""


class Trial(NamedTuple):
    """The traces of one trial, and its region."""

    train: Rollout
    test: Rollout
    region: np.ndarray


class Environment(NamedTuple):
    """A domain, with its true agent and MDP."""

    domain: Any
    agent: IntentAgent
    mdp: MDP


@functools.cache
def environment_of(name: str) -> Environment:
    if name == "line_world":
        return Environment(line_world, line_world.true_agent(), MDP.deterministic(line_world.NEXT_STATE))
    return Environment(highway, highway.true_agent(), MDP.dense(highway.transitions()))


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all settings, of MaxEnt, and of the tests, in double precision."""
    with jax.enable_x64(True):
        return _measure(settings)


def _measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    num_trials = 3 if settings.quick else 25
    chosen = SETTINGS[:2] if settings.quick else SETTINGS
    rows: list[dict[str, Any]] = []
    for domain in dict.fromkeys(setting.domain for setting in chosen):
        trials = [_draw_trial(environment_of(domain), settings.seed, number) for number in range(num_trials)]
        entropy = np.array([_maxent(environment_of(domain), trial) for trial in trials])
        rows.append(_maxent_row(domain, entropy))
        for setting in (setting for setting in chosen if setting.domain == domain):
            scores = {
                version: np.array(
                    [_score(setting, version, trial, number) for number, trial in enumerate(trials)]
                )
                for version in VERSIONS
            }
            rows += [_row(setting, version, scores[version]) for version in VERSIONS]
            rows += _tests(setting, scores, entropy, num_trials)
    return rows


def _draw_trial(environment: Environment, seed: int, number: int) -> Trial:
    key_train, key_test, key_labels, key_region = jax.random.split(
        jax.random.fold_in(jax.random.key(seed), number), 4
    )
    train, test = (environment.domain.simulate(key) for key in (key_train, key_test))
    labels = noisy_stay_labels(key_labels, train.intents, ACCURACY)
    labels[LABELLED:] = -1
    train = train._replace(data=train.data._replace(stay=labels))
    test = test._replace(data=test.data._replace(stay=np.full_like(labels, -1)))
    return Trial(train, test, environment.domain.random_region(key_region))


def _fit(setting: Setting, version: str, trial: Trial, number: int) -> Any:
    agent = environment_of(setting.domain).agent
    _, num_states, num_actions = agent.policy.shape
    known = None
    if "G" in version:
        region = np.asarray(trial.region)
        known = (
            IntentConstraints.never_switch(region)
            if setting.constraint == "never"
            else IntentConstraints.stay(region, equal=0.95)
        )
    model = setting.kind(
        num_states,
        num_actions,
        setting.truncation,
        rows="all",
        stay_accuracy=ACCURACY if "L" in version else None,
        constraints=known,
        **{"stickiness": None, **setting.model},
    )
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "constraints make", RuntimeWarning
        )  # documented for the literal setting
        return ConjugateSVI(model).run(
            jax.random.fold_in(jax.random.key(1000), number),
            trial.train.data,
            setting.sweeps,
            restarts=setting.restarts,
            init=setting.init,
            search=setting.search,
            tol=1e-6 if setting.name == "default" else 1e-9,
            progress_bar=False,
        )


def _score(setting: Setting, version: str, trial: Trial, number: int) -> list[float]:
    """The metrics of a fit, then the number of intents it uses and its ELBO."""
    if "L" not in version:
        unlabelled = trial.train.data._replace(stay=None)
        trial = trial._replace(train=trial.train._replace(data=unlabelled))
    result = _fit(setting, version, trial, number)
    learned = result.posterior.model.agent(result.posterior.mean())
    train, test = (infer_intents(result, life.data).labels for life in (trial.train, trial.test))
    matching = align_states(trial.train.intents, train, num_states=setting.truncation)
    errors = intent_errors(
        environment_of(setting.domain).agent,
        learned,
        trial.train.data,
        trial.train.intents,
        matching.permutation,
    )
    used = len(np.unique(train[train >= 0]))
    heldout = matched_hamming(trial.test.intents, test, matching.permutation)
    return [matching.hamming, heldout, *errors, used, float(result.elbo[-1])]


def _maxent(environment: Environment, trial: Trial) -> float:
    policy = fit_max_entropy(environment.mdp, trial.train.data).policy
    count = len(environment.agent.policy)
    blind = environment.agent._replace(policy=np.stack([policy] * count))
    return intent_errors(
        environment.agent, blind, trial.train.data, trial.train.intents, np.arange(count)
    ).wkl_policy


def _maxent_row(domain: str, entropy: np.ndarray) -> dict[str, Any]:
    row = {
        "kind": "fit",
        "domain": domain,
        "version": "MaxEnt",
        "setting": "default",
        "trials": len(entropy),
        "wkl_policy": float(entropy.mean()),
        "published_wkl_policy": PUBLISHED_MAXENT[domain],
    }
    if domain == "line_world":
        row["reached"] = bool(1.05 <= entropy.mean() <= 1.12)
    return row


def _row(setting: Setting, version: str, scores: np.ndarray) -> dict[str, Any]:
    means, spread = scores.mean(0), scores.std(0, ddof=1) / np.sqrt(len(scores))
    row: dict[str, Any] = {
        "kind": "fit",
        "domain": setting.domain,
        "version": version,
        "setting": setting.name,
        "trials": len(scores),
    }
    row |= dict(zip(METRICS, means[: len(METRICS)].tolist(), strict=True))
    row |= {
        f"published_{name}": value
        for name, value in zip(METRICS, PUBLISHED[setting.domain, version], strict=False)
    }
    row |= {
        "se_hamming_train": float(spread[0]),
        "intents_used": float(means[-2]),
        "two_intents": int((scores[:, -2] == 2).sum()),
        "elbo": float(means[-1]),
        "hamming_by_trial": scores[:, 0].tolist(),
    }
    goal = _goal(setting, version, scores)
    return row if goal is None else {**row, "reached": bool(goal)}


def _goal(setting: Setting, version: str, scores: np.ndarray) -> Any:
    """Whether the target is met; None without a target."""
    hamming, case = scores[:, 0].mean(), (setting.domain, setting.name, version)
    share = 23 / 25 * len(scores)
    return {
        ("line_world", "literal", "VI"): 0.42 <= hamming <= 0.64,
        ("line_world", "literal", "CVI-LG"): 0.08 <= hamming <= 0.32,
        ("line_world", "best", "VI"): hamming <= 0.10,
        ("line_world", "best", "VI-L"): hamming <= 0.02 and (scores[:, -2] == 2).sum() >= share,
        ("line_world", "best", "CVI-LG"): hamming <= 0.02 and (scores[:, -2] == 2).sum() >= share,
    }.get(case)


def _tests(
    setting: Setting, scores: dict[str, np.ndarray], entropy: np.ndarray, num_trials: int
) -> list[dict[str, Any]]:
    """One-sided paired Wilcoxon tests that the error of the first version is smaller."""
    pairs = [("CVI-LG", "VI"), ("VI-L", "VI"), ("CVI-G", "VI"), ("CVI-LG", "VI-L"), ("CVI-LG", "CVI-G")]
    rows = [
        _test(setting, better, worse, metric, scores[better][:, place], scores[worse][:, place])
        for better, worse in pairs
        for place, metric in enumerate(METRICS)
    ]
    policy = scores["VI"][:, METRICS.index("wkl_policy")]
    beaten = int((policy < entropy).sum())
    row = {
        "kind": "count",
        "domain": setting.domain,
        "setting": setting.name,
        "better": "VI",
        "worse": "MaxEnt",
    }
    row |= {"metric": "wkl_policy", "trials_better": beaten}
    if (setting.domain, setting.name) == ("line_world", "literal"):
        row["reached"] = beaten >= 0.8 * num_trials
    return [*rows, row]


TARGETS = {
    ("line_world", "literal", "CVI-LG", "VI"): METRICS,
    ("line_world", "literal", "VI-L", "VI"): METRICS,
    ("line_world", "literal", "CVI-G", "VI"): (
        "hamming_train", "hamming_test", "wkl_transition", "wkl_policy", "wl2_transition", "wl2_policy",
    ),
    ("highway", "literal", "CVI-LG", "VI"): ("hamming_train", "hamming_test", "wkl_transition", "wkl_policy"),
    ("highway", "best", "CVI-LG", "VI"): ("hamming_train", "hamming_test", "wkl_transition", "wkl_policy"),
}  # fmt: skip


def _test(
    setting: Setting, better: str, worse: str, metric: str, low: np.ndarray, high: np.ndarray
) -> dict[str, Any]:
    same = bool((low == high).all())
    p = 1.0 if same else float(stats.wilcoxon(low, high, alternative="less").pvalue)
    row = {"kind": "wilcoxon", "domain": setting.domain, "setting": setting.name}
    row |= {"better": better, "worse": worse, "metric": metric, "p": p}
    if len(low) >= 25 and metric in TARGETS.get((setting.domain, setting.name, better, worse), ()):
        row["reached"] = p < 0.01
    return row


if __name__ == "__main__":
    raise SystemExit(report.run("agent_markov_table1", __doc__, measure))
