"""Public names for type checkers and editors: what `_ROOMS` of `__init__.py` says."""

from ethogram import choices as choices
from ethogram import intents as intents
from ethogram import mdps as mdps
from ethogram import networks as networks
from ethogram import planning as planning
from ethogram import rewards as rewards
from ethogram import roles as roles
from ethogram.inference.choices import PXDA as PXDA
from ethogram.inference.choices import predict_choice_probabilities as predict_choice_probabilities
from ethogram.inference.choices import summarize_choices as summarize_choices
from ethogram.inference.conjugate import ConjugatePosterior as ConjugatePosterior
from ethogram.inference.conjugate import ConjugateSVI as ConjugateSVI
from ethogram.inference.conjugate import heldout_score_curve as heldout_score_curve
from ethogram.inference.conjugate import load_posterior as load_posterior
from ethogram.inference.conjugate import robbins_monro as robbins_monro
from ethogram.inference.export import to_arviz as to_arviz
from ethogram.inference.imitation import imitate as imitate
from ethogram.inference.intents import infer_intents as infer_intents
from ethogram.inference.networks import ImpossibleEvidenceError as ImpossibleEvidenceError
from ethogram.inference.networks import WidthError as WidthError
from ethogram.inference.networks import solve_mmap as solve_mmap
from ethogram.inference.planning import SogbofaPolicy as SogbofaPolicy
from ethogram.inference.planning import plan as plan
from ethogram.inference.refresh import refresh_posterior as refresh_posterior
from ethogram.inference.rewards import RewardGuide as RewardGuide
from ethogram.inference.rewards import fit_max_entropy as fit_max_entropy
from ethogram.inference.rewards import fit_reward as fit_reward
from ethogram.inference.rewards import predict_reward as predict_reward
from ethogram.inference.rewards import transfer_reward as transfer_reward
from ethogram.inference.roles import align_states as align_states
from ethogram.inference.roles import assign_roles as assign_roles
from ethogram.inference.roles import infer_roles as infer_roles
from ethogram.models.chains import HiddenMarkov as HiddenMarkov
from ethogram.models.chains import markov_chain as markov_chain
from ethogram.models.choices import Decisions as Decisions
from ethogram.models.choices import NoisyMDP as NoisyMDP
from ethogram.models.choices import ProbitChoice as ProbitChoice
from ethogram.models.conjugate_model import ConjugateModel as ConjugateModel
from ethogram.models.data import Metadata as Metadata
from ethogram.models.data import Trajectories as Trajectories
from ethogram.models.emissions import BinomialEmission as BinomialEmission
from ethogram.models.emissions import CategoricalEmission as CategoricalEmission
from ethogram.models.emissions import GaussianEmission as GaussianEmission
from ethogram.models.emissions import GaussianMixtureEmission as GaussianMixtureEmission
from ethogram.models.emissions import KnownCovarianceEmission as KnownCovarianceEmission
from ethogram.models.families import Known as Known
from ethogram.models.intents import AgentMarkov as AgentMarkov
from ethogram.models.intents import AgentTrace as AgentTrace
from ethogram.models.intents import IntentConstraints as IntentConstraints
from ethogram.models.mdps import MDP as MDP
from ethogram.models.mdps import SoftPolicy as SoftPolicy
from ethogram.models.mdps import expected_value_difference as expected_value_difference
from ethogram.models.mdps import optimal_values as optimal_values
from ethogram.models.mdps import policy_values as policy_values
from ethogram.models.mdps import soft_policy as soft_policy
from ethogram.models.mdps import soft_values as soft_values
from ethogram.models.networks import BayesNet as BayesNet
from ethogram.models.networks import MarginalMAP as MarginalMAP
from ethogram.models.planning import read_rddl as read_rddl
from ethogram.models.rewards import GPIRL as GPIRL
from ethogram.models.rewards import select_inducing_points as select_inducing_points
from ethogram.models.roles import RoleHMM as RoleHMM

Constraints = IntentConstraints
inducing_points = select_inducing_points
load = load_posterior
__version__: str
