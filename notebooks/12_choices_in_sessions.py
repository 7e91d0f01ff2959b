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
# # Does a rat follow one rule, or does it switch between several?
#
# A rat hears two tones and says which was louder. Some of its errors are hard trials; others come in runs, as if it had
# stopped listening. A **GLM-HMM** (Ashwood and others 2022) has hidden states, each with a logistic regression of its
# own from tones and the trial before to the choice: what differs between states is how much each of these counts.
#
# The data are those of Akrami and others (2018), of the examples of psytrack.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram.domains import psytrack_rat

# %% tags=["parameters"]
SESSIONS, MOST_STATES = 20, 3

# %%
data = psytrack_rat.load().take(np.arange(SESSIONS))
data

# %% [markdown]
# ## How many states?
#
# Every fourth session is held out. The score is the log probability of its choices with the states summed out, in bits
# per trial above a coin.

# %%
formula = "s_a + s_b + previous_mean + previous_choice + previous_answer"
held_out = np.arange(SESSIONS) % 4 == 3
train, test = data.take(np.flatnonzero(~held_out)), data.take(np.flatnonzero(held_out))
fits, bits = {}, {}
for count in range(1, MOST_STATES + 1):
    model = ethogram.RoleHMM(count, ethogram.ChoiceEmission(formula))
    fits[count] = ethogram.fit(jax.random.key(count), model, train, progress_bar=False)
    bits[count] = 1 + np.asarray(fits[count].score(test).entries) / np.asarray(test.lengths) / np.log(2)
    print(f"{count} states: {np.mean(bits[count]):.3f} bits per trial")

# %% [markdown]
# A gain is compared with its spread over sessions, which are what the next experiment has anew. A gain below two
# standard errors is no evidence of more states, and is to be reported as such.

# %%
for count in range(2, MOST_STATES + 1):
    gain = bits[count] - bits[count - 1]
    error = np.std(gain, ddof=1) / np.sqrt(len(gain))
    print(f"{count} against {count - 1} states: {gain.mean():.3f} +- {error:.3f}")

# %% [markdown]
# ## What the states do
#
# Weights per unit of a covariate, with 90 % intervals; tones are standardised. States come in the order of the size of
# their weights, so that the state which listens is the first.

# %%
fit = fits[MOST_STATES]
fit.effects().filter(regex="mean|lower|upper").round(2)

# %% [markdown]
# The psychometric curve of each state: the probability of the second choice along the loudness of the second tone,
# other covariates at their medians, with 90 % bands.

# %% tags=["picture"]
fit.plot("s_b")
plt.show()

# %% [markdown]
# ## When is it in which state?

# %%
states = fit.states()
figure, axes = plt.subplots(figsize=(8, 2.4), layout="constrained")
length = int(np.asarray(train.lengths)[0])
for state, name in enumerate(fit.state_names):
    axes.plot(states.probability[0, :length, state], label=f"state {name}")
axes.set(xlabel="trial of the first session", ylabel="probability", ylim=(0, 1))
axes.legend(loc="upper right")
plt.show()

# %%
fit.time_budget().round({"mean": 3, "lower": 3, "upper": 3})

# %% [markdown]
# ## What one would report
#
# The number of states with the gain on held-out sessions and its standard error; the weights with their intervals; the
# share of trials in each state; and what the fit itself doubts.

# %%
print(fit.diagnose())
