# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which computer should be rebooted now?
#
# Ten computers are connected; each fails now and then, and the more of its neighbours are down, the sooner. One of them
# may be rebooted at a time. There are 1024 states and only eleven actions, but plans of eight steps are two hundred
# million. SOGBOFA does not enumerate them: it propagates the *probability* that each computer runs through the next
# steps, which makes the sum of rewards a smooth function of the probabilities of all actions, and climbs its gradient.

# %%
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram import planning
from ethogram.domains.fluent_team import FluentTeam, LearnedTeam, PlannerExpert
from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.sysadmin import sysadmin
from ethogram.plots import planning as plots_planning

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart

# %% tags=["parameters"]
EPISODES = 20
HORIZON = 20
ROUNDS = 6

# %% [markdown]
# ## From an RDDL file to a problem
#
# Planning problems are written in RDDL. Two short files, one of the domain and one of the instance, become polynomials
# of probabilities: equal expressions are one, and what no fluent or action can change is folded into constants.

# %%
DOMAIN = """
domain lamp {
  requirements = { reward-deterministic };
  types { room : object; };
  pvariables {
    DARK(room)  : { non-fluent, real, default = 0.2 };
    lit(room)   : { state-fluent, bool, default = true };
    light(room) : { action-fluent, bool, default = false };
  };
  cpfs {
    lit'(?r) = if (light(?r)) then KronDelta(true)
               else if (lit(?r)) then Bernoulli(1.0 - DARK(?r)) else KronDelta(false);
  };
  reward = sum_{?r : room} [lit(?r)] - sum_{?r : room} [0.1 * light(?r)];
}
"""
INSTANCE = """
non-fluents house { domain = lamp; objects { room : {kitchen, hall, attic}; }; non-fluents { DARK(attic) = 0.6; }; }
instance evening { domain = lamp; non-fluents = house; max-nondef-actions = 1; horizon = 20; discount = 1.0; }
"""
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "domain.rddl").write_text(DOMAIN)
    (Path(folder) / "instance.rddl").write_text(INSTANCE)
    lamps = ethogram.read_rddl(Path(folder) / "domain.rddl", Path(folder) / "instance.rddl")
dark = dict.fromkeys(lamps.fluents, False)
found = ethogram.plan(jax.random.key(0), lamps, dark)
print(f"all rooms dark: {found.action}, value {found.value:.2f} of {found.depth} steps")

# %% [markdown]
# The attic goes dark again soon, so that a light there is worth less: the planner lights one of the others first.
#
# ## A plan, and what it expects
#
# The same for the ten computers, of which three are down. The first column is what is done now, the others are what is
# intended later; they may stay probabilities, since only the first action is carried out before the next plan.

# %%
network = sysadmin(10)
state = {name: name[-2:] not in ("c3", "c4", "c8") for name in network.fluents}
now = ethogram.plan(jax.random.key(1), network, state)
print(f"now: {now.action}; {now.num_steps} steps of 32 climbs in {1e3 * now.seconds:.0f} ms")

# %% [markdown]
# ## What happened
#
# A policy plans anew at every step. Its returns stand beside those of doing nothing.

# %%
policy = ethogram.SogbofaPolicy(jax.random.key(2), network, depth=8)
played = planning.play_episodes(FluentWorld(network), policy, EPISODES, progress_bar=False)


class Nothing:
    """Never reboots."""

    def sample_action(self, state):
        return {}


idle = planning.play_episodes(FluentWorld(network), Nothing(), EPISODES, progress_bar=False)
for name, each in (("planned", played), ("nothing", idle)):
    error = each.returns.std(ddof=1) / np.sqrt(EPISODES)
    print(f"{name}: mean return {each.returns.mean():.0f}, standard error {error:.0f}")

# %% tags=["picture"]
figure, axes = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
plots_planning.plan_marginals(now, network.actions, ax=axes[0])
plots_planning.episode_timeline(played, ax=axes[1])
plots_planning.episode_timeline(idle, ax=axes[2])
axes[1].set_title(f"planned: return {played.returns[0]:.1f}")
axes[2].set_title(f"nothing done: return {idle.returns[0]:.1f}")
plt.show()

# %% [markdown]
# On the left the plan with three computers down; in the middle an episode in which a plan is made at every step (blue:
# running, crosses: reboots); on the right the same network left alone, where failures spread.
#
# ## A policy that needs no planning
#
# The planner can be asked in any state, so that a policy may learn from it: a tree first sees a few episodes of the
# planner, then plays itself, and the planner says what it would have done in the states that the tree came to (DAgger).

# %%
from sklearn.tree import DecisionTreeClassifier  # noqa: E402

ring = sysadmin(6, horizon=HORIZON)
planner = ethogram.SogbofaPolicy(jax.random.key(3), ring, None, depth=4)
team, small = FluentTeam(ring), FluentWorld(ring)
learned = ethogram.imitate(
    jax.random.key(4),
    [0, 0, 0],  # one agent, one role
    DecisionTreeClassifier(),
    team,
    team.demonstrations(planning.play_episodes(small, planner, 3, progress_bar=False)),
    expert=PlannerExpert(team, planner),
    rounds=ROUNDS,
    horizon=HORIZON,
    progress_bar=False,
)
agents = {"planner": planner, "tree": LearnedTeam(team, learned.policies), "nothing": Nothing()}
compared = {
    name: planning.play_episodes(small, each, EPISODES, progress_bar=False) for name, each in agents.items()
}
print(f"answers of the tree that are not the planner's, by round: {np.round(learned.loss, 2)}")
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.boxplot([each.returns for each in compared.values()], tick_labels=list(compared), showmeans=True)
axes.set(ylabel="return", title="episodes; triangles: means")
plt.show()

# %% [markdown]
# The tree earns what the planner does, in a fraction of the time of a decision.
