"""Exponential families: conjugate blocks, their divergences, and blocks as numpyro sites.

A `ConjugateBlock` is a distribution over parameters by its natural coordinates, where a conjugate update is an addition
(`step`). `expected_statistics` are what a log normaliser takes, `divergence` is the KL divergence in the ELBO, without
cancellation; `expected_statistics`, `natural_step` and `total_kl` of a whole tree of blocks are functions here. `draw`
is written once, for JAX (`sample`) and for NumPy (`sample_numpy`), by a source of variates; `sites` are the block in a
numpyro model (`sample_parameters`, `by_site`). Constructors ``from_standard`` check values, nothing else does.

======================================== ===========================================================================
`Dirichlet`, `Beta`, `Gamma`             probabilities and rates
`Normal`                                 means of Gaussians of known covariance
`MatrixNormalInverseWishart`             coefficients and covariance of a regression; `NormalInverseWishart`, mean and
                                         covariance, is the case of the regressor 1
`GammaConjugate`, `VonMisesConjugate`    parameters of gamma and von Mises distributions, normalised by quadrature
`PartlyKnown`                            rows of any block held at known values (`Known`)
`ConstrainedDirichlet`                   rows with bounds on their means, which `projection` keeps
======================================== ===========================================================================

The subpackage imports no other one of this package, so that the blocks can be used alone.
"""

from ethogram.models.families.conjugate_block import ConjugateBlock
from ethogram.models.families.constrained_dirichlet import ConstrainedDirichlet
from ethogram.models.families.exponential_family import (
    Beta,
    Dirichlet,
    expected_statistics,
    natural_step,
    total_kl,
)
from ethogram.models.families.gamma import Gamma
from ethogram.models.families.gamma_conjugate import GammaConjugate
from ethogram.models.families.matrix_normal_inverse_wishart import MatrixNormalInverseWishart
from ethogram.models.families.normal import Normal
from ethogram.models.families.normal_inverse_wishart import NormalInverseWishart
from ethogram.models.families.numpyro_sites import by_site, sample_parameters
from ethogram.models.families.partly_known import Known, PartlyKnown
from ethogram.models.families.von_mises_conjugate import VonMisesConjugate

__all__ = [
    "Beta",
    "ConjugateBlock",
    "ConstrainedDirichlet",
    "Dirichlet",
    "Gamma",
    "GammaConjugate",
    "Known",
    "MatrixNormalInverseWishart",
    "Normal",
    "NormalInverseWishart",
    "PartlyKnown",
    "VonMisesConjugate",
    "by_site",
    "expected_statistics",
    "natural_step",
    "sample_parameters",
    "total_kl",
]
