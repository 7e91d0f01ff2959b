"""Emission of symbols (Bishop 2006, section 2.2)."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from ethogram.models.arguments import concretely, require_integer
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.emission import (
    read_observations,
    read_parameters,
    require_values,
    whole_up_to,
)
from ethogram.models.emissions.feature_emission import FeatureEmission
from ethogram.models.families.exponential_family import Dirichlet, DirichletCoordinates, Known
from ethogram.models.model_object import model_object, static_field

__all__ = ["CategoricalEmission"]


@model_object
class CategoricalEmission(FeatureEmission):
    r"""One categorical distribution per state: :math:`p_k \sim Dir(c)`, :math:`x_t \mid z_t = k \sim p_k`.

    Parameters
    ----------
    num_categories : V; observations are whole numbers 0..V-1, NaN where missing, one feature.
    concentration : c; a number or (category,).
    known : ``Known(probability (state, category))``, NaN rows where unknown.
    """

    num_categories: int = static_field()
    concentration: Any = 1.0
    known: Known | None = None
    num_features: ClassVar[int] = 1
    block_name: ClassVar[str] = "probability"
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"probability": ("state", "category")}

    def __post_init__(self):
        require_integer("num_categories", self.num_categories, 1)
        self._set(
            **read_parameters({"concentration": (self.num_categories,)}, concentration=self.concentration)
        )
        self.block()

    def block(self) -> Dirichlet:
        return Dirichlet.from_standard(self.concentration)

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state), :math:`\psi(c_{kv}) - \psi(\sum_v c_{kv})`, of arranged symbols."""
        table = self.symbol_table(expected)
        return jnp.pad(table, ((0, 1), (0, 0)))[observations]

    def log_density(self, parameters: tuple[Any, ...], frames: Array) -> Array:
        """Log probability (..., state) of frames (..., 1)."""
        return super().log_density(parameters, self._symbols(jnp, frames))

    def symbol_table(self, expected: dict[str, Any]) -> Array:
        """Expected log probability (symbol, state)."""
        return expected["probability"].concentration.T

    def arrange(self, data: Trajectories) -> Array | np.ndarray:
        """Symbols (sequence, time) as integers; V where a symbol is missing."""
        return concretely(self._symbols, self.read(data))

    def _symbols(self, xp: Any, frames: Any) -> Any:
        symbol = frames[..., 0]
        return xp.where(xp.isnan(symbol), self.num_categories, symbol).astype(np.int32)

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Symbol frequencies of the sequence of each frame (single symbols are equidistant)."""
        sequence = np.broadcast_to(np.arange(len(observed))[:, None], observed.shape)
        counts = np.zeros((len(observed), self.num_categories + 1))
        np.add.at(counts, (sequence[observed], observations[observed]), 1)
        counts = counts[:, :-1]
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        return np.broadcast_to(share[:, None], (*observed.shape, self.num_categories))

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Counts of the symbols of each state in labelled frames."""
        counts = np.zeros((num_states, self.num_categories + 1))
        np.add.at(counts, (labels, frames), 1)
        return {"probability": DirichletCoordinates(counts[:, :-1])}

    def feature_distribution(self, probability: Any) -> dist.Distribution:
        return dist.CategoricalProbs(probability[:, None])

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Symbols (sequence, time, 1)."""
        x, highest = read_observations(data, 1), self.num_categories - 1
        fix = f"use 0..{highest}, or NaN for what is missing"
        fault = f"lies outside the {self.num_categories} categories"
        return require_values(data, x, functools.partial(whole_up_to, highest), fault, fix)
