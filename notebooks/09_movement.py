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
# # Where does the time of a deer go, and does its sex matter?
#
# Twelve deer carried GPS collars for ten days, with a fix every half hour. From the file as Movebank exports it to the
# time that animals rest, forage and travel, by hour of the day, and to the difference between the sexes with an
# interval that one can publish.
#
# The file is simulated, so that the truth is known: `examples/simulate_field_files.py` made it. Put the path of
# your own in its place.

# %%
import jax
import matplotlib.pyplot as plt
import pandas

import ethogram
from ethogram import plots, tracking
from ethogram.domains import field_files

# %% tags=["parameters"]
STEPS, RESTARTS, DRAWS = 500, 8, 200  # of the fit; paths that tables are made of

# %% [markdown]
# ## From the file to steps and turns
#
# Fixes are some seconds late: `snap=True` moves them to their half hour. Rows that Movebank marks as outliers are
# missing. Two fixes are 90 km off, and nobody marked them: `max_speed` (metres per second) finds fixes that can
# neither be reached nor left. Without it they would become a state of their own.

# %%
positions = tracking.read_movebank(
    field_files.path("deer.csv.gz"),
    step="30min",
    snap=True,
    metres=True,
    max_speed=3,
    covariates=["external-temperature"],
    missing_covariates="carry",
)
data = ethogram.step_and_turn(positions)
data

# %% [markdown]
# ## The fit
#
# A hidden Markov model of three states. Step lengths are gamma distributed and turning angles von Mises distributed; no
# Gaussian could be positive, or know that -pi and pi are the same angle. Fixes that are missing are summed out.

# %%
emission = ethogram.ProductEmission({"step": ethogram.GammaEmission(), "turn": ethogram.VonMisesEmission()})
model = ethogram.RoleHMM(3, emission)
settings = {"num_steps": STEPS, "restarts": RESTARTS, "progress_bar": False}
fit = ethogram.fit(jax.random.key(0), model, data, **settings)
steps = fit.result.posterior.mean()["step_mean"].ravel()
fit = fit.rename(dict(zip(steps.argsort().tolist(), ("rest", "forage", "travel"), strict=True)))
fit.summary().filter(regex="step_mean|turn_conc", axis=0).round(2)

# %% [markdown]
# The figure of a fit has the densities of the features by state, and the states of every animal: one row per animal, on
# an axis of dates, with gaps left blank.

# %% tags=["picture"]
fit.plot()
plt.show()

# %% [markdown]
# Does the model fit? Pseudo-residuals are standard normal and independent where it does, and the chain makes paths like
# those in the data.

# %%
fit.plot_checks()
plt.show()

# %% [markdown]
# ## Time budgets
#
# Shares of the recorded time, with 90 % intervals over paths that are drawn from the posterior, not from the most
# probable path alone.

# %%
fit.time_budget(num_draws=DRAWS).round({"mean": 3, "lower": 3, "upper": 3})

# %% [markdown]
# By hour of the day, in UTC as Movebank writes it: the animals travel at night.

# %%
hours = fit.time_budget(by="hour", num_draws=DRAWS)
figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
plots.state_intervals(hours, axes)
plt.show()

# %% [markdown]
# ## Does sex matter?
#
# The sexes are in a table of their own. Two intervals answer two questions. The first is about *these* animals in these
# ten days: how well do the fixes tell what they did? The second, `resample="agent"`, is about the population that the
# twelve are a sample of: in every draw each animal counts with a random weight (the Bayesian bootstrap), so that the
# spread between animals is part of the interval. A claim about the sexes needs the second.

# %%
sex = pandas.read_csv(field_files.path("deer_sex.csv"), index_col="animal")["sex"]
these = fit.time_budget(by={"sex": sex}, difference=("f", "m"), num_draws=DRAWS)
population = fit.time_budget(by={"sex": sex}, difference=("f", "m"), resample="agent", num_draws=DRAWS)
pandas.concat({"these animals": these, "the population": population}, axis=1).round(3)

# %% [markdown]
# Females rest more and travel less, and both intervals exclude zero; the truth is in the file that made the data. Bouts
# last as long as this:

# %%
fit.dwell_times(by={"sex": sex}, num_draws=DRAWS)

# %% [markdown]
# ## What does the temperature do?
#
# The collars measured it. A model of its own asks whether the animals change what they do when it gets warmer:
# [covariates](../covariates.md) move the log odds of every change of state. A name with a hyphen stands between
# backticks.

# %%
warmth = ethogram.RoleHMM(3, emission, transition=ethogram.Covariates("`external-temperature`"))
driven = ethogram.fit(jax.random.key(1), warmth, data, restarts=RESTARTS, progress_bar=False)
steps = driven.result.sites["step_mean"][0].mean(0).ravel()
driven = driven.rename(dict(zip(steps.argsort().tolist(), ("rest", "forage", "travel"), strict=True)))
driven.effects().filter(regex="mean|lower|upper|odds_ratio").round(2)

# %% [markdown]
# Odds ratios below one are changes that warm hours make rarer. What follows for the time of an animal is the second
# question: the shares of the long run if it stayed this cold, or this warm, with their difference.

# %%
driven.time_budget(at={"external-temperature": [4, 14]}).round(2)

# %%
driven.plot("external-temperature")
plt.show()

# %% [markdown]
# Is it the temperature, or the hour? Here it is warm by day and the animals rest by day, so that the one stands for the
# other. Adding `cc(hour, df=4, lower_bound=0, upper_bound=24)` to the formula, with `hour` as a column of the table, is
# the check that a reviewer would ask for.

# %% [markdown]
# ## What to take away
#
# A table with the state of every fix, at its own time, for any other program; a page with what was read, how it was
# fitted and what was found; and the fit itself.

# %%
states = fit.states().to_table()
states.to_csv("deer_states.csv", index=False)
fit.report("deer.html")
fit.save("deer.ethogram")
states.head()
