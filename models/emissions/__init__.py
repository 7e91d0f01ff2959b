r"""Emissions of a hidden state, each a conjugate prior, a potential and a distribution, and products of them.

Every emission offers the same parts. ``prior(num_states)`` gives its conjugate blocks by name;
``expected_log_likelihood(expected, observations)`` is :math:`E_q \ln p(x \mid \phi_k)`, linear in the expected
statistics of the blocks (Gaussian mixtures: a logsumexp of such terms), so that its gradient are the
statistics of the data, and at a point of the parameters it is the log density; ``distribution(parameters)`` is the
numpyro distribution at given parameters, states on its last batch axis; ``read(data)`` takes the observations out of
:class:`~ethogram.models.data.Trajectories` and raises an error where they do not fit.

Formulas: Le, Yue, Carr, Lucey (2017), supplement, whose count in eq. 4 must be the state's own count; Murphy
(2007) for the normal-inverse-Wishart.
"""

from ethogram.models.emissions.autoregressive import AutoregressiveGaussianEmission
from ethogram.models.emissions.categorical import CategoricalEmission
from ethogram.models.emissions.counts import BernoulliEmission, BinomialEmission, PoissonEmission
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
    "GammaEmission",
    "GaussianEmission",
    "GaussianMixtureEmission",
    "KnownCovarianceEmission",
    "PoissonEmission",
    "ProductEmission",
    "VonMisesEmission",
]
