"""Classes that files may hold, by public tags that do not change when a class moves."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpyro.distributions
from numpyro.distributions import Distribution

from ethogram.models.hooks import HasHooks

__all__ = ["ADDED_LATER", "find_class", "find_distribution", "of_older_files", "tag_of"]

PACKAGE = "ethogram"

ADDED_LATER = {
    "FitState": ("carried", "search"),
    "MoveSearch": ("number", "final", "needs"),
    "RewardPosterior": ("log_weights",),
    "GPIRL": ("conditional", "num_intents", "sticky"),
    "MarginalMAP": ("by_number",),
    "AgentMarkov": ("weights", "stickiness", "pool", "pool_prior"),
}
"""Fields, with defaults, that older files lack, by the name of their class."""

HOMES = {
    "ethogram.inference.conjugate.fit_state": ("FitState",),
    "ethogram.inference.conjugate.move_rounds": ("MoveSearch",),
    "ethogram.inference.conjugate.posterior": ("ConjugatePosterior", "ConjugateResult"),
    "ethogram.inference.imitation.rounds": ("ImitationState",),
    "ethogram.inference.imitation.stages": ("MotionState",),
    "ethogram.inference.nuts_chains": ("ChainsState",),
    "ethogram.inference.refresh.refreshed_posterior": ("RefreshedPosterior",),
    "ethogram.inference.sampled_posterior": ("SampledPosterior",),
    "ethogram.inference.networks.anytime": ("TracePoint",),
    "ethogram.inference.networks.solve_mmap": ("MarginalMAPResult",),
    "ethogram.inference.rewards.gaussian": ("RewardGaussian",),
    "ethogram.inference.rewards.intent_posterior": ("IntentFit", "IntentPosterior"),
    "ethogram.inference.rewards.intent_search": ("IntentClimb", "IntentSearchState"),
    "ethogram.inference.rewards.reward_posterior": ("RewardFit", "RewardPosterior"),
    "ethogram.inference.rewards.max_entropy": ("MaxEntropyFit",),
    "ethogram.inference.rewards.natural_gradient": ("SearchState",),
    "ethogram.inference.rewards.natural_steps": ("Climb",),
    "ethogram.inference.rewards.nested_search": ("NestedState", "Place"),
    "ethogram.models.intents.agent_markov": ("AgentMarkov",),
    "ethogram.models.intents.constraints": ("IntentConstraints", "Rule"),
    "ethogram.models.intents.rows": ("RowBounds", "Visited"),
    "ethogram.models.networks.bayes_net": ("BayesNet",),
    "ethogram.models.networks.marginal_map": ("Evidence", "MarginalMAP"),
    "ethogram.models.families.constrained_dirichlet": ("ConstrainedDirichlet",),
    "ethogram.models.families.matrix_normal_inverse_wishart": (
        "MatrixNormalInverseWishart",
        "MatrixNormalInverseWishartCoordinates",
    ),
    "ethogram.models.families.normal": ("Normal", "NormalCoordinates"),
    "ethogram.models.families.normal_inverse_wishart": (
        "NormalInverseWishart",
        "NormalInverseWishartCoordinates",
    ),
    "ethogram.models.families.partly_known": ("Known", "PartlyKnown"),
    "ethogram.models.intents.stick_weights": ("StickWeights",),
    "ethogram.models.intents.stickiness": ("Stickiness", "StickinessPrior"),
    "ethogram.models.emissions.autoregressive": ("AutoregressiveGaussianEmission",),
    "ethogram.models.emissions.categorical": ("CategoricalEmission",),
    "ethogram.models.emissions.counts": ("BernoulliEmission", "BinomialEmission", "PoissonEmission"),
    "ethogram.models.emissions.product": ("ProductEmission",),
    "ethogram.models.emissions.steps": ("GammaEmission", "VonMisesEmission"),
    "ethogram.models.families.gamma": ("Gamma", "GammaCoordinates"),
    "ethogram.models.families.gamma_conjugate": ("GammaConjugate", "GammaConjugateCoordinates"),
    "ethogram.models.families.von_mises_conjugate": ("VonMisesConjugate", "VonMisesConjugateCoordinates"),
    "ethogram.models.emissions.gaussian": (
        "GaussianEmission",
        "GaussianMixtureEmission",
        "KnownCovarianceEmission",
    ),
    "ethogram.models.families.exponential_family": (
        "Beta",
        "BetaCoordinates",
        "Dirichlet",
        "DirichletCoordinates",
    ),
    "ethogram.models.rewards.gp_irl": ("GPIRL",),
    "ethogram.models.mdps.mdp": ("MDP",),
    "ethogram.models.choices.noisy_mdp": ("NoisyMDP",),
    "ethogram.models.choices.decisions": ("Decisions",),
    "ethogram.models.data.metadata": ("Metadata",),
    "ethogram.models.rewards.priors": ("SquaredHalfCauchy",),
    "ethogram.models.roles.role_hmm": ("RoleHMM",),
    "ethogram.models.data.trajectories": ("Trajectories",),
    "ethogram.models.mdps.transitions": ("DenseTransitions", "DeterministicTransitions", "SparseTransitions"),
}
"""Classes by the module they live in. A class is recorded as ``ethogram.`` and its name, so names are unique."""

FORMER = {"Constraints": "IntentConstraints", "Posterior": "ConjugatePosterior"}
"""Present names of classes by the names that older files hold."""


def _tag(name: str) -> str:
    return f"{PACKAGE}.{name.lstrip('_')}"


_PLACES = {_tag(name): (module, name) for module, names in HOMES.items() for name in names}


def tag_of(cls: type) -> str | None:
    """The tag under which a class is recorded, ``ethogram.RoleHMM``; None where it may not be saved.

    Models, emissions and blocks of the user's own are recorded as ``module:Name``.
    """
    if cls.__module__.partition(".")[0] == "numpyro" and issubclass(cls, Distribution):
        return f"numpyro.{cls.__qualname__}"
    tag = _tag(cls.__qualname__)
    if _PLACES.get(tag) == (cls.__module__, cls.__qualname__):
        return tag
    return f"{cls.__module__}:{cls.__qualname__}" if _is_own(cls) else None


def _is_own(cls: type) -> bool:
    """Whether a class is a model, an emission or a block that a user has defined."""
    return issubclass(cls, HasHooks) and cls.__module__.partition(".")[0] != PACKAGE


def _own_class(module: str, name: str) -> type:
    """The class of the user's own that is defined under a name, if possible in the module; no module is imported.

    A ValueError if it is not defined: a file must not run code of its own choice.
    """
    found, rest = [], [HasHooks]
    while rest:
        rest += (below := rest.pop(0).__subclasses__())
        found += [cls for cls in below if _is_own(cls) and cls.__qualname__ == name]
    if not found:
        raise ValueError(
            f"it refers to {module}:{name}, which is not a class of {PACKAGE}: if it is a model of yours, define it, "
            f"or import it from {module}, before you load"
        )
    return max(enumerate(found), key=lambda each: (each[1].__module__ == module, each[0]))[1]


def of_older_files(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Values of fields that a file lacks because it is older, where the default would be another model."""
    if name == "GPIRL" and "conditional" not in given and given["family"] == "inducing":
        return {"conditional": "full"}
    if name == "AgentMarkov" and "stickiness" not in given:
        return {"stickiness": None}
    return {}


def find_class(recorded: str) -> type:
    """The class of a tag, present or former, or of the ``module:name`` in files written before there were tags.

    A ValueError if the class is neither one that this package saves nor one of the user's own that is defined.
    """
    package, name = _parts(recorded)
    if package != PACKAGE and ":" in recorded:
        return _own_class(*recorded.split(":", 1))
    tag = _tag(FORMER.get(name, name))
    if package != PACKAGE or tag not in _PLACES:
        raise ValueError(f"it refers to {recorded}, which is not a class of ethogram")
    module, qualified = _PLACES[tag]
    return getattr(import_module(module), qualified)


def find_distribution(recorded: str) -> type[Distribution]:
    """The distribution class of a tag of this package or of numpyro; a ValueError if it is none."""
    package, name = _parts(recorded)
    found = getattr(numpyro.distributions, name, None) if package == "numpyro" else find_class(recorded)
    if not isinstance(found, type) or not issubclass(found, Distribution):
        raise ValueError(f"it refers to {recorded}, which is not a distribution")
    return found


def _parts(recorded: str) -> tuple[str, str]:
    """Package and class name of ``package.Name`` or ``package.module:Name``."""
    home, colon, name = recorded.partition(":")
    if not colon:
        home, _, name = recorded.rpartition(".")
    return home.partition(".")[0], name
