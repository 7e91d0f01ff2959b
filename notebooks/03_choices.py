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
# # What is valued by who chooses?
#
# Choices tell values: of a Tetris player, who has some twenty legal placements of every piece, different ones each
# time, and of travellers, who have a car or not, and a train that runs or does not. Choice sets that vary need no
# padding.
#
# The model is a multinomial probit or logit: an option has a utility, linear in its features, plus noise, and the
# option with the largest sum is chosen. First the player; then one path from a CSV file of trips to willingness to pay.

# %%
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ethogram
from ethogram import choices
from ethogram.domains import tetris
from ethogram.plots import choices as plots_choices

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart

# %% tags=["parameters"]
PLACEMENTS = (100, 500)
WARMUP = 500
SAMPLES = 1000
TREE_DEPTH = 10
GAMES = 100
MOVES = 250
TRIPS = 1200

# %% [markdown]
# ## A player of Tetris
#
# This player cares most about holes: her values are (-3, -15, -1) for the height of the stack, its holes and its
# bumpiness. We fit her first hundred placements, and predict the next four hundred.

# %%
truth = (-3.0, -15.0, -1.0)
known, moves = PLACEMENTS
game = tetris.simulate(jax.random.key(3), truth, moves)
train, test = game.decisions.take(slice(0, known)), game.decisions.take(slice(known, None))
print(
    f"legal placements of a piece: {train.legal.sum(1).mean():.0f} on average, {train.legal.sum(1).max()} at most"
)

player = ethogram.NoisyMDP(kappa=2500.0, kind="features")
fit = ethogram.fit(
    jax.random.key(4),
    player,
    train,
    num_warmup=WARMUP,
    num_samples=SAMPLES,
    num_chains=2,
    max_tree_depth=TREE_DEPTH,
    progress_bar=False,
)
values = fit.result.sites["v"]  # by chain and draw
print(ethogram.choices.summarize_choices(player, fit.result.sites, train))

# %% [markdown]
# That was NUTS, since the settings are its own. Predictions are posterior predictive probabilities of each placement.
# The choice error is the share of placements that are not the most probable one. The oracle knows the true values but
# not the noise; no model has a smaller expected error.

# %%
probabilities = fit.predict(test)
guess = np.asarray(probabilities).argmax(1)
error = ethogram.choices.choice_error(guess, test)
floor = ethogram.choices.noise_floor(test.features @ np.array(truth), test)
chosen = np.take_along_axis(np.asarray(probabilities), test.choice[:, None], 1)
print(f"choice error: {error:.3f}; expected of the oracle: {floor:.3f}")
print(f"held-out log predictive density: {np.log(chosen).mean():.3f} nats per placement")

# %% tags=["picture"]
figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
plots_choices.value_marginals(values, axes[0], names=train.metadata.feature_names, truth=truth)
plots_choices.reliability(ethogram.choices.calibration(probabilities, test, 8), axes[1])
plt.show()

# %% [markdown]
# Left: marginal posteriors of her values, with the true values. Right: a reliability diagram, observed shares of
# options against predicted probabilities. And games of a player with the posterior means:

# %%
survived = tetris.play(jax.random.key(5), np.asarray(values).mean((0, 1)), GAMES, MOVES)
print(
    f"of {len(survived)} games of the learned player, {np.mean(survived == MOVES):.0%} lasted all {MOVES} moves"
)

# %% [markdown]
# Record your own game with `ethogram play tetris --out mine.csv`; `ethogram.domains.tetris.load_games("mine.csv")`
# reads its decisions for the model above.
#
# ## Trips, from the file on
#
# A file as surveys have them, with semicolons and decimal commas: a row per option, those that were not on offer with
# blanks, some answers lost. It is simulated, so that the truth is known: an hour is worth 9 euros on the way to work,
# and 6 otherwise.

# %%
rng = np.random.default_rng(11)
modes = ["bike", "bus", "car", "train"]
rows = pd.DataFrame({"trip": np.repeat(np.arange(TRIPS), 4), "mode": np.tile(modes, TRIPS)})
rows["purpose"] = np.repeat(rng.choice(["leisure", "work"], TRIPS), 4)
length = np.repeat(rng.uniform(3, 40, TRIPS), 4)
by_mode = {name: np.tile(values, TRIPS) for name, values in {
    "speed": [14, 22, 42, 48], "per_km": [0, 0.12, 0.35, 0.2], "constant": [0.4, -0.6, 0.0, 0.2],
}.items()}  # fmt: skip
rows["hours"] = (length / by_mode["speed"] * rng.uniform(0.7, 1.5, 4 * TRIPS)).round(2)
rows["euros"] = (length * by_mode["per_km"] * rng.uniform(0.6, 1.6, 4 * TRIPS)).round(2)
HOUR = {"leisure": 6, "work": 9}
cost = rows["euros"] + rows["purpose"].map(HOUR) * rows["hours"]
utility = -0.35 * cost + by_mode["constant"] + rng.gumbel(size=4 * TRIPS)
rows["on_offer"] = (rng.uniform(size=4 * TRIPS) < np.tile([0.8, 0.9, 0.7, 0.6], TRIPS)).astype(int)
rows.loc[rows.groupby("trip")["on_offer"].transform("sum") == 0, "on_offer"] = 1
utility = utility.where(rows["on_offer"] == 1, -np.inf)
rows["taken"] = (utility == utility.groupby(rows["trip"]).transform("max")).astype(int)
rows.loc[rows["trip"].isin(rng.choice(TRIPS, TRIPS // 50, replace=False)), "taken"] = 0  # answers lost
rows.loc[rows["on_offer"] == 0, ["hours", "euros"]] = np.nan
path = Path(tempfile.mkdtemp()) / "trips.csv"
rows.sample(frac=1, random_state=0).to_csv(path, index=False, sep=";", decimal=",")
print(path.read_text()[:200])

# %% [markdown]
# ## A formula
#
# Left of the bar are attributes of the options, with products; right of it what belongs to the trip, whose effects
# differ by mode, beside a constant of each mode but the base. A warning counts the answers that were lost.

# %%
read = {
    "decision": "trip",
    "option": "mode",
    "chosen": "taken",
    "available": "on_offer",
    "sep": ";",
    "decimal": ",",
}
formula = "euros + hours + hours:purpose | purpose"
trips = ethogram.Decisions.from_table(path, formula=formula, base_option="car", **read)
trips

# %%
model = ethogram.Logit()
logit = ethogram.fit(jax.random.key(0), model, trips)
print(choices.summarize_choices(model, logit.result.sites, trips))

# %% [markdown]
# ## What an hour is worth
#
# A ratio of coefficients has no posterior mean; its median and quantiles do exist. Of whom it is, `at` says.

# %%
draws = logit.result.sites
worth = {
    purpose: choices.willingness_to_pay(model, draws, trips, "hours", "euros", at={"purpose": purpose})
    for purpose in HOUR
}
for purpose, band in worth.items():
    print(
        f"{purpose}: an hour saved is worth {-band.median:.1f} euros, 90 % interval {-band.upper:.1f} to "
        f"{-band.lower:.1f}; truth {HOUR[purpose]}; {band.note}"
    )

# %% [markdown]
# ## Would less do?
#
# Models of the same choices by other formulas, in a table as papers have it, with a held-out score.

# %%
formulas = {"attributes": "euros + hours | 0", "constants": "euros + hours", "with covariates": formula}
data = {
    name: ethogram.Decisions.from_table(path, formula=each, base_option="car", **read)
    for name, each in formulas.items()
}
train = np.random.default_rng(0).uniform(size=TRIPS) < 0.75
fits = {name: ethogram.fit(jax.random.key(0), model, each.take(train)) for name, each in data.items()}
compared = ethogram.compare(fits, {name: each.take(~train) for name, each in data.items()})
print(compared.statement)
compared.to_table()  # .to_latex() writes it for a paper

# %% [markdown]
# ## If trains were dearer
#
# Shares now and with trains at twice the price, and what travellers lose by it: the log sum in money.

# %%
doubled = trips.scale_feature("euros", 2.0, option="train")
shares = choices.share_changes(model, draws, trips, doubled)
print(shares)
print(choices.consumer_surplus(model, draws, trips, doubled, "euros"))

# %%
figure, axes = plt.subplots(1, 2, figsize=(12, 3.6), layout="constrained")
for shift, part, label in ((-0.15, 0, "now"), (0.15, 1, "trains at twice the price")):
    low, high = shares.median - shares.lower, shares.upper - shares.median
    at = np.arange(len(modes)) + shift
    axes[0].errorbar(at, shares.median[:, part], (low[:, part], high[:, part]), fmt="o", label=label)
axes[0].set(xticks=range(len(modes)), xticklabels=modes, ylabel="share of trips")
axes[0].legend(frameon=False, loc="upper center")
for place, (purpose, band) in enumerate(worth.items()):
    axes[1].plot([-band.upper, -band.lower], [place, place], color="C0")
    axes[1].plot(-band.median, place, "o", color="C0")
    axes[1].plot(HOUR[purpose], place, "kx", markersize=9)
axes[1].set(yticks=range(len(worth)), yticklabels=list(worth), ylim=(-0.5, 1.5))
axes[1].set(xlabel="euros for an hour saved (cross: truth)")
plt.show()

# %% [markdown]
# [Discrete choice from another package](../choices_from_other_packages.md) has the same in the words of mlogit, apollo,
# xlogit and bayesm.
