"""The tour of gp-irl: the reward behind moves in an objectworld.

A square of cells with coloured objects, whose reward depends on the distances to two colours; a Gaussian process infers
it from demonstrations, by Laplace's approximation, in the long form by natural-gradient steps.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import ethogram
from ethogram.domains import objectworld
from ethogram.inference.rewards import difference_coverage, feature_rewards
from ethogram.models.data import Trajectories
from ethogram.models.mdps import expected_value_difference
from ethogram.plots import rewards as plots
from ethogram.tour.guide import Example

__all__ = ["EXAMPLE"]


def load(key: jax.Array, full: bool) -> tuple[Trajectories, objectworld.ObjectWorld]:
    """Demonstrations, and their world."""
    size, count = (10, 64) if full else (7, 32)
    key_world, key_paths = jax.random.split(key)
    # With fewer objects, a small world has no mixture of colours to learn from.
    world = objectworld.objectworld(key_world, size, density=0.1)
    return objectworld.simulate(key_paths, world, count), world


def model(world: objectworld.ObjectWorld) -> ethogram.GPIRL:
    """A Gaussian process on the features of the cells."""
    return ethogram.GPIRL(world.mdp, world.features)


def _rewards(fit: ethogram.Fit) -> np.ndarray:
    """Draws (draw, state) of the reward as a function of features."""
    draws = {name: np.asarray(site)[0] for name, site in fit.draws(200).sites.items()}
    return np.asarray(feature_rewards(jax.random.key(0), fit.model, draws))


def truth(fit: ethogram.Fit, world: objectworld.ObjectWorld) -> list[tuple[str, str, str]]:
    """What the optimal policy of the mean reward loses, and whether intervals hold the true differences."""
    reward = _rewards(fit)
    lost = float(expected_value_difference(world.mdp, world.reward, reward.mean(0)))
    unknown = float(expected_value_difference(world.mdp, world.reward, np.zeros(len(world.reward))))
    coverage = float(difference_coverage(reward, world.reward))
    correlation = float(np.corrcoef(reward.mean(0), world.reward)[0, 1])
    return [
        ("correlation of the mean reward with the true one", f"{correlation:.3f}", "1"),
        (f"expected value difference; without demonstrations {unknown:.1f}", f"{lost:.2f}", "0"),
        ("coverage of 90 % intervals of reward differences", f"{coverage:.2f}", "0.90"),
    ]


def draw(fit: ethogram.Fit, world: objectworld.ObjectWorld, figure: Any) -> None:
    """True reward, posterior mean with its policy, standard deviation, and coverage."""
    true, mean, spread, coverage = figure.subplots(1, 4, width_ratios=[1, 1, 1, 0.8])
    rewards, policy = _rewards(fit), fit.predict().posterior_mean
    objectworld.draw(world, true)
    true.set_title("true reward, and the objects", pad=22)
    found = rewards.mean(0)
    plots.reward_map(found - found.mean(), world.size, mean, label="posterior mean, centred")
    objectworld.draw_policy(world, policy, mean)
    mean.set_title("posterior mean, and policy")
    visited = np.bincount(np.asarray(fit.data.states).ravel(), minlength=len(found))
    plots.reward_map(
        (rewards - rewards.mean(1, keepdims=True)).std(0),
        world.size,
        spread,
        visited=visited,
        label="standard deviation",
        cmap="magma",
    )
    spread.set_title("posterior sd; rings: demonstrations")
    nominal = np.linspace(0.05, 0.95, 19)
    coverage.axline((0, 0), slope=1, color="0.5", linestyle=":")
    coverage.plot(nominal, difference_coverage(rewards, world.reward, nominal), ".-")
    coverage.set(xlabel="nominal probability", ylabel="coverage", title="coverage of the true differences")


EXAMPLE = Example(
    "an objectworld, demonstrations of 8 steps",
    load,
    model,
    {"method": "laplace", "progress_bar": False},
    {"method": "natural_gradient", "num_steps": 300},
    truth,
    draw,
    (18, 4.6),
)
