"""Probabilistic models of sequential decision making, on numpyro and JAX.

>>> import ethogram
>>> ethogram.RoleHMM
<class 'ethogram.models.roles.role_hmm.RoleHMM'>
"""

from importlib import import_module
from typing import Any

_EXPORTS = {
    "ethogram.fits": (
        "Fit",
        "compare",
        "fit",
        "load",
        "map_fits",
    ),
    "ethogram.inference.choices": (
        "PXDA",
        "predict_choice_probabilities",
        "summarize_choices",
    ),
    "ethogram.inference.conjugate": (
        "ConjugatePosterior",
        "ConjugateSVI",
        "heldout_score_curve",
        "load_posterior",
        "robbins_monro",
    ),
    "ethogram.inference.export": ("to_arviz",),
    "ethogram.inference.imitation": ("imitate",),
    "ethogram.inference.intents": (
        "IntentBelief",
        "infer_intents",
    ),
    "ethogram.inference.networks": (
        "ImpossibleEvidenceError",
        "WidthError",
        "solve_mmap",
    ),
    "ethogram.inference.planning": (
        "SogbofaPolicy",
        "plan",
    ),
    "ethogram.inference.refresh": ("refresh_posterior",),
    "ethogram.inference.rewards": (
        "fit_max_entropy",
        "fit_reward",
        "levine_map",
        "predict_reward",
        "transfer_reward",
    ),
    "ethogram.inference.roles": (
        "align_states",
        "assign_roles",
        "infer_roles",
    ),
    "ethogram.models.chains": (
        "HiddenMarkov",
        "markov_chain",
    ),
    "ethogram.models.choices": (
        "Decisions",
        "LatentClasses",
        "Logit",
        "NoisyMDP",
        "Probit",
        "ProbitChoice",
    ),
    "ethogram.models.conjugate_model": ("ConjugateModel",),
    "ethogram.models.data": (
        "Metadata",
        "Trajectories",
        "step_and_turn",
    ),
    "ethogram.models.emissions": (
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
    ),
    "ethogram.models.families": ("Known",),
    "ethogram.models.intents": (
        "AgentMarkov",
        "AgentTrace",
        "IntentConstraints",
    ),
    "ethogram.models.mdps": (
        "MDP",
        "SoftPolicy",
        "expected_value_difference",
        "optimal_values",
        "policy_values",
        "soft_policy",
        "soft_values",
    ),
    "ethogram.models.memory_bound": ("memory_bound",),
    "ethogram.models.networks": (
        "BayesNet",
        "MarginalMAP",
    ),
    "ethogram.models.planning": ("read_rddl",),
    "ethogram.models.rewards": (
        "GPIRL",
        "SwitchingGPIRL",
        "select_inducing_points",
    ),
    "ethogram.models.roles": (
        "ChoiceEmission",
        "Covariates",
        "LogitEmission",
        "RegressionEmission",
        "RoleHMM",
    ),
}
"""Public names by the subpackage they live in, imported on first access: `import ethogram` stays cheap.

`__init__.pyi` says the same to type checkers and editors; a test compares the two.
"""

_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}

_SYSTEMS = ("choices", "intents", "mdps", "networks", "planning", "rewards", "roles", "tracking")
"""Modules that hold everything public of a system, `ethogram.choices.willingness_to_pay`, or of a subpackage."""

_SUBPACKAGES = ("domains", "plots", "testing")
"""What else is imported on first access, `ethogram.plots.role_timelines`."""

_ALIASES = {
    "Constraints": "IntentConstraints",
    "inducing_points": "select_inducing_points",
}
"""Former names, which scripts still use, and what they are called now."""

__version__ = "0.1.0"

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    public = _ALIASES.get(name, name)
    if name in (*_SYSTEMS, *_SUBPACKAGES):
        value = import_module(f"ethogram.{name}")
    elif public not in _MODULE_OF:
        raise AttributeError(f"module 'ethogram' has no attribute {name!r}")
    elif name == "markov_chain":  # the module, under whose name the subpackage holds nothing
        value = import_module(f"{_MODULE_OF[name]}.{name}")
    else:
        value = getattr(import_module(_MODULE_OF[public]), public)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_SYSTEMS, *_SUBPACKAGES, "__version__"])
