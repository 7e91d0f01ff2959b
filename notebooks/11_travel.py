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
# # What is an hour of travel worth?
#
# Two hundred people made four trips each, and chose between car, bus, train and bicycle. From a CSV file with one row
# per option to willingness to pay, with an interval, and to shares under another price.
#
# The file is simulated, so that the truth is known: an hour is worth 12 euros (`examples/simulate_field_files.py`).

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram.domains import field_files
from ethogram.plots import choices as plots

# %% tags=["parameters"]
WARMUP, SAMPLES = 500, 1000

# %% [markdown]
# ## From the file to decisions
#
# A decision is a trip; not every option is available for each.

# %%
columns = {"decision": "trip", "option": "mode", "chosen": "chosen", "features": ["hours", "euros"]}
data = ethogram.Decisions.from_table(str(field_files.path("trips.csv")), **columns)
data

# %% [markdown]
# ## The fit
#
# A quarter of the trips is held out. A multinomial probit: an option has a utility, linear in its features, plus normal
# noise, and the largest is chosen. Utilities are in units of the noise, so that their ratio is what has a meaning. The
# modes of this file were simulated without a constant each; real modes need `action_rewards=True`, or their constants
# bias the weights.

# %%
model = ethogram.NoisyMDP(kind="features")
settings = {"num_warmup": WARMUP, "num_samples": SAMPLES, "num_chains": 2, "progress_bar": False}
train, test = data.split(jax.random.key(1), test_fraction=0.25)
fit = ethogram.fit(jax.random.key(0), model, train, "nuts", **settings)
fit.summary()

# %% tags=["picture"]
fit.plot()
plt.show()

# %% [markdown]
# ## Willingness to pay
#
# What an hour less is worth, in euros: the ratio of two weights, with its interval.

# %%
worth = ethogram.choices.willingness_to_pay(model, fit.result.sites, train, "hours", "euros")
print(
    f"an hour saved is worth {-worth.median:.1f} euros, "
    f"90 % interval {-worth.upper:.1f} to {-worth.lower:.1f}; truth 12"
)

# %% [markdown]
# ## Does the model predict?
#
# Held-out trips: probabilities that it gives, against what was chosen.

# %%
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
plots.reliability(ethogram.choices.calibration(fit.predict(test), test, 8), axes)
plt.show()
score = fit.score(test)
chance = -np.log(np.asarray(test.legal).sum(1)).mean()
print(f"{score.mean:.3f} +- {score.se:.3f} nats per trip; by chance {chance:.3f}")

# %% [markdown]
# ## What if trains were dearer?
#
# Shares of the modes, with trains at twice the price.

# %%
modes = data.metadata.action_names
dearer = np.array(data.features)
dearer[:, modes.index("train"), data.metadata.feature_names.index("euros")] *= 2
for name, given in (("now", data), ("trains at twice the price", data._replace(features=dearer))):
    shares = ethogram.choices.choice_shares(model, fit.result.sites, given)
    each = ", ".join(f"{mode} {100 * share:.0f} %" for mode, share in zip(modes, shares.mean, strict=True))
    print(f"{name}: {each}")
