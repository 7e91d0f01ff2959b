"""Online planning on problems of the planning competitions: returns, legal actions, compilation and decision times.

"returns": mean return of 30 episodes with 50 ms a decision, beside doing nothing and the random policy; instances 5
and 10 with a second per decision, three episodes; and JaxPlan with a second per decision (pyRDDLGym-jax, its default
settings for replanning) where that is installed; and, where dynamic programming finds it, the best policy in the same
episodes, with its expectation. "legal": steps in an environment that refuses actions which break a
precondition, on the first instance of every domain of 2011, 2014 and 2018 whose state is seen. "time": compilation, and
a decision of 32 restarts and 15 steps at depth 8, medians of 20.

PROST, which is no Python package, is not run. Targets are those of a prototype, less its standard error. The domains
are those of the repository `rddlrepository`; the planner is that of Cui, Khardon (2016) and of Cui, Marinescu, Khardon
(2018). An existing record is continued: its rows are not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import report
from benchmarks.peers import why_skipped
from ethogram.domains.optimal_policy import OptimalPolicy
from ethogram.inference.planning import RandomPolicy, SogbofaPolicy, plan, play_episodes
from ethogram.models.planning import problem_from_model

__all__ = ["measure"]

TARGETS = {
    "SysAdmin_MDP_ippc2011": 330.0,
    "SkillTeaching_MDP_ippc2011": 60.0,
    "Wildfire_MDP_ippc2014": -60.0,
    "AcademicAdvising_ippc2018": -55.0,
}
LARGER = tuple(TARGETS)[:2]
"""Domains whose instances 5 and 10 are played, and those of JaxPlan."""
SOLVED = ("SysAdmin_MDP_ippc2011", "SkillTeaching_MDP_ippc2011", "Wildfire_MDP_ippc2014")
"""Domains whose first instance has a known best policy."""
TIMED = ("SysAdmin_MDP_ippc2011", "Traffic_MDP_ippc2014")
"""Domains whose compilation and decisions are timed; there are targets for the first."""
COMPILE_S, DECISION_MS = 3.0, 10.0
PEERS = ("pyRDDLGym", "rddlrepository", "pyRDDLGym-jax")
YEARS = ("ippc2011", "ippc2014", "ippc2018")


class NoPolicy:
    """Does nothing."""

    def sample_action(self, state: Any) -> dict[str, bool]:
        return {}


def environment(name: str, instance: int) -> Any:
    """An environment that refuses actions which break a precondition."""
    import pyRDDLGym

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pyRDDLGym.make(name, str(instance), enforce_action_constraints=True)


def domains() -> list[str]:
    """Names of the domains of the three competitions whose state is seen."""
    from rddlrepository.core.manager import RDDLRepoManager

    names = RDDLRepoManager(rebuild=False).list_problems()
    return sorted(name for name in names if name.endswith(YEARS) and "POMDP" not in name)


def returns(name: str, instance: int, seconds: float, episodes: int, seed: int) -> Iterator[report.Row]:
    world = environment(name, instance)
    problem = problem_from_model(world.model)
    policies: dict[str, Any] = {"no-op": NoPolicy(), "random": RandomPolicy(jax.random.key(seed), problem)}
    policies["SOGBOFA"] = SogbofaPolicy(
        jax.random.key(seed), problem, seconds, max_steps=30 if seconds < 1 else 100
    )
    for policy, agent in policies.items():
        found = play_episodes(world, agent, episodes, seed=seed, progress_bar=False)
        row = _row_of_returns(name, instance, policy, found.returns, 1e3 * float(found.seconds.mean()))
        row |= {
            "limit_s": seconds if policy == "SOGBOFA" else None,
            "depth": getattr(agent, "depth", None),
        }
        if policy == "SOGBOFA" and instance == 1:
            row |= {"target": TARGETS[name], "reached": row["mean"] >= TARGETS[name]}
        yield row


def _row_of_returns(
    name: str, instance: int, policy: str, returns: np.ndarray, decision_ms: float
) -> dict[str, Any]:
    count = len(returns)
    return {
        "kind": "returns",
        "domain": name,
        "instance": instance,
        "policy": policy,
        "episodes": count,
        "mean": float(returns.mean()),
        "se": float(returns.std(ddof=1) / np.sqrt(count)) if count > 1 else None,
        "decision_ms": decision_ms,
    }


def jaxplan_returns(name: str, instance: int, seconds: float, episodes: int, seed: int) -> report.Row:
    """Returns of JaxPlan (the extra ``[bench-planning]``), which plans anew at every step, compilation apart."""
    why = why_skipped("pyRDDLGym_jax.core.planner")
    if why is not None:
        return {"kind": "returns", "domain": name, "instance": instance, "policy": "JaxPlan", "note": why}
    import pyRDDLGym
    from pyRDDLGym_jax.core import planner

    settings = Path(planner.__file__).parents[1] / "examples" / "configs" / "default_replan.cfg"
    returns, spent = [], []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        world = pyRDDLGym.make(name, str(instance), vectorized=True, enforce_action_constraints=True)
        of_planner, _, of_training = planner.load_config(str(settings))
        made = planner.JaxBackpropPlanner(rddl=world.model, **of_planner)
        agent = planner.JaxOnlineController(made, **{**of_training, "train_seconds": seconds})
        agent.sample_action(world.reset(seed=seed)[0])  # compiles
        for episode in range(episodes):
            state, _ = world.reset(seed=seed + episode)
            agent.reset()
            total, over = 0.0, False
            while not over:
                begin = time.perf_counter()
                action = agent.sample_action(state)
                spent.append(time.perf_counter() - begin)
                state, reward, ended, cut, _ = world.step(action)
                total, over = total + float(reward), ended or cut
            returns.append(total)
    row = _row_of_returns(name, instance, "JaxPlan", np.array(returns), 1e3 * float(np.mean(spent)))
    return {**row, "limit_s": seconds}


def legal(name: str, steps: int, seed: int) -> report.Row:
    """Steps in an environment that raises on an action that is not allowed."""
    world = environment(name, 1)
    problem = problem_from_model(world.model)
    agent = SogbofaPolicy(
        jax.random.key(seed), problem, 10.0, depth=4, num_restarts=8, max_steps=5, mode="original"
    )
    done = refused = episode = 0
    while done < steps:
        state, _ = world.reset(seed=seed + episode)
        agent.reset()
        episode, over = episode + 1, False
        while not over and done < steps:
            done += 1
            try:
                state, _, ended, cut, _ = world.step(agent.sample_action(state))
                over = ended or cut
            except Exception:  # pyRDDLGym has a class for each error
                refused, over = refused + 1, True
    row = {"kind": "legal", "domain": name, "instance": 1, "steps": done, "refused": refused}
    return {**row, "target": 0, "reached": refused == 0, "rows": problem.program.num_rows}


def times(name: str, seed: int) -> report.Row:
    problem = problem_from_model(environment(name, 1).model)
    keys = jax.random.split(jax.random.key(seed), 21)
    settings: dict[str, Any] = {"mode": "original", "depth": 8, "max_steps": 15, "time_limit": 100.0}
    begin = time.process_time(), time.perf_counter()
    plan(keys[0], problem, **settings)
    compile_cpu, compile_wall = time.process_time() - begin[0], time.perf_counter() - begin[1]
    spent = []
    for key in keys[1:]:
        now = time.process_time()
        plan(key, problem, **settings)
        spent.append(1e3 * (time.process_time() - now))
    decision = float(np.median(spent))
    row: dict[str, Any] = {
        "kind": "time",
        "domain": name,
        "instance": 1,
        "compile_wall_s": compile_wall,
        "compile_cpu_s": compile_cpu,
        "decision_cpu_ms": decision,
        "rows": problem.program.num_rows,
    }
    if name == TIMED[0]:
        row |= {"target": f"compile {COMPILE_S:g} s, decision {DECISION_MS:g} ms"}
        row |= {"reached": compile_wall <= COMPILE_S and decision <= DECISION_MS}
    return row


def optimal_returns(name: str, episodes: int, seed: int) -> report.Row:
    """Returns of the best policy in the episodes of the others, and their expectation."""
    world = environment(name, 1)
    agent = OptimalPolicy(problem_from_model(world.model))
    found = play_episodes(world, agent, episodes, seed=seed, progress_bar=False)
    row = _row_of_returns(name, 1, "optimal", found.returns, 1e3 * float(found.seconds.mean()))
    return {**row, "expectation": agent.value}


Task = tuple[tuple[Any, ...], Callable[[], report.Row | Iterator[report.Row]]]


def _tasks(quick: bool, seed: int) -> Iterator[Task]:
    """What rows are of (kind, domain, instance, policy of the last), and how to measure them."""
    for name in TIMED:
        yield ("time", name, 1, None), partial(times, name, seed)
    episodes = 3 if quick else 30
    played = [(name, 1, 0.05, episodes) for name in list(TARGETS)[: 1 if quick else None]]
    if not quick:
        played += [(name, instance, 1.0, 3) for name in LARGER for instance in (5, 10)]
    for name, instance, seconds, many in played:
        yield ("returns", name, instance, "SOGBOFA"), partial(returns, name, instance, seconds, many, seed)
    for name in SOLVED[: 1 if quick else None]:
        yield ("returns", name, 1, "optimal"), partial(optimal_returns, name, episodes, seed)
    for name, instance, *_ in played:
        if name in LARGER and not quick:
            task = partial(jaxplan_returns, name, instance, 1.0, 3, seed)
            yield ("returns", name, instance, "JaxPlan"), task
    for name in domains()[: 1 if quick else None]:
        yield ("legal", name, 1, None), partial(legal, name, 20 if quick else 1000, seed)


def measure(settings: argparse.Namespace) -> list[report.Row]:
    """Rows of the benchmark, those of an existing record first."""
    why = why_skipped("pyRDDLGym", "rddlrepository.core.manager")
    if why is not None:
        return [{"kind": "all", "note": f"{why}: pip install 'ethogram[planning]'"}]
    rows: list[report.Row] = []
    if settings.json is not None and settings.json.is_file():
        stored = json.loads(settings.json.read_text(encoding="utf-8"))["rows"]
        rows += [row for row in stored if not str(row.get("note")).startswith("skipped")]
    known = {tuple(row.get(name) for name in ("kind", "domain", "instance", "policy")) for row in rows}
    begin = time.perf_counter()
    for identity, task in _tasks(settings.quick, settings.seed):
        if identity not in known:
            made = task()
            rows += [made] if isinstance(made, Mapping) else list(made)
            if settings.json is not None:
                spent = time.perf_counter() - begin
                report.write_record(
                    settings.json, report.make_record("planning", settings, rows, spent, peers=PEERS)
                )
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("planning", __doc__, measure, peers=PEERS))
