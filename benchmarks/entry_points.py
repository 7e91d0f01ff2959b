"""Strange calls of every public entry point."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st

import ethogram
from benchmarks.strange_calls import Call
from benchmarks.strange_files import DOMAIN, GARDEN, TABLE_TEXT, TETRIS, commands, files, read_domain, records
from benchmarks.strange_values import ANY, EPISODES, NAMES, TABLE, changed, datasets, optional
from ethogram import mdps, networks, rewards, roles, tracking
from ethogram.domains import tetris
from ethogram.inference import storage
from ethogram.models import emissions

__all__ = ["entry_points"]

FIELDS = (
    *ethogram.Trajectories._fields, "observations", "column", "metadata", "episode", "dataset", "start", "state_names",
    "action_names", "features", "transitions", "discount", "table", "constraints", "num_steps", "restarts", "basis",
)  # fmt: skip
"""Words of messages besides the arguments of a function: parts of what these hold."""


LEFT_OUT = (
    "self",
    "args",
    "kwargs",
    "parts",
    "settings",
    "progress_bar",
    "validate_args",
    "checkpoint",
    "visited",
)
"""Arguments that are not drawn: of any name, or of no meaning to what is read."""


def _made(function: Callable[..., Any], valid: dict[str, Any], **others: Any) -> st.SearchStrategy[Call]:
    """Calls by name with valid arguments, of which some are strange, and others that are optional."""
    options = dict.fromkeys(inspect.signature(function).parameters.keys() - valid.keys(), ANY)
    options = {name: value for name, value in options.items() if name not in LEFT_OUT}
    drawn = changed(valid, **(options | others))
    return drawn.map(lambda options: Call(function, (), options, FIELDS))


def _by_place(function: Callable[..., Any], values: Any, **options: Any) -> st.SearchStrategy[Call]:
    return st.builds(
        lambda values, options: Call(function, values, options, FIELDS), values, optional(**options)
    )


def entry_points() -> dict[str, st.SearchStrategy[Call]]:
    """Strange calls of every public entry point, by its name."""
    key = jax.random.key(0)
    corridor = mdps.MDP.deterministic([[0, 1], [0, 1]], discount=0.5, features=np.eye(2))
    rain = ethogram.BayesNet(([0.5, 0.5], [[0.5, 0.5], [0.25, 0.75]]), ((), (0,)))
    gaussian = ethogram.GaussianEmission(1)
    covered = ethogram.Trajectories.from_list(
        [np.zeros((6, 1))], covariates={"x": [[1.0, 2.0, 4.0, 3.0, 7.0, 5.0]]}
    )
    walk = ethogram.Trajectories.from_list([np.arange(12.0).reshape(6, 2)] * 2)
    acts = ethogram.Trajectories.from_list(states=[[0, 1, 0, 1]] * 2, actions=[[1, 0, 1, 1]] * 2)
    rows = ethogram.Decisions.from_list([np.eye(2), np.eye(2)], [0, 1])
    never = ethogram.IntentConstraints.never_switch
    numerals = st.just(
        ethogram.Metadata(
            state_names=["1", "a"], action_names=["2", "1"], agent_names=["7"], subject_names=["1", "0"]
        )
    )
    lists = dict.fromkeys(
        [
            "states",
            "actions",
            "stay",
            "observed",
            "agent",
            "group",
            "subject",
            "time",
            "step",
            "snap",
            "codes",
            "covariates",
        ],
        ANY,
    )
    of_table = dict.fromkeys(
        ["features", "sequence", "time", "states", "agent", "group", "covariates"], NAMES
    )
    of_decisions = ["decision", "features", "chosen", "option", "subject", "weight", "available"]
    of_mdp = dict.fromkeys(
        ["discount", "action_mask", "start", "features", "state_names", "action_names"], ANY
    )
    from_list, from_table = ethogram.Trajectories.from_list, ethogram.Trajectories.from_table
    chain = {"log_initial": np.log([0.5, 0.5]), "log_transition": np.log(np.full((2, 2), 0.5))}
    saved = {
        "model": storage.pack({"model": ethogram.RoleHMM(2, gaussian)}),
        "agent": storage.pack(ethogram.AgentMarkov(2, 2)),
    }
    scores = "scorer,a,a,a\nbodyparts,n,n,n\ncoords,x,y,likelihood\n0,1,2,0.9\n1,1,2,0.9\n"
    tracks = (
        "timestamp,location-long,location-lat,individual-local-identifier\n"
        + "".join(f"2024-01-01 0{i}:00:00.000,{i}.5,50.{i},a\n" for i in range(5))
    )  # fmt: skip
    points: dict[str, st.SearchStrategy[Call]] = {
        "GaussianEmission": _made(emissions.GaussianEmission, {"num_features": 2}),
        "GaussianMixtureEmission": _made(
            emissions.GaussianMixtureEmission, {"num_features": 2, "num_components": 2}
        ),
        "KnownCovarianceEmission": _made(emissions.KnownCovarianceEmission, {"covariance": np.eye(2)}),
        "AutoregressiveGaussianEmission": _made(
            emissions.AutoregressiveGaussianEmission, {"num_features": 2}
        ),
        "CategoricalEmission": _made(emissions.CategoricalEmission, {"num_categories": 3}),
        "BernoulliEmission": _made(emissions.BernoulliEmission, {"num_features": 2}),
        "BinomialEmission": _made(emissions.BinomialEmission, {"total_count": 5}),
        "PoissonEmission": _made(emissions.PoissonEmission, {"num_features": 2}),
        "GammaEmission": _made(emissions.GammaEmission, {"num_features": 2}),
        "VonMisesEmission": _made(emissions.VonMisesEmission, {"num_features": 2}),
        "ProductEmission": _made(
            emissions.ProductEmission, {"emissions": [gaussian, emissions.PoissonEmission(1)]}
        ),
        "Covariates": _made(ethogram.Covariates, {"formula": "x", "vary": "subject"}),
        "formula": _made(
            lambda formula: ethogram.Covariates(formula).bind(covered), {"formula": "np.log(x) + cr(x, df=3)"}
        ),
        "RoleHMM": _made(ethogram.RoleHMM, {"num_roles": 2, "emission": gaussian}),
        "AgentMarkov": _made(
            ethogram.AgentMarkov, {"num_states": 2, "num_actions": 2, "constraints": never(states=[1])}
        ),
        "IntentConstraints.never_switch": _made(never, {"states": [0]}),
        "IntentConstraints.stay": _made(ethogram.IntentConstraints.stay, {"states": [0], "at_least": 0.5}),
        "IntentConstraints.entry": _made(
            ethogram.IntentConstraints.entry, {"intent": 0, "next_intent": 1, "at_least": 0.5}
        ),
        "IntentConstraints.action": _made(
            ethogram.IntentConstraints.action, {"action": 0, "intent": 1, "at_least": 0.5}
        ),
        "NoisyMDP": _made(ethogram.NoisyMDP, {"kappa": 4.0}),
        "PXDA": _made(ethogram.PXDA, {"model": ethogram.NoisyMDP()}),
        "GPIRL": _made(ethogram.GPIRL, {"mdp": corridor, "features": np.eye(2), "inducing": [0]}),
        "SwitchingGPIRL": _made(ethogram.SwitchingGPIRL, {"base": ethogram.GPIRL(corridor), "num_intents": 2}),
        "BayesNet": _made(ethogram.BayesNet, {"tables": rain.tables, "parents": rain.parents}),
        "MarginalMAP": _made(
            ethogram.MarginalMAP, {"network": rain, "evidence": {0: 1}, "map_variables": [1]}
        ),
        "Metadata": _made(ethogram.Metadata, {"state_names": ["a", "b"]}),
        "memory_bound": _made(lambda most_bytes: ethogram.memory_bound(most_bytes).__enter__(), {"most_bytes": 2**31}),
        "from_list": _by_place(from_list, st.tuples(ANY), **lists, metadata=numerals),
        "from_table": st.builds(
            lambda table, options: Call(from_table, (table,), {"features": "x"} | options, FIELDS),
            TABLE,
            optional(**of_table, step=ANY, snap=ANY, codes=ANY, metadata=numerals),
        ),
        "from_episodes": _by_place(
            ethogram.Trajectories.from_episodes, st.tuples(EPISODES),
            agent=ANY, group=ANY, time=ANY, as_states=st.one_of(st.booleans(), ANY),
            with_actions=st.one_of(st.booleans(), ANY),
        ),
        "from_xarray": _by_place(
            ethogram.Trajectories.from_xarray, st.tuples(st.one_of(datasets(), ANY)),
            sequence=NAMES, agent=NAMES, time=NAMES, features=NAMES,
        ),
        "Decisions.from_list": _by_place(
            ethogram.Decisions.from_list, st.tuples(ANY), choice=ANY, subject=ANY, weight=ANY, metadata=numerals
        ),
        "Decisions.from_list of decisions": _made(
            ethogram.Decisions.from_list,
            {"features": [np.eye(2)] * 2, "choice": [0, 1], "subject": [0, 1], "weight": [1, 2]},
        ),
        "Decisions.from_table": st.builds(
            lambda table, options: Call(
                ethogram.Decisions.from_table, (table,), {"decision": "g", "features": "x"} | options, FIELDS
            ),
            TABLE, optional(**dict.fromkeys(of_decisions, NAMES)),
        ),
        "Decisions.from_table by a formula": st.builds(
            lambda table, options: Call(
                ethogram.Decisions.from_table, (table,),
                {"decision": "g", "formula": "x | t", "option": "s"} | options, FIELDS
            ),
            TABLE,
            optional(formula=st.one_of(st.text("xtgs01|+-*:()`~ ", max_size=8), ANY), base_option=NAMES, chosen=NAMES,
                     option=NAMES, available=NAMES, metadata=numerals),
        ),
        "Decisions.from_wide": st.builds(
            lambda table, options: Call(
                ethogram.Decisions.from_wide, (table,), {"features": {"x": ["x", "t"]}} | options, FIELDS
            ),
            TABLE,
            optional(features=st.one_of(st.dictionaries(st.sampled_from("xt"), NAMES), ANY), choice=NAMES, base=ANY,
                     legal=NAMES, subject=NAMES, weight=NAMES, metadata=numerals),
        ),
        "Decisions.from_mdp": _by_place(
            ethogram.Decisions.from_mdp, st.tuples(st.just(corridor), ANY),
            actions=ANY, legal=ANY, features=ANY, subject=ANY, weight=ANY,
        ),
        "MDP.dense": _by_place(mdps.MDP.dense, st.tuples(ANY), **of_mdp),
        "MDP.deterministic": _by_place(mdps.MDP.deterministic, st.tuples(ANY), **of_mdp),
        "MDP.deterministic of states": _made(mdps.MDP.deterministic, {"next_state": [[0, 1], [0, 1]]}, **of_mdp),
        "MDP.sparse": _by_place(mdps.MDP.sparse, st.tuples(ANY, ANY), discount=ANY),
        "MDP.from_counts": st.builds(
            lambda counts, options: Call(
                mdps.MDP.from_counts, (counts,), {"prior": 1.0, "discount": 0.5} | options, FIELDS
            ),
            ANY, optional(prior=ANY, discount=ANY, successors=ANY, support=ANY, action_mask=ANY),
        ),
        "MDP.from_gymnasium": st.builds(
            lambda table, options: Call(mdps.MDP.from_gymnasium, (table,), {"discount": 0.5} | options, FIELDS),
            ANY, optional(discount=ANY, terminal_actions=ANY),
        ),
        "MDP.with_history": _made(corridor.with_history, {"k": 1}),
        "step_and_turn": _made(ethogram.step_and_turn, {"positions": walk}),
        "interpolate": _made(tracking.interpolate, {"data": walk, "max_gap": 2}),
        "egocentric": _made(tracking.egocentric, {"data": walk, "centre": "x", "heading": "y"}),
        "soft_values": _made(mdps.soft_values, {"mdp": corridor, "reward": np.array([0.0, 1.0])}, max_steps=st.just(3)),
        "optimal_values": _made(
            mdps.optimal_values, {"mdp": corridor, "reward": np.array([0.0, 1.0])}, max_steps=st.just(3)
        ),
        "soft_policy": _made(mdps.soft_policy, {"mdp": corridor, "reward": np.array([0.0, 1.0])}, horizon=st.just(2)),
        "policy_values": _made(
            mdps.policy_values, {"mdp": corridor, "reward": np.array([0.0, 1.0]), "policy": np.full((2, 2), 0.5)}
        ),
        "representative_points": _made(rewards.representative_points, {"features": np.eye(3), "num": 2}),
        "select_inducing_points": _made(ethogram.select_inducing_points, {"demonstrations": acts, "mdp": corridor}),
        "align_states": _made(
            ethogram.align_states, {"reference": np.array([0, 1, 1]), "estimate": np.array([1, 0, 0])}
        ),
        "optimal_assignment": _made(roles.optimal_assignment, {"cost": np.eye(2)}),
        "HiddenMarkov": _made(
            ethogram.HiddenMarkov,
            {
                "initial": np.full(2, 0.5), "transition": np.full((2, 2), 0.5),
                "emission": ethogram.RoleHMM(2, gaussian).emission.distribution(
                    {"mean": np.zeros((2, 1)), "covariance": np.ones((2, 1, 1))}
                ),
                "num_steps": 2,
            },
        ),
        "ProbitChoice": _made(ethogram.ProbitChoice, {"utilities": np.eye(2)}),
        "log_normalizer": _made(
            ethogram.markov_chain.log_normalizer, chain | {"step_log_likelihood": np.zeros((3, 2))}
        ),
        "fit": _made(
            ethogram.fit,
            {"key": key, "model": ethogram.RoleHMM(1, emissions.GaussianEmission(2)), "data": walk, "method": "cavi"},
            num_steps=st.sampled_from([0, -1, None, 1.5, "a"]), restarts=st.sampled_from([0, 10**12, None, "a"]),
        ),
        "fit of choices": _made(
            ethogram.fit, {"key": key, "model": ethogram.NoisyMDP(4.0, kind="features"), "data": rows, "method": "none"}
        ),
        "solve_mmap": _made(
            ethogram.solve_mmap, {"key": key, "query": ethogram.MarginalMAP(rain, {}, [1]), "max_steps": 1},
            method=st.sampled_from(["hybrid", "a", None, 1]), callback=st.sampled_from([None, 1, "a"]),
        ),
        "network file": st.sampled_from(sorted(path.name for path in GARDEN.iterdir())).flatmap(
            lambda name: files(networks.read, (GARDEN / name).read_bytes())
        ),
        "evidence file": files(lambda path: networks.read_evidence(path, rain), "1 0 1"),
        "evidence list": files(lambda path: networks.read_evidence(path, rain), "x0 = 1\nx1 = 0\n"),
        "MAP file": files(lambda path: networks.read_map_variables(path, rain), "2 0 1"),
        "table file": files(lambda path: from_table(path, features=["x", "y"], sequence="id", time="time"),
                             TABLE_TEXT, ".csv"),
        "MDP file": files(functools.partial(mdps.read_mdp, discount=0.5),
                           "state,action,next_state,probability\n0,0,1,1\n1,0,0,0.5\n1,0,1,0.5\n", ".csv"),
        "state features file": files(lambda path: mdps.read_state_features(path, corridor), "state,x\n0,1\n1,2\n",
                                      ".csv"),
        "DeepLabCut file": files(tracking.read_deeplabcut, scores, ".csv"),
        "Movebank file": files(functools.partial(tracking.read_movebank, step="1h"), tracks, ".csv"),
        "Tetris file": files(tetris.load_games, TETRIS, ".csv"),
        "Tetris table": _made(tetris.load_games, {"table": {"game": [0], "board": ["0"], "piece": [1]}}),
        "fit file": st.sampled_from(sorted(saved)).flatmap(lambda name: files(ethogram.load, saved[name])),
        "fit record": records(saved["model"]),
        "command": commands(),
    }  # fmt: skip
    if importlib.util.find_spec("pyRDDLGym"):
        points["RDDL file"] = files(read_domain, DOMAIN, ".rddl")
    return points
