"""Emissions of a hidden state, each a conjugate prior, a potential and a distribution, and products of them.

Bases are `Emission`, and `FeatureEmission` for independent features; ``CONTRIBUTING.md`` shows how to add one.

Formulas: Le, Yue, Carr, Lucey (2017), supplement, whose count in eq. 4 must be the state's own count; Murphy
(2007) for the normal-inverse-Wishart.
"""

from ethogram.models.emissions.autoregressive import AutoregressiveGaussianEmission
from ethogram.models.emissions.categorical import CategoricalEmission
from ethogram.models.emissions.counts import BernoulliEmission, BinomialEmission, PoissonEmission
from ethogram.models.emissions.emission import Emission, read_observations, require_values
from ethogram.models.emissions.feature_emission import FeatureEmission, linear_in_features, recorded
from ethogram.models.emissions.gaussian import (
    GaussianEmission,
    GaussianMixtureEmission,
    KnownCovarianceEmission,
)
from ethogram.models.emissions.product import ProductEmission
from ethogram.models.emissions.steps import GammaEmission, VonMisesEmission

__all__ = [
    "AutoregressiveGaussianEmission",
    "BernoulliEmission",
    "BinomialEmission",
    "CategoricalEmission",
    "Emission",
    "FeatureEmission",
    "GammaEmission",
    "GaussianEmission",
    "GaussianMixtureEmission",
    "KnownCovarianceEmission",
    "PoissonEmission",
    "ProductEmission",
    "VonMisesEmission",
    "linear_in_features",
    "read_observations",
    "recorded",
    "require_values",
]
