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
# # Which syllables does a mouse use, and does its genotype matter?
#
# Six mice in an open field, filmed at 30 frames per second; DeepLabCut has found nose, neck and the base of the tail.
# From one file per mouse to syllables of behaviour, and to how often mutants use each of them.
#
# The files are simulated, so that the truth is known: `examples/simulate_field_files.py` made them.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram import plots, tracking
from ethogram.domains import field_files

# %% tags=["parameters"]
STEPS, RESTARTS, DRAWS = 500, 8, 200  # of the fit; paths that tables are made of

# %% [markdown]
# ## From keypoints to features
#
# `read_deeplabcut` takes all files at once. Mice have the names of their files, and a part of these, found by a regular
# expression, is the genotype. Keypoints of low likelihood are missing. `egocentric` turns each pose to the animal's own
# axis, and keeps how fast it moves ahead and turns. Gaps of up to five frames are filled in after that: a line between
# two places would hide frames in which the tracker took the nose for the tail, and is no path of an animal that turns.

# %%
poses = tracking.read_deeplabcut(str(field_files.path("mice") / "*.csv"), frame_rate=30, subject="wt|ko")
body = tracking.egocentric(poses, centre="tail_base", heading="neck", keep_motion=True)
data = tracking.interpolate(body, max_gap=5)
data

# %% [markdown]
# ## Syllables
#
# A hidden Markov model whose states are Gaussian in posture and motion together. Missing features of a frame are summed
# out. Units may differ, since the prior takes its scale from the data.

# %%
model = ethogram.RoleHMM(4, ethogram.GaussianEmission(data.observations.shape[-1]))
settings = {"num_steps": STEPS, "restarts": RESTARTS, "progress_bar": False}
fit = ethogram.fit(jax.random.key(0), model, data, **settings)
means = fit.result.posterior.mean()["mean"]
features = data.metadata.feature_names
speed, turn = (means[:, features.index(name)] for name in ("forward_speed", "turning_speed"))
names = {int(np.argmin(turn)): "turn left", int(np.argmax(turn)): "turn right"}  # y points down in images
straight = sorted(set(range(4)) - names.keys(), key=lambda state: speed[state])
fit = fit.rename(names | dict(zip(straight, ("pause", "walk"), strict=True)))
fit.summary().filter(regex="^mean.*speed", axis=0).round(1)

# %% tags=["picture"]
fit.plot(window=(0, 20))
plt.show()

# %% [markdown]
# ## Usage by genotype
#
# Usage counts bouts: how often is each syllable chosen? Intervals are over paths drawn from the posterior.

# %%
usage = fit.usage(by="subject", num_draws=DRAWS)
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
plots.state_intervals(usage, axes)
axes.set_ylabel("share of bouts")
plt.show()

# %% [markdown]
# Mutants turn more. With three animals a side the interval that matters resamples the animals: it is about mice like
# these, not about these six.

# %%
fit.usage(by="subject", difference=("ko", "wt"), resample="agent", num_draws=DRAWS).round(3)

# %% [markdown]
# Which syllable follows which, where it changes, and how long bouts last:

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
plots.transition_intervals(fit.transitions(num_draws=DRAWS), axes[0])
plots.bout_durations(fit.bouts(), axes[1])
plt.show()

# %%
fit.dwell_times(by="subject", num_draws=DRAWS).round(2)

# %% [markdown]
# Every bout, with its time in the video, for a look at the frames:

# %%
bouts = fit.bouts()
bouts[bouts["state"] == "turn left"].nlargest(5, "duration")
