"""Exponential families: conjugate blocks, their divergences, and blocks as numpyro sites."""

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
